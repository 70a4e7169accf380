//! Chooses the verdict on a job from its logs. What an error says of its cause is a fact; what follows from places is
//! likely.

mod by_rules;
mod claims;
mod compared;
mod counted;
mod debugger;
mod evicted;
mod failure_table;
mod group_creations;
mod group_members;
mod lagging;
mod message_tags;
mod message_timeouts;
mod node;
mod places;
mod process_table;
mod silent;
mod stalled;
mod stopped;
mod stuck;
mod teardown;
mod told;
mod traced;
mod unconnected;
mod unique_id;
mod without_error;
mod works;

use std::collections::BTreeMap;

use super::behind::behind;
use super::dump_contradiction;
use super::job::Job;
use super::logged::Step;
use super::phase::Nature;
use crate::evidence::verb;
use crate::{HangEvidence, conclude, diagnose};
use allranks_model::diagnosis::rank_set::named;
use allranks_model::diagnosis::{Confidence, Diagnosis, HangKind};
use allranks_model::names::Rank;
use allranks_model::record::RankLine;
use by_rules::says_itself;

/// Returns the verdict; `None` if the logs show nothing wrong.
pub(super) fn verdict(job: &Job) -> Option<Diagnosis> {
    let evidence = job.evidence();
    let rules = Rules {
        job,
        evidence: &evidence,
    };
    if job.has_ended_well() || !rules.is_troubled() {
        return None;
    }
    let by_rules = diagnose(&evidence);
    let found = rules
        .stopped_processes()
        .or_else(|| rules.at_debugger())
        .or_else(|| rules.killed_by_signal())
        .or_else(|| rules.died())
        .or_else(|| rules.failed_node())
        .or_else(|| rules.evicted())
        .or_else(|| rules.port_in_use())
        .or_else(|| Some(by_rules.clone()).filter(says_itself))
        .or_else(|| rules.claimed_twice(&by_rules))
        .or_else(|| rules.claimed_sizes())
        .or_else(|| rules.fingerprints())
        .or_else(|| rules.compared())
        .or_else(|| rules.named_by_barrier())
        .or_else(|| rules.stalled())
        .or_else(|| rules.unconnected(&by_rules))
        .or_else(|| rules.counted())
        .or_else(|| rules.recorded())
        .or_else(|| rules.lagging())
        .or_else(|| rules.mismatched())
        .or_else(|| rules.traced())
        .or_else(|| rules.works())
        .or_else(|| rules.stuck())
        .or_else(|| rules.told_to_stop())
        .or_else(|| rules.awaited_id())
        .or_else(|| rules.left())
        .or_else(|| rules.ended_first())
        .or_else(|| rules.unresponsive())
        .or_else(|| rules.message_tags())
        .or_else(|| rules.message_timeouts())
        .or_else(|| rules.silent())
        .or_else(|| rules.unsigned())
        .or_else(|| rules.teardown())
        .or_else(|| rules.group_creations())
        .or_else(|| rules.group_numbers())
        .or_else(|| rules.group_members())
        .or_else(|| rules.communicator_sizes())
        .or_else(|| rules.about_others())
        .or_else(|| {
            Some(by_rules)
                .filter(|rule| rules.is_likely(rule))
                .map(|rule| rules.likely(rule))
        })
        .or_else(|| rules.alone())
        .or_else(|| rules.behind())
        .or_else(|| rules.still_busy())
        .or_else(|| rules.without_error())
        .or_else(|| rules.raised())
        .unwrap_or_else(|| rules.unknown());
    Some(Diagnosis {
        places: job.places(),
        ..found
    })
}

/// The rules on what was logged, each with its verdict.
struct Rules<'a> {
    job: &'a Job,
    /// What was made of the logs for the rules on hanging jobs.
    evidence: &'a HangEvidence,
}

