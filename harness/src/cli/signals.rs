//! Signals that stop a run.

use tokio::runtime::Runtime;
use tokio::task::AbortHandle;

use crate::conclusion::Exit;
use allranks_runner::run::Interrupt;

/// Ends the process at a signal that comes before anything runs. What it has started sees that, and ends too.
pub(super) fn incomplete_at_signal(runtime: &Runtime) -> AbortHandle {
    let task = runtime.spawn(async {
        let interrupt = Interrupt::default();
        tokio::select! {
            () = listen_for_signals(interrupt.clone()) => {}
            () = interrupt.wait() => std::process::exit(Exit::Incomplete as i32),
        }
    });
    task.abort_handle()
}

/// Listens for signals: the first one stops the run in good order, the second ends the process at once, and its ranks
/// with it.
pub(super) async fn listen_for_signals(interrupt: Interrupt) {
    use tokio::signal::unix::{SignalKind, signal};

    let (Ok(mut int), Ok(mut term)) = (
        signal(SignalKind::interrupt()),
        signal(SignalKind::terminate()),
    ) else {
        return;
    };
    // Under `nohup` the end of a terminal is to change nothing.
    let mut hup = match is_hangup_ignored() {
        true => None,
        false => signal(SignalKind::hangup()).ok(),
    };
    let mut next = async || {
        let hung_up = async {
            match &mut hup {
                Some(hup) => hup.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = int.recv() => {}
            _ = term.recv() => {}
            _ = hung_up => {}
        }
    };
    next().await;
    interrupt.set();
    next().await;
    std::process::exit(130);
}

/// Returns true if this process was started with SIGHUP ignored, as far as the kernel tells.
fn is_hangup_ignored() -> bool {
    const SIGHUP: u32 = 1;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|set| u64::from_str_radix(set.trim(), 16).ok());
    ignored.is_some_and(|set| set & (1 << (SIGHUP - 1)) != 0)
}
