//! Splits logs by rank, and reads what each rank wrote, in order.

use std::sync::LazyLock;

use regex::Regex;

use super::arrival::Arrival;
use super::collective_trace::CollectiveTrace;
use super::connection::Connection;
use super::environment::Environment;
use super::failure::{Failures, TracebackEnd, says_that_it_goes_on};
use super::faulthandler::Faulthandler;
use super::group_creations::GroupCreations;
use super::group_members::GroupMembers;
use super::line::LogLine;
use super::message_tags::MessageTags;
use super::message_timeouts::MessageTimeouts;
use super::moment::Moment;
use super::node_failures::own_node;
use super::phase::{Edge, Mark, Nature, mark};
use super::restart::Kept;
use super::watchdog::Watchdog;
use crate::{ErrorCause, error_cause};

/// Marks that are kept of a rank; of more, the later ones are, and the rank's log counts as cut.
const MARKS: usize = 20_000;
/// Errors that are kept of a rank; of more, the later ones are.
const ERRORS: usize = 200;

/// What one rank wrote.
#[derive(Clone, Debug, Default)]
pub(super) struct RankLog {
    /// What its lines say of phases, each with the line's time.
    pub(super) marks: Vec<(Mark, Option<Moment>)>,
    /// Errors after which it has not gone on with steps, and has not finished.
    pub(super) errors: Vec<LoggedError>,
    /// When it first wrote an error.
    pub(super) failed: Option<Moment>,
    /// When its launcher first said that it had been told to stop, by SIGTERM.
    pub(super) told_to_stop: Option<Moment>,
    /// Where the last traceback ends, and the number of marks before it.
    pub(super) place: Option<(TracebackEnd, usize)>,
    pub(super) environment: Environment,
    pub(super) connection: Connection,
    pub(super) watchdog: Watchdog,
    pub(super) collective_trace: CollectiveTrace,
    pub(super) group_members: GroupMembers,
    pub(super) message_timeouts: MessageTimeouts,
    pub(super) message_tags: MessageTags,
    pub(super) group_creations: GroupCreations,
    /// The node that it says it runs on; `None` if it says nothing of it.
    pub(super) node: Option<String>,
    /// Whether the logs show more of it than its environment.
    pub(super) has_written: bool,
    /// The files that have lines of it.
    pub(super) files: usize,
    /// The time of its last line with a time; `None` if no line has one.
    pub(super) last: Option<Moment>,
    /// The step or epoch that it wrote of last, if no phase and no end came after it.
    pub(super) step: Option<String>,
    /// Whether it says that it has finished what it was started for.
    pub(super) is_finished: bool,
    /// The line of a debugger that waits for commands, if nothing shows that it went on.
    pub(super) debugger: Option<String>,
    /// Whether it says that it has found a hang.
    pub(super) has_found_hang: bool,
    /// Whether a stack that was printed shows where it is.
    pub(super) has_call_stack: bool,
    /// Whether a part of it was not kept.
    pub(super) is_cut: bool,
    /// Whether a file ends within a line: more may be in a buffer.
    pub(super) is_torn: bool,
    failures: Failures,
    faulthandler: Faulthandler,
    /// Whether the line before ended an error.
    is_after_error: bool,
    /// What ended it each time before its launcher said that a start of the job has failed.
    earlier: Vec<Attempt>,
}

/// How one start of a rank ended.
#[derive(Clone, Debug, Default)]
struct Attempt {
    errors: Vec<LoggedError>,
    place: Option<(TracebackEnd, usize)>,
    watchdog: Watchdog,
    failed: Option<Moment>,
}

/// An error that one rank wrote.
#[derive(Clone, Debug)]
pub(super) struct LoggedError {
    text: String,
    /// The number of marks before it.
    at: usize,
    /// Whether the process cannot have gone on after it.
    is_fatal: bool,
    /// Whether it may have been caught, as far as its traceback shows.
    may_be_caught: bool,
    /// Whether the rank has written lines with a time after it.
    is_passed: bool,
}

