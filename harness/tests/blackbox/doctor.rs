//! The doctor: a fault is planted into what it looks at, and it must name that fault, which it does not name without.
//!
//! Torch is a module of ours, so that imports can fail in every way and take no time; the last trials ask the real one.

use std::collections::BTreeMap;
use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use serde_json::Value;

use super::stage::{Ran, Stage};
use super::{Test, plain, with_torch};

/// A torch that loads packages as the real one does, and has one backend.
const TORCH: &str = r#"
import os
from importlib.metadata import entry_points
__version__ = "2.11.0"
class version:
    cuda = hip = None
class distributed:
    is_available = staticmethod(lambda: True)
    is_backend_available = staticmethod(lambda name: name == "gloo")
class cuda:
    device_count = staticmethod(lambda: 0)
if os.environ.get("TORCH_DEVICE_BACKEND_AUTOLOAD", "1") == "1":
    for point in entry_points(group="torch.backends"):
        try:
            point.load()()
        except Exception as error:
            raise RuntimeError(f"Failed to load the backend extension: {point.name}.") from error
"#;
const SUITE_CASE: &str = "fixtures/drivers/case.yaml";

/// Variables, the finding's id, and words that must be in it.
const VARIABLES: [(&str, &str, &str); 23] = [
    ("RANK=1", "rank-without-world", "WORLD_SIZE is not"),
    ("RANK=4 WORLD_SIZE=4", "rank-beyond-world", "RANK=4"),
    ("RANK=0 WORLD_SIZE=2", "local-rank-missing", "LOCAL_RANK"),
    ("RANK=0 WORLD_SIZE=2", "master-missing", "MASTER_ADDR"),
    ("RANK=0 WORLD_SIZE=2", "threads-unset", "OMP_NUM_THREADS"),
    (
        "WORLD_SIZE=1 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_RANK=2",
        "world-contradicts-launcher",
        "Open MPI",
    ),
    (
        "MASTER_PORT=http",
        "master-port-invalid",
        "MASTER_PORT=http",
    ),
    (
        "MASTER_ADDR=no-such-host.invalid",
        "master-unresolvable",
        "no-such-host.invalid",
    ),
    (
        "MASTER_ADDR=127.0.0.1 NNODES=2",
        "master-loopback",
        "127.0.0.1",
    ),
    (
        "TORCH_DISTRIBUTED_BACKEND=nccl",
        "variable-unread",
        "TORCH_DISTRIBUTED_BACKEND",
    ),
    (
        "TORCH_DISTRIBUTED_TIMEOUT=60",
        "variable-unread",
        "TORCH_DISTRIBUTED_TIMEOUT",
    ),
    (
        "TORCH_DISTRIBUTED_DEBUG=loud",
        "debug-invalid",
        "OFF, INFO, DETAIL",
    ),
    (
        "CCL_LOG_LEVEL=fatal",
        "ccl-log-level-invalid",
        "error, warn, info",
    ),
    ("CCL_ATL_TRANSPORT=mpi", "ccl-mpi-without-mpirun", "mpirun"),
    (
        "CCL_KVS_IFACE=nosuch0",
        "interface-missing",
        "CCL_KVS_IFACE=nosuch0",
    ),
    (
        "GLOO_SOCKET_IFNAME=nosuch0",
        "interface-missing",
        "GLOO_SOCKET_IFNAME=nosuch0",
    ),
    (
        "NCCL_SOCKET_IFNAME=nosuch",
        "interface-missing",
        "NCCL_SOCKET_IFNAME=nosuch",
    ),
    ("PJRT_DEVICE=NEURN", "pjrt-device-unknown", "NEURON"),
    (
        "CUDA_VISIBLE_DEVICES=",
        "mask-hides-all",
        "CUDA_VISIBLE_DEVICES=",
    ),
    ("CUDA_VISIBLE_DEVICES=0;1", "mask-invalid", "`0;1`"),
    ("CUDA_VISIBLE_DEVICES=1,1", "mask-duplicate", "twice"),
    (
        "ASCEND_RT_VISIBLE_DEVICES=1,0",
        "mask-not-ascending",
        "ascending",
    ),
    (
        "HIP_VISIBLE_DEVICES=0 CUDA_VISIBLE_DEVICES=1",
        "masks-disagree",
        "HIP_VISIBLE_DEVICES=0",
    ),
];

