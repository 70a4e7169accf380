//! Writes the moves of a check that is a script, as a person would write them.
//!
//! In: a scenario and a check with a script. Out: Python code: the helpers that the moves use, the moves, and the end of the
//! program. Ranks synchronise over a store of marks, which is separate from that of the world. Lines that several ranks share are
//! written once, and each rank's moves stay in order.

mod moves;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::sync::Arc;

use super::calls::{CallSite, Writer, is_too_large};
use super::literal::list;
use super::tables::{OpObjects, OpTensors};
use super::{ReproError, put_line};
use allranks_model::names::Rank;
use allranks_model::op_check::OpCheck;
use allranks_oracle::{Answer, ExpectedTensor};
use allranks_runner::script::{CompiledScript, Endpoints};
use allranks_suite::case::{Afterwards, Starts};
use allranks_suite::plan::{Act, Check, Move, Scenario, Script};

const SIDE: &str = include_str!("../template/script/side.py");
const MUST: &str = include_str!("../template/script/must.py");
const SOMEWHERE: &str = include_str!("../template/script/somewhere.py");
const TOGETHER: &str = include_str!("../template/script/together.py");
const CENSUS: &str = include_str!("../template/script/census.py");
const WHO_AM_I: &str = include_str!("../template/script/who_am_i.py");
const PAUSE: &str = include_str!("../template/script/pause.py");
const GROUP: &str = include_str!("../template/script/group.py");

/// A script of moves, written as a Python program.
pub(super) struct ScriptProgram<'a> {
    scenario: &'a Scenario,
    script: &'a Script,
    ops: Vec<Op<'a>>,
    marks: BTreeMap<&'a str, BTreeSet<Rank>>,
    /// The sources of the functions of `python` moves.
    functions: Vec<&'a str>,
    /// The rank that hosts the store of marks: one that runs to the end, if there is one.
    host: Rank,
    /// The code of the moves.
    text: String,
}

/// An op that the script issues, and the state of its code.
struct Op<'a> {
    check: &'a OpCheck,
    name: String,
    expected_tensors: Vec<Vec<ExpectedTensor>>,
    /// For each rank, the writer of its calls.
    writers: Vec<Writer<'a>>,
    is_judged: bool,
    /// For each rank, the indices of the calls that it has issued and that gave works.
    works: Vec<BTreeSet<usize>>,
    issued: BTreeSet<Rank>,
}

/// Returns true if a rank ends, or is stopped for good, before the end of the script.
pub(super) fn has_early_end(script: &Script) -> bool {
    script
        .moves
        .iter()
        .any(|one| matches!(one.act, Act::Die(_) | Act::Exit(_) | Act::Freeze))
}

/// Returns true if `torchrun` can start the reproducer. It cannot if a rank ends before the others, because `torchrun` then ends
/// all of them, or if ranks initialise more than once, because its store keeps the keys of the first init.
pub(super) fn can_use_torchrun(scenario: &Scenario, script: &Script) -> bool {
    !has_early_end(script) && scenario.case.world.starts != Starts::Bare
}

