//! Plans the runs of a claim again, without the machine that they ran on.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::product::Claim;
use crate::suite::Suite;
use allranks_model::evidence::Evidence;
use allranks_model::names::{CheckId, ScenarioId};
use allranks_suite::plan::{Check, Scenario, Selection, Target, plan};

/// The scenarios that a claim's runs must have.
#[derive(Debug)]
pub struct Replan {
    /// The scenarios that fit the devices.
    pub scenarios: Vec<Scenario>,
    /// The scenarios that do not fit, or need something that the machine lacked.
    pub left_out: Vec<Scenario>,
}

/// The machine of the runs, as they recorded it.
#[derive(Clone, Copy, Debug)]
pub struct Machine<'a> {
    /// Torch's version; empty if it is not known.
    pub torch: &'a str,
    /// Number of devices. `None`: worlds of any size fit.
    pub devices: Option<u32>,
    /// True if the device says that it is simulated.
    pub is_simulated: bool,
    /// Scenarios that it could not run, each with the reason.
    pub too_large: &'a BTreeMap<ScenarioId, String>,
}

impl Replan {
    /// Plans the profile of a claim on its backend.
    ///
    /// # Errors
    /// The suite has no such platform, backend or profile. The text says which.
    pub fn new(suite: &Suite, claim: &Claim, machine: Machine<'_>) -> Result<Self, String> {
        let platforms = &suite.platforms;
        let platform = platforms
            .iter()
            .find(|platform| platform.name == claim.platform)
            .ok_or_else(|| format!("there is no platform `{}`", claim.platform))?;
        if !platform.backends.contains_key(&claim.backend) {
            return Err(format!(
                "platform `{}` has no backend `{}`",
                claim.platform, claim.backend
            ));
        }
        let profile = suite
            .profile(&claim.profile)
            .ok_or_else(|| format!("there is no profile `{}`", claim.profile))?;
        let torch = Some(machine.torch).filter(|torch| !torch.is_empty());
        let mut platform = platform.with_torch(torch);
        if machine.is_simulated {
            platform.evidence = Evidence::Simulated;
        }
        let selection = Selection {
            profile: Some(profile.clone()),
            is_elsewhere: true,
            ..Selection::default()
        };
        let target = Target {
            platform: Arc::new(platform),
            backend: claim.backend.clone(),
            devices: None,
        };
        let all = plan(&suite.cases, &[target], &selection).scenarios;
        let fits = |scenario: &Scenario| {
            let needed = scenario.platform.devices_for(scenario.world_size);
            let lacks_nothing = scenario.case.world.needs.is_empty()
                || !machine.too_large.contains_key(&scenario.id);
            lacks_nothing && machine.devices.is_none_or(|devices| needed <= devices)
        };
        let (scenarios, left_out) = all.into_iter().partition(fits);
        Ok(Self {
            scenarios,
            left_out,
        })
    }

    /// Returns every check of the scenarios that fit, by id, including `#init` and `#end` of each scenario.
    pub fn checks(&self) -> BTreeMap<CheckId, Planned<'_>> {
        let mut all = BTreeMap::new();
        for scenario in &self.scenarios {
            for (frame, id) in scenario.frame_checks().into_iter().enumerate() {
                let planned = Planned {
                    scenario,
                    check: None,
                    frame,
                };
                all.insert(id, planned);
            }
            for check in &scenario.checks {
                let planned = Planned {
                    scenario,
                    check: Some(check),
                    frame: 0,
                };
                all.insert(check.id.clone(), planned);
            }
        }
        all
    }
}

/// A check that a run must have.
#[derive(Clone, Copy, Debug)]
pub struct Planned<'a> {
    /// The scenario of the check.
    pub scenario: &'a Scenario,
    /// The check; `None` for `#init` and `#end`.
    pub check: Option<&'a Check>,
    /// 0 for `#init`, 1 for `#end`.
    pub frame: usize,
}
