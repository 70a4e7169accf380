//! Writes calls as a person would write them.
//!
//! In: a rank's step, its expected tensors, the values that its calls must return. Out: lines of Python that use the names of the
//! file: `t["input"]` is a tensor, `group` the group, `OBJECTS[rank]` what the rank passes, `ANSWERS[rank]` what it must get. In
//! a script, where there are several of all, they have the name of their op: `t["a.input"]`, `work_a`, `OBJECTS_a[rank]`.

use serde_json::Value;

use super::literal::{list, text, tuple};
use allranks_model::axes::TensorKind;
use allranks_model::dtype::ReduceOp;
use allranks_oracle::{Answer, ExpectedTensor};
use allranks_protocol::{Call, Direction, P2pCall, PREMUL_FACTOR, RankRef, Step, Tensor};

/// Returns the Python call that makes a group.
pub(super) fn new_group(
    ranks: &str,
    timeout_s: f64,
    backend: Option<&str>,
    local_sync: bool,
) -> String {
    let backend = backend.map_or_else(String::new, |name| format!(", backend={}", text(name)));
    let local = match local_sync {
        true => ", use_local_synchronization=True",
        false => "",
    };
    format!("dist.new_group({ranks}, timeout=timedelta(seconds={timeout_s}){backend}{local})")
}

/// The Python code of one rank, and the objects that it passes.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Code {
    /// The lines of code, without indentation.
    pub lines: Vec<String>,
    /// The object that it passes to an object collective; `Some(None)` if it passes none, `None` if it makes no such call.
    pub object: Option<Option<Value>>,
    /// The object that the collective must return to it; `None` if it must return none.
    pub answer: Option<Value>,
}

/// The step of a rank that calls are written for.
#[derive(Clone, Debug)]
pub(super) struct CallSite<'a> {
    /// The rank's step.
    pub step: &'a Step,
    /// The storages of the step, with their expected contents.
    pub expected_tensors: &'a [ExpectedTensor],
    /// The answers that its calls must give, by index of the call.
    pub answers: &'a [(usize, &'a Answer)],
    /// The number of members of the group.
    pub group_size: usize,
    /// The op's name, if the script has several ops; otherwise empty.
    pub name: &'a str,
    /// True if groups are in a table, `groups["side"]`; otherwise there is one variable, `group`.
    pub has_groups: bool,
}

/// Writes the calls of a step.
pub(super) fn code(site: &CallSite<'_>) -> Code {
    let step = site.step;
    let mut writer = Writer::new(site);
    let is_timed =
        |call: &Call| matches!(call, Call::Barrier { .. } | Call::MonitoredBarrier { .. });
    for (index, call) in step.calls.iter().enumerate() {
        if is_timed(call) {
            writer.line("enter = time.monotonic()");
        }
        writer.one(index, call);
    }
    if step.calls.iter().any(is_timed) {
        writer.line("leave = time.monotonic()");
    }
    writer.code
}

/// Returns true if the call makes a work that a later call waits for.
fn makes_work(call: &Call) -> bool {
    match call {
        Call::Isend { .. } | Call::Irecv { .. } => true,
        _ => is_async(call),
    }
}

/// Returns true if a reproducer cannot make the call, because its tensors are too large to be written down.
pub(super) fn is_too_large(call: &Call) -> bool {
    matches!(call, Call::Grow { .. } | Call::Windows { .. })
}

/// Writes calls one by one.
pub(super) struct Writer<'a> {
    step: &'a Step,
    expected_tensors: &'a [ExpectedTensor],
    answers: &'a [(usize, &'a Answer)],
    group_size: usize,
    name: &'a str,
    has_groups: bool,
    one_work: bool,
    /// What `premul_sum` multiplies by.
    factor: String,
    /// The code written so far.
    pub code: Code,
}

