//! Detects that a machine, or a limit set on it, allows no more processes, threads or open files. Neither the backend nor the
//! driver is at fault then.

use std::io;
use std::sync::LazyLock;

use regex::Regex;
use rustix::io::Errno;

/// Returns true if an error means that the system allows no more open files, threads or processes.
#[must_use]
pub fn is_exhaustion(error: &io::Error) -> bool {
    let number = error.raw_os_error().map(Errno::from_raw_os_error);
    // EAGAIN is what fork and clone return; calls that would block are not asked about.
    matches!(number, Some(Errno::MFILE | Errno::NFILE | Errno::AGAIN))
}

/// Returns true if the output of a process reports that the system allows no more open files, threads or processes.
#[must_use]
pub fn names_exhaustion(text: &str) -> bool {
    static WORDS: LazyLock<Regex> = LazyLock::new(|| {
        // A socket with nothing to read fails with `Resource temporarily unavailable` too. So the message must mention a thread
        // or a process, or be the whole message of an exception, as from std::thread or os.fork.
        let words = "too many open files\
                     |can't start new thread\
                     |(thread|fork|clone|process)[^\\n]{0,80}resource temporarily unavailable\
                     |what\\(\\):\\s+resource temporarily unavailable\
                     |(RuntimeError|BlockingIOError): (\\[Errno 11\\] )?resource temporarily unavailable";
        Regex::new(&format!("(?i){words}")).expect("the words are a regular expression")
    });
    WORDS.is_match(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_processes_say_of_exhaustion() {
        for text in [
            "OSError: [Errno 24] Too many open files: '/dev/null'",
            "RuntimeError: can't start new thread",
            "BlockingIOError: [Errno 11] Resource temporarily unavailable",
            "libgomp: Thread creation failed: Resource temporarily unavailable",
            "terminate called after throwing an instance of 'std::system_error'\n  what():  Resource temporarily unavailable",
            "OpenBLAS blas_thread_init: pthread_create failed for thread 1 of 2: Resource temporarily unavailable",
            "[enforce fail at socket.cc:24] rv != -1. -1 vs -1. socket: Too many open files",
        ] {
            assert!(names_exhaustion(text), "{text}");
        }
        for text in [
            "",
            "recv: Resource temporarily unavailable",
            "RuntimeError: Connection refused",
            "opened files: 24",
        ] {
            assert!(!names_exhaustion(text), "{text}");
        }
    }

    #[test]
    fn a_program_that_does_not_exist_is_no_fault_of_the_machine() {
        let error = |number: Errno| io::Error::from_raw_os_error(number.raw_os_error());
        assert!(
            [Errno::MFILE, Errno::NFILE, Errno::AGAIN]
                .map(error)
                .iter()
                .all(is_exhaustion)
        );
        assert!(!is_exhaustion(&error(Errno::NOENT)));
        assert!(!is_exhaustion(&io::Error::other("no number")));
    }
}
