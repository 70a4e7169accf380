//! What is asked of a program under a launcher: one check for each thing it is judged by.

use std::sync::Arc;

use super::expand::{ScenarioContext, single};
use super::{Check, Hang};
use crate::case::{HangSpec, Members, ProgramSpec, StepParams, SweepSpec};
use allranks_model::capability::Declared;
use allranks_model::launcher::Launcher;
use allranks_model::names::{CheckId, RequirementId, WorldSize};
use allranks_model::op::Op;

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
    let world = &place.groups[0];
    let size = WorldSize(world.size() as u32);
    let mut checks = Vec::new();
    for demand in ProgramCheck::all(program, size, launcher) {
        let step = SweepSpec {
            op: Op::Program,
            params: StepParams {
                covers: match place.case.covers.contains(&demand.covers()) {
                    true => Vec::new(),
                    false => vec![demand.covers()],
                },
                ..StepParams::default()
            },
            line: program.line,
        };
        let Ok(mut check) = single(place, 0, &step, &Arc::clone(world), checks.len() as u32) else {
            unreachable!("a program has no parameters that could contradict each other");
        };
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
        check.demand = Some(demand);
        check.declared = Declared::Supported;
        checks.push(check);
    }
    checks
}
