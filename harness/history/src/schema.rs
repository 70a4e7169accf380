//! The tables of a history file. `PRAGMA user_version` is the version of the schema, and `application_id` marks the file as one
//! of allranks.

/// The mark of a history file, stored as `PRAGMA application_id`: the letters `alrk`.
pub(crate) const APPLICATION: i32 = 0x616c_726b;
/// The version of the schema, stored as `PRAGMA user_version`; a file with a higher one is refused.
pub(crate) const VERSION: i32 = 1;

/// The statements that create the tables. The results of one run are stored together, in the order in which runs are read. Names
/// and texts are stored once, because a night has tens of thousands of results.
pub(crate) const TABLES: &str = "
create table run (
    id integer primary key,
    identity text not null unique,   -- SHA-256 of the run's record and its machine
    digest text not null,            -- SHA-256 of its results
    pipeline text not null,
    name text not null,
    started integer not null,        -- seconds since the Unix epoch
    is_whole integer not null,       -- 0: cut off, or a planned check has no record
    missing integer not null,        -- planned checks without a record
    facts text not null              -- JSON: the environment
);
create index run_by_time on run (pipeline, started, id);
create table text (id integer primary key, text text not null unique);
create table status (id integer primary key, word text not null);
create table series (                -- one check of one column
    id integer primary key,
    check_id text not null,
    case_id text not null,
    platform text not null,
    backend text not null,
    world_size integer not null,
    nodes integer not null,
    driver text not null,
    launcher text not null,
    evidence text not null,          -- hardware, host or simulated
    torch text not null,             -- empty unless one run holds results of several versions
    covers text not null,            -- requirements, separated by spaces
    unique (check_id, driver, launcher, evidence, torch)
);
create table result (
    run integer not null references run (id) on delete cascade,
    series integer not null references series (id),
    status integer not null references status (id),
    torch integer not null references text (id),
    kind integer not null references text (id),    -- what went wrong
    primary key (run, series)
) without rowid;
create view results as               -- for people: one row for each result
    select run.name as run, run.started, run.pipeline, series.check_id, series.platform, series.backend, series.world_size,
           status.word as status, torch.text as torch, kind.text as kind
    from result
    join run on run.id = result.run
    join series on series.id = result.series
    join status on status.id = result.status
    join text as torch on torch.id = result.torch
    join text as kind on kind.id = result.kind;
";
