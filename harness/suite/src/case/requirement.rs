//! Requirements: the normative sentences that checks cover, as `requirements.yaml` lists them.

use std::collections::BTreeMap;
use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use allranks_model::names::RequirementId;
use allranks_yaml as yaml;
use allranks_yaml::{Diagnostic, Document, Focus, Source, way};

/// One normative sentence about a backend, with its source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Requirement {
    /// `COLL-014`: an area of capital letters or digits, and a number of three digits. It is never reused for another
    /// sentence.
    pub id: RequirementId,
    /// Whether a backend must meet it, or should.
    pub level: Level,
    /// The sentence. It contains the word MUST or SHOULD, as its level says, and not the other one, and ends with a
    /// full stop.
    pub text: String,
    /// The public source it is taken from: a page of documentation, an issue.
    pub source: String,
    /// The first torch version for which it holds, `"2.4"`. Absent: it holds for all.
    #[serde(default)]
    pub since: Option<String>,
    /// Backends on which it cannot be checked, each with the reason. Cases may still cover it on other backends.
    #[serde(default)]
    pub not_on: BTreeMap<String, String>,
}

/// How binding a requirement is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// MUST: a backend that breaks it is wrong.
    Must,
    /// SHOULD: a backend that breaks it surprises its users.
    Should,
}

/// The known requirements, by id.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Requirements {
    by_id: BTreeMap<RequirementId, Requirement>,
}

impl Requirements {
    /// Reads and parses a file of requirements.
    ///
    /// # Errors
    ///
    /// It cannot be read, or as for [`parse`](Self::parse).
    pub fn load(path: &Path) -> Result<Self, Vec<Diagnostic>> {
        Self::parse(Source::read(path)?)
    }

    /// Parses the text of a file of requirements.
    ///
    /// # Errors
    ///
    /// All problems: a wrong shape, an id that is malformed or given twice, a sentence that does not fit its level.
    pub fn parse(source: Source) -> Result<Self, Vec<Diagnostic>> {
        let (list, document): (Vec<Requirement>, _) = yaml::decode(source)?;
        let mut problems = Vec::new();
        let mut by_id = BTreeMap::new();
        for (index, requirement) in list.into_iter().enumerate() {
            check(&requirement, index, &document, &mut problems);
            let id = requirement.id.clone();
            if by_id.insert(id.clone(), requirement).is_some() {
                problems.push(
                    document
                        .problem(
                            way![index, "id"],
                            Focus::Value,
                            format!("`{id}` is given twice"),
                        )
                        .hint("an id names one sentence for ever; take the next free number"),
                );
            }
        }
        if problems.is_empty() {
            Ok(Self { by_id })
        } else {
            Err(problems)
        }
    }

    /// Returns the requirement with this id; `None` if there is none.
    #[must_use]
    pub fn get(&self, id: &RequirementId) -> Option<&Requirement> {
        self.by_id.get(id)
    }

    /// Iterates over all requirements, in order of id.
    pub fn iter(&self) -> impl Iterator<Item = &Requirement> {
        self.by_id.values()
    }

    /// Returns whether there are no requirements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    /// Adds the requirements of another file. If both have the same id, that of `self` stays.
    pub fn extend(&mut self, other: Self) {
        for (id, requirement) in other.by_id {
            self.by_id.entry(id).or_insert(requirement);
        }
    }
}

/// Returns whether an id has the form `AREA-123`.
pub(crate) fn is_well_formed(id: &RequirementId) -> bool {
    id.as_str().split_once('-').is_some_and(|(area, number)| {
        !area.is_empty()
            && area
                .bytes()
                .all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit())
            && number.len() == 3
            && number.bytes().all(|byte| byte.is_ascii_digit())
    })
}

/// Reports what is wrong with one requirement; `index` is its place in the file, from 0.
fn check(
    requirement: &Requirement,
    index: usize,
    document: &Document,
    problems: &mut Vec<Diagnostic>,
) {
    let mut report = |field: &str, message: String, hint: &str| {
        problems.push(
            document
                .problem(way![index, field], Focus::Value, message)
                .hint(hint),
        );
    };
    if !is_well_formed(&requirement.id) {
        let message = format!("`{}` is not a requirement id", requirement.id);
        report(
            "id",
            message,
            "capital letters, a hyphen, three digits: `COLL-014`",
        );
    }
    let (word, other) = match requirement.level {
        Level::Must => ("MUST", "SHOULD"),
        Level::Should => ("SHOULD", "MUST"),
    };
    let says = |word: &str| {
        requirement
            .text
            .split(|c: char| !c.is_ascii_alphabetic())
            .any(|part| part == word)
    };
    if !says(word) {
        let message = format!("a `{}` sentence does not say {word}", word.to_lowercase());
        report("text", message, "the sentence and its level say the same");
    } else if says(other) {
        let message = format!("a `{}` sentence says {other} as well", word.to_lowercase());
        report("text", message, "make two requirements of it");
    }
    if !requirement.text.trim_end().ends_with('.') {
        report(
            "text",
            "not a sentence: it does not end with a full stop".to_owned(),
            "one normative sentence",
        );
    }
    if requirement.source.trim().is_empty() {
        report(
            "source",
            "no source".to_owned(),
            "name the page or the issue it rests on",
        );
    }
    if let Some(since) = &requirement.since
        && semver::VersionReq::parse(&format!(">={since}")).is_err()
    {
        report(
            "since",
            format!("`{since}` is not a torch version"),
            "a version such as \"2.4\"",
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_requirements_of_the_repository_are_valid() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../cases/requirements.yaml");
        let known = Requirements::load(&file).unwrap_or_else(|problems| panic!("{}", problems[0]));
        let first = known.get(&RequirementId::from("COLL-001")).unwrap();
        assert_eq!(first.level, Level::Must);
        assert!(known.get(&RequirementId::from("COLL-999")).is_none());
    }
}
