//! A line about one rank. Records and diagnoses have them.

use serde::{Deserialize, Serialize};

use crate::excerpt::excerpt;
use crate::names::Rank;

/// One rank and the text about it: where it is, what it raised, or how it ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankLine {
    /// The rank.
    pub rank: Rank,
    /// `RuntimeError: ...`, `in all_reduce for 10.2 s`, `killed by signal 9`.
    pub text: String,
}

impl RankLine {
    /// Cuts its text to an excerpt.
    #[must_use]
    pub fn cut(self) -> Self {
        Self {
            text: excerpt(self.text),
            ..self
        }
    }
}
