//! Merging hides nothing; comparing finds what changed.

use std::path::Path;

use allranks_model::outcome::{Outcome, Verdict};
use allranks_model::status::Status;
use allranks_report::diff::{Diff, diff};
use allranks_report::merge::{MergeError, merge};
use allranks_report::{Results, Versions, column_names, markdown};

use crate::sample::{self, Shape};

const INTO: &str = "/runs/all";

/// The sample as shards by scenario, each in its folder.
fn shards(count: usize) -> Vec<Results> {
    let whole = sample::results(Shape::default());
    (0..count)
        .map(|shard| {
            let mut set = whole.clone();
            set.folder = format!("/runs/shard{shard}").into();
            set.sources = vec![set.folder.clone()];
            let mut index = 0;
            set.scenarios.retain(|_| {
                index += 1;
                index % count == shard
            });
            let kept = &set.scenarios;
            set.checks
                .retain(|check| kept.iter().any(|scenario| scenario.id == check.scenario));
            set.run.planned.scenarios = set.scenarios.len() as u64;
            set.run.planned.checks = set.checks.len() as u64;
            set.run.started += shard as u64;
            set
        })
        .collect()
}

#[test]
fn shards_make_the_whole() {
    let whole = sample::results(Shape::default());
    let merged = merge(shards(3), Path::new(INTO)).unwrap();
    let compared = diff(&whole, &merged);
    assert!(!compared.is_worse() && compared.incomplete.is_empty());
    assert_eq!(
        compared.same + compared.never_run,
        whole.checks.len() as u64
    );
    assert_eq!(merged.run.planned, whole.run.planned);
    assert_eq!(merged.run.name, "all");
    let (end, of_whole) = (merged.end.unwrap(), whole.end.unwrap());
    assert_eq!(end.verdicts, of_whole.verdicts);
    assert_eq!(end.outcomes, of_whole.outcomes);
    assert_eq!(end.duration_ms, of_whole.duration_ms + 2_000);
    assert_eq!(end.exit_code, 1);
    let log = &merged.scenarios[0].ranks[0].log;
    assert!(log.starts_with("../shard"), "{log}");
}

#[test]
fn the_same_set_twice_is_that_set() {
    let merged = merge([shards(1), shards(1)].concat(), Path::new(INTO)).unwrap();
    assert_eq!(merged.missing(), 0);
    assert_eq!(merged.checks.len() as u64, merged.run.planned.checks);
}

#[test]
fn rounds_of_a_repeated_run_stand_side_by_side() {
    let repeated = || {
        let mut run = sample::results(Shape::default());
        let mut again = run.scenarios[0].clone();
        again.start_ms += 1_000;
        run.scenarios.push(again);
        run.run.planned.scenarios += 1;
        run
    };
    let merged = merge(vec![repeated()], Path::new("all")).unwrap();
    assert_eq!(merged.scenarios.len(), repeated().scenarios.len());
    assert_eq!(merged.run.planned, repeated().run.planned);
    // The same set twice is that set.
    let twice = merge(vec![repeated(), repeated()], Path::new("all")).unwrap();
    assert_eq!(twice.scenarios, merged.scenarios);
    let mut other = repeated();
    other.scenarios.last_mut().unwrap().duration_ms += 1;
    assert!(merge(vec![repeated(), other], Path::new("all")).is_err());
}

#[test]
fn two_different_results_of_a_check_are_an_error() {
    let mut sets = [shards(1), shards(1)].concat();
    let check = &mut sets[1].checks[0];
    check.outcome = Outcome::Mismatch;
    check.verdict = Verdict::Regression;
    let id = check.id.clone();
    let error = merge(sets, Path::new(INTO)).unwrap_err();
    assert_eq!(
        error,
        MergeError::Check {
            id,
            folder: "/runs/shard0".into()
        }
    );
}

#[test]
fn not_run_gives_way_to_a_result_in_either_order() {
    for order in [[0, 1], [1, 0]] {
        let mut sets = [shards(1), shards(1)].concat();
        let check = &mut sets[0].checks[0];
        check.outcome = Outcome::NotRun;
        check.verdict = Verdict::NotRun;
        let id = check.id.clone();
        let sets = order.map(|index: usize| sets[index].clone()).to_vec();
        let merged = merge(sets, Path::new(INTO)).unwrap();
        let check = merged.checks.iter().find(|check| check.id == id).unwrap();
        assert_eq!(check.verdict, Verdict::Expected);
    }
}

