//! Profiles: named parts of the suite, one file each in `cases/profiles/`, so that `core` means the same in every run.

use std::collections::BTreeMap;
use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Case, Only};
use allranks_model::names::CaseId;
use allranks_yaml as yaml;
use allranks_yaml::{Diagnostic, Source, yaml_files};

/// A named part of the suite: which cases belong to it, in worlds of which sizes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// Its name on the command line, `--profile NAME`.
    pub name: String,
    /// What it is for, in one line; `allranks list` prints it.
    pub description: String,
    /// Ids of cases; `groups/**` takes every case below `groups/`.
    pub include: Vec<String>,
    /// World sizes that it is limited to. A world of another size is left out. Absent: all that the cases ask for.
    #[serde(default)]
    pub sizes: Option<Vec<u32>>,
    /// World sizes that single cases are limited to: ids or patterns as in `include`, with sizes. Several may match; a size must be
    /// in all of them. Cases that none matches are not limited.
    #[serde(default)]
    pub sizes_of: BTreeMap<String, Vec<u32>>,
}

impl Profile {
    /// Returns whether the case belongs: its id matches, and it is not reserved for another profile.
    #[must_use]
    pub fn includes(&self, case: &Case) -> bool {
        self.takes(case.profile) && self.names(&case.id)
    }

    /// Returns whether a case or step with this `profile:` belongs; one without always does.
    #[must_use]
    pub fn takes(&self, only: Option<Only>) -> bool {
        only.is_none_or(|only| only.name() == self.name)
    }

    /// Returns whether a pattern of `include` matches the id.
    fn names(&self, case: &CaseId) -> bool {
        self.include.iter().any(|pattern| matches(pattern, case))
    }

    /// Returns whether worlds of this size belong, of a case that does.
    #[must_use]
    pub fn has_size(&self, case: &CaseId, size: u32) -> bool {
        let limits = self.sizes_of.iter();
        let of_case = limits.filter(|(pattern, _)| matches(pattern, case));
        let mut limits = self.sizes.iter().chain(of_case.map(|(_, sizes)| sizes));
        limits.all(|sizes| sizes.contains(&size))
    }
}

/// Returns whether a pattern matches the id of a case.
fn matches(pattern: &str, case: &CaseId) -> bool {
    match pattern.strip_suffix("**") {
        Some(folder) => case.as_str().starts_with(folder),
        None => case.as_str() == pattern,
    }
}

/// Loads every profile of a folder, in order of file name. A folder that does not exist has none.
///
/// # Errors
///
/// All problems of all files.
pub fn load_profiles(folder: &Path) -> Result<Vec<Profile>, Vec<Diagnostic>> {
    let mut profiles = Vec::new();
    let mut problems = Vec::new();
    for file in yaml_files(folder).unwrap_or_default() {
        let profile = Source::read(&file).and_then(yaml::decode::<Profile>);
        match profile {
            Ok((profile, _)) => profiles.push(profile),
            Err(found) => problems.extend(found),
        }
    }
    if problems.is_empty() {
        Ok(profiles)
    } else {
        Err(problems)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_takes_folders_and_single_cases() {
        let profile = Profile {
            name: "x".into(),
            description: "x".into(),
            include: vec!["collectives/**".into(), "p2p/ring".into()],
            sizes: Some(vec![2, 3]),
            sizes_of: BTreeMap::from([("p2p/**".to_owned(), vec![3, 8])]),
        };
        assert!(profile.names(&"collectives/all_reduce/dtypes".into()));
        assert!(profile.names(&"p2p/ring".into()));
        assert!(!profile.names(&"p2p/ring_large".into()));
        assert!(profile.takes(None) && !profile.takes(Some(Only::Full)));
        let has = |case: &str, size| profile.has_size(&case.into(), size);
        assert!(has("collectives/all_reduce", 2) && has("collectives/all_reduce", 3));
        assert!(!has("collectives/all_reduce", 4));
        assert!(!has("p2p/ring", 2) && has("p2p/ring", 3) && !has("p2p/ring", 8));
    }
}
