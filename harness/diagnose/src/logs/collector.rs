//! Takes off lines what a collector has put before them to say where they come from: a pod, a container, a host, a task.

use std::collections::BTreeSet;
use std::io;
use std::ops::ControlFlow;
use std::sync::LazyLock;

use regex::Regex;

use super::moment::is_clock;
use super::pattern::pattern;
use super::source::Source;

/// What a collector has put before the lines of a source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Collector {
    /// Nothing that is known.
    #[default]
    None,
    /// `[pod/train-0/main] `, of `kubectl logs --prefix`.
    Pod,
    /// `train-worker-1 pytorch `, of `stern`, with colours or without.
    Stern,
    /// `2025-09-21T06:10:00Z {app="train", pod="train-0"} `, of Loki's `logcli`.
    Loki,
    /// `2025-05-19T14:00:03.001Z job/algo-3 `, of `aws logs tail`.
    Stream,
    /// `INFO`, the time, `workerpool1-0` and a trial, each with a tab behind it, of `gcloud ai custom-jobs stream-logs`.
    Vertex,
    /// `trainer-1-1  | `, of `docker compose`.
    Container,
    /// `node-12: `, of `pdsh` and of launchers.
    Host,
    /// `node-12 15: `, of PALS: the host and the rank.
    HostAndRank,
}

/// What a collector says of a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Origin<'a> {
    /// The pod, container or host.
    pub(super) writer: Option<&'a str>,
    pub(super) rank: Option<u32>,
}

static POD: LazyLock<Option<Regex>> =
    LazyLock::new(|| pattern(r"^\[pod/(?P<writer>[^/\]\s]+)(?:/[^\]\s]+)?\] ?"));
static STERN: LazyLock<Option<Regex>> = LazyLock::new(|| {
    pattern(
        r"^(?:\x1b\[[\d;]*m)*(?P<writer>[a-z][a-z0-9.]*(?:-[a-z0-9.]+)*-(?:[a-z0-9.]*\d[a-z0-9.]*|[a-z0-9]{5}))(?:\x1b\[[\d;]*m)* (?:\x1b\[[\d;]*m)*(?P<container>[a-z][a-z0-9-]*)(?:(?:\x1b\[[\d;]*m)+(?: |$)| |$)",
    )
});
/// What `stern` writes of a container that it begins or ends to follow.
static FOLLOWED: LazyLock<Option<Regex>> =
    LazyLock::new(|| pattern(r"^(?:\x1b\[[\d;]*m)*[+-](?:\x1b\[[\d;]*m)* \S+ › "));
