//! Opens the SQLite file of stored runs, adds runs to it and reads them.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use allranks_model::evidence::Evidence;
use allranks_model::names::{RequirementId, WorldSize};
use allranks_model::record::{Column, Record};
use allranks_model::status::Status;
use allranks_report::Results;
use allranks_report::check_set::CheckSet;
use allranks_report::past_runs::{Facts, PastRun, PastRuns, kind_of, series_of};
use rusqlite::{
    Connection, OpenFlags, OptionalExtension, Transaction, TransactionBehavior, params,
};
use sha2::{Digest, Sha256};

use crate::digest::{digest, json};
use crate::{schema, status};

/// How long a process waits for others that add runs at the same time.
const PATIENCE: Duration = Duration::from_secs(600);

/// Why the file could not be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// SQLite failed.
    #[error("{}: {source}", .path.display())]
    Sqlite {
        /// The path of the history file.
        path: PathBuf,
        /// The error of SQLite.
        source: rusqlite::Error,
    },
    /// The file is a database of another program, or no database.
    #[error("{} is no history of allranks", .0.display())]
    Foreign(PathBuf),
    /// A newer allranks made the file.
    #[error("{} has version {found} of the format, and this allranks reads version {}", .path.display(), schema::VERSION)]
    Newer {
        /// The path of the history file.
        path: PathBuf,
        /// The version of its schema.
        found: i32,
    },
    /// The run is stored already, with other results.
    #[error("run {name} is stored already, whole and with other results")]
    Edited {
        /// Name of the run.
        name: String,
    },
    /// The columns of the run have labels, so it may have several results of one check. It cannot be stored as one run.
    #[error("run {name} is a merge of `{label}` with others")]
    Labelled {
        /// Name of the run.
        name: String,
        /// A label of its columns.
        label: String,
    },
    /// The file holds a value that allranks does not write.
    #[error("{}: {what}", .path.display())]
    Broken {
        /// The path of the history file.
        path: PathBuf,
        /// The stored value and what is wrong with it.
        what: String,
    },
}

/// The result of [`Store::add`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Added {
    /// The run is new.
    New,
    /// The same run was stored already; the file is unchanged.
    Already,
    /// A part of the run was stored, and is replaced by more of it.
    Continued,
}

/// The identity of a run: a SHA-256, in hexadecimal, of its record (name, start, seed, arguments) and its machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity(String);

impl Identity {
    /// Returns the identity of a run with this environment.
    #[must_use]
    pub fn of<C>(results: &Results<C>, facts: &Facts) -> Self {
        let mut hash = Sha256::new();
        hash.update(json(&Record::Run(results.run.clone())));
        if let Some(machine) = facts.get("machine") {
            hash.update(machine);
        }
        Self(format!("{:x}", hash.finalize()))
    }
}

/// One stored run, without its results.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// The identity of the run.
    pub identity: Identity,
    /// The pipeline that it is stored in.
    pub pipeline: String,
    /// The environment of the run: versions, devices, variables.
    pub facts: Facts,
}

/// A file of stored runs. Several processes may add to it at once; each run is there as a whole or not at all.
#[derive(Debug)]
pub struct Store {
    connection: Connection,
    path: PathBuf,
}

impl Store {
    /// Opens a file to add runs to. A missing file is made, and an empty one is treated as missing.
    ///
    /// # Errors
    /// The file is not a history file, or cannot be opened.
    pub fn create(path: &Path) -> Result<Self, StoreError> {
        Self::connect(path, OpenFlags::SQLITE_OPEN_CREATE)
    }

