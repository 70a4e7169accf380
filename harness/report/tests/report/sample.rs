//! Invented results for the tests of reports. Nothing in here was measured: no device, backend or torch was near it,
//! and the run's name says so in every report.

use std::collections::BTreeMap;
use std::path::PathBuf;

use allranks_model::evidence::Evidence;
use allranks_model::names::{Rank, WorldSize};
use allranks_model::outcome::{Outcome, Verdict};
use allranks_model::record::{
    CheckRecord, Column, Counts, Difference, EndRecord, FORMAT, RankLine, RankRecord, Reason,
    Record, RunRecord, ScenarioRecord, Span,
};
use allranks_report::Results;

/// Strings that have broken reports before: markup, terminal escapes, XML and shell syntax, text direction.
pub const HOSTILE: [&str; 12] = [
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(2)>",
    "<!-- <script> ]]> --> <![CDATA[ x ]]>",
    "\u{1b}[31mred\u{1b}[0m \u{1b}]0;title\u{7} \u{9b}2J",
    "nul \u{0} bell \u{7} backspace \u{8} delete \u{7f}",
    "noncharacters \u{fffe} \u{ffff} \u{feff}",
    "right-to-left \u{202e}gnp.exe\u{202c} emoji 😀 👩‍💻",
    "quotes \" ' ` $(id) ; | & \\",
    "| table | [link](javascript:alert(3)) | @everyone #1",
    "lines\nand\r\nmore\rlines\u{2028}and\u{85}others",
    "&lt;b&gt; &amp; &#x41; &unknown;",
    "{{template}} <%= x %> ${y} %s %n",
];

/// Cases, with the requirements each covers: enough shapes to fill a matrix.
const CASES: [(&str, &str, &[&str]); 12] = [
    (
        "rendezvous/init/methods",
        "every rank initialises with every store",
        &["INIT-001", "INIT-002"],
    ),
    (
        "rendezvous/init/world_size_one",
        "a world of one runs every op",
        &["INIT-011"],
    ),
    (
        "groups/subgroups",
        "a subgroup holds the ranks it was given",
        &["GRP-001", "GRP-004"],
    ),
    (
        "collectives/all_reduce/dtypes",
        "all_reduce is right for every dtype and operator",
        &["COLL-001", "TYPE-001", "NUM-001"],
    ),
    (
        "collectives/all_reduce/sizes",
        "all_reduce is right at every size from 0 to 67",
        &["COLL-001", "COLL-002"],
    ),
    (
        "collectives/broadcast/roots",
        "broadcast sends from every root",
        &["COLL-004", "COLL-007"],
    ),
    (
        "collectives/all_to_all_single/splits",
        "uneven and empty splits arrive whole",
        &["COLL-009", "COLL-010"],
    ),
    (
        "collectives/barrier/late",
        "no rank leaves before the last enters",
        &["COLL-013"],
    ),
    (
        "p2p/pairs",
        "every ordered pair gets its own data",
        &["P2P-001"],
    ),
    (
        "p2p/tags",
        "tags match out of order",
        &["P2P-002", "P2P-003"],
    ),
    (
        "numerics/special_values",
        "NaN, infinities and negative zero survive",
        &["NUM-004"],
    ),
    (
        "teardown/destroy",
        "groups are destroyed and made again",
        &["INIT-009", "GRP-010"],
    ),
];

const DTYPES: [&str; 6] = [
    "float32", "float64", "bfloat16", "float16", "int64", "uint8",
];

/// The shape of an invented run.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Columns, up to 40.
    pub columns: usize,
    /// Checks in each scenario.
    pub checks: usize,
    /// Whether strings are [`HOSTILE`].
    pub hostile: bool,
}

impl Default for Shape {
    fn default() -> Self {
        Self {
            columns: 9,
            checks: 18,
            hostile: false,
        }
    }
}

/// An invented run.
pub fn results(shape: Shape) -> Results {
    let columns = columns(shape.columns);
    let mut results = Results::new(PathBuf::from("."), run());
    for (case_index, case) in CASES.iter().enumerate() {
        for (column_index, column) in columns.iter().enumerate() {
            let seed = case_index * 41 + column_index;
            add_scenario(&mut results, shape, case, column, seed);
        }
    }
    if shape.hostile {
        make_hostile(&mut results);
    }
    results.run.planned = Counts {
        scenarios: results.scenarios.len() as u64,
        checks: results.checks.len() as u64,
    };
    results.end = Some(end(&results));
    results
}

