//! One world, played from its start to its end, or to the point where it is lost.
//!
//! Steps are sent ahead of the answers, so that a rank never waits for the harness; the opening and the closing are
//! fences. The harness's own deadline is on *progress*: any event of any rank counts.

mod acting;
mod diagnosing;
mod leaving;
mod losing;

use acting::Acting;
use diagnosing::Looks;
use leaving::judge_closing;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use super::loss::Loss;
use super::pending::{Pending, Purpose, check_form};
use super::probe::{probe, probe_after};
use super::recording::is_foretold;
use super::setup::{Beginning, closing, disagreement};
use super::story::RankStory;
use super::{Shared, interruption};
use crate::finding::{Finding, error_text};
use crate::script::{Answer, Points, Staged};
use crate::world::Frame;
use crate::world::{Event, World};
use allranks_model::capability::Declared;
use allranks_model::names::{Rank, WorldSize};
use allranks_model::outcome::Outcome;
use allranks_model::record::RankLine;
use allranks_oracle::{Prepared, RankReply, RankStep};
use allranks_protocol::{Call, CallResult, CallStatus, FromRank, Step, ToRank};
use allranks_suite::case::Starts;
use allranks_suite::plan::{Check, Scenario};

/// Steps a rank may be ahead of the slowest.
const AHEAD: usize = 16;
/// Bytes of storages in flight for one rank, at most, unless a single step is larger.
const BYTES_AHEAD: usize = 32 << 20;
/// From the host's entering `init_process_group` to its listening, a little more than it takes.
const HOST_AHEAD: Duration = Duration::from_millis(5);
/// How long the others wait for the host to enter it.
const HOST_PATIENCE: Duration = Duration::from_secs(2);

/// What came of a world.
#[derive(Debug, Default)]
pub struct Played {
    /// Findings of the checks it got to, by their place in the scenario.
    pub checks: BTreeMap<usize, Finding>,
    /// Of every rank's initialisation; none if the world was lost before.
    pub init: Option<Finding>,
    /// Of its teardown; none if it did not get there.
    pub end: Option<Finding>,
    /// Why it was lost.
    pub lost: Option<String>,
    /// What is known of each rank.
    pub ranks: Vec<RankStory>,
}

/// How a check ends a world although every rank answered: what follows could be poisoned.
const POISONED: &str = "a check failed in a way that may poison the group";

/// What the driver on libtorch calls itself.
const LIBTORCH: &str = "libtorch";

/// How long nothing may move while something is under way that is known to hang, or known to fail and has on some rank. If
/// the hang is gone, it ends much sooner; if it merely takes longer than this, it is a known failure for one more run.
const KNOWN_PATIENCE: Duration = Duration::from_secs(5);

/// Plays one world.
pub struct Player<'a> {
    scenario: &'a Scenario,
    todo: Vec<usize>,
    beginnings: Vec<Beginning>,
    deadline: Duration,
    shared: &'a Shared,
    interrupted: tokio::sync::watch::Receiver<bool>,
    world: World,
    pending: VecDeque<Pending>,
    /// Events that came while another was being looked into.
    aside: VecDeque<Event>,
    next_step: u32,
    played: Played,
    points: Points,
    acting: Acting,
    looks: Looks,
    /// First `ns` of each rank's clock, the origin of its spans.
    progress: Instant,
}

impl<'a> Player<'a> {
    /// A player for the checks at these places of the scenario, in order.
    pub fn new(
        scenario: &'a Scenario,
        todo: Vec<usize>,
        beginnings: Vec<Beginning>,
        points: Points,
        shared: &'a Shared,
        world: World,
    ) -> Self {
        Self {
            scenario,
            todo,
            beginnings,
            deadline: Duration::from_secs_f64(scenario.case.world.deadline_s),
            shared,
            interrupted: shared.interrupt.clone(),
            world,
            pending: VecDeque::new(),
            aside: VecDeque::new(),
            next_step: 0,
            played: Played {
                ranks: vec![RankStory::default(); scenario.world_size.count()],
                ..Played::default()
            },
            points,
            acting: Acting::default(),
            looks: Looks::default(),
            progress: Instant::now(),
        }
    }

    fn size(&self) -> WorldSize {
        self.scenario.world_size
    }

