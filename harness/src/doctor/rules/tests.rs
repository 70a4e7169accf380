//! A healthy machine, and one fault planted in it at a time: the rules must say that one, and nothing else.

use std::collections::{BTreeMap, BTreeSet};

use regex::Regex;

use super::super::{
    Build, Device, DeviceUser, Facts, FileSystem, Import, Interface, Leftover, Limits, Lookup,
    Memory, Network, PlatformFacts, Plugin, Port, ProcessEnd, Severity, TorchFacts,
};
use super::findings;
use Severity::{Fault, Note, Warning};
use allranks_runner::probe::EntryPoint;

fn interface(name: &str, address: &str) -> Interface {
    Interface {
        name: name.to_owned(),
        is_up: true,
        is_loopback: name == "lo",
        addresses: vec![address.parse().unwrap()],
    }
}

fn lookup(address: &str, is_here: bool) -> Lookup {
    Lookup {
        addresses: vec![address.parse().unwrap()],
        is_here,
        ..Lookup::default()
    }
}

fn space(path: &str, total_mib: u64, free_mib: u64) -> FileSystem {
    FileSystem {
        path: path.to_owned(),
        total_mib,
        free_mib,
    }
}

fn device(index: u32, free_mib: u64) -> Device {
    Device {
        index,
        name: "GPU".to_owned(),
        driver: "580.1".to_owned(),
        total_mib: 100_000,
        free_mib,
        ..Device::default()
    }
}

fn build() -> Build {
    Build {
        version: "2.11.0+cu130".to_owned(),
        cuda: Some("13.0".to_owned()),
        distributed: true,
        // A backend that is correctly registered, and one for a device whose name is a single letter.
        plugins: vec![
            plugin("venacl", "vena", &["vena", "vena"]),
            plugin("xcl", "x", &[]),
        ],
        defaults: [("vena", "venacl"), ("x", "xcl"), ("cpu", "gloo")]
            .map(|(device, backend)| (device.to_owned(), backend.to_owned()))
            .into(),
        reads_lazily: Some(true),
        backends: [("gloo".to_owned(), true), ("nccl".to_owned(), true)].into(),
        devices: 2,
        peers: Some(vec![vec![true, true], vec![true, true]]),
        ..Build::default()
    }
}

fn platform(name: &str) -> PlatformFacts {
    PlatformFacts {
        name: name.to_owned(),
        has_devices: name != "cpu",
        ..PlatformFacts::default()
    }
}

/// Two GPUs, a name of its own, room for everything; and in the shell what is often there and right.
fn healthy() -> Facts {
    Facts {
        cores: 16,
        torch: Some(TorchFacts {
            python: "python3".to_owned(),
            why: "PATH".to_owned(),
            import: Import::Works(Box::new(build())),
            ..TorchFacts::default()
        }),
        platforms: vec![
            platform("cpu"),
            PlatformFacts {
                devices: Some(2),
                mask: Some("CUDA_VISIBLE_DEVICES".to_owned()),
                ..platform("cuda")
            },
            // A platform that most machines do not have.
            PlatformFacts {
                unusable_because: Some("torch_npu is not installed for python3".to_owned()),
                ..platform("npu")
            },
        ],
        variables: variables(
            "CUDA_VISIBLE_DEVICES=0,1 NCCL_SOCKET_IFNAME=^docker,lo TORCH_DISTRIBUTED_DEBUG=info \
                              CCL_LOG_LEVEL=warn CCL_ATL_TRANSPORT=ofi PJRT_DEVICE=CPU MASTER_ADDR=node7 MASTER_PORT=29500",
        ),
        network: Network {
            hostname: "node7".to_owned(),
            host: lookup("10.0.0.7", true),
            master: Some(lookup("10.0.0.7", true)),
            interfaces: vec![interface("lo", "127.0.0.1"), interface("eth0", "10.0.0.7")],
            rdma: Vec::new(),
            chosen: BTreeMap::new(),
            reverse_seconds: Some(0.1),
        },
        ports: vec![Port {
            port: 29500,
            is_master: true,
            is_allowed: true,
            ..Port::default()
        }],
        memory: Memory {
            total_mib: Some(64_000),
            available_mib: Some(60_000),
            shm: Some(space("/dev/shm", 32_000, 32_000)),
            temporary: Some(space("/tmp", 100_000, 50_000)),
        },
        limits: Limits {
            open_files: Some(20_000),
            processes: Some(90_000),
            locked_kib: Some(8192),
            address_space_mib: None,
        },
        devices: vec![device(0, 99_000), device(1, 98_000)],
        tool_error: None,
        leftovers: Vec::new(),
    }
}

