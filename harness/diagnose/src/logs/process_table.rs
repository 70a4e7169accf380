//! Reads the states of processes that `ps` has printed beside the logs of a job.

use std::collections::BTreeMap;

use super::process_lines::ProcessLines;

/// The processes that are stopped, and not only asleep.
#[derive(Clone, Debug, Default)]
pub(super) struct ProcessTable {
    /// The line of each stopped process.
    pub(super) lines: ProcessLines,
    /// The columns of the id and of the state in the table that the lines are of; `None` if they are of none.
    columns: Option<(usize, usize)>,
    /// The process whose `/proc/PID/status` the lines show; `None` if they show none.
    status: Option<String>,
    /// The lines of the processes that a debugger has stopped, by process id: it may do so for a moment only.
    traced: BTreeMap<String, String>,
}

impl ProcessTable {
    /// Reads a line of `/proc/PID/status`, of which a command before it names the process.
    fn read_status(&mut self, text: &str) {
        if let Some((_, rest)) = text.split_once("/proc/") {
            let pid = rest.split_once("/status").map(|(pid, _)| pid);
            let pid = pid.filter(|pid| pid.parse::<u32>().is_ok());
            self.status = pid.map(str::to_owned);
        } else if let Some(tracer) = text.strip_prefix("TracerPid:")
            && let Some(pid) = &self.status
            && tracer.trim() != "0"
        {
            // Seen twice to be stopped by a debugger.
            if let Some(line) = self.traced.remove(pid) {
                let line = format!("{line}, traced by process {}", tracer.trim());
                self.lines.processes.entry(pid.clone()).or_insert(line);
            }
        } else if let Some(state) = text.strip_prefix("State:")
            && let Some(pid) = self.status.take()
            && state.trim_start().starts_with("T (stopped)")
        {
            let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
            self.lines.processes.entry(pid).or_insert(line);
        }
    }

    /// Reads the next line.
    pub(super) fn read(&mut self, text: &str) {
        if text.contains("/proc/") || text.starts_with("State:") || text.starts_with("TracerPid:") {
            self.read_status(text);
        }
        // Most lines are of no table, and a look is cheaper than the words.
        if self.columns.is_none() && !text.contains("PID") {
            return;
        }
        let words: Vec<&str> = text.split_whitespace().collect();
        let column = |is: &dyn Fn(&str) -> bool| words.iter().position(|word| is(word));
        let state = column(&|word| matches!(word, "STAT" | "S" | "STATE"));
        if let (Some(id), Some(state)) = (column(&|word| word == "PID"), state) {
            self.columns = Some((id, state));
            return;
        }
        let Some((id, state)) = self.columns else {
            return;
        };
        match (words.get(id), words.get(state)) {
            (Some(id), Some(state)) if id.parse::<u32>().is_ok() => {
                let all = match state.chars().next() {
                    Some('T') => &mut self.lines.processes,
                    Some('t') => &mut self.traced,
                    _ => return,
                };
                all.insert((*id).to_owned(), words.join(" "));
            }
            _ => self.columns = None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stopped_processes_are_told_from_those_asleep() {
        let text = "$ ps -o pid,ppid,stat,wchan:20,args\n  PID  PPID STAT WCHAN COMMAND\n 90 1 Ssl futex_do_wait python\n 91 1 Tsl do_signal_stop python\n 93 1 tsl ptrace_stop python\nstep 3\n92 1 T x\n";
        let mut table = ProcessTable::default();
        text.lines().for_each(|line| table.read(line));
        table.lines.name(|pid| pid.parse().ok());
        assert_eq!(table.lines.ranks.keys().collect::<Vec<_>>(), [&91]);
        let status = "$ cat /proc/94/status\nName:\tpython\nState:\tT (stopped)\n$ cat /proc/95/status\nState:\tt (tracing stop)\nState:\tT (stopped)";
        let mut table = ProcessTable::default();
        status.lines().for_each(|line| table.read(line));
        assert_eq!(table.lines.processes.keys().collect::<Vec<_>>(), ["94"]);
        let traced = "PID STAT COMMAND\n93 tl python\n94 tl python\n$ grep TracerPid /proc/93/status\nTracerPid:\t60\n$ grep TracerPid /proc/94/status\nTracerPid:\t0";
        let mut table = ProcessTable::default();
        traced.lines().for_each(|line| table.read(line));
        assert_eq!(table.lines.processes.keys().collect::<Vec<_>>(), ["93"]);
    }
}