    /// Plays to the end; afterwards no process of the world is left.
    pub async fn play(mut self) -> Played {
        let stopped = match self.acts().await {
            Err(Stop::Leave(index)) => self.leave(index).await,
            other => other,
        };
        match stopped {
            Err(Stop::Lost(Loss::Crash(rank, why))) => {
                if self.hear_out(rank).await.is_ok() {
                    self.note_loss(&Loss::Crash(rank, why));
                }
            }
            Err(Stop::Lost(loss)) => self.note_loss(&loss),
            Err(Stop::Decided | Stop::Leave(_)) | Ok(()) => {}
        }
        self.clear().await;
        self.played
    }

    /// Opening, checks, closing.
    async fn acts(&mut self) -> Result<(), Stop> {
        self.gather().await?;
        let beginnings = std::mem::take(&mut self.beginnings);
        if let Some(why) = self.cannot_begin(&beginnings) {
            let finding = Finding::bare(Outcome::NotRun, None, why);
            let checks = std::mem::take(&mut self.todo);
            let left_out = checks.into_iter().map(|index| (index, finding.clone()));
            self.played.checks.extend(left_out);
            self.played.init = Some(finding);
            return self.part().await;
        }
        let (imports, openings): (Vec<Step>, Vec<Option<Step>>) = beginnings
            .into_iter()
            .map(|each| (each.imports, each.opening))
            .unzip();
        let imports = imports.into_iter().map(bare).collect();
        self.send("import".to_owned(), Purpose::Imports, imports);
        self.drain(0).await?;
        let openings: Option<Vec<Step>> = openings.into_iter().collect();
        if let Some(openings) = openings {
            self.open(openings.into_iter().map(bare).collect()).await?;
            self.drain(0).await?;
        }
        for index in std::mem::take(&mut self.todo) {
            if let Some(script) = &self.scenario.checks[index].script {
                self.play_script(index, script).await?;
                continue;
            }
            while !self.has_room() {
                self.drain(self.pending.len() - 1).await?;
            }
            self.send_check(index);
        }
        self.drain(0).await?;
        if self.scenario.case.world.starts == Starts::Bare {
            // Nothing is left to be destroyed.
            self.played.end = Some(Finding::passed(vec![1; self.size().count()]));
            return self.part().await;
        }
        let farewell = self.size().ranks().map(|_| bare(closing())).collect();
        self.send("teardown".to_owned(), Purpose::Closing, farewell);
        self.drain(0).await?;
        self.part().await
    }

    /// Why the ranks' driver cannot show what this scenario is about, before anything is asked of it.
    fn cannot_begin(&self, beginnings: &[Beginning]) -> Option<String> {
        let mut stories = self.played.ranks.iter().zip(beginnings);
        let lacking =
            stories.find_map(|(story, own)| own.steps().find_map(|step| story.lacks(step)));
        let hello = self.played.ranks[0].hello.as_ref()?;
        match lacking {
            Some(why) => Some(why),
            None if self.scenario.refused.is_some() && hello.driver == LIBTORCH => Some(format!(
                "what must be refused here is refused by torch's Python layer, which the {LIBTORCH} driver does without"
            )),
            None => None,
        }
    }

    /// Waits until every rank has said hello.
    async fn gather(&mut self) -> Result<(), Stop> {
        while self.played.ranks.iter().any(|rank| rank.hello.is_none()) {
            self.step().await?;
        }
        Ok(())
    }

    /// Sends the openings: rank 0, which hosts the store, a little ahead of the rest. A store's client that dials
    /// before the host listens sleeps for half a second and more before it tries again.
    async fn open(&mut self, steps: Vec<RankStep>) -> Result<(), Stop> {
        let held = self.post("init".to_owned(), Purpose::Opening, steps);
        let mut held = held.into_iter();
        if let Some((rank, step, payload)) = held.next() {
            self.world.send(rank, ToRank::Step(step), payload);
            // A rank that takes long, or never says that it enters, costs time and nothing else.
            let limit = Instant::now() + HOST_PATIENCE;
            let before = self.played.ranks[rank.index()].answered;
            let is_inside = |story: &RankStory| story.position.is_some() || story.answered > before;
            while self.size().0 > 1 && !is_inside(&self.played.ranks[rank.index()]) {
                match self.event(limit).await? {
                    Some(event) => self.handle(event).await?,
                    None => break,
                }
            }
        }
        if self.size().0 > 1 {
            tokio::time::sleep(HOST_AHEAD).await;
        }
        for (rank, step, payload) in held {
            self.world.send(rank, ToRank::Step(step), payload);
        }
        Ok(())
    }

