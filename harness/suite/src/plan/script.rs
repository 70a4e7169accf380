//! Scripts at one world size: the ranks that make each move, and every op that the script issues as a check of its
//! own, so that the oracle can compute its result.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::Sequence;
use super::context::ScenarioContext;
use super::groups::is_on_host;
use super::op_point::single;
use crate::case::{
    Afterwards, AnySource, ExpectSpec, InitMove, IssueSpec, Members, MessageMove, MessageSpec,
    MoveSpec, NewGroupMove, ScriptSpec, SteadySpec, StepParams, SweepSpec, Verb,
};
use allranks_model::axes::{Mode, Pairs, TensorKind};
use allranks_model::capability::Declared;
use allranks_model::diagnosis::HangKind;
use allranks_model::group::{Creation, Group};
use allranks_model::names::{Rank, WorldSize};
use allranks_model::op::Op;
use allranks_model::op_check::OpCheck;

/// A script at one world size, with its loops unrolled.
#[derive(Clone, Debug, PartialEq)]
pub struct Script {
    /// What becomes of the world when the script is over.
    pub afterwards: Afterwards,
    /// The ops that it issues, one for each call of the whole group. If several moves issue it on different ranks, it
    /// is here once.
    pub checks: Vec<OpCheck>,
    /// The moves, in order. Every rank makes its own.
    pub moves: Vec<Move>,
    /// The hang verdict that must be given on it. `None`: none is asked for.
    pub hang: Option<Hang>,
    /// The sequence it was made from, if a generator drew it. Shrinking cuts that down if the script fails.
    pub sequence: Option<Arc<Sequence>>,
}

/// A hang verdict that must be given, see [`crate::case::HangSpec`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hang {
    /// What must be found to be wrong.
    pub kind: HangKind,
    /// The ranks that must be named as culprits, exactly these. Ranks outside the world may be among them.
    pub culprits: Vec<Rank>,
    /// How long after the last progress the verdict may come.
    pub within: Duration,
    /// Whether a rank may, or must, hang or raise.
    pub symptom: HangSymptom,
}

/// What ranks must show of a hang, besides the verdict on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HangSymptom {
    /// Some rank may hang or raise, or none.
    Either,
    /// No rank may hang or raise.
    Silent,
    /// Some rank must hang or raise.
    Shown,
}

impl HangSymptom {
    /// Reads the key `silent` of a case.
    #[must_use]
    pub fn of(silent: Option<bool>) -> Self {
        match silent {
            None => Self::Either,
            Some(true) => Self::Silent,
            Some(false) => Self::Shown,
        }
    }
}

/// Whether the oracle checks the data of an op.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataCheck {
    /// If every member issues it and no rank is to fail.
    IfComplete,
    /// Whoever issues it.
    Always,
    /// Not at all.
    Never,
}

impl DataCheck {
    /// Reads the key `judged` of a move.
    #[must_use]
    pub fn of(judged: Option<bool>) -> Self {
        match judged {
            None => Self::IfComplete,
            Some(true) => Self::Always,
            Some(false) => Self::Never,
        }
    }

    /// Returns what the moves of an op say together: the first that says something counts.
    #[must_use]
    pub fn or(self, later: Self) -> Self {
        match self {
            Self::IfComplete => later,
            Self::Always | Self::Never => self,
        }
    }
}

impl Hang {
    /// Returns the kind and the culprits as parameters of the check, `hang` and `culprit`.
    #[must_use]
    pub fn label(&self) -> [(String, String); 2] {
        let culprits: Vec<String> = self.culprits.iter().map(ToString::to_string).collect();
        [
            ("hang".to_owned(), self.kind.to_string()),
            ("culprit".to_owned(), culprits.join(" ")),
        ]
    }
}

/// One move of a script, with its ranks.
#[derive(Clone, Debug, PartialEq)]
pub struct Move {
    /// The ranks that make it. Of an op, only members of its group.
    pub ranks: Vec<Rank>,
    /// What it does.
    pub act: Act,
    /// How it must go. `None`: it must return.
    pub expect: Option<ExpectSpec>,
    /// Its name in reports: `isend a`.
    pub label: String,
}

