//! Proves that the suite can fail: every mutant of `fixtures/mutants`, a backend with one seeded bug, must be detected by a check
//! of the requirement that it breaks, and reported with the class that its entry demands.
//!
//! In: an [`Index`] of mutants and the suite. Out: a [`Kill`] for each mutant, and of all of them the kill matrix, mutant
//! × requirement × what the checks reported.
//!
//! A mutant meets two sets of checks: those that its entry names, which must detect it, and the [`SharedChecks`], the same for
//! all, which show what else detects it. All worlds come from one session: torch is imported once, and an environment variable of
//! the ranks selects the mutant.
//!
//! | module     | holds                                                                      |
//! |------------|----------------------------------------------------------------------------|
//! | `index`    | the files of `fixtures/mutants`                                             |
//! | `shared_checks`    | which checks every mutant meets                                             |
//! | `above`    | mutants that no check of c10d's own functions may see                       |
//! | `proof`    | mutants and the healthy backend, run                                        |
//! | `healthy`  | the result of the backend without a bug                                     |
//! | `shrunk`   | how short the failing sequence is that a run left                           |
//! | `kill`     | the result of one mutant, from its records                                  |
//! | `matrix`   | all kills together, and what they prove of each requirement                 |
//! | `record`   | `kills.jsonl`                                                               |
//! | `markdown`, `html` | the matrix for people                                               |

mod above;
mod healthy;
mod html;
mod index;
mod kill;
mod markdown;
mod matrix;
mod proof;
mod record;
mod shared_checks;
mod shrunk;

use std::time::Duration;

pub use healthy::Healthy;
pub use html::render as html;
pub use index::{Index, Mutant};
pub use kill::{Kill, KillingCheck, MutantOutcome, RequirementReport, is_unexpected};
pub use markdown::{render as markdown, summary_line, wrong_values_line};
pub use matrix::{Matrix, MatrixStatus, WrongValues};
pub use proof::{Event, Proof, ProofPlan};
pub use record::{FILE_NAME, Head, MatrixRecord, MutantCounts, Tail, Writer};
pub use shared_checks::SharedChecks;

/// The longest time that shrinking a mutant's random sequence may take: its result is compared with the index, and
/// must not depend on the speed of this machine.
pub const SHRINKING: Duration = Duration::from_secs(15 * 60);