    fn has_room(&self) -> bool {
        let bytes: usize = self.pending.iter().map(|pending| pending.bytes).sum();
        self.pending.is_empty() || (self.pending.len() < AHEAD && bytes < BYTES_AHEAD)
    }

    fn send_check(&mut self, index: usize) {
        let check = &self.scenario.checks[index];
        if let Some(why) = lacks_memory(check) {
            let finding = Finding::bare(Outcome::NotRun, None, why);
            self.played.checks.insert(index, finding);
            return;
        }
        let label = short(check).to_owned();
        let prepared = match Prepared::new(check, self.size(), self.shared.settings.seed) {
            Ok(prepared) => prepared,
            Err(error) => {
                // The plan refuses such checks before a run; reaching this is the harness's own mistake.
                let finding = Finding::bare(Outcome::HarnessError, None, error.to_string());
                self.played.checks.insert(index, finding);
                return;
            }
        };
        let steps = prepared.steps().to_vec();
        if self.leaves_out(index, &steps) {
            return;
        }
        self.send(label.clone(), Purpose::Check(index, prepared), steps);
        if let Some(probe) = probe_after(check)
            && let Ok(prepared) = Prepared::new(&probe, self.size(), self.shared.settings.seed)
        {
            let steps = prepared.steps().to_vec();
            let label = format!("{label} (probe)");
            self.send(label, Purpose::Probe(index, prepared), steps);
        }
    }

    /// Whether some rank's driver has not got a call that the check needs: then it is not run.
    fn leaves_out(&mut self, index: usize, steps: &[RankStep]) -> bool {
        let mut stories = self.played.ranks.iter().zip(steps);
        let Some(why) = stories.find_map(|(story, own)| story.lacks(&own.step)) else {
            return false;
        };
        let finding = Finding::bare(Outcome::NotRun, None, why);
        self.played.checks.insert(index, finding);
        true
    }

    fn send(&mut self, label: String, purpose: Purpose, steps: Vec<RankStep>) {
        for (rank, step, payload) in self.post(label, purpose, steps) {
            self.world.send(rank, ToRank::Step(step), payload);
        }
    }

    /// Notes a step as pending; what is to be sent to each rank.
    fn post(
        &mut self,
        label: String,
        purpose: Purpose,
        steps: Vec<RankStep>,
    ) -> Vec<(Rank, Step, Vec<u8>)> {
        let number = self.next_step;
        self.next_step += 1;
        let mut bytes = 0;
        let (mut calls, mut storages) = (Vec::new(), Vec::new());
        let mut messages = Vec::new();
        for (rank, RankStep { mut step, payload }) in self.size().ranks().zip(steps) {
            bytes = bytes.max(payload.len());
            step.step = number;
            calls.push(step.calls.iter().map(Call::name).collect());
            storages.push(step.storages.clone());
            messages.push((rank, step, payload));
        }
        self.pending.push_back(Pending {
            number,
            label,
            calls,
            storages,
            purpose,
            bytes,
            answers: vec![None; self.size().count()],
        });
        messages
    }

    /// Handles events until at most `left` steps are pending.
    async fn drain(&mut self, left: usize) -> Result<(), Stop> {
        while self.pending.len() > left {
            self.step().await?;
            self.conclude_answered()?;
        }
        Ok(())
    }

    fn conclude_answered(&mut self) -> Result<(), Stop> {
        while let Some(pending) = self.next_answered() {
            self.conclude(pending)?;
        }
        Ok(())
    }

    /// Takes the first step away, if every rank has answered it.
    fn next_answered(&mut self) -> Option<Pending> {
        let front = self.pending.front()?;
        if front.is_answered() {
            self.pending.pop_front()
        } else {
            None
        }
    }

