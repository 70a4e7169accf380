//! The frames of the rank protocol, between the harness and a rank, as data types.
//!
//! The page for people who write drivers is `harness/doc/reference/protocol.md`; these types are that page in Rust. Nothing
//! here opens a socket (`allranks-runner` does) or knows what a call means (`allranks-oracle` does).
//!
//! A rank is a small interpreter: the harness sends [`Step`]s, each a few storages (raw bytes), tensors (views of
//! them) and calls; the rank makes the tensors, makes the calls in order, and returns how each call went and the
//! final bytes of **every** storage. It never sees an expected value.

mod call;
mod node;
mod rank_exit;
mod zygote;

pub use call::{Call, DeviceArgument, Direction, P2pCall, RankRef};
pub use node::{
    FromNode, Join, MAX_GREETING, MAX_NODE_HEADER, NODE_VERSION, NodeDriver, NodeFacts,
    NodeListener, NodeObservation, NodeProcess, NodeQuery, NodeRank, NodeRendezvous, NodeWorld,
    ToNode, Welcome,
};
pub use rank_exit::RankExit;
pub use zygote::{Fork, ForkedScript, FromZygote, ToZygote};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use allranks_model::dtype::DType;
use allranks_model::excerpt::{excerpt, excerpt_within};
use allranks_model::flight_recorder::RecordedOp;
use allranks_model::names::Rank;

/// The protocol's version, sent in `hello`; a driver with another version is refused with a clear error.
pub const VERSION: u32 = 1;

/// The factor of `premul_sum` in steps that set none (`premul_factor`): every rank's contribution is multiplied by it
/// before the sum. Exactly representable in every dtype, and not a power of two.
pub const PREMUL_FACTOR: f64 = 3.0;

/// The longest header accepted, in bytes.
pub const MAX_HEADER: usize = 16 << 20;
/// The longest payload accepted, in bytes.
pub const MAX_PAYLOAD: u64 = 64 << 30;

/// A header the harness sends to a rank.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "frame", rename_all = "snake_case")]
pub enum ToRank {
    /// Make these calls. The payload is the initial bytes of the step's storages, one after another.
    Step(Step),
    /// Continue a call `hold` that waits.
    Go,
    /// No more steps: answer `bye`, close the socket, exit with code 0.
    Finish,
}

/// One unit of work for one rank.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// Number of the step, counted from 0 in each world; the same on every rank.
    pub step: u32,
    /// Length in bytes of each storage; the payload holds their initial bytes in this order.
    pub storages: Vec<u64>,
    /// Views of the storages. Calls name them by index.
    pub tensors: Vec<Tensor>,
    /// Calls, made in order; the first that fails ends the step, and the rest are `not_reached`.
    pub calls: Vec<Call>,
}

/// A strided view of a storage, as in `torch.as_strided`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tensor {
    /// Index of the storage it views.
    pub storage: usize,
    /// Element type of the tensor.
    pub dtype: DType,
    /// Sizes; empty for a 0-dim tensor.
    pub shape: Vec<u64>,
    /// Strides in elements; as long as `shape`.
    pub strides: Vec<u64>,
    /// Offset of the first element from the start of the storage, in elements.
    pub offset: u64,
    /// Whether the tensor is on the CPU, wherever the rank's other tensors are.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub host: bool,
}

/// A header a rank sends to the harness.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "frame", rename_all = "snake_case")]
pub enum FromRank {
    /// The first frame on the socket.
    Hello(Hello),
    /// Sent just before a call is made: where the rank is, should it never return.
    Enter {
        /// Number of the step.
        step: u32,
        /// Index of the call in the step.
        call: usize,
        /// Monotonic clock of the rank's host, in nanoseconds.
        ns: u64,
    },
    /// The step is over. The payload is the final bytes of every storage, in the step's order.
    Result(StepResult),
    /// The ops that are not complete according to torch's flight recorder, sent during a call that takes long. It may come at any time
    /// and has no answer.
    Recorder {
        /// Number of the rank's current step.
        step: u32,
        /// The ops, oldest first.
        ops: Vec<RecordedOp>,
    },
    /// The answer to `finish`, and the rank's vote: exit code 0 without it is a failure.
    Bye {
        /// Number of steps that the rank finished.
        steps: u32,
        /// The rank's token from `ALLRANKS_TOKEN`, as in `hello`.
        token: String,
    },
}

