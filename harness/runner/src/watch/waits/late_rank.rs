//! Judges a rank that others wait for and that is in code of its own: how long it may take there, and what to do about it.

use std::time::Duration;

use super::kernel_wait::{KernelWait, kernel_wait};
use crate::watch::ranks::rank_process::RankProcess;
use crate::watch::trace::call::Call;
use crate::watch::trace::call_trace::CallTrace;
use crate::watch::trace::own_wait::OwnWait;
use allranks_diagnose::{EventKind, HangEvidence, RankState, verb};
use allranks_model::diagnosis::rank_set::named;
use allranks_model::diagnosis::{Confidence, Diagnosis, HangKind};
use allranks_model::names::Rank;

/// The shortest time after which a rank is reported as behind, however small the patience.
pub const SHORTEST_LIMIT: Duration = Duration::from_secs(20);

/// Returns a process that a rank has started, directly or by others, and that is stopped; none if none is.
fn stopped_below(pid: u32) -> Option<u32> {
    let below = allranks_host::processor_times_below(&[pid]);
    let mut pids = below.get(&pid)?.keys().copied();
    pids.find(|pid| allranks_host::state(*pid) == Some('T'))
}

/// Returns what a rank is in at its line of the program's own code, as its call trace has it.
pub fn own_wait(process: &RankProcess) -> OwnWait {
    let own = process
        .call_trace
        .as_ref()
        .and_then(|call_trace| call_trace.own.as_ref());
    own.map_or(OwnWait::Unknown, |own| own.kind)
}

/// Returns what the main thread of a rank waits for in the kernel; `None` if that is not known.
pub fn sleep_of(process: &RankProcess) -> Option<KernelWait> {
    kernel_wait(&allranks_host::sleeps_in(process.pid)?)
}

/// Describes what a rank waits for in the kernel.
pub fn fact_of(rank: Rank, wait: KernelWait) -> String {
    format!("the main thread of rank {rank} {}", wait.what)
}

/// Returns the processor time, in clock ticks of 10 ms, that a rank, or what it waits for below it, has had before it is reported as
/// behind after this limit, if it wants the processor: half of the limit.
pub fn processor_ticks(limit: Duration) -> u64 {
    limit.as_millis() as u64 / 20
}

/// Collectives that carry no request to the other ranks: a server that is idle does not call one of them before its next
/// request.
const WITHOUT_NEWS: &[&str] = &[
    "all_reduce",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_tensor",
    "barrier",
];
/// Collectives by which one rank tells the others what comes next.
const WITH_NEWS: &[&str] = &[
    "broadcast",
    "broadcast_object_list",
    "scatter",
    "scatter_object_list",
];
/// The number of times that a rank must have called such a collective at once.
const HABIT: usize = 2;

/// Returns true if all ranks that wait do so in collectives by which one rank tells the others what comes next.
pub fn awaits_news(evidence: &HangEvidence) -> bool {
    let held = evidence.ranks.iter().filter_map(RankState::now);
    let mut held = held.filter(|what| !matches!(what, EventKind::Own(_)));
    held.all(
        |what| matches!(what, EventKind::Collective(one) if WITH_NEWS.contains(&one.name.as_str())),
    )
}

/// Returns true if a rank that waits for requests has left one half done: all other ranks wait for it in a collective that
/// carries no request, and so far the rank has always called it within the patience after its call before.
pub fn has_left_a_request(
    evidence: &HangEvidence,
    process: &RankProcess,
    patience: Duration,
) -> bool {
    // The recorder does not tell when calls ended.
    let traced = process.traced.as_ref().or(process.call_trace.as_ref());
    let Some(call_trace) = traced else {
        return false;
    };
    let held = evidence.ranks.iter().filter_map(RankState::now);
    let mut names: Vec<&str> = Vec::new();
    for event in held {
        match event {
            EventKind::Collective(one) if WITHOUT_NEWS.contains(&one.name.as_str()) => {
                names.push(&one.name);
            }
            EventKind::Own(_) => {}
            _ => return false,
        }
    }
    names.dedup();
    let [name] = names[..] else {
        return false;
    };
    let pauses = pauses_before(call_trace, name);
    pauses.len() >= HABIT && pauses.iter().all(|pause| *pause < patience.as_secs_f64())
}

/// Returns for how many seconds a rank was in no call before each collective of this name.
fn pauses_before(call_trace: &CallTrace, name: &str) -> Vec<f64> {
    let pairs = call_trace
        .entries
        .iter()
        .zip(call_trace.entries.iter().skip(1));
    pairs
        .filter_map(|(before, entry)| match &entry.call {
            Call::Collective { name: own, .. } if own == name => Some(entry.t? - before.end?),
            _ => None,
        })
        .collect()
}

/// Returns true if the interpreter has had no heartbeat for [`SHORTEST_LIMIT`].
pub fn is_silent(process: &RankProcess) -> bool {
    let call_trace = process.call_trace.as_ref();
    call_trace.is_some_and(|call_trace| call_trace.silence() > SHORTEST_LIMIT)
}

