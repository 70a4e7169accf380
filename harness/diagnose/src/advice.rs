//! What to do about each kind of trouble, and what would show that the verdict is wrong.

use allranks_model::diagnosis::Kind;

/// What to try, most promising first.
#[must_use]
pub fn advice(kind: Kind) -> &'static [&'static str] {
    match kind {
        Kind::PortMismatch => &[
            "take MASTER_PORT from the environment on every rank; remove ports written into scripts",
            "print MASTER_ADDR:MASTER_PORT on every rank before init_process_group",
        ],
        Kind::PlaceMismatch => &[
            "give every rank the same init_method, and the same MASTER_ADDR or file",
            "beware of scripts that fall back to localhost when MASTER_ADDR is not set",
        ],
        Kind::PortInUse => &[
            "choose a free port, or let torchrun choose one: --rdzv-endpoint=localhost:0",
            "end the process that has it, if it is left from an earlier run",
        ],
        Kind::SilentListener => {
            &["choose another MASTER_PORT: what listens there is not a store and will never answer"]
        }
        Kind::MasterUnreachable => &[
            "check that MASTER_ADDR resolves on that rank's host: getent hosts NAME",
            "use an address of the interface that the other hosts reach",
        ],
        Kind::SplitWorld => &[
            "set WORLD_SIZE on every rank; a default of 1 makes worlds of one",
            "check get_world_size() after init",
        ],
        Kind::MissingRank => &[
            "check that the launcher started as many processes as WORLD_SIZE says",
            "check that every path of the script reaches init_process_group",
        ],
        Kind::DuplicateRank => &[
            "take RANK, not LOCAL_RANK, from the environment when there is more than one host",
            "start every process through the launcher, so that each gets a RANK of its own",
        ],
        Kind::WorldSizeDisagreement => {
            &["take WORLD_SIZE from the launcher on every rank; do not compute it"]
        }
        Kind::EnvironmentMissing => &[
            "start the script with torchrun, or set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT",
        ],
        Kind::GroupOrder => &[
            "make groups in one loop that is the same on every rank, members or not",
            "PyTorch does not notice this: results are silently wrong until something hangs",
        ],
        Kind::GroupSkipped => &[
            "call new_group on every rank of the world, also on those that do not belong to the group",
            "or pass use_local_synchronization=True and call it on members only",
        ],
        Kind::GroupMembersDiffer => &[
            "compute the groups from the same degrees (tp, pp, dp, ...) on every rank; print them once",
        ],
        Kind::CollectiveSkipped => &[
            "look for a branch that depends on the rank or on data around the collective",
            "uneven data loaders end early on one rank: use the Join context manager or drop_last",
        ],
        Kind::CollectiveMismatch => &[
            "compare the two call sites: op, reduce op, dtype, shape and root must be the same on all members",
            "TORCH_DISTRIBUTED_DEBUG=DETAIL finds most of these, but no reduce op and no root",
        ],
        Kind::CyclicWait => &[
            "issue collectives of different groups in the same order on all ranks",
            "let one of two ranks that exchange messages receive first, or give both messages to batch_isend_irecv",
        ],
        Kind::MessageUnmatched => &["every send needs its recv, with the same tag and group"],
        Kind::PeerDead => &[
            "look at that rank's log first; the others' errors are effects",
            "signal 9 is often the kernel's OOM killer: dmesg | grep -i oom",
        ],
        Kind::PeerStopped => &["let it go on: kill -CONT PID; a debugger may hold it"],
        Kind::PeerRaised => &["look at that rank's error first; the others wait for it"],
        Kind::DeviceBinding => &[
            "leave device_id out of init_process_group, or ask for both backends: \"cpu:gloo,DEVICE:BACKEND\"",
            "use device tensors on the device's groups and CPU tensors on Gloo's",
        ],
        Kind::BackendMissing => &[
            "import the package that registers the backend before init_process_group",
            "check the spelling, and that torch was built with it: allranks doctor",
        ],
        Kind::TeardownStuck => &["wait for all works before destroy_process_group, on every rank"],
        Kind::StuckInCall => &[
            "a backend that loses a member inside a collective: keep the logs and report it to its maintainers",
        ],
        Kind::Behind => &[
            "look at what that rank does after its last line: py-spy dump --pid PID, or allranks watch --stacks",
            "look for a branch that depends on the rank between its place and that of the others",
        ],
        Kind::Slow => &["wait: somebody is late and on the way"],
        Kind::Unknown => &["run it under allranks watch, and look at where each rank is"],
    }
}

/// What would refute a verdict of that kind.
#[must_use]
pub fn refutation(kind: Kind) -> &'static str {
    match kind {
        Kind::PortMismatch | Kind::PlaceMismatch => {
            "the named ranks turn out to meet at the same place after all"
        }
        Kind::PortInUse | Kind::SilentListener => {
            "the port turns out to be held by a rank of this job"
        }
        Kind::MasterUnreachable => "the named rank reaches the host",
        Kind::SplitWorld | Kind::WorldSizeDisagreement => "all ranks print the same world size",
        Kind::MissingRank => "the named rank is seen in init_process_group",
        Kind::DuplicateRank => "the processes print different ranks",
        Kind::EnvironmentMissing | Kind::BackendMissing | Kind::DeviceBinding => {
            "the error is seen on a run that goes well too"
        }
        Kind::GroupOrder | Kind::GroupSkipped | Kind::GroupMembersDiffer => {
            "all ranks print the same list of groups, in the same order"
        }
        Kind::CollectiveSkipped | Kind::CollectiveMismatch | Kind::CyclicWait => {
            "all members print the same list of collectives, in the same order"
        }
        Kind::MessageUnmatched => "the other side is seen to be issued",
        Kind::PeerDead | Kind::PeerStopped | Kind::PeerRaised => "the named rank is seen to go on",
        Kind::TeardownStuck | Kind::StuckInCall => "the named rank comes out by itself",
        Kind::Behind => "a later line of the named rank: logs may be cut or buffered",
        Kind::Slow => "the named rank never comes",
        Kind::Unknown => "nothing is claimed",
    }
}
