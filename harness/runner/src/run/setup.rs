//! Builds the steps that every world begins and ends with, and the environment of its ranks.

use std::collections::BTreeMap;
use std::io;
use std::pin::pin;
use std::time::Duration;

use tokio::time::timeout;

use super::Shared;
use crate::script::{Endpoints, is_match, raised_in};
use crate::world::{
    Device, DeviceLease, LOOPBACK, Reservation, devices, held_devices, lease_devices,
};
use allranks_model::group::Group;
use allranks_model::names::Rank;
use allranks_model::recipe::{CpuBackend, DeviceId, SetDevice};
use allranks_protocol::{Call, CallResult, DeviceArgument, Step};
use allranks_suite::case::{Fail, FailOn, Starts};
use allranks_suite::plan::Scenario;
use allranks_suite::platform::{OF_THE_RANK, Platform};

/// The addresses and files at which the ranks of one world meet.
#[derive(Clone, Debug)]
pub struct Endpoint {
    /// The host at which they meet.
    pub host: String,
    /// Rendezvous port on that host.
    pub port: u16,
    /// Path of a file that does not exist yet, for `file://`.
    pub file: String,
    /// Further ports, for scripts in which ranks meet at different endpoints.
    pub spare: Vec<u16>,
}

impl Endpoint {
    /// Returns an endpoint that cannot be used (port 0, empty path), for what is computed before anything runs.
    #[must_use]
    pub fn nowhere() -> Self {
        Self {
            host: LOOPBACK.to_owned(),
            port: 0,
            file: String::new(),
            spare: vec![0; SPARE_PORTS],
        }
    }

    /// Returns the endpoint that a launcher has reserved: the first port is for rendezvous, the others are spare.
    #[must_use]
    pub fn reserved(at: &Reservation) -> Self {
        let mut ports = at.ports.iter().copied();
        Self {
            host: at.host.clone(),
            port: ports.next().unwrap_or_default(),
            file: at.folder.join("store").to_string_lossy().into_owned(),
            spare: ports.collect(),
        }
    }

    /// Returns all endpoints, in the form that scripts use.
    #[must_use]
    pub fn points(&self) -> Endpoints {
        let files = (0..).map(|number| match number {
            0 => self.file.clone(),
            number => format!("{}.{number}", self.file),
        });
        let ports = std::iter::once(self.port).chain(self.spare.iter().copied());
        Endpoints {
            host: self.host.clone(),
            all: ports.zip(files).collect(),
        }
    }
}

/// How long a world waits for devices before the run reports it.
const REPORT_AFTER: Duration = Duration::from_secs(1);
/// Number of spare ports of a world whose scripts initialise.
pub const SPARE_PORTS: usize = 2;

/// Returns the name of a rank's device, such as `cuda:1`. Where a world sees only its own devices, as under every
/// launcher that hands out devices, the index is the rank's place among these: some libraries use the rank as the index
/// if they are not told one.
#[must_use]
pub fn device(scenario: &Scenario, devices: &[Device], rank: Rank) -> String {
    device_of(&scenario.platform, devices, rank)
}

fn device_of(platform: &Platform, devices: &[Device], rank: Rank) -> String {
    let place = platform.device_of(rank);
    match (devices.get(place as usize), &platform.visible_devices) {
        (Some(_), _) if !platform.indexed => platform.device_type.clone(),
        (Some(_), Some(_)) => format!("{}:{place}", platform.device_type),
        (Some(device), None) => format!("{}:{}", platform.device_type, device.index),
        (None, _) => platform.device_type.clone(),
    }
}

/// Leases devices for a scenario's world: `wanted` computes how many from those present. On a host platform the lease
/// is empty. Waits while other worlds or runs hold them; none if the run is interrupted meanwhile.
pub async fn lease(
    shared: &Shared,
    scenario: &Scenario,
    wanted: impl FnOnce(&[Device]) -> u32,
) -> io::Result<Option<DeviceLease>> {
    let Some(present) = present(scenario, &shared.base_environment) else {
        return Ok(Some(DeviceLease::none()));
    };
    let kind = &scenario.platform.device_type;
    let worlds = shared.settings.worlds_per_device;
    let wanted = wanted(&present);
    let leased = async {
        let mut leased = pin!(lease_devices(kind, &present, wanted, worlds));
        if let Ok(leased) = timeout(REPORT_AFTER, &mut leased).await {
            return leased;
        }
        let held = held_devices(kind, &present)?;
        // If this list is empty, another world of this run holds them, which needs no notice.
        if !held.is_empty() {
            shared.notify(format!(
                "waiting for {wanted} of {} {kind} devices; held by another allranks run: {}",
                present.len(),
                held.join(", ")
            ));
        }
        leased.await
    };
    shared.unless_interrupted(leased).await.transpose()
}