impl<'a> Writer<'a> {
    pub(super) fn new(site: &CallSite<'a>) -> Self {
        let calls = site.step.calls.iter();
        Self {
            step: site.step,
            expected_tensors: site.expected_tensors,
            answers: site.answers,
            group_size: site.group_size,
            name: site.name,
            has_groups: site.has_groups,
            one_work: calls.filter(|call| makes_work(call)).count() == 1,
            factor: format!("{PREMUL_FACTOR:?}"),
            code: Code::default(),
        }
    }

    /// Writes the call at this index of its step, or another call in place of it.
    pub(super) fn one(&mut self, index: usize, call: &Call) {
        let answer = self.answers.iter().find(|(call, _)| *call == index);
        let answer = answer.map(|(_, answer)| *answer);
        self.call(Some(index), call, answer);
    }

    fn group(&self, group: &str) -> Option<String> {
        match (group, self.has_groups) {
            ("world", _) => None,
            (name, true) => Some(format!("groups[{}]", text(name))),
            (_, false) => Some("group".to_owned()),
        }
    }

    /// Returns the Python expression for the rank's entry of a table: `OBJECTS[rank]`.
    fn table(&self, name: &str) -> String {
        match self.name {
            "" => format!("{name}[rank]"),
            own => format!("{name}_{own}[rank]"),
        }
    }

    fn line(&mut self, line: impl Into<String>) {
        self.code.lines.push(line.into());
    }

    /// Returns the name of the variable that holds the work of a call.
    pub(super) fn work(&self, index: usize) -> String {
        let name = match self.name {
            "" => "work".to_owned(),
            name => format!("work_{name}"),
        };
        match (self.one_work, self.name) {
            (true, _) => name,
            (false, "") => format!("{name}{index}"),
            (false, _) => format!("{name}_{index}"),
        }
    }

    /// Writes a call. `index` is its number in the step; none inside a coalescing manager.
    fn call(&mut self, index: Option<usize>, call: &Call, answer: Option<&Answer>) {
        match call {
            Call::Sleep { ms } => self.line(format!("time.sleep({})", *ms as f64 / 1000.0)),
            Call::Wait { work, timeout_ms } => {
                let work = self.work(*work);
                let timeout = timeout_ms
                    .map(|ms| format!("timedelta(milliseconds={ms})"))
                    .unwrap_or_default();
                self.line(format!("{work}.wait({timeout})"));
            }
            Call::TensorsAs { kind, tensors } => self.tensors_as(*kind, tensors),
            Call::PremulFactor { factor, tensor } => {
                self.factor = match (factor, tensor) {
                    (_, Some(tensor)) => self.tensor(*tensor),
                    (Some(factor), None) => format!("{factor:?}"),
                    (None, None) => format!("{PREMUL_FACTOR:?}"),
                };
            }
            Call::AllReduceSparse {
                group,
                values,
                indices,
                output,
                op,
            } => self.all_reduce_sparse(group, [*values, *output], indices, *op),
            Call::Coalesced {
                group,
                calls,
                async_op,
            } => {
                let work = async_op.then(|| self.work(index.unwrap_or(0)));
                self.coalesced(group, calls, work);
            }
            Call::BatchIsendIrecv { group, ops } => self.batch_isend_irecv(group, ops),
            Call::AllGatherObject { object, .. } => {
                self.code.object = Some(Some(object.clone()));
                self.line(format!("received = [None] * {}", self.group_size));
                self.plain(call, vec!["received".to_owned(), self.table("OBJECTS")]);
                self.expect("received", answer);
            }
            Call::GatherObject { object, root, .. } => {
                self.gather_object(call, object, *root, answer)
            }
            Call::BroadcastObjectList { objects, root, .. } => {
                self.code.object = Some(Some(Value::Array(objects.clone())));
                self.line(format!("objects = {}", self.table("OBJECTS")));
                self.plain(call, vec!["objects".to_owned(), peer("src", *root)]);
                self.expect("objects", answer);
            }
            Call::ScatterObjectList { objects, root, .. } => {
                self.code.object = Some(objects.clone().map(Value::Array));
                self.line("received = [None]");
                let root = peer("src", *root);
                self.plain(
                    call,
                    vec!["received".to_owned(), self.table("OBJECTS"), root],
                );
                self.expect("received[0]", answer);
            }
            Call::Recv { .. } => {
                let arguments = self.arguments(call);
                match answer {
                    Some(Answer::Sender(sender)) => {
                        let call = self.written(call, arguments);
                        self.line(format!("sender = {call}"));
                        self.line(format!(
                            "expect(\"the sender that recv returns\", sender, {sender})"
                        ));
                    }
                    _ => self.plain(call, arguments),
                }
            }
            // Init and teardown are written by other modules.
            Call::Prepare { .. }
            | Call::InitProcessGroup { .. }
            | Call::NewGroup { .. }
            | Call::DestroyProcessGroup { .. } => {}
            _ => {
                let arguments = self.arguments(call);
                let line = self.written(call, arguments);
                match index {
                    Some(index) if makes_work(call) => {
                        let work = self.work(index);
                        self.line(format!("{work} = {line}"));
                    }
                    _ => self.line(line),
                }
            }
        }
    }

