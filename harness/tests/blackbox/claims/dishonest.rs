//! Packages that are damaged or dishonest, each with the reasons for which it is rejected: those, and no others.

use serde_json::{Value, json};
use tar::EntryType;

use super::super::stage::Stage;
use super::super::{Test, plain};
use super::package::Package;
use super::{base, verify};

/// A waiver of the mismatch that [`fail`] records.
const WAIVER: &str = "\
- requirement: COLL-001
  match: {backend: gloo, op: all_reduce, case: collectives/smoke, reduce: sum, world_size: 1}
  outcome: mismatch
  reason: It drops the last element.
  url: https://example.org/1
  expiry: 2099-12-31
  approver: numerics team
";
/// What records say of it.
const WAIVED: &str =
    "It drops the last element. (waiver of COLL-001 until 2099-12-31, approved by numerics team)";

/// A change of the base, and the ids of the reasons that it leads to.
struct Forgery {
    name: &'static str,
    reasons: &'static [&'static str],
    /// Whether the manifest follows the change.
    is_listed: bool,
    change: fn(&mut Package),
}

fn forgery(
    name: &'static str,
    reasons: &'static [&'static str],
    change: fn(&mut Package),
) -> Forgery {
    Forgery {
        name,
        reasons,
        is_listed: true,
        change,
    }
}

/// A change that the manifest does not follow.
fn damage(
    name: &'static str,
    reasons: &'static [&'static str],
    change: fn(&mut Package),
) -> Forgery {
    Forgery {
        is_listed: false,
        ..forgery(name, reasons, change)
    }
}

/// One trial for each, and one of a package with a waiver that holds.
pub fn tests() -> Vec<Test> {
    let all = [
        files(),
        suites(),
        records(),
        scenarios(),
        copies(),
        outcomes(),
        claims(),
        waivers(),
    ];
    let forgeries = all.into_iter().flatten().map(|forgery| {
        plain(format!("claims::rejected::{}", forgery.name), move || {
            reject(&forgery)
        })
    });
    let honest = plain("claims::of_a_waived_failure", accept_waiver);
    let two_ways = plain(
        "claims::of_a_failure_that_was_waived_in_two_ways",
        accept_two_ways,
    );
    forgeries.chain([honest, two_ways]).collect()
}

fn changed(change: impl Fn(&mut Package)) -> Package {
    let mut package = base().clone();
    change(&mut package);
    package
}

fn reject(forgery: &Forgery) {
    let stage = Stage::new("claim-forgery");
    let mut package = changed(forgery.change);
    if forgery.is_listed {
        package.relist();
    }
    let path = package.write(&stage, "p.tar.zst");
    let ran = stage.run(&["verify", &path, "--json"]);
    ran.assert_code(1);
    let review: Value = serde_json::from_str(&ran.stdout).unwrap();
    let rejections = review["rejections"].as_array().unwrap();
    let reasons: Vec<&str> = rejections
        .iter()
        .map(|one| one["reason"].as_str().unwrap())
        .collect();
    assert_eq!(reasons, forgery.reasons, "{rejections:#?}");
    // The messages are about the package, and not about this machine.
    for one in rejections {
        let text = one["text"].as_str().unwrap();
        assert!(!text.is_empty() && !text.contains("/tmp/.tmp"), "{text}");
    }
}

fn accept_waiver() {
    let stage = Stage::new("claim-waived");
    let mut package = changed(|package| {
        package.give("waivers/01-w.yaml", WAIVER);
        waive(package, WAIVED);
    });
    package.relist();
    let ran = verify(&stage, &package.write(&stage, "p.tar.zst"));
    ran.assert_code(0);
    for line in [
        "waiver     COLL-001 until 2099-12-31, approved by numerics team: 1 checks; It drops the last element. \
         (https://example.org/1)",
        "1 waived",
        "met in part",
        "accepted",
    ] {
        assert!(
            ran.stdout.contains(line),
            "`{line}` is not in:\n{}",
            ran.stdout
        );
    }
}