static STEP: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(
        r"(?i)\b(?:epoch|ep|step|iter|it|itr|iteration|batch|round)s?(?:\b|\((?:train|val|test)\))[ :=#\[]*\d+(?:/\d+)?",
    )
    .ok()
});
/// Where a debugger has stopped: `> /home/u/train.py(96)train_one_epoch()`.
static PLACE: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"^> \S+\.py\(\d+\)\S+\(\)").ok());
/// What a rank says when it is about to end.
static ENDING: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(
        r"(?i)\b(?:shut(?:ting|s)?[ -]?down|exit(?:ing|ed|s)?|clean(?:ing|ed)?[ -]?up|abort(?:ing|ed|s)?|terminat(?:e|es|ed|ing)|fail(?:ed|ing|ure|s)?|fatal|crash(?:ed|ing)?|stop(?:ped|ping|s)?|clos(?:ed?|ing)|kill(?:ed|ing)?|destroy(?:ed|ing)?|finali[sz](?:e|ed|ing)|teardown|giv(?:en?|ing) up|gave up|errors?|exceptions?|died|dead|upload(?:ed|ing)?|sav(?:e|ed|ing))\b",
    )
    .ok()
});
static FINISHED: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(
        r"(?i)(?:^\W*|[,;] )(?:training|finetuning|fine-tuning|job|run|evaluation|everything|all)(?: is| has| was)? ?(?:done|complete[d]?|finished|over)\b|\bexit(?:ed)?(?: with)?[ _]?(?:code|status)[=: ]+0\b|^(?:finished |ended |done |exit(?:ed|ing)? )(?:with )?(?:exit )?(?:code|status)[=: ] ?0\W*$|^\W*(?:process |rank |worker )?(?:\d+ )?(?:exit|exited|finished)(?:,? exit| 0| cleanly| normally)?\W*$|\b(?:main\(\) returned|returning from main\(\))|\b(?:returned|finished|done|over|exiting),? bye\W*$|\ball (?:\d+ )?(?:epochs|steps|iterations) (?:are )?(?:done|finished|completed?)\b|,? exit(?:ed)? 0\W*$|\(status 0\)|^\W*done after \d+ (?:iters|iterations|steps|epochs)\b|^\W*done, \w|\breached max[_ ]?(?:steps|epochs|iters|iterations)\b|\breturned, (?:.*, )?exiting\b|\bclosed cleanly\b|Trainer\.fit` stopped|Application startup complete|ready to roll",
    )
    .ok()
});

/// Returns true if a line may be one of those that a rank writes before it ends.
fn tells_of_end(text: &str) -> bool {
    let ending = ENDING.as_ref();
    ending.is_some_and(|ending| ending.is_match(text))
}

/// Returns true if a debugger has written a line, `> train.py(96)step()` or its prompt, and waits for commands.
pub(super) fn is_of_debugger(text: &str) -> bool {
    if text.starts_with("(Pdb") || text.starts_with("ipdb>") {
        return true;
    }
    let is_place = || PLACE.as_ref().is_some_and(|place| place.is_match(text));
    text.starts_with("> ") && is_place()
}

impl RankLog {
    /// Reads a line. Returns true if it is about a step or an epoch.
    pub(super) fn read(&mut self, line: &LogLine<'_>) -> bool {
        let text = &*line.text;
        self.has_written = true;
        if line.moment.is_some() {
            self.last = line.moment;
        }
        if self.faulthandler.read(text) {
            return false;
        }
        self.environment.read(text);
        self.connection.read(text);
        self.watchdog.read(text);
        self.collective_trace.read(text);
        self.group_members.read(text);
        self.message_timeouts.read(text);
        self.message_tags.read(text);
        self.group_creations.read(text);
        if is_of_debugger(text) {
            self.debugger = Some(text.trim().to_owned());
            return false;
        }
        if let Some(node) = own_node(text) {
            self.node = Some(node.to_owned());
        }
        self.has_found_hang |= text.starts_with("Hang detected");
        if text.contains("Received 15 death signal") {
            self.told_to_stop = self.told_to_stop.or(self.last);
        }
        if self.read_error(text) {
            self.failed = self.failed.or(self.last);
            self.is_after_error = true;
            return false;
        }
        self.pass_errors(line);
        let finishes = FINISHED
            .as_ref()
            .is_some_and(|pattern| pattern.is_match(text));
        if finishes {
            self.faulthandler.go_on();
            self.is_finished = true;
            self.step = None;
            // Also one that ended an earlier start of the rank.
            self.errors.clear();
            self.watchdog = Watchdog::default();
            self.place = None;
            self.failed = None;
        }
        // What a rank does last, after an error, is no phase of its work.
        let is_ending = |mark: &Mark| {
            !self.errors.is_empty() && mark.nature == Nature::Own && tells_of_end(text)
        };
        if let Some(mark) = mark(text).filter(|mark| !is_ending(mark)) {
            self.faulthandler.go_on();
            self.push(mark, line.moment);
        } else if !finishes && let Some(step) = STEP.as_ref().and_then(|step| step.find(text)) {
            if let Some((last, _)) = self.marks.last()
                && (last.nature.clone(), last.edge) == (Nature::Init, Edge::Begin)
            {
                self.meet();
            }
            self.step = Some(step.as_str().to_lowercase());
            self.is_finished = false;
            self.faulthandler.go_on();
            self.go_on();
            return true;
        }
        false
    }

