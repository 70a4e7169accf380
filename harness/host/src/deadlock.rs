//! Proves that a process can never continue: each of its threads, and of those of the processes that it waits for, waits
//! without a timeout for another of these threads. The kernel shows the waits. Linux only, on x86-64 and 64-bit ARM.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::thread::{Thread, threads};

/// Processes whose threads wait for each other without a timeout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deadlock {
    /// The waits, one sentence for each process and kind of wait.
    pub facts: Vec<String>,
}

/// What a thread waits for without a timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Wait {
    /// A lock, a condition variable or a semaphore of its own process.
    Lock,
    /// Room in a pipe.
    PipeWrite,
    /// Data in a pipe.
    PipeRead,
    /// Data in one of some pipes, or the end of one.
    Poll,
    /// The end of a process that it has started.
    Child,
}

/// Returns the deadlock of a process and all its descendants. `None` if some thread may continue, if a signal handler may wake
/// one, or if the kernel does not tell. `is_ignored` returns true for a thread that never wakes another, and whose own wait may
/// therefore have a timeout.
#[must_use]
pub fn deadlock(pid: u32, is_ignored: &dyn Fn(&Thread) -> bool) -> Option<Deadlock> {
    let mut seen: BTreeMap<u32, Vec<Thread>> = BTreeMap::new();
    let mut waits: BTreeMap<(u32, Wait), usize> = BTreeMap::new();
    let mut to_see = vec![pid];
    let heeded = |pid: u32| {
        let mut all = threads(pid);
        all.retain(|thread| !is_ignored(thread));
        all
    };
    // A descendant may be working while this process waits for it.
    let below = || {
        let living = super::descendants(pid);
        let living = living.into_iter().filter(|child| child.state != 'Z');
        living.map(|child| child.pid).collect::<Vec<u32>>()
    };
    while let Some(pid) = to_see.pop() {
        if seen.contains_key(&pid) {
            continue;
        }
        // In most processes that are not deadlocked, the main thread alone shows it.
        SystemCall::of(pid, pid)?.endless_wait()?;
        let all = heeded(pid);
        if all.is_empty() || handles_signals(pid)? {
            return None;
        }
        let calls = all.iter().map(|thread| {
            let call = SystemCall::of(pid, thread.id)?;
            Some((call.endless_wait()?, call))
        });
        // Finding the other ends of pipes means reading all processes. It is done only when each thread waits without a timeout.
        let calls: Vec<(Wait, SystemCall)> = calls.collect::<Option<_>>()?;
        for (wait, call) in calls {
            *waits.entry((pid, wait)).or_default() += 1;
            to_see.extend(call.wakers(pid, wait)?);
        }
        seen.insert(pid, all);
        // The processes at these ends come after the process itself.
        if seen.len() == 1 {
            to_see.extend(below());
        }
    }
    // The threads were read one after another: they are a deadlock if none of them has run in the meantime.
    let have_slept = seen.iter().all(|(pid, before)| {
        let now = heeded(*pid);
        let mut pairs = now.iter().zip(before);
        now.len() == before.len() && pairs.all(|(now, before)| now.has_slept_since(before))
    });
    if !have_slept || below().iter().any(|child| !seen.contains_key(child)) {
        return None;
    }
    let facts = waits.into_iter().map(|((of, wait), count)| {
        let process = if of == pid { "its process" } else { "process" };
        let number = match count {
            1 => "one thread".to_owned(),
            _ => format!("{count} threads"),
        };
        let verb = if count == 1 { "waits" } else { "wait" };
        format!(
            "{process} {of}: {number} {verb}, without a limit, {}",
            wait.text()
        )
    });
    Some(Deadlock {
        facts: facts.collect(),
    })
}

/// Returns the timeout of the `epoll` wait that a thread is in; `None` if it is in no such wait, or the wait has no timeout.
/// Linux only.
#[must_use]
pub fn polls_for(pid: u32, thread: u32) -> Option<Duration> {
    // The thread may be running between two waits at this moment.
    const TRIES: usize = 8;
    let limit = || SystemCall::of(pid, thread)?.limit_of_poll();
    (0..TRIES).find_map(|_| limit())
}

impl Wait {
    /// Returns what is waited for, in words that follow "waits".
    fn text(self) -> &'static str {
        match self {
            Self::Lock => "for locks of that process",
            Self::PipeWrite => {
                "for room in a pipe that no other process could read, but those that are named here"
            }
            Self::PipeRead | Self::Poll => {
                "for data or the end of a pipe that no other process could write, but those that are named here"
            }
            Self::Child => "for a process that it has started, named here, to end",
        }
    }
}

