//! Expectations: what is known to fail, where, how exactly, and why, each with a public link.
//!
//! They say nothing of checks that pass or that a platform does not declare. An entry matches by equality of the
//! fields it gives; there are no patterns, and leaving a field out is the only way to match more. Of several entries
//! that match a check, the first counts, in order of file and place.

use serde::Deserialize;

use super::waiver::Waiver;
use crate::case::OneOrMany;
use crate::plan::{Check, Scenario};
use allranks_model::axes::{
    Extent, Joined, Layout, LayoutOf, Mode, NonRoot, ObjectKind, Pairs, Placement, RootBy,
    SplitsKind, TensorKind, Values,
};
use allranks_model::dtype::{DType, ReduceOp};
use allranks_model::names::{CaseId, WorldSize};
use allranks_model::op::Op;
use allranks_model::op_check::OpCheck;
use allranks_model::outcome::Outcome;
use allranks_model::recipe::DeviceId;
use allranks_model::record::Reason;
use allranks_model::version::torch_version;

/// All expectations of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Expectations {
    /// In order of precedence.
    pub(super) entries: Vec<Entry>,
}

/// One known failure, of every check that it matches.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// Where it is written, `fixtures/expectations/gloo.yaml:12`.
    pub at: String,
    /// Which checks.
    pub matches: Match,
    /// For which torch versions; none for all.
    pub torch: Option<semver::VersionReq>,
    /// What happens; more than one if it is not always the same.
    pub outcomes: Vec<Outcome>,
    /// Classes, one of which it must be; empty: any.
    pub classes: Vec<String>,
    /// Texts, one of which the summary must hold; empty: anything.
    pub messages: Vec<String>,
    /// Why, one sentence.
    pub reason: String,
    /// The public issue; none only if the entry says why there is none.
    pub url: Option<String>,
    /// Accepted for good, rather than awaiting a fix.
    pub waived: bool,
    /// It comes and goes: a failure is tried again in a new world, and must not come twice.
    pub intermittent: bool,
    /// Which of the checks it matches pass, in words; none if every one fails.
    pub also_passes: Option<String>,
    /// What it is waived by, if it was read from a file of waivers.
    pub waiver: Option<Waiver>,
}

/// The fields of `match:`; those left out match anything. A field that a check has no use for (the dtype of a
/// barrier) does not match it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Match {
    /// Platform names.
    pub platform: Option<OneOrMany<String>>,
    /// Backend names: the scenario's, not a side group's.
    pub backend: Option<OneOrMany<String>>,
    /// Case ids.
    pub case: Option<OneOrMany<CaseId>>,
    /// Ops.
    pub op: Option<OneOrMany<Op>>,
    /// Element types.
    pub dtype: Option<OneOrMany<DType>>,
    /// Reduce operators.
    pub reduce: Option<OneOrMany<ReduceOp>>,
    /// Layouts.
    pub layout: Option<OneOrMany<Layout>>,
    /// Which tensors have the layout.
    pub layout_of: Option<OneOrMany<LayoutOf>>,
    /// Kinds of tensors.
    pub tensor: Option<OneOrMany<TensorKind>>,
    /// Shapes of tensors that hold all ranks' contributions.
    pub joined: Option<OneOrMany<Joined>>,
    /// Placements.
    pub placement: Option<OneOrMany<Placement>>,
    /// Modes.
    pub mode: Option<OneOrMany<Mode>>,
    /// Sizes of the world.
    pub world_size: Option<OneOrMany<Size>>,
    /// What init is told of the device.
    pub device_id: Option<OneOrMany<DeviceId>>,
    /// Sizes of the check's group.
    pub group_size: Option<OneOrMany<Size>>,
    /// Names of the check's group.
    pub group: Option<OneOrMany<String>>,
    /// Numbers of elements.
    pub numel: Option<OneOrMany<Size>>,
    /// Roots, as group ranks.
    pub root: Option<OneOrMany<u32>>,
    /// How root or peer are named.
    pub by: Option<OneOrMany<RootBy>>,
    /// What is asked of the ranks that receive nothing.
    pub non_root: Option<OneOrMany<NonRoot>>,
    /// Kinds of splits; an explicit matrix is matched by its case.
    pub splits: Option<OneOrMany<SplitsKind>>,
    /// Who sends to whom.
    pub pairs: Option<OneOrMany<Pairs>>,
    /// Tensors or messages.
    pub count: Option<OneOrMany<u32>>,
    /// Tags.
    pub tag: Option<OneOrMany<u32>>,
    /// Objects.
    pub object: Option<OneOrMany<ObjectKind>>,
    /// Names of scripts.
    pub script: Option<OneOrMany<String>>,
    /// The op that a script is made over.
    pub over: Option<OneOrMany<String>>,
    /// What values tensors hold.
    pub values: Option<OneOrMany<Values>>,
}

