//! Reports. [`record`] is what a run writes down; everything else is rendered from those lines and never drives a
//! run.

mod record;

pub use record::{
    CheckRecord, Column, Counts, Difference, EndRecord, FORMAT, RankLine, RankRecord, Reason,
    Record, RunRecord, ScenarioRecord, Span,
};