/// Returns the devices of a scenario's platform; none on a host platform.
#[must_use]
fn present(scenario: &Scenario, base: &BTreeMap<String, String>) -> Option<Vec<Device>> {
    let mask = scenario.platform.visible_devices.as_ref();
    let mask = mask.and_then(|name| base.get(name)).map(String::as_str);
    Some(devices(scenario.devices?, mask))
}

/// The steps that a rank begins with, before any check.
#[derive(Clone, Debug)]
pub struct OpeningSteps {
    /// Imports what the platform needs. A step of its own, because some ranks take long for it, and the library's
    /// timeout must not run while the others wait.
    pub imports: Step,
    /// `init_process_group`, and every group in the case's order; none if the case's own scripts initialise.
    pub opening: Option<Step>,
}

impl OpeningSteps {
    /// Builds the steps of this rank, on a device such as `cuda:1`.
    #[must_use]
    pub fn new(scenario: &Scenario, at: &Endpoint, device: &str, rank: Rank) -> Self {
        let opens = scenario.case.world.starts == Starts::Initialised;
        Self {
            imports: imports(scenario, device),
            opening: opens.then(|| opening(scenario, at, device, rank)),
        }
    }

    /// Iterates over the steps, in order.
    pub fn steps(&self) -> impl Iterator<Item = &Step> {
        std::iter::once(&self.imports).chain(&self.opening)
    }
}

fn imports(scenario: &Scenario, device: &str) -> Step {
    let sets_device = scenario.init.set_device == SetDevice::Before;
    Step {
        calls: vec![prepare(scenario, device, sets_device)],
        ..Step::default()
    }
}

fn prepare(scenario: &Scenario, device: &str, sets_device: bool) -> Call {
    let platform = &scenario.platform;
    Call::Prepare {
        import: platform.import.clone(),
        python_path: platform
            .python_path
            .iter()
            .map(|path| path.to_string_lossy().into_owned())
            .collect(),
        device: device.to_owned(),
        set_device: platform.set_device.clone().filter(|_| sets_device),
        synchronize: platform.synchronize.clone(),
        shares_memory: platform.shares_memory,
    }
}

fn opening(scenario: &Scenario, at: &Endpoint, device: &str, rank: Rank) -> Step {
    let world = &scenario.case.world;
    let url = scenario.init.method.url(&at.host, at.port, &at.file);
    let device_id = match scenario.init.device_id {
        DeviceId::Absent => None,
        DeviceId::Index => {
            let index = device
                .split_once(':')
                .and_then(|(_, index)| index.parse().ok());
            Some(DeviceArgument::Index(index.unwrap_or_default()))
        }
        DeviceId::Device => Some(DeviceArgument::Device(device.to_owned())),
    };
    let mut calls = vec![Call::InitProcessGroup {
        backend: scenario.init_backend(),
        method: scenario.init.method,
        url,
        rank,
        world_size: scenario.world_size.0,
        timeout_s: world.timeout_s,
        hosts: None,
        device_id,
    }];
    if scenario.init.set_device == SetDevice::After {
        calls.push(prepare(scenario, device, true));
    }
    calls.extend(
        scenario
            .groups
            .iter()
            .skip(1)
            .filter(|group| !group.ranks.is_empty())
            .map(|group| {
                let call = creation(group, world.timeout_s);
                match scenario.refuses(group) {
                    true => Call::Attempt {
                        inner: Box::new(call),
                    },
                    false => call,
                }
            }),
    );
    Step {
        calls,
        ..Step::default()
    }
}

