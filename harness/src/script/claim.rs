//! What a move promises of one call, held against what came of it.

use serde_json::Value;

use crate::case::{ExpectSpec, SteadySpec};
use crate::names::Rank;
use crate::plan::Act;
use crate::protocol::{Call, CallResult, CallStatus};

/// What must be true of a call.
#[derive(Clone, Debug)]
pub(super) enum Kind {
    /// It returns, with this value if one is given, in the given time.
    Returns {
        value: Option<Value>,
        /// Whether the value says that a work is completed.
        polls: bool,
        times: Times,
    },
    /// It raises what matches these patterns.
    Raises {
        patterns: Vec<String>,
        /// Whether one rank that raises is enough.
        somewhere: bool,
        times: Times,
    },
    /// It comes back.
    Either { times: Times },
    /// Every call on every thread returns.
    Threads(Option<ExpectSpec>),
    /// Two censuses.
    Steady(SteadySpec),
}

/// Bounds on how long a call takes, seconds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Times {
    within: Option<f64>,
    not_before: Option<f64>,
}

/// A broken promise: a stable name, and a sentence about the rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Broken {
    pub class: &'static str,
    pub text: String,
}

impl Kind {
    /// What a call of a move must come to. `sender`: whom a receive that names nobody must name.
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
            polls,
            times,
        }
    }

    /// Whether another rank's keeping the promise is enough.
    pub(super) fn is_somewhere(&self) -> bool {
        matches!(
            self,
            Self::Raises {
                somewhere: true,
                ..
            }
        )
    }

    /// Holds it against what came of the call. `attempted`: the result is that of an `attempt`.
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
                polls,
                times,
            } => {
                if let Some(raised) = raised {
                    return Err(broken("raised", format!("raised {raised}")));
                }
                if let Some(value) = value
                    && *value != result.value
                {
                    return Err(of_value(value, &result.value, *polls));
                }
                times.check(result)
            }
            Self::Raises {
                patterns, times, ..
            } => {
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
                times.check(result)
            }
            Self::Either { times } => times.check(result),
            Self::Threads(expect) => {
                let threads: Vec<Vec<CallResult>> =
                    serde_json::from_value(result.value.clone()).unwrap_or_default();
                let error = threads
                    .iter()
                    .flatten()
                    .find(|call| call.status == CallStatus::Error)
                    .and_then(|call| call.error.as_ref());
                if let Some(error) = error {
                    let text = format!("raised {}: {} on a thread", error.kind, error.message);
                    return Err(broken("raised", text));
                }
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

/// Holds one census against another.
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

/// What an `attempt` says was raised.
pub(super) fn raised_in(value: &Value) -> Option<String> {
    let raised = value.get("raised")?;
    let text = |key: &str| raised.get(key).and_then(Value::as_str);
    Some(format!("{}: {}", text("type")?, text("message")?))
}

/// One line for a rank.
pub(super) fn line(rank: Rank, text: &str) -> crate::report::RankLine {
    crate::report::RankLine {
        rank,
        text: text.to_owned(),
    }
}

fn broken(class: &'static str, text: String) -> Broken {
    Broken { class, text }
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

/// Whether the pattern, checked on loading, is found, whatever the case of letters.
fn is_match(pattern: &str, text: &str) -> bool {
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

    fn returned(value: Value) -> CallResult {
        CallResult {
            status: CallStatus::Ok,
            enter: 0,
            leave: 0,
            value,
            error: None,
        }
    }

    fn class_of(act: &Act, call: &Call, sender: Option<Rank>, got: Value) -> Option<&'static str> {
        let expect = ExpectSpec {
            value: Some(json!(true)),
            ..ExpectSpec::default()
        };
        let kind = Kind::of(act, call, Some(&expect), sender);
        let broken = kind.check(&returned(got), false);
        broken.err().map(|broken| broken.class)
    }

    #[test]
    fn only_a_poll_tells_of_completion() {
        let source = String::new;
        let (act, call) = (Act::Python(source()), Call::Python { source: source() });
        assert_eq!(class_of(&act, &call, None, json!(false)), Some("wrong-value"));
        assert_eq!(class_of(&act, &call, None, json!(true)), None);
        let act = Act::IsCompleted { check: 0, is: true };
        let call = Call::IsCompleted { work: 0 };
        assert_eq!(class_of(&act, &call, None, json!(false)), Some("not-completed"));
    }

    #[test]
    fn a_receive_that_names_nobody_names_the_sender() {
        let act = Act::Mark(String::new());
        let call = Call::Recv {
            group: "world".to_owned(),
            tensor: 0,
            peer: None,
            tag: 0,
        };
        assert_eq!(class_of(&act, &call, Some(Rank(2)), json!(2)), None);
        let wrong = class_of(&act, &call, Some(Rank(2)), json!(1));
        assert_eq!(wrong, Some("wrong-value"));
    }
}
