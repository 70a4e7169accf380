//! A stream whose reader may close it early.

use std::io::{self, Write};

/// Writes to a stream until its reader closes it, and drops all further output without an error. So the results and the exit code
/// of a command do not depend on whether its output is read.
#[derive(Debug)]
pub struct UntilClosed<W> {
    stream: W,
    is_closed: bool,
}

impl<W> UntilClosed<W> {
    /// Writes to this stream.
    pub fn new(stream: W) -> Self {
        Self {
            stream,
            is_closed: false,
        }
    }

    /// Calls `write`, unless the stream is closed. Returns `dropped` if it is.
    fn attempt<T>(
        &mut self,
        dropped: T,
        write: impl FnOnce(&mut W) -> io::Result<T>,
    ) -> io::Result<T> {
        if self.is_closed {
            return Ok(dropped);
        }
        match write(&mut self.stream) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                self.is_closed = true;
                Ok(dropped)
            }
            result => result,
        }
    }
}

impl<W: Write> Write for UntilClosed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.attempt(bytes.len(), |stream| stream.write(bytes))
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.attempt((), |stream| stream.write_all(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.attempt((), Write::flush)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A stream that takes so many bytes and fails from then on.
    struct Short(usize, io::ErrorKind);

    impl Write for Short {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let count = bytes.len().min(self.0);
            self.0 -= count;
            match count {
                0 => Err(self.1.into()),
                count => Ok(count),
            }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn only_a_closed_reader_is_no_error() {
        let mut closed = UntilClosed::new(Short(3, io::ErrorKind::BrokenPipe));
        for _ in 0..2 {
            closed.write_all(b"more than three").unwrap();
            closed.flush().unwrap();
        }
        let mut full = UntilClosed::new(Short(3, io::ErrorKind::StorageFull));
        let error = full.write_all(b"more than three").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    }
}
