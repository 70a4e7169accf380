//! Turns the calls of a step into [`TraceEvent`]s: what each call means to the other ranks, for a diagnosis.
//!
//! Python statements and threads hide what they do. After one of them a rank may have called anything: its events then
//! count as its own code, and no rule of a diagnosis uses them against the rank.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use allranks_diagnose::{Collective, EventKind, Message, Rendezvous, TraceEvent, list};
use allranks_model::group::Group;
use allranks_model::names::Rank;
use allranks_model::store::StoreMethod;
use allranks_oracle::RankStep;
use allranks_protocol::{Call, RankRef, Tensor};

/// What every rank knows before a step.
#[derive(Clone, Debug)]
pub struct Setting<'a> {
    /// The groups that exist.
    pub groups: &'a [Arc<Group>],
    /// The endpoint, `host:port`, that the launcher told every rank.
    pub endpoint: String,
    /// The world size.
    pub size: u32,
}

/// Returns the events of a rank: one for each of its calls.
#[must_use]
pub fn events(step: &RankStep, rank: Rank, setting: &Setting<'_>) -> Vec<TraceEvent> {
    let mut reader = Reader::new(rank, setting, &step.step.tensors);
    (0..)
        .zip(&step.step.calls)
        .map(|(index, call)| TraceEvent {
            what: reader.read(index, call),
            at: String::new(),
        })
        .collect()
}

struct Reader<'a> {
    rank: Rank,
    setting: &'a Setting<'a>,
    tensors: &'a [Tensor],
    members: HashMap<String, Arc<[Rank]>>,
    /// Environment variables that the rank has changed; none for one that it has removed.
    environment: BTreeMap<&'static str, Option<String>>,
    /// Number of collectives issued so far, by group.
    issued: HashMap<String, usize>,
    /// Messages issued so far.
    messages: Vec<Message>,
    /// For each call that made a work, the event that the work belongs to.
    works: HashMap<usize, EventKind>,
    is_opaque: bool,
}

/// The variables that `env://` reads.
const READ: &[&str] = &["MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE"];

impl<'a> Reader<'a> {
    fn new(rank: Rank, setting: &'a Setting<'a>, tensors: &'a [Tensor]) -> Self {
        let members = setting
            .groups
            .iter()
            .map(|group| (group.name.clone(), group.ranks.clone().into()))
            .collect();
        Self {
            rank,
            setting,
            tensors,
            members,
            environment: BTreeMap::new(),
            issued: HashMap::new(),
            messages: Vec::new(),
            works: HashMap::new(),
            is_opaque: false,
        }
    }

    fn read(&mut self, index: usize, call: &Call) -> EventKind {
        if self.is_opaque {
            return own(call);
        }
        let what = self.understand(call);
        if call.keeps_work() {
            let wait = match &what {
                EventKind::Collective(one) => {
                    EventKind::Await(one.group.clone(), self.issued[&one.group] - 1)
                }
                EventKind::Message(message) => {
                    let nth = self.messages.iter().filter(|one| *one == message).count();
                    EventKind::AwaitMessage(message.clone(), nth)
                }
                _ => own(call),
            };
            self.works.insert(index, wait);
        }
        what
    }

    fn understand(&mut self, call: &Call) -> EventKind {
        match call {
            Call::Attempt { inner } => self.understand(inner),
            Call::InitProcessGroup {
                method,
                url,
                rank,
                world_size,
                ..
            } => self.init(*method, url.as_deref(), *rank, *world_size),
            Call::NewGroup {
                name,
                ranks,
                local_sync,
                ..
            } => {
                let mut members = ranks.clone();
                members.sort_unstable();
                self.members.insert(name.clone(), members.clone().into());
                match local_sync {
                    true => EventKind::Collective(self.meeting_of(members)),
                    false => EventKind::NewGroup(members),
                }
            }
            Call::SplitGroup { name, ranks, .. } => {
                self.members.insert(name.clone(), ranks.clone().into());
                EventKind::NewGroup(ranks.clone())
            }
            Call::DestroyProcessGroup { group } => EventKind::Destroy(group.clone()),
            Call::Setenv { name, value } => {
                if let Some(known) = READ.iter().find(|known| *known == name) {
                    self.environment.insert(known, value.clone());
                }
                own(call)
            }
            Call::Wait { work, .. } | Call::Future { work } => {
                let wait = self.works.get(work);
                wait.cloned().unwrap_or_else(|| own(call))
            }
            Call::Send {
                group, peer, tag, ..
            }
            | Call::Isend {
                group, peer, tag, ..
            } => self.message(group, true, Some(*peer), *tag),
            Call::Recv {
                group, peer, tag, ..
            } => self.message(group, false, *peer, *tag),
            Call::Irecv {
                group, peer, tag, ..
            } => self.message(group, false, Some(*peer), *tag),
            Call::Python { source, unnoticed } if *unnoticed || !touches_groups(source) => {
                EventKind::Own("statements".to_owned())
            }
            Call::Python { .. } | Call::Stack { .. } | Call::Together { .. } => {
                self.is_opaque = true;
                own(call)
            }
            _ => match self.collective(call) {
                Some(one) => {
                    *self.issued.entry(one.group.clone()).or_default() += 1;
                    EventKind::Collective(one)
                }
                None => own(call),
            },
        }
    }