    /// Reads a line that tells how far a rank has come in the rendezvous.
    pub(super) fn arrive(&mut self, line: &LogLine<'_>, arrival: &Arrival) {
        self.has_written = true;
        self.environment.world_size = arrival.world_size.or(self.environment.world_size);
        self.environment.rank = arrival.claimed.or(self.environment.rank);
        self.last = line.moment.or(self.last);
        // The same is said again and again while it waits.
        let is_new = self
            .marks
            .last()
            .is_none_or(|(last, _)| *last != arrival.mark);
        if is_new {
            self.push(arrival.mark.clone(), line.moment);
        }
        self.read_error(&line.text);
    }

    /// Puts aside how this start of the rank has ended: the launcher says that the job has failed, and may start it again.
    pub(super) fn end_attempt(&mut self) {
        self.earlier.push(Attempt {
            errors: std::mem::take(&mut self.errors),
            place: self.place.take(),
            watchdog: std::mem::take(&mut self.watchdog),
            failed: self.failed.take(),
        });
    }

    /// Takes back what [`Self::end_attempt`] has put aside of the starts that count.
    pub(super) fn keep_attempts(&mut self, kept: Kept) {
        let all = std::mem::take(&mut self.earlier);
        let from = match kept {
            Kept::All => 0,
            // Each host's launcher has said it of each start.
            Kept::Last(starts) => all.len() - all.len().div_ceil(starts),
            Kept::None => all.len(),
        };
        all.into_iter()
            .skip(from)
            .rev()
            .for_each(|attempt| self.keep(attempt));
    }

    /// Takes back how an earlier start ended.
    fn keep(&mut self, earlier: Attempt) {
        let later = std::mem::replace(&mut self.errors, earlier.errors);
        self.errors.extend(later);
        self.place = self.place.take().or(earlier.place);
        self.failed = earlier.failed.or(self.failed);
        let later = std::mem::replace(&mut self.watchdog, earlier.watchdog);
        self.watchdog.is_stuck |= later.is_stuck;
        self.watchdog.groups.extend(later.groups);
    }

    /// Notes where a stack that was printed shows it to be. It has not gone on for that: its last errors stay its last.
    pub(super) fn show(&mut self, mark: Mark) {
        self.has_written = true;
        self.has_call_stack = true;
        let before = self.marks.len();
        self.push(mark, None);
        self.keep_last(before);
    }

    /// Keeps errors the last that came after so many marks, although stacks have added marks since.
    fn keep_last(&mut self, before: usize) {
        let errors = self.errors.iter_mut().map(|error| &mut error.at);
        let places = errors.chain(self.place.as_mut().map(|(_, at)| at));
        for at in places.filter(|at| **at == before) {
            *at = self.marks.len();
        }
    }

    /// Notes where the last stack shows the rank to be: no more lines of it come.
    pub(super) fn close(&mut self) {
        if let Some(mark) = self.faulthandler.mark() {
            self.show(mark);
        }
        self.watchdog.close();
    }

    /// Notes that all ranks have met at the rendezvous.
    pub(super) fn meet(&mut self) {
        let (edge, name) = (Edge::End, "init_process_group".to_owned());
        let nature = Nature::Init;
        self.push(Mark { edge, name, nature }, None);
    }

    /// Notes what a line says of the errors before it: the one right after a traceback may say that the rank goes on, and any line
    /// with a time shows that it has not ended there.
    fn pass_errors(&mut self, line: &LogLine<'_>) {
        if self.errors.is_empty() {
            return;
        }
        let is_next = std::mem::take(&mut self.is_after_error);
        if is_next
            && says_that_it_goes_on(&line.text)
            && self.errors.pop_if(|error| error.may_be_caught).is_some()
        {
            self.place = None;
        }
        if line.moment.is_some() && !tells_of_end(&line.text) {
            for error in &mut self.errors {
                error.is_passed |= error.may_be_caught;
            }
        }
    }

    /// Drops errors that the rank has caught, since it makes another step. What ends a process stays: a buffer may hold the lines
    /// of earlier steps until then.
    fn go_on(&mut self) {
        self.debugger = None;
        self.message_timeouts = MessageTimeouts::default();
        let before = self.errors.len();
        self.errors.retain(|error| error.is_fatal);
        if self.errors.len() < before {
            self.place = None;
            self.failed = None;
        }
    }