    /// Writes an all-reduce of a sparse tensor, by the indices of its values and of the dense output.
    fn all_reduce_sparse(
        &mut self,
        group: &str,
        [values, output]: [usize; 2],
        indices: &[u64],
        op: ReduceOp,
    ) {
        let (values, output) = (self.tensor(values), self.tensor(output));
        let mut arguments = vec!["sparse".to_owned(), self.reduce(op)];
        arguments.extend(self.group(group).map(|group| format!("group={group}")));
        self.line(format!(
            "sparse = torch.sparse_coo_tensor([{}], {values}, {output}.shape)",
            list(indices)
        ));
        self.line(format!("dist.all_reduce({})", arguments.join(", ")));
        self.line(format!("{output}.copy_(sparse.to_dense())"));
    }

    /// Writes calls inside a coalescing manager. `work`: the name of its work; none if the manager waits for it.
    fn coalesced(&mut self, group: &str, calls: &[Call], work: Option<String>) {
        let mut arguments = Vec::new();
        arguments.extend(self.group(group).map(|group| format!("group={group}")));
        let mut manager = String::new();
        if let Some(work) = work {
            arguments.push("async_ops=True".to_owned());
            manager = format!(" as {work}");
        }
        self.line(format!(
            "with dist._coalescing_manager({}){manager}:",
            arguments.join(", ")
        ));
        let outside = self.code.lines.len();
        for call in calls {
            self.call(None, call, None);
        }
        for line in &mut self.code.lines[outside..] {
            line.insert_str(0, "    ");
        }
    }

    /// Writes `batch_isend_irecv` and the waits for its works.
    fn batch_isend_irecv(&mut self, group: &str, ops: &[P2pCall]) {
        self.line("ops = [");
        for op in ops {
            let function = match op.direction {
                Direction::Send => "isend",
                Direction::Recv => "irecv",
            };
            let mut arguments = vec![format!("dist.{function}"), self.tensor(op.tensor)];
            arguments.push(peer("peer", op.peer));
            arguments.extend(self.group(group).map(|group| format!("group={group}")));
            if op.tag != 0 {
                arguments.push(format!("tag={}", op.tag));
            }
            self.line(format!("    dist.P2POp({}),", arguments.join(", ")));
        }
        self.line("]");
        self.line("for work in dist.batch_isend_irecv(ops):");
        self.line("    work.wait()");
    }

    /// Writes a gather of objects, and on the root what it must receive.
    fn gather_object(
        &mut self,
        call: &Call,
        object: &Value,
        root: RankRef,
        answer: Option<&Answer>,
    ) {
        self.code.object = Some(Some(object.clone()));
        let is_root = matches!(answer, Some(Answer::Objects(Value::Array(_))));
        let received = if is_root {
            format!("[None] * {}", self.group_size)
        } else {
            "None".to_owned()
        };
        self.line(format!("received = {received}"));
        let root = peer("dst", root);
        self.plain(
            call,
            vec![self.table("OBJECTS"), "received".to_owned(), root],
        );
        if is_root {
            self.expect("received", answer);
        }
    }

