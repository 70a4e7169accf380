//! Follows the ranks of a program: those that live, and those that have ended and that others may wait for.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};

use super::claimed_rank::{ClaimedRank, ranks};
use super::rank_process::RankProcess;
use super::script;
use super::worlds::worlds;
use crate::watch::recorder::{merged_trace, trust};
use crate::watch::trace::call_trace::CallTrace;
use crate::world::TOKEN;
use allranks_host as host;
use allranks_host::{Activity, TaggedProcess};
use allranks_model::names::Rank;

/// The ranks of a program, over time.
#[derive(Debug)]
pub struct Job {
    token: String,
    folder: PathBuf,
    /// Call traces of all living processes, by process id.
    call_traces: HashMap<u32, CallTrace>,
    /// What the watcher's own environment says of a rank: every process inherits it, so it does not come from a
    /// launcher.
    inherited: ClaimedRank,
    /// Ranks by start time and process id.
    known: BTreeMap<(u64, u32), RankProcess>,
    /// Of ranks that have ended, the start time of the newest process at the moment when that was seen.
    gone: BTreeMap<(u64, u32), u64>,
    /// Ids of all living processes of the program.
    pub pids: BTreeSet<u32>,
    /// The same at the look before.
    pids_before: BTreeSet<u32>,
}

impl Job {
    /// Makes the job of the program whose processes carry this token, and write call traces into this folder.
    pub fn new(token: &str, folder: &Path) -> Self {
        Self {
            token: token.to_owned(),
            folder: folder.to_owned(),
            call_traces: HashMap::new(),
            inherited: ClaimedRank::of(&std::env::vars().collect()),
            known: BTreeMap::new(),
            gone: BTreeMap::new(),
            pids: BTreeSet::new(),
            pids_before: BTreeSet::new(),
        }
    }

    /// A job of these ranks, which were looked at elsewhere, with what their recorders know merged into their traces.
    pub fn of_world(ranks: Vec<RankProcess>) -> Self {
        let mut job = Self::of(ranks);
        job.merge_dumps();
        job
    }

    /// A job of these ranks.
    pub fn of(ranks: Vec<RankProcess>) -> Self {
        let known = (0..)
            .zip(ranks)
            .map(|(start, rank)| ((start, rank.pid), rank));
        Self {
            known: known.collect(),
            ..Self::new("", Path::new(""))
        }
    }

    /// Updates the job from all processes that exist now.
    pub fn look(&mut self) {
        let members = host::members(TOKEN, &self.token);
        self.pids_before = std::mem::take(&mut self.pids);
        self.pids = members.iter().map(|member| member.pid).collect();
        let read = |member: &TaggedProcess| {
            let known = self.call_traces.get(&member.pid);
            Some((
                member.pid,
                CallTrace::read(&self.folder, member.pid, known)?,
            ))
        };
        let mut call_traces: HashMap<u32, CallTrace> = members.iter().filter_map(read).collect();
        let chosen: HashSet<u32> = ranks(&members, &call_traces, &self.inherited)
            .map(|member| member.pid)
            .collect();
        let is_left = |member: &TaggedProcess| self.is_left_behind(member, &members, &call_traces);
        let left: HashSet<u32> = (members.iter().filter(|one| chosen.contains(&one.pid)))
            .filter(|member| is_left(member))
            .map(|member| member.pid)
            .collect();
        let chosen: HashSet<u32> = chosen.difference(&left).copied().collect();
        let more_may_start = script::goes_on(&members, &chosen);
        for member in members.iter().filter(|one| chosen.contains(&one.pid)) {
            let key = (member.started, member.pid);
            let rank = self.known.entry(key).or_insert_with(|| RankProcess {
                more_may_start: false,
                pid: member.pid,
                environment: BTreeMap::new(),
                activity: None,
                call_trace: None,
                traced: None,
            });
            rank.environment.clone_from(&member.environment);
            rank.more_may_start = more_may_start;
        }
        // Processes that have turned out to be no ranks although they are alive.
        self.known
            .retain(|_, rank| chosen.contains(&rank.pid) || !self.pids.contains(&rank.pid));
        for ((started, pid), rank) in &mut self.known {
            let is_same = |member: &TaggedProcess| (member.started, member.pid) == (*started, *pid);
            rank.activity = match members.iter().any(is_same) {
                true => host::activity(*pid),
                false => Some(Activity::Gone),
            };
            // Its last entries may have been written after the last look.
            let read = || CallTrace::read(&self.folder, *pid, rank.traced.as_ref());
            if let Some(mut call_trace) = call_traces.get(pid).cloned().or_else(read) {
                if !rank.lives() && !call_trace.ended {
                    call_trace.add_last_entries(&self.folder, *pid);
                }
                rank.traced = Some(call_trace);
            }
        }
        std::mem::swap(&mut self.call_traces, &mut call_traces);
        self.forget_past_worlds(&members);
        self.merge_dumps();
    }

    /// Returns true if a process is what a rank has left behind that is gone: started by it, with its environment and without a call
    /// trace, such as a forked worker or monitor. It is not another process of that rank.
    fn is_left_behind(
        &self,
        member: &TaggedProcess,
        members: &[TaggedProcess],
        call_traces: &HashMap<u32, CallTrace>,
    ) -> bool {
        let is_here = |pid: u32| members.iter().any(|one| one.pid == pid);
        let was_there = self.pids_before.contains(&member.pid);
        let key = (member.started, member.pid);
        let had_rank = |((started, pid), rank): (&(u64, u32), &RankProcess)| {
            !is_here(*pid)
                && *started <= member.started
                && rank.traced.is_some()
                && ["RANK", "MASTER_PORT"]
                    .iter()
                    .all(|name| rank.environment.get(*name) == member.environment.get(*name))
        };
        was_there
            && !self.known.contains_key(&key)
            && !call_traces.contains_key(&member.pid)
            && self.known.iter().any(had_rank)
    }

