//! Rules about platforms that cannot be used. It is a fault only for a platform that was named on the command line.

use super::super::Severity::{Fault, Note, Warning};
use super::super::{Facts, Finding, PlatformFacts};

/// The kind of problem that the text of a probe describes. The tests of `allranks_runner::probe` check the words that are
/// recognised here.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ProblemKind {
    Missing,
    Broken,
    Version,
    NoDevices,
    NoBackend,
    Uncountable,
}

fn problem_kind(reason: &str) -> ProblemKind {
    let has = |words: &[&str]| words.iter().any(|words| reason.contains(words));
    if has(&["is not installed for", "is required, and"]) {
        ProblemKind::Missing
    } else if has(&["0 devices"]) {
        ProblemKind::NoDevices
    } else if reason.starts_with('`') {
        ProblemKind::Uncountable
    } else if has(&["this build of torch has no"]) {
        ProblemKind::NoBackend
    } else if has(&["failed: ", "killed by", "ended with code", "did not answer"]) {
        ProblemKind::Broken
    } else {
        ProblemKind::Version
    }
}

/// Reports a platform that cannot be used although it was named, or is partly installed.
pub(super) fn unusable(facts: &Facts) -> Vec<Finding> {
    if facts.build().is_none() {
        // The failed import has a finding of its own.
        return Vec::new();
    }
    let found = facts.platforms.iter().filter_map(|platform| {
        let reason = platform.unusable_because.as_deref()?;
        unusable_platform(platform, reason)
    });
    found.collect()
}

fn unusable_platform(platform: &PlatformFacts, reason: &str) -> Option<Finding> {
    let what = format!("platform {} cannot be used: {reason}", platform.name);
    let wanted = |otherwise| {
        if platform.is_wanted {
            Some(Fault)
        } else {
            otherwise
        }
    };
    let tool = match (&platform.tool, platform.has_tool) {
        (Some(tool), true) => format!("`{tool}` is installed"),
        (Some(tool), false) => format!("`{tool}` is not in PATH either"),
        (None, _) => "no tool of its vendor is known".to_owned(),
    };
    let (severity, id, fix) = match problem_kind(reason) {
        ProblemKind::Missing => (
            wanted(None)?,
            "platform-missing",
            "install the vendor's package for this torch version into this Python",
        ),
        ProblemKind::Broken => (
            Fault,
            "platform-broken",
            "the package is installed but unusable: repair its driver or uninstall it",
        ),
        ProblemKind::Version => (
            wanted(Some(Warning))?,
            "platform-old",
            "install the required version",
        ),
        ProblemKind::NoDevices => (
            wanted(None)?,
            "no-devices",
            "see whether the vendor's tool lists devices; in a container, they must be passed in; check the variable that hides devices",
        ),
        ProblemKind::NoBackend => (
            wanted(platform.has_tool.then_some(Warning))?,
            "backend-missing",
            "install a torch that has the backend built in, or the vendor's package that registers it",
        ),
        ProblemKind::Uncountable => (
            wanted(Some(Warning))?,
            "devices-uncountable",
            "the package does not match the platform file, or its driver does not answer",
        ),
    };
    Some(Finding::new(severity, id, what, tool, fix))
}

/// Reports a platform that can be used without some of its backends.
pub(super) fn backends(facts: &Facts) -> Vec<Finding> {
    let usable = facts
        .platforms
        .iter()
        .filter(|one| one.unusable_because.is_none());
    let lacking = usable.flat_map(|platform| {
        let lacking = platform.backends.iter().filter(|(_, is_there)| !**is_there);
        lacking.map(move |(backend, _)| (platform, backend))
    });
    let found = lacking.map(|(platform, backend)| {
        Finding::new(
            if platform.is_wanted { Fault } else { Note },
            "backend-not-built",
            format!("this torch has no {backend} for {}", platform.name),
            "torch.distributed.is_backend_available says so; names in dir(torch.distributed.Backend) prove nothing",
            "install a torch that has it built in, or the vendor's package that registers it",
        )
    });
    found.collect()
}