/// Writes a script's moves and makes its tables. `then` writes the file around them.
pub(super) fn script_program<T>(
    scenario: &Scenario,
    check: &Check,
    script: &Arc<Script>,
    seed: u64,
    then: impl FnOnce(&ScriptProgram<'_>, &[OpTensors], &[OpObjects]) -> T,
) -> Result<T, ReproError> {
    let points = Endpoints {
        all: vec![(0, String::new()); 64],
        ..Endpoints::default()
    };
    let compiled = CompiledScript::new(scenario, check, script, &points, seed)
        .map_err(ReproError::Unstaged)?;
    let names = op_names(script);
    let ranks = || scenario.world_size.ranks();
    let answers: Vec<Vec<Vec<(usize, &Answer)>>> = compiled
        .parts()
        .map(|(prepared, _)| {
            ranks()
                .map(|rank| prepared.answers(rank).collect())
                .collect()
        })
        .collect();
    let expected_tensors: Vec<Vec<Vec<ExpectedTensor>>> = compiled
        .parts()
        .map(|(prepared, _)| {
            ranks()
                .map(|rank| prepared.expected_tensors(rank))
                .collect()
        })
        .collect();
    let mut ops = Vec::new();
    for (number, (prepared, is_judged)) in compiled.parts().enumerate() {
        let check = &script.checks[number];
        let calls = prepared.steps().iter().flat_map(|step| &step.step.calls);
        if calls.into_iter().any(is_too_large) {
            return Err(ReproError::Grown);
        }
        let writers = ranks().map(|rank| {
            Writer::new(&CallSite {
                step: &prepared.steps()[rank.index()].step,
                expected_tensors: &expected_tensors[number][rank.index()],
                answers: &answers[number][rank.index()],
                group_size: check.group.size(),
                name: &names[number],
                has_groups: true,
            })
        });
        ops.push(Op {
            check,
            name: names[number].clone(),
            expected_tensors: expected_tensors[number].clone(),
            writers: writers.collect(),
            is_judged,
            works: vec![BTreeSet::new(); scenario.world_size.count()],
            issued: BTreeSet::new(),
        });
    }
    let mut script_program = ScriptProgram {
        scenario,
        script,
        ops,
        marks: BTreeMap::new(),
        functions: Vec::new(),
        host: marks_host(scenario, script),
        text: String::new(),
    };
    script_program.write(&compiled);
    let (parts, passed) = script_program.tables();
    Ok(then(&script_program, &parts, &passed))
}

/// Returns the name of each op: its work's name or its own; empty if there is only one op.
fn op_names(script: &Script) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    if script.checks.len() < 2 {
        return vec![String::new(); script.checks.len()];
    }
    let labels = first_labels(&script.moves);
    for number in 0..script.checks.len() {
        let label = labels.get(&number).copied().unwrap_or_default();
        let label = label.split_once(' ').map_or(label, |(_, name)| name);
        let stem: String = label
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() { c } else { '_' })
            .collect();
        let mut name = stem.clone();
        for copy in 2.. {
            if !names.contains(&name) {
                break;
            }
            name = format!("{stem}_{copy}");
        }
        names.push(name);
    }
    names
}

/// Returns the label of the first move that issues each check.
fn first_labels(moves: &[Move]) -> BTreeMap<usize, &str> {
    let mut labels = BTreeMap::new();
    for one in moves {
        match &one.act {
            Act::Issue { check, .. } => {
                labels.entry(*check).or_insert(one.label.as_str());
            }
            Act::Together(threads) => {
                for (check, label) in threads.iter().flat_map(|thread| first_labels(thread)) {
                    labels.entry(check).or_insert(label);
                }
            }
            _ => {}
        }
    }
    labels
}

/// Returns the first rank that neither ends early nor is stopped; if there is none, the first that does not end early.
fn marks_host(scenario: &Scenario, script: &Script) -> Rank {
    let is_in = |rank: &Rank, stops: bool| {
        script.moves.iter().any(|one| {
            one.ranks.contains(rank)
                && match one.act {
                    Act::Die(_) | Act::Exit(_) | Act::Freeze => true,
                    Act::Pause(_) => stops,
                    _ => false,
                }
        })
    };
    let ranks = || scenario.world_size.ranks();
    ranks()
        .find(|rank| !is_in(rank, true))
        .or_else(|| ranks().find(|rank| !is_in(rank, false)))
        .unwrap_or(Rank(0))
}

impl<'a> ScriptProgram<'a> {
    /// Returns the ranks that run to the end.
    fn staying(&self) -> Vec<Rank> {
        let leaves = |rank: &Rank| {
            self.script.moves.iter().any(|one| {
                one.ranks.contains(rank)
                    && matches!(one.act, Act::Die(_) | Act::Exit(_) | Act::Freeze)
            })
        };
        self.scenario
            .world_size
            .ranks()
            .filter(|rank| !leaves(rank))
            .collect()
    }

