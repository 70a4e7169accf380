//! Compares what a move promises of one call with the call's result.

use std::borrow::Cow;

use serde_json::Value;

use allranks_model::excerpt::excerpt;
use allranks_model::names::Rank;
use allranks_protocol::{Call, CallResult, CallStatus};
use allranks_suite::case::{ExpectSpec, SteadySpec};
use allranks_suite::plan::Act;

/// What must be true of a call.
#[derive(Clone, Debug)]
pub(super) enum ExpectationKind {
    /// It returns, with this value if there is one, within these times.
    Returns {
        value: Option<Value>,
        /// The class of another value. `None`: the class follows from what the value says.
        class: Option<String>,
        /// True if the value says whether a work is completed.
        polls: bool,
        times: Times,
    },
    /// It raises an error that matches all these patterns.
    Raises {
        patterns: Vec<String>,
        /// True if it is enough that one rank raises.
        somewhere: bool,
        /// True if the tensors that Python statements passed to functions must be unchanged.
        untouched: bool,
        times: Times,
    },
    /// It returns or raises within these times.
    Either { times: Times },
    /// Every call on every thread returns.
    Threads(Option<ExpectSpec>),
    /// Two censuses of resources differ by no more than allowed.
    Steady(SteadySpec),
}

/// Bounds on the duration of a call, in seconds; none: no bound.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Times {
    within: Option<f64>,
    not_before: Option<f64>,
}

/// A broken promise: its class, and a sentence about the rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Broken {
    pub class: Cow<'static, str>,
    pub text: String,
}

impl ExpectationKind {
    /// Returns what a call of a move must do. `sender`: the rank that a receive from any rank must report as its
    /// source.
    pub(super) fn of(
        act: &Act,
        call: &Call,
        expect: Option<&ExpectSpec>,
        sender: Option<Rank>,
    ) -> Self {
        let times = Times {
            within: expect.and_then(|expect| expect.within_s),
            not_before: expect.and_then(|expect| expect.not_before_s),
        };
        if let Some(expect) = expect {
            if let Some(patterns) = &expect.raises {
                return Self::Raises {
                    patterns: patterns.as_slice().to_vec(),
                    somewhere: expect.somewhere,
                    untouched: expect.untouched,
                    times,
                };
            }
            if expect.either {
                return Self::Either { times };
            }
        }
        let value = match (act, call) {
            (Act::IsCompleted { is, .. }, _) => Some(Value::Bool(*is)),
            (_, Call::Future { .. }) => Some(Value::Bool(true)),
            (_, Call::Recv { peer: None, .. }) => sender.map(|sender| Value::from(sender.0)),
            _ => expect.and_then(|expect| expect.value.clone()),
        };
        let polls = matches!(act, Act::IsCompleted { .. } | Act::Future(_));
        Self::Returns {
            value,
            class: expect.and_then(|expect| expect.class.clone()),
            polls,
            times,
        }
    }

    /// Returns true if it is enough that another rank keeps the promise.
    pub(super) fn is_somewhere(&self) -> bool {
        matches!(
            self,
            Self::Raises {
                somewhere: true,
                ..
            }
        )
    }

    /// Returns the seconds before which the call must not raise, if it must raise at a timeout and has lasted for longer than it
    /// may; otherwise none.
    pub(super) fn overdue(&self, seconds: f64) -> Option<f64> {
        let Self::Raises { times, .. } = self else {
            return None;
        };
        let is_overdue = times.within.is_some_and(|limit| seconds > limit);
        times.not_before.filter(|_| is_overdue)
    }

