//! Reads stacks that `py-spy dump` has printed, one process after another: in which call of `torch.distributed` the main thread of
//! each is, or in which line of other code.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use regex::Regex;

use super::own_process::process_of_command;
use super::pattern::pattern;
use super::phase::{Edge, Mark, Nature};
use super::stack_titles::{rank_of_command, titled_rank};
use super::torch_calls::call_of;

/// The stacks of one file so far.
#[derive(Clone, Debug, Default)]
pub(super) struct CallStacks {
    /// The call that each rank is in.
    pub(super) ranks: BTreeMap<u32, Mark>,
    /// The calls of processes of which only `--local_rank` tells a number.
    pub(super) locals: Vec<(u32, Mark)>,
    /// The calls of processes whose rank nothing tells.
    pub(super) strays: Vec<Mark>,
    /// The rank that a title such as `===== rank 3 =====` names, or that has written `Pyspy dump for PID 77122`.
    title: Option<u32>,
    /// The rank whose lines the stack is in; `None` if they are no rank's.
    writer: Option<u32>,
    /// Whether the stack of a process has been read.
    has_process: bool,
    /// The rank of the process whose stack the lines are of.
    rank: Option<u32>,
    /// The number within the host that the command line of that process has.
    local: Option<u32>,
    /// The main thread that the lines are of; `None` if they are of none.
    thread: Option<MainThread>,
}

/// The main thread of a process, as far as its stack has been read.
#[derive(Clone, Debug, Default)]
struct MainThread {
    /// The innermost frame; its place if it is in code that waits for no device.
    innermost: Option<Option<String>>,
    /// Whether it runs, and keeps Python's lock: what waits for a device gives the lock up.
    has_lock: bool,
    /// Whether it waits for another thread of its process.
    waits: bool,
    /// Whether a frame is in `torch.distributed`.
    is_in_torch: bool,
    /// Whether a call of `torch.distributed` is noted.
    is_in_call: bool,
    /// Whether a message is sent whose peer a later line names; `None` without such a message.
    message: Option<bool>,
}

static PROCESS: LazyLock<Option<Regex>> = LazyLock::new(|| pattern(r"^Process (\d+): "));
/// A worker of SGLang's or vLLM's, by the number among those that share a model's tensors, if it has no other.
static WORKER: LazyLock<Option<Regex>> =
    LazyLock::new(|| pattern(r"^Process \d+: (?i:sglang|vllm)::\w*[a-z]_TP(\d+)$"));
