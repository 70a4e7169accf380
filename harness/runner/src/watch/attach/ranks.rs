//! Finds the ranks of a running job among the processes of this machine, from any one of the job's processes.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::call_stack::CallStacks;
use crate::watch::ranks::claimed_rank::{ClaimedRank, ranks_that_speak};
use crate::watch::ranks::rank_process::RankProcess;
use crate::world::OF_OTHER_LAUNCHERS;
use allranks_host as host;
use allranks_host::{ProcessEntry, TaggedProcess};

/// What the workers of torch's data loader run.
const LOADER: &str = "/torch/utils/data/_utils/worker.py";

/// A world that lives, as far as it is on this machine.
#[derive(Clone, Debug)]
pub struct World {
    /// Its ranks, each with a RANK in its environment.
    pub ranks: Vec<RankProcess>,
    /// Everything that is started by the same launcher, or by a rank.
    pub related_processes: BTreeSet<u32>,
    /// How the ranks were found, where that needs saying.
    pub notes: Vec<String>,
}

/// The worlds that these processes are launchers, ranks or children of: with all their ranks on this machine, whichever
/// process has started them. Empty if there is no rank among them.
#[must_use]
pub fn find(pids: &[u32], table: &[ProcessEntry], call_stacks: &mut CallStacks) -> Vec<World> {
    let living: Vec<&ProcessEntry> = table
        .iter()
        .filter(|one| !matches!(one.state, 'Z' | 'X'))
        .collect();
    let tree = Tree::of(&living);
    let has_torch = |pid: u32| host::has_mapped(pid, &["libtorch"]) == Some(true);
    let claimed = claimed(&living, &tree, &has_torch);
    let is_related = |rank: &RankProcess| {
        let mut given = pids.iter();
        given.any(|pid| tree.is_below(rank.pid, *pid) || tree.is_below(*pid, rank.pid))
    };
    let mut keyed: BTreeMap<(String, String, String, Option<u32>), Vec<RankProcess>> =
        BTreeMap::new();
    for rank in claimed {
        let network = host::network(rank.pid).unwrap_or_default();
        let run = run(&rank.environment);
        let key = (network, rank.place(), run, rank.world_size());
        keyed.entry(key).or_default().push(rank);
    }
    let found: Vec<World> = keyed
        .into_values()
        .filter(|ranks| ranks.iter().any(is_related))
        .map(|ranks| World {
            related_processes: tree.related_processes(&ranks),
            notes: ranks.iter().find_map(note).into_iter().collect(),
            ranks,
        })
        .collect();
    match found.is_empty() {
        true => spawned(pids, &living, &tree, call_stacks)
            .into_iter()
            .collect(),
        false => found,
    }
}

/// What a launcher other than torch's says of a process.
struct Given {
    /// The name of the variable with its rank.
    name: &'static str,
    rank: u32,
    size: u32,
}

impl Given {
    /// None if the environment has a RANK or WORLD_SIZE of its own, or no other launcher's.
    fn of(environment: &BTreeMap<String, String>) -> Option<Self> {
        let has = |name: &str| environment.contains_key(name);
        if has("RANK") || has("WORLD_SIZE") {
            return None;
        }
        let mut places = OF_OTHER_LAUNCHERS
            .iter()
            .filter_map(|dialect| dialect.place(environment));
        let [(name, rank), (_, size)] = places.next()?;
        Some(Self { name, rank, size })
    }
}

/// Returns what distinguishes one run of a launcher other than torch's from another; empty if there is none.
fn run(environment: &BTreeMap<String, String>) -> String {
    let known = OF_OTHER_LAUNCHERS
        .iter()
        .filter(|dialect| dialect.place(environment).is_some());
    known.map(|dialect| dialect.run(environment)).collect()
}

/// Which process has started which.
struct Tree {
    parents: HashMap<u32, u32>,
}

impl Tree {
    fn of(entries: &[&ProcessEntry]) -> Self {
        Self {
            parents: entries.iter().map(|one| (one.pid, one.parent)).collect(),
        }
    }

    /// Returns true if a process is another one, or was started by it or by one that it has started.
    fn is_below(&self, pid: u32, above: u32) -> bool {
        let mut at = Some(pid);
        while let Some(one) = at {
            if one == above {
                return true;
            }
            at = self.parents.get(&one).copied();
        }
        false
    }

    fn children(&self, pid: u32) -> impl Iterator<Item = u32> {
        let own = self.parents.iter();
        own.filter(move |(_, parent)| **parent == pid)
            .map(|(child, _)| *child)
    }

    /// The ranks, their launchers, and what the ranks have started.
    fn related_processes(&self, ranks: &[RankProcess]) -> BTreeSet<u32> {
        let is_kin = |pid: u32| {
            let mut all = ranks.iter();
            all.any(|rank| self.is_below(pid, rank.pid) || self.is_below(rank.pid, pid))
        };
        (self.parents.keys().copied())
            .filter(|pid| is_kin(*pid))
            .collect()
    }
}

