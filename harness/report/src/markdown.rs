//! Renders `summary.md` for the job page of a CI system (GitHub's step summary, GitLab's and Buildkite's notes). Every string
//! of a run is cleaned, clipped and escaped, so that it can neither break a table nor become markup.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::check_set::{Brief, CheckSet};
use super::command_line::command_line;
use super::details::summary_line;
use super::observed::{observed, values_with_counts};
use super::recipe::advise_init;
use super::results::{Results, column_names, evidence_word};
use super::sides::Sides;
use super::status_counts::{Headline, StatusCounts, exit_meaning};
use super::text::{clip, counted, grouped, lasting, one_line};
use super::trend::Trend;
use super::trend::text::{changed, list_text, symbols};
use super::versions::Versions;
use allranks_model::status::Status;

/// The number of rows of each list.
const LIST_LIMIT: usize = 50;
/// The longest text of a cell, in bytes. GitHub accepts 1 MiB of step summary in all.
const CELL_LIMIT: usize = 400;

/// Renders the Markdown summary of a run.
#[must_use]
pub fn render<C: CheckSet>(results: &Results<C>) -> String {
    render_with(results, None)
}

/// Renders the summary with the trend over earlier runs.
#[must_use]
pub fn render_with<C: CheckSet>(results: &Results<C>, trend: Option<&Trend>) -> String {
    let mut page = String::new();
    write_page(&mut page, results, trend).expect("writing to a string cannot fail");
    page
}

fn write_page<C: CheckSet>(
    page: &mut String,
    results: &Results<C>,
    trend: Option<&Trend>,
) -> std::fmt::Result {
    let headline = Headline::of(results);
    let sign = if headline.good { "✅" } else { "❌" };
    writeln!(page, "## {sign} allranks: {}\n", cell(&headline.sentence))?;
    write_counts(page, results)?;
    for issue in results.issues() {
        writeln!(page, "> **Error of the harness:** {}\n", cell(issue))?;
    }
    for absence in results.absences() {
        writeln!(page, "> {}\n", cell(&absence))?;
    }
    write_sides(page, results)?;
    if let Some(trend) = trend {
        write_trend(page, trend)?;
    }
    write_matrix(page, results)?;
    write_versions(page, results)?;
    write_failing(page, results)?;
    write_excused(page, results)?;
    write_not_run(page, results)?;
    write_observed(page, results)?;
    write_recipes(page, results)?;
    write_run(page, results)
}

fn write_counts<C: CheckSet>(page: &mut String, results: &Results<C>) -> std::fmt::Result {
    let counts = StatusCounts::of(&results.checks);
    write!(
        page,
        "{} in {}: {}.",
        counted(counts.total(), "check"),
        results.scenarios_run(),
        counts.line()
    )?;
    match &results.end {
        Some(end) => writeln!(
            page,
            " Took {}; exit code {} ({}).\n",
            lasting(end.duration_ms),
            end.exit_code,
            exit_meaning(end.exit_code)
        ),
        None => writeln!(
            page,
            " **The run was cut off**; {} planned and never recorded.\n",
            counted(results.missing(), "check")
        ),
    }
}

/// Writes what differs between the backends, versions and drivers of the run.
fn write_sides<C: CheckSet>(page: &mut String, results: &Results<C>) -> std::fmt::Result {
    let Some(sides) = Sides::of(results).filter(|sides| !sides.rows.is_empty()) else {
        return Ok(());
    };
    writeln!(page, "### What differs\n")?;
    let alike = counted(sides.alike, "requirement");
    writeln!(page, "{alike} alike on every side; these are not:\n")?;
    write!(page, "| requirement |")?;
    for name in &sides.names {
        write!(page, " {} |", cell(name))?;
    }
    writeln!(page, "\n|---|{}", "---|".repeat(sides.names.len()))?;
    for row in sides.rows.iter().take(LIST_LIMIT) {
        write!(
            page,
            "| {} {} |",
            code(row.requirement.as_str()),
            cell(&row.sentence)
        )?;
        for standing in &row.cells {
            match standing {
                Some(one) => write!(
                    page,
                    " {} {} of {} {} |",
                    one.status.symbol(),
                    grouped(one.count),
                    grouped(one.of),
                    one.status.word()
                )?,
                None => write!(page, " no check |")?,
            }
        }
        writeln!(page)?;
    }
    if let Some(more) = sides
        .rows
        .len()
        .checked_sub(LIST_LIMIT)
        .filter(|more| *more > 0)
    {
        writeln!(page, "\nand {more} more.")?;
    }
    writeln!(page)
}

