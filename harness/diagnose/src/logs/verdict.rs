//! Which rule counts. What an error says of itself, or torch of a rank, is a fact; what follows from places is likely.

use std::collections::BTreeMap;

use super::behind::{alone, behind};
use super::job::Job;
use super::launcher::{ending, is_struck};
use super::watchdog::{WORLD, Work};
use crate::conclude;
use crate::{HangEvidence, Told, diagnose, told};
use allranks_model::diagnosis::rank_set;
use allranks_model::diagnosis::rank_set::named;
use allranks_model::diagnosis::{Confidence, Diagnosis, HangKind};
use allranks_model::names::Rank;
use allranks_model::record::RankLine;

/// The verdict; none if the logs show nothing wrong.
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
        .struck()
        .or_else(|| case.port_in_use())
        .or_else(|| Some(by_rules.clone()).filter(says_itself))
        .or_else(|| case.fingerprints())
        .or_else(|| case.named_by_barrier())
        .or_else(|| case.works())
        .or_else(|| {
            Some(by_rules)
                .filter(|rule| case.is_likely(rule))
                .map(likely)
        })
        .or_else(|| case.alone())
        .or_else(|| case.behind())
        .or_else(|| case.without_log())
        .or_else(|| case.raised())
        .unwrap_or_else(|| case.unknown());
    Some(Diagnosis {
        places: job.places(),
        ..found
    })
}

/// Kinds that an error names by itself.
fn says_itself(rule: &Diagnosis) -> bool {
    matches!(
        rule.kind,
        HangKind::EnvironmentMissing
            | HangKind::BackendMissing
            | HangKind::DeviceBinding
            | HangKind::MasterUnreachable
    )
}

fn likely(rule: Diagnosis) -> Diagnosis {
    Diagnosis {
        confidence: Confidence::Likely,
        ..rule
    }
}

/// A rank, the last work that it is known to have issued, and the one that timed out there.
type Reached<'a> = (u32, i64, Option<&'a Work>);

