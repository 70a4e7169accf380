//! Writes the moves of a check that is a script, as a person would write them.
//!
//! In: a scenario and a check with a script. Out: Python: what stands before the moves (helpers that they use), the
//! moves, and what follows them. Ranks keep in step over a store of their own; what several ranks do alike is written
//! once, and each rank's moves stay in their order.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::sync::Arc;

use super::calls::{CallSite, Writer, is_too_large, new_group};
use super::literal::{Objects, list, text};
use super::tables::{Part, Passed};
use super::{ReproError, put_line};
use allranks_model::axes::Pairs;
use allranks_model::names::Rank;
use allranks_model::op_check::OpCheck;
use allranks_model::store::StoreMethod;
use allranks_oracle::{Answer, ExpectedTensor};
use allranks_protocol::Call;
use allranks_runner::script::{CompiledScript, Endpoints, turn};
use allranks_suite::case::{Afterwards, ExpectSpec, InitMove, Starts, SteadySpec};
use allranks_suite::plan::{Act, Check, MessageAct, Move, Scenario, Script};

const SIDE: &str = include_str!("template/script/side.py");
const MUST: &str = include_str!("template/script/must.py");
const SOMEWHERE: &str = include_str!("template/script/somewhere.py");
const TOGETHER: &str = include_str!("template/script/together.py");
const CENSUS: &str = include_str!("template/script/census.py");
const WHO_AM_I: &str = include_str!("template/script/who_am_i.py");
const PAUSE: &str = include_str!("template/script/pause.py");
const GROUP: &str = include_str!("template/script/group.py");

/// Ports after `MASTER_PORT` that the script itself takes: torchrun's, and that of the store for marks.
const PORTS: u32 = 2;

/// A script of moves, written as a Python program.
pub(super) struct ScriptProgram<'a> {
    scenario: &'a Scenario,
    script: &'a Script,
    ops: Vec<Op<'a>>,
    marks: BTreeMap<&'a str, BTreeSet<Rank>>,
    /// The sources of the functions of `python` moves.
    functions: Vec<&'a str>,
    /// The rank that holds the store of marks: one that stays and runs, if there is one.
    host: Rank,
    /// The code of the moves.
    text: String,
}

/// An op that the script issues, and what has been written of it.
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

/// Returns true if a rank ends, or stops for good, in the middle of the script.
pub(super) fn leaves(script: &Script) -> bool {
    script
        .moves
        .iter()
        .any(|one| matches!(one.act, Act::Die(_) | Act::Exit(_) | Act::Freeze))
}

/// Returns true if `torchrun` may start the script: not if a rank ends before the others, because `torchrun` then
/// ends the others too, and not if ranks initialise more than once, because its store remembers the first time.
pub(super) fn takes_torchrun(scenario: &Scenario, script: &Script) -> bool {
    !leaves(script) && scenario.case.world.starts != Starts::Bare
}

/// Writes a script's moves and hands over its tables; `then` writes the file around them.
pub(super) fn script_program<T>(
    scenario: &Scenario,
    check: &Check,
    script: &Arc<Script>,
    seed: u64,
    then: impl FnOnce(&ScriptProgram<'_>, &[Part], &[Passed]) -> T,
) -> Result<T, ReproError> {
    let points = Endpoints {
        all: vec![(0, String::new()); 64],
        ..Endpoints::default()
    };
    let compiled = CompiledScript::new(scenario, check, script, &points, seed)
        .map_err(ReproError::Unstaged)?;
    let names = names(script);
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
        host: host(scenario, script),
        text: String::new(),
    };
    script_program.write(&compiled);
    let (parts, passed) = script_program.tables();
    Ok(then(&script_program, &parts, &passed))
}

/// Returns the name of each op: its work's name or its own; empty if there is only one op.
fn names(script: &Script) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    if script.checks.len() < 2 {
        return vec![String::new(); script.checks.len()];
    }
    let labels = labels(&script.moves);
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

