//! The rendezvous: ranks must agree on the endpoint and on the world size, each must have a rank of its own, and rank
//! 0's store must listen at the endpoint.

use std::collections::{BTreeMap, BTreeSet};

use super::call_sequence::majority;
use super::errors::{Told, told};
use super::evidence::{
    EventKind, HangEvidence, Process, RankState, Rendezvous, TraceEvent, list, named, verb,
};
use crate::conclude;
use allranks_model::diagnosis::{Confidence, Diagnosis, HangKind};
use allranks_model::names::Rank;

/// A rank that has called `init_process_group`, and what it gave its last call.
struct Participant<'a> {
    sight: &'a RankState,
    meeting: &'a Rendezvous,
    /// Whether it is still in that call.
    waits: bool,
}

impl Participant<'_> {
    /// Returns true if it claims another rank than the launcher gave it.
    fn disobeys(&self) -> bool {
        self.meeting.rank != self.sight.rank.0
    }
}

/// Finds what is wrong with a rendezvous that does not complete; `None` if nothing is, or if it has completed.
#[must_use]
pub fn contradiction(evidence: &HangEvidence) -> Option<Diagnosis> {
    if let Some(spoken) = spoken(evidence) {
        return Some(spoken);
    }
    let comers: Vec<Participant<'_>> = evidence.ranks.iter().filter_map(comer).collect();
    let is_over = !comers
        .iter()
        .any(|comer| comer.waits || failed(comer.sight));
    let worlds = |comer: &Participant<'_>| inits(comer.sight).count();
    let same_world = comers
        .windows(2)
        .all(|pair| worlds(&pair[0]) == worlds(&pair[1]));
    let scene = Participants { evidence, comers };
    if is_over {
        // Some backends admit a rank with another world size; then worlds of different sizes exist side by side.
        let any_waits = evidence.ranks.iter().any(is_held);
        return match same_world && any_waits {
            true => scene.size().or_else(|| scene.beyond()),
            false => None,
        };
    }
    scene
        .size()
        .or_else(|| scene.place())
        .or_else(|| scene.identity())
        .or_else(|| scene.port())
        .or_else(|| scene.desert())
        .or_else(|| scene.absence())
        .or_else(|| scene.failure())
}

/// Finds that ranks dial an endpoint where nothing answers, and that rank 0, which should, is not among the ranks that are seen.
/// None of them is to blame: rank 0 or its machine may be down, or the address wrong. `None` if not all ranks dial it.
#[must_use]
pub fn unreachable(evidence: &HangEvidence) -> Option<Diagnosis> {
    let comers: Vec<Participant<'_>> = evidence.ranks.iter().filter_map(comer).collect();
    let scene = Participants { evidence, comers };
    let place = &scene.comers.first()?.meeting.place;
    let is_missed =
        |one: &Participant<'_>| one.waits && one.meeting.rank != 0 && one.meeting.place == *place;
    let (_, why) = evidence.deserted.iter().find(|(at, _)| at == place)?;
    if scene.comers.len() < evidence.ranks.len() || !scene.comers.iter().all(is_missed) {
        return None;
    }
    let summary = format!("no rank can be reached at {place}: {why}");
    let verdict = scene.verdict(HangKind::MasterUnreachable, Vec::new(), summary);
    Some(Diagnosis {
        confidence: Confidence::Likely,
        ..verdict
    })
}

