//! Reads which nodes a scheduler says have failed, and the node that a rank says it runs on.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use regex::Regex;

use super::srun::numbers;

/// The nodes that have failed, each with the line that says so.
#[derive(Clone, Debug, Default)]
pub(super) struct NodeFailures {
    pub(super) nodes: BTreeMap<String, String>,
}

/// Slurm's `srun` and `slurmctld`, Kubernetes, Ray.
static FAILED: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(
        r"(?:Node failure on|on failed node|\b[Nn]odes?) ([a-z][\w.,-]*(?:\[[\d,-]+\])?)(?: not responding| status is now: NodeNotReady|, |$)|node name: ([\w.-]+) has been marked dead",
    )
    .ok()
});
static WORDS: &[&str] = &[
    "ode failure on ",
    "on failed node ",
    "not responding",
    "NodeNotReady",
    "has been marked dead",
];
static LIST: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"^([\w.-]+?)\[([\d,-]+)\]$").ok());
/// `node=n7`, `hostname: n7`, the start of NCCL's lines, `n7:4012:4422 [3] NCCL INFO`, `[n7] rank 3` and `rank 3 on n7`.
static OWN: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(
        r"\b(?:node|nodename|hostname)['\x22]?\s?[=:]\s?['\x22]?([A-Za-z][\w.-]*)|^([A-Za-z][\w.-]*):\d+:\d+ \[\d+\] NCCL |^\[([A-Za-z][\w.-]*\d[\w.-]*)\] (?:global )?rank[ =:]?\d+\b|^(?:global )?rank[ =:]?\d+ on ([A-Za-z][\w.-]*\d[\w.-]*)\b",
    )
    .ok()
});

impl NodeFailures {
    /// Reads the next line.
    pub(super) fn read(&mut self, text: &str) {
        if !WORDS.iter().any(|words| text.contains(words)) {
            return;
        }
        let Some(found) = FAILED.as_ref().and_then(|line| line.captures(text)) else {
            return;
        };
        let Some(nodes) = found.get(1).or(found.get(2)) else {
            return;
        };
        for node in expanded(nodes.as_str()) {
            self.nodes.entry(node).or_insert_with(|| text.to_owned());
        }
    }

    /// Adds what another file says.
    pub(super) fn merge(&mut self, other: Self) {
        self.nodes.extend(other.nodes);
    }
}

/// Returns the nodes of a list of Slurm's, `n[05,07-08]` or `n5,n6`.
fn expanded(list: &str) -> Vec<String> {
    let found = LIST.as_ref().and_then(|pattern| pattern.captures(list));
    let Some(found) = found else {
        return list.split(',').map(str::to_owned).collect();
    };
    let digits = found[2].split([',', '-']).next().map_or(0, str::len);
    let numbers = numbers(&found[2]).unwrap_or_default().into_iter();
    let name = &found[1];
    numbers
        .map(|number| format!("{name}{number:0digits$}"))
        .collect()
}

/// Returns the node that a line says its rank runs on; `None` if it says nothing of it.
pub(super) fn own_node(text: &str) -> Option<&str> {
    // Most lines say nothing of it, and a look is cheaper than the pattern.
    let may_begin = (text.starts_with('[') && text.contains("] ")) || text.contains(" on ");
    if !text.contains("node") && !text.contains("host") && !text.contains("] NCCL ") && !may_begin {
        return None;
    }
    let found = OWN.as_ref()?.captures(text)?;
    let node = found
        .get(1)
        .or(found.get(2))
        .or(found.get(3))
        .or(found.get(4));
    node.map(|node| node.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_nodes_are_read() {
        let read = |text: &str| {
            let mut failures = NodeFailures::default();
            failures.read(text);
            failures.nodes.into_keys().collect::<Vec<_>>()
        };
        let down = "[2025-03-30T01:26:26.402] error: Nodes a100-07 not responding, setting DOWN";
        assert_eq!(read(down), ["a100-07"]);
        assert_eq!(
            read("error: Nodes n[07,09-10] not responding"),
            ["n07", "n09", "n10"]
        );
        assert_eq!(read("srun: error: Node failure on cn131"), ["cn131"]);
        assert_eq!(
            read("Node gpu-3.local status is now: NodeNotReady"),
            ["gpu-3.local"]
        );
        assert_eq!(
            read(
                "The node with node id: 4f and address: 10.0.0.3 and node name: 10.0.0.3 has been marked dead because the detector has missed too many heartbeats from it."
            ),
            ["10.0.0.3"]
        );
        assert!(read("NFS server 10.9.0.3 not responding, still trying").is_empty());
        assert!(read("requeue job JobId=447090 due to failure of node n11").is_empty());
    }

    #[test]
    fn the_own_node_is_read() {
        assert_eq!(
            own_node("INFO:2025-03-30 01:05:13:setup:rank=8 local_rank=0 node=a100-06 (1/4)"),
            Some("a100-06")
        );
        assert_eq!(own_node("n7:4012:4422 [3] NCCL INFO Bootstrap"), Some("n7"));
        assert_eq!(
            own_node("[dgx-3] rank 9 local_rank 1 cuda:1"),
            Some("dgx-3")
        );
        assert_eq!(own_node("[trainer] rank 9"), None);
        assert_eq!(own_node("node 3 of 4"), None);
    }
}
