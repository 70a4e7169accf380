//! Reads the stacks that Python's `faulthandler` prints of the own process: after a time (`dump_traceback_later`), on a signal, or at
//! a fault; and those of TensorRT-LLM's detector of hangs, which have the outermost frame first and lines of code.

use std::sync::LazyLock;

use regex::Regex;

use super::call_stacks::{DEVICE, works_on_host};
use super::failure::WAITS;
use super::pattern::pattern;
use super::phase::{Edge, Mark, Nature};
use super::torch_calls::call_of;
use super::traceback_lines::begins_stack;

/// The stacks of one process, as far as they have been read. Of several dumps the last counts.
#[derive(Clone, Debug, Default)]
pub(super) struct Faulthandler {
    /// The frames of the thread that was printed last, innermost first: of all threads, the main thread comes last.
    frames: Vec<Frame>,
    /// Whether the lines are of a dump.
    is_open: bool,
    /// Whether the dump has the outermost frame first, and a line of code below each.
    has_code: bool,
}

#[derive(Clone, Debug)]
struct Frame {
    file: String,
    line: String,
    function: String,
    /// The line of code; empty if the dump has none.
    code: String,
}

static THREAD: LazyLock<Option<Regex>> = LazyLock::new(|| {
    pattern(
        r"^(?:(?:Current thread|Thread) 0x[0-9a-f]+(?: \[[^\]]*\])?|Stack) \(most recent call first\):$|^Thread (?:\d+ stack trace|[\w .-]{1,60} \(most recent call last\)):$",
    )
});
static FRAME: LazyLock<Option<Regex>> =
    LazyLock::new(|| pattern(r#"^\s+File "([^"]+)", line (\d+),? in (\S+)$"#));

impl Faulthandler {
    /// Reads the next line. Returns true if it is of a dump.
    pub(super) fn read(&mut self, text: &str) -> bool {
        let has_code = begins_stack(text);
        if (has_code || text.ends_with("(most recent call first):")) && is(&THREAD, text) {
            self.is_open = true;
            self.has_code = has_code;
            self.frames.clear();
            return true;
        }
        if !self.is_open {
            return false;
        }
        if let Some(found) = FRAME.as_ref().and_then(|frame| frame.captures(text)) {
            self.frames.push(Frame {
                file: found[1].to_owned(),
                line: found[2].to_owned(),
                function: found[3].to_owned(),
                code: String::new(),
            });
            return true;
        }
        if self.has_code
            && text.starts_with("    ")
            && let Some(frame) = self.frames.last_mut()
        {
            text.trim().clone_into(&mut frame.code);
            return true;
        }
        self.is_open = text.is_empty() || text.trim() == "<no Python frame>";
        self.is_open
    }

    /// Forgets what was read: the process has gone on.
    pub(super) fn go_on(&mut self) {
        *self = Self::default();
    }

    /// Returns what the main thread was in: a call of `torch.distributed`, the end of the process, or work on the host; `None` if the
    /// stack shows none of these.
    pub(super) fn mark(&self) -> Option<Mark> {
        let frames: Vec<&Frame> = match self.has_code {
            true => self.frames.iter().collect(),
            false => self.frames.iter().rev().collect(),
        };
        let call = frames.iter().find_map(|frame| frame.call());
        let (name, nature) = call.or_else(|| {
            let innermost = frames.last()?;
            let is_own = innermost.is_on_host() || innermost.waits_for_no_device();
            is_own.then(|| (innermost.title(), Nature::Own))
        })?;
        let edge = Edge::Begin;
        Some(Mark { edge, name, nature })
    }
}

impl Frame {
    fn call(&self) -> Option<(String, Nature)> {
        let function = self.function.as_str();
        if self.file.ends_with("threading.py") && function == "_shutdown" {
            return Some((self.title(), Nature::Destroy));
        }
        // `tp_gather`, `pp_recv`: calls of TensorRT-LLM's communicator for the ranks that share tensors, or stages.
        if self.file.ends_with("distributed/communicator.py") {
            let (_, call) = function.split_once('_')?;
            return call_of(call).or_else(|| call_of(call.strip_suffix("_object")?));
        }
        let is_call = self.file.ends_with("distributed_c10d.py");
        is_call.then(|| call_of(function)).flatten()
    }

    /// Returns true if the line of code is known, and neither it nor its file has to do with a device or a wait.
    fn waits_for_no_device(&self) -> bool {
        !self.code.is_empty()
            && !DEVICE.iter().any(|word| self.file.contains(word))
            && !WAITS.iter().any(|wait| self.code.contains(wait))
    }

    fn is_on_host(&self) -> bool {
        works_on_host(&format!("{}:{}", self.file, self.line))
    }

    fn title(&self) -> String {
        let file = self.file.rsplit('/').next().unwrap_or_default();
        format!("{} ({file}:{})", self.function, self.line)
    }
}

fn is(pattern: &LazyLock<Option<Regex>>, text: &str) -> bool {
    pattern
        .as_ref()
        .is_some_and(|pattern| pattern.is_match(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(text: &str) -> Option<(String, Nature)> {
        let mut dump = Faulthandler::default();
        for line in text.lines() {
            dump.read(line);
        }
        dump.mark().map(|mark| (mark.name, mark.nature))
    }

    #[test]
    fn the_last_thread_is_the_main_thread() {
        let other = "Timeout (0:00:22)!\nThread 0x00007fbc (most recent call first):\n  File \"/p/queue.py\", line 171 in get\n  File \"/p/threading.py\", line 1002 in _bootstrap\n\n";
        let main = |frame: &str| {
            mark(&format!(
                "{other}Thread 0x00007fbd (most recent call first):\n  File {frame}\n  File \"/p/train.py\", line 7 in <module>\n"
            ))
        };
        assert_eq!(
            main("\"/p/torch/distributed/distributed_c10d.py\", line 4164 in barrier"),
            Some(("barrier".to_owned(), Nature::Collective("barrier")))
        );
        assert_eq!(
            main("\"/p/threading.py\", line 1590 in _shutdown"),
            Some(("_shutdown (threading.py:1590)".to_owned(), Nature::Destroy))
        );
        assert_eq!(
            main("\"/p/torch/serialization.py\", line 9 in load"),
            Some(("load (serialization.py:9)".to_owned(), Nature::Own))
        );
        let traced = |frame: &str, code: &str| {
            mark(&format!(
                "Thread 140 stack trace:\n  File \"/usr/lib/threading.py\", line 10, in run\n    self.f()\n  File {frame}\n    {code}\n"
            ))
        };
        assert_eq!(
            traced(
                "\"/opt/serve/grammar.py\", line 88, in advance",
                "while not self.ok(t):"
            ),
            Some(("advance (grammar.py:88)".to_owned(), Nature::Own))
        );
        assert_eq!(
            traced(
                "\"/opt/serve/grammar.py\", line 88, in advance",
                "x = logits.item()"
            ),
            None
        );
        assert_eq!(
            traced(
                "\"/p/tensorrt_llm/_torch/distributed/communicator.py\", line 4, in tp_gather",
                "return self.tp_comm.gather(obj)"
            ),
            Some(("gather".to_owned(), Nature::Collective("gather")))
        );
        // It may wait for a device there, and so for other ranks.
        assert_eq!(main("\"/p/train.py\", line 9 in step"), None);
        assert_eq!(
            mark("Thread 0x00007fbd (most recent call first):\n  <no Python frame>"),
            None
        );
    }
}
