//! A world without processes, for tests: the test plays every rank, the host and the clock.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::time::Duration;

use serde_json::Value;
use serde_json::json;

use super::event::Action;
use super::event::Event;
use super::fixture::CALLS;
use super::fixture::exit;
use super::fixture::ms;
use super::phase::Phase;
use super::plan::WorldPlan;
use super::result::WorldResult;
use super::state::WorldState;
use crate::run::setup::Endpoint;
use crate::run::setup::OpeningSteps;
use crate::world::Event as RankEvent;
use crate::world::Frame;
use crate::world::FrameError;
use crate::world::HostFacts;
use crate::world::HostQuery;
use crate::world::RankExit;
use allranks_host::Activity;
use allranks_model::names::Rank;
use allranks_protocol::Call;
use allranks_protocol::CallError;
use allranks_protocol::CallResult;
use allranks_protocol::CallStatus;
use allranks_protocol::FromRank;
use allranks_protocol::Hello;
use allranks_protocol::Step;
use allranks_protocol::StepResult;
use allranks_protocol::Tensor;
use allranks_protocol::ToRank;
use allranks_protocol::VERSION;
use allranks_suite::expectation::Expectations;
use allranks_suite::plan::Scenario;

/// A world in which the test plays everything but the state machine.
pub struct Simulation<'a> {
    /// The state machine under test.
    pub state: WorldState<'a>,
    /// The time since the world began.
    pub now: Duration,
    /// For each rank, the steps that it was sent and has not answered, with their payloads.
    pub inbox: Vec<VecDeque<(Step, Vec<u8>)>>,
    /// For each rank, the number of calls that it has entered of its first open step.
    entered: Vec<usize>,
    /// Queries to the host that have not been answered.
    pub queries: Vec<HostQuery>,
    /// All other actions, as text, in order: `go 0`, `finish 1`, `resume 1`, `kill 0`, `reap`, `memory`.
    pub done: Vec<String>,
    /// The world's result; none before its end.
    pub result: Option<WorldResult>,
}

impl<'a> Simulation<'a> {
    /// Makes a world of the scenario, for all its checks, in which nothing has happened.
    pub fn new(scenario: &'a Scenario, expectations: &'a Expectations) -> Self {
        let at = Endpoint::nowhere();
        let size = scenario.world_size;
        let state = WorldState::new(WorldPlan {
            scenario,
            checks: (0..scenario.checks.len()).collect(),
            opening_steps: size
                .ranks()
                .map(|rank| OpeningSteps::new(scenario, &at, "cpu", rank))
                .collect(),
            points: at.points(),
            expectations,
            seed: 0,
            import_patience: ms(120_000),
        });
        Self {
            state,
            now: Duration::ZERO,
            inbox: vec![VecDeque::new(); size.count()],
            entered: vec![0; size.count()],
            queries: Vec::new(),
            done: Vec::new(),
            result: None,
        }
    }

    /// Makes a world whose ranks have said hello and imported: those of several wait for rank 0 to enter the opening.
    pub fn imported(scenario: &'a Scenario, expectations: &'a Expectations) -> Self {
        let mut world = Self::new(scenario, expectations);
        world.hello_all();
        world.answer_all();
        world
    }

    /// Makes a world that has been opened, and whose first checks have been sent.
    pub fn opened(scenario: &'a Scenario, expectations: &'a Expectations) -> Self {
        let mut world = Self::new(scenario, expectations);
        world.hello_all();
        world.open();
        world
    }

    /// Lets every rank, having said hello, import and initialise.
    pub fn open(&mut self) {
        self.answer_all();
        if matches!(self.state.phase, Phase::HostEntering { .. }) {
            self.enter(0);
            self.wake();
        }
        if matches!(self.state.phase, Phase::Opening) {
            self.answer_all();
        }
    }

    fn size(&self) -> u32 {
        self.inbox.len() as u32
    }

    /// Passes an event to the state machine, at the current time.
    pub fn handle(&mut self, event: Event) {
        for action in self.state.on(event, self.now) {
            assert!(self.result.is_none(), "after the end: {action:?}");
            match action {
                Action::Send(rank, ToRank::Step(step), payload) => {
                    self.inbox[rank.index()].push_back((step, payload));
                }
                Action::Send(rank, ToRank::Go, _) => self.done.push(format!("go {rank}")),
                Action::Send(rank, ToRank::Finish, _) => self.done.push(format!("finish {rank}")),
                Action::Resume(rank) => self.done.push(format!("resume {rank}")),
                Action::Kill(rank) => self.done.push(format!("kill {rank}")),
                Action::AskHost(query) => self.queries.push(query),
                Action::AskMemory => self.done.push("memory".to_owned()),
                Action::ReapOrphans => self.done.push("reap".to_owned()),
                Action::Finish(result) => self.result = Some(*result),
            }
        }
    }

    /// Lets time pass without an event.
    pub fn pass(&mut self, time: Duration) {
        self.now += time;
    }

