//! The scenario that a step's checks belong to.

use std::sync::Arc;

use crate::case::Case;
use crate::platform::{Backend, Platform};
use allranks_model::group::Group;
use allranks_model::names::{RequirementId, ScenarioId};

/// The scenario that a step is expanded in.
pub struct ScenarioContext<'a> {
    pub case: &'a Case,
    pub scenario: &'a ScenarioId,
    pub backend: &'a Backend,
    pub platform: &'a Platform,
    pub groups: &'a [Arc<Group>],
}

impl ScenarioContext<'_> {
    /// Returns the requirements of the case, and these.
    pub(super) fn covers(&self, more: &[RequirementId]) -> Arc<[RequirementId]> {
        self.case.covers.iter().chain(more).cloned().collect()
    }

    /// Returns the place of a line of the case: `FILE:LINE`.
    pub(super) fn at(&self, line: usize) -> Arc<str> {
        format!("{}:{line}", self.case.source.display()).into()
    }
}
