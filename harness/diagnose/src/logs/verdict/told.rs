//! Verdicts by the cause that a launcher, an error or a line of torch itself names.

use std::sync::LazyLock;

use regex::Regex;

use super::{Rules, differs, line, odd};
use crate::logs::launcher::{ending, is_killed_by_signal};
use crate::logs::logged::Logged;
use crate::logs::pattern::pattern;
use crate::{ErrorCause, error_cause};
use allranks_model::diagnosis::rank_set;
use allranks_model::diagnosis::rank_set::named;
use allranks_model::diagnosis::{Confidence, Diagnosis, HangKind};
use allranks_model::names::Rank;

impl Rules<'_> {
    /// Finds the ranks that a signal killed (see [`is_killed_by_signal`]); only the first to fail, if the launcher names it.
    pub(super) fn killed_by_signal(&self) -> Option<Diagnosis> {
        let exits = &self.job.lines.launcher.exits;
        let mut killed: Vec<u32> = exits
            .iter()
            .filter(|(_, code)| is_killed_by_signal(**code))
            .filter(|(rank, _)| !self.job.lines.launcher.was_killed_by_launcher(**rank))
            .map(|(rank, _)| *rank)
            .collect();
        let first = self.job.lines.launcher.first;
        if let Some(first) = first.filter(|first| killed.contains(first)) {
            killed = vec![first];
        }
        let how = ending(*exits.get(killed.first()?)?);
        let culprits: Vec<Rank> = killed.into_iter().map(Rank).collect();
        let mut facts = vec![format!("the launcher names {}: {how}", named(&culprits))];
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

    /// Finds the workers that an engine or the kernel says have died, unless they had given up because of others.
    pub(super) fn died(&self) -> Option<Diagnosis> {
        let gave_up = |rank: &u32| {
            let log = self.job.ranks.get(rank).map(|logged| &logged.log);
            log.is_some_and(|log| log.cause().is_none() && log.final_errors().next().is_some())
        };
        let dead = self.job.lines.dead_workers.lines.ranks.iter();
        let dead: Vec<_> = dead.filter(|(rank, _)| !gave_up(rank)).collect();
        let line = (*dead.first()?.1).clone();
        let culprits: Vec<Rank> = dead.into_iter().map(|(rank, _)| Rank(*rank)).collect();
        let summary = format!("{} ended: {line}", named(&culprits));
        Some(self.diagnosis(
            HangKind::PeerDead,
            Confidence::Likely,
            culprits,
            summary,
            vec![line],
        ))
    }

    /// Finds ranks that could not listen because the port is in use.
    pub(super) fn port_in_use(&self) -> Option<Diagnosis> {
        let refused = |(rank, logged): (&u32, &Logged)| {
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
    pub(super) fn fingerprints(&self) -> Option<Diagnosis> {
        let prints = &self.job.lines.accusations.fingerprints;
        let prints_of = prints.iter().map(|(rank, print)| (*rank, print.as_str()));
        let culprits = odd(prints_of, self.job.least_size() as usize)?;
        let lines = prints.iter().map(|(rank, print)| {
            let end = print.find(", TensorDeviceTypes").unwrap_or(print.len());
            line(*rank, &print[..end])
        });
        let facts = rank_set::places(&lines.collect::<Vec<_>>());
        let summary = match culprits.is_empty() {
            true => "ranks have called different collectives, or with other arguments".to_owned(),
            false => differs(&culprits),
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
    pub(super) fn named_by_barrier(&self) -> Option<Diagnosis> {
        let absent = &self.job.lines.accusations.absent;
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

    /// Accuses nobody where all ranks have raised an error that names other ranks: it is about those, and shows not which differs.
    pub(super) fn about_others(&self) -> Option<Diagnosis> {
        let raises = |(rank, logged): (&u32, &Logged)| {
            let error = logged.log.cause();
            error.is_some_and(|error| names_another(Rank(*rank), error))
        };
        let is_all = self.job.ranks.len() > 1 && self.job.ranks.iter().all(raises);
        is_all.then(|| self.unknown())
    }

    /// Finds the ranks that raised an error which is not an effect of other ranks; only the first to fail, if the
    /// launcher names it.
    pub(super) fn raised(&self) -> Option<Diagnosis> {
        let causes = self.job.ranks.iter();
        let causes: Vec<(Rank, &str)> = causes
            .filter_map(|(rank, logged)| Some((Rank(*rank), logged.log.cause()?)))
            .collect();
        let first = self.job.lines.launcher.first.map(Rank);
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
}

static RANK: LazyLock<Option<Regex>> = LazyLock::new(|| pattern(r"(?i)\branks? (\d+)"));

/// Returns true if an error of this rank names another one.
fn names_another(rank: Rank, error: &str) -> bool {
    let Some(pattern) = RANK.as_ref() else {
        return false;
    };
    let mut names = pattern.captures_iter(error);
    names.any(|name| name[1].parse() != Ok(rank.0))
}

/// Returns the port in an error's text, `port: 29500`; `None` if there is none.
fn port_in(error: &str) -> Option<u16> {
    let (_, rest) = error.split_once("port: ")?;
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}