/// What a waiver names as either of two ways to fail may fail in one way in one run, and in the other in the other.
fn accept_two_ways() {
    let stage = Stage::new("claim-two-ways");
    let mut package = changed(|package| {
        let text = WAIVER.replace("outcome: mismatch", "outcome: [mismatch, error]");
        package.give("waivers/01-w.yaml", &text);
        waive(package, WAIVED);
        package.change_run(2, |records| {
            let mut checks = records.iter_mut().filter(|one| one["type"] == "check");
            let check = checks.find(|check| is_sum(check)).unwrap();
            check["outcome"] = json!("error");
            check["summary"] = json!("rank 0 raised RuntimeError");
            let map = check.as_object_mut().unwrap();
            map.remove("class");
            map.remove("difference");
        });
    });
    package.relist();
    let ran = verify(&stage, &package.write(&stage, "p.tar.zst"));
    ran.assert_code(0);
}

/// Damaged archives and manifests.
fn files() -> Vec<Forgery> {
    vec![
        damage("a_file_is_missing", &["missing-file"], |package| {
            package.files.remove("runs/2/environment.json");
        }),
        damage("a_file_is_added", &["unlisted-file"], |package| {
            package
                .files
                .insert("runs/1/more.txt".to_owned(), b"1".to_vec());
        }),
        damage("a_file_is_changed", &["digest-mismatch"], |package| {
            package.replace("product.yaml", "Pretended Devices", "Another Vendor");
        }),
        damage("results_are_changed", &["digest-mismatch"], |package| {
            package.replace(
                "runs/1/results.jsonl",
                "\"duration_us\":",
                "\"duration_us\":1",
            );
        }),
        damage("no_manifest", &["bad-manifest"], |package| {
            package.files.remove("manifest.json");
        }),
        damage("no_json", &["bad-manifest"], |package| {
            package
                .files
                .insert("manifest.json".to_owned(), b"{".to_vec());
        }),
        forgery("another_format", &["bad-manifest"], |package| {
            package.replace("manifest.json", "\"format\": 1", "\"format\": 2");
        }),
        damage("a_path_that_leads_out", &["unsafe-path"], |package| {
            package
                .entries
                .push(("../outside".to_owned(), EntryType::Regular));
        }),
        damage("an_absolute_path", &["unsafe-path"], |package| {
            package
                .entries
                .push(("/tmp/outside".to_owned(), EntryType::Regular));
        }),
        damage("a_link", &["unsafe-entry"], |package| {
            package
                .entries
                .push(("link".to_owned(), EntryType::Symlink));
        }),
        damage("a_file_twice", &["duplicate-entry"], |package| {
            package
                .entries
                .push(("product.yaml".to_owned(), EntryType::Regular));
        }),
        forgery("a_log_is_missing", &["missing-log"], |package| {
            let mut names = package.files.keys().cloned();
            let log = names.find(|name| name.starts_with("runs/1/logs/"));
            package.files.remove(&log.unwrap());
        }),
        forgery("no_environment", &["missing-environment"], |package| {
            package.files.remove("runs/1/environment.json");
        }),
    ]
}