    /// Opens an existing file.
    ///
    /// # Errors
    /// The file does not exist, is not a history file, or cannot be opened.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        Self::connect(path, OpenFlags::empty())
    }

    fn connect(path: &Path, flags: OpenFlags) -> Result<Self, StoreError> {
        let flags = flags | OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let failed = |source| StoreError::Sqlite {
            path: path.to_owned(),
            source,
        };
        let mut connection = Connection::open_with_flags(path, flags).map_err(failed)?;
        connection.busy_timeout(PATIENCE).map_err(failed)?;
        connection
            .pragma_update(None, "foreign_keys", true)
            .map_err(failed)?;
        let number = |connection: &Connection, name: &str| -> rusqlite::Result<i32> {
            connection.pragma_query_value(None, name, |row| row.get(0))
        };
        let application = match number(&connection, "application_id") {
            Err(error) if error.sqlite_error_code() == Some(rusqlite::ErrorCode::NotADatabase) => {
                return Err(StoreError::Foreign(path.to_owned()));
            }
            read => read.map_err(failed)?,
        };
        if application != schema::APPLICATION {
            // If several processes find the file empty, the first one makes the tables.
            let transaction = connection
                .transaction_with_behavior(TransactionBehavior::Immediate)
                .map_err(failed)?;
            if number(&transaction, "application_id").map_err(failed)? != schema::APPLICATION {
                if has_tables(&transaction).map_err(failed)? {
                    return Err(StoreError::Foreign(path.to_owned()));
                }
                make_tables(&transaction).map_err(failed)?;
            }
            transaction.commit().map_err(failed)?;
        }
        let found = number(&connection, "user_version").map_err(failed)?;
        if found > schema::VERSION {
            let path = path.to_owned();
            return Err(StoreError::Newer { path, found });
        }
        Ok(Self {
            connection,
            path: path.to_owned(),
        })
    }

    /// Stores a run with its environment in a pipeline. A stored run is not stored again; one that was cut off is replaced if it
    /// has more results now.
    ///
    /// # Errors
    /// The run is stored whole with other results, its columns have labels, or the file cannot be written.
    pub fn add<C: CheckSet>(
        &mut self,
        results: &Results<C>,
        facts: &Facts,
        pipeline: &str,
    ) -> Result<Added, StoreError> {
        let labels = results.checks.briefs().map(|check| &check.column.label);
        if let Some(label) = labels.into_iter().find(|label| !label.is_empty()) {
            return Err(StoreError::Labelled {
                name: results.run.name.clone(),
                label: label.clone(),
            });
        }
        let path = self.path.clone();
        let failed = |source| StoreError::Sqlite {
            path: path.clone(),
            source,
        };
        let identity = Identity::of(results, facts);
        let digest = digest(results);
        let past_run = PastRun::of(results, facts.clone());
        let transaction = self
            .connection
            .transaction_with_behavior(TransactionBehavior::Immediate)
            .map_err(failed)?;
        let there = transaction
            .query_row(
                "select id, digest, is_whole, missing from run where identity = ?",
                [&identity.0],
                |row| {
                    Ok((
                        row.get::<_, i64>(0)?,
                        row.get::<_, String>(1)?,
                        row.get::<_, bool>(2)?,
                        row.get::<_, i64>(3)?,
                    ))
                },
            )
            .optional()
            .map_err(failed)?;
        let added = match there {
            None => Added::New,
            Some((_, stored, ..)) if stored == digest => return Ok(Added::Already),
            Some((id, _, false, missing)) if past_run.missing <= unsigned(missing) => {
                transaction
                    .execute("delete from run where id = ?", [id])
                    .map_err(failed)?;
                Added::Continued
            }
            // An older copy of what is stored.
            Some((_, _, false, _)) => return Ok(Added::Already),
            Some(_) => {
                return Err(StoreError::Edited {
                    name: past_run.name,
                });
            }
        };
        insert(
            &transaction,
            results,
            &past_run,
            &identity,
            &digest,
            pipeline,
        )
        .map_err(failed)?;
        transaction.commit().map_err(failed)?;
        Ok(added)
    }

    /// Returns the names of the pipelines that have runs, in order.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn pipelines(&self) -> Result<Vec<String>, StoreError> {
        let read = || -> rusqlite::Result<Vec<String>> {
            let mut statement = self
                .connection
                .prepare("select distinct pipeline from run order by 1")?;
            statement.query_map([], |row| row.get(0))?.collect()
        };
        read().map_err(|source| self.failed(source))
    }

    /// Returns what is stored of a run with these results; `None` if it is not stored. It is found by its results, so also where
    /// its environment lies elsewhere, as that of a merged run does.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn find<C: CheckSet>(&self, results: &Results<C>) -> Result<Option<Stored>, StoreError> {
        let sql = "select identity, pipeline, facts from run where digest = ?";
        let row = self.connection.query_row(sql, [digest(results)], |row| {
            let facts: String = row.get(2)?;
            Ok(Stored {
                identity: Identity(row.get(0)?),
                pipeline: row.get(1)?,
                facts: serde_json::from_str(&facts).unwrap_or_default(),
            })
        });
        row.optional().map_err(|source| self.failed(source))
    }

    /// Returns the last runs of a pipeline, at most `last`. With `before`, only runs that began before that run.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn past_runs(
        &self,
        pipeline: &str,
        last: u32,
        before: Option<(&Identity, u64)>,
    ) -> Result<PastRuns, StoreError> {
        let runs = self
            .runs(pipeline, last, before)
            .map_err(|source| self.failed(source))?;
        let mut past_runs = PastRuns::new(pipeline);
        let read = || -> rusqlite::Result<_> {
            let mut texts = HashMap::new();
            let mut statement = self.connection.prepare("select id, text from text")?;
            let mut rows = statement.query([])?;
            while let Some(row) = rows.next()? {
                texts.insert(row.get::<_, i64>(0)?, row.get::<_, String>(1)?);
            }
            Ok(texts)
        };
        let texts = read().map_err(|source| self.failed(source))?;
        let series = self.series()?;
        for (id, past_run) in runs {
            past_runs.begin(past_run);
            self.put_results(id, &series, &texts, &mut past_runs)?;
        }
        Ok(past_runs)
    }

    fn runs(
        &self,
        pipeline: &str,
        last: u32,
        before: Option<(&Identity, u64)>,
    ) -> rusqlite::Result<Vec<(i64, PastRun)>> {
        let (identity, until) = match before {
            None => (String::new(), i64::MAX),
            Some((identity, started)) => (identity.0.clone(), signed(started)),
        };
        let mut statement = self.connection.prepare(
            "select id, name, started, is_whole, missing, facts from run
             where pipeline = ? and started <= ? and identity <> ? order by started desc, id desc limit ?",
        )?;
        let rows = statement.query_map(params![pipeline, until, identity, last], |row| {
            let facts: String = row.get(5)?;
            let past_run = PastRun {
                name: row.get(1)?,
                started: unsigned(row.get(2)?),
                is_whole: row.get(3)?,
                missing: unsigned(row.get(4)?),
                // A text that allranks has not written has no facts.
                facts: serde_json::from_str(&facts).unwrap_or_default(),
            };
            Ok((row.get(0)?, past_run))
        })?;
        let mut runs: Vec<_> = rows.collect::<rusqlite::Result<_>>()?;
        runs.reverse();
        Ok(runs)
    }

    /// Returns every series by its number.
    fn series(&self) -> Result<HashMap<i64, StoredSeries>, StoreError> {
        let read = || -> rusqlite::Result<Vec<(i64, StoredSeries, String)>> {
            let mut statement = self.connection.prepare(
                "select id, check_id, case_id, platform, backend, world_size, driver, launcher, torch, covers, evidence, nodes from series",
            )?;
            let rows = statement.query_map([], |row| {
                let text = |index: usize| row.get::<_, String>(index);
                let stored = StoredSeries {
                    check: text(1)?,
                    case: text(2)?,
                    column: Column {
                        platform: text(3)?,
                        backend: text(4)?,
                        world_size: WorldSize(row.get(5)?),
                        nodes: row.get(11)?,
                        driver: text(6)?,
                        launcher: text(7)?,
                        evidence: Evidence::Host,
                        torch: text(8)?,
                        label: String::new(),
                    },
                    covers: text(9)?
                        .split(' ')
                        .filter(|id| !id.is_empty())
                        .map(RequirementId::from)
                        .collect(),
                };
                Ok((row.get(0)?, stored, text(10)?))
            })?;
            rows.collect()
        };
        let rows = read().map_err(|source| self.failed(source))?;
        let with_evidence = rows.into_iter().map(|(id, mut stored, evidence)| {
            let read = serde_json::from_value(evidence.clone().into());
            stored.column.evidence =
                read.map_err(|_| self.broken(format!("evidence `{evidence}` is not known")))?;
            Ok((id, stored))
        });
        with_evidence.collect()
    }

    fn put_results(
        &self,
        run: i64,
        series: &HashMap<i64, StoredSeries>,
        texts: &HashMap<i64, String>,
        past_runs: &mut PastRuns,
    ) -> Result<(), StoreError> {
        let failed = |source| self.failed(source);
        let sql = "select series, status, torch, kind from result where run = ?";
        let mut statement = self.connection.prepare_cached(sql).map_err(failed)?;
        let mut rows = statement.query([run]).map_err(failed)?;
        while let Some(row) = rows.next().map_err(failed)? {
            let number = |index: usize| row.get::<_, i64>(index).map_err(failed);
            let text = |id: i64| texts.get(&id).map_or("", String::as_str);
            let status = status::of(number(1)?);
            let status = status.ok_or_else(|| self.broken("a status has no such number".into()))?;
            let one = series.get(&number(0)?);
            let one = one.ok_or_else(|| self.broken("a result belongs to no series".into()))?;
            let mark = past_runs.mark(status, text(number(2)?), text(number(3)?));
            let (check, case) = (one.check.as_str().into(), one.case.as_str().into());
            past_runs.put(&check, &case, one.column.clone(), &one.covers, mark);
        }
        Ok(())
    }

    fn failed(&self, source: rusqlite::Error) -> StoreError {
        StoreError::Sqlite {
            path: self.path.clone(),
            source,
        }
    }

    fn broken(&self, what: String) -> StoreError {
        StoreError::Broken {
            path: self.path.clone(),
            what,
        }
    }
}

