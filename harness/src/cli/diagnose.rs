//! `allranks diagnose`: gives a verdict from logs, or from the evidence of watches.

use std::io::{self, Write};

use serde::Serialize;

use super::args::DiagnoseArguments;
use super::{Exit, Failure};
use allranks_diagnose::logs;
use allranks_diagnose::logs::{LogError, Report};
use allranks_model::diagnosis::{HangKind, lines, rank_set};
use allranks_model::record::FORMAT;
use allranks_runner::watch::{WorldReport, is_evidence, judge};

/// Prints what the logs show.
pub fn diagnose(arguments: &DiagnoseArguments, out: &mut impl Write) -> Result<Exit, Failure> {
    if arguments.logs.iter().any(|path| is_evidence(path)) {
        return diagnose_evidence(arguments, out);
    }
    let report = logs::read(&arguments.logs, &mut io::stdin())
        .and_then(|sources| logs::report(&sources))
        .map_err(log_failure)?;
    if arguments.json {
        serde_json::to_writer_pretty(&mut *out, &report).map_err(io::Error::from)?;
        writeln!(out)?;
    } else {
        for line in report_lines(&report) {
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

/// The report on one of several worlds, as `--json` prints it.
#[derive(Serialize)]
struct WorldJson<'a> {
    /// The endpoint of the world, and the launcher's attempt.
    world: &'a str,
    #[serde(flatten)]
    report: Report,
}

impl<'a> WorldJson<'a> {
    fn new(world: &'a WorldReport) -> Self {
        let report = Report {
            format: FORMAT,
            verdict: world.verdict.clone(),
            not_known: Vec::new(),
            places: Vec::new(),
            notes: world.notes.clone(),
        };
        let world = &world.world;
        Self { world, report }
    }
}

/// Prints what the evidence of nodes shows, world by world.
fn diagnose_evidence(arguments: &DiagnoseArguments, out: &mut impl Write) -> Result<Exit, Failure> {
    if let Some(other) = arguments.logs.iter().find(|path| !is_evidence(path)) {
        return Err(Failure::Usage(
            format!("{} holds no evidence of a watch", other.display()),
            "name either logs or folders that `allranks watch --evidence` has written".to_owned(),
        ));
    }
    let worlds = judge(&arguments.logs).map_err(|error| {
        let hint = "write it again with this version of `allranks watch --evidence`";
        Failure::Usage(error.to_string(), hint.to_owned())
    })?;
    if arguments.json {
        let reports: Vec<WorldJson> = worlds.iter().map(WorldJson::new).collect();
        serde_json::to_writer_pretty(&mut *out, &reports).map_err(io::Error::from)?;
        writeln!(out)?;
    } else {
        for world in &worlds {
            writeln!(out, "world at {}:", world.world)?;
            let head = "no verdict".to_owned();
            let body = match &world.verdict {
                Some(diagnosis) => lines(diagnosis),
                None => vec![head],
            };
            let notes = world.notes.iter().map(|note| format!("note: {note}"));
            for line in body.into_iter().chain(notes) {
                writeln!(out, "{line}")?;
            }
        }
    }
    let is_hung = |world: &WorldReport| {
        let verdict = world.verdict.as_ref();
        verdict.is_some_and(|one| one.kind != HangKind::Slow)
    };
    Ok(if worlds.iter().any(is_hung) {
        Exit::Unexpected
    } else if worlds.iter().any(|world| world.verdict.is_none()) {
        Exit::Nothing
    } else {
        Exit::AsExpected
    })
}

fn report_lines(report: &Report) -> Vec<String> {
    let mut text = match &report.verdict {
        Some(diagnosis) => lines(diagnosis),
        None => {
            let head = match report.not_known.is_empty() {
                true => "no fault found: no rank waits for another, and none ended with an error",
                false => "not known: these logs do not show that every rank finished",
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

fn log_failure(error: LogError) -> Failure {
    let (text, hint) = (error.to_string(), error.hint().to_owned());
    match error {
        LogError::Silent => Failure::Nothing(text, hint),
        LogError::Absent(_) | LogError::Unreadable(..) | LogError::Empty(_) | LogError::NoRank => {
            Failure::Usage(text, hint)
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// A world whose ranks moved when its evidence was written is named, and nothing is known of it.
    #[test]
    fn a_world_without_a_verdict_is_named_and_not_known() {
        let folder = tempfile::tempdir().unwrap();
        let evidence = json!({
            "format": 1, "world": "10.0.0.1:29500 0", "host": "a", "began": 1.0, "at": 9.0, "still_s": 0.0, "patience_s": 20.0,
            "is_whole": true,
            "ranks": [{
                "rank": 0, "pid": 1, "environment": {"RANK": "0", "WORLD_SIZE": "1"}, "process": "alive", "silence_s": 0.0,
                "trace": null, "recorder": null,
            }],
        });
        std::fs::write(
            folder.path().join("w.a.1.evidence.json"),
            evidence.to_string(),
        )
        .unwrap();
        let mut out = Vec::new();
        let arguments = DiagnoseArguments {
            logs: vec![folder.path().to_owned()],
            json: true,
        };
        let exit = diagnose(&arguments, &mut out).unwrap();
        let worlds: Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(worlds[0]["world"], "10.0.0.1:29500 0");
        assert_eq!(worlds[0]["verdict"], Value::Null);
        assert_eq!(worlds.as_array().unwrap().len(), 1);
        assert_eq!(exit as u8, 3);
    }
}