/// Another suite, another driver, other files.
fn suites() -> Vec<Forgery> {
    vec![
        forgery("another_version", &["other-suite"], |package| {
            package.change_head(|head| head["allranks"] = json!("0.0.9"));
            set_manifest(package, "allranks", json!("0.0.9"));
        }),
        forgery("other_cases", &["other-suite"], |package| {
            package.change_head(|head| head["origin"]["identity"]["cases"] = json!("00"));
            let mut manifest: Value =
                serde_json::from_slice(&package.files["manifest.json"]).unwrap();
            manifest["suite"]["cases"] = json!("00");
            package.files.insert(
                "manifest.json".to_owned(),
                manifest.to_string().into_bytes(),
            );
        }),
        forgery(
            "a_suite_that_is_not_the_runs",
            &["bad-manifest"],
            |package| {
                let mut manifest: Value =
                    serde_json::from_slice(&package.files["manifest.json"]).unwrap();
                manifest["suite"]["commit"] = json!("0000");
                package.files.insert(
                    "manifest.json".to_owned(),
                    manifest.to_string().into_bytes(),
                );
            },
        ),
        // It says that the Python driver ran, of which the digest is known.
        forgery(
            "another_driver",
            &["other-driver", "missing-environment"],
            |package| {
                package.change(|records| {
                    for record in records
                        .iter_mut()
                        .filter(|record| record["column"].is_object())
                    {
                        record["column"]["driver"] = json!("python");
                    }
                });
            },
        ),
        forgery("another_platform_file", &["edited-input"], |package| {
            package.replace(
                "platforms/01-pretend.yaml",
                "name: pretend",
                "# harmless\nname: pretend",
            );
        }),
        forgery(
            "a_waiver_file_that_the_runs_were_not_given",
            &["edited-input"],
            |package| {
                package
                    .files
                    .insert("waivers/02-more.yaml".to_owned(), WAIVER.into());
            },
        ),
        forgery("a_platform_file_that_is_wrong", &["bad-input"], |package| {
            let text = package.text("platforms/01-pretend.yaml");
            package.give("platforms/01-pretend.yaml", &format!("{text}unknown: 1\n"));
        }),
    ]
}

/// Runs that are not whole, or whose records were touched.
fn records() -> Vec<Forgery> {
    vec![
        forgery("a_line_that_is_no_record", &["run-unreadable"], |package| {
            let text = package.text("runs/1/results.jsonl");
            let text = text.replacen('\n', "\nnonsense\n", 2);
            package
                .files
                .insert("runs/1/results.jsonl".to_owned(), text.into_bytes());
        }),
        forgery("a_run_without_an_end", &["run-cut-off"], |package| {
            let mut records = package.records(2);
            records.retain(|record| record["type"] != "end");
            package.set_records(2, &records);
        }),
        forgery("an_interrupted_run", &["run-cut-off"], |package| {
            let mut records = package.records(1);
            records.last_mut().unwrap()["troubles"] = json!(["interrupted"]);
            package.set_records(1, &records);
        }),
        forgery("a_merged_run", &["run-derived"], |package| {
            package.change_head(|head| {
                head.as_object_mut().unwrap().remove("origin");
            });
        }),
        forgery("a_check_less", &["run-partial"], |package| {
            package.change(|records| {
                let is_refused = |record: &Value| record["outcome"] == "unsupported";
                let place = records.iter().position(is_refused).unwrap();
                records.remove(place);
            });
        }),
        forgery("a_scenario_less", &["run-partial"], |package| {
            package.change(|records| {
                let gone = "collectives/smoke@pretend.gloo.ws4";
                records.retain(|record| record["scenario"] != gone && record["id"] != gone);
            });
        }),
        forgery(
            "a_check_less_than_planned",
            &["run-partial", "edited-totals"],
            |package| {
                package.change_head(|head| head["planned"]["checks"] = json!(141));
            },
        ),
        forgery("a_check_more", &["unplanned-check"], |package| {
            package.change(|records| {
                let is_pass = |record: &Value| record["outcome"] == "pass";
                let mut more = records
                    .iter()
                    .find(|record| is_pass(record))
                    .unwrap()
                    .clone();
                more["id"] = json!(format!("{}.more", more["id"].as_str().unwrap()));
                records.insert(1, more);
            });
        }),
        forgery("a_check_twice", &["edited-record"], |package| {
            package.change(|records| {
                let again = records[1].clone();
                records.insert(1, again);
            });
        }),
        forgery("a_check_that_covers_less", &["edited-record"], |package| {
            package.change_check(is_pass, |check| check["covers"] = json!([]));
        }),
        forgery("a_check_in_another_world", &["edited-record"], |package| {
            package.change_check(is_pass, |check| check["column"]["world_size"] = json!(8));
        }),
        forgery(
            "a_check_of_other_parameters",
            &["edited-record"],
            |package| {
                package.change_check(is_sum, |check| check["params"]["dtype"] = json!("float64"));
            },
        ),
        forgery("a_failure_tried_again", &["run-retried"], |package| {
            package.change_check(is_pass, |check| {
                check["observations"] = json!({"before": "regression: mismatch"});
            });
        }),
        forgery("other_totals", &["edited-totals"], |package| {
            let mut records = package.records(1);
            let end = records.last_mut().unwrap();
            end["verdicts"] = json!({"expected": 1000});
            package.set_records(1, &records);
        }),
        forgery("another_exit_code", &["edited-totals"], |package| {
            let mut records = package.records(1);
            records.last_mut().unwrap()["exit_code"] = json!(4);
            package.set_records(1, &records);
        }),
        forgery("one_run_twice", &["run-reused"], |package| {
            let copies: Vec<_> = package
                .files
                .iter()
                .filter_map(|(path, bytes)| {
                    Some((path.strip_prefix("runs/1/")?.to_owned(), bytes.clone()))
                })
                .collect();
            package.files.retain(|path, _| !path.starts_with("runs/2/"));
            for (path, bytes) in copies {
                package.files.insert(format!("runs/2/{path}"), bytes);
            }
        }),
        forgery("one_run_under_two_names", &["run-reused"], |package| {
            let mut records = package.records(1);
            records[0]["name"] = json!("another");
            records[0]["started"] = json!(1);
            package.set_records(2, &records);
        }),
        forgery(
            "runs_of_two_versions_of_torch",
            &["runs-differ"],
            |package| {
                package.change_run(2, |records| {
                    for record in records
                        .iter_mut()
                        .filter(|record| record["column"].is_object())
                    {
                        record["column"]["torch"] = json!("2.99.0");
                    }
                });
            },
        ),
        forgery(
            "runs_that_were_given_other_files",
            &["runs-differ"],
            |package| {
                let mut records = package.records(2);
                records[0]["origin"]["inputs"] = json!([]);
                package.set_records(2, &records);
            },
        ),
        forgery("runs_that_disagree", &["runs-disagree"], |package| {
            package.change_run(2, |records| {
                let is_refused = |record: &&mut Value| record["outcome"] == "unsupported";
                records.iter_mut().find(is_refused).unwrap()["class"] = json!("another");
            });
        }),
    ]
}

