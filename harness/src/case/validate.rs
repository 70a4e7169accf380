//! What a case file may not say although its shape is right: ids that do not exist, combinations that cannot be.
//!
//! A case that passes has at least one check to make in some world, and no value in it is silently without effect.

use std::fmt;
use std::path::Path;

use super::file::{CaseFile, Step};
use super::requirement::is_well_formed;
use super::{
    Case, GroupSpec, Members, Numel, OneOrMany, Requirements, RootSpec, SplitsSpec, StepParams,
    StepSpec,
};
use crate::dtype::{DType, ReduceOp};
use crate::names::{CaseId, RequirementId, WorldSize};
use crate::plan::{Op, Pairs};
use crate::yaml::{Diagnostic, Document, Focus, Segment, did_you_mean, one_of, way};

/// The largest world a case may ask for.
pub(super) const MAX_WORLD: u32 = 4096;
/// The longest title, in characters: one line of a report.
const MAX_TITLE: usize = 120;
/// The most numbers in a `numel` range: each is a check.
const MAX_RANGE: u64 = 4096;
/// The largest number of elements: 2^40 bytes of the smallest dtype.
const MAX_NUMEL: u64 = 1 << 40;
/// The largest `count`.
const MAX_COUNT: u32 = 10_000;
/// The largest tag: c10d passes tags as `int`.
const MAX_TAG: u32 = i32::MAX as u32;
/// Variables that the harness sets for every rank.
const HARNESS_ENV: [&str; 6] = [
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
];

/// Where a case comes from, and what it may refer to.
pub(super) struct Place<'a> {
    pub file: &'a Path,
    /// Its path below its root, if it has one.
    pub below_root: Option<&'a Path>,
    /// The known requirements, if they are known.
    pub requirements: Option<&'a Requirements>,
}

/// Makes a case of a file.
///
/// # Errors
/// Everything that cannot be, in the order of the file.
pub(super) fn case(
    raw: CaseFile,
    document: &Document,
    place: &Place<'_>,
) -> Result<Case, Vec<Diagnostic>> {
    let mut checker = Checker {
        document,
        place,
        file: &raw,
        problems: Vec::new(),
    };
    checker.head();
    checker.world();
    checker.groups();
    checker.steps();
    let mut problems = checker.problems;
    if !problems.is_empty() {
        problems.sort_by_key(|problem| (problem.line, problem.column));
        return Err(problems);
    }
    let steps = raw
        .steps
        .into_iter()
        .enumerate()
        .map(|(index, Step { op, params })| StepSpec {
            op,
            params,
            line: document.line(way!["steps", index, op.name()]),
        })
        .collect();
    Ok(Case {
        source: place.below_root.unwrap_or(place.file).to_path_buf(),
        id: raw.id,
        title: raw.title,
        covers: raw.covers,
        world: raw.world,
        groups: raw.groups.0,
        steps,
    })
}

struct Checker<'a> {
    document: &'a Document,
    place: &'a Place<'a>,
    file: &'a CaseFile,
    problems: Vec<Diagnostic>,
}