/// Returns the call that makes a group. `timeout_s` is used if the group has no timeout of its own.
fn creation(group: &Group, timeout_s: f64) -> Call {
    let how = &group.how;
    let name = group.name.clone();
    let timeout_s = how.timeout_s.unwrap_or(timeout_s);
    let given = if how.given.is_empty() {
        &group.ranks
    } else {
        &how.given
    };
    let ranks = given.clone();
    if how.split {
        return Call::SplitGroup {
            name,
            ranks,
            timeout_s,
        };
    }
    Call::NewGroup {
        name,
        ranks,
        backend: group.backend.clone(),
        timeout_s,
        local_sync: how.local_sync,
    }
}

/// Compares a rank's answers to the opening, all of whose calls returned, with the plan: rank, world size, backend,
/// groups. Returns what is wrong; none if all agree.
#[must_use]
pub fn disagreement(scenario: &Scenario, rank: Rank, calls: &[CallResult]) -> Option<String> {
    let said = |value: &serde_json::Value, key: &str| value.get(key).and_then(|v| v.as_i64());
    let init = &calls.first()?.value;
    let (own, size) = (said(init, "rank"), said(init, "world_size"));
    if own != Some(i64::from(rank.0)) || size != Some(i64::from(scenario.world_size.0)) {
        return Some(format!(
            "after init, get_rank() is {} and get_world_size() is {}; they must be {rank} and {}",
            text(own),
            text(size),
            scenario.world_size
        ));
    }
    // A string such as `cpu:gloo,cuda:nccl` names several backends, and the library returns one of them.
    let is_plain = scenario.platform.backends[&scenario.backend].init.is_none()
        && scenario.init.cpu_backend == CpuBackend::Absent;
    let backend = init.get("backend").and_then(serde_json::Value::as_str);
    if is_plain && !backend.is_some_and(|name| name.eq_ignore_ascii_case(&scenario.backend)) {
        return Some(format!(
            "after init, get_backend() is {}; it must be {}",
            backend.unwrap_or("unknown"),
            scenario.backend
        ));
    }
    let groups = scenario
        .groups
        .iter()
        .skip(1)
        .filter(|group| !group.ranks.is_empty());
    let first = calls.len() - groups.clone().count();
    for (group, call) in groups.zip(&calls[first..]) {
        let expected = group.group_rank(rank);
        let call = match &scenario.refused {
            Some(fail) if fail.is_at(group) => {
                let is_to_fail = match fail.on {
                    FailOn::Members => expected.is_some(),
                    FailOn::All => true,
                };
                match refusal(fail, group, is_to_fail, &call.value) {
                    Ok(Some(value)) => value,
                    Ok(None) => continue,
                    Err(fault) => return Some(fault),
                }
            }
            Some(_) | None => &call.value,
        };
        let (own, size) = (said(call, "rank"), said(call, "size"));
        let wanted = expected.map_or(-1, i64::from);
        if own != Some(wanted) {
            return Some(format!(
                "in group {}, the group rank is {}; it must be {wanted}",
                group.name,
                text(own)
            ));
        }
        let timeout = call.get("timeout_s").and_then(serde_json::Value::as_f64);
        let asked = group.how.timeout_s.unwrap_or(scenario.case.world.timeout_s);
        if let Some(timeout) = timeout.filter(|timeout| *timeout != asked) {
            return Some(format!(
                "group {} has a timeout of {timeout} s; it was given {asked} s",
                group.name
            ));
        }
        if expected.is_some() && size != Some(group.size() as i64) {
            return Some(format!(
                "group {} has size {}; it must be {}",
                group.name,
                text(size),
                group.size()
            ));
        }
    }
    None
}

/// Checks one attempt at making a group. Returns what the library reported of the group if it was made and had to be,
/// and none if it had to fail and failed with the expected error. The error says what is wrong.
fn refusal<'a>(
    fail: &Fail,
    group: &Group,
    is_to_fail: bool,
    attempt: &'a serde_json::Value,
) -> Result<Option<&'a serde_json::Value>, String> {
    let name = &group.name;
    match (is_to_fail, raised_in(attempt)) {
        (true, Some(raised)) if is_match(&fail.error, &raised) => Ok(None),
        (true, Some(raised)) => Err(format!(
            "making group {name} raised {raised}; it must say `{}`",
            fail.error
        )),
        (true, None) => Err(format!(
            "group {name} was made; making it must raise `{}`",
            fail.error
        )),
        (false, Some(raised)) => Err(format!("making group {name} raised {raised}")),
        (false, None) => Ok(attempt.get("value")),
    }
}

fn text(number: Option<i64>) -> String {
    number.map_or_else(|| "unknown".to_owned(), |number| number.to_string())
}

