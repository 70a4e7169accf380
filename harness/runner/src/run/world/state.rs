//! The data of the state machine of one world.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::event::Action;
use super::hang_checks::HangChecks;
use super::phase::Phase;
use super::phase::Wait;
use super::plan::WorldPlan;
use super::result::WorldResult;
use super::script_events::ScriptEvents;
use crate::check_result::CheckResult;
use crate::run::pending::Pending;
use crate::run::pending::Purpose;
use crate::run::rank_run::RankRun;
use crate::world::Event as RankEvent;
use allranks_model::names::Rank;
use allranks_model::names::WorldSize;
use allranks_model::outcome::Outcome;

/// The state machine of one world. Its transitions are in [`transitions`](super::transitions).
pub struct WorldState<'a> {
    pub(super) plan: WorldPlan<'a>,
    /// Checks that have not been sent yet, by index.
    pub(super) todo: VecDeque<usize>,
    pub(super) phase: Phase,
    pub(super) wait: Option<Wait>,
    /// Events that came while an answer was waited for.
    pub(super) deferred: VecDeque<RankEvent>,
    /// Steps that were sent and that not every rank has answered, in order.
    pub(super) pending: VecDeque<Pending>,
    /// Number of steps sent so far.
    pub(super) steps: u32,
    pub(super) result: WorldResult,
    pub(super) script_events: ScriptEvents,
    pub(super) hang_checks: HangChecks,
    /// The groups whose group test before the first refusal has been sent, each with how it failed; `None` while it has not
    /// been answered, or if it was right.
    pub(super) tested_groups: BTreeMap<String, Option<String>>,
    /// When something last moved.
    pub(super) progress: Duration,
    /// When the latest event came.
    pub(super) now: Duration,
    /// Whether the run is being interrupted.
    pub(super) is_interrupted: bool,
    /// The actions to perform, in order.
    pub(super) actions: Vec<Action>,
}

impl<'a> WorldState<'a> {
    /// Makes a world whose processes have just been started.
    pub fn new(mut plan: WorldPlan<'a>) -> Self {
        let result = WorldResult {
            ranks: vec![RankRun::default(); plan.size().count()],
            ..WorldResult::default()
        };
        Self {
            todo: std::mem::take(&mut plan.checks).into(),
            plan,
            phase: Phase::Connecting,
            wait: None,
            deferred: VecDeque::new(),
            pending: VecDeque::new(),
            steps: 0,
            result,
            script_events: ScriptEvents::default(),
            hang_checks: HangChecks::default(),
            tested_groups: BTreeMap::new(),
            progress: Duration::ZERO,
            now: Duration::ZERO,
            is_interrupted: false,
            actions: Vec::new(),
        }
    }

    /// Takes out the results that nothing in this world can change any more. A refusal waits for its group test, and a script
    /// after which ranks leave for how they do.
    pub fn take_settled(&mut self) -> Vec<(usize, CheckResult)> {
        let awaits_group_test = |index: &usize| {
            let of_group_test = |pending: &Pending| matches!(pending.purpose, Purpose::GroupTestAfter(of, _) if of == *index);
            self.pending.iter().any(of_group_test)
        };
        let leaving = match self.phase {
            Phase::Shutdown { script, .. } => script,
            _ => None,
        };
        let is_settled = |index: &usize| !awaits_group_test(index) && leaving != Some(*index);
        let places: Vec<usize> = self
            .result
            .checks
            .keys()
            .copied()
            .filter(is_settled)
            .collect();
        let take = |index| {
            self.result
                .checks
                .remove(&index)
                .map(|check_result| (index, check_result))
        };
        let settled: Vec<_> = places.into_iter().filter_map(take).collect();
        for (index, check_result) in &settled {
            self.result.note_decided(*index, check_result);
        }
        settled
    }

    /// Returns what is known of each rank.
    pub fn ranks(&self) -> &[RankRun] {
        &self.result.ranks
    }

    /// Returns true if ranks have been told to initialise, and not all have answered.
    pub(super) fn initialises(&self) -> bool {
        matches!(
            self.phase,
            Phase::HostEntering { .. } | Phase::HostPause { .. } | Phase::Opening
        )
    }

    /// Returns true if the ranks have failed to initialise.
    pub(super) fn has_failed_init(&self) -> bool {
        let init = self.result.init.as_ref();
        init.is_some_and(|init| init.outcome == Outcome::InitFailed)
    }

    pub(super) fn size(&self) -> WorldSize {
        self.plan.size()
    }

    pub(super) fn rank_run(&mut self, rank: Rank) -> &mut RankRun {
        &mut self.result.ranks[rank.index()]
    }

    pub(super) fn act(&mut self, action: Action) {
        self.actions.push(action);
    }
}
