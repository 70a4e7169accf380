//! Turns records of log collectors, JSON objects or rows of CSV, into the lines that programs have written: `time [rank 3] text`.

use std::ops::ControlFlow;

use serde_json::{Map, Value};

/// The most characters of a record that spans several lines.
const LONGEST: usize = 64 << 10;
/// How deep a rank or a pod may be within an object.
const DEPTH: usize = 4;

/// Reads the lines of one source.
#[derive(Clone, Debug, Default)]
pub(super) struct Records {
    /// The number of records that have been read.
    pub(super) found: usize,
    /// Whether a line that is not empty has been read.
    is_begun: bool,
    /// The columns, if the source is a table.
    table: Option<Table>,
    /// The lines of a record that is not over yet.
    open: Option<Vec<String>>,
}

/// The columns of a table.
#[derive(Clone, Debug)]
struct Table {
    separator: char,
    message: usize,
    moment: Option<usize>,
    rank: Option<usize>,
    pod: Option<usize>,
}

/// One record, as far as it matters.
#[derive(Clone, Debug, Default)]
struct Record {
    moment: Option<String>,
    pod: Option<String>,
    rank: Option<u32>,
    text: String,
}

impl Record {
    /// Returns the record that the program itself wrote, where a collector has put it as text into one of its own.
    fn unwrapped(self) -> Self {
        let inner = self.text.starts_with('{').then(|| object(&self.text));
        match inner.flatten() {
            Some(inner) => Self {
                moment: inner.moment.or(self.moment),
                pod: inner.pod.or(self.pod),
                rank: inner.rank.or(self.rank),
                text: inner.text,
            },
            None => self,
        }
    }
}

/// Keys whose value is what the program wrote, the first of which counts.
const MESSAGES: &[&[&str]] = &[
    &["textPayload"],
    &["jsonPayload", "message"],
    &["jsonPayload", "msg"],
    &["_source", "message"],
    &["_source", "log"],
    &["content", "message"],
    &["message"],
    &["msg"],
    &["event"],
    &["evt"],
    &["log"],
    &["line"],
    &["body"],
    &["Body"],
    &["text"],
    &["@message"],
    &["MESSAGE"],
    &["_raw"],
    &["result", "_raw"],
];
const MOMENTS: &[&[&str]] = &[
    &["timestamp"],
    &["@timestamp"],
    &["time"],
    &["ts"],
    &["asctime"],
    &["datetime"],
    &["_source", "@timestamp"],
    &["content", "timestamp"],
    &["result", "_time"],
    &["_time"],
];
const RANKS: &[&str] = &[
    "rank",
    "global_rank",
    "globalrank",
    "world_rank",
    "process_index",
];
const PODS: &[&str] = &[
    "pod_name",
    "pod",
    "podname",
    "k8s.pod.name",
    "kubernetes.pod_name",
    "kubernetes.pod.name",
    // Of CloudWatch.
    "@logstream",
    "logstreamname",
    // Of Vertex AI.
    "task_name",
];
/// Keys that say nothing of what the program did.
const OTHER: &[&str] = &[
    "level",
    "levelname",
    "severity",
    "logger",
    "name",
    "rank",
    "stream",
    "insertId",
    "logName",
    "filename",
    "lineno",
    "pathname",
    "module",
    "funcName",
    "thread",
    "threadName",
];
/// Events that are one of the two ends of a call.
const EDGES: &[&str] = &[
    "before", "begin", "start", "starting", "enter", "entering", "call", "calling", "after", "end",
    "finish", "finished", "leave", "leaving", "exit", "done",
];
/// Keys of the call that such an event is of.
const CALLS: &[&str] = &[
    "op",
    "call",
    "collective",
    "phase",
    "stage",
    "what",
    "fn",
    "function",
];
/// Keys of the class of an exception.
const ERRORS: &[&str] = &[
    "error",
    "error_type",
    "error_class",
    "exc_type",
    "exception_type",
    "error.type",
];
/// Keys of what a logger adds after the message.
const EXCEPTIONS: &[&str] = &[
    "exception",
    "exc_info",
    "exc_text",
    "exc",
    "traceback",
    "stack_trace",
];

