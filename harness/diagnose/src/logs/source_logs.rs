//! Divides the lines of one source among the ranks that wrote them. A line that cannot be attributed to a rank is left out.

use std::collections::BTreeMap;
use std::io;
use std::ops::ControlFlow;

use super::arrival::arrival;
use super::call_stacks::CallStacks;
use super::container_exits::ContainerExits;
use super::job_lines::JobLines;
use super::line::{LogLine, RANKS, parts};
use super::phase::Mark;
use super::process_lines::ProcessLines;
use super::rank_log::{RankLog, is_of_debugger};
use super::restart::{Kept, Restart};
use super::source::Source;
use super::srun::tasks_end;
use super::stack_titles::StackTitles;
use super::survey::Survey;
use super::traceback_lines::TracebackLines;

/// What one source holds.
#[derive(Clone, Debug, Default)]
pub(super) struct SourceLogs {
    /// What each rank wrote, for lines that belong to a rank.
    pub(super) rank_logs: BTreeMap<u32, RankLog>,
    /// Whether a launcher has named processes in it.
    pub(super) has_processes: bool,
    /// Lines that belong to no rank, as far as anything says.
    pub(super) stray: RankLog,
    /// What lines say of the job, or of other ranks than their writer.
    pub(super) lines: JobLines,
    container_exits: ContainerExits,
    /// The calls that stacks show, by the number within the host.
    pub(super) locals: Vec<(u32, Mark)>,
    restart: Restart,
    /// The rank that wrote the last line that belongs to one.
    last_writer: Option<u32>,
    /// The workers that had died before a launcher said that a start of the job has failed.
    earlier_dead: ProcessLines,
}

impl SourceLogs {
    /// Takes a source apart. What no line signs is the owner's.
    pub(super) fn of(
        source: &Source,
        survey: &Survey,
        owner: Option<u32>,
        rank_of: impl Fn(&str) -> Option<u32>,
    ) -> io::Result<Self> {
        let mut source_logs = Self::default();
        let mut stacks = CallStacks::default();
        let mut tracebacks = TracebackLines::default();
        let mut titles = StackTitles::default();
        let is_torn = source.each_line(|raw| {
            let (origin, raw) = survey.collector.take(raw);
            let (label, raw) = survey.numbers.take(raw);
            for part in parts(raw) {
                let mut line = LogLine::read(part);
                line.rank = origin.rank.or(label).or(line.rank);
                survey.sign_by_message(&mut line, owner);
                match origin.writer {
                    Some(writer) => survey.sign(&mut line, writer),
                    None => tracebacks.attribute(&mut line),
                }
                let told = line.logger_pid.as_ref();
                line.rank = line.rank.or_else(|| survey.told_rank(told?));
                if owner.is_none() {
                    titles.attribute(&mut line);
                }
                stacks.read(&line.text, line.rank, owner, |pid| {
                    survey.rank_of(pid).or_else(|| rank_of(pid))
                });
                // An engine that is one of several numbers its own workers from 0.
                if !part.contains("(EngineCore_DP") {
                    source_logs
                        .lines
                        .dead_workers
                        .read(&line.text, line.rank.or(owner));
                }
                let claims = &mut source_logs.lines.rank_claims;
                let task = label.filter(|_| origin.writer.is_none());
                claims.read(&line.text, origin.writer, task);
                let printed = owner.is_none().then(|| survey.rank_of_environment(&line));
                match printed.flatten() {
                    Some(rank) => {
                        let log = source_logs.rank_logs.entry(rank).or_default();
                        log.environment.read(&line.text);
                    }
                    None => source_logs.read(&line, survey, owner),
                }
            }
            ControlFlow::Continue(())
        })?;
        stacks.end();
        source_logs.locals = stacks.locals;
        for mark in stacks.strays {
            source_logs.stray.show(mark);
        }
        for (rank, mark) in stacks.ranks {
            source_logs.rank_logs.entry(rank).or_default().show(mark);
        }
        if let Some(owner) = owner {
            source_logs.rank_logs.entry(owner).or_default().is_torn = is_torn;
        }
        source_logs.has_processes = !survey.processes.is_empty();
        source_logs.lines.close();
        source_logs.end_containers(survey);
        let pods = survey.writers.names();
        source_logs.lines.pods = pods
            .map(|name| (name.to_owned(), survey.writers.ranks(name)))
            .collect();
        for log in source_logs.rank_logs.values_mut() {
            log.files = 1;
        }
        for log in source_logs
            .rank_logs
            .values_mut()
            .chain([&mut source_logs.stray])
        {
            log.keep_attempts(source_logs.restart.kept());
            log.close();
        }
        let earlier = std::mem::take(&mut source_logs.earlier_dead);
        if source_logs.restart.kept() == Kept::All {
            source_logs.lines.dead_workers.lines.merge(earlier);
        }
        source_logs
            .lines
            .dead_workers
            .lines
            .name(|pid| survey.rank_of(pid));
        Ok(source_logs)
    }