/// What a move does. Checks are given by their places in [`Script::checks`].
#[derive(Clone, Debug, PartialEq)]
pub enum Act {
    /// Issues an op, or one side of a message.
    Issue {
        /// The place of the op's check.
        check: usize,
        /// Whether its work is kept for a later `wait`.
        keeps: bool,
        /// The side of the message, and how it is issued. `None`: it is no message.
        message: Option<MessageAct>,
        /// Whether the oracle checks the data.
        data: DataCheck,
    },
    /// Waits for works.
    Wait {
        /// The places of their checks.
        checks: Vec<usize>,
        /// The argument of `work.wait(timeout)`, in milliseconds. `None`: it is called without one.
        timeout_ms: Option<u64>,
    },
    /// Asks a work once whether it is completed.
    IsCompleted {
        /// The place of its check.
        check: usize,
        /// What `work.is_completed()` must return.
        is: bool,
    },
    /// Waits for the future of the work of this check.
    Future(usize),
    /// Drops the reference to the work of this check without waiting for it.
    Drop(usize),
    /// Tells the harness that the rank has reached the mark of this name.
    Mark(String),
    /// Waits until every rank that has a mark of this name has reached it.
    Hold(String),
    /// Sleeps for this many milliseconds.
    Sleep(u64),
    /// Has the process stopped (SIGSTOP), and resumed after this many milliseconds.
    Pause(u64),
    /// Has the process stopped (SIGSTOP) and never resumed.
    Freeze,
    /// Ends the process by the signal of this number.
    Die(i32),
    /// Ends the process through the interpreter's shutdown, with this exit code.
    Exit(i32),
    /// Counts what the process holds, and keeps the counts under this name.
    Census(String),
    /// Compares two censuses.
    Steady(SteadySpec),
    /// Asks the group of this name for its rank, size and backend.
    WhoAmI(String),
    /// Sets the environment variable of this name to a value, or removes it (`None`).
    Setenv(String, Option<String>),
    /// Calls `init_process_group`.
    Init(InitMove),
    /// Calls `destroy_process_group` for the group of this name.
    Destroy(String),
    /// Calls `new_group`.
    NewGroup {
        /// The name that later moves use for the group.
        name: String,
        /// The members, in the order in which the call is given them.
        ranks: Vec<Rank>,
        /// The argument `backend=`. `None`: that of the world.
        backend: Option<String>,
        /// The argument `timeout=`, in seconds. `None`: the case's.
        timeout_s: Option<f64>,
        /// Whether `use_local_synchronization=True` is passed.
        local_sync: bool,
    },
    /// Aborts the backend of the group of this name.
    Abort(String),
    /// Runs Python statements in the rank.
    Python {
        /// The statements, in one string.
        source: String,
        /// Whether the statements communicate with no other rank, whatever they mention.
        unnoticed: bool,
    },
    /// Makes several lists of moves at the same time, each on a thread of its own.
    Together(Vec<Vec<Move>>),
}

/// How one side of a message is issued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageAct {
    /// Whether this is the sender's side.
    pub sends: bool,
    /// Whether the call blocks: `send` and `recv`, not `isend` and `irecv`.
    pub blocking: bool,
    /// Whether the receiver names no source.
    pub any_source: bool,
}

/// Computes a script for the world of a scenario. `it` is the op that moves with the key `it` issue; `parent` the
/// index of the script's check, from which the seeds of its ops' data are derived; `line` the line of the step.
///
/// # Errors
///
/// The reason why the script is left out of this world, in words for reports.
pub fn script(
    place: &ScenarioContext<'_>,
    spec: &ScriptSpec,
    it: Option<(Op, &StepParams)>,
    parent: u32,
    line: usize,
) -> Result<Script, String> {
    let size = place.groups[0].size() as u32;
    let mut builder = ScriptBuilder {
        place,
        spec,
        it,
        parent,
        line,
        size: WorldSize(size),
        groups: place.groups.to_vec(),
        checks: Vec::new(),
        undeclared: None,
        undeclared_source: None,
        labels: Vec::new(),
        turn: None,
        turns_begun: 0,
    };
    builder.labels.push(BTreeMap::new());
    let moves = builder.moves(&spec.moves)?;
    if let Some(op) = builder.undeclared {
        return Err(format!("the platform does not declare its {}", op.name()));
    }
    if let Some(what) = builder.undeclared_source {
        return Err(what);
    }
    Ok(Script {
        afterwards: spec.afterwards,
        checks: builder.checks,
        moves,
        hang: spec.hang.as_ref().map(|hang| Hang {
            kind: hang.kind,
            culprits: hang
                .culprit
                .as_ref()
                .map_or_else(Vec::new, |members| members.in_world(WorldSize(size))),
            within: hang.within.0,
            symptom: HangSymptom::of(hang.silent),
        }),
        sequence: None,
    })
}

