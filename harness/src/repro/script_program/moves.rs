//! Writes what a rank does in one move of a script, as Python.

use super::super::calls::new_group;
use super::super::literal::{Objects, list, text};
use super::ScriptProgram;
use allranks_model::axes::Pairs;
use allranks_model::names::Rank;
use allranks_model::store::StoreMethod;
use allranks_protocol::Call;
use allranks_runner::script::turn;
use allranks_suite::case::{ExpectSpec, InitMove, SteadySpec};
use allranks_suite::plan::{Act, MessageAct, Move};
use serde_json::Value;

/// The number of ports from `MASTER_PORT` on that a reproducer uses itself: torchrun's, and that of the store of marks.
const PORTS: u32 = 2;

/// The lines of one statement of a move. Each statement must meet the expectation of the move.
type Statement = Vec<String>;

impl<'a> ScriptProgram<'a> {
    /// Returns the program lines of a rank for a move.
    pub(super) fn lines(
        &mut self,
        rank: Rank,
        one: &'a Move,
        calls: &[Vec<&[Call]>],
    ) -> Vec<String> {
        let statements = self.statements(rank, one, calls);
        let called = match &one.act {
            Act::Python { source, .. } => only_call(source),
            _ => None,
        };
        let must =
            (one.expect.as_ref()).and_then(|expect| must(expect, called.unwrap_or(&one.label)));
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

    /// Returns the statements of a move, without their expectation.
    fn statements(&mut self, rank: Rank, one: &'a Move, calls: &[Vec<&[Call]>]) -> Vec<Statement> {
        let value = one.expect.as_ref().and_then(|expect| expect.value.as_ref());
        let line = match &one.act {
            Act::Issue {
                check,
                keeps,
                message,
                ..
            } => return self.issue(rank, *check, *keeps, *message, calls[*check][rank.index()]),
            Act::Wait { checks, timeout_ms } => return self.wait(rank, checks, *timeout_ms),
            Act::IsCompleted { check, is } => {
                return each(self.works(rank, *check), |work| {
                    vec![is_completed(work, *is)]
                });
            }
            Act::Future(check) => return each(self.works(rank, *check), future),
            Act::Drop(check) => return each(self.works(rank, *check), drop_work),
            Act::Die(signal) => return vec![die(*signal)],
            Act::Exit(code) => return vec![exit(*code)],
            Act::Together(threads) => return vec![self.together(rank, threads, calls)],
            Act::Mark(name) => format!("mark({})", text(name)),
            Act::Hold(name) => {
                let ranks = self.marks.get(name.as_str()).cloned().unwrap_or_default();
                format!("hold({}, {})", text(name), list(ranks))
            }
            Act::Sleep(ms) => format!("time.sleep({})", *ms as f64 / 1000.0),
            Act::Pause(ms) => format!("stop({})", *ms as f64 / 1000.0),
            Act::Freeze => "stop(DEADLINE, \"KILL\")".to_owned(),
            Act::Census(name) => format!("census_{} = census()", identifier(name)),
            Act::Steady(spec) => steady(spec),
            Act::WhoAmI(name) => with_value(format!("who_am_i({})", group(name)), value),
            Act::Setenv(name, Some(value)) => {
                format!("os.environ[{}] = {}", text(name), text(value))
            }
            Act::Setenv(name, None) => format!("os.environ.pop({}, None)", text(name)),
            Act::Init(init) => self.init(init),
            Act::Destroy(name) => match name.as_str() {
                "world" => "dist.destroy_process_group()".to_owned(),
                name => format!("dist.destroy_process_group(groups.pop({}))", text(name)),
            },
            Act::NewGroup {
                name,
                ranks,
                backend,
                timeout_s,
                local_sync,
            } => {
                let timeout = timeout_s.unwrap_or(self.scenario.case.world.timeout_s);
                let made = new_group(&list(ranks), timeout, backend.as_deref(), *local_sync);
                format!("groups[{}] = {made}", text(name))
            }
            Act::Abort(name) => match name.as_str() {
                "world" => "dist.group.WORLD.abort()".to_owned(),
                name => format!("{}.abort()", group(name)),
            },
            Act::Python { source, .. } => with_value(self.python(source), value),
        };
        vec![vec![line]]
    }

    /// Returns the calls of an op, each as a statement.
    fn issue(
        &mut self,
        rank: Rank,
        check: usize,
        keeps: bool,
        message: Option<MessageAct>,
        calls: &[Call],
    ) -> Vec<Statement> {
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

    /// Returns a wait for each work of these checks that the rank has.
    fn wait(&self, rank: Rank, checks: &[usize], timeout_ms: Option<u64>) -> Vec<Statement> {
        let timeout = timeout_ms
            .map(|ms| format!("timedelta(milliseconds={ms})"))
            .unwrap_or_default();
        let works = checks.iter().flat_map(|check| self.works(rank, *check));
        works
            .map(|work| vec![format!("{work}.wait({timeout})")])
            .collect()
    }

    /// Returns a function for each thread of a `together` move, and the call that runs them.
    fn together(
        &mut self,
        rank: Rank,
        threads: &'a [Vec<Move>],
        calls: &[Vec<&[Call]>],
    ) -> Statement {
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
        lines
    }

    /// Returns the variables of a rank's works of an op.
    fn works(&self, rank: Rank, check: usize) -> Vec<String> {
        let op = &self.ops[check];
        let writer = &op.writers[rank.index()];
        let works = op.works[rank.index()].iter();
        works.map(|sub| writer.work(*sub)).collect()
    }

    /// Returns the call of a `python` move: its source if that is one call, otherwise a call of a function with that source.
    fn python(&mut self, source: &'a str) -> String {
        let source = source.trim_end();
        if only_call(source).is_some() {
            return source.to_owned();
        }
        let known = self.functions.iter().position(|known| *known == source);
        let number = known.unwrap_or_else(|| {
            self.functions.push(source);
            self.functions.len() - 1
        });
        format!("python_{}()", number + 1)
    }

    /// Returns the call of `init_process_group`.
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

/// Returns the name of the function if a source is nothing but one call of `torch.distributed`, such as `dist.barrier`.
fn only_call(source: &str) -> Option<&str> {
    let source = source.trim_end();
    let name = source.split('(').next()?;
    let is_one =
        !source.contains(['\n', ';']) && source.starts_with("dist.") && !name.contains('=');
    is_one.then_some(name)
}

/// Returns a statement for each work.
fn each(works: Vec<String>, statement: impl Fn(&str) -> Statement) -> Vec<Statement> {
    works.iter().map(|work| statement(work)).collect()
}

/// Returns the comparison of a work's `is_completed`.
fn is_completed(work: &str, is: bool) -> String {
    let is = if is { "True" } else { "False" };
    let call = format!("{work}.is_completed()");
    format!("expect({}, {call}, {is})", text(&call))
}

/// Returns the wait for the future of a work.
fn future(work: &str) -> Statement {
    vec![
        format!("future = {work}.get_future()"),
        "future.wait()".to_owned(),
        "expect(\"future.done()\", future.done(), True)".to_owned(),
    ]
}

/// Returns the statement that drops the only reference to a work.
fn drop_work(work: &str) -> Statement {
    vec![format!("del {work}"), "gc.collect()".to_owned()]
}

/// Returns the statement that ends the process by a signal.
fn die(signal: i32) -> Statement {
    vec![
        format!("say(\"dies of signal {signal}, as it is to\")"),
        format!("os.kill(os.getpid(), {signal})"),
        "time.sleep(60)  # until it comes".to_owned(),
    ]
}

/// Returns the statement that ends the process with an exit code.
fn exit(code: i32) -> Statement {
    vec![
        format!("say(\"leaves; its exit code must be {code}\")"),
        format!("sys.exit({code})"),
    ]
}

/// Returns the expression of a group; `None` is the world.
fn group(name: &str) -> String {
    match name {
        "world" => "None".to_owned(),
        name => format!("groups[{}]", text(name)),
    }
}

/// Returns a call, with a comparison of its value if the move expects one.
fn with_value(call: String, value: Option<&Value>) -> String {
    match value {
        Some(value) => format!(
            "expect({}, {call}, {})",
            text(&call),
            Objects::default().literal(value)
        ),
        None => call,
    }
}

/// Returns the `with` line for a statement that must raise or may raise; `None` if it must return.
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

/// Returns the comparison of two censuses.
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

/// Returns a name with all characters replaced that a Python name cannot have.
fn identifier(name: &str) -> String {
    name.chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '_' })
        .collect()
}