/// Writes what broke, is flaky or was fixed over the runs, each with what had changed.
fn write_trend(page: &mut String, trend: &Trend) -> std::fmt::Result {
    const GROUPS: usize = 20;
    let runs = counted(trend.runs.len() as u64, "run");
    if trend.groups.is_empty() {
        return writeln!(page, "Every check is steady in {runs}.\n");
    }
    writeln!(page, "### Over {runs}\n")?;
    writeln!(
        page,
        "| what | checks | since | changed | columns | failed | runs | owners |"
    )?;
    writeln!(page, "|---|---:|---|---|---|---|---|---|")?;
    for group in trend.groups.iter().take(GROUPS) {
        let what = format!("{} {} {}", group.state.symbol(), group.label(), group.kind);
        let (since, changed) = match &group.transition {
            Some(transition) => (trend.since(transition), changed(transition)),
            None => (String::new(), String::new()),
        };
        writeln!(
            page,
            "| {} | {} | {} | {} | {} | {} | {} | {} |",
            cell(&what),
            grouped(group.checks),
            cell(&since),
            cell(&changed),
            cell(&list_text(&group.columns)),
            group.rate().text(),
            cell(&symbols(&group.marks)),
            cell(&group.owners.join(" "))
        )?;
    }
    if let Some(more) = trend
        .groups
        .len()
        .checked_sub(GROUPS)
        .filter(|more| *more > 0)
    {
        writeln!(page, "\nand {more} more.")?;
    }
    writeln!(page)
}

fn write_matrix<C: CheckSet>(page: &mut String, results: &Results<C>) -> std::fmt::Result {
    let columns = results.columns();
    if columns.is_empty() {
        return Ok(());
    }
    let by_column = StatusCounts::by_column(&results.checks);
    let all = StatusCounts::of(&results.checks);
    let shown: Vec<Status> = Status::ALL
        .iter()
        .copied()
        .filter(|status| all.count(*status) > 0)
        .collect();
    write!(page, "| column | evidence |")?;
    for status in &shown {
        write!(page, " {} {} |", status.symbol(), status.word())?;
    }
    writeln!(page, "\n|---|---|{}", "---:|".repeat(shown.len()))?;
    for (column, name) in columns.iter().zip(column_names(&columns)) {
        let evidence = evidence_word(column.evidence);
        write!(page, "| {} | {evidence} |", code(&name))?;
        for status in &shown {
            let count = by_column
                .get(column)
                .map_or(0, |counts| counts.count(*status));
            match count {
                0 => write!(page, " |")?,
                _ if status.is_failing() => write!(page, " **{}** |", grouped(count))?,
                _ => write!(page, " {} |", grouped(count))?,
            }
        }
        writeln!(page)?;
    }
    writeln!(page)
}

/// Writes what differs between versions of torch, where there are several.
fn write_versions<C: CheckSet>(page: &mut String, results: &Results<C>) -> std::fmt::Result {
    let Some(versions) = Versions::of(results) else {
        return Ok(());
    };
    let alike = counted(versions.alike, "check");
    writeln!(page, "### By version of torch\n")?;
    if versions.rows.is_empty() {
        return writeln!(page, "All {alike} stand alike with every version.\n");
    }
    writeln!(
        page,
        "{alike} stand alike with every version; these do not:\n"
    )?;
    write!(page, "| what | checks |")?;
    for torch in &versions.torch {
        write!(page, " torch {} |", cell(torch))?;
    }
    writeln!(
        page,
        " why |\n|---|---:|{}---|",
        "---|".repeat(versions.torch.len())
    )?;
    for row in versions.rows.iter().take(LIST_LIMIT) {
        write!(page, "| {} | {} |", code(&row.what), grouped(row.checks))?;
        for status in &row.cells {
            match status {
                Some(status) => write!(page, " {} {} |", status.symbol(), status.word())?,
                None => write!(page, " not there |")?,
            }
        }
        writeln!(page, " {} |", cell(&row.why))?;
    }
    write_rest(page, versions.rows.len())
}