    /// Returns the collective by which the members of a new group, and no other ranks, make it.
    fn meeting_of(&mut self, members: Vec<Rank>) -> Collective {
        let group = format!("ranks {}", list(&members));
        *self.issued.entry(group.clone()).or_default() += 1;
        Collective {
            group,
            members: members.into(),
            name: "new_group".to_owned(),
            nature: BTreeMap::new(),
            splits: None,
        }
    }

    fn init(&self, method: StoreMethod, url: Option<&str>, rank: Rank, size: u32) -> EventKind {
        let variable = |name: &'static str, otherwise: String| match self.environment.get(name) {
            Some(value) => value.clone(),
            None => Some(otherwise),
        };
        let endpoint = &self.setting.endpoint;
        let (place, rank, world_size) = match method {
            StoreMethod::Env => {
                let (host, port) = endpoint.rsplit_once(':').unwrap_or((endpoint, ""));
                let host = variable("MASTER_ADDR", host.to_owned());
                let port = variable("MASTER_PORT", port.to_owned());
                let own = variable("RANK", self.rank.to_string());
                let size = variable("WORLD_SIZE", self.setting.size.to_string());
                let number = |text: Option<String>| text.and_then(|text| text.parse().ok());
                match (host, port, number(own), number(size)) {
                    (Some(host), Some(port), Some(own), Some(size)) => {
                        (format!("{host}:{port}"), own, size)
                    }
                    // Without the variable, init raises before the rank meets any other.
                    _ => return EventKind::Own("init_process_group".to_owned()),
                }
            }
            StoreMethod::Tcp | StoreMethod::File | StoreMethod::Store => {
                let url = url.unwrap_or_default();
                let place = url.split_once("://").map_or(url, |(_, place)| place);
                (place.to_owned(), rank.0, size)
            }
        };
        EventKind::Init(Rendezvous {
            method: method.name().to_owned(),
            place,
            assigned: (method != StoreMethod::File).then(|| endpoint.clone()),
            rank,
            world_size,
        })
    }

    fn message(&mut self, group: &str, sends: bool, peer: Option<RankRef>, tag: u32) -> EventKind {
        let message = Message {
            group: group.to_owned(),
            sends,
            peer: peer.and_then(|peer| self.global(group, peer)),
            tag,
        };
        self.messages.push(message.clone());
        EventKind::Message(message)
    }

    fn global(&self, group: &str, rank: RankRef) -> Option<Rank> {
        match rank {
            RankRef::Global(rank) => Some(rank),
            RankRef::Group(rank) => self.members.get(group)?.get(rank as usize).copied(),
        }
    }

    /// Returns the collective of a call, with the parameters that must be alike on every member. Sizes are left out
    /// where the op lets them differ.
    fn collective(&self, call: &Call) -> Option<Collective> {
        let (group, op, root, tensor, is_size_common) = match call {
            Call::AllReduce {
                group, tensor, op, ..
            } => (group, Some(op), None, Some(tensor), true),
            Call::Broadcast {
                group,
                tensor,
                root,
                ..
            } => (group, None, Some(root), Some(tensor), true),
            Call::Reduce {
                group,
                tensor,
                op,
                root,
                ..
            } => (group, Some(op), Some(root), Some(tensor), true),
            Call::AllReduceCoalesced { group, op, .. }
            | Call::AllReduceSparse { group, op, .. } => (group, Some(op), None, None, false),
            Call::AllGather { group, input, .. } | Call::AllToAllSingle { group, input, .. } => {
                (group, None, None, Some(input), false)
            }
            Call::AllGatherIntoTensor { group, input, .. } => {
                (group, None, None, Some(input), true)
            }
            Call::Gather {
                group, input, root, ..
            } => (group, None, Some(root), Some(input), true),
            Call::Scatter {
                group,
                output,
                root,
                ..
            } => (group, None, Some(root), Some(output), true),
            Call::ReduceScatter {
                group, output, op, ..
            } => (group, Some(op), None, Some(output), false),
            Call::ReduceScatterTensor {
                group, output, op, ..
            } => (group, Some(op), None, Some(output), true),
            Call::AllGatherCoalesced { group, .. }
            | Call::AllToAll { group, .. }
            | Call::Barrier { group, .. }
            | Call::MonitoredBarrier { group }
            | Call::Coalesced { group, .. }
            | Call::AllGatherObject { group, .. } => (group, None, None, None, false),
            Call::GatherObject { group, root, .. }
            | Call::BroadcastObjectList { group, root, .. }
            | Call::ScatterObjectList { group, root, .. } => (group, None, Some(root), None, false),
            _ => return None,
        };
        let mut nature = BTreeMap::new();
        if let Some(op) = op {
            nature.insert("reduce op", op.name().to_owned());
        }
        if let Some(root) = root.and_then(|root| self.global(group, *root)) {
            nature.insert("root", root.to_string());
        }
        if let Some(tensor) = tensor.and_then(|index| self.tensors.get(*index)) {
            nature.insert("dtype", tensor.dtype.name().to_owned());
            if is_size_common {
                let elements: u64 = tensor.shape.iter().product();
                nature.insert("elements", elements.to_string());
            }
        }
        Some(Collective {
            group: group.clone(),
            members: self.members.get(group)?.clone(),
            name: call.name().to_owned(),
            nature,
            splits: None,
        })
    }
}

/// Returns true if Python statements may do something that other ranks notice.
fn touches_groups(source: &str) -> bool {
    ["dist", "group", "torch"]
        .iter()
        .any(|word| source.contains(word))
}

fn own(call: &Call) -> EventKind {
    EventKind::Own(call.names().last().copied().unwrap_or_default().to_owned())
}
