//! Reads from the memory of a Python process where it is, with the library of py-spy. The process is not stopped and its memory
//! may change meanwhile, so a stack counts only if two readings agree and the thread has not run in between.

use std::collections::HashMap;
use std::path::Path;

use allranks_diagnose::SeenCall;
use py_spy::config::LockingStrategy;
use py_spy::{Config, Frame, PythonSpy, StackTrace};

/// Collectives, and which positional argument names the group.
const COLLECTIVES: &[(&str, usize)] = &[
    ("all_reduce", 2),
    ("broadcast", 2),
    ("reduce", 3),
    ("all_gather", 2),
    ("all_gather_into_tensor", 2),
    ("gather", 3),
    ("scatter", 3),
    ("reduce_scatter", 3),
    ("reduce_scatter_tensor", 3),
    ("all_to_all_single", 4),
    ("all_to_all", 2),
    ("barrier", 0),
    ("monitored_barrier", 0),
    ("all_gather_object", 2),
    ("gather_object", 3),
    ("broadcast_object_list", 2),
    ("scatter_object_list", 3),
];
/// Where `torch.distributed` is in a path, and what of it does not call other ranks.
const DISTRIBUTED: &str = "/torch/distributed/";
const LAUNCHERS: &[&str] = &["elastic/", "run.py", "launch.py", "launcher/"];
/// Files of Python's, in which a program waits for what comes from outside of the job.
const INPUT: &[&str] = &[
    "/selectors.py",
    "/socket.py",
    "/ssl.py",
    "/asyncio/",
    "/queue.py",
    "/threading.py",
    "/subprocess.py",
    "/multiprocessing/",
    "/concurrent/",
    "/http/",
];
/// Calls of libraries written in C that do so, by what the line says.
const INPUT_CALLS: &[&str] = &[
    "input(",
    "stdin",
    ".accept(",
    ".recv(",
    ".read(",
    "readline",
    ".get(",
    ".poll(",
    "select(",
    ".result(",
    ".join(",
    "communicate(",
    "waitpid(",
    "os.read(",
    "next(",
    "flock(",
];
/// Bytes of a local variable that are read, times 128.
const LOCALS: u64 = 1;
/// How often a stack is read until two readings agree.
const ATTEMPTS: usize = 3;

/// What a Python process does, by the stack of its main thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallStackPlace {
    /// What the main thread is in.
    pub what: CallStackActivity,
    /// The program's own line: `train.py:41`.
    pub at: String,
    /// The text of that line; the name of its function if the file cannot be read.
    pub text: String,
    /// Every frame of the thread, innermost first: `FILE:LINE`.
    pub frames: Vec<String>,
    /// The threads that run Python, by the kernel's ids.
    pub threads: Vec<u32>,
}

/// What a main thread does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallStackActivity {
    /// `init_process_group`.
    Init,
    /// A call with other ranks.
    Call(SeenCall),
    /// The program's own code, or what that has called.
    Own(OwnCode),
}

/// What a program's own code waits for or runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnCode {
    /// Nothing but its own line, such as `time.sleep`.
    Line,
    /// A debugger.
    Breakpoint,
    /// A lock that it waits for.
    Lock,
    /// A wait for its data loader.
    Loader,
    /// A wait for something from outside of the job: a request, a file, a child process.
    Input,
    /// The device, or other code of a library.
    Library,
}

/// Readers of stacks, by process.
#[derive(Default)]
pub struct CallStacks {
    readers: HashMap<u32, PythonSpy>,
}

impl std::fmt::Debug for CallStacks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.readers.keys()).finish()
    }
}

impl CallStacks {
    /// Returns where a process is now, by the stack of its main thread.
    ///
    /// # Errors
    /// Its memory may not be read, or it is no Python that is known; in one line.
    pub fn place(&mut self, pid: u32) -> Result<CallStackPlace, String> {
        let config = Config {
            blocking: LockingStrategy::NonBlocking,
            dump_locals: LOCALS,
            ..Config::default()
        };
        let mut trouble = String::new();
        for _ in 0..ATTEMPTS {
            let known = self.readers.remove(&pid);
            let reader = match known {
                Some(reader) => Ok(reader),
                None => PythonSpy::new(pid.cast_signed(), &config),
            };
            let read = reader.and_then(|mut reader| {
                let traces = reader.get_stack_traces()?;
                Ok((reader, traces))
            });
            match read {
                Ok((reader, traces)) => {
                    self.readers.insert(pid, reader);
                    match place(pid, &traces) {
                        Some(place) => return Ok(place),
                        None => "its main thread runs no Python".clone_into(&mut trouble),
                    }
                }
                Err(error) => trouble = format!("{error:#}").replace('\n', " "),
            }
        }
        Err(trouble)
    }
}

