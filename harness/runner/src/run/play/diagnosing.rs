//! A world in which nothing moves: what is known of every rank, and the verdict on it.
//!
//! The harness knows what every rank was asked to do and what it has entered. The rest is looked at from outside: whether
//! a process is stopped, and who listens where the ranks mean to meet.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::Player;
use crate::finding::Finding;
use crate::run::pending::{Pending, Purpose};
use crate::script::{Answer, raised_in};
use crate::strangers::strangers;
use allranks_diagnose::Stranger;
use allranks_diagnose::{Ahead, Collective, Deed, Evidence, Process, Sight, What, diagnose, list};
use allranks_host::{Activity, activity, is_asleep, is_heard, resolves};
use allranks_model::diagnosis::{Confidence, Diagnosis, Kind};
use allranks_model::names::Rank;
use allranks_model::outcome::Outcome;
use allranks_protocol::{CallResult, CallStatus};
use allranks_suite::plan::Hang;

/// How long nothing must move before the first look, and then between looks.
const QUIET: Duration = Duration::from_millis(600);
const AGAIN: Duration = Duration::from_millis(400);

/// What the last look came to.
#[derive(Debug, Default)]
pub(super) struct Looks {
    next: Option<Instant>,
    last: Option<Diagnosis>,
    /// The last time somebody was only late.
    late: Option<Diagnosis>,
}

impl Looks {
    /// Something has moved.
    pub(super) fn reset(&mut self) {
        self.next = None;
        self.last = None;
    }
}

