//! Splits a log line into what its headers say (process, rank, time) and its text, without colour codes.
//!
//! Headers are those of torchrun, torchx, syslog, `mpirun`, glog, Python's `logging`, loguru, accelerate, DeepSpeed, vLLM, SGLang, Ray and
//! collectors that put something of their own before each line.

use std::borrow::Cow;
use std::sync::LazyLock;

use regex::Regex;

use super::moment::{Form, Moment};
use super::process_header;

/// A line, split into what its headers say and its text.
#[derive(Clone, Debug)]
pub(super) struct LogLine<'a> {
    /// The rank it begins with. The first counts: `[rank13]: [Rank 1]` is rank 1 of a group, and rank 13 of the job.
    pub(super) rank: Option<u32>,
    /// The local rank in its headers, torchrun's `[default1]:`; `None` if there is none.
    pub(super) local_rank: Option<u32>,
    /// The process that a launcher names, `4009` or `4009@10.0.0.1`.
    pub(super) process: Option<String>,
    /// The id of the process that Python's `logging` has put before it, `INFO:4009:train:`. Lines of a rank's helpers have others.
    pub(super) logger_pid: Option<String>,
    /// The time in its headers; `None` if there is none.
    pub(super) moment: Option<Moment>,
    /// Whether its level is that of an error.
    pub(super) is_error: bool,
    /// The rest of the line, its indentation included.
    pub(super) text: Cow<'a, str>,
}

static COLOUR: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07]*\x07)").ok());

/// Names of levels.
macro_rules! level {
    () => {
        "(?:INFO|DEBUG|WARNING|WARN|ERROR|CRITICAL|NOTICE|SUCCESS|TRACE|FATAL)"
    };
}

/// The levels of errors, and TensorRT-LLM's letter for it.
const ERRORS: &[&str] = &["ERROR", "CRITICAL", "FATAL", "[E] "];

