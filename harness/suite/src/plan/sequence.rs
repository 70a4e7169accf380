//! Sequences: ops and messages, with the moves that make them, in one order for all ranks. A part of a sequence's
//! units is a sequence again, which shrinking relies on.
//!
//! In: what a generator drew. Out: a script as a case would write it, as data ([`Sequence::script`]) and as YAML
//! ([`Sequence::yaml`]). Both come from one value, so the YAML in a report is exactly what was played.

use std::fmt;

use serde_json::{Map, Value, json};

use crate::case::ScriptSpec;
use allranks_model::names::Rank;
use allranks_model::op::Op;

/// A random sequence of ops and messages.
#[derive(Clone, Debug, PartialEq)]
pub struct Sequence {
    /// Its name in the ids of checks: `mix-1`.
    pub name: String,
    /// Its ops and messages, in the order in which they are issued.
    pub units: Vec<Unit>,
    /// The moves, in one order for all ranks. Every rank makes its own.
    pub turns: Vec<SequenceMove>,
}

/// An op or a message of a sequence. All of its moves are there, or none.
#[derive(Clone, Debug, PartialEq)]
pub struct Unit {
    /// The name of its work or message: `op17`. It stays the same when other units are removed.
    pub name: String,
    /// Whether it is an op or a message.
    pub what: UnitKind,
    /// Its parameters, as a case file writes them.
    pub with: Map<String, Value>,
}

/// An op or a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnitKind {
    /// An op, by all members of a group.
    Op(Op),
    /// A message from one rank to another.
    Message {
        /// The rank that sends it.
        from: Rank,
        /// The rank that receives it.
        to: Rank,
    },
}

/// One move of a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SequenceMove {
    /// The place of its unit in [`Sequence::units`].
    pub unit: usize,
    /// What is done, and by which of the unit's ranks.
    pub does: SequenceAct,
}

/// What a move does for its unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SequenceAct {
    /// Every member calls the op, and has its result when the call returns.
    Make,
    /// Every member issues the op as async, and keeps its work.
    Issue,
    /// The sender calls `send`.
    Send,
    /// The receiver calls `recv`.
    Recv,
    /// The sender calls `isend`, and keeps the work.
    Isend,
    /// The receiver calls `irecv`, and keeps the work.
    Irecv,
    /// This rank waits for its work. `None`: every rank that has one does.
    Wait(Option<Rank>),
}

impl Sequence {
    /// Returns the sequence of the units at these places, in this order, with their moves and no others.
    #[must_use]
    pub fn only(&self, units: &[usize]) -> Self {
        let turns = self.turns.iter().filter_map(|turn| {
            let unit = units.iter().position(|unit| *unit == turn.unit)?;
            Some(SequenceMove { unit, ..*turn })
        });
        Self {
            name: self.name.clone(),
            units: units.iter().map(|unit| self.units[*unit].clone()).collect(),
            turns: turns.collect(),
        }
    }

    /// Returns the script that plays the sequence, as a case would write it.
    ///
    /// # Errors
    ///
    /// A parameter is not one of its op, which is a bug of the generator.
    pub fn script(&self) -> Result<ScriptSpec, String> {
        serde_json::from_value(self.value()).map_err(|error| error.to_string())
    }

    /// Returns the script as a step of a case file, indented below `steps:`.
    #[must_use]
    pub fn yaml(&self) -> String {
        let value = self.value();
        let mut text = format!("  - script:\n      name: {}\n", self.name);
        if let Some(messages) = value["messages"].as_object().filter(|all| !all.is_empty()) {
            text += "      messages:\n";
            for (name, message) in messages {
                text += &format!("        {name}: {}\n", flow(message));
            }
        }
        text += "      moves:\n";
        for one in value["moves"].as_array().into_iter().flatten() {
            let (on, verb): (Vec<_>, Vec<_>) = one
                .as_object()
                .into_iter()
                .flatten()
                .partition(|(key, _)| *key == "on");
            for (mark, (key, value)) in ["- ", "  "].iter().zip(verb.into_iter().chain(on)) {
                text += &format!("        {mark}{key}: {}\n", flow(value));
            }
        }
        text
    }