impl Records {
    /// Reads the next line, and calls with each line of the program's that it holds. A line that is no record is one itself.
    pub(super) fn read(
        &mut self,
        raw: &str,
        call: &mut dyn FnMut(&str) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let text = raw.trim();
        let is_first = !self.is_begun && !text.is_empty();
        self.is_begun |= is_first;
        if is_first {
            self.table = Table::of(text);
            if self.table.is_some() {
                return ControlFlow::Continue(());
            }
        }
        if let Some(mut open) = self.open.take() {
            let is_table = self.table.is_some();
            // An object that holds records: `{` and `"events": [`.
            if !is_table && open.len() == 1 && text.ends_with('[') {
                return ControlFlow::Continue(());
            }
            open.push(raw.to_owned());
            let whole = open.join("\n");
            let is_over = match is_table {
                true => whole.matches('"').count() % 2 == 0,
                false => indentation(raw) == indentation(&open[0]) && matches!(text, "}" | "},"),
            };
            if !is_over && whole.len() < LONGEST {
                self.open = Some(open);
                return ControlFlow::Continue(());
            }
            let record = match &self.table {
                Some(table) => table.record(&whole),
                None => object(&whole),
            };
            return match record {
                Some(record) => self.write(&record, call),
                None => open.iter().try_for_each(|line| call(line)),
            };
        }
        if let Some(table) = &self.table {
            if raw.matches('"').count() % 2 == 1 {
                self.open = Some(vec![raw.to_owned()]);
                return ControlFlow::Continue(());
            }
            return match table.record(raw) {
                Some(record) => self.write(&record, call),
                None => call(raw),
            };
        }
        if !text.starts_with('{') {
            return call(raw);
        }
        if text == "{" {
            self.open = Some(vec![raw.to_owned()]);
            return ControlFlow::Continue(());
        }
        match object(text) {
            Some(record) => self.write(&record, call),
            None => call(raw),
        }
    }

    /// Calls with the lines of a record that has no end.
    pub(super) fn end(&mut self, call: &mut dyn FnMut(&str) -> ControlFlow<()>) -> ControlFlow<()> {
        let open = self.open.take().unwrap_or_default();
        open.iter().try_for_each(|line| call(line))
    }

    fn write(
        &mut self,
        record: &Record,
        call: &mut dyn FnMut(&str) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        self.found += 1;
        let pod = record.pod.as_ref();
        // A stream of CloudWatch has slashes in its name.
        let pod = pod.map(|pod| format!("[pod/{}] ", pod.replace('/', ".")));
        let moment = record.moment.as_ref().map(|moment| format!("{moment} "));
        let rank = record.rank.map(|rank| format!("[rank {rank}] "));
        let before = [pod, moment, rank]
            .into_iter()
            .flatten()
            .collect::<String>();
        let mut lines = record.text.lines();
        lines.try_for_each(|line| call(&format!("{before}{line}")))
    }
}

/// Returns true if these bytes, the beginning of a file, hold records.
pub(super) fn are_records(beginning: &[u8]) -> bool {
    let text = String::from_utf8_lossy(beginning);
    let mut records = Records::default();
    for line in text.lines() {
        _ = records.read(line, &mut |_| ControlFlow::Continue(()));
    }
    records.found > 0
}

