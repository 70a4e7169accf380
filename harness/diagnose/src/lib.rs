//! The verdict on a job that hangs: which rank, where, why, what to try.
//!
//! In: [`HangEvidence`], what is known of every rank at a moment, from whatever source. Out: a [`Diagnosis`]. Nothing
//! here looks at a process, a socket or a clock. Rules are tried in order, causes before effects. Each is a function
//! from evidence to a verdict, or to `None` if it lacks its facts; if none has a verdict, the kind is
//! [`HangKind::Unknown`]. A rank that only waits is never the culprit.
//!
//! | module | holds |
//! |---|---|
//! | `evidence` | what is known |
//! | `rendezvous` | ranks that do not meet |
//! | `groups`, `collectives` | ranks that contradict each other |
//! | `call_sequence` | the collectives of a rank in a group, in order, and where two ranks differ |
//! | `messages` | the messages between ranks, and which calls are two sides of one |
//! | [`batch`] | which message of a batch a rank waits for |
//! | `polled` | a rank that has ended while another one looks again and again for something |
//! | `any_source` | a message from any rank that no rank sends |
//! | `waits` | which rank waits for which |
//! | `chain_ends` | where the chains of waiting ranks end |
//! | `common_rank` | the rank that all cycles of waiting ranks go through |
//! | `keys` | which rank sets which keys of a store |
//! | `cycle` | why ranks wait for each other |
//! | `tag_order` | whether the tags of a rank's messages go on as before |
//! | `splits` | what the members of an all-to-all send and receive |
//! | `counter` | a counter in a store that one rank has added to more or less often than the rest |
//! | `unset_key` | a key in a store that all ranks wait for and none sets |
//! | `failed_thread` | a thread that set keys of a store and has failed |
//! | `other_key` | a key in a store that one rank waits for where all others wait for another |
//! | `habit` | what a rank has always done at a place, until now |
//! | `same_line` | which of its groups each rank calls a collective on at a line that all ranks run |
//! | `other_group` | a call that is on another group than before |
//! | `recorded` | what the backend's own records have under way |
//! | `seen` | ranks of which only the stacks are known |
//! | `errors` | what the texts of errors tell |
//! | `advice` | what to do |
//! | [`logs`] | evidence from what ranks have written |
//!
//! A new kind is a variant of [`HangKind`], its lines in `advice`, and a rule that returns it.

mod advice;
mod any_source;
pub mod batch;
#[cfg(test)]
mod builders;
mod call_sequence;
mod chain_ends;
mod collectives;
mod common_rank;
mod counter;
mod cycle;
mod errors;
mod evidence;
mod failed_thread;
mod groups;
mod habit;
mod keys;
pub mod logs;
mod messages;
mod other_group;
mod other_key;
mod polled;
mod recorded;
mod rendezvous;
mod same_line;
mod seen;
mod splits;
mod tag_order;
#[cfg(test)]
mod tests;
mod unset_key;
mod waits;

pub use advice::{advice, refutation};
pub use errors::{ErrorCause, error_cause};
pub use evidence::{
    A_CALL, Collective, Deadlock, END_OF_PROGRAM, EventKind, ForeignListener, GROUPS_OF_CALLER,
    HangEvidence, Message, Process, RankState, RankWait, Reads, Remaining, Rendezvous, SeenCall,
    Splits, TraceEvent, has_shares, list, verb,
};

pub use polled::ended_meanwhile;
pub use rendezvous::unreachable;

use allranks_model::diagnosis::{Confidence, Diagnosis, HangKind};
use allranks_model::names::Rank;
use allranks_model::record::RankLine;

/// Returns the verdict on a job in which nothing has moved for `evidence.still`; kind `Unknown` if no rule applies.
#[must_use]
pub fn diagnose(evidence: &HangEvidence) -> Diagnosis {
    let rendezvous = rendezvous::contradiction(evidence);
    let chain = chain_ends::end_of_chain(evidence);
    let is_proved = |one: &Diagnosis| one.confidence == Confidence::Proved;
    // Contradictions come before their effects: a rank that contradicts the others may die or wait in a cycle because
    // of it.
    let in_order = [
        rendezvous.clone().filter(is_proved),
        seen::verdict(evidence),
        contradiction(evidence),
        splits::mismatch(evidence),
        messages::unmatched(evidence),
        chain.clone().filter(is_proved),
        cycle::other_partners_of_all(evidence),
        messages::dropped(evidence),
        any_source::not_sent(evidence),
        chain,
        rendezvous,
        chain_ends::lost(evidence),
        counter::miscounted(evidence),
        other_key::other_key(evidence),
        unset_key::unset_key(evidence),
        chain_ends::stopped(evidence),
        chain_ends::ended_by_error(evidence),
        failed_thread::failed_thread(evidence),
    ];
    let verdict = in_order.into_iter().flatten().next();
    let verdict = verdict.or_else(|| recorded::under_way(evidence));
    let mut verdict = verdict.unwrap_or_else(|| unknown(evidence));
    verdict.evidence.extend(recorded::lines(evidence));
    verdict
}

/// Finds groups or collectives in which ranks contradict each other, whether anything hangs or not; `None` if there are
/// none.
#[must_use]
pub fn contradiction(evidence: &HangEvidence) -> Option<Diagnosis> {
    groups::contradiction(evidence).or_else(|| collectives::contradiction(evidence))
}

fn unknown(evidence: &HangEvidence) -> Diagnosis {
    let summary = format!(
        "nothing has moved for {:.1} s, and the evidence does not say why",
        evidence.still.as_secs_f64()
    );
    conclude(
        evidence,
        HangKind::Unknown,
        Confidence::None,
        Vec::new(),
        summary,
    )
    .because([messages::under_way(evidence), keys::not_set(evidence)].concat())
}

/// Builds a verdict. Its victims are the ranks that are in a call with others and are not culprits.
fn conclude(
    evidence: &HangEvidence,
    kind: HangKind,
    confidence: Confidence,
    culprits: Vec<Rank>,
    summary: String,
) -> Diagnosis {
    let waits = |state: &&RankState| {
        state.now().is_some_and(|what| {
            !matches!(
                what,
                EventKind::Own(_) | EventKind::Deadlock(_) | EventKind::Leave
            )
        })
    };
    let victims = evidence
        .ranks
        .iter()
        .filter(waits)
        .map(|state| state.rank)
        .filter(|rank| !culprits.contains(rank))
        .collect();
    Diagnosis {
        kind,
        after_s: evidence.still.as_secs_f64(),
        confidence,
        culprits,
        victims,
        summary,
        evidence: Vec::new(),
        refuted_by: refutation(kind).to_owned(),
        advice: advice(kind).iter().map(|line| (*line).to_owned()).collect(),
        places: evidence
            .ranks
            .iter()
            .map(|state| RankLine {
                rank: state.rank,
                text: state.place(),
            })
            .collect(),
    }
}