    /// Writes a call with these arguments.
    fn plain(&mut self, call: &Call, arguments: Vec<String>) {
        let line = self.written(call, arguments);
        self.line(line);
    }

    /// Writes the comparison of the returned objects with the expected ones.
    fn expect(&mut self, what: &str, answer: Option<&Answer>) {
        if let Some(Answer::Objects(value)) = answer {
            self.code.answer = Some(value.clone());
            let answers = self.table("ANSWERS");
            self.line(format!("expect(\"{what}\", {what}, {answers})"));
        }
    }

    /// Returns the argument for a reduce operator.
    fn reduce(&self, op: ReduceOp) -> String {
        match op {
            ReduceOp::PremulSum => format!("op=dist._make_nccl_premul_sum({})", self.factor),
            op => format!("op=dist.ReduceOp.{}", op.name().to_uppercase()),
        }
    }

    /// Writes the conversion of tensors to another kind.
    fn tensors_as(&mut self, kind: TensorKind, tensors: &[usize]) {
        match kind {
            TensorKind::Plain => {}
            TensorKind::RequiresGrad => {
                for tensor in tensors {
                    let tensor = self.tensor(*tensor);
                    self.line(format!("{tensor}.requires_grad_()"));
                }
            }
            TensorKind::Inference => {
                self.line("mode = torch.inference_mode()");
                self.line("mode.__enter__()  # for good");
                self.line("for name in t:");
                self.line("    storages[name], t[name] = place(*TENSORS[rank][name][:2])");
            }
            TensorKind::Pinned => {
                self.line("for name in t:");
                self.line("    storages[name] = storages[name].pin_memory()");
                self.line("    t[name] = storages[name].as_strided(*TENSORS[rank][name][0][2:])");
            }
        }
    }

