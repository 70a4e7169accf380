//! Chooses the verdict on a job from its logs. What an error says of its cause is a fact; what follows from places is
//! likely.

use std::collections::{BTreeMap, BTreeSet};

use super::arrival::Counted;
use super::behind::{alone, behind, still_busy};
use super::job::Job;
use super::launcher::{ending, is_killed_by_signal};
use super::phase::Nature;
use super::records;
use super::watchdog::{WORLD, Work};
use crate::conclude;
use crate::{ErrorCause, HangEvidence, diagnose, error_cause};
use allranks_model::diagnosis::rank_set;
use allranks_model::diagnosis::rank_set::named;
use allranks_model::diagnosis::{Confidence, Diagnosis, HangKind};
use allranks_model::names::Rank;
use allranks_model::record::RankLine;

/// Returns the verdict; `None` if the logs show nothing wrong.
pub(super) fn verdict(job: &Job) -> Option<Diagnosis> {
    let evidence = job.evidence();
    let case = Case {
        job,
        evidence: &evidence,
    };
    if !case.is_troubled() {
        return None;
    }
    let by_rules = diagnose(&evidence);
    let found = case
        .killed_by_signal()
        .or_else(|| case.port_in_use())
        .or_else(|| Some(by_rules.clone()).filter(says_itself))
        .or_else(|| case.fingerprints())
        .or_else(|| case.named_by_barrier())
        .or_else(|| case.counted())
        .or_else(|| case.recorded())
        .or_else(|| case.works())
        .or_else(|| {
            Some(by_rules)
                .filter(|rule| case.is_likely(rule))
                .map(|rule| case.likely(rule))
        })
        .or_else(|| case.alone())
        .or_else(|| case.behind())
        .or_else(|| case.still_busy())
        .or_else(|| case.raised())
        .unwrap_or_else(|| case.unknown());
    Some(Diagnosis {
        places: job.places(),
        ..found
    })
}

/// Returns true for kinds of verdicts whose cause an error names.
fn says_itself(rule: &Diagnosis) -> bool {
    matches!(
        rule.kind,
        HangKind::EnvironmentMissing
            | HangKind::BackendMissing
            | HangKind::DeviceBinding
            | HangKind::MasterUnreachable
    )
}

/// A rank, the number of the last work that it is known to have issued, and the work that timed out there.
type Reached<'a> = (u32, i64, Option<&'a Work>);

/// Works of one group.
#[derive(Default)]
struct Group<'a> {
    ranks: Vec<Reached<'a>>,
    /// Whether ranks that give the group this name may mean different groups.
    is_vague: bool,
}

/// A job, and the evidence made of it.
struct Case<'a> {
    job: &'a Job,
    evidence: &'a HangEvidence,
}

