//! Which processes of a program are its ranks.
//!
//! A rank is the outermost process of a family whose environments hold the same RANK and WORLD_SIZE, other than those that
//! the program was started with; or, where a program sets no environment, a process whose diary has calls. What a rank
//! starts itself (loaders of data, compilers) has its environment and is no rank.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};

use super::call_trace::{Call, Diary};
use crate::world::TOKEN;
use allranks_host as host;
use allranks_host::{Activity, TaggedProcess};
use allranks_model::names::Rank;

/// The ranks of a program, over time.
#[derive(Debug)]
pub struct Job {
    token: String,
    folder: PathBuf,
    /// Of all living processes.
    diaries: HashMap<u32, Diary>,
    /// What the watcher's own environment says of a rank: no process has that from its launcher.
    inherited: ClaimedRank,
    /// By process id and start.
    known: BTreeMap<(u64, u32), RankProcess>,
    /// Everything that belongs to the program and lives.
    pub pids: BTreeSet<u32>,
}

/// What an environment says of a rank.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct ClaimedRank {
    rank: Option<u32>,
    size: Option<u32>,
}

/// A process that is a rank.
#[derive(Clone, Debug)]
pub struct RankProcess {
    /// Its id.
    pub pid: u32,
    /// Its environment at its start.
    pub environment: BTreeMap<String, String>,
    /// What it does; none: nobody can tell.
    pub activity: Option<Activity>,
    /// Its diary, if it keeps one.
    pub diary: Option<Diary>,
}

impl RankProcess {
    /// A number of its environment.
    #[must_use]
    pub fn number(&self, name: &str) -> Option<u32> {
        self.environment.get(name)?.trim().parse().ok()
    }

    /// Whether its process is there.
    #[must_use]
    pub fn lives(&self) -> bool {
        self.activity != Some(Activity::Gone)
    }
}

impl RankProcess {
    /// The rank it is by its environment, or else by its last call to join a world.
    fn claimed(&self) -> Option<u32> {
        self.number("RANK").or_else(|| {
            let entries = &self.diary.as_ref()?.entries;
            entries.iter().rev().find_map(|entry| match entry.call {
                Call::Init { rank, .. } => rank?.try_into().ok(),
                _ => None,
            })
        })
    }
}

impl ClaimedRank {
    fn of(environment: &BTreeMap<String, String>) -> Self {
        let number = |name: &str| environment.get(name)?.trim().parse().ok();
        Self {
            rank: number("RANK"),
            size: number("WORLD_SIZE"),
        }
    }

    fn is_whole(&self) -> bool {
        self.rank.is_some() && self.size.is_some()
    }
}

impl Job {
    /// The job of the program with this token, whose Python processes keep diaries in that folder.
    pub fn new(token: &str, folder: &Path) -> Self {
        Self {
            token: token.to_owned(),
            folder: folder.to_owned(),
            diaries: HashMap::new(),
            inherited: ClaimedRank::of(&std::env::vars().collect()),
            known: BTreeMap::new(),
            pids: BTreeSet::new(),
        }
    }

    /// A job of these ranks, for tests.
    #[cfg(test)]
    pub fn of(ranks: Vec<RankProcess>) -> Self {
        let known = (0..)
            .zip(ranks)
            .map(|(start, rank)| ((start, rank.pid), rank));
        Self {
            known: known.collect(),
            ..Self::new("", Path::new(""))
        }
    }