    /// Waits for one event and handles it.
    async fn step(&mut self) -> Result<(), Stop> {
        let known = self.deadline.min(KNOWN_PATIENCE);
        let event = match self.event(self.progress + known).await? {
            None if !self.is_known_to_stay() => self.event(self.progress + self.patience()).await?,
            event => event,
        };
        match event {
            Some(event) => self.handle(event).await,
            None => Err(Stop::Lost(Loss::Hang(Box::new(
                self.diagnosis(self.pending.front()),
            )))),
        }
    }

    /// How long nothing may move. Imports take longer than communication, and from a network in a world of many ranks much
    /// longer.
    fn patience(&self) -> Duration {
        match self.played.ranks.iter().all(RankStory::has_imported) {
            true => self.deadline,
            false => self.deadline.max(self.shared.settings.import_patience),
        }
    }

    /// Whether what is under way is known to come to no end, or to none that matters: it is not waited for as long as
    /// what is not. Whoever has raised what was not asked for has decided it, and the others may wait for him.
    fn is_known_to_stay(&self) -> bool {
        let Some(open) = self.pending.front() else {
            return false;
        };
        let foretold = |outcome| {
            let ranks = &self.played.ranks;
            is_foretold(self.shared, self.scenario, ranks, open.check(), outcome)
        };
        match open.purpose {
            Purpose::Imports | Purpose::Opening => foretold(Outcome::InitFailed),
            Purpose::Check(..) | Purpose::Script(..) => {
                let mut replies = open.replies();
                let has_raised = replies.any(|reply| error_text(&reply.result.calls).is_some());
                foretold(Outcome::Hang) || has_raised && foretold(Outcome::Error)
            }
            Purpose::Probe(..) | Purpose::Closing => false,
        }
    }

    /// The next event; none if there is none in time.
    async fn event(&mut self, limit: Instant) -> Result<Option<Event>, Stop> {
        if let Some(event) = self.aside.pop_front() {
            return Ok(Some(event));
        }
        loop {
            let (nudge, look) = (self.next_nudge(), self.next_look());
            let wake = [nudge, look]
                .into_iter()
                .flatten()
                .fold(limit, Instant::min);
            let is_due = |when: Option<Instant>| when == Some(wake) && wake < limit;
            tokio::select! {
                event = timeout_at(wake, self.world.next()) => match event {
                    Ok(event) => return Ok(Some(event)),
                    Err(_) if is_due(nudge) => self.nudge(),
                    Err(_) if is_due(look) => {
                        if let Some(told) = self.look() {
                            return Err(Stop::Lost(Loss::Hang(Box::new(told))));
                        }
                    }
                    Err(_) => return Ok(None),
                },
                () = interruption(&mut self.interrupted) => {
                    return Err(Stop::Lost(Loss::Interrupted));
                }
            }
        }
    }

    /// Handles one event, which is progress whatever it is, but for what a rank tells of its waiting.
    async fn handle(&mut self, event: Event) -> Result<(), Stop> {
        let is_waiting = matches!(&event, Event::Frame(_, frame) if matches!(frame.header, FromRank::Recorder { .. }));
        if !is_waiting {
            self.progress = Instant::now();
            self.looks.reset();
        }
        match event {
            Event::Hello(rank, hello) => {
                self.played.ranks[rank.index()].hello = Some(hello);
                Ok(())
            }
            Event::Refused(rank, why) => Err(Stop::Lost(Loss::Crash(rank, why))),
            Event::Frame(rank, frame) => self
                .take(rank, frame)
                .map_err(|why| Stop::Lost(Loss::Crash(rank, why))),
            Event::Broken(rank, error) => {
                let story = &mut self.played.ranks[rank.index()];
                let why = error.to_string();
                story.broken = Some(why.clone());
                if story.said_bye.is_some() {
                    return Ok(());
                }
                self.learn_end(rank).await;
                if self.is_to_leave(rank) {
                    let story = &self.played.ranks[rank.index()];
                    let (call, end) = (story.entered.checked_sub(1), story.end.clone());
                    self.note_left(rank, call, end);
                    return Ok(());
                }
                let why = match &self.played.ranks[rank.index()].end {
                    Some(end) => format!("its process ended: {end}"),
                    None => why,
                };
                Err(Stop::Lost(Loss::Crash(rank, why)))
            }
            Event::Ended(rank, end) => {
                let story = &mut self.played.ranks[rank.index()];
                let why = format!("its process ended: {end}");
                story.end = Some(end);
                // What a connected rank still had to say is on its way; the end of its connection decides.
                if story.hello.is_some() {
                    Ok(())
                } else {
                    Err(Stop::Lost(Loss::Crash(rank, why)))
                }
            }
        }
    }

