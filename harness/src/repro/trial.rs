//! Runs a reproducer to see whether and how it fails: starts its ranks without a launcher.

use std::io::{self, Read, Seek};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use allranks_model::names::WorldSize;

/// How a reproducer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrialOutcome {
    /// Every rank printed "as expected" and ended with exit code 0.
    AsExpected,
    /// A rank has wrong values.
    Wrong,
    /// A call raised unexpectedly, or did not raise as expected.
    Raised,
    /// A call did not return.
    Hung,
    /// A rank died.
    Died,
}

/// The time between two looks at the ranks.
const PERIOD: Duration = Duration::from_millis(20);
/// How long the other ranks may run after one has failed.
const AFTER_A_FAILURE: Duration = Duration::from_secs(5);
/// The time limit of a reproducer beyond its own deadline, for start and teardown.
const MARGIN: Duration = Duration::from_secs(60);

/// Runs a reproducer on this host. `port` is the port of its rendezvous, and must be free.
///
/// # Errors
/// The file could not be written or a rank not started.
pub fn trial(
    python: &Path,
    script: &str,
    world_size: WorldSize,
    port: u16,
    deadline_s: f64,
) -> io::Result<TrialOutcome> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("repro.py");
    std::fs::write(&file, script)?;
    let mut output = tempfile::tempfile()?;
    let mut ranks = Ranks(Vec::new());
    for rank in world_size.ranks() {
        let mut command = Command::new(python);
        command
            .arg(&file)
            .envs([
                ("RANK", rank.to_string()),
                ("LOCAL_RANK", rank.to_string()),
                ("WORLD_SIZE", world_size.to_string()),
                ("LOCAL_WORLD_SIZE", world_size.to_string()),
                ("MASTER_ADDR", "127.0.0.1".to_owned()),
                ("MASTER_PORT", port.to_string()),
                ("OMP_NUM_THREADS", "1".to_owned()),
            ])
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output.try_clone()?);
        ranks.0.push(command.spawn()?);
    }
    let mut codes = vec![None; ranks.0.len()];
    let mut limit = Instant::now() + MARGIN + Duration::from_secs_f64(deadline_s);
    while codes.contains(&None) && Instant::now() < limit {
        for (code, rank) in codes.iter_mut().zip(&mut ranks.0) {
            if code.is_none() {
                *code = rank.try_wait()?.map(|status| status.code());
            }
        }
        // If a rank died, the others may wait for it forever.
        if codes.contains(&Some(None)) {
            return Ok(TrialOutcome::Died);
        }
        if codes.iter().flatten().any(|code| *code != Some(0)) {
            limit = limit.min(Instant::now() + AFTER_A_FAILURE);
        }
        sleep(PERIOD);
    }
    drop(ranks);
    let mut text = String::new();
    output.rewind()?;
    output.take(1 << 20).read_to_string(&mut text)?;
    let fails = |how: &str| text.contains(&format!("FAILED: {how}"));
    Ok(match () {
        () if codes.iter().all(|code| *code == Some(Some(0))) => TrialOutcome::AsExpected,
        () if fails("raised") || fails("did not raise") => TrialOutcome::Raised,
        () if fails("hangs") || codes.contains(&None) => TrialOutcome::Hung,
        () if text.contains("FAILED: ") => TrialOutcome::Wrong,
        () => TrialOutcome::Died,
    })
}

/// The processes of the ranks, which are killed when this is dropped.
struct Ranks(Vec<Child>);

impl Drop for Ranks {
    fn drop(&mut self) {
        for rank in &mut self.0 {
            // The process may have ended already.
            let _ = rank.kill();
            let _ = rank.wait();
        }
    }
}