    /// Lets time pass until the state machine's deadline, and passes that on. Returns how long that was.
    pub fn wake(&mut self) -> Duration {
        let deadline = self.state.deadline().expect("it wants to be woken");
        let passed = deadline.saturating_sub(self.now);
        self.now += passed;
        self.handle(Event::Deadline);
        passed
    }

    /// Wakes the world until it kills its processes or `limit` has passed, on a host on which every process is alive.
    /// Returns how long that was.
    pub fn wake_until_killed(&mut self, limit: Duration) -> Duration {
        let began = self.now;
        while !self.is_killed() && self.now - began < limit {
            self.wake();
            if !self.queries.is_empty() {
                self.tell_host(&[]);
            }
        }
        self.now - began
    }

    /// Returns true if processes have been killed.
    pub fn is_killed(&self) -> bool {
        self.done.iter().any(|done| done.starts_with("kill"))
    }

    /// Removes and returns the actions besides the sending of steps.
    pub fn take_done(&mut self) -> Vec<String> {
        std::mem::take(&mut self.done)
    }

    /// Answers the oldest query: the processes of these ranks are stopped, and all others alive.
    pub fn tell_host(&mut self, stopped: &[u32]) {
        let query = self.queries.remove(0);
        let activity = |(rank, pid): (u32, &Option<u32>)| {
            pid.map(|_| match stopped.contains(&rank) {
                true => Activity::Stopped,
                false => Activity::Alive { ticks: 0 },
            })
        };
        let facts = HostFacts {
            processes: (0..).zip(&query.processes).map(activity).collect(),
            ..HostFacts::default()
        };
        self.handle(Event::Host(facts));
    }

    fn frame(&mut self, rank: u32, header: FromRank, payload: Vec<u8>) {
        let frame = Frame { header, payload };
        self.handle(Event::Rank(RankEvent::Frame(Rank(rank), frame)));
    }

    /// Sends a frame without payload from a rank.
    pub fn header(&mut self, rank: u32, header: FromRank) {
        self.frame(rank, header, Vec::new());
    }

    /// Sends a rank's hello.
    pub fn hello(&mut self, rank: u32) {
        self.hello_of(rank, "python", CALLS);
    }

    /// Sends the hello of a rank with this driver and these calls.
    pub fn hello_of(&mut self, rank: u32, driver: &str, calls: &[&str]) {
        let hello = Hello {
            version: VERSION,
            token: token(rank),
            rank: Rank(rank),
            pid: 1000 + rank,
            driver: driver.to_owned(),
            torch: "2.11.0".to_owned(),
            clock: "one".to_owned(),
            calls: calls.iter().map(|&call| call.to_owned()).collect(),
        };
        self.handle(Event::Rank(RankEvent::Hello(Rank(rank), hello)));
    }

    /// Sends the hello of every rank.
    pub fn hello_all(&mut self) {
        (0..self.size()).for_each(|rank| self.hello(rank));
    }

    /// Lets a rank enter the next call of its step.
    pub fn enter(&mut self, rank: u32) {
        let at = rank as usize;
        let (step, call) = (self.inbox[at][0].0.step, self.entered[at]);
        self.entered[at] += 1;
        self.header(rank, FromRank::Enter { step, call, ns: 1 });
    }

    /// Lets all calls of a rank's step return, and answers the step.
    pub fn answer(&mut self, rank: u32) {
        self.answer_as(rank, rank);
    }

    /// Lets all calls of a rank's step return as if it were the rank `claimed`, and answers the step.
    pub fn answer_as(&mut self, rank: u32, claimed: u32) {
        let size = self.size();
        self.answer_with(rank, usize::MAX, |_, call| {
            returned(value(call, claimed, size))
        });
    }

    /// Lets a rank make all calls of its step; those that may raise do raise.
    pub fn attempt(&mut self, rank: u32, message: &str) {
        let raised = json!({"raised": {"type": "RuntimeError", "message": message}});
        self.answer_with(rank, usize::MAX, |_, _| returned(raised.clone()));
    }

    /// Lets a rank's next call raise, and answers the step.
    pub fn raise(&mut self, rank: u32, message: &str) {
        self.raise_as(rank, "RuntimeError", message);
    }

    /// The same with an exception of this type.
    pub fn raise_as(&mut self, rank: u32, kind: &str, message: &str) {
        let failing = self.entered[rank as usize];
        let error = CallError {
            kind: kind.to_owned(),
            message: message.to_owned(),
        };
        self.answer_with(rank, failing + 1, |place, _| match place.cmp(&failing) {
            Ordering::Less => returned(Value::Null),
            Ordering::Equal => CallResult {
                status: CallStatus::Error,
                error: Some(error.clone()),
                ..returned(Value::Null)
            },
            Ordering::Greater => CallResult {
                status: CallStatus::NotReached,
                enter: 0,
                leave: 0,
                ..returned(Value::Null)
            },
        });
    }

