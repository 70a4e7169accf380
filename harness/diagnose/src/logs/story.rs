//! Splits logs by rank, and reads what each rank wrote, in order.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use regex::Regex;

use super::environment::Environment;
use super::failure::{Accusations, Failures};
use super::launcher::Launcher;
use super::line::LogLine;
use super::moment::Moment;
use super::owner;
use super::phase::{Mark, Nature, mark};
use super::source::Source;
use super::watchdog::Watchdog;
use crate::{Told, told};

/// What one rank wrote.
#[derive(Clone, Debug, Default)]
pub(super) struct Story {
    /// What its lines say of phases, each with the line's time.
    pub(super) marks: Vec<(Mark, Option<Moment>)>,
    /// Errors, each with the number of marks before it.
    pub(super) errors: Vec<(String, usize)>,
    pub(super) environment: Environment,
    pub(super) watchdog: Watchdog,
    /// The time of its last line with a time; `None` if no line has one.
    pub(super) last: Option<Moment>,
    /// Whether a part of a file was not read.
    pub(super) is_cut: bool,
    /// Whether a file ends within a line: more may be in a buffer.
    pub(super) is_torn: bool,
    failures: Failures,
}

/// What one source holds.
#[derive(Clone, Debug, Default)]
pub(super) struct Strand {
    /// What each rank wrote, for lines that belong to a rank.
    pub(super) stories: BTreeMap<u32, Story>,
    /// What all lines say together, if nothing tells the rank; otherwise `None`.
    pub(super) nobodys: Option<Story>,
    pub(super) launcher: Launcher,
    pub(super) accusations: Accusations,
}

/// Matches `3: text`, as `srun --label` writes.
static LABEL: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"^\s*(\d{1,5}): ?").ok());
/// How many lines must begin with a number before the numbers are taken for ranks.
const LABELS: usize = 5;

impl Strand {
    /// Splits a source by rank.
    pub(super) fn of(source: &Source) -> Self {
        let mut lines: Vec<LogLine<'_>> = source.text.lines().map(LogLine::read).collect();
        let mut ranks: BTreeSet<u32> = lines.iter().filter_map(|line| line.rank).collect();
        let locals: BTreeMap<u32, u32> = lines
            .iter()
            .filter_map(|line| Some((line.local_rank?, line.rank?)))
            .collect();
        let is_torchruns = lines.iter().any(|line| line.local_rank.is_some());
        let name = owner::by_name(&source.path);
        if ranks.is_empty() && !is_torchruns && name.is_none() {
            ranks = labels(&mut lines);
        }
        let mut single = ranks.iter().copied();
        let owner = match (is_torchruns, single.next(), single.next()) {
            (true, ..) | (false, Some(_), Some(_)) => None,
            (false, Some(rank), None) => Some(rank),
            (false, None, _) => name,
        };
        let is_nobodys = !is_torchruns && ranks.is_empty() && owner.is_none();
        let mut strand = Self::default();
        let mut nobodys = Story::default();
        for line in &lines {
            strand.launcher.read(&line.text);
            strand.accusations.read(&line.text);
            let local = line.local_rank;
            let local = local.map(|local| locals.get(&local).copied().unwrap_or(local));
            match line.rank.or(local).or(owner) {
                Some(rank) => strand.stories.entry(rank).or_default().read(line),
                None if is_nobodys => nobodys.read(line),
                // The launcher's own line.
                None => {}
            }
        }
        if let (Some(rank), true) = (owner, strand.stories.is_empty()) {
            strand.stories.insert(rank, Story::default());
        }
        strand.nobodys = is_nobodys.then_some(nobodys);
        // A progress bar that overwrites itself ends without a newline, and is not torn.
        let last = source.text.rsplit('\n').next().unwrap_or_default();
        let is_torn = !last.is_empty() && !last.contains('\r');
        for story in strand.stories.values_mut().chain(&mut strand.nobodys) {
            story.is_cut = source.is_cut;
            story.is_torn = is_torn && owner.is_some();
            story.watchdog.close();
        }
        strand
    }
}