/// Matches one header before the text and the blank after it: a time, a level, a rank.
static HEADER: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(concat!(
        r"^(?:",
        // 2026-11-20T14:00:00.123Z, in brackets or not; SGLang puts its ranks into the brackets.
        r"\[?(?P<year>\d{4})[-/](?P<month>\d\d)[-/](?P<day>\d\d)[T ,](?P<clock>\d\d:\d\d(?::\d\d)?(?:[.,]\d+)?)(?:Z|[+-]\d\d:?\d\d)?(?P<engine>(?: [A-Z]{2}\d+)+)?\]?[:,]?",
        // accelerate: 05/01/2026 10:00:00; rich: [05/01/26 10:00:00]; TensorRT-LLM: [05/01/2026-10:00:00].
        r"|\[?(?P<amonth>\d\d)/(?P<aday>\d\d)/(?P<ayear>(?:\d\d)?\d\d)[ -](?P<aclock>\d\d:\d\d:\d\d)\]?",
        // detectron2: [06/14 11:02:11 d2.utils.events]:.
        r"|\[(?P<fmonth>\d\d)/(?P<fday>\d\d) (?P<fclock>\d\d:\d\d:\d\d)(?: [\w.]+)?\]:",
        // vLLM: INFO 12-02 10:11:02 parallel_state.py:250].
        r"|", level!(), r"\s+(?P<vmonth>\d\d)-(?P<vday>\d\d) (?P<vclock>\d\d:\d\d:\d\d(?:\.\d+)?)(?: \[?[\w./-]+:\d+\])?",
        // syslog and systemd's journal: Oct 02 23:40:00 n7 torchrun[8790]:
        r"|(?P<smonth>Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) {1,2}(?P<sday>\d{1,2}) (?P<sclock>\d\d:\d\d:\d\d(?:\.\d+)?) [\w.-]+ (?P<program>[\w./-]+)\[(?P<spid>\d+)\]:",
        // Python's logging with the process: INFO:4009:train:
        r"|", level!(), r":(?P<lpid>\d{2,8}):[\w.]*:",
        // E1120 14:00:00.123456 4242 file.cpp:67]
        r"|\[?[IWEFCD](?P<gmonth>\d\d?)(?P<gday>\d\d) (?P<gclock>\d\d:\d\d:\d\d(?:\.\d+)?)(?:\s+\d+)?(?:\s+[^\s\]]+:\d+)?\]?",
        r"|\[[IWEF] [^\s\]]+:\d+\]",
        // CANN: EI0002: [PID: 71006] 2025-10-09-17:16:06.713.36 The wait ...
        r"|E[A-Z]\d{4}: \[PID: (?P<hpid>\d+)\](?: \d{4}-\d\d-\d\d-[\d:.]+)?",
        // The time of a day alone, which does not tell which of two lines came first.
        r"|\[?\d\d:\d\d:\d\d(?:[.,]\d+)?\]?",
        r"|\[?(?P<epoch>1\d{9}(?:\.\d+)?)\]?:?",
        r"|\[default(?P<local>\d+)\]:",
        // The device of a rank, as torch's tutorials print it.
        r"|\[(?:gpu|GPU)[ _:]?(?P<gpu>\d+)\]:?",
        // `[rank 3]`, `[Rank: 3]`, `[rank 3/8]`, `[rank=3 world=8]`.
        r"|\[(?i:rank)[ _:=]*(?P<rank>\d+)(?: ?/ ?\d+|,? world(?:_size)?[=: ]\d+)?\]:?",
        r"|\[(?:proc|process) (?P<proc>\d+)/\d+\]:?",
        r"|(?i:rank)[ _:=]?(?P<bare>\d+)(?:/\d+)?\s*[:|>\]]",
        r"|(?:Process )?(?i:rank): (?P<own>\d+),",
        // Composer: rank3[1203][MainThread]:.
        r"|rank(?P<thread>\d+)\[\d+\]\[[\w-]+\]:",
        // mpirun --tag-output, and SageMaker's: [1,3]<stdout>:, [1,mpirank:3,algo-1]<stdout>:.
        r"|\[\d+,(?:mpirank:)?(?P<mpi>\d+)(?:,[\w.-]+)?\]<\w+>:?",
        // torchft's replica: [ddp_1:0f72/0 - step 9].
        r"|\[[\w.:-]+/\d+ - step \d+\]",
        // SkyPilot's node, before what runs there: (worker1, rank=1, pid=2111, ip=10.0.0.2).
        r"|\([a-z][\w-]*, rank=\d+, pid=\d+(?:, ip=[^)\s]+)?\)",
        // Monarch: [actor=<root>.<trainer.Trainer trainer{'gpus': 1/4}>].
        r"|\[actor=(?P<mesh>[^\]\s][^\]]*)\]",
        // (RayWorkerWrapper pid=4009, ip=10.0.0.1), (VllmWorker rank=2 pid=251), (Worker_TP1 pid=251).
        r"|\((?P<actor>[A-Za-z][\w.:]*)(?: rank=(?P<arank>\d+)| (?P<aengine>[A-Z]{2}\d+(?:_[A-Z]{2}\d+)*))? pid=(?P<pid>\d+)(?:, ip=(?P<ip>[^)\s]+))?\)",
        // Python's logging: `- trainer - INFO -`, `- INFO - __main__ -`; loguru: `| INFO | train:main:42 -`.
        r"|- [\w.]+ - ", level!(), r" -",
        r"|- ", level!(), r" - [\w.]+ -",
        r"|\|\s*", level!(), r"\s*\|(?: [\w.<>]+:[\w.<>]+:\d+ -| [\w.]+ \|)?",
        // LLaMA-Factory: [INFO|2025-09-03 10:00:20] llamafactory.hparams.parser:423 >>; transformers: [INFO|trainer.py:2243].
        r"|\[", level!(), r"\|(?P<lyear>\d{4})-(?P<lmonth>\d\d)-(?P<lday>\d\d) (?P<lclock>\d\d:\d\d:\d\d)\] [\w.]+:\d+ >>",
        r"|\[", level!(), r"\|[\w.]+:\d+\]",
        // With the logger, `INFO: composer.utils.dist:`.
        r"|", level!(), r": [a-z_]\w*(?:\.\w+)+:",
        r"|[\[(]?", level!(), r"[\])]?(?::[\w.]*:?)?(?:\s+-|\s*\||\s+:)?",
        // The process and the line of code, `4009 train.py:42 :`.
        r"|(?:\d{2,8} +)?[\w./-]+\.py:\d+(?: ?[:|-])?",
        // DeepSpeed: [engine.py:1810:_log].
        r"|\[[\w./-]+\.\w+:\d+(?::[\w<>]+)?\]",
        // axolotl, TorchTitan, TensorRT-LLM with a letter for the level.
        r"|\[PID:\d+\]|\[titan\]|\[TRT-LLM\]|\[[IWEFDV]\]",
        // With the mark of container runtimes for a whole line or a part of one, `stderr F`.
        r"|\[std(?:out|err)\]|std(?:out|err)(?::| [FP])",
        r"|-|\|",
        r")(?: |$|(?P<on>\S))"
    ))
    .ok()
});