fn write_failing<C: CheckSet>(page: &mut String, results: &Results<C>) -> std::fmt::Result {
    let checks = &results.checks;
    let failing = checks.indices_where(|check| check.status().is_failing());
    let mut failing: Vec<usize> = failing.collect();
    failing.sort_by_key(|index| checks.brief(*index).status());
    if failing.is_empty() {
        return Ok(());
    }
    writeln!(page, "### {} unexpected\n", grouped(failing.len() as u64))?;
    writeln!(page, "| | check | what |\n|---|---|---|")?;
    for index in failing.iter().take(LIST_LIMIT) {
        let check = checks.record(*index);
        let class = check
            .class
            .as_ref()
            .map_or_else(String::new, |class| format!(" ({})", code(class)));
        writeln!(
            page,
            "| {} {} | {} | {}{class} |",
            check.status().symbol(),
            check.status().word(),
            code(check.id.as_str()),
            cell(&summary_line(&check))
        )?;
    }
    write_rest(page, failing.len())
}

/// Writes known failures and waivers: one line for each reason, with its link.
fn write_excused<C: CheckSet>(page: &mut String, results: &Results<C>) -> std::fmt::Result {
    let mut reasons = BTreeMap::<(Status, String), u64>::new();
    let is_excused = |status| matches!(status, Status::KnownFailure | Status::Waived);
    let excused = |check: &Brief<'_>| is_excused(check.status());
    for check in results.checks.records_where(excused) {
        let status = check.status();
        let text = match &check.expectation {
            Some(reason) => {
                let link = reason.url.as_deref().map_or_else(String::new, link);
                format!("{}{link} ({})", cell(&reason.text), code(&reason.at))
            }
            None => cell(&summary_line(&check)),
        };
        *reasons.entry((status, text)).or_default() += 1;
    }
    if reasons.is_empty() {
        return Ok(());
    }
    let count: u64 = reasons.values().sum();
    writeln!(
        page,
        "### {} known or waived (they fail; none counts as a pass)\n",
        grouped(count)
    )?;
    for ((status, text), count) in reasons.iter().take(LIST_LIMIT) {
        let (symbol, word) = (status.symbol(), status.word());
        writeln!(page, "- {symbol} {} {word}: {text}", grouped(*count))?;
    }
    write_rest(page, reasons.len())
}

fn write_not_run<C: CheckSet>(page: &mut String, results: &Results<C>) -> std::fmt::Result {
    let mut reasons = BTreeMap::<String, u64>::new();
    let not_run = |check: &Brief<'_>| check.status() == Status::NotRun;
    for check in results.checks.records_where(not_run) {
        *reasons.entry(cell(&summary_line(&check))).or_default() += 1;
    }
    if reasons.is_empty() {
        return Ok(());
    }
    let count: u64 = reasons.values().sum();
    writeln!(page, "### {} not run\n", grouped(count))?;
    let mut reasons: Vec<(String, u64)> = reasons.into_iter().collect();
    reasons.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    for (reason, count) in reasons.iter().take(LIST_LIMIT) {
        writeln!(page, "- {} {reason}", grouped(*count))?;
    }
    write_rest(page, reasons.len())
}

