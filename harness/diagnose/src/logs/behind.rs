//! Finds the ranks that have not come to where the others wait. The ranks of a job are taken to go through the same
//! phases; where the logs do not show that, no rank is named.

use std::collections::BTreeMap;

use super::job::Job;
use super::logged::{Logged, Step};
use super::phase::Nature;
use crate::{ErrorCause, error_cause};
use allranks_model::names::Rank;

/// A rank counts as moving if its last line is at least this many seconds after the others began to wait, and less than
/// this many seconds before the last line of the job.
const MOVING: f64 = 1.0;

/// Ranks that must wait in a phase for one that writes of steps alone to be known to have phases.
const MANY: usize = 3;

/// A phase in which ranks wait for others that have not come to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Behind {
    /// The name of the phase.
    pub(super) place: String,
    /// Whether it is `init_process_group`.
    pub(super) is_init: bool,
    /// The ranks that wait in it.
    pub(super) waiting: Vec<Rank>,
    /// The ranks that have not come to it.
    pub(super) late: Vec<Rank>,
    /// Whether every late rank was in a phase of its own or still wrote, and no rank has failed by waiting for others.
    pub(super) on_the_way: bool,
}

/// Finds the phase in which most ranks wait for others that have not come; `None` if the logs show no such phase.
pub(super) fn behind(job: &Job) -> Option<Behind> {
    let (key, times, waiting) = most_waited_in(job)?;
    let step = job.ranks[&waiting[0]].step()?;
    let late = late(job, step, (key, times), &waiting)?;
    let is_minority = late.len() * 2 < job.ranks.len();
    let on_the_same_way = || {
        late.iter()
            .all(|rank| is_prefix(&job.ranks[rank], &job.ranks[&waiting[0]]))
    };
    let named = matches!(step.nature, Nature::Message { .. });
    if late.is_empty() || late.len() > waiting.len() || !(named || is_minority || on_the_same_way())
    {
        return None;
    }
    // The end of a log that breaks off within a line may be in a buffer: the rank may have come after all.
    if late.iter().any(|rank| job.ranks[rank].log.is_torn) {
        return None;
    }
    let on_the_way = is_on_the_way(job, &waiting, &late);
    Some(Behind {
        place: step.name.clone(),
        is_init: step.nature == Nature::Init,
        waiting: waiting.into_iter().map(Rank).collect(),
        late: late.into_iter().map(Rank).collect(),
        on_the_way,
    })
}

/// Returns the phase in which most ranks wait: its key, how often they have begun it, and the ranks. `None` if no rank waits.
fn most_waited_in(job: &Job) -> Option<(&str, usize, Vec<u32>)> {
    let half = job.ranks.len() / 2;
    let mut waiting_at: BTreeMap<(&str, usize), Vec<u32>> = BTreeMap::new();
    for (rank, logged) in &job.ranks {
        if let Some(step) = logged.step() {
            let times = logged.times(&step.key);
            waiting_at
                .entry((&step.key, times))
                .or_default()
                .push(*rank);
        }
    }
    let waits = |(_, ranks): &(_, Vec<u32>)| {
        let by_nature = waits_itself(&job.ranks[&ranks[0]]);
        // A phase that most ranks are in counts as waiting, whatever its name says.
        by_nature || ranks.len() > half
    };
    let ((key, times), ranks) = waiting_at
        .into_iter()
        .filter(waits)
        .max_by_key(|(_, ranks)| ranks.len())?;
    Some((key, times, ranks))
}

/// Returns true if a rank is in a phase in which it waits for others.
fn waits_itself(logged: &Logged) -> bool {
    logged.step().is_some_and(|step| step.nature.waits())
}

/// Returns the ranks that have not come to a phase as often as those that wait in it; `None` if there are no logs of the rank that
/// these wait for.
fn late(job: &Job, step: &Step, (key, times): (&str, usize), waiting: &[u32]) -> Option<Vec<u32>> {
    Some(match step.nature {
        Nature::Message { sends, peer } => {
            let answers = |rank: &u32| {
                messages(job, peer, !sends, *rank) >= messages(job, *rank, sends, peer)
            };
            let is_late = !waits_itself(job.ranks.get(&peer)?) && !waiting.iter().all(answers);
            is_late.then_some(peer).into_iter().collect()
        }
        Nature::Init
        | Nature::NewGroup(_)
        | Nature::Collective(_)
        | Nature::Destroy
        | Nature::Own => job
            .ranks
            .iter()
            .filter(|(_, logged)| logged.times(key) < times && !waits_itself(logged))
            // It has waited for others elsewhere.
            .filter(|(_, logged)| !logged.log.watchdog.timed_out())
            // Where a rank that says nothing of phases is, nothing says, unless it makes steps as the many others do.
            .filter(|(_, logged)| {
                let makes_steps = logged.log.step.is_some() && waiting.len() >= MANY;
                !logged.begun.is_empty() || logged.log.cause().is_some() || makes_steps
            })
            .map(|(rank, _)| *rank)
            .collect(),
    })
}

