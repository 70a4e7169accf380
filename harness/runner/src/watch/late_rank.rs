//! Judges a rank that others wait for and that is in code of its own: how long it may take there, and what to do about it.

use std::time::Duration;

use super::call_trace::{Call, CallTrace};
use super::job::RankProcess;
use super::kernel_wait::{KernelWait, kernel_wait};
use allranks_diagnose::{EventKind, HangEvidence, RankState};
use allranks_model::diagnosis::{Confidence, Diagnosis, HangKind};
use allranks_model::names::Rank;

/// How long, in multiples of the user's patience, a rank that others wait for may be in a wait of its own (a lock, a
/// data loader, a breakpoint), idle, or at work, before it is reported as behind.
pub const WAITING_PATIENCES: u32 = 3;
pub const IDLE_PATIENCES: u32 = 5;
const WORKING_PATIENCES: u32 = 10;
/// The shortest time after which a rank is reported as behind, however small the patience.
pub const SHORTEST_LIMIT: Duration = Duration::from_secs(20);

/// Returns a process that a rank has started, directly or by others, and that is stopped; none if none is.
fn stopped_below(pid: u32) -> Option<u32> {
    let below = allranks_host::processor_times_below(&[pid]);
    let mut pids = below.get(&pid)?.keys().copied();
    pids.find(|pid| allranks_host::state(*pid) == Some('T'))
}

/// Returns what a rank is in at its line of the program's own code, as its call trace has it.
pub fn kind_of_wait(process: &RankProcess) -> Option<String> {
    Some(process.call_trace.as_ref()?.own.as_ref()?.kind.clone())
}

/// Returns what the main thread of a rank waits for in the kernel; `None` if that is not known.
pub fn sleep_of(process: &RankProcess) -> Option<KernelWait> {
    kernel_wait(&allranks_host::sleeps_in(process.pid)?)
}

/// Describes what a rank waits for in the kernel.
pub fn fact_of(rank: Rank, wait: KernelWait) -> String {
    format!("the main thread of rank {rank} {}", wait.what)
}

