//! `allranks expectations update`: writes an expectation file with an entry for each unexpected failure of a run.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Write};
use std::path::Path;

use super::expectations_arguments::{ExpectationsArguments, ExpectationsCommand, UpdateArguments};
use super::judging::{for_each_plan, without_round};
use super::read_run::read;
use super::{Exit, Failure};
use crate::suite::{Suite, SuiteError};
use allranks_model::outcome::Verdict;
use allranks_model::record::CheckRecord;
use allranks_model::version::torch_version;
use allranks_report::text::{counted, one_line};
use allranks_report::{Results, merge};
use allranks_suite::expectation::{
    CheckAtPoint, Examples, Expectations, NewEntry, Point, Proposal, Remark, propose,
};
use allranks_suite::plan::Plan;
use allranks_yaml::Source;

/// The names of a platform and its backend.
type TestedBackend = (String, String);

/// Runs a subcommand of `expectations`.
pub fn expectations(
    arguments: &ExpectationsArguments,
    out: &mut impl Write,
) -> Result<Exit, Failure> {
    match &arguments.command {
        ExpectationsCommand::Update(arguments) => update(arguments, out),
    }
}

/// Writes the entries for the unexpected failures of a run.
fn update(arguments: &UpdateArguments, out: &mut impl Write) -> Result<Exit, Failure> {
    let run = read(&arguments.run)?;
    let scratch = tempfile::tempdir()?;
    let suite = Suite::load(&arguments.suite.request(), scratch.path())?;
    let old = arguments.out.as_deref().map(old_text).transpose()?;
    let mut run = merge::merge(vec![run], &arguments.run)
        .map_err(|error| Failure::Harness(format!("the results are inconsistent: {error}")))?;
    let proposal = proposal(&mut run, &suite);
    let count: u64 = proposal.entries.iter().map(|entry| entry.of.count).sum();
    let entries = match proposal.entries.len() {
        1 => "1 new entry".to_owned(),
        several => format!("{several} new entries"),
    };
    let file_text = text(&proposal, &run.run.name);
    match (&arguments.out, proposal.entries.is_empty()) {
        (None, _) => write!(out, "{file_text}")?,
        (Some(_), true) => {
            writeln!(out, "no new entry")?;
            write_remarks(out, &proposal)?;
        }
        (Some(file), false) => {
            let whole = appended(
                old.unwrap_or_default(),
                &file_text,
                proposal.entries.len(),
                file,
            )?;
            fs::write(file, whole).map_err(|error| {
                io::Error::new(error.kind(), format!("{}: {error}", file.display()))
            })?;
            let file = file.display();
            let results = counted(count, "unexpected result");
            writeln!(
                out,
                "{file}: {entries} for {results}; write the reason and the url of each"
            )?;
            write_remarks(out, &proposal)?;
        }
    }
    Ok(match proposal.remarks.is_empty() {
        true => Exit::AsExpected,
        false => Exit::Unexpected,
    })
}

/// Returns the text of the file to add entries to; empty if there is none.
///
/// # Errors
/// The file is invalid, for example because an entry has no reason yet. It must be corrected first.
fn old_text(file: &Path) -> Result<String, Failure> {
    if !file.exists() {
        return Ok(String::new());
    }
    let parsed = Source::read(file).and_then(Expectations::parse);
    parsed.map_err(|problems| Failure::Suite(SuiteError::Invalid(problems)))?;
    Ok(fs::read_to_string(file)?)
}

/// Returns the old text of a file with the new entries at its end.
///
/// # Errors
/// The list is written in a form to which no entry can be added.
fn appended(mut old: String, new: &str, count: usize, file: &Path) -> Result<String, Failure> {
    let entries =
        |text: &str| serde_yaml::from_str::<Vec<serde_yaml::Value>>(text).map(|list| list.len());
    let there = entries(&old).unwrap_or(0);
    if there == 0 {
        // An empty list may be written as `[]`, or be a file of comments only.
        old = old
            .lines()
            .filter(|line| line.starts_with('#'))
            .map(|line| format!("{line}\n"))
            .collect();
    }
    if !old.is_empty() {
        old = format!("{}\n\n", old.trim_end());
    }
    old.push_str(new);
    match entries(&old) {
        Ok(all) if all == there + count => Ok(old),
        _ => Err(Failure::Usage(
            format!("cannot add entries to {}", file.display()),
            "write its list with a line `- match: ...` for each entry, or name a new file"
                .to_owned(),
        )),
    }
}

