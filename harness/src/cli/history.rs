//! `allranks history`: stores runs in one SQLite file and shows the trend of each check; `report --history` shows the same on
//! the page.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use super::history_arguments::{AddArguments, HistoryArguments, HistoryCommand, ReportHistory};
use super::read_run::read_packed;
use super::{Exit, Failure};
use allranks_history::{Added, Identity, Store, StoreError, Stored};
use allranks_report::check_set::CheckSet;
use allranks_report::facts::facts;
use allranks_report::owners::Owners;
use allranks_report::past_runs::Facts;
use allranks_report::text::counted;
use allranks_report::trend::{Trend, TrendQuery};
use allranks_report::{PackedResults, Results};

/// Shows the stored runs, or stores a run.
pub fn history(arguments: &HistoryArguments, out: &mut impl Write) -> Result<Exit, Failure> {
    match &arguments.command {
        Some(HistoryCommand::Add(arguments)) => add(arguments, out),
        None => show(arguments, out),
    }
}

fn add(arguments: &AddArguments, out: &mut impl Write) -> Result<Exit, Failure> {
    let runs: Vec<(PackedResults, Facts)> = arguments
        .runs
        .iter()
        .map(|run| {
            let results = read_packed(run)?;
            let facts = facts_of(&results, arguments.environment.as_deref())?;
            Ok((results, facts))
        })
        .collect::<Result<_, Failure>>()?;
    if let Some(folder) = arguments
        .db
        .parent()
        .filter(|one| !one.as_os_str().is_empty())
    {
        fs::create_dir_all(folder)?;
    }
    let mut store = Store::create(&arguments.db).map_err(store_failure)?;
    for (results, facts) in &runs {
        let added = store
            .add(results, facts, &arguments.pipeline)
            .map_err(store_failure)?;
        let name = &results.run.name;
        let missing = results.missing();
        let lacks = match (results.is_whole(), missing) {
            (true, 0) => String::new(),
            (_, 0) => "; it is incomplete".to_owned(),
            (_, missing) => format!("; {} left no record", counted(missing, "planned check")),
        };
        let checks = counted(results.checks.count() as u64, "check");
        match added {
            Added::New => writeln!(out, "stored {name}: {checks}{lacks}")?,
            Added::Continued => writeln!(
                out,
                "stored {name} again, because it has more results now: {checks}{lacks}"
            )?,
            Added::Already => writeln!(out, "{name} is stored already")?,
        }
    }
    Ok(Exit::AsExpected)
}

fn show(arguments: &HistoryArguments, out: &mut impl Write) -> Result<Exit, Failure> {
    let store = open(&arguments.db)?;
    let query = TrendQuery {
        words: arguments.filter.clone(),
        with_steady: !arguments.filter.is_empty(),
        owners: owners(arguments.owners.as_deref())?,
    };
    let pipelines = match &arguments.pipeline {
        Some(name) => vec![name.clone()],
        None => store.pipelines().map_err(store_failure)?,
    };
    let mut trends = Vec::new();
    for pipeline in &pipelines {
        let past_runs = store
            .past_runs(pipeline, arguments.last, None)
            .map_err(store_failure)?;
        if !past_runs.runs.is_empty() {
            trends.push(Trend::of(&past_runs, &query));
        }
    }
    if trends.is_empty() {
        return Err(Failure::Nothing(
            format!("{} has no such run", arguments.db.display()),
            "store one: allranks history add RUN".to_owned(),
        ));
    }
    let has_checks = trends.iter().any(|trend| !trend.states.is_empty());
    if arguments.json {
        let whole = serde_json::json!({"format": 1, "pipelines": trends});
        serde_json::to_writer_pretty(&mut *out, &whole).map_err(io::Error::from)?;
        writeln!(out)?;
    } else if has_checks {
        for (index, trend) in trends.iter().enumerate() {
            if index > 0 {
                writeln!(out)?;
            }
            trend.write(out, query.with_steady)?;
        }
    }
    match has_checks {
        true => Ok(Exit::AsExpected),
        false => Err(Failure::Nothing(
            "no check matches".to_owned(),
            "each word must be in a check's id, its column or its requirements".to_owned(),
        )),
    }
}

/// Returns the trend that ends with a run; `None` if no file of stored runs is given.
pub fn trend<C: CheckSet>(
    arguments: &ReportHistory,
    results: &Results<C>,
) -> Result<Option<Trend>, Failure> {
    let Some(file) = &arguments.history else {
        return Ok(None);
    };
    let store = open(file)?;
    let stored = match store.find(results).map_err(store_failure)? {
        Some(stored) => stored,
        None => {
            let facts = facts_of(results, None)?;
            Stored {
                identity: Identity::of(results, &facts),
                pipeline: "nightly".to_owned(),
                facts,
            }
        }
    };
    let pipeline = arguments.pipeline.as_ref().unwrap_or(&stored.pipeline);
    let before = Some((&stored.identity, results.run.started));
    let mut past_runs = store
        .past_runs(pipeline, arguments.last.saturating_sub(1), before)
        .map_err(store_failure)?;
    past_runs.push(results, stored.facts);
    let query = TrendQuery {
        owners: owners(arguments.owners.as_deref())?,
        ..TrendQuery::default()
    };
    Ok(Some(Trend::of(&past_runs, &query)))
}

fn open(file: &Path) -> Result<Store, Failure> {
    if !file.is_file() {
        return Err(Failure::Usage(
            format!("there is no file {}", file.display()),
            "`allranks history add RUN --db FILE` makes it".to_owned(),
        ));
    }
    Store::open(file).map_err(store_failure)
}

/// Returns the facts of a run's environment, from a file if one is given.
fn facts_of<C>(results: &Results<C>, file: Option<&Path>) -> Result<Facts, Failure> {
    let own = results.folder.join("environment.json");
    let path = file.unwrap_or(&own);
    let text = match fs::read(path) {
        Ok(text) => text,
        Err(error) if file.is_none() && error.kind() == io::ErrorKind::NotFound => {
            return Ok(facts(&results.run, None));
        }
        Err(error) => {
            let error = io::Error::new(error.kind(), format!("{}: {error}", path.display()));
            return Err(error.into());
        }
    };
    let environment = serde_json::from_slice(&text).map_err(|error| {
        Failure::Usage(
            format!("{}: {error}", path.display()),
            "name an environment.json that `allranks run` wrote".to_owned(),
        )
    })?;
    Ok(facts(&results.run, Some(&environment)))
}

fn owners(file: Option<&Path>) -> Result<Owners, Failure> {
    let Some(file) = file else {
        return Ok(Owners::default());
    };
    let text = fs::read_to_string(file)
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", file.display())))?;
    Owners::parse(&text).map_err(|error| {
        Failure::Usage(
            format!("{}: {error}", file.display()),
            "write `PATTERN OWNER...`, such as `collectives/ @our-team`".to_owned(),
        )
    })
}

fn store_failure(error: StoreError) -> Failure {
    let text = error.to_string();
    match error {
        StoreError::Foreign(_) => Failure::Usage(text, "give another file with --db".to_owned()),
        StoreError::Newer { .. } => {
            Failure::Usage(text, "read it with the allranks that wrote it".to_owned())
        }
        StoreError::Labelled { .. } => Failure::Usage(
            text,
            "add each of its runs by itself, with a --pipeline of its own".to_owned(),
        ),
        StoreError::Edited { .. } => Failure::Usage(
            text,
            "results of a run do not change; store judged or merged ones as runs of their own"
                .to_owned(),
        ),
        StoreError::Sqlite { .. } | StoreError::Broken { .. } => Failure::Harness(text),
    }
}
