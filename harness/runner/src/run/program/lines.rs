//! Searches a rank's log once for all lines that a case demands and all that it forbids.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use regex::Regex;

use allranks_model::excerpt::excerpt;
use allranks_model::names::{Rank, WorldSize};
use allranks_suite::case::ProgramSpec;

/// The longest line that is searched as one, in bytes, so that a program that prints no line ends is not read into
/// memory at once.
const MAX_LINE: u64 = 1 << 20;

/// Where a demanded line was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineMatch {
    /// The case does not require the line of this rank.
    NotRequired,
    /// At this line number of the log (from 1), after the lines that must come before.
    Found(usize),
    /// At this line number, but before a line that must come first.
    TooEarly(usize),
    /// Nowhere in the log.
    Missing,
}

/// What was found in a rank's log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogMatches {
    /// For each of the program's `lines`, where it was found.
    pub lines: Vec<LineMatch>,
    /// For each of the program's `never`, the number and text of the first line that matches; none if no line does.
    pub never: Vec<Option<(usize, String)>>,
    /// The last line that is not empty; none if there is none.
    pub last: Option<String>,
}

/// Searches a log. A log that does not exist counts as empty.
///
/// # Errors
/// The log cannot be read, or a pattern is not a valid regular expression.
pub fn look_through(
    log: &Path,
    program: &ProgramSpec,
    rank: Rank,
    size: WorldSize,
) -> io::Result<LogMatches> {
    match File::open(log) {
        Ok(file) => search(BufReader::new(file), program, rank, size),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            search(io::empty(), program, rank, size)
        }
        Err(error) => Err(error),
    }
}

fn search(
    mut log: impl BufRead,
    program: &ProgramSpec,
    rank: Rank,
    size: WorldSize,
) -> io::Result<LogMatches> {
    let patterns = |lines: &[allranks_suite::case::LineSpec]| -> io::Result<Vec<Option<Regex>>> {
        let own = lines.iter().map(|line| match line.is_for(rank, size) {
            true => line.pattern(rank, size).map(Some).map_err(io::Error::other),
            false => Ok(None),
        });
        own.collect()
    };
    let (wanted, unwanted) = (patterns(&program.lines)?, patterns(&program.never)?);
    let asked: Vec<usize> = (0..wanted.len())
        .filter(|index| wanted[*index].is_some())
        .collect();
    let mut log_matches = LogMatches {
        lines: wanted
            .iter()
            .map(|pattern| match pattern {
                Some(_) => LineMatch::Missing,
                None => LineMatch::NotRequired,
            })
            .collect(),
        never: vec![None; unwanted.len()],
        last: None,
    };
    let mut next = asked.as_slice();
    let (mut bytes, mut number) = (Vec::new(), 0);
    loop {
        bytes.clear();
        if log.by_ref().take(MAX_LINE).read_until(b'\n', &mut bytes)? == 0 {
            return Ok(log_matches);
        }
        number += 1;
        let text = String::from_utf8_lossy(&bytes);
        let text = text.trim_end();
        let matches = |pattern: &Option<Regex>| {
            pattern
                .as_ref()
                .is_some_and(|pattern| pattern.is_match(text))
        };
        match next.split_first() {
            // Each line of the log matches at most one demanded line.
            Some((first, rest)) if matches(&wanted[*first]) => {
                log_matches.lines[*first] = LineMatch::Found(number);
                next = rest;
            }
            Some(_) | None => {
                for index in next {
                    if log_matches.lines[*index] == LineMatch::Missing && matches(&wanted[*index]) {
                        log_matches.lines[*index] = LineMatch::TooEarly(number);
                    }
                }
            }
        }
        for (place, pattern) in log_matches.never.iter_mut().zip(&unwanted) {
            if place.is_none() && matches(pattern) {
                *place = Some((number, excerpt(text.to_owned())));
            }
        }
        if !text.trim().is_empty() {
            log_matches.last = Some(excerpt(text.trim().to_owned()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(yaml: &str) -> ProgramSpec {
        serde_yaml::from_str(&format!("run: [x]\n{yaml}")).unwrap()
    }

    fn log_matches(yaml: &str, rank: u32, log: &str) -> LogMatches {
        search(log.as_bytes(), &program(yaml), Rank(rank), WorldSize(2)).unwrap()
    }

    #[test]
    fn lines_are_found_in_their_order_only() {
        let asked = "lines: [begun, 'rank {rank} of {world_size}', done]";
        let in_order = log_matches(asked, 1, "begun\nx\nrank 1 of 2: y\nall done\n");
        let found = [
            LineMatch::Found(1),
            LineMatch::Found(3),
            LineMatch::Found(4),
        ];
        assert_eq!(in_order.lines, found);
        assert_eq!(in_order.last.as_deref(), Some("all done"));
        let swapped = log_matches(asked, 1, "begun\ndone\nrank 1 of 2\n");
        let found = [
            LineMatch::Found(1),
            LineMatch::Found(3),
            LineMatch::TooEarly(2),
        ];
        assert_eq!(swapped.lines, found);
        let other = log_matches(asked, 0, "begun\nrank 1 of 2\ndone\n");
        let found = [
            LineMatch::Found(1),
            LineMatch::Missing,
            LineMatch::TooEarly(3),
        ];
        assert_eq!(other.lines, found);
    }

    #[test]
    fn what_comes_too_early_may_come_again_in_time() {
        let log = "done\nbegun\ndone\n";
        let found = log_matches("lines: [begun, done]", 0, log).lines;
        assert_eq!(found, [LineMatch::Found(2), LineMatch::Found(3)]);
        let once = log_matches("lines: [one, one]", 0, "one\n").lines;
        assert_eq!(once, [LineMatch::Found(1), LineMatch::Missing]);
    }

    #[test]
    fn a_line_of_another_rank_is_not_asked_for() {
        let asked = "lines: [{on: last, line: a}, b]\nnever: [bad, {on: first, line: worse}]";
        let last = log_matches(asked, 1, "a\nb\nworse\n");
        assert_eq!(last.lines, [LineMatch::Found(1), LineMatch::Found(2)]);
        assert_eq!(last.never, [None, None]);
        let first = log_matches(asked, 0, "b\nworse \nworse");
        assert_eq!(first.lines, [LineMatch::NotRequired, LineMatch::Found(1)]);
        assert_eq!(first.never, [None, Some((2, "worse".to_owned()))]);
    }

    #[test]
    fn a_log_that_is_not_there_has_no_lines() {
        let nothing = Path::new("/no/such/log");
        let asked = program("lines: [a]");
        let log_matches = look_through(nothing, &asked, Rank(0), WorldSize(1)).unwrap();
        assert_eq!(log_matches.lines, [LineMatch::Missing]);
    }
}
