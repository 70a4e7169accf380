//! Compares what calls return besides the bytes they leave: senders, Python objects, and the times of barriers.

use serde_json::Value;

use super::rank_plan::Answer;
use super::{Class, Mismatch, Prepared, RankReply};
use allranks_model::names::Rank;
use allranks_model::record::Difference;
use allranks_protocol::{Call, CallResult};

impl Prepared {
    /// Compares what calls answered: the senders of messages, and objects.
    pub(super) fn compare_answers(&self, replies: &[RankReply]) -> Result<(), Box<Mismatch>> {
        for (rank, (work, reply)) in (0_u32..).zip(self.works.iter().zip(replies)) {
            for (call, answer) in &work.answers {
                let got = &reply.result.calls[*call].value;
                if !answer.is(got) {
                    let (class, difference) = answer.mismatch(Rank(rank), *call, got);
                    return Err(Box::new(Mismatch {
                        class: class.name().to_owned(),
                        sentence: class.sentence(),
                        difference: Some(difference),
                    }));
                }
            }
        }
        Ok(())
    }

    /// Barriers: the last to enter comes before the first to leave. Needs comparable clocks.
    pub(super) fn compare_times(&self, replies: &[RankReply]) -> Result<(), Box<Mismatch>> {
        if !self.facts.op.is_barrier() {
            return Ok(());
        }
        let times = |rank: u32| {
            let calls = &self.steps[rank as usize].step.calls;
            let results = &replies[rank as usize].result.calls;
            let barrier = calls
                .iter()
                .position(|call| !matches!(call, Call::Sleep { .. }));
            let enter = barrier.map_or(0, |call| results[call].enter);
            (
                enter,
                results.last().map_or(0, |last: &CallResult| last.leave),
            )
        };
        let members = || self.facts.members.iter().map(|rank| (*rank, times(*rank)));
        let last = members().max_by_key(|(_, (enter, _))| *enter);
        let first = members().min_by_key(|(_, (_, leave))| *leave);
        match (last, first) {
            (Some((last, (enter, _))), Some((first, (_, leave)))) if leave < enter => {
                let early = (enter - leave) as f64 / 1e6;
                Err(Box::new(Mismatch {
                    class: Class::EarlyLeave.name().to_owned(),
                    sentence: format!(
                        "rank {first} left the barrier {early:.3} ms before rank {last} entered it"
                    ),
                    difference: None,
                }))
            }
            _ => Ok(()),
        }
    }
}

impl Answer {
    fn is(&self, got: &Value) -> bool {
        match self {
            Self::Sender(rank) => got.as_u64() == Some(u64::from(rank.0)),
            Self::Objects(value) => value == got,
        }
    }

    /// Returns the number of values in the answer.
    pub(super) fn count(&self) -> u64 {
        match self {
            Self::Objects(Value::Array(list)) => list.len() as u64,
            Self::Sender(_) | Self::Objects(_) => 1,
        }
    }

    fn mismatch(&self, rank: Rank, call: usize, got: &Value) -> (Class, Difference) {
        let (class, buffer, index, expected, actual) = match self {
            Self::Sender(sender) => (
                Class::WrongSender,
                "sender".to_owned(),
                call,
                sender.to_string(),
                excerpt(got),
            ),
            Self::Objects(Value::Array(list))
                if got.as_array().is_some_and(|got| got.len() == list.len()) =>
            {
                let got = got.as_array().map_or(&[][..], Vec::as_slice);
                let index = list.iter().zip(got).position(|(a, b)| a != b).unwrap_or(0);
                let buffer = format!("object[{index}]");
                (
                    Class::WrongObject,
                    buffer,
                    index,
                    excerpt(&list[index]),
                    excerpt(&got[index]),
                )
            }
            Self::Objects(value) => (
                Class::WrongObject,
                "object".to_owned(),
                0,
                excerpt(value),
                excerpt(got),
            ),
        };
        let difference = Difference {
            buffer,
            rank,
            index: index as u64,
            expected,
            actual,
            wrong: 1,
            of: self.count(),
            ranks: vec![rank],
        };
        (class, difference)
    }
}

/// Returns the beginning of a JSON value, short enough for a report.
fn excerpt(value: &Value) -> String {
    const LONGEST: usize = 120;
    let text = value.to_string();
    if text.chars().count() <= LONGEST {
        return text;
    }
    let start: String = text.chars().take(LONGEST).collect();
    format!("{start}… ({} characters)", text.chars().count())
}