struct StoredSeries {
    check: String,
    case: String,
    column: Column,
    covers: Vec<RequirementId>,
}

fn has_tables(connection: &Connection) -> rusqlite::Result<bool> {
    connection.query_row("select count(*) from sqlite_schema", [], |row| {
        Ok(row.get::<_, i64>(0)? > 0)
    })
}

fn make_tables(connection: &Connection) -> rusqlite::Result<()> {
    connection.execute_batch(schema::TABLES)?;
    for one in Status::ALL.iter().copied() {
        connection.execute(
            "insert into status values (?, ?)",
            params![status::number(one), one.word()],
        )?;
    }
    connection.pragma_update(None, "user_version", schema::VERSION)?;
    connection.pragma_update(None, "application_id", schema::APPLICATION)
}

fn insert<C: CheckSet>(
    transaction: &Transaction<'_>,
    results: &Results<C>,
    past_run: &PastRun,
    identity: &Identity,
    digest: &str,
    pipeline: &str,
) -> rusqlite::Result<()> {
    transaction.execute(
        "insert into run (identity, digest, pipeline, name, started, is_whole, missing, facts) values (?, ?, ?, ?, ?, ?, ?, ?)",
        params![
            identity.0,
            digest,
            pipeline,
            past_run.name,
            signed(past_run.started),
            past_run.is_whole,
            signed(past_run.missing),
            json(&past_run.facts),
        ],
    )?;
    let run = transaction.last_insert_rowid();
    let mut texts = HashMap::<String, i64>::new();
    // The worse of two results of one check stays: the lower number.
    let mut put = transaction.prepare(
        "insert into result values (?, ?, ?, ?, ?)
         on conflict do update set status = excluded.status, torch = excluded.torch, kind = excluded.kind
         where excluded.status < status",
    )?;
    for (column, check) in series_of(results) {
        let series = series_id(transaction, &column, &check)?;
        let torch = text_id(transaction, &mut texts, &check.column.torch)?;
        let kind = text_id(transaction, &mut texts, &kind_of(&check))?;
        let number = status::number(check.status());
        put.execute([run, series, number, torch, kind])?;
    }
    Ok(())
}