/// A size to match. In YAML: `33`, `"2..8"`, `"2.."`, and for `numel` also `scalar`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// A 0-dim tensor.
    Scalar,
    /// From the first to the second, both included.
    Between(u64, u64),
}

/// A planned check where it is to run: what expectations are matched against.
#[derive(Clone, Copy, Debug)]
pub struct Point<'a> {
    /// Platform name.
    pub platform: &'a str,
    /// Backend name.
    pub backend: &'a str,
    /// The backend that does its work, if it is another: its failures are this one's too.
    pub made_of: Option<&'a str>,
    /// Torch version as the ranks or the probe report it; empty if unknown, and then no entry with `when: {torch}`
    /// matches.
    pub torch: &'a str,
    /// The case.
    pub case: &'a CaseId,
    /// Size of the world.
    pub world_size: WorldSize,
    /// What init is told of the device.
    pub device_id: DeviceId,
    /// The check; none for the world's own two, `#init` and `#end`.
    pub check: Option<&'a Check>,
}

impl<'a> Point<'a> {
    /// A check of a scenario with a version of torch; none: the scenario's own two.
    #[must_use]
    pub fn of(scenario: &'a Scenario, torch: &'a str, check: Option<&'a Check>) -> Self {
        Self {
            platform: &scenario.platform.name,
            backend: &scenario.backend,
            made_of: scenario.platform.backends[&scenario.backend]
                .made_of
                .as_ref()
                .map(|of| of.backend.as_str()),
            torch,
            case: &scenario.case.id,
            world_size: scenario.world_size,
            device_id: scenario.init.device_id,
            check,
        }
    }

    /// All that expectations may be about in a scenario: its checks, and its own two.
    pub fn all_of(scenario: &'a Scenario, torch: &'a str) -> impl Iterator<Item = Self> {
        let checks = scenario.checks.iter().map(Some);
        checks
            .chain([None])
            .map(move |check| Self::of(scenario, torch, check))
    }
}

impl Expectations {
    /// The first entry that matches; a waiver that has expired only if there is no other.
    #[must_use]
    pub fn find(&self, point: &Point<'_>) -> Option<&Entry> {
        let entries = self.entries.iter();
        let mut matching = entries.filter(|entry| entry.holds(point)).peekable();
        let first = matching.peek().copied();
        matching.find(|entry| !entry.is_expired()).or(first)
    }

    /// Every entry, in order of precedence.
    pub fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter()
    }

    /// The entries that are about these points' platforms, backends and torch versions, and yet count for none of the
    /// points. Given every check of a full run, they are about something that is gone: an error.
    #[must_use]
    pub fn stale<'a>(&self, points: impl IntoIterator<Item = Point<'a>>) -> Vec<&Entry> {
        let mut concerned = vec![false; self.entries.len()];
        let mut used = vec![false; self.entries.len()];
        for point in points {
            let mut open = true;
            for (index, entry) in self.entries.iter().enumerate() {
                concerned[index] |= entry.concerns(&point);
                if open && !entry.is_expired() && entry.holds(&point) {
                    used[index] = true;
                    open = false;
                }
            }
        }
        let flags = concerned.into_iter().zip(used);
        let entries = self.entries.iter().zip(flags);
        entries
            .filter(|(entry, (concerned, used))| *concerned && !used && !entry.is_expired())
            .map(|(entry, _)| entry)
            .collect()
    }
}

