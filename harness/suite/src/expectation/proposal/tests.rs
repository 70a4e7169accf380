//! Tests of proposals: on made-up checks, and on every field of `match:`.

use super::*;
use crate::plan::{Check, CheckKind, example_check};
use allranks_model::axes::{
    Extent, Joined, Layout, LayoutOf, Mode, NonRoot, ObjectKind, Pairs, Placement, RootBy, Splits,
    TensorKind, Values,
};
use allranks_model::dtype::{DType, ReduceOp};
use allranks_model::evidence::Evidence;
use allranks_model::names::{CaseId, CheckId, ScenarioId, WorldSize};
use allranks_model::op::Op;
use allranks_model::op_check::OpCheck;
use allranks_model::recipe::DeviceId;
use allranks_model::record::{Column, FORMAT};
use allranks_yaml::Source;
use strum::VariantArray;

const DTYPES: [DType; 4] = [DType::Float32, DType::Bfloat16, DType::Int8, DType::Int64];
const REDUCES: [ReduceOp; 2] = [ReduceOp::Sum, ReduceOp::Avg];
const SIZES: [u32; 4] = [1, 2, 3, 4];

/// A table of checks: all_reduce with dtypes and operators in worlds of some sizes, in two cases.
struct Table {
    cases: Vec<CaseId>,
    checks: Vec<(usize, Check)>,
}

impl Table {
    fn new() -> Self {
        let cases: Vec<CaseId> = ["some/sums", "some/more"].map(CaseId::from).into();
        let mut checks = Vec::new();
        for (case, id) in cases.iter().enumerate() {
            for size in SIZES {
                for dtype in DTYPES {
                    for reduce in REDUCES {
                        let mut check = example_check(Op::AllReduce, dtype, Some(reduce), size);
                        check.id = CheckId(format!(
                            "{id}@cpu.mine.ws{size}#0.all_reduce.{dtype}.{reduce}"
                        ));
                        checks.push((case, check));
                    }
                }
            }
        }
        Self { cases, checks }
    }

    fn points(&self) -> impl Iterator<Item = Point<'_>> {
        let checks = self.checks.iter();
        checks.map(|(case, check)| Point {
            platform: "cpu",
            backend: "mine",
            made_of: None,
            torch: "2.11.0",
            case: &self.cases[*case],
            world_size: WorldSize(check.group.size() as u32),
            device_id: DeviceId::Absent,
            check: Some(check),
        })
    }

    /// The records of a run with these outcomes, judged.
    fn records(
        &self,
        expectations: &Expectations,
        end: impl Fn(&Point<'_>) -> (Outcome, &'static str, &'static str),
    ) -> Vec<CheckRecord> {
        let points = self.points();
        let one = |point: Point<'_>| {
            let (outcome, class, summary) = end(&point);
            let mut record = record(&point, outcome, class, summary);
            assert!(expectations.judge_again(&mut record, &point));
            record
        };
        points.map(one).collect()
    }

    fn proposal(&self, expectations: &Expectations, records: &[CheckRecord]) -> Proposal {
        let seen: Vec<CheckAtPoint<'_>> = self
            .points()
            .zip(records)
            .map(|(point, record)| CheckAtPoint {
                point,
                record,
                id: record.id.as_str(),
                is_init: false,
            })
            .collect();
        propose(expectations, self.points(), &seen)
    }
}

fn record(point: &Point<'_>, outcome: Outcome, class: &str, summary: &str) -> CheckRecord {
    CheckRecord {
        format: FORMAT,
        id: point.check.unwrap().id.clone(),
        scenario: ScenarioId("x".to_owned()),
        case: point.case.clone(),
        column: Column {
            platform: point.platform.to_owned(),
            backend: point.backend.to_owned(),
            world_size: point.world_size,
            nodes: 1,
            driver: "python".to_owned(),
            launcher: "local".to_owned(),
            evidence: Evidence::Host,
            torch: point.torch.to_owned(),
            label: String::new(),
        },
        covers: Vec::new(),
        params: BTreeMap::new(),
        at: String::new(),
        outcome,
        verdict: Verdict::NotRun,
        summary: summary.to_owned(),
        remark: None,
        class: (!class.is_empty()).then(|| class.to_owned()),
        difference: None,
        ranks: Vec::new(),
        diagnosis: None,
        expectation: None,
        observations: BTreeMap::new(),
        checked: Vec::new(),
        duration_us: 0,
    }
}

fn reduce_of(point: &Point<'_>) -> ReduceOp {
    point.check.unwrap().op().unwrap().reduce.unwrap()
}

/// The expectations that the text of entries makes once `reason` and `url` are written.
fn filled(entries: &[NewEntry]) -> Expectations {
    let text: String = entries.iter().map(ToString::to_string).collect();
    let problems = Expectations::parse(Source::new("new.yaml", text.clone())).unwrap_err();
    assert_eq!(
        problems.len(),
        2 * entries.len(),
        "nobody has filled it in yet"
    );
    let text = text
        .replace("reason: \"\"", "reason: It fails.")
        .replace("url: \"\"", "local: true");
    Expectations::parse(Source::new("new.yaml", text.clone()))
        .unwrap_or_else(|problems| panic!("{}\n{text}", problems[0]))
}