static THREAD: LazyLock<Option<Regex>> =
    LazyLock::new(|| pattern(r#"^Thread \S+ \(([^)]*)\)(?:: "(\w+)")?"#));
static FRAME: LazyLock<Option<Regex>> = LazyLock::new(|| {
    pattern(r"^ {4}(?:[\w<>]+\.)*(\w+) \(\S*torch/distributed/distributed_c10d\.py:\d+\)")
});
static LOCAL: LazyLock<Option<Regex>> =
    LazyLock::new(|| pattern(r"\s--local[-_]rank[= ](\d+)(?:\s|$)"));
static ANY_FRAME: LazyLock<Option<Regex>> =
    LazyLock::new(|| pattern(r"^ {4}(?:[\w<>]+\.)*(\w+) \((\S+:\d+)\)"));
static PEER: LazyLock<Option<Regex>> = LazyLock::new(|| pattern(r"^\s+(?:dst|src): (\d+)$"));

/// Files in whose innermost frame a thread works with the disk, the network or a process, and does not wait for a device. A line of
/// other code may wait for one, and so for other ranks.
const HOST: &[&str] = &[
    "torch/serialization.py:",
    "torch/distributed/checkpoint/filesystem.py:",
    "torch/utils/data/",
    "multiprocessing/",
    "selectors.py:",
    "socket.py:",
    "ssl.py:",
    "http/client.py:",
    "subprocess.py:",
    "zipfile",
    "tarfile.py:",
    "gzip.py:",
    "shutil.py:",
    "json/",
];

/// Files of Python in which a thread waits for another one of its process: what it waits for, the frame outside them shows.
const WAITING: &[&str] = &["threading.py:", "queue.py:"];
/// What is in the names of files that load data, in which a thread that waits for another one waits for data.
const LOADERS: &[&str] = &["/data/", "dataset", "dataloader", "data_loader"];

/// What is in the names of files in whose innermost frame a thread may wait for a device although it keeps Python's lock.
pub(super) const DEVICE: &[&str] = &["torch", "triton", "cuda", "nccl", "npu", "xpu", "kernel"];

/// Returns true if a thread whose innermost frame is in this place, `file:line`, works with the disk, the network or a process.
pub(super) fn works_on_host(place: &str) -> bool {
    HOST.iter().any(|file| place.contains(file))
}

impl CallStacks {
    /// Reads the next line, which a rank has written if it is known. `owner` is the rank that the file is of; `rank_of` returns the rank
    /// of a process.
    pub(super) fn read(
        &mut self,
        text: &str,
        rank: Option<u32>,
        owner: Option<u32>,
        rank_of: impl Fn(&str) -> Option<u32>,
    ) {
        let found = |pattern: &'static LazyLock<Option<Regex>>| pattern.as_ref()?.captures(text);
        if let Some(of_command) = rank_of_command(text) {
            self.end();
            self.title = Some(of_command);
            // Of what it prints only the frames of the main thread may be here.
            self.rank = self.title;
            (self.local, self.writer) = (None, rank);
            self.thread = Some(MainThread::default());
        } else if let Some(rank) = titled_rank(text) {
            self.title = Some(rank);
        } else if text.starts_with("Pyspy dump for PID ") {
            self.title = rank;
        } else if text.starts_with("Process ") {
            if let Some(process) = found(&PROCESS) {
                self.end();
                self.local = found(&LOCAL).and_then(|local| local[1].parse().ok());
                let told = || process_of_command(text).map(|(rank, _)| rank);
                let title = self.title.take();
                // The first process of a file that has a rank in its name is that rank; others may be its children.
                let owner = owner.filter(|_| !std::mem::replace(&mut self.has_process, true));
                self.rank = title
                    .or_else(|| rank_of(&process[1]))
                    .or_else(told)
                    .or_else(|| found(&WORKER)?[1].parse().ok())
                    .or(owner);
                self.writer = rank;
            }
        } else if text.starts_with("Thread ") {
            self.end();
            self.thread = found(&THREAD)
                .filter(|thread| {
                    thread
                        .get(2)
                        .is_some_and(|name| name.as_str() == "MainThread")
                })
                .map(|thread| MainThread {
                    has_lock: &thread[1] == "active+gil",
                    ..MainThread::default()
                });
        } else if text.starts_with(' ')
            && rank == self.writer
            && let Some(mut thread) = self.thread.take()
        {
            self.frame(&mut thread, text);
            self.thread = Some(thread);
        }
    }

    /// Ends the stack of a thread: a main thread that is in no call of `torch.distributed` is in code of its own.
    pub(super) fn end(&mut self) {
        let is_known = self.rank.is_some() || self.local.is_some();
        if let Some(mut thread) = self.thread.take()
            && is_known
            && !thread.is_in_torch
            && let Some(Some(name)) = thread.innermost.take()
        {
            self.enter(&mut thread, (name, Nature::Own));
        }
    }

    fn frame(&mut self, thread: &mut MainThread, text: &str) {
        let found = |pattern: &'static LazyLock<Option<Regex>>| pattern.as_ref()?.captures(text);
        let is_checkpoint = || text.contains("torch/distributed/checkpoint/");
        thread.is_in_torch |= (text.contains(" (torch/distributed/")
            || text.contains("/torch/distributed/"))
            && !is_checkpoint();
        let frame = found(&ANY_FRAME).filter(|_| thread.innermost.is_none());
        let is_waiting = |place: &str| WAITING.iter().any(|file| place.contains(file));
        if let Some(frame) = &frame
            && !thread.has_lock
            && is_waiting(&frame[2])
        {
            thread.waits = true;
        } else if let Some(frame) = frame {
            let is_off_device = || !DEVICE.iter().any(|word| frame[2].contains(word));
            let loads = thread.waits && LOADERS.iter().any(|word| frame[2].contains(word));
            let is_own = loads || works_on_host(&frame[2]) || (thread.has_lock && is_off_device());
            let file = frame[2].rsplit('/').next().unwrap_or_default();
            thread.innermost = Some(is_own.then(|| format!("{} ({file})", &frame[1])));
        }
        if let Some(sends) = thread.message
            && let Some(peer) = found(&PEER).and_then(|peer| peer[1].parse().ok())
        {
            self.enter(thread, Nature::message(sends, peer));
        } else if text.contains("_shutdown (threading.py:") {
            let name = text.trim().to_owned();
            self.enter(thread, (name, Nature::Destroy));
        } else if text.contains("    broadcast_pyobj (")
            && let Some(call) = call_of("broadcast_pyobj")
        {
            self.enter(thread, call);
        } else if let Some(frame) = found(&FRAME) {
            match &frame[1] {
                "send" | "recv" => thread.message = Some(&frame[1] == "send"),
                function => {
                    if let Some(call) = call_of(function) {
                        self.enter(thread, call);
                    }
                }
            }
        }
    }

    /// Notes the call that a rank is in: the outermost, which comes last.
    fn enter(&mut self, thread: &mut MainThread, (name, nature): (String, Nature)) {
        let edge = Edge::Begin;
        let mark = Mark { edge, name, nature };
        match (self.rank, self.local) {
            (Some(rank), _) => drop(self.ranks.insert(rank, mark)),
            (None, Some(local)) => {
                if thread.is_in_call {
                    self.locals.pop();
                }
                self.locals.push((local, mark));
            }
            (None, None) => self.strays.push(mark),
        }
        thread.is_in_call = true;
        thread.message = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> BTreeMap<u32, Mark> {
        let mut stacks = CallStacks::default();
        let rank_of = |pid: &str| (pid == "90").then_some(5);
        text.lines()
            .for_each(|line| stacks.read(line, None, None, rank_of));
        stacks.end();
        stacks.ranks
    }

    #[test]
    fn only_code_that_waits_for_no_device_is_own() {
        let stack = |frame: &str| {
            let text = format!(
                "Process 90: python\nThread 90 (idle): \"MainThread\"\n    {frame}\n    main (train.py:9)\n"
            );
            read(&text).get(&5).map(|mark| mark.name.clone())
        };
        assert_eq!(
            stack("wait (threading.py:302)\n    get (queue.py:170)\n    __next__ (fairseq/data/iterators.py:648)")
                .as_deref(),
            Some("__next__ (iterators.py:648)")
        );
        assert_eq!(
            stack("wait (threading.py:302)\n    join (train.py:64)"),
            None
        );
        assert_eq!(
            stack("Popen._try_wait (subprocess.py:2004)").as_deref(),
            Some("_try_wait (subprocess.py:2004)")
        );
        assert_eq!(
            stack("__exit__ (torch/serialization.py:465)").as_deref(),
            Some("__exit__ (serialization.py:465)")
        );
        assert_eq!(stack("step (train.py:4)"), None);
        assert_eq!(stack("all_gather_x (torch/distributed/other.py:4)"), None);
    }

    #[test]
    fn a_thread_that_keeps_pythons_lock_waits_for_no_device() {
        let text = |state: &str, file: &str| {
            let mut stacks = CallStacks::default();
            let dump = format!(
                "Pyspy dump for PID 77123:\nProcess 77123: sglang::scheduler_TP3\n\nThread 77123 ({state}): \"MainThread\"\n    f ({file}:152)\n"
            );
            for line in dump.lines() {
                let rank = line.starts_with("Pyspy").then_some(3);
                stacks.read(line, rank, None, |_| None);
            }
            stacks.end();
            stacks.ranks.get(&3).map(|mark| mark.nature.clone())
        };
        assert_eq!(
            text("active+gil", "xgrammar/compiler.py"),
            Some(Nature::Own)
        );
        assert_eq!(text("active", "xgrammar/compiler.py"), None);
        assert_eq!(text("active+gil", "torch/cuda/__init__.py"), None);
        assert_eq!(text("idle", "threading.py"), None);
    }

    #[test]
    fn the_first_process_of_a_ranks_file_is_that_rank() {
        let mut stacks = CallStacks::default();
        let process = |pid: u32, call: &str| {
            format!(
                "Process {pid}: python a.py\nThread {pid} (idle): \"MainThread\"\n    {call} (torch/distributed/distributed_c10d.py:7)\n"
            )
        };
        let text = [process(91, "barrier"), process(92, "broadcast")].concat();
        text.lines()
            .for_each(|line| stacks.read(line, None, Some(3), |_| None));
        stacks.end();
        assert_eq!(stacks.ranks[&3].name, "barrier");
    }

    #[test]
    fn a_local_rank_is_told_apart() {
        let mut stacks = CallStacks::default();
        let text = "Process 91: python a.py --local_rank=3\nThread 91 (idle): \"MainThread\"\n    barrier (torch/distributed/distributed_c10d.py:7)";
        text.lines()
            .for_each(|line| stacks.read(line, None, None, |_| None));
        stacks.end();
        assert_eq!(stacks.locals.len(), 1);
        assert_eq!(stacks.locals[0].0, 3);
        assert!(stacks.ranks.is_empty() && stacks.strays.is_empty());
    }

    #[test]
    fn the_main_thread_says_where_a_rank_is() {
        let stack = "Process 91: python train.py\nPython v3.12\n\nThread 91 (active): \"MainThread\"\n    send (torch/distributed/distributed_c10d.py:2527)\n        Arguments:\n            dst: 2\n    wrapper (torch/distributed/c10d_logger.py:83)\nThread 92 (idle): \"Thread-1\"\n    barrier (torch/distributed/distributed_c10d.py:1)";
        let found = read(&format!("===== rank 1 =====\n{stack}"));
        let nature = &found[&1].nature;
        assert_eq!(
            (found.len(), nature),
            (
                1,
                &Nature::Message {
                    sends: true,
                    peer: 2
                }
            )
        );
        // Nothing says which rank it is.
        assert!(read(stack).is_empty());
        let all = "Process 90: python\nThread 90 (idle): \"MainThread\"\n    all_reduce (torch/distributed/distributed_c10d.py:9)\n    barrier (torch/distributed/distributed_c10d.py:7)";
        assert_eq!(read(all)[&5].name, "barrier");
    }
}
