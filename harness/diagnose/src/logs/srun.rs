//! Reads how `srun` says that its tasks ended: `srun: error: n3: tasks 1,4-7: Killed`.

use std::sync::LazyLock;

use regex::Regex;

/// Tasks that ended together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TasksEnd {
    /// The numbers of the tasks.
    pub(super) tasks: Vec<u32>,
    /// How they ended, as an exit code: -9 is signal 9.
    pub(super) code: i32,
    /// Whether the kernel has killed them because there was no more memory.
    pub(super) is_out_of_memory: bool,
}

/// What srun says, with `-v` or without, of tasks that ended with exit code 0.
static COMPLETED: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"^srun: (?:\S.*: )?tasks? ([\d,-]+): [Cc]ompleted$").ok());
static LINE: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r"^srun: error: \S+: tasks? ([\d,-]+): (.+?)(?: \(core dumped\))?$").ok()
});

/// Returns what a line says of tasks that ended; `None` if it says nothing of any.
pub(super) fn tasks_end(text: &str) -> Option<TasksEnd> {
    if text.starts_with("srun: ")
        && let Some(found) = COMPLETED.as_ref().and_then(|line| line.captures(text))
    {
        let tasks = numbers(&found[1])?;
        return Some(TasksEnd {
            tasks,
            code: 0,
            is_out_of_memory: false,
        });
    }
    let found = LINE
        .as_ref()
        .filter(|_| text.starts_with("srun: error: "))?
        .captures(text)?;
    let code = match &found[2] {
        "Illegal instruction" => -4,
        "Aborted" => -6,
        "Bus error" => -7,
        "Floating point exception" => -8,
        "Killed" | "Out Of Memory" => -9,
        "Segmentation fault" => -11,
        "Terminated" => -15,
        other => other.strip_prefix("Exited with exit code ")?.parse().ok()?,
    };
    let tasks = numbers(&found[1])?;
    Some(TasksEnd {
        tasks,
        code,
        is_out_of_memory: &found[2] == "Out Of Memory",
    })
}

/// Returns the numbers of a list such as `8-10,12`; `None` if it is none.
pub(super) fn numbers(list: &str) -> Option<Vec<u32>> {
    /// Numbers that a list has at most.
    const MOST: u32 = 100_000;
    let mut all = Vec::new();
    for part in list.split(',') {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        let (from, to): (u32, u32) = (from.parse().ok()?, to.parse().ok()?);
        if to.checked_sub(from)? > MOST {
            return None;
        }
        all.extend(from..=to);
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_are_read() {
        let read = |text: &str| tasks_end(text).map(|end| (end.tasks, end.code));
        assert_eq!(
            read("srun: error: n4: tasks 8-10,12: Aborted (core dumped)"),
            Some((vec![8, 9, 10, 12], -6))
        );
        assert_eq!(
            read("srun: error: n4: task 3: Exited with exit code 7"),
            Some((vec![3], 7))
        );
        assert_eq!(
            read("srun: error: n4: task 3: Out Of Memory"),
            Some((vec![3], -9))
        );
        let is_out_of_memory = |text: &str| tasks_end(text).unwrap().is_out_of_memory;
        assert!(is_out_of_memory("srun: error: n4: task 3: Out Of Memory"));
        assert!(!is_out_of_memory("srun: error: n4: task 3: Killed"));
        assert_eq!(
            read("srun: error: Task launch for 36.0 failed on node n4"),
            None
        );
        assert_eq!(read("srun: error: n4: task 9-3: Killed"), None);
        for text in [
            "srun: jobid 41: tasks 0-1: completed",
            "srun: launch/slurm: _task_finish: n4: tasks 0-1: Completed",
        ] {
            assert_eq!(read(text), Some((vec![0, 1], 0)), "{text}");
        }
        assert_eq!(read("srun: jobid 41: tasks 0-1: completed 3 of 7"), None);
    }
}