fn variables(text: &str) -> BTreeMap<String, String> {
    let pairs = text
        .split_whitespace()
        .filter_map(|pair| pair.split_once('='));
    pairs
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

/// Variables that come on top of the healthy ones.
fn with(text: &'static str) -> Box<dyn Fn(&mut Facts)> {
    Box::new(move |facts| facts.variables.extend(variables(text)))
}

fn set(change: impl Fn(&mut Facts) + 'static) -> Box<dyn Fn(&mut Facts)> {
    Box::new(change)
}

/// A torch whose import fails so, with or without packages that load themselves.
fn import(
    import: Import,
    entry_points: &'static [&'static str],
    broken: &'static [&'static str],
) -> Box<dyn Fn(&mut Facts)> {
    set(move |facts| {
        let torch = facts.torch.as_mut().unwrap();
        torch.import = import.clone();
        torch.entry_points = entry_points
            .iter()
            .map(|name| EntryPoint {
                name: (*name).to_owned(),
                value: format!("{name}:_autoload"),
                package: Some(format!("{name}-wheel")),
            })
            .collect();
        torch.without_autoload =
            (!entry_points.is_empty()).then(|| Import::Works(Box::new(build())));
        torch.broken = broken
            .iter()
            .map(|name| ((*name).to_owned(), import.clone()))
            .collect();
    })
}

fn torch(change: impl Fn(&mut Build) + 'static) -> Box<dyn Fn(&mut Facts)> {
    set(move |facts| {
        if let Some(TorchFacts {
            import: Import::Works(build),
            ..
        }) = &mut facts.torch
        {
            change(build);
        }
    })
}

/// A backend that packages register for a device.
fn plugin(name: &str, device: &str, packages: &[&str]) -> Plugin {
    Plugin {
        name: name.to_owned(),
        devices: vec![device.to_owned()],
        creator: format!("{name}.create"),
        packages: packages.iter().map(|one| (*one).to_owned()).collect(),
        ..Plugin::default()
    }
}

/// Entry points that a newer torch loads by their names.
fn lazy(names: &'static [&'static str]) -> Box<dyn Fn(&mut Facts)> {
    set(move |facts| {
        let point = |name: &&str| EntryPoint {
            name: (*name).to_owned(),
            value: format!("{name}:create"),
            package: None,
        };
        facts.torch.as_mut().unwrap().lazy_entry_points = names.iter().map(point).collect();
    })
}

/// Makes cuda unusable for this reason; `is_wanted` if it was named on the command line.
fn cuda(reason: &'static str, is_wanted: bool) -> Box<dyn Fn(&mut Facts)> {
    set(move |facts| {
        facts.platforms[1].unusable_because = Some(reason.to_owned());
        facts.platforms[1].is_wanted = is_wanted;
    })
}

fn network(change: impl Fn(&mut Network) + 'static) -> Box<dyn Fn(&mut Facts)> {
    set(move |facts| change(&mut facts.network))
}

fn port(change: impl Fn(&mut Port) + 'static) -> Box<dyn Fn(&mut Facts)> {
    set(move |facts| change(&mut facts.ports[0]))
}

fn both(one: Box<dyn Fn(&mut Facts)>, other: Box<dyn Fn(&mut Facts)>) -> Box<dyn Fn(&mut Facts)> {
    set(move |facts| {
        one(facts);
        other(facts);
    })
}

fn raises() -> Import {
    Import::Raises {
        error: "OSError: libx.so".to_owned(),
        at: Some("vena/__init__.py:3".to_owned()),
    }
}

fn dies() -> Import {
    Import::Dies {
        how: ProcessEnd::Signal(11),
        trying: "import torch".to_owned(),
        at: None,
    }
}

fn hangs() -> Import {
    Import::Hangs {
        trying: "import torch".to_owned(),
        at: None,
        seconds: 30,
    }
}