    /// Notes how the containers of ranks ended.
    fn end_containers(&mut self, survey: &Survey) {
        let rank = |name: &String| survey.writers.rank(name, None);
        for (name, code) in &self.container_exits.codes {
            if let Some(rank) = rank(name) {
                self.lines.launcher.exits.entry(rank).or_insert(*code);
            }
        }
        self.lines.launcher.ended_first = self.container_exits.first.as_ref().and_then(rank);
    }

    fn read(&mut self, line: &LogLine<'_>, survey: &Survey, owner: Option<u32>) {
        let text = &*line.text;
        self.lines.read(text, line.rank.or(owner));
        if self.restart.read(text) {
            self.rank_logs.values_mut().for_each(RankLog::end_attempt);
            let dead = std::mem::take(&mut self.lines.dead_workers);
            self.earlier_dead.merge(dead.lines);
        }
        self.container_exits.read(text);
        if survey.tasks_are_ranks
            && let Some(end) = tasks_end(text)
        {
            self.lines.launcher.end_tasks(end);
        }
        if text.starts_with("All distributed processes registered") {
            self.rank_logs.values_mut().for_each(RankLog::meet);
        }
        if let Some(arrival) = arrival(text, line.rank, owner) {
            let log = self.rank_logs.entry(arrival.rank).or_default();
            log.arrive(line, &arrival);
            if let Some(counted) = arrival.counted {
                self.lines.counts.add(arrival.rank, counted);
            }
            return;
        }
        let process = line.process.as_ref();
        let rank = match process {
            // The lines of a process without a rank belong to no rank, whatever other lines say.
            Some(process) => line
                .rank
                .or(survey.processes.get(process).copied().flatten())
                .or(owner),
            None => {
                let local = line.local_rank;
                let local = local.map(|local| survey.locals.get(&local).copied().unwrap_or(local));
                line.rank.or(local).or(owner)
            }
        };
        let of_debugger = || self.last_writer.filter(|_| is_of_debugger(text));
        match rank.filter(|rank| *rank < RANKS).or_else(of_debugger) {
            Some(rank) => {
                self.last_writer = Some(rank);
                let is_step = self.rank_logs.entry(rank).or_default().read(line);
                if is_step {
                    self.restart.step();
                    self.lines.step(rank);
                }
            }
            None => {
                self.stray.read(line);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::logs::owner;

    fn source_logs(path: &str, text: &str) -> SourceLogs {
        let source = Source::of_text(path, text);
        let by_name = owner::by_names(&[source.path.as_path()])[0];
        let survey = Survey::of(&source, by_name.is_some()).unwrap();
        let owner = survey.owner(by_name, false);
        SourceLogs::of(&source, &survey, owner, |_| None).unwrap()
    }

    fn marks(source_logs: &SourceLogs) -> Vec<(u32, usize)> {
        let rank_logs = source_logs.rank_logs.iter();
        rank_logs
            .map(|(rank, log)| (*rank, log.marks.len()))
            .collect()
    }

    #[test]
    fn a_time_is_no_label_and_no_host() {
        let clock = "12:17:01.10 [rank 3] Before x\n12:17:02.10 [rank 3] After x\n".repeat(4);
        assert_eq!(marks(&source_logs("job.log", &clock)), [(3, 8)]);
        let glog = "I0722 05:00:00.110204 77 a.py:4] rank 3: Before x\n".repeat(3);
        assert_eq!(marks(&source_logs("job.log", &glog)), [(3, 3)]);
    }

    #[test]
    fn lines_find_their_ranks() {
        for (path, text, expected) in [
            ("rank3.log", "Before x\nAfter x", vec![(3, 2)]),
            ("rank3.log", "[Rank 4] Before x\nAfter x", vec![(4, 2)]),
            (
                "job.log",
                "[Rank 4] Before x\n[Rank 5] After x",
                vec![(4, 1), (5, 1)],
            ),
            (
                "job.log",
                "[default0]:[rank4]: x\n[default0]:Before x",
                vec![(4, 1)],
            ),
            (
                "job.log",
                "0: Before x\n1: Before x\n0: After x",
                vec![(0, 2), (1, 1)],
            ),
            (
                "job.log",
                "srun: job 7 queued\n0: Before x\nsrun: error: x\n1: Before x\n0: After x",
                vec![(0, 2), (1, 1)],
            ),
            (
                "job.log",
                "srun: job 7 queued\nSLURM_JOB_NODELIST=n[5-6]\nloading modules\n0: Before x\n1: Before x",
                vec![(0, 1), (1, 1)],
            ),
            (
                "job.log",
                "[0] Before x\n[1] Before x\n[0] After x",
                vec![(0, 2), (1, 1)],
            ),
            (
                "job.log",
                "[7] [Rank 1] Before x\n[8] \n[9] [Rank 1] After x",
                vec![(1, 2)],
            ),
            (
                "job.log",
                "(W pid=7) [rank1]: x\n(W pid=7) Before x\n(W pid=8) Before x",
                vec![(1, 1)],
            ),
            ("job.log", "Before x", vec![]),
        ] {
            assert_eq!(marks(&source_logs(path, text)), expected, "{text}");
        }
    }

    #[test]
    fn a_communicator_of_all_tells_the_ranks_of_processes() {
        let init = |pid: u32, rank: u32, of: u32| {
            format!(
                "(W pid={pid}) h:{pid}:9 [0] NCCL INFO ncclCommInitRank comm 0x5f rank {rank} nranks {of} cudaDev 0 - Init COMPLETE\n"
            )
        };
        let of_two = format!("{}{}", init(7, 1, 2), init(8, 0, 2));
        assert_eq!(
            marks(&source_logs(
                "job.log",
                &format!("{of_two}(W pid=7) Before x")
            )),
            [(0, 0), (1, 1)]
        );
        let dead = format!(
            "{of_two}ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.\n\tpid: 8\n"
        );
        let dead_workers = source_logs("job.log", &dead).lines.dead_workers;
        assert_eq!(
            dead_workers.lines.ranks.keys().copied().collect::<Vec<_>>(),
            [0]
        );
        let engine = "(EngineCore_DP1 pid=7) Worker proc VllmWorker-0 died unexpectedly, shutting down executor.";
        assert!(
            source_logs("job.log", engine)
                .lines
                .dead_workers
                .lines
                .ranks
                .is_empty()
        );
        // Two communicators of two ranks each: neither is the world's.
        let pairs = format!(
            "{of_two}{}{}(W pid=7) Before x",
            init(9, 1, 2),
            init(10, 0, 2)
        );
        assert!(
            marks(&source_logs("job.log", &pairs))
                .iter()
                .all(|(_, marks)| *marks == 0)
        );
    }

    #[test]
    fn what_ended_an_earlier_start_is_no_cause() {
        let failed = "[Rank 0] step 3\n[Rank 0] Traceback (most recent call last):\n[Rank 0]   File \"a.py\", line 1, in <module>\n[Rank 0] KeyError: 'a'\nfailed (exitcode: 1) local_rank: 0 (pid: 9) of binary: python\n";
        let cause = |text: &str| {
            let source_logs = source_logs("job.log", text);
            source_logs.rank_logs[&0].cause().map(str::to_owned)
        };
        assert_eq!(cause(failed).as_deref(), Some("KeyError: 'a'"));
        let steps = "[Rank 0] step 1\n[Rank 0] step 2\n[Rank 0] step 3\n";
        assert_eq!(cause(&format!("{failed}{steps}")), None);
    }

    #[test]
    fn a_process_of_a_logger_that_tells_its_rank_is_that_rank() {
        let lines = "INFO:41:dist:init rank 1/2\nINFO:40:dist:init rank 0/2\nINFO:41:train:Before x\nINFO:99:data:Before x";
        assert_eq!(marks(&source_logs("job.log", lines))[1], (1, 1));
    }

    #[test]
    fn a_line_without_a_rank_belongs_to_no_rank() {
        let source_logs = source_logs("job.log", "[Rank 0] Before x\nAfter x\nKeyError: 'a'");
        assert_eq!(marks(&source_logs), [(0, 1)]);
        assert_eq!(source_logs.stray.errors.len(), 1);
    }
}