    fn value(&self) -> Value {
        let messages: Map<String, Value> = self
            .units
            .iter()
            .filter_map(|unit| match unit.what {
                UnitKind::Op(_) => None,
                UnitKind::Message { from, to } => {
                    let message = json!({"from": [from.0], "to": [to.0], "with": unit.with});
                    Some((unit.name.clone(), message))
                }
            })
            .collect();
        let moves: Vec<Value> = self.turns.iter().map(|turn| self.turn(*turn)).collect();
        json!({"name": self.name, "messages": messages, "moves": moves})
    }

    fn turn(&self, turn: SequenceMove) -> Value {
        let unit = &self.units[turn.unit];
        let side = || json!({"message": unit.name});
        let (verb, params) = match turn.does {
            SequenceAct::Make => (unit.verb(), json!({"with": unit.with})),
            SequenceAct::Issue => (unit.verb(), json!({"as": unit.name, "with": unit.with})),
            SequenceAct::Send => ("send", side()),
            SequenceAct::Recv => ("recv", side()),
            SequenceAct::Isend => ("isend", side()),
            SequenceAct::Irecv => ("irecv", side()),
            SequenceAct::Wait(_) => ("wait", json!({"of": unit.name})),
        };
        match turn.does {
            SequenceAct::Wait(Some(rank)) => json!({verb: params, "on": [rank.0]}),
            _ => json!({verb: params}),
        }
    }
}

impl Unit {
    fn verb(&self) -> &'static str {
        match self.what {
            UnitKind::Op(op) => op.name(),
            UnitKind::Message { .. } => "message",
        }
    }
}

/// Writes `broadcast op3`, `message op4 from 0 to 2`.
impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.verb(), self.name)?;
        match self.what {
            UnitKind::Op(_) => Ok(()),
            UnitKind::Message { from, to } => write!(f, " from {from} to {to}"),
        }
    }
}

/// Writes a value in YAML's flow style. Every string in a sequence is a word that needs no quotes.
fn flow(value: &Value) -> String {
    match value {
        Value::String(word) => word.clone(),
        Value::Array(values) => {
            let values: Vec<_> = values.iter().map(flow).collect();
            format!("[{}]", values.join(", "))
        }
        Value::Object(map) => {
            let entries: Vec<_> = map
                .iter()
                .map(|(key, value)| format!("{key}: {}", flow(value)))
                .collect();
            format!("{{{}}}", entries.join(", "))
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sequence() -> Sequence {
        let with = |value: Value| value.as_object().unwrap().clone();
        let unit = |name: &str, what, value| Unit {
            name: name.to_owned(),
            what,
            with: with(value),
        };
        let (from, to) = (Rank(2), Rank(0));
        let turn = |unit, does| SequenceMove { unit, does };
        Sequence {
            name: "mix-1".to_owned(),
            units: vec![
                unit(
                    "op1",
                    UnitKind::Op(Op::Broadcast),
                    json!({"root": 1, "numel": 5}),
                ),
                unit("op2", UnitKind::Op(Op::AllReduce), json!({"dtype": "int8"})),
                unit("op3", UnitKind::Message { from, to }, json!({"tag": 7})),
            ],
            turns: vec![
                turn(1, SequenceAct::Issue),
                turn(0, SequenceAct::Make),
                turn(2, SequenceAct::Irecv),
                turn(2, SequenceAct::Send),
                turn(1, SequenceAct::Wait(Some(Rank(1)))),
                turn(2, SequenceAct::Wait(None)),
            ],
        }
    }

    #[test]
    fn what_is_written_is_what_is_played() {
        let sequence = sequence();
        let yaml = sequence.yaml();
        let steps: Value = serde_yaml::from_str(&format!("steps:\n{yaml}")).unwrap();
        let written: ScriptSpec =
            serde_json::from_value(steps["steps"][0]["script"].clone()).unwrap();
        assert_eq!(written, sequence.script().unwrap());
        assert_eq!(written.moves.len(), 6);
        assert!(
            yaml.contains("- wait: {of: op2}\n          on: [1]\n"),
            "{yaml}"
        );
    }

    #[test]
    fn a_unit_goes_with_all_its_moves() {
        let less = sequence().only(&[0, 2]);
        let names: Vec<_> = less.units.iter().map(Unit::to_string).collect();
        assert_eq!(names, ["broadcast op1", "message op3 from 2 to 0"]);
        let units: Vec<_> = less.turns.iter().map(|turn| turn.unit).collect();
        assert_eq!(units, [0, 1, 1, 1]);
        assert_eq!(less.script().unwrap().messages.0.len(), 1);
    }
}
