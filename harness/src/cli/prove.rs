//! `allranks prove`: runs the suite against its mutants, with a line for each result, and writes the kill matrix.

use std::collections::BTreeMap;
use std::io::Write;
use std::num::NonZeroU32;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;

use super::prove_arguments::ProveArguments;
use super::rank_limits::ranks_at_once;
use super::signals::listen_for_signals;
use super::{Exit, Failure, planning, run_folder};
use crate::prove;
use crate::prove::{
    Event, FILE_NAME, Head, Healthy, Index, Kill, Matrix, MatrixRecord, MatrixStatus, Mutant,
    MutantOutcome, Proof, ProofPlan, Tail,
};
use crate::suite;
use crate::suite::{Request, Suite, SuiteError};
use allranks_model::record::FORMAT;
use allranks_report::text::{clip, counted, lasting, one_line};
use allranks_runner::probe;
use allranks_runner::run;
use allranks_runner::run::{Interrupt, Session, Settings};
use allranks_runner::world::Driver;
use allranks_suite::plan;

/// The number of characters that are shown of a summary.
const SUMMARY: usize = 160;

/// Runs `allranks prove`. Exits with 0 if every mutant is killed as the index says and nothing is unexpected without a bug; with
/// 1 if not; with 4 if it was interrupted; with 10 if the harness or the machine failed on the way.
pub fn prove(
    arguments: &ProveArguments,
    out: &mut impl Write,
    err: &mut impl Write,
) -> Result<Exit, Failure> {
    let folder = run_folder::make_run_folder(arguments.out.as_deref())?;
    if folder.join(FILE_NAME).exists() {
        return Err(Failure::Usage(
            format!("{} holds another proof", folder.display()),
            "name another folder with --out; results are never overwritten".to_owned(),
        ));
    }
    let scratch = tempfile::tempdir()?;
    let suite = Suite::load(&Request::default(), scratch.path())?;
    let mutants = match &arguments.mutants {
        Some(folder) => folder.clone(),
        None => suite::mutants(scratch.path())?,
    };
    let index = Index::load(&mutants).map_err(SuiteError::Invalid)?;
    let chosen = choose(&index, &arguments.names)?;
    let plan = ProofPlan::new(suite, index, arguments.panel).map_err(SuiteError::Invalid)?;
    let whole = plan::Plan {
        scenarios: plan.healthy_scenarios(&chosen),
        ..plan::Plan::default()
    };
    planning::check_inputs(&whole, arguments.seed)?;
    let head = plan.head(arguments.seed, chosen.len());
    let began = Instant::now();
    let interrupt = Interrupt::default();
    let runtime = run::runtime()?;
    let settings = settings(arguments, &folder)?;
    let session = {
        let _inside = runtime.enter();
        Session::start(settings, Arc::clone(&plan.suite().expectations), &interrupt)?
    };
    writeln!(
        err,
        "{}; {} shared checks in {} worlds",
        counted(head.mutants, "mutant"),
        plan.shared_scenarios()
            .iter()
            .map(plan::Scenario::check_count)
            .sum::<usize>(),
        plan.shared_scenarios().len()
    )?;
    let order: BTreeMap<String, usize> = chosen
        .iter()
        .enumerate()
        .map(|(index, mutant)| (mutant.name.clone(), index))
        .collect();
    let proof = Arc::new(Proof::new(plan, session, interrupt.clone(), folder.clone()));
    let mut writer = prove::Writer::create(&folder)?;
    writer.append(&MatrixRecord::Prove(head.clone()))?;
    let (mut healthy, mut kills): (Option<Healthy>, Vec<Kill>) = (None, Vec::new());
    let (sender, mut events) = mpsc::unbounded_channel();
    runtime.spawn(listen_for_signals(interrupt.clone()));
    let running = runtime.spawn(proof.run(chosen, sender));
    let mut tried = Instant::now();
    while let Some(event) = runtime.block_on(events.recv()) {
        match event {
            Event::Healthy(one) => {
                tried = Instant::now();
                writer.append(&MatrixRecord::Healthy(one.clone()))?;
                report_healthy(&one, err)?;
                healthy = Some(one);
            }
            Event::Mutant(kill) => {
                writer.append(&MatrixRecord::Mutant(kill.clone()))?;
                kills.push(*kill);
                report_mutant(&kills, head.mutants, tried.elapsed(), err)?;
            }
        }
    }
    let ended = runtime.block_on(running);
    ended.map_err(|error| Failure::Harness(format!("the proof panicked: {error}")))??;
    kills.sort_by_key(|kill| order.get(&kill.name).copied());
    std::fs::remove_dir_all(folder.join("driver"))?;

    let took = began.elapsed();
    let exit = exit(healthy.as_ref(), &kills, interrupt.is_set());
    let is_whole = arguments.names.is_empty();
    let findings = (&head, healthy.as_ref(), &*kills);
    conclude(findings, took, exit, is_whole, &mut writer, (&folder, out))?;
    Ok(exit)
}

