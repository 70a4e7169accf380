//! Reads which pods a cluster says it has ended, in `kubectl get events` and in records of events.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use regex::Regex;

use super::pattern::pattern;

/// The pods, each with the line that says so.
#[derive(Clone, Debug, Default)]
pub(super) struct PodEnds {
    pub(super) pods: BTreeMap<String, String>,
}

static ENDED: LazyLock<Option<Regex>> = LazyLock::new(|| {
    pattern(
        r"\b(?:Evicted|Preempted|Preempting|OOMKilled|OOMKilling|NodeShutdown|DeadlineExceeded|TaintManagerEviction)\s+(?i:pod)s?/([\w.-]+)\s",
    )
});

impl PodEnds {
    /// Reads the next line.
    pub(super) fn read(&mut self, text: &str) {
        if !text.contains("/")
            || !(text.contains("pod/") || text.contains("Pod/") || text.contains("pods/"))
        {
            return;
        }
        if let Some(found) = ENDED.as_ref().and_then(|line| line.captures(text)) {
            self.pods
                .entry(found[1].to_owned())
                .or_insert_with(|| text.trim().to_owned());
        }
    }

    /// Adds what another file says.
    pub(super) fn merge(&mut self, other: Self) {
        self.pods.extend(other.pods);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ended_pods_are_read() {
        let mut ends = PodEnds::default();
        ends.read(
            "17m   Warning  Evicted  pod/t-2-m7  The node was low on resource: ephemeral-storage.",
        );
        ends.read("31m   Normal   Started  pod/t-1-x8  Started container node");
        assert_eq!(ends.pods.into_keys().collect::<Vec<_>>(), ["t-2-m7"]);
    }
}
