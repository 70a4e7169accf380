//! `allranks diagnose LOG...`: the verdict from logs alone.

use std::io::{self, Write};

use super::args::DiagnoseArguments;
use super::{Exit, Failure};
use allranks_diagnose::logs;
use allranks_diagnose::logs::{LogError, Report};
use allranks_model::diagnosis::{HangKind, lines, rank_set};

/// Prints what the logs show.
pub fn diagnose(arguments: &DiagnoseArguments, out: &mut impl Write) -> Result<Exit, Failure> {
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
