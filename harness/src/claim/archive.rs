//! Writes and unpacks packages: tar archives in Zstandard frames. A package may come from anyone, so unpacking writes plain files
//! below one folder and nothing else, and stops at limits.
//!
//! Both directions use `ruzstd`, which is safe Rust. Its compressor cannot report errors of a stream, so each frame is compressed
//! in memory; `zstd` and `tar --zstd` read files of several frames as one.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};

use ruzstd::decoding::{FrameDecoder, StreamingDecoder};
use ruzstd::encoding::{CompressionLevel, compress_to_vec};
use tar::{Archive, Builder, EntryType, Header};

use super::manifest::FileDigest;
use super::reason::Reason;

/// Bytes of the archive that go into one frame.
const FRAME: usize = 8 << 20;
/// The longest path, in bytes.
const LONGEST_PATH: usize = 1024;
/// The longest name of a file or folder, in bytes: that of Linux.
const LONGEST_NAME: usize = 255;
/// The largest window of a frame, in bytes: what decoding may hold in memory.
const WINDOW: u64 = 64 << 20;

/// The limits of a package's content.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The largest size of the archive after decompression, in bytes.
    pub bytes: u64,
    /// The most files that a package may hold.
    pub files: usize,
    /// The most folders that the paths of its files may name.
    pub folders: usize,
}

/// The limits of `allranks verify`: enough for two runs of profile `full` with long logs.
pub const LIMITS: Limits = Limits {
    bytes: 4 << 30,
    files: 200_000,
    folders: 50_000,
};

/// Why an archive was not unpacked.
#[derive(Debug)]
pub enum ReadError {
    /// The archive is invalid or unsafe.
    Rejected(Reason, String),
    /// This machine cannot store it, for example because the disk is full.
    Io(io::Error),
}

/// Writes the files, by path in the package, as one archive.
///
/// # Errors
/// A file cannot be read, or the archive not written.
pub fn write(to: &mut impl Write, files: &BTreeMap<String, PathBuf>) -> io::Result<()> {
    let mut builder = Builder::new(Frames::new(to));
    for (path, file) in files {
        let named =
            |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", file.display()));
        let source = File::open(file).map_err(named)?;
        let size = source.metadata().map_err(named)?.len();
        let mut header = Header::new_gnu();
        header.set_entry_type(EntryType::Regular);
        header.set_mode(0o644);
        header.set_size(size);
        builder.append_data(&mut header, path, source.take(size))?;
    }
    builder.into_inner()?.finish()
}

/// Collects bytes into frames.
struct Frames<'a, W> {
    to: &'a mut W,
    waiting: Vec<u8>,
}

impl<'a, W: Write> Frames<'a, W> {
    fn new(to: &'a mut W) -> Self {
        let waiting = Vec::new();
        Self { to, waiting }
    }

    fn frame(&mut self) -> io::Result<()> {
        let frame = compress_to_vec(self.waiting.as_slice(), CompressionLevel::Fastest);
        self.waiting.clear();
        self.to.write_all(&frame)
    }

    fn finish(mut self) -> io::Result<()> {
        if !self.waiting.is_empty() {
            self.frame()?;
        }
        self.to.flush()
    }
}