/// The sample as a run with one version of torch.
fn with_torch(torch: &str, folder: &str) -> Results {
    let mut set = sample::results(Shape::default());
    set.folder = folder.into();
    set.sources = vec![set.folder.clone()];
    // One column may stand for several otherwise: the sample has two versions of its own.
    let checks = set.checks.iter_mut().map(|check| &mut check.column);
    let scenarios = set.scenarios.iter_mut().map(|one| &mut one.column);
    for column in checks.chain(scenarios) {
        torch.clone_into(&mut column.torch);
    }
    set
}

/// Two versions of a backend with the same torch: nothing that is recorded tells their results apart.
#[test]
fn labels_tell_results_apart() {
    let labelled = |labels: [&str; 2]| {
        let mut sets = ["/runs/old", "/runs/new"].map(|folder| with_torch("2.11.0", folder));
        let changed = &mut sets[1].checks[0];
        changed.outcome = Outcome::Pass;
        changed.verdict = Verdict::KnownFailure;
        for (set, label) in sets.iter_mut().zip(labels) {
            label.clone_into(&mut set.label);
        }
        let both = sets[0].checks.len();
        (merge(sets.to_vec(), Path::new(INTO)), both)
    };
    assert!(matches!(
        labelled(["", ""]).0,
        Err(MergeError::Check { .. })
    ));
    let (merged, both) = labelled(["0.3.13", "0.4.0"]);
    let merged = merged.unwrap();
    assert_eq!(merged.checks.len(), 2 * both);
    let names = column_names(&merged.columns());
    assert!(
        names
            .iter()
            .all(|name| name.contains("/0.3.13") || name.contains("/0.4.0"))
    );
    let different: std::collections::BTreeSet<_> = names.iter().collect();
    assert_eq!(different.len(), names.len(), "{names:?}");
    let scenarios = merged.scenarios_by_check();
    for check in &merged.checks {
        let scenario = scenarios.get(check).unwrap();
        assert_eq!(scenario.column.label, check.column.label);
    }
    // A merge of merges keeps them.
    let again = merge(vec![merged.clone()], Path::new(INTO)).unwrap();
    assert_eq!(again.columns(), merged.columns());
}

#[test]
fn versions_of_torch_stand_side_by_side() {
    let mut sets = vec![
        with_torch("2.9.1+cu128", "/runs/old"),
        with_torch("2.11.0", "/runs/new"),
    ];
    let both = sets[0].checks.len() as u64;
    let changed = sets[1]
        .checks
        .iter_mut()
        .find(|check| check.status().is_failing())
        .unwrap();
    changed.outcome = Outcome::Pass;
    changed.verdict = Verdict::Expected;
    let changed = changed.clone();
    let merged = merge(sets, Path::new(INTO)).unwrap();
    assert_eq!(merged.checks.len() as u64, 2 * both);
    assert_eq!(merged.run.planned.checks, 2 * both);
    // Not in the order of letters.
    assert_eq!(merged.torch_versions(), ["2.9.1+cu128", "2.11.0"]);
    let columns = merged.columns();
    assert!(columns.iter().any(|column| column.torch == "2.11.0"));
    let scenarios = merged.scenarios_by_check();
    for check in &merged.checks {
        let scenario = scenarios.get(check).unwrap();
        assert_eq!(
            (&scenario.id, &scenario.column.torch),
            (&check.scenario, &check.column.torch)
        );
    }
    let versions = Versions::of(&merged).unwrap();
    assert_eq!(versions.alike, both - 1);
    let [row] = &*versions.rows else {
        panic!("{:?}", versions.rows)
    };
    assert!(row.what.starts_with(changed.case.as_str()));
    assert_eq!(row.checks, 1);
    assert!(row.cells[0].unwrap().is_failing() && row.cells[1] == Some(Status::Passed));
    let page = markdown::render(&merged);
    assert!(page.contains("### By version of torch"), "{page}");
    assert!(Versions::of(&with_torch("2.11.0", "/runs/new")).is_none());
}

#[test]
fn what_ran_with_one_version_only_is_not_compared() {
    let mut elsewhere = with_torch("2.12.0", "/runs/elsewhere");
    for check in &mut elsewhere.checks {
        check.id = format!("elsewhere/{}", check.id).as_str().into();
        check.column.platform = "elsewhere".to_owned();
    }
    elsewhere.scenarios.clear();
    let sets = vec![
        with_torch("2.9.1", "/runs/old"),
        with_torch("2.11.0", "/runs/new"),
        elsewhere,
    ];
    let both = sets[0].checks.len() as u64;
    let versions = Versions::of(&merge(sets, Path::new(INTO)).unwrap()).unwrap();
    assert_eq!(versions.torch, ["2.9.1", "2.11.0"]);
    assert_eq!((versions.alike, versions.rows.len()), (both, 0));
}