/// Returns every trial of this file.
pub fn tests() -> Vec<Test> {
    let mut tests = vec![
        plain("doctor::variables", variables),
        plain("doctor::import_raises", || {
            import(
                "import-raises",
                "raise OSError('libx.so: no such file')",
                &["OSError: libx.so"],
            );
        }),
        plain("doctor::import_dies", || {
            import(
                "import-dies",
                "import os\nos.kill(os.getpid(), 11)",
                &["signal 11", "torch.py:2"],
            );
        }),
        plain("doctor::import_hangs", || {
            import(
                "import-hangs",
                "import time\ntime.sleep(600)",
                &["within 4 s", "torch.py:2"],
            );
        }),
        plain("doctor::old_torch", || {
            import("torch-old", &TORCH.replace("2.11.0", "2.3.1"), &["2.3.1"])
        }),
        plain("doctor::no_distributed", || {
            let none = TORCH.replace(
                "is_available = staticmethod(lambda: True)",
                "is_available = staticmethod(lambda: False)",
            );
            import("no-distributed", &none, &["USE_DISTRIBUTED"]);
        }),
        plain("doctor::no_torch", no_torch),
        plain("doctor::no_python", no_python),
        plain("doctor::platforms", platforms),
        plain("doctor::busy_port", busy_port),
        plain("doctor::few_files", few_files),
        plain("doctor::leftover_rank", leftover_rank),
        plain("doctor::uneven_devices", uneven_devices),
        plain("doctor::broken_tool", broken_tool),
        plain("doctor::text_and_usage", text_and_usage),
        plain("doctor::environment_of_a_run", environment_of_a_run),
        with_torch("doctor::real_torch", real_torch),
        with_torch("doctor::registrations", registrations),
    ];
    for (name, code, words) in [
        (
            "raises",
            "raise OSError('libvenb.so: no such file')",
            "libvenb.so",
        ),
        ("dies", "import os; os.kill(os.getpid(), 11)", "signal 11"),
        (
            "hangs",
            "import time; time.sleep(600)",
            "does not return within 4 s",
        ),
    ] {
        tests.push(plain(format!("doctor::autoload_{name}"), move || {
            autoload(name, code, words)
        }));
    }
    tests
}

/// A stage with a torch of ours, and the command that looks at it.
fn stage(torch: &str) -> Stage {
    let stage = Stage::new("doctor");
    stage.write("lib/torch.py", torch);
    stage
}

fn command(stage: &Stage, arguments: &[&str]) -> Command {
    let mut all = vec!["doctor", "--json", "--python", "python3"];
    all.extend(arguments);
    let mut command = stage.command(&all);
    command.env("PYTHONPATH", stage.path("lib"));
    command
}

/// What a doctor said: exit code, findings as `id: what; why; fix` by id, everything.
struct DoctorOutput {
    code: i32,
    findings: BTreeMap<String, String>,
    all: Value,
}

#[track_caller]
fn read_output(ran: &Ran) -> DoctorOutput {
    assert!(
        [0, 1].contains(&ran.code),
        "code {}\n{}\n{}",
        ran.code,
        ran.stdout,
        ran.stderr
    );
    let all: Value = serde_json::from_str(&ran.stdout).unwrap();
    let mut findings: BTreeMap<String, String> = BTreeMap::new();
    let mut has_fault = false;
    for one in all["findings"].as_array().unwrap() {
        let text = |name: &str| one[name].as_str().unwrap().to_owned();
        has_fault |= one["severity"] == "fault";
        let words = findings.entry(text("id")).or_default();
        *words += &format!("{}; {}; {}\n", text("what"), text("why"), text("fix"));
    }
    assert_eq!(ran.code, i32::from(has_fault), "{findings:#?}");
    DoctorOutput {
        code: ran.code,
        findings,
        all,
    }
}

