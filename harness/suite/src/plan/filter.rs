//! `--filter EXPR`: selects checks.
//!
//! An expression is words separated by blanks; a check must match all of them.
//! - `dtype=float32,int8`: the parameter has one of the values. Parameters are those of the check's step (`call`,
//!   `dtype`, `op`, `numel`, `root`, ...), of the scenario (`case`, `platform`, `backend`, `size`, `launcher`,
//!   `method`), `covers` (a requirement) and `id` (exactly that check or scenario).
//! - `all_gather`: the check's id contains the text; `*` stands for any text.
//! - `collectives/all_reduce@cpu.gloo.ws4#0.all_reduce.float32.sum.33`: a text with a `#` is a whole id.
//! - `!WORD`: selects the checks that `WORD` does not match.

use std::str::FromStr;

use super::{Check, Scenario};
use allranks_model::names::CaseId;

/// A parsed filter expression, written as the module documentation says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    words: Vec<Word>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Word {
    negated: bool,
    test: Test,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Test {
    Text(String),
    Parameter { name: String, values: Vec<String> },
}

/// What is wrong with a filter expression.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FilterError {
    /// There is no word in it, or a `!` alone.
    #[error("the filter is empty; hint: give a part of a check's id, or dtype=float32")]
    Empty,
    /// A word lacks its name or its value: `dtype=` or `=float32`.
    #[error("`{0}` lacks a name or a value; hint: write dtype=float32 or covers=COLL-001")]
    Incomplete(String),
}

impl FromStr for Filter {
    type Err = FilterError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let words: Vec<Word> = text
            .split_whitespace()
            .map(|word| {
                let (negated, rest) = match word.strip_prefix('!') {
                    Some(rest) => (true, rest),
                    None => (false, word),
                };
                let test = match rest.split_once('=') {
                    Some((name, values)) if !name.is_empty() && !values.is_empty() => {
                        Test::Parameter {
                            name: name.to_owned(),
                            values: values.split(',').map(str::to_owned).collect(),
                        }
                    }
                    Some(_) => return Err(FilterError::Incomplete(word.to_owned())),
                    None if rest.is_empty() => return Err(FilterError::Empty),
                    None => Test::Text(rest.to_owned()),
                };
                Ok(Word { negated, test })
            })
            .collect::<Result<_, _>>()?;
        if words.is_empty() {
            return Err(FilterError::Empty);
        }
        Ok(Self { words })
    }
}

impl Filter {
    /// Returns whether any check of the case can match. If not, the case need not be planned.
    #[must_use]
    pub fn admits(&self, case: &CaseId) -> bool {
        let of_case = |id: &str| id.split_once('@').is_none_or(|(of, _)| of == case.as_str());
        self.words.iter().all(|word| match &word.test {
            Test::Parameter { name, values } if name == "case" => {
                values.iter().any(|value| value == case.as_str()) != word.negated
            }
            Test::Parameter { name, values } if name == "id" && !word.negated => {
                values.iter().any(|id| of_case(id))
            }
            Test::Parameter { .. } | Test::Text(_) => true,
        })
    }

    /// Returns whether the check matches, or without one, whether the scenario or one of its frame checks does.
    #[must_use]
    pub fn matches(&self, scenario: &Scenario, check: Option<&Check>) -> bool {
        self.words
            .iter()
            .all(|word| word.test.matches(scenario, check) != word.negated)
    }
}

impl Test {
    fn matches(&self, scenario: &Scenario, check: Option<&Check>) -> bool {
        match self {
            Self::Text(pattern) => match check {
                Some(check) => contains(check.id.as_str(), pattern),
                None => {
                    contains(scenario.id.as_str(), pattern)
                        || scenario
                            .frame_checks()
                            .iter()
                            .any(|id| contains(id.as_str(), pattern))
                }
            },
            Self::Parameter { name, values } => {
                let has = |value: &str| values.iter().any(|wanted| wanted == value);
                match name.as_str() {
                    "id" => match check {
                        Some(check) => has(check.id.as_str()) || has(scenario.id.as_str()),
                        None => {
                            has(scenario.id.as_str())
                                || scenario.frame_checks().iter().any(|id| has(id.as_str()))
                        }
                    },
                    "case" => has(scenario.case.id.as_str()),
                    "platform" => has(&scenario.platform.name),
                    "backend" => has(&scenario.backend),
                    "size" => has(&scenario.world_size.to_string()),
                    "launcher" => has(scenario.launcher.name()),
                    "covers" => match check {
                        Some(check) => check.covers.iter().any(|id| has(id.as_str())),
                        None => scenario.case.covers.iter().any(|id| has(id.as_str())),
                    },
                    axis => {
                        let swept = scenario.init.swept.iter();
                        let params = check
                            .map(|check| check.params.as_slice())
                            .unwrap_or_default();
                        swept
                            .chain(params.iter().map(|(name, value)| (name, value)))
                            .any(|(name, value)| name == axis && has(value))
                    }
                }
            }
        }
    }
}

/// Returns whether `text` contains `pattern`, in which `*` stands for any text. A pattern with `#` and no `*` is a
/// whole id, and must be equal to the text.
fn contains(text: &str, pattern: &str) -> bool {
    if pattern.contains('#') && !pattern.contains('*') {
        return text == pattern;
    }
    let mut rest = text;
    pattern.split('*').all(|piece| match rest.find(piece) {
        Some(at) => {
            rest = &rest[at + piece.len()..];
            true
        }
        None => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_matches_anywhere_and_stars_match_anything() {
        assert!(contains(
            "collectives/all_reduce@cpu.gloo.ws4#0.float32",
            "all_reduce"
        ));
        assert!(contains(
            "collectives/all_reduce@cpu.gloo.ws4#0.float32",
            "all_*ws4*float32"
        ));
        assert!(!contains(
            "collectives/all_reduce@cpu.gloo.ws4",
            "ws4*all_reduce"
        ));
    }

    #[test]
    fn a_whole_id_matches_itself_only() {
        assert!(contains(
            "a@cpu.gloo.ws2#0.float32.33",
            "a@cpu.gloo.ws2#0.float32.33"
        ));
        assert!(!contains(
            "a@cpu.gloo.ws2#0.float32.330",
            "a@cpu.gloo.ws2#0.float32.33"
        ));
    }

    #[test]
    fn a_case_that_cannot_match_is_not_admitted() {
        let admits = |filter: &str| filter.parse::<Filter>().unwrap().admits(&"a/b".into());
        assert!(admits("case=a/b,c dtype=int8") && admits("b") && admits("!case=c"));
        assert!(!admits("case=c") && !admits("!case=a/b"));
        assert!(admits("id=a/b@cpu.gloo.ws2#0.x") && !admits("id=a@cpu.gloo.ws2#0.x"));
    }

    #[test]
    fn incomplete_words_are_refused() {
        assert_eq!("".parse::<Filter>(), Err(FilterError::Empty));
        assert_eq!("!".parse::<Filter>(), Err(FilterError::Empty));
        assert_eq!(
            "dtype=".parse::<Filter>(),
            Err(FilterError::Incomplete("dtype=".to_owned()))
        );
    }
}
