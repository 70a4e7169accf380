//! Takes a line of a log apart: its rank, its time, and its text without colours and headers.

use std::borrow::Cow;
use std::sync::LazyLock;

use regex::Regex;

use super::moment::{Form, Moment};

/// A line, split into what its headers say and its text.
#[derive(Clone, Debug)]
pub(super) struct LogLine<'a> {
    /// The rank in its headers; `None` if they name none.
    pub(super) rank: Option<u32>,
    /// The local rank in its headers, torchrun's `[default1]:`; `None` if there is none.
    pub(super) local_rank: Option<u32>,
    /// The time in its headers; `None` if there is none.
    pub(super) moment: Option<Moment>,
    /// The rest of the line, its indentation included.
    pub(super) text: Cow<'a, str>,
}

static COLOUR: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07]*\x07)").ok());

/// Matches one header before the text and the blank after it: a time, a level, a rank.
static HEADER: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(concat!(
        r"^(?:",
        // 2026-11-20T14:00:00.123Z, in brackets or not.
        r"\[?(?P<year>\d{4})[-/](?P<month>\d\d)[-/](?P<day>\d\d)[T ](?P<clock>\d\d:\d\d:\d\d(?:[.,]\d+)?)(?:Z|[+-]\d\d:?\d\d)?\]?[:,]?",
        // E1120 14:00:00.123456 4242 file.cpp:67]
        r"|\[?[IWEFCD](?P<gmonth>\d\d?)(?P<gday>\d\d) (?P<gclock>\d\d:\d\d:\d\d(?:\.\d+)?)(?:\s+\d+)?(?:\s+[^\s\]]+:\d+)?\]?",
        r"|\[[IWEF] [^\s\]]+:\d+\]",
        r"|\[?(?P<epoch>1\d{9}(?:\.\d+)?)\]?:?",
        r"|\[default(?P<local>\d+)\]:",
        r"|\[(?i:rank)[ _:]?(?P<rank>\d+)\]:?",
        r"|(?i:rank)[ _:=]?(?P<bare>\d+)(?:/\d+)?\s*[:|>\]]",
        r"|\[\d+,(?P<mpi>\d+)\]<std\w+>:?",
        r"|[\[(]?(?:INFO|DEBUG|WARNING|WARN|ERROR|CRITICAL|NOTICE)[\])]?(?::[\w.]*:?)?(?:\s+-|\s*\|)?",
        r"|-",
        r")(?: |$|(?P<on>\S))"
    ))
    .ok()
});

/// The most headers that a line has; anything further is text.
const HEADERS: usize = 8;

impl<'a> LogLine<'a> {
    /// Takes a line apart.
    pub(super) fn read(raw: &'a str) -> Self {
        let mut text = clean(raw);
        let (mut rank, mut local_rank, mut moment) = (None, None, None);
        for _ in 0..HEADERS {
            // Every header begins with one of these. Most lines do not, and this test is cheaper than the pattern.
            let is_one =
                |byte: &u8| matches!(byte, b'[' | b'(' | b'-' | b'0'..=b'9' | b'A'..=b'Z' | b'r');
            if !text.as_bytes().first().is_some_and(is_one) {
                break;
            }
            let Some(found) = HEADER.as_ref().and_then(|header| header.captures(&text)) else {
                break;
            };
            let number = |name: &str| found.name(name)?.as_str().parse::<u32>().ok();
            let part = |name: &str| found.name(name)?.as_str().parse::<i64>().ok();
            rank = number("rank").or(number("bare")).or(number("mpi")).or(rank);
            local_rank = number("local").or(local_rank);
            if moment.is_none() {
                let clock = |name: &str| found.name(name).map(|clock| clock.as_str());
                moment = match (clock("clock"), clock("gclock"), clock("epoch")) {
                    (Some(clock), ..) => Moment::of_date(
                        Form::Iso,
                        part("year").unwrap_or(0),
                        part("month").unwrap_or(1),
                        part("day").unwrap_or(1),
                        clock,
                    ),
                    (None, Some(clock), _) => Moment::of_date(
                        Form::Glog,
                        0,
                        part("gmonth").unwrap_or(1),
                        part("gday").unwrap_or(1),
                        clock,
                    ),
                    (None, None, Some(epoch)) => epoch.parse().ok().map(Moment::of_epoch),
                    (None, None, None) => None,
                };
            }
            let whole = found.get(0).map_or(0, |all| all.end());
            let end = found.name("on").map_or(whole, |on| on.start());
            if end == 0 {
                break;
            }
            text = match text {
                Cow::Borrowed(text) => Cow::Borrowed(&text[end..]),
                Cow::Owned(text) => Cow::Owned(text[end..].to_owned()),
            };
        }
        Self {
            rank,
            local_rank,
            moment,
            text,
        }
    }
}

