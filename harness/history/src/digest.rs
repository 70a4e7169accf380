//! The digest of a run's records, by which a stored run is found again.

use allranks_model::record::Record;
use allranks_report::Results;
use allranks_report::check_set::CheckSet;
use sha2::{Digest, Sha256};

/// Returns the SHA-256 over the lines of a run's records in their alphabetical order, whatever the order in which they were
/// written.
pub(crate) fn digest<C: CheckSet>(results: &Results<C>) -> String {
    let checks = &results.checks;
    let line = |index: usize| {
        let check = checks.record(index).into_owned();
        json(&Record::Check(Box::new(check)))
    };
    // Only the beginning of each line is held for sorting: whole lines take half a kilobyte for each check.
    let begins = checks.records().enumerate();
    let begins =
        begins.map(|(index, check)| (format!("{},{}", check.format, json(&check.id)), index));
    let mut begins: Vec<(String, usize)> = begins.collect();
    begins.sort_unstable_by(|(one, at), (other, then)| {
        let in_full = || line(*at).cmp(&line(*then));
        one.cmp(other).then_with(in_full)
    });
    // `check` comes before the other types of records.
    let end = results.end.clone().map(Record::End);
    let scenarios = results.scenarios.iter().cloned();
    let scenarios = scenarios.map(|one| Record::Scenario(Box::new(one)));
    let others = scenarios.chain([Record::Run(results.run.clone())]);
    let mut others: Vec<String> = others.chain(end).map(|record| json(&record)).collect();
    others.sort_unstable();
    let lines = begins.into_iter().map(|(_, index)| line(index));
    let mut hash = Sha256::new();
    for line in lines.chain(others) {
        hash.update(line);
        hash.update("\n");
    }
    format!("{:x}", hash.finalize())
}

/// Returns a value as one line of JSON.
///
/// # Panics
/// The value has a map whose keys are not strings. No record and no fact has one.
pub(crate) fn json(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).expect("records and facts are JSON")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Computes the digest as the first version did.
    fn of_sorted_lines(results: &Results) -> String {
        let mut lines: Vec<String> = results.records().map(|record| json(&record)).collect();
        lines.sort_unstable();
        let mut hash = Sha256::new();
        lines.iter().for_each(|line| {
            hash.update(line);
            hash.update("\n");
        });
        format!("{:x}", hash.finalize())
    }

    fn parsed(line: serde_json::Value) -> Record {
        serde_json::from_value(line).unwrap()
    }

    #[test]
    fn lines_count_in_their_order_also_where_ids_begin_alike() {
        let run = serde_json::json!({
            "type": "run", "format": 1, "allranks": "0.1.0", "name": "r", "started": 1, "seed": 1, "profile": null,
            "arguments": [], "planned": {"scenarios": 1, "checks": 6},
        });
        let Record::Run(run) = parsed(run) else {
            unreachable!("it is the record of a run")
        };
        let mut results = Results::new(".".into(), run);
        let column = serde_json::json!({
            "platform": "cpu", "backend": "gloo", "world_size": 2, "driver": "python", "launcher": "local",
            "evidence": "host", "torch": "2.11.0",
        });
        // One id begins with another, has what is escaped, or is there twice with other results.
        for (id, time) in [
            ("b", 1),
            ("b#x", 2),
            ("b!", 3),
            ("b\"", 4),
            ("a\u{1}", 5),
            ("b", 0),
        ] {
            results.push(parsed(serde_json::json!({
                "type": "check", "format": 1, "id": id, "scenario": "b", "case": "b", "column": column, "covers": [],
                "params": {}, "at": "b.yaml:1", "outcome": "pass", "verdict": "expected", "checked": [1],
                "duration_us": time,
            })));
        }
        results.push(parsed(serde_json::json!({
            "type": "scenario", "format": 1, "id": "b", "case": "b", "title": "t", "column": column, "trouble": null,
            "start_ms": 0, "duration_ms": 1, "worlds": 1, "ranks": [],
        })));
        results.push(parsed(serde_json::json!({
            "type": "end", "format": 1, "duration_ms": 1, "verdicts": {}, "outcomes": {}, "troubles": [], "exit_code": 0,
        })));
        assert_eq!(digest(&results), of_sorted_lines(&results));
        let mut other = results.clone();
        other.checks.reverse();
        assert_eq!(digest(&other), digest(&results));
        other.checks[2].duration_us += 1;
        assert_ne!(digest(&other), digest(&results));
    }
}
