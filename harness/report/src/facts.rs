//! Extracts facts about the environment of a run that can be compared, from `environment.json` and from the run's record.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use allranks_model::record::RunRecord;

use crate::past_runs::Facts;
use crate::text::{clip, one_line};

/// The fact that every `environment.json` has. Without it, the environment of a run is unknown.
pub(crate) const KERNEL: &str = "kernel";
/// The key of a merged `environment.json`. Its value is a list of objects with `run` and `environment`.
pub const MERGED: &str = "merged";
/// The longest value of a fact, in bytes.
const LIMIT: usize = 200;
/// The number of digits of a digest that are kept.
const DIGEST: usize = 12;

/// Returns the facts of a run. `environment` is the content of its `environment.json`, `None` if it has none; fields that are not
/// there give no fact. Where the machine is a container with the name that Docker makes up (12 hexadecimal digits), its name is
/// none.
///
/// Of a merged run, whose file has the environments of all its runs, a fact has every value that it has in one of them. If one of
/// them had no file, its environment is not known, and so neither is the kernel of the whole.
#[must_use]
pub fn facts(run: &RunRecord, environment: Option<&Value>) -> Facts {
    let merged = environment.and_then(|environment| environment.get(MERGED)?.as_array());
    let Some(merged) = merged else {
        return facts_of_one(run, environment);
    };
    let mut values = BTreeMap::<String, BTreeSet<String>>::new();
    let mut is_known = true;
    for one in merged {
        let environment = one.get("environment").filter(|one| one.is_object());
        is_known &= environment.is_some();
        for (name, value) in facts_of_one(run, environment) {
            values.entry(name).or_default().insert(value);
        }
    }
    if !is_known {
        values.remove(KERNEL);
    }
    let joined = |values: BTreeSet<String>| {
        let values: Vec<String> = values.into_iter().collect();
        clip(&values.join(", "), LIMIT)
    };
    let all = values.into_iter();
    all.map(|(name, values)| (name, joined(values))).collect()
}

/// Returns the facts of a run that is not merged.
fn facts_of_one(run: &RunRecord, environment: Option<&Value>) -> Facts {
    let mut facts = Facts::new();
    let mut put = |name: &str, value: Option<&str>| {
        if let Some(value) = value.map(one_line).filter(|value| !value.is_empty()) {
            facts.insert(one_line(name), clip(&value, LIMIT));
        }
    };
    put("allranks", Some(&run.allranks));
    put("seed", Some(&run.seed.to_string()));
    if let Some(origin) = &run.origin {
        let short = |digest: &str| digest.chars().take(DIGEST).collect::<String>();
        put("suite", Some(&short(&origin.suite)));
        put("expectations", Some(&short(&origin.expectations)));
    }
    let Some(environment) = environment else {
        return facts;
    };
    let text = |path: &str| environment.pointer(path).and_then(Value::as_str);
    put(KERNEL, text("/system"));
    let name = text("/network/hostname");
    put("machine", name.filter(|name| !is_container_id(name)));
    for build in ["cuda", "hip", "xpu", "nccl"] {
        let path = format!("/torch/import/works/{build}");
        let name = match build {
            "nccl" => "backend nccl".to_owned(),
            other => format!("torch built for {other}"),
        };
        put(&name, text(&path));
    }
    put("torch", text("/torch/import/works/version"));
    let list = |path: &str| environment.pointer(path).and_then(Value::as_array);
    let devices = list("/devices").map_or(&[][..], Vec::as_slice);
    put("driver", joined(devices, "driver").as_deref());
    if let Some(names) = joined(devices, "name") {
        put("devices", Some(&format!("{} of {names}", devices.len())));
    }
    for (path, kind) in [("/torch/packages", "package"), ("/variables", "variable")] {
        let entries = environment.pointer(path).and_then(Value::as_object);
        for (name, value) in entries.into_iter().flatten() {
            // Torch has a fact of its own, with its build.
            if (kind, name.as_str()) != ("package", "torch") {
                put(&format!("{kind} {name}"), value.as_str());
            }
        }
    }
    facts
}

/// Joins the different values of a field, sorted; `None` if there are none.
fn joined(list: &[Value], field: &str) -> Option<String> {
    let mut values: Vec<&str> = list
        .iter()
        .filter_map(|one| one.get(field)?.as_str())
        .collect();
    values.sort_unstable();
    values.dedup();
    (!values.is_empty()).then(|| values.join(", "))
}

/// Returns true if a host name is a container id. Docker uses its first 12 digits as the default name.
fn is_container_id(name: &str) -> bool {
    name.len() == 12 && name.chars().all(|one| one.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::sample_run::sample_run;

    #[test]
    fn what_may_change_a_result_is_a_fact() {
        let environment = json!({
            "system": "Linux 6.1.0 x86_64",
            "network": {"hostname": "node7"},
            "devices": [{"driver": "580.1", "name": "H100"}, {"driver": "580.1", "name": "H100"}],
            "torch": {
                "import": {"works": {"version": "2.11.0+cu130", "cuda": "13.0", "nccl": "2.28.9", "hip": null}},
                "packages": {"torch": "2.11.0", "triton": "3.6.0"},
            },
            "variables": {"NCCL_ALGO": "Ring"},
        });
        let facts = facts(&sample_run(), Some(&environment));
        let told: Vec<String> = facts
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        assert_eq!(
            told,
            [
                "allranks=0.1.0",
                "backend nccl=2.28.9",
                "devices=2 of H100",
                "driver=580.1",
                "kernel=Linux 6.1.0 x86_64",
                "machine=node7",
                "package triton=3.6.0",
                "seed=7",
                "torch=2.11.0+cu130",
                "torch built for cuda=13.0",
                "variable NCCL_ALGO=Ring",
            ]
        );
    }

    #[test]
    fn a_merged_run_has_the_facts_of_all_its_runs() {
        let one = |kernel: &str, driver: &str| json!({"system": kernel, "devices": [{"driver": driver}], "memory_mib": 1});
        let merged = |last: Value| {
            let runs = [
                one("Linux 6.1.0", "580.2"),
                one("Linux 6.1.0", "580.1"),
                last,
            ];
            let runs = runs.map(|environment| json!({"run": "part", "environment": environment}));
            facts(&sample_run(), Some(&json!({"format": 1, "merged": runs})))
        };
        let all = merged(one("Linux 6.1.0", "580.2"));
        assert_eq!(
            (all["kernel"].as_str(), all["driver"].as_str()),
            ("Linux 6.1.0", "580.1, 580.2")
        );
        assert_eq!(all["seed"], "7");
        let lacking = merged(Value::Null);
        assert!(!lacking.contains_key(KERNEL) && lacking["driver"] == "580.1, 580.2");
    }

    #[test]
    fn a_made_up_name_and_a_missing_file_give_no_fact() {
        let environment = json!({"system": "Linux", "network": {"hostname": "0123456789ab"}});
        assert!(!facts(&sample_run(), Some(&environment)).contains_key("machine"));
        let alone = facts(&sample_run(), None);
        assert!(!alone.contains_key(KERNEL) && alone["seed"] == "7");
    }
}
