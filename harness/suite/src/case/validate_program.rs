//! Validates `program:`. Refuses files that are not there, expressions that are malformed, and above all a program of
//! which nothing would show that a rank has done anything.

use std::path::{Path, PathBuf};

use regex::Regex;

use super::checker::Checker;
use super::program::{ARGUMENTS, ExitSpec, LineSpec, PROGRAM, ProgramSpec};
use super::{ExitCode, InitSpec, OneOrMany, Starts, WorldSpec};
use allranks_model::launcher::Launcher;
use allranks_model::names::Rank;
use allranks_yaml::{Segment, way};

/// Checks one program and what the case says beside it.
pub(super) struct ProgramChecker<'a, 'b> {
    pub program: &'a ProgramSpec,
    /// The folder of the case's file.
    pub folder: &'a Path,
    pub checker: &'a mut Checker<'b>,
}

impl ProgramChecker<'_, '_> {
    pub(super) fn check(&mut self) {
        self.rest_of_the_case();
        self.command();
        let launchers = self.program.launcher.as_slice();
        self.checker.distinct(way![PROGRAM, "launcher"], launchers);
        self.nodes(launchers);
        for (list, lines) in [
            ("lines", &self.program.lines),
            ("never", &self.program.never),
        ] {
            for (index, line) in lines.iter().enumerate() {
                self.line(way![PROGRAM, list, index], line);
            }
        }
        self.exits();
        self.restarts();
        if self.program.within.0.is_zero() {
            let path = way![PROGRAM, "within"];
            self.checker.report(path, "no time at all", "more than 0 s");
        }
        self.hang();
        self.every_rank_is_checked();
    }

    /// Reports what has no meaning beside a program, because a program does everything itself.
    fn rest_of_the_case(&mut self) {
        let file = self.checker.file;
        let mut refuse = |is_there: bool, key: &str, why: &str| {
            if is_there {
                let message = format!("`{key}` beside `{PROGRAM}`");
                self.checker
                    .report_key(way![key], message, format!("leave it out: {why}"));
            }
        };
        let by_itself = "a program does what it does by itself";
        refuse(!file.steps.is_empty(), "steps", by_itself);
        refuse(!file.groups.0.is_empty(), "groups", by_itself);
        refuse(file.layout.is_some(), "layout", by_itself);
        let own = "`exit`, `lines` and `hang` say what is expected of a program";
        refuse(!file.expect.is_empty(), "expect", own);
        let (world, usual) = (&file.world, WorldSpec::default());
        let mut refuse = |is_there: bool, key: &str, why: &str| {
            if is_there {
                let message = format!("`world.{key}` beside `{PROGRAM}`");
                self.checker.report_key(way!["world", key], message, why);
            }
        };
        let initialises = "leave it out: a program initialises itself, from RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT";
        refuse(world.init != InitSpec::default(), "init", initialises);
        refuse(world.starts != Starts::default(), "starts", initialises);
        let passes = "leave it out: a program passes its own timeout to torch; `program.within` limits the whole run";
        let is_given = (world.timeout_s - usual.timeout_s).abs() > f64::EPSILON;
        refuse(is_given, "timeout_s", passes);
    }

    /// Reports several nodes under the launcher `local`, which has one.
    fn nodes(&mut self, launchers: &[Launcher]) {
        let world = &self.checker.file.world;
        let nodes = world.nodes.as_ref().map(OneOrMany::as_slice);
        let is_spread = world
            .placement
            .as_ref()
            .is_some_and(|ranks| ranks.len() > 1)
            || nodes.is_some_and(|nodes| nodes.iter().any(|count| *count > 1));
        if is_spread && launchers.contains(&Launcher::Local) {
            let message = "the launcher `local` starts all ranks on one node";
            let hint = "name others: `launcher: [torchrun, slurm, mpi]`";
            let has_launcher = self.checker.document.keys(way![PROGRAM]);
            match has_launcher.contains(&"launcher") {
                true => self
                    .checker
                    .report_key(way![PROGRAM, "launcher"], message, hint),
                false => self.checker.report_key(way![PROGRAM], message, hint),
            }
        }
    }

    fn command(&mut self) {
        let run = &self.program.run;
        if run.first().is_none_or(|word| word.trim().is_empty()) {
            let hint = "such as `run: [python, ./train.py]`";
            self.checker
                .report(way![PROGRAM, "run"], "no command to run", hint);
            return;
        }
        for (index, word) in run.iter().enumerate() {
            let path = way![PROGRAM, "run", index];
            if is_file_of_case(word) && !self.folder.join(word).is_file() {
                let message = format!("there is no file `{word}`");
                let hint = "such words are files, as seen from the folder of this case";
                self.checker.report(path, message, hint);
            }
            if let Some(unknown) = unknown_argument(word) {
                let message = format!("`{unknown}` stands for nothing");
                let hint = format!(
                    "there are {}; a rank finds its own number in RANK",
                    ARGUMENTS.join(", ")
                );
                self.checker.report(path, message, hint);
            }
        }
    }

    fn line(&mut self, path: &[Segment], line: &LineSpec) {
        let size = self.checker.sizes().first().copied();
        if line.line.trim().is_empty() {
            let hint = "some words of the line: every line matches this";
            self.checker.report(path, "an empty line", hint);
        } else if is_set_of_letters(&line.line) {
            let message = format!("`{}` asks for one letter of a set", line.line);
            let hint = "in a regular expression, brackets are written with a backslash: '\\[Rank {rank}\\]'";
            self.checker.report(path, message, hint);
        } else if let Some(Err(error)) = size.map(|size| line.pattern(Rank(0), size)) {
            let message = format!("`{}` is not a regular expression", line.line);
            self.checker.report(path, message, error.to_string());
        }
        self.members(path, line.on.as_ref());
    }