    fn tables(&self) -> (Vec<OpTensors>, Vec<OpObjects>) {
        let is_alone = self.ops.len() == 1;
        let mut parts = Vec::new();
        for op in self.ops.iter().filter(|op| op.check.op.has_tensors()) {
            let expected_tensors =
                (0..)
                    .zip(&op.expected_tensors)
                    .map(|(rank, expected_tensors)| {
                        match op.is_judged || op.issued.contains(&Rank(rank)) {
                            true => expected_tensors.clone(),
                            false => Vec::new(),
                        }
                    });
            parts.push(OpTensors {
                prefix: match is_alone {
                    true => String::new(),
                    false => format!("{}.", op.name),
                },
                dtype: op.check.dtype,
                expected_tensors: expected_tensors.collect(),
                is_judged: op.is_judged,
            });
        }
        let passed = self.ops.iter().map(|op| OpObjects {
            suffix: match is_alone {
                true => String::new(),
                false => format!("_{}", op.name),
            },
            codes: op
                .writers
                .iter()
                .map(|writer| writer.code.clone())
                .collect(),
        });
        (parts, passed.collect())
    }

    /// Returns the helper functions that the moves use, and the code that makes the store of marks.
    pub(super) fn before(&self) -> String {
        let mut out = String::new();
        for (word, helper) in [
            ("must(", MUST),
            ("together(", TOGETHER),
            ("census()", CENSUS),
            ("who_am_i(", WHO_AM_I),
            ("stop(", PAUSE),
            ("group(\"", GROUP),
            ("group('", GROUP),
        ] {
            let is_used = self.text.contains(word)
                || self.functions.iter().any(|source| source.contains(word));
            if is_used && !out.contains(helper) {
                out.push_str(helper);
            }
        }
        out.push_str(&SIDE.replace("HOST", &self.host.to_string()));
        if self.text.contains("{folder}") {
            out.push_str(&format!(
                "if rank == {}:\n    side.set(\"folder\", tempfile.mkdtemp())\nfolder = side.get(\"folder\").decode()\n",
                self.host
            ));
        }
        out
    }