/// Writes the observations: behaviour that is neither right nor wrong.
fn write_observed<C: CheckSet>(page: &mut String, results: &Results<C>) -> std::fmt::Result {
    let all = observed(&results.checks);
    if all.is_empty() {
        return Ok(());
    }
    writeln!(page, "### Observed\n")?;
    writeln!(page, "| backend | what | dtype | seen |\n|---|---|---|---|")?;
    for (subject, seen) in all.iter().take(LIST_LIMIT) {
        writeln!(
            page,
            "| {} | {} | {} | {} |",
            code(&subject.backend),
            cell(&subject.name),
            cell(&subject.dtype),
            cell(&values_with_counts(seen))
        )?;
    }
    write_rest(page, all.len())
}

/// Writes the recommended init recipes, for backends that tried several.
fn write_recipes<C: CheckSet>(page: &mut String, results: &Results<C>) -> std::fmt::Result {
    let all = advise_init(&results.checks);
    if all.is_empty() {
        return Ok(());
    }
    writeln!(page, "### Recommended init\n")?;
    writeln!(
        page,
        "| backend | torch | recipe | what fails |\n|---|---|---|---|"
    )?;
    for advice in all.iter().take(LIST_LIMIT) {
        let failing: Vec<_> = advice
            .failing
            .iter()
            .map(|(which, why)| format!("{which}: {why}"))
            .collect();
        writeln!(
            page,
            "| {} | {} | {} | {} |",
            cell(&advice.subject()),
            cell(&advice.torch),
            cell(&advice.summary_line()),
            cell(&failing.join("; "))
        )?;
    }
    write_rest(page, all.len())
}

/// Writes `… and 7 more` after a list that exceeds the limit.
fn write_rest(page: &mut String, total: usize) -> std::fmt::Result {
    if total > LIST_LIMIT {
        let more = grouped((total - LIST_LIMIT) as u64);
        writeln!(page, "\n… and {more} more in `report.html`")?;
    }
    writeln!(page)
}

fn write_run<C: CheckSet>(page: &mut String, results: &Results<C>) -> std::fmt::Result {
    let run = &results.run;
    let mut versions: Vec<String> = results
        .columns()
        .iter()
        .filter(|column| !column.torch.is_empty())
        .map(|column| format!("torch {} ({} driver)", column.torch, column.driver))
        .collect();
    versions.sort_unstable();
    versions.dedup();
    let profile = run.profile.as_ref().map_or_else(String::new, |profile| {
        format!(", profile {}", cell(profile))
    });
    writeln!(
        page,
        "<sub>allranks {}, run {}, seed {}{profile}; {}; {}</sub>",
        cell(&run.allranks),
        code(&run.name),
        run.seed,
        cell(&versions.join(", ")),
        code(&format!("allranks {}", command_line(&run.arguments)))
    )
}

/// Cleans, clips and escapes a text for a table cell or a line.
fn cell(text: &str) -> String {
    let mut escaped = String::new();
    for character in clip(&one_line(text), CELL_LIMIT).chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            // A zero-width space prevents mentions, issue numbers and addresses from becoming links.
            '@' => escaped.push_str("@\u{200b}"),
            '\\' | '`' | '*' | '_' | '{' | '}' | '[' | ']' | '(' | ')' | '#' | '|' | '!' | '~'
            | '$' => {
                escaped.push('\\');
                escaped.push(character);
            }
            other => escaped.push(other),
        }
    }
    escaped
}

/// Formats a text as code in a table cell, as HTML with entities: a code span cannot contain its own fence, and a table
/// splits at `|` even inside one.
fn code(text: &str) -> String {
    let mut escaped = String::new();
    for character in clip(&one_line(text), CELL_LIMIT).chars() {
        if character.is_ascii_alphanumeric()
            || matches!(character, '/' | '.' | '-' | ' ' | ':' | '_' | '=' | ',')
        {
            escaped.push(character);
        } else {
            let _ = write!(escaped, "&#{};", u32::from(character));
        }
    }
    format!("<code>{escaped}</code>")
}

/// Writes a link if the text is a web address, otherwise the text.
fn link(url: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-._~:/?#@%&=+".contains(c);
    let is_web = url.starts_with("https://") || url.starts_with("http://");
    if is_web && url.chars().all(plain) {
        format!(" [{}](<{url}>)", cell(url))
    } else {
        format!(" {}", cell(url))
    }
}
