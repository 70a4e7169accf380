//! Lowers the moves of a script to the calls of each rank.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::expectation::ExpectationKind;
use super::trace_events::{Setting, events};
use super::{CompiledScript, Departure, Endpoints, Expectation, Leaving, MoveRef, OnEnter, Part};
use allranks_model::axes::Pairs;
use allranks_model::names::{Rank, WorldSize};
use allranks_model::store::StoreMethod;
use allranks_oracle::{Prepared, RankStep};
use allranks_protocol::{Call, Step};
use allranks_suite::case::{ExpectSpec, InitMove};
use allranks_suite::plan::{Act, Check, DataCheck, MessageAct, Move, Scenario, Script};

impl CompiledScript {
    /// Compiles a script.
    ///
    /// # Errors
    /// The script contradicts itself: it waits for a work that does not exist, or has an op without expected data.
    pub fn new(
        scenario: &Scenario,
        check: &Check,
        script: &Arc<Script>,
        points: &Endpoints,
        seed: u64,
    ) -> Result<Self, String> {
        let size = scenario.world_size;
        let mut stage = Compiler::new(scenario, script, points, size, seed)
            .map_err(|why| format!("{}: {why}", check.id))?;
        for (number, one) in script.moves.iter().enumerate() {
            for rank in &one.ranks {
                stage.make(*rank, number, one).map_err(|why| {
                    format!("{}: move {} ({}): {why}", check.id, number, one.label)
                })?;
            }
        }
        Ok(stage.finish())
    }
}

/// Where the next call of a thread stands.
#[derive(Clone, Copy)]
struct ThreadPosition {
    /// The index of the call `together` that starts the thread.
    call: usize,
    /// The number of the thread in that call.
    thread: usize,
    /// How many calls the thread makes before.
    calls_before: usize,
}

struct Compiler<'a> {
    scenario: &'a Scenario,
    script: &'a Arc<Script>,
    points: &'a Endpoints,
    size: WorldSize,
    parts: Vec<Part>,
    steps: Vec<RankStep>,
    expectations: Vec<Vec<Expectation>>,
    on_enter: Vec<BTreeMap<usize, OnEnter>>,
    departures: Vec<Option<Departure>>,
    marks: BTreeMap<String, BTreeSet<Rank>>,
    /// For each rank and part, the index of the part's first tensor in the rank's step.
    tensors: Vec<Vec<usize>>,
    /// For each part, whether its data is judged.
    data: Vec<DataCheck>,
    /// Parts that some rank issues in a way that may fail.
    may_fail: BTreeSet<usize>,
    /// Ranks and parts of messages that the rank sends or receives by a blocking call, so that there is no work.
    blocking: BTreeSet<(Rank, usize)>,
}

impl<'a> Compiler<'a> {
    fn new(
        scenario: &'a Scenario,
        script: &'a Arc<Script>,
        points: &'a Endpoints,
        size: WorldSize,
        seed: u64,
    ) -> Result<Self, String> {
        let count = size.count();
        let mut steps = vec![
            RankStep {
                step: Step::default(),
                payload: Vec::new(),
            };
            count
        ];
        let mut tensors = vec![Vec::new(); count];
        let mut parts = Vec::new();
        for check in &script.checks {
            let prepared = Prepared::new(check, size, seed).map_err(|why| why.to_string())?;
            let mut bytes = Vec::new();
            let mut calls = Vec::new();
            for (rank, own) in prepared.steps().iter().enumerate() {
                let RankStep { step, payload } = &mut steps[rank];
                bytes.push(payload.len()..payload.len() + own.payload.len());
                payload.extend(&own.payload);
                let first_storage = step.storages.len();
                tensors[rank].push(step.tensors.len());
                step.storages.extend(&own.step.storages);
                step.tensors
                    .extend(own.step.tensors.iter().cloned().map(|mut tensor| {
                        tensor.storage += first_storage;
                        tensor
                    }));
                calls.push(vec![None; own.step.calls.len()]);
            }
            parts.push(Part {
                prepared,
                judged: false,
                bytes,
                calls,
            });
        }
        Ok(Self {
            scenario,
            script,
            points,
            size,
            data: vec![DataCheck::IfComplete; parts.len()],
            parts,
            steps,
            expectations: vec![Vec::new(); count],
            on_enter: vec![BTreeMap::new(); count],
            departures: vec![None; count],
            marks: BTreeMap::new(),
            tensors,
            may_fail: BTreeSet::new(),
            blocking: BTreeSet::new(),
        })
    }

