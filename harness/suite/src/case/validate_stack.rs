//! Validates steps about a layer: what such a step may not say although its shape is right.

use super::checker::Checker;
use super::stack::StackSpec;
use allranks_yaml::way;

/// Checks one step about a layer.
pub(super) struct StackChecker<'c, 'a> {
    pub index: usize,
    pub stack: &'c StackSpec,
    pub checker: &'c mut Checker<'a>,
}

impl StackChecker<'_, '_> {
    pub(super) fn check(&mut self) {
        let (index, stack) = (self.index, self.stack);
        let key = stack.name().name();
        let checker = &mut *self.checker;
        if let Some(parameter) = stack.repeated() {
            let path = way!["steps", index, key, parameter];
            checker.report(path, "a value is given twice", "leave one out");
        }
        let mut wrong = Vec::new();
        for (axis, length) in stack.lengths().iter().enumerate() {
            for value in 0..*length {
                let mut at = vec![0; axis + 1];
                at[axis] = value;
                let problem = stack.point(&at).layer.invalid();
                wrong.extend(problem.filter(|problem| !wrong.contains(problem)));
            }
        }
        for (parameter, message, hint) in wrong {
            checker.report(way!["steps", index, key, parameter], message, hint);
        }
        checker.covers(way!["steps", index, key, "covers"], stack.covers());
        if stack.covers().is_empty() && checker.file.covers.is_empty() {
            let hint = "name a requirement in `covers:`, here or for the whole case";
            let path = way!["steps", index, key];
            checker.report_key(path, "a step that covers no requirement", hint);
        }
    }
}