#[test]
fn failures_with_one_cause_make_one_entry_that_says_how_they_fail() {
    let table = Table::new();
    let none = Expectations::default();
    let records = table.records(&none, |point| match reduce_of(point) {
        ReduceOp::Avg if point.world_size.0 > 1 => {
            (Outcome::Mismatch, "avg-divided-twice", "element 3")
        }
        _ => (Outcome::Pass, "", ""),
    });
    let proposal = table.proposal(&none, &records);
    assert!(proposal.remarks.is_empty());
    let [entry] = &proposal.entries[..] else {
        panic!("{proposal:?}")
    };
    assert_eq!(
        entry.to_string(),
        "# 24 results, such as some/more@cpu.mine.ws2#0.all_reduce.bfloat16.avg\n#   element 3\n\
         - match: {platform: cpu, backend: mine, op: all_reduce, reduce: avg, group_size: \"2..\"}\n  \
         outcome: mismatch\n  class: avg-divided-twice\n  reason: \"\"\n  url: \"\"\n"
    );
}

#[test]
fn what_is_proposed_excuses_what_failed_and_nothing_else_whatever_that_is() {
    let table = Table::new();
    let none = Expectations::default();
    for seed in 0_u32..40 {
        let fails = |point: &Point<'_>| {
            let text = point.check.unwrap().id.to_string();
            let hash = text.bytes().fold(seed, |hash, byte| {
                (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
            });
            match hash >> 13 & 7 {
                0 | 1 => (Outcome::Mismatch, "no-op", "the call changed nothing"),
                2 => (
                    Outcome::Error,
                    "raised-on-every-rank",
                    "every rank raised RuntimeError: Timed out waiting",
                ),
                3 => (
                    Outcome::Crash,
                    "crash",
                    "rank 0: its process ended: signal 11 (SIGSEGV)",
                ),
                _ => (Outcome::Pass, "", ""),
            }
        };
        let before = table.records(&none, fails);
        let entries = filled(&table.proposal(&none, &before).entries);
        let after = table.records(&entries, fails);
        for (before, after) in before.iter().zip(&after) {
            let wanted = match before.verdict {
                Verdict::Regression => Verdict::KnownFailure,
                other => other,
            };
            assert_eq!(after.verdict, wanted, "{}: {}", after.id, after.summary);
        }
        assert!(table.proposal(&entries, &after).entries.is_empty());
    }
}

#[test]
fn a_check_that_was_not_run_is_not_said_to_fail() {
    let table = Table::new();
    let none = Expectations::default();
    let records = table.records(&none, |point| match point.world_size.0 {
        2 => (Outcome::Mismatch, "no-op", "the call changed nothing"),
        _ => (Outcome::NotRun, "", "needs more devices"),
    });
    let entries = filled(&table.proposal(&none, &records).entries);
    for point in table.points() {
        assert_eq!(entries.find(&point).is_some(), point.world_size.0 == 2);
    }
}

#[test]
fn what_a_new_entry_cannot_settle_is_said() {
    let table = Table::new();
    let known = Expectations::parse(Source::new(
        "known.yaml",
        "- {match: {op: all_reduce, reduce: avg}, outcome: mismatch, class: no-op, reason: r, local: true}\n",
    ))
    .unwrap();
    let records = table.records(&known, |point| {
        match (reduce_of(point), point.world_size.0) {
            (ReduceOp::Avg, 1) => (Outcome::Pass, "", ""),
            (ReduceOp::Avg, 2) => (Outcome::Mismatch, "rank-dropped", "rank 1 is missing"),
            (ReduceOp::Avg, _) => (Outcome::Mismatch, "no-op", "nothing"),
            (_, 3) => (Outcome::HarnessError, "", "no memory"),
            _ => (Outcome::Pass, "", ""),
        }
    });
    let proposal = table.proposal(&known, &records);
    assert!(proposal.entries.is_empty());
    let told: Vec<(&Remark, u64)> = proposal
        .remarks
        .iter()
        .map(|(remark, of)| (remark, of.count))
        .collect();
    let at = "known.yaml:1".to_owned();
    assert_eq!(
        told,
        [
            (&Remark::OutOfDate(at.clone()), 8),
            (&Remark::FailsOtherwise(at), 8),
            (&Remark::OfTheHarness, 8),
        ]
    );
}

#[test]
fn a_check_that_fails_in_one_round_alone_comes_and_goes() {
    let table = Table::new();
    let none = Expectations::default();
    let passed = table.records(&none, |_| (Outcome::Pass, "", ""));
    let failed = table.records(&none, |_| (Outcome::Mismatch, "no-op", "nothing"));
    let point = table.points().next().unwrap();
    let seen = [&passed[0], &failed[0]].map(|record| CheckAtPoint {
        point,
        record,
        id: record.id.as_str(),
        is_init: false,
    });
    let proposal = propose(&none, table.points(), &seen);
    assert!(proposal.entries[0].is_intermittent);
    assert!(
        filled(&proposal.entries)
            .find(&point)
            .is_some_and(|entry| entry.intermittent)
    );
}

