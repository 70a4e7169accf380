//! The other watches of a job on several nodes, and which of them go on.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use super::member::Member;

/// The time without a heartbeat after which a watch or its host counts as gone. A network file system may show a file late.
const LOST: Duration = Duration::from_secs(30);
/// A command that ended longer before this watch began belongs to an earlier start of the job, in seconds.
const EARLIER: f64 = 600.0;

/// The other watches of a job, by name.
#[derive(Debug, Default)]
pub struct OtherWatches(BTreeMap<String, OtherWatch>);

/// What is known of another watch.
#[derive(Debug)]
struct OtherWatch {
    member: Member,
    /// When its heartbeat number last grew.
    changed: Instant,
    /// Whether its heartbeat number grew while this watch looked, or its command has just ended.
    is_confirmed: bool,
    is_reported_lost: bool,
}

impl OtherWatch {
    fn is_living(&self) -> bool {
        self.is_confirmed && self.member.ended.is_none() && !self.is_lost()
    }

    fn is_lost(&self) -> bool {
        self.member.ended.is_none() && self.changed.elapsed() >= LOST
    }
}

impl OtherWatches {
    /// Reads what the other watches have written. `own` is the name of this watch, which began at `began`, in seconds since 1970.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn look(&mut self, folder: &Path, own: &str, began: f64) -> io::Result<()> {
        for member in Member::all(folder)? {
            let name = member.name();
            if name == own {
                continue;
            }
            let is_recent =
                |member: &Member| member.ended.is_some_and(|(at, _)| at + EARLIER >= began);
            match self.0.get_mut(&name) {
                None => {
                    let seen = OtherWatch {
                        is_confirmed: is_recent(&member),
                        member,
                        changed: Instant::now(),
                        is_reported_lost: false,
                    };
                    self.0.insert(name, seen);
                }
                Some(seen) if seen.member.beat != member.beat => {
                    seen.is_confirmed = true;
                    seen.is_reported_lost = false;
                    seen.changed = Instant::now();
                    seen.member = member;
                }
                Some(_) => {}
            }
        }
        // What an earlier start of the job has left counts for nothing.
        self.0
            .retain(|_, seen| seen.is_confirmed || seen.member.ended.is_none());
        Ok(())
    }

    /// Returns the watches that go on.
    pub fn living(&self) -> impl Iterator<Item = &Member> {
        let living = self.0.values().filter(|seen| seen.is_living());
        living.map(|seen| &seen.member)
    }

    /// Returns the watches that belong to this start of the job, whether they go on or not.
    pub fn confirmed(&self) -> impl Iterator<Item = &Member> {
        let confirmed = self.0.values().filter(|seen| seen.is_confirmed);
        confirmed.map(|seen| &seen.member)
    }

    /// Returns true as long as it is not known of some watch whether it goes on.
    pub fn are_unsettled(&self) -> bool {
        let is_waiting = |seen: &OtherWatch| !seen.is_confirmed && !seen.is_lost();
        self.0.values().any(is_waiting)
    }

    /// Returns true if every watch has ended with exit code 0; those of earlier starts do not count.
    pub fn have_ended_well(&self) -> bool {
        self.0.values().all(|seen| match seen.is_confirmed {
            true => matches!(seen.member.ended, Some((_, 0))),
            // It is of an earlier start, or has just begun.
            false => seen.is_lost(),
        })
    }

    /// Returns whether the command of a watch has ended; none for a watch that is not known, is lost, or is of an earlier start.
    pub fn has_ended(&self, name: &str) -> Option<bool> {
        match self.0.get(name)? {
            seen if seen.is_living() => Some(false),
            seen if seen.is_confirmed && seen.member.ended.is_some() => Some(true),
            _ => None,
        }
    }

    /// Returns, once, a line for each watch that ended without reporting its end.
    pub fn lost(&mut self) -> Vec<String> {
        let lost = (self.0)
            .values_mut()
            .filter(|seen| seen.is_confirmed && seen.is_lost() && !seen.is_reported_lost);
        lost.map(|seen| {
            seen.is_reported_lost = true;
            format!(
                "nothing has come from the watch on host {} (pid {}) for {} s: the host, its network or the watch may be gone; what it saw counts no more",
                seen.member.host,
                seen.member.pid,
                LOST.as_secs()
            )
        })
        .collect()
    }
}
