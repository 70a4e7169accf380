//! What is asked of a program under a launcher: one check for each thing it is judged by.

use super::context::ScenarioContext;
use super::expand::Whole;
use super::{Check, CheckKind, Hang};
use crate::case::{Case, HangSpec, Members, ProgramSpec};
use allranks_model::launcher::Launcher;
use allranks_model::names::{CheckId, RequirementId, WorldSize};

/// What one check of a program asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgramCheck {
    /// That every rank ends as it is meant to.
    Exit,
    /// That the launcher's own exit code tells whether a rank failed.
    LauncherExit,
    /// That every rank prints the line at that place of `lines`, after those before it.
    Line(usize),
    /// That no rank prints the line at that place of `never`.
    Never(usize),
    /// That the verdict is given.
    Verdict,
}

impl ProgramCheck {
    /// Everything that is asked of a program in a world of this size.
    #[must_use]
    pub fn all(program: &ProgramSpec, size: WorldSize, launcher: Launcher) -> Vec<Self> {
        let mut all = Vec::new();
        if program.judges_exits(size) {
            all.push(Self::Exit);
        }
        if launcher == Launcher::Torchrun && program.launcher_succeeds(size).is_some() {
            all.push(Self::LauncherExit);
        }
        all.extend((0..program.lines.len()).map(Self::Line));
        all.extend((0..program.never.len()).map(Self::Never));
        all.extend(program.hang.iter().map(|_| Self::Verdict));
        all
    }

    /// Everything that is asked of a case's program in some world, each maybe several times; nothing if it has none.
    pub fn of_case(case: &Case) -> impl Iterator<Item = Self> {
        case.program.iter().flat_map(|program| {
            let sizes = case.world.size.as_slice().iter().copied().map(WorldSize);
            let launchers = program.launcher.as_slice();
            sizes.flat_map(move |size| {
                let all = launchers
                    .iter()
                    .map(move |launcher| Self::all(program, size, *launcher));
                all.flatten()
            })
        })
    }

    /// The word for it, in the ids of checks.
    #[must_use]
    pub fn name(self) -> String {
        match self {
            Self::Exit => "exit".to_owned(),
            Self::LauncherExit => "launcher-exit".to_owned(),
            Self::Line(index) => format!("line-{}", index + 1),
            Self::Never(index) => format!("never-{}", index + 1),
            Self::Verdict => "verdict".to_owned(),
        }
    }

    /// The requirement that it is about.
    #[must_use]
    pub fn covers(self) -> RequirementId {
        RequirementId::from(match self {
            Self::Exit => "PROG-001",
            Self::Line(_) | Self::Never(_) => "PROG-002",
            Self::LauncherExit => "PROG-003",
            Self::Verdict => "PROG-004",
        })
    }
}

/// The verdict that must be given on a program.
#[must_use]
pub fn hang(spec: &HangSpec, size: WorldSize) -> Hang {
    let culprits = spec.culprit.as_ref();
    Hang {
        kind: spec.kind,
        culprits: culprits.map_or_else(Vec::new, |members: &Members| members.in_world(size)),
        within: spec.within.0,
        silent: None,
    }
}

/// The checks of a program.
pub fn checks(
    place: &ScenarioContext<'_>,
    program: &ProgramSpec,
    launcher: Launcher,
) -> Vec<Check> {
    let size = WorldSize(place.groups[0].size() as u32);
    let mut checks = Vec::new();
    for demand in ProgramCheck::all(program, size, launcher) {
        let covers = demand.covers();
        let is_covered = place.case.covers.contains(&covers);
        let whole = Whole {
            word: "program",
            covers: if is_covered { &[] } else { &[covers] },
            line: program.line,
            index: checks.len() as u32,
        };
        let mut check = whole.check(place, CheckKind::Program(demand));
        check.id = CheckId(format!("{}#{}", place.scenario, demand.name()));
        check.params.push(("asks".to_owned(), demand.name()));
        let line = match demand {
            ProgramCheck::Line(index) => Some(&program.lines[index].line),
            ProgramCheck::Never(index) => Some(&program.never[index].line),
            ProgramCheck::Exit | ProgramCheck::LauncherExit | ProgramCheck::Verdict => None,
        };
        if let Some(line) = line {
            check.params.push(("line".to_owned(), line.clone()));
        }
        if let (ProgramCheck::Verdict, Some(spec)) = (demand, &program.hang) {
            check.params.extend(hang(spec, size).label());
        }
        checks.push(check);
    }
    checks
}