impl<W: Write> Write for Frames<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = bytes.len().min(FRAME - self.waiting.len());
        self.waiting.extend_from_slice(&bytes[..taken]);
        if self.waiting.len() == FRAME {
            self.frame()?;
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Unpacks an archive below a folder. Returns what was found, by path.
///
/// # Errors
/// The archive is invalid or unsafe, or this machine cannot store it.
pub fn unpack(
    package: &Path,
    folder: &Path,
    limits: Limits,
) -> Result<BTreeMap<String, FileDigest>, ReadError> {
    let file = File::open(package).map_err(ReadError::Io)?;
    let plain = DecodedFrames {
        source: Some(BufReader::new(file)),
        decoder: None,
        left: limits.bytes,
    };
    let mut archive = Archive::new(plain);
    let mut found = BTreeMap::new();
    let mut folders = BTreeSet::new();
    let mut long_name: Option<Vec<u8>> = None;
    let entries = archive.entries().map_err(|error| read_error(&error))?;
    for entry in entries.raw(true) {
        let mut entry = entry.map_err(|error| read_error(&error))?;
        let kind = entry.header().entry_type();
        if kind == EntryType::GNULongName {
            let mut name = Vec::new();
            let mut start = (&mut entry).take(LONGEST_PATH as u64 + 2);
            start
                .read_to_end(&mut name)
                .map_err(|error| read_error(&error))?;
            while name.last() == Some(&0) {
                name.pop();
            }
            long_name = Some(name);
            continue;
        }
        let name = match long_name.take() {
            Some(name) => name,
            None => entry.path_bytes().into_owned(),
        };
        let path = String::from_utf8_lossy(&name).into_owned();
        match kind {
            EntryType::Regular => {}
            EntryType::Directory => continue,
            _ => {
                let text = format!("`{path}` is neither a plain file nor a folder");
                return Err(ReadError::Rejected(Reason::UnsafeEntry, text));
            }
        }
        if !is_plain(&path) {
            let text = format!(
                "`{}` is not a plain path below the package",
                path.escape_debug()
            );
            return Err(ReadError::Rejected(Reason::UnsafePath, text));
        }
        let target = folder.join(&path);
        let mut is_taken = found.contains_key(&path) || folders.contains(&path);
        for parent in folders_of(&path) {
            // Those above a known folder are known as well.
            if folders.contains(parent) {
                break;
            }
            is_taken |= found.contains_key(parent);
            folders.insert(parent.to_owned());
        }
        if is_taken {
            let text = format!("`{path}` occurs twice");
            return Err(ReadError::Rejected(Reason::DuplicateEntry, text));
        }
        if folders.len() > limits.folders {
            let text = format!("it holds more than {} folders", limits.folders);
            return Err(ReadError::Rejected(Reason::TooLarge, text));
        }
        if found.len() == limits.files {
            let text = format!("it holds more than {} files", limits.files);
            return Err(ReadError::Rejected(Reason::TooLarge, text));
        }
        let digest = copy(&mut entry, &target)?;
        found.insert(path, digest);
    }
    Ok(found)
}

/// Returns the folders that a plain path is in, the innermost first.
fn folders_of(path: &str) -> impl Iterator<Item = &str> {
    path.rmatch_indices('/').map(|(end, _)| &path[..end])
}

/// Writes an entry's bytes to a file.
fn copy(entry: &mut impl Read, target: &Path) -> Result<FileDigest, ReadError> {
    if let Some(parent) = target.parent() {
        std::fs::create_dir_all(parent).map_err(ReadError::Io)?;
    }
    let mut file = File::create_new(target).map_err(ReadError::Io)?;
    FileDigest::of(
        entry,
        |error| read_error(&error),
        |bytes| file.write_all(bytes).map_err(ReadError::Io),
    )
}

/// Returns true if a path names a file below the folder that it is joined to, with the same meaning on every system.
fn is_plain(path: &str) -> bool {
    let is_name = |name: &str| {
        !matches!(name, "" | "." | "..")
            && name.len() <= LONGEST_NAME
            && !name.contains(|c: char| c.is_control() || matches!(c, '\\' | ':' | '\u{fffd}'))
    };
    path.len() <= LONGEST_PATH && path.split('/').all(is_name)
}

/// Turns an error of reading into its reason: a limit of the package, or an archive that cannot be decoded.
fn read_error(error: &io::Error) -> ReadError {
    match error.kind() {
        io::ErrorKind::FileTooLarge => ReadError::Rejected(
            Reason::TooLarge,
            "it unpacks to more bytes than a package may have".to_owned(),
        ),
        _ => ReadError::Rejected(
            Reason::NotAnArchive,
            format!("it cannot be unpacked: {error}"),
        ),
    }
}

/// Decodes the frames of a file one after the other, up to a limit of bytes.
struct DecodedFrames<R: Read> {
    source: Option<R>,
    decoder: Option<StreamingDecoder<R, FrameDecoder>>,
    left: u64,
}

impl<R: BufRead> Read for DecodedFrames<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        loop {
            if let Some(mut source) = self.source.take() {
                if source.fill_buf()?.is_empty() {
                    self.source = Some(source);
                    return Ok(0);
                }
                let decoder = StreamingDecoder::new_with_max_window_size(source, WINDOW);
                self.decoder = Some(decoder.map_err(io::Error::other)?);
            }
            let Some(decoder) = &mut self.decoder else {
                return Ok(0);
            };
            let count = decoder.read(buffer)?;
            if count > 0 {
                self.left = self
                    .left
                    .checked_sub(count as u64)
                    .ok_or(io::ErrorKind::FileTooLarge)?;
                return Ok(count);
            }
            self.source = self.decoder.take().map(StreamingDecoder::into_inner);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: Limits = Limits {
        bytes: 1 << 20,
        files: 3,
        folders: 5,
    };

    /// Unpacks an archive whose tar is built by hand.
    fn unpacked(tar: &[u8]) -> Result<BTreeMap<String, FileDigest>, Reason> {
        let folder = tempfile::tempdir().unwrap();
        let package = folder.path().join("p.tar.zst");
        let mut bytes = Vec::new();
        let mut frames = Frames::new(&mut bytes);
        frames.write_all(tar).unwrap();
        frames.finish().unwrap();
        std::fs::write(&package, bytes).unwrap();
        let outside = folder.path().join("outside");
        let inside = outside.join("inside");
        std::fs::create_dir_all(&inside).unwrap();
        let result = unpack(&package, &inside, SMALL).map_err(|error| match error {
            ReadError::Rejected(reason, _) => reason,
            ReadError::Io(error) => panic!("{error}"),
        });
        let names = std::fs::read_dir(&outside).unwrap().count();
        assert_eq!(names, 1, "something was written outside");
        result
    }

    /// A tar with one entry, whose path is written as it is.
    fn tar(entries: &[(&str, EntryType, &[u8])]) -> Vec<u8> {
        let mut builder = Builder::new(Vec::new());
        for (path, kind, bytes) in entries {
            let mut header = Header::new_gnu();
            header.as_mut_bytes()[..path.len()].copy_from_slice(path.as_bytes());
            header.set_entry_type(*kind);
            if *kind == EntryType::Symlink {
                header.set_link_name("/etc/passwd").unwrap();
            }
            header.set_size(bytes.len() as u64);
            header.set_mode(0o644);
            header.set_cksum();
            builder.append(&header, *bytes).unwrap();
        }
        builder.into_inner().unwrap()
    }

    #[test]
    fn what_is_written_comes_back() {
        let folder = tempfile::tempdir().unwrap();
        let long = format!("a/{}/{}", "b".repeat(200), "c".repeat(200));
        let mut files = BTreeMap::new();
        // More than one frame.
        for (path, length) in [("x", 3), (long.as_str(), FRAME + 5)] {
            let file = folder.path().join(format!("{length}"));
            std::fs::write(&file, vec![7; length]).unwrap();
            files.insert(path.to_owned(), file);
        }
        let package = folder.path().join("p.tar.zst");
        write(&mut File::create(&package).unwrap(), &files).unwrap();
        let out = folder.path().join("out");
        let found = unpack(&package, &out, LIMITS).unwrap();
        assert_eq!(found.len(), 2);
        assert_eq!(found[&long].size, FRAME as u64 + 5);
        assert_eq!(std::fs::read(out.join("x")).unwrap(), [7; 3]);
    }

    #[test]
    fn an_archive_cannot_reach_out_of_its_folder() {
        let file = EntryType::Regular;
        for path in [
            "../x",
            "/x",
            "a/../../x",
            "a/./x",
            "a//x",
            "a\\x",
            "a\nb",
            "..",
            "c:x",
        ] {
            assert_eq!(
                unpacked(&tar(&[(path, file, b"1")])),
                Err(Reason::UnsafePath),
                "{path}"
            );
        }
        for kind in [
            EntryType::Symlink,
            EntryType::Link,
            EntryType::Fifo,
            EntryType::Char,
        ] {
            assert_eq!(
                unpacked(&tar(&[("a", kind, b"")])),
                Err(Reason::UnsafeEntry)
            );
        }
        let twice = tar(&[("a", file, b"1"), ("a", file, b"2")]);
        assert_eq!(unpacked(&twice), Err(Reason::DuplicateEntry));
        let below_a_file = tar(&[("a", file, b"1"), ("a/b", file, b"2")]);
        assert_eq!(unpacked(&below_a_file), Err(Reason::DuplicateEntry));
        let above_a_file = tar(&[("a/b", file, b"1"), ("a", file, b"2")]);
        assert_eq!(unpacked(&above_a_file), Err(Reason::DuplicateEntry));
        assert_eq!(unpacked(&tar(&[("a", file, b"1")])).unwrap().len(), 1);
    }

    #[test]
    fn an_archive_is_no_larger_than_allowed() {
        let file = EntryType::Regular;
        let bomb = tar(&[("a", file, &vec![0; 2 << 20])]);
        assert_eq!(unpacked(&bomb), Err(Reason::TooLarge));
        let many = ["a", "b", "c", "d"].map(|path| (path, file, &b"1"[..]));
        assert_eq!(unpacked(&tar(&many)), Err(Reason::TooLarge));
        let folders = ["a/b/x", "a/c/x", "d/e/x"].map(|path| (path, file, &b"1"[..]));
        assert_eq!(unpacked(&tar(&folders)).unwrap().len(), 3);
        let deep = tar(&[("a/b/c/d/e/f/x", file, b"1")]);
        assert_eq!(unpacked(&deep), Err(Reason::TooLarge));
    }

    #[test]
    fn what_is_no_archive_is_refused() {
        assert_eq!(unpacked(&[b'x'; 2000]), Err(Reason::NotAnArchive));
        let whole = tar(&[("a", EntryType::Regular, &[1; 4000])]);
        assert_eq!(unpacked(&whole[..2000]), Err(Reason::NotAnArchive));
        let folder = tempfile::tempdir().unwrap();
        let package = folder.path().join("p");
        std::fs::write(&package, "no frame").unwrap();
        let refused = unpack(&package, folder.path(), SMALL);
        assert!(matches!(
            refused,
            Err(ReadError::Rejected(Reason::NotAnArchive, _))
        ));
    }
}
