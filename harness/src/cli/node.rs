//! `allranks node`: the agent that starts ranks on this host for a run elsewhere.

use std::io::Write;
use std::path::PathBuf;

use super::args::NodeArguments;
use super::signals::listen_for_signals;
use super::{Exit, Failure};
use allranks_runner::probe;
use allranks_runner::run::{Interrupt, runtime};
use allranks_runner::world::node::{
    AgentOptions, CREDENTIALS, Credentials, agent, node_assignment,
};

/// Serves a run until it has ended.
pub fn node(arguments: &NodeArguments, err: &mut (impl Write + Send)) -> Result<Exit, Failure> {
    let credentials = credentials(arguments.credentials.as_ref())?;
    let environment = std::env::vars().collect();
    let assignment = node_assignment(credentials.engine, &environment).map_err(Failure::Harness)?;
    let assigned = assignment.as_ref().map(ToString::to_string);
    let options = AgentOptions {
        python: python(arguments.python.as_ref()),
        libtorch: probe::libtorch().ok(),
        supervisor: std::env::current_exe().ok(),
        assignment,
    };
    let interrupt = Interrupt::default();
    let runtime = runtime()?;
    runtime.spawn(listen_for_signals(interrupt.clone()));
    let run = credentials.run.clone();
    let ended = runtime.block_on(async {
        let serving = agent(credentials, options, |welcome| {
            // The stream may be closed; the agent continues.
            let _ = writeln!(
                err,
                "this host is node {} (of {}) of run {run}{}",
                welcome.name,
                welcome.nodes,
                assigned.map_or_else(String::new, |assigned| format!("; {assigned}"))
            );
        });
        tokio::select! {
            ended = serving => Some(ended),
            () = interrupt.wait() => None,
        }
    });
    match ended {
        Some(Ok(())) => {
            writeln!(err, "the run has ended")?;
            Ok(Exit::AsExpected)
        }
        Some(Err(error)) => Err(Failure::Harness(error.to_string())),
        None => Err(Failure::Harness(
            "interrupted: the run loses this node".to_owned(),
        )),
    }
}

/// Reads the credentials from the file that is named, or from the environment.
fn credentials(file: Option<&PathBuf>) -> Result<Credentials, Failure> {
    let hint = "`allranks run --launcher attached` prints the command with its file";
    let usage = |error: std::io::Error| Failure::Usage(error.to_string(), hint.to_owned());
    match (file, std::env::var(CREDENTIALS)) {
        (Some(file), _) => Credentials::read(file).map_err(usage),
        (None, Ok(text)) => Credentials::parse(&text).map_err(usage),
        (None, Err(_)) => Err(Failure::Usage(
            format!("no credentials: neither --credentials nor ${CREDENTIALS} is given"),
            hint.to_owned(),
        )),
    }
}

/// Returns the interpreter, by an absolute path if it is given as a path.
fn python(given: Option<&PathBuf>) -> PathBuf {
    probe::python(given.map(PathBuf::as_path)).path
}