    /// Compares the promise with the call's result. `attempted`: the result is that of an `attempt`.
    pub(super) fn check(&self, result: &CallResult, attempted: bool) -> Result<(), Broken> {
        let raised = if attempted {
            raised_in(&result.value)
        } else {
            result
                .error
                .as_ref()
                .map(|error| format!("{}: {}", error.kind, error.message))
        };
        match self {
            Self::Returns {
                value,
                class,
                polls,
                times,
            } => {
                if let Some(raised) = raised {
                    return Err(broken("raised", format!("raised {raised}")));
                }
                if let Some(value) = value
                    && *value != result.value
                {
                    let broken = of_value(value, &result.value, *polls);
                    let class = class.clone().map_or(broken.class, Cow::Owned);
                    return Err(Broken { class, ..broken });
                }
                times.check(result)
            }
            Self::Raises {
                patterns,
                untouched,
                times,
                ..
            } => {
                let raised = check_raised(raised, patterns)?;
                if *untouched {
                    check_unwritten(&raised, result)?;
                }
                times.check(result)
            }
            Self::Either { times } => times.check(result),
            Self::Threads(expect) => {
                check_threads(result)?;
                let expect = expect.clone().unwrap_or_default();
                let times = Times {
                    within: expect.within_s,
                    not_before: expect.not_before_s,
                };
                times.check(result)
            }
            Self::Steady(_) => Ok(()),
        }
    }
}

/// Requires an error with a message, whose "kind: message" matches every pattern. Returns it.
fn check_raised(raised: Option<String>, patterns: &[String]) -> Result<String, Broken> {
    let Some(raised) = raised else {
        return Err(broken(
            "did-not-raise",
            format!("returned; it must raise {}", patterns.join(" and ")),
        ));
    };
    if raised.ends_with(": ") {
        return Err(broken(
            "raised-without-a-reason",
            format!("raised {raised}and says nothing to the user"),
        ));
    }
    for pattern in patterns {
        if !is_match(pattern, &raised) {
            return Err(broken(
                "raised-something-else",
                format!("raised {raised}; it must say `{pattern}`"),
            ));
        }
    }
    Ok(raised)
}

/// Requires that a refused call has written to none of the caller's tensors.
fn check_unwritten(raised: &str, result: &CallResult) -> Result<(), Broken> {
    match result.value.get("written").and_then(Value::as_str) {
        Some(written) => Err(broken(
            "refused-and-written",
            format!("raised {raised}, and yet {written}"),
        )),
        None => Ok(()),
    }
}

/// Requires that no call of any thread has raised.
fn check_threads(result: &CallResult) -> Result<(), Broken> {
    let threads: Vec<Vec<CallResult>> =
        serde_json::from_value(result.value.clone()).unwrap_or_default();
    let mut errors = threads
        .iter()
        .flatten()
        .filter(|call| call.status == CallStatus::Error)
        .filter_map(|call| call.error.as_ref());
    match errors.next() {
        Some(error) => {
            let text = format!("raised {}: {} on a thread", error.kind, error.message);
            Err(broken("raised", text))
        }
        None => Ok(()),
    }
}

impl Times {
    fn check(self, result: &CallResult) -> Result<(), Broken> {
        let seconds = result.leave.saturating_sub(result.enter) as f64 / 1e9;
        if let Some(limit) = self.within
            && seconds > limit
        {
            return Err(broken(
                "too-late",
                format!("took {seconds:.1} s; {limit} s is the limit"),
            ));
        }
        if let Some(limit) = self.not_before
            && seconds < limit
        {
            return Err(broken(
                "too-early",
                format!("took {seconds:.1} s; it must take {limit} s"),
            ));
        }
        Ok(())
    }
}

/// Compares two censuses of resources. The error names what has grown by more than is allowed.
pub(super) fn steady(spec: &SteadySpec, from: &Value, to: &Value) -> Result<(), Broken> {
    const MIB: u64 = 1 << 20;
    let bounds = [
        ("files", spec.files, 1),
        ("threads", spec.threads, 1),
        ("shared_memory", spec.shared_memory, 1),
        ("processes", spec.processes, 1),
        ("memory", spec.memory_mib, MIB),
    ];
    for (field, allowed, unit) in bounds {
        let Some(allowed) = allowed else { continue };
        let count = |census: &Value| census.get(field).and_then(Value::as_u64);
        let (Some(before), Some(after)) = (count(from), count(to)) else {
            return Err(broken("no-census", format!("does not know its {field}")));
        };
        let (before, after) = (before / unit, after / unit);
        if after > before + allowed {
            return Err(broken(
                "leaked",
                format!("holds {after} {field} after {before}; {allowed} more are allowed"),
            ));
        }
    }
    Ok(())
}

/// Returns the error that an `attempt` reports, as `TYPE: MESSAGE`; none if its call returned.
pub(crate) fn raised_in(value: &Value) -> Option<String> {
    let raised = value.get("raised")?;
    let text = |key: &str| raised.get(key).and_then(Value::as_str);
    Some(format!("{}: {}", text("type")?, text("message")?))
}