fn place(pid: u32, traces: &[StackTrace]) -> Option<CallStackPlace> {
    let id = |trace: &StackTrace| trace.os_thread_id.and_then(|id| u32::try_from(id).ok());
    let main = traces.iter().find(|trace| id(trace) == Some(pid))?;
    let frames = &main.frames;
    let own = frames.iter().find(|frame| !is_library(&frame.filename));
    let own = own.or(frames.first())?;
    let text = line_text(&own.filename, own.line).unwrap_or_else(|| own.name.clone());
    Some(CallStackPlace {
        what: what(frames, &text),
        at: location(pid, own),
        text,
        frames: frames
            .iter()
            .map(|frame| format!("{}:{}", frame.filename, frame.line))
            .collect(),
        threads: traces.iter().filter_map(id).collect(),
    })
}

/// Returns what a stack, innermost frame first, is in; `text` is the program's own line.
fn what(frames: &[Frame], text: &str) -> CallStackActivity {
    // What a call calls in its turn is the library's business.
    let own = frames
        .iter()
        .position(|frame| !is_library(&frame.filename))
        .unwrap_or(frames.len());
    let inner = &frames[..own];
    let in_distributed = |frame: &Frame| {
        let name = frame.filename.split_once(DISTRIBUTED).map(|(_, name)| name);
        name.is_some_and(|name| !LAUNCHERS.iter().any(|other| name.starts_with(other)))
    };
    let is_c10d = |frame: &Frame| frame.filename.ends_with("distributed_c10d.py");
    let any = |words: &[&str]| {
        let mut names = inner.iter().map(|frame| frame.filename.as_str());
        names.any(|name| words.iter().any(|word| name.contains(word)))
    };
    let call = |name: &str, is_collective, is_default_group| {
        CallStackActivity::Call(SeenCall {
            name: name.to_owned(),
            is_collective,
            is_default_group,
        })
    };
    if any(&["/bdb.py", "/pdb.py", "/debugpy/"]) || text.starts_with("breakpoint(") {
        return CallStackActivity::Own(OwnCode::Breakpoint);
    }
    if let Some(index) = inner.iter().rposition(is_c10d) {
        let name = inner[index].name.as_str();
        if name == "init_process_group" {
            return CallStackActivity::Init;
        }
        let collective = COLLECTIVES.iter().find(|(own, _)| *own == name);
        let is_default = collective.is_some_and(|(_, position)| {
            is_of_default_group(&inner[index], inner.get(index + 1), *position)
        });
        return call(name, collective.is_some(), is_default);
    }
    if let Some(frame) = inner.iter().rev().find(|frame| in_distributed(frame)) {
        return call(&frame.name, false, false);
    }
    if any(&["/torch/autograd/"]) {
        return call("backward", false, false);
    }
    // `Work.wait` is written in C++: of its callers the line alone is seen.
    let others = ["store", "event", "cond", "proc", "thread", "barrier"];
    let is_of_work = |line: &str| {
        let line = line.to_lowercase();
        line.contains(".wait(") && !others.iter().any(|other| line.contains(other))
    };
    if inner.is_empty() && is_of_work(text) {
        return call("wait", false, false);
    }
    CallStackActivity::Own(if any(&["/torch/utils/data/"]) {
        OwnCode::Loader
    } else if text.contains(".acquire(") {
        OwnCode::Lock
    } else if any(INPUT) || INPUT_CALLS.iter().any(|word| text.contains(word)) {
        OwnCode::Input
    } else if inner.is_empty() {
        OwnCode::Line
    } else {
        OwnCode::Library
    })
}

/// Returns true if a call names no group: by its parameter, or by the arguments of the wrapper around it.
fn is_of_default_group(frame: &Frame, wrapper: Option<&Frame>, position: usize) -> bool {
    let local = |frame: &Frame, name: &str| {
        let found = frame.locals.as_ref()?.iter().find(|one| one.name == name)?;
        found.repr.clone()
    };
    if local(frame, "group").as_deref() == Some("None") {
        return true;
    }
    let wrapper = wrapper.filter(|frame| frame.filename.ends_with("c10d_logger.py"));
    let arguments =
        wrapper.and_then(|frame| Some((local(frame, "args")?, local(frame, "kwargs")?)));
    arguments.is_some_and(|(args, kwargs)| {
        let is_cut = args.contains("...") || kwargs.contains("...");
        !is_cut && !kwargs.contains("group") && count(&args).is_some_and(|count| count <= position)
    })
}

/// Returns how many elements a printed tuple has: `(<Tensor at 0x1>, 3)`; `None` if it is no tuple.
fn count(tuple: &str) -> Option<usize> {
    let inner = tuple.strip_prefix('(')?.strip_suffix(')')?;
    let mut depth = 0_i32;
    let mut commas = 0;
    for letter in inner.chars() {
        match letter {
            '(' | '[' | '{' | '<' => depth += 1,
            ')' | ']' | '}' | '>' => depth -= 1,
            ',' if depth == 0 => commas += 1,
            _ => {}
        }
    }
    let is_empty = inner.trim().is_empty();
    let is_ended = inner.trim_end().ends_with(',');
    Some(commas + usize::from(!is_empty && !is_ended))
}

