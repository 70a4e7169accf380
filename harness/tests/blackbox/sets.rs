//! Runs compared, merged, repeated, and side by side.

use std::sync::{Arc, OnceLock};

use allranks_model::outcome::Verdict;

use super::stage::{Stage, assert_reported, check, essence};
use super::{Test, plain, with_torch};

const SMOKE: [&str; 2] = ["--profile", "smoke"];
const DRIVER: &str = "command:python3 fixtures/drivers/pretend.py";
const CASE: &str = "fixtures/drivers/case.yaml";

/// A stage with a whole smoke run in `out`, which the first test that needs it makes.
type Whole = Arc<OnceLock<Stage>>;

/// Returns every trial of this file.
pub fn tests() -> Vec<Test> {
    let whole = Whole::default();
    let of_whole = |name, body: fn(&Stage)| {
        let whole = Arc::clone(&whole);
        with_torch(name, move || body(whole.get_or_init(run_whole)))
    };
    vec![
        of_whole("sets::twice_the_same", twice_the_same),
        of_whole("sets::shards_make_a_whole", shards),
        of_whole("sets::reports_again", reports_again),
        plain("sets::repeat", repeat),
        plain("sets::side_by_side", side_by_side),
        plain("sets::diff_finds_what_changed", diff),
        plain("sets::judged_again", judged_again),
        plain("sets::a_run_writes_its_expectations", expectations_of_a_run),
        plain("sets::parts_by_time_and_their_environments", parts_by_time),
    ]
}

fn run_whole() -> Stage {
    let stage = Stage::new("smoke");
    stage.run_out(&SMOKE).assert_code(0);
    assert_reported(&stage.results("out"));
    stage
}

/// Runs the smoke profile into a folder of the stage.
fn smoke(stage: &Stage, folder: &str, more: &[&str]) -> String {
    let out = stage.path(folder).display().to_string();
    let mut arguments = vec!["run", "--out", &out];
    arguments.extend(SMOKE);
    arguments.extend(more);
    // Other trials use this stage at the same time: what remains of this run is not to be told from theirs.
    stage.start(stage.command(&arguments)).end().assert_code(0);
    out
}

fn twice_the_same(stage: &Stage) {
    let again = smoke(stage, "again", &[]);
    assert_eq!(
        essence(&stage.results("out")),
        essence(&stage.results("again"))
    );
    let out = stage.out().display().to_string();
    stage
        .start(stage.command(&["diff", &out, &again]))
        .end()
        .assert_code(0);
}

fn shards(stage: &Stage) {
    let parts = ["1/2", "2/2"]
        .map(|shard| smoke(stage, &format!("shard{}", &shard[..1]), &["--shard", shard]));
    let merged = stage.path("merged").display().to_string();
    let merge = stage.command(&["merge", &parts[0], &parts[1], "--out", &merged]);
    stage.start(merge).end().assert_code(0);
    let (merged, whole) = (stage.results("merged"), stage.results("out"));
    assert_reported(&merged);
    assert_eq!(essence(&merged), essence(&whole));
    assert_eq!(merged.run.planned, whole.run.planned);
    for shard in ["shard1", "shard2"] {
        let count = stage.results(shard).scenarios.len();
        assert!(
            count > 0 && count < whole.scenarios.len(),
            "{shard} has {count} scenarios"
        );
    }
}

fn reports_again(stage: &Stage) {
    let out = stage.out();
    let reports = [
        "junit.xml",
        "junit-extended.xml",
        "report.html",
        "summary.md",
    ];
    let before = reports.map(|name| std::fs::read(out.join(name)).unwrap());
    for name in reports {
        std::fs::remove_file(out.join(name)).unwrap();
    }
    stage
        .start(stage.command(&["report", &out.display().to_string()]))
        .end()
        .assert_code(0);
    for (name, before) in reports.into_iter().zip(before) {
        assert!(
            std::fs::read(out.join(name)).unwrap() == before,
            "{name} differs"
        );
    }
    stage
        .start(stage.command(&["report", "/no/such/run"]))
        .end()
        .assert_code(2)
        .assert_says("hint: ");
}

