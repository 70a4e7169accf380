//! Reads the errors in which a rank compares what it has with what another rank has: each names both ranks and both values.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use regex::Regex;

use super::pattern::pattern;

/// The most characters that are kept of a value.
const KEPT: usize = 200;

/// The value that each rank has, by what ranks say of themselves and of each other.
#[derive(Clone, Debug, Default)]
pub(super) struct ComparedValues {
    pub(super) values: BTreeMap<u32, String>,
}

/// DDP's reducer, and FSDP's check of the order of forward passes.
static COMPARED: LazyLock<Option<Regex>> = LazyLock::new(|| {
    pattern(
        r"(?i)\brank (?P<one>\d+) (?P<verb>has|is all-gathering) (?P<value>.{1,2000}?),? while rank (?P<other>\d+) (?:has inconsistent|is all-gathering) (?P<its>.+?)\.?$",
    )
});

impl ComparedValues {
    /// Reads the next line.
    pub(super) fn read(&mut self, text: &str) {
        if !text.contains(" while rank ") {
            return;
        }
        let Some(found) = COMPARED.as_ref().and_then(|line| line.captures(text)) else {
            return;
        };
        for (rank, value) in [("one", "value"), ("other", "its")] {
            if let Ok(rank) = found[rank].parse() {
                let value: String = found[value].chars().take(KEPT).collect();
                self.values
                    .entry(rank)
                    .or_insert_with(|| format!("{} {value}", &found["verb"]));
            }
        }
    }

    /// Adds what another file says.
    pub(super) fn merge(&mut self, other: Self) {
        self.values.extend(other.values);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_values_are_read() {
        let read = |text: &str| {
            let mut all = ComparedValues::default();
            all.read(text);
            all.values.into_iter().collect::<Vec<_>>()
        };
        let ddp = "RuntimeError: DDP expects same model across all ranks, but Rank 0 has 12 params, while rank 6 has inconsistent 14 params.";
        let of = |rank: u32, value: &str| (rank, value.to_owned());
        assert_eq!(read(ddp), [of(0, "has 12 params"), of(6, "has 14 params")]);
        let fsdp = "RuntimeError: Forward order differs across ranks: rank 1 is all-gathering 2 parameters while rank 3 is all-gathering 4 parameters";
        assert_eq!(
            read(fsdp),
            [
                of(1, "is all-gathering 2 parameters"),
                of(3, "is all-gathering 4 parameters")
            ]
        );
        assert!(read("rank 1 waits while rank 2 reads").is_empty());
    }
}