/// Returns true if every late rank was in a phase of its own or still wrote, and no rank has failed by waiting for others.
fn is_on_the_way(job: &Job, waiting: &[u32], late: &[u32]) -> bool {
    let timed_out = job.ranks.values().any(|logged| {
        let mut words = logged.log.final_errors();
        logged.log.has_found_hang || words.any(|error| error_cause(error) == ErrorCause::Effect)
    });
    let at_own = |rank: &u32| job.ranks[rank].step().is_some();
    let moves = |rank: &u32| {
        let last = job.ranks[rank].log.last?;
        let begun = |waiting: &u32| job.ranks[waiting].step()?.moment;
        let since = |waiting: &u32| last.since(begun(waiting)?);
        let least = waiting.iter().map(since).collect::<Option<Vec<f64>>>()?;
        let after_all = least.into_iter().all(|seconds| seconds >= MOVING);
        Some(after_all && job.last?.since(last)? < MOVING)
    };
    !timed_out
        && late
            .iter()
            .all(|rank| at_own(rank) || moves(rank) == Some(true))
}

/// Counts the messages that a rank has begun to send to another or, if `sending` is false, to receive from it.
fn messages(job: &Job, rank: u32, sending: bool, other: u32) -> usize {
    let is_one = |nature: &Nature| matches!(nature, Nature::Message { sends, peer } if *sends == sending && *peer == other);
    let begun = job
        .ranks
        .get(&rank)
        .into_iter()
        .flat_map(|logged| &logged.begun);
    begun.filter(|step| is_one(&step.nature)).count()
}

/// Returns true if a rank has begun something, and its phases are the first ones of the other's.
fn is_prefix(one: &Logged, other: &Logged) -> bool {
    let pairs = one.begun.iter().zip(&other.begun);
    !one.begun.is_empty()
        && one.begun.len() <= other.begun.len()
        && pairs.into_iter().all(|(one, other)| one.key == other.key)
}

/// Returns the ranks that have come out of `init_process_group`, and those that are still in it, if the latter are more
/// and each rank is one or the other.
pub(super) fn alone(job: &Job) -> Option<(Vec<Rank>, Vec<Rank>)> {
    let in_it = |logged: &Logged| {
        logged
            .step()
            .is_some_and(|step| step.nature == Nature::Init)
    };
    let was_initialised =
        |logged: &Logged| logged.begun.iter().any(|step| step.nature == Nature::Init);
    let (inside, rest): (Vec<_>, Vec<_>) = job.ranks.iter().partition(|(_, logged)| in_it(logged));
    let out: Vec<Rank> = rest
        .iter()
        .filter(|(_, logged)| was_initialised(logged) && logged.log.cause().is_none())
        .map(|(rank, _)| Rank(**rank))
        .collect();
    let is_few = !out.is_empty() && out.len() < inside.len() && out.len() == rest.len();
    is_few.then(|| {
        (
            out,
            inside.into_iter().map(|(rank, _)| Rank(*rank)).collect(),
        )
    })
}

/// Returns the ranks that are in a phase of their own which the ranks that timed out in a collective have passed, the
/// ranks that timed out, and the name of the phase; `None` if there are no such ranks.
pub(super) fn still_busy(job: &Job) -> Option<(Vec<Rank>, Vec<Rank>, String)> {
    let timed_out = |logged: &Logged| logged.log.watchdog.timed_out();
    let (waiting, rest): (Vec<_>, Vec<_>) =
        job.ranks.iter().partition(|(_, logged)| timed_out(logged));
    let has_passed = |logged: &Logged, key: &str, times: usize| {
        let mut open = logged.open.iter().map(|number| &logged.begun[*number]);
        logged.times(key) >= times && !open.any(|step| step.key == key)
    };
    let is_busy = |logged: &Logged| {
        let step = logged.step().filter(|step| step.nature == Nature::Own)?;
        let times = logged.times(&step.key);
        let mut waiting = waiting.iter();
        let is = waiting.all(|(_, other)| has_passed(other, &step.key, times));
        (is && !logged.log.is_torn).then(|| step.name.clone())
    };
    let late: Vec<(Rank, String)> = rest
        .iter()
        .filter_map(|(rank, logged)| Some((Rank(**rank), is_busy(logged)?)))
        .collect();
    let step = late.first()?.1.clone();
    let is_same = late.iter().all(|(_, name)| *name == step);
    let is_few = late.len() < waiting.len() && late.len() * 2 < job.ranks.len();
    (is_same && is_few).then(|| {
        let waiting = waiting.iter().map(|(rank, _)| Rank(**rank)).collect();
        (
            late.into_iter().map(|(rank, _)| rank).collect(),
            waiting,
            step,
        )
    })
}