/// Passes without the worlds that they came from.
fn scenarios() -> Vec<Forgery> {
    vec![
        forgery("passes_without_a_world", &["implausible-pass"], |package| {
            package.change(|records| {
                for scenario in scenarios_of(records) {
                    scenario["worlds"] = json!(0);
                    scenario["ranks"] = json!([]);
                }
            });
            package.files.retain(|path, _| !path.contains("/logs/"));
        }),
        forgery("passes_without_ranks", &["implausible-pass"], |package| {
            package.change(|records| {
                for scenario in scenarios_of(records) {
                    scenario["trouble"] = json!("it could not be started");
                    scenario["ranks"] = json!([]);
                }
            });
        }),
        forgery(
            "passes_in_a_world_that_failed",
            &["implausible-pass"],
            |package| {
                package.change(|records| {
                    let mut all = scenarios_of(records);
                    all.next().unwrap()["trouble"] = json!("rank 0 was lost");
                });
            },
        ),
        forgery(
            "passes_of_ranks_that_never_began",
            &["implausible-pass"],
            |package| {
                package.change(|records| {
                    let ranks = scenarios_of(records).flat_map(ranks_of);
                    ranks.for_each(|rank| rank["pid"] = json!(0));
                });
            },
        ),
        forgery(
            "passes_of_ranks_that_were_killed",
            &["implausible-pass"],
            |package| {
                package.change(|records| {
                    let ranks = scenarios_of(records).flat_map(ranks_of);
                    ranks.for_each(|rank| rank["end"] = json!("signal 9 (SIGKILL)"));
                });
            },
        ),
        forgery("one_log_for_all_ranks", &["missing-log"], |package| {
            package.change(|records| {
                let ranks = scenarios_of(records).flat_map(ranks_of);
                ranks.for_each(|rank| rank["log"] = json!("results.jsonl"));
            });
        }),
        forgery("a_scenario_more", &["unplanned-check"], |package| {
            package.change(|records| {
                let mut more = scenarios_of(records).next().unwrap().clone();
                more["id"] = json!("collectives/smoke@pretend.gloo.ws9");
                records.insert(1, more);
            });
        }),
        forgery("a_scenario_twice", &["edited-record"], |package| {
            package.change(|records| {
                let again = scenarios_of(records).next().unwrap().clone();
                records.insert(1, again);
            });
        }),
        forgery(
            "a_scenario_under_another_title",
            &["edited-record"],
            |package| {
                package.change(|records| {
                    for scenario in scenarios_of(records) {
                        scenario["title"] = json!("everything is right");
                    }
                });
            },
        ),
        forgery("other_requirements", &["edited-record"], |package| {
            package.change_head(|head| {
                head["requirements"]["COLL-001"] = json!("Results MAY be right.");
            });
        }),
    ]
}

