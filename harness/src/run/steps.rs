//! What the ranks of a scenario are sent when nothing goes wrong, known before anything runs.

use super::probe::probe_after;
use super::setup::{MeetingPoint, closing, device, opening};
use crate::oracle::{Prepared, Unpreparable};
use crate::plan::Scenario;
use crate::protocol::Step;

/// The steps of each rank, in order: the opening, one for each check and a probe after each that must be refused, the
/// closing. The ranks would meet at port 0 and the empty path; a device carries no index.
///
/// # Errors
/// A check has no expected value, or contradicts itself or the world.
pub fn steps(scenario: &Scenario, seed: u64) -> Result<Vec<Vec<Step>>, Unpreparable> {
    let size = scenario.world_size;
    let nowhere = MeetingPoint {
        port: 0,
        file: String::new(),
    };
    let mut ranks: Vec<Vec<Step>> = size
        .ranks()
        .map(|rank| {
            vec![opening(
                scenario,
                &nowhere,
                device(scenario, &[], rank),
                rank,
            )]
        })
        .collect();
    for check in &scenario.checks {
        for check in std::iter::once(check).chain(&probe_after(check)) {
            let prepared = Prepared::new(check, size, seed)?;
            for (steps, step) in ranks.iter_mut().zip(prepared.steps()) {
                steps.push(step.step.clone());
            }
        }
    }
    for steps in &mut ranks {
        steps.push(closing());
        for (number, step) in (0..).zip(steps) {
            step.step = number;
        }
    }
    Ok(ranks)
}