fn series_id(
    transaction: &Transaction<'_>,
    column: &Column,
    check: &allranks_model::record::CheckRecord,
) -> rusqlite::Result<i64> {
    let evidence = json(&column.evidence);
    let evidence = evidence.trim_matches('"');
    let covers: Vec<&str> = check.covers.iter().map(|id| id.as_str()).collect();
    // The update changes only what may: which requirements a check covers.
    let mut statement = transaction.prepare_cached(
        "insert into series (check_id, case_id, platform, backend, world_size, nodes, driver, launcher, evidence, torch, covers)
         values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
         on conflict do update set covers = excluded.covers
         returning id",
    )?;
    statement.query_row(
        params![
            check.id.as_str(),
            check.case.as_str(),
            column.platform,
            column.backend,
            column.world_size.0,
            column.nodes,
            column.driver,
            column.launcher,
            evidence,
            column.torch,
            covers.join(" "),
        ],
        |row| row.get(0),
    )
}

fn text_id(
    transaction: &Transaction<'_>,
    known: &mut HashMap<String, i64>,
    text: &str,
) -> rusqlite::Result<i64> {
    if let Some(id) = known.get(text) {
        return Ok(*id);
    }
    let mut statement = transaction.prepare_cached(
        "insert into text (text) values (?) on conflict do update set text = text returning id",
    )?;
    let id = statement.query_row([text], |row| row.get(0))?;
    known.insert(text.to_owned(), id);
    Ok(id)
}

/// Returns a number as SQLite's signed integer; one that does not fit becomes the largest.
fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}
