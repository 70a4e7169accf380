//! Makes evidence for the rules of what the ranks of a job have written.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use super::environment::may_be_same;
use super::job::Job;
use super::logged::{Logged, Step};
use super::phase::Nature;
use crate::{
    Collective, EventKind, HangEvidence, Message, Process, RankState, Remaining, Rendezvous,
    TraceEvent,
};
use allranks_model::names::Rank;

/// The group that calls are taken to use, since logs do not name one.
const WORLD: &str = "world";

impl Job {
    /// Makes evidence for the rules.
    pub(super) fn evidence(&self) -> HangEvidence {
        let members: Arc<[Rank]> = match self.size {
            Some(size) => (0..size).map(Rank).collect(),
            None => self.ranks.keys().copied().map(Rank).collect(),
        };
        let shared = self.shared();
        let place = self.place();
        let state = |(rank, logged): (&u32, &Logged)| {
            let mut state = RankState::unknown(Rank(*rank));
            if let Some(how) = self.ended(*rank) {
                state.process = Process::Ended(how);
            }
            state.errors = logged.log.final_errors().map(str::to_owned).collect();
            state.ahead = Remaining::Unknown;
            let now = logged.now();
            for (number, step) in logged.begun.iter().enumerate() {
                if matches!(step.nature, Nature::Collective(_)) && !shared.contains(&step.key) {
                    continue;
                }
                let event = TraceEvent {
                    what: self.what(*rank, logged, step, &members, &place),
                    at: String::new(),
                };
                if Some(number) != now {
                    state.done.push(event);
                } else if logged.log.cause().is_none() {
                    state.doing = Some((event, self.time_in(step)));
                } else if step.nature == Nature::Init {
                    // A rank that raised an error in init did come to it. One that raised elsewhere did not take part
                    // in this call.
                    state.done.push(event);
                }
            }
            let says_init = state
                .entered()
                .any(|event| matches!(event.what, EventKind::Init(_)));
            if !says_init && logged.log.environment.place().is_some() {
                let rendezvous = self.rendezvous(*rank, logged, &place);
                let what = EventKind::Init(rendezvous);
                let at = String::new();
                state.done.insert(0, TraceEvent { what, at });
            }
            state
        };
        HangEvidence {
            ranks: self.ranks.iter().map(state).collect(),
            ..HangEvidence::default()
        }
    }

    /// Returns the keys of phases that most ranks have begun, or that a rank is in now. Other collectives are not calls
    /// of the whole world.
    fn shared(&self) -> HashSet<String> {
        let mut callers: HashMap<&str, usize> = HashMap::new();
        let mut current = HashSet::new();
        for logged in self.ranks.values() {
            let keys: HashSet<&str> = logged.begun.iter().map(|step| step.key.as_str()).collect();
            for key in keys {
                *callers.entry(key).or_default() += 1;
            }
            current.extend(logged.now().map(|now| logged.begun[now].key.as_str()));
        }
        let most = self.ranks.len() / 2;
        callers
            .into_iter()
            .filter(|(key, count)| *count > most || current.contains(key))
            .map(|(key, _)| key.to_owned())
            .collect()
    }

    /// Returns the endpoint that most ranks print; empty if no rank prints one.
    fn place(&self) -> String {
        let mut votes: BTreeMap<String, usize> = BTreeMap::new();
        for logged in self.ranks.values() {
            if let Some(place) = logged.log.environment.place() {
                *votes.entry(place).or_default() += 1;
            }
        }
        let most = votes.into_iter().max_by_key(|(_, count)| *count);
        most.map(|(place, _)| place).unwrap_or_default()
    }

    fn rendezvous(&self, rank: u32, logged: &Logged, common: &str) -> Rendezvous {
        let environment = &logged.log.environment;
        // The rank that listens may call its own host by another name.
        let place = match (common.rsplit_once(':'), environment.own_port()) {
            (Some((host, _)), Some(port)) if rank == 0 => format!("{host}:{port}"),
            _ => match environment.place() {
                Some(own) if !may_be_same(&own, common) => own,
                _ => common.to_owned(),
            },
        };
        Rendezvous {
            method: "env".to_owned(),
            place,
            assigned: None,
            rank: environment.rank.unwrap_or(rank),
            world_size: environment.world_size.unwrap_or_else(|| self.least_size()),
        }
    }

    fn what(
        &self,
        rank: u32,
        logged: &Logged,
        step: &Step,
        members: &Arc<[Rank]>,
        place: &str,
    ) -> EventKind {
        let collective = |name: String| {
            EventKind::Collective(Collective {
                group: WORLD.to_owned(),
                members: members.clone(),
                name,
                nature: BTreeMap::new(),
                splits: None,
            })
        };
        match &step.nature {
            Nature::Init => EventKind::Init(self.rendezvous(rank, logged, place)),
            Nature::NewGroup(ranks) if ranks.is_empty() => collective(step.key.clone()),
            Nature::NewGroup(ranks) => {
                EventKind::NewGroup(ranks.iter().copied().map(Rank).collect())
            }
            Nature::Collective(_) => collective(step.key.clone()),
            Nature::Message { sends, peer } => EventKind::Message(Message {
                group: WORLD.to_owned(),
                sends: *sends,
                peer: Some(Rank(*peer)),
                tag: 0,
            }),
            Nature::Destroy => EventKind::Destroy(WORLD.to_owned()),
            Nature::Own => EventKind::Own(step.name.clone()),
        }
    }
}
