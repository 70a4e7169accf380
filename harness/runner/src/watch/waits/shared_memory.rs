//! Finds ranks that may wait for what another rank writes into shared memory: they loop, and both have mapped the same file.

use std::collections::BTreeMap;

use crate::watch::ranks::rank_process::RankProcess;
use allranks_diagnose::{EventKind, HangEvidence, RankState, RankWait};
use allranks_host::{SharedFile, shared_files};
use allranks_model::names::Rank;

/// What the names of files begin with in which libraries of communication meet: that ranks have them in common tells nothing.
const LIBRARIES: &[&str] = &[
    "nccl",
    "ucx_shm",
    "vader_segment",
    "sm_segment",
    "psm2_shm",
    "mpich",
];

/// Replaces code of a rank's own by a likely wait for the ranks with which it shares memory, where the rank is at the head of a loop.
pub fn note_waits(evidence: &mut HangEvidence, ranks: &[(Rank, &RankProcess)]) {
    if !evidence.ranks.iter().any(loops) {
        return;
    }
    let files: BTreeMap<Rank, Vec<SharedFile>> = (ranks.iter())
        .map(|(rank, process)| (*rank, shared_files(process.pid)))
        .collect();
    for state in evidence.ranks.iter_mut().filter(|state| loops(state)) {
        let Some(own) = files.get(&state.rank) else {
            continue;
        };
        let mut sharing = Vec::new();
        let mut path = None;
        for (other, theirs) in files.iter().filter(|(other, _)| **other != state.rank) {
            if let Some(common) = in_common(own, theirs) {
                path.get_or_insert(&common.path);
                sharing.push(*other);
            }
        }
        if let (Some(path), Some((event, _))) = (path, &mut state.doing) {
            event.what = EventKind::AwaitRanks(RankWait {
                text: format!(
                    "{}, perhaps for what another rank writes into {}",
                    event.what,
                    path.display()
                ),
                ranks: sharing,
                is_proved: false,
            });
        }
    }
}

/// Returns true if a rank is at the head of a loop in code of its own.
fn loops(state: &RankState) -> bool {
    matches!(state.now(), Some(EventKind::Own(text)) if text.contains("`while "))
}

/// Returns the first file that two ranks have mapped and that is no library's.
fn in_common<'a>(own: &'a [SharedFile], theirs: &[SharedFile]) -> Option<&'a SharedFile> {
    let is_librarys = |file: &SharedFile| {
        let name = file.path.file_name().unwrap_or_default().to_string_lossy();
        LIBRARIES.iter().any(|start| name.starts_with(start))
    };
    let is_theirs = |file: &SharedFile| {
        let mut all = theirs.iter();
        all.any(|one| (one.device, one.inode) == (file.device, file.inode))
    };
    own.iter()
        .find(|file| !is_librarys(file) && is_theirs(file))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_a_library_is_nothing_that_ranks_share() {
        let file = |inode, path: &str| SharedFile {
            device: (8, 1),
            inode,
            path: path.into(),
        };
        let own = [file(1, "/dev/shm/nccl-x8Qa"), file(2, "/tmp/board")];
        let common = |theirs: &[SharedFile]| {
            in_common(&own, theirs).map(|file| file.path.display().to_string())
        };
        assert_eq!(common(&own), Some("/tmp/board".to_owned()));
        assert_eq!(common(&own[..1]), None);
        assert_eq!(common(&[file(3, "/tmp/board")]), None);
        assert_eq!(
            common(&[file(2, "/other/name")]),
            Some("/tmp/board".to_owned())
        );
    }
}
