//! Renders `kills.html`: the kill matrix as one file that needs no network, server or script. Mutants are rows and requirements
//! columns; a cell shows what the checks of the requirement reported of the mutant.
//!
//! Names and summaries may come from a rank, so all text is cleaned and escaped.

use std::fmt::Write;

use super::healthy::Healthy;
use super::kill::{Kill, MutantOutcome, RequirementReport};
use super::markdown::summary_line;
use super::matrix::{Matrix, MatrixStatus};
use super::record::Head;
use allranks_report::text::{clip, one_line};

const STYLE: &str = include_str!("kills.css");
/// The number of characters that are shown of a summary.
const SUMMARY: usize = 300;

/// Renders the page. `healthy` is `None` if the proof ended before that result.
#[must_use]
pub fn render(head: &Head, healthy: Option<&Healthy>, kills: &[Kill]) -> String {
    let mut page = String::new();
    // Writing to a string cannot fail.
    let _ = write_page(&mut page, head, healthy, kills);
    page
}

fn write_page(
    page: &mut String,
    head: &Head,
    healthy: Option<&Healthy>,
    kills: &[Kill],
) -> std::fmt::Result {
    let matrix = Matrix::of(head, kills);
    let headline = summary_line(&matrix.counts(head.mutants), head.mutants);
    write!(
        page,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
         <title>{headline} · allranks</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n\
         <h1>{headline}</h1>\n"
    )?;
    preface(page, head, healthy)?;
    table(page, head, &matrix)?;
    requirements(page, head, &matrix)?;
    page.push_str("</body>\n</html>\n");
    Ok(())
}

fn preface(page: &mut String, head: &Head, healthy: Option<&Healthy>) -> std::fmt::Result {
    write!(
        page,
        "<p>Each row is {}/{} with one seeded bug. Each column is a requirement: ",
        head.platform, head.backend
    )?;
    for (class, sign, meaning) in [
        (
            "own",
            "●",
            "broken, and killed under its right name by a check that covers it",
        ),
        (
            "wrong",
            "✗",
            "broken, and not killed or called something else",
        ),
        ("also", "○", "not broken, but its checks saw the bug too"),
        ("quiet", "·", "its checks ran and saw nothing"),
    ] {
        write!(
            page,
            "<span class=\"key {class}\">{sign}</span> {meaning}; "
        )?;
    }
    page.push_str(
        "empty: none of its checks ran. Point at a cell for what the checks called it.</p>\n",
    );
    if let Some(healthy) = healthy {
        writeln!(
            page,
            "<p>Without a bug, the same checks: {} ran, {} false alarms. torch {}, allranks {}, seed {}.</p>",
            healthy.checks,
            healthy.false_alarms.len(),
            escaped(&healthy.torch),
            escaped(&head.allranks),
            head.seed
        )?;
        for alarm in &healthy.false_alarms {
            writeln!(
                page,
                "<p class=\"wrong\">false alarm: {}</p>",
                escaped(alarm)
            )?;
        }
    }
    Ok(())
}

fn table(page: &mut String, head: &Head, matrix: &Matrix<'_>) -> std::fmt::Result {
    page.push_str(
        "<div class=\"scroll\" tabindex=\"0\"><table>\n<thead><tr><th>mutant</th><th>called</th>",
    );
    for id in matrix.requirements.keys() {
        let sentence = head.requirements.get(id).map_or("", String::as_str);
        let title = escaped(sentence);
        write!(
            page,
            "<th scope=\"col\" class=\"turned\" title=\"{title}\"><span>{id}</span></th>"
        )?;
    }
    page.push_str("</tr></thead>\n<tbody>\n");
    for kill in matrix.kills {
        let finding = kill
            .killing_check
            .as_ref()
            .map_or("", |check| &check.finding);
        let state = if kill.outcome == MutantOutcome::Killed {
            ""
        } else {
            " class=\"wrong\""
        };
        write!(
            page,
            "<tr{state}><th scope=\"row\" title=\"{}\">{}</th><td class=\"called\" title=\"{}\">{}</td>",
            escaped(&kill.about),
            escaped(&kill.name),
            escaped(&killing_check(kill)),
            escaped(match kill.outcome {
                MutantOutcome::Killed | MutantOutcome::Misnamed => finding,
                MutantOutcome::Incidental | MutantOutcome::Survived | MutantOutcome::Untried =>
                    kill.outcome.word(),
            })
        )?;
        for id in matrix.requirements.keys() {
            let broken = *id == kill.breaks;
            let seen = kill.requirements.get(id);
            let (class, sign) = sign(kill, broken, seen);
            match seen {
                None if !broken => page.push_str("<td></td>"),
                seen => write!(
                    page,
                    "<td class=\"{class}\" title=\"{} × {id}: {}\">{sign}</td>",
                    escaped(&kill.name),
                    escaped(&seen.map_or_else(|| "no check ran".to_owned(), seen_text))
                )?,
            }
        }
        page.push_str("</tr>\n");
    }
    page.push_str("</tbody>\n</table></div>\n");
    Ok(())
}

