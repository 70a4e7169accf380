//! The pods, containers or hosts of which a collector has put the names before lines, and the ranks that run there.

use std::collections::{BTreeMap, BTreeSet};

/// All writers of one source.
#[derive(Clone, Debug, Default)]
pub(super) struct Writers {
    all: BTreeMap<String, Writer>,
}

/// What the lines of one writer say of ranks.
#[derive(Clone, Debug, Default)]
struct Writer {
    ranks: BTreeSet<u32>,
    /// Ranks by their numbers within the host.
    locals: BTreeMap<u32, u32>,
    /// The rank by the number in the name, if those of the other writers are ranks.
    by_name: Option<u32>,
}

impl Writers {
    /// Notes a line of a writer, and the rank that it names.
    pub(super) fn read(&mut self, name: &str, rank: Option<u32>, local: Option<u32>) {
        let writer = match self.all.get_mut(name) {
            Some(writer) => writer,
            None => self.all.entry(name.to_owned()).or_default(),
        };
        writer.ranks.extend(rank);
        if let (Some(local), Some(rank)) = (local, rank) {
            writer.locals.insert(local, rank);
        }
    }

    /// Gives writers that name no rank the number of their name, if in the names of all others the rank stands in that place.
    pub(super) fn close(&mut self) {
        let signed: Vec<(Vec<u32>, u32)> = self
            .all
            .iter()
            .filter_map(|(name, writer)| Some((numbers(name), writer.only()?)))
            .collect();
        let is_rank = |place: &usize| {
            let is_it = |(numbers, rank): &(Vec<u32>, u32)| numbers.get(*place) == Some(rank);
            signed.iter().all(is_it)
        };
        let places = signed.first().map_or(0, |(numbers, _)| numbers.len());
        let ranks: BTreeSet<u32> = signed.iter().map(|(_, rank)| *rank).collect();
        let Some(place) = (0..places).find(is_rank).filter(|_| ranks.len() > 1) else {
            return;
        };
        let unsigned = self.all.iter_mut();
        for (name, writer) in unsigned.filter(|(_, writer)| writer.ranks.is_empty()) {
            let number = numbers(name).get(place).copied();
            writer.by_name = number.filter(|number| !ranks.contains(number));
        }
    }

    /// Returns true if there are several.
    pub(super) fn are_several(&self) -> bool {
        self.all.len() > 1
    }

    /// Iterates over their names.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.all.keys().map(String::as_str)
    }

    /// Returns the rank of a writer's line that names none; `None` if several run there, or none is known.
    pub(super) fn rank(&self, name: &str, local: Option<u32>) -> Option<u32> {
        let writer = self.all.get(name)?;
        match local {
            Some(local) => writer.locals.get(&local).copied(),
            None => writer.only().or(writer.by_name),
        }
    }

    /// Returns the ranks that run where a writer is.
    pub(super) fn ranks(&self, name: &str) -> BTreeSet<u32> {
        let writer = self.all.get(name);
        let ranks = writer.into_iter().flat_map(|writer| &writer.ranks);
        ranks.copied().collect()
    }
}

impl Writer {
    /// Returns the rank if there is one only.
    fn only(&self) -> Option<u32> {
        let mut ranks = self.ranks.iter().copied();
        ranks.next().filter(|_| ranks.next().is_none())
    }
}

/// Returns the numbers in a name, in their order.
fn numbers(name: &str) -> Vec<u32> {
    let parts = name.split(|character: char| !character.is_ascii_digit());
    parts.filter_map(|part| part.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_writer_of_one_rank_is_that_rank() {
        let mut writers = Writers::default();
        writers.read("h-7", Some(3), Some(0));
        assert_eq!(writers.rank("h-7", None), Some(3));
        writers.read("h-7", Some(4), Some(1));
        assert_eq!(writers.rank("h-7", None), None);
        assert_eq!(writers.rank("h-7", Some(1)), Some(4));
        assert_eq!(writers.rank("h-8", None), None);
    }

    #[test]
    fn a_name_counts_if_the_others_tell_what_its_number_is() {
        let of = |names: &[(&str, Option<u32>)], name: &str| {
            let mut writers = Writers::default();
            names
                .iter()
                .for_each(|(name, rank)| writers.read(name, *rank, None));
            writers.close();
            writers.rank(name, None)
        };
        let all = [("t-0-1", None), ("t-1-1", Some(1)), ("t-2-1", Some(2))];
        assert_eq!(of(&all, "t-0-1"), Some(0));
        let other = [("t-0-1", None), ("t-1-1", Some(2)), ("t-2-1", Some(1))];
        assert_eq!(of(&other, "t-0-1"), None);
        assert_eq!(of(&all[..2], "t-0-1"), None);
    }
}
