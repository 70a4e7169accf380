//! The groups of a rank: what `torch/distributed/distributed_c10d.py` keeps in `_world`, and how it makes them.
//!
//! c10d knows process groups, stores and backends. That there is a default group, which keys groups meet under, which
//! backend serves which device, and which ranks are members, is decided in that file; here it is decided the same way, so that
//! c10d is asked what Python programs ask it.

use std::collections::HashMap;
use std::env;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use allranks_model::names::Rank;
use allranks_model::store::StoreMethod;
use allranks_protocol::{DeviceArgument, RankRef};
use serde_json::{Value, json};

use super::gathered::GatheredCall;
use crate::c10d::{self, BackendArguments, Error, Group, Kind, Result, Store};

/// The name of the default group in calls.
const WORLD: &str = "world";

/// A group this rank is in.
#[derive(Debug)]
pub struct Member {
    /// The process group of c10d.
    pub group: Group,
    /// The global ranks of the members, in the order of the group.
    pub ranks: Vec<u32>,
    /// The group rank of this process.
    pub rank: u32,
    /// The backend as it was asked for, in small letters: `gloo`, `cpu:gloo,cuda:nccl`.
    pub backend: String,
    /// The device types that the group has backends for.
    pub devices: Vec<String>,
    /// True for the default group.
    pub is_world: bool,
    /// The calls gathered while a coalescing manager is open; `None` while none is.
    pub gathered: Mutex<Option<Vec<GatheredCall>>>,
    /// The device that the group is bound to, such as `cuda:1`; `None` if it is bound to none.
    pub bound: Option<String>,
    name: String,
}

/// This rank's membership of the group that a name stands for; `None` if the rank is not a member.
pub type Membership = Option<Arc<Member>>;

/// The arguments of `init_process_group`, as the call of the protocol has them.
#[derive(Debug)]
pub struct InitArguments<'a> {
    pub backend: &'a str,
    pub method: StoreMethod,
    pub url: Option<&'a str>,
    pub rank: Rank,
    pub world_size: u32,
    pub timeout: Duration,
    pub hosts: Option<bool>,
    pub device_id: Option<&'a DeviceArgument>,
}

/// The arguments of `new_group`, as the call of the protocol has them.
#[derive(Debug)]
pub struct NewGroupArguments<'a> {
    pub name: &'a str,
    pub ranks: &'a [Rank],
    pub backend: Option<&'a str>,
    pub timeout: Duration,
    pub local_sync: bool,
}

/// All groups of a rank, shared by its threads.
#[derive(Clone, Debug, Default)]
pub struct Groups(Arc<Mutex<Known>>);

#[derive(Debug, Default)]
struct Known {
    /// The groups by the names that calls use; the world is not among them.
    named: HashMap<String, Membership>,
    world: Membership,
    /// The store of the world, which groups made later meet at.
    store: Option<Arc<Store>>,
    /// Every group that has not been destroyed.
    alive: Vec<Arc<Member>>,
    /// The number of names that have been numbered.
    count: u32,
}

fn value_error(message: impl Into<String>) -> Error {
    Error::new(Kind::Value, message)
}

impl Groups {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the default group.
    ///
    /// # Errors
    /// There is none.
    pub fn world(&self) -> Result<Arc<Member>> {
        self.known().world.clone().ok_or_else(|| {
            value_error(
                "Default process group has not been initialized, please make sure to call \
                 init_process_group.",
            )
        })
    }

    /// Returns the group of a name that calls use.
    ///
    /// # Errors
    /// There is none of that name, or no default group.
    pub fn find(&self, name: &str) -> Result<Membership> {
        if name == WORLD {
            return self.world().map(Some);
        }
        self.known()
            .named
            .get(name)
            .cloned()
            .ok_or_else(|| Error::new(Kind::Lookup, format!("this rank has no group '{name}'")))
    }