fn indentation(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

/// Returns the record that an object is; `None` if it is another object.
fn object(text: &str) -> Option<Record> {
    let value: Value = serde_json::from_str(text.trim().trim_end_matches(',')).ok()?;
    let whole = value.as_object()?;
    let (object, message) = message(whole, DEPTH)?;
    let mut text = message.to_owned();
    let moment_in = |object| MOMENTS.iter().find_map(|path| moment(at(object, path)?));
    let moment = moment_in(whole)
        .or_else(|| moment_in(object))
        .or_else(|| moment(&find(whole, &["timestamp"], DEPTH)?));
    let rank = find(whole, RANKS, DEPTH).and_then(|value| number(&value));
    let pod = find(whole, PODS, DEPTH)
        .and_then(|value| Some(value.as_str()?.to_owned()))
        .or_else(|| tagged_pod(whole));
    if moment.is_none() && rank.is_none() && pod.is_none() {
        return None;
    }
    let event = at(object, &["jsonPayload", "reason"]).or_else(|| at(object, &["reason"]));
    if let (Some(reason), Some(name)) = (event.and_then(Value::as_str), &pod) {
        // What the cluster says of a pod is not what the pod says.
        text = format!("{reason} pod/{name} {text}");
        return Some(Record {
            moment,
            pod: None,
            rank: None,
            text,
        });
    }
    if let Some(call) = call_of_event(object, &text) {
        text = format!("{text} {call}");
    }
    if let Some(error) = error_class(object).filter(|error| !text.starts_with(error)) {
        text = format!("{error}: {text}");
    }
    if ["event", "evt", "message", "msg"]
        .iter()
        .any(|key| object.contains_key(*key))
    {
        text.push_str(&fields(object));
    }
    for key in EXCEPTIONS {
        if let Some(lines) = object.get(*key).and_then(Value::as_str) {
            text = format!("{text}\n{lines}");
        }
    }
    let record = Record {
        moment,
        pod,
        rank,
        text,
    };
    Some(record.unwrapped())
}

/// Returns the object that has what the program wrote, which may be within others, and that; `None` if there is none.
fn message(object: &Map<String, Value>, depth: usize) -> Option<(&Map<String, Value>, &str)> {
    let mut here = MESSAGES.iter();
    if let Some(text) = here.find_map(|path| at(object, path)?.as_str()) {
        return Some((object, text));
    }
    // An object in the place of the message is another one.
    let is_message = |key: &str| MESSAGES.contains(&[key].as_slice());
    let others = object.iter().filter(|(key, _)| !is_message(key));
    let mut inner = others.filter_map(|(_, value)| value.as_object());
    (depth > 0).then(|| inner.find_map(|inner| message(inner, depth - 1)))?
}

/// Returns the call that an object names beside its event, where this is one of the two ends of it: `"evt": "enter", "op": "barrier"`.
fn call_of_event<'a>(object: &'a Map<String, Value>, event: &str) -> Option<&'a str> {
    let is_edge = EDGES.contains(&event.to_lowercase().as_str());
    let mut calls = CALLS.iter().filter_map(|key| object.get(*key)?.as_str());
    is_edge.then(|| calls.next())?
}

/// Returns the class of the exception that an object names beside its message: `"error": "RuntimeError"`.
fn error_class(object: &Map<String, Value>) -> Option<&str> {
    let mut names = ERRORS.iter().filter_map(|key| object.get(*key)?.as_str());
    names.find(|name| {
        let is_class = name.ends_with("Error") || name.ends_with("Exception");
        is_class
            && name
                .chars()
                .all(|one| one.is_alphanumeric() || matches!(one, '.' | '_'))
    })
}

/// Returns the pod that Datadog's tags name, `"tags": ["pod_name:train-0"]`.
fn tagged_pod(object: &Map<String, Value>) -> Option<String> {
    let tags = find(object, &["tags"], DEPTH)?;
    let mut tags = tags.as_array()?.iter().filter_map(Value::as_str);
    tags.find_map(|tag| Some(tag.strip_prefix("pod_name:")?.to_owned()))
}

/// Returns what a logger has added to the message, as `key=value`.
fn fields(object: &Map<String, Value>) -> String {
    let is_own = |key: &str| {
        let paths = MESSAGES.iter().chain(MOMENTS);
        let mut first = paths.filter_map(|path| path.first());
        !first.any(|name| *name == key) && !OTHER.contains(&key) && !EXCEPTIONS.contains(&key)
    };
    let own = object.iter().filter(|(key, _)| is_own(key));
    let own = own.filter_map(|(key, value)| match value {
        Value::String(text) if !text.contains('\n') => Some(format!(" {key}={text}")),
        Value::Number(number) => Some(format!(" {key}={number}")),
        Value::Array(numbers) if numbers.iter().all(Value::is_u64) => {
            let list: Vec<String> = numbers.iter().map(Value::to_string).collect();
            Some(format!(" {key}=[{}]", list.join(", ")))
        }
        _ => None,
    });
    own.collect()
}

fn at<'a>(object: &'a Map<String, Value>, path: &[&str]) -> Option<&'a Value> {
    let (first, rest) = path.split_first()?;
    let value = object.get(*first)?;
    match rest.is_empty() {
        true => Some(value),
        false => at(value.as_object()?, rest),
    }
}

/// Returns the value of the first of these keys, those that are less deep first.
fn find(object: &Map<String, Value>, keys: &[&str], depth: usize) -> Option<Value> {
    let is_one = |key: &str| {
        let name = key.rsplit('/').next().unwrap_or(key).to_lowercase();
        keys.contains(&name.as_str())
    };
    let here = object
        .iter()
        .find(|(key, value)| is_one(key) && !value.is_object());
    if let Some((_, value)) = here {
        return Some(value.clone());
    }
    let inner = object.values().filter_map(Value::as_object);
    (depth > 0).then(|| {
        inner
            .into_iter()
            .find_map(|inner| find(inner, keys, depth - 1))
    })?
}