/// The label of the first move that issues each check.
fn labels(moves: &[Move]) -> BTreeMap<usize, &str> {
    let mut labels = BTreeMap::new();
    for one in moves {
        match &one.act {
            Act::Issue { check, .. } => {
                labels.entry(*check).or_insert(one.label.as_str());
            }
            Act::Together(threads) => {
                for (check, label) in threads.iter().flat_map(|thread| self::labels(thread)) {
                    labels.entry(check).or_insert(label);
                }
            }
            _ => {}
        }
    }
    labels
}

/// The first rank that neither leaves nor is stopped; the first that stays, if there is none.
fn host(scenario: &Scenario, script: &Script) -> Rank {
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
    /// Ranks that are there at the end.
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

    fn tables(&self) -> (Vec<Part>, Vec<Passed>) {
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
            parts.push(Part {
                prefix: match is_alone {
                    true => String::new(),
                    false => format!("{}.", op.name),
                },
                dtype: op.check.dtype,
                expected_tensors: expected_tensors.collect(),
                is_judged: op.is_judged,
            });
        }
        let passed = self.ops.iter().map(|op| Passed {
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

    /// Writes the end of the program: ranks wait for each other, and say that all went as expected.
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
                // Ranks that have left do not reach this point.
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

    /// Returns the lines of the program for what a rank does in a move.
    fn lines(&mut self, rank: Rank, one: &'a Move, calls: &[Vec<&[Call]>]) -> Vec<String> {
        let expect = one.expect.as_ref();
        let me = rank.index();
        let mut statements: Vec<Vec<String>> = Vec::new();
        let mut plain = |line: String| statements.push(vec![line]);
        let group = |name: &str| match name {
            "world" => "None".to_owned(),
            name => format!("groups[{}]", text(name)),
        };
        let mut what = one.label.clone();
        match &one.act {
            Act::Issue {
                check,
                keeps,
                message,
                ..
            } => {
                statements = self.issue(rank, *check, *keeps, *message, calls[*check][me]);
            }
            Act::Wait { checks, timeout_ms } => {
                let timeout = timeout_ms
                    .map(|ms| format!("timedelta(milliseconds={ms})"))
                    .unwrap_or_default();
                for work in checks.iter().flat_map(|check| self.works(rank, *check)) {
                    plain(format!("{work}.wait({timeout})"));
                }
            }
            Act::IsCompleted { check, is } => {
                let is = if *is { "True" } else { "False" };
                for work in self.works(rank, *check) {
                    plain(format!(
                        "expect({}, {work}.is_completed(), {is})",
                        text(&format!("{work}.is_completed()"))
                    ));
                }
            }
            Act::Future(check) => {
                for work in self.works(rank, *check) {
                    statements.push(vec![
                        format!("future = {work}.get_future()"),
                        "future.wait()".to_owned(),
                        "expect(\"future.done()\", future.done(), True)".to_owned(),
                    ]);
                }
            }
            Act::Drop(check) => {
                for work in self.works(rank, *check) {
                    statements.push(vec![format!("del {work}"), "gc.collect()".to_owned()]);
                }
            }
            Act::Mark(name) => plain(format!("mark({})", text(name))),
            Act::Hold(name) => {
                let ranks = self.marks.get(name.as_str()).cloned().unwrap_or_default();
                plain(format!("hold({}, {})", text(name), list(ranks)));
            }
            Act::Sleep(ms) => plain(format!("time.sleep({})", *ms as f64 / 1000.0)),
            Act::Pause(ms) => plain(format!("stop({})", *ms as f64 / 1000.0)),
            Act::Freeze => plain("stop(DEADLINE, \"KILL\")".to_owned()),
            Act::Die(signal) => statements.push(vec![
                format!("say(\"dies of signal {signal}, as it is to\")"),
                format!("os.kill(os.getpid(), {signal})"),
                "time.sleep(60)  # until it comes".to_owned(),
            ]),
            Act::Exit(code) => statements.push(vec![
                format!("say(\"leaves; its exit code must be {code}\")"),
                format!("sys.exit({code})"),
            ]),
            Act::Census(name) => plain(format!("census_{} = census()", identifier(name))),
            Act::Steady(spec) => plain(steady(spec)),
            Act::WhoAmI(name) => {
                let call = format!("who_am_i({})", group(name));
                plain(match expect.and_then(|expect| expect.value.as_ref()) {
                    Some(value) => format!(
                        "expect({}, {call}, {})",
                        text(&call),
                        Objects::default().literal(value)
                    ),
                    None => call,
                });
            }
            Act::Setenv(name, Some(value)) => {
                plain(format!("os.environ[{}] = {}", text(name), text(value)));
            }
            Act::Setenv(name, None) => plain(format!("os.environ.pop({}, None)", text(name))),
            Act::Init(init) => plain(self.init(init)),
            Act::Destroy(name) => plain(match name.as_str() {
                "world" => "dist.destroy_process_group()".to_owned(),
                name => format!("dist.destroy_process_group(groups.pop({}))", text(name)),
            }),
            Act::NewGroup {
                name,
                ranks,
                backend,
                timeout_s,
                local_sync,
            } => {
                let timeout = timeout_s.unwrap_or(self.scenario.case.world.timeout_s);
                let made = new_group(&list(ranks), timeout, backend.as_deref(), *local_sync);
                plain(format!("groups[{}] = {made}", text(name)));
            }
            Act::Abort(name) => plain(match name.as_str() {
                "world" => "dist.group.WORLD.abort()".to_owned(),
                name => format!("{}.abort()", group(name)),
            }),
            Act::Python { source, .. } => {
                let call = self.python(source);
                if call.starts_with("dist.") {
                    what = call.split('(').next().unwrap_or_default().to_owned();
                }
                let value = expect.and_then(|expect| expect.value.as_ref());
                plain(match value {
                    Some(value) => format!(
                        "expect({}, {call}, {})",
                        text(&call),
                        Objects::default().literal(value)
                    ),
                    None => call,
                });
            }
            Act::Together(threads) => {
                let mut lines = Vec::new();
                let mut bodies = Vec::new();
                for (number, thread) in threads.iter().enumerate() {
                    let mut own: Vec<String> = Vec::new();
                    for inner in thread.iter().filter(|inner| inner.ranks.contains(&rank)) {
                        own.extend(self.lines(rank, inner, calls));
                    }
                    if own.is_empty() {
                        continue;
                    }
                    lines.push(format!("def thread_{number}():"));
                    lines.extend(own.iter().map(|line| format!("    {line}")));
                    bodies.push(format!("thread_{number}"));
                }
                lines.push(format!("together({})", bodies.join(", ")));
                statements.push(lines);
            }
        }
        let must = expect.and_then(|expect| must(expect, &what));
        match must {
            None => statements.concat(),
            Some(must) => statements
                .into_iter()
                .flat_map(|lines| {
                    let lines = lines.into_iter().map(|line| format!("    {line}"));
                    std::iter::once(must.clone()).chain(lines)
                })
                .collect(),
        }
    }

    /// The calls of an op, each with its lines.
    fn issue(
        &mut self,
        rank: Rank,
        check: usize,
        keeps: bool,
        message: Option<MessageAct>,
        calls: &[Call],
    ) -> Vec<Vec<String>> {
        let op = &mut self.ops[check];
        op.issued.insert(rank);
        let mut statements = Vec::new();
        for (sub, call) in calls.iter().enumerate() {
            if matches!(call, Call::Wait { .. }) && (keeps || message.is_some()) {
                continue;
            }
            let call = match message {
                None => Some(call.clone()),
                Some(message) => turn(call.clone(), message),
            };
            let Some(call) = call else { continue };
            let writer = &mut op.writers[rank.index()];
            writer.code.lines.clear();
            writer.one(sub, &call);
            let mut lines = std::mem::take(&mut writer.code.lines);
            if let (Call::Recv { peer: None, .. }, [line]) = (&call, &mut *lines)
                && let Pairs::Link { from, .. } = op.check.pairs
                && !line.contains("sender")
            {
                let sender = op.check.group.ranks[from as usize];
                *line = format!("expect(\"the sender that recv returns\", {line}, {sender})");
            }
            if call.keeps_work() {
                op.works[rank.index()].insert(sub);
            }
            statements.push(lines);
        }
        statements
    }

    /// The variables of a rank's works of an op.
    fn works(&self, rank: Rank, check: usize) -> Vec<String> {
        let op = &self.ops[check];
        let writer = &op.writers[rank.index()];
        let works = op.works[rank.index()].iter();
        works.map(|sub| writer.work(*sub)).collect()
    }

    /// A `python` move: the statement itself if it is one call, else a function.
    fn python(&mut self, source: &'a str) -> String {
        let source = source.trim_end();
        let is_one = !source.contains(['\n', ';'])
            && source.starts_with("dist.")
            && source
                .split('(')
                .next()
                .is_some_and(|name| !name.contains('='));
        if is_one {
            return source.to_owned();
        }
        let known = self.functions.iter().position(|known| *known == source);
        let number = known.unwrap_or_else(|| {
            self.functions.push(source);
            self.functions.len() - 1
        });
        format!("python_{}()", number + 1)
    }

    fn init(&self, init: &InitMove) -> String {
        let backend = &self.scenario.backend;
        let declared = self.scenario.platform.backends[backend].init.as_ref();
        let backend = init
            .backend
            .as_ref()
            .unwrap_or_else(|| declared.unwrap_or(backend));
        let timeout = init.timeout_s.unwrap_or(self.scenario.case.world.timeout_s);
        let timeout = format!("timeout=timedelta(seconds={timeout})");
        let size = init.world_size.unwrap_or(self.scenario.world_size.0);
        let me = init
            .rank
            .map_or_else(|| "rank".to_owned(), |rank| rank.to_string());
        let arguments = format!("rank={me}, world_size={size}");
        let port = init.point + PORTS;
        let how = match init.method.unwrap_or(StoreMethod::Env) {
            StoreMethod::Env => "init_method=\"env://\"".to_owned(),
            StoreMethod::Tcp => {
                format!("init_method=f\"tcp://127.0.0.1:{{port + {port}}}\", {arguments}")
            }
            StoreMethod::File => {
                format!(
                    "init_method=f\"file://{{folder}}/{}\", {arguments}",
                    init.point
                )
            }
            StoreMethod::Store => {
                let hosts = match init.hosts {
                    Some(true) => "True".to_owned(),
                    Some(false) => "False".to_owned(),
                    None => format!("{me} == 0"),
                };
                format!(
                    "store=dist.TCPStore(\"127.0.0.1\", port + {port}, {size}, is_master={hosts}, {timeout}), {arguments}"
                )
            }
        };
        format!(
            "dist.init_process_group({}, {how}, {timeout})",
            text(backend)
        )
    }
}

/// The line above what must not simply return; none if it must.
fn must(expect: &ExpectSpec, what: &str) -> Option<String> {
    let mut arguments = vec![text(what)];
    if let Some(patterns) = &expect.raises {
        let patterns: Vec<_> = patterns.as_slice().iter().map(|one| text(one)).collect();
        arguments.push(format!("raises=[{}]", patterns.join(", ")));
        if expect.somewhere {
            arguments.push("somewhere=True".to_owned());
        }
    } else if expect.either {
        arguments.push("may_raise=True".to_owned());
    }
    if let Some(seconds) = expect.within_s {
        arguments.push(format!("within={seconds}"));
    }
    if let Some(seconds) = expect.not_before_s {
        arguments.push(format!("not_before={seconds}"));
    }
    (arguments.len() > 1).then(|| format!("with must({}):", arguments.join(", ")))
}

fn steady(spec: &SteadySpec) -> String {
    let (from, to) = (identifier(&spec.from), identifier(&spec.to));
    let mut arguments = vec![format!("census_{from}"), format!("census_{to}")];
    for (field, allowed) in [
        ("files", spec.files),
        ("threads", spec.threads),
        ("shared_memory", spec.shared_memory),
        ("processes", spec.processes),
        ("memory_mib", spec.memory_mib),
    ] {
        arguments.extend(allowed.map(|allowed| format!("{field}={allowed}")));
    }
    format!("steady({})", arguments.join(", "))
}

fn identifier(name: &str) -> String {
    name.chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '_' })
        .collect()
}
