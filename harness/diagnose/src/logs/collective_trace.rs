//! Reads the collectives that NCCL and RCCL write down as they are called (`NCCL_DEBUG_SUBSYS=COLL`).

use std::collections::BTreeMap;
use std::sync::LazyLock;

use regex::Regex;

use super::pattern::pattern;

/// Calls that are kept of a rank: the last ones.
const KEPT: usize = 2000;

/// The calls of one rank in its largest communicator.
#[derive(Clone, Debug, Default)]
pub(super) struct CollectiveTrace {
    /// The first call with each number.
    pub(super) calls: BTreeMap<u64, String>,
    /// The number of ranks of the communicator, and its name, which is another one in each process.
    communicator: (u32, String),
}

static INIT: LazyLock<Option<Regex>> = LazyLock::new(|| {
    pattern(r"NCCL INFO (?:ncclCommInitRank\w* )?comm (\S+) rank \d+ n[rR]anks (\d+) ")
});
static CALL: LazyLock<Option<Regex>> = LazyLock::new(|| {
    pattern(
        r"NCCL INFO (?P<name>[A-Z]\w+): opCount (?P<number>[0-9a-f]+) sendbuff \S+ recvbuff \S+ (?:acc \S+ )?count (?P<count>\d+) datatype (?P<datatype>\d+) op (?P<op>\d+) root (?P<root>\d+) comm (?P<comm>\S+) \[nranks=\d+\]",
    )
});

impl CollectiveTrace {
    /// Reads the next line. Calls count after the line that says how large their communicator is: of a log without its beginning it is not
    /// known which of several they are of.
    pub(super) fn read(&mut self, text: &str) {
        if !text.contains("NCCL INFO ") {
            return;
        }
        let init = INIT.as_ref().and_then(|init| init.captures(text));
        if let Some(found) = init {
            if let Ok(size) = found[2].parse()
                && size > self.communicator.0
            {
                self.communicator = (size, found[1].to_owned());
                self.calls.clear();
            }
            return;
        }
        let Some(found) = CALL.as_ref().and_then(|call| call.captures(text)) else {
            return;
        };
        let name = &found["name"];
        // Ranks send and receive different messages.
        if matches!(name, "Send" | "Recv") || self.communicator.1 != found["comm"] {
            return;
        }
        let Ok(number) = u64::from_str_radix(&found["number"], 16) else {
            return;
        };
        let call = || {
            let (count, datatype, op, root) = (
                &found["count"],
                &found["datatype"],
                &found["op"],
                &found["root"],
            );
            format!("{name} of {count} elements, datatype {datatype}, op {op}, root {root}")
        };
        self.calls.entry(number).or_insert_with(call);
        if self.calls.len() > KEPT {
            self.calls.pop_first();
        }
    }

    /// Returns the number of ranks of the communicator.
    pub(super) fn size(&self) -> u32 {
        self.communicator.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_of_the_largest_communicator_are_kept() {
        let mut trace = CollectiveTrace::default();
        let line = |name: &str, number: &str, comm: &str, size: u32| {
            format!(
                "h:8:8 [3] NCCL INFO {name}: opCount {number} sendbuff 7f recvbuff 7f count 512 datatype 7 op 0 root 0 comm {comm} [nranks={size}] stream 0xe7"
            )
        };
        let init = |comm: &str, size: u32| {
            format!(
                "h:8:9 [3] NCCL INFO comm {comm} rank 1 nranks {size} cudaDev 3 - Init COMPLETE"
            )
        };
        for text in [
            line("AllReduce", "0", "0x1", 2),
            init("0x1", 2),
            init("0x2", 8),
            init("0x3", 8),
            line("AllReduce", "1", "0x1", 2),
            line("AllReduce", "29d", "0x2", 8),
            line("Broadcast", "29d", "0x2", 8),
            line("Send", "29e", "0x2", 8),
            line("AllGather", "29e", "0x3", 8),
        ] {
            trace.read(&text);
        }
        let calls: Vec<_> = trace.calls.into_iter().collect();
        assert_eq!(
            calls,
            [(
                0x29d,
                "AllReduce of 512 elements, datatype 7, op 0, root 0".to_owned()
            )]
        );
    }
}
