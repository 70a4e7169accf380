//! The libtorch driver: what a rank runs, written in Rust on `tch` and c10d.
//!
//! `allranks-libtorch` is one rank in a process of its own; `allranks-libtorch zygote` forks ranks on request;
//! `allranks-libtorch probe` says in one line of JSON what this build offers. The protocol they speak is described in
//! `harness/doc/reference/protocol.md`. To be read in this order: [`wire`], [`rank`], [`storages`], [`library`], [`c10d`],
//! [`zygote`].

mod c10d;
mod candidates;
mod clock;
mod held_resources;
mod library;
mod process;
mod process_exit;
mod rank;
mod slow;
mod storages;
mod wire;
mod zygote;

use std::env;
use std::io::{self, Write};

use process_exit::ORPHANED;
use rank::Ending;

const USAGE: &str =
    "usage: allranks-libtorch [zygote | probe]; `allranks run --driver libtorch` starts it";

fn main() {
    let words: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    process_exit::die_with_parent_if_asked();
    let ended = match words[..] {
        [] if env::var_os("ALLRANKS_CONTROL").is_some() => rank::run(),
        ["zygote"] => zygote::run(),
        ["probe"] => probe(),
        _ => Err(wire::garbage(USAGE)),
    };
    finish(ended)
}

/// Ends the process with the exit code of its ending.
///
/// Destructors of libtorch's statics are skipped, unless they are asked for: they tell nothing about the backend.
fn finish(ended: io::Result<Ending>) -> ! {
    let code = match ended {
        Ok(Ending::Shutdown(code)) => std::process::exit(code),
        Ok(Ending::AtOnce(code)) => code,
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => ORPHANED,
        Err(error) => {
            let _ = writeln!(io::stderr(), "allranks-libtorch: {error}");
            match error.kind() {
                io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => ORPHANED,
                _ => 1,
            }
        }
    };
    process::leave_at_once(code)
}

/// Prints what this build offers: `{"torch", "count": {"cuda": n}, "backends": {name: bool}}`.
fn probe() -> io::Result<Ending> {
    let found = serde_json::json!({
        "torch": c10d::torch_version(),
        "headers": c10d::header_version(),
        "count": {"cuda": c10d::count_devices("cuda").unwrap_or(0)},
        "backends": {"gloo": true, "nccl": c10d::has_nccl()},
    });
    writeln!(io::stdout(), "{found}")?;
    Ok(Ending::AtOnce(0))
}