#[track_caller]
fn look(stage: &Stage, command: Command) -> DoctorOutput {
    let ran = stage.start(command).end();
    stage.assert_nothing_remains();
    read_output(&ran)
}

impl DoctorOutput {
    #[track_caller]
    fn names(&self, id: &str, words: &[&str]) {
        let text = self
            .findings
            .get(id)
            .unwrap_or_else(|| panic!("no {id} in {:#?}", self.findings));
        for words in words {
            assert!(text.contains(words), "`{words}` is not in {text}");
        }
    }

    #[track_caller]
    fn lacks(&self, id: &str) {
        assert!(!self.findings.contains_key(id), "{:#?}", self.findings);
    }
}

fn variables() {
    let stage = stage(TORCH);
    let without = look(&stage, command(&stage, &[]));
    for (set, id, words) in VARIABLES {
        let mut command = command(&stage, &[]);
        command.envs(set.split(' ').filter_map(|pair| pair.split_once('=')));
        look(&stage, command).names(id, &[words]);
        without.lacks(id);
    }
}

/// An import of torch that fails in some way; beside it, the one that does not.
fn import(id: &str, torch: &str, words: &[&str]) {
    let good = stage(TORCH);
    look(&good, command(&good, &[])).lacks(id);
    let bad = stage(torch);
    let said = look(&bad, command(&bad, &["--patience", "4"]));
    said.names(id, words);
    assert_eq!(
        (said.code, said.findings.contains_key("platform-broken")),
        (1, false)
    );
}

fn autoload(name: &str, code: &str, words: &str) {
    let id = format!("autoload-{name}");
    let stage = stage(TORCH);
    for (package, code) in [("vena", "pass"), ("venb", code)] {
        stage.install(
            package,
            &format!("def start():\n    {code}\n"),
            &format!("[torch.backends]\n{package} = {package}:start\n"),
        );
    }
    let patient = |value| {
        let mut command = command(&stage, &["--patience", "4"]);
        command.env("TORCH_DEVICE_BACKEND_AUTOLOAD", value);
        look(&stage, command)
    };
    let said = patient("1");
    said.names(
        &id,
        &[
            "package venb-wheel",
            "venb.py:2",
            words,
            "TORCH_DEVICE_BACKEND_AUTOLOAD=0",
        ],
    );
    assert!(!said.findings[&id].contains("vena"), "{:?}", said.findings);
    // It looks on without the package.
    let cpu = &said.all["platforms"][0];
    assert_eq!(
        (&cpu["name"], &cpu["trouble"]),
        (&"cpu".into(), &Value::Null)
    );
    let past = patient("0");
    past.lacks(&id);
    past.names("autoload-off", &["vena, venb"]);
}

fn no_torch() {
    let stage = Stage::new("doctor");
    stage.write(
        "lib/torch.py",
        "raise ModuleNotFoundError(\"No module named 'torch'\", name='torch')",
    );
    let said = look(&stage, command(&stage, &[]));
    said.names("no-torch", &["pip install torch", "--python"]);
    assert_eq!(said.all["torch"]["import"], "no_torch");
}

fn no_python() {
    let stage = stage(TORCH);
    let command = stage.command(&["doctor", "--json", "--python", "/no/such/python"]);
    look(&stage, command).names("no-python", &["/no/such/python", "ALLRANKS_PYTHON"]);
}

