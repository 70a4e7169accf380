//! The data of the page's timelines: the spans of the ranks of each scenario.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::index::Index;
use crate::text::{clean, clip, one_line};
use allranks_model::record::ScenarioRecord;

/// The number of spans that are drawn, over all scenarios. Scenarios with detailed checks come first.
const SPANS_LIMIT: usize = 60_000;

/// A scenario, with the spans of its ranks.
#[derive(Debug, Serialize)]
pub(super) struct Scenario {
    id: String,
    case: usize,
    column: usize,
    failure: Option<String>,
    start_ms: u64,
    duration_ms: u64,
    worlds: u32,
    /// The labels of spans, each once.
    labels: Vec<String>,
    ranks: Vec<RankInfo>,
    /// True if its spans are left out because of the limit.
    omitted: bool,
}

#[derive(Debug, Serialize)]
struct RankInfo {
    rank: u32,
    pid: u32,
    end: String,
    log: String,
    /// Each span: index of its label, start and end in microseconds (−1 if it never ended), and true if it ended without an
    /// error.
    spans: Vec<(usize, u64, i64, u8)>,
}

impl Scenario {
    /// Makes the entry of a scenario. `case` and `column` are indices; the spans are left out unless `drawn`.
    pub(super) fn of(
        scenario: &ScenarioRecord,
        id: String,
        case: usize,
        column: usize,
        drawn: bool,
    ) -> Self {
        let mut labels = Index::new();
        let ranks = scenario.ranks.iter().map(|rank| {
            let spans = rank.spans.iter().filter(|_| drawn);
            RankInfo {
                rank: rank.rank.0,
                pid: rank.pid,
                end: clip(&one_line(&rank.end), 200),
                log: clean(&rank.log).replace('\n', ""),
                spans: spans
                    .map(|span| {
                        let end = span
                            .end_us
                            .map(|end| i64::try_from(end).unwrap_or(i64::MAX));
                        (
                            labels.of(&one_line(&span.label)),
                            span.start_us,
                            end.unwrap_or(-1),
                            u8::from(span.ok),
                        )
                    })
                    .collect(),
            }
        });
        let ranks = ranks.collect();
        Self {
            id,
            case,
            column,
            failure: scenario
                .failure
                .as_deref()
                .map(|text| clip(&one_line(text), 2_000)),
            start_ms: scenario.start_ms,
            duration_ms: scenario.duration_ms,
            worlds: scenario.worlds,
            labels: labels.into_values(),
            ranks,
            omitted: !drawn,
        }
    }
}

/// Returns the indices of the scenarios that are drawn within the limit; those with detailed checks come first.
pub(super) fn drawn(
    scenarios: &[ScenarioRecord],
    with_findings: &BTreeSet<usize>,
) -> BTreeSet<usize> {
    let mut order: Vec<usize> = (0..scenarios.len()).collect();
    order.sort_by_key(|index| !with_findings.contains(index));
    let mut room = SPANS_LIMIT;
    let mut drawn = BTreeSet::new();
    for index in order {
        let ranks = scenarios[index].ranks.iter();
        let spans: usize = ranks.map(|rank| rank.spans.len()).sum();
        if spans <= room {
            room -= spans;
            drawn.insert(index);
        }
    }
    drawn
}