/// Returns true if a process has signal handlers that may wake its threads; `None` if that cannot be read. Handlers of faults,
/// of SIGINT
/// (Python always has one) and of the signals of the C library do not count.
fn handles_signals(pid: u32) -> Option<bool> {
    /// Signals 2 (interrupt), 4, 5, 6, 7, 8, 11 (faults), 13 (broken pipe), 32 and 33 (C library).
    const EXCEPTED: u64 = 0x0001_8000_14fa;
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let mask = status
        .lines()
        .find_map(|line| line.strip_prefix("SigCgt:"))?;
    let mask = u64::from_str_radix(mask.trim(), 16).ok()?;
    Some(mask & !EXCEPTED != 0)
}

/// A system call that a thread is in, and its arguments.
struct SystemCall {
    number: i64,
    arguments: [u64; 6],
}

impl SystemCall {
    /// Returns the system call that a thread waits in; `None` if it runs, waits elsewhere, or may not be looked at.
    fn of(pid: u32, thread: u32) -> Option<Self> {
        let text = std::fs::read_to_string(format!("/proc/{pid}/task/{thread}/syscall")).ok()?;
        Self::parse(&text)
    }

    /// Parses `NUMBER ARGUMENT... STACK CODE`: a decimal number, then eight hexadecimal ones.
    fn parse(text: &str) -> Option<Self> {
        let mut words = text.split_whitespace();
        let number: i64 = words.next()?.parse().ok()?;
        let mut arguments = [0; 6];
        for argument in &mut arguments {
            let word = words.next()?.strip_prefix("0x")?;
            *argument = u64::from_str_radix(word, 16).ok()?;
        }
        (number >= 0).then_some(Self { number, arguments })
    }
}

impl SystemCall {
    /// Returns what a thread in this call waits for without a timeout. `None` if the thread may continue by itself, if any
    /// process may wake it, or if that is not known.
    #[cfg(target_os = "linux")]
    fn endless_wait(&self) -> Option<Wait> {
        /// Flag of a futex operation: only threads of the same process use the futex.
        const PRIVATE: u64 = 128;
        /// Flag of a futex operation: the clock of the timeout.
        const CLOCK: u64 = 256;
        /// Futex operations: FUTEX_WAIT and FUTEX_WAIT_BITSET.
        const WAITS: [u64; 2] = [0, 9];

        let [first, second, third, fourth, ..] = self.arguments;
        match self.number {
            libc::SYS_futex => {
                let is_wait = WAITS.contains(&(second & !(PRIVATE | CLOCK)));
                let is_private = second & PRIVATE != 0;
                let has_limit = fourth != 0;
                (is_wait && is_private && !has_limit).then_some(Wait::Lock)
            }
            libc::SYS_write | libc::SYS_writev => Some(Wait::PipeWrite),
            libc::SYS_read | libc::SYS_readv => Some(Wait::PipeRead),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_poll => {
                let has_limit = third & u64::from(u32::MAX) != u64::from(u32::MAX);
                (!has_limit).then_some(Wait::Poll)
            }
            libc::SYS_ppoll => (third == 0).then_some(Wait::Poll),
            // The id of one process, not of a group or of any child; and no options such as WNOHANG.
            libc::SYS_wait4 => (first != 0 && first < 1 << 31 && third == 0).then_some(Wait::Child),
            _ => None,
        }
    }

    /// Returns `None`: not known on other systems than Linux.
    #[cfg(not(target_os = "linux"))]
    fn endless_wait(&self) -> Option<Wait> {
        None
    }

    /// Returns the timeout of this call if it is an `epoll` wait; `None` if it has none, or is another call.
    #[cfg(target_os = "linux")]
    fn limit_of_poll(&self) -> Option<Duration> {
        let is_poll = match self.number {
            #[cfg(target_arch = "x86_64")]
            libc::SYS_epoll_wait => true,
            libc::SYS_epoll_pwait => true,
            _ => false,
        };
        let [.., limit, _, _] = self.arguments;
        // A negative timeout means no timeout.
        let limit = u64::from(u32::try_from(limit).ok().filter(|limit| *limit < 1 << 31)?);
        is_poll.then_some(Duration::from_millis(limit))
    }

    /// Returns `None`: not known on other systems than Linux.
    #[cfg(not(target_os = "linux"))]
    fn limit_of_poll(&self) -> Option<Duration> {
        None
    }

    /// Returns the other processes that can end this wait of a thread of `pid`; `None` if any process may.
    fn wakers(&self, pid: u32, wait: Wait) -> Option<BTreeSet<u32>> {
        let [first, second, ..] = self.arguments;
        match wait {
            Wait::Lock => Some(BTreeSet::new()),
            Wait::PipeWrite => others_of_pipe(pid, first, Access::Read),
            Wait::PipeRead => others_of_pipe(pid, first, Access::Write),
            Wait::Poll => writers_of_polled(pid, first, second),
            Wait::Child => Some(BTreeSet::from([u32::try_from(first).ok()?])),
        }
    }
}

