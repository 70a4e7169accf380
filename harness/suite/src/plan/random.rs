//! Draws random sequences: a generator chooses ops, groups, parameters, messages and the places of waits, from a seed
//! in the case.
//!
//! In: a case's [`RandomSpec`], one world size, what the platform declares. Out: a [`Sequence`], the same every time.
//!
//! # Why it is legal
//!
//! There is one list of moves, and every rank makes its own in the order of the list. So all members of a group issue
//! its ops in one order, and both ends of a pair of ranks their messages.
//!
//! # Why no rank waits for ever
//!
//! Whatever a move may block on is issued by moves at the same place of the list or before it:
//!
//! - an op, sync or async, is one move of all its members: it needs them to reach the same place;
//! - the two sides of a message are next to each other, nothing between them: together they are one place;
//! - a wait comes after every side of what it waits for.
//!
//! Suppose that no rank moves any more. Of the places at which ranks are blocked, take the first. What is missing
//! there must come from a rank that has not reached that place, so one that is blocked at an earlier one, and there is
//! none. That holds for backends whose async calls block until all members have issued as well, and for those that
//! finish a group's ops one after another. The tests play sequences on a model of the strictest of such backends.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::context::ScenarioContext;
use super::op_point::single;
use super::sequence::{Sequence, SequenceAct, SequenceMove, Unit, UnitKind};
use crate::case::{RandomSpec, StepParams, SweepSpec};
use allranks_model::axes::Layout;
use allranks_model::capability::Declared;
use allranks_model::dtype::{DType, ReduceOp};
use allranks_model::group::Group;
use allranks_model::names::Rank;
use allranks_model::op::Op;

/// The largest number of works and messages under way at once.
const MOST_PENDING: usize = 8;
/// How many ops or messages are drawn until one fits the platform. If none does, the platform declares nothing that
/// fits.
const ATTEMPTS: u32 = 1_000;
/// Numbers of elements of a contribution: none, one, around powers of two, and more than fits in a small message.
const SIZES: &[u64] = &[0, 1, 2, 5, 33, 64, 257, 1023, 4097, 9000];
/// Tags of messages. They are few, so that a pair of ranks has several messages of one tag under way.
const TAGS: &[u32] = &[0, 1, 7, 1000];

/// Draws sequence number `nth`, from 0.
///
/// # Errors
///
/// Its groups have no members in this world, or the platform declares nothing that fits.
pub(super) fn sequence(
    place: &ScenarioContext<'_>,
    spec: &RandomSpec,
    line: usize,
    nth: u32,
) -> Result<Sequence, String> {
    let groups = place.groups.iter().filter(|group| {
        let named = spec.groups.as_ref();
        !group.ranks.is_empty() && named.is_none_or(|all| all.as_slice().contains(&group.name))
    });
    let size = place.groups[0].size() as u64;
    let mut drawing = Drawing {
        place,
        spec,
        line,
        rng: Rng::new([spec.seed, u64::from(nth), size]),
        ops: match &spec.ops {
            Some(ops) => ops.as_slice().to_vec(),
            None => Op::ALL.to_vec(),
        },
        groups: groups.cloned().collect(),
        sequence: Sequence {
            name: format!("{}-{}", spec.name, nth + 1),
            units: Vec::new(),
            turns: Vec::new(),
        },
        pending: Vec::new(),
        has_messages: true,
    };
    if drawing.groups.is_empty() {
        return Err("its groups have no members in this world".to_owned());
    }
    drawing.draw()?;
    Ok(drawing.sequence)
}

/// A sequence that is being drawn.
struct Drawing<'a> {
    place: &'a ScenarioContext<'a>,
    spec: &'a RandomSpec,
    line: usize,
    rng: Rng,
    ops: Vec<Op>,
    groups: Vec<Arc<Group>>,
    sequence: Sequence,
    /// Units under way, and the ranks that have yet to wait for them.
    pending: Vec<Pending>,
    /// Whether the platform declares messages, as far as is known. It is false after the first search in vain, which
    /// takes long.
    has_messages: bool,
}

