//! Finds ranks that wait for the lock of a file that another rank has, by the kernel's list of locks.

use std::path::Path;

use crate::watch::ranks::rank_process::RankProcess;
use allranks_diagnose::{EventKind, HangEvidence, RankState, RankWait};
use allranks_host::FileLock;
use allranks_model::names::Rank;

/// The function of the kernel in which a process is that asks for a lock again after a pause, as SQLite does.
const PAUSE: &str = "hrtimer_nanosleep";

/// Replaces code of a rank's own by a wait for another rank, where the rank waits for the lock of a file that the other one has. It is
/// proved if it waits in the kernel. It is likely if its call trace says that it asks for that lock again and again; or if it pauses in a
/// call that does not sleep by itself, and has a file open that the other has locked exclusively.
pub fn note_waits(evidence: &mut HangEvidence, ranks: &[(Rank, &RankProcess)]) {
    if !evidence.ranks.iter().any(is_own) {
        return;
    }
    let rank_of = |pid: u32| {
        let mut all = ranks.iter();
        let found = all.find(|(_, process)| process.pid == pid);
        found.map(|(rank, _)| *rank)
    };
    for lock in allranks_host::file_locks() {
        let Some(holder) = rank_of(lock.holder) else {
            continue;
        };
        for (rank, process) in ranks.iter().filter(|(rank, _)| *rank != holder) {
            let mut states = evidence.ranks.iter_mut();
            if let Some(state) = states.find(|state| state.rank == *rank && is_own(state))
                && let Some(wait) = wait_for(&lock, holder, process, state)
                && let Some((event, _)) = &mut state.doing
            {
                event.what = EventKind::AwaitRanks(wait);
            }
        }
    }
}

/// Returns the file whose lock a rank asks for again and again, by its call trace.
fn asked_for(process: &RankProcess) -> Option<&Path> {
    let own = process.call_trace.as_ref()?.own.as_ref()?;
    own.lock.as_deref()
}

/// Returns true if a rank is in code of its own.
fn is_own(state: &RankState) -> bool {
    matches!(state.now(), Some(EventKind::Own(_)))
}

/// Returns the wait of a rank in code of its own for a lock that another rank has; none if it does not wait for it.
fn wait_for(
    lock: &FileLock,
    holder: Rank,
    process: &RankProcess,
    state: &RankState,
) -> Option<RankWait> {
    let pid = process.pid;
    let is_proved = lock.waiters.contains(&pid);
    let asks_for = asked_for(process).filter(|path| lock.is_of(path));
    let sleeps_itself = || {
        let now = state.now().map(ToString::to_string);
        now.is_some_and(|now| now.contains("sleep"))
    };
    let pauses = || allranks_host::sleeps_in(pid).is_some_and(|at| at.contains(PAUSE));
    let may_wait =
        is_proved || asks_for.is_some() || (lock.is_exclusive && pauses() && !sleeps_itself());
    // The files of a process are looked at last: they may be many.
    if !may_wait {
        return None;
    }
    let asks_for = asks_for.map(|path| path.to_string_lossy().into_owned());
    let path = asks_for.or_else(|| lock.path_in(pid));
    (is_proved || path.is_some()).then(|| RankWait {
        text: format!(
            "a wait for the lock of {}, which rank {holder} has",
            path.as_deref().unwrap_or("a file")
        ),
        ranks: vec![holder],
        is_proved,
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fs::File;
    use std::process::{Command, Stdio};
    use std::time::{Duration, Instant};

    use allranks_diagnose::TraceEvent;
    use rustix::fs::{FlockOperation, flock};

    use super::*;

    #[test]
    fn a_pause_with_a_locked_file_open_and_a_lock_that_is_asked_for_are_likely_waits() {
        let path = std::env::temp_dir().join(format!("allranks-held-{}", std::process::id()));
        let held = File::create(&path).unwrap();
        flock(&held, FlockOperation::LockExclusive).unwrap();
        let own = std::process::id();
        let locks = allranks_host::file_locks();
        let lock = locks
            .iter()
            .find(|lock| lock.path_in(own).as_deref() == path.to_str());
        let lock = lock.unwrap();

        let pausing = |input: Stdio| {
            Command::new("sleep")
                .arg("600")
                .stdin(input)
                .spawn()
                .unwrap()
        };
        let mut with_file = pausing(File::open(&path).unwrap().into());
        let mut without = pausing(Stdio::null());
        let until = Instant::now() + Duration::from_secs(60);
        let pauses = |pid| allranks_host::sleeps_in(pid).is_some_and(|at| at.contains(PAUSE));
        while !(pauses(with_file.id()) && pauses(without.id())) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(10));
        }
        // Some kernels do not tell.
        let is_told = pauses(with_file.id());
        let wait = |pid, code: &str, asked: Option<&Path>| {
            let call_trace = asked.map(|path| {
                let own = serde_json::json!({"text": code, "at": "", "lock": path});
                let text = serde_json::json!({
                    "format": 1, "pid": pid, "moves": 0, "epoch": 0, "inside": null, "own": own,
                });
                serde_json::from_value(text).unwrap()
            });
            let process = RankProcess {
                pid,
                environment: BTreeMap::new(),
                activity: None,
                call_trace,
                traced: None,
                more_may_start: false,
            };
            let event = TraceEvent {
                what: EventKind::Own(format!("its own code, `{code}`")),
                at: String::new(),
            };
            let mut state = RankState::unknown(Rank(1));
            state.doing = Some((event, Duration::ZERO));
            wait_for(lock, Rank(0), &process, &state).map(|wait| (wait.ranks, wait.is_proved))
        };
        let seen = [
            wait(with_file.id(), "db.execute(query)", None),
            wait(with_file.id(), "time.sleep(60)", None),
            wait(without.id(), "db.execute(query)", None),
            wait(without.id(), "with lock:", Some(&path)),
            wait(without.id(), "with lock:", Some(Path::new("/dev/null"))),
        ];
        for child in [&mut with_file, &mut without] {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        std::fs::remove_file(&path).unwrap();
        let likely = Some((vec![Rank(0)], false));
        let expected = likely.clone().filter(|_| is_told);
        assert_eq!(seen, [expected, None, None, likely, None]);
    }
}
