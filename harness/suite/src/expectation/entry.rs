//! Expectations: what is known to fail, where, how exactly, and why, each with a public link.
//!
//! They say nothing of checks that pass or that a platform does not declare. An entry matches a check by equality of
//! the fields that it gives; there are no patterns, and only by leaving a field out does it match more. If several
//! entries match a check, the first counts, in order of file and place.

use schemars::JsonSchema;
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

/// All expectations of a run, with its waivers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Expectations {
    /// The entries, in order of precedence.
    pub(super) entries: Vec<Entry>,
}

/// A known failure, of every check that it matches.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The place where it is written: `fixtures/expectations/gloo.yaml:12`.
    pub at: String,
    /// The checks that fail.
    pub matches: Match,
    /// The torch versions for which they fail. `None`: all.
    pub torch: Option<semver::VersionReq>,
    /// How they fail. It has several outcomes if that is not always the same.
    pub outcomes: Vec<Outcome>,
    /// The classes of mismatch or error that the failure may have. Empty: any.
    pub classes: Vec<String>,
    /// Texts, of which the summary must contain one. Empty: any summary will do.
    pub messages: Vec<String>,
    /// Why they fail, in one sentence.
    pub reason: String,
    /// The public issue. `None`: there is none yet, and the reason says why.
    pub url: Option<String>,
    /// Whether the failure awaits a fix, is accepted, or is excused until a day.
    pub kind: EntryKind,
    /// True if the failure is intermittent: the check is made again in a new world, and must not fail twice.
    pub intermittent: bool,
    /// Which of the matching checks pass, in words. `None`: every one fails.
    pub also_passes: Option<String>,
}

/// Whether the failure that an entry describes awaits a fix, is accepted, or is excused until a day.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// It awaits a fix: its verdict is `known-failure`.
    KnownFailure,
    /// It is accepted without end (`waived: true`): its verdict is `waived`.
    Accepted,
    /// It is excused by an entry of a file of waivers: its verdict is `waived` until the waiver expires.
    Waiver(Waiver),
}

/// The fields of `match:`. A field that is absent matches anything; one that a check has no use for (the dtype of a
/// barrier) does not match that check.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Match {
    /// Names of platforms.
    pub platform: Option<OneOrMany<String>>,
    /// Names of backends: the scenario's, not that of a group of its own.
    pub backend: Option<OneOrMany<String>>,
    /// Ids of cases.
    pub case: Option<OneOrMany<CaseId>>,
    /// Ops; only checks of a single op match.
    pub op: Option<OneOrMany<Op>>,
    /// Element types of the tensors.
    pub dtype: Option<OneOrMany<DType>>,
    /// Reduce operators of the op.
    pub reduce: Option<OneOrMany<ReduceOp>>,
    /// How the tensors lie in their storages.
    pub layout: Option<OneOrMany<Layout>>,
    /// Which of the op's tensors have the layout.
    pub layout_of: Option<OneOrMany<LayoutOf>>,
    /// Kinds of tensors: plain, `requires_grad`, ...
    pub tensor: Option<OneOrMany<TensorKind>>,
    /// Shapes of tensors that hold the contributions of all ranks.
    pub joined: Option<OneOrMany<Joined>>,
    /// Whether input and output share memory.
    pub placement: Option<OneOrMany<Placement>>,
    /// Whether the call is sync or async.
    pub mode: Option<OneOrMany<Mode>>,
    /// World sizes: `"2..8"`.
    pub world_size: Option<OneOrMany<Size>>,
    /// Values of `device_id` in the init recipe.
    pub device_id: Option<OneOrMany<DeviceId>>,
    /// Numbers of ranks in the check's group: `"2.."`.
    pub group_size: Option<OneOrMany<Size>>,
    /// Names of the check's group.
    pub group: Option<OneOrMany<String>>,
    /// Numbers of elements of one rank's contribution.
    pub numel: Option<OneOrMany<Size>>,
    /// Roots, as group ranks.
    pub root: Option<OneOrMany<u32>>,
    /// How the call names the root or the peer.
    pub by: Option<OneOrMany<RootBy>>,
    /// What is asked of `reduce`'s buffers on the ranks that receive nothing.
    pub non_root: Option<OneOrMany<NonRoot>>,
    /// Kinds of split sizes. An explicit matrix can be matched by its case only.
    pub splits: Option<OneOrMany<SplitsKind>>,
    /// Which ranks send to which.
    pub pairs: Option<OneOrMany<Pairs>>,
    /// Numbers of tensors in a coalesced op, or of messages for each pair.
    pub count: Option<OneOrMany<u32>>,
    /// Tags of messages.
    pub tag: Option<OneOrMany<u32>>,
    /// Kinds of objects, of object collectives.
    pub object: Option<OneOrMany<ObjectKind>>,
    /// Names of scripts.
    pub script: Option<OneOrMany<String>>,
    /// Names of the op that a script is played with, one of its `over:`.
    pub over: Option<OneOrMany<String>>,
    /// What values the tensors hold.
    pub values: Option<OneOrMany<Values>>,
}

