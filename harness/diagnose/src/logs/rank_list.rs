//! Reads lists of ranks such as `0, 2, 3`.

/// Iterates over the ranks of a list with commas; a part that is not a number is left out.
pub(super) fn ranks_of_list(list: &str) -> impl Iterator<Item = u32> {
    list.split(',').filter_map(|rank| rank.trim().parse().ok())
}
