//! Validates case files: finds what a file may not say although its shape is right, such as ids that do not exist and
//! combinations that are impossible.
//!
//! A case that passes has at least one check to make in some world, and no value in it is without effect.

use std::sync::Arc;

use regex::Regex;

use super::checker::{Checker, FileContext};
use super::file::{CaseFile, Step, Sweep};
use super::form::{filled, is_backend_string, is_env_name, is_name};
use super::program::PROGRAM;
use super::recipe::group_of;
use super::validate_program::{ProgramChecker, located};
use super::validate_random::RandomChecker;
use super::validate_script::ScriptChecker;
use super::validate_stack::StackChecker;
use super::validate_step::StepChecker;
use super::{Case, GroupSpec, Members, StepSpec, SweepSpec};
use allranks_model::names::{CaseId, WorldSize};
use allranks_yaml::{Diagnostic, Document, Segment, way};

/// The longest title, in characters: one line of a report.
const MAX_TITLE: usize = 120;
/// Variables that the harness itself sets for every rank.
const HARNESS_ENV: &[&str] = &[
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
];

/// Validates a decoded file and turns it into a case.
///
/// # Errors
///
/// All problems, in the order of the file.
pub(super) fn case(
    raw: CaseFile,
    document: &Document,
    place: &FileContext<'_>,
) -> Result<Case, Vec<Diagnostic>> {
    let mut raw = raw;
    let layout = raw.layout.take();
    for (_, group) in &mut raw.groups.0 {
        *group = group.clone().laid_out(layout.as_ref());
    }
    raw.layout = layout;
    let mut checker = Checker {
        document,
        place,
        file: &raw,
        problems: Vec::new(),
    };
    checker.head();
    checker.world();
    checker.layout();
    checker.groups();
    checker.steps();
    checker.expect();
    let mut problems = checker.problems;
    if !problems.is_empty() {
        problems.sort_by_key(|problem| (problem.line, problem.column));
        return Err(problems);
    }
    let steps = raw
        .steps
        .into_iter()
        .enumerate()
        .map(|(index, step)| {
            let line = document.line(way!["steps", index, step.key()]);
            match step {
                Step::Sweep(Sweep { op, params }) => {
                    StepSpec::Sweep(SweepSpec { op, params, line })
                }
                Step::Script(spec) => StepSpec::Script {
                    spec: Arc::new(*spec),
                    line,
                },
                Step::Random(spec) => StepSpec::Random {
                    spec: Arc::new(*spec),
                    line,
                },
                Step::Stack(spec) => StepSpec::Stack {
                    spec: Arc::new(*spec),
                    line,
                },
            }
        })
        .collect();
    Ok(Case {
        source: place.below_root.unwrap_or(place.file).to_path_buf(),
        id: raw.id,
        title: raw.title,
        covers: raw.covers,
        profile: raw.profile,
        world: raw.world,
        groups: raw.groups.0,
        steps,
        program: raw.program.map(|program| {
            let line = document.line(way![PROGRAM]);
            Arc::new(located(program, place.folder(), line))
        }),
        expect: raw.expect,
    })
}

