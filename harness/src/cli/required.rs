//! Checks that the plan has what `--require` names.

use super::planning::Planned;

/// Returns a sentence for each `--require` that the plan does not meet.
pub(super) fn unmet(required: &[String], planned: &Planned) -> Vec<String> {
    required
        .iter()
        .filter(|capability| {
            if let Some(nodes) = nodes_of(capability) {
                let mut placed = planned.plan.scenarios.iter();
                return !placed.any(|scenario| scenario.placement.nodes() >= nodes);
            }
            let (platform, backend) = split_capability(capability);
            !planned.plan.scenarios.iter().any(|scenario| {
                scenario.platform.name == platform
                    && backend.is_none_or(|backend| scenario.backend == backend)
            })
        })
        .map(|capability| {
            if nodes_of(capability).is_some() {
                let why = "give --launcher attached and --nodes";
                return format!(
                    "`{capability}` is required, and no world ran on that many nodes: {why}"
                );
            }
            let (platform, _) = split_capability(capability);
            let is_known = |suite: &crate::suite::Suite| {
                suite.platforms.iter().any(|one| one.name == platform)
            };
            let reason = match planned
                .absent
                .iter()
                .find(|absent| absent.platform.name == platform)
            {
                Some(absent) => &absent.reason,
                None if is_known(&planned.suite) => "no selected case runs on it",
                None => "there is no such platform file",
            };
            format!("`{capability}` is required and was not run: {reason}")
        })
        .collect()
}

/// Returns N of `nodes=N`; `None` for anything else.
fn nodes_of(capability: &str) -> Option<usize> {
    capability.strip_prefix("nodes=")?.parse().ok()
}

/// Splits `platform/backend`; the backend is `None` if only a platform is named.
fn split_capability(capability: &str) -> (&str, Option<&str>) {
    match capability.split_once('/') {
        Some((platform, backend)) => (platform, Some(backend)),
        None => (capability, None),
    }
}