impl Checker<'_> {
    fn report(&mut self, path: &[Segment], message: impl Into<String>, hint: impl Into<String>) {
        let problem = self.document.problem(path, Focus::Value, message);
        self.problems.push(problem.hint(hint));
    }

    fn report_key(
        &mut self,
        path: &[Segment],
        message: impl Into<String>,
        hint: impl Into<String>,
    ) {
        let problem = self.document.problem(path, Focus::Key, message);
        self.problems.push(problem.hint(hint));
    }

    /// A list says each thing once.
    fn distinct<T: PartialEq>(&mut self, path: &[Segment], values: &[T]) {
        for (index, value) in values.iter().enumerate() {
            if values[..index].contains(value) {
                let mut path = path.to_vec();
                path.push(index.into());
                self.report(
                    &path,
                    "a value is given twice",
                    "each check runs once; leave one out",
                );
            }
        }
    }

    fn head(&mut self) {
        let id = &self.file.id;
        if !is_case_id(id) {
            let hint = "lower-case words with digits, `_` and `-`, and `/` between them: `collectives/all_reduce`";
            self.report(way!["id"], format!("`{id}` is not a case id"), hint);
        } else if let Some(below) = self.place.below_root {
            let path = below
                .with_extension("")
                .to_string_lossy()
                .replace('\\', "/");
            if path != id.as_str() {
                let message = format!("the id `{id}` is not the path of its file");
                self.report(way!["id"], message, format!("write `id: {path}`"));
            }
        } else {
            let name = self
                .place
                .file
                .file_stem()
                .unwrap_or_default()
                .to_string_lossy();
            if id.as_str().rsplit('/').next() != Some(&*name) {
                let message = format!("the id `{id}` does not end with the name of its file");
                self.report(
                    way!["id"],
                    message,
                    format!("write `id: {name}`, or rename the file"),
                );
            }
        }
        let title = &self.file.title;
        if title.trim().is_empty() {
            self.report(
                way!["title"],
                "an empty title",
                "say in one line what the case proves",
            );
        } else if title.trim().contains('\n') {
            self.report(
                way!["title"],
                "a title of several lines",
                "one line says what the case proves",
            );
        } else if title.chars().count() > MAX_TITLE {
            let message = format!("a title of {} characters", title.chars().count());
            self.report(
                way!["title"],
                message,
                format!("at most {MAX_TITLE}: it is one line of a report"),
            );
        }
        self.covers(way!["covers"], &self.file.covers);
    }

    fn covers(&mut self, path: &[Segment], covers: &[RequirementId]) {
        self.distinct(path, covers);
        for (index, id) in covers.iter().enumerate() {
            let mut path = path.to_vec();
            path.push(index.into());
            if !is_well_formed(id) {
                let hint = "capital letters, a hyphen, three digits: `COLL-014`";
                self.report(&path, format!("`{id}` is not a requirement id"), hint);
            } else if let Some(known) = self.place.requirements
                && known.get(id).is_none()
            {
                let known: Vec<_> = known.iter().map(|known| known.id.as_str()).collect();
                let hint = match did_you_mean(id.as_str(), &known) {
                    Some(meant) => format!("did you mean `{meant}`? requirements.yaml lists them"),
                    None => "requirements.yaml lists them; add it there first".to_owned(),
                };
                self.report(&path, format!("there is no requirement `{id}`"), hint);
            }
        }
    }

    fn world(&mut self) {
        let world = &self.file.world;
        let sizes = world.size.as_slice();
        self.distinct(way!["world", "size"], sizes);
        for (index, size) in sizes.iter().enumerate() {
            if *size == 0 {
                self.report(
                    way!["world", "size", index],
                    "a world of 0 ranks",
                    "at least 1",
                );
            } else if *size > MAX_WORLD {
                let message = format!("a world of {size} ranks");
                self.report(
                    way!["world", "size", index],
                    message,
                    format!("at most {MAX_WORLD}"),
                );
            }
        }
        self.distinct(
            way!["world", "init", "method"],
            world.init.method.as_slice(),
        );
        if let Some(platforms) = &world.platform {
            self.names(
                way!["world", "platform"],
                platforms.as_slice(),
                "platform",
                is_name,
            );
        }
        if let Some(backends) = &world.backend {
            self.names(
                way!["world", "backend"],
                backends.as_slice(),
                "backend",
                is_name,
            );
        }
        for (field, seconds) in [
            ("timeout_s", world.timeout_s),
            ("deadline_s", world.deadline_s),
        ] {
            if !seconds.is_finite() || seconds <= 0.0 {
                let message = format!("`{field}` is {seconds}");
                self.report(way!["world", field], message, "seconds, more than 0");
            }
        }
        for name in world.env.keys() {
            let path = way!["world", "env", name.as_str()];
            if !is_env_name(name) {
                let hint = "letters, digits and `_`, not beginning with a digit";
                self.report_key(path, format!("`{name}` is not a variable's name"), hint);
            } else if HARNESS_ENV.contains(&name.as_str()) || name.starts_with("ALLRANKS_") {
                let hint = "leave it out; `world.init` says how ranks find each other";
                self.report_key(
                    path,
                    format!("`{name}` is set by the harness for every rank"),
                    hint,
                );
            }
        }
    }

    fn names(
        &mut self,
        path: &[Segment],
        names: &[String],
        noun: &str,
        is_right: fn(&str) -> bool,
    ) {
        self.distinct(path, names);
        for (index, name) in names.iter().enumerate() {
            if !is_right(name) {
                let mut path = path.to_vec();
                path.push(index.into());
                let hint = "lower-case letters, digits, `_` and `-`";
                self.report(&path, format!("`{name}` is not a {noun}'s name"), hint);
            }
        }
    }

    fn groups(&mut self) {
        for (name, group) in &self.file.groups.0 {
            let path = way!["groups", name.as_str()];
            if name == "world" {
                let hint = "`world` is the group of all ranks; it is always there";
                self.report_key(path, "a group cannot be named `world`", hint);
            } else if !is_name(name) {
                let hint = "lower-case letters, digits, `_` and `-`";
                self.report_key(path, format!("`{name}` is not a group's name"), hint);
            }
            if let Some(backend) = &group.backend
                && !is_backend_string(backend)
            {
                let hint = "a name, or pairs: `gloo`, `cpu:gloo,xpu:xccl`";
                let path = way!["groups", name.as_str(), "backend"];
                self.report(path, format!("`{backend}` is not a backend"), hint);
            }
            self.members(name, group);
        }
    }

    fn members(&mut self, name: &str, group: &GroupSpec) {
        let sizes = self.sizes();
        if let Members::List(ranks) = &group.ranks {
            let smallest = sizes.iter().min().copied().unwrap_or(WorldSize(1));
            for (index, rank) in ranks.iter().enumerate() {
                let path = way!["groups", name, "ranks", index];
                if ranks[..index].contains(rank) {
                    let message = format!("rank {rank} is in the group twice");
                    self.report(path, message, "a rank is a member once");
                } else if *rank >= smallest.0 {
                    let message = format!("there is no rank {rank} in a world of {smallest}");
                    let hint = format!(
                        "raise `world.size` to {} or more, or use a rule such as `even`",
                        rank + 1
                    );
                    self.report(path, message, hint);
                }
            }
        } else if sizes
            .iter()
            .all(|size| group.ranks.in_world(*size).is_empty())
        {
            let message = format!("the group `{name}` has no member in any world of the case");
            self.report(way!["groups", name, "ranks"], message, "raise `world.size`");
        }
    }

    /// World sizes of the case that are sizes at all.
    fn sizes(&self) -> Vec<WorldSize> {
        let sizes = self.file.world.size.as_slice().iter().copied();
        sizes
            .filter(|size| (1..=MAX_WORLD).contains(size))
            .map(WorldSize)
            .collect()
    }

    fn steps(&mut self) {
        if self.file.steps.is_empty() {
            self.report(
                way!["steps"],
                "no steps",
                "a case makes at least one check: `- all_reduce: {}`",
            );
        }
        for (index, step) in self.file.steps.iter().enumerate() {
            StepChecker {
                index,
                step,
                checker: self,
            }
            .check();
        }
    }
}

