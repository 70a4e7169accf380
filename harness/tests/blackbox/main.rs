//! The harness seen from outside: the real binary, real processes, and everything that can go wrong with them.
//!
//! In: command lines, drivers with one fault each (`fixtures/drivers`, `drivers`), a platform with a fault (`faulty`).
//! Out: exit codes, results, reports, and that nothing is left behind. Trials that need torch are listed as ignored
//! where there is none; the others need `python3` only.

mod attach;
mod both_drivers;
mod budget;
mod ci_files;
mod claims;
mod disk;
mod doctor;
mod environments;
mod faults;
mod fleet;
mod history;
mod imports;
mod jobs;
mod launcher;
mod misbehaving_drivers;
mod nodes;
mod platforms;
mod programs;
mod prove;
mod repro;
mod reruns;
mod sets;
mod signals;
mod sources;
mod stage;
mod usage;
mod watch;

use allranks_runner::probe;
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::process::ExitCode;
use std::sync::Arc;

use budget::{Budget, Load};
use environments::Environment;
use libtest_mimic::{Arguments, Trial};
use stage::Stage;

/// A trial's name, whether it needs torch, and what it does.
struct Test {
    name: String,
    needs_torch: bool,
    /// Needs the libtorch driver beside the binary: `ci/test` builds it, `cargo build` alone does not.
    needs_libtorch: bool,
    /// The environment that it needs besides.
    environment: Option<Environment>,
    /// What else it needs and this machine lacks; none if it lacks nothing.
    lacks: Option<Lack>,
    /// Takes minutes: run with `--include-ignored`.
    is_slow: bool,
    /// How much of the machine it needs while it runs.
    load: Load,
    body: Box<dyn FnOnce() + Send>,
}

/// A trial that needs no more than Python.
fn plain(name: impl Into<String>, body: impl FnOnce() + Send + 'static) -> Test {
    Test {
        name: name.into(),
        needs_torch: false,
        needs_libtorch: false,
        environment: None,
        lacks: None,
        is_slow: false,
        load: Load::Waits,
        body: Box::new(body),
    }
}

/// A trial that needs torch.
fn with_torch(name: impl Into<String>, body: impl FnOnce() + Send + 'static) -> Test {
    Test {
        needs_torch: true,
        load: Load::Imports,
        ..plain(name, body)
    }
}

/// A trial that needs torch, in several processes that each import it or keep a core busy.
fn computing(name: impl Into<String>, body: impl FnOnce() + Send + 'static) -> Test {
    Test {
        load: Load::Computes,
        ..with_torch(name, body)
    }
}

/// A program or right that a trial needs and this machine lacks.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Lack {
    /// What it is.
    what: &'static str,
    /// Why it is not here.
    why: String,
}

/// A trial, which is ignored if this machine lacks what it needs.
fn unless_lacking(lacks: Option<Lack>, test: Test) -> Test {
    Test { lacks, ..test }
}

/// A trial that needs an environment of its own.
fn within(
    environment: Environment,
    name: impl Into<String>,
    body: impl FnOnce() + Send + 'static,
) -> Test {
    Test {
        environment: Some(environment),
        load: Load::Computes,
        ..plain(name, body)
    }
}

/// A trial that needs torch and minutes.
fn slow(name: impl Into<String>, body: impl FnOnce() + Send + 'static) -> Test {
    Test {
        is_slow: true,
        ..with_torch(name, body)
    }
}

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    let budget = Arc::new(Budget::of_machine());
    arguments.test_threads.get_or_insert(budget.all());
    let no_torch = why_no_torch();
    if let Some(reason) = &no_torch {
        tell("torch", reason);
    }
    let no_libtorch = probe::libtorch().err();
    if let Some(reason) = &no_libtorch {
        tell("the libtorch driver", reason);
    }
    let is_lacking = |one: &Environment| one.python().is_none();
    let lacking: Vec<Environment> = [Environment::Xla, Environment::Layouts]
        .into_iter()
        .filter(is_lacking)
        .collect();
    tell_of_environments(&lacking);
    let tests = [
        fleet::tests(),
        jobs::tests(),
        launcher::tests(),
        nodes::tests(),
        programs::tests(),
        prove::tests(),
        misbehaving_drivers::tests(),
        usage::tests(),
        signals::tests(),
        sources::tests(),
        both_drivers::tests(),
        claims::tests(),
        ci_files::tests(),
        disk::tests(),
        doctor::tests(),
        environments::tests(),
        faults::tests(),
        imports::tests(),
        history::tests(),
        platforms::tests(),
        repro::tests(),
        reruns::tests(),
        sets::tests(),
        watch::tests(),
        attach::tests(),
    ];
    let mut tests: Vec<Test> = tests.into_iter().flatten().collect();
    // What asks for most takes longest, and is not to be left for the end.
    tests.sort_by_key(|test| Reverse(test.load));
    let lacks: BTreeSet<&Lack> = tests
        .iter()
        .filter_map(|test| test.lacks.as_ref())
        .collect();
    for lack in lacks {
        tell(lack.what, &lack.why);
    }
    let trials = tests
        .into_iter()
        .map(|test| {
            let ignored = test.needs_torch && no_torch.is_some();
            let has_no_driver = test.needs_libtorch && no_libtorch.is_some();
            let (body, load, budget) = (test.body, test.load, Arc::clone(&budget));
            let trial = Trial::test(test.name, move || {
                let _part = budget.take(load);
                body();
                Ok(())
            });
            if test.is_slow {
                trial.with_kind("slow").with_ignored_flag(true)
            } else if let Some(lacks) = test.environment.filter(|one| lacking.contains(one)) {
                let kind = format!("no {}", lacks.name());
                trial.with_kind(kind).with_ignored_flag(true)
            } else if ignored {
                trial.with_kind("no torch").with_ignored_flag(true)
            } else if let Some(lack) = test.lacks {
                let kind = format!("no {}", lack.what);
                trial.with_kind(kind).with_ignored_flag(true)
            } else if has_no_driver {
                trial
                    .with_kind("no libtorch driver")
                    .with_ignored_flag(true)
            } else {
                trial
            }
        })
        .collect();
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// What `allranks plan` says if there is nothing to run on.
fn why_no_torch() -> Option<String> {
    let stage = Stage::new("plan");
    let ran = stage.run(&["plan", "--profile", "smoke", "--platform", "cpu"]);
    (ran.code != 0).then_some(ran.stderr)
}

#[expect(
    clippy::print_stderr,
    reason = "this is a program; its output is the test runner's"
)]
fn tell(what: &str, reason: &str) {
    eprintln!("trials that need {what} are not run: {}", reason.trim());
}

#[expect(
    clippy::print_stderr,
    reason = "this is a program; its output is the test runner's"
)]
fn tell_of_environments(lacking: &[Environment]) {
    for name in lacking.iter().map(|one| one.name()) {
        eprintln!("a trial is not run: `ci/setup --with {name}` makes the environment it needs");
    }
}
