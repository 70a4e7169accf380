//! System calls on a rank's own process for which no library has a safe function: immediate exit, environment variables, fork.

use std::ffi::OsStr;

use rustix::process::Pid;

/// Ends the process now: no destructors, no shutdown of libtorch.
#[expect(unsafe_code, reason = "`_exit` of C")]
pub fn leave_at_once(code: i32) -> ! {
    // SAFETY: it does not return, and touches nothing of this process.
    unsafe { libc::_exit(code) }
}

/// Sets a variable of the environment, or removes it.
#[expect(
    unsafe_code,
    reason = "the environment is the process's, not a thread's"
)]
pub fn set_variable(name: &OsStr, value: Option<&OsStr>) {
    // SAFETY: called from the rank's main thread, and by scripts that say so. Other threads are libtorch's; they read it
    // as in ranks of the Python driver, because `os.environ` does the same `setenv`.
    unsafe {
        match value {
            Some(value) => std::env::set_var(name, value),
            None => std::env::remove_var(name),
        }
    }
}

/// Forks this process. Returns the child's pid in the parent, `None` in the child.
///
/// # Errors
/// The system's; or this process has several threads, whose locks the child would find locked for ever.
#[expect(unsafe_code, reason = "`fork` of C")]
pub fn fork() -> std::io::Result<Option<Pid>> {
    let threads = threads()?;
    if threads != 1 {
        return Err(std::io::Error::other(format!(
            "the zygote has {threads} threads; forking it is unsafe"
        )));
    }
    // SAFETY: there is one thread, this one, so the child is a whole copy of this process.
    match unsafe { libc::fork() } {
        -1 => Err(std::io::Error::last_os_error()),
        pid => Ok(Pid::from_raw(pid)),
    }
}

/// Returns the number of threads of this process.
///
/// # Errors
/// There is no /proc.
pub fn threads() -> std::io::Result<usize> {
    Ok(std::fs::read_dir("/proc/self/task")?.count())
}