impl Entry {
    /// What a report says of it.
    #[must_use]
    pub fn reason(&self) -> Reason {
        Reason {
            at: self.at.clone(),
            text: self.why(),
            url: self.url.clone(),
        }
    }

    /// The reason, and of a waiver its term and its owner.
    #[must_use]
    pub fn why(&self) -> String {
        match &self.waiver {
            Some(waiver) => format!("{} ({waiver})", self.reason),
            None => self.reason.clone(),
        }
    }

    /// Whether it is a waiver that has run out: it excuses nothing any more.
    #[must_use]
    pub fn is_expired(&self) -> bool {
        self.waiver.as_ref().is_some_and(|waiver| waiver.is_expired)
    }

    /// Whether the run's platform, backend and torch are the entry's.
    fn concerns(&self, point: &Point<'_>) -> bool {
        let Match {
            platform, backend, ..
        } = &self.matches;
        lists(platform, |name| name == point.platform)
            && lists(backend, |name| {
                name == point.backend || Some(name.as_str()) == point.made_of
            })
            && self.torch.as_ref().is_none_or(|wanted| {
                torch_version(point.torch).is_some_and(|version| wanted.matches(&version))
            })
    }

    /// Whether it is about worlds that do not initialise: about their `#init`, and about all that is not run for it.
    #[must_use]
    pub fn is_about_init(&self) -> bool {
        self.outcomes == [Outcome::InitFailed]
    }

    /// Whether it is about the check.
    fn holds(&self, point: &Point<'_>) -> bool {
        let Match {
            case,
            world_size,
            device_id,
            ..
        } = &self.matches;
        self.concerns(point)
            && lists(case, |id| id == point.case)
            && lists(world_size, |size| size.is(point.world_size.0.into()))
            && lists(device_id, |told| *told == point.device_id)
            && self.waiver.as_ref().is_none_or(|waiver| {
                let covers = |check: &Check| check.covers.contains(&waiver.requirement);
                point.check.is_some_and(covers)
            })
            && point
                .check
                .map_or(self.is_about_init(), |check| self.fits(check))
    }

    fn fits(&self, check: &Check) -> bool {
        let Match {
            platform: _,
            backend: _,
            case: _,
            op,
            dtype,
            reduce,
            layout,
            layout_of,
            tensor,
            joined,
            placement,
            mode,
            world_size: _,
            device_id: _,
            group_size,
            group,
            numel,
            root,
            by,
            non_root,
            splits,
            pairs,
            count,
            tag,
            object,
            script,
            over,
            values,
        } = &self.matches;
        let of = check.op();
        let takes = |parameter| of.filter(|of| of.op.takes(parameter));
        lists(op, |op| of.is_some_and(|of| of.op == *op))
            && lists(dtype, |dtype| {
                takes("dtype").is_some_and(|of| of.dtype == *dtype)
            })
            && lists(reduce, |reduce| {
                of.is_some_and(|of| of.reduce == Some(*reduce))
            })
            && lists(layout, |layout| {
                takes("layout").is_some_and(|of| of.layout == *layout)
            })
            && lists(layout_of, |which| {
                takes("layout_of").is_some_and(|of| of.layout_of == *which)
            })
            && lists(tensor, |tensor| {
                takes("tensor").is_some_and(|of| of.tensor == *tensor)
            })
            && lists(joined, |joined| {
                takes("joined").is_some_and(|of| of.joined == *joined)
            })
            && lists(placement, |placement| {
                takes("placement").is_some_and(|of| of.placement == *placement)
            })
            && lists(mode, |mode| {
                takes("mode").is_some_and(|of| of.mode == *mode)
            })
            && lists(group_size, |size| size.is(check.group.size() as u64))
            && lists(group, |name| *name == check.group.name)
            && lists(numel, |size| {
                takes("numel").is_some_and(|of| size.has(of.extent))
            })
            && lists(root, |root| {
                let is = of.and_then(|of| of.root);
                is.is_some_and(|is| is.group_rank == *root)
            })
            && lists(by, |by| takes("by").is_some_and(|of| named_by(of) == *by))
            && lists(non_root, |non_root| {
                takes("non_root").is_some_and(|of| of.non_root == *non_root)
            })
            && lists(splits, |kind| {
                takes("splits").is_some_and(|of| of.splits.kind() == *kind)
            })
            && lists(pairs, |pairs| {
                takes("pairs").is_some_and(|of| of.pairs == *pairs)
            })
            && lists(count, |count| {
                takes("count").is_some_and(|of| of.count == *count)
            })
            && lists(tag, |tag| takes("tag").is_some_and(|of| of.tag == *tag))
            && lists(object, |object| {
                takes("object").is_some_and(|of| of.object == *object)
            })
            && lists(values, |values| {
                takes("values").is_some_and(|of| of.values == *values)
            })
            && lists(script, |name| param(check, "script") == Some(name))
            && lists(over, |name| param(check, "over") == Some(name))
    }
}