    /// Compiles one move of one rank.
    fn make(&mut self, rank: Rank, number: usize, one: &Move) -> Result<(), String> {
        if self.departures[rank.index()].is_some() {
            return Err(format!("rank {rank} has left before"));
        }
        let first = self.calls(rank).len();
        match &one.act {
            Act::Mark(name) => {
                self.marks.entry(name.clone()).or_default().insert(rank);
                self.on_enter(rank, OnEnter::Mark(name.clone()));
            }
            Act::Hold(name) => self.on_enter(rank, OnEnter::Hold(name.clone())),
            Act::Pause(ms) => self.on_enter(rank, OnEnter::Pause(Duration::from_millis(*ms))),
            Act::Freeze => {
                self.on_enter(rank, OnEnter::Freeze);
                self.departs(rank, Leaving::Frozen);
            }
            Act::Die(signal) => self.departs(rank, Leaving::Signal(*signal)),
            Act::Exit(code) => self.departs(rank, Leaving::Code(*code)),
            Act::Together(threads) => return self.together(rank, number, one, threads),
            Act::Steady(steady) => {
                self.expectations[rank.index()].push(Expectation {
                    at: MoveRef {
                        call: first.saturating_sub(1),
                        inner: None,
                        attempted: false,
                    },
                    of: number,
                    kind: ExpectationKind::Steady(steady.clone()),
                });
                return Ok(());
            }
            _ => {}
        }
        let mut own = Vec::new();
        self.emit(rank, one, None, &mut own)?;
        let expect = one.expect.as_ref();
        let attempted = expect.is_some_and(ExpectSpec::may_raise);
        for Emitted { call, of } in own {
            let at = MoveRef {
                call: self.calls(rank).len(),
                inner: None,
                attempted,
            };
            let kind = ExpectationKind::of(&one.act, &call, expect, self.sender(&one.act));
            self.place(rank, of, at, &call);
            let call = match attempted {
                true => Call::Attempt {
                    inner: Box::new(call),
                },
                false => call,
            };
            self.steps[rank.index()].step.calls.push(call);
            self.expectations[rank.index()].push(Expectation {
                at,
                of: number,
                kind,
            });
        }
        Ok(())
    }

    fn together(
        &mut self,
        rank: Rank,
        number: usize,
        one: &Move,
        threads: &[Vec<Move>],
    ) -> Result<(), String> {
        let call = self.calls(rank).len();
        let mut lists = Vec::new();
        for (thread, moves) in threads.iter().enumerate() {
            let mut list = Vec::new();
            for inner in moves.iter().filter(|inner| inner.ranks.contains(&rank)) {
                if inner.expect.is_some() {
                    return Err("a move on a thread has no `expect` of its own".to_owned());
                }
                let position = ThreadPosition {
                    call,
                    thread,
                    calls_before: list.len(),
                };
                let mut own = Vec::new();
                self.emit(rank, inner, Some(position), &mut own)?;
                for Emitted { call: made, of } in own {
                    let at = MoveRef {
                        call,
                        inner: Some((thread, list.len())),
                        attempted: false,
                    };
                    self.place(rank, of, at, &made);
                    list.push(made);
                }
            }
            lists.push(list);
        }
        self.steps[rank.index()]
            .step
            .calls
            .push(Call::Together { threads: lists });
        self.expectations[rank.index()].push(Expectation {
            at: MoveRef {
                call,
                inner: None,
                attempted: false,
            },
            of: number,
            kind: ExpectationKind::Threads(one.expect.clone()),
        });
        Ok(())
    }

