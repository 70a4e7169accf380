//! Reads from torch's flight recorder the ops that this rank has issued and that have not ended: evidence, should the rank hang.
//! (PyTorch, "Flight Recorder for Debugging Stuck Jobs".)

use std::ptr;

use allranks_model::flight_recorder::{RecordedOp, RecorderDump, RecorderEntry};

use super::error::{check, text};
use super::{Error, Kind, Result, sys};

/// The most ops that are reported of one rank: the newest.
const MOST: usize = 8;

/// Returns the newest ops under way, oldest first. May be called while another thread is in a collective.
///
/// # Errors
/// torch's, or a dump that is not what torch 2.11 writes.
pub fn under_way() -> Result<Vec<RecordedOp>> {
    let mut entries = Vec::new();
    for nccl in [false, true] {
        if let Some(dump) = dump(nccl)? {
            entries.extend(read(&dump)?);
        }
    }
    entries.sort_by_key(|entry| entry.time_created_ns);
    let older = entries.len().saturating_sub(MOST);
    Ok(entries[older..].iter().map(RecordedOp::of).collect())
}

/// Returns the entries of a dump that have not ended.
fn read(dump: &str) -> Result<Vec<RecorderEntry>> {
    let dump: RecorderDump = serde_json::from_str(dump)
        .map_err(|error| Error::new(Kind::Value, format!("a flight recorder's dump: {error}")))?;
    let under_way = dump.entries.into_iter().filter(|entry| !entry.retired);
    Ok(under_way.collect())
}

/// Returns the dump of NCCL's recorder, or of the one that all others share; `None` if NCCL was not compiled in.
#[expect(unsafe_code, reason = "functions of the shim")]
fn dump(nccl: bool) -> Result<Option<String>> {
    let mut made = ptr::null_mut();
    // SAFETY: the result is written to a variable of ours.
    check(unsafe { sys::ar_recorder_dump(nccl.into(), &raw mut made) })?;
    if made.is_null() {
        return Ok(None);
    }
    // SAFETY: a text that is not null is valid and ours until it is freed, which is done here, once, after it has been
    // copied.
    let dump = unsafe {
        let dump = text(sys::ar_text_chars(made));
        sys::ar_text_free(made);
        dump
    };
    Ok(Some(dump))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_not_ended_is_told() {
        let dump = r#"{"version": "2.10", "entries": [
            {"profiling_name": "gloo:all_reduce", "process_group": ["0", "default_pg"], "collective_seq_id": 3,
             "p2p_seq_id": 0, "is_p2p": false, "input_dtypes": ["Float"], "input_sizes": [[2, 3]], "state": "scheduled",
             "time_created_ns": 5, "retired": false, "timeout_ms": 15000},
            {"profiling_name": "gloo:barrier", "state": "completed", "retired": true}]}"#;
        let told: Vec<RecordedOp> = read(dump).unwrap().iter().map(RecordedOp::of).collect();
        assert_eq!(
            told,
            [RecordedOp {
                op: "all_reduce".to_owned(),
                group: "0 default_pg".to_owned(),
                number: 3,
                inputs: vec!["float[2, 3]".to_owned()],
                state: "scheduled".to_owned(),
            }]
        );
        // An empty recorder names no entries.
        assert!(read(r#"{"version": "2.10"}"#).unwrap().is_empty());
        assert!(read("no JSON").is_err());
    }

    #[test]
    fn the_recorder_of_this_torch_can_be_read() {
        // It is the process's: ops of tests beside this one may be in it.
        let told = under_way().unwrap();
        assert!(
            told.iter()
                .all(|op| !op.op.is_empty() && !op.state.is_empty()),
            "{told:?}"
        );
    }
}