type SeededFault = (&'static str, Severity, Box<dyn Fn(&mut Facts)>);

fn seeded() -> Vec<SeededFault> {
    let rank = "RANK=0 WORLD_SIZE=4 LOCAL_RANK=0 LOCAL_WORLD_SIZE=4 OMP_NUM_THREADS=1";
    vec![
        (
            "no-python",
            Fault,
            import(Import::NoPython("no such file".to_owned()), &[], &[]),
        ),
        ("no-torch", Fault, import(Import::NoTorch, &[], &[])),
        ("import-raises", Fault, import(raises(), &[], &[])),
        ("import-dies", Fault, import(dies(), &[], &[])),
        ("import-hangs", Fault, import(hangs(), &[], &[])),
        (
            "autoload-raises",
            Fault,
            import(raises(), &["vena", "venb"], &["vena"]),
        ),
        (
            "autoload-dies",
            Fault,
            import(dies(), &["vena", "venb"], &["venb"]),
        ),
        (
            "autoload-hangs",
            Fault,
            import(hangs(), &["vena"], &["vena"]),
        ),
        (
            "autoload-fails",
            Fault,
            import(raises(), &["vena", "venb"], &[]),
        ),
        (
            "autoload-off",
            Note,
            both(
                import(Import::Works(Box::new(build())), &["vena"], &[]),
                with("TORCH_DEVICE_BACKEND_AUTOLOAD=0"),
            ),
        ),
        (
            "entry-points-collide",
            Warning,
            import(Import::Works(Box::new(build())), &["mccl", "mccl"], &[]),
        ),
        (
            "backend-registered-twice",
            Warning,
            torch(|build| build.plugins = vec![plugin("hccl", "npu", &["torch-npu", "habana"])]),
        ),
        (
            "backend-devices-string",
            Warning,
            torch(|build| {
                build.plugins = vec![plugin("mccl", "musa", &["torch-musa"])];
                for letter in ["m", "u", "s", "a"] {
                    build.defaults.insert(letter.to_owned(), "mccl".to_owned());
                }
            }),
        ),
        (
            "fake-is-default",
            Warning,
            torch(|build| {
                build.defaults.insert("hpu".to_owned(), "fake".to_owned());
            }),
        ),
        (
            "backends-unread",
            Note,
            both(
                lazy(&["mccl"]),
                torch(|build| build.reads_lazily = Some(false)),
            ),
        ),
        (
            "torch-old",
            Fault,
            torch(|build| build.version = "2.3.1".to_owned()),
        ),
        (
            "no-distributed",
            Fault,
            torch(|build| build.distributed = false),
        ),
        (
            "devices-unasked",
            Fault,
            torch(|build| build.devices_error = Some("RuntimeError: driver".to_owned())),
        ),
        (
            "cpu-wheel-with-gpu",
            Fault,
            torch(|build| build.cuda = None),
        ),
        (
            "gpu-not-seen",
            Fault,
            set(|facts| {
                facts.variables.remove("CUDA_VISIBLE_DEVICES");
                torch(|build| build.devices = 0)(facts);
            }),
        ),
        (
            "cuda-wheel-without-gpu",
            Note,
            set(|facts| {
                facts.variables.remove("CUDA_VISIBLE_DEVICES");
                facts.devices.clear();
                torch(|build| build.devices = 0)(facts);
            }),
        ),
        (
            "platform-missing",
            Fault,
            set(|facts| facts.platforms[2].is_wanted = true),
        ),
        (
            "platform-broken",
            Fault,
            cuda("import torch_npu failed: OSError: libascendcl.so", false),
        ),
        (
            "platform-old",
            Warning,
            cuda("torch 2.11.0 is not >=2.12", false),
        ),
        (
            "platform-old",
            Fault,
            cuda("torch 2.11.0 is not >=2.12", true),
        ),
        (
            "no-devices",
            Fault,
            cuda("0 devices: `torch.cuda.device_count()` is 0", true),
        ),
        (
            "backend-missing",
            Fault,
            cuda("this build of torch has no nccl", true),
        ),
        (
            "devices-uncountable",
            Warning,
            cuda("`torch.npu.device_count()` failed: RuntimeError", false),
        ),
        (
            "backend-not-built",
            Note,
            set(|facts| {
                facts.platforms[1].backends.insert("nccl".to_owned(), false);
            }),
        ),
        (
            "mask-hides-all",
            Warning,
            with("HIP_VISIBLE_DEVICES=-1 CUDA_VISIBLE_DEVICES=-1"),
        ),
        (
            "mask-hides-all",
            Fault,
            both(
                with("CUDA_VISIBLE_DEVICES=-1"),
                set(|facts| facts.platforms[1].is_wanted = true),
            ),
        ),
        ("mask-invalid", Fault, with("CUDA_VISIBLE_DEVICES=0;1")),
        ("mask-invalid", Fault, with("ZE_AFFINITY_MASK=0.x")),
        ("mask-invalid", Fault, with("NEURON_RT_VISIBLE_CORES=0-")),
        ("mask-duplicate", Fault, with("CUDA_VISIBLE_DEVICES=0,0")),
        (
            "mask-not-ascending",
            Fault,
            with("ASCEND_RT_VISIBLE_DEVICES=1,0"),
        ),
        ("mask-beyond", Fault, with("CUDA_VISIBLE_DEVICES=0,2")),
        ("masks-disagree", Warning, with("HIP_VISIBLE_DEVICES=1")),
        (
            "masks-combine",
            Warning,
            with("ROCR_VISIBLE_DEVICES=1 HIP_VISIBLE_DEVICES=0,1"),
        ),
        ("rank-not-a-number", Fault, with("LOCAL_RANK=zero")),
        ("rank-without-world", Fault, with("RANK=1")),
        (
            "world-without-rank",
            Fault,
            with("WORLD_SIZE=4 OMP_NUM_THREADS=1"),
        ),
        ("rank-beyond-world", Fault, both(with(rank), with("RANK=4"))),
        (
            "local-rank-beyond",
            Fault,
            both(with(rank), with("LOCAL_RANK=4")),
        ),
        (
            "local-rank-missing",
            Warning,
            with("RANK=0 WORLD_SIZE=2 OMP_NUM_THREADS=1"),
        ),
        (
            "world-contradicts-launcher",
            Fault,
            with("RANK=0 LOCAL_RANK=0 WORLD_SIZE=1 OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=4"),
        ),
        (
            "rank-contradicts-launcher",
            Fault,
            both(with(rank), with("PMI_RANK=1 PMI_SIZE=4")),
        ),
        (
            "launcher-unread",
            Warning,
            with("OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=4"),
        ),
        ("master-port-invalid", Fault, with("MASTER_PORT=29500x")),
        ("master-port-invalid", Fault, with("MASTER_PORT=0")),
        (
            "master-missing",
            Fault,
            both(
                with(rank),
                set(|facts| {
                    facts.variables.remove("MASTER_ADDR");
                    facts.network.master = None;
                }),
            ),
        ),
        (
            "variable-unread",
            Warning,
            with("TORCH_DISTRIBUTED_BACKEND=nccl"),
        ),
        (
            "variable-unread",
            Warning,
            with("TORCH_DISTRIBUTED_TIMEOUT=60"),
        ),
        (
            "debug-invalid",
            Fault,
            with("TORCH_DISTRIBUTED_DEBUG=verbose"),
        ),
        ("debug-detail", Note, with("TORCH_DISTRIBUTED_DEBUG=detail")),
        ("ccl-log-level-invalid", Fault, with("CCL_LOG_LEVEL=fatal")),
        (
            "ccl-mpi-without-mpirun",
            Fault,
            with("CCL_ATL_TRANSPORT=mpi"),
        ),
        (
            "ccl-transport-invalid",
            Fault,
            with("CCL_ATL_TRANSPORT=tcp"),
        ),
        ("pjrt-device-unknown", Fault, with("PJRT_DEVICE=neuron")),
        (
            "threads-unset",
            Note,
            set(|facts| {
                facts
                    .variables
                    .extend(variables("RANK=0 WORLD_SIZE=4 LOCAL_RANK=0"));
            }),
        ),
        (
            "threads-too-many",
            Warning,
            both(with(rank), with("OMP_NUM_THREADS=5")),
        ),
        (
            "hostname-unresolvable",
            Warning,
            network(|network| {
                network.host = Lookup {
                    error: Some("no such name".to_owned()),
                    ..Lookup::default()
                };
            }),
        ),
        (
            "hostname-loopback",
            Warning,
            network(|network| network.host = lookup("127.0.1.1", true)),
        ),
        (
            "hostname-loopback",
            Fault,
            both(
                network(|network| network.host = lookup("127.0.1.1", true)),
                with("NNODES=2"),
            ),
        ),
        (
            "hostname-elsewhere",
            Warning,
            network(|network| network.host = lookup("10.9.9.9", false)),
        ),
        (
            "master-unresolvable",
            Fault,
            network(|network| {
                network.master = Some(Lookup {
                    error: Some("no such name".to_owned()),
                    ..Lookup::default()
                });
            }),
        ),
        (
            "master-slow",
            Warning,
            network(|network| network.master.as_mut().unwrap().seconds = 5.0),
        ),
        (
            "master-loopback",
            Fault,
            both(
                network(|network| network.master = Some(lookup("127.0.0.1", true))),
                with("NNODES=2"),
            ),
        ),
        (
            "master-elsewhere",
            Fault,
            both(
                with(rank),
                network(|network| network.master = Some(lookup("10.0.0.8", false))),
            ),
        ),
        (
            "interface-missing",
            Fault,
            with("GLOO_SOCKET_IFNAME=eth0,eth7"),
        ),
        ("interface-missing", Fault, with("NCCL_SOCKET_IFNAME=ib")),
        ("interface-missing", Fault, with("NCCL_SOCKET_IFNAME==eth")),
        ("interface-missing", Fault, with("CCL_KVS_IFACE=hsn0")),
        (
            "interface-down",
            Fault,
            both(
                with("NCCL_SOCKET_IFNAME=eth"),
                network(|network| network.interfaces[1].is_up = false),
            ),
        ),
        (
            "interface-loopback",
            Fault,
            with("GLOO_SOCKET_IFNAME=lo GROUP_WORLD_SIZE=2"),
        ),
        (
            "no-loopback",
            Fault,
            network(|network| network.interfaces[0].is_up = false),
        ),
        (
            "resolver-slow",
            Warning,
            network(|network| network.reverse_seconds = Some(10.0)),
        ),
        (
            "master-port-busy",
            Fault,
            port(|port| port.owners = vec!["sleep (pid 7)".to_owned()]),
        ),
        (
            "master-port-privileged",
            Fault,
            port(|port| port.is_allowed = false),
        ),
        (
            "master-port-ephemeral",
            Note,
            port(|port| port.is_ephemeral = true),
        ),
        (
            "default-port-busy",
            Warning,
            port(|port| {
                port.is_master = false;
                port.owners = vec!["sleep (pid 7)".to_owned()];
            }),
        ),
        (
            "shm-small",
            Warning,
            set(|facts| facts.memory.shm = Some(space("/dev/shm", 64, 64))),
        ),
        (
            "shm-small",
            Fault,
            set(|facts| facts.memory.shm = Some(space("/dev/shm", 64, 1))),
        ),
        (
            "memory-low",
            Warning,
            set(|facts| facts.memory.available_mib = Some(1500)),
        ),
        (
            "memory-low",
            Fault,
            set(|facts| facts.memory.available_mib = Some(100)),
        ),
        (
            "temporary-full",
            Fault,
            set(|facts| facts.memory.temporary = Some(space("/tmp", 100_000, 0))),
        ),
        (
            "open-files-low",
            Fault,
            set(|facts| facts.limits.open_files = Some(64)),
        ),
        (
            "open-files-low",
            Warning,
            set(|facts| facts.limits.open_files = Some(512)),
        ),
        (
            "processes-low",
            Fault,
            set(|facts| facts.limits.processes = Some(100)),
        ),
        (
            "locked-memory-low",
            Fault,
            network(|network| network.rdma = vec!["mlx5_0".to_owned()]),
        ),
        (
            "address-space-limited",
            Warning,
            set(|facts| facts.limits.address_space_mib = Some(8000)),
        ),
        (
            "tool-broken",
            Fault,
            set(|facts| facts.tool_error = Some("nvidia-smi: version mismatch".to_owned())),
        ),
        (
            "memory-unbalanced",
            Warning,
            set(|facts| facts.devices[1].free_mib = 80_000),
        ),
        (
            "devices-in-use",
            Warning,
            set(|facts| {
                facts.devices[1].users = vec![DeviceUser {
                    process: "python (pid 7)".to_owned(),
                    used_mib: Some(500),
                }];
            }),
        ),
        (
            "no-peer-access",
            Warning,
            torch(|build| build.peers = Some(vec![vec![true, false], vec![false, true]])),
        ),
        (
            "leftover-ranks",
            Warning,
            set(|facts| {
                facts.leftovers = vec![Leftover {
                    pid: 7,
                    is_orphan: true,
                    ..Leftover::default()
                }];
            }),
        ),
        (
            "ranks-running",
            Note,
            set(|facts| {
                facts.leftovers = vec![Leftover {
                    pid: 7,
                    ..Leftover::default()
                }]
            }),
        ),
    ]
}

#[test]
fn nothing_is_wrong_with_a_healthy_machine() {
    assert_eq!(findings(&healthy()), Vec::new());
}

#[test]
fn each_seeded_fault_is_named_and_nothing_else() {
    for (id, severity, plant) in seeded() {
        let mut facts = healthy();
        plant(&mut facts);
        let found = findings(&facts);
        let named: BTreeSet<_> = found.iter().map(|one| (one.id, one.severity)).collect();
        assert_eq!(named, BTreeSet::from([(id, severity)]), "{found:#?}");
        for one in found {
            let texts = [&one.what, &one.why, &one.fix];
            assert!(texts.iter().all(|text| !text.is_empty()), "{one:?}");
        }
    }
}

/// Variables of a job that is well say nothing, whichever launcher started it.
#[test]
fn jobs_that_are_well_are_left_alone() {
    for well in [
        "RANK=0 WORLD_SIZE=4 LOCAL_RANK=0 LOCAL_WORLD_SIZE=4 OMP_NUM_THREADS=4",
        "RANK=3 WORLD_SIZE=4 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 OMP_NUM_THREADS=1",
        "RANK=1 WORLD_SIZE=2 LOCAL_RANK=1 OMP_NUM_THREADS=1 OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 CCL_ATL_TRANSPORT=mpi",
        "SLURM_NTASKS=8 SLURM_PROCID=0",
        "CUDA_VISIBLE_DEVICES=GPU-8a2,MIG-17 NEURON_RT_VISIBLE_CORES=0-3 ZE_AFFINITY_MASK=0.0,0.1 ASCEND_RT_VISIBLE_DEVICES=0,3",
        "NCCL_SOCKET_IFNAME=eth GLOO_SOCKET_IFNAME=eth0 CCL_KVS_IFACE=lo WORLD_SIZE=1",
    ] {
        let mut facts = healthy();
        facts.variables.extend(variables(well));
        assert_eq!(findings(&facts), Vec::new(), "{well}");
    }
}

#[test]
fn a_rank_that_joins_wants_a_store_at_the_port() {
    let mut facts = healthy();
    facts.ports[0].owners = vec!["python (pid 7)".to_owned()];
    facts.ports[0].is_store = true;
    facts.variables.extend(variables(
        "RANK=1 WORLD_SIZE=2 LOCAL_RANK=1 OMP_NUM_THREADS=1",
    ));
    assert_eq!(findings(&facts), Vec::new());
    facts.variables.insert("RANK".to_owned(), "0".to_owned());
    assert_eq!(findings(&facts)[0].id, "master-port-busy");
}

#[test]
fn the_worst_comes_first() {
    let mut facts = healthy();
    with("TORCH_DISTRIBUTED_DEBUG=detail TORCH_DISTRIBUTED_BACKEND=x PJRT_DEVICE=x")(&mut facts);
    let order: Vec<_> = findings(&facts).iter().map(|one| one.severity).collect();
    assert_eq!(order, [Fault, Warning, Note]);
}

/// Every id in the rules' text has been planted.
#[test]
fn no_rule_is_untried() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/doctor/rules");
    let id = Regex::new(r#""([a-z]+(?:-[a-z]+)+)""#).unwrap();
    let known: BTreeSet<_> = seeded().into_iter().map(|(id, ..)| id.to_owned()).collect();
    let mut written = BTreeSet::new();
    for file in std::fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        if !path.ends_with("tests.rs") {
            let text = std::fs::read_to_string(path).unwrap();
            written.extend(id.captures_iter(&text).map(|found| found[1].to_owned()));
        }
    }
    assert!(written.len() > 60, "{}", written.len());
    assert_eq!(written, known);
}