    /// Returns the calls of a move in `out`, before an `attempt` is put around them. `thread`: where they are made, if not in
    /// calls of the step itself.
    fn emit(
        &mut self,
        rank: Rank,
        one: &Move,
        thread: Option<ThreadPosition>,
        out: &mut Vec<Emitted>,
    ) -> Result<(), String> {
        let plain = |call| Emitted { call, of: None };
        match &one.act {
            Act::Issue {
                check,
                keeps,
                message,
                data,
            } => {
                self.data[*check] = self.data[*check].or(*data);
                if one.expect.as_ref().is_some_and(ExpectSpec::may_raise) {
                    self.may_fail.insert(*check);
                }
                self.issue(rank, *check, *keeps, *message, thread, out)?;
            }
            Act::Wait { checks, timeout_ms } => {
                if one.expect.as_ref().is_some_and(ExpectSpec::may_raise) {
                    self.may_fail.extend(checks);
                }
                for check in checks {
                    for (sub, work) in self.works(rank, *check, thread) {
                        // Only the first wait belongs to the op.
                        let waits = self.waits_of(rank, *check, sub);
                        out.push(Emitted {
                            call: Call::Wait {
                                work,
                                timeout_ms: *timeout_ms,
                            },
                            of: waits,
                        });
                    }
                }
            }
            Act::IsCompleted { check, .. } => {
                let works = self.works(rank, *check, thread);
                out.extend(
                    works
                        .into_iter()
                        .map(|(_, work)| plain(Call::IsCompleted { work })),
                );
            }
            Act::Future(check) => {
                let works = self.works(rank, *check, thread);
                for (sub, work) in works {
                    let of = self.waits_of(rank, *check, sub);
                    out.push(Emitted {
                        call: Call::Future { work },
                        of,
                    });
                }
            }
            Act::Drop(check) => {
                let works = self.works(rank, *check, thread);
                out.extend(
                    works
                        .into_iter()
                        .map(|(_, work)| plain(Call::Drop { work })),
                );
            }
            other => out.push(plain(self.single_call(rank, other)?)),
        }
        Ok(())
    }

    /// Returns the call of a move that is one call and makes or needs no work.
    fn single_call(&self, rank: Rank, act: &Act) -> Result<Call, String> {
        Ok(match act {
            Act::Mark(name) => Call::Mark { name: name.clone() },
            Act::Hold(name) => Call::Hold { name: name.clone() },
            Act::Sleep(ms) => Call::Sleep { ms: *ms },
            Act::Pause(_) | Act::Freeze => Call::Pause,
            Act::Die(signal) => Call::Die { signal: *signal },
            Act::Exit(code) => Call::Exit { code: *code },
            Act::Census(_) => Call::Census,
            Act::WhoAmI(group) => Call::WhoAmI {
                group: group.clone(),
            },
            Act::Setenv(name, value) => Call::Setenv {
                name: name.clone(),
                value: value.clone(),
            },
            Act::Init(init) => self.init(rank, init)?,
            Act::Destroy(group) => Call::DestroyProcessGroup {
                group: group.clone(),
            },
            Act::NewGroup {
                name,
                ranks,
                backend,
                timeout_s,
                local_sync,
            } => Call::NewGroup {
                name: name.clone(),
                ranks: ranks.clone(),
                backend: backend.clone(),
                timeout_s: timeout_s.unwrap_or(self.scenario.case.world.timeout_s),
                local_sync: *local_sync,
            },
            Act::Abort(group) => Call::Abort {
                group: group.clone(),
            },
            Act::Python { source, unnoticed } => Call::Python {
                source: source.clone(),
                unnoticed: *unnoticed,
            },
            Act::Issue { .. }
            | Act::Wait { .. }
            | Act::IsCompleted { .. }
            | Act::Future(_)
            | Act::Drop(_) => return Err("calls on works".to_owned()),
            Act::Steady(_) | Act::Together(_) => return Err("not on a thread".to_owned()),
        })
    }

