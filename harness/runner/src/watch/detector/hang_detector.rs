//! Decides when hang evidence is reported. A proved verdict is reported once it has stood for a moment; a likely one
//! only after nothing has moved for the user's patience. A program that is merely slow is never accused.

use std::collections::BTreeMap;
use std::time::Duration;

use super::event::Event;
use super::world_detector::WorldDetector;
use crate::watch::endpoints::hosts::Hosts;
use crate::watch::evidence::world_view::Ranks;
use crate::watch::ranks::job::Job;
use crate::watch::ranks::rank_process::RankProcess;
use crate::watch::recorder::trust;
use allranks_model::diagnosis::Diagnosis;
use allranks_model::names::Rank;

/// Detects hangs in all worlds of a program, each by itself.
#[derive(Debug)]
pub struct HangDetector {
    patience: Duration,
    hosts: Hosts,
    /// Detectors of the worlds, by the lowest process id of each.
    worlds: BTreeMap<u32, WorldDetector>,
}

impl HangDetector {
    /// Starts a hang detector; patience counts from now.
    pub fn new(patience: Duration) -> Self {
        Self {
            patience,
            hosts: Hosts::default(),
            worlds: BTreeMap::new(),
        }
    }

    /// Takes the job's current state. Returns what must be reported.
    pub fn consider(&mut self, job: &mut Job) -> Vec<Event> {
        let mut events = Vec::new();
        let worlds = job.worlds();
        let is_one_of_many = worlds.len() > 1;
        let mut kept = BTreeMap::new();
        for ranks in &worlds {
            // Where no rank lives, nothing hangs.
            if !ranks.iter().any(|(_, rank)| rank.lives()) {
                continue;
            }
            // Ranks come and go: the world is the one that had any of these processes.
            let known = self.worlds.iter().find_map(|(first, world)| {
                ranks
                    .iter()
                    .any(|(_, rank)| world.has(rank.pid))
                    .then_some(*first)
            });
            let known = known.and_then(|first| self.worlds.remove(&first));
            let mut world = known.unwrap_or_else(|| WorldDetector::new(self.patience));
            let is_ours = |pid: u32| job.pids.contains(&pid);
            let mut found = world.consider(ranks, &is_ours, &mut self.hosts);
            for event in &mut found {
                if let Event::Verdict(one) | Event::Still(one, _) = event {
                    one.evidence.extend(lost_collectives(ranks));
                    name_process(one, ranks);
                }
                if let (true, Event::Verdict(one) | Event::Still(one, _)) = (is_one_of_many, event)
                {
                    let pids: Vec<String> =
                        ranks.iter().map(|(_, rank)| rank.pid.to_string()).collect();
                    one.evidence.push(format!(
                        "of several worlds, it is that of the processes {}",
                        pids.join(", ")
                    ));
                }
            }
            events.extend(found);
            let first = ranks
                .iter()
                .map(|(_, rank)| rank.pid)
                .min()
                .unwrap_or_default();
            kept.insert(first, world);
        }
        self.worlds = kept;
        events
    }

    /// The worlds that live, and for how long nothing of each has moved.
    pub fn stills<'a>(&self, job: &'a Job) -> Vec<(Vec<(Rank, &'a RankProcess)>, Duration)> {
        let still = |ranks: &Ranks<'_>| {
            let first = ranks.iter().map(|(_, rank)| rank.pid).min()?;
            let world = self.worlds.get(&first)?;
            Some(world.still(ranks))
        };
        let worlds = job.worlds().into_iter();
        worlds
            .filter_map(|ranks| {
                let still = still(&ranks)?;
                Some((ranks, still))
            })
            .collect()
    }

    /// Returns the endpoints on other machines that ranks in a call dial and that cannot be reached from here, each with the reason.
    /// What was found is a few seconds old at most.
    pub fn unreached(&mut self, job: &Job) -> Vec<(String, String)> {
        let mut found = Vec::new();
        for ranks in job.worlds() {
            let first = ranks.iter().map(|(_, rank)| rank.pid).min();
            let Some(world) = first.and_then(|first| self.worlds.get_mut(&first)) else {
                continue;
            };
            found.extend(world.unreached(&ranks, &mut self.hosts));
        }
        found
    }

    /// Returns the diagnosis of the job's largest world at this moment, whether it is proved or not; none for a job
    /// without ranks.
    pub fn diagnosis(&mut self, job: &Job) -> Option<Diagnosis> {
        let ranks = job.ranks();
        let first = ranks.iter().map(|(_, rank)| rank.pid).min()?;
        let is_ours = |pid: u32| job.pids.contains(&pid);
        match self.worlds.get_mut(&first) {
            Some(world) => world.diagnosis(&ranks, &is_ours, &mut self.hosts),
            None => WorldDetector::new(self.patience).diagnosis(&ranks, &is_ours, &mut self.hosts),
        }
    }
}

/// Returns a line for each flight recorder that has overwritten its first collectives.
fn lost_collectives(ranks: &Ranks<'_>) -> Vec<String> {
    let lines = ranks.iter().filter_map(|(rank, process)| {
        let lost = trust::lost(process.traced.as_ref()?);
        (lost > 0).then(|| {
            format!("the flight recorder of rank {rank} has lost its first {lost} collectives")
        })
    });
    lines.collect()
}

/// Puts the process id of a single culprit into the advice, where it stands for a process.
fn name_process(verdict: &mut Diagnosis, ranks: &Ranks<'_>) {
    let [culprit] = verdict.culprits[..] else {
        return;
    };
    let process = ranks.iter().find(|(rank, _)| *rank == culprit);
    if let Some((_, process)) = process {
        for line in &mut verdict.advice {
            *line = line.replace("PID", &process.pid.to_string());
        }
    }
}

#[cfg(test)]
mod tests {
    use allranks_diagnose::{HangEvidence, diagnose};

    use super::*;
    use crate::watch::trace::own_wait::OwnWait;
    use crate::watch::waits::late_rank::behind;

    #[test]
    fn advice_on_a_single_culprit_has_its_process_id() {
        let process = |pid| RankProcess {
            more_may_start: false,
            pid,
            environment: BTreeMap::new(),
            activity: None,
            call_trace: None,
            traced: None,
        };
        let (one, two) = (process(4711), process(4712));
        let ranks = [(Rank(0), &one), (Rank(1), &two)];
        let advice = |culprits: &[u32]| {
            let late = diagnose(&HangEvidence::default());
            let culprits = culprits.iter().copied().map(Rank).collect();
            let mut verdict = behind(Diagnosis { culprits, ..late }, &[OwnWait::Connection]);
            name_process(&mut verdict, &ranks);
            verdict.advice.join("\n")
        };
        assert!(advice(&[1]).contains("ss -tnp | grep 4712"));
        assert!(advice(&[0, 1]).contains("grep PID"));
    }
}
