//! Finds the ranks among the processes of a program.
//!
//! A rank is the outermost of the processes that are descended from each other and have the same RANK and WORLD_SIZE in
//! their environments, if these differ from what the program was started with. Where a program sets no environment, it
//! is a process whose call trace has calls. Processes that a rank starts (data loaders, compilers) inherit its
//! environment and are no ranks.

use std::collections::{BTreeMap, HashMap};

use crate::watch::trace::call_trace::CallTrace;
use allranks_host::TaggedProcess;

/// Rank and world size that an environment claims.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClaimedRank {
    /// The value of `RANK`; `None` if that is not set or no number.
    pub rank: Option<u32>,
    /// The value of `WORLD_SIZE`, likewise.
    pub size: Option<u32>,
}

impl ClaimedRank {
    /// Reads the claim of an environment.
    pub fn of(environment: &BTreeMap<String, String>) -> Self {
        let number = |name: &str| environment.get(name)?.trim().parse().ok();
        Self {
            rank: number("RANK"),
            size: number("WORLD_SIZE"),
        }
    }

    /// Returns true if it claims both.
    pub fn is_whole(&self) -> bool {
        self.rank.is_some() && self.size.is_some()
    }
}

/// Returns the ranks among the living processes.
pub fn ranks<'a>(
    members: &'a [TaggedProcess],
    call_traces: &'a HashMap<u32, CallTrace>,
    inherited: &'a ClaimedRank,
) -> impl Iterator<Item = &'a TaggedProcess> {
    let has_calls = |pid: u32| call_traces.get(&pid).is_some_and(CallTrace::is_begun);
    ranks_that_speak(members, has_calls, inherited)
}

/// The ranks among the living; of a family, the first process with `has_calls` is the rank, or else the outermost.
pub fn ranks_that_speak<'a>(
    members: &'a [TaggedProcess],
    has_calls: impl Fn(u32) -> bool + 'a,
    inherited: &'a ClaimedRank,
) -> impl Iterator<Item = &'a TaggedProcess> {
    let by_pid: HashMap<u32, &TaggedProcess> = members.iter().map(|one| (one.pid, one)).collect();
    let head = move |member: &'a TaggedProcess| {
        // The outermost process with the same claim.
        let claim = ClaimedRank::of(&member.environment);
        let mut head = member;
        while let Some(parent) = by_pid.get(&head.parent)
            && ClaimedRank::of(&parent.environment) == claim
            && claim.is_whole()
        {
            head = parent;
        }
        head.pid
    };
    let heads: HashMap<u32, u32> = members.iter().map(|one| (one.pid, head(one))).collect();
    // Of processes that are descended from each other, the first with calls stands for all.
    let mut speakers: HashMap<u32, u32> = HashMap::new();
    for member in members.iter().filter(|member| has_calls(member.pid)) {
        speakers.entry(heads[&member.pid]).or_insert(member.pid);
    }
    members.iter().filter(move |member| {
        let claim = ClaimedRank::of(&member.environment);
        let is_claimed = claim.is_whole() && claim != *inherited;
        match is_claimed {
            true => {
                let head = heads[&member.pid];
                member.pid == speakers.get(&head).copied().unwrap_or(head)
            }
            false => has_calls(member.pid),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(pid: u32, parent: u32, claim: &[(&str, &str)]) -> TaggedProcess {
        TaggedProcess {
            pid,
            parent,
            started: u64::from(pid),
            environment: claim
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
        }
    }

    fn found(members: &[TaggedProcess], with_calls: &[u32], inherited: &ClaimedRank) -> Vec<u32> {
        let call_trace = |pid: &u32| {
            let text = r#"{"moves": 1, "epoch": 1}"#;
            (*pid, serde_json::from_str(text).unwrap())
        };
        let call_traces = with_calls.iter().map(call_trace).collect();
        ranks(members, &call_traces, inherited)
            .map(|member| member.pid)
            .collect()
    }

    #[test]
    fn agents_and_helpers_are_no_ranks() {
        let zero = [("RANK", "0"), ("WORLD_SIZE", "2")];
        let one = [("RANK", "1"), ("WORLD_SIZE", "2")];
        let members = [
            member(1, 0, &[]),
            member(2, 1, &[]),
            member(3, 2, &zero),
            member(4, 2, &one),
            // A data loader of rank 1, and a shell around rank 0's program.
            member(5, 4, &one),
            member(6, 3, &zero),
        ];
        let none = ClaimedRank::default();
        assert_eq!(found(&members, &[], &none), vec![3, 4]);
        assert_eq!(found(&members, &[4, 6], &none), vec![4, 6]);
    }

    #[test]
    fn what_the_program_was_started_with_is_no_claim_of_its_processes() {
        let outer = [("RANK", "0"), ("WORLD_SIZE", "1")];
        let members = [
            member(1, 0, &outer),
            member(2, 1, &[("RANK", "0"), ("WORLD_SIZE", "2")]),
            member(3, 1, &[("RANK", "1"), ("WORLD_SIZE", "2")]),
        ];
        let inherited = ClaimedRank {
            rank: Some(0),
            size: Some(1),
        };
        assert_eq!(found(&members, &[], &inherited), vec![2, 3]);
        // If one of them has calls, the program was started as that rank.
        assert_eq!(found(&members[..1], &[1], &inherited), vec![1]);
    }

    #[test]
    fn a_program_without_an_environment_is_known_by_its_calls() {
        let members = [member(1, 0, &[]), member(2, 1, &[]), member(3, 1, &[])];
        assert_eq!(
            found(&members, &[2, 3], &ClaimedRank::default()),
            vec![2, 3]
        );
    }
}