/// Returns what the platform file declares of a script: unsupported if the script sees that receives without a source are
/// refused.
///
/// # Errors
///
/// The reason why the script is left out: what it does with such receives is not what the platform file declares of them.
pub fn declared_of(place: &ScenarioContext<'_>, spec: &ScriptSpec) -> Result<Declared, String> {
    let message = || OpCheck::new(0, Op::SendRecv, Arc::clone(&place.groups[0]));
    let Some(use_of_any) = spec.any_source else {
        return Ok(Declared::Supported);
    };
    match (use_of_any, place.backend.declares_any_source(&message())) {
        (AnySource::Used, Declared::Unsupported(what)) => Err(what),
        (AnySource::Refused, Declared::Supported) => {
            Err("the platform does not declare named sources only".to_owned())
        }
        (_, declared) => Ok(declared),
    }
}

/// Computes the moves of one script, one after another.
struct ScriptBuilder<'a> {
    place: &'a ScenarioContext<'a>,
    spec: &'a ScriptSpec,
    it: Option<(Op, &'a StepParams)>,
    parent: u32,
    line: usize,
    size: WorldSize,
    groups: Vec<Arc<Group>>,
    checks: Vec<OpCheck>,
    /// The first op that the platform does not declare, if any. The script is left out then.
    undeclared: Option<Op>,
    /// The first receive without a source that the platform does not declare, in words. The script is left out then.
    undeclared_source: Option<String>,
    /// Checks by label, one map for each enclosing loop.
    labels: Vec<BTreeMap<String, usize>>,
    /// The turn of the innermost loop, counted over all loops. `None`: outside of loops.
    turn: Option<u32>,
    turns_begun: u32,
}

