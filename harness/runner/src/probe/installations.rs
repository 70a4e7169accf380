//! Tests the platform files of the repository, each against a made-up installation: small modules with the functions
//! that the vendor documents. Whatever is wrong with an installation must be given as the reason, exactly.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::probe::interpreter::{IMPORT_PATIENCE, ProbeResult, probe};
use allranks_suite::platform::Platform;
use allranks_suite::platform::load;

/// A torch with the attributes of `TYPE`; its backends are those that modules add.
const TORCH: &str = "
__version__ = 'TORCH'
class version:
    cuda = hip = None
class distributed:
    known = ['gloo']
    is_available = staticmethod(lambda: True)
    is_backend_available = classmethod(lambda cls, name: name in cls.known)
class backends:
    pass
";

/// What is installed for a platform, and how a test can break it.
struct Installation {
    /// The platform's name.
    of: &'static str,
    /// Attributes that its torch has besides.
    torch: &'static str,
    /// The vendor's modules, by path. The last one is imported last.
    modules: &'static [(&'static str, &'static str)],
    /// Its packages, each with a version that is good.
    packages: &'static [(&'static str, &'static str)],
    /// Number of devices; none on a host platform.
    count: Option<u64>,
    /// A statement that removes what devices are counted with, and the error that counting then gives.
    without: Option<(&'static str, &'static str)>,
}

/// A vendor's module that adds the device type `TYPE` and registers `BACKEND`.
const VENDOR: &str = "
import torch
class TYPE:
    is_available = staticmethod(lambda: DEVICES > 0)
    device_count = staticmethod(lambda: DEVICES)
torch.TYPE = TYPE
torch.distributed.known.append('BACKEND')
";
const HPU: &str = "
import torch
class hpu:
    is_available = staticmethod(lambda: DEVICES > 0)
    device_count = staticmethod(lambda: DEVICES)
torch.hpu = hpu
";
const TPU: &str = "
import torch
class accelerator:
    device_count = staticmethod(lambda: DEVICES)
torch.accelerator = accelerator
torch.distributed.known.append('tpu_dist')
";
const PJRT: &str = "
addressable_device_count = lambda: DEVICES
device_type = lambda: 'NEURON'
";

/// Torch's attributes on NVIDIA's GPUs.
const CUDA: Installation = Installation {
    of: "cuda",
    torch: "version.cuda = '13.0'\nclass cuda:\n    device_count = staticmethod(lambda: DEVICES)\ndistributed.known.append('nccl')\n",
    modules: &[],
    packages: &[],
    count: Some(3),
    without: Some((
        "del cuda.device_count",
        "type object 'cuda' has no attribute 'device_count'",
    )),
};

