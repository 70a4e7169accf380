//! Expands a step into checks: computes the values of each axis for the group's size, sweeps, and leaves out the
//! points that are not meaningful.

use std::borrow::Cow;
use std::sync::Arc;

use super::axes::Axes;
use super::context::ScenarioContext;
use super::op_point::{declared, unsupported_reason};
use super::random::sequence;
use super::script::{declared_of, script};
use super::sweep::points;
use super::{Check, CheckKind, Excluded, Hang, Scenario, Script, Sequence};
use crate::case::{
    LayerPoint, OneOrMany, OpSpec, RandomSpec, ScriptSpec, StackSpec, StepSpec, SweepSpec,
};
use allranks_model::axes::{Layout, LayoutOf, SplitsKind};
use allranks_model::axis::AXES;
use allranks_model::capability::Declared;
use allranks_model::names::{CheckId, RequirementId};
use allranks_model::op::Op;
use allranks_model::op_check::OpCheck;
use allranks_model::stack::StackCheck;

/// A check of the whole world that is no point of a sweep.
pub(super) struct WorldCheck<'a> {
    /// The value of its parameter `call`.
    pub word: &'static str,
    /// The requirements it covers besides those of its case.
    pub covers: &'a [RequirementId],
    /// The line of its step in the case file, from 1.
    pub line: usize,
    /// Its position in the scenario, from 0.
    pub index: u32,
}

impl WorldCheck<'_> {
    /// Makes the check, with an empty id. Platform files declare nothing of its kind, so it counts as supported.
    pub fn check(&self, place: &ScenarioContext<'_>, kind: CheckKind) -> Check {
        Check {
            id: CheckId(String::new()),
            index: self.index,
            group: Arc::clone(&place.groups[0]),
            covers: place.covers(self.covers),
            declared: Declared::Supported,
            params: vec![("call".to_owned(), self.word.to_owned())],
            at: place.at(self.line),
            kind,
        }
    }
}

/// A step about an op, and what all of its checks share.
struct Step<'a> {
    number: usize,
    spec: &'a SweepSpec,
    covers: Arc<[RequirementId]>,
    at: Arc<str>,
}

impl<'a> Step<'a> {
    fn new(place: &ScenarioContext<'_>, number: usize, spec: &'a SweepSpec) -> Self {
        Self {
            number,
            spec,
            covers: place.covers(&spec.params.covers),
            at: place.at(spec.line),
        }
    }
}

/// Appends the checks of a step to `checks`, and what is left out of it to `left_out`. `number` is the step's place in
/// the case, from 0.
pub fn expand(
    place: &ScenarioContext<'_>,
    number: usize,
    step: &StepSpec,
    checks: &mut Vec<Check>,
    left_out: &mut Vec<Excluded>,
) {
    match step {
        StepSpec::Sweep(step) => sweep(place, number, step, checks, left_out),
        StepSpec::Script { spec, line } => {
            let over: Vec<Option<&OpSpec>> = match spec.over.as_slice() {
                [] => vec![None],
                ops => ops.iter().map(Some).collect(),
            };
            for it in over {
                match scripted(place, number, spec, *line, it, checks.len() as u32) {
                    Ok(check) => checks.push(check),
                    Err(reason) => left_out.push(Excluded {
                        scenario: place.scenario.clone(),
                        step: number,
                        reason,
                        points: 1,
                    }),
                }
            }
        }
        StepSpec::Stack { spec, line } => layered(place, number, spec, *line, checks, left_out),
        StepSpec::Random { spec, line } => {
            for nth in 0..spec.count {
                match drawn(place, number, spec, *line, nth, checks.len() as u32) {
                    Ok(check) => checks.push(check),
                    Err(reason) => left_out.push(Excluded {
                        scenario: place.scenario.clone(),
                        step: number,
                        reason,
                        points: 1,
                    }),
                }
            }
        }
    }
}

