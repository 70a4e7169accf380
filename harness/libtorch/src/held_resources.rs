//! Counts the resources that this process holds: descriptors, threads, shared memory, children. Reads /proc; without it, nothing
//! is counted.

use std::fs;

use serde_json::{Value, json};

/// Counts what this process holds; an empty object where there is no /proc.
#[must_use]
pub fn count_held_resources() -> Value {
    count().unwrap_or_else(|| json!({}))
}

fn count() -> Option<Value> {
    let names: Vec<String> = fs::read_dir("/proc/self/fd")
        .ok()?
        .filter_map(|entry| {
            // The descriptor that lists them is gone again when its name is read, or is this very directory.
            let name = fs::read_link(entry.ok()?.path()).ok()?;
            Some(name.to_string_lossy().into_owned())
        })
        .filter(|name| !(name.starts_with("/proc/") && name.ends_with("/fd")))
        .collect();
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let field = |name: &str| -> Option<u64> {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse().ok()
    };
    let maps = fs::read_to_string("/proc/self/maps").ok()?;
    let pid = std::process::id();
    let children = fs::read_to_string(format!("/proc/self/task/{pid}/children")).ok()?;
    Some(json!({
        "files": names.len(),
        "sockets": names.iter().filter(|name| name.starts_with("socket:")).count(),
        "threads": living_threads()?,
        "shared_memory": maps.lines().filter(|line| line.contains("/dev/shm/")).count(),
        "memory": own_memory(&field)? * 1024,
        "processes": children.split_whitespace().count(),
    }))
}

/// Returns the KiB that this process holds itself, in memory or swapped out, given the fields of its status. Pages of files
/// come and go with what the kernel reads ahead; a kernel that does not tell them apart has `VmRSS` alone.
fn own_memory(field: &dyn Fn(&str) -> Option<u64>) -> Option<u64> {
    let part = |name: &str| field(name).unwrap_or(0);
    match field("RssAnon:") {
        Some(anonymous) => Some(anonymous + part("RssShmem:") + part("VmSwap:")),
        None => field("VmRSS:"),
    }
}

/// Returns the number of threads that do not end. One that was joined may be listed for a moment longer: a join returns when the
/// thread gives up its memory, which is before the kernel takes it from the list.
fn living_threads() -> Option<usize> {
    /// `PF_EXITING` of linux/sched.h, in the ninth field of proc_pid_stat(5).
    const EXITING: u64 = 0x4;
    let flags = |thread: fs::DirEntry| -> Option<u64> {
        let stat = fs::read_to_string(thread.path().join("stat")).ok()?;
        let (_, fields) = stat.rsplit_once(')')?;
        fields.split_whitespace().nth(6)?.parse().ok()
    };
    let living = fs::read_dir("/proc/self/task")
        .ok()?
        .filter_map(|thread| flags(thread.ok()?))
        .filter(|flags| flags & EXITING == 0);
    Some(living.count())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_files_are_not_its_own() {
        let all = |name: &str| match name {
            "VmRSS:" => Some(900),
            "RssAnon:" => Some(300),
            "RssShmem:" => Some(20),
            "VmSwap:" => Some(1),
            _ => None,
        };
        assert_eq!(own_memory(&all), Some(321));
        let plain = |name: &str| (name == "VmRSS:").then_some(900);
        assert_eq!(own_memory(&plain), Some(900));
    }

    #[test]
    fn an_open_socket_is_seen() {
        let sockets = || count_held_resources()["sockets"].as_u64().unwrap();
        let before = sockets();
        let pair = std::os::unix::net::UnixStream::pair().unwrap();
        // Other tests of this process may open and close theirs at the same time.
        assert!(sockets() >= 2, "{before}");
        drop(pair);
    }

    #[test]
    fn a_thread_that_waits_is_counted() {
        let threads = || count_held_resources()["threads"].as_u64().unwrap();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let waiting = std::thread::spawn(move || ended.recv());
        // This one, and the one that waits.
        assert!(threads() >= 2, "{}", threads());
        drop(end);
        waiting.join().unwrap().unwrap_err();
    }
}
