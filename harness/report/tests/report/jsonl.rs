//! `results.jsonl`: what is written comes back, and a file cut anywhere is read or refused, never misread.

use std::fs;
use std::io::Write as _;

use allranks_report::Headline;
use allranks_report::jsonl::{FILE_NAME, ReadError, Writer, read};

use crate::sample::{self, Shape};

fn written(shape: Shape) -> (tempfile::TempDir, allranks_report::Results) {
    let folder = tempfile::tempdir().unwrap();
    let mut results = sample::results(shape);
    results.folder = folder.path().to_owned();
    results.sources = vec![folder.path().to_owned()];
    let mut writer = Writer::create(folder.path()).unwrap();
    for record in sample::records(&results) {
        writer.append(&record).unwrap();
    }
    (folder, results)
}

#[test]
fn what_is_written_comes_back() {
    for hostile in [false, true] {
        let (folder, results) = written(Shape {
            hostile,
            ..Shape::default()
        });
        let mut back = read(folder.path()).unwrap();
        let mut sent = results;
        for set in [&mut back, &mut sent] {
            set.checks.sort_by(|a, b| a.id.cmp(&b.id));
            set.scenarios.sort_by(|a, b| a.id.cmp(&b.id));
        }
        assert_eq!(back, sent);
    }
}

#[test]
fn a_file_cut_at_any_byte_keeps_every_whole_line() {
    let (folder, _) = written(Shape {
        columns: 1,
        checks: 2,
        hostile: true,
    });
    let path = folder.path().join(FILE_NAME);
    let bytes = fs::read(&path).unwrap();
    let first_line = bytes.iter().position(|byte| *byte == b'\n').unwrap();
    for cut in (first_line + 1..bytes.len()).step_by(97) {
        fs::write(&path, &bytes[..cut]).unwrap();
        let results = read(&path).unwrap();
        let newlines = bytes[..cut].iter().filter(|byte| **byte == b'\n').count();
        let records = 1 + results.checks.len() + results.scenarios.len();
        // A line that lacks only its newline is whole.
        assert!(
            records == newlines || records == newlines + 1,
            "cut at {cut}"
        );
        assert!(results.end.is_none());
        assert!(
            results
                .remarks
                .iter()
                .any(|remark| remark.contains("cut off"))
        );
    }
}

#[test]
fn a_broken_line_in_the_middle_is_named_and_loses_only_itself() {
    let (folder, sent) = written(Shape::default());
    let path = folder.path().join(FILE_NAME);
    let text = fs::read_to_string(&path).unwrap();
    for wrong in [
        "{\"type\":",
        "{\"format\":1,\"type\":\"check\"}",
        "\0\u{7f}",
        "{\"format\":7,\"type\":\"check\"}",
    ] {
        let broken: Vec<&str> = text
            .lines()
            .enumerate()
            .map(|(index, line)| if index == 4 { wrong } else { line })
            .collect();
        fs::write(&path, broken.join("\n") + "\n").unwrap();
        let results = read(&path).unwrap();
        assert_eq!(
            results.checks.len() + results.scenarios.len() + 1,
            sent.checks.len() + sent.scenarios.len()
        );
        assert_eq!(results.end, sent.end);
        assert!(
            matches!(results.remarks.as_slice(), [one] if one.starts_with("line 5 is no record and was left out: ")),
            "{:?}",
            results.remarks
        );
        assert!(!results.is_whole() && sent.is_whole());
        assert!(!Headline::of(&results).good);
    }
    // Without the first line it is not known whose results these are.
    fs::write(&path, format!("?{text}")).unwrap();
    let error = read(&path).unwrap_err();
    assert!(
        matches!(error, ReadError::DetailLine { line: 1, .. }),
        "{error}"
    );
}

#[test]
fn another_format_is_refused_by_name() {
    let (folder, _) = written(Shape::default());
    let path = folder.path().join(FILE_NAME);
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replace("\"format\":1", "\"format\":2")).unwrap();
    let message = read(folder.path()).unwrap_err().to_string();
    assert!(
        message.contains("format 2") && message.contains("reads format 1"),
        "{message}"
    );
}

#[test]
fn what_is_no_run_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(FILE_NAME);
    assert!(matches!(read(folder.path()), Err(ReadError::Io { .. })));
    fs::write(&path, "").unwrap();
    assert!(matches!(read(folder.path()), Err(ReadError::Order { .. })));
    let check = serde_json::to_string(&allranks_model::record::Record::Check(Box::new(
        sample::passing_check(0),
    )))
    .unwrap();
    fs::write(&path, check + "\n").unwrap();
    assert!(matches!(
        read(folder.path()),
        Err(ReadError::Order { line: 1, .. })
    ));
}

#[test]
fn results_are_never_overwritten_or_written_past_their_end() {
    let (folder, _) = written(Shape::default());
    assert!(Writer::create(folder.path()).is_err());
    let mut file = fs::OpenOptions::new()
        .append(true)
        .open(folder.path().join(FILE_NAME))
        .unwrap();
    let run = serde_json::to_string(&allranks_model::record::Record::Run(sample::run())).unwrap();
    writeln!(file, "{run}").unwrap();
    assert!(matches!(read(folder.path()), Err(ReadError::Order { .. })));
}

/// Records come as checks are decided; a reader finds each scenario's together, init first and teardown last.
#[test]
fn records_of_scenarios_side_by_side_are_put_together() {
    let mut results = sample::results(Shape::default());
    results.checks = [
        "b#0.x", "a#0.x", "c#0.x", "b#1.y", "a#init", "a#end", "b#init", "b#end",
    ]
    .iter()
    .map(|id| {
        let mut check = sample::passing_check(0);
        check.id = (*id).into();
        check.scenario = id.split('#').next().unwrap().into();
        check
    })
    .collect();
    results.arrange();
    let ids: Vec<&str> = results
        .checks
        .iter()
        .map(|check| check.id.as_str())
        .collect();
    assert_eq!(
        ids,
        [
            "a#init", "a#0.x", "a#end", "b#init", "b#0.x", "b#1.y", "b#end", "c#0.x"
        ]
    );
}