    fn read_error(&mut self, text: &str) -> bool {
        let Some(failure) = self.failures.read(text) else {
            return false;
        };
        if self.errors.len() >= ERRORS {
            self.errors.remove(0);
        }
        self.errors.push(LoggedError {
            text: failure.text,
            at: self.marks.len(),
            is_fatal: failure.is_fatal,
            may_be_caught: failure.may_be_caught,
            is_passed: false,
        });
        if let Some(place) = failure.place {
            self.place = Some((place, self.marks.len()));
        }
        true
    }

    fn push(&mut self, mark: Mark, moment: Option<Moment>) {
        self.step = None;
        if self.marks.len() >= MARKS {
            let gone = MARKS / 2;
            self.marks.drain(..gone);
            self.is_cut = true;
            let places = self.errors.iter_mut().map(|error| &mut error.at);
            for at in places.chain(self.place.as_mut().map(|(_, at)| at)) {
                *at = at.saturating_sub(gone);
            }
        }
        self.marks.push((mark, moment));
    }

    /// Adds what the same rank wrote into another file. Which of two files' lines came first is not known, so the
    /// errors of a file without phases come last.
    pub(super) fn merge(&mut self, mut other: Self) {
        // A stack was printed when nothing moved any more.
        if self.has_call_stack && !other.has_call_stack {
            std::mem::swap(self, &mut other);
        }
        let is_stack = other.has_call_stack && !self.has_call_stack;
        let place = |log: &Self, offset: usize, place: usize| match log.marks.is_empty() {
            true => usize::MAX,
            false => place.saturating_add(offset),
        };
        let before = self.marks.len();
        for error in &mut self.errors {
            if before == 0 {
                error.at = usize::MAX;
            }
        }
        let theirs = other.errors.iter();
        let theirs: Vec<_> = theirs
            .map(|error| LoggedError {
                at: place(&other, before, error.at),
                ..error.clone()
            })
            .collect();
        self.errors.extend(theirs);
        if let Some((theirs, at)) = &other.place {
            self.place = Some((theirs.clone(), place(&other, before, *at)));
        } else if before == 0
            && let Some((_, at)) = &mut self.place
        {
            *at = usize::MAX;
        }
        self.step = other.step.or(self.step.take());
        self.is_finished |= other.is_finished;
        self.marks.extend(other.marks);
        if is_stack && before > 0 {
            self.keep_last(before);
        }
        let environment = other.environment;
        self.environment = Environment {
            host: environment.host.or(self.environment.host.take()),
            port: environment.port.or(self.environment.port),
            world_size: environment.world_size.or(self.environment.world_size),
            rank: environment.rank.or(self.environment.rank),
            url: environment.url.or(self.environment.url.take()),
        };
        self.connection.merge(other.connection);
        self.node = other.node.or(self.node.take());
        self.group_members.merge(other.group_members);
        self.message_timeouts.merge(other.message_timeouts);
        self.message_tags.merge(other.message_tags);
        self.group_creations.merge(other.group_creations);
        if other.collective_trace.size() > self.collective_trace.size() {
            self.collective_trace = other.collective_trace;
        }
        self.files += other.files;
        self.has_written |= other.has_written;
        self.failed = first(self.failed, other.failed);
        self.told_to_stop = first(self.told_to_stop, other.told_to_stop);
        self.watchdog.is_stuck |= other.watchdog.is_stuck;
        for (group, works) in other.watchdog.groups {
            self.watchdog.groups.entry(group).or_insert(works);
        }
        let later = match (self.last, other.last) {
            (Some(one), Some(other)) => other.since(one).is_some_and(|seconds| seconds > 0.0),
            (one, _) => one.is_none(),
        };
        if later {
            self.last = other.last;
        }
        self.has_call_stack |= other.has_call_stack;
        self.has_found_hang |= other.has_found_hang;
        self.debugger = self.debugger.take().or(other.debugger);
        self.is_cut |= other.is_cut;
        self.is_torn |= other.is_torn;
    }

    /// Returns true if it has raised an error that no later line shows to be caught, or gave up because of others.
    pub(super) fn has_failed(&self) -> bool {
        let mut errors = self.last_errors();
        errors.any(|error| !error.is_passed || error_cause(&error.text) == ErrorCause::Effect)
    }

    /// Iterates over the errors after which the rank went on to nothing but tearing down.
    pub(super) fn final_errors(&self) -> impl Iterator<Item = &str> {
        self.last_errors().map(|error| error.text.as_str())
    }

    fn last_errors(&self) -> impl Iterator<Item = &LoggedError> {
        let went_on = self
            .marks
            .iter()
            .rposition(|(mark, _)| mark.nature != Nature::Destroy);
        let marks = went_on.map_or(0, |last| last + 1);
        self.errors.iter().filter(move |error| error.at >= marks)
    }