/// Says which launcher's variable a rank is known by; none if by RANK.
fn note(rank: &RankProcess) -> Option<String> {
    let name = rank.environment.get(BY_LAUNCHER)?;
    Some(format!(
        "the ranks are known by {name}: no environment has RANK"
    ))
}

/// A variable that no environment has: it marks a rank that is known by another launcher than torch's.
const BY_LAUNCHER: &str = "allranks: by its launcher";

/// Processes whose environments say which rank they are. A launcher that was told a number of its own, as one of a node's, is
/// none: those below it have numbers of a larger world.
fn claimed(
    living: &[&ProcessEntry],
    tree: &Tree,
    has_torch: &dyn Fn(u32) -> bool,
) -> Vec<RankProcess> {
    let is_explicit = |one: &ProcessEntry| ClaimedRank::of(&one.environment).is_whole();
    let explicit: Vec<u32> = (living.iter())
        .filter(|one| is_explicit(one))
        .map(|one| one.pid)
        .collect();
    // Where torch's own launcher runs below another, its numbers count. A shell or a helper without torch is no rank.
    let given = |one: &ProcessEntry| {
        let given = Given::of(&one.environment)?;
        let is_launcher = explicit.iter().any(|pid| tree.is_below(*pid, one.pid));
        let mut environment = one.environment.clone();
        environment.insert("RANK".to_owned(), given.rank.to_string());
        environment.insert("WORLD_SIZE".to_owned(), given.size.to_string());
        environment.insert(BY_LAUNCHER.to_owned(), given.name.to_owned());
        (!is_launcher && has_torch(one.pid)).then_some(environment)
    };
    let members: Vec<TaggedProcess> = (living.iter())
        .filter_map(|one| {
            let environment = match is_explicit(one) {
                true => one.environment.clone(),
                false => given(one)?,
            };
            Some(TaggedProcess {
                pid: one.pid,
                parent: one.parent,
                started: one.started,
                environment,
            })
        })
        .collect();
    let none = ClaimedRank::default();
    let is_python = |pid: u32| host::has_mapped(pid, &["python"]) == Some(true);
    let heads: Vec<&TaggedProcess> = ranks_that_speak(&members, is_python, &none).collect();
    let size = |one: &TaggedProcess| ClaimedRank::of(&one.environment).size;
    let is_launcher = |one: &TaggedProcess| {
        heads.iter().any(|other| {
            other.pid != one.pid && size(other) > size(one) && tree.is_below(other.pid, one.pid)
        })
    };
    let ranks = heads.iter().filter(|one| !is_launcher(one));
    ranks
        .map(|one| rank(one.pid, one.environment.clone()))
        .collect()
}

fn rank(pid: u32, environment: BTreeMap<String, String>) -> RankProcess {
    RankProcess {
        more_may_start: false,
        pid,
        environment,
        activity: None,
        call_trace: None,
        traced: None,
    }
}

/// Ranks without a number in their environments, as those of `torch.multiprocessing.spawn`: the Python processes with torch
/// that one process of the job has started, and that have started no such process themselves.
fn spawned(
    pids: &[u32],
    living: &[&ProcessEntry],
    tree: &Tree,
    call_stacks: &mut CallStacks,
) -> Option<World> {
    let mut has_torch: HashMap<u32, bool> = HashMap::new();
    let mut is_torch = |pid: u32| {
        *has_torch.entry(pid).or_insert_with(|| {
            host::has_mapped(pid, &["libtorch"]) == Some(true) && !is_worker(pid, call_stacks)
        })
    };
    let mut parents: BTreeSet<u32> = BTreeSet::new();
    for pid in pids {
        let below = living.iter().filter(|one| tree.is_below(one.pid, *pid));
        let found: Vec<&&ProcessEntry> = below.filter(|one| is_torch(one.pid)).collect();
        parents.extend(found.iter().map(|one| one.parent));
    }
    // Where one rank was given, or a launcher that has torch itself, the ranks have one parent among these.
    let best = parents.into_iter().map(|parent| {
        let mut ranks: Vec<u32> = tree
            .children(parent)
            .filter(|child| is_torch(*child))
            .collect();
        let is_leaf = |pid: &u32| !tree.children(*pid).any(&mut is_torch);
        ranks.retain(is_leaf);
        ranks
    });
    let mut ranks = best
        .max_by_key(Vec::len)
        .filter(|ranks| !ranks.is_empty())?;
    let order: HashMap<u32, usize> = (living.iter().enumerate())
        .map(|(place, one)| (one.pid, place))
        .collect();
    ranks.sort_by_key(|pid| order.get(pid));
    let entry = |pid: u32| living.iter().find(|one| one.pid == pid);
    let ranks: Vec<RankProcess> = (0..)
        .zip(ranks)
        .filter_map(|(number, pid): (u32, u32)| {
            let mut environment = entry(pid)?.environment.clone();
            environment.insert("RANK".to_owned(), number.to_string());
            environment.remove("WORLD_SIZE");
            Some(rank(pid, environment))
        })
        .collect();
    let order = "no environment says which rank a process is: they are numbered in the order of their start";
    Some(World {
        related_processes: tree.related_processes(&ranks),
        ranks,
        notes: vec![order.to_owned()],
    })
}

