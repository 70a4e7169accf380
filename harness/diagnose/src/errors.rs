//! Recognises the cause of an error by its text. The texts are those of PyTorch 2.9 to 2.15 and of Gloo.

use std::sync::LazyLock;

use regex::Regex;

/// What the text of an error says of its cause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ErrorCause {
    /// The environment variable of this name is not set.
    EnvironmentMissing(String),
    /// The backend of this name is not available.
    BackendMissing(String),
    /// A group has no backend for this device type.
    DeviceBinding(String),
    /// The port is in use; `None` if the text does not name the port.
    AddressInUse(Option<u16>),
    /// This host cannot be reached, or its name cannot be resolved.
    Unreachable(String),
    /// An effect of other ranks: they did not come in time, or ended.
    Effect,
    /// Anything else: taken for a cause on this rank.
    Cause,
}

/// Builds the meaning of an error from the pattern's first group, which is empty if nothing matched it.
type Reading = fn(&str) -> ErrorCause;

/// Patterns of error texts, in order: the first that matches counts. Its first group, if it has one, is what the error
/// is about.
static PATTERNS: LazyLock<Vec<(Regex, Reading)>> = LazyLock::new(|| {
    let table: &[(&str, Reading)] = &[
        (
            r"environment variable (\w+) expected, but not set",
            |name| ErrorCause::EnvironmentMissing(name.to_owned()),
        ),
        (
            r#"(?i)(?:unknown|invalid) (?:c10d )?backend(?: type)?:? ['"]?([\w:]+)"#,
            |name| ErrorCause::BackendMissing(name.to_owned()),
        ),
        (
            r"(?i)distributed package doesn't have (\w+) built in",
            |name| ErrorCause::BackendMissing(name.to_owned()),
        ),
        (
            r"No backend type associated with device type (\w+)",
            |device| ErrorCause::DeviceBinding(device.to_owned()),
        ),
        (
            r"(?i)(?:EADDRINUSE|address already in use)(?:.*?port:? (\d+))?",
            |port| ErrorCause::AddressInUse(port.parse().ok()),
        ),
        (
            r"(?i)(?:failed to resolve|cannot be resolved|IPv[46] network addresses of \(|name or service not known|no address associated|no route to host|network is unreachable)[ (]*([\w.:-]*)",
            |host| ErrorCause::Unreachable(host.to_owned()),
        ),
        // NCCL_SOCKET_IFNAME names no interface of this host.
        (r"(?i)no socket interface found", |_| ErrorCause::Cause),
        // The end of a process by an exception of a watchdog, and the fault that comes of it: the exception's own message says more.
        (
            r"^terminate called after throwing an instance of '(?:c10::DistBackendError|std::runtime_error|ccl::v1::exception)'|^Fatal Python error: Aborted",
            |_| ErrorCause::Effect,
        ),
        // A collective of another rank has another size or op: NCCL says so on whichever side notices it. An internal error without a
        // cause of its own mostly comes of that too, and so accuses nobody.
        (
            r"(?i)message truncated|collective mismatch error|mismatched collective|bytes instead of \d+|ncclInternalError|NCCL error.*internal error",
            |_| ErrorCause::Effect,
        ),
        (
            r"(?i)timed? ?out|timeout|connection (?:closed|reset|refused|was closed)|broken pipe|closed by peer|clients joined|wait\(\) failed|failed to pass|did not (?:check in|respond)|socket|while waiting for send/recv|remote process exited|ncclRemoteError|unhandled system error|failed to recv|communicator was aborted|got signal: (?:2|15)\b|KeyboardInterrupt|mismatch between collectives|Horovod has been shut ?down|fi_cq_read: error|oneCCL: .*(?:unexpected completion error|ATL communication)|Notify register",
            |_| ErrorCause::Effect,
        ),
        (r"", |_| ErrorCause::Cause),
    ];
    table
        .iter()
        .filter_map(|(pattern, reading)| Some((Regex::new(pattern).ok()?, *reading)))
        .collect()
});

/// Returns what the text of an error says of its cause.
#[must_use]
pub fn error_cause(text: &str) -> ErrorCause {
    for (pattern, reading) in PATTERNS.iter() {
        if let Some(found) = pattern.captures(text) {
            return reading(found.get(1).map_or("", |group| group.as_str()));
        }
    }
    ErrorCause::Cause
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pattern_is_a_pattern() {
        assert_eq!(PATTERNS.len(), 11);
    }

    #[test]
    fn real_texts_are_understood() {
        let cases = [
            (
                "ValueError: Error initializing torch.distributed using env:// rendezvous: environment variable MASTER_ADDR expected, but not set",
                ErrorCause::EnvironmentMissing("MASTER_ADDR".into()),
            ),
            (
                "ValueError: Unknown backend type xla",
                ErrorCause::BackendMissing("xla".into()),
            ),
            (
                "RuntimeError: Distributed package doesn't have NCCL built in",
                ErrorCause::BackendMissing("NCCL".into()),
            ),
            (
                "RuntimeError: No backend type associated with device type xpu",
                ErrorCause::DeviceBinding("xpu".into()),
            ),
            (
                "DistNetworkError: The server socket has failed to listen on any local network address. port: 29500, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use",
                ErrorCause::AddressInUse(None),
            ),
            (
                "DistNetworkError: The IPv6 network addresses of (no-such-host, 29500) cannot be retrieved (gai error: -2 - Name or service not known).",
                ErrorCause::Unreachable("no-such-host".into()),
            ),
            (
                "DistStoreError: Timed out after 11 seconds waiting for clients. 1/4 clients joined.",
                ErrorCause::Effect,
            ),
            (
                "RuntimeError: [gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:4242",
                ErrorCause::Effect,
            ),
            (
                "RuntimeError: [Rank 0]: Ranks 3 failed to pass monitoredBarrier in 1800000 ms",
                ErrorCause::Effect,
            ),
            (
                "torch.distributed.DistBackendError: NCCL error: remote process exited or there was a network error",
                ErrorCause::Effect,
            ),
            (
                "torch.distributed.DistBackendError: NCCL error: internal error. Last error:\nBootstrap : no socket interface found",
                ErrorCause::Cause,
            ),
            (
                "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:3690, internal error - please report this issue to the NCCL developers, NCCL version 2.28.9\nncclInternalError: Internal check failed.\nLast error:\n",
                ErrorCause::Effect,
            ),
            (
                "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:3690, invalid usage, NCCL version 2.28.9\nLast error:\nMessage truncated : received 1024 bytes instead of 256",
                ErrorCause::Effect,
            ),
            (
                "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:3690, invalid usage, NCCL version 2.28.9\nLast error:\nDuplicate GPU detected : rank 1 and rank 0 both on CUDA device 41000",
                ErrorCause::Cause,
            ),
            (
                "terminate called after throwing an instance of 'c10::DistBackendError'",
                ErrorCause::Effect,
            ),
            (
                "NCCL error in: ProcessGroupNCCL.cpp:1961, unhandled system error (run with NCCL_DEBUG=INFO for details), NCCL version 2.21.5",
                ErrorCause::Effect,
            ),
            (
                "CUDA error: uncorrectable ECC error encountered",
                ErrorCause::Cause,
            ),
            ("ZeroDivisionError: division by zero", ErrorCause::Cause),
        ];
        for (text, expected) in cases {
            assert_eq!(error_cause(text), expected, "{text}");
        }
    }
}