/// The same run as the lines a live run gives, in order.
pub fn records(results: &Results) -> Vec<Record> {
    let mut records = vec![Record::Run(results.run.clone())];
    for scenario in &results.scenarios {
        let checks = results.checks.iter();
        let checks = checks.filter(|check| check.scenario == scenario.id);
        records.extend(checks.cloned().map(Box::new).map(Record::Check));
        records.push(Record::Scenario(Box::new(scenario.clone())));
    }
    records.extend(results.end.clone().map(Record::End));
    records
}

/// A passing check of an invented scenario.
pub fn passing_check(index: usize) -> CheckRecord {
    let scenario = "collectives/all_reduce/dtypes@cpu.gloo.ws4.method-env";
    CheckRecord {
        format: FORMAT,
        id: format!("{scenario}#1.all_reduce.float32.sum.{index}")
            .as_str()
            .into(),
        scenario: scenario.into(),
        case: "collectives/all_reduce/dtypes".into(),
        column: column("cpu", "gloo", Evidence::Host, 4),
        covers: vec!["COLL-001".into()],
        params: BTreeMap::from([("dtype".to_owned(), "float32".to_owned())]),
        at: "cases/collectives/all_reduce/dtypes.yaml:9".into(),
        outcome: Outcome::Pass,
        verdict: Verdict::Expected,
        summary: String::new(),
        remark: None,
        class: None,
        difference: None,
        ranks: Vec::new(),
        diagnosis: None,
        expectation: None,
        observations: Default::default(),
        checked: vec![33; 4],
        duration_us: 1_234,
    }
}

/// The run record of every invented run.
pub fn run() -> RunRecord {
    RunRecord {
        format: FORMAT,
        allranks: "0.1.0".into(),
        name: "invented-sample".into(),
        started: 1_750_000_000,
        seed: 7,
        profile: Some("core".into()),
        arguments: vec![
            "run".into(),
            "cases/".into(),
            "--profile".into(),
            "core".into(),
        ],
        planned: Counts::default(),
        requirements: Default::default(),
        absent: Vec::new(),
        origin: None,
    }
}

/// A column with python ranks started by hand.
pub fn column(platform: &str, backend: &str, evidence: Evidence, size: u32) -> Column {
    Column {
        platform: platform.into(),
        backend: backend.into(),
        world_size: WorldSize(size),
        nodes: 1,
        driver: "python".into(),
        launcher: "local".into(),
        evidence,
        torch: "2.11.0".into(),
        label: String::new(),
    }
}

fn columns(count: usize) -> Vec<Column> {
    let backends = [
        ("cpu", "gloo", Evidence::Host),
        ("sim", "simccl", Evidence::Simulated),
        ("acme", "acmeccl", Evidence::Hardware),
        ("acme", "gloo", Evidence::Host),
        ("sim2", "simccl", Evidence::Simulated),
    ];
    let sizes = [2, 4, 8, 1, 3, 5, 16, 32];
    let mut columns = Vec::new();
    for index in 0..count {
        let group = if count <= 9 { index / 3 } else { index / 8 };
        let place = if count <= 9 { index % 3 } else { index % 8 };
        let (platform, backend, evidence) = backends[group % backends.len()];
        columns.push(column(platform, backend, evidence, sizes[place]));
    }
    columns
}

