//! What is known of one rank: what it said, where it is, how it ended.

use std::time::Duration;

use crate::world::RankExit;
use allranks_model::flight_recorder::RecordedOp;
use allranks_model::record::Span;
use allranks_protocol::{Call, Hello, Step, StepResult};

/// Spans kept for each rank's timeline; those that end badly are always kept.
const SPANS: usize = 240;

/// What is known of a rank that says nothing of itself.
#[derive(Clone, Debug, Default)]
pub struct Outside {
    /// Its process; 0 if it was never started.
    pub pid: u32,
    /// The version of torch it has imported, if that was seen.
    pub torch: Option<String>,
}

/// What is known of one rank.
#[derive(Clone, Debug, Default)]
pub struct RankStory {
    /// What it said of itself.
    pub hello: Option<Hello>,
    /// What was seen of it, if it runs a program.
    pub outside: Option<Outside>,
    /// How its process ended.
    pub end: Option<RankExit>,
    /// Whether the harness killed it.
    pub killed: bool,
    /// What it did and when, in nanoseconds of its own clock.
    pub spans: Vec<Span>,
    /// The call it is in: step, call, and when it entered that, as time since the world began.
    pub position: Option<(u32, usize, Duration)>,
    /// When it entered that, in nanoseconds of its own clock.
    pub entered_at: u64,
    /// What it had under way in a step, by its flight recorder.
    pub recorded: Option<(u32, Vec<RecordedOp>)>,
    /// Steps it has answered.
    pub answered: u32,
    /// Calls it has entered of the step it is at.
    pub entered: usize,
    /// How its connection broke.
    pub broken: Option<String>,
    /// Its farewell: the steps it says it finished, and the token.
    pub said_bye: Option<(u32, String)>,
}

impl RankStory {
    /// Its process; 0 if none is known.
    pub fn pid(&self) -> u32 {
        let outside = self.outside.as_ref().map_or(0, |outside| outside.pid);
        self.hello.as_ref().map_or(outside, |hello| hello.pid)
    }

    /// Whether it is done with its imports, which come before anything else: torch before its hello, the rest in its first
    /// step.
    pub const fn has_imported(&self) -> bool {
        self.answered > 0
    }

    /// What it says of a call of the step that its driver has not got; none if there is no such call.
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

    /// Its version of torch, if it is known.
    pub fn torch(&self) -> Option<&str> {
        let outside = || self.outside.as_ref()?.torch.as_deref();
        let said = self.hello.as_ref().map(|hello| hello.torch.as_str());
        said.or_else(outside)
    }

    /// What is wrong with the rank's farewell: its token, its count of steps, its exit code, its remains.
    pub fn farewell_fault(&self, steps: u32) -> Option<String> {
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
    pub fn tell_stuck(&mut self, label: String) {
        self.spans.push(Span {
            label,
            start_us: self.entered_at / 1000,
            end_us: None,
            ok: false,
        });
    }

    /// Adds a step to the timeline.
    pub fn tell(&mut self, label: &str, result: &StepResult, ok: bool) {
        if self.spans.len() < SPANS || !ok {
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
