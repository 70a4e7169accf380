//! Validates steps `script:`: what a script may not say although its shape is right.

use regex::Regex;

use super::checker::Checker;
use super::expect::ExpectSpec;
use super::form::is_name;
use super::script::{SCRIPT, ScriptSpec};
use super::script_move::{MoveSpec, Verb};
use allranks_yaml::{Segment, way};

/// The largest number of turns of a loop.
const MAX_TIMES: u32 = 2_000;
/// The longest sleep or pause, in milliseconds. A script that needs a longer one relies on timing.
const MAX_MS: u64 = 30_000;

/// Checks one step `script:`.
pub(super) struct ScriptChecker<'c, 'a> {
    pub index: usize,
    pub script: &'c ScriptSpec,
    pub checker: &'c mut Checker<'a>,
}

impl ScriptChecker<'_, '_> {
    pub(super) fn check(&mut self) {
        let script = self.script;
        let path = way!["steps", self.index, SCRIPT];
        if !is_name(&script.name) {
            let mut path = path.to_vec();
            path.push("name".into());
            let hint = "lower-case letters, digits, `_` and `-`";
            self.checker.report(
                &path,
                format!("`{}` is not a script's name", script.name),
                hint,
            );
        }
        if script.moves.is_empty() {
            self.checker.report_key(
                path,
                "a script without moves",
                "say what the ranks do in `moves:`",
            );
        }
        let mut covers = path.to_vec();
        covers.push("covers".into());
        self.checker.covers(&covers, &script.covers);
        if script.covers.is_empty() && self.checker.file.covers.is_empty() {
            let hint = "name a requirement in `covers:`, here or for the whole case";
            self.checker
                .report_key(path, "a step that covers no requirement", hint);
        }
        let mut moves = path.to_vec();
        moves.push("moves".into());
        self.moves(&moves, &script.moves, Inside::Script);
    }

    fn moves(&mut self, path: &[Segment], moves: &[MoveSpec], inside: Inside) {
        for (index, one) in moves.iter().enumerate() {
            let mut path = path.to_vec();
            path.push(index.into());
            self.one(&path, one, inside);
        }
    }

    /// Checks one move.
    fn one(&mut self, path: &[Segment], one: &MoveSpec, inside: Inside) {
        if let Some(expect) = &one.expect {
            self.expect(path, expect, matches!(one.verb, Verb::Python(_)));
        }
        self.verb(path, one, inside);
        if inside == Inside::Thread && one.on.is_some() {
            let hint = "write `on` beside `together`";
            self.checker
                .report(&below(path, &["on"]), "`on` inside a thread", hint);
        }
    }

    /// Checks how a move must go. `is_python`: the move runs Python statements.
    fn expect(&mut self, path: &[Segment], expect: &ExpectSpec, is_python: bool) {
        let patterns = expect.raises.as_ref().map_or(&[][..], |all| all.as_slice());
        for pattern in patterns {
            if let Err(error) = Regex::new(pattern) {
                let message = format!("`{pattern}` is not a regular expression");
                let hint = error
                    .to_string()
                    .lines()
                    .last()
                    .unwrap_or_default()
                    .to_owned();
                self.checker
                    .report(&below(path, &["expect", "raises"]), message, hint);
            }
        }
        if expect.either && (expect.raises.is_some() || expect.somewhere) {
            let hint = "`either` says that it may raise or return; leave one out";
            self.checker.report(
                &below(path, &["expect", "either"]),
                "`either` beside `raises`",
                hint,
            );
        }
        if expect.untouched && (expect.raises.is_none() || !is_python) {
            let hint = "it is about the arguments of `python` statements that raise";
            self.checker.report(
                &below(path, &["expect", "untouched"]),
                "`untouched` where no statements must raise",
                hint,
            );
        }
        if let Some(class) = &expect.class {
            self.class_of_value(
                &below(path, &["expect", "class"]),
                class,
                expect.value.is_some(),
            );
        }
        if expect.somewhere && expect.raises.is_none() {
            let hint = "say what is raised: `raises: \".\"`";
            self.checker.report(
                &below(path, &["expect", "somewhere"]),
                "`somewhere` without `raises`",
                hint,
            );
        }
    }

