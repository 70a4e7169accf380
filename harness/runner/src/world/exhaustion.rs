//! Tells that a machine, or a limit set on it, has no more processes or open files to give: a fault of neither backend nor driver.

use std::io;

use rustix::io::Errno;

/// Returns true if the system had no more open files, threads or processes to give.
#[must_use]
pub fn is_exhaustion(error: &io::Error) -> bool {
    let number = error.raw_os_error().map(Errno::from_raw_os_error);
    // EAGAIN is what fork and clone return; calls that would block are not asked about.
    matches!(number, Some(Errno::MFILE | Errno::NFILE | Errno::AGAIN))
}

#[cfg(test)]
mod tests {
    use super::*;

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