/// Appends the checks of a step about a layer.
fn layered(
    place: &ScenarioContext<'_>,
    number: usize,
    spec: &StackSpec,
    line: usize,
    checks: &mut Vec<Check>,
    left_out: &mut Vec<Excluded>,
) {
    let group = &place.groups[0];
    let mut leave_out = |reason: String| match left_out.last_mut() {
        Some(last)
            if last.scenario == *place.scenario && last.step == number && last.reason == reason =>
        {
            last.points += 1;
        }
        _ => left_out.push(Excluded {
            scenario: place.scenario.clone(),
            step: number,
            reason,
            points: 1,
        }),
    };
    for at in points(spec.sweep(), &spec.lengths()) {
        let LayerPoint { layer, params } = spec.point(&at);
        if group.size() < 2 {
            leave_out("a layer on one rank does not communicate".to_owned());
            continue;
        }
        if let Some(reason) = layer.unsupported_reason(group.size() as u32) {
            leave_out(reason);
            continue;
        }
        let whole = WorldCheck {
            word: layer.name(),
            covers: spec.covers(),
            line,
            index: checks.len() as u32,
        };
        let stack = StackCheck {
            index: whole.index,
            group: Arc::clone(group),
            layer,
        };
        let mut check = whole.check(place, CheckKind::Stack(stack));
        check.params.extend(params);
        let words: Vec<Cow<'_, str>> = check
            .params
            .iter()
            .map(|(axis, value)| match value.as_bytes() {
                b"yes" | b"no" => Cow::from(format!("{axis}-{value}")),
                [first, ..] if first.is_ascii_digit() => Cow::from(format!("{axis}-{value}")),
                _ => Cow::from(value),
            })
            .collect();
        let id = format!("{}#{number}.{}", place.scenario, words.join("."));
        check.id = CheckId(id);
        checks.push(check);
    }
}

/// Makes the check of random sequence number `nth`, from 0. An error is the reason why it is left out.
pub(super) fn drawn(
    place: &ScenarioContext<'_>,
    number: usize,
    spec: &RandomSpec,
    line: usize,
    nth: u32,
    index: u32,
) -> Result<Check, String> {
    is_for(&spec.size, place)?;
    let sequence = sequence(place, spec, line, nth)?;
    let params = vec![("script".to_owned(), sequence.name.clone())];
    let script = sequenced(place, sequence, line, index)?;
    let whole = WorldCheck {
        word: "script",
        covers: &spec.covers,
        line,
        index,
    };
    Ok(of_script(place, number, (script, params), &whole))
}

/// Returns a copy of a check that plays another sequence; shrinking uses it. The data are those of a check at index 0,
/// so they do not depend on the check's place in its case.
///
/// # Errors
///
/// The sequence is not meaningful in the scenario's world.
pub fn replay(scenario: &Scenario, check: &Check, sequence: &Sequence) -> Result<Check, String> {
    let place = ScenarioContext {
        case: &scenario.case,
        scenario: &scenario.id,
        backend: &scenario.platform.backends[&scenario.backend],
        platform: &scenario.platform,
        groups: &scenario.groups,
    };
    let script = sequenced(&place, sequence.clone(), 1, 0)?;
    Ok(Check {
        kind: CheckKind::Script(Arc::new(script)),
        ..check.clone()
    })
}

/// Lowers a sequence to the script that plays it.
fn sequenced(
    place: &ScenarioContext<'_>,
    sequence: Sequence,
    line: usize,
    index: u32,
) -> Result<Script, String> {
    let spec = sequence.script()?;
    Ok(Script {
        sequence: Some(Arc::new(sequence)),
        ..script(place, &spec, None, index, line)?
    })
}

/// Returns an error if a script is not for worlds of this size.
fn is_for(sizes: &Option<OneOrMany<u32>>, place: &ScenarioContext<'_>) -> Result<(), String> {
    let size = place.groups[0].size() as u32;
    match sizes {
        Some(sizes) if !sizes.as_slice().contains(&size) => {
            Err(format!("the script is not for a world of {size}"))
        }
        _ => Ok(()),
    }
}

/// Makes the check of a script, with `it` as the op of the moves that are named so. An error is the reason why it is
/// left out.
pub(super) fn scripted(
    place: &ScenarioContext<'_>,
    number: usize,
    spec: &ScriptSpec,
    line: usize,
    it: Option<&OpSpec>,
    index: u32,
) -> Result<Check, String> {
    is_for(&spec.size, place)?;
    let declared = declared_of(place, spec)?;
    let script = script(place, spec, it.map(|it| (it.op, &it.params)), index, line)?;
    let mut params = vec![("script".to_owned(), spec.name.clone())];
    params.extend(it.map(|it| ("over".to_owned(), it.op.name().to_owned())));
    let label = script.hang.as_ref().map(Hang::label);
    let whole = WorldCheck {
        word: "script",
        covers: &spec.covers,
        line,
        index,
    };
    let mut check = of_script(place, number, (script, params), &whole);
    check.declared = declared;
    // The verdict that must be given is not part of the check's id.
    check.params.extend(label.into_iter().flatten());
    Ok(check)
}

/// Makes the check that plays a script. Its id is made of these parameters.
fn of_script(
    place: &ScenarioContext<'_>,
    number: usize,
    (script, params): (Script, Vec<(String, String)>),
    whole: &WorldCheck<'_>,
) -> Check {
    let mut check = whole.check(place, CheckKind::Script(Arc::new(script)));
    check.params.extend(params);
    let words: Vec<&str> = check
        .params
        .iter()
        .map(|(_, value)| value.as_str())
        .collect();
    check.id = CheckId(format!("{}#{number}.{}", place.scenario, words.join(".")));
    check
}

