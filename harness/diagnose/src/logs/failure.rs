//! Reads errors in a log: the last line of a traceback, the text of an exception without one, the end by a fault, and
//! what torch says of other ranks.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use regex::Regex;

use super::pattern::pattern;
use super::rank_list::ranks_of_list;
use super::torch_calls::CALLS;
use super::traceback_lines::FIRST;

/// The most bytes that are kept of an error.
const KEPT: usize = 600;

static EXCEPTION: LazyLock<Option<Regex>> = LazyLock::new(|| {
    pattern(r"^(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt|Exit|Failure)(?::|$)")
});
static ANY_EXCEPTION: LazyLock<Option<Regex>> =
    LazyLock::new(|| pattern(r"^(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*(?::|$)"));
static FRAME: LazyLock<Option<Regex>> =
    LazyLock::new(|| pattern(r#"^\s*File "([^"]+)", line (\d+), in (\S+)"#));
static FAULT: LazyLock<Option<Regex>> = LazyLock::new(|| {
    pattern(
        r"^(?:Fatal Python error: |Segmentation fault|Bus error|Illegal instruction|Killed$|terminate called )",
    )
});
/// What ROCm and CANN write of an error of the device itself.
static DEVICE: LazyLock<Option<Regex>> = LazyLock::new(|| {
    pattern(
        r"^HW Exception by GPU|there is an? \w+ error exception|\b(?:aivec|aicore|aicpu|vector core|ai core) (?:error )?exception",
    )
});
/// What CANN writes where a rank has waited for another for too long.
const NOTIFY: &str = "wait execution of the Notify register times out";
/// SGLang's watchdog of a scheduler that makes no step.
static ENGINE: LazyLock<Option<Regex>> =
    LazyLock::new(|| pattern(r"^(?:\w+ )?[Ww]atchdog timeout \(self\.watchdog_timeout="));
/// The message of a C++ exception that ends the process, or a thread of a process group: what it says counts.
static MESSAGE: LazyLock<Option<Regex>> = LazyLock::new(|| {
    pattern(
        r"(?:^\s*what\(\):|(?:thread terminated with|raised the following async) exception:)\s+(\S.*)$",
    )
});
/// What stands before the traceback of an exception that Python itself has dropped.
const DROPPED: &[&str] = &["Exception ignored in", "--- Logging error ---"];
/// What a line beside the traceback says of an exception that the program has caught, and goes on without.
static CAUGHT: LazyLock<Option<Regex>> = LazyLock::new(|| {
    pattern(
        r"(?i)\b(?:skip(?:ping|ped)|ignor(?:ing|ed)|retrying|will retry|will be retried|repeating|trying again|will try again|continuing|carrying on|falling back|fell back|recovered)\b",
    )
});
/// What such a line says if the program does not go on.
static GIVEN_UP: LazyLock<Option<Regex>> = LazyLock::new(|| {
    pattern(
        r"(?i)\b(?:giv(?:e|es|ing|en) up|gave up|exceeded|exhausted|no more|abort(?:ing|ed)?|exit(?:ing|ed)?|(?:cannot|can't|not|without) (?:retry|retrying|be retried))\b",
    )
});
/// The outermost function of a traceback that nothing has caught.
const OUTERMOST: &[&str] = &["<module>", "_run_module_as_main"];
/// The outermost function of a thread, or of a process that Python has started.
const BOOTSTRAP: &[&str] = &["_bootstrap", "_bootstrap_inner", "spawn_main"];
static ABSENT: LazyLock<Option<Regex>> =
    LazyLock::new(|| pattern(r"\bRanks? ([\d, ]+) failed to pass monitoredBarrier"));
static MISMATCH: LazyLock<Option<Regex>> = LazyLock::new(|| {
    pattern(
        r"Rank (\d+) is running collective: CollectiveFingerPrint\((.*?)\), but Rank (\d+) is running collective: CollectiveFingerPrint\((.*?)\)\.?Collectives differ",
    )
});

/// Reads the errors of one stream of lines.
#[derive(Clone, Debug, Default)]
pub(super) struct Failures {
    /// The traceback that the lines are of.
    traceback: Option<Traceback>,
    /// Whether the next traceback is that of an exception that Python has dropped.
    is_dropped: bool,
    /// The last line that was read.
    before: String,
    /// Whether the line before the traceback says that the program goes on without what failed.
    is_caught: bool,
}

/// The end of a traceback.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    /// Its last line, or a line that is an error by itself.
    pub(super) text: String,
    /// Where it was raised, if that is a traceback's.
    pub(super) place: Option<TracebackEnd>,
    /// Whether the process cannot have gone on after it: nothing has caught the exception, or the process was aborted.
    pub(super) is_fatal: bool,
    /// Whether it may have been caught: nothing shows that it has ended a thread or the process.
    pub(super) may_be_caught: bool,
}

/// Where a traceback ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TracebackEnd {
    /// In a call of `torch.distributed`: its name.
    Call(&'static str),
    /// In `send`, or in `recv` if `sends` is false: and the line of code that calls it.
    Message { sends: bool, code: String },
    /// In code that is not torch's: `data.py:18 in load`.
    Own(String),
    /// In something that may or may not wait for others.
    Other,
}

/// The frames of a traceback so far, outermost first.
#[derive(Clone, Debug, Default)]
struct Traceback {
    call: Option<&'static str>,
    /// Whether it sends, and the line of code, if it is in a message.
    message: Option<(bool, String)>,
    /// The last line of code that is not torch's.
    code: String,
    /// Whether the outermost frame is that of a whole program.
    is_whole: Option<bool>,
    /// Whether the outermost frame is that of a thread or of a process that Python has started.
    is_bootstrap: bool,
    /// The innermost frame: file, line and function.
    last: Option<(String, String, String)>,
    /// Whether the innermost frame's own line may wait for a device.
    may_wait: bool,
}

/// What a line of one's own code waits for a device, a thread or a process with.
pub(super) const WAITS: &[&str] = &[
    ".item(",
    ".cpu(",
    ".tolist(",
    ".numpy(",
    ".to(",
    ".wait(",
    ".join(",
    ".get(",
    ".result(",
    "synchronize",
    "backward",
    "print(",
];

impl Failures {
    /// Returns the error that this line ends or is.
    pub(super) fn read(&mut self, text: &str) -> Option<Failure> {
        let found = self.take(text);
        self.before.clear();
        self.before.push_str(text);
        found
    }

    fn take(&mut self, text: &str) -> Option<Failure> {
        // A logger may write its message before it.
        if text.starts_with("Traceback (most recent call last)") || text.ends_with(FIRST) {
            self.traceback = Some(Traceback::default());
            self.is_caught = says_that_it_goes_on(&self.before) || says_that_it_goes_on(text);
            return None;
        }
        if DROPPED.iter().any(|words| text.starts_with(words)) {
            self.is_dropped = true;
            return None;
        }
        if let Some(message) = message(text) {
            self.traceback = None;
            return Some(Failure {
                text: kept(message),
                place: None,
                is_fatal: true,
                may_be_caught: false,
            });
        }
        let is = |pattern: &LazyLock<Option<Regex>>| {
            pattern
                .as_ref()
                .is_some_and(|pattern| pattern.is_match(text))
        };
        let indented = text.starts_with([' ', '\t']) || text.is_empty();
        if let (true, Some(traceback)) = (indented, &mut self.traceback) {
            traceback.read(text);
            return None;
        }
        let traceback = self.traceback.take();
        let is_dropped = std::mem::take(&mut self.is_dropped) && traceback.is_some();
        let is_fault = is(&FAULT);
        let is_whole = |traceback: &Traceback| traceback.is_whole == Some(true);
        let is_caught = |traceback: &Traceback| self.is_caught && !is_whole(traceback);
        let found = match &traceback {
            Some(traceback) => is(&ANY_EXCEPTION) && !is_dropped && !is_caught(traceback),
            None => {
                is(&EXCEPTION)
                    || is_fault
                    || (text.contains("xception") && is(&DEVICE))
                    || text.contains("Watchdog caught collective")
                    || is(&ENGINE)
                    || text.contains(NOTIFY)
            }
        };
        // ChildFailedError is raised by the launcher because of its ranks' errors.
        let is_own = !text.contains("ChildFailedError");
        let is_fatal = is_fault || traceback.as_ref().is_some_and(is_whole);
        let may_be_caught = traceback
            .as_ref()
            .is_some_and(|traceback| traceback.is_whole == Some(false) && !traceback.is_bootstrap);
        let failure = || Failure {
            text: kept(text),
            place: traceback.map(|traceback| traceback.place()),
            is_fatal,
            may_be_caught,
        };
        (found && is_own).then(failure)
    }
}

/// Returns true if a line beside a traceback says that the program goes on without what failed.
pub(super) fn says_that_it_goes_on(text: &str) -> bool {
    let says = |pattern: &LazyLock<Option<Regex>>| {
        pattern.as_ref().is_some_and(|words| words.is_match(text))
    };
    says(&CAUGHT) && !says(&GIVEN_UP)
}

/// Returns the message of an exception that ended the process or a thread of a process group; `None` if the line has none.
fn message(text: &str) -> Option<&str> {
    // Most lines have none, and a look is cheaper than the pattern.
    if !text.contains("what():") && !text.contains(" exception:") {
        return None;
    }
    let found = MESSAGE.as_ref()?.captures(text)?;
    found.get(1).map(|message| message.as_str())
}

impl Traceback {
    fn read(&mut self, text: &str) {
        let Some(found) = FRAME.as_ref().and_then(|frame| frame.captures(text)) else {
            if !text.trim_start().starts_with(['^', '~']) {
                let is_own = |(file, ..): &(String, String, String)| !file.contains("/torch/");
                if self.last.as_ref().is_some_and(is_own) {
                    text.trim().clone_into(&mut self.code);
                }
                self.may_wait |= WAITS.iter().any(|wait| text.contains(wait));
            }
            return;
        };
        self.may_wait = false;
        let (file, function) = (&found[1], &found[3]);
        if self.is_whole.is_none() {
            self.is_whole = Some(OUTERMOST.contains(&function));
            self.is_bootstrap = BOOTSTRAP.contains(&function);
        }
        if self.call.is_none() && file.contains("distributed_c10d") {
            self.call = CALLS.iter().copied().find(|call| *call == function);
            if self.message.is_none() && matches!(function, "send" | "recv") {
                self.message = Some((function == "send", kept(&self.code)));
            }
        }
        self.last = Some((file.to_owned(), found[2].to_owned(), function.to_owned()));
    }

    fn place(self) -> TracebackEnd {
        if let Some(call) = self.call {
            return TracebackEnd::Call(call);
        }
        if let Some((sends, code)) = self.message {
            return TracebackEnd::Message { sends, code };
        }
        match self.last {
            Some((file, line, function)) if !self.may_wait && !file.contains("/torch/") => {
                let file = file.rsplit('/').next().unwrap_or_default();
                TracebackEnd::Own(format!("{file}:{line} in {function}"))
            }
            _ => TracebackEnd::Other,
        }
    }
}

fn kept(text: &str) -> String {
    let end = (0..=KEPT.min(text.len()))
        .rev()
        .find(|end| text.is_char_boundary(*end));
    text[..end.unwrap_or(0)].trim_end().to_owned()
}

/// Lines about steps that show that a rank goes on; one may be in a message about its end.
const STEPS: usize = 3;

/// What torch's messages say of ranks that they name.
#[derive(Clone, Debug, Default)]
pub(super) struct Accusations {
    /// Ranks that a monitored barrier names as missing, each with the line.
    pub(super) absent: BTreeMap<u32, String>,
    /// The rank that has named each of them last; those that no rank signs are not here.
    accusers: BTreeMap<u32, u32>,
    /// How many lines about steps each of these ranks has written since.
    steps: BTreeMap<u32, usize>,
    /// The collective that each rank runs, as `TORCH_DISTRIBUTED_DEBUG=DETAIL` prints it.
    pub(super) fingerprints: BTreeMap<u32, String>,
    /// The ranks of which that is what they say themselves. What others print of a rank may be cut or wrong.
    compared: BTreeSet<u32>,
}

impl Accusations {
    /// Takes over what a line says of ranks, which a rank has written if it is known.
    pub(super) fn read(&mut self, text: &str, writer: Option<u32>) {
        if text.contains("failed to pass monitoredBarrier")
            && let Some(found) = ABSENT.as_ref().and_then(|line| line.captures(text))
        {
            if let Some(writer) = writer {
                self.steps.insert(writer, 0);
            }
            for rank in ranks_of_list(&found[1]) {
                self.absent.entry(rank).or_insert_with(|| kept(text));
                match writer {
                    Some(writer) => drop(self.accusers.insert(rank, writer)),
                    None => drop(self.accusers.remove(&rank)),
                }
            }
        }
        if text.contains("CollectiveFingerPrint")
            && let Some(found) = MISMATCH.as_ref().and_then(|line| line.captures(text))
        {
            if let Ok(rank) = found[1].parse() {
                self.fingerprints.insert(rank, found[2].to_owned());
                self.compared.insert(rank);
            }
            if let Ok(rank) = found[3].parse()
                && !self.compared.contains(&rank)
            {
                self.fingerprints.insert(rank, found[4].to_owned());
            }
        }
    }

    /// Withdraws what a rank has said of others that were missing in a barrier, once it makes steps again: it has caught the error.
    pub(super) fn step(&mut self, writer: u32) {
        let Some(steps) = self.steps.get_mut(&writer) else {
            return;
        };
        *steps += 1;
        if *steps < STEPS {
            return;
        }
        self.steps.remove(&writer);
        self.withdraw(|accuser| accuser == writer);
    }

    /// Withdraws what these ranks have said of others that were missing in a barrier.
    pub(super) fn withdraw(&mut self, is_one: impl Fn(u32) -> bool) {
        let accusers = &self.accusers;
        let is_theirs = |rank: &u32| accusers.get(rank).is_some_and(|accuser| is_one(*accuser));
        self.absent.retain(|rank, _| !is_theirs(rank));
        self.accusers.retain(|_, accuser| !is_one(*accuser));
    }

    /// Adds what another log says; where both name a rank, the other log counts, unless only this one is the rank's own word.
    pub(super) fn merge(&mut self, other: Self) {
        self.absent.extend(other.absent);
        self.accusers.extend(other.accusers);
        self.steps.extend(other.steps);
        for (rank, print) in other.fingerprints {
            if other.compared.contains(&rank) || !self.compared.contains(&rank) {
                self.fingerprints.insert(rank, print);
            }
        }
        self.compared.extend(other.compared);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn errors(text: &str) -> Vec<String> {
        let mut failures = Failures::default();
        text.lines()
            .filter_map(|line| failures.read(line))
            .map(|failure| failure.text)
            .collect()
    }

    #[test]
    fn an_error_that_a_logger_says_is_gone_past_is_none() {
        let text = |before: &str, frame: &str| {
            format!(
                "{before}\nTraceback (most recent call last):\n  File \"a.py\", line 1, in {frame}\n    g()\nOSError: cannot read x"
            )
        };
        let skipping = "worker 3: failed to decode sample 7.jpg, skipping";
        for before in [
            skipping,
            "batch of 6 patches did not fit, repeating with 3",
            "shard 4 is not there yet, trying again in 5 s",
        ] {
            assert_eq!(errors(&text(before, "__getitem__")), [""; 0], "{before}");
        }
        let last = "retry limit exceeded, giving up";
        assert_eq!(errors(&text(last, "__getitem__")).len(), 1);
        // The program has ended, whatever it skipped before.
        assert_eq!(errors(&text(skipping, "<module>")).len(), 1);
        assert_eq!(errors(&text("failed to decode", "__getitem__")).len(), 1);
    }

    #[test]
    fn a_rank_says_best_what_it_runs() {
        let line = |one: u32, own: &str, other: u32, print: &str| {
            format!(
                "Detected mismatch between collectives on ranks. Rank {one} is running collective: CollectiveFingerPrint({own}), but Rank {other} is running collective: CollectiveFingerPrint({print}).Collectives differ in x"
            )
        };
        let mut accusations = Accusations::default();
        accusations.read(&line(2, "OpType=BROADCAST", 0, "OpType=GATHER"), None);
        accusations.read(&line(0, "OpType=ALLREDUCE", 2, "OpType=SCATTER"), None);
        let mut other = Accusations::default();
        other.read(&line(1, "OpType=ALLREDUCE", 2, "OpType=SCATTER"), None);
        accusations.merge(other);
        let prints: Vec<&str> = accusations
            .fingerprints
            .values()
            .map(String::as_str)
            .collect();
        assert_eq!(
            prints,
            ["OpType=ALLREDUCE", "OpType=ALLREDUCE", "OpType=BROADCAST"]
        );
    }

    #[test]
    fn the_last_line_of_a_traceback_is_the_error() {
        let text = "Traceback (most recent call last):\n  File \"a.py\", line 1, in f\n    g()\n    ^^^\nKeyError: 'lr'\nafter that";
        assert_eq!(errors(text), ["KeyError: 'lr'"]);
        assert_eq!(
            errors("torch.OutOfMemoryError: CUDA out of memory."),
            ["torch.OutOfMemoryError: CUDA out of memory."]
        );
        assert_eq!(errors("loss: 0.1\nError rate: 3\nepoch: 2"), [""; 0]);
    }

    #[test]
    fn what_python_has_dropped_is_no_error() {
        let traceback = "Traceback (most recent call last):\n  File \"a.py\", line 1, in __del__\nAssertionError: can only test a child process";
        let dropped = format!("Exception ignored in: <function f at 0x7f>\n{traceback}");
        assert_eq!(errors(&dropped), [""; 0]);
        assert_eq!(errors(&format!("{dropped}\n{traceback}")).len(), 1);
    }

    #[test]
    fn a_cpp_exception_is_what_its_message_says() {
        let text = "terminate called after throwing an instance of 'c10::DistBackendError'\n  what():  CUDA error: an illegal memory access was encountered";
        assert_eq!(
            errors(text)[1],
            "CUDA error: an illegal memory access was encountered"
        );
        assert_eq!(
            errors(
                "[PG 0 (default_pg) Rank 3] Process group watchdog thread terminated with exception: CUDA error: uncorrectable ECC error encountered"
            ),
            ["CUDA error: uncorrectable ECC error encountered"]
        );
    }

    #[test]
    fn an_error_is_fatal_if_nothing_has_caught_it() {
        let is_fatal = |outermost: &str| {
            let text = format!(
                "Traceback (most recent call last):\n  File \"a.py\", line 1, in {outermost}\n  File \"a.py\", line 2, in <module>\nKeyError: 'a'"
            );
            let mut failures = Failures::default();
            let failure = text.lines().find_map(|line| failures.read(line)).unwrap();
            failure.is_fatal
        };
        assert!(is_fatal("<module>") && !is_fatal("__iter__"));
    }

    #[test]
    fn a_traceback_says_where_the_rank_was() {
        let place = |frames: &str| {
            let text = format!("Traceback (most recent call last):\n{frames}KeyboardInterrupt");
            let mut failures = Failures::default();
            let failure = text.lines().find_map(|line| failures.read(line)).unwrap();
            failure.place.unwrap()
        };
        let own = "  File \"/app/train.py\", line 61, in main\n    batch = next(batches)\n";
        let torch = "  File \"/venv/torch/distributed/distributed_c10d.py\", line 4551, in barrier\n    work.wait()\n";
        let loss =
            "  File \"/app/train.py\", line 62, in main\n    total += loss.item()\n    ^^^^\n";
        assert_eq!(place(own), TracebackEnd::Own("train.py:61 in main".into()));
        assert_eq!(
            place(&format!("{own}{torch}")),
            TracebackEnd::Call("barrier")
        );
        let send = "  File \"/app/pipe.py\", line 11, in <module>\n    dist.send(H,dst=r+1)\n    ^^^^\n  File \"/venv/torch/distributed/c10d_logger.py\", line 83, in wrapper\n    return func(*args, **kwargs)\n  File \"/venv/torch/distributed/distributed_c10d.py\", line 2629, in send\n    work.wait()\n";
        let code = "dist.send(H,dst=r+1)".to_owned();
        assert_eq!(place(send), TracebackEnd::Message { sends: true, code });
        assert_eq!(place(loss), TracebackEnd::Other);
        assert_eq!(
            place("  File \"/venv/torch/cuda/__init__.py\", line 1, in f\n"),
            TracebackEnd::Other
        );
    }

    #[test]
    fn torch_names_ranks() {
        let mut accusations = Accusations::default();
        accusations.read(
            "[Rank 0]: Ranks 1, 3 failed to pass monitoredBarrier in 1800000 ms",
            None,
        );
        assert_eq!(
            accusations.absent.keys().copied().collect::<Vec<_>>(),
            [1, 3]
        );
        accusations.read("RuntimeError: Detected mismatch between collectives on ranks. Rank 0 is running collective: CollectiveFingerPrint(SequenceNumber=0, OpType=ALLREDUCE, TensorShape=[4]), but Rank 1 is running collective: CollectiveFingerPrint(SequenceNumber=0, OpType=BROADCAST, TensorShape=[4]).Collectives differ in the following aspects:   Op type: ALLREDUCEvs BROADCAST", None);
        assert_eq!(
            accusations.fingerprints[&1],
            "SequenceNumber=0, OpType=BROADCAST, TensorShape=[4]"
        );
    }

    #[test]
    fn a_barrier_that_failed_counts_no_more_once_its_rank_makes_steps() {
        let absent = |steps: usize, writer: Option<u32>| {
            let mut accusations = Accusations::default();
            accusations.read("Rank 2 failed to pass monitoredBarrier in 5000 ms", writer);
            (0..steps).for_each(|_| accusations.step(0));
            accusations.absent.len()
        };
        assert_eq!(absent(3, Some(0)), 0);
        assert_eq!(absent(1, Some(0)), 1);
        assert_eq!(absent(3, Some(1)), 1);
        assert_eq!(absent(3, None), 1);
    }
}
