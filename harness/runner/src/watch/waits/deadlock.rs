//! Finds ranks whose own threads wait for each other, by the kernel's account of each thread.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::watch::ranks::rank_process::{RankProcess, is_one_left};
use crate::watch::trace::call::{Call, Entry};
use crate::watch::trace::call_trace::CallTrace;
use allranks_diagnose::{Deadlock, EventKind, HangEvidence};
use allranks_host::Thread;
use allranks_model::names::Rank;

/// The name that the call trace gives the thread that writes it: see `allranks_trace.py`.
const TRACE_THREAD: &str = "allranks-watch";
/// The names that torch gives the threads that carry out a process group's work on Gloo, and that of a store's server.
const GLOO_THREAD: &str = "pt_gloo_runloop";
const STORE_THREAD: &str = "pt_tcpstore_uv";
/// How long the thread of Gloo's that waits at the sockets does so at a time: see `gloo/transport/tcp/loop.cc`.
const GLOO_POLL: Duration = Duration::from_millis(10);
/// Time without a call of a rank after which its threads are looked at.
const QUIET_TIME: Duration = Duration::from_secs(1);

/// Replaces code of a rank's own by a deadlock, where all its threads wait for each other.
pub fn note(evidence: &mut HangEvidence, ranks: &[(Rank, &RankProcess)]) {
    let is_alone = is_one_left(ranks);
    for state in &mut evidence.ranks {
        let Some((event, since)) = &mut state.doing else {
            continue;
        };
        let EventKind::Own(text) = &event.what else {
            continue;
        };
        let process = ranks.iter().find(|(rank, _)| *rank == state.rank);
        let Some((_, process)) = process.filter(|(_, process)| process.lives()) else {
            continue;
        };
        if *since < QUIET_TIME {
            continue;
        }
        // They are there until Python's collector has taken the group, and wake no other thread; nor do they without another rank.
        let idle = match is_alone || process.call_trace.as_ref().is_some_and(has_left) {
            true => idle_threads(process.pid),
            false => BTreeSet::new(),
        };
        let is_ignored = |thread: &Thread| thread.name == TRACE_THREAD || idle.contains(&thread.id);
        if let Some(found) = allranks_host::deadlock(process.pid, &is_ignored) {
            event.what = EventKind::Deadlock(Deadlock {
                text: text.clone(),
                facts: found.facts,
            });
        }
    }
}

/// Returns true if a rank has left its newest world, and its main thread has come to the end of the program.
fn has_left(call_trace: &CallTrace) -> bool {
    let is_end = |entry: &Entry| {
        let is_of_destroy = matches!(&entry.call, Call::End { of, ok: true } if of == "destroy");
        is_of_destroy && entry.epoch == call_trace.epoch
    };
    call_trace.finished && call_trace.entries.iter().any(is_end)
}

/// Returns the threads of a process that serve process groups on Gloo and stores alone.
fn idle_threads(pid: u32) -> BTreeSet<u32> {
    let polls = |thread: &Thread| allranks_host::polls_for(pid, thread.id) == Some(GLOO_POLL);
    of_groups(&allranks_host::threads(pid), polls)
}

/// Returns those of a process's threads, in the order of their start, that serve process groups and stores. The one at Gloo's sockets has
/// no name of its own; it starts right before those that carry out the work.
fn of_groups(threads: &[Thread], polls: impl Fn(&Thread) -> bool) -> BTreeSet<u32> {
    let is_named = |thread: &&Thread| [GLOO_THREAD, STORE_THREAD].contains(&thread.name.as_str());
    let named = threads.iter().filter(is_named);
    let first = threads.windows(2).filter_map(|pair| {
        let is_first = pair[0].name != GLOO_THREAD && pair[1].name == GLOO_THREAD;
        (is_first && polls(&pair[0])).then_some(&pair[0])
    });
    named.chain(first).map(|thread| thread.id).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_thread_before_those_of_gloo_is_gloos_if_it_polls_as_gloo_does() {
        let names = [
            "python",
            "allranks-watch",
            "python",
            "pt_gloo_runloop",
            "pt_gloo_runloop",
            "python",
        ];
        let thread = |(id, name): (u32, &str)| Thread {
            id,
            name: name.into(),
            state: 'S',
            waits: 0,
            preemptions: 0,
            ticks: 0,
        };
        let threads: Vec<Thread> = (7..).zip(names).map(thread).collect();
        let found = |polls: &dyn Fn(&Thread) -> bool| {
            of_groups(&threads, polls).into_iter().collect::<Vec<u32>>()
        };
        assert_eq!(found(&|_| true), [9, 10, 11]);
        assert_eq!(found(&|_| false), [10, 11]);
    }

    #[test]
    fn a_rank_has_left_once_its_newest_world_is_destroyed_and_its_program_at_the_end() {
        let has_left = |finished: bool, epoch: u32| {
            let end =
                r#"{"id": 1, "epoch": 1, "at": "", "what": "end", "of": "destroy", "ok": true}"#;
            let head = format!(r#""moves": 5, "epoch": {epoch}, "finished": {finished}"#);
            let text = format!(r#"{{{head}, "entries": [{end}]}}"#);
            has_left(&serde_json::from_str(&text).unwrap())
        };
        assert!(has_left(true, 1));
        assert!(!has_left(false, 1));
        assert!(!has_left(true, 2));
    }
}
