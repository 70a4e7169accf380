//! Writes the details of a check that did not simply pass: labelled lines, the most important first. The console, JUnit and the
//! page show the same details.

use super::observed::pairs;
use super::repeat::{repeat_command, repro_command};
use super::results::evidence_word;
use super::text::{clip, grouped, one_line};
use allranks_model::diagnosis::{headline, rank_set};
use allranks_model::names::Rank;
use allranks_model::record::{CheckRecord, RankLine, RankRecord, RunRecord, ScenarioRecord};

/// The longest text of a line, in bytes.
const LINE_LIMIT: usize = 2_000;
/// The number of different texts of ranks that are shown.
const RANK_LIMIT: usize = 16;

/// One line of details: a label and a text, both without control characters and line breaks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DetailLine {
    /// What the line is about: `expected`, `rank 3`, `repeat`.
    pub label: String,
    /// The text of the line.
    pub text: String,
}

/// Returns the summary line of a check: its summary, or else its first difference, or else its outcome.
#[must_use]
pub fn summary_line(check: &CheckRecord) -> String {
    if !check.summary.trim().is_empty() {
        return clip(&one_line(&check.summary), LINE_LIMIT);
    }
    let text = match (&check.difference, check.ranks.first()) {
        (Some(difference), _) => format!(
            "{}[{}] on rank {} is {}, must be {}",
            difference.buffer,
            difference.index,
            difference.rank,
            difference.actual,
            difference.expected
        ),
        (None, Some(line)) => format!("{}: rank {}: {}", check.outcome, line.rank, line.text),
        (None, None) => check.outcome.to_string(),
    };
    clip(&one_line(&text), LINE_LIMIT)
}

/// Returns the details of a check. `scenario` is `None` if its record was never written.
#[must_use]
pub fn details(
    run: &RunRecord,
    scenario: Option<&ScenarioRecord>,
    check: &CheckRecord,
) -> Vec<DetailLine> {
    let mut lines = Vec::new();
    let mut line = |label: &str, text: &str| {
        let text = clip(&one_line(text), LINE_LIMIT);
        if !text.is_empty() {
            let label = label.to_owned();
            lines.push(DetailLine { label, text });
        }
    };
    line("what", &summary_line(check));
    line("class", check.class.as_deref().unwrap_or(""));
    line(
        "outcome",
        &format!("{}, verdict {}", check.outcome, check.verdict),
    );
    if let Some(difference) = &check.difference {
        line("expected", &difference.expected);
        line("actual", &difference.actual);
        line(
            "where",
            &format!(
                "{} element {} on rank {}; {} of {} elements wrong, on {}",
                difference.buffer,
                difference.index,
                difference.rank,
                grouped(difference.wrong),
                grouped(difference.of),
                rank_list(&difference.ranks)
            ),
        );
    }
    if let Some(diagnosis) = &check.diagnosis {
        line("verdict", &headline(diagnosis));
        let ranks = |ranks: &[Rank]| match ranks.is_empty() {
            true => String::new(),
            false => rank_list(ranks),
        };
        line("culprit", &ranks(&diagnosis.culprits));
        line("victims", &ranks(&diagnosis.victims));
        diagnosis.evidence.iter().for_each(|fact| line("why", fact));
        line("refuted if", &diagnosis.refuted_by);
        diagnosis
            .advice
            .iter()
            .for_each(|advice| line("try", advice));
    }
    let lines_of_ranks = by_text(&check.ranks);
    for (ranks, text) in lines_of_ranks.iter().take(RANK_LIMIT) {
        line(&rank_list(ranks), text);
    }
    if lines_of_ranks.len() > RANK_LIMIT {
        let more = lines_of_ranks.len() - RANK_LIMIT;
        line(
            "ranks",
            &format!("and {more} more things, in results.jsonl"),
        );
    }
    let seen = pairs(check).map(|(name, value)| format!("{name}: {value}"));
    line("observed", &seen.collect::<Vec<_>>().join(", "));
    if let Some(failure) = scenario.and_then(|scenario| scenario.failure.as_deref()) {
        line("world", failure);
    }
    if let Some(reason) = &check.expectation {
        line("because", &format!("{} ({})", reason.text, reason.at));
        line("issue", reason.url.as_deref().unwrap_or(""));
    }
    if let Some(scenario) = scenario {
        line("case", &scenario.title);
    }
    line("column", &column_line(check));
    line("step", &check.at);
    for rank in failing_ranks(scenario, check) {
        line("log", &rank.log);
    }
    line("repeat", &repeat_command(run, &check.id));
    line("repro", &repro_command(run, &check.id));
    lines
}

/// Describes the column of a check: `cpu/gloo, world size 4, python driver, local launcher, torch 2.11.0, host evidence`.
fn column_line(check: &CheckRecord) -> String {
    let column = &check.column;
    let torch = if column.torch.is_empty() {
        "unknown"
    } else {
        &column.torch
    };
    format!(
        "{}/{}, world size {}, {} driver, {} launcher, torch {torch}, {} evidence",
        column.platform,
        column.backend,
        column.world_size,
        column.driver,
        column.launcher,
        evidence_word(column.evidence)
    )
}

/// Returns the ranks whose logs are quoted: those that failed or reported something, or all if none did. At most four.
#[must_use]
pub fn failing_ranks<'a>(
    scenario: Option<&'a ScenarioRecord>,
    check: &CheckRecord,
) -> Vec<&'a RankRecord> {
    const LIMIT: usize = 4;
    let Some(scenario) = scenario else {
        return Vec::new();
    };
    let of_difference = check.difference.iter().flat_map(|one| &one.ranks).copied();
    let of_lines = check.ranks.iter().map(|line| line.rank);
    let mut named: Vec<Rank> = of_difference.chain(of_lines).collect();
    named.sort_unstable();
    named.dedup();
    scenario
        .ranks
        .iter()
        .filter(|rank| !rank.log.is_empty())
        .filter(|rank| named.is_empty() || named.contains(&rank.rank))
        .take(LIMIT)
        .collect()
}

/// Groups rank lines by their text. In a large world most lines are equal.
fn by_text(lines: &[RankLine]) -> Vec<(Vec<Rank>, &str)> {
    let mut lines_of_ranks: Vec<(Vec<Rank>, &str)> = Vec::new();
    for line in lines {
        match lines_of_ranks
            .iter_mut()
            .find(|(_, text)| *text == line.text)
        {
            Some((ranks, _)) => ranks.push(line.rank),
            None => lines_of_ranks.push((vec![line.rank], &line.text)),
        }
    }
    lines_of_ranks
}

/// Returns ranks as text, with ranges: `rank 3`, `ranks 0–3, 7`.
fn rank_list(ranks: &[Rank]) -> String {
    let parts: Vec<String> = rank_set::runs(ranks)
        .iter()
        .map(|(first, last)| {
            if first == last {
                first.to_string()
            } else {
                format!("{first}–{last}")
            }
        })
        .collect();
    let noun = if ranks.len() == 1 { "rank" } else { "ranks" };
    format!("{noun} {}", parts.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_listed_as_runs() {
        let list = |ranks: &[u32]| rank_list(&ranks.iter().copied().map(Rank).collect::<Vec<_>>());
        assert_eq!(list(&[3]), "rank 3");
        assert_eq!(list(&[0, 1, 2, 3, 7]), "ranks 0–3, 7");
    }
}
