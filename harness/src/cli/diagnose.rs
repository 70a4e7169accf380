//! `allranks diagnose LOG...`: the verdict from logs alone.

use std::io::{self, Write};

use super::args::DiagnoseArguments;
use super::{Exit, Failure};
use allranks_diagnose::logs;
use allranks_diagnose::logs::{LogError, Report};
use allranks_model::diagnosis::{HangKind, lines, rank_set};
use allranks_model::record::FORMAT;
use allranks_runner::watch::{is_evidence, judge};

/// Prints what the logs show.
pub fn diagnose(arguments: &DiagnoseArguments, out: &mut impl Write) -> Result<Exit, Failure> {
    if arguments.logs.iter().any(|path| is_evidence(path)) {
        return evidence(arguments, out);
    }
    let report = logs::read(&arguments.logs, &mut io::stdin())
        .and_then(|sources| logs::report(&sources))
        .map_err(failure)?;
    if arguments.json {
        serde_json::to_writer_pretty(&mut *out, &report).map_err(io::Error::from)?;
        writeln!(out)?;
    } else {
        for line in text(&report) {
            writeln!(out, "{line}")?;
        }
    }
    Ok(match &report.verdict {
        None if !report.not_known.is_empty() => Exit::Nothing,
        None => Exit::AsExpected,
        Some(diagnosis) if diagnosis.kind == HangKind::Slow => Exit::AsExpected,
        Some(_) => Exit::Unexpected,
    })
}

/// Prints what the evidence of nodes shows, world by world.
fn evidence(arguments: &DiagnoseArguments, out: &mut impl Write) -> Result<Exit, Failure> {
    if let Some(other) = arguments.logs.iter().find(|path| !is_evidence(path)) {
        return Err(Failure::Usage(
            format!("there is no evidence in {}", other.display()),
            "name logs, or folders that `allranks watch --evidence` has written, and not both"
                .to_owned(),
        ));
    }
    let worlds = judge(&arguments.logs).map_err(|error| {
        let hint = "write it anew with this version of `allranks watch --evidence`";
        Failure::Usage(error.to_string(), hint.to_owned())
    })?;
    let reports: Vec<Report> = worlds
        .iter()
        .map(|world| Report {
            format: FORMAT,
            verdict: world.verdict.clone(),
            not_known: Vec::new(),
            places: Vec::new(),
            notes: world.notes.clone(),
        })
        .collect();
    if arguments.json {
        serde_json::to_writer_pretty(&mut *out, &reports).map_err(io::Error::from)?;
        writeln!(out)?;
    } else {
        for (world, report) in worlds.iter().zip(&reports) {
            writeln!(out, "world at {}:", world.world)?;
            let head = "no verdict".to_owned();
            let body = match &report.verdict {
                Some(diagnosis) => lines(diagnosis),
                None => vec![head],
            };
            let notes = report.notes.iter().map(|note| format!("note: {note}"));
            for line in body.into_iter().chain(notes) {
                writeln!(out, "{line}")?;
            }
        }
    }
    let is_hung = |report: &Report| {
        let verdict = report.verdict.as_ref();
        verdict.is_some_and(|one| one.kind != HangKind::Slow)
    };
    Ok(match reports.iter().any(is_hung) {
        true => Exit::Unexpected,
        false => Exit::AsExpected,
    })
}

fn text(report: &Report) -> Vec<String> {
    let mut text = match &report.verdict {
        Some(diagnosis) => lines(diagnosis),
        None => {
            let head = match report.not_known.is_empty() {
                true => {
                    "nothing wrong is seen: no rank waits for another, and none ended with an error"
                }
                false => "not known: these logs do not show that every rank has come through",
            };
            let places = rank_set::places(&report.places).into_iter();
            let reasons = report
                .not_known
                .iter()
                .map(|reason| format!("  - {reason}"));
            std::iter::once(head.to_owned())
                .chain(reasons)
                .chain(places.map(|line| format!("    {line}")))
                .collect()
        }
    };
    text.extend(report.notes.iter().map(|note| format!("note: {note}")));
    text
}

fn failure(error: LogError) -> Failure {
    let (text, hint) = (error.to_string(), error.hint().to_owned());
    match error {
        LogError::Silent => Failure::Nothing(text, hint),
        LogError::Absent(_) | LogError::Unreadable(..) | LogError::Empty(_) | LogError::NoRank => {
            Failure::Usage(text, hint)
        }
    }
}
