//! The watches of one job on several nodes, which share a folder. Each writes there what it sees; one of them, the first by name of
//! those that go on, judges the evidence of all and reports one verdict for the job.
//!
//! Clocks of other hosts are not used: what another watch has written is as old as it was first read here, and a watch counts as
//! running while its heartbeat number grows. A verdict is reported when all nodes have written their evidence anew, nothing has
//! moved on any since the first of two equal judgements, and so all of them stood in it at one moment.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::evidence_paths::files;
use super::evidence_versions::EvidenceVersions;
use super::judged::Judged;
use super::member::Member;
use super::node_evidence::{self, NodeEvidence};
use super::other_watches::OtherWatches;
use super::unreachable_master::unreachable_master;
use super::world_report::{WorldReport, judge_nodes};
use crate::watch::detector::event::Event;
use crate::watch::ranks::lone_worlds::lone_worlds;
use allranks_model::diagnosis::{Diagnosis, HangKind};
use allranks_model::names::Rank;

/// What a watch has found out alone is reported when it has stood for this long and the evidence of all says nothing.
const ALONE: Duration = Duration::from_secs(10);
/// What a watch says of an endpoint is younger than this, in seconds: it has tried it since rank 0 listens.
const SETTLED: f64 = 10.0;
/// This process's watch of a job that has watches on several nodes.
#[derive(Debug)]
pub struct SharedJob {
    folder: PathBuf,
    own: Member,
    began: f64,
    others: OtherWatches,
    versions: EvidenceVersions,
    /// By world: what two judgements must agree in.
    candidates: BTreeMap<String, Candidate>,
    reported: BTreeMap<String, Essence>,
    still: BTreeSet<String>,
    /// Since when watches have found out alone what they say.
    alone: BTreeMap<String, (Essence, Instant)>,
    has_noted_lone: bool,
}

/// What two verdicts must have in common to be the same.
type Essence = (HangKind, Vec<Rank>);

#[derive(Debug)]
struct Candidate {
    essence: Essence,
    since: Instant,
}

impl SharedJob {
    /// Joins the job in this folder, which is made if it is not there.
    ///
    /// # Errors
    /// The folder cannot be made or written to, or others than this user can write there.
    pub fn join(folder: &Path) -> io::Result<Self> {
        Self::join_as(folder, Member::here())
    }