const INSTALLATIONS: &[Installation] = &[
    Installation {
        of: "cpu",
        torch: "",
        modules: &[],
        packages: &[],
        count: None,
        without: None,
    },
    CUDA,
    Installation {
        of: "cuda_hosts",
        ..CUDA
    },
    Installation {
        of: "rocm",
        torch: "version.hip = '6.4'\nclass cuda:\n    device_count = staticmethod(lambda: DEVICES)\ndistributed.known.append('nccl')\n",
        modules: &[],
        packages: &[],
        count: Some(3),
        without: Some((
            "del version.hip",
            "type object 'version' has no attribute 'hip'",
        )),
    },
    Installation {
        of: "xpu",
        torch: "class xpu:\n    device_count = staticmethod(lambda: DEVICES)\ndistributed.known.append('xccl')\n",
        modules: &[],
        packages: &[],
        count: Some(3),
        without: Some(("del xpu", "module 'torch' has no attribute 'xpu'")),
    },
    Installation {
        of: "mps",
        torch: "class mps:\n    is_available = staticmethod(lambda: DEVICES > 0)\nbackends.mps = mps\n",
        modules: &[],
        packages: &[],
        count: Some(1),
        without: Some((
            "del backends.mps",
            "type object 'backends' has no attribute 'mps'",
        )),
    },
    Installation {
        of: "hpu",
        torch: "",
        modules: &[
            ("habana_frameworks/__init__.py", ""),
            ("habana_frameworks/torch/__init__.py", HPU),
            ("habana_frameworks/torch/distributed/__init__.py", ""),
            (
                "habana_frameworks/torch/distributed/hccl.py",
                "import torch\ntorch.distributed.known.append('hccl')\n",
            ),
        ],
        packages: &[("habana-torch-plugin", "1.22.0.740")],
        count: Some(3),
        without: Some(("del torch.hpu", "module 'torch' has no attribute 'hpu'")),
    },
    Installation {
        of: "npu",
        torch: "",
        modules: &[("torch_npu/__init__.py", VENDOR)],
        packages: &[("torch-npu", "2.11.0.post1")],
        count: Some(3),
        without: Some((
            "del npu.is_available",
            "type object 'npu' has no attribute 'is_available'",
        )),
    },
    Installation {
        of: "musa",
        torch: "",
        modules: &[("torch_musa/__init__.py", VENDOR)],
        packages: &[("torch-musa", "2.7.0")],
        count: Some(3),
        without: Some((
            "del musa.device_count",
            "type object 'musa' has no attribute 'device_count'",
        )),
    },
    Installation {
        of: "mlu",
        torch: "",
        modules: &[("torch_mlu/__init__.py", VENDOR)],
        packages: &[("torch-mlu", "1.24.1+torch2.11.0")],
        count: Some(3),
        without: Some(("del torch.mlu", "module 'torch' has no attribute 'mlu'")),
    },
    Installation {
        of: "tpu",
        torch: "",
        modules: &[("torch_tpu/__init__.py", TPU)],
        packages: &[("torch-tpu", "0.2.0")],
        count: Some(3),
        without: Some((
            "del torch.accelerator",
            "module 'torch' has no attribute 'accelerator'",
        )),
    },
    Installation {
        of: "neuron",
        torch: "",
        modules: &[
            ("torch_xla/__init__.py", "from . import runtime\n"),
            ("torch_xla/runtime.py", PJRT),
            ("torch_xla/distributed/__init__.py", ""),
            (
                "torch_xla/distributed/xla_backend.py",
                "import torch\ntorch.distributed.known.append('xla')\n",
            ),
            ("torch_neuronx.py", "import torch_xla\n"),
        ],
        packages: &[("torch-neuronx", "2.9.0.2.10")],
        count: Some(3),
        without: Some((
            "del torch_xla.runtime.addressable_device_count",
            "module 'torch_xla.runtime' has no attribute 'addressable_device_count'",
        )),
    },
    Installation {
        of: "xla",
        torch: "",
        modules: &[
            ("torch_xla/__init__.py", ""),
            ("torch_xla/distributed/__init__.py", ""),
            (
                "torch_xla/distributed/xla_backend.py",
                "import torch\ntorch.distributed.known.append('xla')\n",
            ),
        ],
        packages: &[("torch-xla", "2.9.0")],
        count: None,
        without: None,
    },
    Installation {
        of: "model_parallel",
        torch: "",
        modules: &[
            ("megatron/core/__init__.py", ""),
            ("megatron/core/parallel_state.py", ""),
            ("yunchang/__init__.py", ""),
            ("yunchang/globals.py", ""),
        ],
        packages: &[("megatron-core", "0.16.1"), ("yunchang", "0.6.4")],
        count: None,
        without: None,
    },
];

/// The state of an installation in a test.
#[derive(Clone, Copy)]
struct State<'a> {
    torch: &'a str,
    devices: u32,
    /// Code before the module that is imported last.
    first: &'a str,
    /// Code after that module.
    last: &'a str,
    /// A package, and a version other than the good one.
    other: Option<(&'a str, &'a str)>,
}

/// A good installation; this torch is new enough for every platform and too new for none.
const HEALTHY: State = State {
    torch: "TORCH",
    devices: 3,
    first: "",
    last: "",
    other: None,
};

fn platforms() -> Vec<Platform> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/platforms");
    load(&[folder]).unwrap_or_else(|problems| panic!("{}", problems[0]))
}

