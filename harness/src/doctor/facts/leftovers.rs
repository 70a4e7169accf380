//! Processes on this machine with `RANK` and `WORLD_SIZE` in their environment, whatever started them. Linux only.

use serde::Serialize;

/// A process on this machine that has a rank in its environment and may be left over from a job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Leftover {
    /// The process as reports show it: `python train.py (pid 4711)`. In JSON the field is `who`.
    #[serde(rename = "who")]
    pub process: String,
    /// The id of the process.
    pub pid: u32,
    /// Its rank and world size by its environment: `rank 3 of 8`. In JSON the field is `place`.
    #[serde(rename = "place")]
    pub rank_of_world: String,
    /// Its `MASTER_PORT`; `None` if its environment has none.
    pub port: Option<String>,
    /// True if the process that started it has ended.
    pub is_orphan: bool,
    /// Seconds since it started; `None` if that is not known.
    pub seconds: Option<u64>,
}

/// Lists the ranks that run here, except this process and its ancestors.
#[cfg(target_os = "linux")]
pub(super) fn collect() -> Vec<Leftover> {
    use std::collections::{HashMap, HashSet};
    use std::ffi::OsStr;

    use procfs::process::all_processes;
    use procfs::{Current, Uptime};

    use super::describe_process;

    let all: HashMap<i32, _> = all_processes()
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|process| Some((process.pid(), (process.stat().ok()?, process))))
        .collect();
    let mut line = HashSet::new();
    let mut next = std::process::id().cast_signed();
    while line.insert(next)
        && let Some((stat, _)) = all.get(&next)
    {
        next = stat.ppid;
    }
    let uptime = Uptime::current().ok().map(|uptime| uptime.uptime);
    let mut found: Vec<Leftover> = all
        .values()
        .filter(|(stat, _)| !line.contains(&stat.pid))
        .filter_map(|(stat, process)| {
            let environment = process.environ().ok()?;
            let text = |name: &str| {
                let value = environment.get(OsStr::new(name))?;
                Some(value.to_string_lossy().into_owned())
            };
            let (rank, world) = (text("RANK")?, text("WORLD_SIZE")?);
            // A child process of a rank inherits its environment; only the rank is listed.
            let has_parent = all.get(&stat.ppid).is_some_and(|(_, parent)| {
                parent
                    .environ()
                    .is_ok_and(|of| of.get(OsStr::new("RANK")).is_some_and(|one| **one == *rank))
            });
            if has_parent {
                return None;
            }
            let pid = stat.pid.cast_unsigned();
            let started = stat.starttime as f64 / procfs::ticks_per_second() as f64;
            Some(Leftover {
                process: describe_process(pid),
                pid,
                rank_of_world: format!("rank {rank} of {world}"),
                port: text("MASTER_PORT"),
                is_orphan: stat.ppid <= 1,
                seconds: uptime.map(|now| (now - started).max(0.0) as u64),
            })
        })
        .collect();
    found.sort_by_key(|one| one.pid);
    found
}

/// Lists the ranks that run here, except this process and its ancestors.
#[cfg(not(target_os = "linux"))]
pub(super) fn collect() -> Vec<Leftover> {
    Vec::new()
}