/// torchx: the role and the number of the replica, before what torchrun has put there.
static REPLICA: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"^[\w.-]+/(\d+) \[default(\d+)\]:").ok());
/// Names of months in syslog.
const MONTHS: &[&str] = &[
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];
/// Programs whose lines in a journal are of the host and no job's.
const DAEMONS: &[&str] = &[
    "systemd",
    "sshd",
    "CRON",
    "cron",
    "dockerd",
    "containerd",
    "kubelet",
    "kernel",
    "dbus",
    "snapd",
    "rsyslogd",
    "sudo",
];

/// A rank that stands behind something that no header is.
static INNER: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"\[rank(\d+)\]: ?|\[Rank (\d+)\] ").ok());
/// The rank in the words of NCCL's watchdog, of the group of all ranks only.
static WORLD_RANK: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"^\[PG [^\]]*\bdefault_pg\) Rank (\d+)\]").ok());
/// SGLang's and vLLM's rank among those that share a model's tensors.
static TENSOR_RANK: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"TP(\d+)").ok());

/// Headers in a row that a line may have; more are text.
const HEADERS: usize = 10;
/// Characters before a rank that stands behind something that no header is.
const PREFIX: usize = 120;
/// The highest rank; greater numbers are something else.
pub(super) const RANKS: u32 = 1_000_000;

impl<'a> LogLine<'a> {
    /// Takes a line apart.
    pub(super) fn read(raw: &'a str) -> Self {
        let mut text = clean(raw);
        let mut line = Self {
            rank: None,
            local_rank: None,
            process: None,
            logger_pid: None,
            moment: None,
            is_error: false,
            text: Cow::Borrowed(""),
        };
        if let Some(end) = line.take_replica(&text) {
            text = Cow::Owned(text[end..].to_owned());
        }
        if let Some(bare) = behind_bar(&text) {
            text = Cow::Owned(bare.to_owned());
        }
        for _ in 0..HEADERS {
            // Some formats of Python's `logging` have more blanks before the message, which may begin with the rank.
            let bare = text.trim_start();
            if line.moment.is_some() && bare.len() < text.len() && begins_with_rank(bare) {
                text = Cow::Owned(bare.to_owned());
            }
            // A header begins with one of these; most lines do not, and a look is cheaper than the pattern.
            let is_one = |byte: &u8| matches!(byte, b'[' | b'(' | b'-' | b'|' | b'0'..=b'9' | b'A'..=b'Z' | b'r' | b's');
            let is_code = || {
                let beginning = text.get(..48).unwrap_or(&text);
                line.moment.is_some() && beginning.contains(".py:")
            };
            let is_rule = text.starts_with("--");
            if is_rule || (!text.as_bytes().first().is_some_and(is_one) && !is_code()) {
                break;
            }
            let Some(found) = HEADER.as_ref().and_then(|header| header.captures(&text)) else {
                break;
            };
            let end = line.take(&found);
            if end == 0 {
                break;
            }
            text = match text {
                Cow::Borrowed(text) => Cow::Borrowed(&text[end..]),
                Cow::Owned(text) => Cow::Owned(text[end..].to_owned()),
            };
        }
        if line.rank.is_none() && text.starts_with("[PG ") {
            line.rank = captured(&WORLD_RANK, &text);
        }
        if line.rank.is_none() && line.local_rank.is_none() {
            let inner = inner(&text);
            if let Some((rank, end)) = inner {
                line.rank = Some(rank);
                let tail = text[end..].to_owned();
                let rest = LogLine::read(&tail);
                line.moment = line.moment.or(rest.moment);
                text = Cow::Owned(rest.text.into_owned());
            }
        }
        if line.process.is_none() {
            line.process = process_header::process(&text);
        }
        line.rank = line.rank.filter(|rank| *rank < RANKS);
        line.text = text;
        line
    }

