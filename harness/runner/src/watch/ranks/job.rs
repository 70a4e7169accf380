//! Finds the ranks among the processes of a program.
//!
//! A rank is the outermost of the processes that are descended from each other and have the same RANK and WORLD_SIZE in
//! their environments, if these differ from what the program was started with. Where a program sets no environment, it
//! is a process whose call trace has calls. Processes that a rank starts (data loaders, compilers) inherit its
//! environment and are no ranks.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};

use super::script;
use crate::watch::trace::call_trace::{Call, CallTrace};
use crate::watch::trace::recorder;
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

/// Rank and world size that an environment claims.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClaimedRank {
    pub rank: Option<u32>,
    pub size: Option<u32>,
}

/// A process that is a rank.
#[derive(Clone, Debug)]
pub struct RankProcess {
    /// The id of the process.
    pub pid: u32,
    /// Its environment at its start.
    pub environment: BTreeMap<String, String>,
    /// What the process does; none if that cannot be told.
    pub activity: Option<Activity>,
    /// Its call trace, merged with the records of torch's flight recorder; none if it writes none.
    pub call_trace: Option<CallTrace>,
    /// Its call trace as it was read, before the merge.
    pub traced: Option<CallTrace>,
    /// True while a script of the job runs a command before it goes on: more ranks may be started after that.
    pub more_may_start: bool,
}

impl RankProcess {
    /// Returns a variable of its environment as a number; none if it is not set or no number.
    #[must_use]
    pub fn number(&self, name: &str) -> Option<u32> {
        self.environment.get(name)?.trim().parse().ok()
    }

    /// Returns true if its process has not ended.
    #[must_use]
    pub fn lives(&self) -> bool {
        self.activity != Some(Activity::Gone)
    }
}

impl RankProcess {
    /// Returns the rank that it claims by its environment, or else by its last call of `init_process_group`; none if by
    /// neither.
    fn claimed(&self) -> Option<u32> {
        self.number("RANK").or_else(|| {
            let entries = &self.traced.as_ref().or(self.call_trace.as_ref())?.entries;
            entries.iter().rev().find_map(|entry| match entry.call {
                Call::Init { rank, .. } => rank?.try_into().ok(),
                _ => None,
            })
        })
    }
}

impl RankProcess {
    /// Returns the world size that it claims, in the same way.
    pub fn world_size(&self) -> Option<u32> {
        self.number("WORLD_SIZE").or_else(|| {
            let entries = &self.traced.as_ref().or(self.call_trace.as_ref())?.entries;
            entries.iter().rev().find_map(|entry| match entry.call {
                Call::Init { world_size, .. } => world_size?.try_into().ok(),
                _ => None,
            })
        })
    }

    /// Returns what tells its world from others on this host: the endpoint that its launcher told it, or else that of
    /// its own init, and the launcher's attempt.
    pub fn place(&self) -> String {
        let value = |name: &str| self.environment.get(name).cloned();
        let assigned = value("MASTER_ADDR").zip(value("MASTER_PORT"));
        let traced = self.traced.as_ref().or(self.call_trace.as_ref());
        let place = match assigned {
            Some((address, port)) => {
                let address = match address.as_str() {
                    "127.0.0.1" | "::1" | "0.0.0.0" => "localhost",
                    other => other,
                };
                format!("{address}:{port}")
            }
            None => traced
                .and_then(|call_trace| {
                    call_trace
                        .entries
                        .iter()
                        .rev()
                        .find_map(|entry| match &entry.call {
                            Call::Init { method, place, .. } => {
                                let place = match method.as_str() {
                                    // A prefix of the keys behind the address.
                                    "store" => place.split('/').next().unwrap_or_default(),
                                    _ => place,
                                };
                                Some(place.replace("127.0.0.1", "localhost"))
                            }
                            _ => None,
                        })
                })
                .unwrap_or_default(),
        };
        let attempt = value("TORCHELASTIC_RESTART_COUNT").unwrap_or_default();
        format!("{place} {attempt}")
    }
}

impl ClaimedRank {
    pub fn of(environment: &BTreeMap<String, String>) -> Self {
        let number = |name: &str| environment.get(name)?.trim().parse().ok();
        Self {
            rank: number("RANK"),
            size: number("WORLD_SIZE"),
        }
    }