/// Returns the last step of a world: `destroy_process_group`.
#[must_use]
pub fn closing() -> Step {
    Step {
        calls: vec![Call::DestroyProcessGroup {
            group: "world".to_owned(),
        }],
        ..Step::default()
    }
}

/// Returns the whole environment of a rank, without what the launcher adds.
#[must_use]
pub fn environment(
    scenario: &Scenario,
    at: &Endpoint,
    base: &BTreeMap<String, String>,
    devices: &[Device],
    rank: Rank,
) -> BTreeMap<String, String> {
    let mut env = base.clone();
    if let Some(name) = &scenario.platform.visible_devices
        && !devices.is_empty()
    {
        let names: Vec<&str> = devices.iter().map(|device| device.name.as_str()).collect();
        env.insert(name.clone(), names.join(","));
    }
    let size = scenario.world_size.to_string();
    let placement = &scenario.placement;
    let (node, local_rank) = placement.place_of(rank).unwrap_or((0, rank.0));
    env.extend(
        [
            ("RANK", rank.to_string()),
            ("LOCAL_RANK", local_rank.to_string()),
            ("WORLD_SIZE", size),
            ("LOCAL_WORLD_SIZE", placement.ranks_on(node).to_string()),
            ("MASTER_ADDR", at.host.clone()),
            ("MASTER_PORT", at.port.to_string()),
            // One thread for each rank: worlds are many and machines are small.
            ("OMP_NUM_THREADS", "1".to_owned()),
            ("OPENBLAS_NUM_THREADS", "1".to_owned()),
            // The store looks up the name of ::ffff:127.0.0.1 for every client; where no resolver answers, that
            // stalls init for 5 s now and then. Loopback needs no resolver.
            ("RES_OPTIONS", "attempts:0".to_owned()),
            ("PYTHONDONTWRITEBYTECODE", "1".to_owned()),
            ("PYTHONUNBUFFERED", "1".to_owned()),
        ]
        .map(|(name, value)| (name.to_owned(), value)),
    );
    let of_platform = scenario.platform.env.iter();
    env.extend(of_platform.map(|(name, value)| {
        let value = value.replace(OF_THE_RANK, &rank.to_string());
        (name.clone(), value)
    }));
    env.extend(scenario.case.world.env.clone());
    env
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use allranks_model::group::Creation;
    use allranks_suite::case::OneOrMany;

    #[test]
    fn a_rank_s_device_is_called_as_its_platform_calls_it() {
        let folder =
            std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/platforms");
        let platforms = allranks_suite::platform::load(&[folder]).unwrap();
        let leased = devices(8, Some("4,5,6,7,0,1,2,3"));
        for (name, called) in [("cpu", "cpu"), ("cuda", "cuda:1"), ("hpu", "hpu")] {
            let platform = platforms.iter().find(|one| one.name == name).unwrap();
            let leased = if name == "cpu" { &[][..] } else { &leased[..2] };
            assert_eq!(device_of(platform, leased, Rank(1)), called);
        }
    }

    #[test]
    fn a_group_that_must_fail_fails_exactly_so() {
        let fail = Fail {
            at: OneOrMany::One("group cpu".to_owned()),
            on: FailOn::Members,
            error: "no backend type".to_owned(),
        };
        let group = Group {
            name: "cpu".to_owned(),
            ranks: vec![Rank(1)],
            backend: Some("gloo".to_owned()),
            on_host: true,
            how: Creation::default(),
        };
        let raised =
            |message: &str| json!({"raised": {"type": "RuntimeError", "message": message}});
        let made = json!({"raised": null, "value": {"rank": -1, "size": 0}});
        let judged = |is_member, attempt: &serde_json::Value| {
            refusal(&fail, &group, is_member, attempt).map(|value| value.is_some())
        };
        assert_eq!(judged(true, &raised("No backend type for x")), Ok(false));
        assert_eq!(judged(false, &made), Ok(true));
        for (is_member, attempt, fault) in [
            (true, raised("Broken pipe"), "it must say `no backend type`"),
            (true, made, "group cpu was made"),
            (false, raised("No backend type"), "making group cpu raised"),
        ] {
            let said = judged(is_member, &attempt).unwrap_err();
            assert!(said.contains(fault), "{said}");
        }
    }
}
