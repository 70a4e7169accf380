//! The groups of a case in a world, and where their tensors lie.

use std::sync::Arc;

use crate::case::{Case, On, filled};
use crate::platform::Platform;
use allranks_model::group::{Creation, Group};
use allranks_model::names::WorldSize;

/// Returns the groups of a case in a world of this size, `world` first. A group may be empty (`odd` in a world of
/// one): no rank creates it, and its steps have no checks.
///
/// # Panics
///
/// The platform has no such backend.
#[must_use]
pub fn groups(case: &Case, platform: &Platform, backend: &str, size: WorldSize) -> Vec<Arc<Group>> {
    let world = Group {
        name: "world".to_owned(),
        ranks: size.ranks().collect(),
        backend: None,
        on_host: false,
        how: Creation::default(),
    };
    let on_device = platform.backends[backend].on_device(&platform.device_type);
    let named = case.groups.iter().flat_map(|(name, spec)| {
        let pattern = spec.backend.as_ref();
        let own = pattern.map(|pattern| filled(pattern, &platform.device_type, on_device));
        let copies = spec.count.unwrap_or(1);
        (0..copies).map(move |copy| {
            let given = spec.ranks.of_copy(size, copy);
            // new_group numbers members by global rank, in whatever order they are given.
            let mut ranks = given.clone();
            ranks.sort_unstable();
            let is_one = spec.count.is_none();
            Group {
                name: if is_one {
                    name.clone()
                } else {
                    format!("{name}-{copy}")
                },
                ranks,
                on_host: match spec.tensors {
                    Some(On::Host) => platform.is_on_device(),
                    Some(On::Device) => false,
                    None => is_on_host(platform, own.as_deref()),
                },
                backend: own.clone(),
                how: Creation {
                    given,
                    timeout_s: spec.timeout_s,
                    local_sync: spec.local_sync,
                    split: spec.split,
                    family: (!is_one).then(|| name.clone()),
                },
            }
        })
    });
    std::iter::once(world).chain(named).map(Arc::new).collect()
}

/// Returns whether the tensors of a group with this backend lie on the host although the platform has a device: the
/// backend is for the CPU only, or is none of the platform's.
pub(super) fn is_on_host(platform: &Platform, backend: Option<&str>) -> bool {
    let Some(backend) = backend else {
        return false;
    };
    let device = platform.device_type.as_str();
    let is_for_device = |part: &str| match part.split_once(':') {
        Some((of, _)) => of == device,
        None => platform.backends.contains_key(part),
    };
    device != "cpu" && !backend.split(',').any(is_for_device)
}