/// Platform files of which each lacks something, if they are named on the command line and if not.
fn platforms() {
    let stage = stage(TORCH);
    stage.write("lib/mine_broken.py", "raise OSError('libmine.so')");
    for (name, fields, id, words) in [
        (
            "mine_absent",
            "import: [no_such_package]",
            "platform-missing",
            "no_such_package",
        ),
        (
            "mine_none",
            "count: torch.cuda.device_count()\ntool: mine-smi",
            "no-devices",
            "mine-smi",
        ),
        (
            "mine_old",
            "requires: {torch: \">=9\"}",
            "platform-old",
            "2.11.0 is not >=9",
        ),
        (
            "mine_lost",
            "count: torch.mine.device_count()",
            "devices-uncountable",
            "torch.mine",
        ),
        ("mine_bare", "", "backend-missing", "minecl"),
        (
            "mine_broken",
            "import: [mine_broken]",
            "platform-broken",
            "libmine.so",
        ),
    ] {
        let backend = if name == "mine_bare" {
            "minecl"
        } else {
            "gloo"
        };
        let file = stage.write(
            &format!("{name}.yaml"),
            &format!(
                "name: {name}\ndevice_type: mine\nevidence: hardware\n{fields}\nbackends: {{{backend}: {{supports: [{{ops: barrier}}]}}}}\n"
            ),
        );
        let wanted = look(
            &stage,
            command(&stage, &["--platforms", &file, "--platform", name]),
        );
        wanted.names(id, &[words]);
        assert_eq!(wanted.code, 1, "{name}");
        let cpu = look(
            &stage,
            command(&stage, &["--platforms", &file, "--platform", "cpu"]),
        );
        cpu.lacks(id);
    }
}

fn busy_port() {
    let stage = stage(TORCH);
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = socket.local_addr().unwrap().port().to_string();
    let ask = || {
        let mut command = command(&stage, &[]);
        command.env("MASTER_PORT", &port);
        look(&stage, command)
    };
    let owner = format!("(pid {})", std::process::id());
    ask().names("master-port-busy", &[&port, &owner, "EADDRINUSE"]);
    drop(socket);
    ask().lacks("master-port-busy");
}

fn few_files() {
    let stage = stage(TORCH);
    let mut shell = Command::new("sh");
    let line = "ulimit -n 100; exec \"$@\"";
    shell.args([
        "-c",
        line,
        "sh",
        env!("CARGO_BIN_EXE_allranks"),
        "doctor",
        "--json",
        "--python",
        "python3",
    ]);
    shell.env("PYTHONPATH", stage.path("lib"));
    look(&stage, stage.marked(shell)).names("open-files-low", &["100 files", "ulimit -n"]);
    look(&stage, command(&stage, &[])).lacks("open-files-low");
}

fn leftover_rank() {
    let stage = stage(TORCH);
    let mut shell = Command::new("sh");
    shell.args([
        "-c",
        "RANK=3 WORLD_SIZE=8 MASTER_PORT=4242 sleep 300 >/dev/null 2>&1 & echo $!",
    ]);
    let ran = stage.start(stage.marked(shell)).end();
    let pid = ran.stdout.trim().to_owned();
    let ran = stage.start(command(&stage, &[])).end();
    // What adopts it depends on the machine: an orphan here, a running rank elsewhere.
    let with = read_output(&ran);
    let ids = ["leftover-ranks", "ranks-running"];
    let text: String = ids
        .iter()
        .filter_map(|id| with.findings.get(*id))
        .cloned()
        .collect();
    let known = with.all["leftovers"].to_string();
    assert!(
        !text.is_empty() && known.contains(&format!("\"pid\":{pid}")),
        "{text} {known}"
    );
    assert!(
        known.contains("rank 3 of 8") && known.contains("4242"),
        "{known}"
    );
    for (process, _) in stage.processes() {
        let _ = rustix::process::kill_process(process, rustix::process::Signal::KILL);
    }
    let without = look(&stage, command(&stage, &[]));
    assert!(
        !without.all["leftovers"]
            .to_string()
            .contains(&format!("\"pid\":{pid}"))
    );
}

