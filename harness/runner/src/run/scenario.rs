//! Runs one scenario: a first world, and another one each time a world is lost, until every check has its result.

use std::time::Instant;

use super::Shared;
use super::launch::world;
use super::logs::{cut, log_folder};
use super::program;
use super::recording::{is_expected, torch_of};
use super::scenario_run::{ScenarioRun, give_up, open_checks};
use super::shrink::shrink;
use super::world::WorldResult;
use crate::check_result::CheckResult;
use allranks_model::outcome::Outcome;
use allranks_suite::expectation::{FAILED_TWICE, NO_WORLD, Point};
use allranks_suite::plan::Scenario;

/// Runs the scenario. Never fails: every problem becomes a check result or an issue.
pub async fn run(shared: &Shared, scenario: &Scenario, round: u32) -> ScenarioRun {
    let mut run = ScenarioRun::new(scenario, round);
    if let Some(program) = &scenario.case.program {
        return program::run(shared, scenario, program, run).await;
    }
    let mut initialised = false;
    loop {
        if *shared.interrupt.borrow() {
            give_up(&mut run, "the run was interrupted");
            break;
        }
        if run.lost == shared.worlds {
            let why = format!("gave up after {} worlds were lost", run.lost);
            give_up(&mut run, &why);
            break;
        }
        run.worlds += 1;
        let result = match world(shared, scenario, open_checks(&run), &run.logs).await {
            Ok(Some(result)) => result,
            Ok(None) => continue,
            Err(error) => {
                let finding = CheckResult::bare(Outcome::HarnessError, None, error.to_string());
                if initialised {
                    run.end = finding;
                } else {
                    run.init = finding;
                }
                give_up(&mut run, &error.to_string());
                break;
            }
        };
        run.issues.extend(cut(shared, &run.logs));
        let interrupted = *shared.interrupt.borrow();
        if result.lost.is_some() && !is_known_loss(shared, scenario, &result) {
            run.lost += 1;
        }
        let decided: Vec<usize> = result.checks.keys().copied().collect();
        absorb(&mut run, result, &mut initialised);
        let torch = torch_of(scenario, &run.ranks).to_owned();
        try_again(&mut run, &decided, |index, finding| {
            let point = Point::of(scenario, &torch, Some(&scenario.checks[index]));
            let class = finding.class.as_deref();
            (shared.expectations.find(&point)).is_some_and(|entry| {
                entry.wants_another_try(finding.outcome, class, &finding.summary)
            })
        });
        if run.init.outcome != Outcome::Pass {
            let why = match run.init.outcome {
                _ if interrupted => "the run was interrupted".to_owned(),
                Outcome::NotRun => run.init.summary.clone(),
                _ => NO_WORLD.to_owned(),
            };
            give_up(&mut run, &why);
            break;
        }
        if run.checks.iter().all(Option::is_some) && run.end.outcome != Outcome::NotRun {
            break;
        }
    }
    shrink_failures(shared, scenario, round, &mut run).await;
    run.ended = Instant::now();
    run
}

/// Handles the checks that the last world decided. A failure that an expectation describes as intermittent is put
/// aside, and its check is left to the next world. The second try decides: a failure that comes twice is not
/// intermittent.
fn try_again(
    run: &mut ScenarioRun,
    decided: &[usize],
    comes_and_goes: impl Fn(usize, &CheckResult) -> bool,
) {
    for &index in decided {
        let Some(finding) = run.checks[index].take() else {
            continue;
        };
        let first = run.first_failures.get(&index);
        run.checks[index] = match (first, comes_and_goes(index, &finding)) {
            (None, true) => {
                run.first_failures.insert(index, finding);
                None
            }
            (None, false) => Some(finding),
            (Some(first), _) => Some(second_try(first, finding)),
        };
    }
}

/// Returns the result of a check from its first failure and its second try.
fn second_try(first: &CheckResult, second: CheckResult) -> CheckResult {
    match second.outcome {
        Outcome::Pass => CheckResult {
            summary: format!("{}; the second time it passed", first.summary),
            ..first.clone()
        },
        // The second try has no result.
        Outcome::NotRun => first.clone(),
        Outcome::Mismatch
        | Outcome::Error
        | Outcome::Hang
        | Outcome::Crash
        | Outcome::InitFailed
        | Outcome::Unsupported
        | Outcome::HarnessError => CheckResult {
            summary: format!(
                "failed in two worlds, one after the other: {}",
                second.summary
            ),
            class: Some(FAILED_TWICE.to_owned()),
            ..second
        },
    }
}