fn repeat() {
    let stage = Stage::new("repeat");
    stage
        .run_out(&[CASE, "--driver", DRIVER, "--repeat", "2"])
        .assert_code(0);
    let results = stage.results("out");
    assert_reported(&results);
    assert_eq!(
        (results.run.planned.scenarios, results.run.planned.checks),
        (4, 22)
    );
    let second: Vec<_> = results
        .checks
        .iter()
        .filter(|check| check.id.as_str().ends_with(".round2"))
        .collect();
    assert_eq!(second.len(), 11);
}

/// Four harnesses at once, two of which make up a folder in the same second, never meet on a port or in a file.
fn side_by_side() {
    let stage = Stage::new("both");
    let home = stage.path("home");
    std::fs::create_dir(&home).unwrap();
    let checkout = super::stage::checkout().canonicalize().unwrap();
    let case = checkout.join(CASE).display().to_string();
    let driver = format!(
        "command:python3 {}/fixtures/drivers/pretend.py",
        checkout.display()
    );
    let running: Vec<_> = (0..4)
        .map(|_| {
            let mut command = stage.command(&["run", &case, "--driver", &driver, "--repeat", "3"]);
            command.current_dir(&home);
            stage.start(command)
        })
        .collect();
    for run in running {
        run.end().assert_code(0);
    }
    stage.assert_nothing_remains();
    let runs: Vec<_> = std::fs::read_dir(home.join("target/allranks"))
        .unwrap()
        .flatten()
        .collect();
    assert_eq!(runs.len(), 4);
    for run in runs {
        assert_reported(&super::stage::read(&run.path()));
    }
}

fn diff() {
    let stage = Stage::new("diff");
    let mut folders = Vec::new();
    for (name, code) in [("pretend", 0), ("lies", 1)] {
        let out = stage.path(name).display().to_string();
        let driver = format!("command:python3 fixtures/drivers/{name}.py");
        stage
            .run(&[
                "run",
                CASE,
                "--driver",
                &driver,
                "--world-size",
                "2",
                "--out",
                &out,
            ])
            .assert_code(code);
        folders.push(out);
    }
    let worse = stage.run(&["diff", &folders[0], &folders[1]]);
    worse.assert_code(1);
    assert!(
        worse.stdout.contains("#0.all_reduce.float32.sum.33"),
        "{}",
        worse.stdout
    );
    stage
        .run(&["diff", &folders[1], &folders[0]])
        .assert_code(0);
    // Without its last line the run was cut off, whatever its checks say.
    let lines = std::fs::read_to_string(stage.path("pretend").join("results.jsonl")).unwrap();
    let (before_end, _) = lines.trim_end().rsplit_once('\n').unwrap();
    let cut = stage.write("cut.jsonl", &format!("{before_end}\n"));
    let partial = stage.run(&["diff", &folders[0], &cut]);
    partial.assert_code(4);
    assert!(
        partial.stdout.starts_with("incomplete  new run: "),
        "{}",
        partial.stdout
    );
    // A failure that is not run the next time is not fixed, and the merged run is not whole.
    let not_run = lines.replace(
        r#""outcome":"pass","verdict":"expected""#,
        r#""outcome":"not-run","verdict":"not-run""#,
    );
    assert_ne!(not_run, lines);
    let not_run = stage.write("not-run.jsonl", &not_run);
    let lost = stage.run(&["diff", &folders[1], &not_run]);
    lost.assert_code(4);
    for words in ["   not run  ", " 0 fixed"] {
        assert!(lost.stdout.contains(words), "{}", lost.stdout);
    }
    let merged = stage.path("merged").display().to_string();
    stage
        .run(&["merge", &not_run, "--out", &merged])
        .assert_code(4);
    stage.run(&["diff", &cut, "/no/such/run"]).assert_code(2);
}