    /// Reports a listed rank that the smallest world of the case does not have.
    fn members(&mut self, path: &[Segment], members: Option<&super::Members>) {
        let Some(members) = members else {
            return;
        };
        let size = self.checker.sizes().into_iter().min();
        if let (Some(size), super::Members::List(ranks)) = (size, members)
            && let Some(absent) = ranks.iter().find(|rank| **rank >= size.0)
        {
            let message = format!("there is no rank {absent} in a world of {size}");
            let hint = "raise `world.size`, or use a rule such as `last`";
            self.checker.report(path, message, hint);
        }
    }

    fn exits(&mut self) {
        let Some(ExitSpec::Each(entries)) = &self.program.exit else {
            return;
        };
        if entries.is_empty() {
            let hint = "one entry at least, or a code for all ranks";
            self.checker
                .report(way![PROGRAM, "exit"], "an empty list", hint);
        }
        for (index, entry) in entries.iter().enumerate() {
            self.members(way![PROGRAM, "exit", index], Some(&entry.on));
        }
    }

    fn restarts(&mut self) {
        let Some(spec) = &self.program.exit_before else {
            if self.program.restarts > 0 {
                self.needs_torchrun();
            }
            return;
        };
        if self.program.restarts == 0 {
            let hint = "say how often torchrun starts all ranks anew: `restarts: 1`";
            let path = way![PROGRAM, "exit_before"];
            self.checker
                .report_key(path, "there is one start only", hint);
            return;
        }
        self.needs_torchrun();
        if let ExitSpec::Each(entries) = spec {
            for (index, entry) in entries.iter().enumerate() {
                self.members(way![PROGRAM, "exit_before", index], Some(&entry.on));
            }
        }
    }

    /// Reports restarts under a launcher that starts nothing anew.
    fn needs_torchrun(&mut self) {
        let launchers = self.program.launcher.as_slice();
        if launchers
            .iter()
            .any(|launcher| *launcher != Launcher::Torchrun)
        {
            let message = "only torchrun starts ranks anew";
            let hint = "`launcher: torchrun`";
            self.checker
                .report_key(way![PROGRAM, "restarts"], message, hint);
        }
    }

    fn hang(&mut self) {
        let Some(hang) = &self.program.hang else {
            return;
        };
        if hang.silent.is_some() {
            let hint = "leave it out: the lines and exit codes say whether it went on";
            self.checker.report_key(
                way![PROGRAM, "hang", "silent"],
                "`silent` of a program",
                hint,
            );
        }
        if hang.within.0 >= self.program.within.0 {
            let message = "the verdict may come after the program is killed";
            let hint = "make `program.within` longer";
            self.checker
                .report(way![PROGRAM, "hang", "within"], message, hint);
        }
    }

    /// Reports a rank that would pass without having done anything. Exit code 0 is what an empty program has too; so
    /// unless the rank must fail, or a verdict is asked for, a line that it prints must show that it ran.
    fn every_rank_is_checked(&mut self) {
        if self.program.hang.is_some() {
            return;
        }
        let sizes = self.checker.sizes();
        let unchecked = sizes.into_iter().find_map(|size| {
            let is_checked = |rank: Rank| {
                let fails = |code: ExitCode| code.is_failure();
                let lines = &self.program.lines;
                lines.iter().any(|line| line.is_for(rank, size))
                    || self.program.exit_of(rank, size).is_some_and(fails)
            };
            Some((size, size.ranks().find(|rank| !is_checked(*rank))?))
        });
        if let Some((size, rank)) = unchecked {
            let message =
                format!("nothing shows that rank {rank} of a world of {size} has done anything");
            let hint = "name a line in `lines:` that every rank prints when it has done its part; \
                        exit code 0 is what an empty program has too";
            let has_lines = self.checker.document.keys(way![PROGRAM]).contains(&"lines");
            match has_lines {
                true => self
                    .checker
                    .report_key(way![PROGRAM, "lines"], message, hint),
                false => self.checker.report_key(way![PROGRAM], message, hint),
            }
        }
    }
}

/// Returns whether a word of `run` is a file, relative to the case's folder.
fn is_file_of_case(word: &str) -> bool {
    word.starts_with("./") || word.starts_with("../")
}

/// Returns whether a line has `[Rank {rank}]` without backslashes: a set of letters in a regular expression, which is
/// never meant where a rank's number is one of them.
fn is_set_of_letters(line: &str) -> bool {
    let set = Regex::new(r"(^|[^\\])\[[^\]\\]*\{(rank|world_size)\}");
    set.is_ok_and(|set| set.is_match(line))
}

/// Returns the first name in braces that is not one of [`ARGUMENTS`].
fn unknown_argument(word: &str) -> Option<String> {
    let braces = Regex::new(r"\{[a-z_]+\}").ok()?;
    let mut found = braces.find_iter(word).map(|found| found.as_str());
    let unknown = found.find(|name| !ARGUMENTS.contains(name))?;
    Some(unknown.to_owned())
}

/// Returns the program with absolute paths for its files, and the line it is written on.
pub(super) fn located(program: ProgramSpec, folder: &Path, line: usize) -> ProgramSpec {
    let place = |word: String| {
        if !is_file_of_case(&word) {
            return word;
        }
        let path: PathBuf = folder.join(&word);
        let path = path.canonicalize().unwrap_or(path);
        path.to_string_lossy().into_owned()
    };
    ProgramSpec {
        run: program.run.into_iter().map(place).collect(),
        line,
        ..program
    }
}