/// Writes the end record of a proof, its pages and its summary. `is_whole` is true if all mutants were tried.
fn conclude(
    (head, healthy, kills): (&Head, Option<&Healthy>, &[Kill]),
    took: Duration,
    exit: Exit,
    is_whole: bool,
    writer: &mut prove::Writer,
    (folder, out): (&Path, &mut impl Write),
) -> Result<(), Failure> {
    let matrix = Matrix::of(head, kills);
    let tail = Tail {
        format: FORMAT,
        torch: healthy.map_or_else(String::new, |one| one.torch.clone()),
        tally: matrix.counts(head.mutants),
        duration_ms: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
        exit_code: exit as u8,
    };
    writer.append(&MatrixRecord::End(tail.clone()))?;
    let pages = [
        ("kills.md", prove::markdown(head, healthy, kills)),
        ("kills.html", prove::html(head, healthy, kills)),
    ];
    for (name, text) in &pages {
        std::fs::write(folder.join(name), text)?;
    }
    write_unkilled(kills, folder, out)?;
    if is_whole {
        // Some of the mutants cannot show which requirements are proved.
        write_requirements(head, &matrix, out)?;
    }
    writeln!(out, "{}", prove::wrong_values_line(&matrix.wrong_values()))?;
    write_summary(head, healthy, &tail, folder, out)
}

/// Returns the settings for the worlds of the proof.
fn settings(arguments: &ProveArguments, folder: &Path) -> Result<Settings, Failure> {
    let python = probe::python(arguments.python.as_deref());
    Ok(Settings {
        out: folder.to_owned(),
        seed: arguments.seed,
        ranks_at_once: ranks_at_once(),
        worlds_per_device: NonZeroU32::MIN,
        repeat: 1,
        driver: Driver::python(&python.path, folder)?,
        launcher: None,
        supervisor: std::env::current_exe().ok(),
        import_patience: probe::IMPORT_PATIENCE,
        shrinking: prove::SHRINKING,
        profile: None,
        arguments: Vec::new(),
        requirements: BTreeMap::new(),
        absent: Vec::new(),
        origin: None,
        recorded: Arc::default(),
        nodes: None,
        launcher_options: Vec::new(),
        notices: None,
    })
}

/// Returns the mutants of these names, in the order of the index.
fn choose(index: &Index, names: &[String]) -> Result<Vec<Mutant>, Failure> {
    for name in names {
        if !index.mutants.iter().any(|mutant| mutant.name == *name) {
            return Err(Failure::Usage(
                format!("there is no mutant `{name}`"),
                format!(
                    "mutants are in {}",
                    index.folder.join("index.yaml").display()
                ),
            ));
        }
    }
    let is_chosen = |mutant: &&Mutant| names.is_empty() || names.contains(&mutant.name);
    let chosen: Vec<Mutant> = index.mutants.iter().filter(is_chosen).cloned().collect();
    if chosen.is_empty() {
        let hint = format!(
            "write one into {}",
            index.folder.join("index.yaml").display()
        );
        return Err(Failure::Nothing("there is no mutant".to_owned(), hint));
    }
    Ok(chosen)
}

fn report_healthy(healthy: &Healthy, err: &mut impl Write) -> Result<(), Failure> {
    for alarm in &healthy.false_alarms {
        writeln!(err, "false alarm: {}", clip(&one_line(alarm), SUMMARY))?;
    }
    for issue in &healthy.issues {
        writeln!(err, "problem: {}", clip(&one_line(issue), SUMMARY))?;
    }
    writeln!(
        err,
        "without a bug: {} checks, {} false alarms",
        healthy.checks,
        healthy.false_alarms.len()
    )?;
    Ok(())
}