static LOKI: LazyLock<Option<Regex>> = LazyLock::new(|| {
    pattern(r#"^\d{4}-\d\d-\d\dT\S+ \{[^}]*\b(?:pod|instance|host)="(?P<writer>[^"]+)"[^}]*\} ?"#)
});
static STREAM: LazyLock<Option<Regex>> = LazyLock::new(|| {
    pattern(
        r"^\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+-]\d\d:?\d\d) (?P<writer>[A-Za-z][\w.-]*(?:/[\w.-]+)+) ",
    )
});
static VERTEX: LazyLock<Option<Regex>> = LazyLock::new(|| {
    pattern(
        r"^[A-Z]+\t\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?: [+-]\d{4})?\t(?P<writer>[\w-]+)\t(?:\w*\t)?",
    )
});
static CONTAINER: LazyLock<Option<Regex>> =
    LazyLock::new(|| pattern(r"^(?P<writer>[A-Za-z][\w.-]*\d[\w.-]*) +\| ?"));
static HOST: LazyLock<Option<Regex>> =
    LazyLock::new(|| pattern(r"^(?P<writer>[A-Za-z][\w.-]*\d[\w.-]*):(?: |$)"));
static HOST_AND_RANK: LazyLock<Option<Regex>> = LazyLock::new(|| {
    pattern(r"^(?:[\w-]*(?:\.[\w-]+)+|[A-Za-z][\w-]*\d[\w-]*) (?P<rank>\d{1,5}): ?")
});

/// All of them, each before those that its lines could be taken for.
const ALL: &[Collector] = &[
    Collector::Pod,
    Collector::Loki,
    Collector::Stream,
    Collector::Vertex,
    Collector::Stern,
    Collector::Container,
    Collector::HostAndRank,
    Collector::Host,
];
/// What lines of a launcher itself begin with, between those of its hosts.
const LAUNCHERS: &[&str] = &[
    "pdsh@",
    "[mpi-launch]",
    "clush:",
    "Attaching to ",
    "#",
    "$ ",
];
/// Lines that are looked at, and of them the share in percent that must have the prefix.
const LOOK: usize = 300;
const SHARE: usize = 85;

impl Collector {
    /// Returns what the lines of a source begin with.
    pub(super) fn of(source: &Source) -> io::Result<Self> {
        let mut seen = 0;
        let mut found = [0; ALL.len()];
        let (mut containers, mut writers) = (BTreeSet::new(), BTreeSet::new());
        source.each_line(|raw| {
            let is_followed = FOLLOWED.as_ref().is_some_and(|line| line.is_match(raw));
            let is_launchers = LAUNCHERS.iter().any(|name| raw.starts_with(name))
                || raw.contains(" exited with code ");
            if !raw.trim().is_empty() && !is_followed && !is_launchers {
                seen += 1;
                if let Some(found) = Self::Stern.captures(raw) {
                    containers.insert(found["container"].to_owned());
                    writers.insert(found["writer"].to_owned());
                }
                for (one, count) in ALL.iter().zip(&mut found) {
                    *count += usize::from(one.captures(raw).is_some());
                }
            }
            match seen < LOOK {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            }
        })?;
        // Two words could be any text, but for the same second one after several pods.
        let is_stern = !containers.is_empty() && containers.len() < writers.len();
        let is_it = |(one, count): &(&Self, &usize)| {
            **count > 1 && **count * 100 >= seen * SHARE && (**one != Self::Stern || is_stern)
        };
        let first = ALL.iter().zip(&found).find(is_it);
        Ok(first.map_or(Self::None, |(one, _)| *one))
    }

    fn captures<'a>(self, raw: &'a str) -> Option<regex::Captures<'a>> {
        let pattern = match self {
            Self::None => return None,
            Self::Pod => &POD,
            Self::Loki => &LOKI,
            Self::Stream => &STREAM,
            Self::Vertex => &VERTEX,
            Self::Stern => &STERN,
            Self::Container => &CONTAINER,
            Self::Host => &HOST,
            Self::HostAndRank => &HOST_AND_RANK,
        };
        let found = pattern.as_ref()?.captures(raw)?;
        // `rank0: ` is no host of that name.
        let is_rank = found.name("writer").is_some_and(|writer| {
            let name = writer.as_str().to_ascii_lowercase();
            let rest = name.strip_prefix("rank");
            rest.is_some_and(|rest| {
                rest.trim_start_matches(['-', '_'])
                    .starts_with(|one: char| one.is_ascii_digit())
            })
        });
        // glog's `I0722 05:00:00.110204` is a time.
        let is_time = self == Self::HostAndRank && is_clock(&found[0], &raw[found[0].len()..]);
        (!is_rank && !is_time).then_some(found)
    }

    /// Takes the prefix off a line: what it says, and the rest.
    pub(super) fn take(self, raw: &str) -> (Origin<'_>, &str) {
        let Some(found) = self.captures(raw) else {
            return (Origin::default(), raw);
        };
        let origin = Origin {
            writer: found.name("writer").map(|writer| writer.as_str()),
            rank: found
                .name("rank")
                .and_then(|rank| rank.as_str().parse().ok()),
        };
        let end = found.get(0).map_or(0, |all| all.end());
        (origin, &raw[end..])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_are_taken_off() {
        for (collector, first, second, writer, rank) in [
            (
                Collector::Pod,
                "[pod/t-0-x/main] a",
                "[pod/t-1-y/main] a",
                Some("t-0-x"),
                None,
            ),
            (
                Collector::Stern,
                "t-worker-0 main a",
                "\u{1b}[32mt-worker-1\u{1b}[0m \u{1b}[91mmain\u{1b}[0m a",
                Some("t-worker-0"),
                None,
            ),
            (
                Collector::Loki,
                "2025-09-21T06:10:00Z {app=\"t\", pod=\"t-0\", stream=\"stderr\"} a",
                "2025-09-21T06:10:01Z {app=\"t\", pod=\"t-1\", stream=\"stderr\"} a",
                Some("t-0"),
                None,
            ),
            (
                Collector::Stream,
                "2025-05-19T14:00:03.001Z algo-3/training-0519 a",
                "2025-05-19T14:00:04.001Z algo-3/training-0519 a",
                Some("algo-3/training-0519"),
                None,
            ),
            (
                Collector::Vertex,
                "INFO\t2025-03-27 15:02:33 +0000\tworkerpool1-0\t\ta",
                "INFO\t2025-03-27 15:02:34 +0000\tworkerpool1-1\t\ta",
                Some("workerpool1-0"),
                None,
            ),
            (
                Collector::None,
                "epoch-1 loss a",
                "epoch-1 loss b",
                None,
                None,
            ),
            (
                Collector::Container,
                "t-0-1  | a",
                "t-10-1 | a",
                Some("t-0-1"),
                None,
            ),
            (
                Collector::Host,
                "cn-233: a",
                "cn-234: a",
                Some("cn-233"),
                None,
            ),
            (
                Collector::HostAndRank,
                "x4.cm.anl.gov 15: a",
                "x5.cm.anl.gov 16: a",
                None,
                Some(15),
            ),
            (Collector::None, "step 1: a", "step 2: a", None, None),
            (Collector::None, "epoch: 1", "a | b", None, None),
            (
                Collector::Pod,
                "[pod/ranker-0/main] a",
                "[pod/ranker-1/main] a",
                Some("ranker-0"),
                None,
            ),
            (Collector::None, "rank0: a", "rank1: a", None, None),
            (Collector::None, "Rank0 | a", "Rank1 | a", None, None),
            (
                Collector::None,
                "n7:12:14 [0] NCCL INFO a",
                "n7:12:14 [0] NCCL INFO b",
                None,
                None,
            ),
        ] {
            let source = Source::of_text("job.log", &format!("{first}\n{second}\n"));
            assert_eq!(Collector::of(&source).unwrap(), collector, "{first}");
            let (origin, rest) = collector.take(first);
            assert_eq!(origin, Origin { writer, rank }, "{first}");
            assert!(collector == Collector::None || rest == "a", "{rest}");
        }
    }
}
