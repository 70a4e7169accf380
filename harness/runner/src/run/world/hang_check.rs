//! When to look at a world in which nothing moves, which verdict on it counts, and whether it is the one that a script wants.

use std::time::Duration;

use super::event::Action;
use super::phase::Wait;
use super::phase::Wanted;
use super::state::WorldState;
use allranks_model::diagnosis::Confidence;
use allranks_model::diagnosis::Diagnosis;
use allranks_model::diagnosis::Kind;
use allranks_diagnose::list;
use crate::finding::Finding;
use allranks_model::outcome::Outcome;
use allranks_suite::plan::Hang;
use crate::run::pending::Purpose;

/// How long nothing must move before the first look.
pub const QUIET: Duration = Duration::from_millis(600);
/// How long between looks.
pub const AGAIN: Duration = Duration::from_millis(400);

/// What the last look came to.
#[derive(Debug, Default)]
pub struct HangChecks {
    /// When to look again; none if nothing has been looked at since something moved.
    next: Option<Duration>,
    last: Option<Diagnosis>,
    /// The last verdict that a rank was only late.
    late: Option<Diagnosis>,
}

impl HangChecks {
    /// Something has moved.
    pub fn reset(&mut self) {
        self.next = None;
        self.last = None;
    }

    /// Takes a verdict. What is proved twice in a row counts.
    pub fn accept(&mut self, told: Diagnosis, now: Duration) -> Option<Diagnosis> {
        self.next = Some(now + AGAIN);
        if told.kind == Kind::Slow {
            self.late = Some(told.clone());
        }
        let last = self.last.replace(told.clone())?;
        let same = last.kind == told.kind && last.culprits == told.culprits;
        (same && told.confidence == Confidence::Proved).then_some(told)
    }
}

impl WorldState<'_> {
    /// When to look next, if a verdict may end this world before its deadline: in a script only if it says so, because
    /// there ranks may be meant to fail in time.
    pub(super) fn next_hang_check(&self) -> Option<Duration> {
        let may = match self.pending.front().map(|pending| &pending.purpose) {
            Some(Purpose::Script(_, staged)) => staged.hang().is_some(),
            Some(
                Purpose::Imports
                | Purpose::Opening
                | Purpose::Check(..)
                | Purpose::Probe(..)
                | Purpose::Closing,
            ) => true,
            None => false,
        };
        let first = self.progress + QUIET;
        may.then(|| self.hang_checks.next.map_or(first, |next| next.max(first)))
    }

    /// Asks the host for what is missing to a verdict.
    pub(super) fn ask_host(&mut self, wanted: Wanted) {
        let step = match &wanted {
            Wanted::Script(pending) => Some(pending),
            Wanted::HangCheck | Wanted::Deadline | Wanted::Failure(_) => self.pending.front(),
        };
        let sights = self.sights(step);
        self.act(Action::AskHost(self.query(&sights)));
        self.wait = Some(Wait::Host { sights, wanted });
    }

    /// Holds the verdict that a script must come to against the one it comes to.
    pub(super) fn judge_hang(&self, hang: &Hang, told: Diagnosis, script: Finding) -> Finding {
        if hang.kind == Kind::Slow && told.confidence != Confidence::Proved {
            return self.judge_slow(hang, script);
        }
        let hung = script.outcome == Outcome::Hang;
        let within = hang.within.as_secs_f64();
        let fault = if told.kind != hang.kind || told.culprits != hang.culprits {
            let blamed = list(&hang.culprits);
            Some(format!(
                "the verdict is {} ({}); it must be {} of rank {blamed}",
                told.kind, told.summary, hang.kind
            ))
        } else if hang.silent == Some(true) && script.outcome != Outcome::Pass {
            Some(format!("it was to go on in silence: {}", script.summary))
        } else if hang.silent == Some(false) && script.outcome == Outcome::Pass {
            Some("it was to hang or to fail, and it went on in silence".to_owned())
        } else if hung && told.after_s > within {
            Some(format!(
                "the verdict took {:.1} s; it must come within {within:.1} s",
                told.after_s
            ))
        } else {
            None
        };
        let finding = match fault {
            None => Finding::passed(vec![1; self.size().count()]),
            Some(text) => Finding {
                ranks: told.places.clone(),
                ..Finding::bare(Outcome::Hang, Some("wrong-verdict"), text)
            },
        };
        Finding {
            diagnosis: Some(Box::new(told)),
            ..finding
        }
    }

    /// A script in which a rank is late: it must come to a good end, and the rank must have been seen to be late.
    fn judge_slow(&self, hang: &Hang, script: Finding) -> Finding {
        let late = self.hang_checks.late.clone();
        let seen = late.as_ref().map_or(&[][..], |late| &late.culprits);
        if script.outcome == Outcome::Pass && seen != hang.culprits {
            let text = format!(
                "rank {} was seen to be late; it must be {}",
                list(seen),
                list(&hang.culprits)
            );
            return Finding::bare(Outcome::Hang, Some("wrong-verdict"), text);
        }
        Finding {
            diagnosis: late.map(Box::new),
            ..script
        }
    }
}