/// Writes a line about the last mutant that was tried.
fn report_mutant(
    kills: &[Kill],
    planned: u64,
    took: Duration,
    err: &mut impl Write,
) -> Result<(), Failure> {
    let Some(kill) = kills.last() else {
        return Ok(());
    };
    let done = kills.len() as u64;
    let left = took.as_millis() as u64 / done * planned.saturating_sub(done);
    let others = kill.elsewhere().count();
    let finding = kill
        .killing_check
        .as_ref()
        .map_or("", |check| &check.finding);
    write!(
        err,
        "[{done:>3}/{planned}] {} {} of {}: {finding}",
        kill.outcome.word(),
        kill.name,
        kill.breaks,
    )?;
    if kill.outcome != MutantOutcome::Killed {
        write!(err, "; it must be {}", kill.expected)?;
    }
    if kill.alone && kill.shared_checks > 0 {
        write!(err, "; only checks of {} see it", kill.breaks)?;
    } else if others > 0 {
        write!(err, "; seen by {others} more")?;
    }
    if let Some(stopped) = &kill.stopped {
        write!(err, "; shared checks stopped: {stopped}")?;
    }
    if left > 0 {
        write!(err, "; about {} left", lasting(left))?;
    }
    writeln!(err)?;
    for issue in &kill.issues {
        writeln!(err, "    problem: {}", clip(&one_line(issue), SUMMARY))?;
    }
    err.flush()?;
    Ok(())
}

fn exit(healthy: Option<&Healthy>, kills: &[Kill], interrupted: bool) -> Exit {
    if interrupted {
        return Exit::Incomplete;
    }
    let has_issue = |healthy: &Healthy| !healthy.issues.is_empty();
    if healthy.is_none_or(has_issue) || kills.iter().any(|kill| !kill.issues.is_empty()) {
        return Exit::HarnessFailed;
    }
    let is_good = healthy.is_some_and(Healthy::is_good)
        && kills
            .iter()
            .all(|kill| kill.outcome == MutantOutcome::Killed);
    if is_good {
        Exit::AsExpected
    } else {
        Exit::Unexpected
    }
}

/// Prints which mutants were not killed, and where their logs are.
fn write_unkilled(kills: &[Kill], folder: &Path, out: &mut impl Write) -> Result<(), Failure> {
    writeln!(out)?;
    for kill in kills
        .iter()
        .filter(|kill| kill.outcome != MutantOutcome::Killed)
    {
        writeln!(
            out,
            "{}: {} (breaks {}, must be {}); its logs: {}",
            kill.outcome.word(),
            kill.name,
            kill.breaks,
            kill.expected,
            folder.join("mutants").join(&kill.name).display()
        )?;
    }
    Ok(())
}

/// Prints how many requirements are proved, and which are not.
fn write_requirements(
    head: &Head,
    matrix: &Matrix<'_>,
    out: &mut impl Write,
) -> Result<(), Failure> {
    let list = |test: fn(&MatrixStatus) -> bool| {
        let ids: Vec<&str> = matrix.with(test).map(|id| id.as_str()).collect();
        (ids.len(), ids.join(" "))
    };
    let (alone, _) = list(|status| matches!(status, MatrixStatus::Alone(_)));
    let (shared, _) = list(|status| matches!(status, MatrixStatus::Shared(_)));
    let (together, together_ids) = list(|status| *status == MatrixStatus::Together);
    let (elsewhere, elsewhere_ids) = list(|status| matches!(status, MatrixStatus::Elsewhere(_)));
    let (unproven, unproven_ids) = list(|status| *status == MatrixStatus::Unproven);
    writeln!(
        out,
        "{} requirements: {alone} with a mutant that only their checks see, {shared} with a reason why no such mutant exists",
        matrix.requirements.len()
    )?;
    if together > 0 {
        writeln!(out, "  {together} with neither: {together_ids}")?;
    }
    if elsewhere > 0 {
        writeln!(
            out,
            "  {elsewhere} that {} cannot test, as the matrix says: {elsewhere_ids}",
            head.backend
        )?;
    }
    if unproven > 0 {
        writeln!(
            out,
            "  {unproven} that no killed mutant breaks: {unproven_ids}"
        )?;
    }
    let stale: Vec<&str> = matrix.stale(head).iter().map(|id| id.as_str()).collect();
    if !stale.is_empty() {
        writeln!(out, "  reasons out of date: {}", stale.join(" "))?;
    }
    Ok(())
}

/// Prints where the kill matrix is, and the result in one line.
fn write_summary(
    head: &Head,
    healthy: Option<&Healthy>,
    tail: &Tail,
    folder: &Path,
    out: &mut impl Write,
) -> Result<(), Failure> {
    for name in ["kills.html", "kills.md", FILE_NAME] {
        writeln!(out, "       matrix  {}", folder.join(name).display())?;
    }
    writeln!(
        out,
        "\n{}; without a bug, {} false alarms in {} checks; {} with torch {}; exit code {}",
        prove::summary_line(&tail.tally, head.mutants),
        healthy.map_or(0, |one| one.false_alarms.len()),
        healthy.map_or(0, |one| one.checks),
        lasting(tail.duration_ms),
        one_line(&tail.torch),
        tail.exit_code
    )?;
    Ok(())
}
