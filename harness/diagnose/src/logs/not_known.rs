//! What the logs of a job leave open, which keeps them from showing that nothing is wrong.

use std::collections::{BTreeSet, HashMap, HashSet};

use super::job::{Job, brief};
use super::logged::{Logged, Step};
use super::phase::Nature;
use crate::evidence::verb;
use allranks_model::diagnosis::rank_set::named;
use allranks_model::names::Rank;

impl Job {
    /// Returns what the logs leave open about the ranks, one sentence each.
    pub(super) fn not_known(&self) -> Vec<String> {
        let mut open = Vec::new();
        if self.has_ended_well() {
            return open;
        }
        let absent = self.absent();
        if !absent.is_empty() {
            let are = if absent.len() == 1 { "is" } else { "are" };
            open.push(format!("{} {are} not in these logs", named(&absent)));
        }
        if self.ranks.is_empty() {
            open.push("no line says which rank has written it".to_owned());
        }
        if self.size.is_none() && self.ranks.len() < 2 {
            open.push("nothing says how many ranks there are".to_owned());
        }
        let silent = self.those(|rank, logged| {
            logged.begun.is_empty() && !self.dumps.contains_key(&rank) && !logged.log.is_finished
        });
        if !silent.is_empty() {
            let say = if silent.len() == 1 { "says" } else { "say" };
            open.push(format!("{} {say} nothing of phases", named(&silent)));
        }
        let within = self.those(|_, logged| logged.step().is_some() && !logged.log.is_finished);
        if !within.is_empty() {
            let are = if within.len() == 1 { "is" } else { "are" };
            open.push(format!(
                "{} {are} in something that is not said to be over",
                named(&within)
            ));
        }
        let common = self.common();
        let without = self.those(|_, logged| {
            let begun: HashSet<&str> = logged.begun.iter().map(|step| step.key.as_str()).collect();
            !logged.begun.is_empty() && common.iter().any(|key| !begun.contains(*key))
        });
        if !without.is_empty() {
            let have = verb(&without, "has", "have");
            open.push(format!(
                "{} {have} not said a phase that most others have passed",
                named(&without)
            ));
        }
        let is_over = self.stray.is_finished;
        let stepping = self.those(|_, logged| logged.log.step.is_some() && !is_over);
        if !stepping.is_empty() {
            let last: Vec<&str> = stepping
                .iter()
                .filter_map(|rank| self.ranks[&rank.0].log.step.as_deref())
                .collect();
            let end = if stepping.len() == 1 { "ends" } else { "end" };
            open.push(format!(
                "the lines of {} {end} with steps (such as {}), and none says that it has finished",
                named(&stepping),
                last[0]
            ));
        }
        let caught = self.those(|_, logged| logged.log.cause().is_some());
        if let Some(first) = caught.first()
            && let Some(error) = self.ranks[&first.0].log.cause()
        {
            let have = verb(&caught, "has", "have");
            open.push(format!(
                "{} {have} raised an error and gone on, and none says that it has finished: {}",
                named(&caught),
                brief(error)
            ));
        }
        if let Some(error) = self.stray.cause() {
            open.push(format!("an error that no rank signs: {}", brief(error)));
        }
        open
    }

    fn those(&self, is: impl Fn(u32, &Logged) -> bool) -> Vec<Rank> {
        let ranks = self.ranks.iter();
        let ranks = ranks.filter(|(rank, logged)| is(**rank, logged));
        ranks.map(|(rank, _)| Rank(*rank)).collect()
    }

    /// Calls of all ranks that more than half have come to.
    fn common(&self) -> Vec<&str> {
        let mut callers: HashMap<&str, BTreeSet<u32>> = HashMap::new();
        for (rank, logged) in &self.ranks {
            let is_shared = |step: &&Step| {
                matches!(
                    step.nature,
                    Nature::Init | Nature::NewGroup(_) | Nature::Collective(_)
                )
            };
            for step in logged.begun.iter().filter(is_shared) {
                callers.entry(&step.key).or_default().insert(*rank);
            }
        }
        let half = self.ranks.len() / 2;
        let common = callers.into_iter().filter(|(_, ranks)| ranks.len() > half);
        common.map(|(key, _)| key).collect()
    }
}