/// Runs that are said to be two, and times at which nothing was.
fn copies() -> Vec<Forgery> {
    vec![
        forgery("a_copy_with_other_times", &["run-reused"], |package| {
            copy_run(package, |index, time| time + 1 + index % 7);
        }),
        forgery("a_copy_without_times", &["run-reused"], |package| {
            copy_run(package, |_, _| 0);
        }),
        forgery(
            "passes_that_took_no_time",
            &["implausible-pass"],
            |package| {
                package.change(|records| {
                    for record in records.iter_mut().filter(|one| one["type"] == "check") {
                        record["duration_us"] = json!(0);
                    }
                });
            },
        ),
        forgery("runs_at_the_same_time", &["runs-overlap"], |package| {
            for run in [1, 2] {
                let mut records = package.records(run);
                records[0]["started"] = json!(1_000_000_000);
                lengthen(&mut records);
                package.set_records(run, &records);
            }
        }),
        forgery(
            "a_package_older_than_its_runs",
            &["bad-manifest"],
            |package| {
                set_manifest(package, "created", json!(1));
            },
        ),
        forgery("a_package_of_another_year", &["bad-manifest"], |package| {
            set_manifest(package, "created", json!(9_000_000_000_u64));
        }),
        forgery(
            "a_run_in_less_than_its_time",
            &["edited-totals"],
            |package| {
                let mut records = package.records(1);
                records.last_mut().unwrap()["duration_ms"] = json!(1);
                package.set_records(1, &records);
            },
        ),
        forgery(
            "trouble_without_consequence",
            &["edited-totals"],
            |package| {
                let mut records = package.records(1);
                records.last_mut().unwrap()["troubles"] = json!(["a disk was full"]);
                package.set_records(1, &records);
            },
        ),
        forgery("trouble_of_the_harness", &["harness-failed"], |package| {
            let mut records = package.records(1);
            let end = records.last_mut().unwrap();
            end["troubles"] = json!(["a disk was full"]);
            end["exit_code"] = json!(10);
            package.set_records(1, &records);
        }),
        forgery("an_incomplete_run", &["run-partial"], |package| {
            let mut records = package.records(1);
            let end = records.last_mut().unwrap();
            end["troubles"] = json!(["a node was lost"]);
            end["exit_code"] = json!(4);
            package.set_records(1, &records);
        }),
        forgery(
            "an_empty_environment",
            &["missing-environment"],
            |package| {
                package
                    .files
                    .insert("runs/2/environment.json".to_owned(), b"{}".to_vec());
            },
        ),
        forgery(
            "a_manifest_of_another_version",
            &["bad-manifest"],
            |package| {
                set_manifest(package, "allranks", json!("0.0.9"));
            },
        ),
    ]
}

