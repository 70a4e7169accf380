//! What is known of one rank: what it reported, where it is, and how it ended.

use std::time::Duration;

use crate::world::RankExit;
use allranks_model::flight_recorder::RecordedOp;
use allranks_model::record::Span;
use allranks_protocol::{Call, Hello, Step, StepResult};

/// Largest number of spans of a rank's timeline. A span with an error is kept in any case.
const MAX_SPANS: usize = 240;

/// What was seen from outside of a rank that runs a program and reports nothing itself.
#[derive(Clone, Debug, Default)]
pub struct Outside {
    /// Its process id; 0 if it was never started.
    pub pid: u32,
    /// The version of torch that it has imported; none if that was not seen.
    pub torch: Option<String>,
}

/// What is known of one rank.
#[derive(Clone, Debug, Default)]
pub struct RankRun {
    /// Its hello; none if it has sent none, or runs a program.
    pub hello: Option<Hello>,
    /// What was seen of it from outside, if it runs a program.
    pub outside: Option<Outside>,
    /// How its process ended; none while it runs.
    pub end: Option<RankExit>,
    /// True if the harness killed it.
    pub killed: bool,
    /// Its timeline: what it did and when, by its own clock.
    pub spans: Vec<Span>,
    /// The call that it is in: step, call, and when it entered that call, as time since the world began. None between
    /// steps.
    pub position: Option<(u32, usize, Duration)>,
    /// When it entered its last call, in nanoseconds of its own clock.
    pub entered_at: u64,
    /// A step, and the ops that its flight recorder had under way in that step.
    pub recorded: Option<(u32, Vec<RecordedOp>)>,
    /// Number of steps that it has answered.
    pub answered: u32,
    /// Number of calls that it has entered of its current step.
    pub entered: usize,
    /// How its connection broke; none while it is open.
    pub broken: Option<String>,
    /// Its `bye`: the number of steps it says it finished, and the token. None before that.
    pub said_bye: Option<(u32, String)>,
}

impl RankRun {
    /// Returns its process id; 0 if none is known.
    pub fn pid(&self) -> u32 {
        let outside = self.outside.as_ref().map_or(0, |outside| outside.pid);
        self.hello.as_ref().map_or(outside, |hello| hello.pid)
    }

    /// Returns true if its imports are over, which come before anything else: torch before its hello, the rest in its
    /// first step.
    pub const fn has_imported(&self) -> bool {
        self.answered > 0
    }

    /// Returns why the rank's driver cannot make some call of the step; none if it can make all of them, or has not
    /// said hello.
    pub fn lacks(&self, step: &Step) -> Option<String> {
        let hello = self.hello.as_ref()?;
        let mut names = step.calls.iter().flat_map(Call::names);
        let name = names.find(|name| !hello.calls.iter().any(|known| known == name))?;
        let driver = &hello.driver;
        let why = match name {
            "stack" => ": what runs above c10d is PyTorch's Python code",
            _ => "",
        };
        Some(format!("the {driver} driver has no call `{name}`{why}"))
    }

    /// Returns its version of torch; none if it is not known.
    pub fn torch(&self) -> Option<&str> {
        let outside = || self.outside.as_ref()?.torch.as_deref();
        let said = self.hello.as_ref().map(|hello| hello.torch.as_str());
        said.or_else(outside)
    }

    /// Returns what is wrong with the rank's end after its `bye`: the token, the number of steps, the exit code, or
    /// processes it left behind. None if nothing is, or there is no `bye` or no end yet.
    pub fn exit_fault(&self, steps: u32) -> Option<String> {
        let (said, token) = self.said_bye.as_ref()?;
        let hello = self.hello.as_ref();
        if hello.is_none_or(|hello| hello.token != *token) {
            return Some("its farewell carries another run's token".to_owned());
        }
        if *said != steps {
            return Some(format!(
                "it says it finished {said} steps; it was given {steps}"
            ));
        }
        match self.end.as_ref()? {
            RankExit::Exited {
                code: 0,
                left_behind: 0,
            } => None,
            RankExit::Exited {
                code: 0,
                left_behind,
            } => Some(format!("it left {left_behind} processes running")),
            end => Some(format!("its process ended: {end}")),
        }
    }

    /// Adds a call that never ended to the timeline.
    pub fn add_unfinished_span(&mut self, label: String) {
        self.spans.push(Span {
            label,
            start_us: self.entered_at / 1000,
            end_us: None,
            ok: false,
        });
    }

    /// Adds a step to the timeline; one without an error is dropped if there are [`MAX_SPANS`] already.
    pub fn add_span(&mut self, label: &str, result: &StepResult, ok: bool) {
        if self.spans.len() < MAX_SPANS || !ok {
            self.spans.extend(span(label, result, ok));
        }
    }
}

fn span(label: &str, result: &StepResult, ok: bool) -> Option<Span> {
    let start = result
        .calls
        .iter()
        .map(|call| call.enter)
        .find(|ns| *ns > 0)?;
    let end = result.calls.iter().map(|call| call.leave).max()?;
    Some(Span {
        label: label.to_owned(),
        start_us: start / 1000,
        end_us: (end >= start).then_some(end / 1000),
        ok,
    })
}
