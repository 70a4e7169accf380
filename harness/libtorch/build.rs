//! Compiles the C++ shim against the very libtorch that torch-sys found, and refuses another version than tch's.
//!
//! In: `DEP_TCH_LIBTORCH_LIB`, where torch-sys says its libraries are; `ALLRANKS_CUDA_INCLUDE` (folders, separated by
//! colons) for the feature `nccl`. Out: the shim, and the folder of the libraries as run path of the binary.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::exit;

/// What tch 0.24 is made for.
const WANTED: &str = "2.11";

fn main() {
    for file in [
        "backend.hpp",
        "c10d.h",
        "error.cpp",
        "group.cpp",
        "nccl.cpp",
        "ops.cpp",
        "recorder.cpp",
        "shim.cpp",
        "shim.hpp",
        "store.cpp",
        "gloo",
    ] {
        println!("cargo:rerun-if-changed=shim/{file}");
    }
    println!("cargo:rerun-if-env-changed=ALLRANKS_CUDA_INCLUDE");
    let Ok(libraries) = env::var("DEP_TCH_LIBTORCH_LIB") else {
        fail("torch-sys does not say where libtorch is");
    };
    let libraries = PathBuf::from(libraries);
    let root = libraries.parent().unwrap_or(&libraries).to_owned();
    let version = version(&root);
    if !version.starts_with(&format!("{WANTED}.")) {
        fail(&format!(
            "this driver wants libtorch {WANTED}; {} is {version}. hint: install torch=={WANTED}.*, or point \
             ALLRANKS_PYTHON at a Python that has it, and build with ci/libtorch",
            root.display()
        ));
    }
    println!("cargo:rustc-env=ALLRANKS_TORCH_VERSION={version}");
    let with_nccl = env::var_os("CARGO_FEATURE_NCCL").is_some();
    compile(&root, with_nccl);
    println!("cargo:rustc-link-search=native={}", libraries.display());
    for library in ["torch_cpu", "torch", "c10"] {
        println!("cargo:rustc-link-lib={library}");
    }
    if with_nccl {
        for library in ["torch_cuda", "c10_cuda"] {
            println!("cargo:rustc-link-lib={library}");
        }
    }
    println!("cargo:rustc-link-arg=-Wl,-rpath,{}", libraries.display());
}

fn compile(root: &Path, with_nccl: bool) {
    let mut shim = cc::Build::new();
    shim.cpp(true)
        .std("c++17")
        // Nothing here is worth a compiler's time: every function calls one of libtorch's.
        .opt_level(0)
        .debug(false)
        .define("USE_C10D_GLOO", None)
        .include("shim")
        .flag("-isystem")
        .flag(root.join("include"))
        .flag("-isystem")
        .flag(root.join("include/torch/csrc/api/include"))
        .flag_if_supported("-Wno-unused-parameter")
        .file("shim/shim.cpp");
    if with_nccl {
        let Ok(folders) = env::var("ALLRANKS_CUDA_INCLUDE") else {
            fail(
                "the feature `nccl` needs ALLRANKS_CUDA_INCLUDE; hint: build with `ci/libtorch --nccl`",
            );
        };
        for folder in folders.split(':').filter(|folder| !folder.is_empty()) {
            shim.flag("-isystem").flag(folder);
        }
        shim.define("USE_C10D_NCCL", None)
            .define("ALLRANKS_NCCL", None)
            .file("shim/nccl.cpp");
    }
    shim.compile("allranks_shim");
}

/// Returns the version of a libtorch: PyTorch's wheels have it in `version.py`, libtorch's own archives in `build-version`.
fn version(root: &Path) -> String {
    let python = fs::read_to_string(root.join("version.py")).unwrap_or_default();
    let said = python.lines().find_map(|line| {
        let value = line.strip_prefix("__version__ = ")?;
        Some(value.trim_matches(['\'', '"']).to_owned())
    });
    said.or_else(|| fs::read_to_string(root.join("build-version")).ok())
        .map_or_else(
            || "of an unknown version".to_owned(),
            |text| text.trim().to_owned(),
        )
}

fn fail(why: &str) -> ! {
    println!("cargo::error={why}");
    exit(1);
}