fn sign(kill: &Kill, broken: bool, seen: Option<&RequirementReport>) -> (&'static str, char) {
    let failed = seen.is_some_and(|seen| seen.failed > 0);
    match (broken, kill.outcome, failed) {
        (true, MutantOutcome::Killed, _) => ("own", '●'),
        (
            true,
            MutantOutcome::Misnamed
            | MutantOutcome::Incidental
            | MutantOutcome::Survived
            | MutantOutcome::Untried,
            _,
        ) => ("wrong", '✗'),
        (false, _, true) => ("also", '○'),
        (false, _, false) => ("quiet", '·'),
    }
}

/// Returns a report as text: `3 of 8 checks: 2 × mismatch no-op, 1 × crash`.
fn seen_text(seen: &RequirementReport) -> String {
    let findings: Vec<String> = seen
        .findings
        .iter()
        .map(|(finding, count)| format!("{count} × {finding}"))
        .collect();
    let mut text = format!("{} of {} checks saw it", seen.failed, seen.checks);
    if !findings.is_empty() {
        let _ = write!(text, ": {}", findings.join(", "));
    }
    text
}

fn killing_check(kill: &Kill) -> String {
    kill.killing_check
        .as_ref()
        .map_or_else(String::new, |check| {
            let summary = clip(&one_line(&check.summary), SUMMARY);
            format!("{}: {summary}", check.check)
        })
}

fn requirements(page: &mut String, head: &Head, matrix: &Matrix<'_>) -> std::fmt::Result {
    page.push_str(
        "<h2>Requirements</h2>\n<table class=\"list\">\n<thead><tr><th>requirement</th>\
         <th>a mutant that only its checks see</th><th>sentence</th></tr></thead>\n<tbody>\n",
    );
    for (id, status) in &matrix.requirements {
        let (class, text) = match status {
            MatrixStatus::Alone(names) => ("", names.join(", ")),
            MatrixStatus::Shared(why) => ("", format!("none can be: {why}")),
            MatrixStatus::Together => ("wrong", "none, and no reason is given".to_owned()),
            MatrixStatus::Elsewhere(why) => ("", format!("not on {}: {why}", head.backend)),
            MatrixStatus::Unproven => ("wrong", "no killed mutant breaks it".to_owned()),
        };
        let sentence = head.requirements.get(id).map_or("", String::as_str);
        writeln!(
            page,
            "<tr><th scope=\"row\">{id}</th><td class=\"{class}\">{}</td><td>{}</td></tr>",
            escaped(&text),
            escaped(sentence)
        )?;
    }
    page.push_str("</tbody>\n</table>\n");
    Ok(())
}

fn escaped(text: &str) -> String {
    one_line(text)
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prove::matrix::tests::{head, kill};

    #[test]
    fn a_row_for_each_mutant_a_column_for_each_requirement_and_no_markup_of_others() {
        let head = head(&["A-001", "B-001"], &[]);
        let kills = [
            kill("killed", "A-001", MutantOutcome::Killed, true),
            kill("survivor", "B-001", MutantOutcome::Survived, false),
        ];
        let page = render(&head, None, &kills);
        assert_eq!(page.matches("<th scope=\"col\"").count(), 2);
        assert_eq!(page.matches("<td class=\"own\"").count(), 1, "{page}");
        assert_eq!(
            page.matches("<td class=\"wrong\" title").count(),
            1,
            "{page}"
        );
        assert!(
            page.contains("1 of 3 mutants killed; 1 survived, 1 not tried"),
            "{page}"
        );
        assert!(
            page.contains("1 of 2 checks saw it: 1 × mismatch no-op"),
            "{page}"
        );
        assert!(!page.contains("<b>") && !page.contains("<wrong>"), "{page}");
        assert!(
            !page.contains('\u{1b}') && !page.contains("<script"),
            "{page}"
        );
    }
}
