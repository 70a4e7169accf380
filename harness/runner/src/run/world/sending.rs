//! Sends steps: numbers them, builds a frame for each rank, and records what must be answered.

use super::event::Action;
use super::state::WorldState;
use super::step_frame::StepFrame;
use crate::run::pending::Pending;
use crate::run::pending::Purpose;
use allranks_oracle::RankStep;
use allranks_protocol::Call;
use allranks_protocol::ToRank;

/// Bytes of a rank's storages above which a comparison takes long.
const LARGE: usize = 1 << 20;

impl WorldState<'_> {
    /// Returns true if an event may take long, because a step under way has large storages.
    pub fn holds_much(&self) -> bool {
        self.pending.iter().any(|pending| pending.bytes > LARGE)
    }

    /// Sends a step to every rank.
    pub(super) fn send(&mut self, label: String, purpose: Purpose, steps: Vec<RankStep>) {
        let frames = self.prepare(label, purpose, steps);
        self.send_frames(frames);
    }

    pub(super) fn send_frames(&mut self, frames: Vec<StepFrame>) {
        for (rank, step, payload) in frames {
            self.act(Action::Send(rank, ToRank::Step(step), payload));
        }
    }

    /// Records a step as pending. Returns what must be sent to each rank.
    pub(super) fn prepare(
        &mut self,
        label: String,
        purpose: Purpose,
        steps: Vec<RankStep>,
    ) -> Vec<StepFrame> {
        let number = self.steps;
        self.steps += 1;
        let mut bytes = 0;
        let (mut calls, mut storages) = (Vec::new(), Vec::new());
        let mut frames = Vec::new();
        for (rank, RankStep { mut step, payload }) in self.size().ranks().zip(steps) {
            bytes = bytes.max(payload.len());
            step.step = number;
            calls.push(step.calls.iter().map(Call::name).collect());
            storages.push(step.storages.clone());
            frames.push((rank, step, payload));
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
        frames
    }

    /// Removes and returns the first pending step if every rank has answered it; otherwise none.
    pub(super) fn next_answered(&mut self) -> Option<Pending> {
        let is_answered = self.pending.front()?.is_answered();
        is_answered.then(|| self.pending.pop_front())?
    }
}