    pub fn is_whole(&self) -> bool {
        self.rank.is_some() && self.size.is_some()
    }
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
        job.merge_records();
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
        self.merge_records();
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

    /// Merges the flight recorders' records into the call traces. A group whose record is distrusted on one rank is not
    /// merged on any.
    fn merge_records(&mut self) {
        let mut merged: HashMap<u32, CallTrace> = HashMap::new();
        for world in self.worlds() {
            let traced = || {
                let all = world.iter();
                all.filter_map(|(_, rank)| Some((*rank, rank.traced.as_ref()?)))
            };
            let distrusted: BTreeSet<String> = traced()
                .flat_map(|(_, call_trace)| recorder::distrusted(call_trace))
                .collect();
            let is_told = |rank: &RankProcess, call_trace: &CallTrace| {
                call_trace.record.is_some() && (rank.lives() || !call_trace.is_stale())
            };
            // What the calls of one rank do not tell, those of another, whose record is missing, do not tell either.
            let untold: BTreeSet<String> = match traced().all(|(rank, one)| is_told(rank, one)) {
                true => BTreeSet::new(),
                false => (traced().flat_map(|(_, call_trace)| recorder::untold(call_trace)))
                    .filter(|key| !distrusted.contains(key))
                    .collect(),
            };
            merged.extend(traced().map(|(rank, call_trace)| {
                let seen = recorder::merge(call_trace, &distrusted);
                let seen = match is_told(rank, call_trace) {
                    true => seen,
                    false => recorder::unnumbered(seen, &untold),
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

    /// Returns the worlds that the ranks are in. Ranks with the same endpoint are one world. So are ranks with
    /// different endpoints, unless two endpoints have the same rank, or one has all ranks that its world needs.
    pub fn worlds(&self) -> Vec<Vec<(Rank, &RankProcess)>> {
        let mut places: BTreeMap<String, Vec<&RankProcess>> = BTreeMap::new();
        for rank in self.known.values() {
            places.entry(rank.place()).or_default().push(rank);
        }
        let expectations = |ranks: &[&RankProcess]| -> BTreeSet<u32> {
            ranks
                .iter()
                .filter(|rank| rank.lives())
                .filter_map(|rank| rank.claimed())
                .collect()
        };
        let size = |ranks: &[&RankProcess]| ranks.iter().filter_map(|rank| rank.world_size()).max();
        let is_complete = |ranks: &[&RankProcess]| {
            size(ranks).is_some_and(|size| size > 1 && expectations(ranks).len() >= size as usize)
        };
        let mut worlds: Vec<Vec<&RankProcess>> = Vec::new();
        for (_, ranks) in places {
            let fits = |world: &&mut Vec<&RankProcess>| {
                let shares = !expectations(world).is_disjoint(&expectations(&ranks));
                let is_dead = !ranks.iter().any(|rank| rank.lives())
                    || !world.iter().any(|rank| rank.lives());
                !shares
                    && !is_dead
                    && !is_complete(world)
                    && !is_complete(&ranks)
                    && size(world) == size(&ranks)
            };
            match worlds.iter_mut().find(fits) {
                Some(world) => world.extend(ranks),
                None => worlds.push(ranks),
            }
        }
        worlds.iter().map(|world| numbered(world)).collect()
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

/// Numbers ranks: each gets the rank that it claims; a process whose claim is taken, or that makes none, gets a free
/// number.
pub fn numbered<'a>(ranks: &[&'a RankProcess]) -> Vec<(Rank, &'a RankProcess)> {
    let mut taken: BTreeMap<u32, &RankProcess> = BTreeMap::new();
    let mut others = Vec::new();
    for rank in ranks {
        match rank.claimed().filter(|number| !taken.contains_key(number)) {
            Some(number) => {
                taken.insert(number, rank);
            }
            None => others.push(rank),
        }
    }
    for rank in others {
        let free = (0..).find(|number| !taken.contains_key(number));
        taken.insert(free.unwrap_or_default(), rank);
    }
    taken
        .into_iter()
        .map(|(number, rank)| (Rank(number), rank))
        .collect()
}

/// Returns the ranks among the living processes.
fn ranks<'a>(
    members: &'a [TaggedProcess],
    call_traces: &'a HashMap<u32, CallTrace>,
    inherited: &'a ClaimedRank,
) -> impl Iterator<Item = &'a TaggedProcess> {
    let has_calls = |pid: u32| call_traces.get(&pid).is_some_and(CallTrace::is_begun);
    ranks_that_speak(members, has_calls, inherited)
}

/// The ranks among the living; of a family, the first process with `has_calls` is the rank, or else the outermost.
pub fn ranks_that_speak<'a>(
    members: &'a [TaggedProcess],
    has_calls: impl Fn(u32) -> bool + 'a,
    inherited: &'a ClaimedRank,
) -> impl Iterator<Item = &'a TaggedProcess> {
    let by_pid: HashMap<u32, &TaggedProcess> = members.iter().map(|one| (one.pid, one)).collect();
    let head = move |member: &'a TaggedProcess| {
        // The outermost process with the same claim.
        let claim = ClaimedRank::of(&member.environment);
        let mut head = member;
        while let Some(parent) = by_pid.get(&head.parent)
            && ClaimedRank::of(&parent.environment) == claim
            && claim.is_whole()
        {
            head = parent;
        }
        head.pid
    };
    let heads: HashMap<u32, u32> = members.iter().map(|one| (one.pid, head(one))).collect();
    // Of processes that are descended from each other, the first with calls stands for all.
    let mut speakers: HashMap<u32, u32> = HashMap::new();
    for member in members.iter().filter(|member| has_calls(member.pid)) {
        speakers.entry(heads[&member.pid]).or_insert(member.pid);
    }
    members.iter().filter(move |member| {
        let claim = ClaimedRank::of(&member.environment);
        let is_claimed = claim.is_whole() && claim != *inherited;
        match is_claimed {
            true => {
                let head = heads[&member.pid];
                member.pid == speakers.get(&head).copied().unwrap_or(head)
            }
            false => has_calls(member.pid),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(pid: u32, parent: u32, claim: &[(&str, &str)]) -> TaggedProcess {
        TaggedProcess {
            pid,
            parent,
            started: u64::from(pid),
            environment: claim
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
        }
    }

    fn found(members: &[TaggedProcess], with_calls: &[u32], inherited: &ClaimedRank) -> Vec<u32> {
        let call_trace = |pid: &u32| {
            let text = r#"{"moves": 1, "epoch": 1}"#;
            (*pid, serde_json::from_str(text).unwrap())
        };
        let call_traces = with_calls.iter().map(call_trace).collect();
        ranks(members, &call_traces, inherited)
            .map(|member| member.pid)
            .collect()
    }

    #[test]
    fn agents_and_helpers_are_no_ranks() {
        let zero = [("RANK", "0"), ("WORLD_SIZE", "2")];
        let one = [("RANK", "1"), ("WORLD_SIZE", "2")];
        let members = [
            member(1, 0, &[]),
            member(2, 1, &[]),
            member(3, 2, &zero),
            member(4, 2, &one),
            // A data loader of rank 1, and a shell around rank 0's program.
            member(5, 4, &one),
            member(6, 3, &zero),
        ];
        let none = ClaimedRank::default();
        assert_eq!(found(&members, &[], &none), vec![3, 4]);
        assert_eq!(found(&members, &[4, 6], &none), vec![4, 6]);
    }

    #[test]
    fn what_the_program_was_started_with_is_no_claim_of_its_processes() {
        let outer = [("RANK", "0"), ("WORLD_SIZE", "1")];
        let members = [
            member(1, 0, &outer),
            member(2, 1, &[("RANK", "0"), ("WORLD_SIZE", "2")]),
            member(3, 1, &[("RANK", "1"), ("WORLD_SIZE", "2")]),
        ];
        let inherited = ClaimedRank {
            rank: Some(0),
            size: Some(1),
        };
        assert_eq!(found(&members, &[], &inherited), vec![2, 3]);
        // If one of them has calls, the program was started as that rank.
        assert_eq!(found(&members[..1], &[1], &inherited), vec![1]);
    }

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

    #[test]
    fn a_program_without_an_environment_is_known_by_its_calls() {
        let members = [member(1, 0, &[]), member(2, 1, &[]), member(3, 1, &[])];
        assert_eq!(
            found(&members, &[2, 3], &ClaimedRank::default()),
            vec![2, 3]
        );
    }
}