/// A check of every op with every value of the axes that it takes.
fn checks_of_every_op() -> Vec<Check> {
    let mut checks = Vec::new();
    for op in Op::ALL.iter().copied() {
        let reduce = op.reduces().then_some(ReduceOp::Sum);
        let plain = example_check(op, OpCheck::neutral_dtype(op), reduce, 3);
        let mut add = |change: &dyn Fn(&mut OpCheck)| {
            let mut check = plain.clone();
            if let CheckKind::Op(of) = &mut check.kind {
                change(of);
            }
            checks.push(check);
        };
        add(&|_| {});
        DType::ALL
            .iter()
            .for_each(|dtype| add(&|of| of.dtype = *dtype));
        ReduceOp::ALL
            .iter()
            .for_each(|reduce| add(&|of| of.reduce = of.reduce.and(Some(*reduce))));
        Layout::VARIANTS
            .iter()
            .for_each(|layout| add(&|of| of.layout = *layout));
        LayoutOf::VARIANTS
            .iter()
            .for_each(|which| add(&|of| of.layout_of = *which));
        TensorKind::VARIANTS
            .iter()
            .for_each(|kind| add(&|of| of.tensor = *kind));
        Joined::VARIANTS
            .iter()
            .for_each(|joined| add(&|of| of.joined = *joined));
        for pairs in [Pairs::Ring, Pairs::All, Pairs::Own] {
            add(&|of| of.pairs = pairs);
        }
        Placement::VARIANTS
            .iter()
            .for_each(|placement| add(&|of| of.placement = *placement));
        Mode::VARIANTS
            .iter()
            .for_each(|mode| add(&|of| of.mode = *mode));
        NonRoot::VARIANTS
            .iter()
            .for_each(|non_root| add(&|of| of.non_root = *non_root));
        ObjectKind::VARIANTS
            .iter()
            .for_each(|object| add(&|of| of.object = *object));
        Values::VARIANTS
            .iter()
            .for_each(|values| add(&|of| of.values = *values));
        RootBy::VARIANTS.iter().for_each(|by| {
            add(&|of| {
                of.peer_by = *by;
                if let Some(root) = &mut of.root {
                    root.by = *by;
                }
            });
        });
        add(&|of| of.splits = Splits::WithZero);
        add(&|of| of.splits = Splits::Explicit(vec![vec![1; 3]; 3]));
        add(&|of| of.extent = Extent::Scalar);
        add(&|of| (of.count, of.tag) = (7, 9));
    }
    checks
}

/// A field that is written wrongly, or that matching reads otherwise than it is written, would excuse other checks.
#[test]
fn each_field_matches_the_checks_whose_value_it_is() {
    let checks = checks_of_every_op();
    let case = CaseId::from("some/ops");
    let points: Vec<Point<'_>> = checks
        .iter()
        .map(|check| Point {
            platform: "cpu",
            backend: "mine",
            made_of: None,
            torch: "2.11.0",
            case: &case,
            world_size: WorldSize(3),
            device_id: DeviceId::Absent,
            check: Some(check),
        })
        .collect();
    let cells: Vec<Cell> = points.iter().map(cell).collect();
    let mut count = 0;
    for (index, field) in FIELDS.iter().enumerate() {
        let values: BTreeSet<&String> = cells
            .iter()
            .filter_map(|cell| cell[index].as_ref())
            .collect();
        for value in values {
            let entry = NewEntry {
                matches: vec![
                    ("platform", vec!["cpu".to_owned()]),
                    (field.name, vec![value.clone()]),
                ],
                torch: None,
                outcomes: vec![Outcome::Mismatch],
                classes: Vec::new(),
                messages: Vec::new(),
                is_intermittent: false,
                also_passes: false,
                of: Examples::default(),
            };
            let entries = filled(&[entry]);
            for (point, cell) in points.iter().zip(&cells) {
                let is_same = cell[index].as_ref() == Some(value);
                assert_eq!(
                    entries.find(point).is_some(),
                    is_same,
                    "{}: {value}",
                    field.name
                );
            }
            count += 1;
        }
    }
    assert!(count > 100, "only {count} values");
}

#[test]
fn sizes_that_lie_together_are_a_range() {
    let there = BTreeSet::from(["0", "1", "2", "3", "33", "4097", "scalar"]);
    for (values, written) in [
        (&["1", "2", "3"][..], &["1..3"][..]),
        (&["1", "33", "scalar"], &["scalar", "1", "33"]),
        (&["2", "3", "33", "4097"], &["2.."]),
        (&["4097"], &["4097"]),
    ] {
        let values = values.iter().map(|value| (*value).to_owned()).collect();
        assert_eq!(ranges(&values, &there), written);
    }
}