impl ScriptBuilder<'_> {
    fn moves(&mut self, specs: &[MoveSpec]) -> Result<Vec<Move>, String> {
        let mut moves = Vec::new();
        for spec in specs {
            if let Verb::Repeat(repeat) = &spec.verb {
                for _ in 0..repeat.times {
                    self.labels.push(BTreeMap::new());
                    self.turns_begun += 1;
                    let outer = self.turn.replace(self.turns_begun);
                    moves.extend(self.moves(&repeat.moves)?);
                    self.turn = outer;
                    self.labels.pop();
                }
            } else {
                moves.push(self.one(spec)?);
            }
        }
        Ok(moves)
    }

    /// Returns one move that is no loop: its ranks, and what they do.
    fn one(&mut self, spec: &MoveSpec) -> Result<Move, String> {
        let everyone = || self.size.ranks().collect::<Vec<_>>();
        let mut ranks = spec
            .on
            .as_ref()
            .map_or_else(everyone, |on| on.in_world(self.size));
        ranks.retain(|rank| rank.0 < self.size.0);
        let mut label = spec.verb.name().to_owned();
        let act = match &spec.verb {
            Verb::Issue(op, issue) => {
                let check = self.issue(*op, issue)?;
                label = self.checks[check].op.name().to_owned();
                if let Some(name) = &issue.label {
                    label += &format!(" {name}");
                }
                let members = &self.checks[check].group.ranks;
                ranks.retain(|rank| members.contains(rank));
                Act::Issue {
                    check,
                    keeps: issue.label.is_some(),
                    message: None,
                    data: DataCheck::of(issue.judged),
                }
            }
            Verb::Send(side) | Verb::Recv(side) | Verb::Isend(side) | Verb::Irecv(side) => {
                label += &format!(" {}", side.message);
                let act;
                (ranks, act) = self.message_side(&spec.verb, side)?;
                act
            }
            Verb::Wait(wait) => {
                let names = wait.of.as_slice();
                label += &format!(" {}", names.join(", "));
                let checks: Result<Vec<_>, _> = names.iter().map(|name| self.find(name)).collect();
                Act::Wait {
                    checks: checks?,
                    timeout_ms: wait.timeout_ms,
                }
            }
            Verb::IsCompleted(polled) => {
                label += &format!(" {}", polled.of);
                Act::IsCompleted {
                    check: self.find(&polled.of)?,
                    is: polled.is,
                }
            }
            Verb::Future(of) => Act::Future(self.find(&of.of)?),
            Verb::Drop(of) => Act::Drop(self.find(&of.of)?),
            Verb::Mark(mark) => Act::Mark(self.in_this_turn(&mark.name)),
            Verb::Hold(hold) => Act::Hold(self.in_this_turn(&hold.name)),
            Verb::Sleep(time) => Act::Sleep(time.ms),
            Verb::Pause(time) => Act::Pause(time.ms),
            Verb::Freeze(_) => Act::Freeze,
            Verb::Die(die) => Act::Die(die.signal),
            Verb::Exit(exit) => Act::Exit(exit.code),
            Verb::Census(census) => Act::Census(census.name.clone()),
            Verb::Steady(steady) => Act::Steady(steady.clone()),
            Verb::WhoAmI(of) => Act::WhoAmI(of.group.clone()),
            Verb::Setenv(set) => Act::Setenv(set.name.clone(), set.value.clone()),
            Verb::Init(init) => Act::Init(init.clone()),
            Verb::Destroy(of) => {
                label += &format!(" {}", of.group);
                Act::Destroy(of.group.clone())
            }
            Verb::NewGroup(group) => {
                label += &format!(" {}", group.name);
                self.new_group(group)
            }
            Verb::Abort(of) => Act::Abort(of.group.clone()),
            Verb::Python(python) => Act::Python {
                source: python.run.clone(),
                unnoticed: python.unnoticed,
            },
            Verb::Together(together) => {
                let threads: Result<Vec<_>, _> = together
                    .threads
                    .iter()
                    .map(|thread| self.moves(thread))
                    .collect();
                Act::Together(threads?)
            }
            Verb::Repeat(_) => return Err("a loop is not one move".to_owned()),
        };
        Ok(Move {
            ranks,
            act,
            expect: spec.expect.clone(),
            label,
        })
    }

    /// Returns the rank that sends or receives a message, and what it does.
    fn message_side(
        &mut self,
        verb: &Verb,
        side: &MessageMove,
    ) -> Result<(Vec<Rank>, Act), String> {
        let check = self.message(&side.message)?;
        let sends = matches!(verb, Verb::Send(_) | Verb::Isend(_));
        let blocking = matches!(verb, Verb::Send(_) | Verb::Recv(_));
        let Pairs::Link { from, to } = self.checks[check].pairs else {
            return Err(format!("`{}` is not a message", side.message));
        };
        // Platform files declare patterns of pairs; one pair is part of a ring.
        let message = OpCheck {
            pairs: Pairs::Ring,
            ..self.checks[check].clone()
        };
        let declared = self.place.backend.declares_any_source(&message);
        if let Declared::Unsupported(what) = declared
            && side.any_source
        {
            self.undeclared_source.get_or_insert(what);
        }
        let rank = self.checks[check].group.ranks[if sends { from } else { to } as usize];
        let act = Act::Issue {
            check,
            keeps: !blocking,
            message: Some(MessageAct {
                sends,
                blocking,
                any_source: side.any_source,
            }),
            data: DataCheck::IfComplete,
        };
        Ok((vec![rank], act))
    }

    /// Adds a group that the script makes, in the place of an earlier one of its name, and returns the call that makes it.
    fn new_group(&mut self, group: &NewGroupMove) -> Act {
        let members = group.ranks.in_world(self.size);
        let mut ranks = members.clone();
        ranks.sort_unstable();
        self.groups.retain(|other| other.name != group.name);
        self.groups.push(Arc::new(Group {
            name: group.name.clone(),
            ranks,
            backend: group.backend.clone(),
            on_host: is_on_host(self.place.platform, group.backend.as_deref()),
            how: Creation::default(),
        }));
        Act::NewGroup {
            name: group.name.clone(),
            ranks: members,
            backend: group.backend.clone(),
            timeout_s: group.timeout_s,
            local_sync: group.local_sync,
        }
    }

    /// Returns a mark's name. Inside loops the turn is part of it, so that each turn has marks of its own.
    fn in_this_turn(&self, name: &str) -> String {
        match self.turn {
            None => name.to_owned(),
            Some(turn) => format!("{name}, turn {turn}"),
        }
    }

    /// Returns the place of the check whose work has this name.
    fn find(&self, label: &str) -> Result<usize, String> {
        self.labels
            .iter()
            .rev()
            .find_map(|labels| labels.get(label))
            .copied()
            .ok_or_else(|| format!("no move before this one issues a work named `{label}`"))
    }

    /// Returns the place of the check that a move issues: a new one, unless a move before it has this name.
    fn issue(&mut self, op: Option<Op>, issue: &IssueSpec) -> Result<usize, String> {
        if let Some(label) = &issue.label
            && let Some(check) = self.labels.last().and_then(|labels| labels.get(label))
        {
            return Ok(*check);
        }
        let (op, mut params) = match (op, self.it) {
            (Some(op), _) => (op, issue.with.clone()),
            (None, Some((op, params))) => (op, params.clone().or(issue.with.clone())),
            (None, None) => return Err("`it` without `over`".to_owned()),
        };
        if issue.label.is_some() {
            if !op.takes("mode") && op != Op::IsendIrecv {
                return Err(format!("`{}` gives no work to wait for", op.name()));
            }
            if op.takes("mode") {
                params.mode = Some(crate::case::OneOrMany::One(Mode::Async));
            }
        }
        let check = self.add(op, params, Pairs::Ring)?;
        if let Some(label) = &issue.label {
            self.name(label, check);
        }
        Ok(check)
    }

    /// Returns the place of the check of a message: a new one, unless a move before it has issued the other side.
    fn message(&mut self, name: &str) -> Result<usize, String> {
        if let Some(check) = self.labels.last().and_then(|labels| labels.get(name)) {
            return Ok(*check);
        }
        let spec = self.spec.messages.0.iter().find(|(known, _)| known == name);
        let Some((_, MessageSpec { from, to, with })) = spec else {
            return Err(format!("there is no message `{name}`"));
        };
        let group = self.group(with)?;
        let position = |members: &Members| {
            let ranks = members.in_world(self.size);
            match *ranks {
                [rank] => group.group_rank(rank).ok_or("it is not in the group"),
                _ => Err("a message has one sender and one receiver"),
            }
        };
        let pairs = Pairs::Link {
            from: position(from).map_err(|why| format!("message `{name}`: {why}"))?,
            to: position(to).map_err(|why| format!("message `{name}`: {why}"))?,
        };
        let check = self.add(Op::IsendIrecv, with.clone(), pairs)?;
        self.name(name, check);
        Ok(check)
    }

    fn name(&mut self, label: &str, check: usize) {
        if let Some(labels) = self.labels.last_mut() {
            labels.insert(label.to_owned(), check);
        }
    }

    fn group(&self, params: &StepParams) -> Result<Arc<Group>, String> {
        let name = params
            .group
            .as_ref()
            .and_then(|groups| groups.as_slice().first())
            .map_or("world", String::as_str);
        let group = self.groups.iter().find(|group| group.name == name);
        let group = group.ok_or_else(|| format!("there is no group `{name}`"))?;
        if group.ranks.is_empty() {
            return Err(format!("group {name} has no members in this world"));
        }
        Ok(Arc::clone(group))
    }

    fn add(&mut self, op: Op, params: StepParams, pairs: Pairs) -> Result<usize, String> {
        let group = self.group(&params)?;
        let sweep = SweepSpec {
            op,
            params,
            line: self.line,
        };
        let index = 1 << 30 | self.parent << 14 | self.checks.len() as u32;
        let (mut check, declared) = single(self.place, &sweep, &group, index)?;
        if let Pairs::Link { .. } = pairs {
            check.pairs = pairs;
        }
        if check.tensor != TensorKind::Plain {
            // A step's tensors are all of one kind.
            return Err("a script's tensors are plain".to_owned());
        }
        if declared != Declared::Supported {
            self.undeclared.get_or_insert(op);
        }
        self.checks.push(check);
        Ok(self.checks.len() - 1)
    }
}