fn is_worker(pid: u32, call_stacks: &mut CallStacks) -> bool {
    let place = call_stacks.place(pid);
    place.is_ok_and(|place| place.frames.iter().any(|frame| frame.contains(LOADER)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(pid: u32, parent: u32, claim: &[(&str, &str)]) -> ProcessEntry {
        ProcessEntry {
            pid,
            parent,
            started: u64::from(pid),
            state: 'S',
            status: None,
            environment: claim
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
        }
    }

    /// Ids that no process has.
    const BASE: u32 = 4_000_000_000;

    fn found(pid: u32, table: &[ProcessEntry]) -> Vec<Vec<u32>> {
        let worlds = find(&[BASE + pid], table, &mut CallStacks::default());
        let pids = |world: &World| world.ranks.iter().map(|rank| rank.pid - BASE).collect();
        worlds.iter().map(pids).collect()
    }

    #[test]
    fn any_process_of_a_job_leads_to_all_its_ranks_and_to_no_other_job() {
        let rank = |pid: u32, parent: u32, number: &str, size: &str, port: &str| {
            let claim = [
                ("RANK", number),
                ("WORLD_SIZE", size),
                ("MASTER_ADDR", "127.0.0.1"),
                ("MASTER_PORT", port),
            ];
            entry(BASE + pid, BASE + parent, &claim)
        };
        let table = [
            entry(BASE + 1, 1, &[]),
            // A launcher of each job; the first was told that it is node 0 of 1.
            rank(2, 1, "0", "1", "1"),
            entry(BASE + 3, BASE + 1, &[]),
            rank(4, 2, "0", "2", "1"),
            rank(5, 2, "1", "2", "1"),
            rank(6, 3, "0", "2", "2"),
            rank(7, 3, "1", "2", "2"),
            // A data loader of a rank, and a rank of the second job that another shell has started.
            rank(8, 5, "1", "2", "1"),
            entry(BASE + 9, 1, &[]),
            rank(10, 9, "2", "2", "2"),
        ];
        for pid in [2, 4, 5, 8] {
            assert_eq!(found(pid, &table), vec![vec![4, 5]], "{pid}");
        }
        for pid in [3, 6, 7, 9, 10] {
            assert_eq!(found(pid, &table), vec![vec![6, 7, 10]], "{pid}");
        }
        assert_eq!(found(1, &table).len(), 2);
        assert_eq!(found(11, &table), Vec::<Vec<u32>>::new());
    }

    /// Ranks by process id, as `claimed` finds them if `torch` are the processes that have loaded it.
    fn known(table: &[ProcessEntry], torch: &[u32]) -> Vec<(u32, u32, u32)> {
        let living: Vec<&ProcessEntry> = table.iter().collect();
        let has_torch = |pid: u32| torch.contains(&(pid - BASE));
        let found = claimed(&living, &Tree::of(&living), &has_torch);
        let number = |rank: &RankProcess, name: &str| rank.number(name).unwrap();
        (found.iter())
            .map(|one| {
                let (rank, size) = (number(one, "RANK"), number(one, "WORLD_SIZE"));
                (one.pid - BASE, rank, size)
            })
            .collect()
    }

    #[test]
    fn ranks_are_known_by_the_variables_of_other_launchers_too() {
        let slurm = |rank: &'static str| [("SLURM_PROCID", rank), ("SLURM_NTASKS", "2")];
        let task =
            |pid: u32, parent: u32, claim: &[(&str, &str)]| entry(BASE + pid, BASE + parent, claim);
        let table = [
            // The batch script, which Slurm calls task 0 as well, and the two tasks with a data loader.
            task(2, 1, &slurm("0")),
            task(3, 1, &slurm("0")),
            task(4, 1, &slurm("1")),
            task(5, 4, &slurm("1")),
        ];
        assert_eq!(known(&table, &[3, 4, 5]), vec![(3, 0, 2), (4, 1, 2)]);
        for (rank, size) in [
            ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
            ("PMI_RANK", "PMI_SIZE"),
        ] {
            let table = [task(2, 1, &[(rank, "1"), (size, "3")])];
            assert_eq!(known(&table, &[2]), vec![(2, 1, 3)], "{rank}");
            assert_eq!(known(&table, &[]), vec![], "{rank}");
        }
        // Slurm starts torch's launcher on each node, and that starts the ranks.
        let torch = |rank: &'static str| {
            let [procid, tasks] = slurm("1");
            [procid, tasks, ("RANK", rank), ("WORLD_SIZE", "2")]
        };
        let table = [task(2, 1, &slurm("1")), task(3, 2, &torch("1"))];
        assert_eq!(known(&table, &[2, 3]), vec![(3, 1, 2)]);
    }
}