    /// Merges the flight recorders' dumps into the call traces. A group whose dump is distrusted on one rank is not
    /// merged on any.
    fn merge_dumps(&mut self) {
        let mut merged: HashMap<u32, CallTrace> = HashMap::new();
        for world in self.worlds() {
            let traced = || {
                let all = world.iter();
                all.filter_map(|(_, rank)| Some((*rank, rank.traced.as_ref()?)))
            };
            let distrusted: BTreeSet<String> = traced()
                .flat_map(|(_, call_trace)| trust::distrusted(call_trace))
                .collect();
            let is_told = |rank: &RankProcess, call_trace: &CallTrace| {
                call_trace.dump.is_some() && (rank.lives() || !call_trace.is_stale())
            };
            // What the calls of one rank do not tell, those of another, whose dump is missing, do not tell either.
            let untold: BTreeSet<String> = match traced().all(|(rank, one)| is_told(rank, one)) {
                true => BTreeSet::new(),
                false => (traced().flat_map(|(_, call_trace)| trust::untold(call_trace)))
                    .filter(|key| !distrusted.contains(key))
                    .collect(),
            };
            merged.extend(traced().map(|(rank, call_trace)| {
                let seen = merged_trace::merge(call_trace, &distrusted);
                let seen = match is_told(rank, call_trace) {
                    true => seen,
                    false => merged_trace::unnumbered(seen, &untold),
                };
                (rank.pid, seen)
            }));
        }
        for rank in self.known.values_mut() {
            if let Some(call_trace) = merged.remove(&rank.pid) {
                rank.call_trace = Some(call_trace);
            }
        }
    }

    /// Returns the version of torch from any call trace: a process may end before it is known to be a rank. None if no
    /// trace names one.
    pub fn torch(&self) -> Option<String> {
        let names = std::fs::read_dir(&self.folder).ok()?.flatten();
        let mut pids: Vec<u32> = names
            .filter_map(|entry| {
                entry
                    .file_name()
                    .to_str()?
                    .strip_suffix(".json")?
                    .parse()
                    .ok()
            })
            .collect();
        pids.sort_unstable();
        let mut call_traces = pids.into_iter();
        call_traces.find_map(|pid| CallTrace::read(&self.folder, pid, None)?.torch)
    }

    /// Forgets ranks of the past. A program that starts its ranks again, or does one thing after another, has several
    /// processes for a rank in turn: one that has ended is forgotten when there is another for the same rank of the
    /// same world, or when all living ranks of that world were started after it had ended.
    fn forget_past_worlds(&mut self, members: &[TaggedProcess]) {
        let newest = members
            .iter()
            .map(|member| member.started)
            .max()
            .unwrap_or(0);
        for (key, rank) in &self.known {
            if !rank.lives() {
                self.gone.entry(*key).or_insert(newest);
            }
        }
        self.gone.retain(|key, _| self.known.contains_key(key));
        let mut past = BTreeSet::new();
        for (key, rank) in self.known.iter().filter(|(_, rank)| !rank.lives()) {
            let place = rank.place();
            let mut living =
                (self.known.iter()).filter(|(_, other)| other.lives() && other.place() == place);
            let is_replaced = (living.clone())
                .any(|(_, other)| other.claimed() == rank.claimed() && rank.claimed().is_some());
            let seen = self.gone.get(key).copied().unwrap_or(u64::MAX);
            let has_living = living.clone().next().is_some();
            let all_came_later = living.all(|((started, _), _)| *started > seen);
            // Of several processes of a rank that have all ended, only the last is kept.
            let has_later = self.known.iter().any(|(other_key, other)| {
                !other.lives()
                    && other_key > key
                    && other.claimed() == rank.claimed()
                    && other.place() == place
            });
            if is_replaced || has_later || has_living && all_came_later {
                past.insert(*key);
            }
        }
        self.known.retain(|key, _| !past.contains(key));
    }

    /// Returns the ranks that live.
    pub fn living(&self) -> Vec<RankProcess> {
        let living = self.known.values().filter(|rank| rank.lives());
        living.cloned().collect()
    }

    /// Returns the worlds that the ranks are in.
    pub fn worlds(&self) -> Vec<Vec<(Rank, &RankProcess)>> {
        worlds(self.known.values())
    }

    /// Returns the ranks of the largest world with a living rank, for reports on a single world.
    pub fn ranks(&self) -> Vec<(Rank, &RankProcess)> {
        let worlds = self.worlds().into_iter();
        worlds
            .rev()
            .max_by_key(|world| (world.iter().any(|(_, rank)| rank.lives()), world.len()))
            .unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_has_been_replaced_is_no_second_rank() {
        let process = |pid: u32, number: u32, activity: Activity| RankProcess {
            more_may_start: false,
            pid,
            environment: [("RANK".to_owned(), number.to_string())].into(),
            activity: Some(activity),
            call_trace: None,
            traced: None,
        };
        let (alive, gone) = (Activity::Alive { ticks: 0 }, Activity::Gone);
        // The shell around two programs in turn is older than both.
        let mut job = Job::of(vec![
            process(1, 0, alive),
            process(2, 0, gone),
            process(3, 1, gone),
            process(4, 1, gone),
        ]);
        job.forget_past_worlds(&[]);
        let left: Vec<(u32, u32)> = job
            .ranks()
            .iter()
            .map(|(rank, one)| (rank.0, one.pid))
            .collect();
        assert_eq!(left, vec![(0, 1), (1, 4)]);
    }
}