    /// Initialises the world, as `init_process_group` does. Returns rank, world size and backend.
    ///
    /// # Errors
    /// c10d's.
    pub fn init(&self, how: &InitArguments<'_>) -> Result<Value> {
        if self.known().world.is_some() {
            return Err(value_error(
                "trying to initialize the default process group twice!",
            ));
        }
        let (rank, size) = match how.method {
            StoreMethod::Env => (from_environment("RANK")?, from_environment("WORLD_SIZE")?),
            StoreMethod::Tcp | StoreMethod::File | StoreMethod::Store => {
                (how.rank.0, how.world_size)
            }
        };
        let bound = match how.device_id {
            None => None,
            Some(DeviceArgument::Device(device)) => Some(device.clone()),
            Some(DeviceArgument::Index(index)) => Some(format!("cuda:{index}")),
        };
        let name = self.number();
        let store = Arc::new(rendezvous(how, rank, size)?);
        let made = make(&MakeArguments {
            name: &name,
            description: "default_pg",
            backend: how.backend,
            store: &store,
            timeout: how.timeout,
            rank,
            size,
            global_ranks: &[],
            bound: bound.as_deref(),
        })?;
        let told = json!({
            "rank": rank,
            "world_size": size,
            "backend": made.backend,
        });
        {
            let mut known = self.known();
            known.alive.push(Arc::clone(&made));
            known.world = Some(made);
            known.store = Some(Arc::clone(&store));
        }
        if meets_after_init() {
            meet(&store, &name, size, how.timeout)?;
        }
        Ok(told)
    }

    /// Makes a group, as `new_group` does: called on every rank, members or not. Returns rank and size in it.
    ///
    /// # Errors
    /// A rank is not in the world; or c10d's.
    pub fn new_group(&self, how: &NewGroupArguments<'_>) -> Result<Value> {
        let world = self.world()?;
        let store = self.known().store.clone();
        let store = store.ok_or_else(|| value_error("the default process group has no store"))?;
        let size = world.ranks.len();
        let me = world.rank;
        let mut ranks: Vec<u32> = how.ranks.iter().map(|rank| rank.0).collect();
        if how.local_sync && !ranks.contains(&me) {
            return Ok(self.keep(how.name, None));
        }
        ranks.sort_unstable();
        if ranks.len() > size {
            return Err(value_error(
                "the new group's world size should be less or equal to the world size set by \
                 init_process_group",
            ));
        }
        if ranks.iter().any(|rank| *rank as usize >= size) {
            return Err(value_error(
                "The new group's rank should be within the world_size set by init_process_group",
            ));
        }
        let name = if how.local_sync {
            // Any name will do that members agree on without a word; Python hashes the same two things.
            format!("{ranks:?}_{}", self.known().alive.len())
        } else {
            self.number()
        };
        let Some(rank) = ranks.iter().position(|rank| *rank == me) else {
            if meets_after_init() {
                meet(&store, &name, size as u32, how.timeout)?;
            }
            return Ok(self.keep(how.name, None));
        };
        let global_ranks: Vec<u64> = ranks.iter().map(|rank| u64::from(*rank)).collect();
        let made = make(&MakeArguments {
            name: &name,
            description: "undefined",
            backend: how.backend.unwrap_or(&world.backend),
            store: &store,
            timeout: how.timeout,
            rank: rank as u32,
            size: ranks.len() as u32,
            global_ranks: &global_ranks,
            bound: world.bound.as_deref(),
        })?;
        self.known().alive.push(Arc::clone(&made));
        if meets_after_init() {
            if how.local_sync {
                meet(
                    &store.prefix(&format!("{name}/"))?,
                    &name,
                    ranks.len() as u32,
                    how.timeout,
                )?;
            } else {
                meet(&store, &name, size as u32, how.timeout)?;
            }
        }
        Ok(self.keep(how.name, Some(made)))
    }

    /// Keeps a new group under its name. Returns what the library reports of it.
    fn keep(&self, name: &str, membership: Membership) -> Value {
        let reported = match &membership {
            None => json!({"rank": -1, "size": 0}),
            Some(member) => {
                let device = member.devices.first().map_or("cpu", String::as_str);
                let timeout = member.group.timeout(device).ok();
                json!({
                    "rank": member.rank,
                    "size": member.ranks.len(),
                    "timeout_s": timeout.map(|timeout| timeout.as_secs_f64()),
                })
            }
        };
        self.known().named.insert(name.to_owned(), membership);
        reported
    }

    /// Destroys a group, as `destroy_process_group` does, and forgets its name; with the world, all groups.
    ///
    /// # Errors
    /// There is no such group, or c10d's.
    pub fn destroy(&self, name: &str) -> Result<()> {
        if name == WORLD {
            let mut alive = {
                let known = self.known();
                if known.world.is_none() {
                    return Err(Error::new(Kind::Value, "Process group cannot be None"));
                }
                known.alive.clone()
            };
            // In the order in which Python does it: by their names, as text, backwards.
            alive.sort_by(|one, other| other.name.cmp(&one.name));
            for member in &alive {
                member.group.shutdown()?;
            }
            let forgotten = std::mem::take(&mut *self.known());
            // Groups end their threads and connections here, and not while the lock is held.
            drop(forgotten);
            return Ok(());
        }
        let membership = self.find(name)?;
        if let Some(member) = &membership {
            member.group.shutdown()?;
            self.known()
                .alive
                .retain(|other| !Arc::ptr_eq(other, member));
        }
        self.known().named.remove(name);
        Ok(())
    }