/// Returns how many times the patience a rank may take that others wait for, by what it is in; none if that may take for ever.
pub fn patiences(
    kind: &str,
    is_served: bool,
    has_work_below: bool,
    is_silent: bool,
    is_at_work: impl Fn() -> bool,
) -> Option<u32> {
    match kind {
        // A server waits for as long as there are none.
        "requests" if is_served => None,
        "breakpoint" => Some(WAITING_PATIENCES),
        // Whatever may wake it is not seen: it gets as long as what works.
        "event loop" => Some(WORKING_PATIENCES),
        "unwoken event loop" => Some(WAITING_PATIENCES),
        _ if has_work_below => Some(WORKING_PATIENCES),
        "data loader" | "lock" => Some(WAITING_PATIENCES),
        // A training step does not keep the interpreter from answering for this long.
        _ if is_silent => Some(IDLE_PATIENCES),
        _ if is_at_work() => Some(WORKING_PATIENCES),
        _ => Some(IDLE_PATIENCES),
    }
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
/// The number of times that a rank must have called such a collective at once.
const HABIT: usize = 2;

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

/// Returns the verdict on ranks that have been late for too long, with advice for what they are in.
pub fn behind(verdict: Diagnosis, kinds: &[String]) -> Diagnosis {
    let advice = |kind: &String| {
        advice(kind).unwrap_or("look at what that rank does there: py-spy dump --pid PID")
    };
    let mut lines: Vec<String> = kinds.iter().map(|kind| advice(kind).to_owned()).collect();
    lines.dedup();
    Diagnosis {
        kind: HangKind::Behind,
        confidence: Confidence::Likely,
        advice: lines,
        refuted_by: "the named rank goes on by itself".to_owned(),
        ..verdict
    }
}

/// Returns the verdict on the culprits of this one, which have been late for too long, with what is known of them on this host.
pub fn late_verdict(verdict: Diagnosis, ranks: &[(Rank, &RankProcess)]) -> Diagnosis {
    let blamed = || (ranks.iter()).filter(|(rank, _)| verdict.culprits.contains(rank));
    let kinds = blamed().filter_map(|(_, process)| kind_of_wait(process));
    let kinds: Vec<String> = kinds.collect();
    let stopped = blamed().find_map(|(_, process)| stopped_below(process.pid));
    let sleeps = blamed().filter_map(|(rank, process)| Some((*rank, sleep_of(process)?)));
    let sleeps: Vec<(Rank, KernelWait)> = match stopped {
        None => sleeps.collect(),
        Some(_) => Vec::new(),
    };
    let mut verdict = behind(verdict, &kinds);
    if let Some(helper) = stopped {
        // Which process has stopped it is not known: it may be that of a rank that waits for this one.
        verdict.culprits.clear();
        verdict.evidence.push(format!(
            "process {helper}, which the rank has started, is stopped (state T)"
        ));
        verdict.advice = vec![format!("let it go on: kill -CONT {helper}")];
    }
    for (rank, wait) in sleeps {
        verdict.evidence.push(fact_of(rank, wait));
        if kinds.iter().all(|kind| advice(kind).is_none()) {
            verdict.advice = vec![wait.advice.to_owned()];
        }
    }
    verdict
}

/// Returns what to do about a rank that is in a wait of its own, by what it is in; `None` if it is in nothing that is known.
pub fn advice(kind: &str) -> Option<&'static str> {
    Some(match kind {
        "breakpoint" => "a breakpoint or a debugger holds that rank: remove it, or let it go on",
        "data loader" => {
            "that rank waits for its data loader: try num_workers=0; look for workers that are stuck, or for a lock that was held at fork"
        }
        "lock" => {
            "that rank waits for a lock, a queue or a process of its own: look at which thread or process has it"
        }
        "child process" => {
            "that rank waits for a process that it has started: look at what that process does"
        }
        "connection" => {
            "that rank waits for another process to send to it or to read: ss -tnp | grep PID says which; give the connection a timeout"
        }
        "unwoken event loop" => {
            "callbacks are ready in that rank's event loop, and it sleeps: what another thread gives to it (a queue's item, a future's result) must go through loop.call_soon_threadsafe or asyncio.run_coroutine_threadsafe"
        }
        "event loop" => {
            "nothing can wake that rank's event loop: look for a task that has ended with an error, and for what should have set the future or event that is awaited there"
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_works_gets_more_time_than_what_waits_and_a_server_any() {
        let times =
            |kind: &str, has_work_below| patiences(kind, true, has_work_below, false, || false);
        assert_eq!(times("lock", false), Some(WAITING_PATIENCES));
        assert_eq!(times("data loader", false), Some(WAITING_PATIENCES));
        // A pool of processes that tokenises, and a data loader that decodes.
        assert_eq!(times("lock", true), Some(WORKING_PATIENCES));
        assert_eq!(times("data loader", true), Some(WORKING_PATIENCES));
        assert_eq!(times("child process", true), Some(WORKING_PATIENCES));
        assert_eq!(times("child process", false), Some(IDLE_PATIENCES));
        // Nothing below a rank brings it out of a debugger.
        assert_eq!(times("breakpoint", true), Some(WAITING_PATIENCES));
        assert_eq!(times("requests", false), None);
        let left = patiences("requests", false, false, false, || false);
        assert_eq!(left, Some(IDLE_PATIENCES));
        assert_eq!(times("event loop", false), Some(WORKING_PATIENCES));
        let silent = patiences("", true, false, true, || true);
        assert_eq!(silent, Some(IDLE_PATIENCES));
        let working = patiences("", true, false, false, || true);
        assert_eq!(working, Some(WORKING_PATIENCES));
    }
}