/// Returns true if a file is Python's, or that of an installed package.
fn is_library(file: &str) -> bool {
    let is_python = file
        .split("/lib/python")
        .nth(1)
        .is_some_and(|rest| rest.starts_with(|letter: char| letter.is_ascii_digit()));
    is_python
        || file.starts_with('<')
        || ["site-packages", "dist-packages", "/torch/"]
            .iter()
            .any(|word| file.contains(word))
}

fn line_text(file: &str, line: i32) -> Option<String> {
    let text = std::fs::read_to_string(file).ok()?;
    let line = text
        .lines()
        .nth(usize::try_from(line).ok()?.checked_sub(1)?)?;
    Some(line.trim().chars().take(80).collect())
}

/// The file, relative to the folder that the process is in if it is below that, and the line.
fn location(pid: u32, frame: &Frame) -> String {
    let folder = std::fs::read_link(format!("/proc/{pid}/cwd")).unwrap_or_default();
    let path = Path::new(&frame.filename);
    let path = path.strip_prefix(folder).unwrap_or(path);
    format!("{}:{}", path.display(), frame.line)
}

#[cfg(test)]
mod tests {
    use super::*;
    use py_spy::stack_trace::LocalVariable;

    fn frame(file: &str, name: &str, locals: &[(&str, &str)]) -> Frame {
        let local = |(name, repr): &(&str, &str)| LocalVariable {
            name: (*name).to_owned(),
            addr: 0,
            arg: true,
            repr: Some((*repr).to_owned()),
        };
        Frame {
            name: name.to_owned(),
            filename: file.to_owned(),
            module: None,
            short_filename: None,
            line: 7,
            locals: Some(locals.iter().map(local).collect()),
            is_entry: false,
            is_shim_entry: false,
        }
    }

    const C10D: &str = "/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py";
    const LOGGER: &str = "/venv/lib/python3.11/site-packages/torch/distributed/c10d_logger.py";

    fn of_call(name: &str, args: &str, kwargs: &str) -> CallStackActivity {
        let frames = [
            frame(C10D, name, &[]),
            frame(LOGGER, "wrapper", &[("args", args), ("kwargs", kwargs)]),
            frame("/home/me/train.py", "step", &[]),
        ];
        what(&frames, "dist.call()")
    }

    fn is_default(name: &str, args: &str, kwargs: &str) -> bool {
        match of_call(name, args, kwargs) {
            CallStackActivity::Call(call) => call.is_default_group && call.is_collective,
            _ => false,
        }
    }

    #[test]
    fn a_call_that_names_no_group_is_one_of_the_default_group() {
        assert!(is_default("all_reduce", "(<Tensor at 0x1>)", "{}"));
        assert!(is_default(
            "all_reduce",
            "(<Tensor at 0x1>, <Op at 0x2>)",
            "{}"
        ));
        assert!(is_default("barrier", "()", "{}"));
        assert!(!is_default("barrier", "(<ProcessGroup at 0x2>)", "{}"));
        assert!(!is_default(
            "all_reduce",
            "(<Tensor at 0x1>)",
            "{\"group\": <ProcessGroup at 0x2>}"
        ));
        assert!(!is_default(
            "all_reduce",
            "(<Tensor at 0x1>, 1, <ProcessGroup at 0x2>)",
            "{}"
        ));
        assert!(!is_default("all_reduce", "(<Tensor at 0x1>, ...", "{}"));
        assert!(!is_default("recv", "(<Tensor at 0x1>)", "{}"));
    }

    #[test]
    fn what_a_program_waits_for_is_told_apart() {
        let own = frame("/home/me/train.py", "step", &[]);
        let within = |file: &str, name: &str| [frame(file, name, &[]), own.clone()];
        let lib = "/usr/lib/python3.11";
        let cases = [
            (format!("{lib}/selectors.py"), OwnCode::Input),
            (format!("{lib}/queue.py"), OwnCode::Input),
            (format!("{lib}/pdb.py"), OwnCode::Breakpoint),
            (
                format!("{lib}/site-packages/torch/utils/data/dataloader.py"),
                OwnCode::Loader,
            ),
            (
                format!("{lib}/site-packages/torch/cuda/__init__.py"),
                OwnCode::Library,
            ),
        ];
        for (file, expected) in cases {
            assert_eq!(
                what(&within(&file, "wait"), "x = f()"),
                CallStackActivity::Own(expected),
                "{file}"
            );
        }
        for (text, expected) in [
            ("time.sleep(3600)", OwnCode::Line),
            ("request = socket.recv()", OwnCode::Input),
            ("lock.acquire()", OwnCode::Lock),
            ("store.wait([key])", OwnCode::Line),
        ] {
            let alone = std::slice::from_ref(&own);
            assert_eq!(
                what(alone, text),
                CallStackActivity::Own(expected),
                "{text}"
            );
        }
        let is_call = |what: CallStackActivity| matches!(what, CallStackActivity::Call(_));
        assert!(is_call(what(std::slice::from_ref(&own), "work.wait()")));
        let run = "/venv/lib/python3.11/site-packages/torch/distributed/run.py";
        assert!(!is_call(what(&within(run, "main"), "main()")));
    }
}