    /// Changes the last byte of the storages of a rank's next step.
    pub fn spoil(&mut self, rank: usize) {
        *self.inbox[rank][0].1.last_mut().unwrap() ^= 1;
    }

    /// Lets a rank enter calls of its step until it has entered `entered`, and answers with the result of each. Its
    /// storages are unchanged.
    fn answer_with(
        &mut self,
        rank: u32,
        entered: usize,
        came: impl Fn(usize, &Call) -> CallResult,
    ) {
        let at = rank as usize;
        let entered = entered.min(self.inbox[at][0].0.calls.len());
        while self.entered[at] < entered {
            self.enter(rank);
        }
        self.entered[at] = 0;
        let (step, payload) = self.inbox[at].pop_front().unwrap();
        let calls = step.calls.iter().enumerate();
        let result = StepResult {
            step: step.step,
            calls: calls.map(|(place, call)| came(place, call)).collect(),
            storages: step.storages,
        };
        self.frame(rank, FromRank::Result(result), payload);
    }

    /// Lets every rank add up the only tensor of their step, and answers it.
    pub fn answer_sum(&mut self) {
        let tensors = self.inbox.iter().map(|steps| steps[0].0.tensors.as_slice());
        assert!(
            tensors
                .clone()
                .all(|own| own.len() == 1 && own[0].strides == [1])
        );
        let places = |tensor: &Tensor| {
            let first = tensor.offset as usize * 4;
            (0..tensor.shape[0] as usize).map(move |place| first + place * 4)
        };
        let read = |(step, payload): &(Step, Vec<u8>)| -> Vec<f32> {
            let bytes = places(&step.tensors[0]).map(|at| payload[at..at + 4].try_into().unwrap());
            bytes.map(f32::from_le_bytes).collect()
        };
        let mut sum = read(&self.inbox[0][0]);
        for steps in &self.inbox[1..] {
            let own = read(&steps[0]);
            sum.iter_mut().zip(own).for_each(|(sum, own)| *sum += own);
        }
        for steps in &mut self.inbox {
            let (step, payload) = &mut steps[0];
            for (at, sum) in places(&step.tensors[0]).zip(&sum) {
                payload[at..at + 4].copy_from_slice(&sum.to_le_bytes());
            }
        }
        self.answer_all();
    }

    /// Lets every rank answer its next step.
    pub fn answer_all(&mut self) {
        (0..self.size()).for_each(|rank| self.answer(rank));
    }

    /// Closes a rank's connection.
    pub fn close(&mut self, rank: u32) {
        self.handle(Event::Rank(RankEvent::Broken(
            Rank(rank),
            FrameError::Closed,
        )));
    }

    /// Ends a rank's process.
    pub fn end(&mut self, rank: u32, end: RankExit) {
        self.handle(Event::Rank(RankEvent::Ended(Rank(rank), end)));
    }

    /// Ends a rank by a signal, which also closes its connection.
    pub fn die(&mut self, rank: u32, signal: i32) {
        self.close(rank);
        self.end(rank, RankExit::Signalled(signal));
    }

    /// Lets a rank say `bye`, after this number of steps.
    pub fn bye(&mut self, rank: u32, steps: u32) {
        let token = token(rank);
        self.header(rank, FromRank::Bye { steps, token });
        self.close(rank);
    }

    /// Lets every rank tear down, say `bye` and exit, with no process left behind.
    pub fn shut_down(&mut self) {
        if !self.inbox[0].is_empty() {
            self.answer_all();
        }
        let steps = self.state.steps;
        for rank in 0..self.size() {
            self.bye(rank, steps);
            self.end(rank, exit(0));
        }
        self.handle(Event::OrphansReaped(Vec::new()));
    }

    /// Ends every process that still runs as killed. Returns the world's result.
    pub fn reaped(mut self) -> WorldResult {
        for rank in 0..self.size() {
            if self.result.is_none() {
                self.end(rank, RankExit::Signalled(9));
            }
        }
        self.result.expect("it has ended")
    }

    /// Returns, for each step that a rank has not answered, the names of its calls.
    pub fn calls(&self, rank: u32) -> Vec<String> {
        let steps = self.inbox[rank as usize].iter();
        steps
            .map(|(step, _)| {
                let names: Vec<&str> = step.calls.iter().map(Call::name).collect();
                names.join(" ")
            })
            .collect()
    }
}

fn returned(value: Value) -> CallResult {
    CallResult {
        status: CallStatus::Ok,
        enter: 1,
        leave: 2,
        value,
        error: None,
    }
}

fn token(rank: u32) -> String {
    format!("token{rank}")
}

/// Returns the value that a call returns.
fn value(call: &Call, rank: u32, size: u32) -> Value {
    match call {
        Call::InitProcessGroup { .. } => {
            json!({"rank": rank, "world_size": size, "backend": "gloo"})
        }
        Call::Attempt { .. } => json!({"raised": null, "value": null}),
        _ => Value::Null,
    }
}