    /// Returns rank, size and backend of a group, as the library reports them.
    ///
    /// # Errors
    /// There is no such group.
    pub fn who_am_i(&self, name: &str) -> Result<Value> {
        Ok(match self.find(name)? {
            None => json!({"rank": -1, "size": 0, "backend": null}),
            Some(member) => json!({
                "rank": member.rank,
                "size": member.ranks.len(),
                "backend": member.backend,
            }),
        })
    }

    /// Returns the name of the next group: a number that all ranks count alike.
    fn number(&self) -> String {
        let mut known = self.known();
        let name = known.count.to_string();
        known.count += 1;
        name
    }
}

impl Member {
    /// Converts a root or peer to a group rank.
    ///
    /// # Errors
    /// A global rank that is no member.
    pub fn group_rank(&self, rank: RankRef) -> Result<i64> {
        match rank {
            RankRef::Group(rank) => Ok(i64::from(rank)),
            RankRef::Global(Rank(rank)) if self.is_world => Ok(i64::from(rank)),
            RankRef::Global(Rank(rank)) => self
                .ranks
                .iter()
                .position(|member| *member == rank)
                .map(|position| position as i64)
                .ok_or_else(|| {
                    value_error(format!(
                        "Global rank {rank} is not part of group {}",
                        self.name
                    ))
                }),
        }
    }

    /// Converts a group rank to a global rank.
    ///
    /// # Errors
    /// The group is not as large.
    pub fn global_rank(&self, rank: u32) -> Result<u32> {
        if self.is_world {
            return Ok(rank);
        }
        self.ranks.get(rank as usize).copied().ok_or_else(|| {
            value_error(format!(
                "Group rank {rank} is not part of group {}",
                self.name
            ))
        })
    }

    /// Returns the device that the group's barriers use: `cpu`, `cuda:1`, or a device type without index.
    #[must_use]
    pub fn barrier_device(&self) -> &str {
        match &self.bound {
            Some(device) => device,
            None if self.devices.iter().any(|device| device == "cpu") => "cpu",
            None => self.devices.first().map_or("cpu", String::as_str),
        }
    }
}

/// Converts a root or peer to a rank in a group that this rank may not be in.
///
/// # Errors
/// A global rank that is not a member, or any rank where the members are not known.
pub fn group_rank(membership: &Membership, rank: RankRef) -> Result<i64> {
    match (membership, rank) {
        (Some(member), rank) => member.group_rank(rank),
        (None, RankRef::Group(rank)) => Ok(i64::from(rank)),
        (None, RankRef::Global(_)) => Err(value_error(
            "Group GroupMember.NON_GROUP_MEMBER is not registered, please create group with \
             torch.distributed.new_group API",
        )),
    }
}

fn from_environment<T: std::str::FromStr>(name: &str) -> Result<T> {
    let text = env::var(name).unwrap_or_default();
    if text.is_empty() {
        return Err(value_error(format!(
            "Error initializing torch.distributed using env:// rendezvous: environment variable {name} \
             expected, but not set"
        )));
    }
    text.parse()
        .map_err(|_| value_error(format!("environment variable {name} is {text:?}")))
}

/// Makes the store of the world's rendezvous, as `torch/distributed/rendezvous.py` does.
fn rendezvous(how: &InitArguments<'_>, rank: u32, size: u32) -> Result<Store> {
    let url = how.url.unwrap_or_default();
    let address = |text: &str| -> Result<(String, u16)> {
        let (host, port) = text
            .rsplit_once(':')
            .ok_or_else(|| value_error(format!("port number missing in {text:?}")))?;
        let port = port.parse().map_err(|_| {
            value_error(format!(
                "port must have value from 0 to 65535 but was {port}."
            ))
        })?;
        Ok((host.trim_matches(['[', ']']).to_owned(), port))
    };
    // Under torchrun the agent keeps the store, and no rank does.
    let is_agents = env::var("TORCHELASTIC_USE_AGENT_STORE").is_ok_and(|value| value == "True");
    let shared = |host: &str, port: u16| {
        let hosts = rank == 0 && !is_agents;
        Store::tcp(host, port, size, hosts, how.timeout, !is_agents)
    };
    let store = match how.method {
        StoreMethod::Env => {
            let host: String = from_environment("MASTER_ADDR")?;
            shared(&host, from_environment("MASTER_PORT")?)?
        }
        StoreMethod::Tcp => {
            let (host, port) = address(url.trim_start_matches("tcp://"))?;
            shared(&host, port)?
        }
        StoreMethod::File => Store::file(Path::new(url.trim_start_matches("file://")), size)?,
        StoreMethod::Store => {
            let (host, port) = address(url)?;
            let hosts = how.hosts.unwrap_or(rank == 0);
            // Passed as `store=`, it is used as it is.
            return Store::tcp(&host, port, size, hosts, how.timeout, false);
        }
    };
    store.set_timeout(how.timeout)?;
    store.prefix("default_pg")
}