/// What a check is about, as its id says it.
fn param<'a>(check: &'a Check, axis: &str) -> Option<&'a str> {
    let params = &mut check.params.iter();
    params
        .find(|(known, _)| known == axis)
        .map(|(_, value)| value.as_str())
}

/// How an op names its root or its peers.
fn named_by(check: &OpCheck) -> RootBy {
    check.root.map_or(check.peer_by, |root| root.by)
}

/// Whether a field is left out or lists something that fits.
fn lists<T>(field: &Option<OneOrMany<T>>, fits: impl Fn(&T) -> bool) -> bool {
    field
        .as_ref()
        .is_none_or(|values| values.as_slice().iter().any(fits))
}

impl Size {
    fn is(self, size: u64) -> bool {
        match self {
            Self::Scalar => false,
            Self::Between(from, to) => (from..=to).contains(&size),
        }
    }

    fn has(self, extent: Extent) -> bool {
        match extent {
            Extent::Scalar => self == Self::Scalar,
            Extent::Flat(numel) => self.is(numel),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::plan::{CheckKind, example_check};
    use allranks_yaml::Source;

    fn parse(text: &str) -> Expectations {
        Expectations::parse(Source::new("e.yaml", text))
            .unwrap_or_else(|problems| panic!("{}", problems[0]))
    }

    fn point<'a>(check: &'a Check, case: &'a CaseId) -> Point<'a> {
        Point {
            platform: "cpu",
            backend: "gloo",
            made_of: None,
            torch: "2.11.0+cu130",
            case,
            world_size: WorldSize(4),
            device_id: DeviceId::Absent,
            check: Some(check),
        }
    }

    #[test]
    fn an_entry_about_init_is_about_the_world_and_all_that_is_not_run_for_it() {
        let check = example_check(Op::Barrier, DType::Uint8, None, 2);
        let case = CaseId::from("a");
        let entries = parse(
            "- {match: {case: a, world_size: 4}, outcome: init-failed, reason: r, local: true}",
        );
        let ordinary = parse(&format!("- {{match: {{case: a}}, {ENTRY}}}"));
        let at = point(&check, &case);
        let init = Point { check: None, ..at };
        let larger = Point {
            world_size: WorldSize(5),
            ..init
        };
        assert!(entries.find(&at).is_some() && entries.find(&init).is_some());
        assert!(entries.find(&larger).is_none());
        assert!(ordinary.find(&at).is_some() && ordinary.find(&init).is_none());
    }

    const ENTRY: &str = "outcome: mismatch, reason: r, url: \"https://example.org/1\"";

    #[test]
    fn every_field_narrows() {
        let mut check = example_check(Op::AllReduce, DType::Int8, Some(ReduceOp::Max), 3);
        let case = CaseId::from("a/b");
        for (field, right, wrong) in [
            ("platform", "cpu", "cuda"),
            ("backend", "[nccl, gloo]", "nccl"),
            ("case", "a/b", "a"),
            ("device_id", "absent", "[index, device]"),
            ("op", "all_reduce", "broadcast"),
            ("dtype", "int8", "[int16, uint8]"),
            ("reduce", "max", "min"),
            ("layout", "contiguous", "strided"),
            ("mode", "sync", "async"),
            ("world_size", "4", "3"),
            ("group_size", "\"2..3\"", "4"),
            ("group", "world", "side"),
            ("numel", "\"2..\"", "[1, scalar]"),
        ] {
            for (value, matches) in [(right, true), (wrong, false)] {
                let text = format!("- {{match: {{op: all_reduce, {field}: {value}}}, {ENTRY}}}");
                let text = text.replace("op: all_reduce, op:", "op:");
                let found = parse(&text).find(&point(&check, &case)).is_some();
                assert_eq!(found, matches, "{field}: {value}");
            }
        }
        let CheckKind::Op(of) = &mut check.kind else {
            panic!("it is a check of an op");
        };
        of.extent = Extent::Scalar;
        let scalar = parse(&format!("- {{match: {{numel: scalar}}, {ENTRY}}}"));
        assert!(scalar.find(&point(&check, &case)).is_some());
    }

    #[test]
    fn a_field_that_the_check_does_not_have_does_not_match() {
        let barrier = example_check(Op::Barrier, DType::Uint8, None, 2);
        let case = CaseId::from("a");
        for field in [
            "dtype: uint8",
            "layout: contiguous",
            "root: 0",
            "splits: even",
            "pairs: ring",
            "numel: 33",
        ] {
            let entries = parse(&format!("- {{match: {{{field}}}, {ENTRY}}}"));
            assert!(entries.find(&point(&barrier, &case)).is_none(), "{field}");
        }
    }

    #[test]
    fn a_condition_on_torch_needs_a_known_version() {
        let check = example_check(Op::Barrier, DType::Uint8, None, 2);
        let case = CaseId::from("a");
        let entries = parse(&format!(
            "- {{match: {{op: barrier}}, when: {{torch: \">=2.9, <2.12\"}}, {ENTRY}}}"
        ));
        for (torch, holds) in [
            ("2.11.0+cu130", true),
            ("2.9.0a0", true),
            ("2.12.1", false),
            ("2.8.0", false),
            ("", false),
        ] {
            let at = Point {
                torch,
                ..point(&check, &case)
            };
            assert_eq!(entries.find(&at).is_some(), holds, "{torch:?}");
        }
    }

    #[test]
    fn what_a_backend_is_made_of_fails_in_it_too() {
        let check = example_check(Op::Barrier, DType::Uint8, None, 2);
        let case = CaseId::from("a");
        let entries = parse(&format!(
            "- {{match: {{op: barrier, backend: gloo}}, {ENTRY}}}"
        ));
        for (made_of, holds) in [(Some("gloo"), true), (Some("nccl"), false), (None, false)] {
            let at = Point {
                backend: "simxccl",
                made_of,
                ..point(&check, &case)
            };
            assert_eq!(entries.find(&at).is_some(), holds, "{made_of:?}");
        }
    }

    #[test]
    fn stale_is_what_is_about_this_run_and_counts_for_none_of_its_checks() {
        let entries = parse(&format!(
            "- {{match: {{op: all_reduce}}, {ENTRY}}}\n\
             - {{match: {{op: all_reduce, dtype: int8}}, {ENTRY}}}\n\
             - {{match: {{op: broadcast}}, {ENTRY}}}\n\
             - {{match: {{op: broadcast, backend: nccl}}, {ENTRY}}}\n\
             - {{match: {{op: broadcast}}, when: {{torch: <2.4}}, {ENTRY}}}\n"
        ));
        let check = example_check(Op::AllReduce, DType::Int8, Some(ReduceOp::Max), 3);
        let case = CaseId::from("a");
        let stale: Vec<_> = entries
            .stale([point(&check, &case)])
            .iter()
            .map(|entry| entry.at.as_str())
            .collect();
        // The second is shadowed by the first; the last two are about other runs.
        assert_eq!(stale, ["e.yaml:2", "e.yaml:3"]);
        assert!(
            entries.stale([]).is_empty(),
            "a run of nothing says nothing"
        );
    }

    #[test]
    fn the_expectations_of_the_repository_are_valid() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/expectations");
        let found =
            Expectations::load(&[folder]).unwrap_or_else(|problems| panic!("{}", problems[0]));
        assert!(
            found
                .iter()
                .all(|entry| entry.at.contains("fixtures/expectations/"))
        );
    }
}
