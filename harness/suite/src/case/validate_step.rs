//! Validates steps about an op: what a step may not say although its shape is right.

use std::fmt;

use super::checker::Checker;
use super::file::Sweep;
use super::{Numel, OneOrMany, RootSpec, SplitsSpec, StepParams};
use allranks_model::axes::Pairs;
use allranks_model::dtype::{DType, ReduceOp};
use allranks_model::op::Op;
use allranks_yaml::{one_of, way};

/// The largest number of values in a `numel` range; each is a check.
const MAX_RANGE: u64 = 4096;
/// The largest number of elements: 2^40 bytes of the smallest dtype.
const MAX_NUMEL: u64 = 1 << 40;
/// The largest `count`: tensors in a coalesced op, or messages for each pair.
const MAX_COUNT: u32 = 10_000;
/// The largest tag: c10d passes tags as `int`.
const MAX_TAG: u32 = i32::MAX as u32;

/// Defines [`StepChecker::distinct_axes`] from the table of axes.
macro_rules! distinct_axes {
    ($($(#[$about:meta])* $field:ident: $value:ty {
        key: $key:ident, $($rest:tt)*
    })*) => {
        impl StepChecker<'_, '_> {
            /// Reports values that the list of an axis has twice.
            fn distinct_axes(&mut self) {
                let params = &self.step.params;
                $(self.distinct(stringify!($key), params.$key.as_ref());)*
            }
        }
    };
}

allranks_model::for_each_axis!(distinct_axes);

/// Checks one step about an op.
pub(super) struct StepChecker<'c, 'a> {
    pub index: usize,
    pub step: &'c Sweep,
    pub checker: &'c mut Checker<'a>,
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

    pub fn check(&mut self) {
        let step = self.step;
        let StepParams {
            group,
            numel,
            root,
            splits,
            count,
            tag,
            covers,
            ..
        } = &step.params;
        self.only_what_the_op_takes();
        self.distinct("group", group.as_ref());
        self.distinct_axes();
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
                if !matches!(self.step.op, Op::AllToAll | Op::AllToAllSingle) {
                    let message = format!("`{}` takes no matrix", self.step.op.name());
                    let hint =
                        "a list has one size for each rank: even, uneven, with_zero or all_zero";
                    self.report("splits", index, message, hint);
                    continue;
                }
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
                let allowed = op.keys().join(", ");
                let message = format!("`{}` takes no `{parameter}`", op.name());
                self.checker
                    .report_key(path, message, format!("it takes {allowed}"));
            }
        }
    }

    /// Returns the sizes that the step's groups have in the worlds of the case, smallest first and without 0. Reports
    /// groups that do not exist.
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
        if self.step.params.factor.is_some() && !ops.contains(&ReduceOp::PremulSum) {
            let hint = "give `op: premul_sum`, or leave `factor` out";
            let message = "a `factor` that no operator multiplies by";
            self.report("factor", 0, message, hint);
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
                join(ReduceOp::ALL.iter().filter(|op| op.is_defined_for(*dtype)))
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
                2 => "0 or 1, or `all` or `last`".to_owned(),
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
                    "a matrix fits one group size, and there are groups of {}",
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

/// Returns the values of a parameter; an empty slice if it is not given.
fn values<T>(values: &Option<OneOrMany<T>>) -> &[T] {
    values.as_ref().map_or(&[], OneOrMany::as_slice)
}

fn join<T: fmt::Display>(items: impl Iterator<Item = T>) -> String {
    items
        .map(|item| item.to_string())
        .collect::<Vec<_>>()
        .join(", ")
}
