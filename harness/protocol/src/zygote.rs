//! The frames between the harness and a zygote; they have no payload.
//!
//! A zygote is one process that has imported torch and forks ranks on request, so that a rank costs milliseconds
//! instead of seconds (`python -m allranks_rank.zygote`). It dials its own control socket, `ALLRANKS_CONTROL` with
//! `ALLRANKS_TOKEN`; the ranks it forks dial theirs, named in the environment each is given, and speak [`super`].
//! The zygote is the parent of its ranks: only it can tell how they ended, and it does.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// A header the harness sends to a zygote.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "frame", rename_all = "snake_case")]
pub enum ToZygote {
    /// Fork one rank. Answered by `forked` or `fork_failed`; many may be sent in a row, answers keep their order.
    Fork(Fork),
    /// Send a signal to the process group of a rank, if the rank has not been reaped yet; otherwise ignored. No answer
    /// of its own: an end shows as `exited`.
    Kill {
        /// The rank's `id`.
        id: u64,
        /// Signal number, 9 for SIGKILL.
        signal: i32,
    },
}

/// The parameters of a rank to be forked. The rank leads its own session and process group, and its standard input is `/dev/null`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fork {
    /// The harness's number for the rank; never used twice on one zygote.
    pub id: u64,
    /// The rank's whole environment; nothing is inherited.
    pub env: BTreeMap<String, String>,
    /// File for standard output; appended to.
    pub stdout: PathBuf,
    /// File for standard error; appended to, and may be the same file.
    pub stderr: PathBuf,
    /// Working directory; absent: the zygote's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<PathBuf>,
    /// What the process runs in place of a rank; absent: it becomes a rank.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub script: Option<ForkedScript>,
}

/// A script that a forked process runs, as `python -c TEXT ARGUMENT` would, in an interpreter that has imported torch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForkedScript {
    /// The script.
    pub text: String,
    /// Its one argument, `sys.argv[1]`.
    pub argument: String,
}

/// A header a zygote sends to the harness. When its connection closes, the zygote kills all its ranks and exits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "frame", rename_all = "snake_case")]
pub enum FromZygote {
    /// The first frame on the socket: torch is imported.
    Zygote {
        /// The protocol's [`super::VERSION`].
        version: u32,
        /// The token, from `ALLRANKS_TOKEN`.
        token: String,
        /// Process id of the zygote.
        pid: u32,
        /// Version of the torch that is imported.
        torch: String,
        /// Number of the zygote's threads. With more than one, forking is unsafe and every `fork` is refused; ranks must then be started as
        /// processes of their own.
        threads: u32,
    },
    /// A rank has been forked.
    Forked {
        /// The `id` in `fork`.
        id: u64,
        /// The rank's process id, which is also its process group and session.
        pid: u32,
    },
    /// A rank could not be forked.
    ForkFailed {
        /// The `id` in `fork`.
        id: u64,
        /// Why it could not be forked.
        error: String,
    },
    /// A rank has ended, and the processes that it left running have been killed. Exactly one of `code` and `signal` is set.
    Exited {
        /// The `id` in `fork`.
        id: u64,
        /// The rank's process id, free for reuse by now.
        pid: u32,
        /// Exit code of the rank; `None` if a signal killed it.
        code: Option<i32>,
        /// Number of the signal that killed the rank; `None` if it exited.
        signal: Option<i32>,
        /// Number of processes that the rank had started, in any session, that were still running and were killed.
        #[serde(default)]
        left_behind: u32,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_spelt_as_the_python_side_spells_them() {
        let fork = ToZygote::Fork(Fork {
            id: 7,
            env: BTreeMap::from([("RANK".into(), "0".into())]),
            stdout: "/tmp/o".into(),
            stderr: "/tmp/e".into(),
            cwd: None,
            script: None,
        });
        assert_eq!(
            serde_json::to_string(&fork).unwrap(),
            r#"{"frame":"fork","id":7,"env":{"RANK":"0"},"stdout":"/tmp/o","stderr":"/tmp/e"}"#
        );
        let kill: ToZygote = serde_json::from_str(r#"{"frame":"kill","id":7,"signal":9}"#).unwrap();
        assert_eq!(kill, ToZygote::Kill { id: 7, signal: 9 });
        let failed: FromZygote =
            serde_json::from_str(r#"{"frame":"fork_failed","id":7,"error":"no"}"#).unwrap();
        assert_eq!(
            failed,
            FromZygote::ForkFailed {
                id: 7,
                error: "no".into()
            }
        );
        let exited: FromZygote = serde_json::from_str(
            r#"{"frame":"exited","id":7,"pid":99,"code":null,"signal":11,"left_behind":1}"#,
        )
        .unwrap();
        assert_eq!(
            exited,
            FromZygote::Exited {
                id: 7,
                pid: 99,
                code: None,
                signal: Some(11),
                left_behind: 1
            }
        );
    }
}