    /// Returns the arguments before `group=`: the tensors, root or peer, operator, split sizes, tag.
    fn arguments(&self, call: &Call) -> Vec<String> {
        let one = |tensor: &usize| self.tensor(*tensor);
        let many = |tensors: &[usize]| self.tensors(tensors);
        let maybe = |tensors: &Option<Vec<usize>>| match tensors {
            Some(tensors) => self.tensors(tensors),
            None => "None".to_owned(),
        };
        let reduce = |op: &ReduceOp| self.reduce(*op);
        let splits = |splits: &Option<Vec<u64>>| match splits {
            Some(splits) => list(splits),
            None => "None".to_owned(),
        };
        let message = |tensor: &usize, end: &str, other: RankRef, tag: u32| {
            let mut arguments = vec![self.tensor(*tensor), peer(end, other)];
            if tag != 0 {
                arguments.push(format!("tag={tag}"));
            }
            arguments
        };
        match call {
            Call::AllReduce { tensor, op, .. } => vec![one(tensor), reduce(op)],
            Call::AllReduceCoalesced { tensors, op, .. } => vec![many(tensors), reduce(op)],
            Call::Broadcast { tensor, root, .. } => vec![one(tensor), peer("src", *root)],
            Call::Reduce {
                tensor, op, root, ..
            } => {
                vec![one(tensor), peer("dst", *root), reduce(op)]
            }
            Call::AllGather { outputs, input, .. } => vec![many(outputs), one(input)],
            Call::AllGatherCoalesced {
                outputs, inputs, ..
            } => {
                let lists: Vec<_> = outputs.iter().map(|list| many(list)).collect();
                vec![format!("[{}]", lists.join(", ")), many(inputs)]
            }
            Call::AllGatherIntoTensor { output, input, .. } => vec![one(output), one(input)],
            Call::Gather {
                input,
                outputs,
                root,
                ..
            } => {
                vec![one(input), maybe(outputs), peer("dst", *root)]
            }
            Call::Scatter {
                output,
                inputs,
                root,
                ..
            } => {
                vec![one(output), maybe(inputs), peer("src", *root)]
            }
            Call::ReduceScatter {
                output, inputs, op, ..
            } => {
                vec![one(output), many(inputs), reduce(op)]
            }
            Call::ReduceScatterTensor {
                output, input, op, ..
            } => {
                vec![one(output), one(input), reduce(op)]
            }
            Call::AllToAll {
                outputs, inputs, ..
            } => vec![many(outputs), many(inputs)],
            Call::AllToAllSingle {
                output,
                input,
                output_splits,
                input_splits,
                ..
            } => {
                let mut arguments = vec![one(output), one(input)];
                if output_splits.is_some() || input_splits.is_some() {
                    arguments.push(splits(output_splits));
                    arguments.push(splits(input_splits));
                }
                arguments
            }
            Call::Send {
                tensor, peer, tag, ..
            }
            | Call::Isend {
                tensor, peer, tag, ..
            } => message(tensor, "dst", *peer, *tag),
            Call::Recv {
                tensor,
                peer: Some(peer),
                tag,
                ..
            }
            | Call::Irecv {
                tensor, peer, tag, ..
            } => message(tensor, "src", *peer, *tag),
            Call::Recv {
                tensor,
                peer: None,
                tag,
                ..
            } => {
                let tag = (*tag != 0).then(|| format!("tag={tag}"));
                std::iter::once(one(tensor)).chain(tag).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Returns the Python call: `dist.NAME(ARGUMENTS, group=group, async_op=True)`.
    fn written(&self, call: &Call, mut arguments: Vec<String>) -> String {
        let value = serde_json::to_value(call).unwrap_or_default();
        let group = value["group"].as_str().and_then(|group| self.group(group));
        arguments.extend(group.map(|group| format!("group={group}")));
        if is_async(call) {
            arguments.push("async_op=True".to_owned());
        }
        format!("dist.{}({})", call.name(), arguments.join(", "))
    }

    fn tensors(&self, tensors: &[usize]) -> String {
        let written: Vec<String> = tensors.iter().map(|tensor| self.tensor(*tensor)).collect();
        let stem = written
            .first()
            .and_then(|first| first.strip_suffix("[0]\"]"));
        if let Some(stem) = stem.filter(|_| written.len() > 2) {
            let in_order = (0..)
                .zip(&written)
                .all(|(number, one)| *one == format!("{stem}[{number}]\"]"));
            if in_order {
                let stem = stem.replacen("t[\"", "t[f\"", 1);
                return format!("[{stem}[{{i}}]\"] for i in range({})]", written.len());
            }
        }
        format!("[{}]", written.join(", "))
    }

    /// Returns a tensor by its name, or the part of one that a call takes.
    fn tensor(&self, tensor: usize) -> String {
        let view = &self.step.tensors[tensor];
        let expected_tensor = &self.expected_tensors[view.storage];
        let dot = if self.name.is_empty() { "" } else { "." };
        let name = format!("t[\"{}{dot}{}\"]", self.name, expected_tensor.label);
        match part(&expected_tensor.view, view) {
            Some(part) => name + &part,
            None => format!(
                "{name}.as_strided({}, {}, {})",
                tuple(&view.shape),
                tuple(&view.strides),
                view.offset
            ),
        }
    }
}

/// Returns the Python index expression that selects a part of a tensor; `None` if no simple one does.
fn part(whole: &Tensor, view: &Tensor) -> Option<String> {
    if whole == view {
        return Some(String::new());
    }
    let ([_], [stride]) = (&*whole.shape, &*whole.strides) else {
        return None;
    };
    let from = view.offset.checked_sub(whole.offset)? / stride;
    match (&*view.shape, &*view.strides) {
        ([], []) => Some(format!("[{from}]")),
        ([len], [same]) if same == stride => Some(format!("[{from}:{}]", from + len)),
        _ => None,
    }
}

fn peer(argument: &str, rank: RankRef) -> String {
    match rank {
        RankRef::Global(rank) => format!("{argument}={rank}"),
        RankRef::Group(rank) => format!("group_{argument}={rank}"),
    }
}

fn is_async(call: &Call) -> bool {
    serde_json::to_value(call).is_ok_and(|call| call["async_op"] == true)
}