    /// Returns where the traceback of the rank's last lines ends, if they say only that it waited or was interrupted.
    pub(super) fn interrupted(&self) -> Option<&TracebackEnd> {
        let (place, at) = self.place.as_ref()?;
        let is_last = *at >= self.marks.len() && self.final_errors().next().is_some();
        (is_last && self.cause().is_none()).then_some(place)
    }

    /// Returns the first of its last errors that is not an effect of other ranks; `None` if there is none.
    pub(super) fn cause(&self) -> Option<&str> {
        self.final_errors()
            .find(|error| error_cause(error) != ErrorCause::Effect)
    }
}

/// Returns the earlier of two times; the first if they are written in different forms.
fn first(one: Option<Moment>, other: Option<Moment>) -> Option<Moment> {
    let later = one.zip(other).and_then(|(one, other)| one.since(other));
    match later {
        Some(seconds) if seconds > 0.0 => other,
        _ => one.or(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(text: &str) -> RankLog {
        let mut log = RankLog::default();
        for line in text.lines() {
            log.read(&LogLine::read(line));
        }
        log
    }

    #[test]
    fn an_error_that_was_caught_is_no_last_word() {
        let words = |text: &str| log(text).final_errors().count();
        let error = "Traceback (most recent call last):\n  File x\nOSError: disk full\n";
        assert_eq!(words(&format!("Before x\n{error}")), 1);
        assert_eq!(words(&format!("Before x\n{error}After x")), 0);
        assert_eq!(
            words(&format!("Before x\n{error}Before destroy_process_group")),
            1
        );
    }

    #[test]
    fn an_error_before_more_steps_was_caught() {
        let words = |text: &str| log(text).final_errors().count();
        let error = |outermost: &str| {
            format!(
                "step 3\nTraceback (most recent call last):\n  File \"a.py\", line 1, in {outermost}\nOSError: x\n"
            )
        };
        assert_eq!(words(&error("__iter__")), 1);
        assert_eq!(words(&format!("{}step 4", error("__iter__"))), 0);
        // The steps may have waited in a buffer until the process ended.
        assert_eq!(words(&format!("{}step 4", error("<module>"))), 1);
        assert_eq!(words(&format!("{}training finished", error("<module>"))), 0);
    }

    #[test]
    fn a_rank_that_writes_after_an_error_has_not_ended_there() {
        let failed = |frame: &str, after: &str| {
            let error = format!(
                "Traceback (most recent call last):\n  File \"a.py\", line 1, in {frame}\nRuntimeError: CUDA out of memory"
            );
            log(&format!("{error}\n{after}")).has_failed()
        };
        let line = "2026-11-28 14:42:53 - INFO - val dice 0.88";
        assert!(!failed("main", line));
        assert!(failed("main", ""));
        assert!(failed("<module>", line));
        assert!(failed("_bootstrap_inner", line));
        assert!(failed("main", "2026-11-28 14:42:53 - INFO - shutting down"));
        assert!(!failed("main", "that did not fit, trying again with 3"));
        assert!(failed("main", "that did not fit, giving up"));
    }

    #[test]
    fn a_rank_that_has_finished_waits_for_nothing() {
        let timeout = "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=3, OpType=ALLREDUCE) ran for 600020 milliseconds\n[PG 0 (default_pg) Rank 3] Timeout at NCCL work: 3, last enqueued NCCL work: 4, last completed NCCL work: 2.";
        assert!(log(timeout).watchdog.timed_out());
        let restarted = log(&format!("{timeout}\nstep 4\ntraining finished"));
        assert!(restarted.cause().is_none() && !restarted.watchdog.timed_out());
    }

    #[test]
    fn a_step_is_the_last_thing_until_something_else_is() {
        assert_eq!(
            log("After x\nepoch 0 step 5 loss 0.1").step.as_deref(),
            Some("epoch 0")
        );
        assert_eq!(log("ep 3 it 40/800 ce 1.2").step.as_deref(), Some("ep 3"));
        assert_eq!(log("step 5\nBefore x").step, None);
        let done = log("step 5\nTraining completed");
        assert!(done.is_finished && done.step.is_none());
        assert!(log("val dice 0.88, best model kept, all epochs done").is_finished);
    }

    #[test]
    fn a_rank_log_stays_small() {
        let long = "Before x of step 1\nAfter x of step 1\n".repeat(MARKS);
        let log = log(&format!("{long}KeyError: 'a'"));
        assert!(log.is_cut && log.marks.len() <= MARKS);
        assert_eq!(log.cause(), Some("KeyError: 'a'"));
    }
}
