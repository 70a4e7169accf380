//! Looks at the processes of one program, again and again.

use std::path::Path;
use std::time::{Duration, Instant};

use super::event::Event;
use super::hang_detector::HangDetector;
use crate::watch::ranks::idle_launcher;
use crate::watch::ranks::job::Job;
use crate::watch::ranks::lone_worlds;
use allranks_model::diagnosis::Diagnosis;

/// Interval between two looks.
pub(crate) const PERIOD: Duration = Duration::from_millis(250);

/// Looks at the processes of one program from outside.
#[derive(Debug)]
pub(crate) struct Monitor {
    pub job: Job,
    pub detector: HangDetector,
    has_noted_lone: bool,
    /// When the monitor was made, and its patience; `None` once a rank, or a launcher without ranks, has been seen.
    without_ranks: Option<(Instant, Duration)>,
}

impl Monitor {
    /// Makes a monitor of the processes that carry this token, whose Python processes write call traces into this
    /// folder.
    pub(crate) fn new(token: &str, call_traces: &Path, patience: Duration) -> Self {
        Self {
            job: Job::new(token, call_traces),
            detector: HangDetector::new(patience),
            has_noted_lone: false,
            without_ranks: Some((Instant::now(), patience)),
        }
    }

    /// Looks at the processes again. Returns what must be reported. To be called every [`PERIOD`]; takes milliseconds.
    pub(crate) fn look(&mut self) -> Vec<Event> {
        self.job.look();
        let mut events = self.detector.consider(&mut self.job);
        if !self.has_noted_lone
            && let Some(text) = lone_worlds::lone_worlds(&self.job.living())
        {
            self.has_noted_lone = true;
            events.push(Event::Note(text));
        }
        events.extend(self.idle_launcher().map(Event::Note));
        events
    }

    /// Returns, once, a line on a launcher that has started no rank within the patience.
    fn idle_launcher(&mut self) -> Option<String> {
        let (since, patience) = self.without_ranks?;
        if !self.job.ranks().is_empty() {
            self.without_ranks = None;
            return None;
        }
        if since.elapsed() < patience {
            return None;
        }
        self.without_ranks = None;
        let pids = self.job.pids.iter();
        let commands: Vec<_> = pids
            .map(|pid| (*pid, allranks_host::arguments(*pid)))
            .collect();
        idle_launcher::idle_launcher(&commands, since.elapsed())
    }

    /// Returns the diagnosis at this moment, whether it is proved or not; none of a program without ranks.
    pub(crate) fn diagnosis(&mut self) -> Option<Diagnosis> {
        self.detector.diagnosis(&self.job)
    }

    /// Returns the endpoints that ranks dial and that cannot be reached from here, each with the reason.
    pub fn unreached(&mut self) -> Vec<(String, String)> {
        self.detector.unreached(&self.job)
    }

    /// Returns the version of torch that some process has imported, from its call trace; none if that is not known.
    pub(crate) fn torch(&self) -> Option<String> {
        self.job.torch()
    }
}
