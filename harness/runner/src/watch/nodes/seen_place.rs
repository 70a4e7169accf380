//! Where the stack of a rank shows it to be, as it is stored.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::watch::ranks::rank_process::RankProcess;
use allranks_diagnose::{EventKind, RankState, Rendezvous, SeenCall, TraceEvent};

/// Where the stack of a rank shows it to be.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SeenPlace {
    /// `init`, `call`, `own`.
    what: String,
    /// The name of the call, or the line of its own code.
    text: String,
    /// Whether the call is a collective.
    is_collective: bool,
    /// Whether it is known to be one of the default group.
    is_default_group: bool,
    /// The file and line of the program.
    at: String,
    /// For how many seconds it has been there.
    lasts_s: f64,
}

impl SeenPlace {
    /// Makes the record of where a rank is; `None` if it is in nothing that a stack shows.
    pub fn of(state: &RankState) -> Option<Self> {
        let (event, lasts) = state.doing.as_ref()?;
        let call = |call: &SeenCall| ("call", call.name.clone(), call.clone());
        let nothing = SeenCall {
            name: String::new(),
            is_collective: false,
            is_default_group: false,
        };
        let (what, text, seen) = match &event.what {
            EventKind::Init(_) => ("init", "init_process_group".to_owned(), nothing),
            EventKind::Seen(one) => call(one),
            EventKind::Own(text) => ("own", text.clone(), nothing),
            _ => return None,
        };
        Some(Self {
            what: what.to_owned(),
            text,
            is_collective: seen.is_collective,
            is_default_group: seen.is_default_group,
            at: event.at.clone(),
            lasts_s: lasts.as_secs_f64(),
        })
    }

    /// The event that the rank is in, and for how long when it was written.
    pub fn event(&self, process: &RankProcess) -> (TraceEvent, Duration) {
        let call = || {
            EventKind::Seen(SeenCall {
                name: self.text.clone(),
                is_collective: self.is_collective,
                is_default_group: self.is_default_group,
            })
        };
        let numbers = process.number("RANK").zip(process.number("WORLD_SIZE"));
        let what = match self.what.as_str() {
            "own" => EventKind::Own(self.text.clone()),
            "init" => match numbers.zip(process.assigned_endpoint()) {
                Some(((rank, world_size), place)) => EventKind::Init(Rendezvous {
                    method: "env".to_owned(),
                    place,
                    assigned: None,
                    rank,
                    world_size,
                }),
                None => call(),
            },
            _ => call(),
        };
        let at = self.at.clone();
        (
            TraceEvent { what, at },
            Duration::from_secs_f64(self.lasts_s.max(0.0)),
        )
    }
}