    /// Takes in what torchx has put before a line; its end. Numbers within the host are ranks of the first replica at most.
    fn take_replica(&mut self, text: &str) -> Option<usize> {
        let found = REPLICA
            .as_ref()
            .filter(|_| text.contains(" [default"))?
            .captures(text)?;
        match &found[1] {
            "0" => self.local_rank = found[2].parse().ok(),
            _ => self.process = Some(found[0].to_owned()),
        }
        Some(found.get(0)?.end())
    }

    /// Takes in what a header says; its end.
    fn take(&mut self, found: &regex::Captures<'_>) -> usize {
        let number = |name: &str| found.name(name)?.as_str().parse::<u32>().ok();
        let text = |name: &str| found.name(name).map(|text| text.as_str());
        let is_daemon = |program: &str| DAEMONS.iter().any(|name| program.starts_with(name));
        if text("program").is_some_and(is_daemon) {
            return 0;
        }
        if let Some(pid) = text("lpid").or(text("spid")).or(text("hpid")) {
            self.logger_pid = Some(pid.to_owned());
        }
        // With other kinds of parallelism beside it, the number among those that share tensors is no rank of the job.
        let is_rank = |engine: &&str| !engine.contains("DP") && !engine.contains("PP");
        let engine = text("engine").or(text("aengine"));
        let engine = engine.or_else(|| text("actor").filter(|actor| actor.contains("_TP")));
        let tensor = engine
            .filter(is_rank)
            .and_then(|engine| captured(&TENSOR_RANK, engine));
        let after_rank = number("rank")
            .or(number("proc"))
            .or(number("bare"))
            .or(number("own"))
            .or(number("thread"))
            .or(number("mpi"))
            .or(number("arank"))
            .or(tensor);
        self.rank = self.rank.or(after_rank);
        // Whether it is one is seen once those of all processes are known.
        if let (None, Some(engine)) = (tensor, text("engine").or(text("mesh"))) {
            self.process = Some(engine.trim_start().to_owned());
        }
        self.local_rank = number("local").or(number("gpu")).or(self.local_rank);
        if let Some(pid) = text("pid") {
            self.process = Some(match text("ip") {
                Some(ip) => format!("{pid}@{ip}"),
                None => pid.to_owned(),
            });
        }
        self.moment = self.moment.or_else(|| moment(found));
        let header = found.get(0).map_or("", |all| all.as_str());
        self.is_error |= ERRORS.iter().any(|level| header.contains(level));
        let whole = found.get(0).map_or(0, |all| all.end());
        found.name("on").map_or(whole, |on| on.start())
    }
}

