//! Plans the checks of a program under a launcher: one for each thing that it is checked for.

use super::context::ScenarioContext;
use super::expand::WorldCheck;
use super::{Check, CheckKind, Hang, HangSymptom};
use crate::case::{Case, HangSpec, Members, ProgramSpec};
use allranks_model::launcher::Launcher;
use allranks_model::names::{CheckId, RequirementId, WorldSize};

/// One thing that a program is checked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgramCheck {
    /// Every rank ends as `exit:` says.
    Exit,
    /// The launcher's own exit code says whether a rank failed.
    LauncherExit,
    /// Every rank prints the line at this place of `lines`, from 0, after those before it.
    Line(usize),
    /// No rank prints the line at this place of `never`, from 0.
    Never(usize),
    /// The hang verdict is given.
    Verdict,
}

impl ProgramCheck {
    /// Returns everything that a program is checked for in a world of this size under this launcher.
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

    /// Iterates over everything that a case's program is checked for in some world, with repetitions. Empty if the
    /// case has no program.
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

    /// Returns its name in the ids of checks: `exit`, `line-1`.
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

    /// Returns the requirement that it covers.
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

/// Returns the hang verdict that must be given on a program in a world of this size.
#[must_use]
pub fn hang(spec: &HangSpec, size: WorldSize) -> Hang {
    let culprits = spec.culprit.as_ref();
    Hang {
        kind: spec.kind,
        culprits: culprits.map_or_else(Vec::new, |members: &Members| members.in_world(size)),
        within: spec.within.0,
        symptom: HangSymptom::Either,
    }
}

/// Returns the checks of a program. Each covers its own requirement besides those of the case.
pub fn checks(
    place: &ScenarioContext<'_>,
    program: &ProgramSpec,
    launcher: Launcher,
) -> Vec<Check> {
    let size = WorldSize(place.groups[0].size() as u32);
    let mut checks = Vec::new();
    for program_check in ProgramCheck::all(program, size, launcher) {
        let covers = program_check.covers();
        let is_covered = place.case.covers.contains(&covers);
        let whole = WorldCheck {
            word: "program",
            covers: if is_covered { &[] } else { &[covers] },
            line: program.line,
            index: checks.len() as u32,
        };
        let mut check = whole.check(place, CheckKind::Program(program_check));
        check.id = CheckId(format!("{}#{}", place.scenario, program_check.name()));
        check.params.push(("asks".to_owned(), program_check.name()));
        let line = match program_check {
            ProgramCheck::Line(index) => Some(&program.lines[index].line),
            ProgramCheck::Never(index) => Some(&program.never[index].line),
            ProgramCheck::Exit | ProgramCheck::LauncherExit | ProgramCheck::Verdict => None,
        };
        if let Some(line) = line {
            check.params.push(("line".to_owned(), line.clone()));
        }
        if let (ProgramCheck::Verdict, Some(spec)) = (program_check, &program.hang) {
            check.params.extend(hang(spec, size).label());
        }
        checks.push(check);
    }
    checks
}
