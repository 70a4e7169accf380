//! Reads what the root of NCCL's bootstrap says of the ranks that check in (texts of `bootstrap.cc`).

use std::sync::LazyLock;

use regex::Regex;

use super::pattern::pattern;

/// What is wrong with the ranks that have checked in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Bootstrap {
    /// A rank that has checked in twice, the number of ranks, and the line.
    pub(super) twice: Option<(u32, u32, String)>,
    /// The line that says that ranks expect different numbers of ranks.
    pub(super) mismatch: Option<String>,
}

static TWICE: LazyLock<Option<Regex>> = LazyLock::new(|| {
    pattern(r"Bootstrap Root ?: rank (\d+) of (\d+) ranks has already checked in")
});

impl Bootstrap {
    /// Reads the next line.
    pub(super) fn read(&mut self, text: &str) {
        if !text.contains("Bootstrap Root") {
            return;
        }
        let line = || text.trim().to_owned();
        if let Some(found) = TWICE.as_ref().and_then(|line| line.captures(text)) {
            if let (Ok(rank), Ok(of)) = (found[1].parse(), found[2].parse()) {
                self.twice.get_or_insert_with(|| (rank, of, line()));
            }
        } else if text.contains("mismatch in rank count from procs") {
            self.mismatch.get_or_insert_with(line);
        }
    }

    /// Returns true if nothing is wrong.
    pub(super) fn is_well(&self) -> bool {
        self.twice.is_none() && self.mismatch.is_none()
    }

    /// Adds what another file says.
    pub(super) fn merge(&mut self, other: Self) {
        self.twice = self.twice.take().or(other.twice);
        self.mismatch = self.mismatch.take().or(other.mismatch);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn complaints_are_read() {
        let read = |text: &str| {
            let mut bootstrap = Bootstrap::default();
            bootstrap.read(text);
            (
                bootstrap.twice.map(|(rank, of, _)| (rank, of)),
                bootstrap.mismatch.is_some(),
            )
        };
        let head = "gpu-a:18822:18840 [0] bootstrap.cc:196 NCCL WARN Bootstrap Root : ";
        assert_eq!(
            read(&format!("{head}rank 1 of 4 ranks has already checked in")),
            (Some((1, 4)), false)
        );
        assert_eq!(
            read(&format!("{head}mismatch in rank count from procs 4 : 3")),
            (None, true)
        );
        assert_eq!(read(&format!("{head}receiving data")), (None, false));
    }
}
