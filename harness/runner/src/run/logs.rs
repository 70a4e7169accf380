//! The logs of ranks: where they are, and how much of them is kept.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use super::Shared;
use allranks_suite::plan::Scenario;

/// Bytes that are kept of a rank's log: of its beginning, and of its end.
const LOG_HEAD: u64 = 1 << 20;
const LOG_TAIL: u64 = 3 << 20;

/// Bytes at the end of a log in which the reason is searched for why a rank did not start.
const INSPECTED_END: u64 = 64 << 10;

/// Shortens the logs of a world's ranks (paths relative to the run's folder). Returns one line for each log that cannot
/// be shortened.
pub(super) fn cut(shared: &Shared, logs: &[PathBuf]) -> Vec<String> {
    let cannot = |log: &PathBuf| {
        let error = cap(&shared.settings.out.join(log)).err()?;
        Some(format!("cannot cut {}: {error}", log.display()))
    };
    logs.iter().filter_map(cannot).collect()
}

/// Removes the middle of a log that is longer than `LOG_HEAD` and `LOG_TAIL` together.
fn cap(log: &Path) -> io::Result<()> {
    let Ok(mut file) = File::options().read(true).write(true).open(log) else {
        // A rank that never started has none.
        return Ok(());
    };
    let length = file.metadata()?.len();
    if length <= LOG_HEAD + LOG_TAIL {
        return Ok(());
    }
    let mut tail = Vec::new();
    file.seek(SeekFrom::End(-(LOG_TAIL as i64)))?;
    file.read_to_end(&mut tail)?;
    let cut = length - LOG_HEAD - LOG_TAIL;
    file.set_len(LOG_HEAD)?;
    file.seek(SeekFrom::End(0))?;
    write!(file, "\n[allranks cut {cut} bytes out of here]\n")?;
    file.write_all(&tail)
}

/// Returns the last bytes of a log (path relative to the run's folder), as text; empty if it cannot be read.
pub(super) fn end_of(shared: &Shared, log: &Path) -> String {
    let read = || -> io::Result<Vec<u8>> {
        let mut file = File::open(shared.settings.out.join(log))?;
        let start = file.metadata()?.len().saturating_sub(INSPECTED_END);
        file.seek(SeekFrom::Start(start))?;
        let mut end = Vec::new();
        file.take(INSPECTED_END).read_to_end(&mut end)?;
        Ok(end)
    };
    String::from_utf8_lossy(&read().unwrap_or_default()).into_owned()
}

/// Returns the path of a log that is given relative to the run's folder.
pub(super) fn absolute(shared: &Shared, log: &Path) -> PathBuf {
    let path = shared.settings.out.join(log);
    std::path::absolute(&path).unwrap_or(path)
}

/// `logs/SCENARIO`, with the id's slashes made harmless.
pub(super) fn log_folder(scenario: &Scenario, round: u32) -> PathBuf {
    let mut name = scenario.id.as_str().replace('/', "_");
    if round > 0 {
        name.push_str(&format!(".round{}", round + 1));
    }
    PathBuf::from("logs").join(name)
}