fn scenarios_of(records: &mut [Value]) -> impl Iterator<Item = &mut Value> {
    records
        .iter_mut()
        .filter(|record| record["type"] == "scenario")
}

fn ranks_of(scenario: &mut Value) -> &mut Vec<Value> {
    scenario["ranks"].as_array_mut().unwrap()
}

fn set_manifest(package: &mut Package, field: &str, value: Value) {
    let mut manifest: Value = serde_json::from_slice(&package.files["manifest.json"]).unwrap();
    manifest[field] = value;
    let bytes = manifest.to_string().into_bytes();
    package.files.insert("manifest.json".to_owned(), bytes);
}

/// Lets a run take a minute.
fn lengthen(records: &mut [Value]) {
    scenarios_of(records).next().unwrap()["duration_ms"] = json!(60_000);
    let took = scenarios_of(records).map(|one| {
        let of = |field: &str| one[field].as_u64().unwrap();
        of("start_ms") + of("duration_ms")
    });
    let took = took.max().unwrap();
    records.last_mut().unwrap()["duration_ms"] = json!(took);
}

/// Puts a copy of the first run in the place of the second, as if made before it, with other times of its checks.
fn copy_run(package: &mut Package, time: impl Fn(u64, u64) -> u64) {
    let mut records = package.records(1);
    records[0]["name"] = json!("another");
    records[0]["started"] = json!(1);
    for (index, record) in (0..).zip(&mut records) {
        if let Some(took) = record["duration_us"].as_u64() {
            record["duration_us"] = json!(time(index, took));
        }
    }
    package.set_records(2, &records);
}

/// Outcomes and verdicts that are not what they are said to be.
fn outcomes() -> Vec<Forgery> {
    vec![
        forgery("a_failure_of_a_must", &["must-failed"], |package| {
            fail(package, |check| check["verdict"] = json!("regression"));
        }),
        forgery(
            "a_failure_in_one_run",
            &["must-failed", "runs-disagree"],
            |package| {
                package.change_run(2, |records| {
                    let mut checks = records
                        .iter_mut()
                        .filter(|record| record["type"] == "check");
                    let check = checks.find(|check| is_sum(check)).unwrap();
                    mismatch(check);
                    check["verdict"] = json!("regression");
                });
            },
        ),
        forgery(
            "a_failure_that_is_said_to_be_expected",
            &["edited-verdict", "must-failed"],
            |package| {
                fail(package, |check| check["verdict"] = json!("expected"));
            },
        ),
        forgery(
            "a_pass_that_is_said_to_be_known",
            &["edited-verdict"],
            |package| {
                package.change_check(is_sum, |check| check["verdict"] = json!("known-failure"));
            },
        ),
        forgery(
            "a_failure_that_is_said_to_be_a_pass",
            &["implausible-pass"],
            |package| {
                fail(package, |check| {
                    check["outcome"] = json!("pass");
                    check["verdict"] = json!("expected");
                });
            },
        ),
        forgery("a_pass_of_no_elements", &["implausible-pass"], |package| {
            package.change_check(is_sum, |check| check["checked"] = json!([0]));
        }),
        forgery("a_pass_of_one_element", &["implausible-pass"], |package| {
            package.change_check(is_sum, |check| check["checked"] = json!([1]));
        }),
        forgery(
            "a_pass_without_every_rank",
            &["implausible-pass"],
            |package| {
                package.change_check(is_sum, |check| check["checked"] = json!([]));
            },
        ),
        forgery("a_must_that_was_not_run", &["must-not-run"], |package| {
            package.change_check(is_sum, |check| {
                check["outcome"] = json!("not-run");
                check["verdict"] = json!("not-run");
                check["summary"] = json!("no time");
            });
        }),
        forgery(
            "what_is_not_declared_works",
            &["undeclared-support"],
            |package| {
                let is_refused = |check: &Value| check["outcome"] == "unsupported";
                package.change_check(is_refused, |check| {
                    let size = check["column"]["world_size"].as_u64().unwrap() as usize;
                    let map = check.as_object_mut().unwrap();
                    map.remove("class");
                    map.remove("ranks");
                    map.insert("outcome".to_owned(), json!("pass"));
                    map.insert("verdict".to_owned(), json!("unexpected-pass"));
                    map.insert("checked".to_owned(), json!(vec![33; size]));
                });
            },
        ),
        forgery("a_failure_of_the_harness", &["harness-failed"], |package| {
            package.change_check(is_sum, |check| {
                check["outcome"] = json!("harness-error");
                check["verdict"] = json!("regression");
                let remark = "the harness or the machine failed, not the backend";
                check["summary"] = json!(remark);
                check["remark"] = json!(remark);
            });
        }),
        forgery(
            "an_expectation_of_the_vendor",
            &["excused-by-expectation"],
            |package| {
                package.give(
                "expectations/01-own.yaml",
                "- {match: {case: collectives/smoke, op: all_reduce, world_size: 1, reduce: sum}, outcome: mismatch, \
                 reason: Known here., url: \"https://example.org/1\"}\n",
            );
                fail(package, |check| {
                    check["verdict"] = json!("known-failure");
                    let entry = json!({"at": "e.yaml:1", "text": "Known here.", "url": "https://example.org/1"});
                    check["expectation"] = entry;
                });
            },
        ),
    ]
}