impl Case<'_> {
    fn diagnosis(
        &self,
        kind: HangKind,
        confidence: Confidence,
        culprits: Vec<Rank>,
        summary: String,
        facts: Vec<String>,
    ) -> Diagnosis {
        conclude(self.evidence, kind, confidence, culprits, summary).because(facts)
    }

    /// Returns true if a rank waits for others, raised an error without finishing, ended badly, or is named by torch.
    fn is_troubled(&self) -> bool {
        let waits = self.job.ranks.values().any(|logged| {
            let step = logged.step();
            step.is_some_and(|step| step.nature.waits())
        });
        let raised = || {
            let mut all = self.job.ranks.values();
            all.any(|logged| logged.log.final_errors().next().is_some())
        };
        let ended = || self.job.launcher.exits.values().any(|code| *code != 0);
        let accused = || !self.job.accusations.absent.is_empty();
        let recorded = || {
            let mut groups = self
                .job
                .dumps
                .values()
                .flat_map(|dump| dump.groups.values());
            groups.any(|group| group.waits())
        };
        let timed_out = || {
            let mut all = self.job.ranks.values();
            all.any(|logged| {
                let mut works = logged.log.watchdog.groups.values();
                works.any(|works| works.timed_out.is_some())
            })
        };
        waits
            || recorded()
            || timed_out()
            || ended()
            || accused()
            || (raised() && !self.is_over())
            || behind(self.job).is_some()
    }

    /// Returns true if every rank has come out of tearing down.
    fn is_over(&self) -> bool {
        let mut all = self.job.ranks.values();
        all.all(|logged| {
            let last = logged.begun.last();
            logged.open.is_empty() && last.is_some_and(|step| step.nature == Nature::Destroy)
        })
    }

    /// Finds the ranks that a signal killed (see [`is_killed_by_signal`]); only the first to fail, if the launcher names it.
    fn killed_by_signal(&self) -> Option<Diagnosis> {
        let exits = &self.job.launcher.exits;
        let mut killed: Vec<u32> = exits
            .iter()
            .filter(|(_, code)| is_killed_by_signal(**code))
            .map(|(rank, _)| *rank)
            .collect();
        let first = self.job.launcher.first;
        if let Some(first) = first.filter(|first| killed.contains(first)) {
            killed = vec![first];
        }
        let how = ending(*exits.get(killed.first()?)?);
        let culprits: Vec<Rank> = killed.into_iter().map(Rank).collect();
        let mut facts = vec![format!(
            "the launcher's table of failures names {}: {how}",
            named(&culprits)
        )];
        if first == culprits.first().map(|rank| rank.0) {
            facts.push("it is the first failure that the launcher saw".to_owned());
        }
        let summary = format!("{} ended: {how}", named(&culprits));
        Some(self.diagnosis(
            HangKind::PeerDead,
            Confidence::Likely,
            culprits,
            summary,
            facts,
        ))
    }

    /// Finds ranks that could not listen because the port is in use.
    fn port_in_use(&self) -> Option<Diagnosis> {
        let refused = |(rank, logged): (&u32, &super::job::Logged)| {
            let mut words = logged.log.final_errors();
            let error =
                words.find(|error| matches!(error_cause(error), ErrorCause::AddressInUse(_)))?;
            Some((Rank(*rank), error.to_owned(), logged.log.environment.port))
        };
        let all: Vec<_> = self.job.ranks.iter().filter_map(refused).collect();
        let (_, error, port) = all.first()?;
        let port = port.or_else(|| port_in(error));
        let culprits: Vec<Rank> = all.iter().map(|(rank, ..)| *rank).collect();
        let port = port.map_or_else(|| "its port".to_owned(), |port| format!("port {port}"));
        let summary = format!("{} cannot listen: {port} is in use", named(&culprits));
        let facts = vec![format!("{} raised {error}", named(&culprits[..1]))];
        Some(self.diagnosis(
            HangKind::PortInUse,
            Confidence::Proved,
            culprits,
            summary,
            facts,
        ))
    }

    /// Returns what `TORCH_DISTRIBUTED_DEBUG=DETAIL` found: ranks that run another collective than the rest.
    fn fingerprints(&self) -> Option<Diagnosis> {
        let prints = &self.job.accusations.fingerprints;
        let prints_of = prints.iter().map(|(rank, print)| (*rank, print.as_str()));
        let culprits = odd(prints_of, self.job.least_size() as usize)?;
        let lines = prints.iter().map(|(rank, print)| {
            let end = print.find(", TensorDeviceTypes").unwrap_or(print.len());
            line(*rank, &print[..end])
        });
        let facts = rank_set::places(&lines.collect::<Vec<_>>());
        let summary = match culprits.is_empty() {
            true => "ranks have called different collectives, or with other arguments".to_owned(),
            false => format!(
                "{} {} another collective than the rest, or other arguments",
                named(&culprits),
                has(&culprits)
            ),
        };
        Some(self.diagnosis(
            HangKind::CollectiveMismatch,
            Confidence::Proved,
            culprits,
            summary,
            facts,
        ))
    }

    /// Returns the ranks that a monitored barrier names as missing.
    fn named_by_barrier(&self) -> Option<Diagnosis> {
        let absent = &self.job.accusations.absent;
        let line = absent.values().next()?.clone();
        let culprits: Vec<Rank> = absent.keys().copied().map(Rank).collect();
        let summary = format!("{} did not come to monitored_barrier", named(&culprits));
        Some(self.diagnosis(
            HangKind::Behind,
            Confidence::Likely,
            culprits,
            summary,
            vec![line],
        ))
    }

    /// Compares the numbers in the lines of NCCL's watchdog, the world's first: ranks that have not issued a work, or
    /// have issued another one.
    fn works(&self) -> Option<Diagnosis> {
        let mut groups: BTreeMap<&str, Group<'_>> = BTreeMap::new();
        for (rank, logged) in &self.job.ranks {
            for (group, works) in &logged.log.watchdog.groups {
                if let Some(reached) = works.reached() {
                    let entry = groups.entry(group).or_default();
                    entry.ranks.push((*rank, reached, works.timed_out.as_ref()));
                    // A rank's own number for a group is the same everywhere only for a group of all ranks.
                    entry.is_vague |= works.local_rank.is_some_and(|local| local != *rank);
                }
            }
        }
        // The world first: a fault there delays every other group.
        let mut order: Vec<_> = groups.into_iter().collect();
        order.sort_by_key(|(group, _)| *group != WORLD);
        order
            .into_iter()
            .filter(|(_, group)| !group.is_vague)
            .find_map(|(name, group)| self.work(name, &group.ranks))
    }

    fn work(&self, group: &str, ranks: &[Reached<'_>]) -> Option<Diagnosis> {
        let works = ranks.iter().filter_map(|(.., work)| *work);
        let number = works.map(|work| work.number).max()?;
        // A rank that has timed out in an earlier one waits there.
        let waits_elsewhere = |rank: u32| {
            let mut works = self.job.ranks[&rank].log.watchdog.groups.values();
            works.any(|works| works.timed_out.is_some())
        };
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
                has(&late),
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
                has(&culprits)
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

    /// Returns true if a verdict by the rules is likely when all evidence is from logs.
    fn is_likely(&self, rule: &Diagnosis) -> bool {
        let few = rule.culprits.len() * 2 < self.job.ranks.len();
        let timed_out = || {
            self.evidence
                .ranks
                .iter()
                .any(|state| !state.errors.is_empty())
        };
        let is_stuck = || {
            let mut all = self.job.ranks.values();
            timed_out() || all.any(|logged| logged.step().is_some_and(|step| step.nature.waits()))
        };
        match rule.kind {
            HangKind::PortMismatch
            | HangKind::PlaceMismatch
            | HangKind::SplitWorld
            | HangKind::DuplicateRank
            | HangKind::WorldSizeDisagreement
            | HangKind::PeerDead
            | HangKind::PeerRaised => true,
            HangKind::GroupOrder | HangKind::GroupSkipped | HangKind::GroupMembersDiffer => {
                is_stuck()
            }
            // Without a majority for one call, ranks may well have different things to do.
            HangKind::CollectiveSkipped | HangKind::CollectiveMismatch => {
                is_stuck() && (few || self.job.ranks.len() == 2)
            }
            // A phase in which groups are made may be many calls, and a rank wait in it for one that others left out.
            HangKind::StuckInCall => {
                few && rule
                    .culprits
                    .iter()
                    .all(|rank| self.is_in_collective(*rank))
            }
            // Logs do not show enough for any other kind; a new one comes in above if they do.
            _ => false,
        }
    }

    fn is_in_collective(&self, rank: Rank) -> bool {
        let step = self
            .job
            .ranks
            .get(&rank.0)
            .and_then(super::job::Logged::step);
        step.is_some_and(|step| matches!(step.nature, Nature::Collective(_)))
    }

    /// Finds ranks that made a world without the others.
    fn alone(&self) -> Option<Diagnosis> {
        let (out, inside) = alone(self.job)?;
        let summary = format!(
            "{} {} made a world without the others",
            named(&out),
            has(&out)
        );
        let facts = vec![format!(
            "{} came out of init_process_group, and {} did not",
            named(&out),
            named(&inside)
        )];
        Some(self.diagnosis(
            HangKind::SplitWorld,
            Confidence::Likely,
            out,
            summary,
            facts,
        ))
    }

    /// Finds the ranks that have not come to where the others wait.
    fn behind(&self) -> Option<Diagnosis> {
        let behind = behind(self.job)?;
        let culprits = behind.late.clone();
        let causes: Vec<(Rank, &str)> = culprits
            .iter()
            .filter_map(|rank| Some((*rank, self.job.ranks.get(&rank.0)?.log.cause()?)))
            .collect();
        if let Some((rank, error)) = causes.first() {
            let ranks: Vec<Rank> = causes.iter().map(|(rank, _)| *rank).collect();
            let summary = format!("{} raised an error: {error}", named(&ranks));
            let facts = vec![format!(
                "{} {} in {}, and rank {rank} has raised before it came there",
                named(&behind.waiting),
                wait(&behind.waiting),
                behind.place
            )];
            return Some(self.diagnosis(
                HangKind::PeerRaised,
                Confidence::Likely,
                ranks,
                summary,
                facts,
            ));
        }
        let places = self.job.places();
        let mut facts = vec![format!(
            "{} {} in {}",
            named(&behind.waiting),
            wait(&behind.waiting),
            behind.place
        )];
        let late = places
            .into_iter()
            .filter(|line| culprits.contains(&line.rank));
        let late = rank_set::places(&late.collect::<Vec<_>>());
        facts.extend(
            late.iter()
                .map(|line| format!("the log ends there: {line}")),
        );
        let summary = format!(
            "{} {} not come to {}, where {} {}",
            named(&culprits),
            has(&culprits),
            behind.place,
            named(&behind.waiting),
            wait(&behind.waiting)
        );
        let (kind, confidence) = match (behind.on_the_way, behind.is_init) {
            (true, _) => (HangKind::Slow, Confidence::None),
            (false, true) => (HangKind::MissingRank, Confidence::Likely),
            (false, false) => (HangKind::Behind, Confidence::Likely),
        };
        // A rank that is on the way is no culprit.
        let culprits = match behind.on_the_way {
            true => Vec::new(),
            false => culprits,
        };
        Some(self.diagnosis(kind, confidence, culprits, summary, facts))
    }

    /// Ranks that the store has not counted, if it has counted all others that are seen to wait.
    fn counted(&self) -> Option<Diagnosis> {
        let too_many = |(counted, _): &&(Counted, BTreeSet<u32>)| counted.came > counted.of;
        let barriers = &self.job.counts.barriers;
        if let Some((counted, _)) = barriers.values().find(too_many) {
            let Counted { key, came, of } = counted;
            let summary = format!(
                "the store counts {came} processes in the barrier of a world of {of}: two jobs meet there, or one has been started again with the same store"
            );
            let facts = vec![format!("the key is {key}")];
            let (kind, confidence) = (HangKind::Unknown, Confidence::None);
            return Some(self.diagnosis(kind, confidence, Vec::new(), summary, facts));
        }
        let in_barriers = barriers.values().filter_map(|(counted, ranks)| {
            let is_all = ranks.len() == counted.came as usize && counted.came < counted.of;
            is_all.then(|| (counted.of, ranks.clone()))
        });
        let in_init = |logged: &super::job::Logged| {
            logged
                .step()
                .is_some_and(|step| step.nature == Nature::Init)
        };
        let joined = self.job.counts.joined.and_then(|(came, of)| {
            let ranks = self.job.ranks.iter().filter(|(_, logged)| in_init(logged));
            let ranks: BTreeSet<u32> = ranks.map(|(rank, _)| *rank).collect();
            (ranks.len() == came as usize && came < of).then_some((of, ranks))
        });
        let (of, came) = in_barriers.chain(joined).next()?;
        let missing: Vec<Rank> = (0..of)
            .filter(|rank| !came.contains(rank))
            .map(Rank)
            .collect();
        if missing.is_empty() || missing.len() + came.len() != of as usize {
            return None;
        }
        let ranks: Vec<Rank> = came.iter().copied().map(Rank).collect();
        let summary = format!(
            "{} {} not come to init_process_group",
            named(&missing),
            has(&missing)
        );
        let facts = vec![format!(
            "the store counts {} of {of}, and these are {}",
            came.len(),
            named(&ranks)
        )];
        let (kind, confidence) = (HangKind::MissingRank, Confidence::Likely);
        Some(self.diagnosis(kind, confidence, missing, summary, facts))
    }

    /// Returns the verdict by the dumps of flight recorders; `None` if they show no contradiction.
    fn recorded(&self) -> Option<Diagnosis> {
        let found = records::contradiction(&self.job.dumps)?;
        let found = self.diagnosis(
            found.kind,
            Confidence::Likely,
            found.culprits,
            found.summary,
            found.facts,
        );
        let victims = found.victims;
        Some(Diagnosis { victims, ..found })
    }

    /// Ranks that are still busy where those that gave up in a collective have passed.
    fn still_busy(&self) -> Option<Diagnosis> {
        let (late, waiting, step) = still_busy(self.job)?;
        let is = if late.len() == 1 { "is" } else { "are" };
        let summary = format!(
            "{} {is} in {step}, which {} {} passed before they gave up in a collective",
            named(&late),
            named(&waiting),
            has(&waiting)
        );
        let facts = vec![format!(
            "the watchdogs of {} ended their wait",
            named(&waiting)
        )];
        let found = self.diagnosis(HangKind::Behind, Confidence::Likely, late, summary, facts);
        Some(Diagnosis {
            victims: waiting,
            ..found
        })
    }

    /// Returns a verdict of the rules, as far as logs allow it: where ranks contradict each other and none has a majority, none
    /// is named.
    fn likely(&self, rule: Diagnosis) -> Diagnosis {
        let is_tie = rule.culprits.len() == self.job.ranks.len()
            && matches!(
                rule.kind,
                HangKind::CollectiveMismatch
                    | HangKind::CollectiveSkipped
                    | HangKind::GroupMembersDiffer
                    | HangKind::GroupOrder
                    | HangKind::GroupSkipped
            );
        let (culprits, victims) = match is_tie {
            true => (Vec::new(), rule.culprits),
            false => (rule.culprits, rule.victims),
        };
        Diagnosis {
            confidence: Confidence::Likely,
            culprits,
            victims,
            ..rule
        }
    }

    /// Finds the ranks that raised an error which is not an effect of other ranks; only the first to fail, if the
    /// launcher names it.
    fn raised(&self) -> Option<Diagnosis> {
        let causes = self.job.ranks.iter();
        let causes: Vec<(Rank, &str)> = causes
            .filter_map(|(rank, logged)| Some((Rank(*rank), logged.log.cause()?)))
            .collect();
        let first = self.job.launcher.first.map(Rank);
        let (_, error) = causes
            .iter()
            .find(|(rank, _)| Some(*rank) == first)
            .or(causes.first())?;
        let ranks: Vec<Rank> =
            match first.filter(|first| causes.iter().any(|(rank, _)| rank == first)) {
                Some(first) => vec![first],
                None => causes.iter().map(|(rank, _)| *rank).collect(),
            };
        let summary = format!("{} raised an error: {error}", named(&ranks));
        let facts =
            vec!["all other errors say only that a rank went away or did not come".to_owned()];
        Some(self.diagnosis(
            HangKind::PeerRaised,
            Confidence::Likely,
            ranks,
            summary,
            facts,
        ))
    }

    fn unknown(&self) -> Diagnosis {
        let summary =
            "ranks wait or have given up, and the logs do not show for which ranks".to_owned();
        let absent = self.job.absent();
        let facts = match absent.is_empty() {
            true => Vec::new(),
            false => vec![format!("of {} there are no logs here", named(&absent))],
        };
        let (kind, confidence) = (HangKind::Unknown, Confidence::None);
        self.diagnosis(kind, confidence, Vec::new(), summary, facts)
    }
}

/// Returns the ranks whose value is not that of the majority; none of them if no value has a majority. `None` if all values are
/// the same.
///
/// Of `voters` ranks some may not be seen, and agree with either side: then three must agree for each that differs.
fn odd<'a>(values: impl Iterator<Item = (u32, &'a str)>, voters: usize) -> Option<Vec<Rank>> {
    let values: Vec<(u32, &str)> = values.collect();
    let mut votes: BTreeMap<&str, usize> = BTreeMap::new();
    for (_, value) in &values {
        *votes.entry(value).or_default() += 1;
    }
    if votes.len() < 2 {
        return None;
    }
    let common = votes.into_iter().find(|(_, count)| {
        let differ = values.len() - count;
        count * 2 > voters.max(values.len()) || *count >= 3 * differ
    });
    let Some((common, _)) = common else {
        return Some(Vec::new());
    };
    let odd = values.iter().filter(|(_, value)| *value != common);
    Some(odd.map(|(rank, _)| Rank(*rank)).collect())
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

/// Returns the port in an error's text, `port: 29500`; `None` if there is none.
fn port_in(error: &str) -> Option<u16> {
    let (_, rest) = error.split_once("port: ")?;
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}

fn line(rank: u32, text: &str) -> RankLine {
    RankLine {
        rank: Rank(rank),
        text: text.to_owned(),
    }
}

fn has(ranks: &[Rank]) -> &'static str {
    if ranks.len() == 1 { "has" } else { "have" }
}

fn wait(ranks: &[Rank]) -> &'static str {
    if ranks.len() == 1 { "waits" } else { "wait" }
}