fn number(value: &Value) -> Option<u32> {
    match value {
        Value::Number(number) => number.as_u64()?.try_into().ok(),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    }
}

/// Returns a time as lines begin with; `None` if it is in a form that is not known.
fn moment(value: &Value) -> Option<String> {
    match value {
        Value::Number(number) => {
            // Of seconds, or of thousandths, millionths and so on.
            let mut seconds = number.as_f64()?;
            while seconds > 1e11 {
                seconds /= 1e3;
            }
            Some(format!("{seconds:.6}"))
        }
        Value::String(text) => moment_of(text),
        _ => None,
    }
}

fn moment_of(text: &str) -> Option<String> {
    let text = text.trim();
    if text.len() >= 16
        && text.as_bytes()[4] == b'-'
        && text.starts_with(|first: char| first.is_ascii_digit())
    {
        return Some(text.to_owned());
    }
    // Kibana: `Jan 20, 2025 @ 12:00:01.051`.
    const MONTHS: &str = "JanFebMarAprMayJunJulAugSepOctNovDec";
    let (date, clock) = text.split_once(" @ ")?;
    let (day, year) = date.split_once(", ")?;
    let (month, day) = day.split_once(' ')?;
    let month = MONTHS.find(month)? / 3 + 1;
    let day: u32 = day.parse().ok()?;
    Some(format!("{year}-{month:02}-{day:02}T{clock}"))
}

impl Table {
    /// Returns the columns that a first line names; `None` if it is no head of a table of log lines.
    fn of(head: &str) -> Option<Self> {
        let separator = [',', '\t', ';']
            .into_iter()
            .find(|one| head.contains(*one))?;
        let columns: Vec<String> = cells(head, separator)
            .into_iter()
            .map(|name| name.trim().trim_start_matches('\u{feff}').to_lowercase())
            .collect();
        let one_of = |names: &[&str]| {
            let is_one = |column: &String| names.contains(&column.as_str());
            columns.iter().position(is_one)
        };
        let message = one_of(&[
            "message",
            "msg",
            "textpayload",
            "jsonpayload.message",
            "log",
            "line",
            "text",
            "body",
            "@message",
            "_raw",
        ])?;
        let moment = one_of(&[
            "timestamp",
            "@timestamp",
            "time",
            "ts",
            "asctime",
            "datetime",
            "date",
            "_time",
        ]);
        let rank = one_of(RANKS);
        let pod = one_of(PODS);
        (moment.is_some() || rank.is_some()).then_some(Self {
            separator,
            message,
            moment,
            rank,
            pod,
        })
    }

    fn record(&self, row: &str) -> Option<Record> {
        let cells = cells(row, self.separator);
        let cell = |column: Option<usize>| cells.get(column?).map(String::as_str);
        let text = cell(Some(self.message))?.to_owned();
        let moment = cell(self.moment).and_then(moment_of);
        let rank = cell(self.rank).and_then(|rank| rank.trim().parse().ok());
        let pod = cell(self.pod)
            .filter(|pod| !pod.is_empty())
            .map(str::to_owned);
        let record = Record {
            moment,
            pod,
            rank,
            text,
        };
        Some(record.unwrapped())
    }
}

