//! Reads the environment that the program of a process was started with, also while the process replaces its program.

use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, Instant};

/// Time from one attempt to the next.
const RETRY_PERIOD: Duration = Duration::from_millis(1);

/// The limit of [`environment`] for functions that read the environments of all processes.
pub(crate) const PATIENCE: Duration = Duration::from_millis(200);

/// Returns the environment of a process as the kernel holds it: variables `NAME=VALUE`, each with a zero byte behind it. Linux
/// only.
///
/// While a process replaces its program (`exec`), its new memory does not hold the environment yet, which reads as empty. A
/// search for a variable would then miss the process. So this waits until the environment is there, usually less than a
/// millisecond. After `limit` it returns an empty one.
///
/// # Errors
/// There is no such process, or its environment may not be read.
pub fn environment(pid: u32, limit: Duration) -> io::Result<Vec<u8>> {
    let path = format!("/proc/{pid}/environ");
    let began = Instant::now();
    loop {
        let bytes = std::fs::read(&path)?;
        if !bytes.is_empty() || !is_replaced(pid) || began.elapsed() >= limit {
            return Ok(bytes);
        }
        std::thread::sleep(RETRY_PERIOD);
    }
}

/// Returns the variables of an environment, by name. What is not valid Unicode is replaced.
pub(crate) fn variables(environment: &[u8]) -> BTreeMap<String, String> {
    let variables = environment.split(|byte| *byte == 0);
    variables
        .filter_map(|variable| {
            let variable = String::from_utf8_lossy(variable);
            let (name, value) = variable.split_once('=')?;
            Some((name.to_owned(), value.to_owned()))
        })
        .collect()
}

/// Returns true if a process has a program but no memory for an environment yet. A process that has ended has no program, nor
/// have those of the kernel.
#[cfg(target_os = "linux")]
fn is_replaced(pid: u32) -> bool {
    let process = procfs::process::Process::new(pid.cast_signed());
    process.is_ok_and(|process| {
        let stat = process.stat();
        stat.is_ok_and(|stat| stat.env_start == Some(0)) && process.exe().is_ok()
    })
}

/// Returns false: there is no environment to read.
#[cfg(not(target_os = "linux"))]
fn is_replaced(_pid: u32) -> bool {
    false
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::process::Command;

    use super::*;

    /// Of programs that are looked at as soon as they are started, one in some twenty has no environment to read yet.
    #[test]
    fn a_program_that_has_just_begun_has_its_environment() {
        let limit = Duration::from_secs(60);
        for _ in 0..200 {
            let mut child = Command::new("sleep")
                .arg("60")
                .env_clear()
                .env("NAME", "a=b")
                .spawn()
                .unwrap();
            let bytes = environment(child.id(), limit).unwrap();
            child.kill().unwrap();
            child.wait().unwrap();
            assert_eq!(bytes, b"NAME=a=b\0");
        }
        assert_eq!(
            variables(b"NAME=a=b\0EMPTY=\0none\0"),
            BTreeMap::from([
                ("NAME".to_owned(), "a=b".to_owned()),
                ("EMPTY".to_owned(), String::new())
            ])
        );
    }

    #[test]
    fn no_environment_and_no_process_are_not_waited_for() {
        let began = Instant::now();
        let limit = Duration::from_secs(600);
        let mut child = Command::new("sh");
        let mut child = child.env_clear().args(["-c", "exit"]).spawn().unwrap();
        let pid = child.id();
        while crate::state(pid) != Some('Z') {
            // It has an empty environment, is replaced, or has ended.
            assert!(environment(pid, limit).unwrap_or_default().len() < 100);
        }
        assert_eq!(environment(pid, limit).unwrap_or_default(), b"");
        child.wait().unwrap();
        assert!(environment(pid, limit).is_err());
        assert!(began.elapsed() < limit);
    }
}