impl<'a> LogLine<'a> {
    /// Returns the line that remains, headers read again, when the first bytes of its text are cut off.
    pub(super) fn without(&self, bytes: usize) -> Self {
        match &self.text {
            Cow::Borrowed(text) => Self::read(&text[bytes..]),
            Cow::Owned(text) => {
                let line = LogLine::read(&text[bytes..]);
                Self {
                    rank: line.rank,
                    local_rank: line.local_rank,
                    moment: line.moment,
                    text: Cow::Owned(line.text.into_owned()),
                }
            }
        }
    }
}

/// Removes colours and, of a line that was overwritten with carriage returns, all but the last state.
fn clean(raw: &str) -> Cow<'_, str> {
    let raw = raw.trim_end();
    let raw = raw.rsplit('\r').next().unwrap_or(raw);
    match COLOUR.as_ref() {
        Some(colour) if raw.contains('\x1b') => colour.replace_all(raw, ""),
        _ => Cow::Borrowed(raw),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_taken_off() {
        for (raw, rank, local, text) in [
            ("[Rank 1] Before barrier", Some(1), None, "Before barrier"),
            (
                "[rank12]: Traceback (most",
                Some(12),
                None,
                "Traceback (most",
            ),
            ("[rank0]:   File \"x\"", Some(0), None, "  File \"x\""),
            (
                "[default3]:[rank7]: ValueError: x",
                Some(7),
                Some(3),
                "ValueError: x",
            ),
            ("[default3]:Before x", None, Some(3), "Before x"),
            ("rank 2: Before x", Some(2), None, "Before x"),
            ("Rank 2 | After x", Some(2), None, "After x"),
            ("[1,4]<stdout>:Before x", Some(4), None, "Before x"),
            (
                "2026-11-20 14:00:00,123 INFO [Rank 3] Before x",
                Some(3),
                None,
                "Before x",
            ),
            (
                "[rank0]:[E1120 15:01:08.935249167 ProcessGroupGloo.cpp:2708] [Rank 0]: Rank 3 failed",
                Some(0),
                None,
                "Rank 3 failed",
            ),
            (
                "\x1b[32m[Rank 1]\x1b[0m Before x\r",
                Some(1),
                None,
                "Before x",
            ),
            (" 10%|#    |\r100%|####|", None, None, "100%|####|"),
            ("Rank 3 failed to pass", None, None, "Rank 3 failed to pass"),
            ("1795183200.5 Before x", None, None, "Before x"),
        ] {
            let line = LogLine::read(raw);
            assert_eq!(
                (line.rank, line.local_rank, &*line.text),
                (rank, local, text),
                "{raw}"
            );
        }
    }

    #[test]
    fn times_are_compared() {
        let at = |raw| LogLine::read(raw).moment.unwrap();
        let seconds = at("[2026-11-20T14:00:02Z] x").since(at("2026-11-20 14:00:00,500 INFO y"));
        assert_eq!(seconds, Some(1.5));
        let seconds = at("I1120 14:00:02.25 4242 a.py:1] x").since(at("W1120 14:00:01 x"));
        assert_eq!(seconds, Some(1.25));
    }
}