impl Rules<'_> {
    fn diagnosis(
        &self,
        kind: HangKind,
        confidence: Confidence,
        culprits: Vec<Rank>,
        summary: String,
        facts: Vec<String>,
    ) -> Diagnosis {
        conclude(self.evidence, kind, confidence, culprits, summary).because(facts)
    }

    /// Returns true if a rank waits for others, raised an error without finishing, ended badly, or is named by torch.
    fn is_troubled(&self) -> bool {
        // Training that has finished shows that ranks came out of the rendezvous, although none of them says so.
        let has_met = |step: &Step| step.nature == Nature::Init && self.job.stray.is_finished;
        let waits = self.job.ranks.values().any(|logged| {
            let step = logged.step();
            step.is_some_and(|step| step.nature.waits() && !has_met(step))
        });
        let raised = || {
            let mut all = self.job.ranks.values();
            all.any(|logged| logged.log.has_failed()) || self.stray_has_failed()
        };
        let ended = || {
            self.job
                .lines
                .launcher
                .exits
                .values()
                .any(|code| *code != 0)
        };
        let accused = || !self.job.lines.accusations.absent.is_empty();
        let recorded = || {
            let mut groups = self
                .job
                .dumps
                .values()
                .flat_map(|dump| dump.groups.values());
            groups.any(|group| group.waits())
        };
        let timed_out = || {
            let mut all = self.job.ranks.values();
            all.any(|logged| logged.log.watchdog.timed_out())
        };
        waits
            || recorded()
            || timed_out()
            || ended()
            || accused()
            || !self.job.lines.bootstrap.is_well()
            || self.teardown().is_some()
            || self.traced().is_some()
            || self.stalled().is_some()
            || self.lagging().is_some()
            || self.mismatched().is_some()
            || self.claimed_sizes().is_some()
            || self.message_timeouts().is_some()
            || self.message_tags().is_some()
            || self.stopped_processes().is_some()
            || self.at_debugger().is_some()
            || !self.job.lines.dead_workers.lines.ranks.is_empty()
            || (raised() && !self.is_over())
            || behind(self.job).is_some()
    }

    /// Returns true if a rank raised an error, caught or not, and so did something of which no rank is known: the launcher, or an
    /// engine.
    fn stray_has_failed(&self) -> bool {
        let mut all = self.job.ranks.values();
        self.job.stray.cause().is_some()
            && all.any(|logged| logged.log.final_errors().next().is_some())
    }

    /// Returns true if every rank has come out of tearing down.
    fn is_over(&self) -> bool {
        let mut all = self.job.ranks.values();
        all.all(|logged| {
            let last = logged.begun.last();
            logged.open.is_empty() && last.is_some_and(|step| step.nature == Nature::Destroy)
        })
    }

    /// Returns the verdict by the dumps of flight recorders; `None` if they show no contradiction.
    fn recorded(&self) -> Option<Diagnosis> {
        let found = dump_contradiction::contradiction(&self.job.dumps)?;
        let found = self.diagnosis(
            found.kind,
            Confidence::Likely,
            found.culprits,
            found.summary,
            found.facts,
        );
        let victims = found.victims;
        Some(Diagnosis { victims, ..found })
    }

    fn unknown(&self) -> Diagnosis {
        let summary =
            "ranks wait or have given up, and the logs do not show for which ranks".to_owned();
        let absent = self.job.absent();
        let facts = match absent.is_empty() {
            true => Vec::new(),
            false => vec![format!("of {} there are no logs here", named(&absent))],
        };
        let (kind, confidence) = (HangKind::Unknown, Confidence::None);
        self.diagnosis(kind, confidence, Vec::new(), summary, facts)
    }
}

/// Returns the ranks whose value is not that of the majority; none of them if no value has a majority. `None` if all values are
/// the same.
///
/// Of `voters` ranks some may not be seen, and agree with either side: then three must agree for each that differs.
fn odd<'a>(values: impl Iterator<Item = (u32, &'a str)>, voters: usize) -> Option<Vec<Rank>> {
    let values: Vec<(u32, &str)> = values.collect();
    let mut votes: BTreeMap<&str, usize> = BTreeMap::new();
    for (_, value) in &values {
        *votes.entry(value).or_default() += 1;
    }
    if votes.len() < 2 {
        return None;
    }
    let common = votes.into_iter().find(|(_, count)| {
        let differ = values.len() - count;
        count * 2 > voters.max(values.len()) || *count >= 3 * differ
    });
    let Some((common, _)) = common else {
        return Some(Vec::new());
    };
    let odd = values.iter().filter(|(_, value)| *value != common);
    Some(odd.map(|(rank, _)| Rank(*rank)).collect())
}

/// Says that these ranks have called something else than the others.
fn differs(ranks: &[Rank]) -> String {
    format!(
        "{} {} another collective than the rest, or other arguments",
        named(ranks),
        verb(ranks, "has", "have")
    )
}

fn line(rank: u32, text: &str) -> RankLine {
    RankLine {
        rank: Rank(rank),
        text: text.to_owned(),
    }
}

/// Returns the kind and the culprits of the verdict on a file with these lines.
#[cfg(test)]
fn said(text: &str) -> (HangKind, Vec<u32>) {
    said_of(&[super::Source::of_text("job.log", text)])
}

/// Returns the kind and the culprits of the verdict on these files.
#[cfg(test)]
fn said_of(sources: &[super::Source]) -> (HangKind, Vec<u32>) {
    let verdict = super::report(sources).unwrap().verdict;
    let none = (HangKind::Unknown, Vec::new());
    verdict.map_or(none, |verdict| {
        let culprits = verdict.culprits.iter().map(|rank| rank.0);
        (verdict.kind, culprits.collect())
    })
}
