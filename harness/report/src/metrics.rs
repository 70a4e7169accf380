//! Renders `metrics.txt`: the numbers of a run in the text format of OpenMetrics, for GitLab's metrics reports and for Prometheus
//! (<https://prometheus.io/docs/specs/om/open_metrics_spec/>).

use std::fmt::Write;

use super::check_set::CheckSet;
use super::results::Results;
use super::status_counts::StatusCounts;
use super::text::one_line;
use allranks_model::status::Status;

/// Renders the file.
#[must_use]
pub fn render<C: CheckSet>(results: &Results<C>) -> String {
    let mut text = String::new();
    write_metrics(&mut text, results).expect("writing to a string cannot fail");
    text
}

fn write_metrics<C: CheckSet>(text: &mut String, results: &Results<C>) -> std::fmt::Result {
    let tallies = StatusCounts::by_column(&results.checks);
    writeln!(text, "# TYPE allranks_checks gauge")?;
    let columns = results.columns();
    for (column, name) in columns.iter().zip(super::column_names(&columns)) {
        let Some(tally) = tallies.get(column) else {
            continue;
        };
        for status in Status::ALL.iter().copied() {
            let count = tally.count(status);
            let (column, status) = (label(&name), status.word());
            writeln!(
                text,
                "allranks_checks{{column=\"{column}\",status=\"{status}\"}} {count}"
            )?;
        }
    }
    writeln!(text, "# TYPE allranks_checks_without_record gauge")?;
    writeln!(text, "allranks_checks_without_record {}", results.missing())?;
    if let Some(end) = &results.end {
        writeln!(text, "# TYPE allranks_exit_code gauge")?;
        writeln!(text, "allranks_exit_code {}", end.exit_code)?;
        writeln!(text, "# TYPE allranks_duration_seconds gauge")?;
        let (seconds, rest) = (end.duration_ms / 1_000, end.duration_ms % 1_000);
        writeln!(text, "allranks_duration_seconds {seconds}.{rest:03}")?;
    }
    writeln!(text, "# EOF")
}

/// Escapes quotes and backslashes in the value of a label.
fn label(text: &str) -> String {
    one_line(text).replace('\\', "\\\\").replace('"', "\\\"")
}