/// Writes the installation into a folder, and probes it with the platform's own file.
fn observe(installation: &Installation, platform: &Platform, state: State) -> ProbeResult {
    let folder = tempfile::tempdir().unwrap();
    let write = |path: &str, text: &str| {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    let around = |text: &str| format!("{}\n{text}\n{}\n", state.first, state.last);
    let release = if platform.name == "xla" {
        "2.9.0"
    } else {
        "2.11.0"
    };
    let torch = match state.torch {
        "TORCH" => release,
        other => other,
    };
    let count = |text: &str| {
        text.replace("DEVICES", &state.devices.to_string())
            .replace("TORCH", torch)
            .replace("TYPE", &platform.device_type)
            .replace("BACKEND", platform.backends.keys().next().unwrap())
    };
    let body = count(&format!("{TORCH}{}", installation.torch));
    match installation.modules.split_last() {
        None => write("torch.py", &around(&body)),
        Some(((last, text), others)) => {
            write("torch.py", &body);
            write(last, &around(&count(text)));
            for (path, text) in others {
                write(path, &count(text));
            }
        }
    }
    for (name, version) in installation.packages {
        let version = match state.other {
            Some((other, old)) if other == *name => old,
            _ => version,
        };
        write(
            &format!("{}-{version}.dist-info/METADATA", name.replace('-', "_")),
            &format!("Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"),
        );
    }
    let mut platform = platform.clone();
    platform.python_path = vec![folder.path().to_path_buf()];
    probe(Path::new("python3"), &platform, IMPORT_PATIENCE)
}

#[track_caller]
fn reason(installation: &Installation, platform: &Platform, state: State, expected: &str) {
    let usable = observe(installation, platform, state).usable;
    assert_eq!(usable, Err(expected.to_owned()), "{}", platform.name);
}

/// Calls `look` with every platform file and its installation.
fn each(look: impl Fn(&Installation, &Platform)) {
    let platforms = platforms();
    let known: BTreeSet<_> = INSTALLATIONS.iter().map(|one| one.of).collect();
    let named: BTreeSet<_> = platforms.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(known, named, "every platform file has an installation");
    for installation in INSTALLATIONS {
        let platform = platforms.iter().find(|one| one.name == installation.of);
        look(installation, platform.unwrap());
    }
}

#[test]
fn a_complete_installation_is_usable_and_counted() {
    each(|installation, platform| {
        let observed = observe(installation, platform, HEALTHY);
        assert_eq!(observed.usable, Ok(()), "{}", platform.name);
        assert_eq!(observed.count, installation.count, "{}", platform.name);
        assert!(observed.backends.values().all(|is_there| *is_there));
        assert!(!observed.is_simulated);
    });
}

#[test]
fn a_package_that_is_not_there_is_named() {
    each(|installation, platform| {
        // The last import is the vendor's, or torch itself.
        let package = platform.import.last().map_or("torch", |module| module);
        let package = package.split('.').next().unwrap();
        let gone = Installation {
            modules: match installation.modules {
                [] => &[],
                _ => &[("unrelated.py", "")],
            },
            ..*installation
        };
        let first = platform.import.first().map_or("torch", |module| module);
        let first = first.split('.').next().unwrap();
        let none =
            format!("raise ModuleNotFoundError(\"No module named '{package}'\", name='{package}')");
        let state = match installation.modules {
            [] => State {
                first: &none,
                ..HEALTHY
            },
            _ => HEALTHY,
        };
        let expected = format!("{first} is not installed for python3");
        reason(&gone, platform, state, &expected);
    });
}

#[test]
fn an_import_that_raises_is_told_in_its_words() {
    each(|installation, platform| {
        let state = State {
            first: "raise OSError('libvendor.so.1: cannot open shared object file')",
            ..HEALTHY
        };
        let module = platform.import.last().map_or("torch", |module| module);
        let expected = format!(
            "import {module} failed: OSError: libvendor.so.1: cannot open shared object file"
        );
        reason(installation, platform, state, &expected);
    });
}

#[test]
fn what_is_counted_with_and_not_there_is_named() {
    each(|installation, platform| {
        let Some((statement, error)) = installation.without else {
            assert_eq!(platform.count, None);
            return;
        };
        let state = State {
            last: statement,
            ..HEALTHY
        };
        let count = platform.count.as_ref().unwrap();
        let expected = format!("`{count}` failed: AttributeError: {error}");
        reason(installation, platform, state, &expected);
    });
}

#[test]
fn no_devices_are_no_platform() {
    each(|installation, platform| {
        if let Some(count) = &platform.count {
            let state = State {
                devices: 0,
                ..HEALTHY
            };
            let expected = format!("0 devices: `{count}` is 0");
            reason(installation, platform, state, &expected);
        }
    });
}

#[test]
fn what_is_too_old_is_named_with_what_is_wanted() {
    each(|installation, platform| {
        let old = State {
            torch: "1.13.1",
            ..HEALTHY
        };
        let wanted = &platform.requires["torch"];
        let expected = format!("torch 1.13.1 is not {wanted}");
        reason(installation, platform, old, &expected);
        for (package, _) in installation.packages {
            let old = State {
                other: Some((package, "0.0.1")),
                ..HEALTHY
            };
            let wanted = &platform.requires[*package];
            let expected = format!("{package} 0.0.1 is not {wanted}");
            reason(installation, platform, old, &expected);
        }
    });
}

#[test]
fn a_build_for_amd_is_not_nvidia_s_and_the_other_way_round() {
    let platforms = platforms();
    for (of, other) in [("cuda", "rocm"), ("rocm", "cuda")] {
        let installation = INSTALLATIONS.iter().find(|one| one.of == of).unwrap();
        let platform = platforms.iter().find(|one| one.name == other).unwrap();
        let count = platform.count.as_ref().unwrap();
        let expected = format!("0 devices: `{count}` is 0");
        reason(installation, platform, HEALTHY, &expected);
    }
}
