//! Reads the end of a rank's log, for reports that quote it. A log may have any size and encoding, and its path may come from an
//! untrusted results file. So only a limited part is read, and only below the folders of the results.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use super::results::Results;
use super::text::clean;

/// Returns the last lines of a log, [cleaned](crate::text::clean), in at most `limit` bytes; `None` if it cannot be read, or is
/// not below the folders of the results.
pub(crate) fn log_tail<C>(results: &Results<C>, log: &str, limit: usize) -> Option<String> {
    let path = results.folder.join(log).canonicalize().ok()?;
    let is_inside = |folder: &Path| {
        let folder = folder.canonicalize();
        folder.is_ok_and(|folder| path.starts_with(folder))
    };
    if !results.sources.iter().any(|folder| is_inside(folder)) || !path.is_file() {
        return None;
    }
    let mut file = File::open(&path).ok()?;
    let length = file.metadata().ok()?.len();
    let skipped = length.saturating_sub(limit as u64);
    file.seek(SeekFrom::Start(skipped)).ok()?;
    let mut bytes = Vec::new();
    file.take(limit as u64).read_to_end(&mut bytes).ok()?;
    // Cleaning may make the text longer, because a replacement character has three bytes.
    let mut text = clean(&String::from_utf8_lossy(&bytes));
    let mut cut = text.len().saturating_sub(limit);
    while !text.is_char_boundary(cut) {
        cut += 1;
    }
    // Begin with a whole line, if there is one.
    if skipped > 0 || cut > 0 {
        cut = text[cut..]
            .find('\n')
            .map_or(cut, |newline| cut + newline + 1);
    }
    text.drain(..cut);
    Some(text)
}
