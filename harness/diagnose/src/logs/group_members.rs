//! Reads the members that a rank says its groups have: `tp_group=[0, 1, 2, 3]`.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use regex::Regex;

use super::communicator::identity;
use super::pattern::pattern;
use super::rank_list::ranks_of_list;

/// The members of each group of one rank, by what the rank calls it.
#[derive(Clone, Debug, Default)]
pub(super) struct GroupMembers {
    pub(super) groups: BTreeMap<String, Vec<u32>>,
    /// How many ranks it expects in each of NCCL's communicators, by the communicator's identity.
    pub(super) communicators: BTreeMap<String, u32>,
}

/// What a line about groups has whose lists have the names of dimensions: `parallel state: tensor=[4, 5] data=[0, 4]`.
static DIMENSIONS: LazyLock<Option<Regex>> =
    LazyLock::new(|| pattern(r"(?i)\b(?:parallel|groups?|mesh|topology)\b"));
static DIMENSION: LazyLock<Option<Regex>> = LazyLock::new(|| {
    pattern(
        r"(?i)\b((?:[tdpces]p|fsdp|mp|tensor|data|pipeline|pipe|context|expert|sequence|model)(?:[_ ](?:ranks|members))?)['\x22]?\s?[=:]\s?[\[(](\d+(?:,\s?\d+)+)[\])]",
    )
});
static GROUP: LazyLock<Option<Regex>> = LazyLock::new(|| {
    pattern(
        r"(?i)\b((?:[a-z]+[ _-]){0,2}\w*(?:group|mesh)(?:[ _]ranks|[ _]members)?)['\x22]?\s?[=:]\s?[\[(](\d+(?:,\s?\d+)+)[\])]",
    )
});

impl GroupMembers {
    /// Reads the next line.
    pub(super) fn read(&mut self, text: &str) {
        if let Some((name, size)) = identity(text) {
            self.communicators.insert(name.to_owned(), size);
            return;
        }
        const SIGNS: &[&str] = &["roup", "esh", "GROUP", "arallel", "opology"];
        if !text.contains([']', ')']) || !SIGNS.iter().any(|word| text.contains(word)) {
            return;
        }
        let has_dimensions = DIMENSIONS
            .as_ref()
            .is_some_and(|words| words.is_match(text));
        let dimension = DIMENSION.as_ref().filter(|_| has_dimensions);
        let patterns = GROUP.as_ref().into_iter().chain(dimension);
        for found in patterns.flat_map(|pattern| pattern.captures_iter(text)) {
            let members = ranks_of_list(&found[2]);
            let name = found[1].to_lowercase();
            if !name.contains("param") {
                self.groups.insert(name, members.collect());
            }
        }
    }

    /// Adds what another file of the same rank says.
    pub(super) fn merge(&mut self, other: Self) {
        self.groups.extend(other.groups);
        self.communicators.extend(other.communicators);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_read() {
        let read = |text: &str| {
            let mut members = GroupMembers::default();
            members.read(text);
            members.groups.into_iter().collect::<Vec<_>>()
        };
        assert_eq!(
            read("parallel_state: tp_group=[8, 9,10]"),
            [("tp_group".to_owned(), vec![8, 9, 10])]
        );
        assert_eq!(
            read("mesh: rank 9 tp group ranks=[8, 9]"),
            [("tp group ranks".to_owned(), vec![8, 9])]
        );
        assert_eq!(
            read("parallel state: tensor=[4, 5] data=[0, 4]"),
            [
                ("data".to_owned(), vec![0, 4]),
                ("tensor".to_owned(), vec![4, 5])
            ]
        );
        assert!(read("data=[0, 4]").is_empty());
        assert!(read("shape=[8, 9] groups=[[0, 1]] param_group=[0, 1] ranks=[0, 1]").is_empty());
    }
}
