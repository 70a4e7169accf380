//! A process that is a rank, and what it says of its place in the world.

use std::collections::BTreeMap;

use crate::watch::trace::call::Call;
use crate::watch::trace::call_trace::CallTrace;
use allranks_host::Activity;
use allranks_model::names::Rank;

/// A process that is a rank.
#[derive(Clone, Debug)]
pub struct RankProcess {
    /// The id of the process.
    pub pid: u32,
    /// Its environment at its start.
    pub environment: BTreeMap<String, String>,
    /// What the process does; none if that cannot be told.
    pub activity: Option<Activity>,
    /// Its call trace, merged with the records of torch's flight recorder; none if it writes none.
    pub call_trace: Option<CallTrace>,
    /// Its call trace as it was read, before the merge.
    pub traced: Option<CallTrace>,
    /// True while a script of the job runs a command before it goes on: more ranks may be started after that.
    pub more_may_start: bool,
}

impl RankProcess {
    /// Returns a variable of its environment as a number; none if it is not set or no number.
    #[must_use]
    pub fn number(&self, name: &str) -> Option<u32> {
        self.environment.get(name)?.trim().parse().ok()
    }

    /// Returns true if its process has not ended.
    #[must_use]
    pub fn lives(&self) -> bool {
        self.activity != Some(Activity::Gone)
    }

    /// Returns the rank that it claims by its environment, or else by its last call of `init_process_group`; none if by
    /// neither.
    pub fn claimed(&self) -> Option<u32> {
        self.number("RANK").or_else(|| {
            let entries = &self.traced.as_ref().or(self.call_trace.as_ref())?.entries;
            entries.iter().rev().find_map(|entry| match entry.call {
                Call::Init { rank, .. } => rank?.try_into().ok(),
                _ => None,
            })
        })
    }

    /// Returns the world size that it claims, in the same way.
    pub fn world_size(&self) -> Option<u32> {
        self.number("WORLD_SIZE").or_else(|| {
            let entries = &self.traced.as_ref().or(self.call_trace.as_ref())?.entries;
            entries.iter().rev().find_map(|entry| match entry.call {
                Call::Init { world_size, .. } => world_size?.try_into().ok(),
                _ => None,
            })
        })
    }

    /// Returns what tells its world from others on this host: the endpoint that its launcher told it, or else that of
    /// its own init, and the launcher's attempt.
    pub fn place(&self) -> String {
        let value = |name: &str| self.environment.get(name).cloned();
        let assigned = value("MASTER_ADDR").zip(value("MASTER_PORT"));
        let traced = self.traced.as_ref().or(self.call_trace.as_ref());
        let place = match assigned {
            Some((address, port)) => {
                let address = match address.as_str() {
                    "127.0.0.1" | "::1" | "0.0.0.0" => "localhost",
                    other => other,
                };
                format!("{address}:{port}")
            }
            None => traced
                .and_then(|call_trace| {
                    call_trace
                        .entries
                        .iter()
                        .rev()
                        .find_map(|entry| match &entry.call {
                            Call::Init { method, place, .. } => {
                                let place = match method.as_str() {
                                    // A prefix of the keys behind the address.
                                    "store" => place.split('/').next().unwrap_or_default(),
                                    _ => place,
                                };
                                Some(place.replace("127.0.0.1", "localhost"))
                            }
                            _ => None,
                        })
                })
                .unwrap_or_default(),
        };
        let attempt = value("TORCHELASTIC_RESTART_COUNT").unwrap_or_default();
        format!("{place} {attempt}")
    }

    /// Returns the endpoint that the launcher told the process, `HOST:PORT`; none if it told none.
    pub fn assigned_endpoint(&self) -> Option<String> {
        let value = |name: &str| self.environment.get(name);
        Some(format!(
            "{}:{}",
            value("MASTER_ADDR")?,
            value("MASTER_PORT")?
        ))
    }
}

/// Returns true if all of several ranks but one have ended.
pub fn is_one_left(ranks: &[(Rank, &RankProcess)]) -> bool {
    let living = ranks.iter().filter(|(_, process)| process.lives());
    ranks.len() > 1 && living.count() == 1
}
