//! Finds a shell script that starts ranks and has not come to its end: it runs a command that is no rank, such as `sleep`, and may
//! start more ranks after that.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use allranks_host::TaggedProcess;

/// Returns true if a script among these processes waits for a command that is neither a rank nor has ranks below it, and is no part
/// of a pipeline: what reads another process's output, as `tee` does, ends only after the ranks.
pub fn goes_on(members: &[TaggedProcess], ranks: &HashSet<u32>) -> bool {
    goes_on_by(members, ranks, is_shell, allranks_host::reads_a_pipe)
}

fn goes_on_by(
    members: &[TaggedProcess],
    ranks: &HashSet<u32>,
    is_shell: impl Fn(u32) -> bool,
    reads_a_pipe: impl Fn(u32) -> bool,
) -> bool {
    let parents: HashMap<u32, u32> = members.iter().map(|one| (one.pid, one.parent)).collect();
    let above = |pid: u32| {
        std::iter::successors(Some(pid), |pid| parents.get(pid).copied()).take(members.len() + 1)
    };
    let below_ranks = |pid: u32| above(pid).any(|one| ranks.contains(&one));
    let above_ranks: HashSet<u32> = ranks.iter().flat_map(|rank| above(*rank)).collect();
    members.iter().any(|command| {
        !above_ranks.contains(&command.pid)
            && !below_ranks(command.pid)
            && parents.contains_key(&command.parent)
            && is_shell(command.parent)
            && !is_shell(command.pid)
            && !reads_a_pipe(command.pid)
    })
}

/// Returns true if a process is a shell, by the first word of its command line.
fn is_shell(pid: u32) -> bool {
    let words = allranks_host::arguments(pid);
    let name = words.first().and_then(|word| Path::new(word).file_name());
    name.is_some_and(|name| {
        ["sh", "bash", "dash", "ash", "zsh", "ksh"]
            .iter()
            .any(|shell| name == *shell)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns whether a script goes on, by the processes: id, parent, and what it is.
    fn goes_on(processes: &[(u32, u32, &str)]) -> bool {
        let members: Vec<TaggedProcess> = processes
            .iter()
            .map(|(pid, parent, _)| TaggedProcess {
                pid: *pid,
                parent: *parent,
                started: 0,
                environment: std::collections::BTreeMap::new(),
            })
            .collect();
        let is = |what: &'static str| {
            move |pid: u32| processes.iter().any(|one| (one.0, one.2) == (pid, what))
        };
        let ranks = processes.iter().filter(|one| one.2 == "rank");
        let ranks: HashSet<u32> = ranks.map(|one| one.0).collect();
        goes_on_by(&members, &ranks, is("shell"), is("reads a pipe"))
    }

    #[test]
    fn a_script_that_runs_a_command_between_ranks_goes_on() {
        assert!(
            !goes_on(&[(1, 0, "shell"), (2, 1, "rank"), (3, 1, "rank")]),
            "it waits"
        );
        assert!(goes_on(&[
            (1, 0, "shell"),
            (2, 1, "rank"),
            (3, 1, "command")
        ]));
        // A part of it in parentheses, as for each rank.
        assert!(goes_on(&[
            (1, 0, "shell"),
            (2, 1, "rank"),
            (3, 1, "shell"),
            (4, 3, "command")
        ]));
        assert!(!goes_on(&[
            (1, 0, "shell"),
            (2, 1, "shell"),
            (3, 2, "rank")
        ]));
    }

    #[test]
    fn what_ranks_start_and_what_reads_their_output_starts_no_rank() {
        assert!(!goes_on(&[
            (1, 0, "shell"),
            (2, 1, "rank"),
            (3, 2, "shell"),
            (4, 3, "command")
        ]));
        assert!(!goes_on(&[
            (1, 0, "shell"),
            (2, 1, "rank"),
            (3, 1, "reads a pipe")
        ]));
        assert!(!goes_on(&[
            (1, 0, "launcher"),
            (2, 1, "rank"),
            (3, 1, "command")
        ]));
        assert!(
            !goes_on(&[(2, 1, "rank"), (3, 1, "command")]),
            "the shell is not the job's"
        );
    }
}