    fn join_as(folder: &Path, mut own: Member) -> io::Result<Self> {
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true).mode(0o700).create(folder)?;
        let found = fs::metadata(folder)?;
        let user = rustix::process::geteuid().as_raw();
        if found.uid() != user || found.mode() & 0o022 != 0 {
            let text = format!(
                "{}: others can write there (user {}, mode {:o}), and so forge a verdict",
                folder.display(),
                found.uid(),
                found.mode() & 0o777
            );
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
        }
        own.write(folder)?;
        Ok(Self {
            folder: folder.to_owned(),
            own,
            began: node_evidence::now(),
            others: OtherWatches::default(),
            versions: EvidenceVersions::default(),
            candidates: BTreeMap::new(),
            reported: BTreeMap::new(),
            still: BTreeSet::new(),
            alone: BTreeMap::new(),
            has_noted_lone: false,
        })
    }

    /// Keeps what this watch has found out alone.
    pub fn note(&mut self, events: &[Event]) {
        for event in events {
            match event {
                Event::Verdict(diagnosis) => self.own.verdict = Some(diagnosis.clone()),
                Event::Moves => self.own.verdict = None,
                _ => {}
            }
        }
    }

    /// Tells the others that this watch goes on, and looks at what they have written. Returns what must be reported, if it is this
    /// watch that reports. To be called after this node's evidence has been written. `unreached` are the endpoints that ranks here
    /// dial and that cannot be reached from here, each with the reason.
    ///
    /// # Errors
    /// The folder cannot be read or written to.
    pub fn look(&mut self, unreached: Vec<(String, String)>) -> io::Result<Vec<Event>> {
        self.own.unreached = unreached;
        self.own.write(&self.folder)?;
        self.others
            .look(&self.folder, &self.own.name(), self.began)?;
        if !self.is_first() || self.others.are_unsettled() {
            // Another one reports, or it is not yet known which.
            self.candidates.clear();
            return Ok(Vec::new());
        }
        let mut events: Vec<Event> = self.others.lost().into_iter().map(Event::Note).collect();
        let evidence = (self.versions).read(&self.folder, &self.others, &self.own.name());
        if !self.has_noted_lone {
            let processes = evidence.iter().flat_map(|(_, node)| node.processes());
            if let Some(text) = lone_worlds(&processes.collect::<Vec<_>>()) {
                self.has_noted_lone = true;
                events.push(Event::Note(text));
            }
        }
        let still: BTreeMap<String, (f64, Instant)> = self.versions.stillness(&evidence);
        let nodes: Vec<NodeEvidence> = evidence.into_iter().map(|(_, node)| node).collect();
        let mut reports = judge_nodes(nodes.clone());
        for report in &mut reports {
            let still = still
                .get(&report.world)
                .map_or(0.0, |(seconds, _)| *seconds);
            if still >= SETTLED
                && let Some(verdict) = unreachable_master(report, &nodes, self.living(), still)
            {
                report.verdict = Some(verdict);
            }
        }
        for report in &reports {
            events.extend(self.consider(report, still.get(&report.world).copied()));
        }
        let worlds: BTreeSet<&String> = reports.iter().map(|report| &report.world).collect();
        self.candidates.retain(|world, _| worlds.contains(world));
        events.extend(self.found_alone());
        // One that went before may have reported it.
        let before = self.judged();
        events.retain(|event| match event {
            Event::Verdict(one) => !before.as_ref().is_some_and(|judged| {
                (judged.diagnosis.kind, &judged.diagnosis.culprits) == (one.kind, &one.culprits)
            }),
            _ => true,
        });
        for event in &events {
            if matches!(event, Event::Moves) {
                Judged::remove(&self.folder);
            }
            if let Event::Verdict(diagnosis) = event {
                let judged = Judged {
                    of: self.names(),
                    diagnosis: diagnosis.clone(),
                };
                judged.write(&self.folder)?;
            }
        }
        Ok(events)
    }

    /// Returns true if another watch of the job has reported a verdict on the ranks of this one.
    pub fn is_condemned(&self) -> bool {
        self.judged().is_some()
    }

    /// Returns the last verdict on ranks of this watch; none if there is none.
    fn judged(&self) -> Option<Judged> {
        let judged = Judged::read(&self.folder)?;
        judged.of.contains(&self.own.name()).then_some(judged)
    }

    /// Tells the others that the command of this watch has ended. The last watch of a job that ended well leaves nothing.
    ///
    /// # Errors
    /// The folder cannot be read or written to.
    pub fn end(&mut self, code: u8) -> io::Result<()> {
        self.own.ended = Some((node_evidence::now(), code));
        self.own.verdict = None;
        self.own.write(&self.folder)?;
        self.others
            .look(&self.folder, &self.own.name(), self.began)?;
        if code != 0 || !self.others.have_ended_well() {
            return Ok(());
        }
        let names = self.names();
        for path in files(&self.folder) {
            if node_evidence::read(&path).is_ok_and(|one| names.contains(&one.writer())) {
                let _ = fs::remove_file(path);
            }
        }
        Judged::remove(&self.folder);
        for member in self.others.confirmed() {
            member.remove(&self.folder);
        }
        self.own.remove(&self.folder);
        // Only if nothing else is there.
        let _ = fs::remove_dir(&self.folder);
        Ok(())
    }

    /// Returns true if this watch reports for the job: it is the first of those that go on.
    fn is_first(&self) -> bool {
        let own = self.own.name();
        self.others.living().all(|member| member.name() > own)
    }

    /// Returns the watches that go on, this one last.
    fn living(&self) -> impl Iterator<Item = &Member> {
        self.others.living().chain([&self.own])
    }

    /// This watch and those that count.
    fn names(&self) -> Vec<String> {
        let others = self.others.confirmed().map(Member::name);
        others.chain([self.own.name()]).collect()
    }

    /// Takes the judgement of one world. `still` is for how many seconds nothing has moved on any node, and since when all evidence
    /// has been read.
    fn consider(&mut self, report: &WorldReport, still: Option<(f64, Instant)>) -> Option<Event> {
        let world = report.world.clone();
        let Some(verdict) = &report.verdict else {
            self.candidates.remove(&world);
            self.still.remove(&world);
            return self.reported.remove(&world).map(|_| Event::Moves);
        };
        if matches!(verdict.kind, HangKind::Slow | HangKind::Unknown) {
            self.candidates.remove(&world);
            let (seconds, _) = still?;
            let is_new = !self.reported.contains_key(&world) && self.still.insert(world);
            let still = Duration::try_from_secs_f64(seconds).unwrap_or_default();
            return is_new.then(|| Event::Still(with_notes(verdict, report), still));
        }
        let essence = (verdict.kind, verdict.culprits.clone());
        if self.reported.get(&world) == Some(&essence) {
            return None;
        }
        let (seconds, oldest) = still?;
        match self.candidates.get(&world) {
            Some(one) if one.essence == essence => {
                let passed = one.since.elapsed().as_secs_f64();
                if oldest <= one.since || seconds < passed {
                    return None;
                }
                self.candidates.remove(&world);
                self.reported.insert(world, essence);
                Some(Event::Verdict(with_notes(verdict, report)))
            }
            _ => {
                let since = Instant::now();
                self.candidates.insert(world, Candidate { essence, since });
                None
            }
        }
    }

    /// Returns what one watch has found out alone, where the evidence of all says nothing.
    fn found_alone(&mut self) -> Option<Event> {
        let of_all = |world: &String| !world.is_empty();
        if !self.candidates.is_empty() || self.reported.keys().any(of_all) {
            return None;
        }
        let members: Vec<Member> = self.living().cloned().collect();
        let mut kept = BTreeMap::new();
        for member in &members {
            let Some(verdict) = &member.verdict else {
                continue;
            };
            let essence = (verdict.kind, verdict.culprits.clone());
            let before = self.alone.remove(&member.name());
            let one = before
                .filter(|(known, _)| *known == essence)
                .unwrap_or_else(|| (essence, Instant::now()));
            kept.insert(member.name(), one);
        }
        self.alone = kept;
        if self.alone.is_empty() {
            return self.reported.remove("").map(|_| Event::Moves);
        }
        let ripe = members.into_iter().find(|member| {
            let stands = |(_, since): &(Essence, Instant)| since.elapsed() >= ALONE;
            self.alone.get(&member.name()).is_some_and(stands)
        })?;
        let mut verdict = ripe.verdict?;
        let essence = (verdict.kind, verdict.culprits.clone());
        if self.reported.insert(String::new(), essence.clone()) == Some(essence) {
            return None;
        }
        verdict.evidence.push(format!(
            "this was found out on host {}, whose ranks alone were looked at",
            ripe.host
        ));
        Some(Event::Verdict(verdict))
    }
}