/// Claims of what was not run.
fn claims() -> Vec<Forgery> {
    vec![
        forgery(
            "a_product_with_an_unknown_field",
            &["bad-product"],
            |package| {
                package.replace("product.yaml", "vendor:", "vendors:");
            },
        ),
        forgery("no_product", &["bad-product"], |package| {
            package.files.remove("product.yaml");
        }),
        forgery("another_backend", &["other-claim"], |package| {
            package.replace("product.yaml", "backend: gloo", "backend: nccl");
        }),
        forgery("another_platform", &["other-claim"], |package| {
            package.replace("product.yaml", "platform: pretend", "platform: cpu");
        }),
        forgery("a_larger_profile", &["other-claim"], |package| {
            package.replace("product.yaml", "profile: smoke", "profile: core");
        }),
        forgery(
            "host_evidence_for_hardware",
            &["other-evidence"],
            |package| {
                claim_hardware(package);
            },
        ),
        forgery(
            "simulated_evidence_for_hardware",
            &["simulated-evidence"],
            |package| {
                claim_hardware(package);
                say_evidence(package, "simulated");
            },
        ),
        forgery(
            "a_simulated_platform_for_hardware",
            &["simulated-evidence"],
            |package| {
                claim_hardware(package);
                say_evidence(package, "hardware");
                let text = package.text("platforms/01-pretend.yaml");
                let text = text.replace("evidence: host", "evidence: simulated");
                package.give("platforms/01-pretend.yaml", &text);
            },
        ),
        forgery(
            "hardware_in_the_records_alone",
            &["edited-record"],
            |package| {
                claim_hardware(package);
                say_evidence(package, "hardware");
            },
        ),
        forgery(
            "fewer_devices_than_in_the_product_file",
            &["other-product"],
            |package| {
                package.replace(
                    "product.yaml",
                    "claim:",
                    "devices: [{model: X, count: 8}]\nclaim:",
                );
                package.change_head(|head| head["origin"]["devices"] = json!({"pretend": 4}));
            },
        ),
        forgery(
            "no_device_for_any_check",
            &["unplanned-check", "must-missing"],
            |package| {
                package.change_head(|head| head["origin"]["devices"] = json!({"pretend": 0}));
            },
        ),
    ]
}