    /// Returns the calls of an op in `out`, with the indices of its tensors and works shifted; without its waits, if a
    /// move keeps its work.
    fn issue(
        &mut self,
        rank: Rank,
        check: usize,
        keeps: bool,
        message: Option<MessageAct>,
        thread: Option<ThreadPosition>,
        out: &mut Vec<Emitted>,
    ) -> Result<(), String> {
        let (me, shift) = (rank.index(), self.tensors[rank.index()][check]);
        let calls = self.parts[check].prepared.steps()[me].step.calls.clone();
        // The indices of the op's own calls, for the waits among them.
        let base = thread.map_or_else(|| self.calls(rank).len(), |at| at.calls_before);
        let mut own: BTreeMap<usize, usize> = BTreeMap::new();
        if message.is_some_and(|message| message.blocking) {
            self.blocking.insert((rank, check));
        }
        for (sub, mut call) in calls.into_iter().enumerate() {
            if let Call::Wait { work, .. } = &mut call {
                if keeps || message.is_some() {
                    continue;
                }
                *work = *own.get(work).ok_or("a wait before its work")?;
            }
            for tensor in call.tensors_mut() {
                *tensor += shift;
            }
            if let Some(message) = message {
                let Some(turned) = turn(call, message) else {
                    continue;
                };
                call = turned;
            }
            own.insert(sub, base + out.len());
            if self.parts[check].calls[me][sub].is_some() {
                return Err("it is issued twice on one rank".to_owned());
            }
            out.push(Emitted {
                call,
                of: Some((check, sub)),
            });
        }
        Ok(())
    }

    /// Returns the works of a check that a rank has: the sub-call that made each, and the index of that call.
    fn works(
        &self,
        rank: Rank,
        check: usize,
        thread: Option<ThreadPosition>,
    ) -> Vec<(usize, usize)> {
        let part = &self.parts[check];
        let calls = &part.prepared.steps()[rank.index()].step.calls;
        let spots = part.calls[rank.index()].iter().enumerate();
        let has_works = !self.blocking.contains(&(rank, check));
        spots
            .filter(|(sub, _)| has_works && calls[*sub].keeps_work())
            .filter_map(|(sub, spot)| match (spot, thread) {
                (
                    Some(MoveRef {
                        call, inner: None, ..
                    }),
                    None,
                ) => Some((sub, *call)),
                (
                    Some(MoveRef {
                        call,
                        inner: Some((thread, at)),
                        ..
                    }),
                    Some(here),
                ) if (*call, *thread) == (here.call, here.thread) => Some((sub, *at)),
                _ => None,
            })
            .collect()
    }

    /// Returns the op's own wait for the work of a sub-call; none if that wait has been placed already, or there is
    /// none.
    fn waits_of(&self, rank: Rank, check: usize, sub: usize) -> Option<(usize, usize)> {
        let part = &self.parts[check];
        let calls = &part.prepared.steps()[rank.index()].step.calls;
        let wait = calls
            .iter()
            .position(|call| matches!(call, Call::Wait { work, .. } if *work == sub))?;
        part.calls[rank.index()][wait]
            .is_none()
            .then_some((check, wait))
    }

    /// Records the position of a call of an op. A blocking message stands for the wait for its work, too.
    fn place(&mut self, rank: Rank, of: Option<(usize, usize)>, at: MoveRef, call: &Call) {
        let Some((check, sub)) = of else { return };
        self.parts[check].calls[rank.index()][sub] = Some(at);
        if matches!(call, Call::Send { .. } | Call::Recv { .. })
            && let Some((_, wait)) = self.waits_of(rank, check, sub)
        {
            self.parts[check].calls[rank.index()][wait] = Some(at);
        }
    }

    /// Returns the sender of the message that a move receives; none if the move issues no single message.
    fn sender(&self, act: &Act) -> Option<Rank> {
        let Act::Issue { check, .. } = act else {
            return None;
        };
        let check = &self.script.checks[*check];
        match check.pairs {
            Pairs::Link { from, .. } => check.group.ranks.get(from as usize).copied(),
            Pairs::Ring | Pairs::All | Pairs::Own => None,
        }
    }