/// Returns the time that a header is; `None` if it is none.
fn moment(found: &regex::Captures<'_>) -> Option<Moment> {
    let text = |name: &str| found.name(name).map(|text| text.as_str());
    let part = |name: &str| text(name)?.parse::<i64>().ok();
    let date = |form, year: Option<i64>, month: &str, day: &str, clock: &str| {
        let (month, day) = (part(month).unwrap_or(1), part(day).unwrap_or(1));
        Moment::of_date(form, year.unwrap_or(0), month, day, clock)
    };
    if let Some(clock) = text("clock") {
        date(Form::Iso, part("year"), "month", "day", clock)
    } else if let Some(clock) = text("aclock") {
        date(Form::Iso, part("ayear"), "amonth", "aday", clock)
    } else if let Some(clock) = text("lclock") {
        date(Form::Iso, part("lyear"), "lmonth", "lday", clock)
    } else if let Some(clock) = text("vclock") {
        date(Form::Glog, None, "vmonth", "vday", clock)
    } else if let Some(clock) = text("gclock") {
        date(Form::Glog, None, "gmonth", "gday", clock)
    } else if let Some(clock) = text("fclock") {
        date(Form::Glog, None, "fmonth", "fday", clock)
    } else if let Some(clock) = text("sclock") {
        let month = MONTHS.iter().position(|name| text("smonth") == Some(*name));
        let month = (1..).nth(month.unwrap_or(0)).unwrap_or(1);
        Moment::of_date(Form::Glog, 0, month, part("sday").unwrap_or(1), clock)
    } else {
        text("epoch")
            .and_then(|epoch| epoch.parse().ok())
            .map(Moment::of_epoch)
    }
}

/// Returns a line without the blanks that a collector has put before its bar; `None` if it has none.
fn behind_bar(text: &str) -> Option<&str> {
    let bare = text.trim_start();
    (bare.len() < text.len() && bare.starts_with("| ")).then_some(bare)
}

/// Returns true if a text begins with a rank, `[rank 2] ` or `rank 2: `.
fn begins_with_rank(text: &str) -> bool {
    let found = HEADER
        .as_ref()
        .filter(|_| text.starts_with(['[', 'r', 'R']));
    let found = found.and_then(|header| header.captures(text));
    found.is_some_and(|found| found.name("rank").or(found.name("bare")).is_some())
}

/// Returns the number that a pattern finds.
fn captured(pattern: &LazyLock<Option<Regex>>, text: &str) -> Option<u32> {
    pattern.as_ref()?.captures(text)?[1].parse().ok()
}

/// Returns a rank behind an unknown prefix, and where the text behind it begins. An error may name a rank that is another.
fn inner(text: &str) -> Option<(u32, usize)> {
    if !text.contains("[rank") && !text.contains("[Rank") {
        return None;
    }
    let found = INNER.as_ref()?.captures(text)?;
    let whole = found.get(0)?;
    let before = &text[..whole.start()];
    if before.len() > PREFIX || before.contains("rror") || before.contains("xception") {
        return None;
    }
    let rank = found.get(1).or(found.get(2))?.as_str().parse().ok()?;
    Some((rank, whole.end()))
}

/// Parts of a line that each begin with a rank of their own: the watchdog's threads write into lines that others have begun.
pub(super) fn parts(raw: &str) -> impl Iterator<Item = &str> {
    let mut cuts: Vec<usize> = Vec::new();
    // Most lines have none, and a look is cheaper than the pattern.
    if let Some(joint) = JOINT.as_ref().filter(|_| raw.contains("[rank")) {
        let starts = joint.find_iter(raw).map(|found| found.start());
        cuts.extend(starts.filter(|start| *start > 0));
    }
    // The prefix that a collector puts before a rank belongs to it.
    if let [only] = cuts[..]
        && only <= PREFIX
        && !raw[..only].contains("%|")
    {
        cuts.clear();
    }
    let mut from = 0;
    cuts.push(raw.len());
    cuts.into_iter()
        .map(move |to| &raw[std::mem::replace(&mut from, to)..to])
}

/// Returns true if a line may begin with a rank or a process; a look that costs less than taking it apart.
pub(super) fn may_name_a_rank(raw: &str) -> bool {
    const SIGNS: &[&str] = &[
        "ank", "ANK", "[r", "[proc", "[gpu", "[GPU", "[default", " pid=", "]<std", " TP", "_TP",
    ];
    SIGNS.iter().any(|sign| raw.contains(sign))
}

static JOINT: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"\[rank\d+\]:(?:\[[IWEF]\d* | Traceback)").ok());