impl Checker<'_> {
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
            } else if *size > WorldSize::MAX {
                let message = format!("a world of {size} ranks");
                self.report(
                    way!["world", "size", index],
                    message,
                    format!("at most {}", WorldSize::MAX),
                );
            }
        }
        self.nodes();
        self.distinct(
            way!["world", "init", "method"],
            world.init.method.as_slice(),
        );
        let init = &world.init;
        if let Some(values) = &init.device_id {
            self.distinct(way!["world", "init", "device_id"], values.as_slice());
        }
        if let Some(values) = &init.set_device {
            self.distinct(way!["world", "init", "set_device"], values.as_slice());
        }
        if let Some(values) = &init.cpu_backend {
            self.distinct(way!["world", "init", "cpu_backend"], values.as_slice());
        }
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
            self.seconds(way!["world", field], field, seconds);
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

    /// Checks `nodes` and `placement`: each world of the case must fit on some number of nodes, and each number must have a world.
    fn nodes(&mut self) {
        let world = &self.file.world;
        let largest = self.sizes().into_iter().max();
        if let Some(nodes) = &world.nodes {
            self.distinct(way!["world", "nodes"], nodes.as_slice());
            for (index, count) in nodes.as_slice().iter().enumerate() {
                let path = way!["world", "nodes", index];
                if *count == 0 {
                    self.report(path, "a world on 0 nodes", "at least 1");
                } else if largest.is_some_and(|largest| largest.0 < *count) {
                    let message =
                        format!("no world of the case has a rank for each of {count} nodes");
                    self.report(path, message, "raise `world.size`");
                }
            }
        }
        let Some(placement) = &world.placement else {
            return;
        };
        let path = way!["world", "placement"];
        if world.nodes.is_some() {
            let hint = "leave `nodes` out: the placement has an entry for each node";
            self.report_key(path, "`placement` beside `nodes`", hint);
        }
        if placement.is_empty() || placement.contains(&0) {
            let hint = "each entry is the number of ranks on one node, at least 1: `[3, 1]`";
            self.report(path, "a node without ranks", hint);
            return;
        }
        let sum: u64 = placement.iter().map(|ranks| u64::from(*ranks)).sum();
        if self.sizes().iter().any(|size| u64::from(size.0) != sum) {
            let message = format!("the nodes have {sum} ranks, and the world another number");
            self.report(path, message, format!("write `size: {sum}`"));
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
            if let Some(seconds) = group.timeout_s {
                let path = way!["groups", name.as_str(), "timeout_s"];
                self.seconds(path, "timeout_s", seconds);
            }
            if let Some(backend) = &group.backend
                && !is_backend_pattern(backend)
            {
                let hint = "a name, or pairs: `gloo`, `cpu:gloo,{device}:{backend}`";
                let path = way!["groups", name.as_str(), "backend"];
                self.report(path, format!("`{backend}` is not a backend"), hint);
            }
            match &group.along {
                Some(along) => self.along(name, group, along.as_slice()),
                None if group.ranks == Members::Each(Vec::new()) => {
                    let path = way!["groups", name.as_str()];
                    let hint = "name its members: `ranks: all`, or `along:` an axis of the layout";
                    self.report_key(path, "`ranks` is missing", hint);
                }
                None => self.members(name, group),
            }
        }
    }

    fn layout(&mut self) {
        let Some(layout) = &self.file.layout else {
            return;
        };
        let axes: Vec<String> = layout.axes().map(str::to_owned).collect();
        for axis in &axes {
            if !is_name(axis) || axes.iter().filter(|other| *other == axis).count() > 1 {
                let message = format!("`{axis}` is no axis, or one twice");
                let hint = "names joined by `-`, each once: `tp-pp-dp`";
                self.report(way!["layout", "order"], message, hint);
                return;
            }
        }
        for (axis, degree) in &layout.degrees {
            if !axes.contains(axis) || *degree == 0 {
                let hint = format!("the order has {}; a degree is at least 1", axes.join(", "));
                let message = format!("`{axis}: {degree}` is no degree of this layout");
                let path = way!["layout", "degrees", axis.as_str()];
                self.report(path, message, hint);
                return;
            }
        }
        let size = layout.size();
        if self.sizes().iter().any(|world| world.0 != size) {
            let message = format!("the degrees make {size} ranks");
            let hint = format!("`world: {{size: {size}}}`");
            self.report_key(way!["layout", "degrees"], message, hint);
        }
    }

    fn along(&mut self, name: &str, group: &GroupSpec, along: &[String]) {
        let path = way!["groups", name, "along"];
        self.distinct(path, along);
        let Some(layout) = &self.file.layout else {
            let hint = "give the case a `layout:` with `order` and `degrees`";
            self.report_key(path, "a group along axes, and no layout", hint);
            return;
        };
        let unknown = along
            .iter()
            .find(|axis| !layout.axes().any(|known| known == axis.as_str()));
        if let Some(axis) = unknown {
            let message = format!("the layout has no axis `{axis}`");
            self.report(path, message, format!("its order is `{}`", layout.order));
        }
        if group.split {
            let hint = "leave `split` out";
            self.report_key(path, "groups along axes are made by new_group", hint);
        }
    }

    fn expect(&mut self) {
        for (index, expected) in self.file.expect.iter().enumerate() {
            let Some(fail) = &expected.fail else {
                continue;
            };
            let path = way!["expect", index, "fail", "at"];
            self.distinct(path, fail.at.as_slice());
            for at in fail.at.as_slice() {
                match group_of(at) {
                    None => {
                        let message = format!("`{at}` is no place where a scenario can fail");
                        self.report(path, message, "`group NAME`: where the group is made");
                    }
                    Some(name) if !self.file.groups.0.iter().any(|(known, _)| known == name) => {
                        let message = format!("there is no group `{name}`");
                        self.report(path, message, "`groups:` of the case names them");
                    }
                    Some(_) => {}
                }
            }
            if let Err(error) = Regex::new(&fail.error) {
                let path = way!["expect", index, "fail", "error"];
                let message = format!("`{}` is not a regular expression", fail.error);
                self.report(path, message, error.to_string());
            }
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

    fn steps(&mut self) {
        if let Some(program) = &self.file.program {
            let folder = self.place.folder();
            ProgramChecker {
                program,
                folder,
                checker: self,
            }
            .check();
        } else if !self.document.keys(way![]).contains(&"steps") {
            let hint = "say what ranks do, `steps:`, or which program they run, `program:`";
            self.report_key(way![], "neither `steps` nor `program`", hint);
        } else if self.file.steps.is_empty() {
            self.report(
                way!["steps"],
                "no steps",
                "a case makes at least one check: `- all_reduce: {}`",
            );
        }
        for (index, step) in self.file.steps.iter().enumerate() {
            match step {
                Step::Sweep(step) => StepChecker {
                    index,
                    step,
                    checker: self,
                }
                .check(),
                Step::Script(script) => ScriptChecker {
                    index,
                    script,
                    checker: self,
                }
                .check(),
                Step::Random(random) => RandomChecker {
                    index,
                    random,
                    checker: self,
                }
                .check(),
                Step::Stack(stack) => StackChecker {
                    index,
                    stack,
                    checker: self,
                }
                .check(),
            }
        }
    }
}

/// Returns whether an id is lower-case words with `/` between them.
fn is_case_id(id: &CaseId) -> bool {
    id.as_str().split('/').all(is_name)
}

/// Returns whether a text has the form of `backend=` of a group, where `{device}` and `{backend}` stand for those of the scenario.
fn is_backend_pattern(text: &str) -> bool {
    is_backend_string(&filled(text, "device", "backend"))
}