/// A size, or a range of sizes, to match. In YAML: `33`, `"2..8"`, `"2.."`, and for `numel` also `scalar`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// The size of a 0-dim tensor.
    Scalar,
    /// From the first to the second size, both included.
    Between(u64, u64),
}

/// A planned check and where it runs: what expectations are matched against.
#[derive(Clone, Copy, Debug)]
pub struct Point<'a> {
    /// The name of the platform.
    pub platform: &'a str,
    /// The name of the backend.
    pub backend: &'a str,
    /// The backend that does its work, whose expectations hold for this one too. `None`: it does its own.
    pub made_of: Option<&'a str>,
    /// The torch version that the ranks or the probe report. Empty if it is unknown; no entry with `when: {torch}`
    /// matches then.
    pub torch: &'a str,
    /// The id of the case.
    pub case: &'a CaseId,
    /// The number of ranks in the world.
    pub world_size: WorldSize,
    /// `device_id` in the init recipe.
    pub device_id: DeviceId,
    /// The check. `None`: one of the scenario's two frame checks, `#init` and `#end`.
    pub check: Option<&'a Check>,
}

impl<'a> Point<'a> {
    /// Returns the point of a check in its scenario, with this torch version. Without a check it is that of the
    /// scenario's frame checks.
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

    /// Iterates over the points of all checks of a scenario, and the one of its frame checks.
    pub fn all_of(scenario: &'a Scenario, torch: &'a str) -> impl Iterator<Item = Self> {
        let checks = scenario.checks.iter().map(Some);
        checks
            .chain([None])
            .map(move |check| Self::of(scenario, torch, check))
    }
}

impl Expectations {
    /// Returns the first entry that matches the point; an expired waiver only if no other entry does. `None`: nothing
    /// is expected to fail.
    #[must_use]
    pub fn find(&self, point: &Point<'_>) -> Option<&Entry> {
        let entries = self.entries.iter();
        let mut matching = entries.filter(|entry| entry.holds(point)).peekable();
        let first = matching.peek().copied();
        matching.find(|entry| !entry.is_expired()).or(first)
    }

    /// Iterates over all entries, in order of precedence.
    pub fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter()
    }

    /// Returns the entries that are about the platform, backend and torch version of some of the points, and yet count
    /// for none of them. If the points are those of a full run, such an entry is about something that no longer
    /// exists, and an error.
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
    /// Returns what a record says of the entry: place, reason, link.
    #[must_use]
    pub fn reason(&self) -> Reason {
        Reason {
            at: self.at.clone(),
            text: self.why(),
            url: self.url.clone(),
        }
    }

    /// Returns the reason, and for a waiver its term and its approver.
    #[must_use]
    pub fn why(&self) -> String {
        match self.waiver() {
            Some(waiver) => format!("{} ({waiver})", self.reason),
            None => self.reason.clone(),
        }
    }

    /// Returns the waiver that it was read from; `None` if it is an entry of a file of expectations.
    #[must_use]
    pub const fn waiver(&self) -> Option<&Waiver> {
        match &self.kind {
            EntryKind::Waiver(waiver) => Some(waiver),
            EntryKind::KnownFailure | EntryKind::Accepted => None,
        }
    }

    /// Returns whether it is a waiver that has expired, and excuses nothing any more.
    #[must_use]
    pub fn is_expired(&self) -> bool {
        self.waiver().is_some_and(|waiver| waiver.is_expired)
    }

    /// Returns whether the point's platform, backend and torch version are the entry's.
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

    /// Returns whether it is about worlds that do not initialise: about their `#init` check, and about all checks that
    /// are not run because of that.
    #[must_use]
    pub fn is_about_init(&self) -> bool {
        self.outcomes == [Outcome::InitFailed]
    }

    /// Returns whether the entry matches the point.
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
            && self.waiver().is_none_or(|waiver| {
                let covers = |check: &Check| check.covers.contains(&waiver.requirement);
                point.check.is_some_and(covers)
            })
            && point
                .check
                .map_or(self.is_about_init(), |check| self.fits(check))
    }

    /// Returns whether the fields about a check match this one.
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

/// Returns the value of a check's parameter as reports show it; `None` if it has no such parameter.
fn param<'a>(check: &'a Check, axis: &str) -> Option<&'a str> {
    let params = &mut check.params.iter();
    params
        .find(|(known, _)| known == axis)
        .map(|(_, value)| value.as_str())
}

/// Returns how an op names its root, or its peers if it has no root.
fn named_by(check: &OpCheck) -> RootBy {
    check.root.map_or(check.peer_by, |root| root.by)
}

/// Returns whether a field is absent, or lists a value that fits.
fn lists<T>(field: &Option<OneOrMany<T>>, fits: impl Fn(&T) -> bool) -> bool {
    field
        .as_ref()
        .is_none_or(|values| values.as_slice().iter().any(fits))
}

impl Size {
    /// Returns whether a number is this size or in this range.
    fn is(self, size: u64) -> bool {
        match self {
            Self::Scalar => false,
            Self::Between(from, to) => (from..=to).contains(&size),
        }
    }

    /// Returns whether a contribution of this extent has this size.
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