/// An entry that is added makes a failure known, and what was recorded then is enough to take that back; cases that are
/// gone keep their verdicts.
fn judged_again() {
    let stage = Stage::new("judge");
    let driver = "command:python3 fixtures/drivers/lies.py";
    let of_run = [CASE, "--driver", driver, "--world-size", "2"];
    stage.run_out(&of_run).assert_code(1);
    let known = |outcome: &str| {
        let text = format!(
            "- match: {{case: drivers/case, op: [all_reduce, barrier]}}\n  outcome: {outcome}\n  reason: It lies.\n  \
             intermittent: true\n  local: true\n"
        );
        stage.write(&format!("{outcome}.yaml"), &text)
    };
    let judge = |from: &str, into: &str, more: &[&str]| {
        let paths = [from, into].map(|name| stage.path(name).display().to_string());
        let arguments = ["judge", &paths[0], "--out", &paths[1]];
        stage.run(&[&arguments[..], more].concat())
    };
    let wrong = known("error");
    let cases = ["--cases", CASE];
    let with_wrong = [&cases[..], &["--expectations", &wrong]].concat();
    judge("out", "wrong", &with_wrong).assert_code(1);
    let right = known("mismatch");
    let with_right = [&cases[..], &["--expectations", &right]].concat();
    judge("wrong", "right", &with_right).assert_code(0);
    let results = stage.results("right");
    assert_reported(&results);
    let sum = check(&results, "all_reduce.float32.sum.33");
    assert_eq!(sum.verdict, Verdict::KnownFailure);
    assert!(sum.expectation.is_some());

    // What is waived fails all the same; when its day is over, so does the run.
    let waiver = |requirement: &str, expiry: &str| {
        let text = format!(
            "- requirement: {requirement}\n  match: {{backend: gloo, case: drivers/case}}\n  outcome: mismatch\n  \
             reason: It lies.\n  url: https://example.org/1\n  expiry: {expiry}\n  approver: the tests\n"
        );
        stage.write(&format!("waiver-{expiry}.yaml"), &text)
    };
    let requirement = check(&stage.results("out"), "all_reduce.float32.sum.33").covers[0].clone();
    for (expiry, code, verdict) in [
        ("9998-12-31", 0, Verdict::Waived),
        ("2001-01-01", 1, Verdict::Regression),
    ] {
        let waivers = waiver(requirement.as_str(), expiry);
        let judged = judge(
            "out",
            expiry,
            &[&cases[..], &["--waivers", &waivers]].concat(),
        );
        let results = stage.results(expiry);
        let sum = check(&results, "all_reduce.float32.sum.33");
        assert_eq!(sum.verdict, verdict, "{}", judged.stdout);
        let reason = sum.expectation.as_ref().unwrap();
        assert!(reason.text.contains(expiry), "{}", reason.text);
        judged.assert_code(code);
        assert!(stage.path(expiry).join("summary.md").is_file());
    }

    judge("right", "again", &cases).assert_code(1);
    // The same records, in whatever order: a run writes them as they are decided.
    let by_id = |folder: &str| {
        let mut results = stage.results(folder);
        results.checks.sort_by(|one, two| one.id.cmp(&two.id));
        results
    };
    let (before, after) = (by_id("out"), by_id("again"));
    assert_eq!(before.checks, after.checks);

    let gone = judge("out", "gone", &[]);
    gone.assert_code(1);
    assert!(
        gone.stdout.contains("6 checks keep their verdicts"),
        "{}",
        gone.stdout
    );
    assert_eq!(essence(&by_id("gone")), essence(&before));
    judge("out", "again", &cases)
        .assert_code(2)
        .assert_says("hint: ");
}