    /// A broken connection is often a death whose report is on its way.
    async fn learn_end(&mut self, rank: Rank) {
        // Of a rank that a script sends away, how it ends is what is judged.
        let patience = match self.is_to_leave(rank) {
            true => self.deadline,
            false => Duration::from_secs(1),
        };
        let soon = Instant::now() + patience;
        while self.played.ranks[rank.index()].end.is_none() {
            match timeout_at(soon, self.world.next()).await {
                Ok(Event::Ended(rank, end)) => {
                    self.played.ranks[rank.index()].end = Some(end);
                }
                Ok(Event::Frame(rank, frame)) => {
                    // A late answer of another rank still counts; a broken protocol is reported by the loss.
                    let _ = self.take(rank, frame);
                }
                // Several ranks may leave at once.
                Ok(event @ Event::Broken(..)) => self.aside.push_back(event),
                Ok(Event::Hello(..) | Event::Refused(..)) => {}
                Err(_) => return,
            }
        }
    }

    /// Takes a frame; the error says how it breaks the protocol.
    fn take(&mut self, rank: Rank, frame: Frame<FromRank>) -> Result<(), String> {
        let story = &mut self.played.ranks[rank.index()];
        let due = self
            .pending
            .iter_mut()
            .find(|pending| !pending.is_answered_by(rank));
        match frame.header {
            FromRank::Hello(_) => Err("it said hello twice".to_owned()),
            FromRank::Recorder { step, ops } => {
                story.recorded = Some((step, ops));
                Ok(())
            }
            FromRank::Enter { step, call, ns } => {
                let is_next = due.is_some_and(|due| {
                    due.number == step
                        && story.entered == call
                        && call < due.calls[rank.index()].len()
                });
                if !is_next {
                    return Err(format!(
                        "it enters call {call} of step {step}, which is not its next"
                    ));
                }
                story.entered += 1;
                story.position = Some((step, call, Instant::now()));
                story.entered_at = ns;
                self.cue(rank, call);
                Ok(())
            }
            FromRank::Result(result) => {
                let number = result.step;
                let Some(pending) = due.filter(|due| due.number == number) else {
                    return Err(format!("it answers step {number}, which is not its next"));
                };
                check_form(&result, frame.payload.len(), pending, rank, story.entered)?;
                story.position = None;
                story.entered = 0;
                story.answered += 1;
                let is_refusal = match &pending.purpose {
                    Purpose::Check(index, _) => {
                        self.scenario.checks[*index].declared != Declared::Supported
                    }
                    Purpose::Imports
                    | Purpose::Opening
                    | Purpose::Probe(..)
                    | Purpose::Script(..)
                    | Purpose::Closing => false,
                };
                let returned = |call: &CallResult| call.status == CallStatus::Ok;
                let ok = is_refusal || result.calls.iter().all(returned);
                story.tell(&pending.label, &result, ok);
                pending.answers[rank.index()] = Some(Answer::Reply(RankReply {
                    result,
                    payload: frame.payload,
                }));
                Ok(())
            }
            FromRank::Bye { steps, token } => {
                story.said_bye = Some((steps, token));
                Ok(())
            }
        }
    }