/// Finds errors that name their cause: the first cause, with all ranks that raised it.
fn spoken(evidence: &HangEvidence) -> Option<Diagnosis> {
    let mut by_cause: Vec<(HangKind, String, Vec<Rank>)> = Vec::new();
    for sight in &evidence.ranks {
        for error in &sight.errors {
            let (kind, what) = match told(error) {
                Told::EnvironmentMissing(name) => (
                    HangKind::EnvironmentMissing,
                    format!("lacks the environment variable {name}"),
                ),
                Told::BackendMissing(name) => {
                    (HangKind::BackendMissing, format!("has no backend `{name}`"))
                }
                Told::DeviceBinding(device) => (
                    HangKind::DeviceBinding,
                    format!("uses a group that has no backend for device `{device}`"),
                ),
                Told::Unreachable(host) => (
                    HangKind::MasterUnreachable,
                    format!("cannot reach the host `{host}`"),
                ),
                Told::AddressInUse(_) | Told::Effect | Told::Cause => continue,
            };
            match by_cause
                .iter_mut()
                .find(|(one, text, _)| *one == kind && *text == what)
            {
                Some((.., ranks)) if ranks.contains(&sight.rank) => {}
                Some((.., ranks)) => ranks.push(sight.rank),
                None => by_cause.push((kind, what, vec![sight.rank])),
            }
        }
    }
    let (kind, what, mut ranks) = by_cause.into_iter().next()?;
    if kind == HangKind::DeviceBinding {
        ranks = with_fellows(evidence, ranks);
    }
    let summary = format!("{} {what}", named(&ranks));
    let quoted = |rank: &Rank| {
        let sight = evidence.rank(*rank)?;
        let error = sight
            .errors
            .iter()
            .find(|error| told(error) != Told::Effect)?;
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
fn with_fellows(evidence: &HangEvidence, mut ranks: Vec<Rank>) -> Vec<Rank> {
    let group = |sight: &RankState| match sight.stands() {
        Some(EventKind::NewGroup(members)) => Some(members.clone()),
        _ => None,
    };
    let named = |sight: &&RankState| ranks.contains(&sight.rank);
    let groups: Vec<Vec<Rank>> = (evidence.ranks.iter().filter(named))
        .filter_map(group)
        .collect();
    for sight in &evidence.ranks {
        let is_fellow =
            group(sight).is_some_and(|own| own.contains(&sight.rank) && groups.contains(&own));
        if is_fellow && !ranks.contains(&sight.rank) {
            ranks.push(sight.rank);
        }
    }
    ranks.sort_unstable();
    ranks
}

fn is_init(what: &EventKind) -> bool {
    matches!(what, EventKind::Init(_))
}

fn inits(sight: &RankState) -> impl Iterator<Item = &TraceEvent> {
    sight.entered().filter(|deed| is_init(&deed.what))
}

/// Returns true if it is in a call with other ranks, or was when that failed.
fn is_held(sight: &RankState) -> bool {
    sight
        .stands()
        .is_some_and(|what| !matches!(what, EventKind::Own(_)))
}

fn comer(sight: &RankState) -> Option<Participant<'_>> {
    let waits = sight.now().is_some_and(is_init);
    let last = inits(sight).last()?;
    let EventKind::Init(meeting) = &last.what else {
        return None;
    };
    Some(Participant {
        sight,
        meeting,
        waits,
    })
}

/// Returns true if a rank came back from its last `init_process_group` with an error.
fn failed(sight: &RankState) -> bool {
    let is_last = sight.done.last().is_some_and(|deed| is_init(&deed.what));
    is_last && !sight.errors.is_empty()
}

struct Participants<'a> {
    evidence: &'a HangEvidence,
    comers: Vec<Participant<'a>>,
}