#[test]
fn what_one_version_did_not_run_is_not_covered_by_another() {
    let mut sets = vec![
        with_torch("2.9.1", "/runs/old"),
        with_torch("2.11.0", "/runs/new"),
    ];
    let check = &mut sets[0].checks[0];
    check.outcome = Outcome::NotRun;
    check.verdict = Verdict::NotRun;
    check.column.torch.clear();
    let id = check.id.clone();
    let merged = merge(sets, Path::new(INTO)).unwrap();
    let verdicts: Vec<_> = merged
        .checks
        .iter()
        .filter(|check| check.id == id)
        .map(|check| {
            (
                check.column.torch.as_str(),
                check.verdict == Verdict::NotRun,
            )
        })
        .collect();
    assert_eq!(verdicts, [("2.11.0", false), ("2.9.1", true)]);
}

#[test]
fn runs_with_other_inputs_or_no_end_are_not_passed_off_as_one() {
    let mut sets = shards(2);
    sets[1].run.seed += 1;
    let error = merge(sets, Path::new(INTO)).unwrap_err().to_string();
    assert_eq!(error, "/runs/shard1 has seed 8, /runs/shard0 has 7");
    let mut sets = shards(2);
    sets[1].end = None;
    assert_eq!(merge(sets, Path::new(INTO)).unwrap().end, None);
    let none = Vec::<Results>::new();
    assert_eq!(merge(none, Path::new(INTO)), Err(MergeError::Empty));
}

#[test]
fn a_comparison_names_what_broke_what_was_fixed_and_what_is_gone() {
    let old = sample::results(Shape::default());
    let mut new = old.clone();
    let gone = new.checks.remove(0).id;
    new.checks[0].outcome = Outcome::Hang;
    new.checks[0].verdict = Verdict::Regression;
    let mut rest = new.checks.iter_mut().skip(1);
    let fixed = rest.find(|check| check.status().is_failing()).unwrap();
    fixed.outcome = Outcome::Pass;
    fixed.verdict = Verdict::Expected;
    let fixed = fixed.id.clone();
    new.checks.push(sample::passing_check(999));
    let diff = diff(&old, &new);
    assert_eq!(diff.broken[0].id, new.checks[0].id);
    assert_eq!(diff.fixed[0].id, fixed);
    assert_eq!(diff.gone[0].0, gone);
    assert_eq!(diff.added.len(), 1);
    assert!(diff.changed.is_empty() && !diff.is_good());
    let mut text = Vec::new();
    diff.write(&mut text).unwrap();
    let text = String::from_utf8(text).unwrap();
    assert!(
        text.contains("pass (expected) → hang (regression)"),
        "{text}"
    );
    assert!(
        text.ends_with(
            "1 broken, 0 not run any more, 0 skipped, 0 excused, 0 changed, 1 fixed, 0 ran again, 1 gone, 1 added, \
             1,887 checks as before, 54 run in neither\n"
        ),
        "{text}"
    );
}

/// The change of one check between two otherwise equal, whole runs in which every check passes.
fn changed(old: (Outcome, Verdict), new: (Outcome, Verdict)) -> Diff {
    let side = |(outcome, verdict)| {
        let mut run = passing_run();
        run.checks[0].outcome = outcome;
        run.checks[0].verdict = verdict;
        run
    };
    diff(&side(old), &side(new))
}

fn passing_run() -> Results {
    let mut run = sample::results(Shape::default());
    for check in &mut run.checks {
        check.outcome = Outcome::Pass;
        check.verdict = Verdict::Expected;
    }
    if let Some(end) = &mut run.end {
        end.exit_code = 0;
        end.issues.clear();
    }
    run
}

const FAILURES: [(Outcome, Verdict); 4] = [
    (Outcome::Hang, Verdict::Regression),
    (Outcome::Mismatch, Verdict::KnownFailure),
    (Outcome::Error, Verdict::Waived),
    (Outcome::HarnessError, Verdict::Regression),
];

