//! What to do about each kind of hang verdict, and what would show that the verdict is wrong.

use allranks_model::diagnosis::HangKind;

/// Returns what to try for a kind of verdict, most promising first.
#[must_use]
pub fn advice(kind: HangKind) -> &'static [&'static str] {
    match kind {
        HangKind::PortMismatch => &[
            "take MASTER_PORT from the environment on every rank; remove ports written into scripts",
            "print MASTER_ADDR:MASTER_PORT on every rank before init_process_group",
        ],
        HangKind::PlaceMismatch => &[
            "give every rank the same init_method, and the same MASTER_ADDR or file",
            "beware of scripts that fall back to localhost when MASTER_ADDR is not set",
        ],
        HangKind::PortInUse => &[
            "choose a free port, or let torchrun choose one: --rdzv-endpoint=localhost:0",
            "end the process that has it, if it is left from an earlier run",
        ],
        HangKind::SilentListener => {
            &["choose another MASTER_PORT: what listens there is not a store and will never answer"]
        }
        HangKind::MasterUnreachable => &[
            "check that MASTER_ADDR resolves on that rank's host: getent hosts NAME",
            "use an address of the interface that the other hosts reach",
            "check that rank 0 runs on that host, and that no firewall is in between: nc -vz HOST PORT",
        ],
        HangKind::SplitWorld => &[
            "set WORLD_SIZE on every rank; a default of 1 makes worlds of one",
            "check get_world_size() after init",
        ],
        HangKind::MissingRank => &[
            "check that the launcher started as many processes as WORLD_SIZE says",
            "check that every path of the script reaches init_process_group",
        ],
        HangKind::DuplicateRank => &[
            "take RANK, not LOCAL_RANK, from the environment when there is more than one host",
            "start every process through the launcher, so that each gets a RANK of its own",
        ],
        HangKind::WorldSizeDisagreement => {
            &["take WORLD_SIZE from the launcher on every rank; do not compute it"]
        }
        HangKind::EnvironmentMissing => &[
            "start the script with torchrun, or set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT",
        ],
        HangKind::GroupOrder => &[
            "make groups in one loop that is the same on every rank, members or not",
            "PyTorch does not notice this: results are silently wrong until something hangs",
        ],
        HangKind::GroupSkipped => &[
            "call new_group on every rank of the world, also on those that do not belong to the group",
            "or pass use_local_synchronization=True and call it on members only",
        ],
        HangKind::GroupMembersDiffer => &[
            "compute the groups from the same degrees (tp, pp, dp, ...) on every rank; print them once",
        ],
        HangKind::CollectiveSkipped => &[
            "look for a branch that depends on the rank or on data around the collective",
            "uneven data loaders end early on one rank: use the Join context manager or drop_last",
        ],
        HangKind::CollectiveMismatch => &[
            "compare the two call sites: op, reduce op, dtype, shape and root must be the same on all members",
            "TORCH_DISTRIBUTED_DEBUG=DETAIL finds most of these, but no reduce op and no root",
        ],
        HangKind::CyclicWait => &[
            "issue collectives of different groups in the same order on all ranks",
            "let one of two ranks that exchange messages receive first, or give both messages to batch_isend_irecv",
        ],
        HangKind::MessageUnmatched => &["every send needs its recv, with the same tag and group"],
        HangKind::PeerDead => &[
            "look at that rank's log first; the others' errors are effects",
            "signal 9 is often the kernel's OOM killer: dmesg | grep -i oom",
        ],
        HangKind::PeerStopped => &["let it go on: kill -CONT PID; a debugger may hold it"],
        HangKind::PeerRaised => &["look at that rank's error first; the others wait for it"],
        HangKind::DeviceBinding => &[
            "leave device_id out of init_process_group, or ask for both backends: \"cpu:gloo,DEVICE:BACKEND\"",
            "use device tensors on the device's groups and CPU tensors on Gloo's",
        ],
        HangKind::BackendMissing => &[
            "import the package that registers the backend before init_process_group",
            "check the spelling, and that torch was built with it: allranks doctor",
        ],
        HangKind::TeardownStuck => {
            &["wait for all works before destroy_process_group, on every rank"]
        }
        HangKind::StuckInCall => &[
            "a backend that loses a member inside a collective: keep the logs and report it to its maintainers",
        ],
        HangKind::Behind => &[
            "look at what that rank does after its last line: py-spy dump --pid PID, or allranks watch --stacks",
            "look for a branch that depends on the rank between its place and that of the others",
        ],
        HangKind::Slow => &["wait: a rank is late, and may come"],
        HangKind::Unknown => &["run it under allranks watch, and look at where each rank is"],
    }
}