/// A unit under way.
struct Pending {
    unit: usize,
    ranks: Vec<Rank>,
    /// Whether no rank has waited for it yet.
    whole: bool,
}

impl Drawing<'_> {
    fn draw(&mut self) -> Result<(), String> {
        for _ in 0..self.spec.length {
            let messages = self.spec.messages;
            let is_message = self.rng.percent(messages) && self.has_messages;
            if !is_message {
                self.op()?;
            } else if !self.message() {
                self.has_messages = false;
                self.op()?;
            }
            while self.pending.len() > MOST_PENDING || self.rng.percent(35) {
                if !self.wait() {
                    break;
                }
            }
        }
        while self.wait() {}
        Ok(())
    }

    /// Adds an op on a group.
    fn op(&mut self) -> Result<(), String> {
        for _ in 0..ATTEMPTS {
            let op = *self.rng.pick(&self.ops);
            let group = Arc::clone(self.rng.pick(&self.groups));
            let with = self.parameters(op, &group);
            if !self.is_declared(op, &group, &with) {
                continue;
            }
            let gives_work = op.takes("mode") || op == Op::IsendIrecv;
            let asynchronous = self.spec.asynchronous;
            let keeps = gives_work && self.rng.percent(asynchronous);
            let unit = self.add(UnitKind::Op(op), with);
            self.turn(
                unit,
                if keeps {
                    SequenceAct::Issue
                } else {
                    SequenceAct::Make
                },
            );
            if keeps {
                self.pend(unit, group.ranks.clone());
            }
            return Ok(());
        }
        Err("the platform declares nothing to draw from".to_owned())
    }

    /// Adds a message between two members of a group. Returns false if the platform declares none.
    fn message(&mut self) -> bool {
        for _ in 0..ATTEMPTS {
            let group = Arc::clone(self.rng.pick(&self.groups));
            if group.size() < 2 {
                continue;
            }
            let mut with = self.tensors(&group);
            with.insert("tag".to_owned(), json!(*self.rng.pick(TAGS)));
            if !self.is_declared(Op::IsendIrecv, &group, &with) {
                continue;
            }
            let from = self.rng.below(group.size() as u64) as usize;
            let step = 1 + self.rng.below(group.size() as u64 - 1) as usize;
            let (from, to) = (group.ranks[from], group.ranks[(from + step) % group.size()]);
            let unit = self.add(UnitKind::Message { from, to }, with);
            let (turns, keepers) = match self.rng.below(8) {
                0..3 => ([SequenceAct::Isend, SequenceAct::Irecv], vec![from, to]),
                3..5 => ([SequenceAct::Irecv, SequenceAct::Isend], vec![from, to]),
                5 => ([SequenceAct::Irecv, SequenceAct::Send], vec![to]),
                6 => ([SequenceAct::Isend, SequenceAct::Recv], vec![from]),
                _ => ([SequenceAct::Send, SequenceAct::Recv], vec![]),
            };
            for does in turns {
                self.turn(unit, does);
            }
            if !keepers.is_empty() {
                self.pend(unit, keepers);
            }
            return true;
        }
        false
    }

    /// Adds a wait for a unit under way, by one of its ranks or by all. Returns false if there is none.
    fn wait(&mut self) -> bool {
        if self.pending.is_empty() {
            return false;
        }
        let at = self.rng.below(self.pending.len() as u64) as usize;
        let together = self.pending[at].whole && self.rng.percent(50);
        let unit = self.pending[at].unit;
        if together {
            self.pending.remove(at);
            self.turn(unit, SequenceAct::Wait(None));
            return true;
        }
        let rank = self.rng.below(self.pending[at].ranks.len() as u64) as usize;
        let rank = self.pending[at].ranks.remove(rank);
        self.pending[at].whole = false;
        if self.pending[at].ranks.is_empty() {
            self.pending.remove(at);
        }
        self.turn(unit, SequenceAct::Wait(Some(rank)));
        true
    }

    /// Draws parameters for an op on a group; the platform may not declare them.
    fn parameters(&mut self, op: Op, group: &Group) -> Map<String, Value> {
        let mut with = match op.has_tensors() {
            true => self.tensors(group),
            false => of_group(group),
        };
        let mut add = |axis: &str, value: Value| with.insert(axis.to_owned(), value);
        let rng = &mut self.rng;
        if op.reduces() {
            add("op", json!(rng.pick(ReduceOp::ALL)));
        }
        if op.has_root() {
            add("root", json!(rng.below(group.size() as u64)));
            add("by", json!(rng.pick(&["global", "group"])));
        }
        if op.has_pairs() {
            add("pairs", json!(rng.pick(&["ring", "all"])));
            add("tag", json!(rng.pick(TAGS)));
            add("count", json!(1 + rng.below(2)));
        }
        if op.is_coalesced() {
            add("count", json!(1 + rng.below(4)));
        }
        if op.has_objects() {
            add("object", json!(rng.pick(&["small", "small", "mixed"])));
        }
        if matches!(op, Op::AllToAll | Op::AllToAllSingle) && rng.percent(50) {
            add("splits", json!(rng.pick(&["uneven", "with_zero"])));
        }
        if op.takes("placement") && rng.percent(25) {
            add("placement", json!("in_place"));
        }
        with
    }

    /// Draws the parameters of any op or message with tensors.
    fn tensors(&mut self, group: &Group) -> Map<String, Value> {
        let mut with = of_group(group);
        let mut add = |axis: &str, value: Value| with.insert(axis.to_owned(), value);
        add("dtype", json!(self.rng.pick(DType::ALL)));
        add("numel", json!(self.rng.pick(SIZES)));
        let layout = self.rng.pick(self.spec.layouts.as_slice());
        if *layout != Layout::Contiguous {
            add("layout", json!(layout));
        }
        with
    }

    /// Returns whether the op with these parameters is meaningful, and declared by the platform.
    fn is_declared(&self, op: Op, group: &Arc<Group>, with: &Map<String, Value>) -> bool {
        let Ok(params) = serde_json::from_value::<StepParams>(Value::Object(with.clone())) else {
            return false;
        };
        let line = self.line;
        let step = SweepSpec { op, params, line };
        single(self.place, &step, group, 0)
            .is_ok_and(|(_, declared)| declared == Declared::Supported)
    }

    fn add(&mut self, what: UnitKind, with: Map<String, Value>) -> usize {
        let unit = self.sequence.units.len();
        self.sequence.units.push(Unit {
            name: format!("op{}", unit + 1),
            what,
            with,
        });
        unit
    }

    fn turn(&mut self, unit: usize, does: SequenceAct) {
        self.sequence.turns.push(SequenceMove { unit, does });
    }

    fn pend(&mut self, unit: usize, ranks: Vec<Rank>) {
        self.pending.push(Pending {
            unit,
            ranks,
            whole: true,
        });
    }
}

fn of_group(group: &Group) -> Map<String, Value> {
    match group.name.as_str() {
        "world" => Map::new(),
        name => Map::from_iter([("group".to_owned(), json!(name))]),
    }
}

/// A pseudo-random generator, SplitMix64 (Steele, Lea, Flood, OOPSLA 2014): the same numbers from the same seed, on
/// every machine and in every version.
struct Rng(u64);

const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

impl Rng {
    fn new(seeds: [u64; 3]) -> Self {
        let mut rng = Self(0);
        for seed in seeds {
            rng = Self(rng.next() ^ seed);
        }
        rng
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(GOLDEN);
        let word = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    /// Returns a number in `0..bound`. The bounds here are so small that the bias is negligible.
    fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    /// Returns true with this probability, in percent.
    fn percent(&mut self, percent: u32) -> bool {
        self.below(100) < u64::from(percent)
    }

    fn pick<'t, T>(&mut self, all: &'t [T]) -> &'t T {
        &all[self.below(all.len() as u64) as usize]
    }
}

#[cfg(test)]
#[path = "random_tests.rs"]
mod tests;
