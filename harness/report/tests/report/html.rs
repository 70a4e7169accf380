//! The page: nothing from a run becomes markup, everything from a run is there, and it stays small.

use std::collections::BTreeSet;

use allranks_model::status::Status;
use allranks_report::html::render;
use allranks_report::{Results, write_all};
use serde_json::Value;

use crate::sample::{self, HOSTILE, Shape};

const SCRIPT: &str = include_str!("../../src/assets/report.js");
const STYLE: &str = include_str!("../../src/assets/report.css");
const OPENING: &str = "<script type=\"application/json\" id=\"data\">";

/// What a browser takes as the data: all up to the first end tag of a script.
fn embedded(page: &str) -> &str {
    let from = page.find(OPENING).unwrap() + OPENING.len();
    let to = page[from..].find("</script").unwrap();
    &page[from..from + to]
}

fn data(results: &Results) -> Value {
    serde_json::from_str(embedded(&render(results))).unwrap()
}

#[test]
fn nothing_from_a_run_becomes_markup() {
    let mut results = sample::results(Shape {
        hostile: true,
        ..Shape::default()
    });
    for text in HOSTILE {
        results.run.name.push_str(text);
        results.end.as_mut().unwrap().issues.push(text.to_owned());
    }
    results.checks[0].case.0.push_str(HOSTILE[0]);
    results.checks[0].column.platform.push_str(HOSTILE[1]);
    results.checks[0].column.torch.push_str(HOSTILE[2]);
    results.checks[0].covers.push(HOSTILE[0].into());
    let page = render(&results);
    assert!(!embedded(&page).contains('<'));
    let bare = page.replace(SCRIPT, "").to_lowercase();
    assert_eq!(bare.matches("<script").count(), 2);
    assert_eq!(bare.matches("</script").count(), 2);
    for forbidden in [
        "<img", "<!--", "<![cdata", "<b>", "\u{1b}", "\u{202e}", "\u{0}",
    ] {
        assert!(
            !page.to_lowercase().contains(forbidden),
            "{forbidden:?} got through"
        );
    }
}

#[test]
fn what_is_filled_in_is_not_filled_in_again() {
    let mut results = sample::results(Shape::default());
    results.run.name = "%%data%% %%script%%".into();
    let page = render(&results);
    assert!(page.contains("<title>%%data%% %%script%% · allranks</title>"));
    assert_eq!(page.matches(OPENING).count(), 1);
}

#[test]
fn the_script_makes_no_markup_and_the_page_loads_nothing() {
    for forbidden in [
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "eval(",
        "new Function",
        "fetch(",
        "XMLHttpRequest",
        "import(",
        "new Image",
    ] {
        assert!(!SCRIPT.contains(forbidden), "{forbidden}");
    }
    let loads = STYLE.matches("url(").count();
    assert_eq!(loads, STYLE.matches("url(#hatch)").count());
    assert!(!STYLE.contains("@import"));
    let page = render(&sample::results(Shape::default()));
    assert!(page.contains("default-src 'none'"));
    for forbidden in [" src=", "<link", "<iframe", "<base"] {
        assert!(!page.contains(forbidden), "{forbidden}");
    }
}

#[test]
fn every_check_is_counted_once_and_every_failure_is_shown() {
    let results = sample::results(Shape::default());
    let data = data(&results);
    let statuses = data["statuses"].as_array().unwrap();
    let mut counts = vec![0; statuses.len()];
    for unit in data["units"].as_array().unwrap() {
        for cell in unit["cells"].as_array().unwrap() {
            for pair in cell["counts"].as_array().unwrap() {
                let status = usize::try_from(pair[0].as_u64().unwrap()).unwrap();
                counts[status] += pair[1].as_u64().unwrap();
            }
        }
    }
    assert_eq!(Value::from(counts.clone()), data["run"]["counts"]);
    assert_eq!(counts.iter().sum::<u64>(), results.checks.len() as u64);
    let detailed: BTreeSet<&str> = data["findings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|finding| finding["id"].as_str().unwrap())
        .collect();
    for check in &results.checks {
        let silent = matches!(
            check.status(),
            Status::Passed | Status::Refused | Status::NotRun
        );
        assert_eq!(
            detailed.contains(check.id.as_str()),
            !silent,
            "{}",
            check.id
        );
    }
}

#[test]
fn a_finding_leads_to_the_span_of_its_check() {
    let data = data(&sample::results(Shape::default()));
    let findings = data["findings"].as_array().unwrap();
    let hang = findings
        .iter()
        .find(|one| one["kind"].as_str().unwrap().starts_with("hang"));
    let hang = hang.unwrap();
    let place = usize::try_from(hang["scenario"].as_u64().unwrap()).unwrap();
    let scenario = &data["scenarios"][place];
    let labels = scenario["labels"].as_array().unwrap();
    let label = labels
        .iter()
        .position(|label| *label == hang["span"])
        .unwrap();
    let never_ended = scenario["ranks"].as_array().unwrap().iter().any(|rank| {
        let spans = rank["spans"].as_array().unwrap().iter();
        spans
            .into_iter()
            .any(|span| span[0] == label && span[2] == -1)
    });
    assert!(never_ended);
}

#[test]
fn twenty_thousand_checks_in_forty_columns_make_a_small_page() {
    let mut results = sample::results(Shape {
        columns: 40,
        checks: 42,
        hostile: false,
    });
    assert!(results.checks.len() > 20_000 && results.columns().len() == 40);
    let page = render(&results);
    assert!(page.len() < 3 << 20, "{} bytes", page.len());
    // The same with everything failing: bounded too, and it says what it left out.
    for check in &mut results.checks {
        check.verdict = allranks_model::outcome::Verdict::Regression;
    }
    let page = render(&results);
    assert!(page.len() < 8 << 20, "{} bytes", page.len());
    assert_eq!(data(&results)["omitted"], results.checks.len() - 3_000);
}

#[test]
fn all_files_are_written_whole_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let results = sample::results(Shape::default());
    let paths = write_all(folder.path(), &results).unwrap();
    // Again, over the old ones.
    write_all(folder.path(), &results).unwrap();
    let mut found: Vec<_> = std::fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    found.sort();
    let mut wanted = paths;
    wanted.sort();
    assert_eq!(found, wanted);
    let error = write_all(&folder.path().join("absent"), &results).unwrap_err();
    assert!(error.to_string().contains("absent"), "{error}");
}