/// Returns what to try for a cycle of ranks that all wait for messages.
#[must_use]
pub fn cycle_of_messages() -> Vec<String> {
    [
        "check source and destination of these messages: each must be received, from that rank, by the rank that it is sent to",
        "let one of two ranks that exchange messages receive first, or give both messages to batch_isend_irecv",
    ]
    .map(str::to_owned)
    .into()
}

/// Returns what to try for ranks in collectives of different groups that have the same members.
#[must_use]
pub fn other_collective() -> Vec<String> {
    [
        "compare the two call sites, and the branches that led there: on one side a collective is left out, or issued once too often",
        "issue collectives of different groups in the same order on all ranks",
    ]
    .map(str::to_owned)
    .into()
}

/// Returns what to try for a group that its members make alone and that torch names otherwise on some of them.
#[must_use]
pub fn two_names() -> Vec<String> {
    [
        "make all groups on all ranks, without use_local_synchronization",
        "or in an order in which all members of each have as many groups when they make it",
    ]
    .map(str::to_owned)
    .into()
}

/// Returns what to try for an all-to-all whose members send other amounts than are received.
#[must_use]
pub fn splits() -> Vec<String> {
    [
        "exchange the split sizes first, and receive with what the senders say",
        "or compute them on every rank from the same data",
    ]
    .map(str::to_owned)
    .into()
}

/// Returns what to try for a rank whose threads wait for each other.
#[must_use]
pub fn deadlock() -> Vec<String> {
    [
        "look at what each thread of that rank waits for: py-spy dump --pid PID",
        "give a thread that takes from a queue an item that ends it, also after an error, before the program waits for it",
        "read a queue or a pipe to its end before joining the process that writes into it",
    ]
    .map(str::to_owned)
    .into()
}

/// Returns what to try for a counter that one rank has added to another number of times than the others.
#[must_use]
pub fn counter() -> Vec<String> {
    vec!["add to a counter in one place, which every rank comes to once in each round".to_owned()]
}

/// Returns the observation that would refute a verdict of that kind.
#[must_use]
pub fn refutation(kind: HangKind) -> &'static str {
    match kind {
        HangKind::PortMismatch | HangKind::PlaceMismatch => {
            "the named ranks turn out to meet at the same place after all"
        }
        HangKind::PortInUse | HangKind::SilentListener => {
            "the port turns out to be held by a rank of this job"
        }
        HangKind::MasterUnreachable => "a rank reaches the endpoint",
        HangKind::SplitWorld | HangKind::WorldSizeDisagreement => {
            "all ranks print the same world size"
        }
        HangKind::MissingRank => "the named rank is seen in init_process_group",
        HangKind::DuplicateRank => "the processes print different ranks",
        HangKind::EnvironmentMissing | HangKind::BackendMissing | HangKind::DeviceBinding => {
            "the error is seen on a run that goes well too"
        }
        HangKind::GroupOrder | HangKind::GroupSkipped | HangKind::GroupMembersDiffer => {
            "all ranks print the same list of groups, in the same order"
        }
        HangKind::CollectiveSkipped | HangKind::CollectiveMismatch | HangKind::CyclicWait => {
            "all members print the same list of collectives, in the same order"
        }
        HangKind::MessageUnmatched => "the other side is seen to be issued",
        HangKind::PeerDead | HangKind::PeerStopped | HangKind::PeerRaised => {
            "the named rank is seen to go on"
        }
        HangKind::TeardownStuck | HangKind::StuckInCall => "the named rank comes out by itself",
        HangKind::Behind => "a later line of the named rank: logs may be cut or buffered",
        HangKind::Slow => "the named rank never comes",
        HangKind::Unknown => "nothing is claimed",
    }
}
