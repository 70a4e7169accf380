//! The part of running a world that does I/O: it waits for events, passes them to the state machine, and performs its
//! actions.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::block_in_place;
use tokio::time::Instant;
use tokio::time::timeout_at;

use super::event::Action;
use super::event::Event;
use super::plan::WorldPlan;
use super::result::WorldResult;
use super::state::WorldState;
use crate::check_result::CheckResult;
use crate::run::interruption;
use crate::run::rank_run::RankRun;
use crate::world::World;
use allranks_model::outcome::Outcome;

/// What takes the findings of a world: what is known of its ranks, the check's place, and what happened in it.
pub type Decided<'a> = dyn FnMut(&[RankRun], usize, CheckResult) + Send + 'a;

/// How many times ranks that import are given the time again that they may take.
const EXTENSIONS: u32 = 9;
/// The share of the time, as its denominator, for which a rank must have been let run to be given more.
const LEAST_SHARE: u32 = 50;

/// Runs one world.
pub struct WorldRunner<'a> {
    world: World,
    state: WorldState<'a>,
    /// The origin of the state machine's time.
    began: Instant,
    /// How far the state machine's time is behind: on a busy machine, time in which ranks that import were hardly let run.
    behind: Duration,
    /// The state machine's time when it was told of something last.
    told: Duration,
    /// Processor time that the ranks had used when more time was given for their imports.
    used: Duration,
    /// How many times more time was given.
    extensions: u32,
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
            began: Instant::now(),
            behind: Duration::ZERO,
            told: Duration::ZERO,
            used: Duration::ZERO,
            extensions: 0,
            interrupt,
            is_interrupted: false,
        }
    }

    /// Runs the world to its end; afterwards no process of it is left. `decided` is given each finding as soon as nothing in
    /// this world can change it, and the result has none.
    pub async fn run(mut self, decided: &mut Decided<'_>) -> WorldResult {
        loop {
            let next = self.next().await;
            if matches!(next, Event::Deadline) && self.extend() {
                continue;
            }
            let mut events = VecDeque::from([next]);
            while let Some(event) = events.pop_front() {
                let actions = self.tell(event);
                for (index, finding) in self.state.take_settled() {
                    // Without a result the check is made again in the next world, or is not run.
                    if self.stands(&finding).await {
                        decided(self.state.ranks(), index, finding);
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
                            events.push_back(Event::Host(self.world.facts(&query).await));
                        }
                        Action::AskMemory => {
                            events.push_back(Event::Memory(self.world.memory().await));
                        }
                        Action::Sweep => {
                            events.push_back(Event::Swept(self.world.sweep().await));
                        }
                        Action::Finish(mut result) => {
                            let _ = self.world.sweep().await;
                            while let Some((index, finding)) = result.checks.pop_first() {
                                if self.stands(&finding).await {
                                    result.note_decided(index, &finding);
                                    decided(&result.ranks, index, finding);
                                }
                            }
                            for frame in [&mut result.init, &mut result.end] {
                                if let Some(finding) = frame
                                    && !self.stands(finding).await
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

    /// Returns true if a finding stands: it passed, or failed while all nodes of the world were alive. When a node is lost, the
    /// ranks on the others fail for it, which can be known before the loss is.
    async fn stands(&self, finding: &CheckResult) -> bool {
        finding.outcome == Outcome::Pass || self.world.confirm().await.is_ok()
    }

    /// Returns the next event. Frames that have arrived come before a deadline that has passed.
    async fn next(&mut self) -> Event {
        let deadline = self
            .state
            .deadline()
            .map(|time| self.began + self.behind + time);
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

    /// Gives ranks that are importing more time, if the processor time that they have used since shows that they get on. Returns
    /// false when they have had ten times as much as a quiet machine would need, or the processor time for it.
    fn extend(&mut self) -> bool {
        let Some(limit) = self.state.import_limit() else {
            return false;
        };
        let used = block_in_place(|| self.processor_time());
        let more = used.saturating_sub(self.used);
        if more * LEAST_SHARE < limit || used >= limit || self.extensions >= EXTENSIONS {
            return false;
        }
        self.used = used;
        self.extensions += 1;
        self.behind = self.began.elapsed().saturating_sub(self.told);
        true
    }

    /// Returns the processor time of the rank that has used most of it; zero for ranks on other hosts.
    fn processor_time(&self) -> Duration {
        let Some(mut roots) = self.world.roots() else {
            return Duration::ZERO;
        };
        if roots.is_empty() {
            let pids = self.state.ranks().iter().map(RankRun::pid);
            roots = pids.filter(|pid| *pid > 0).collect();
        }
        let times = roots.into_iter().map(allranks_host::processor_time);
        times.max().unwrap_or_default()
    }

    /// Passes an event to the state machine. Comparing large tensors and diagnosing a hang take long; other worlds go
    /// on meanwhile.
    fn tell(&mut self, event: Event) -> Vec<Action> {
        let takes_long = matches!(event, Event::Host(_)) || self.state.holds_much();
        let now = self.began.elapsed().saturating_sub(self.behind);
        self.told = now;
        match takes_long {
            true => block_in_place(|| self.state.on(event, now)),
            false => self.state.on(event, now),
        }
    }
}
