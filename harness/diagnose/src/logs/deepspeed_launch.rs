//! Reads how DeepSpeed's launcher starts the processes of a host: the ranks of each host, and the process of each number within it.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use regex::Regex;

use super::pattern::pattern;
use super::rank_list::ranks_of_list;

/// What the launchers of one source have written, by what a collector has put before their lines.
#[derive(Clone, Debug, Default)]
pub(super) struct DeepSpeedLaunch {
    /// The ranks of each host, by the number of the node.
    ranks: Vec<Vec<u32>>,
    /// The number of the node on which each launcher runs.
    nodes: BTreeMap<String, usize>,
    /// The processes that each launcher has started: the id, and the number within the host.
    started: Vec<(String, String, usize)>,
}

static HOST: LazyLock<Option<Regex>> = LazyLock::new(|| pattern(r"'[\w.-]+': \[([\d, ]+)\]"));
static NODE: LazyLock<Option<Regex>> =
    LazyLock::new(|| pattern(r"\bnum_local_procs=\d+, node_rank=(\d+)"));
static STARTED: LazyLock<Option<Regex>> =
    LazyLock::new(|| pattern(r"\bprocess (\d+) spawned with command: .*--local_rank=(\d+)\b"));

impl DeepSpeedLaunch {
    /// Reads the next line. `writer` is what a collector has put before it; empty without a collector.
    pub(super) fn read(&mut self, writer: &str, text: &str) {
        let found = |pattern: &'static LazyLock<Option<Regex>>| pattern.as_ref()?.captures(text);
        if text.contains("global_rank_mapping=") {
            let hosts = HOST
                .as_ref()
                .into_iter()
                .flat_map(|host| host.captures_iter(text));
            self.ranks = hosts
                .map(|host| ranks_of_list(&host[1]).collect())
                .collect();
        } else if text.contains(", node_rank=") {
            let node = found(&NODE).and_then(|node| node[1].parse().ok());
            if let Some(node) = node {
                self.nodes.insert(writer.to_owned(), node);
            }
        } else if text.contains(" spawned with command: ")
            && let Some(started) = found(&STARTED)
            && let Ok(local) = started[2].parse()
        {
            let pid = started[1].to_owned();
            self.started.push((writer.to_owned(), pid, local));
        }
    }

    /// Iterates over the processes of which the rank is known: the id, and the rank.
    pub(super) fn processes(&self) -> impl Iterator<Item = (&str, u32)> {
        self.started.iter().filter_map(|(writer, pid, local)| {
            let ranks = self.ranks.get(*self.nodes.get(writer)?)?;
            Some((pid.as_str(), *ranks.get(*local)?))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_has_the_rank_of_its_node_and_its_number_there() {
        let mut launch = DeepSpeedLaunch::default();
        for (writer, text) in [
            ("n1", "nnodes=2, num_local_procs=2, node_rank=0"),
            ("n2", "nnodes=2, num_local_procs=2, node_rank=1"),
            (
                "n1",
                "global_rank_mapping=defaultdict(<class 'list'>, {'n1': [0, 1], 'n2': [2, 3]})",
            ),
            (
                "n1",
                "process 40 spawned with command: ['python', 'a.py', '--local_rank=1']",
            ),
            (
                "n2",
                "process 51 spawned with command: ['python', 'a.py', '--local_rank=1']",
            ),
            (
                "n3",
                "process 60 spawned with command: ['python', 'a.py', '--local_rank=1']",
            ),
        ] {
            launch.read(writer, text);
        }
        assert_eq!(
            launch.processes().collect::<Vec<_>>(),
            [("40", 1), ("51", 3)]
        );
    }
}