    /// Looks at all processes again.
    pub fn look(&mut self) {
        let members = host::members(TOKEN, &self.token);
        self.pids = members.iter().map(|member| member.pid).collect();
        let read = |member: &TaggedProcess| {
            let known = self.diaries.get(&member.pid);
            Some((member.pid, Diary::read(&self.folder, member.pid, known)?))
        };
        let mut diaries: HashMap<u32, Diary> = members.iter().filter_map(read).collect();
        let chosen: HashSet<u32> = ranks(&members, &diaries, &self.inherited)
            .map(|member| member.pid)
            .collect();
        for member in members.iter().filter(|one| chosen.contains(&one.pid)) {
            let key = (member.started, member.pid);
            let rank = self.known.entry(key).or_insert_with(|| RankProcess {
                pid: member.pid,
                environment: BTreeMap::new(),
                activity: None,
                diary: None,
            });
            rank.environment.clone_from(&member.environment);
        }
        // Whoever has turned out to be none, although he lives.
        self.known
            .retain(|_, rank| chosen.contains(&rank.pid) || !self.pids.contains(&rank.pid));
        for ((started, pid), rank) in &mut self.known {
            let is_same = |member: &TaggedProcess| (member.started, member.pid) == (*started, *pid);
            rank.activity = match members.iter().any(is_same) {
                true => host::activity(*pid),
                false => Some(Activity::Gone),
            };
            // Its last words may have come after the last look.
            let read = || Diary::read(&self.folder, *pid, rank.diary.as_ref());
            if let Some(diary) = diaries.get(pid).cloned().or_else(read) {
                rank.diary = Some(diary);
            }
        }
        std::mem::swap(&mut self.diaries, &mut diaries);
        self.forget_replaced();
    }

    /// The version of torch in any diary: a process may end before it is known to be a rank.
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
        let mut diaries = pids.into_iter();
        diaries.find_map(|pid| Diary::read(&self.folder, pid, None)?.torch)
    }

    /// A program that starts a rank again, or does one thing after another, has several processes for it in turn: those
    /// that are gone count no more once there is another.
    fn forget_replaced(&mut self) {
        let mut last: HashMap<u32, (bool, u64, u32)> = HashMap::new();
        for ((started, pid), rank) in &self.known {
            let here = (rank.lives(), *started, *pid);
            if let Some(number) = rank.claimed() {
                let best = last.entry(number).or_insert(here);
                *best = here.max(*best);
            }
        }
        self.known.retain(|(started, pid), rank| {
            let best = rank.claimed().and_then(|number| last.get(&number));
            rank.lives() || best.is_some_and(|(_, first, id)| (first, id) == (started, pid))
        });
    }

    /// The ranks, in order, each with a number of its own: what its environment says, or else its diary; whoever says the
    /// number of another gets one that nobody has.
    pub fn ranks(&self) -> Vec<(Rank, &RankProcess)> {
        let mut taken: BTreeMap<u32, &RankProcess> = BTreeMap::new();
        let mut others = Vec::new();
        for rank in self.known.values() {
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
}

/// The ranks among the living.
fn ranks<'a>(
    members: &'a [TaggedProcess],
    diaries: &'a HashMap<u32, Diary>,
    inherited: &'a ClaimedRank,
) -> impl Iterator<Item = &'a TaggedProcess> {
    let by_pid: HashMap<u32, &TaggedProcess> = members.iter().map(|one| (one.pid, one)).collect();
    let has_calls = |pid: u32| diaries.get(&pid).is_some_and(Diary::is_begun);
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
    // Of a family, the first with calls speaks for all.
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
        let diary = |pid: &u32| {
            let text = r#"{"moves": 1, "epoch": 1}"#;
            (*pid, serde_json::from_str(text).unwrap())
        };
        let diaries = with_calls.iter().map(diary).collect();
        ranks(members, &diaries, inherited)
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
            // A loader of rank 1, and a shell around rank 0's program.
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
        // Unless one of them does have calls: then it was started for that.
        assert_eq!(found(&members[..1], &[1], &inherited), vec![1]);
    }

    #[test]
    fn who_has_been_replaced_is_no_second_rank() {
        let process = |pid: u32, number: u32, activity: Activity| RankProcess {
            pid,
            environment: [("RANK".to_owned(), number.to_string())].into(),
            activity: Some(activity),
            diary: None,
        };
        let (alive, gone) = (Activity::Alive { ticks: 0 }, Activity::Gone);
        // The shell around two programs in turn is older than both.
        let mut job = Job::of(vec![
            process(1, 0, alive),
            process(2, 0, gone),
            process(3, 1, gone),
            process(4, 1, gone),
        ]);
        job.forget_replaced();
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
