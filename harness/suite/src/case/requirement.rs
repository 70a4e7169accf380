//! `requirements.yaml`: the normative sentences that checks cover.

use std::collections::BTreeMap;
use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use allranks_model::names::RequirementId;
use allranks_yaml as yaml;
use allranks_yaml::{Diagnostic, Document, Focus, Source, way};

/// One normative sentence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Requirement {
    /// `COLL-014`: an area of capital letters and a number of three digits. Never given to another sentence.
    pub id: RequirementId,
    /// How binding it is.
    pub level: Level,
    /// The sentence; says MUST or SHOULD, as its level does.
    pub text: String,
    /// The public source it rests on: a page of documentation, an issue.
    pub source: String,
    /// The torch version from which it holds, if not always.
    #[serde(default)]
    pub since: Option<String>,
    /// Backends on which it cannot be checked, and why not. Cases for those that can have it are there all the same.
    #[serde(default)]
    pub not_on: BTreeMap<String, String>,
}

/// How binding a requirement is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// A backend that breaks it is wrong.
    Must,
    /// A backend that breaks it surprises its users.
    Should,
}

/// The known requirements, by id.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Requirements {
    by_id: BTreeMap<RequirementId, Requirement>,
}

impl Requirements {
    /// Reads a file of requirements.
    ///
    /// # Errors
    /// Everything wrong with it.
    pub fn load(path: &Path) -> Result<Self, Vec<Diagnostic>> {
        Self::parse(Source::read(path)?)
    }

    /// Parses the text of such a file.
    ///
    /// # Errors
    /// Everything wrong with it.
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

    /// The requirement of this id.
    #[must_use]
    pub fn get(&self, id: &RequirementId) -> Option<&Requirement> {
        self.by_id.get(id)
    }

    /// All of them, in order of id.
    pub fn iter(&self) -> impl Iterator<Item = &Requirement> {
        self.by_id.values()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    /// Takes in those of another file; of two with one id, the first stays.
    pub fn extend(&mut self, other: Self) {
        for (id, requirement) in other.by_id {
            self.by_id.entry(id).or_insert(requirement);
        }
    }
}

/// Whether a requirement's id is formed as it must be: `AREA-123`.
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