/// Shrinks every random sequence that failed and that no expectation covers.
async fn shrink_failures(shared: &Shared, scenario: &Scenario, round: u32, run: &mut ScenarioRun) {
    let torch = torch_of(scenario, &run.ranks).to_owned();
    let logs = log_folder(scenario, round).join("shrinking");
    for (index, check) in scenario.checks.iter().enumerate() {
        let known = shared
            .expectations
            .find(&Point::of(scenario, &torch, Some(check)));
        if let Some(finding) = run.checks[index].take_if(|_| known.is_none()) {
            run.checks[index] = Some(shrink(shared, scenario, index, finding, &logs).await);
        }
    }
}

/// Returns true if the world was lost by a check whose failure an expectation covers.
fn is_known_loss(shared: &Shared, scenario: &Scenario, result: &WorldResult) -> bool {
    let last = result.checks.last_key_value();
    last.is_some_and(|(index, finding)| {
        is_expected(
            &shared.expectations,
            scenario,
            &result.ranks,
            Some(*index),
            finding.outcome,
        )
    })
}

/// Adds the results of one world. The first world decides `init`; a later one only if it fails to initialise, because
/// the remaining checks then have no world.
fn absorb(run: &mut ScenarioRun, result: WorldResult, initialised: &mut bool) {
    if let Some(init) = result.init
        && (!*initialised || init.outcome != Outcome::Pass)
    {
        *initialised = init.outcome == Outcome::Pass;
        run.init = init;
    }
    for (index, finding) in result.checks {
        run.checks[index] = Some(finding);
    }
    // A failed teardown of one world is kept, whatever the next world's result.
    if let Some(end) = result.end
        && matches!(run.end.outcome, Outcome::NotRun | Outcome::Pass)
    {
        run.end = end;
    }
    if let Some(lost) = result.lost {
        run.trouble = Some(lost);
    }
    run.ranks = result.ranks;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::world::fixture::planned;

    #[test]
    fn a_failure_that_comes_twice_is_none_that_comes_and_goes() {
        let first = CheckResult::bare(Outcome::Crash, Some("crash"), "SIGABRT");
        let second = |outcome| second_try(&first, CheckResult::bare(outcome, Some("c"), "again"));
        let passed = second(Outcome::Pass);
        assert_eq!(passed.outcome, Outcome::Crash);
        assert_eq!(passed.class.as_deref(), Some("crash"));
        assert_eq!(passed.summary, "SIGABRT; the second time it passed");
        for outcome in [Outcome::Crash, Outcome::Mismatch, Outcome::Hang] {
            let failed = second(outcome);
            assert_eq!(failed.outcome, outcome);
            assert_eq!(failed.class.as_deref(), Some(FAILED_TWICE));
            assert!(failed.summary.ends_with("again"), "{}", failed.summary);
        }
        assert_eq!(second(Outcome::NotRun), first);
    }

    #[test]
    fn what_a_second_try_came_to_stands_whatever_later_worlds_decide() {
        let scenario = planned(
            "{size: 2, deadline_s: 20}",
            "  - all_reduce: {numel: 3}\n  - barrier: {}\n",
        );
        let mut run = ScenarioRun::new(&scenario, 0);
        let crash = CheckResult::bare(Outcome::Crash, None, "SIGABRT");
        let mut world = |decided: &[(usize, &CheckResult)]| {
            for (index, finding) in decided {
                run.checks[*index] = Some((*finding).clone());
            }
            let decided: Vec<usize> = decided.iter().map(|(index, _)| *index).collect();
            try_again(&mut run, &decided, |index, finding| {
                index == 0 && finding.outcome == Outcome::Crash
            });
            run.checks[0]
                .as_ref()
                .map(|finding| finding.summary.clone())
        };
        let passed = CheckResult::passed(Vec::new());
        assert_eq!(world(&[(0, &crash)]), None);
        let settled = Some("SIGABRT; the second time it passed".to_owned());
        assert_eq!(world(&[(0, &passed)]), settled);
        assert_eq!(world(&[(1, &passed)]), settled);
    }
}