/// Returns true if `TORCH_DIST_INIT_BARRIER` asks that ranks wait for each other once a group is made.
fn meets_after_init() -> bool {
    env::var("TORCH_DIST_INIT_BARRIER").is_ok_and(|value| value == "1")
}

/// Waits at a store for all `size` ranks, as `_store_based_barrier` does.
fn meet(store: &Store, name: &str, size: u32, timeout: Duration) -> Result<()> {
    let key = format!("store_based_barrier_key:{name}");
    let last = format!("{key}:last_worker");
    if store.add(&key, 1)? == i64::from(size) {
        store.set(&last, "1")?;
    }
    store.wait(&last, timeout)
}

/// The arguments of [`make`].
struct MakeArguments<'a> {
    name: &'a str,
    description: &'a str,
    backend: &'a str,
    store: &'a Store,
    timeout: Duration,
    rank: u32,
    size: u32,
    /// The global ranks of the members; empty for the world.
    global_ranks: &'a [u64],
    bound: Option<&'a str>,
}

/// Makes a group with its backends, as `_new_process_group_helper` does.
fn make(how: &MakeArguments<'_>) -> Result<Arc<Member>> {
    let backend = how.backend.to_lowercase();
    let served = backends(&backend)?;
    let prefixed = how.store.prefix(&format!("{}/", how.name))?;
    let has_nccl = served.iter().any(|(name, _)| name == "nccl");
    let default_backend = if has_nccl { "nccl" } else { "gloo" };
    let group = Group::new(&prefixed, how.rank, how.size, default_backend)?;
    if let Some(device) = how.bound {
        group.bind(device)?;
    }
    for (backend, devices) in &served {
        let first = devices.first().map_or("cpu", String::as_str);
        let devices: Vec<&str> = devices.iter().map(String::as_str).collect();
        let store = prefixed.prefix(&format!("{first}/"))?;
        let arguments = BackendArguments {
            devices: &devices,
            store: &store,
            timeout: how.timeout,
            global_ranks: how.global_ranks,
            name: how.name,
            wrapped: c10d::debug_is_detail(),
            bound: how.bound,
        };
        match backend.as_str() {
            "gloo" => group.add_gloo(&arguments)?,
            "nccl" => group.add_nccl(&arguments)?,
            other => {
                return Err(value_error(format!("Unknown backend type {other}")));
            }
        }
    }
    group.set_name(how.name, how.description)?;
    let is_world = how.global_ranks.is_empty();
    Ok(Arc::new(Member {
        group,
        ranks: match is_world {
            true => (0..how.size).collect(),
            false => how.global_ranks.iter().map(|rank| *rank as u32).collect(),
        },
        rank: how.rank,
        devices: served
            .into_iter()
            .flat_map(|(_, devices)| devices)
            .collect(),
        backend,
        is_world,
        gathered: Mutex::default(),
        bound: how.bound.map(str::to_owned),
        name: how.name.to_owned(),
    }))
}