/// Makes the line of a rank.
pub(super) fn line(rank: Rank, text: &str) -> allranks_model::record::RankLine {
    allranks_model::record::RankLine {
        rank,
        text: text.to_owned(),
    }
}

fn broken(class: &'static str, text: String) -> Broken {
    Broken {
        class: Cow::Borrowed(class),
        text: excerpt(text),
    }
}

fn of_value(expected: &Value, got: &Value, polls: bool) -> Broken {
    match (expected, got) {
        (Value::Bool(false), Value::Bool(true)) if polls => broken(
            "completed-early",
            "says that it is completed; it cannot be yet".to_owned(),
        ),
        (Value::Bool(true), Value::Bool(false)) if polls => broken(
            "not-completed",
            "says that it is not completed; it must be".to_owned(),
        ),
        _ => broken("wrong-value", format!("gives {got}; it must be {expected}")),
    }
}

/// Returns true if the pattern, which was checked on loading, matches somewhere; letter case is ignored.
pub(crate) fn is_match(pattern: &str, text: &str) -> bool {
    regex::RegexBuilder::new(pattern)
        .case_insensitive(true)
        .dot_matches_new_line(true)
        .build()
        .is_ok_and(|pattern| pattern.is_match(text))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use allranks_protocol::CallError;
    use allranks_suite::case::OneOrMany;

    fn result(seconds: f64, value: Value) -> CallResult {
        CallResult {
            status: CallStatus::Ok,
            enter: 1_000_000_000,
            leave: 1_000_000_000 + (seconds * 1e9) as u64,
            value,
            error: None,
        }
    }

    fn raised(kind: &str, message: &str) -> CallResult {
        result(1.0, json!({"raised": {"type": kind, "message": message}}))
    }

    fn kind(act: &Act, expect: ExpectSpec) -> ExpectationKind {
        ExpectationKind::of(act, &Call::Census, Some(&expect), None)
    }

    fn class(kind: &ExpectationKind, result: &CallResult, attempted: bool) -> Cow<'static, str> {
        kind.check(result, attempted)
            .map_or_else(|broken| broken.class, |()| "kept".into())
    }

    #[test]
    fn what_must_raise_must_say_what_is_asked_for() {
        let asked = ExpectSpec {
            raises: Some(OneOrMany::Many(vec!["timeout".into(), "rank 1".into()])),
            ..ExpectSpec::default()
        };
        let kind = kind(&Act::Sleep(1), asked);
        for (answer, said) in [
            (raised("RuntimeError", "Timeout:\nrank 1"), "kept"),
            (raised("RuntimeError", "timeout"), "raised-something-else"),
            (raised("RuntimeError", ""), "raised-without-a-reason"),
            (
                result(1.0, json!({"raised": null, "value": 3})),
                "did-not-raise",
            ),
        ] {
            assert_eq!(class(&kind, &answer, true), said, "{answer:?}");
        }
    }

    #[test]
    fn a_refusal_leaves_the_arguments_as_they_were() {
        let asked = |untouched| ExpectSpec {
            raises: Some(OneOrMany::One(".".into())),
            untouched,
            ..ExpectSpec::default()
        };
        let answer = |written: Option<&str>| {
            let raised = json!({"type": "ValueError", "message": "no"});
            match written {
                Some(written) => result(1.0, json!({"raised": raised, "written": written})),
                None => result(1.0, json!({"raised": raised})),
            }
        };
        let changed = answer(Some("element 0 was 1.0 and is 0.0"));
        let untouched = kind(&Act::Sleep(1), asked(true));
        assert_eq!(class(&untouched, &answer(None), true), "kept");
        assert_eq!(class(&untouched, &changed, true), "refused-and-written");
        let anything = kind(&Act::Sleep(1), asked(false));
        assert_eq!(class(&anything, &changed, true), "kept");
    }

    #[test]
    fn what_must_return_may_not_raise_and_has_its_value() {
        let returns = kind(&Act::Sleep(1), ExpectSpec::default());
        assert_eq!(class(&returns, &result(1.0, Value::Null), false), "kept");
        let error = CallResult {
            status: CallStatus::Error,
            error: Some(CallError {
                kind: "ValueError".into(),
                message: "no".into(),
            }),
            ..result(1.0, Value::Null)
        };
        assert_eq!(class(&returns, &error, false), "raised");
        for (is, says, said) in [
            (false, true, "completed-early"),
            (true, false, "not-completed"),
            (true, true, "kept"),
        ] {
            let polled = kind(&Act::IsCompleted { check: 0, is }, ExpectSpec::default());
            assert_eq!(class(&polled, &result(1.0, json!(says)), false), said);
        }
        let value = ExpectSpec {
            value: Some(json!([1])),
            ..ExpectSpec::default()
        };
        let asked = kind(&Act::Sleep(1), value);
        assert_eq!(
            class(&asked, &result(1.0, json!([2])), false),
            "wrong-value"
        );
        let named = ExpectSpec {
            value: Some(json!({})),
            class: Some("leaked".to_owned()),
            ..ExpectSpec::default()
        };
        let named = kind(&Act::Sleep(1), named);
        let grown = result(1.0, json!({"barrier": ["files"]}));
        assert_eq!(class(&named, &grown, false), "leaked");
        assert_eq!(class(&named, &result(1.0, json!({})), false), "kept");
        assert_eq!(class(&named, &error, false), "raised");
    }

    #[test]
    fn times_are_held_against_the_clock_of_the_rank() {
        let bounds = ExpectSpec {
            either: true,
            within_s: Some(2.0),
            not_before_s: Some(1.0),
            ..ExpectSpec::default()
        };
        let kind = kind(&Act::Sleep(1), bounds);
        for (seconds, said) in [(0.5, "too-early"), (1.5, "kept"), (2.5, "too-late")] {
            assert_eq!(class(&kind, &result(seconds, Value::Null), true), said);
        }
    }

    #[test]
    fn an_error_on_a_thread_is_an_error() {
        let ok = json!({"status": "ok"});
        let error = json!({"status": "error", "error": {"type": "E", "message": "m"}});
        let threads = ExpectationKind::Threads(None);
        for (value, said) in [
            (json!([[ok], [ok]]), "kept"),
            (json!([[ok], [ok, error]]), "raised"),
        ] {
            assert_eq!(class(&threads, &result(1.0, value), false), said);
        }
    }

    #[test]
    fn a_leak_is_more_than_is_allowed_of_what_is_compared() {
        let spec = SteadySpec {
            from: "a".into(),
            to: "b".into(),
            files: Some(1),
            threads: None,
            shared_memory: None,
            processes: None,
            memory_mib: Some(2),
        };
        let census =
            |files: u64, mib: u64| json!({"files": files, "threads": files, "memory": mib << 20});
        let said = |from, to| {
            steady(&spec, &from, &to).map_or_else(|broken| broken.class, |()| "kept".into())
        };
        assert_eq!(said(census(5, 10), census(6, 12)), "kept");
        assert_eq!(said(census(5, 10), census(7, 10)), "leaked");
        assert_eq!(said(census(5, 10), census(5, 13)), "leaked");
        assert_eq!(said(json!({}), census(5, 10)), "no-census", "no /proc");
    }

    #[test]
    fn only_a_poll_tells_of_completion() {
        let asked = ExpectSpec {
            value: Some(json!(true)),
            ..ExpectSpec::default()
        };
        let kind_of_call = kind(
            &Act::Python {
                source: String::new(),
                unnoticed: false,
            },
            asked,
        );
        assert_eq!(
            class(&kind_of_call, &result(1.0, json!(false)), false),
            "wrong-value"
        );
        assert_eq!(
            class(&kind_of_call, &result(1.0, json!(true)), false),
            "kept"
        );
    }

    #[test]
    fn a_receive_without_a_source_reports_the_sender() {
        let call = Call::Recv {
            group: "world".to_owned(),
            tensor: 0,
            peer: None,
            tag: 0,
        };
        let named = ExpectationKind::of(&Act::Mark(String::new()), &call, None, Some(Rank(2)));
        assert_eq!(class(&named, &result(1.0, json!(2)), false), "kept");
        assert_eq!(class(&named, &result(1.0, json!(1)), false), "wrong-value");
    }
}