    /// Checks the parameters of a move, and whether it may stand here.
    fn verb(&mut self, path: &[Segment], one: &MoveSpec, inside: Inside) {
        let name = one.verb.name();
        let timeout = match &one.verb {
            Verb::Init(init) => init.timeout_s,
            Verb::NewGroup(group) => group.timeout_s,
            _ => None,
        };
        if let Some(seconds) = timeout {
            let path = below(path, &[name, "timeout_s"]);
            self.checker.seconds(&path, "timeout_s", seconds);
        }
        match &one.verb {
            Verb::Issue(None, _) if self.script.over.is_empty() => {
                let hint = "name the ops in `over:`";
                self.checker
                    .report_key(&below(path, &[name]), "`it` stands for nothing", hint);
            }
            Verb::Send(side) | Verb::Recv(side) | Verb::Isend(side) | Verb::Irecv(side) => {
                let known = self
                    .script
                    .messages
                    .0
                    .iter()
                    .any(|(name, _)| *name == side.message);
                if !known {
                    let message = format!("there is no message `{}`", side.message);
                    let hint = "describe it in the script's `messages:`";
                    self.checker
                        .report(&below(path, &[name, "message"]), message, hint);
                }
            }
            Verb::Sleep(time) | Verb::Pause(time) if time.ms > MAX_MS => {
                let hint = format!("at most {MAX_MS}");
                self.checker
                    .report(&below(path, &[name, "ms"]), format!("{} ms", time.ms), hint);
            }
            Verb::Repeat(repeat) => {
                if !(1..=MAX_TIMES).contains(&repeat.times) {
                    let hint = format!("1 to {MAX_TIMES}");
                    self.checker.report(
                        &below(path, &[name, "times"]),
                        format!("{} times", repeat.times),
                        hint,
                    );
                }
                self.moves(&below(path, &[name, "moves"]), &repeat.moves, inside);
            }
            Verb::Together(together) => {
                if inside == Inside::Thread {
                    let hint = "threads do not start threads";
                    self.checker.report_key(
                        &below(path, &[name]),
                        "`together` inside `together`",
                        hint,
                    );
                }
                for (index, thread) in together.threads.iter().enumerate() {
                    let mut path = below(path, &[name, "threads"]);
                    path.push(index.into());
                    self.moves(&path, thread, Inside::Thread);
                }
            }
            Verb::Hold(_)
            | Verb::Mark(_)
            | Verb::Pause(_)
            | Verb::Freeze(_)
            | Verb::Die(_)
            | Verb::Exit(_)
                if inside == Inside::Thread =>
            {
                let hint = "what a whole rank does stands outside of `together`";
                self.checker.report_key(
                    &below(path, &[name]),
                    format!("`{name}` on a thread"),
                    hint,
                );
            }
            _ => {}
        }
    }

    /// Reports a class that names no other value, or that is no name.
    fn class_of_value(&mut self, path: &[Segment], class: &str, has_value: bool) {
        if !has_value {
            let hint = "it is the class of a value that is not the one that `value` gives";
            self.checker.report(path, "`class` without `value`", hint);
        }
        let is_name = class.starts_with(|first: char| first.is_ascii_lowercase())
            && class
                .chars()
                .all(|each| each.is_ascii_lowercase() || each.is_ascii_digit() || each == '-');
        if !is_name {
            let hint = "use lower-case letters, digits and hyphens: `leaked`";
            self.checker
                .report(path, format!("`{class}` is no name of a class"), hint);
        }
    }
}

/// The place of a move: in the script's own list, or in a thread of `together`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Inside {
    Script,
    Thread,
}

/// Returns the path of a value below the one at `path`.
fn below(path: &[Segment], rest: &[&str]) -> Vec<Segment> {
    let mut path = path.to_vec();
    path.extend(rest.iter().map(|key| Segment::from(*key)));
    path
}