/// Returns the cells of a row; those in quotes may hold separators, and quotes that are written twice.
fn cells(row: &str, separator: char) -> Vec<String> {
    let mut cells = vec![String::new()];
    let mut is_quoted = false;
    let mut characters = row.chars().peekable();
    while let Some(character) = characters.next() {
        let Some(cell) = cells.last_mut() else { break };
        match character {
            '"' if is_quoted && characters.peek() == Some(&'"') => {
                characters.next();
                cell.push('"');
            }
            '"' => is_quoted = !is_quoted,
            one if one == separator && !is_quoted => cells.push(String::new()),
            one => cell.push(one),
        }
    }
    cells
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<String> {
        let mut records = Records::default();
        let mut all = Vec::new();
        let mut call = |line: &str| {
            all.push(line.to_owned());
            ControlFlow::Continue(())
        };
        for line in text.lines() {
            _ = records.read(line, &mut call);
        }
        _ = records.end(&mut call);
        all
    }

    #[test]
    fn objects_become_lines() {
        for (text, expected) in [
            (
                r#"{"id": "A", "type": "log", "attributes": {"service": "t", "timestamp": "2025-08-02T01:00:00.1Z", "tags": ["env:prod", "pod_name:t-2"], "attributes": {"rank": 2, "event": "eval_start", "epoch": 1}}}"#,
                "[pod/t-2] 2025-08-02T01:00:00.1Z [rank 2] eval_start epoch=1",
            ),
            (
                r#"{"time": "2025-08-02T01:00:00Z", "log": "{\"rank\": 1, \"msg\": \"enter barrier\"}"}"#,
                "2025-08-02T01:00:00Z [rank 1] enter barrier",
            ),
            (
                r#"{"timestamp": "2025-04-27T01:00:00.2Z", "event": "starting", "rank": 1}"#,
                "2025-04-27T01:00:00.2Z [rank 1] starting",
            ),
            (
                r#"{"log":"[rank3]: x\n","stream":"stderr","time":"2025-04-27T01:00:00Z"},"#,
                "2025-04-27T01:00:00Z [rank3]: x",
            ),
            (
                r#"{"labels": {"k8s-pod/pod_name": "w-0-4-k9"}, "timestamp": "2025-10-07T09:14:26Z", "textPayload": "a"}"#,
                "[pod/w-0-4-k9] 2025-10-07T09:14:26Z a",
            ),
            (
                r#"{"resource": {"labels": {"pod_name": "w-7"}}, "timestamp": "2025-10-07T09:14:26Z", "jsonPayload": {"reason": "Failed", "message": "no image", "kind": "Event"}}"#,
                "2025-10-07T09:14:26Z Failed pod/w-7 no image",
            ),
            (
                r#"{"timestamp": "2025-04-27T01:00:00Z", "level": "info", "event": "round", "rank": 1, "round": 3}"#,
                "2025-04-27T01:00:00Z [rank 1] round round=3",
            ),
            (
                r#"{"rank": 2, "evt": "enter", "op": "all_reduce", "round": 40}"#,
                "[rank 2] enter all_reduce op=all_reduce round=40",
            ),
            (
                r#"{"rank": 3, "event": "init.failed", "error": "DistBackendError", "message": "wait timeout"}"#,
                "[rank 3] DistBackendError: wait timeout error=DistBackendError",
            ),
            (
                r#"{"ts": 1745712000123, "msg": "a", "extra": {"global_rank": "2"}}"#,
                "1745712000.123000 [rank 2] a",
            ),
        ] {
            assert_eq!(lines(text), [expected], "{text}");
        }
        let logged = r#"{"time": "2025-04-27T01:00:00Z", "msg": "a", "exc_info": "Traceback (most recent call last):\nKeyError: 1"}"#;
        assert_eq!(lines(logged).len(), 3);
    }

    #[test]
    fn other_objects_stay_as_they_are() {
        for text in [
            r#"{"loss": 0.5, "step": 3}"#,
            r#"{"message": "a"}"#,
            r#"{"message": {"message": "a"}, "timestamp": "2025-04-27T01:00:00Z"}"#,
            r#"{"config": {"message": "a"}}"#,
            "{'loss': 1}",
            "{",
            "{\n  \"lr\": 1\n}",
            "[Rank 0] {",
        ] {
            assert_eq!(lines(text).join("\n"), text);
        }
        assert!(!are_records(b"{\"lr\": 1}") && are_records(b"time,msg\n2025-04-27 01:00:00,a\n"));
    }

    #[test]
    fn an_object_may_span_lines() {
        let text = "[\n  {\n    \"textPayload\": \"a\",\n    \"timestamp\": \"2025-10-07T09:14:26Z\"\n  },\n]";
        assert_eq!(lines(text), ["[", "2025-10-07T09:14:26Z a", "]"]);
    }

    #[test]
    fn rows_become_lines() {
        let table = "@timestamp,kubernetes.host,rank,level,message\n\"Jan 20, 2025 @ 12:00:01.051\",h,8,INFO,\"a, \"\"b\"\"\"\n\"Jan 2, 2025 @ 12:00:01\",h,,INFO,\"c\nd\"";
        assert_eq!(
            lines(table),
            [
                "2025-01-20T12:00:01.051 [rank 8] a, \"b\"",
                "2025-01-02T12:00:01 c",
                "2025-01-02T12:00:01 d"
            ]
        );
        let other = "epoch,loss\n1,0.5";
        assert_eq!(lines(other).join("\n"), other);
    }
}
