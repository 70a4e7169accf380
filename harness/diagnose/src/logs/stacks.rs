//! Reads stacks that `py-spy dump` has printed, one process after another: in which call of `torch.distributed` the main thread of
//! each is.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use regex::Regex;

use super::failure::CALLS;
use super::logged::nature;
use super::phase::{Edge, Mark, Nature};

/// The stacks of one file so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Stacks {
    /// The call that each rank is in.
    pub(super) ranks: BTreeMap<u32, Mark>,
    /// The calls of processes whose rank nothing tells.
    pub(super) strays: Vec<Mark>,
    /// The rank that a title such as `===== rank 3 =====` names.
    title: Option<u32>,
    /// The rank of the process whose stack the lines are of.
    rank: Option<u32>,
    /// Whether the lines are of the main thread.
    is_main: bool,
    /// A message whose peer a later line names.
    message: Option<bool>,
}

fn pattern(text: &str) -> Option<Regex> {
    Regex::new(text).ok()
}

static TITLE: LazyLock<Option<Regex>> =
    LazyLock::new(|| pattern(r"(?i)^[=#*-]{2,}\s*rank[ :#]*(\d+)\s*[=#*-]*$"));
static PROCESS: LazyLock<Option<Regex>> = LazyLock::new(|| pattern(r"^Process (\d+): "));
static THREAD: LazyLock<Option<Regex>> =
    LazyLock::new(|| pattern(r#"^Thread \S+ \([^)]*\)(?:: "(\w+)")?"#));
static FRAME: LazyLock<Option<Regex>> =
    LazyLock::new(|| pattern(r"^ {4}(\w+) \(\S*torch/distributed/distributed_c10d\.py:\d+\)"));
static PEER: LazyLock<Option<Regex>> = LazyLock::new(|| pattern(r"^\s+(?:dst|src): (\d+)$"));

impl Stacks {
    /// Reads the next line. `rank_of` returns the rank of a process.
    pub(super) fn read(&mut self, text: &str, rank_of: impl Fn(&str) -> Option<u32>) {
        let found = |pattern: &'static LazyLock<Option<Regex>>| pattern.as_ref()?.captures(text);
        if text.starts_with(['=', '#', '*', '-']) {
            if let Some(title) = found(&TITLE) {
                self.title = title[1].parse().ok();
            }
        } else if text.starts_with("Process ") {
            if let Some(process) = found(&PROCESS) {
                self.rank = self.title.take().or_else(|| rank_of(&process[1]));
                self.is_main = false;
            }
        } else if text.starts_with("Thread ") {
            let name =
                found(&THREAD).and_then(|thread| Some(thread.get(1)?.as_str() == "MainThread"));
            self.is_main = name == Some(true);
            self.message = None;
        } else if self.is_main && text.starts_with(' ') {
            self.frame(text);
        }
    }

    fn frame(&mut self, text: &str) {
        let found = |pattern: &'static LazyLock<Option<Regex>>| pattern.as_ref()?.captures(text);
        if let Some(sends) = self.message
            && let Some(peer) = found(&PEER).and_then(|peer| peer[1].parse().ok())
        {
            let verb = if sends { "send to" } else { "recv from" };
            self.enter(
                format!("{verb} rank {peer}"),
                Nature::Message { sends, peer },
            );
        } else if let Some(frame) = found(&FRAME) {
            match &frame[1] {
                "send" | "recv" => self.message = Some(&frame[1] == "send"),
                "destroy_process_group" => {
                    self.enter("destroy_process_group".to_owned(), Nature::Destroy);
                }
                name => {
                    if let Some(call) = CALLS.iter().find(|call| **call == name) {
                        self.enter(name.to_owned(), nature(call));
                    }
                }
            }
        }
    }

    /// Notes the call that a rank is in: the outermost, which comes last.
    fn enter(&mut self, name: String, nature: Nature) {
        let edge = Edge::Begin;
        let mark = Mark { edge, name, nature };
        match self.rank {
            Some(rank) => drop(self.ranks.insert(rank, mark)),
            None => self.strays.push(mark),
        }
        self.message = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> BTreeMap<u32, Mark> {
        let mut stacks = Stacks::default();
        let rank_of = |pid: &str| (pid == "90").then_some(5);
        text.lines().for_each(|line| stacks.read(line, rank_of));
        stacks.ranks
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