/// A job and what is known of it.
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

    /// Whether anybody waits for others, raised something, or ended badly.
    fn is_troubled(&self) -> bool {
        let waits = self.job.ranks.values().any(|logged| {
            let step = logged.step();
            step.is_some_and(|step| step.nature.waits())
        });
        let raised = || {
            let mut all = self.job.ranks.values();
            all.any(|logged| logged.story.last_words().next().is_some())
        };
        let ended = || self.job.launcher.exits.values().any(|code| *code != 0);
        let accused = || !self.job.accusations.absent.is_empty();
        waits || ended() || accused() || (raised() && !self.is_over()) || behind(self.job).is_some()
    }

    /// Whether every rank has torn down.
    fn is_over(&self) -> bool {
        use super::phase::Nature;
        let mut all = self.job.ranks.values();
        all.all(|logged| {
            let last = logged.begun.last();
            logged.open.is_empty() && last.is_some_and(|step| step.nature == Nature::Destroy)
        })
    }

    /// A rank that a signal ended.
    fn struck(&self) -> Option<Diagnosis> {
        let exits = &self.job.launcher.exits;
        let mut struck: Vec<u32> = exits
            .iter()
            .filter(|(_, code)| is_struck(**code))
            .map(|(rank, _)| *rank)
            .collect();
        let first = self.job.launcher.first;
        if let Some(first) = first.filter(|first| struck.contains(first)) {
            struck = vec![first];
        }
        let how = ending(*exits.get(struck.first()?)?);
        let culprits: Vec<Rank> = struck.into_iter().map(Rank).collect();
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

    /// A rank that could not listen.
    fn port_in_use(&self) -> Option<Diagnosis> {
        let refused = |(rank, logged): (&u32, &super::job::Logged)| {
            let mut words = logged.story.last_words();
            let error = words.find(|error| matches!(told(error), Told::AddressInUse(_)))?;
            Some((Rank(*rank), error.to_owned(), logged.story.environment.port))
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

    /// What `TORCH_DISTRIBUTED_DEBUG=DETAIL` found.
    fn fingerprints(&self) -> Option<Diagnosis> {
        let prints = &self.job.accusations.fingerprints;
        let culprits = odd(prints.iter().map(|(rank, print)| (*rank, print.as_str())))?;
        let lines = prints.iter().map(|(rank, print)| {
            let end = print.find(", TensorDeviceTypes").unwrap_or(print.len());
            line(*rank, &print[..end])
        });
        let facts = rank_set::places(&lines.collect::<Vec<_>>());
        let summary = format!(
            "{} {} another collective than the rest, or other arguments",
            named(&culprits),
            has(&culprits)
        );
        Some(self.diagnosis(
            HangKind::CollectiveMismatch,
            Confidence::Proved,
            culprits,
            summary,
            facts,
        ))
    }

    /// Whom a monitored barrier names.
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

    /// What the numbers of NCCL's watchdog say.
    fn works(&self) -> Option<Diagnosis> {
        let mut groups: BTreeMap<&str, Vec<Reached<'_>>> = BTreeMap::new();
        for (rank, logged) in &self.job.ranks {
            for (group, works) in &logged.story.watchdog.groups {
                if let Some(reached) = works.reached() {
                    let entry = groups.entry(group).or_default();
                    entry.push((*rank, reached, works.timed_out.as_ref()));
                }
            }
        }
        // The world first: what is wrong there delays every other group.
        let mut order: Vec<_> = groups.into_iter().collect();
        order.sort_by_key(|(group, _)| *group != WORLD);
        order
            .into_iter()
            .find_map(|(group, ranks)| self.work(group, &ranks))
    }

    fn work(&self, group: &str, ranks: &[Reached<'_>]) -> Option<Diagnosis> {
        let works = ranks.iter().filter_map(|(.., work)| *work);
        let number = works.map(|work| work.number).max()?;
        let late: Vec<Rank> = ranks
            .iter()
            .filter(|(_, reached, _)| *reached < number)
            .map(|(rank, ..)| Rank(*rank))
            .collect();
        let waiting: Vec<(u32, &Work)> = ranks
            .iter()
            .filter_map(|(rank, _, work)| Some((*rank, (*work)?)))
            .filter(|(_, work)| work.number == number)
            .collect();
        if !late.is_empty() && late.len() <= waiting.len() {
            let who: Vec<Rank> = waiting.iter().map(|(rank, _)| Rank(*rank)).collect();
            let mut facts = vec![format!(
                "{} timed out in work {number} of group {group}, {}",
                named(&who),
                waiting[0].1.op
            )];
            let lines = ranks.iter().filter(|(_, reached, _)| *reached < number);
            let lines =
                lines.map(|(rank, reached, _)| line(*rank, &format!("has issued {reached} last")));
            facts.extend(rank_set::places(&lines.collect::<Vec<_>>()));
            let summary = format!(
                "{} {} not issued work {number} of group {group}, {}, in which the others wait",
                named(&late),
                has(&late),
                waiting[0].1.op
            );
            return Some(self.diagnosis(
                HangKind::Behind,
                Confidence::Likely,
                late,
                summary,
                facts,
            ));
        }
        let calls = waiting.iter().map(|(rank, work)| (*rank, call(work)));
        let calls: Vec<(u32, String)> = calls.collect();
        let culprits = odd(calls.iter().map(|(rank, call)| (*rank, call.as_str())))?;
        let lines = calls.iter().map(|(rank, call)| line(*rank, call));
        let facts = rank_set::places(&lines.collect::<Vec<_>>());
        let summary = format!(
            "{} {} another collective than the rest as work {number} of group {group}",
            named(&culprits),
            has(&culprits)
        );
        Some(self.diagnosis(
            HangKind::CollectiveMismatch,
            Confidence::Likely,
            culprits,
            summary,
            facts,
        ))
    }

    /// Whether a verdict of the rules may be said of logs.
    fn is_likely(&self, rule: &Diagnosis) -> bool {
        let few = rule.culprits.len() * 2 < self.job.ranks.len();
        let gave_up = || {
            self.evidence
                .ranks
                .iter()
                .any(|sight| !sight.errors.is_empty())
        };
        let is_stuck = || {
            let mut all = self.job.ranks.values();
            gave_up() || all.any(|logged| logged.step().is_some_and(|step| step.nature.waits()))
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
            HangKind::StuckInCall => few,
            // Logs do not show enough for any other kind; a new one comes in above if they do.
            _ => false,
        }
    }

    /// Ranks that made a world without the others.
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

    /// Who has not come to where the others wait.
    fn behind(&self) -> Option<Diagnosis> {
        let behind = behind(self.job)?;
        let culprits = behind.late.clone();
        let causes: Vec<(Rank, &str)> = culprits
            .iter()
            .filter_map(|rank| Some((*rank, self.job.ranks.get(&rank.0)?.story.cause()?)))
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
        // Who is on the way is accused of nothing.
        let culprits = match behind.on_the_way {
            true => Vec::new(),
            false => culprits,
        };
        Some(self.diagnosis(kind, confidence, culprits, summary, facts))
    }

    /// Ranks of which there is no log.
    fn without_log(&self) -> Option<Diagnosis> {
        let absent = self.job.absent();
        if absent.is_empty() {
            return None;
        }
        let summary = format!(
            "{} of {} has left no log, and others wait",
            named(&absent),
            self.job.size
        );
        let facts = vec![format!(
            "the world has {} ranks, and there are logs of {}",
            self.job.size,
            self.job.ranks.len()
        )];
        Some(self.diagnosis(
            HangKind::MissingRank,
            Confidence::Likely,
            absent,
            summary,
            facts,
        ))
    }

    /// Who raised something that is no effect of what others did.
    fn raised(&self) -> Option<Diagnosis> {
        let causes = self.job.ranks.iter();
        let causes: Vec<(Rank, &str)> = causes
            .filter_map(|(rank, logged)| Some((Rank(*rank), logged.story.cause()?)))
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
        let summary = "ranks wait or have given up, and the logs do not show for whom".to_owned();
        self.diagnosis(
            HangKind::Unknown,
            Confidence::None,
            Vec::new(),
            summary,
            Vec::new(),
        )
    }
}

/// Those whose value is not that of most; of two, both.
fn odd<'a>(values: impl Iterator<Item = (u32, &'a str)>) -> Option<Vec<Rank>> {
    let values: Vec<(u32, &str)> = values.collect();
    let mut votes: BTreeMap<&str, usize> = BTreeMap::new();
    for (_, value) in &values {
        *votes.entry(value).or_default() += 1;
    }
    if votes.len() < 2 {
        return None;
    }
    let common = votes
        .into_iter()
        .find(|(_, count)| count * 2 > values.len());
    let common = common.map(|(value, _)| value);
    let odd = values.iter().filter(|(_, value)| Some(*value) != common);
    Some(odd.map(|(rank, _)| Rank(*rank)).collect())
}

/// A work as every member must call it: the number of elements only where all members give the same.
fn call(work: &Work) -> String {
    match (work.op.as_str(), &work.elements) {
        ("ALLREDUCE" | "BROADCAST" | "ALLGATHER" | "_ALLGATHER_BASE", Some(elements)) => {
            format!("{} of {elements} elements", work.op)
        }
        (op, _) => op.to_owned(),
    }
}

/// `port: 29500` in an error.
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
