//! The part of running a world that does I/O: it waits for events, passes them to the state machine, and performs its
//! actions.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::block_in_place;
use tokio::time::Instant;
use tokio::time::timeout_at;

use super::clock::WorldClock;
use super::event::Action;
use super::event::Event;
use super::plan::WorldPlan;
use super::processor_times::NotedTimes;
use super::processor_times::ProcessorTimes;
use super::processor_times::time_ready;
use super::result::WorldResult;
use super::state::WorldState;
use crate::check_result::CheckResult;
use crate::run::interruption;
use crate::run::rank_run::RankRun;
use crate::world::World;
use allranks_model::names::Rank;
use allranks_model::outcome::Outcome;

/// What takes the results of a world's checks: what is known of its ranks, the check's place, and what happened in it.
pub type Decided<'a> = dyn FnMut(&[RankRun], usize, CheckResult) + Send + 'a;

/// The largest number of times that one world is given its limit again because the machine is late.
const EXTENSIONS: u32 = 9;

/// What is late when something should have moved.
enum Late {
    /// The ranks.
    Ranks,
    /// The machine; the ranks have been given more time.
    Extended,
    /// The machine, and the ranks have been given more time too often; the text says how little they were let run.
    GivenUp(String),
}

/// Runs one world.
pub struct WorldRunner<'a> {
    world: World,
    state: WorldState<'a>,
    /// The state machine's time.
    clock: WorldClock,
    /// The ranks' processor times when more time was given for their imports.
    imported: ProcessorTimes,
    /// When something moved last, in the state machine's time, and the ranks' processor times soon after.
    early: Option<(Duration, NotedTimes)>,
    /// The ranks' processor times when the host was last asked for facts; none before.
    looked: Option<NotedTimes>,
    /// How many times more time was given.
    extensions: u32,
    /// How long a rank was at most ready to run, and was not let, when the initialisation began; none before.
    waited_before_init: Option<Duration>,
    /// How long a rank was at most ready to run, and was not let, from then until the initialisation failed; none if it has not.
    waited_in_init: Option<Duration>,
    /// The rank whose process is to end, and its processor times when the world began to wait for that; none if it waits for
    /// none.
    ending: Option<(Rank, NotedTimes)>,
    interrupt: watch::Receiver<bool>,
    /// True if the state machine has been told of the interrupt.
    is_interrupted: bool,
}

impl<'a> WorldRunner<'a> {
    /// Makes a runner for a world whose processes have been started.
    pub fn new(plan: WorldPlan<'a>, world: World, interrupt: watch::Receiver<bool>) -> Self {
        Self {
            world,
            state: WorldState::new(plan),
            clock: WorldClock::new(Instant::now()),
            imported: ProcessorTimes::default(),
            early: None,
            looked: None,
            extensions: 0,
            waited_before_init: None,
            waited_in_init: None,
            ending: None,
            interrupt,
            is_interrupted: false,
        }
    }

    /// Runs the world to its end; afterwards no process of it is left. `decided` is given the result of each check as soon as
    /// nothing in this world can change it; the `WorldResult` then holds none of them.
    pub async fn run(mut self, decided: &mut Decided<'_>) -> WorldResult {
        loop {
            let mut next = self.next().await;
            if matches!(next, Event::Deadline) {
                let wakeup = self.next_wakeup();
                if wakeup.is_some_and(|wakeup| self.clock.exclude_delay(wakeup, Instant::now()))
                    || self.note_early()
                {
                    continue;
                }
                match self.find_late() {
                    Late::Ranks => {}
                    Late::Extended => continue,
                    Late::GivenUp(why) => next = Event::GivenUp(why),
                }
            }
            let mut events = VecDeque::from([next]);
            while let Some(event) = events.pop_front() {
                let (is_look, began) = (matches!(event, Event::Host(_)), Instant::now());
                let actions = self.pass_event(event);
                self.measure_init();
                self.measure_end();
                if is_look {
                    self.clock.exclude_since(began, Instant::now());
                }
                for (index, check_result) in self.state.take_settled() {
                    // Without a result the check is made again in the next world, or is not run.
                    if self.stands(&check_result).await {
                        decided(self.state.ranks(), index, check_result);
                    }
                }
                for action in actions {
                    match action {
                        Action::Send(rank, header, payload) => {
                            self.world.send(rank, header, payload);
                        }
                        Action::Resume(rank) => self.world.resume(rank),
                        Action::Kill(rank) => self.world.kill(rank),
                        Action::AskHost(query) => {
                            let asked = Instant::now();
                            let mut facts = self.world.facts(&query).await;
                            facts.is_machine_busy = self.has_kept_ranks_waiting();
                            self.clock.exclude_since(asked, Instant::now());
                            events.push_back(Event::Host(facts));
                        }
                        Action::AskMemory => {
                            events.push_back(Event::Memory(self.world.memory().await));
                        }
                        Action::ReapOrphans => {
                            events.push_back(Event::OrphansReaped(self.world.reap_orphans().await));
                        }
                        Action::Finish(mut result) => {
                            let _ = self.world.reap_orphans().await;
                            result.waited_in_init = self.waited_in_init;
                            while let Some((index, check_result)) = result.checks.pop_first() {
                                if self.stands(&check_result).await {
                                    result.note_decided(index, &check_result);
                                    decided(&result.ranks, index, check_result);
                                }
                            }
                            for frame in [&mut result.init, &mut result.end] {
                                if let Some(check_result) = frame
                                    && !self.stands(check_result).await
                                {
                                    *frame = None;
                                }
                            }
                            return *result;
                        }
                    }
                }
            }
        }
    }

