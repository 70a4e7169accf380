//! What was seen of the processes of a program.

use std::io;
use std::path::Path;
use std::time::Duration;

use super::folders::Folders;
use super::lines::{LogMatches, look_through};
use crate::world::{ExitRecord, RankAssignment, RankExit};
use allranks_model::diagnosis::Diagnosis;
use allranks_model::names::{Rank, WorldSize};
use allranks_suite::case::ProgramSpec;

/// What was seen of a program's processes.
#[derive(Debug)]
pub struct ProgramRanks {
    /// For each rank, what was seen of it.
    pub ranks: Vec<RankSeen>,
    /// How the launcher's own process ended; none if the ranks were started without one.
    pub launcher: Option<RankExit>,
    /// Why the harness killed the program; none if it ended by itself.
    pub stopped: Option<Stopped>,
    /// Processes that still ran after all ranks had ended: the rank that each belongs to, if known, and its command.
    pub orphans: Vec<(Option<Rank>, String)>,
}

/// What was seen of one rank.
#[derive(Debug)]
pub struct RankSeen {
    /// The exit record of each start before the last; none where there is none.
    pub earlier: Vec<Option<ExitRecord>>,
    /// The exit record that its rank wrapper wrote, as read before anything was killed; none if there is none.
    pub exit_record: Option<ExitRecord>,
    /// What was found in its log.
    pub log_matches: LogMatches,
}

/// Why the harness killed a program.
#[derive(Debug)]
pub enum Stopped {
    /// A hang verdict was given, and of the time that it took, this much were delays of the harness itself.
    Verdict(Diagnosis, Duration),
    /// It ran longer than the case allows; with the diagnosis at that moment, if there is one.
    Overdue(Option<Diagnosis>),
}

impl Stopped {
    /// Returns the diagnosis with which it was killed; none if there is none.
    pub fn diagnosis(&self) -> Option<&Diagnosis> {
        match self {
            Self::Verdict(diagnosis, _) => Some(diagnosis),
            Self::Overdue(diagnosis) => diagnosis.as_ref(),
        }
    }
}

impl RankSeen {
    /// Returns what was seen of a rank: its exit records and the lines of its log. A rank that never started gets an empty log.
    pub fn read(
        (program, size): (&ProgramSpec, WorldSize),
        rank: Rank,
        exit_record: Option<ExitRecord>,
        folders: &Folders,
        log: &Path,
    ) -> io::Result<Self> {
        let log_matches = look_through(log, program, rank, size)?;
        let earlier = 0..program.restarts;
        std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(log)?;
        Ok(Self {
            earlier: earlier
                .map(|start| ExitRecord::read(&folders.records, rank, start))
                .collect(),
            exit_record,
            log_matches,
        })
    }

    /// Returns how it ended; none if that is not known.
    pub fn end(&self) -> Option<RankExit> {
        self.exit_record.as_ref().and_then(ExitRecord::end)
    }

    /// Returns what its launcher assigned to it; none if it was never started.
    pub fn assignment(&self) -> Option<&RankAssignment> {
        self.exit_record.as_ref()?.slot.as_ref()
    }

    /// Returns true if it was ever started.
    pub fn has_begun(&self) -> bool {
        self.starts() > 0
    }

    /// Returns how often it was started.
    pub fn starts(&self) -> usize {
        let all = self.earlier.iter().chain([&self.exit_record]);
        all.flatten().filter(|one| one.pid.is_some()).count()
    }
}
