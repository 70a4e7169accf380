//! Reads the groups that a rank creates, in their order: lines of the program (`new_group #1 tp ranks=[0, 1]`), and the number of the
//! group in the key of the store for which it waits.

use std::sync::LazyLock;

use regex::Regex;

use super::pattern::pattern;
use super::rank_list::ranks_of_list;

/// Groups that are kept of a rank.
const MOST: usize = 10_000;

/// The groups of one rank.
#[derive(Clone, Debug, Default)]
pub(super) struct GroupCreations {
    /// What it has begun to create, one after another: the members of a group, or of several groups at once, `[[0, 1], [2, 3]]`.
    pub(super) members: Vec<Vec<Vec<u32>>>,
    /// The number of the group in whose creation it has waited in vain: how many it has created before.
    pub(super) awaited: Option<u32>,
}

static CREATES: LazyLock<Option<Regex>> = LazyLock::new(|| {
    pattern(
        r#"(?i)\b(?:new_(?:sub)?groups?|new (?:[\w-]+ ){0,3}group|(?:creat|mak|build|form|initiali[sz])(?:e|es|ing) (?:[\w-]+ ){0,4}group)\b[^\[\]]{0,40}\[(?P<ranks>[\[('"]{0,3}\d+[\d\s,()\[\]'"]*)\]"#,
    )
});
/// The key that Gloo waits for: the number of the group is 0 for the world.
static KEY: LazyLock<Option<Regex>> =
    LazyLock::new(|| pattern(r"(?i)wait timeout after \d+ ?ms, keys: /default_pg/0//(\d+)//c"));

impl GroupCreations {
    /// Reads the next line.
    pub(super) fn read(&mut self, text: &str) {
        // Most lines are about something else, and a look is cheaper than the patterns.
        if text.contains("keys: /default_pg/")
            && let Some(found) = KEY.as_ref().and_then(|key| key.captures(text))
        {
            self.awaited = found[1].parse().ok();
            return;
        }
        // An indented line is the code of a frame.
        if !text.contains("group") || !text.contains(']') || text.starts_with([' ', '\t']) {
            return;
        }
        let Some(found) = CREATES.as_ref().and_then(|line| line.captures(text)) else {
            return;
        };
        let lists = found["ranks"].split([')', ']']);
        let lists = lists.map(|list| list.trim_matches(|other: char| !other.is_ascii_digit()));
        let lists = lists.filter(|list| !list.is_empty());
        let members: Vec<Vec<u32>> = lists.map(|list| ranks_of_list(list).collect()).collect();
        // A second line about the same group.
        if self.members.last() != Some(&members) && self.members.len() < MOST {
            self.members.push(members);
        }
    }

    /// Returns true if these are not only the groups to which the rank belongs.
    pub(super) fn are_all(&self, rank: u32) -> bool {
        let mut groups = self.members.iter().flatten();
        groups.any(|members| !members.contains(&rank))
    }

    /// Adds what another file of the same rank says.
    pub(super) fn merge(&mut self, other: Self) {
        self.members.extend(other.members);
        self.awaited = other.awaited.or(self.awaited);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_read_as_they_are_created() {
        for (text, members) in [
            (
                "rank=0 new_group #1 tp ranks=[0, 1]",
                Some(vec![vec![0, 1]]),
            ),
            ("new tensor-parallel group [2, 3]", Some(vec![vec![2, 3]])),
            ("creating actor group [1, 2, 3]", Some(vec![vec![1, 2, 3]])),
            ("Creating process group with ranks [4]", Some(vec![vec![4]])),
            ("dist.new_group([0, 2])", Some(vec![vec![0, 2]])),
            ("    dp = dist.new_group([0, 2])", None),
            ("broadcast params in tp group [0, 1]", None),
            ("actor group [1, 2, 3] is ready", None),
            ("new group of layers: lr=[0.1]", None),
            (
                "create group #1 'tp' all_lists=['(0, 2)', '(1, 3)']",
                Some(vec![vec![0, 2], vec![1, 3]]),
            ),
            ("creating dp groups [[0, 2], [1, 3]]", None),
        ] {
            let mut creations = GroupCreations::default();
            creations.read(text);
            assert_eq!(creations.members.pop(), members, "{text}");
        }
    }

    #[test]
    fn the_key_has_the_number_of_the_group() {
        let awaited = |keys: &str| {
            let mut creations = GroupCreations::default();
            creations.read(&format!(
                "DistStoreError: wait timeout after 20000ms, keys: {keys}"
            ));
            creations.awaited
        };
        assert_eq!(awaited("/default_pg/0//2//cpu//0/0"), Some(2));
        assert_eq!(awaited("/default_pg/0//cpu//0/0"), None);
        assert_eq!(awaited("/save/7"), None);
    }
}