/// The verdict with what must be known to judge it.
fn with_notes(verdict: &Diagnosis, report: &WorldReport) -> Diagnosis {
    let mut verdict = verdict.clone();
    verdict.evidence.extend(report.notes.iter().cloned());
    verdict
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn join(folder: &Path, host: &str) -> SharedJob {
        SharedJob::join_as(folder, Member::on(host.to_owned())).unwrap()
    }

    fn verdict(kind: HangKind, culprits: &[u32]) -> Diagnosis {
        let evidence = allranks_diagnose::HangEvidence {
            ranks: Vec::new(),
            is_whole: true,
            foreign_listeners: Vec::new(),
            endpoints_without_listener: Vec::new(),
            forgotten: BTreeMap::new(),
            still: Duration::ZERO,
        };
        Diagnosis {
            kind,
            culprits: culprits.iter().copied().map(Rank).collect(),
            ..allranks_diagnose::diagnose(&evidence)
        }
    }

    fn report(verdict: Option<Diagnosis>) -> WorldReport {
        WorldReport {
            world: "a:1 0".to_owned(),
            verdict,
            notes: Vec::new(),
        }
    }

    #[test]
    fn one_watch_of_those_that_go_on_reports() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("job");
        // What an earlier start has left, and never beats again.
        join(&path, "a0");
        let (mut one, mut two) = (join(&path, "a1"), join(&path, "a2"));
        for _ in 0..2 {
            one.look(Vec::new()).unwrap();
            two.look(Vec::new()).unwrap();
        }
        assert!(one.is_first() && !two.is_first());
        one.end(3).unwrap();
        two.look(Vec::new()).unwrap();
        assert!(two.is_first());
        assert!(path.exists(), "a command failed, and its evidence is gone");
    }

    #[test]
    fn the_last_watch_of_a_job_that_ended_well_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("jobs/job");
        let (mut one, mut two) = (join(&path, "a1"), join(&path, "a2"));
        for _ in 0..2 {
            one.look(Vec::new()).unwrap();
            two.look(Vec::new()).unwrap();
        }
        one.end(0).unwrap();
        assert!(path.exists());
        two.end(0).unwrap();
        assert!(!path.exists());
    }

    #[test]
    fn a_folder_in_which_others_can_write_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), Permissions::from_mode(0o777)).unwrap();
        let said = SharedJob::join(folder.path()).unwrap_err().to_string();
        assert!(said.contains("others can write there"), "{said}");
        fs::set_permissions(folder.path(), Permissions::from_mode(0o700)).unwrap();
        SharedJob::join(folder.path()).unwrap();
    }

    #[test]
    fn a_verdict_stands_only_while_every_node_has_written_since_and_nothing_moved() {
        let folder = tempfile::tempdir().unwrap();
        let mut job = join(folder.path(), "a1");
        let hung = report(Some(verdict(HangKind::PeerStopped, &[1])));
        let before = Instant::now();
        assert!(job.consider(&hung, Some((9.0, before))).is_none());
        // Not written anew; and written anew, but a rank moved in between.
        assert!(job.consider(&hung, Some((9.0, before))).is_none());
        assert!(job.consider(&hung, Some((0.0, Instant::now()))).is_none());
        let told = job.consider(&hung, Some((9.0, Instant::now())));
        assert!(matches!(told, Some(Event::Verdict(_))), "{told:?}");
        // It is told once, until the ranks move.
        assert!(job.consider(&hung, Some((9.0, Instant::now()))).is_none());
        let moves = job.consider(&report(None), None);
        assert!(matches!(moves, Some(Event::Moves)), "{moves:?}");
        // Another culprit is another verdict.
        let other = report(Some(verdict(HangKind::PeerStopped, &[0])));
        assert!(job.consider(&hung, Some((9.0, Instant::now()))).is_none());
        assert!(job.consider(&other, Some((9.0, Instant::now()))).is_none());
    }

    #[test]
    fn what_was_reported_by_a_watch_that_has_ended_is_not_reported_again() {
        let folder = tempfile::tempdir().unwrap();
        let mut one = join(folder.path(), "a1");
        assert!(!one.is_condemned());
        let judged = |of: &str| {
            let of = vec![file_of(of)];
            let diagnosis = verdict(HangKind::PeerStopped, &[1]);
            Judged { of, diagnosis }.write(folder.path()).unwrap();
        };
        // One of an earlier start of the job is none on this watch.
        judged("a2");
        assert!(!one.is_condemned());
        judged("a1");
        assert!(one.is_condemned());
        // What it has found out alone for long enough is that verdict.
        let found = |one: &mut SharedJob| {
            let found = verdict(HangKind::PeerStopped, &[1]);
            let essence = (found.kind, found.culprits.clone());
            one.note(&[Event::Verdict(found)]);
            let since = Instant::now().checked_sub(ALONE).unwrap();
            one.alone.insert(one.own.name(), (essence, since));
        };
        found(&mut one);
        let events = one.look(Vec::new()).unwrap();
        assert!(events.is_empty(), "{events:?}");
        // Without that file it is reported, once.
        Judged::remove(folder.path());
        let mut two = join(folder.path(), "a1");
        found(&mut two);
        let events = two.look(Vec::new()).unwrap();
        assert!(matches!(events[..], [Event::Verdict(_)]), "{events:?}");
        found(&mut two);
        let events = two.look(Vec::new()).unwrap();
        assert!(events.is_empty(), "{events:?}");
    }

    fn file_of(host: &str) -> String {
        Member::on(host.to_owned()).name()
    }
}