fn add_scenario(
    results: &mut Results,
    shape: Shape,
    (case, title, covers): &(&str, &str, &[&str]),
    column: &Column,
    seed: usize,
) {
    let id = format!(
        "{case}@{}.{}.ws{}.method-env",
        column.platform, column.backend, column.world_size
    );
    let op = case.split('/').nth(1).unwrap_or("op");
    let mut labels = Vec::new();
    let seen = if shape.hostile {
        HOSTILE[seed % HOSTILE.len()]
    } else {
        "once"
    };
    for index in 0..shape.checks {
        let dtype = DTYPES[index % DTYPES.len()];
        let numel = [1, 4, 28, 33, 67, 4097][index / DTYPES.len() % 6];
        let label = format!("{}.{op}.{dtype}.sum.{numel}.{index}", index / 6);
        let mut check = CheckRecord {
            id: format!("{id}#{label}").as_str().into(),
            scenario: id.as_str().into(),
            case: (*case).into(),
            column: column.clone(),
            covers: covers.iter().map(|one| (*one).into()).collect(),
            params: BTreeMap::from([
                ("dtype".to_owned(), dtype.to_owned()),
                ("numel".to_owned(), numel.to_string()),
                ("op".to_owned(), "sum".to_owned()),
                ("method".to_owned(), "env".to_owned()),
            ]),
            at: format!("cases/{case}.yaml:{}", 8 + index / 6),
            observations: BTreeMap::from([
                ("accumulates".to_owned(), "dtype".to_owned()),
                ("seen".to_owned(), seen.to_owned()),
            ]),
            checked: vec![numel; column.world_size.count()],
            duration_us: 900 + (seed * 37 + index * 211) as u64 % 5_000,
            ..passing_check(index)
        };
        spoil(&mut check, seed, index);
        labels.push((label, check.outcome));
        results.checks.push(check);
    }
    results.scenarios.push(ScenarioRecord {
        format: FORMAT,
        id: id.as_str().into(),
        case: (*case).into(),
        title: (*title).into(),
        column: column.clone(),
        failure: labels
            .iter()
            .any(|(_, outcome)| matches!(outcome, Outcome::Hang | Outcome::Crash))
            .then(|| "the world was lost in this scenario and started again".to_owned()),
        start_ms: 40 * seed as u64,
        duration_ms: 350 + seed as u64 * 13 % 900,
        worlds: 1,
        ranks: column
            .world_size
            .ranks()
            .map(|rank| rank_record(&id, rank, &labels))
            .collect(),
    });
}

fn rank_record(scenario: &str, rank: Rank, labels: &[(String, Outcome)]) -> RankRecord {
    let init = 120_000 + 9_000 * u64::from(rank.0);
    let mut spans = vec![Span {
        label: "init_process_group".into(),
        start_us: 2_000,
        end_us: Some(init),
        ok: true,
    }];
    let mut now = init;
    let mut end = "exit 0";
    for (label, outcome) in labels {
        let start_us = now + 300;
        now = start_us + 8_000 + 700 * u64::from(rank.0 % 3);
        let lost = matches!(outcome, Outcome::Hang | Outcome::Crash);
        let ok = matches!(outcome, Outcome::Pass | Outcome::Unsupported) || rank.0 != 1;
        spans.push(Span {
            label: label.clone(),
            start_us,
            end_us: (!lost || (rank.0 == 0 && *outcome == Outcome::Hang)).then_some(now),
            ok: ok && !lost,
        });
        if lost {
            end = match (*outcome, rank.0) {
                (Outcome::Crash, 1) => "signal 9 (SIGKILL)",
                _ => "killed by allranks",
            };
            break;
        }
    }
    RankRecord {
        rank,
        pid: 41_000 + rank.0,
        end: end.into(),
        log: format!("logs/{scenario}/rank{rank}.log"),
        spans,
    }
}