/// What a rank says of itself when it connects.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Hello {
    /// The protocol's [`VERSION`].
    pub version: u32,
    /// The rank's token, from `ALLRANKS_TOKEN`.
    pub token: String,
    /// The rank's number in the world, from `RANK`.
    pub rank: Rank,
    /// Process id of the rank.
    pub pid: u32,
    /// Name of the driver: `python`, `libtorch`, or a vendor's own.
    pub driver: String,
    /// Version of torch, or of what stands in for it.
    pub torch: String,
    /// Names the clock behind `ns` values: equal strings mean comparable clocks (a host's boot id).
    pub clock: String,
    /// The `call` names this driver can make.
    pub calls: Vec<String>,
}

impl Hello {
    /// Cuts the texts that come into records to lengths that no version or clock needs.
    #[must_use]
    pub fn cut(self) -> Self {
        let cut = |text: String| excerpt_within(text, 256);
        Self {
            driver: cut(self.driver),
            torch: cut(self.torch),
            clock: cut(self.clock),
            ..self
        }
    }
}

/// How a step went on one rank.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepResult {
    /// Number of the step.
    pub step: u32,
    /// One entry for each call of the step.
    pub calls: Vec<CallResult>,
    /// Length in bytes of each storage, as in the step.
    pub storages: Vec<u64>,
}

impl StepResult {
    /// Cuts what the calls raised to excerpts, also what an `attempt` reports.
    pub fn cut_errors(&mut self) {
        for call in &mut self.calls {
            if let Some(error) = call.error.take() {
                call.error = Some(error.cut());
            }
            for text in ["type", "message"] {
                if let Some(Value::String(text)) =
                    call.value.pointer_mut(&format!("/raised/{text}"))
                {
                    *text = excerpt(std::mem::take(text));
                }
            }
        }
    }
}

/// How one call went on one rank.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CallResult {
    /// Whether the call returned.
    pub status: CallStatus,
    /// Monotonic clock just before the call, nanoseconds; 0 if not reached.
    #[serde(default)]
    pub enter: u64,
    /// Monotonic clock just after the call, nanoseconds; 0 if not reached.
    #[serde(default)]
    pub leave: u64,
    /// What the call returned, where the call's description says so; otherwise null.
    #[serde(default)]
    pub value: Value,
    /// What the call raised; `None` if it did not raise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<CallError>,
}

/// Whether a call returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallStatus {
    /// The call returned.
    Ok,
    /// The call raised, and `error` says what.
    Error,
    /// An earlier call of the step raised.
    NotReached,
}

/// What a call raised.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallError {
    /// The exception's type, `RuntimeError`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The exception's message; of a long one, an excerpt.
    pub message: String,
}

impl CallError {
    /// Cuts both texts to excerpts.
    #[must_use]
    pub fn cut(self) -> Self {
        Self {
            kind: excerpt_within(self.kind, 200),
            message: excerpt(self.message),
        }
    }
}

#[cfg(test)]
mod tests {
    use allranks_model::excerpt::LONGEST;
    use serde_json::json;

    use super::*;

    #[test]
    fn what_calls_raised_is_cut_and_what_they_returned_is_not() {
        let long = "x".repeat(2 * LONGEST);
        let call =
            json!({"status": "error", "value": long, "error": {"type": long, "message": long}});
        let attempt = json!({"status": "ok", "value": {"raised": {"type": "E", "message": long}}});
        let short = json!({"status": "ok", "value": {"raised": null, "value": long}});
        let result = json!({"step": 1, "calls": [call, attempt, short], "storages": []});
        let mut result: StepResult = serde_json::from_value(result).unwrap();
        result.cut_errors();
        let error = result.calls[0].error.clone().unwrap();
        assert!(error.message.len() < LONGEST + 60 && error.kind.len() < 260);
        assert_eq!(result.calls[0].value, json!(long));
        let message = result.calls[1].value["raised"]["message"].as_str();
        assert_eq!(message, Some(error.message.as_str()));
        assert_eq!(result.calls[2].value["value"], json!(long));
    }
}