/// Returns each backend of a text such as `cpu:gloo,cuda:nccl` and the device types that it serves, as `BackendConfig` does.
fn backends(text: &str) -> Result<Vec<(String, Vec<String>)>> {
    let owned = |names: &[&str]| {
        names
            .iter()
            .map(|&name| name.to_owned())
            .collect::<Vec<_>>()
    };
    if !text.contains(':') {
        let devices = match text {
            "nccl" => owned(&["cuda"]),
            _ => owned(&["cpu", "cuda"]),
        };
        return Ok(vec![(text.to_owned(), devices)]);
    }
    let mut served: Vec<(String, Vec<String>)> = Vec::new();
    for pair in text.split(',') {
        let (device, backend) = pair
            .split_once(':')
            .ok_or_else(|| value_error(format!("Invalid device:backend pairing: {pair}")))?;
        served.push((backend.to_owned(), owned(&[device])));
    }
    // One backend for all of them is made once.
    if served.iter().all(|(backend, _)| *backend == served[0].0) {
        let devices = served
            .iter()
            .flat_map(|(_, devices)| devices.clone())
            .collect();
        return Ok(vec![(served[0].0.clone(), devices)]);
    }
    Ok(served)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backends_of_a_string() {
        let of = |text: &str| backends(text).unwrap();
        let one = |name: &str, devices: &[&str]| {
            (
                name.to_owned(),
                devices.iter().map(|&device| device.to_owned()).collect(),
            )
        };
        assert_eq!(of("gloo"), [one("gloo", &["cpu", "cuda"])]);
        assert_eq!(of("nccl"), [one("nccl", &["cuda"])]);
        assert_eq!(
            of("cpu:gloo,cuda:nccl"),
            [one("gloo", &["cpu"]), one("nccl", &["cuda"])]
        );
        assert_eq!(of("cpu:gloo,cuda:gloo"), [one("gloo", &["cpu", "cuda"])]);
        assert!(backends("cpu:gloo,nccl").is_err());
    }

    /// Makes a world of one rank. Returns all groups, and the world; `folder` holds its store.
    fn alone(folder: &Path) -> (Groups, Arc<Member>) {
        let groups = Groups::default();
        let told = groups
            .init(&InitArguments {
                backend: "GLOO",
                method: StoreMethod::File,
                url: Some(&format!("file://{}", folder.join("store").display())),
                rank: Rank(0),
                world_size: 1,
                timeout: Duration::from_secs(5),
                hosts: None,
                device_id: None,
            })
            .unwrap();
        assert_eq!(told, json!({"rank": 0, "world_size": 1, "backend": "gloo"}));
        let world = groups.world().unwrap();
        (groups, world)
    }

    #[test]
    fn a_group_tells_who_is_in_it_until_it_is_destroyed() {
        let folder = tempfile::tempdir().unwrap();
        let (groups, _) = alone(folder.path());
        let new = |name, ranks: &[Rank]| {
            groups.new_group(&NewGroupArguments {
                name,
                ranks,
                backend: None,
                timeout: Duration::from_secs(7),
                local_sync: false,
            })
        };
        let told = new("side", &[Rank(0)]).unwrap();
        assert_eq!(told, json!({"rank": 0, "size": 1, "timeout_s": 7.0}));
        assert_eq!(new("none", &[]).unwrap(), json!({"rank": -1, "size": 0}));
        let strange = new("strange", &[Rank(1)]).unwrap_err();
        assert!(strange.message.contains("should be within"), "{strange}");
        groups.destroy("side").unwrap();
        assert_eq!(groups.find("side").unwrap_err().kind, Kind::Lookup);
        groups.destroy(WORLD).unwrap();
        assert!(groups.find(WORLD).is_err());
    }

    #[test]
    fn global_ranks_become_the_groups() {
        let folder = tempfile::tempdir().unwrap();
        let (_groups, world) = alone(folder.path());
        let global = |rank| RankRef::Global(Rank(rank));
        let side = Member {
            group: Group::new(
                &Store::file(&folder.path().join("side"), 1).unwrap(),
                1,
                2,
                "gloo",
            )
            .unwrap(),
            ranks: vec![2, 5],
            rank: 1,
            backend: "gloo".to_owned(),
            devices: Vec::new(),
            is_world: false,
            gathered: Mutex::default(),
            bound: None,
            name: "1".to_owned(),
        };
        assert_eq!(side.group_rank(global(5)), Ok(1));
        assert_eq!(side.group_rank(RankRef::Group(1)), Ok(1));
        assert_eq!(side.global_rank(0), Ok(2));
        assert!(side.group_rank(global(1)).is_err() && side.global_rank(2).is_err());
        // The world's are taken as they are, and left to c10d.
        assert_eq!(world.group_rank(global(9)), Ok(9));
        assert!(group_rank(&None, global(0)).is_err());
        assert_eq!(group_rank(&None, RankRef::Group(3)), Ok(3));
    }

    #[test]
    fn there_is_no_world_before_init() {
        let groups = Groups::default();
        assert!(
            groups
                .find(WORLD)
                .unwrap_err()
                .message
                .contains("not been initialized")
        );
        assert_eq!(groups.find("side").unwrap_err().kind, Kind::Lookup);
        assert!(groups.destroy(WORLD).is_err());
    }
}