/// The entries that a run asks for are refused until somebody says why, and then excuse what failed and nothing else.
fn expectations_of_a_run() {
    let stage = Stage::new("expectations");
    let ran = stage.run_out(&[CASE, "--driver", "command:python3 fixtures/drivers/lies.py"]);
    ran.assert_code(1)
        .assert_says("logs  logs/drivers_case@cpu.gloo.ws2/\n");
    assert!(stage.out().join("logs/drivers_case@cpu.gloo.ws2").is_dir());
    let path = |name: &str| stage.path(name).display().to_string();
    let (out, known) = (path("out"), path("known.yaml"));
    let update = |run: &str, more: &[&str]| {
        let arguments = ["expectations", "update", run, "--cases", CASE];
        stage.run(&[&arguments[..], more].concat())
    };
    let written = update(&out, &["--out", &known]);
    written.assert_code(0);
    let words = "2 new entries for 4 unexpected results; write the reason and the url";
    assert!(written.stdout.contains(words), "{}", written.stdout);
    let empty = std::fs::read_to_string(&known).unwrap();
    let entry = "- match: {platform: cpu, backend: gloo, op: all_reduce, group_size: 2}\n  outcome: mismatch\n  class: no-op\n  \
                 reason: \"\"\n  url: \"\"\n";
    assert!(empty.ends_with(entry), "{empty}");
    assert!(update(&out, &[]).stdout.ends_with(entry));

    let judge = |into: &str| {
        let into = path(into);
        let arguments = [
            "judge",
            &out,
            "--out",
            &into,
            "--cases",
            CASE,
            "--expectations",
            &known,
        ];
        stage.run(&arguments)
    };
    judge("refused").assert_code(2).assert_says("no reason");
    update(&out, &["--out", &known])
        .assert_code(2)
        .assert_says("no reason");
    let filled = empty
        .replace("reason: \"\"", "reason: It lies.")
        .replace("url: \"\"", "url: https://example.org/1");
    stage.write("known.yaml", &filled);
    judge("judged").assert_code(0);
    let results = stage.results("judged");
    let verdicts = |verdict| {
        results
            .checks
            .iter()
            .filter(|check| check.verdict == verdict)
            .count()
    };
    assert_eq!(
        (verdicts(Verdict::KnownFailure), verdicts(Verdict::Expected)),
        (4, 7)
    );
    let again = update(
        &out,
        &["--expectations", &known, "--out", &path("none.yaml")],
    );
    again.assert_code(0);
    assert!(again.stdout.contains("no new entry") && !stage.path("none.yaml").exists());

    // It is fixed: the entry has to go, and that is for people to do.
    let honest = path("honest");
    stage
        .run(&["run", CASE, "--driver", DRIVER, "--out", &honest])
        .assert_code(0);
    let out_of_date = update(&honest, &["--expectations", &known]);
    out_of_date.assert_code(1);
    let words = "no entry for 2 results: ";
    assert!(out_of_date.stdout.contains(words), "{}", out_of_date.stdout);
    assert!(out_of_date.stdout.contains("remove it or make it narrower"));

    // Entries are added at the end of a file that is there, and nothing else in it changes.
    update(&out, &["--out", &known]).assert_code(0);
    let both = std::fs::read_to_string(&known).unwrap();
    assert!(
        both.starts_with(filled.trim_end()) && both.ends_with(entry),
        "{both}"
    );
    let flow = stage.write(
        "flow.yaml",
        "[{match: {op: barrier}, outcome: hang, reason: r, local: true}]\n",
    );
    update(&out, &["--out", &flow])
        .assert_code(2)
        .assert_says("hint: write its list with a line");
    update(&path("no-such-run"), &[]).assert_code(2);
}

/// Parts that take alike long make the whole, and merged they have the environments of all.
fn parts_by_time() {
    let stage = Stage::new("times");
    let of_run = [CASE, "--driver", DRIVER];
    stage.run_out(&of_run).assert_code(0);
    let path = |name: &str| stage.path(name).display().to_string();
    let out = path("out");
    stage
        .run(&[&["plan"][..], &of_run, &["--times", &out]].concat())
        .assert_code(2);
    let parts = ["1/2", "2/2"].map(|shard| {
        let into = path(&format!("part{}", &shard[..1]));
        let more = ["--shard", shard, "--times", &out, "--out", &into];
        stage
            .run(&[&["run"][..], &of_run, &more].concat())
            .assert_code(0);
        // By their ids both could be in one part.
        let name = format!("part{}", &shard[..1]);
        assert_eq!(stage.results(&name).scenarios.len(), 1);
        into
    });
    let merged = path("merged");
    stage
        .run(&["merge", &parts[0], &parts[1], "--out", &merged])
        .assert_code(0);
    assert_eq!(
        essence(&stage.results("merged")),
        essence(&stage.results("out"))
    );
    let environment = |folder: &str| -> serde_json::Value {
        let text = std::fs::read(stage.path(folder).join("environment.json")).unwrap();
        serde_json::from_slice(&text).unwrap()
    };
    let all = environment("merged");
    for (place, name) in ["part1", "part2"].into_iter().enumerate() {
        assert_eq!(all["merged"][place]["run"], name);
        assert_eq!(all["merged"][place]["environment"], environment(name));
    }
    // Merged once more, each is there once.
    let whole = path("whole");
    stage
        .run(&["merge", &merged, "--out", &whole])
        .assert_code(0);
    assert_eq!(environment("whole")["merged"], all["merged"]);
    stage
        .run(&["history", "add", &merged, "--db", &path("h.sqlite")])
        .assert_code(0);
}
