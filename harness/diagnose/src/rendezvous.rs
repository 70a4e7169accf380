//! The rendezvous: ranks must agree on the endpoint and on the world size, each must have a rank of its own, and rank
//! 0's store must listen at the endpoint.

use std::collections::{BTreeMap, BTreeSet};

use super::call_sequence::majority;
use super::errors::{ErrorCause, error_cause};
use super::evidence::{
    EventKind, HangEvidence, Process, RankState, Rendezvous, TraceEvent, list, named, verb,
};
use crate::conclude;
use allranks_model::diagnosis::{Confidence, Diagnosis, HangKind};
use allranks_model::names::Rank;

/// A rank that has called `init_process_group`, and what it gave its last call.
struct Participant<'a> {
    state: &'a RankState,
    rendezvous: &'a Rendezvous,
    /// Whether it is still in that call.
    waits: bool,
}

impl Participant<'_> {
    /// Returns true if it claims another rank than the launcher gave it.
    fn disobeys(&self) -> bool {
        self.rendezvous.rank != self.state.rank.0
    }
}

/// Finds what is wrong with a rendezvous that does not complete; `None` if nothing is, or if it has completed.
#[must_use]
pub fn contradiction(evidence: &HangEvidence) -> Option<Diagnosis> {
    if let Some(named_cause) = named_cause(evidence) {
        return Some(named_cause);
    }
    let participants: Vec<Participant<'_>> =
        evidence.ranks.iter().filter_map(participant).collect();
    let is_over = !participants
        .iter()
        .any(|participant| participant.waits || failed(participant.state));
    let worlds = |participant: &Participant<'_>| inits(participant.state).count();
    let same_world = participants
        .windows(2)
        .all(|pair| worlds(&pair[0]) == worlds(&pair[1]));
    let all = Participants {
        evidence,
        participants,
    };
    if is_over {
        // Some backends admit a rank with another world size; then worlds of different sizes exist side by side.
        let any_waits = evidence.ranks.iter().any(is_held);
        return match same_world && any_waits {
            true => all.size().or_else(|| all.beyond()),
            false => None,
        };
    }
    if all.makes_several_worlds() {
        return None;
    }
    all.size()
        .or_else(|| all.place())
        .or_else(|| all.identity())
        .or_else(|| all.port())
        .or_else(|| all.unserved_endpoint())
        .or_else(|| all.absence())
        .or_else(|| all.failure())
}

/// Finds that ranks dial an endpoint where nothing answers, and that rank 0, which should, is not among the ranks that are seen.
/// None of them is to blame: rank 0 or its machine may be down, or the address wrong. `None` if not all ranks dial it.
#[must_use]
pub fn unreachable(evidence: &HangEvidence) -> Option<Diagnosis> {
    let participants: Vec<Participant<'_>> =
        evidence.ranks.iter().filter_map(participant).collect();
    let all = Participants {
        evidence,
        participants,
    };
    let place = &all.participants.first()?.rendezvous.place;
    let is_missed = |one: &Participant<'_>| {
        one.waits && one.rendezvous.rank != 0 && one.rendezvous.place == *place
    };
    let (_, why) = evidence
        .endpoints_without_listener
        .iter()
        .find(|(at, _)| at == place)?;
    if all.participants.len() < evidence.ranks.len() || !all.participants.iter().all(is_missed) {
        return None;
    }
    let summary = format!("no rank can be reached at {place}: {why}");
    let verdict = all.verdict(HangKind::MasterUnreachable, Vec::new(), summary);
    Some(Diagnosis {
        confidence: Confidence::Likely,
        ..verdict
    })
}

