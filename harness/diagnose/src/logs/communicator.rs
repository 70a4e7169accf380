//! Reads the lines in which NCCL and HCCL say what rank a process has in a communicator (`NCCL_DEBUG=INFO`, and the logs of CANN).

use std::sync::LazyLock;

use regex::Regex;

/// A process's part in a communicator. Of two, the larger one is greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Communicator {
    /// The number of its ranks.
    pub(super) size: u32,
    /// The rank of the process in it.
    pub(super) rank: u32,
}

static INIT: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(
        r"NCCL INFO (?:ncclCommInitRank\w* )?comm \S+ rank (?P<rank>\d+) n[rR]anks (?P<size>\d+) |Hccl\w*Init\w* success, ?rankNum\[(?P<number>\d+)\],? ?rank\[(?P<its>\d+)\]",
    )
    .ok()
});

/// The identity of a communicator, which all of its ranks have from the first, and the number of its ranks.
static IDENTITY: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r" n[rR]anks (\d+) .*\bcommId (0x[0-9a-f]+)\b").ok());

/// Returns the identity of the communicator that a line of NCCL begins to make, and how many ranks the process expects in it; `None` if
/// the line begins none.
pub(super) fn identity(text: &str) -> Option<(&str, u32)> {
    if !text.contains(" commId 0x") {
        return None;
    }
    let found = IDENTITY.as_ref()?.captures(text)?;
    Some((found.get(2)?.as_str(), found[1].parse().ok()?))
}

impl Communicator {
    /// Returns what a line says of a communicator; `None` if it says nothing of one.
    pub(super) fn read(text: &str) -> Option<Self> {
        // Most lines say nothing of one, and a look is cheaper than the pattern.
        if !text.contains("NCCL INFO ") && !text.contains("rankNum[") {
            return None;
        }
        let found = INIT.as_ref()?.captures(text)?;
        let number = |one: &str, other: &str| -> Option<u32> {
            found.name(one).or(found.name(other))?.as_str().parse().ok()
        };
        let (rank, size) = (number("rank", "its")?, number("size", "number")?);
        (rank < size).then_some(Self { size, rank })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_identity_of_a_communicator_is_read() {
        let start = "n:1:2 [5] NCCL INFO ncclCommInitRank comm 0x5f rank 1 nranks 2 cudaDev 5 nvmlDev 5 busId a2 commId 0x99ee - Init START";
        assert_eq!(identity(start), Some(("0x99ee", 2)));
        assert_eq!(identity("n:1:2 [1] NCCL INFO Bootstrap : Using eth0"), None);
    }

    #[test]
    fn lines_of_nccl_are_read() {
        for (text, expected) in [
            (
                "n:1:2 [5] NCCL INFO ncclCommInitRank comm 0x5f rank 5 nranks 8 cudaDev 5 - Init COMPLETE",
                Some((8, 5)),
            ),
            (
                "n:1:2 [1] NCCL INFO comm 0x7f rank 1 nranks 4 cudaDev 1 busId 1a0 - Init COMPLETE",
                Some((4, 1)),
            ),
            (
                "HCCL(2,python3):2024-07-03-11:02:10.3 [comm.cc:310][2]HcclCommInitRootInfo success, rankNum[16] rank[6] devLogicId[6]",
                Some((16, 6)),
            ),
            ("n:1:2 [1] NCCL INFO Bootstrap : Using eth0", None),
        ] {
            let found = Communicator::read(text).map(|one| (one.size, one.rank));
            assert_eq!(found, expected, "{text}");
        }
    }
}