    /// Notes how long ranks have waited for a processor when their initialisation begins and when it has failed, before the
    /// actions that follow from that: afterwards the processes may be gone. The look is short, and gives no thread away for
    /// others: there may be none.
    fn measure_init(&mut self) {
        match self.waited_before_init {
            None if self.state.initialises() => self.waited_before_init = Some(self.waited()),
            Some(before) if self.waited_in_init.is_none() && self.state.has_failed_init() => {
                self.waited_in_init = Some(self.waited().saturating_sub(before));
            }
            None | Some(_) => {}
        }
    }

    /// Notes the processor times of a process when the world begins to wait for its end.
    fn measure_end(&mut self) {
        let awaited = self.state.awaited_end().map(|(rank, _)| rank);
        if self.ending.as_ref().map(|(rank, _)| *rank) != awaited {
            self.ending =
                awaited.map(|rank| (rank, NotedTimes::now(self.processor_times_of(rank))));
        }
    }

    /// Returns true if a result stands: the check passed, or failed while all nodes of the world were alive. When a node is
    /// lost, the ranks on the others fail for it, which can be known before the loss is.
    async fn stands(&self, check_result: &CheckResult) -> bool {
        check_result.outcome == Outcome::Pass || self.world.confirm().await.is_ok()
    }

    /// Returns the next event. Frames that have arrived come before a deadline that has passed.
    async fn next(&mut self) -> Event {
        let deadline = self.next_wakeup().map(|time| self.clock.instant(time));
        let rank_event = async {
            match deadline {
                Some(deadline) => {
                    let event = timeout_at(deadline, self.world.next()).await;
                    event.map_or(Event::Deadline, Event::Rank)
                }
                None => Event::Rank(self.world.next().await),
            }
        };
        tokio::select! {
            event = rank_event => event,
            () = interruption(&mut self.interrupt), if !self.is_interrupted => {
                self.is_interrupted = true;
                Event::Interrupted
            }
        }
    }

    /// Returns when to wake up if no event comes: at the next deadline of the state machine, or before that when processor
    /// times must be recorded (see [`Self::early_time`]). None if the state machine waits without a deadline.
    fn next_wakeup(&self) -> Option<Duration> {
        let deadline = self.state.deadline()?;
        Some(
            self.early_time()
                .map_or(deadline, |early| early.min(deadline)),
        )
    }

    /// Returns the state machine's time.
    fn now(&self) -> Duration {
        self.clock.time(Instant::now())
    }

    /// Returns when to record the ranks' processor times for [`Self::late_step`]: when a tenth of the limit has passed without
    /// progress. Most steps are over before that. None if they are recorded already, or ranks are not at work.
    fn early_time(&self) -> Option<Duration> {
        let (progress, limit) = self.state.quiet_limit()?;
        let is_noted = self
            .early
            .as_ref()
            .is_some_and(|(noted, _)| *noted == progress);
        (!is_noted).then(|| progress + limit / 10)
    }

    /// Records the ranks' processor times if [`Self::early_time`] has come. Returns true if it did.
    fn note_early(&mut self) -> bool {
        let is_due = |early: Duration| early <= self.now();
        if !self.early_time().is_some_and(is_due) {
            return false;
        }
        let progress = self.state.quiet_limit().map(|(progress, _)| progress);
        let times = block_in_place(|| self.processor_times());
        self.early = progress.map(|progress| (progress, NotedTimes::now(times)));
        true
    }

    /// Finds out, when a deadline has passed without progress, whether the ranks are late or the machine.
    fn find_late(&mut self) -> Late {
        if let Some((rank, limit)) = self.state.awaited_end() {
            return self.late_end(rank, limit);
        }
        let unreported = self.state.unreported_ends();
        if !unreported.is_empty() && unreported.iter().all(|rank| self.has_ended(*rank)) {
            return self.extend("the end of the last processes was not reported");
        }
        match (self.state.import_limit(), self.state.quiet_limit()) {
            (Some(limit), _) => self.late_import(limit),
            (None, Some((progress, limit))) if progress + limit <= self.now() => {
                self.late_step(progress, limit)
            }
            (None, _) => Late::Ranks,
        }
    }

    /// Gives a process of this host more time to end after its connection broke, if it waits for a processor, or has ended and
    /// its parent has not reported that yet.
    fn late_end(&mut self, rank: Rank, limit: Duration) -> Late {
        let times = block_in_place(|| self.processor_times_of(rank));
        let noted = self.ending.as_ref().filter(|(of, _)| *of == rank);
        let Some((passed, since)) = noted.map(|(_, note)| note.since(times)) else {
            return Late::Ranks;
        };
        if (!self.is_zombie(rank) && !since.was_kept_waiting(passed)) || since.used >= limit {
            return Late::Ranks;
        }
        let used = times.used.as_secs_f64();
        self.extend(&format!(
            "rank {rank} was let run for {used:.1} s, and its process did not end"
        ))
    }

