//! Writes reproducers: one check as a single Python file for a vendor's issue tracker. It runs under plain `torchrun`, needs
//! nothing but torch, and prints on every rank the expected and the actual result.
//!
//! In: a scenario of the plan, one of its checks (or none, for its initialisation and teardown), and what is known of
//! the failure. Out: the text of the file. The data are the check's own. Only [`trial`] runs anything.
//!
//! | module | writes |
//! |---|---|
//! | `header` | the docstring |
//! | `init` | `init_process_group` and the groups |
//! | `tables` | what each rank holds, passes, and must get |
//! | `calls` | the calls as a person would write them |
//! | `script_program` | the moves of a check that is a script |
//! | `literal` | Python literals |
//! | `template/` | what is the same in all of them |
//!
//! `shrink` makes smaller checks, `trial` runs a reproducer to see whether it fails.

mod calls;
mod header;
mod init;
mod literal;
mod script_program;
mod shrink;
mod tables;
#[cfg(test)]
mod tests;
mod trial;

use std::fmt::Write;
use std::path::absolute;

use thiserror::Error;

pub use shrink::{smaller, with_numel};
pub use trial::{TrialOutcome, trial};

use self::calls::{CallSite, Code};
use self::init::init;
use self::literal::{list, text};
use self::script_program::ScriptProgram;
use self::tables::{OpObjects, OpTensors, Tables};
use allranks_model::capability::Declared;
use allranks_model::op_check::OpCheck;
use allranks_oracle::{Prepared, Unpreparable};
use allranks_suite::case::Starts;
use allranks_suite::plan::{Check, CheckKind, Scenario};
use allranks_suite::platform::{OF_THE_RANK, Platform};

/// faulthandler prints where a rank hangs. Unlike `sys._current_frames` it takes no lock, and it lists the main thread last.
const OPENING: &str = include_str!("template/opening.py");
const EXPECT: &str = include_str!("template/expect.py");
const TIMES: &str = include_str!("template/times.py");
const TEXT: &str = include_str!("template/text.py");
const CALLING: &str = include_str!("template/calling.py");
const REFUSED: &str = include_str!("template/refused.py");
/// The Python code that compares the tensors after a refused call with what they held before.
const UNTOUCHED: &str = include_str!("template/untouched.py");
const PLACE: &str = "storages, t = {}, {}\nfor name in TENSORS[rank]:\n    storages[name], t[name] = place(*TENSORS[rank][name][:2])\n\n";
const COMPARE: &str = "if not problems:\n    for name in TENSORS[rank]:\n        compare(name)\n";
const CLOSING: &str = include_str!("template/closing.py");

/// The largest reproducer, in bytes: issue trackers and editors cannot handle larger ones.
const LARGEST: usize = 1 << 20;

/// The check, or the scenario, that a file reproduces.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// The scenario, which describes the world.
    pub scenario: &'a Scenario,
    /// The check; `None` for the scenario's initialisation and teardown alone.
    pub check: Option<&'a Check>,
    /// The seed of its data.
    pub seed: u64,
}

/// What is known of the failure, for the header. Empty texts are left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Notes {
    /// Sentences of the requirements it breaks, with their sources.
    pub requirements: Vec<String>,
    /// The failure that was seen: `mismatch (no-op): no rank's tensor was changed`.
    pub observed: String,
    /// The version of torch that it was seen with.
    pub torch: String,
    /// The URL of the public issue.
    pub url: String,
    /// How the check was made smaller.
    pub shrunk: String,
    /// The command that wrote it.
    pub command: String,
}

/// Why there is no reproducer.
#[derive(Debug, Error)]
pub enum ReproError {
    /// The check has no expected value.
    #[error(transparent)]
    Unpreparable(#[from] Unpreparable),
    /// The check is a script that cannot be compiled.
    #[error("{0}")]
    Unstaged(String),
    /// Its ranks run a program.
    #[error("the program itself is the reproduction")]
    Program,
    /// It checks a layer above c10d, for which no reproducers are written.
    #[error(
        "checks of layers above c10d have no reproducer; `allranks run` with the id repeats the check"
    )]
    Stack,
    /// Its tensors grow while it runs, beyond what can be written down.
    #[error("its tensors are too large for a reproducer")]
    Grown,
    /// Its data are too large to be written down.
    #[error("the reproducer would have {0} bytes")]
    TooLarge(usize),
}

