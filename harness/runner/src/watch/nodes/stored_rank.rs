//! One rank in the file of a node's evidence.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::seen_place::SeenPlace;
use crate::watch::ranks::rank_process::RankProcess;
use crate::watch::trace::call_trace::CallTrace;
use crate::world::OF_OTHER_LAUNCHERS;
use allranks_host::Activity;
use allranks_model::flight_recorder::RecorderDump;
use allranks_model::names::Rank;

/// What of an environment is kept: nothing that could be a secret.
const KEPT: &[&str] = &[
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "GROUP_RANK",
    "MASTER_ADDR",
    "MASTER_PORT",
    "TORCHELASTIC_RESTART_COUNT",
    "TORCHELASTIC_RUN_ID",
];

/// Returns true for a variable that tells the place of a rank.
fn is_kept(name: &str) -> bool {
    KEPT.contains(&name) || OF_OTHER_LAUNCHERS.iter().any(|dialect| dialect.has(name))
}

/// One rank, as far as it was seen.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StoredRank {
    pub rank: u32,
    pub pid: u32,
    pub environment: BTreeMap<String, String>,
    /// `alive`, `stopped`, `gone`; none: it could not be seen.
    pub process: Option<String>,
    /// Seconds since it last gave a sign of life.
    pub silence_s: f64,
    /// Its calls; none if it keeps no trace.
    pub trace: Option<CallTrace>,
    /// The dump of torch's flight recorder; none if there is none.
    pub recorder: Option<RecorderDump>,
    /// Where its stack shows it to be; none of a rank that keeps a trace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen: Option<SeenPlace>,
}

impl StoredRank {
    /// Stores what is seen of a rank now.
    pub fn of(rank: Rank, process: &RankProcess) -> Self {
        Self {
            rank: rank.0,
            pid: process.pid,
            environment: (process.environment.iter())
                .filter(|(name, _)| is_kept(name))
                .map(|(name, value)| (name.clone(), value.clone()))
                .collect(),
            process: process.activity.map(|activity| {
                match activity {
                    Activity::Alive { .. } => "alive",
                    Activity::Stopped => "stopped",
                    Activity::Gone => "gone",
                }
                .to_owned()
            }),
            silence_s: (process.traced.as_ref())
                .map_or(0.0, |call_trace| call_trace.silence().as_secs_f64()),
            recorder: (process.traced.as_ref())
                .and_then(|call_trace| call_trace.dump.as_deref().cloned()),
            trace: process.traced.clone(),
            seen: None,
        }
    }

    /// Returns the rank with all times moved by the seconds that have passed since it was stored.
    pub fn process(&self, passed: f64) -> RankProcess {
        let trace = self.trace.clone().map(|mut call_trace| {
            let dump = self.recorder.clone();
            call_trace.move_to_now(passed, self.silence_s, dump);
            call_trace
        });
        RankProcess {
            more_may_start: false,
            pid: self.pid,
            environment: self.environment.clone(),
            activity: match self.process.as_deref() {
                Some("alive") => Some(Activity::Alive { ticks: 0 }),
                Some("stopped") => Some(Activity::Stopped),
                Some("gone") => Some(Activity::Gone),
                _ => None,
            },
            call_trace: None,
            traced: trace,
        }
    }
}
