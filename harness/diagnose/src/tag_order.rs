//! Whether the tags of a rank's messages go on as they did before, where each has a tag of its own: `7, 8, 9, 10`.

use allranks_model::names::Rank;

/// Tags from which the step from one to the next is known.
pub(crate) const LEAST: usize = 3;

/// Returns whether the last of these tags is as far from the one before as each of those before was; `None` if these have no common step,
/// or if they are too few.
fn goes_on(tags: &[u64]) -> Option<bool> {
    if tags.len() < LEAST {
        return None;
    }
    let mut steps = tags.windows(2).map(|pair| pair[1].wrapping_sub(pair[0]));
    let last = steps.next_back()?;
    let usual = steps.next()?;
    let is_regular = usual != 0 && steps.all(|step| step == usual);
    is_regular.then_some(last == usual)
}

/// Returns the one of a sender and a receiver, each with its tags of the messages between the two, whose tags do not go on as before while
/// those of the other one do; `None` if that is so of neither or of both, or if their tags tell nothing.
pub(crate) fn odd_one(one: (Rank, &[u64]), other: (Rank, &[u64])) -> Option<Rank> {
    match (goes_on(one.1)?, goes_on(other.1)?) {
        (true, false) => Some(other.0),
        (false, true) => Some(one.0),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_go_on_by_the_same_step() {
        assert_eq!(goes_on(&[7, 8, 9, 10]), Some(true));
        assert_eq!(goes_on(&[7, 9, 11, 1]), Some(false));
        assert_eq!(goes_on(&[7, 8, 10, 11]), None);
        assert_eq!(goes_on(&[7, 8]), None);
        // All messages have the same tag.
        assert_eq!(goes_on(&[7, 7, 7, 8]), None);
    }
}