/// Puts a tool in front of `PATH` that answers queries so.
fn with_tool(stage: &Stage, script: &str) -> Command {
    let tool = stage.write("bin/nvidia-smi", &format!("#!/bin/sh\n{script}\n"));
    fs::set_permissions(&tool, fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = command(stage, &[]);
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{}:{path}", stage.path("bin").display()));
    command
}

fn uneven_devices() {
    let stage = stage(TORCH);
    let ask = |free: u32, users: &str| {
        let script = format!(
            "case \"$*\" in\n*compute-apps*) {users} ;;\n*) echo 0, GPU-a, H200, 580.1, 1000, 1000; echo 1, GPU-b, H200, 580.1, 1000, {free} ;;\nesac"
        );
        look(&stage, with_tool(&stage, &script))
    };
    let pid = std::process::id();
    let uneven = ask(800, &format!("echo GPU-b, {pid}, 200"));
    uneven.names("memory-unbalanced", &["1: 800 of 1000 MiB"]);
    uneven.names(
        "devices-in-use",
        &["device 1: ", &format!("(pid {pid}), 200 MiB")],
    );
    uneven.names("cpu-wheel-with-gpu", &["2 GPU(s)"]);
    let even = ask(950, "true");
    even.lacks("memory-unbalanced");
    even.lacks("devices-in-use");
}

fn broken_tool() {
    let stage = stage(TORCH);
    let words = "Failed to initialize NVML: Driver/library version mismatch";
    look(&stage, with_tool(&stage, &format!("echo {words}; exit 18")))
        .names("tool-broken", &[words]);
    look(&stage, with_tool(&stage, "true")).lacks("tool-broken");
}

fn text_and_usage() {
    let stage = stage(TORCH);
    let mut command = stage.command(&["doctor", "--python", "python3"]);
    command
        .env("PYTHONPATH", stage.path("lib"))
        .env("CCL_LOG_LEVEL", "fatal")
        .env("NCCL_API_KEY", "hunter2");
    let ran = stage.start(command).end();
    ran.assert_code(1);
    for words in [
        "fault: CCL_LOG_LEVEL=fatal is not one of",
        "[ccl-log-level-invalid]\n  why: oneCCL ends",
        "\n  fix: use one of these",
        "torch       2.11.0: gloo; not mpi, nccl, ucc, xccl",
        "variable    NCCL_API_KEY=<redacted>",
        "29500",
        "1 fault, ",
    ] {
        assert!(
            ran.stdout.contains(words),
            "`{words}` is not in:\n{}",
            ran.stdout
        );
    }
    let unknown = stage.run(&["doctor", "--platform", "cpus"]);
    unknown
        .assert_code(2)
        .assert_says("no platform `cpus`")
        .assert_says("cpu,");
}

fn environment_of_a_run() {
    let stage = Stage::new("doctor");
    let out = stage.out().display().to_string();
    let driver = "command:python3 fixtures/drivers/pretend.py";
    let mut command = stage.command(&["run", SUITE_CASE, "--driver", driver, "--out", &out]);
    command
        .env("NCCL_DEBUG", "WARN")
        .env("TORCH_DISTRIBUTED_BACKEND", "gloo")
        .env("NCCL_AUTH_TOKEN", "hunter2")
        .env("MY_PASSWORD", "hunter2");
    stage.start(command).end();
    let text = fs::read_to_string(stage.path("out/environment.json")).unwrap();
    assert!(!text.contains("hunter2"), "{text}");
    let all: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(all["format"], 1);
    assert_eq!(all["variables"]["NCCL_DEBUG"], "WARN");
    assert_eq!(all["variables"]["NCCL_AUTH_TOKEN"], "<redacted>");
    assert_eq!(all["variables"].get("MY_PASSWORD"), None);
    let ids: Vec<_> = all["findings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["id"].clone())
        .collect();
    assert!(ids.contains(&"variable-unread".into()), "{ids:?}");
    for name in [
        "allranks",
        "system",
        "cores",
        "memory_mib",
        "platforms_found",
        "network",
        "ports",
        "memory",
        "limits",
        "devices",
    ] {
        assert!(
            all.get(name).is_some_and(|value| !value.is_null()),
            "no {name} in {text}"
        );
    }
}

/// The doctor with the real torch, which on a busy machine takes its time to be imported.
fn about_torch(stage: &Stage) -> Command {
    let arguments = "doctor --json --platform cpu --patience 300";
    let mut command = stage.command(&arguments.split(' ').collect::<Vec<_>>());
    command.env("PYTHONPATH", stage.path("lib"));
    command
}

/// What is planted here meets PyTorch's own loading of packages and reading of variables.
fn real_torch() {
    let stage = Stage::new("doctor");
    let ask = |set: &[(&str, &str)]| {
        let mut command = about_torch(&stage);
        command.envs(set.iter().copied());
        look(&stage, command)
    };
    let well = ask(&[]);
    assert!(
        well.all["torch"]["import"]["works"]["backends"]["gloo"]
            .as_bool()
            .unwrap()
    );
    assert!(
        !well
            .findings
            .keys()
            .any(|id| id.starts_with("import") || id.starts_with("autoload"))
    );
    let loud = ask(&[("TORCH_DISTRIBUTED_DEBUG", "loud")]);
    loud.names("debug-invalid", &["import torch.distributed raises"]);
    loud.lacks("import-raises");
    stage.install(
        "venb",
        "def start():\n    raise OSError('libvenb.so: no such file')\n",
        "[torch.backends]\nvenb = venb:start\n",
    );
    let said = ask(&[]);
    said.names(
        "autoload-raises",
        &[
            "package venb-wheel",
            "OSError: libvenb.so",
            "venb.py:2",
            "TORCH_DEVICE_BACKEND_AUTOLOAD=0",
        ],
    );
}

/// Packages that register backends with the real torch, each in a way of its own.
fn registrations() {
    let stage = Stage::new("doctor");
    let register = |name: &str, devices: &str, extended: &str| {
        format!(
            "def create(*given):\n    return None\n\ndef start():\n    import torch.distributed as dist\n    \
             dist.Backend.register_backend({name:?}, create, {extended}, {devices})\n"
        )
    };
    let ask = || look(&stage, about_torch(&stage));
    let ids = [
        "backend-registered-twice",
        "backend-devices-string",
        "fake-is-default",
        "backends-unread",
        "entry-points-collide",
    ];
    // A correct one is printed, and nothing is wrong with it.
    stage.install(
        "vena",
        &register("venacl", "['vena']", "True"),
        "[torch.backends]\nvena = vena:start\n",
    );
    let well = ask();
    ids.iter().for_each(|id| well.lacks(id));
    let plugin = &well.all["torch"]["import"]["works"]["plugins"][0];
    assert_eq!(
        *plugin,
        serde_json::json!({
            "name": "venacl", "extended": true, "devices": ["vena"], "creator": "vena.create",
            "packages": ["vena-wheel"],
        })
    );
    stage.install(
        "venb",
        &register("venacl", "['venb']", "False"),
        "[torch.backends]\nvenb = venb:start\n",
    );
    stage.install(
        "venc",
        &register("venccl", "'venc'", "False"),
        "[torch.backends]\nvenc = venc:start\n[torch.distributed.backends]\nmccl = venc:start\n",
    );
    stage.install(
        "vend",
        "def start():\n    import torch.testing._internal.distributed.fake_pg\n",
        "[torch.backends]\nvend = vend:start\n[torch.distributed.backends]\nmccl = vend:start\n",
    );
    let said = ask();
    said.names(ids[0], &["venacl", "vena-wheel", "venb-wheel"]);
    said.names(
        ids[1],
        &["c, e, n, v", "devices=\"venc\"", "backend=\"venccl\""],
    );
    said.names(ids[2], &["hpu", "fake_pg"]);
    said.names(ids[3], &["vend-wheel", "mccl"]);
    said.names(
        ids[4],
        &["mccl of torch.distributed.backends", "vend-wheel"],
    );
}