/// Checks one step.
struct StepChecker<'c, 'a> {
    index: usize,
    step: &'c Step,
    checker: &'c mut Checker<'a>,
}

impl StepChecker<'_, '_> {
    fn report(
        &mut self,
        parameter: &str,
        value: usize,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) {
        let path = way!["steps", self.index, self.step.op.name(), parameter, value];
        self.checker.report(path, message, hint);
    }

    fn distinct<T: PartialEq>(&mut self, parameter: &str, values: Option<&OneOrMany<T>>) {
        if let Some(values) = values {
            let path = way!["steps", self.index, self.step.op.name(), parameter];
            self.checker.distinct(path, values.as_slice());
        }
    }

    fn check(&mut self) {
        let StepParams {
            group,
            dtype,
            op,
            numel,
            root,
            by,
            layout,
            mode,
            placement,
            non_root,
            splits,
            pairs,
            count,
            tag,
            object,
            sweep: _,
            covers,
        } = &self.step.params;
        self.only_what_the_op_takes();
        self.distinct("group", group.as_ref());
        self.distinct("dtype", dtype.as_ref());
        self.distinct("op", op.as_ref());
        self.distinct("numel", numel.as_ref());
        self.distinct("root", root.as_ref());
        self.distinct("by", by.as_ref());
        self.distinct("layout", layout.as_ref());
        self.distinct("mode", mode.as_ref());
        self.distinct("non_root", non_root.as_ref());
        self.distinct("placement", placement.as_ref());
        self.distinct("splits", splits.as_ref());
        self.distinct("pairs", pairs.as_ref());
        self.distinct("count", count.as_ref());
        self.distinct("tag", tag.as_ref());
        self.distinct("object", object.as_ref());
        let path = way!["steps", self.index, self.step.op.name(), "covers"];
        self.checker.covers(path, covers);
        if covers.is_empty() && self.checker.file.covers.is_empty() {
            let path = way!["steps", self.index, self.step.op.name()];
            let hint = "name a requirement in `covers:`, here or for the whole case";
            self.checker
                .report_key(path, "a step that covers no requirement", hint);
        }
        let sizes = self.group_sizes();
        self.reduce_ops();
        for (index, numel) in values(numel).iter().enumerate() {
            self.numel(index, numel, &sizes);
        }
        for (index, root) in values(root).iter().enumerate() {
            self.root(index, root, &sizes);
        }
        for (index, splits) in values(splits).iter().enumerate() {
            if let SplitsSpec::Matrix(matrix) = splits {
                self.matrix(index, matrix, &sizes);
            }
        }
        self.pairs(&sizes);
        for (index, count) in values(count).iter().enumerate() {
            if !(1..=MAX_COUNT).contains(count) {
                self.report(
                    "count",
                    index,
                    format!("a count of {count}"),
                    format!("1 to {MAX_COUNT}"),
                );
            }
        }
        for (index, tag) in values(tag).iter().enumerate() {
            if *tag > MAX_TAG {
                self.report(
                    "tag",
                    index,
                    format!("a tag of {tag}"),
                    format!("0 to {MAX_TAG}: c10d tags are of type int"),
                );
            }
        }
    }