/// Finds errors that name their cause: the first cause, with all ranks that raised it.
fn named_cause(evidence: &HangEvidence) -> Option<Diagnosis> {
    let mut by_cause: Vec<(HangKind, String, Vec<Rank>)> = Vec::new();
    for state in &evidence.ranks {
        for error in &state.errors {
            let (kind, what) = match error_cause(error) {
                ErrorCause::EnvironmentMissing(name) => (
                    HangKind::EnvironmentMissing,
                    format!("lacks the environment variable {name}"),
                ),
                ErrorCause::BackendMissing(name) => {
                    (HangKind::BackendMissing, format!("has no backend `{name}`"))
                }
                ErrorCause::DeviceBinding(device) => (
                    HangKind::DeviceBinding,
                    format!("uses a group that has no backend for device `{device}`"),
                ),
                ErrorCause::Unreachable(host) => (
                    HangKind::MasterUnreachable,
                    format!("cannot reach the host `{host}`"),
                ),
                ErrorCause::AddressInUse(_) | ErrorCause::Effect | ErrorCause::Cause => continue,
            };
            match by_cause
                .iter_mut()
                .find(|(one, text, _)| *one == kind && *text == what)
            {
                Some((.., ranks)) if ranks.contains(&state.rank) => {}
                Some((.., ranks)) => ranks.push(state.rank),
                None => by_cause.push((kind, what, vec![state.rank])),
            }
        }
    }
    let (kind, what, mut ranks) = by_cause.into_iter().next()?;
    if kind == HangKind::DeviceBinding {
        ranks = with_co_members(evidence, ranks);
    }
    let summary = format!("{} {what}", named(&ranks));
    let quoted = |rank: &Rank| {
        let state = evidence.rank(*rank)?;
        let error = state
            .errors
            .iter()
            .find(|error| error_cause(error) != ErrorCause::Effect)?;
        Some(format!(
            "rank {rank} raised {}",
            error.lines().next().unwrap_or_default()
        ))
    };
    let facts = ranks.iter().filter_map(quoted).collect();
    Some(conclude(evidence, kind, Confidence::Proved, ranks, summary).because(facts))
}

/// Adds the other members of a group that has no backend for its device: it has none on any of them. The first member
/// to raise closes its connections; the others may still be in the call, or raise only that the connection is closed.
fn with_co_members(evidence: &HangEvidence, mut ranks: Vec<Rank>) -> Vec<Rank> {
    let group = |state: &RankState| match state.current_or_failed() {
        Some(EventKind::NewGroup(members)) => Some(members.clone()),
        _ => None,
    };
    let named = |state: &&RankState| ranks.contains(&state.rank);
    let groups: Vec<Vec<Rank>> = (evidence.ranks.iter().filter(named))
        .filter_map(group)
        .collect();
    for state in &evidence.ranks {
        let is_member =
            group(state).is_some_and(|own| own.contains(&state.rank) && groups.contains(&own));
        if is_member && !ranks.contains(&state.rank) {
            ranks.push(state.rank);
        }
    }
    ranks.sort_unstable();
    ranks
}

fn is_init(what: &EventKind) -> bool {
    matches!(what, EventKind::Init(_))
}

fn inits(state: &RankState) -> impl Iterator<Item = &TraceEvent> {
    state.entered().filter(|event| is_init(&event.what))
}

/// Returns true if it is in a call with other ranks, or was when that failed.
fn is_held(state: &RankState) -> bool {
    state
        .current_or_failed()
        .is_some_and(|what| !matches!(what, EventKind::Own(_) | EventKind::Deadlock(_)))
}

fn participant(state: &RankState) -> Option<Participant<'_>> {
    let waits = state.now().is_some_and(is_init);
    let last = inits(state).last()?;
    let EventKind::Init(rendezvous) = &last.what else {
        return None;
    };
    Some(Participant {
        state,
        rendezvous,
        waits,
    })
}

/// Returns true if a rank came back from its last `init_process_group` with an error.
fn failed(state: &RankState) -> bool {
    let is_last = state.done.last().is_some_and(|event| is_init(&event.what));
    is_last && !state.errors.is_empty()
}

struct Participants<'a> {
    evidence: &'a HangEvidence,
    participants: Vec<Participant<'a>>,
}