/// Returns the other processes that can write into the descriptors that a thread polls: `count` entries at an address of
/// process `pid`. `None` if some of the descriptors are no pipes.
fn writers_of_polled(pid: u32, address: u64, count: u64) -> Option<BTreeSet<u32>> {
    use std::os::unix::fs::FileExt;

    /// Bytes of an entry (`struct pollfd`): the descriptor, and two bytes each for `events` and `revents`.
    const ENTRY: usize = 8;
    /// Largest number of descriptors that are looked at. Only servers poll more.
    const MOST: u64 = 1024;
    let count = usize::try_from(count)
        .ok()
        .filter(|_| (1..=MOST).contains(&count))?;
    let mut list = vec![0; count * ENTRY];
    let memory = std::fs::File::open(format!("/proc/{pid}/mem")).ok()?;
    memory.read_exact_at(&mut list, address).ok()?;
    let mut wakers = BTreeSet::new();
    for entry in list.chunks_exact(ENTRY) {
        let descriptor = i32::from_ne_bytes(entry[..4].try_into().ok()?);
        // `poll` ignores negative descriptors.
        if let Ok(descriptor) = u64::try_from(descriptor) {
            wakers.extend(others_of_pipe(pid, descriptor, Access::Write)?);
        }
    }
    Some(wakers)
}

/// The end of a pipe that a process has open.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Access {
    Read,
    Write,
}

/// Returns the processes other than `pid` that have the pipe at this descriptor open for `access`; `None` if the descriptor is
/// no pipe. Processes whose descriptors cannot be read belong to other users, and do not have the pipe.
fn others_of_pipe(pid: u32, descriptor: u64, access: Access) -> Option<BTreeSet<u32>> {
    let pipe = std::fs::read_link(format!("/proc/{pid}/fd/{descriptor}")).ok()?;
    pipe.to_str()?.strip_prefix("pipe:")?;
    let mut found = BTreeSet::new();
    for entry in std::fs::read_dir("/proc").ok()?.flatten() {
        let Some(other) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse::<u32>().ok())
        else {
            continue;
        };
        let Ok(files) = std::fs::read_dir(entry.path().join("fd")) else {
            continue;
        };
        let mut files = files.flatten();
        let is_open = files.any(|file| {
            std::fs::read_link(file.path()).is_ok_and(|target| target == pipe)
                && has_access(other, &file.file_name().to_string_lossy(), access)
        });
        if is_open && other != pid {
            found.insert(other);
        }
    }
    Some(found)
}