fn sweep(
    place: &ScenarioContext<'_>,
    number: usize,
    step: &SweepSpec,
    checks: &mut Vec<Check>,
    left_out: &mut Vec<Excluded>,
) {
    let of = Step::new(place, number, step);
    let world = OneOrMany::One("world".to_owned());
    let names = step.params.group.as_ref().unwrap_or(&world);
    let meant = |name: &String| {
        let name = name.clone();
        place
            .groups
            .iter()
            .filter(move |group| group.is_called(&name))
    };
    for name in names.as_slice() {
        if meant(name).next().is_none() {
            left_out.push(Excluded {
                scenario: place.scenario.clone(),
                step: number,
                reason: format!("creating group {name} must fail"),
                points: 1,
            });
        }
    }
    for group in names.as_slice().iter().flat_map(meant) {
        let name = &group.name;
        if group.ranks.is_empty() {
            left_out.push(Excluded {
                scenario: place.scenario.clone(),
                step: number,
                reason: format!("group {name} has no members in this world"),
                points: 1,
            });
            continue;
        }
        let axes = Axes::new(step, group, place.backend.promises);
        for point in points(step.params.sweep, &axes.lengths()) {
            let check = axes.check(&point, checks.len() as u32);
            match declaration_of(place, &check) {
                Ok(declared) => checks.push(named(place, &of, check, declared)),
                Err(reason) => match left_out.last_mut() {
                    Some(last)
                        if last.scenario == *place.scenario
                            && last.step == number
                            && last.reason == reason =>
                    {
                        last.points += 1;
                    }
                    _ => left_out.push(Excluded {
                        scenario: place.scenario.clone(),
                        step: number,
                        reason,
                        points: 1,
                    }),
                },
            }
        }
    }
}

/// Returns what the platform file declares of a point of a sweep.
///
/// # Errors
///
/// The reason why the point is left out: it has no meaning, or only some of the ranks would refuse it.
fn declaration_of(place: &ScenarioContext<'_>, check: &OpCheck) -> Result<Declared, String> {
    if let Some(reason) = unsupported_reason(check, place.platform.is_on_device()) {
        return Err(reason);
    }
    match declared(place, check) {
        Declared::Unsupported(_) if refusal_would_deadlock(check) => {
            Err("ranks whose tensors are refused would leave the others waiting".to_owned())
        }
        declared => Ok(declared),
    }
}

/// Returns true if a backend that refuses the layout or the sizes can do so on some ranks only, those that have such
/// tensors. The other ranks would then wait for them.
pub(super) fn refusal_would_deadlock(check: &OpCheck) -> bool {
    let on_some_ranks = match check.op {
        Op::Gather => check.layout_of == LayoutOf::Output,
        Op::Scatter => check.layout_of == LayoutOf::Input,
        Op::SendRecv | Op::IsendIrecv => check.layout_of != LayoutOf::All,
        _ => false,
    };
    // Only the root has the list.
    let list_on_root = matches!(check.op, Op::Gather | Op::Scatter)
        && matches!(
            check.splits.kind(),
            SplitsKind::Uneven | SplitsKind::WithZero
        );
    let odd = check.layout_of == LayoutOf::OddRanks;
    check.layout != Layout::Contiguous && (on_some_ranks || odd) || list_on_root
}

/// Makes the check of an op, with the parameters that reports show and the id that is made of them.
fn named(place: &ScenarioContext<'_>, step: &Step<'_>, of: OpCheck, declared: Declared) -> Check {
    let op = of.op;
    let mut params = vec![("call".to_owned(), op.name().to_owned())];
    let mut id = format!("{}#{}.{}", place.scenario, step.number, op.name());
    let mut add = |key: &str, value: String| params.push((key.to_owned(), value));
    if step.spec.params.group.is_some() {
        id += &format!(".group-{}", of.group.name);
        add("group", of.group.name.clone());
    }
    for (axis, is_given) in AXES.iter().zip(step.spec.params.given()) {
        // Plans have a million points: what is not shown is not written.
        let is_shown = axis.is_shown(op, is_given);
        if let Some(text) = is_shown.then(|| (axis.text)(&of)).flatten() {
            axis.add_to_id(&mut id, &text);
            add(axis.key, text);
        }
    }
    if let Some(late) = of.late {
        id += &format!(".late-{late}");
        add("late", late.to_string());
    }
    Check {
        id: CheckId(id),
        index: of.index,
        group: Arc::clone(&of.group),
        covers: Arc::clone(&step.covers),
        declared,
        params,
        at: Arc::clone(&step.at),
        kind: CheckKind::Op(of),
    }
}
