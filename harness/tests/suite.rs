//! The suite itself, as it stands in the checkout: every file is valid, ids are unique and safe in a shell, every
//! MUST has a case, no expectation is stale. Needs no torch.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use allranks_model::capability::Declared;
use allranks_model::names::RequirementId;
use allranks_model::outcome::Outcome;
use allranks_oracle::{vacuous, vacuous_stack};
use allranks_suite::case;
use allranks_suite::case::{Level, Profile, StepSpec};
use allranks_suite::expectation::{Expectations, Point};
use allranks_suite::plan::{Filter, Plan, ProgramCheck, Scenario, Selection, Share, Target, plan};
use allranks_suite::platform;

fn checkout(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

fn library() -> case::Library {
    case::load(&[checkout("cases")]).unwrap_or_else(|problems| {
        let texts: Vec<String> = problems.iter().map(ToString::to_string).collect();
        panic!("{}", texts.join("\n\n"))
    })
}

/// Everything the suite has for Gloo on the CPU.
fn whole(selection: &Selection) -> Plan {
    let platforms = platform::load(&[checkout("fixtures/platforms/cpu.yaml")]).unwrap();
    let targets: Vec<Target> = platforms
        .into_iter()
        .map(Arc::new)
        .flat_map(|platform| {
            let backends: Vec<String> = platform.backends.keys().cloned().collect();
            backends.into_iter().map(move |backend| Target {
                platform: Arc::clone(&platform),
                backend,
                devices: None,
            })
        })
        .collect();
    plan(&library().cases, &targets, selection)
}

#[test]
fn check_ids_are_unique_and_safe_in_a_shell() {
    let plan = whole(&Selection::default());
    let mut seen = BTreeSet::new();
    for scenario in &plan.scenarios {
        let checks = scenario.checks.iter().map(|check| check.id.clone());
        for id in checks.chain(scenario.frame_checks()) {
            let safe = |c: char| c.is_ascii_alphanumeric() || "_./@#-".contains(c);
            assert!(id.as_str().chars().all(safe), "{id}");
            assert!(seen.insert(id.clone()), "{id} is planned twice");
        }
    }
    assert!(seen.len() > 5000, "only {} checks", seen.len());
}

/// A case for every MUST, and a check of it on Gloo unless the requirement says why Gloo cannot have one.
#[test]
fn every_must_has_a_case() {
    let library = library();
    let plan = whole(&Selection::default());
    let checked: BTreeSet<&RequirementId> = plan
        .scenarios
        .iter()
        .flat_map(|scenario| &scenario.checks)
        .flat_map(|check| check.covers.iter())
        .collect();
    let covered: BTreeSet<&RequirementId> = library
        .cases
        .iter()
        .flat_map(|case| {
            let steps = case.steps.iter().flat_map(|step| step.covers());
            case.covers.iter().chain(steps)
        })
        .collect();
    let of_programs: BTreeSet<RequirementId> = library
        .cases
        .iter()
        .flat_map(|case| ProgramCheck::of_case(case).map(|program_check| program_check.covers()))
        .collect();
    // Covered by the two checks that every scenario has.
    let framed = |id: &RequirementId| ["DOWN-001"].contains(&id.as_str());
    let musts = || {
        library
            .requirements
            .iter()
            .filter(|requirement| requirement.level == Level::Must)
            .filter(|requirement| !framed(&requirement.id))
    };
    let uncovered: Vec<&str> = musts()
        .filter(|requirement| !covered.contains(&requirement.id))
        .filter(|requirement| !of_programs.contains(&requirement.id))
        .map(|requirement| requirement.id.as_str())
        .collect();
    assert_eq!(uncovered, [""; 0], "no case covers these");
    let unchecked: Vec<&str> = musts()
        .filter(|requirement| {
            checked.contains(&requirement.id) == requirement.not_on.contains_key("gloo")
        })
        .map(|requirement| requirement.id.as_str())
        .collect();
    assert_eq!(
        unchecked, [""; 0],
        "these have no check on Gloo and no reason in `not_on`, or both"
    );
}

#[test]
fn what_is_kept_for_full_is_in_full_only() {
    let profiles = case::load_profiles(&checkout("cases/profiles")).unwrap();
    let count = |name: &str| {
        let profile = profiles.iter().find(|profile| profile.name == name);
        let plan = whole(&Selection {
            profile: Some(profile.unwrap().clone()),
            ..Selection::default()
        });
        let kept = |scenario: &&Scenario| scenario.case.profile.is_some();
        let of_cases: usize = plan.scenarios.iter().filter(kept).count();
        let of_steps: usize = plan
            .scenarios
            .iter()
            .flat_map(|scenario| scenario.checks.iter().map(move |check| (scenario, check)))
            .filter(|(scenario, check)| {
                let line = |step: &&StepSpec| check.at.ends_with(&format!(":{}", step.line()));
                let mut step = scenario.case.steps.iter();
                step.find(line).is_some_and(|step| step.profile().is_some())
            })
            .count();
        of_cases + of_steps
    };
    assert_eq!(count("core"), 0);
    assert!(count("full") > 0);
}

#[test]
fn every_case_is_in_a_profile_and_every_profile_selects_something() {
    let library = library();
    let profiles = case::load_profiles(&checkout("cases/profiles")).unwrap();
    for profile in &profiles {
        let selected = library.cases.iter().filter(|case| profile.includes(case));
        assert!(selected.count() > 0, "profile {} is empty", profile.name);
        for pattern in profile.sizes_of.keys() {
            let of_pattern = Profile {
                include: vec![pattern.clone()],
                ..profile.clone()
            };
            let mut cases = library.cases.iter();
            let limited = cases.any(|case| of_pattern.includes(case));
            assert!(limited, "profile {}: no case is {pattern}", profile.name);
        }
    }
    for case in &library.cases {
        let full = profiles
            .iter()
            .find(|profile| profile.name == "full")
            .unwrap();
        assert!(full.includes(case), "{} is in no profile", case.id);
    }
}

#[test]
fn no_expectation_is_stale() {
    let plan = whole(&Selection::default());
    let expectations = Expectations::load(&[checkout("fixtures/expectations")]).unwrap();
    let scenarios = plan.scenarios.iter();
    let points = scenarios.flat_map(|scenario| Point::all_of(scenario, "2.11.0"));
    let stale: Vec<&str> = expectations
        .stale(points)
        .into_iter()
        .map(|entry| entry.at.as_str())
        .collect();
    assert_eq!(stale, [""; 0]);
}

/// In place of each known failure a worse one of the same outcome: other values, an error of another kind that leaves tensors
/// changed, another signal. A world that hangs has nothing worse, and a failure that must not come twice may be written
/// down with less.
#[test]
fn no_expectation_of_the_host_hides_a_worse_failure() {
    let files = ["gloo.yaml", "torch.yaml"];
    let files = files.map(|file| checkout("fixtures/expectations").join(file));
    let expectations = Expectations::load(&files).unwrap();
    let worse = [
        (Outcome::Mismatch, "unclassified", "the values are wrong"),
        (
            Outcome::Mismatch,
            "refused-and-written",
            "the call was refused",
        ),
        (Outcome::Mismatch, "raised", "raised MemoryError: no"),
        (Outcome::Error, "raised-on-every-rank", "MemoryError: no"),
        (Outcome::Error, "raised-on-some-ranks", "MemoryError: no"),
        (Outcome::Error, "raised-and-written", "raised in all_reduce"),
        (
            Outcome::Crash,
            "crash",
            "its process ended: signal 4 (SIGILL)",
        ),
        (Outcome::InitFailed, "init-failed", "rank 0 has not come"),
    ];
    let mut hidden = Vec::new();
    for entry in expectations.iter().filter(|entry| !entry.intermittent) {
        for (outcome, class, summary) in worse {
            if entry.describes(outcome, Some(class), summary) {
                hidden.push(format!("{}: {outcome} {class}: {summary}", entry.at));
            }
        }
    }
    assert_eq!(hidden, [""; 0]);
}

#[test]
fn both_what_is_declared_and_what_must_be_refused_are_planned_on_gloo() {
    let plan = whole(&Selection::default());
    let checks = || plan.scenarios.iter().flat_map(|scenario| &scenario.checks);
    let supported = checks().filter(|check| check.declared == Declared::Supported);
    assert!(supported.count() > 5000);
    let refused = checks().filter(|check| check.declared != Declared::Supported);
    assert!(refused.count() > 1000);
}

#[test]
fn no_check_of_a_small_world_is_vacuous_whatever_the_seed() {
    let selection = Selection {
        world_sizes: vec![2, 3],
        ..Selection::default()
    };
    let plan = whole(&selection);
    for seed in [1, 7] {
        for scenario in &plan.scenarios {
            for check in &scenario.checks {
                for op in check.ops() {
                    let why = vacuous(op, scenario.world_size, seed);
                    assert_eq!(why, None, "{}", check.id);
                }
                if let Some(stack) = check.stack() {
                    let why = vacuous_stack(stack, scenario.world_size, seed);
                    assert_eq!(why, None, "{}", check.id);
                }
            }
        }
    }
}

#[test]
fn shards_divide_the_plan_and_a_filter_narrows_it() {
    let whole_plan = whole(&Selection::default());
    let mut divided = BTreeSet::new();
    for shard in ["1/3", "2/3", "3/3"] {
        let part = whole(&Selection {
            shard: Some(Share::by_id(shard.parse().unwrap())),
            ..Selection::default()
        });
        for scenario in part.scenarios {
            assert!(
                divided.insert(scenario.id.clone()),
                "{} is in two shards",
                scenario.id
            );
        }
    }
    assert_eq!(divided.len(), whole_plan.scenarios.len());

    let id = "collectives/broadcast@cpu.gloo.ws4#0.broadcast.float32.33.root-0";
    let one = whole(&Selection {
        filters: vec![id.parse::<Filter>().unwrap()],
        ..Selection::default()
    });
    let ids: Vec<&str> = one
        .scenarios
        .iter()
        .flat_map(|scenario| &scenario.checks)
        .map(|check| check.id.as_str())
        .collect();
    assert_eq!(ids, [id]);
}