/// Waivers that are none.
fn waivers() -> Vec<Forgery> {
    vec![
        forgery("an_expired_waiver", &["waiver-expired"], |package| {
            package.give("waivers/01-w.yaml", &WAIVER.replace("2099", "2020"));
            waive(package, &WAIVED.replace("2099", "2020"));
        }),
        forgery("a_waiver_of_everything", &["waiver-too-broad"], |package| {
            package.give(
                "waivers/01-w.yaml",
                &WAIVER.replace("op: all_reduce, case: collectives/smoke, ", ""),
            );
            waive(package, WAIVED);
        }),
        forgery(
            "a_waiver_of_every_backend",
            &["waiver-too-broad"],
            |package| {
                package.give("waivers/01-w.yaml", &WAIVER.replace("backend: gloo, ", ""));
                waive(package, WAIVED);
            },
        ),
        forgery("a_waiver_of_a_hang", &["waiver-forbidden"], |package| {
            package.give("waivers/01-w.yaml", &WAIVER.replace("mismatch", "hang"));
            waive(package, WAIVED);
        }),
        forgery("a_waiver_of_a_crash", &["waiver-forbidden"], |package| {
            let text = WAIVER
                .replace("COLL-001", "INIT-001")
                .replace("mismatch", "[mismatch, crash]");
            package.give("waivers/01-w.yaml", &text);
        }),
        forgery(
            "a_waiver_of_another_backend",
            &["waiver-unused"],
            |package| {
                package.give("waivers/01-w.yaml", &WAIVER.replace("gloo", "nccl"));
            },
        ),
        forgery(
            "a_waiver_that_excuses_nothing",
            &["waiver-unused"],
            |package| {
                package.give(
                    "waivers/01-w.yaml",
                    &WAIVER.replace("all_reduce", "all_to_all"),
                );
            },
        ),
        forgery("a_waiver_without_an_approver", &["bad-input"], |package| {
            package.give(
                "waivers/01-w.yaml",
                &WAIVER.replace("numerics team", "\"\""),
            );
        }),
        forgery(
            "a_waiver_of_another_failure",
            &["edited-verdict", "must-failed"],
            |package| {
                package.give(
                    "waivers/01-w.yaml",
                    &WAIVER.replace("outcome: mismatch", "outcome: mismatch\n  class: other"),
                );
                waive(package, WAIVED);
            },
        ),
    ]
}

fn is_pass(check: &Value) -> bool {
    check["outcome"] == "pass"
}

/// The sum of the smallest world.
fn is_sum(check: &Value) -> bool {
    check["id"] == "collectives/smoke@pretend.gloo.ws1#0.all_reduce.float32.sum.33"
}

/// Makes a check fail.
fn mismatch(check: &mut Value) {
    check["outcome"] = json!("mismatch");
    check["class"] = json!("unclassified");
    check["summary"] = json!("wrong");
    check["checked"] = json!([]);
    check["difference"] = json!({"buffer": "output", "rank": 0, "index": 32, "expected": "1", "actual": "0",
        "wrong": 1, "of": 33, "ranks": [0]});
}

fn fail(package: &mut Package, then: impl Fn(&mut Value)) {
    package.change_check(is_sum, |check| {
        mismatch(check);
        then(check);
    });
}

/// Records a failure as waived.
fn waive(package: &mut Package, text: &str) {
    fail(package, |check| {
        check["verdict"] = json!("waived");
        check["expectation"] =
            json!({"at": "w.yaml:1", "text": text, "url": "https://example.org/1"});
    });
}

fn claim_hardware(package: &mut Package) {
    package.replace("product.yaml", "evidence: host", "evidence: hardware");
    package.replace(
        "product.yaml",
        "claim:",
        "devices: [{model: X, count: 8}]\nclaim:",
    );
}

fn say_evidence(package: &mut Package, kind: &str) {
    package.change(|records| {
        let with_column = records
            .iter_mut()
            .filter(|record| record["column"].is_object());
        for record in with_column {
            record["column"]["evidence"] = json!(kind);
        }
    });
}
