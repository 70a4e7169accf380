//! Verdicts by the numbers of works in the lines of NCCL's watchdog.

use std::collections::BTreeMap;

use super::{Rules, line, odd};
use crate::evidence::verb;
use crate::logs::watchdog::{WORLD, Work};
use allranks_model::diagnosis::rank_set;
use allranks_model::diagnosis::rank_set::named;
use allranks_model::diagnosis::{Confidence, Diagnosis, HangKind};
use allranks_model::names::Rank;

/// A rank, the number of the last work that it is known to have issued, and the work that timed out there.
type Reached<'a> = (u32, i64, Option<&'a Work>);

/// Works of one group.
#[derive(Default)]
struct Group<'a> {
    ranks: Vec<Reached<'a>>,
    /// The rank of each in the group, of those that give the group a number of their own.
    locals: Vec<(u32, u32)>,
}

/// Returns true if ranks that give a group the same number, each with its rank in the group, are one group: all of them have their own
/// rank, as in the world, or they are the members of one, at equal distances.
fn is_one_group(locals: &[(u32, u32)]) -> bool {
    let is_world = locals.iter().all(|(rank, local)| rank == local);
    let mut distances = locals.windows(2).map(|pair| pair[1].0 - pair[0].0);
    let first = distances.next();
    let is_even = locals.len() > 2 && distances.all(|distance| Some(distance) == first);
    let is_whole = (0..)
        .zip(locals)
        .all(|(number, (_, local))| *local == number);
    is_world || (is_even && is_whole)
}

impl Rules<'_> {
    /// Compares the numbers in the lines of NCCL's watchdog, the world's first: ranks that have not issued a work, or
    /// have issued another one.
    pub(super) fn works(&self) -> Option<Diagnosis> {
        let mut groups: BTreeMap<&str, Group<'_>> = BTreeMap::new();
        for (rank, logged) in &self.job.ranks {
            for (group, works) in &logged.log.watchdog.groups {
                if let Some(reached) = works.reached() {
                    let entry = groups.entry(group).or_default();
                    entry.ranks.push((*rank, reached, works.timed_out.as_ref()));
                    entry
                        .locals
                        .extend(works.local_rank.map(|local| (*rank, local)));
                }
            }
        }
        // The world first: a fault there delays every other group.
        let mut order: Vec<_> = groups.into_iter().collect();
        order.sort_by_key(|(group, _)| *group != WORLD);
        order
            .into_iter()
            .filter(|(_, group)| is_one_group(&group.locals))
            .find_map(|(name, group)| self.work(name, &group.ranks))
    }

    fn work(&self, group: &str, ranks: &[Reached<'_>]) -> Option<Diagnosis> {
        let works = ranks.iter().filter_map(|(.., work)| *work);
        let number = works.map(|work| work.number).max()?;
        // A rank that has timed out in an earlier one waits there.
        let waits_elsewhere = |rank: u32| self.job.ranks[&rank].log.watchdog.timed_out();
        let is_late = |(rank, reached, work): &&Reached<'_>| {
            *reached < number && work.is_none() && !waits_elsewhere(*rank)
        };
        let late: Vec<Rank> = ranks
            .iter()
            .filter(is_late)
            .map(|(rank, ..)| Rank(*rank))
            .collect();
        let waiting: Vec<(u32, &Work)> = ranks
            .iter()
            .filter_map(|(rank, _, work)| Some((*rank, (*work)?)))
            .filter(|(_, work)| work.number == number)
            .collect();
        if !late.is_empty() && late.len() <= waiting.len() {
            let waiting_ranks: Vec<Rank> = waiting.iter().map(|(rank, _)| Rank(*rank)).collect();
            let mut facts = vec![format!(
                "{} timed out in work {number} of group {group}, {}",
                named(&waiting_ranks),
                waiting[0].1.title()
            )];
            let lines = ranks.iter().filter(is_late);
            let lines =
                lines.map(|(rank, reached, _)| line(*rank, &format!("has issued {reached} last")));
            facts.extend(rank_set::places(&lines.collect::<Vec<_>>()));
            let summary = format!(
                "{} {} not issued work {number} of group {group}, {}, in which the others wait",
                named(&late),
                verb(&late, "has", "have"),
                waiting[0].1.title()
            );
            return Some(self.diagnosis(
                HangKind::Behind,
                Confidence::Likely,
                late,
                summary,
                facts,
            ));
        }
        let calls = waiting.iter();
        let calls: Vec<(u32, String)> = calls
            .filter_map(|(rank, work)| Some((*rank, call(work)?)))
            .collect();
        // How many members a smaller group has is not known unless all ranks are seen.
        let voters = match group == WORLD || !self.job.absent().is_empty() {
            true => self.job.least_size() as usize,
            false => calls.len(),
        };
        let calls_of = calls.iter().map(|(rank, call)| (*rank, call.as_str()));
        let culprits = odd(calls_of, voters)?;
        let lines = calls.iter().map(|(rank, call)| line(*rank, call));
        let facts = rank_set::places(&lines.collect::<Vec<_>>());
        let summary = match culprits.is_empty() {
            true => {
                format!("work {number} of group {group} is not the same collective on all ranks")
            }
            false => format!(
                "{} {} another collective than the rest as work {number} of group {group}",
                named(&culprits),
                verb(&culprits, "has", "have")
            ),
        };
        Some(self.diagnosis(
            HangKind::CollectiveMismatch,
            Confidence::Likely,
            culprits,
            summary,
            facts,
        ))
    }
}

/// Returns a work as every member must call it: the number of elements only where all members give the same. `None` if no line
/// says what it is.
fn call(work: &Work) -> Option<String> {
    let op = work.op.as_deref()?;
    Some(match (op, &work.elements) {
        ("ALLREDUCE" | "BROADCAST" | "ALLGATHER" | "_ALLGATHER_BASE", Some(elements)) => {
            format!("{op} of {elements} elements")
        }
        (op, _) => op.to_owned(),
    })
}