/// Returns the entries for the results of all versions of torch.
fn proposal(run: &mut Results, suite: &Suite) -> Proposal {
    let mut found = BTreeMap::<TestedBackend, Vec<(String, Proposal)>>::new();
    let mut unplanned = Examples::default();
    for_each_plan(run, suite, |torch, plan, checks| {
        let mut judged = Vec::with_capacity(checks.len());
        for (record, point) in checks {
            let is_known =
                point.is_some_and(|point| suite.expectations.judge_again(record, &point));
            match point.filter(|_| is_known) {
                Some(point) => judged.push((&*record, point)),
                None if record.verdict == Verdict::Regression => unplanned.add(record),
                None => {}
            }
        }
        let backends: BTreeSet<TestedBackend> = judged
            .iter()
            .map(|(record, _)| tested_backend(record))
            .collect();
        for tested in backends {
            let proposal = proposal_for(&tested, torch, plan, suite, &judged);
            found
                .entry(tested)
                .or_default()
                .push((torch.to_owned(), proposal));
        }
    });
    let mut whole = Proposal::default();
    for versions in found.into_values() {
        merge_versions(&mut whole, versions);
    }
    if unplanned.count > 0 {
        whole.remarks.insert(Remark::Unplanned, unplanned);
    }
    whole
}

fn tested_backend(record: &CheckRecord) -> TestedBackend {
    let column = &record.column;
    (column.platform.clone(), column.backend.clone())
}

fn proposal_for(
    tested: &TestedBackend,
    torch: &str,
    plan: &Plan,
    suite: &Suite,
    judged: &[(&CheckRecord, Point<'_>)],
) -> Proposal {
    let seen: Vec<CheckAtPoint<'_>> = judged
        .iter()
        .filter(|(record, _)| tested_backend(record) == *tested)
        .map(|(record, point)| {
            let id = without_round(record).unwrap_or(record.id.as_str());
            CheckAtPoint {
                point: *point,
                record,
                id,
                is_init: id.ends_with("#init"),
            }
        })
        .collect();
    let scenarios = plan.scenarios.iter();
    let here = scenarios.filter(|scenario| {
        (scenario.platform.name.as_str(), scenario.backend.as_str())
            == (tested.0.as_str(), tested.1.as_str())
    });
    let points = here.flat_map(|scenario| Point::all_of(scenario, torch));
    propose(&suite.expectations, points, &seen)
}

/// Adds the entries for one backend from each version of torch. An entry that not all versions need is limited to its version.
fn merge_versions(whole: &mut Proposal, versions: Vec<(String, Proposal)>) {
    let known = versions
        .iter()
        .filter(|(torch, _)| torch_version(torch).is_some());
    let count = known.count();
    let mut entries: Vec<(NewEntry, Vec<String>)> = Vec::new();
    for (torch, proposal) in versions {
        for (remark, of) in proposal.remarks {
            whole.remarks.entry(remark).or_default().take(&of);
        }
        let release = torch_version(&torch).map(|version| version.to_string());
        for entry in proposal.entries {
            let like = entries
                .iter_mut()
                .find(|(known, _)| is_same_entry(known, &entry));
            match like {
                Some((known, releases)) => {
                    known.of.take(&entry.of);
                    releases.extend(release.clone());
                }
                None => entries.push((entry, release.clone().into_iter().collect())),
            }
        }
    }
    for (entry, releases) in entries {
        if count < 2 || releases.len() == count {
            whole.entries.push(entry);
            continue;
        }
        let releases: BTreeSet<String> = releases.into_iter().collect();
        for release in releases {
            whole.entries.push(NewEntry {
                torch: Some(release),
                ..entry.clone()
            });
        }
    }
}

/// Returns true if two entries match and expect the same.
fn is_same_entry(one: &NewEntry, other: &NewEntry) -> bool {
    let bare = |entry: &NewEntry| NewEntry {
        of: Examples::default(),
        ..entry.clone()
    };
    bare(one) == bare(other)
}

/// Returns the text of an expectation file with the proposed entries.
fn text(proposal: &Proposal, run: &str) -> String {
    let mut text = format!(
        "# Unexpected failures of run {}. Fill in the reason and the url of each entry; until then the file is refused.\n",
        one_line(run)
    );
    for line in remarks(proposal) {
        text += &format!("# {line}\n");
    }
    if proposal.entries.is_empty() {
        text += "[]\n";
    }
    for entry in &proposal.entries {
        text += &format!("\n{entry}");
    }
    text
}

fn write_remarks(out: &mut impl Write, proposal: &Proposal) -> io::Result<()> {
    for line in remarks(proposal) {
        writeln!(out, "{line}")?;
    }
    Ok(())
}

fn remarks(proposal: &Proposal) -> impl Iterator<Item = String> {
    proposal.remarks.iter().map(|(remark, of)| {
        let (count, id, summary) = (
            counted(of.count, "result"),
            one_line(&of.id),
            one_line(&of.summary),
        );
        let colon = if summary.is_empty() { "" } else { ": " };
        format!("no entry for {count}: {remark}; such as {id}{colon}{summary}")
    })
}