    fn init(&self, rank: Rank, init: &InitMove) -> Result<Call, String> {
        let method = init.method.unwrap_or(StoreMethod::Env);
        let point = self.points.all.get(init.point as usize);
        let (port, file) =
            point.ok_or_else(|| format!("there is no meeting point {}", init.point))?;
        let backend = &self.scenario.backend;
        let declared = self.scenario.platform.backends[backend].init.clone();
        Ok(Call::InitProcessGroup {
            backend: init
                .backend
                .clone()
                .unwrap_or_else(|| declared.unwrap_or_else(|| backend.clone())),
            method,
            url: method.url(&self.points.host, *port, file),
            rank: init.rank.map_or(rank, Rank),
            world_size: init.world_size.unwrap_or(self.size.0),
            timeout_s: init.timeout_s.unwrap_or(self.scenario.case.world.timeout_s),
            hosts: init.hosts,
            device_id: None,
        })
    }

    fn calls(&self, rank: Rank) -> &[Call] {
        &self.steps[rank.index()].step.calls
    }

    fn on_enter(&mut self, rank: Rank, on_enter: OnEnter) {
        let call = self.calls(rank).len();
        self.on_enter[rank.index()].insert(call, on_enter);
    }

    fn departs(&mut self, rank: Rank, how: Leaving) {
        let call = self.calls(rank).len();
        self.departures[rank.index()] = Some(Departure { call, how });
    }

    fn finish(mut self) -> CompiledScript {
        for (index, part) in self.parts.iter_mut().enumerate() {
            let members = &self.script.checks[index].group.ranks;
            let complete = members.iter().all(|rank| {
                self.departures[rank.index()].is_none()
                    && part.calls[rank.index()].iter().all(Option::is_some)
            });
            part.judged = match self.data[index] {
                DataCheck::IfComplete => complete && !self.may_fail.contains(&index),
                DataCheck::Always => true,
                DataCheck::Never => false,
            };
        }
        let setting = Setting {
            groups: &self.scenario.groups,
            endpoint: format!(
                "127.0.0.1:{}",
                self.points.all.first().map_or(0, |(port, _)| *port)
            ),
            size: self.size.0,
        };
        CompiledScript {
            events: self
                .size
                .ranks()
                .zip(&self.steps)
                .map(|(rank, step)| events(step, rank, &setting))
                .collect(),
            script: Arc::clone(self.script),
            timeouts: self.steps.iter().map(timeouts).collect(),
            steps: self.steps,
            parts: self.parts,
            expectations: self.expectations,
            on_enter: self.on_enter,
            departures: self.departures,
            marks: self.marks,
        }
    }
}

/// Returns the timeouts in seconds that a rank's calls are given.
fn timeouts(step: &RankStep) -> Vec<f64> {
    let of = |call: &Call| match call {
        Call::NewGroup { timeout_s, .. } => Some(*timeout_s),
        Call::Wait { timeout_ms, .. } => timeout_ms.map(|ms| ms as f64 / 1000.0),
        _ => None,
    };
    step.step.calls.iter().filter_map(of).collect()
}

/// A call, with the part and the sub-call that it belongs to.
struct Emitted {
    call: Call,
    of: Option<(usize, usize)>,
}

/// Turns a message's call into the one that a move asks for, blocking or not. None if the call belongs to the other
/// side.
pub fn turn(call: Call, message: MessageAct) -> Option<Call> {
    match call {
        Call::Isend {
            group,
            tensor,
            peer,
            tag,
        } if message.sends => Some(match message.blocking {
            true => Call::Send {
                group,
                tensor,
                peer,
                tag,
            },
            false => Call::Isend {
                group,
                tensor,
                peer,
                tag,
            },
        }),
        Call::Irecv {
            group,
            tensor,
            peer,
            tag,
        } if !message.sends => Some(match message.blocking {
            true => Call::Recv {
                group,
                tensor,
                peer: (!message.any_source).then_some(peer),
                tag,
            },
            false => Call::Irecv {
                group,
                tensor,
                peer,
                tag,
            },
        }),
        _ => None,
    }
}
