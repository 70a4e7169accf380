//! Digests of the inputs of a run. A run can be continued only with the same inputs.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::io;
use std::path::Path;

use sha2::{Digest, Sha256};

use super::inputs;
use super::planning::Planned;
use crate::suite::{self, Request};
use allranks_model::record::{Origin, SuiteIdentity};
use allranks_runner::world::Driver;

/// Computes the digests of cases, expectations and platforms. They depend on the parsed content of files, not on comments or
/// format. `scratch` is the folder where the binary's own suite is unpacked, which differs in each run. [`complete`] adds the
/// other fields.
#[must_use]
pub fn of(planned: &Planned, scratch: &Path) -> Origin {
    let mut cases = BTreeMap::new();
    for scenario in &planned.plan.scenarios {
        cases.insert(&scenario.case.id, &scenario.case);
    }
    let mut platforms = BTreeMap::<&str, BTreeSet<String>>::new();
    for target in &planned.targets {
        let digest = digest(
            &(&target.platform, &target.backend, target.devices),
            scratch,
        );
        let of_backends = platforms.entry(&target.platform.name).or_default();
        of_backends.insert(digest);
    }
    let platforms = platforms.into_iter();
    Origin {
        suite: digest(&cases, scratch),
        expectations: digest(&planned.suite.expectations, scratch),
        platforms: platforms
            .map(|(name, digests)| (name.to_owned(), digest(&digests, scratch)))
            .collect(),
        devices: planned
            .targets
            .iter()
            .filter_map(|target| Some((target.platform.name.clone(), target.devices?)))
            .collect(),
        too_large: planned.plan.too_large.iter().cloned().collect(),
        ..Origin::default()
    }
}

/// Adds the identity of suite and driver, and the input files, which are copied below the run's folder.
///
/// # Errors
/// A file cannot be read or written.
pub fn complete(
    origin: Origin,
    driver: &Driver,
    request: &Request,
    run: &Path,
) -> io::Result<Origin> {
    Ok(Origin {
        identity: Some(SuiteIdentity {
            driver: suite::driver_digest(&driver.files()),
            ..suite::identity()?
        }),
        inputs: inputs::keep(request, run)?,
        ..origin
    })
}

fn digest(value: &impl Debug, scratch: &Path) -> String {
    let text = format!("{value:?}").replace(&scratch.display().to_string(), "");
    format!("{:x}", Sha256::digest(text.as_bytes()))
}

/// Describes what differs between the origin of a run and the present one; `None` if nothing does.
#[must_use]
pub fn difference(then: &Origin, now: &Origin) -> Option<String> {
    if then.suite != now.suite {
        return Some("its cases have changed".to_owned());
    }
    let names: BTreeSet<&String> = then.platforms.keys().chain(now.platforms.keys()).collect();
    let of = |origin: &Origin, name: &String| origin.platforms.get(name).cloned();
    if let Some(name) = names
        .into_iter()
        .find(|name| of(then, name) != of(now, name))
    {
        let what = match (of(then, name), of(now, name)) {
            (Some(_), None) => "is no longer found",
            (None, _) => "was not found then",
            (Some(_), Some(_)) => "has changed: its file, its torch or its devices",
        };
        return Some(format!("platform {name} {what}"));
    }
    (then.expectations != now.expectations).then(|| "its expectations have changed".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_is_named() {
        let then = Origin {
            suite: "s".to_owned(),
            expectations: "e".to_owned(),
            platforms: BTreeMap::from([("cpu".to_owned(), "p".to_owned())]),
            ..Origin::default()
        };
        assert_eq!(difference(&then, &then), None);
        let differs = |change: fn(&mut Origin), word: &str| {
            let mut now = then.clone();
            change(&mut now);
            let said = difference(&then, &now).unwrap();
            assert!(said.contains(word), "{said}");
        };
        differs(|now| now.suite.clear(), "cases");
        differs(|now| now.expectations.clear(), "expectations");
        differs(
            |now| now.platforms.clear(),
            "platform cpu is no longer found",
        );
        differs(
            |now| now.platforms = BTreeMap::from([("cpu".to_owned(), "q".to_owned())]),
            "platform cpu has changed",
        );
        let new = ("gpu".to_owned(), "g".to_owned());
        let mut now = then.clone();
        now.platforms.insert(new.0, new.1);
        let said = difference(&then, &now).unwrap();
        assert!(said.contains("gpu was not found then"), "{said}");
    }

    #[test]
    fn the_folder_that_the_suite_is_unpacked_in_changes_no_digest() {
        let of = |folder: &str| digest(&format!("{folder}/suite/x"), Path::new(folder));
        assert_eq!(of("/a/run"), of("/b/another"));
        assert_eq!(of("/a").len(), 64);
    }
}
