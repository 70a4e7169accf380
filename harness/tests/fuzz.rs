//! What is read from files and sockets is read to its end, whatever it is: a result or an error, and never a panic or a hang.
//!
//! Each test changes real inputs at random, for a few seconds; `ALLRANKS_FUZZ_S` says for how many. The changes follow from a
//! seed, which is another one each time: an input that panics is printed with it, and `ALLRANKS_FUZZ_SEED` has it made again.
//! Random numbers are rand's; what makes inputs of them is here, for it needs inputs that are nearly right.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use allranks_diagnose::logs;
use allranks_protocol::{FromRank, FromZygote};
use allranks_report::jsonl;
use allranks_runner::world::{FrameError, read_frame};
use allranks_suite::{case, expectation::Expectations, platform};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};

/// Seconds for each test, if nothing else is asked for.
const SECONDS: u64 = 3;
/// Inputs are tried at least so often, however slow the machine.
const LEAST: u64 = 20;
/// Bytes of an input; longer ones are cut.
const LENGTH: usize = 64 << 10;
/// What is put between the bytes of inputs.
const WORDS: [&str; 24] = [
    "\0",
    "\u{feff}",
    "\n",
    "\r\n",
    "\t",
    "  ",
    ": ",
    "- ",
    "&a ",
    "*a ",
    "!!binary ",
    "<<: ",
    "|",
    "{",
    "}",
    "[",
    "]",
    "\"",
    "-1",
    "1e300",
    "18446744073709551616",
    ".nan",
    "null",
    "[Rank 4294967295]",
];

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// The files below a folder of the repository with one of these endings.
fn files(folder: &str, endings: &[&str]) -> Vec<PathBuf> {
    let mut open = vec![
        Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("..")
            .join(folder),
    ];
    let mut files = Vec::new();
    while let Some(path) = open.pop() {
        if path.is_dir() {
            let entries = fs::read_dir(&path).unwrap();
            open.extend(entries.map(|entry| entry.unwrap().path()));
        } else if endings
            .iter()
            .any(|ending| path.to_string_lossy().ends_with(ending))
        {
            files.push(path);
        }
    }
    files.sort();
    assert!(!files.is_empty(), "{folder} has no {endings:?}");
    files
}

fn contents(paths: &[PathBuf]) -> Vec<Vec<u8>> {
    paths
        .iter()
        .map(|path| {
            let mut bytes = fs::read(path).unwrap();
            bytes.truncate(LENGTH);
            bytes
        })
        .collect()
}

/// Changes an input in a few places.
fn change(random: &mut StdRng, seeds: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = seeds.choose(random).unwrap().clone();
    for _ in 0..random.random_range(1..8) {
        let at = random.random_range(0..=bytes.len());
        let to = (at + random.random_range(0..64)).min(bytes.len());
        match random.random_range(0..6) {
            0 => bytes.truncate(at),
            1 => drop(bytes.drain(at..to)),
            2 => {
                let again = bytes[at..to].repeat(random.random_range(1..50));
                bytes.splice(at..at, again);
            }
            3 => {
                let word = WORDS.choose(random).unwrap();
                bytes.splice(at..at, word.bytes());
            }
            4 => {
                let other = seeds.choose(random).unwrap();
                let from = random.random_range(0..=other.len());
                let part = &other[from..(from + 200).min(other.len())];
                bytes.splice(at..to, part.iter().copied());
            }
            _ => {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= 1 << random.random_range(0..8);
                }
            }
        }
    }
    bytes.truncate(LENGTH);
    bytes
}

/// Gives changed inputs to `read` until the time is over.
fn fuzz(seeds: &[Vec<u8>], mut read: impl FnMut(&[u8])) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let asked = number("ALLRANKS_FUZZ_SEED");
    let first = asked.unwrap_or(u64::from(now.subsec_nanos()));
    let until = Instant::now() + Duration::from_secs(number("ALLRANKS_FUZZ_S").unwrap_or(SECONDS));
    // One that is asked for, and no other.
    let most = if asked.is_some() { 1 } else { u64::MAX };
    let mut tried = 0;
    while tried < most && (tried < LEAST || Instant::now() < until) {
        let seed = first.wrapping_add(tried);
        let input = change(&mut StdRng::seed_from_u64(seed), seeds);
        let read = catch_unwind(AssertUnwindSafe(|| read(&input)));
        assert!(
            read.is_ok(),
            "ALLRANKS_FUZZ_SEED={seed} makes this input, which panics:\n{}",
            String::from_utf8_lossy(&input)
        );
        tried += 1;
    }
}