/// Returns true if a process has a descriptor open for `access`, or if that cannot be read.
fn has_access(pid: u32, descriptor: &str, access: Access) -> bool {
    /// The bits of the flags that say whether a file is open for reading (0), writing (1) or both (2).
    const MODE: u32 = 3;
    let text = std::fs::read_to_string(format!("/proc/{pid}/fdinfo/{descriptor}"));
    let text = text.unwrap_or_default();
    let mut lines = text.lines();
    let flags = lines.find_map(|line| line.strip_prefix("flags:"));
    let flags = flags.and_then(|flags| u32::from_str_radix(flags.trim(), 8).ok());
    flags.is_none_or(|flags| match flags & MODE {
        0 => access == Access::Read,
        1 => access == Access::Write,
        _ => true,
    })
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::process::{Child, Command, Stdio};
    use std::time::Instant;

    use super::*;

    /// More than a program needs to come into its deadlock, however busy the machine is.
    const LONG: Duration = Duration::from_secs(60);

    /// Starts a program in Python.
    fn python(program: &str) -> Child {
        let mut command = Command::new("python3");
        command.args(["-c", program]).stdin(Stdio::null());
        command.spawn().unwrap()
    }

    /// Returns the first deadlock that is seen of a program within this limit.
    fn of_program(program: &str, limit: Duration) -> Option<Deadlock> {
        let mut child = python(program);
        let began = Instant::now();
        let found = loop {
            let found = deadlock(child.id(), &|_| false);
            if found.is_some() || began.elapsed() > limit {
                break found;
            }
            std::thread::sleep(Duration::from_millis(50));
        };
        for below in super::super::descendants(child.id()) {
            let _gone = Command::new("kill")
                .args(["-9", &below.pid.to_string()])
                .status();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        found
    }

    #[test]
    fn threads_that_wait_for_each_other_are_a_deadlock() {
        let found = of_program(
            "import queue, threading\nthreading.Thread(target=queue.Queue().get).start()",
            LONG,
        );
        let facts = found.unwrap().facts;
        assert_eq!(facts.len(), 1, "{facts:?}");
        assert!(facts[0].ends_with(": 2 threads wait, without a limit, for locks of that process"));
    }

    #[test]
    fn a_pipe_that_only_its_writer_could_read_is_a_deadlock() {
        let found = of_program(
            "import os\nr, w = os.pipe()\nos.write(w, bytes(1 << 20))",
            LONG,
        );
        assert!(found.unwrap().facts[0].contains("room in a pipe"));
    }

    #[test]
    fn a_child_that_waits_for_what_its_parent_would_read_is_a_deadlock() {
        let found = of_program(
            "import os\nr, w = os.pipe()\npid = os.fork()\nif pid == 0: os.write(w, bytes(1 << 20))\nelse: os.waitpid(pid, 0)",
            LONG,
        );
        let facts = found.unwrap().facts;
        assert!(
            facts.iter().any(|fact| fact.contains("to end")),
            "{facts:?}"
        );
        assert!(
            facts.iter().any(|fact| fact.contains("room in a pipe")),
            "{facts:?}"
        );
    }

    #[test]
    fn a_parent_that_waits_for_the_end_of_one_that_waits_for_it_is_a_deadlock() {
        let found = of_program(
            "import os, select\nr, w = os.pipe()\ns, e = os.pipe()\npid = os.fork()\nif pid == 0: os.close(s); os.write(w, bytes(1 << 20))\nelse: os.close(e); p = select.poll(); p.register(s, select.POLLIN); p.poll()",
            LONG,
        );
        let facts = found.unwrap().facts;
        assert!(
            facts.iter().any(|fact| fact.contains("the end of a pipe")),
            "{facts:?}"
        );
    }

    #[test]
    fn a_helper_that_waits_for_a_deadlocked_process_is_part_of_it() {
        let found = of_program(
            "import multiprocessing as mp, os\nqueue = mp.get_context('spawn').Queue()\nos.write(queue._writer.fileno(), bytes(1 << 20))",
            LONG,
        );
        assert_eq!(found.unwrap().facts.len(), 2);
    }

    #[test]
    fn a_poll_with_a_limit_is_told_from_one_without() {
        let first = |limit: &str| {
            let program = format!("import select\nwhile True: select.epoll().poll({limit})");
            let mut child = python(&program);
            let began = Instant::now();
            let found = loop {
                let found = polls_for(child.id(), child.id());
                let is_waiting = super::super::is_asleep(child.id());
                if found.is_some() || began.elapsed() > Duration::from_secs(2) && is_waiting {
                    break found;
                }
                std::thread::sleep(Duration::from_millis(20));
            };
            child.kill().unwrap();
            child.wait().unwrap();
            found
        };
        assert_eq!(first("0.5"), Some(Duration::from_millis(500)));
        assert_eq!(first(""), None);
    }

    #[test]
    fn what_may_go_on_is_none() {
        let waits = "threading.Event().wait()";
        let programs = [
            // A limit, however long.
            "import threading\nthreading.Event().wait(600)".to_owned(),
            // Another thread that sleeps.
            format!("import threading, time\nthreading.Thread(target=time.sleep, args=(600,)).start()\n{waits}"),
            // A handler that may set the event.
            format!("import signal, threading\nsignal.signal(signal.SIGTERM, print)\n{waits}"),
            // A child that works, which this process keeps something for.
            format!("import subprocess, threading\nsubprocess.Popen(['sleep', '600'])\n{waits}"),
            // A child that another process may let go on.
            "import subprocess\nsubprocess.run(['sleep', '600'])".to_owned(),
            // A lock that any process may give back.
            "import multiprocessing\nmultiprocessing.Event().wait()".to_owned(),
            // A pipe that another process may write.
            "import select, subprocess, sys\nchild = subprocess.Popen(['sleep', '600'], stdout=subprocess.PIPE)\np = select.poll()\np.register(child.stdout, select.POLLIN)\np.poll()".to_owned(),
            // A socket.
            "import select, socket\ns = socket.create_server(('127.0.0.1', 0))\np = select.poll()\np.register(s, select.POLLIN)\np.poll()".to_owned(),
            // A pipe that another process reads.
            "import os, subprocess\nr, w = os.pipe()\nsubprocess.Popen(['sleep', '600'], stdin=r)\nos.write(w, bytes(1 << 20))".to_owned(),
        ];
        for program in programs {
            assert_eq!(
                of_program(&program, Duration::from_secs(2)),
                None,
                "{program}"
            );
        }
    }
}