/// Takes the rank off every line if the first lines all begin with one, and returns the ranks; otherwise none.
fn labels(lines: &mut [LogLine<'_>]) -> BTreeSet<u32> {
    let Some(pattern) = LABEL.as_ref() else {
        return BTreeSet::new();
    };
    let mut first = lines
        .iter()
        .filter(|line| !line.text.is_empty())
        .take(LABELS);
    if lines.is_empty() || !first.all(|line| pattern.is_match(&line.text)) {
        return BTreeSet::new();
    }
    for line in lines.iter_mut() {
        if let Some(found) = pattern.captures(&line.text) {
            let (rank, end) = (found[1].parse().ok(), found[0].len());
            *line = line.without(end);
            line.rank = rank;
        }
    }
    lines.iter().filter_map(|line| line.rank).collect()
}

impl Story {
    fn read(&mut self, line: &LogLine<'_>) {
        let text = &*line.text;
        if line.moment.is_some() {
            self.last = line.moment;
        }
        self.environment.read(text);
        self.watchdog.read(text);
        if let Some(error) = self.failures.read(text) {
            self.errors.push((error, self.marks.len()));
        } else if let Some(mark) = mark(text) {
            self.marks.push((mark, line.moment));
        }
    }

    /// Adds what the same rank wrote into another file. Which of two files' lines came first is not known, so the
    /// errors of a file without phases come last.
    pub(super) fn merge(&mut self, other: Self) {
        let place = |story: &Self, offset: usize, place: usize| match story.marks.is_empty() {
            true => usize::MAX,
            false => place.saturating_add(offset),
        };
        let before = self.marks.len();
        for error in &mut self.errors {
            if before == 0 {
                error.1 = usize::MAX;
            }
        }
        let theirs = other.errors.iter();
        let theirs: Vec<_> = theirs
            .map(|(text, at)| (text.clone(), place(&other, before, *at)))
            .collect();
        self.errors.extend(theirs);
        self.marks.extend(other.marks);
        let environment = other.environment;
        self.environment = Environment {
            host: environment.host.or(self.environment.host.take()),
            port: environment.port.or(self.environment.port),
            world_size: environment.world_size.or(self.environment.world_size),
            rank: environment.rank.or(self.environment.rank),
        };
        for (group, works) in other.watchdog.groups {
            self.watchdog.groups.entry(group).or_insert(works);
        }
        let later = match (self.last, other.last) {
            (Some(one), Some(other)) => other.since(one).is_some_and(|seconds| seconds > 0.0),
            (one, _) => one.is_none(),
        };
        if later {
            self.last = other.last;
        }
        self.is_cut |= other.is_cut;
        self.is_torn |= other.is_torn;
    }

    /// Iterates over the errors after which the rank went on to nothing but tearing down.
    pub(super) fn last_words(&self) -> impl Iterator<Item = &str> {
        let went_on = self
            .marks
            .iter()
            .rposition(|(mark, _)| mark.nature != Nature::Destroy);
        let marks = went_on.map_or(0, |last| last + 1);
        self.errors
            .iter()
            .filter(move |(_, at)| *at >= marks)
            .map(|(text, _)| text.as_str())
    }

    /// Returns the first of its last errors that is not an effect of other ranks; `None` if there is none.
    pub(super) fn cause(&self) -> Option<&str> {
        self.last_words().find(|error| told(error) != Told::Effect)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strand(path: &str, text: &str) -> Strand {
        Strand::of(&Source {
            path: path.into(),
            text: text.into(),
            is_cut: false,
        })
    }

    fn ranks(strand: &Strand) -> Vec<u32> {
        strand.stories.keys().copied().collect()
    }

    #[test]
    fn lines_find_their_ranks() {
        assert_eq!(ranks(&strand("rank3.log", "Before x\nAfter x")), [3]);
        assert_eq!(
            ranks(&strand("rank3.log", "[Rank 4] Before x\nAfter x")),
            [4]
        );
        assert_eq!(
            ranks(&strand("job.log", "[Rank 4] Before x\n[Rank 5] After x")),
            [4, 5]
        );
        assert_eq!(
            ranks(&strand(
                "job.log",
                "[default0]:[rank4]: x\n[default0]:Before x"
            )),
            [4]
        );
        assert_eq!(
            ranks(&strand("job.log", "0: Before x\n1: Before x\n0: After x")),
            [0, 1]
        );
        let unknown = strand("job.log", "Before x");
        assert!(unknown.stories.is_empty() && unknown.nobodys.is_some());
    }

    #[test]
    fn an_error_that_was_caught_is_no_last_word() {
        let words = |text: &str| {
            let strand = strand("rank0.log", text);
            strand.stories[&0].last_words().count()
        };
        let error = "Traceback (most recent call last):\n  File x\nOSError: disk full\n";
        assert_eq!(words(&format!("Before x\n{error}")), 1);
        assert_eq!(words(&format!("Before x\n{error}After x")), 0);
        assert_eq!(
            words(&format!("Before x\n{error}Before destroy_process_group")),
            1
        );
    }
}