impl Participants<'_> {
    fn verdict(&self, kind: HangKind, culprits: Vec<Rank>, summary: String) -> Diagnosis {
        conclude(self.evidence, kind, Confidence::Proved, culprits, summary).because(self.said())
    }

    /// Describes the rendezvous of every rank; ranks with the same one are named together.
    fn said(&self) -> Vec<String> {
        let mut told: Vec<(String, Vec<Rank>)> = Vec::new();
        for comer in &self.comers {
            let one = comer.meeting;
            let text = format!(
                "{} at {}, world size {}",
                one.method, one.place, one.world_size
            );
            match told.iter_mut().find(|(known, _)| *known == text) {
                Some((_, ranks)) => ranks.push(comer.sight.rank),
                None => told.push((text, vec![comer.sight.rank])),
            }
        }
        told.into_iter()
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
        let comers = self.comers.iter();
        let values: Vec<T> = comers.clone().map(|comer| value(comer.meeting)).collect();
        let common = majority(values.iter());
        let others = values.iter().zip(comers);
        let odd: Vec<_> = others
            .filter(|(value, _)| Some(*value) != common)
            .map(|(_, comer)| comer)
            .collect();
        (!odd.is_empty()).then_some(odd)
    }

    /// Finds ranks with another world size than the others. A rank with a smaller one is through before the others have
    /// come.
    fn size(&self) -> Option<Diagnosis> {
        if let Some(all) = self.too_few_for_all() {
            return Some(all);
        }
        let mut odd = self.odd(|meeting| meeting.world_size)?;
        // Without a majority, as many processes as there are decide.
        if odd.len() == self.comers.len() && self.evidence.is_whole {
            let truth = self.evidence.ranks.len() as u32;
            let wrong: Vec<_> = odd
                .iter()
                .copied()
                .filter(|comer| comer.meeting.world_size != truth)
                .collect();
            if !wrong.is_empty() {
                odd = wrong;
            }
        }
        let culprits: Vec<Rank> = odd.iter().map(|comer| comer.sight.rank).collect();
        let who = named(&culprits);
        // If they are as many as their world size, they can make a world by themselves.
        let alone = odd
            .iter()
            .all(|comer| comer.meeting.world_size as usize <= odd.len());
        let sizes: BTreeSet<u32> = odd.iter().map(|comer| comer.meeting.world_size).collect();
        let sizes: Vec<String> = sizes.iter().map(ToString::to_string).collect();
        let sizes = sizes.join(", ");
        let (kind, summary) = match alone {
            true => (
                HangKind::SplitWorld,
                format!(
                    "{who} {} made a world of {sizes} without the others",
                    verb(&culprits, "has", "have")
                ),
            ),
            false => (
                HangKind::WorldSizeDisagreement,
                format!(
                    "{who} {} in a world of {sizes}",
                    verb(&culprits, "believes", "believe")
                ),
            ),
        };
        Some(self.verdict(kind, culprits, summary))
    }

    /// Finds that the world size, on which all ranks agree, is too small: the launcher numbered some rank at or above
    /// it.
    fn too_few_for_all(&self) -> Option<Diagnosis> {
        let size = self.comers.first()?.meeting.world_size;
        let agree = self.comers.iter().all(|one| one.meeting.world_size == size);
        let has_no_place = |one: &&Participant<'_>| one.meeting.rank >= size && !one.disobeys();
        let homeless: Vec<Rank> = (self.comers.iter().filter(has_no_place))
            .map(|comer| comer.sight.rank)
            .collect();
        if !agree || homeless.is_empty() {
            return None;
        }
        let all: Vec<Rank> = self.comers.iter().map(|comer| comer.sight.rank).collect();
        let summary = format!(
            "all believe in a world of {size}, in which there is no rank {}",
            list(&homeless)
        );
        Some(self.verdict(HangKind::WorldSizeDisagreement, all, summary))
    }

    /// Finds ranks that meet at another endpoint than the others.
    fn place(&self) -> Option<Diagnosis> {
        let mut odd = self.odd(|meeting| (meeting.method == "file", meeting.place.clone()))?;
        // The endpoint that the launcher gave weighs more than a majority: in a world of two there is none.
        let disobeys = |comer: &&Participant<'_>| {
            let told = comer.meeting.told.as_ref();
            told.is_some_and(|told| *told != comer.meeting.place)
        };
        let disobedient: Vec<_> = self.comers.iter().filter(disobeys).collect();
        if !disobedient.is_empty() && disobedient.len() < self.comers.len() {
            odd = disobedient;
        }
        let culprits: Vec<Rank> = odd.iter().map(|comer| comer.sight.rank).collect();
        let hosts: BTreeSet<_> = self
            .comers
            .iter()
            .map(|comer| comer.meeting.address().map(|(host, _)| host))
            .collect();
        let has_ports = !hosts.contains(&None);
        let one_host = has_ports && hosts.len() == 1;
        let places: BTreeSet<&str> = odd
            .iter()
            .map(|comer| comer.meeting.place.as_str())
            .collect();
        let places: Vec<&str> = places.into_iter().collect();
        let who = named(&culprits);
        let elsewhere = self
            .comers
            .iter()
            .find(|comer| !culprits.contains(&comer.sight.rank))
            .map_or_else(String::new, |comer| {
                format!(", the others at {}", comer.meeting.place)
            });
        let (kind, what) = match one_host {
            true => (HangKind::PortMismatch, "port"),
            false => (HangKind::PlaceMismatch, "place"),
        };
        let summary = format!(
            "{who} {} another {what} than the rest: {}{elsewhere}",
            verb(&culprits, "uses", "use"),
            places.join(" and ")
        );
        Some(self.verdict(kind, culprits, summary))
    }

    /// Finds out why rank 0 cannot listen: a foreign listener has the port, or its error says that the port is in use.
    fn port(&self) -> Option<Diagnosis> {
        let host = self.comers.iter().find(|comer| comer.meeting.rank == 0)?;
        let port = host.meeting.address().map(|(_, port)| port)?;
        let stranger = self.evidence.strangers.iter().find(|one| one.port == port);
        let refused = host
            .sight
            .errors
            .iter()
            .any(|error| matches!(told(error), Told::AddressInUse(_)));
        let culprits = vec![host.sight.rank];
        match stranger {
            Some(stranger) => {
                let (kind, does) = match stranger.is_silent {
                    true => (
                        HangKind::SilentListener,
                        "takes connections and is no store: a rank that connects to it waits for ever",
                    ),
                    false => (HangKind::PortInUse, "has it"),
                };
                let summary = format!(
                    "rank {} cannot listen at port {port}: {} {does}",
                    host.sight.rank, stranger.owner
                );
                Some(self.verdict(kind, culprits, summary))
            }
            None if refused => {
                let summary = format!("port {port} of rank {} is in use", host.sight.rank);
                Some(self.verdict(HangKind::PortInUse, culprits, summary))
            }
            None => None,
        }
    }

    /// Finds that rank 0's endpoint cannot be reached: nothing listens there although rank 0 has come, or there is no
    /// such host.
    fn desert(&self) -> Option<Diagnosis> {
        let host = self.comers.iter().find(|comer| comer.meeting.rank == 0)?;
        let place = &host.meeting.place;
        let (_, why) = self.evidence.deserted.iter().find(|(at, _)| at == place)?;
        let all = self.comers.iter().map(|comer| comer.sight.rank).collect();
        let summary = format!("no rank can be reached at {place}: {why}");
        Some(self.verdict(HangKind::MasterUnreachable, all, summary))
    }

    /// Finds a process that claims a rank outside the world.
    fn beyond(&self) -> Option<Diagnosis> {
        let one = (self.comers.iter())
            .find(|comer| comer.meeting.rank >= comer.meeting.world_size && comer.disobeys())?;
        let (rank, says) = (one.sight.rank, one.meeting.rank);
        let size = one.meeting.world_size;
        let summary = format!("process {rank} says that it is rank {says} of a world of {size}");
        Some(self.verdict(HangKind::MissingRank, vec![rank], summary))
    }

    /// Finds a process that claims a rank outside the world, or several that claim the same rank.
    fn identity(&self) -> Option<Diagnosis> {
        if let Some(beyond) = self.beyond() {
            return Some(beyond);
        }
        let mut claims: BTreeMap<u32, Vec<&Participant<'_>>> = BTreeMap::new();
        for comer in &self.comers {
            claims.entry(comer.meeting.rank).or_default().push(comer);
        }
        let (claimed, claimants) = claims.iter().find(|(_, all)| all.len() > 1)?;
        let false_ones: Vec<Rank> = claimants
            .iter()
            .map(|comer| comer.sight.rank)
            .filter(|rank| rank.0 != *claimed)
            .collect();
        let everybody: Vec<Rank> = claimants.iter().map(|comer| comer.sight.rank).collect();
        let culprits = match false_ones.is_empty() {
            true => everybody.clone(),
            false => false_ones,
        };
        let summary = format!(
            "processes {} all say that they are rank {claimed}",
            list(&everybody)
        );
        Some(self.verdict(HangKind::DuplicateRank, culprits, summary))
    }

    /// Finds ranks that failed in init with an error of their own, if others did not.
    fn failure(&self) -> Option<Diagnosis> {
        fn by_itself(sight: &RankState) -> Option<&String> {
            let error = sight.errors.iter().find(|error| told(error) == Told::Cause);
            error.filter(|_| failed(sight))
        }
        let (fallen, others): (Vec<_>, Vec<_>) =
            (self.comers.iter()).partition(|comer| by_itself(comer.sight).is_some());
        if fallen.is_empty() || others.is_empty() {
            return None;
        }
        let culprits: Vec<Rank> = fallen.iter().map(|comer| comer.sight.rank).collect();
        let text = fallen.first().and_then(|comer| by_itself(comer.sight))?;
        let text = text.lines().next().unwrap_or_default();
        let summary = format!("{} failed in init: {text}", named(&culprits));
        Some(self.verdict(HangKind::PeerRaised, culprits, summary))
    }

    /// Finds ranks that have not come: ended, stopped, not going to call `init_process_group`, or only late.
    fn absence(&self) -> Option<Diagnosis> {
        let size = self
            .comers
            .iter()
            .map(|comer| comer.meeting.world_size)
            .max()?;
        let present: BTreeSet<u32> = self.comers.iter().map(|comer| comer.meeting.rank).collect();
        let absent: Vec<u32> = (0..size).filter(|rank| !present.contains(rank)).collect();
        let mut never = Vec::new();
        for rank in &absent {
            let sight = self
                .evidence
                .ranks
                .iter()
                .find(|sight| sight.rank.0 == *rank);
            match sight {
                None if self.evidence.is_whole => never.push(Rank(*rank)),
                None => {}
                Some(sight) => match (&sight.process, sight.coming()) {
                    (Process::Ended(how), _) => {
                        let summary = format!("rank {rank} is gone before it came: {how}");
                        return Some(self.verdict(HangKind::PeerDead, vec![sight.rank], summary));
                    }
                    (Process::Stopped, _) => {
                        let summary = format!("rank {rank} is stopped before it came");
                        return Some(self.verdict(
                            HangKind::PeerStopped,
                            vec![sight.rank],
                            summary,
                        ));
                    }
                    (Process::Running | Process::Unknown, Some(coming)) => {
                        let comes = coming
                            .iter()
                            .any(|deed| matches!(deed.what, EventKind::Init(_)));
                        if !comes {
                            never.push(sight.rank);
                        }
                    }
                    (Process::Running | Process::Unknown, None) => {}
                },
            }
        }
        if !never.is_empty() {
            let what = match never.iter().any(|rank| {
                let mut known = self.evidence.ranks.iter();
                known.any(|sight| sight.rank == *rank)
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
            .because(self.said())
        })
    }
}