/// Returns true if the interpreter has had no heartbeat for [`SHORTEST_LIMIT`], and the rank uses a device: `torch.full_like(x, y)`
/// waits for `y` without letting other threads run.
pub fn may_wait_for_device(process: &RankProcess) -> bool {
    let traced = process.traced.as_ref().or(process.call_trace.as_ref());
    let uses_device = traced.is_some_and(|call_trace| {
        let mut entries = call_trace.entries.iter();
        entries.any(|entry| entry.stream.is_some())
    });
    is_silent(process) && uses_device
}

/// Returns the verdict on ranks that have been late for too long, with advice for what they are in.
pub fn behind(verdict: Diagnosis, waits: &[OwnWait]) -> Diagnosis {
    let advice = |wait: &OwnWait| {
        let known = wait.advice();
        known.unwrap_or("look at what that rank does there: py-spy dump --pid PID")
    };
    let mut lines: Vec<String> = waits.iter().map(|wait| advice(wait).to_owned()).collect();
    lines.dedup();
    Diagnosis {
        kind: HangKind::Behind,
        confidence: Confidence::Likely,
        advice: lines,
        refuted_by: "the named rank goes on by itself".to_owned(),
        ..verdict
    }
}

/// Returns those of late ranks that do not wait for an answer, which another of them may owe; all of them if all wait for one.
pub fn without_waiting_for_answers(late: Vec<(Rank, &RankProcess)>) -> Vec<(Rank, &RankProcess)> {
    let (waiting, busy): (Vec<_>, Vec<_>) = late
        .into_iter()
        .partition(|(_, process)| own_wait(process) == OwnWait::Requests);
    if busy.is_empty() { waiting } else { busy }
}

/// Returns the verdict with these of its culprits alone. The others are victims.
fn with_culprits(mut verdict: Diagnosis, busy: &[Rank]) -> Diagnosis {
    let (culprits, waiting): (Vec<Rank>, Vec<Rank>) =
        (verdict.culprits.into_iter()).partition(|rank| busy.contains(rank));
    verdict.culprits = culprits;
    if !waiting.is_empty() {
        verdict.summary = format!(
            "{} {} in code of {} own, and the others wait, {} for an answer",
            named(busy),
            verb(busy, "is", "are"),
            verb(busy, "its", "their"),
            named(&waiting),
        );
        verdict.victims.extend(waiting);
        verdict.victims.sort_unstable();
    }
    verdict
}

/// Returns the verdict on the culprits of this one, which have been late for too long, with what is known of them on this host.
pub fn late_verdict(verdict: Diagnosis, ranks: &[(Rank, &RankProcess)]) -> Diagnosis {
    let late = ranks
        .iter()
        .filter(|(rank, _)| verdict.culprits.contains(rank));
    let busy = without_waiting_for_answers(late.copied().collect());
    let culprits: Vec<Rank> = busy.iter().map(|(rank, _)| *rank).collect();
    let waits: Vec<OwnWait> = busy.iter().map(|(_, process)| own_wait(process)).collect();
    let stopped = busy
        .iter()
        .find_map(|(_, process)| stopped_below(process.pid));
    let sleeps = (busy.iter()).filter_map(|(rank, process)| Some((*rank, sleep_of(process)?)));
    let sleeps: Vec<(Rank, KernelWait)> = match stopped {
        None => sleeps.collect(),
        Some(_) => Vec::new(),
    };
    let is_loader = waits.iter().all(|wait| *wait == OwnWait::DataLoader);
    let mut verdict = with_culprits(behind(verdict, &waits), &culprits);
    if let Some(helper) = stopped {
        // Which process has stopped it is not known: it may be that of a rank that waits for this one. The workers of a data loader
        // are its own.
        if !is_loader {
            verdict.culprits.clear();
        }
        verdict.evidence.push(format!(
            "process {helper}, which the rank has started, is stopped (state T)"
        ));
        verdict.advice = vec![format!("let it go on: kill -CONT {helper}")];
    }
    for (rank, wait) in sleeps {
        verdict.evidence.push(fact_of(rank, wait));
        if waits.iter().all(|wait| wait.advice().is_none()) {
            verdict.advice = vec![wait.advice.to_owned()];
        }
    }
    verdict
}

#[cfg(test)]
mod tests {
    use super::*;
    use allranks_diagnose::{Collective, TraceEvent};
    use allranks_model::names::Rank;
    use std::time::Duration;

    #[test]
    fn news_are_what_one_rank_tells_the_others() {
        let collective = |name: &str| {
            EventKind::Collective(Collective {
                group: "world".into(),
                members: [0, 1, 2].map(Rank).into(),
                name: name.into(),
                nature: std::collections::BTreeMap::new(),
                splits: None,
            })
        };
        let awaits = |places: [EventKind; 3]| {
            let state = |(rank, what)| RankState {
                doing: Some((
                    TraceEvent {
                        what,
                        at: String::new(),
                    },
                    Duration::from_secs(9),
                )),
                ..RankState::unknown(Rank(rank))
            };
            awaits_news(&HangEvidence {
                ranks: (0..).zip(places).map(state).collect(),
                ..HangEvidence::default()
            })
        };
        let own = || EventKind::Own("its own code, `inbox.get()`".into());
        let news = || collective("broadcast");
        assert!(awaits([own(), news(), news()]));
        assert!(!awaits([own(), news(), collective("all_reduce")]));
    }
}