/// Returns the text of the reproducer.
///
/// # Errors
/// The check has no expected value, or too much data.
pub fn reproducer(subject: &Subject<'_>, notes: &Notes) -> Result<String, ReproError> {
    let Subject {
        scenario,
        check,
        seed,
    } = *subject;
    if scenario.case.program.is_some() {
        return Err(ReproError::Program);
    }
    if check.is_some_and(|check| check.stack().is_some()) {
        return Err(ReproError::Stack);
    }
    if let Some((check, script)) = check.and_then(|check| Some((check, check.script()?))) {
        let written = script_program::script_program(
            scenario,
            check,
            script,
            seed,
            |script_program, parts, passed| {
                render_script_program(subject, notes, script_program, &Tables::new(parts, passed))
            },
        )?;
        return sized(written);
    }
    let (codes, tables) = match check.and_then(Check::op) {
        Some(op) => {
            let prepared = Prepared::new(op, scenario.world_size, seed)?;
            written(scenario, op, &prepared)?
        }
        None => (Vec::new(), Tables::default()),
    };
    let mut out = header::header(subject, notes);
    imports(&mut out, scenario, check, &[]);
    opening(&mut out, &tables);
    if check.is_none()
        || codes
            .iter()
            .any(|code| code.lines.iter().any(|line| line.starts_with("expect(")))
    {
        out.push_str(EXPECT);
    }
    init(&mut out, subject);
    if let Some(check) = check {
        body(&mut out, scenario, check, &codes, tables.has_tensors);
    }
    out.push_str(CLOSING);
    sized(out)
}

/// Renders the reproducer of a check that is a script.
fn render_script_program(
    subject: &Subject<'_>,
    notes: &Notes,
    script_program: &ScriptProgram<'_>,
    tables: &Tables,
) -> String {
    let mut out = header::header(subject, notes);
    imports(
        &mut out,
        subject.scenario,
        subject.check,
        &script_program.modules(),
    );
    opening(&mut out, tables);
    out.push_str(EXPECT);
    out.push_str(&script_program.before());
    if subject.scenario.case.world.starts == Starts::Bare {
        out.push('\n');
    } else {
        init(&mut out, subject);
    }
    if tables.has_tensors {
        out.push_str(PLACE);
    }
    script_program.body(&mut out);
    if tables.has_tensors {
        out.push_str(COMPARE);
    }
    script_program.after(&mut out);
    out
}

fn sized(text: String) -> Result<String, ReproError> {
    match text.len() > LARGEST {
        true => Err(ReproError::TooLarge(text.len())),
        false => Ok(text),
    }
}

fn opening(out: &mut String, tables: &Tables) {
    if tables.has_texts {
        out.push_str(TEXT);
    }
    out.push_str(&tables.text);
    out.push_str(OPENING);
    if tables.has_tensors {
        out.push_str(&tables.functions());
    }
}

fn written(
    scenario: &Scenario,
    op: &OpCheck,
    prepared: &Prepared,
) -> Result<(Vec<Code>, Tables), ReproError> {
    let ranks = || scenario.world_size.ranks();
    let calls = prepared.steps().iter().flat_map(|step| &step.step.calls);
    if calls.into_iter().any(calls::is_too_large) {
        return Err(ReproError::Grown);
    }
    let expected_tensors: Vec<_> = ranks()
        .map(|rank| prepared.expected_tensors(rank))
        .collect();
    let codes: Vec<Code> = ranks()
        .map(|rank| {
            let answers: Vec<_> = prepared.answers(rank).collect();
            calls::code(&CallSite {
                step: &prepared.steps()[rank.index()].step,
                expected_tensors: &expected_tensors[rank.index()],
                answers: &answers,
                group_size: op.group.size(),
                name: "",
                has_groups: false,
            })
        })
        .collect();
    let part = OpTensors {
        prefix: String::new(),
        dtype: op.dtype,
        expected_tensors,
        is_judged: true,
    };
    let passed = OpObjects {
        suffix: String::new(),
        codes: codes.clone(),
    };
    let tables = Tables::new(&[part], &[passed]);
    Ok((codes, tables))
}

fn imports(out: &mut String, scenario: &Scenario, check: Option<&Check>, more: &[&str]) {
    let platform = &scenario.platform;
    let mut modules = vec!["faulthandler", "os", "sys", "tempfile", "threading", "time"];
    modules.extend(more);
    modules.sort_unstable();
    modules.dedup();
    out.push('\n');
    for module in modules {
        put(out, format_args!("import {module}\n"));
    }
    if more.contains(&"re") {
        out.push_str("from contextlib import contextmanager\n");
    }
    out.push_str("from datetime import timedelta\n\n");
    let env: Vec<_> = platform
        .env
        .iter()
        .chain(&scenario.case.world.env)
        .collect();
    for (name, value) in &env {
        let filled = match value.contains(OF_THE_RANK) {
            true => format!(".replace({}, os.environ[\"RANK\"])", text(OF_THE_RANK)),
            false => String::new(),
        };
        put(
            out,
            format_args!("os.environ[{}] = {}{filled}\n", text(name), text(value)),
        );
    }
    let folders: Vec<_> = platform
        .python_path
        .iter()
        .map(|path| {
            text(
                &absolute(path)
                    .unwrap_or_else(|_| path.clone())
                    .to_string_lossy(),
            )
        })
        .collect();
    if !folders.is_empty() {
        put(
            out,
            format_args!("sys.path[:0] = [{}]\n", folders.join(", ")),
        );
    }
    if !env.is_empty() || !folders.is_empty() {
        out.push('\n');
    }
    out.push_str("import torch\nimport torch.distributed as dist\n");
    for module in platform.import.iter().filter(|module| *module != "torch") {
        put(
            out,
            format_args!("import {module}  # registers the backend\n"),
        );
    }
    put(
        out,
        format_args!(
            "\nDEADLINE = {}  # seconds until a call counts as hung\n",
            scenario.case.world.deadline_s
        ),
    );
    let is_of_tensors = |check: &Check| match &check.kind {
        CheckKind::Op(op) => op.op.has_tensors(),
        CheckKind::Script(_) => true,
        CheckKind::Program(_) | CheckKind::Stack(_) => false,
    };
    if check.is_some_and(is_of_tensors) {
        let kind = &platform.device_type;
        let on_host = check.is_some_and(|check| check.group.on_host);
        let device = match (kind.as_str(), &platform.set_device) {
            _ if on_host => text("cpu"),
            ("cpu", _) => text("cpu"),
            (_, Some(_)) if platform.ranks_per_device.get() > 1 => {
                format!("{}, {}", text(kind), index_of_device(platform))
            }
            (_, Some(_)) => format!("f\"{kind}:{{os.environ['LOCAL_RANK']}}\""),
            (_, None) => text(kind),
        };
        put(out, format_args!("DEVICE = torch.device({device})\n"));
    }
}