/// Makes some checks fail, each in one of the ways there are.
fn spoil(check: &mut CheckRecord, seed: usize, index: usize) {
    let size = check.column.world_size.0;
    let last = Rank(size - 1);
    let simulated = check.column.evidence == Evidence::Simulated;
    let set = |check: &mut CheckRecord, outcome, verdict, summary: &str| {
        check.outcome = outcome;
        check.verdict = verdict;
        check.summary = summary.into();
    };
    match (seed % 19, index) {
        (3, 2 | 8) if size > 1 => {
            set(
                check,
                Outcome::Mismatch,
                Verdict::Regression,
                "every element is the average divided by the world size once more",
            );
            check.class = Some("avg-divided-twice".into());
            check.difference = Some(Difference {
                buffer: "output".into(),
                rank: Rank(1),
                index: 28,
                expected: "-12.5".into(),
                actual: "-3.125".into(),
                wrong: 5 * u64::from(size),
                of: 33 * u64::from(size),
                ranks: (0..size).map(Rank).collect(),
            });
        }
        (5, 4) if size > 1 => {
            set(
                check,
                Outcome::Hang,
                Verdict::Regression,
                "rank 1 never entered all_reduce; the others wait for it",
            );
            check.ranks = (0..size)
                .map(|rank| RankLine {
                    rank: Rank(rank),
                    text: if rank == 1 {
                        "not in any call; last event: end of step 3, 10.2 s ago".into()
                    } else {
                        "in all_reduce for 10.2 s".into()
                    },
                })
                .collect();
        }
        (7, 9) => {
            set(
                check,
                Outcome::Crash,
                Verdict::Regression,
                "rank 1 was killed by signal 9",
            );
            check.ranks = vec![RankLine {
                rank: last,
                text: "killed by signal 9 (SIGKILL) in broadcast".into(),
            }];
        }
        (1, 6) => {
            set(
                check,
                Outcome::Error,
                Verdict::KnownFailure,
                "the group cannot be made on a bound device",
            );
            check.ranks = vec![RankLine {
                rank: Rank(0),
                text: "RuntimeError: No backend type associated with device type acme".into(),
            }];
            check.expectation = Some(Reason {
                at: "fixtures/expectations/acme.yaml:12".into(),
                text: "side groups inherit the bound device".into(),
                url: Some("https://github.com/pytorch/pytorch/issues/162237".into()),
            });
        }
        (8, 3) => set(
            check,
            Outcome::Pass,
            Verdict::UnexpectedPass,
            "an expectation says this fails, and it passed",
        ),
        (9, 5) => set(
            check,
            Outcome::Mismatch,
            Verdict::Regression,
            "2 of 5 repetitions differ",
        ),
        (2, 7) => set(
            check,
            Outcome::HarnessError,
            Verdict::Regression,
            "the harness could not open a socket: too many open files",
        ),
        (6, 10) => {
            set(
                check,
                Outcome::Mismatch,
                Verdict::Waived,
                "negative zero lost its sign",
            );
            check.expectation = Some(Reason {
                at: "fixtures/expectations/acme.yaml:30".into(),
                text: "signed zeros are not promised".into(),
                url: None,
            });
        }
        (10, _) if size == 8 => {
            set(
                check,
                Outcome::NotRun,
                Verdict::NotRun,
                "needs 8 devices, this machine has 4",
            );
            check.checked = Vec::new();
        }
        (_, index) if simulated && index % 6 == 2 => set(
            check,
            Outcome::Unsupported,
            Verdict::Expected,
            "refused on every rank: bfloat16 is not supported",
        ),
        _ => {}
    }
}

/// Puts hostile strings wherever a string is free text.
fn make_hostile(results: &mut Results) {
    let mut next = (0..).map(|index: usize| HOSTILE[index % HOSTILE.len()]);
    let mut hostile = move || next.next().unwrap_or("");
    results.run.name.push_str(hostile());
    results.run.arguments.push(hostile().into());
    results.run.profile = Some(hostile().into());
    for scenario in &mut results.scenarios {
        scenario.title.push_str(hostile());
        scenario.failure = Some(hostile().into());
        for rank in &mut scenario.ranks {
            rank.end.push_str(hostile());
            for span in &mut rank.spans {
                span.label.push_str(hostile());
            }
        }
    }
    for check in &mut results.checks {
        check.id.0.push_str(hostile());
        check.params.insert(hostile().into(), hostile().into());
        check.at.push_str(hostile());
        if check.outcome == Outcome::Pass && check.verdict == Verdict::Expected {
            continue;
        }
        check.summary.push_str(hostile());
        check.class = Some(hostile().into());
        check.ranks.push(RankLine {
            rank: Rank(0),
            text: hostile().into(),
        });
        check.expectation = Some(Reason {
            at: hostile().into(),
            text: hostile().into(),
            url: Some("javascript:alert(4)".into()),
        });
        check.difference = Some(Difference {
            buffer: hostile().into(),
            rank: Rank(0),
            index: 0,
            expected: hostile().into(),
            actual: hostile().into(),
            wrong: 1,
            of: 2,
            ranks: vec![Rank(0)],
        });
    }
}

fn end(results: &Results) -> EndRecord {
    let mut verdicts = BTreeMap::new();
    let mut outcomes = BTreeMap::new();
    for check in &results.checks {
        *verdicts.entry(check.verdict.to_string()).or_default() += 1;
        *outcomes.entry(check.outcome.to_string()).or_default() += 1;
    }
    let failing = results
        .checks
        .iter()
        .any(|check| check.status().is_failing());
    EndRecord {
        format: FORMAT,
        duration_ms: 83_400,
        verdicts,
        outcomes,
        issues: Vec::new(),
        exit_code: u8::from(failing),
    }
}
