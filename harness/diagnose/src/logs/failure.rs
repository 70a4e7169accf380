//! Reads errors in a log: the last line of a traceback, the text of an exception without one, the end by a fault, and
//! what torch says of other ranks.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use regex::Regex;

/// The most bytes that are kept of an error.
const KEPT: usize = 600;

fn pattern(text: &str) -> Option<Regex> {
    Regex::new(text).ok()
}

static EXCEPTION: LazyLock<Option<Regex>> = LazyLock::new(|| {
    pattern(r"^(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt|Exit|Failure)(?::|$)")
});
static ANY_EXCEPTION: LazyLock<Option<Regex>> =
    LazyLock::new(|| pattern(r"^(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*(?::|$)"));
static FAULT: LazyLock<Option<Regex>> = LazyLock::new(|| {
    pattern(
        r"^(?:Fatal Python error: |Segmentation fault|Bus error|Illegal instruction|Killed$|terminate called )",
    )
});
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
    /// Whether the last line belongs to a traceback.
    in_traceback: bool,
}

impl Failures {
    /// Reads the next line. Returns the error that it states or, as the last line of a traceback, ends; `None` if it
    /// does neither.
    pub(super) fn read(&mut self, text: &str) -> Option<String> {
        if text.starts_with("Traceback (most recent call last)") {
            self.in_traceback = true;
            return None;
        }
        let is = |pattern: &LazyLock<Option<Regex>>| {
            pattern
                .as_ref()
                .is_some_and(|pattern| pattern.is_match(text))
        };
        let indented = text.starts_with([' ', '\t']) || text.is_empty();
        let found = match self.in_traceback {
            true if indented => false,
            true => {
                self.in_traceback = false;
                is(&ANY_EXCEPTION)
            }
            false => is(&EXCEPTION) || is(&FAULT) || text.contains("Watchdog caught collective"),
        };
        // ChildFailedError is raised by the launcher because of its ranks' errors.
        let is_own = !text.contains("ChildFailedError");
        (found && is_own).then(|| kept(text))
    }
}

fn kept(text: &str) -> String {
    let end = (0..=KEPT.min(text.len()))
        .rev()
        .find(|end| text.is_char_boundary(*end));
    text[..end.unwrap_or(0)].trim_end().to_owned()
}

/// What torch's messages say of ranks that they name.
#[derive(Clone, Debug, Default)]
pub(super) struct Accusations {
    /// Ranks that a monitored barrier names as missing, each with the line.
    pub(super) absent: BTreeMap<u32, String>,
    /// The collective that each rank runs, as `TORCH_DISTRIBUTED_DEBUG=DETAIL` prints it.
    pub(super) fingerprints: BTreeMap<u32, String>,
}

impl Accusations {
    /// Takes over what a line says of ranks.
    pub(super) fn read(&mut self, text: &str) {
        if text.contains("failed to pass monitoredBarrier")
            && let Some(found) = ABSENT.as_ref().and_then(|line| line.captures(text))
        {
            for rank in found[1]
                .split(',')
                .filter_map(|rank| rank.trim().parse().ok())
            {
                self.absent.entry(rank).or_insert_with(|| kept(text));
            }
        }
        if text.contains("CollectiveFingerPrint")
            && let Some(found) = MISMATCH.as_ref().and_then(|line| line.captures(text))
        {
            for (rank, print) in [(1, 2), (3, 4)] {
                if let Ok(rank) = found[rank].parse() {
                    self.fingerprints
                        .entry(rank)
                        .or_insert_with(|| found[print].to_owned());
                }
            }
        }
    }

    /// Adds what another log says; where both name a rank, the other log counts.
    pub(super) fn merge(&mut self, other: Self) {
        self.absent.extend(other.absent);
        self.fingerprints.extend(other.fingerprints);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn errors(text: &str) -> Vec<String> {
        let mut failures = Failures::default();
        text.lines()
            .filter_map(|line| failures.read(line))
            .collect()
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
    fn torch_names_ranks() {
        let mut said = Accusations::default();
        said.read("[Rank 0]: Ranks 1, 3 failed to pass monitoredBarrier in 1800000 ms");
        assert_eq!(said.absent.keys().copied().collect::<Vec<_>>(), [1, 3]);
        said.read("RuntimeError: Detected mismatch between collectives on ranks. Rank 0 is running collective: CollectiveFingerPrint(SequenceNumber=0, OpType=ALLREDUCE, TensorShape=[4]), but Rank 1 is running collective: CollectiveFingerPrint(SequenceNumber=0, OpType=BROADCAST, TensorShape=[4]).Collectives differ in the following aspects:   Op type: ALLREDUCEvs BROADCAST");
        assert_eq!(
            said.fingerprints[&1],
            "SequenceNumber=0, OpType=BROADCAST, TensorShape=[4]"
        );
    }
}