impl Participants<'_> {
    fn verdict(&self, kind: HangKind, culprits: Vec<Rank>, summary: String) -> Diagnosis {
        conclude(self.evidence, kind, Confidence::Proved, culprits, summary)
            .because(self.descriptions())
    }

    /// Describes the rendezvous of every rank; ranks with the same one are named together.
    fn descriptions(&self) -> Vec<String> {
        let mut known: Vec<(String, Vec<Rank>)> = Vec::new();
        for participant in &self.participants {
            let one = participant.rendezvous;
            let text = format!(
                "{} at {}, world size {}",
                one.method, one.place, one.world_size
            );
            match known.iter_mut().find(|(known, _)| *known == text) {
                Some((_, ranks)) => ranks.push(participant.state.rank),
                None => known.push((text, vec![participant.state.rank])),
            }
        }
        known
            .into_iter()
            .map(|(text, ranks)| {
                format!(
                    "{} {} to meet by {text}",
                    named(&ranks),
                    verb(&ranks, "means", "mean")
                )
            })
            .collect()
    }

    /// Returns the participants whose value is not the majority's, or all without a majority; `None` if all have the
    /// same.
    fn odd<T: PartialEq>(&self, value: impl Fn(&Rendezvous) -> T) -> Option<Vec<&Participant<'_>>> {
        let participants = self.participants.iter();
        let values: Vec<T> = participants
            .clone()
            .map(|participant| value(participant.rendezvous))
            .collect();
        let common = majority(values.iter());
        let others = values.iter().zip(participants);
        let odd: Vec<_> = others
            .filter(|(value, _)| Some(*value) != common)
            .map(|(_, participant)| participant)
            .collect();
        (!odd.is_empty()).then_some(odd)
    }

    /// Finds ranks with another world size than the others. A rank with a smaller one is through before the others have
    /// come.
    fn size(&self) -> Option<Diagnosis> {
        if let Some(all) = self.too_few_for_all() {
            return Some(all);
        }
        let mut odd = self.odd(|rendezvous| rendezvous.world_size)?;
        // Without a majority, as many processes as there are decide.
        if odd.len() == self.participants.len() && self.evidence.is_whole {
            let truth = self.evidence.ranks.len() as u32;
            let wrong: Vec<_> = odd
                .iter()
                .copied()
                .filter(|participant| participant.rendezvous.world_size != truth)
                .collect();
            if !wrong.is_empty() {
                odd = wrong;
            }
        }
        let culprits: Vec<Rank> = odd
            .iter()
            .map(|participant| participant.state.rank)
            .collect();
        let named_ranks = named(&culprits);
        // If they are as many as their world size, they can make a world by themselves.
        let alone = odd
            .iter()
            .all(|participant| participant.rendezvous.world_size as usize <= odd.len());
        let sizes: BTreeSet<u32> = odd
            .iter()
            .map(|participant| participant.rendezvous.world_size)
            .collect();
        let sizes: Vec<String> = sizes.iter().map(ToString::to_string).collect();
        let sizes = sizes.join(", ");
        let (kind, summary) = match alone {
            true => (
                HangKind::SplitWorld,
                format!(
                    "{named_ranks} {} made a world of {sizes} without the others",
                    verb(&culprits, "has", "have")
                ),
            ),
            false => (
                HangKind::WorldSizeDisagreement,
                format!(
                    "{named_ranks} {} in a world of {sizes}",
                    verb(&culprits, "believes", "believe")
                ),
            ),
        };
        Some(self.verdict(kind, culprits, summary))
    }

    /// Finds that the world size, on which all ranks agree, is too small: the launcher numbered some rank at or above
    /// it.
    fn too_few_for_all(&self) -> Option<Diagnosis> {
        let size = self.participants.first()?.rendezvous.world_size;
        let agree = self
            .participants
            .iter()
            .all(|one| one.rendezvous.world_size == size);
        let has_no_place = |one: &&Participant<'_>| one.rendezvous.rank >= size && !one.disobeys();
        let misplaced: Vec<Rank> = (self.participants.iter().filter(has_no_place))
            .map(|participant| participant.state.rank)
            .collect();
        if !agree || misplaced.is_empty() {
            return None;
        }
        let all: Vec<Rank> = self
            .participants
            .iter()
            .map(|participant| participant.state.rank)
            .collect();
        let summary = format!(
            "all believe in a world of {size}, in which there is no rank {}",
            list(&misplaced)
        );
        Some(self.verdict(HangKind::WorldSizeDisagreement, all, summary))
    }

    /// Returns true if ranks wait in init at several endpoints, and at one of them at least all missing ranks may still come: as many
    /// ranks are in no init. The ranks that wait there can then finish it, and go on to the next. Programs make worlds of some of
    /// their ranks, one after another, in each of which a rank has another number. If all wait at one endpoint, and others have met
    /// elsewhere, only ranks that have come to no init at all may come.
    fn makes_several_worlds(&self) -> bool {
        let may_come = |state: &&RankState| {
            let will_init = |coming: &[TraceEvent]| coming.iter().any(|event| is_init(&event.what));
            let waits = state.now().is_some_and(is_init);
            state.is_there() && !waits && !failed(state) && state.coming().is_none_or(will_init)
        };
        let free = self.evidence.ranks.iter().filter(may_come);
        let is_new = |state: &&RankState| {
            let mut all = self.participants.iter();
            all.all(|one| one.state.rank != state.rank)
        };
        let new = free.clone().filter(is_new).count();
        let free = free.count();
        let mut waiting: BTreeMap<&str, (usize, u32)> = BTreeMap::new();
        for one in self.participants.iter().filter(|one| one.waits) {
            let place = waiting.entry(&one.rendezvous.place).or_default();
            *place = (place.0 + 1, place.1.max(one.rendezvous.world_size));
        }
        let lacks = |(here, size): &(usize, u32)| (*size as usize).saturating_sub(*here);
        let mut lacking = waiting.values().map(lacks);
        let places = self.participants.iter();
        let places: BTreeSet<&str> = places.map(|one| one.rendezvous.place.as_str()).collect();
        let coming = match (waiting.len(), places.len()) {
            (2.., _) => free,
            (_, 2..) => new,
            (_, _) => 0,
        };
        lacking.any(|lacking| (1..=coming).contains(&lacking))
    }

    /// Finds ranks that meet at another endpoint than the others.
    fn place(&self) -> Option<Diagnosis> {
        let mut odd =
            self.odd(|rendezvous| (rendezvous.method == "file", rendezvous.place.clone()))?;
        // The endpoint that the launcher gave weighs more than a majority: in a world of two there is none.
        let disobeys = |participant: &&Participant<'_>| {
            let assigned = participant.rendezvous.assigned.as_ref();
            assigned.is_some_and(|assigned| *assigned != participant.rendezvous.place)
        };
        let disobeying: Vec<_> = self.participants.iter().filter(disobeys).collect();
        if !disobeying.is_empty() && disobeying.len() < self.participants.len() {
            odd = disobeying;
        }
        let culprits: Vec<Rank> = odd
            .iter()
            .map(|participant| participant.state.rank)
            .collect();
        let hosts: BTreeSet<_> = self
            .participants
            .iter()
            .map(|participant| participant.rendezvous.address().map(|(host, _)| host))
            .collect();
        let has_ports = !hosts.contains(&None);
        let one_host = has_ports && hosts.len() == 1;
        let places: BTreeSet<&str> = odd
            .iter()
            .map(|participant| participant.rendezvous.place.as_str())
            .collect();
        let places: Vec<&str> = places.into_iter().collect();
        let named_ranks = named(&culprits);
        let elsewhere = self
            .participants
            .iter()
            .find(|participant| !culprits.contains(&participant.state.rank))
            .map_or_else(String::new, |participant| {
                format!(", the others at {}", participant.rendezvous.place)
            });
        let (kind, what) = match one_host {
            true => (HangKind::PortMismatch, "port"),
            false => (HangKind::PlaceMismatch, "place"),
        };
        if places.len() > 2 && places.len() == self.participants.len() {
            let summary = format!("{named_ranks} use a {what} each: {}", places.join(", "));
            return Some(self.verdict(kind, Vec::new(), summary));
        }
        // Those that have not come yet decide which place is that of the majority.
        let sizes = self.participants.iter();
        let size = sizes.map(|one| one.rendezvous.world_size).max();
        let is_open = size.is_some_and(|size| self.participants.len() < size as usize);
        if is_open && culprits.len() == self.participants.len() {
            let summary = format!(
                "{named_ranks} use different {what}s: {}",
                places.join(" and ")
            );
            let found = self.verdict(kind, Vec::new(), summary);
            let confidence = Confidence::Likely;
            return Some(Diagnosis {
                confidence,
                ..found
            });
        }
        let summary = format!(
            "{named_ranks} {} another {what} than the rest: {}{elsewhere}",
            verb(&culprits, "uses", "use"),
            places.join(" and ")
        );
        Some(self.verdict(kind, culprits, summary))
    }

    /// Finds out why rank 0 cannot listen: a foreign listener has the port, or its error says that the port is in use.
    fn port(&self) -> Option<Diagnosis> {
        let host = self
            .participants
            .iter()
            .find(|participant| participant.rendezvous.rank == 0)?;
        let port = host.rendezvous.address().map(|(_, port)| port)?;
        let listener = self
            .evidence
            .foreign_listeners
            .iter()
            .find(|one| one.port == port);
        let refused = host
            .state
            .errors
            .iter()
            .any(|error| matches!(error_cause(error), ErrorCause::AddressInUse(_)));
        let culprits = vec![host.state.rank];
        match listener {
            Some(listener) => {
                let (kind, does) = match listener.is_silent {
                    true => (
                        HangKind::SilentListener,
                        "takes connections and is no store: a rank that connects to it waits for ever",
                    ),
                    false => (HangKind::PortInUse, "has it"),
                };
                let summary = format!(
                    "rank {} cannot listen at port {port}: {} {does}",
                    host.state.rank, listener.owner
                );
                Some(self.verdict(kind, culprits, summary))
            }
            None if refused => {
                let summary = format!("port {port} of rank {} is in use", host.state.rank);
                Some(self.verdict(HangKind::PortInUse, culprits, summary))
            }
            None => None,
        }
    }

    /// Finds that rank 0's endpoint cannot be reached: nothing listens there although rank 0 has come, or there is no
    /// such host.
    fn unserved_endpoint(&self) -> Option<Diagnosis> {
        let host = self
            .participants
            .iter()
            .find(|participant| participant.rendezvous.rank == 0)?;
        let place = &host.rendezvous.place;
        let (_, why) = self
            .evidence
            .endpoints_without_listener
            .iter()
            .find(|(at, _)| at == place)?;
        let all = self
            .participants
            .iter()
            .map(|participant| participant.state.rank)
            .collect();
        let summary = format!("no rank can be reached at {place}: {why}");
        Some(self.verdict(HangKind::MasterUnreachable, all, summary))
    }

    /// Finds a process that claims a rank outside the world.
    fn beyond(&self) -> Option<Diagnosis> {
        let one = (self.participants.iter()).find(|participant| {
            participant.rendezvous.rank >= participant.rendezvous.world_size
                && participant.disobeys()
        })?;
        let (rank, says) = (one.state.rank, one.rendezvous.rank);
        let size = one.rendezvous.world_size;
        let summary = format!("process {rank} says that it is rank {says} of a world of {size}");
        Some(self.verdict(HangKind::MissingRank, vec![rank], summary))
    }

    /// Finds a process that claims a rank outside the world, or several that claim the same rank.
    fn identity(&self) -> Option<Diagnosis> {
        if let Some(beyond) = self.beyond() {
            return Some(beyond);
        }
        let mut claims: BTreeMap<u32, Vec<&Participant<'_>>> = BTreeMap::new();
        for participant in &self.participants {
            claims
                .entry(participant.rendezvous.rank)
                .or_default()
                .push(participant);
        }
        let claims = claims.iter().filter(|(_, all)| all.len() > 1);
        let mut culprits: Vec<Rank> = Vec::new();
        let mut texts: Vec<String> = Vec::new();
        for (claimed, claimants) in claims {
            let all: Vec<Rank> = claimants.iter().map(|one| one.state.rank).collect();
            let is_false = |rank: &Rank| rank.0 != *claimed;
            let is_assigned = claimants.iter().any(|one| one.state.has_assigned_rank);
            match all.iter().any(is_false) {
                // The launcher gave it to one of them.
                true if is_assigned => culprits.extend(all.iter().copied().filter(is_false)),
                // The other numbers are those of processes, not of ranks.
                true => culprits.push(Rank(*claimed)),
                false => culprits.extend(&all),
            }
            texts.push(match texts.is_empty() {
                true => format!(
                    "processes {} all say that they are rank {claimed}",
                    list(&all)
                ),
                false => format!("{} that they are rank {claimed}", list(&all)),
            });
        }
        if texts.is_empty() {
            return None;
        }
        culprits.sort_unstable();
        let summary = texts.join(", and ");
        Some(self.verdict(HangKind::DuplicateRank, culprits, summary))
    }

    /// Finds ranks that failed in init with an error of their own, if others did not.
    fn failure(&self) -> Option<Diagnosis> {
        fn by_itself(state: &RankState) -> Option<&String> {
            let error = state
                .errors
                .iter()
                .find(|error| error_cause(error) == ErrorCause::Cause);
            error.filter(|_| failed(state))
        }
        let (fallen, others): (Vec<_>, Vec<_>) = (self.participants.iter())
            .partition(|participant| by_itself(participant.state).is_some());
        if fallen.is_empty() || others.is_empty() {
            return None;
        }
        let culprits: Vec<Rank> = fallen
            .iter()
            .map(|participant| participant.state.rank)
            .collect();
        let text = fallen
            .first()
            .and_then(|participant| by_itself(participant.state))?;
        let text = text.lines().next().unwrap_or_default();
        let summary = format!("{} failed in init: {text}", named(&culprits));
        Some(self.verdict(HangKind::PeerRaised, culprits, summary))
    }

    /// Finds ranks that have not come: ended, stopped, not going to call `init_process_group`, or only late.
    fn absence(&self) -> Option<Diagnosis> {
        let size = self
            .participants
            .iter()
            .map(|participant| participant.rendezvous.world_size)
            .max()?;
        let present: BTreeSet<u32> = self
            .participants
            .iter()
            .map(|participant| participant.rendezvous.rank)
            .collect();
        let absent: Vec<u32> = (0..size).filter(|rank| !present.contains(rank)).collect();
        let mut never = Vec::new();
        for rank in &absent {
            let state = self
                .evidence
                .ranks
                .iter()
                .find(|state| state.rank.0 == *rank);
            match state {
                None if self.evidence.is_whole => never.push(Rank(*rank)),
                None => {}
                Some(state) => match (&state.process, state.coming()) {
                    (Process::Ended(how), _) => {
                        let summary = format!("rank {rank} is gone before it came: {how}");
                        return Some(self.verdict(HangKind::PeerDead, vec![state.rank], summary));
                    }
                    (Process::Stopped, _) => {
                        let summary = format!("rank {rank} is stopped before it came");
                        return Some(self.verdict(
                            HangKind::PeerStopped,
                            vec![state.rank],
                            summary,
                        ));
                    }
                    (Process::Running | Process::Unknown, Some(coming)) => {
                        let comes = coming
                            .iter()
                            .any(|event| matches!(event.what, EventKind::Init(_)));
                        if !comes {
                            never.push(state.rank);
                        }
                    }
                    (Process::Running | Process::Unknown, None) => {}
                },
            }
        }
        if !never.is_empty() {
            let what = match never.iter().any(|rank| {
                let mut known = self.evidence.ranks.iter();
                known.any(|state| state.rank == *rank)
            }) {
                true => verb(
                    &never,
                    "never calls init_process_group",
                    "never call init_process_group",
                ),
                false => verb(&never, "has no process", "have no process"),
            };
            let summary = format!("{} of {size} {what}", named(&never));
            return Some(self.verdict(HangKind::MissingRank, never, summary));
        }
        let late: Vec<Rank> = absent.into_iter().map(Rank).collect();
        (!late.is_empty()).then(|| {
            let summary = format!(
                "{} {} not come yet",
                named(&late),
                verb(&late, "has", "have")
            );
            conclude(
                self.evidence,
                HangKind::Slow,
                Confidence::None,
                late,
                summary,
            )
            .because(self.descriptions())
        })
    }
}
