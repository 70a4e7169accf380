//! The verdict by the one rank that has written no error where all others gave up in the same call.

use std::sync::LazyLock;

use regex::Regex;

use super::Rules;
use crate::logs::logged::Logged;
use crate::logs::pattern::pattern;
use crate::logs::phase::Nature;
use allranks_model::diagnosis::rank_set::named;
use allranks_model::diagnosis::{Confidence, Diagnosis, HangKind};
use allranks_model::names::Rank;

/// Ranks that must have given up in one call for the last one to be told from them.
const LEAST: usize = 3;

/// What torch's store says of the keys that did not come in time.
static KEYS: LazyLock<Option<Regex>> =
    LazyLock::new(|| pattern(r"(?i)\bwait timeout after \d+ ?ms, keys: (.+)$"));

impl Rules<'_> {
    /// Finds the only rank that has written no error, where all others gave up in one call because of another rank. It must have
    /// been able to write one: it was not stopped by its launcher, and no file is missing that the others have.
    pub(super) fn without_error(&self) -> Option<Diagnosis> {
        if !self.job.absent().is_empty() {
            return None;
        }
        let gave_up = |(_, logged): &(&u32, &Logged)| logged.gave_up();
        let (others, rest): (Vec<_>, Vec<_>) = self.job.ranks.iter().partition(gave_up);
        let [(rank, logged)] = rest[..] else {
            return None;
        };
        let are_enough = others.len() >= LEAST && self.could_write(*rank);
        let has_cause = |(_, other): &(&u32, &Logged)| other.log.cause().is_some();
        if !are_enough || others.iter().any(has_cause) {
            return None;
        }
        let first = others.first()?.1;
        let (place, kind) = self
            .awaited_keys(&others)
            .or_else(|| common_call(first, &others, logged))?;
        let victims: Vec<Rank> = others.iter().map(|(rank, _)| Rank(**rank)).collect();
        let summary = format!("rank {rank} has not come to {place}; all others gave up there");
        let facts = vec![format!(
            "{} gave up in {place}, and rank {rank} has written no error",
            named(&victims)
        )];
        let found = self.diagnosis(kind, Confidence::Likely, vec![Rank(*rank)], summary, facts);
        Some(Diagnosis { victims, ..found })
    }

    /// Returns the keys of the store for which all of these ranks waited until they gave up; `None` if they waited for others, or for
    /// something else.
    fn awaited_keys(&self, ranks: &[(&u32, &Logged)]) -> Option<(String, HangKind)> {
        let keys = |logged: &Logged| {
            let mut errors = logged.log.final_errors();
            errors.find_map(|error| Some(KEYS.as_ref()?.captures(error)?[1].to_owned()))
        };
        let first = keys(ranks.first()?.1)?;
        let is_same = |(_, logged): &(&u32, &Logged)| keys(logged).as_ref() == Some(&first);
        let place = format!("the wait for {first} in the store");
        ranks
            .iter()
            .all(is_same)
            .then_some((place, HangKind::Behind))
    }

    /// Returns true if a rank without an error would have written one: it has written something, its log is whole, its launcher
    /// did not stop it, and it has as many files here as the others.
    pub(super) fn could_write(&self, rank: u32) -> bool {
        let Some(logged) = self.job.ranks.get(&rank) else {
            return false;
        };
        let log = &logged.log;
        let others = self.job.ranks.iter().filter(|(other, _)| **other != rank);
        let files = others.map(|(_, other)| other.log.files).min();
        let is_stopped =
            log.told_to_stop.is_some() || self.job.lines.launcher.exits.get(&rank) == Some(&-15);
        !log.is_torn
            && !is_stopped
            && log.final_errors().next().is_none()
            && files.is_none_or(|files| log.files >= files)
    }
}

/// Returns the call in which all of these ranks gave up, and the kind of the verdict on another rank that has not come to it; `None` if
/// they are in several calls, or the rank has come to it.
fn common_call(
    first: &Logged,
    others: &[(&u32, &Logged)],
    rank: &Logged,
) -> Option<(String, HangKind)> {
    let call = first.step()?;
    let is_there = |(_, other): &(&u32, &Logged)| {
        let step = other.step();
        step.is_some_and(|step| step.key == call.key)
    };
    let kind = match call.nature {
        Nature::Init => HangKind::MissingRank,
        Nature::Collective(_) => HangKind::Behind,
        Nature::NewGroup(_) | Nature::Message { .. } | Nature::Destroy | Nature::Own => {
            return None;
        }
    };
    let is_late = rank.times(&call.key) < first.times(&call.key);
    (is_late && others.iter().all(is_there)).then(|| (call.name.clone(), kind))
}

#[cfg(test)]
mod tests {
    use super::HangKind;
    use crate::logs::source::Source;
    use crate::logs::verdict::{said, said_of};

    fn gave_up(rank: u32) -> String {
        let lines = [
            "Traceback (most recent call last):",
            "  File \"/p/torch/distributed/distributed_c10d.py\", line 4164, in barrier",
            "DistBackendError: NCCL error: Connection reset by peer",
        ];
        lines.map(|line| format!("[rank{rank}]: {line}\n")).concat()
    }

    #[test]
    fn the_rank_without_an_error_has_not_come() {
        let others = format!("{}{}{}", gave_up(0), gave_up(1), gave_up(2));
        let reads = "[rank3]: still reading optim_03.pt\n";
        assert_eq!(
            said(&format!("{others}{reads}")),
            (HangKind::Behind, vec![3])
        );
        // Its launcher has stopped it because of another one, before it could give up.
        let table = "  rank      : 3 (local_rank: 3)\n  exitcode  : -15 (pid: 7)\n";
        let stopped = format!("{others}{reads}{table}");
        assert_eq!(said(&stopped), (HangKind::Unknown, vec![]));
        let two = format!("{others}{reads}[rank4]: still reading\n");
        assert_eq!(said(&two), (HangKind::Unknown, vec![]));
    }

    #[test]
    fn the_rank_that_does_not_set_its_key_has_not_come() {
        let waited = |rank: u32, keys: &str| {
            format!(
                "[rank{rank}]: torch.distributed.DistStoreError: wait timeout after 60000ms, keys: {keys}\n"
            )
        };
        let keys = "/save/7/0, /save/7/1, /save/7/2, /save/7/3";
        let others = format!("{}{}{}", waited(0, keys), waited(2, keys), waited(3, keys));
        let uploads = "[rank1]: upload failed, attempt 3\n";
        assert_eq!(
            said(&format!("{others}{uploads}")),
            (HangKind::Behind, vec![1])
        );
        let mixed = format!(
            "{}{}{}{uploads}",
            waited(0, keys),
            waited(2, "/load/7"),
            waited(3, keys)
        );
        assert_eq!(said(&mixed), (HangKind::Unknown, vec![]));
    }

    #[test]
    fn a_rank_whose_errors_are_in_a_file_that_is_not_here_is_not_named() {
        let file =
            |rank: u32, name: &str, text: &str| Source::of_text(&format!("{rank}/{name}"), text);
        let mut files: Vec<Source> = (0..3)
            .flat_map(|rank| {
                [
                    file(rank, "stderr.log", &gave_up(rank)),
                    file(rank, "stdout.log", "start\n"),
                ]
            })
            .collect();
        files.push(file(3, "stdout.log", "start\n"));
        assert_eq!(said_of(&files), (HangKind::Unknown, vec![]));
        files.push(file(3, "stderr.log", "a warning\n"));
        assert_eq!(said_of(&files), (HangKind::Behind, vec![3]));
    }
}
