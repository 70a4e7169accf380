//! Stored runs: the verdicts of many nights in one SQLite file, for `allranks history` and `allranks report --history`.
//!
//! A [`Store`] takes the results of runs and gives [`PastRuns`](allranks_report::past_runs::PastRuns) back. What
//! they mean, such as broken or flaky, is decided by [`trend`](allranks_report::trend).

mod digest;
mod schema;
mod status;
mod store;

pub use store::{Added, Identity, Store, StoreError, Stored};