    fn only_what_the_op_takes(&mut self) {
        let op = self.step.op;
        let document = self.checker.document;
        for parameter in document.keys(way!["steps", self.index, op.name()]) {
            if !op.takes(parameter) {
                let path = way!["steps", self.index, op.name(), parameter];
                let allowed = StepParams::all_allowed(op).join(", ");
                let message = format!("`{}` takes no `{parameter}`", op.name());
                self.checker
                    .report_key(path, message, format!("it takes {allowed}"));
            }
        }
    }

    /// The sizes its groups have in the worlds of the case, smallest first; reports groups that do not exist.
    fn group_sizes(&mut self) -> Vec<u32> {
        let file = self.checker.file;
        let worlds = self.checker.sizes();
        let mut sizes = Vec::new();
        let world = [String::from("world")];
        let names = self
            .step
            .params
            .group
            .as_ref()
            .map_or(&world[..], OneOrMany::as_slice);
        for (index, name) in names.iter().enumerate() {
            if name == "world" {
                sizes.extend(worlds.iter().map(|size| size.0));
                continue;
            }
            match file.groups.0.iter().find(|(known, _)| known == name) {
                Some((_, group)) => sizes.extend(
                    worlds
                        .iter()
                        .map(|size| group.ranks.in_world(*size).len() as u32),
                ),
                None => {
                    let mut known = vec!["world"];
                    known.extend(file.groups.0.iter().map(|(name, _)| name.as_str()));
                    let hint = one_of(name, &known);
                    self.report("group", index, format!("there is no group `{name}`"), hint);
                }
            }
        }
        sizes.retain(|size| *size > 0);
        sizes.sort_unstable();
        sizes.dedup();
        sizes
    }

    fn reduce_ops(&mut self) {
        if !self.step.op.takes("op") {
            return;
        }
        let ops = values(&self.step.params.op);
        for (index, op) in ops.iter().enumerate() {
            if *op == ReduceOp::PremulSum {
                let hint = "a case has no way to give its factor yet";
                self.report("op", index, "`premul_sum` is not available", hint);
                return;
            }
        }
        let ops = if ops.is_empty() {
            &[StepParams::DEFAULT_OP]
        } else {
            ops
        };
        let dtypes = values(&self.step.params.dtype);
        let dtypes = if dtypes.is_empty() {
            &[StepParams::DEFAULT_DTYPE]
        } else {
            dtypes
        };
        if ops
            .iter()
            .any(|op| dtypes.iter().any(|dtype| op.is_defined_for(*dtype)))
        {
            return;
        }
        let parameter = if self.step.params.op.is_some() {
            "op"
        } else {
            "dtype"
        };
        let hint = match dtypes {
            [dtype] => format!(
                "on {dtype}: {}",
                join(
                    ReduceOp::ALL
                        .iter()
                        .filter(|op| { **op != ReduceOp::PremulSum && op.is_defined_for(*dtype) })
                )
            ),
            _ => format!(
                "`{}` is defined on {}",
                ops[0],
                join(
                    DType::ALL
                        .iter()
                        .filter(|dtype| { ops[0].is_defined_for(**dtype) })
                )
            ),
        };
        let message = format!(
            "{} of {} has no defined result",
            join(ops.iter()),
            join(dtypes.iter())
        );
        self.report(parameter, 0, message, hint);
    }

    fn numel(&mut self, index: usize, numel: &Numel, sizes: &[u32]) {
        match *numel {
            Numel::Scalar => {}
            Numel::Exact(count) => self.numel_limit(index, count),
            Numel::Range(from, to) => {
                if to - from >= MAX_RANGE {
                    let message = format!("a range of {} numbers", (to - from).saturating_add(1));
                    self.report(
                        "numel",
                        index,
                        message,
                        format!("at most {MAX_RANGE}: each is a check"),
                    );
                } else {
                    self.numel_limit(index, to);
                }
            }
            Numel::OfWorld { times, plus } => {
                let count = |size: u32| i128::from(times) * i128::from(size) + i128::from(plus);
                if !sizes.is_empty() && sizes.iter().all(|size| count(*size) < 0) {
                    let hint = format!("W is at most {} here", sizes.last().copied().unwrap_or(1));
                    self.report(
                        "numel",
                        index,
                        "fewer than 0 elements in every world of the case",
                        hint,
                    );
                } else if sizes
                    .iter()
                    .any(|size| count(*size) > i128::from(MAX_NUMEL))
                {
                    self.numel_limit(index, u64::MAX);
                }
            }
        }
    }

