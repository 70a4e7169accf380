//! Validates steps `random:`: what a random sequence may not say although its shape is right.

use super::checker::Checker;
use super::form::is_name;
use super::random::{RANDOM, RandomSpec};
use allranks_yaml::{did_you_mean, way};

/// The largest number of ops and messages of a sequence; they are numbered within one check.
const MAX_LENGTH: u32 = 2_000;
/// The largest number of sequences of one step.
const MAX_COUNT: u32 = 100;

/// Checks one step `random:`.
pub(super) struct RandomChecker<'c, 'a> {
    pub index: usize,
    pub random: &'c RandomSpec,
    pub checker: &'c mut Checker<'a>,
}

impl RandomChecker<'_, '_> {
    pub(super) fn check(&mut self) {
        let (index, random) = (self.index, self.random);
        let checker = &mut *self.checker;
        if !is_name(&random.name) {
            let message = format!("`{}` is not a sequence's name", random.name);
            let hint = "lower-case letters, digits, `_` and `-`";
            checker.report(way!["steps", index, RANDOM, "name"], message, hint);
        }
        let bounds = [
            ("length", random.length, 1, MAX_LENGTH),
            ("count", random.count, 1, MAX_COUNT),
            ("async", random.asynchronous, 0, 100),
            ("messages", random.messages, 0, 100),
        ];
        for (field, value, least, most) in bounds {
            if !(least..=most).contains(&value) {
                let path = way!["steps", index, RANDOM, field];
                let message = format!("`{field}` is {value}");
                checker.report(path, message, format!("{least} to {most}"));
            }
        }
        checker.distinct(
            way!["steps", index, RANDOM, "layouts"],
            random.layouts.as_slice(),
        );
        if let Some(ops) = &random.ops {
            checker.distinct(way!["steps", index, RANDOM, "ops"], ops.as_slice());
        }
        if let Some(groups) = &random.groups {
            checker.distinct(way!["steps", index, RANDOM, "groups"], groups.as_slice());
            self.groups(groups.as_slice());
        }
        self.sizes();
        let checker = &mut *self.checker;
        checker.covers(way!["steps", index, RANDOM, "covers"], &random.covers);
        if random.covers.is_empty() && checker.file.covers.is_empty() {
            let hint = "name a requirement in `covers:`, here or for the whole case";
            let path = way!["steps", index, RANDOM];
            checker.report_key(path, "a step that covers no requirement", hint);
        }
    }

    fn groups(&mut self, names: &[String]) {
        let own = self.checker.file.groups.0.iter();
        let known: Vec<&str> = own.map(|(name, _)| name.as_str()).collect();
        for (at, name) in names.iter().enumerate() {
            if name == "world" || known.contains(&name.as_str()) {
                continue;
            }
            let hint = match did_you_mean(name, &known) {
                Some(meant) => format!("did you mean `{meant}`?"),
                None => "`world`, or a name in the case's `groups:`".to_owned(),
            };
            let path = way!["steps", self.index, RANDOM, "groups", at];
            self.checker
                .report(path, format!("there is no group `{name}`"), hint);
        }
    }

    fn sizes(&mut self) {
        let Some(sizes) = &self.random.size else {
            return;
        };
        let path = way!["steps", self.index, RANDOM, "size"];
        self.checker.distinct(path, sizes.as_slice());
        let of_case = self.checker.sizes();
        if !of_case
            .iter()
            .any(|size| sizes.as_slice().contains(&size.0))
        {
            let hint = "add one to the case's `world.size`, or leave it out";
            self.checker
                .report(path, "no world of the case has such a size", hint);
        }
    }
}
