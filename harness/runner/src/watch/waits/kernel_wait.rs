//! Names what a process waits for, from the kernel function that it sleeps in. It is a fact for a report, never a reason to
//! accuse a rank, because what is waited for may come.

/// What a process waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelWait {
    /// A sentence about the process: `writes into a pipe that is full`.
    pub what: &'static str,
    /// What to look at.
    pub advice: &'static str,
}

/// Parts of names of the kernel's functions (whole names with `=` before them), with what a process waits for in them. Names differ a
/// little from version to version.
const WAITS: &[(&[&str], KernelWait)] = &[
    (
        &["pipe_write"],
        KernelWait {
            what: "writes into a pipe that is full, because what should read it does not",
            advice: "look at what should read that rank's pipe: lsof +E -p PID shows both ends",
        },
    ),
    (
        &["pipe_read"],
        KernelWait {
            what: "reads from a pipe into which nothing is written",
            advice: "look at what should write into that rank's pipe: lsof +E -p PID shows both ends",
        },
    ),
    (
        &["wait_for_partner"],
        KernelWait {
            what: "opens a FIFO of which nothing has opened the other end",
            advice: "that rank opens a FIFO: what should be at its other end was not started, or has ended",
        },
    ),
    (
        &["locks_lock", "flock_lock", "fcntl_setlk", "nlmclnt_lock"],
        KernelWait {
            what: "waits for the lock of a file",
            advice: "look at which process has the lock of that file: lslocks",
        },
    ),
    (
        &[
            "nfs",
            "rpc_wait",
            "request_wait_answer",
            "fuse_",
            "ceph_",
            "ptlrpc_",
        ],
        KernelWait {
            what: "waits for a file system of another machine or process",
            advice: "look at whether that rank's file system answers: df, dmesg, and the mount of the files of ls -l /proc/PID/fd",
        },
    ),
    (
        &["n_tty_read"],
        KernelWait {
            what: "reads from a terminal",
            advice: "that rank waits for input from its terminal: nobody types there in a job",
        },
    ),
    (
        &[
            "unix_stream_read",
            "unix_wait_for_peer",
            "sk_wait_data",
            "sk_stream_wait_memory",
            "skb_wait_for",
        ],
        KernelWait {
            what: "waits at a socket for another process",
            advice: "that rank waits for another process to send to it or to read: ss -xtnp | grep PID says which; give the connection a timeout",
        },
    ),
    (
        &["=do_wait"],
        KernelWait {
            what: "waits for a process that it has started to end",
            advice: "that rank waits for a process that it has started: look at what that process does: ps --ppid PID",
        },
    ),
];

/// Returns what a process waits for that sleeps in this function of the kernel; `None` if that tells nothing, as for a sleep or a lock
/// between threads.
#[must_use]
pub fn kernel_wait(function: &str) -> Option<KernelWait> {
    let is_named = |part: &&str| match part.strip_prefix('=') {
        Some(whole) => function == whole,
        None => function.contains(*part),
    };
    let is_of = |wait: &&(&[&str], KernelWait)| wait.0.iter().any(is_named);
    WAITS.iter().find(is_of).map(|(_, wait)| *wait)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};
    use std::time::{Duration, Instant};

    #[test]
    fn functions_of_the_kernel_tell_what_is_waited_for() {
        let what = |function: &str| kernel_wait(function).map(|wait| wait.what);
        assert!(
            what("anon_pipe_write")
                .unwrap()
                .starts_with("writes into a pipe")
        );
        assert!(
            what("rpc_wait_bit_killable")
                .unwrap()
                .contains("file system")
        );
        assert!(
            what("locks_lock_inode_wait")
                .unwrap()
                .contains("lock of a file")
        );
        // Sleeping, waiting for a thread, and what both sockets and terminals wait in.
        for function in [
            "hrtimer_nanosleep",
            "futex_do_wait",
            "wait_woken",
            "do_epoll_wait",
            "",
        ] {
            assert_eq!(what(function), None, "{function}");
        }
    }

    #[test]
    fn a_process_whose_pipe_is_full_is_seen_to_write() {
        let mut child = Command::new("yes").stdout(Stdio::piped()).spawn().unwrap();
        let until = Instant::now() + Duration::from_secs(60);
        let mut function = None;
        while function.is_none() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(10));
            function = allranks_host::sleeps_in(child.id());
        }
        let wait = function.as_deref().and_then(kernel_wait);
        child.kill().unwrap();
        child.wait().unwrap();
        // Some kernels do not tell.
        assert!(
            function.is_none() || wait.is_some_and(|wait| wait.what.contains("pipe that is full")),
            "{function:?}"
        );
    }
}