/// Returns the Python expression for the index of a rank's device.
fn index_of_device(platform: &Platform) -> String {
    let rank = "int(os.environ[\"LOCAL_RANK\"])";
    match platform.ranks_per_device.get() {
        1 => rank.to_owned(),
        several => format!("{rank} // {several}"),
    }
}

/// Writes the calls and the comparison of their results.
fn body(out: &mut String, scenario: &Scenario, check: &Check, codes: &[Code], has_tensors: bool) {
    out.push('\n');
    if has_tensors {
        out.push_str(PLACE);
    }
    out.push_str(CALLING);
    let must_be_refused = matches!(check.declared, Declared::Unsupported(_));
    if must_be_refused {
        out.push_str("refusal = None\n");
    }
    out.push_str("try:\n");
    branches(out, codes);
    if let Some(function) = scenario
        .platform
        .synchronize
        .as_ref()
        .filter(|_| has_tensors)
    {
        put(out, format_args!("    {function}()\n"));
    }
    if must_be_refused {
        out.push_str(
            "except Exception as error:\n    refusal = f\"{type(error).__name__}: {error}\"\nnote.cancel()\n",
        );
        let members = list(&check.group.ranks);
        let sum: usize = (1..=check.group.size()).sum();
        let group = group_argument(check);
        let probe = REFUSED
            .replace("MEMBERS", &members)
            .replace("SUM", &format!("{sum}.0"))
            .replace(", group=group", &group);
        out.push_str(&probe);
        if has_tensors {
            out.push_str(UNTOUCHED);
        }
        return;
    }
    out.push_str(
        "except Exception as error:\n    problems.append(f\"raised {type(error).__name__}: {error}\")\nnote.cancel()\n",
    );
    if has_tensors {
        out.push_str(COMPARE);
    } else if check.op().is_some_and(|op| op.op.is_barrier()) {
        out.push_str(&TIMES.replace("MEMBERS", &list(&check.group.ranks)));
    }
}

fn group_argument(check: &Check) -> String {
    if check.group.name == "world" {
        String::new()
    } else {
        ", group=group".to_owned()
    }
}

/// Writes the lines of each rank; ranks with the same lines share a branch.
fn branches(out: &mut String, codes: &[Code]) {
    let mut kinds: Vec<(Vec<usize>, &[String])> = Vec::new();
    for (rank, code) in codes.iter().enumerate() {
        match kinds.iter_mut().find(|(_, lines)| *lines == code.lines) {
            Some((ranks, _)) => ranks.push(rank),
            None => kinds.push((vec![rank], &code.lines)),
        }
    }
    if let [(_, lines)] = &*kinds {
        lines.iter().for_each(|line| put_line(out, 4, line));
        return;
    }
    let mut word = "if";
    for (ranks, lines) in kinds.iter().filter(|(_, lines)| !lines.is_empty()) {
        match &**ranks {
            [rank] => put(out, format_args!("    {word} rank == {rank}:\n")),
            ranks => put(out, format_args!("    {word} rank in {}:\n", list(ranks))),
        }
        lines.iter().for_each(|line| put_line(out, 8, line));
        word = "elif";
    }
}

fn put_line(out: &mut String, indent: usize, line: &str) {
    let own = line.len() - line.trim_start().len();
    let line = format!("{}{line}", " ".repeat(indent));
    out.push_str(&literal::wrapped(&line, indent + own + 4));
    out.push('\n');
}

fn put(out: &mut String, line: std::fmt::Arguments<'_>) {
    out.write_fmt(line)
        .expect("writing to a string cannot fail");
}