    /// Returns the Python modules that the helper functions need.
    pub(super) fn modules(&self) -> Vec<&'static str> {
        let mut modules = vec!["traceback"];
        let helpers = self.before();
        for (module, word) in [
            ("gc", "gc."),
            ("re", "re."),
            ("signal", "signal."),
            ("subprocess", "subprocess."),
            ("tempfile", "tempfile."),
        ] {
            if helpers.contains(&format!(" {word}"))
                || helpers.contains(&format!("({word}"))
                || self.text.contains(&format!(" {word}"))
                || self.text.contains(&format!("({word}"))
            {
                modules.push(module);
            }
        }
        modules
    }

    /// Writes the functions of `python` moves, and the moves.
    pub(super) fn body(&self, out: &mut String) {
        let is_used = |word: &str| {
            self.text.contains(word) || self.functions.iter().any(|source| source.contains(word))
        };
        let is_made =
            self.scenario.groups.len() > 1 && self.scenario.case.world.starts != Starts::Bare;
        if !is_made && (is_used("groups[") || is_used("groups.") || is_used("group(")) {
            out.push_str("groups = {}\n");
        }
        if is_used("device") {
            out.push_str("device = DEVICE\n");
        }
        if self.scenario.platform.is_on_device() && !self.functions.is_empty() {
            out.push_str("torch.set_default_device(DEVICE)\n");
        }
        if is_used("world_size") {
            out.push_str("world_size = int(os.environ[\"WORLD_SIZE\"])\n");
        }
        for (number, source) in (1..).zip(&self.functions) {
            out.push_str(&format!("\n\ndef python_{number}():\n"));
            let gives = source.contains("result");
            if gives {
                out.push_str("    result = None\n");
            }
            for line in source.trim_end().lines() {
                match line.trim().is_empty() {
                    true => out.push('\n'),
                    false => writeln!(out, "    {line}").expect("a string takes it"),
                }
            }
            if gives {
                out.push_str("    return result\n");
            }
        }
        if !self.functions.is_empty() {
            out.push_str("\n\n");
        }
        if !out.ends_with("\n\n") {
            out.push('\n');
        }
        out.push_str("doing = \"the script\"\ntry:\n");
        out.push_str(&self.text);
        out.push_str("except Exception as error:\n    frame = traceback.extract_tb(error.__traceback__)[0]\n    problems.append(f\"raised in line {frame.lineno} ({frame.line}): {type(error).__name__}: {error}\")\n");
    }

    /// Writes the end of the program: the remaining ranks wait for each other, and print "as expected".
    pub(super) fn after(&self, out: &mut String) {
        let staying = list(self.staying());
        if self.text.contains("somewhere=") {
            out.push_str(&SOMEWHERE.replace("STAYING", &staying));
        }
        out.push_str("mark(\"the end\")\nif problems:\n    fail()\n");
        out.push_str(&format!(
            "hold(\"the end\", {staying})  # no rank leaves before all that stay have come here\nif rank == {}:\n    time.sleep(1)  # the others still read its store\nsay(\"as expected\")\n",
            self.host
        ));
        match (self.script.afterwards, self.scenario.case.world.starts) {
            (Afterwards::Abandon, _) => out.push_str("os._exit(0)\n"),
            (Afterwards::Leave, _) => {
                out.push_str("watchdog.cancel()  # and no destroy_process_group: it must end all the same\n");
            }
            (Afterwards::GoOn, Starts::Bare) => out.push_str("watchdog.cancel()\n"),
            (Afterwards::GoOn, _) => out.push_str(
                "doing = \"destroy_process_group\"\ndist.destroy_process_group()\nwatchdog.cancel()\n",
            ),
        }
    }

    fn write(&mut self, compiled: &CompiledScript) {
        let calls: Vec<Vec<_>> = compiled
            .parts()
            .map(|(prepared, _)| {
                let steps = prepared.steps().iter();
                steps.map(|step| step.step.calls.as_slice()).collect()
            })
            .collect();
        for one in &self.script.moves {
            if let Act::Mark(name) = &one.act {
                self.marks.entry(name).or_default().extend(&one.ranks);
            }
        }
        // The lines of each move and the ranks that run them, in order; neighbours with the same ranks are joined to
        // one block.
        let mut blocks: Vec<(Vec<Rank>, Vec<String>)> = Vec::new();
        let everyone: Vec<Rank> = self.scenario.world_size.ranks().collect();
        let mut left: BTreeSet<Rank> = BTreeSet::new();
        let script = self.script;
        for one in &script.moves {
            let mut kinds: Vec<(Vec<Rank>, Vec<String>)> = Vec::new();
            for rank in &one.ranks {
                let lines = self.lines(*rank, one, &calls);
                match kinds.iter_mut().find(|(_, same)| *same == lines) {
                    _ if lines.is_empty() => {}
                    Some((ranks, _)) => ranks.push(*rank),
                    None => kinds.push((vec![*rank], lines)),
                }
            }
            for (mut ranks, lines) in kinds {
                ranks.sort_unstable();
                // Ranks that have ended do not reach this line.
                if ranks.iter().chain(&left).count() == everyone.len() {
                    ranks.clone_from(&everyone);
                }
                match blocks.last_mut() {
                    Some((same, block)) if *same == ranks => block.extend(lines),
                    _ => blocks.push((ranks, lines)),
                }
            }
            if matches!(one.act, Act::Die(_) | Act::Exit(_) | Act::Freeze) {
                left.extend(&one.ranks);
            }
        }
        let mut out = String::new();
        for (ranks, lines) in blocks {
            let indent = match &*ranks {
                all if *all == everyone => 4,
                [rank] => {
                    writeln!(out, "    if rank == {rank}:").expect("a string takes it");
                    8
                }
                ranks => {
                    writeln!(out, "    if rank in {}:", list(ranks)).expect("a string takes it");
                    8
                }
            };
            lines
                .iter()
                .for_each(|line| put_line(&mut out, indent, line));
        }
        if out.is_empty() {
            out.push_str("    pass\n");
        }
        self.text = out;
    }
}
