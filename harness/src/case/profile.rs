//! Profiles: which cases a run takes, and in which worlds. `cases/profiles/NAME.yaml` is `--profile NAME`.

use std::path::Path;

use serde::Deserialize;

use super::OneOrMany;
use super::validate::is_name;
use crate::names::CaseId;
use crate::yaml::{self, Diagnostic, Document, Focus, way};

/// A selection of cases and of their worlds.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// What it is for, one line.
    pub title: String,
    /// Cases and folders of them, by id; absent: all.
    #[serde(default)]
    pub cases: Option<OneOrMany<String>>,
    /// Cases and folders of them to leave out all the same.
    #[serde(default)]
    pub except: Option<OneOrMany<String>>,
    /// World sizes to keep of those that a case lists; absent: all.
    #[serde(default)]
    pub world_sizes: Option<OneOrMany<u32>>,
}

impl Profile {
    /// Reads a profile.
    ///
    /// # Errors
    /// Everything wrong with it.
    pub fn load(path: &Path) -> Result<Self, Vec<Diagnostic>> {
        let (profile, document): (Self, _) = yaml::load(path)?;
        let mut problems = Vec::new();
        profile.check(&document, &mut problems);
        if problems.is_empty() {
            Ok(profile)
        } else {
            Err(problems)
        }
    }

    fn check(&self, document: &Document, problems: &mut Vec<Diagnostic>) {
        if self.title.trim().is_empty() {
            let problem = document.problem(way!["title"], Focus::Value, "an empty title");
            problems.push(problem.hint("say in one line what the profile is for"));
        }
        for (field, ids) in [("cases", &self.cases), ("except", &self.except)] {
            for (index, id) in ids.iter().flat_map(OneOrMany::as_slice).enumerate() {
                if !id.split('/').all(is_name) {
                    let message = format!("`{id}` is no case and no folder of cases");
                    let problem = document.problem(way![field, index], Focus::Value, message);
                    problems.push(
                        problem.hint(
                            "an id or its beginning: `collectives`, `collectives/all_reduce`",
                        ),
                    );
                }
            }
        }
        for (index, size) in self
            .world_sizes
            .iter()
            .flat_map(OneOrMany::as_slice)
            .enumerate()
        {
            if *size == 0 {
                let problem = document.problem(
                    way!["world_sizes", index],
                    Focus::Value,
                    "a world of 0 ranks",
                );
                problems.push(problem.hint("at least 1"));
            }
        }
    }

    /// Whether it takes a case.
    #[must_use]
    pub fn takes(&self, case: &CaseId) -> bool {
        let below =
            |ids: &OneOrMany<String>| ids.as_slice().iter().any(|id| is_below(case.as_str(), id));
        self.cases.as_ref().is_none_or(below) && !self.except.as_ref().is_some_and(below)
    }

    /// The sizes it keeps of those a case lists; the smallest if it keeps none, so that no case falls out silently.
    #[must_use]
    pub fn keep_sizes(&self, listed: &[u32]) -> Vec<u32> {
        let Some(wanted) = &self.world_sizes else {
            return listed.to_vec();
        };
        let kept: Vec<_> = listed
            .iter()
            .copied()
            .filter(|size| wanted.as_slice().contains(size))
            .collect();
        if kept.is_empty() {
            listed.iter().copied().min().into_iter().collect()
        } else {
            kept
        }
    }
}

/// Whether a case is this one, or in this folder.
fn is_below(case: &str, id: &str) -> bool {
    case.strip_prefix(id)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile(text: &str) -> Profile {
        serde_yaml::from_str(text).unwrap()
    }

    #[test]
    fn a_folder_takes_what_is_below_it_and_not_what_begins_alike() {
        let profile = profile("{title: t, cases: [p2p, edges/sizes], except: p2p/large}");
        let takes = |id: &str| profile.takes(&CaseId::from(id));
        assert!(takes("p2p/ring") && takes("edges/sizes"));
        assert!(
            !takes("p2p/large")
                && !takes("p2pool/a")
                && !takes("edges/sizes_large")
                && !takes("groups/a")
        );
    }

    #[test]
    fn sizes_are_kept_if_wanted_and_never_all_lost() {
        let profile = profile("{title: t, world_sizes: [1, 2]}");
        assert_eq!(profile.keep_sizes(&[1, 2, 3, 8]), [1, 2]);
        assert_eq!(profile.keep_sizes(&[8, 5]), [5]);
    }

    #[test]
    fn the_profiles_of_the_repository_are_valid() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../cases/profiles");
        for name in ["smoke", "core", "full"] {
            let loaded = Profile::load(&folder.join(format!("{name}.yaml")));
            loaded.unwrap_or_else(|problems| panic!("{}", problems[0]));
        }
    }
}
