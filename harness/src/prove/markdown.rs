//! Renders `kills.md`: the kill matrix as a section for a CI job's page or a document.

use std::fmt::Write;

use super::healthy::Healthy;
use super::kill::{Kill, MutantOutcome};
use super::matrix::{Matrix, MatrixStatus, WrongValues};
use super::record::{Head, MutantCounts};
use allranks_report::text::{counted, one_line};

/// Renders the section. `healthy` is `None` if the proof ended before that result.
#[must_use]
pub fn render(head: &Head, healthy: Option<&Healthy>, kills: &[Kill]) -> String {
    let matrix = Matrix::of(head, kills);
    let mut text = String::from("## Can the suite fail?\n\n");
    // Writing to a string cannot fail.
    let _ = summary(&mut text, head, healthy, &matrix);
    let _ = unkilled(&mut text, kills);
    let _ = requirements(&mut text, head, &matrix);
    let _ = mutants(&mut text, kills);
    text
}

/// Returns the summary of a proof: `120 of 130 mutants killed: 4 survived, ...`.
#[must_use]
pub fn summary_line(counts: &MutantCounts, planned: u64) -> String {
    let mut text = format!("{} of {} killed", counts.killed, counted(planned, "mutant"));
    let rest = [
        (counts.survived, MutantOutcome::Survived),
        (counts.incidental, MutantOutcome::Incidental),
        (counts.misnamed, MutantOutcome::Misnamed),
        (counts.untried, MutantOutcome::Untried),
    ];
    let rest: Vec<String> = rest
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, outcome)| format!("{count} {}", outcome.word()))
        .collect();
    if !rest.is_empty() {
        let _ = write!(text, "; {}", rest.join(", "));
    }
    text
}

/// Returns the numbers of wrong values without a class: `Wrong values: 300 mutants, 4 (1.3 %) unclassified; ...`.
#[must_use]
pub fn wrong_values_line(counts: &WrongValues) -> String {
    let share = |part: u64, whole: u64| {
        let percent = 100.0 * part as f64 / whole.max(1) as f64;
        format!("{part} ({percent:.1} %) `unclassified`")
    };
    format!(
        "Wrong values, in checks of the requirements that mutants break: {}, {}; {}, {}.",
        counted(counts.mutants, "mutant"),
        share(counts.unclassified_mutants, counts.mutants),
        counted(counts.checks, "check"),
        share(counts.unclassified_checks, counts.checks),
    )
}

fn summary(
    text: &mut String,
    head: &Head,
    healthy: Option<&Healthy>,
    matrix: &Matrix<'_>,
) -> std::fmt::Result {
    let (platform, backend) = (&head.platform, &head.backend);
    let counts = matrix.counts(head.mutants);
    writeln!(
        text,
        "**{}**: {platform}/{backend} with one seeded bug each, in its own checks and in the shared checks `{}`.\n",
        summary_line(&counts, head.mutants),
        name(head)
    )?;
    writeln!(text, "{}\n", wrong_values_line(&matrix.wrong_values()))?;
    if let Some(healthy) = healthy {
        writeln!(
            text,
            "Without a bug: {} checks, {} false alarms (torch {}).\n",
            healthy.checks,
            healthy.false_alarms.len(),
            one_line(&healthy.torch)
        )?;
        for alarm in &healthy.false_alarms {
            writeln!(text, "- false alarm: {}", code(alarm))?;
        }
    }
    Ok(())
}

fn name(head: &Head) -> &'static str {
    match head.shared_checks {
        super::SharedChecks::None => "none",
        super::SharedChecks::Quick => "quick",
        super::SharedChecks::Core => "core",
    }
}

fn unkilled(text: &mut String, kills: &[Kill]) -> std::fmt::Result {
    for kill in kills
        .iter()
        .filter(|kill| kill.outcome != MutantOutcome::Killed)
    {
        write!(
            text,
            "- `{}` {}: it breaks {} and must be called {}",
            kill.name,
            kill.outcome.word(),
            kill.breaks,
            code(&kill.expected)
        )?;
        if let Some(check) = &kill.killing_check {
            let (check, finding) = (code(check.check.as_str()), code(&check.finding));
            write!(text, "; {check} called it {finding}")?;
        }
        writeln!(text)?;
    }
    Ok(())
}

fn requirements(text: &mut String, head: &Head, matrix: &Matrix<'_>) -> std::fmt::Result {
    writeln!(text, "\n### Requirements\n")?;
    writeln!(
        text,
        "| requirement | killed mutants | a mutant that only its checks see |"
    )?;
    writeln!(text, "|---|---:|---|")?;
    for (id, status) in &matrix.requirements {
        let killed = matrix.kills.iter();
        let killed =
            killed.filter(|kill| kill.breaks == *id && kill.outcome == MutantOutcome::Killed);
        let seen_text = match status {
            MatrixStatus::Alone(names) => format!("`{}`", names.join("`, `")),
            MatrixStatus::Shared(why) => format!("none can be: {}", cell(why)),
            MatrixStatus::Together => "**none, and no reason is given**".to_owned(),
            MatrixStatus::Elsewhere(why) => format!("not on {}: {}", head.backend, cell(why)),
            MatrixStatus::Unproven => "**no mutant at all**".to_owned(),
        };
        writeln!(text, "| {id} | {} | {seen_text} |", killed.count())?;
    }
    Ok(())
}

fn mutants(text: &mut String, kills: &[Kill]) -> std::fmt::Result {
    writeln!(text, "\n### Mutants\n")?;
    writeln!(
        text,
        "| mutant | breaks | | called | seen by other requirements' checks too |"
    )?;
    writeln!(text, "|---|---|---|---|---|")?;
    for kill in kills {
        let finding = kill
            .killing_check
            .as_ref()
            .map_or("", |check| &check.finding);
        let elsewhere: Vec<&str> = kill.elsewhere().map(|id| id.as_str()).collect();
        let name = match &kill.source {
            Some(source) => format!("[{}]({})", kill.name, cell(source)),
            None => kill.name.clone(),
        };
        writeln!(
            text,
            "| {name} | {} | {} | {} | {} |",
            kill.breaks,
            kill.outcome.word(),
            cell(finding),
            elsewhere.join(" ")
        )?;
    }
    Ok(())
}

/// Formats the text of a rank as inline code.
fn code(text: &str) -> String {
    format!("`{}`", one_line(text).replace('`', "'"))
}

/// Escapes a text for a table cell.
fn cell(text: &str) -> String {
    one_line(text).replace('|', "\\|").replace('<', "&lt;")
}