#[test]
fn what_was_not_run_is_never_better_and_never_as_it_was() {
    let not_run = (Outcome::NotRun, Verdict::NotRun);
    let pass = (Outcome::Pass, Verdict::Expected);
    for before in FAILURES.into_iter().chain([pass]) {
        let lost = changed(before, not_run);
        assert_eq!((lost.not_run.len(), lost.fixed.len()), (1, 0));
        assert!(!lost.is_good() && !lost.is_worse() && !lost.is_complete());
        let mut text = Vec::new();
        lost.write(&mut text).unwrap();
        assert!(String::from_utf8(text).unwrap().starts_with("   not run  "));
    }
    let again = changed(not_run, pass);
    assert_eq!((again.ran.len(), again.fixed.len()), (1, 0));
    assert!(again.is_good());
    let never = changed(not_run, not_run);
    assert_eq!(never.never_run, 1);
    assert!(!never.is_good());
    assert_eq!(changed(not_run, FAILURES[0]).broken.len(), 1);
}

#[test]
fn a_skip_or_an_excuse_is_no_repair() {
    let refused = (Outcome::Unsupported, Verdict::Expected);
    for before in FAILURES {
        let skipped = changed(before, refused);
        assert_eq!((skipped.skipped.len(), skipped.fixed.len()), (1, 0));
        assert_eq!(
            changed(before, (Outcome::Pass, Verdict::Expected))
                .fixed
                .len(),
            1
        );
    }
    for excuse in [Verdict::KnownFailure, Verdict::Waived] {
        let excused = changed(FAILURES[0], (Outcome::Hang, excuse));
        assert_eq!((excused.excused.len(), excused.fixed.len()), (1, 0));
    }
}

#[test]
fn a_run_that_is_not_whole_compares_well_with_nothing() {
    let whole = passing_run();
    assert!(diff(&whole, &whole).is_good());
    let mut cut_off = whole.clone();
    cut_off.end = None;
    let mut short = whole.clone();
    short.run.planned.checks += 3;
    let mut interrupted = whole.clone();
    let end = interrupted.end.as_mut().unwrap();
    end.exit_code = 4;
    end.issues.push("interrupted".to_owned());
    for (partial, why) in [
        (cut_off, "no end record"),
        (short, "3 planned checks left no record"),
        (interrupted, "exit code 4: interrupted"),
    ] {
        let as_new = diff(&whole, &partial);
        assert!(!as_new.is_good() && as_new.incomplete[0].contains(why));
        assert!(as_new.incomplete[0].starts_with("new run: "));
        let as_old = diff(&partial, &whole);
        assert!(!as_old.is_good() && as_old.incomplete[0].starts_with("old run: "));
    }
}

#[test]
fn results_of_one_check_with_several_versions_are_compared_each_with_its_own() {
    let both = |broken: Option<&str>| {
        let mut sets = ["2.9.1", "2.11.0"].map(|torch| {
            let mut set = passing_run();
            let checks = set.checks.iter_mut().map(|check| &mut check.column);
            let scenarios = set.scenarios.iter_mut().map(|one| &mut one.column);
            for column in checks.chain(scenarios) {
                torch.clone_into(&mut column.torch);
            }
            set
        });
        for set in &mut sets {
            if Some(set.checks[0].column.torch.as_str()) == broken {
                set.checks[0].outcome = Outcome::Hang;
                set.checks[0].verdict = Verdict::Regression;
            }
        }
        merge(sets.to_vec(), Path::new(INTO)).unwrap()
    };
    for torch in ["2.9.1", "2.11.0"] {
        assert_eq!(diff(&both(None), &both(Some(torch))).broken.len(), 1);
    }
}

#[test]
fn drivers_stand_side_by_side() {
    let with_driver = |driver: &str| {
        let mut set = with_torch("2.11.0", &format!("/runs/{driver}"));
        let checks = set.checks.iter_mut().map(|check| &mut check.column);
        let scenarios = set.scenarios.iter_mut().map(|one| &mut one.column);
        for column in checks.chain(scenarios) {
            driver.clone_into(&mut column.driver);
        }
        set
    };
    let mut sets = vec![with_driver("python"), with_driver("libtorch")];
    let both = sets[0].checks.len();
    let changed = &mut sets[1].checks[0];
    changed.outcome = Outcome::NotRun;
    changed.verdict = Verdict::NotRun;
    let merged = merge(sets, Path::new(INTO)).unwrap();
    assert_eq!(merged.checks.len(), 2 * both);
    let columns = merged.columns();
    let of = |driver: &str| columns.iter().filter(|one| one.driver == driver).count();
    assert_eq!(of("python"), of("libtorch"));
    let scenarios = merged.scenarios_by_check();
    for check in &merged.checks {
        let scenario = scenarios.get(check).unwrap();
        assert_eq!(scenario.column.driver, check.column.driver);
    }
    assert!(Versions::of(&merged).is_none(), "there is one version");
}
