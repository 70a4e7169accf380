//! Finds processes that one launcher started as the ranks of one world, and each of which made a world of its own. Nothing of it
//! hangs: every process goes on as if it were alone.

use std::collections::{BTreeMap, BTreeSet};

use super::rank_process::RankProcess;
use crate::watch::trace::call::Call;
use crate::world::OF_OTHER_LAUNCHERS;

/// Returns a line that says so; none while any process is in a larger world, has made none, or the launcher started one only. It
/// is no verdict: a program may mean it.
pub fn lone_worlds(processes: &[RankProcess]) -> Option<String> {
    let mut runs: BTreeMap<(String, u32), BTreeSet<u32>> = BTreeMap::new();
    let mut variables = String::new();
    for process in processes {
        let place = OF_OTHER_LAUNCHERS.iter().find_map(|dialect| {
            let [rank, size] = dialect.place(&process.environment)?;
            Some((dialect.run(&process.environment), rank, size))
        });
        let Some((run, (rank_name, rank), (size_name, size))) = place else {
            continue;
        };
        if size < 2 {
            continue;
        }
        if !is_alone(process) {
            return None;
        }
        variables = format!("{rank_name}, {size_name}");
        runs.entry((run, size)).or_default().insert(rank);
    }
    let ((_, size), ranks) = runs.into_iter().find(|(_, ranks)| ranks.len() > 1)?;
    let count = ranks.len();
    Some(format!(
        "{count} processes were started as ranks of one world of {size} ({variables}), and each has made a world of its own, of 1 rank: they exchange nothing; give init_process_group the launcher's rank and world size, or set RANK and WORLD_SIZE from them"
    ))
}

/// Returns true if the world that a process has joined last has one rank.
fn is_alone(process: &RankProcess) -> bool {
    let trace = process.traced.as_ref().or(process.call_trace.as_ref());
    let mut entries = trace
        .into_iter()
        .flat_map(|trace| trace.entries.iter().rev());
    let size = entries.find_map(|entry| match entry.call {
        Call::Init { world_size, .. } => Some(world_size),
        _ => None,
    });
    size == Some(Some(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(rank: u32, size: u32, joined: Option<u32>) -> RankProcess {
        let entries = joined.map(|world_size| {
            format!(
                r#"{{"id": 1, "epoch": 1, "what": "init", "method": "env", "place": "localhost:1", "rank": 0, "world_size": {world_size}}}"#
            )
        });
        let text = format!(
            r#"{{"moves": 2, "epoch": 1, "entries": [{}]}}"#,
            entries.unwrap_or_default()
        );
        let environment = [
            ("OMPI_COMM_WORLD_RANK", rank),
            ("OMPI_COMM_WORLD_SIZE", size),
        ];
        RankProcess {
            more_may_start: false,
            pid: 100 + rank,
            environment: environment
                .map(|(name, value)| (name.to_owned(), value.to_string()))
                .into(),
            activity: None,
            call_trace: None,
            traced: Some(serde_json::from_str(&text).unwrap()),
        }
    }

    #[test]
    fn processes_of_one_launch_that_are_each_alone_are_told() {
        let told = |sizes: &[Option<u32>], started: u32| {
            let processes = (0..).zip(sizes);
            let processes: Vec<_> = processes
                .map(|(rank, joined)| process(rank, started, *joined))
                .collect();
            lone_worlds(&processes)
        };
        let text = told(&[Some(1), Some(1)], 2).unwrap();
        assert!(text.contains("2 processes were started as ranks of one world of 2 (OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE)"), "{text}");
        // They are one world, or may still become one, or one was started, or one alone is seen.
        assert_eq!(told(&[Some(2), Some(2)], 2), None);
        assert_eq!(told(&[Some(1), None], 2), None);
        assert_eq!(told(&[Some(1), Some(2)], 2), None);
        assert_eq!(told(&[Some(1)], 1), None);
        assert_eq!(told(&[Some(1)], 2), None);
        // A sweep: each was started as a world of its own.
        assert_eq!(
            lone_worlds(&[process(0, 1, Some(1)), process(0, 1, Some(1))]),
            None
        );
    }
}