    /// Every rank has answered a step, or left in it.
    fn conclude(&mut self, pending: Pending) -> Result<(), Stop> {
        let asked = pending.script().and_then(Staged::hang).cloned();
        let told = asked.map(|hang| (hang, self.diagnosis(Some(&pending))));
        let answers: Vec<Answer> = pending.answers.into_iter().flatten().collect();
        match pending.purpose {
            Purpose::Imports => {
                let replies = replies(answers);
                let finding = self.judge_opening(&replies, |_, calls| error_text(calls));
                let opens = self.scenario.case.world.starts == Starts::Initialised;
                self.note_init(finding, !opens)
            }
            Purpose::Opening => {
                let scenario = self.scenario;
                let finding = self.judge_opening(&replies(answers), |rank, calls| {
                    error_text(calls).or_else(|| disagreement(scenario, rank, calls))
                });
                self.note_init(finding, true)
            }
            Purpose::Check(index, prepared) => {
                let check = &self.scenario.checks[index];
                let finding = large_aside(pending.bytes, || {
                    Finding::of_answers(check, &prepared, &replies(answers))
                });
                self.decide(index, finding)
            }
            Purpose::Probe(index, prepared) => {
                let check = probe(&self.scenario.checks[index]);
                let probed = Finding::of_answers(&check, &prepared, &replies(answers));
                match self.played.checks.remove(&index) {
                    Some(refused) => self.decide(index, refused.after_probe(&probed)),
                    None => Ok(()),
                }
            }
            Purpose::Closing => {
                self.played.end = Some(judge_closing(&replies(answers)));
                Ok(())
            }
            Purpose::Script(index, staged) => {
                let finding = staged.judge(&answers);
                let finding = match told {
                    Some((hang, told)) => self.judge_hang(&hang, told, finding),
                    None => finding,
                };
                self.end_script(index, finding)
            }
        }
    }

    /// Keeps a finding; one that may have poisoned the group ends the world.
    fn decide(&mut self, index: usize, finding: Finding) -> Result<(), Stop> {
        let poisons = finding.outcome == Outcome::Error;
        self.played.checks.insert(index, finding);
        if poisons {
            self.played.lost = Some(POISONED.to_owned());
            Err(Stop::Decided)
        } else {
            Ok(())
        }
    }

    /// Keeps what is found of init, once it is all of it; a failure ends the world.
    fn note_init(&mut self, finding: Finding, is_all: bool) -> Result<(), Stop> {
        let ok = finding.outcome == Outcome::Pass;
        if is_all || !ok {
            self.played.init = Some(finding);
        }
        if ok { Ok(()) } else { Err(Stop::Decided) }
    }

    fn judge_opening(
        &self,
        replies: &[RankReply],
        fault: impl Fn(Rank, &[CallResult]) -> Option<String>,
    ) -> Finding {
        let mut ranks = Vec::new();
        for (rank, reply) in self.size().ranks().zip(replies) {
            let text = fault(rank, &reply.result.calls);
            ranks.extend(text.map(|text| RankLine { rank, text }));
        }
        match ranks.first() {
            None => Finding::passed(vec![1; replies.len()]),
            Some(first) => {
                let summary = format!("rank {} did not initialise: {}", first.rank, first.text);
                Finding {
                    ranks,
                    ..Finding::bare(Outcome::InitFailed, Some("init-failed"), summary)
                }
            }
        }
    }
}

/// Why playing stopped before its end.
enum Stop {
    /// The world is lost.
    Lost(Loss),
    /// A finding has been made that ends it.
    Decided,
    /// The script at that place ends it by everybody's leaving.
    Leave(usize),
}

/// A step without tensors.
const fn bare(step: Step) -> RankStep {
    RankStep {
        step,
        payload: Vec::new(),
    }
}

/// What the ranks sent; outside scripts none leaves without.
fn replies(answers: Vec<Answer>) -> Vec<RankReply> {
    let reply = |answer| match answer {
        Answer::Reply(reply) => Some(reply),
        Answer::Left(..) => None,
    };
    answers.into_iter().filter_map(reply).collect()
}

/// Comparing much takes long: let other worlds go on meanwhile.
fn large_aside<T>(bytes: usize, work: impl FnOnce() -> T) -> T {
    if bytes > 1 << 20 {
        tokio::task::block_in_place(work)
    } else {
        work()
    }
}

/// The check's id without the scenario.
pub fn short(check: &Check) -> &str {
    check
        .id
        .as_str()
        .split_once('#')
        .map_or("", |(_, rest)| rest)
}

/// Why a check with large tensors cannot run now: a host gives it half of what memory it has to spare.
fn lacks_memory(check: &Check) -> Option<String> {
    if !check.is_large() {
        return None;
    }
    let (needed, usable) = (check.memory(), memory_available()? / 2);
    let gib = |bytes: u64| bytes as f64 / f64::from(1 << 30);
    (needed > usable).then(|| {
        format!(
            "it needs {:.1} GiB of memory, and {:.1} GiB can be used",
            gib(needed),
            gib(usable)
        )
    })
}

/// Bytes that programs can have without swapping, where the system tells.
fn memory_available() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kib << 10)
}