/// Returns a line without colour codes.
fn clean(raw: &str) -> Cow<'_, str> {
    let raw = raw.trim_end();
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
            ("[GPU3] Before x", None, Some(3), "Before x"),
            ("[proc 3/4] Before x", Some(3), None, "Before x"),
            ("rank 2: Before x", Some(2), None, "Before x"),
            ("[rank 2/8] Before x", Some(2), None, "Before x"),
            ("[rank=2 world=8] Before x", Some(2), None, "Before x"),
            (
                "2025-06-02 03:11:10,120: rank5[1205][MainThread]: INFO: composer.utils.dist: Before x",
                Some(5),
                None,
                "Before x",
            ),
            (
                "[1,mpirank:5,algo-2]<stderr>:Before x",
                Some(5),
                None,
                "Before x",
            ),
            (
                "(worker1, rank=1, pid=2111, ip=10.0.0.2) [default1]:[rank 3/4] Before x",
                Some(3),
                Some(1),
                "Before x",
            ),
            ("--- rank 2 ---", None, None, "--- rank 2 ---"),
            (
                "[INFO|2025-09-03 10:00:20] llamafactory.hparams.parser:423 >> Process rank: 2, world size: 4",
                Some(2),
                None,
                "world size: 4",
            ),
            (
                "[INFO|trainer.py:2243] 2025-09-03 10:00:20,101 >> ***** Running training *****",
                None,
                None,
                ">> ***** Running training *****",
            ),
            (
                "12/09/2024 19:02:20 - INFO - parser - Process rank: 5, device: cuda:5",
                Some(5),
                None,
                "device: cuda:5",
            ),
            (
                "[2025-05-16 14:04:33,411] [INFO] [axolotl.utils.data.sft:301] [PID:5517] [RANK:2] Before x",
                Some(2),
                None,
                "Before x",
            ),
            (
                "[rank2]:[titan] 2026-02-24 19:47:20,000 - root - INFO - Training completed",
                Some(2),
                None,
                "Training completed",
            ),
            ("rank: 2, barrier", Some(2), None, "barrier"),
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
                "\x1b[32m[Rank 1]\x1b[0m Before x",
                Some(1),
                None,
                "Before x",
            ),
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
    fn prefixes_of_engines_and_launchers_are_taken_off() {
        for (raw, rank, process, text) in [
            (
                "INFO 12-02 10:11:02 parallel_state.py:250] [Rank 1] Before x",
                Some(1),
                None,
                "Before x",
            ),
            (
                "INFO 04-27 01:29:44 [parallel_state.py:959] rank is",
                None,
                None,
                "rank is",
            ),
            (
                "(VllmWorkerProcess pid=123) INFO 06-29 19:49:29 a.py:2] Before x",
                None,
                Some("123"),
                "Before x",
            ),
            (
                "(VllmWorker rank=2 pid=251) DEBUG 05-16 13:08:57 [a.py:9] x",
                Some(2),
                Some("251"),
                "x",
            ),
            (
                "(Worker_TP3 pid=251) INFO 05-16 13:08:57 [a.py:9] x",
                Some(3),
                Some("251"),
                "x",
            ),
            ("(Worker_DP1_TP0 pid=251) x", None, Some("251"), "x"),
            (
                "(RayWorkerWrapper pid=7, ip=10.0.0.1) [rank1]:[E a.cpp:5] [Rank 0] x",
                Some(1),
                Some("7@10.0.0.1"),
                "x",
            ),
            (
                "[2025-01-01 10:00:00 TP1] Load weight begin.",
                Some(1),
                None,
                "Load weight begin.",
            ),
            (
                "[2025-01-01 10:00:00 DP1 TP1] x",
                None,
                Some("DP1 TP1"),
                "x",
            ),
            (
                "[2025-01-01 10:00:00,123] [INFO] [engine.py:18:_log] [Rank 0] x",
                Some(0),
                None,
                "x",
            ),
            ("[rank: 2] Seed set to 42", Some(2), None, "Seed set to 42"),
            (
                "2026-05-01 10:00:00,123 - trainer - INFO - [Rank 3] x",
                Some(3),
                None,
                "x",
            ),
            ("05/01/2026 10:00:00 - INFO - __main__ - x", None, None, "x"),
            (
                "2026-05-01 10:00:00.1 | INFO     | train:main:42 - [rank 1] x",
                Some(1),
                None,
                "x",
            ),
            (
                "2022-05-10 11:18:41 | INFO | torch.distributed.c10d | x",
                None,
                None,
                "x",
            ),
            (
                "[rank13]:[E218 04:54:22.86 P.cpp:616] [Rank 1] x",
                Some(13),
                None,
                "x",
            ),
            ("  | [rank0]:[E P.cpp:563] [Rank 0] x", Some(0), None, "x"),
            (
                "node7.nolog [stderr] [rank3]:[E909 09:55:46.9 P.cpp:17] x",
                Some(3),
                None,
                "x",
            ),
            (
                "RuntimeError: [Rank 0]: Ranks 4, 5 failed",
                None,
                None,
                "RuntimeError: [Rank 0]: Ranks 4, 5 failed",
            ),
            (
                "[PG ID 0 PG GUID 0(default_pg) Rank 7] y",
                Some(7),
                None,
                "[PG ID 0 PG GUID 0(default_pg) Rank 7] y",
            ),
            (
                "[PG ID 2 PG GUID 5(tp) Rank 7] y",
                None,
                None,
                "[PG ID 2 PG GUID 5(tp) Rank 7] y",
            ),
        ] {
            let line = LogLine::read(raw);
            assert_eq!(
                (line.rank, line.process.as_deref(), &*line.text),
                (rank, process, text),
                "{raw}"
            );
        }
    }

    #[test]
    fn prefixes_of_the_journal_and_of_torchx_are_taken_off() {
        let read = |raw| {
            let line = LogLine::read(raw);
            let text = line.text.into_owned();
            (line.rank, line.local_rank, line.logger_pid, text)
        };
        let train = "Nov  3 01:02:03 gpu-7 python[8790]: INFO:8801:trainer.data:init rank 5/8";
        let pid = Some("8801".to_owned());
        assert_eq!(read(train), (None, None, pid, "init rank 5/8".to_owned()));
        let watchdog =
            "Nov 03 01:02:03 gpu-7 torchrun[8790]: [rank4]:[E1103 01:02:02.2 P.cpp:632] [Rank 4] x";
        let pid = Some("8790".to_owned());
        assert_eq!(read(watchdog), (Some(4), None, pid, "x".to_owned()));
        let daemon = "Nov 03 01:02:03 gpu-7 systemd[1]: Starting clean-up...";
        assert_eq!(read(daemon), (None, None, None, daemon.to_owned()));
        assert_eq!(
            read("trainer/0 [default6]:[NeMo I] x"),
            (None, Some(6), None, "[NeMo I] x".to_owned())
        );
        let second = LogLine::read("trainer/1 [default6]:[rank14]: x");
        assert_eq!((second.rank, second.local_rank), (Some(14), None));
        let times = ["Nov 03 01:02:03 n a[1]: x", "E1103 01:02:05 2 a.cpp:1] x"];
        let [one, other] = times.map(|raw| LogLine::read(raw).moment.unwrap());
        assert_eq!(other.since(one), Some(2.0));
    }

    #[test]
    fn a_line_that_others_wrote_into_has_parts() {
        let raw = " 2%| 13/620 [01:07<50:20,  4.98s/it][rank0]:[E1123 00:52:57.6 P.cpp:607] [Rank 0] a [rank1]:[E1123 00:52:57.7 P.cpp:607] [Rank 1] b";
        let ranks: Vec<_> = parts(raw).map(|part| LogLine::read(part).rank).collect();
        assert_eq!(ranks, [None, Some(0), Some(1)]);
        assert_eq!(parts("host: [rank3]:[E909 x] y").count(), 1);
        assert_eq!(parts("").count(), 1);
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