    /// Returns true if the process of a rank of this host has ended and its parent has not reported that yet.
    fn is_zombie(&self, rank: Rank) -> bool {
        self.pid(rank).and_then(allranks_host::state) == Some('Z')
    }

    /// Returns true if no process of a rank of this host runs any more.
    fn has_ended(&self, rank: Rank) -> bool {
        let pid = self.pid(rank);
        pid.is_some_and(|pid| matches!(allranks_host::state(pid), None | Some('Z')))
    }

    /// Gives ranks that are importing more time, if they make progress: if they have used or waited for a processor since the
    /// last extension. They get at most ten times the limit, and no more processor time than the limit.
    fn late_import(&mut self, limit: Duration) -> Late {
        let times = block_in_place(|| self.processor_times());
        if !times.since(self.imported).could_run(limit) || times.used >= limit {
            return Late::Ranks;
        }
        self.imported = times;
        self.extend(&no_rank_run_longer(times.used))
    }

    /// Gives ranks more time if they make progress but wait for a processor: then the machine is late. Ranks that wait for each
    /// other neither use a processor nor wait for one, and a rank that polls for ever has at some time used the whole limit.
    fn late_step(&mut self, progress: Duration, limit: Duration) -> Late {
        let noted = self.early.as_ref().filter(|(of, _)| *of == progress);
        let times = block_in_place(|| self.processor_times());
        let Some((passed, since)) = noted.map(|(_, note)| note.since(times)) else {
            return Late::Ranks;
        };
        if !since.is_machine_late(passed) || since.used >= limit {
            return Late::Ranks;
        }
        self.extend(&no_rank_run_longer(times.used))
    }

    /// Restarts the limit that has passed, if that has not been done too often. `little` says how little the ranks have run,
    /// for the message otherwise.
    fn extend(&mut self, little: &str) -> Late {
        if self.extensions >= EXTENSIONS {
            let passed = self.clock.since_beginning(Instant::now());
            let passed = passed.as_secs_f64();
            return Late::GivenUp(format!(
                "the machine is too busy: in {passed:.0} s {little}"
            ));
        }
        self.extensions += 1;
        let progress = self.state.quiet_limit().map(|(progress, _)| progress);
        let now = self.clock.record_event(Instant::now());
        self.state.restart_limit(now);
        // The processor times that are recorded already stay the ones to compare with.
        if let Some((noted, _)) = &mut self.early
            && Some(*noted) == progress
        {
            *noted = now;
        }
        Late::Extended
    }

    /// Returns the ranks' processor times; zero for ranks on other hosts.
    fn processor_times(&self) -> ProcessorTimes {
        ProcessorTimes::of(&self.roots())
    }

    /// Returns true if a rank was ready to run for much of the time since the host was last asked for facts, and others ran.
    fn has_kept_ranks_waiting(&mut self) -> bool {
        let times = block_in_place(|| self.processor_times());
        let before = self.looked.replace(NotedTimes::now(times));
        before.is_some_and(|before| {
            let (passed, since) = before.since(times);
            since.was_kept_waiting(passed)
        })
    }

    /// Returns a rank's processor times; zero for one on another host.
    fn processor_times_of(&self, rank: Rank) -> ProcessorTimes {
        ProcessorTimes::of(self.pid(rank).as_slice())
    }

    /// Returns the longest time for which a rank was ready to run while others ran; zero for ranks on other hosts.
    fn waited(&self) -> Duration {
        time_ready(&self.roots())
    }

    /// Returns the process of a rank; none if it is not known, or on another host.
    fn pid(&self, rank: Rank) -> Option<u32> {
        let pid = self.state.ranks()[rank.index()].pid();
        (pid > 0 && self.world.roots().is_some()).then_some(pid)
    }

    /// Returns the processes below which ranks of this host run; none for ranks on other hosts.
    fn roots(&self) -> Vec<u32> {
        match self.world.roots() {
            Some(roots) if roots.is_empty() => {
                let pids = self.state.ranks().iter().map(RankRun::pid);
                pids.filter(|pid| *pid > 0).collect()
            }
            roots => roots.unwrap_or_default(),
        }
    }

    /// Passes an event to the state machine, and returns its actions. Comparing large tensors and diagnosing a hang take long:
    /// other worlds go on meanwhile.
    fn pass_event(&mut self, event: Event) -> Vec<Action> {
        let takes_long = matches!(event, Event::Host(_)) || self.state.holds_much();
        let now = self.clock.record_event(Instant::now());
        match takes_long {
            true => block_in_place(|| self.state.on(event, now)),
            false => self.state.on(event, now),
        }
    }
}

fn no_rank_run_longer(than: Duration) -> String {
    let seconds = than.as_secs_f64();
    format!("no rank was let run for more than {seconds:.1} s")
}