/// Case, platform and expectation files. An error has a text, and that can be shown.
#[test]
fn yaml() {
    let mut paths = files("cases", &[".yaml"]);
    paths.extend(files("fixtures/platforms", &[".yaml"]));
    paths.extend(files("fixtures/expectations", &[".yaml"]));
    paths.extend(files("fixtures/bad", &[".yaml"]));
    let folder = tempfile::tempdir().unwrap();
    // A case without requirements of its own.
    let path = folder.path().join("case.yaml");
    let one = [path.clone()];
    fuzz(&contents(&paths), |input| {
        fs::write(&path, input).unwrap();
        let problems = [
            case::load(&one).err(),
            platform::load(&one).err(),
            Expectations::load(&one).err(),
        ];
        for problem in problems.into_iter().flatten().flatten() {
            assert!(!problem.render(false).is_empty());
        }
    });
}

/// Frames of ranks and of zygotes, many on one connection.
#[test]
fn frames() {
    let headers = [
        r#"{"frame":"hello","version":1,"token":"t","rank":0,"pid":1,"driver":"d","torch":"2","clock":"c","calls":[]}"#,
        r#"{"frame":"enter","step":1,"call":0,"at":12}"#,
        r#"{"frame":"result","step":1,"calls":[],"storages":[4]}"#,
        r#"{"frame":"bye","token":"t"}"#,
        r#"{"frame":"zygote","version":1,"token":"t","pid":3,"torch":"2","threads":1}"#,
        r#"{"frame":"exited","id":1,"pid":3,"code":0,"signal":null,"left_behind":0}"#,
    ];
    let one = |header: &str, payload: &[u8]| {
        let mut bytes = (header.len() as u32).to_le_bytes().to_vec();
        bytes.extend((payload.len() as u64).to_le_bytes());
        bytes.extend(header.bytes());
        bytes.extend(payload);
        bytes
    };
    let mut seeds: Vec<Vec<u8>> = headers.iter().map(|header| one(header, b"")).collect();
    seeds.push(headers.iter().flat_map(|header| one(header, b"")).collect());
    seeds.push(one(headers[2], &[0, 0, 128, 63]));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    fuzz(&seeds, |input| {
        runtime.block_on(async {
            let mut left = input;
            // After bytes that are no frame nothing can be read any more; after a header that means nothing, the next one.
            while let Ok(_) | Err(FrameError::BadHeader { .. }) =
                read_frame::<FromRank>(&mut left).await
            {}
            let mut left = input;
            while read_frame::<FromZygote>(&mut left).await.is_ok() {}
        });
    });
}

/// Results of runs.
#[test]
fn records() {
    let paths = files("fixtures/fuzz", &["results.jsonl"]);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("results.jsonl");
    fuzz(&contents(&paths), |input| {
        fs::write(&path, input).unwrap();
        match jsonl::read(folder.path()) {
            Ok(results) => drop(results.columns().len()),
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    });
}

/// Logs of jobs.
#[test]
fn job_logs() {
    let paths = files("fixtures/logs", &[".log", ".out"]);
    let folder = tempfile::tempdir().unwrap();
    let names = ["rank0.log", "rank1.log"].map(|name| folder.path().join(name));
    let seeds = contents(&paths);
    let mut before = seeds[0].clone();
    fuzz(&seeds, |input| {
        fs::write(&names[0], input).unwrap();
        fs::write(&names[1], std::mem::replace(&mut before, input.to_vec())).unwrap();
        let report = logs::read(&names, &mut std::io::empty()).and_then(|read| logs::report(&read));
        if let Err(error) = report {
            assert!(!error.to_string().is_empty());
        }
    });
}