    fn numel_limit(&mut self, index: usize, count: u64) {
        if count > MAX_NUMEL {
            let hint = format!("at most {MAX_NUMEL}");
            self.report("numel", index, "more elements than any machine holds", hint);
        }
    }

    fn root(&mut self, index: usize, root: &RootSpec, sizes: &[u32]) {
        if let (RootSpec::GroupRank(root), Some(smallest)) = (root, sizes.first())
            && root >= smallest
        {
            let message = format!("there is no group rank {root} in a group of {smallest}");
            let hint = match smallest {
                1 => "only 0, or `all` or `last`".to_owned(),
                _ => format!("0 to {}, or `all` or `last`", smallest - 1),
            };
            self.report("root", index, message, hint);
        }
    }

    fn matrix(&mut self, index: usize, matrix: &[Vec<u64>], sizes: &[u32]) {
        let rows = matrix.len();
        if let Some((row, entries)) = matrix.iter().enumerate().find(|(_, row)| row.len() != rows) {
            let message = format!(
                "row {row} has {} entries, and there are {rows} rows",
                entries.len()
            );
            self.report(
                "splits",
                index,
                message,
                "a row and a column for each group rank",
            );
            return;
        }
        match sizes {
            [] => {}
            [size] if *size as usize == rows => {}
            [size] => {
                let message = format!("a matrix of {rows} rows for a group of {size}");
                self.report(
                    "splits",
                    index,
                    message,
                    format!("give {size} rows of {size} entries"),
                );
            }
            many => {
                let message = format!(
                    "a matrix fits one group size, and the case has {}",
                    join(many.iter())
                );
                self.report(
                    "splits",
                    index,
                    message,
                    format!("fix it with `world: {{size: {rows}}}`"),
                );
            }
        }
        let total = matrix
            .iter()
            .flatten()
            .try_fold(0_u64, |total, entry| total.checked_add(*entry));
        if total.is_none_or(|total| total > MAX_NUMEL) {
            let hint = format!("at most {MAX_NUMEL} in all");
            self.report(
                "splits",
                index,
                "more elements than any machine holds",
                hint,
            );
        }
    }

    fn pairs(&mut self, sizes: &[u32]) {
        if !self.step.op.takes("pairs") {
            return;
        }
        let pairs = values(&self.step.params.pairs);
        for (index, pair) in pairs.iter().enumerate() {
            if *pair == Pairs::Own && self.step.op == Op::SendRecv {
                let hint = "a blocking send to oneself waits for ever; use `batch_isend_irecv`";
                self.report(
                    "pairs",
                    index,
                    "`send_recv` cannot go to the rank itself",
                    hint,
                );
            }
        }
        if sizes == [1] && !pairs.contains(&Pairs::Own) {
            let path = way!["steps", self.index, self.step.op.name()];
            let hint = "raise `world.size`, or send to oneself with `pairs: own`";
            self.checker.report_key(
                path,
                "no two ranks to send between in any world of the case",
                hint,
            );
        }
    }
}

/// The values of a parameter; none if it is not given.
fn values<T>(values: &Option<OneOrMany<T>>) -> &[T] {
    values.as_ref().map_or(&[], OneOrMany::as_slice)
}

fn join<T: fmt::Display>(items: impl Iterator<Item = T>) -> String {
    items
        .map(|item| item.to_string())
        .collect::<Vec<_>>()
        .join(", ")
}

/// Lower-case words with `/` between them.
fn is_case_id(id: &CaseId) -> bool {
    id.as_str().split('/').all(is_name)
}

/// A lower-case word: letters, digits, `_` and `-`, beginning with a letter or a digit.
pub(crate) fn is_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit())
        && name
            .bytes()
            .all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-'))
}

/// What `backend=` takes: a name, or `device:name` pairs.
pub(crate) fn is_backend_string(text: &str) -> bool {
    text.split(',').all(|part| match part.split_once(':') {
        Some((device, backend)) => is_name(device) && is_name(backend),
        None => is_name(part),
    })
}

/// What an environment variable may be called.
pub(crate) fn is_env_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}
