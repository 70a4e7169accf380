//! The harness seen from outside: the real binary, real processes, and everything that can go wrong with them.
//!
//! In: command lines, drivers with one vice each (`fixtures/drivers`, `drivers`), a platform with a fault (`faulty`).
//! Out: exit codes, results, reports, and that nothing is left behind. Trials that need torch are listed as ignored
//! where there is none; the others need `python3` only.

mod attach;
mod both_drivers;
mod claims;
mod ci_files;
mod disk;
mod doctor;
mod environments;
mod faults;
mod history;
mod imports;
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
mod stage;
mod usage;
mod watch;

use allranks_runner::probe;
use std::process::{Command, ExitCode};

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
    /// Needs network namespaces, which stand for hosts.
    needs_hosts: bool,
    /// Takes minutes: run with `--include-ignored`.
    is_slow: bool,
    body: Box<dyn FnOnce() + Send>,
}

/// A trial that needs no more than Python.
fn plain(name: impl Into<String>, body: impl FnOnce() + Send + 'static) -> Test {
    Test {
        name: name.into(),
        needs_torch: false,
        needs_libtorch: false,
        environment: None,
        needs_hosts: false,
        is_slow: false,
        body: Box::new(body),
    }
}

/// A trial that needs torch.
fn with_torch(name: impl Into<String>, body: impl FnOnce() + Send + 'static) -> Test {
    Test {
        needs_torch: true,
        ..plain(name, body)
    }
}

/// A trial that needs two network namespaces as hosts.
fn on_two_hosts(name: impl Into<String>, body: impl FnOnce() + Send + 'static) -> Test {
    Test {
        needs_hosts: true,
        ..plain(name, body)
    }
}

/// A trial that needs an environment of its own.
fn within(
    environment: Environment,
    name: impl Into<String>,
    body: impl FnOnce() + Send + 'static,
) -> Test {
    Test {
        environment: Some(environment),
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
    let arguments = Arguments::from_args();
    let no_torch = why_no_torch();
    if let Some(reason) = &no_torch {
        tell("torch", reason);
    }
    let no_libtorch = probe::libtorch().err();
    if let Some(reason) = &no_libtorch {
        tell("the libtorch driver", reason);
    }
    let no_hosts = why_no_hosts();
    if let Some(reason) = &no_hosts {
        tell("network namespaces", reason);
    }
    let is_lacking = |one: &Environment| one.python().is_none();
    let lacking: Vec<Environment> = [Environment::Xla, Environment::Layouts]
        .into_iter()
        .filter(is_lacking)
        .collect();
    tell_of_environments(&lacking);
    let tests = [
        launcher::tests(),
        nodes::tests(),
        programs::tests(),
        prove::tests(),
        misbehaving_drivers::tests(),
        usage::tests(),
        signals::tests(),
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
    let trials = tests
        .into_iter()
        .flatten()
        .map(|test| {
            let ignored = test.needs_torch && no_torch.is_some();
            let has_no_hosts = test.needs_hosts && no_hosts.is_some();
            let has_no_driver = test.needs_libtorch && no_libtorch.is_some();
            let body = test.body;
            let trial = Trial::test(test.name, move || {
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
            } else if has_no_hosts {
                trial
                    .with_kind("no network namespaces")
                    .with_ignored_flag(true)
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

/// Why there can be no hosts besides this one; none if there can be.
fn why_no_hosts() -> Option<String> {
    let link = "ip link add one type veth peer name two";
    let tried = Command::new("unshare")
        .args(["--user", "--map-root-user", "--net", "sh", "-c", link])
        .output();
    match tried {
        Ok(ran) if ran.status.success() => None,
        Ok(ran) => Some(String::from_utf8_lossy(&ran.stderr).trim().to_owned()),
        Err(error) => Some(format!("unshare: {error}")),
    }
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
