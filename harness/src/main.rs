//! The `allranks` binary: hands its arguments and streams to the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(allranks::cli::main(
        std::env::args_os(),
        &mut anstream::stdout(),
        &mut anstream::stderr(),
    ))
}
