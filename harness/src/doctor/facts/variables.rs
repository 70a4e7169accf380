//! Environment variables that are shown in reports, by an allow-list: a variable that is not known may be a secret.

use std::collections::BTreeMap;

/// Prefixes of variables that change how collectives behave.
const PREFIXES: &[&str] = &[
    "NCCL_",
    "RCCL_",
    "GLOO_",
    "CCL_",
    "HCCL_",
    "HCL_",
    "MCCL_",
    "CNCL_",
    "UCX_",
    "UCC_",
    "FI_",
    "TORCH_",
    "TORCHELASTIC_",
    "TP_SOCKET_",
    "OMP_",
    "KMP_",
    "MKL_NUM_",
    "NEURON_RT_",
    "NEURON_CC_",
    "XLA_",
    "PJRT_",
    "OMPI_COMM_WORLD_",
    "PMI_",
    "RES_",
];
/// Further variables by name: rendezvous, masks, launchers.
const NAMES: &[&str] = &[
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "GROUP_RANK",
    "GROUP_WORLD_SIZE",
    "ROLE_RANK",
    "ROLE_WORLD_SIZE",
    "NODE_RANK",
    "NNODES",
    "MASTER_ADDR",
    "MASTER_PORT",
    "SLURM_PROCID",
    "SLURM_LOCALID",
    "SLURM_NTASKS",
    "SLURM_NNODES",
    "SLURM_STEP_NUM_TASKS",
    "SLURM_JOB_ID",
    "MV2_COMM_WORLD_RANK",
    "MV2_COMM_WORLD_SIZE",
    "CUDA_VISIBLE_DEVICES",
    "CUDA_DEVICE_ORDER",
    "CUDA_LAUNCH_BLOCKING",
    "CUDA_DEVICE_MAX_CONNECTIONS",
    "NVIDIA_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
    "HSA_OVERRIDE_GFX_VERSION",
    "ZE_AFFINITY_MASK",
    "ONEAPI_DEVICE_SELECTOR",
    "HABANA_VISIBLE_MODULES",
    "HLS_MODULE_ID",
    "ASCEND_RT_VISIBLE_DEVICES",
    "MUSA_VISIBLE_DEVICES",
    "MLU_VISIBLE_DEVICES",
    "TOPS_VISIBLE_DEVICES",
    "TPU_VISIBLE_CHIPS",
    "TPU_WORKER_HOSTNAMES",
    "PYTORCH_CUDA_ALLOC_CONF",
    "ALLRANKS_PYTHON",
    "ALLRANKS_LIBTORCH",
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
];
/// Parts of a name that make its value a secret.
const SECRETS: &[&str] = &[
    "TOKEN",
    "KEY",
    "SECRET",
    "PASSWORD",
    "PASSWD",
    "PASSPHRASE",
    "PASSCODE",
    "CREDENTIAL",
    "COOKIE",
    "BEARER",
    "AUTHORIZATION",
    "AUTHENTICATION",
];
/// The same, but only as whole words: they are also parts of harmless names such as `TORCH_..._PASSES`.
const SECRET_WORDS: &[&str] = &["AUTH", "PASS", "PWD"];
/// Replaces the value of a secret.
const REDACTED: &str = "<redacted>";

/// Returns the variables of the allow-list, with secrets redacted.
pub(super) fn shown(environment: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    environment
        .iter()
        .filter(|(name, _)| {
            NAMES.contains(&name.as_str()) || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
        })
        .map(|(name, value)| {
            let value = if is_secret(name, value) {
                REDACTED
            } else {
                value
            };
            (name.clone(), value.to_owned())
        })
        .collect()
}

/// Returns true if a variable is a secret: by its name, or because it is an address that carries a password.
fn is_secret(name: &str, value: &str) -> bool {
    let name = name.to_uppercase();
    // Each address of several.
    let mut addresses = value.split("://").skip(1);
    let carries_password = addresses.any(|address| {
        let authority = address.split(['/', '?', '#', ',', ' ']).next();
        authority.is_some_and(|authority| authority.contains('@'))
    });
    SECRETS.iter().any(|word| name.contains(word))
        || name.split('_').any(|word| SECRET_WORDS.contains(&word))
        || carries_password
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_on_the_list_is_not_shown_and_secrets_on_it_are_redacted() {
        let environment = [
            ("HOME", "/home/me"),
            ("AWS_SECRET_ACCESS_KEY", "abc"),
            ("MASTER_PORT", "29500"),
            ("NCCL_DEBUG", "INFO"),
            ("TORCH_HUB_TOKEN", "hf_abc"),
            ("TORCH_PROXY", "http://me:pw@proxy:80/x"),
            ("TORCH_LOGS", "http://proxy/a@b"),
            ("TORCH_MIRRORS", "http://one/x,http://me@two/x"),
            ("torch_auth", "not on the list"),
            ("TORCH_Db_Pass", "x"),
            ("MASTER_PASSWORD", "x"),
            ("NCCL_AUTH", "x"),
            ("TORCH_PROXY_PASS", "x"),
            ("TORCH_STORE_PASSPHRASE", "x"),
            ("TORCH_PASSES", "3"),
        ];
        let environment = environment.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let shown = shown(&environment.into());
        let shown: Vec<_> = shown
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect();
        assert_eq!(
            shown,
            [
                ("MASTER_PORT", "29500"),
                ("NCCL_AUTH", REDACTED),
                ("NCCL_DEBUG", "INFO"),
                ("TORCH_Db_Pass", REDACTED),
                ("TORCH_HUB_TOKEN", REDACTED),
                ("TORCH_LOGS", "http://proxy/a@b"),
                ("TORCH_MIRRORS", REDACTED),
                ("TORCH_PASSES", "3"),
                ("TORCH_PROXY", REDACTED),
                ("TORCH_PROXY_PASS", REDACTED),
                ("TORCH_STORE_PASSPHRASE", REDACTED),
            ]
        );
    }
}
