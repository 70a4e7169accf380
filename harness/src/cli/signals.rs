//! Signals that stop a run.

use tokio::runtime::Runtime;
use tokio::task::AbortHandle;

use crate::conclusion::Exit;
use allranks_runner::run::Interrupt;

/// Ends the process at a signal before the run has begun. The processes that it has started then end by themselves.
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

/// Waits for signals: the first one interrupts the run, which then ends in order; the second one ends the process and its ranks
/// at once.
pub(super) async fn listen_for_signals(interrupt: Interrupt) {
    use tokio::signal::unix::{SignalKind, signal};

    let (Ok(mut int), Ok(mut term)) = (
        signal(SignalKind::interrupt()),
        signal(SignalKind::terminate()),
    ) else {
        return;
    };
    // Under `nohup` the run continues when its terminal closes.
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

/// Returns true if this process was started with SIGHUP ignored; false if the kernel does not tell.
fn is_hangup_ignored() -> bool {
    const SIGHUP: u32 = 1;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|set| u64::from_str_radix(set.trim(), 16).ok());
    ignored.is_some_and(|set| set & (1 << (SIGHUP - 1)) != 0)
}