impl Player<'_> {
    /// When to look next, if a verdict may end this world before its deadline: in a script only if it says so, because
    /// there ranks may be meant to fail in time.
    pub(super) fn next_look(&self) -> Option<Instant> {
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
        may.then(|| self.looks.next.map_or(first, |next| next.max(first)))
    }

    /// Looks at the world. What is proved twice in a row is the verdict.
    pub(super) fn look(&mut self) -> Option<Diagnosis> {
        let now = self.diagnosis(self.pending.front());
        self.looks.next = Some(Instant::now() + AGAIN);
        if now.kind == Kind::Slow {
            self.looks.late = Some(now.clone());
        }
        let last = self.looks.last.replace(now);
        let (last, now) = (last?, self.looks.last.as_ref()?);
        let same = last.kind == now.kind && last.culprits == now.culprits;
        (same && now.confidence == Confidence::Proved).then(|| now.clone())
    }

    /// What can be said now of ranks that are in this step.
    pub(super) fn diagnosis(&self, pending: Option<&Pending>) -> Diagnosis {
        tokio::task::block_in_place(|| diagnose(&self.evidence(pending)))
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

    /// A script in which somebody is late: it must come to a good end, and he must have been seen.
    fn judge_slow(&self, hang: &Hang, script: Finding) -> Finding {
        let late = self.looks.late.clone();
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

    fn evidence(&self, pending: Option<&Pending>) -> Evidence {
        let ranks: Vec<Sight> = self
            .size()
            .ranks()
            .map(|rank| self.sight(rank, pending))
            .collect();
        Evidence {
            strangers: self.strangers(&ranks),
            deserted: self.deserted(&ranks),
            ranks,
            is_whole: true,
            still: self.progress.elapsed(),
            ..Evidence::default()
        }
    }

    fn sight(&self, rank: Rank, pending: Option<&Pending>) -> Sight {
        let story = &self.played.ranks[rank.index()];
        let mut sight = Sight {
            process: self.process(rank),
            ..Sight::unknown(rank)
        };
        let Some(pending) = pending else {
            return sight;
        };
        let mut deeds = self.deeds_of(pending, rank);
        match &pending.answers[rank.index()] {
            Some(Answer::Reply(reply)) => {
                let calls = &reply.result.calls;
                let reached = calls
                    .iter()
                    .take_while(|call| call.status != CallStatus::NotReached)
                    .count();
                deeds.truncate(reached.min(deeds.len()));
                sight.errors = calls.iter().filter_map(raised).collect();
                let failed = calls.iter().any(|call| call.status == CallStatus::Error);
                sight.done = deeds;
                // What comes after a step that all make alike is the next one, in which nobody waits yet.
                let is_seen = !sight.done.iter().any(hides);
                if !failed && is_seen && pending.script().is_some() {
                    sight.ahead = Ahead::Known(Vec::new());
                }
            }
            Some(Answer::Left(call, _)) => {
                deeds.truncate(call.map_or(deeds.len(), |call| call + 1));
                sight.doing = deeds.pop().map(|deed| (deed, Duration::ZERO));
                sight.done = deeds;
            }
            None => {
                let here = story.position.filter(|(step, ..)| *step == pending.number);
                let entered = here.map_or(0, |(_, call, _)| call + 1).min(deeds.len());
                let coming = deeds.split_off(entered);
                let since = here.map_or(Duration::ZERO, |(.., since)| since.elapsed());
                // Leaving takes a while, and who is on his way out leaves nothing out.
                sight.ahead = match deeds.last().is_some_and(leaves) || deeds.iter().any(hides) {
                    true => Ahead::Unknown,
                    false => ahead(coming),
                };
                sight.doing = deeds.pop().map(|deed| (deed, since));
                sight.done = deeds;
                let told = story.recorded.iter();
                let here = told.filter(|(step, _)| here.is_some_and(|(at, ..)| at == *step));
                sight.recorded = here.flat_map(|(_, ops)| ops).cloned().collect();
            }
        }
        sight
    }

    /// A rank's deeds in a step. A step that all ranks make alike is one deed: they differ only in whether they have
    /// come to it.
    fn deeds_of(&self, pending: &Pending, rank: Rank) -> Vec<Deed> {
        let collective = |group: &str, name: &str| Deed {
            what: What::Collective(Collective {
                group: group.to_owned(),
                members: self.callers(pending),
                name: name.to_owned(),
                nature: BTreeMap::new(),
            }),
            at: String::new(),
        };
        let calls = &pending.calls[rank.index()];
        match &pending.purpose {
            Purpose::Script(_, staged) => staged.deeds[rank.index()].clone(),
            _ if calls.is_empty() => Vec::new(),
            Purpose::Check(index, _) | Purpose::Probe(index, _) => {
                let group = &self.scenario.checks[*index].group.name;
                vec![collective(group, &pending.label)]
            }
            Purpose::Closing => vec![Deed {
                what: What::Destroy("world".to_owned()),
                at: String::new(),
            }],
            Purpose::Imports | Purpose::Opening => {
                let alone = |name: &str| Deed {
                    what: What::Own(name.to_owned()),
                    at: String::new(),
                };
                calls
                    .iter()
                    .map(|name| match *name {
                        "prepare" => alone("import"),
                        name => collective("world", name),
                    })
                    .collect()
            }
        }
    }

    /// Ranks that have something to do in a step.
    fn callers(&self, pending: &Pending) -> Arc<[Rank]> {
        let calls = self.size().ranks().zip(&pending.calls);
        calls
            .filter(|(_, calls)| !calls.is_empty())
            .map(|(rank, _)| rank)
            .collect()
    }

    fn process(&self, rank: Rank) -> Process {
        let story = &self.played.ranks[rank.index()];
        if let Some(end) = &story.end {
            return Process::Ended(end.to_string());
        }
        if self.is_paused(rank) {
            return Process::Running;
        }
        let pid = story.hello.as_ref().map(|hello| hello.pid);
        match pid.and_then(activity) {
            Some(Activity::Stopped) => Process::Stopped,
            Some(Activity::Gone) => Process::Ended("gone".to_owned()),
            Some(Activity::Alive { .. }) => Process::Running,
            None => Process::Unknown,
        }
    }

    /// Who listens where ranks want to meet and is none of them.
    fn strangers(&self, ranks: &[Sight]) -> Vec<Stranger> {
        let ports: Vec<u16> = ranks
            .iter()
            .flat_map(Sight::entered)
            .filter_map(|deed| match &deed.what {
                What::Init(meeting) => meeting.address().map(|(_, port)| port),
                _ => None,
            })
            .collect();
        let hellos = || {
            self.played
                .ranks
                .iter()
                .filter_map(|story| story.hello.as_ref())
        };
        strangers(&ports, |pid| hellos().any(|hello| hello.pid == pid))
    }

    /// Places of rank 0 at which nobody can be met: on this machine nobody listens, or the name means nothing. Whoever
    /// waits for the processor has not come to listen yet.
    fn deserted(&self, ranks: &[Sight]) -> Vec<(String, String)> {
        let waits = |sight: &Sight| {
            let story = &self.played.ranks[sight.rank.index()];
            let hello = story.hello.as_ref();
            hello.is_some_and(|hello| is_asleep(hello.pid))
        };
        let places = ranks.iter().filter_map(|sight| match sight.now() {
            Some(What::Init(meeting)) if meeting.rank == 0 && meeting.method != "file" => {
                Some(meeting).filter(|_| waits(sight))
            }
            _ => None,
        });
        places
            .filter_map(|meeting| {
                let (host, port) = meeting.address()?;
                let why = if LOCAL.contains(&host) {
                    let is_silent = is_heard(port) == Some(false);
                    is_silent.then(|| "rank 0 waits in init, and nobody listens there".to_owned())
                } else {
                    let is_known = resolves(host) != Some(false);
                    (!is_known).then(|| format!("`{host}` means no address on this machine"))
                }?;
                Some((meeting.place.clone(), why))
            })
            .collect()
    }
}

/// Names of this machine for itself.
const LOCAL: [&str; 3] = ["127.0.0.1", "localhost", "[::1]"];

/// Known as far as nothing in it takes the rank away: that a rank is going to die is nothing anybody could know.
fn ahead(coming: Vec<Deed>) -> Ahead {
    match coming.iter().any(leaves) {
        true => Ahead::Unknown,
        false => Ahead::Known(coming),
    }
}

fn leaves(deed: &Deed) -> bool {
    matches!(&deed.what, What::Own(name) if LEAVES.contains(&name.as_str()))
}

/// Whether what comes after it is not what it seems: statements and threads may have called anything.
fn hides(deed: &Deed) -> bool {
    matches!(&deed.what, What::Own(name) if ["python", "together"].contains(&name.as_str()))
}

/// Calls after which a rank may not be there any more, or does what nobody sees.
const LEAVES: [&str; 5] = ["die", "exit", "pause", "python", "together"];

/// What a call raised, whether it was allowed to or not.
fn raised(call: &CallResult) -> Option<String> {
    if let Some(error) = &call.error {
        return Some(format!("{}: {}", error.kind, error.message));
    }
    raised_in(&call.value)
}
