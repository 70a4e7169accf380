//! Short text for sets of ranks: ten thousand ranks that do the same are one line.

use std::collections::HashMap;

use crate::names::Rank;
use crate::rank_line::RankLine;

/// Returns one line for each place that ranks are at, with the ranks that are there. The time that a rank has been there (`for
/// 10.2 s`) is left out where ranks at one place differ in it.
#[must_use]
pub fn places(places: &[RankLine]) -> Vec<String> {
    let mut by_place: Vec<(String, Vec<Rank>)> = Vec::new();
    let mut known: HashMap<String, usize> = HashMap::new();
    for line in places {
        let place = without_time(&line.text);
        let number = *known.entry(place.clone()).or_insert_with(|| {
            by_place.push((line.text.clone(), Vec::new()));
            by_place.len() - 1
        });
        let (text, ranks) = &mut by_place[number];
        if *text != line.text {
            *text = place;
        }
        ranks.push(line.rank);
    }
    by_place
        .into_iter()
        .map(|(text, ranks)| format!("{}: {text}", named(&ranks)))
        .collect()
}

/// Returns the text of a place without the time that a rank has been there: `in barrier for 10.2 s` is `in barrier`.
fn without_time(text: &str) -> String {
    const WORD: &str = " for ";
    for (start, _) in text.match_indices(WORD) {
        let rest = &text[start + WORD.len()..];
        let number = rest.trim_start_matches(|one: char| one.is_ascii_digit() || one == '.');
        if number.len() < rest.len()
            && let Some(rest) = number.strip_prefix(" s")
        {
            return format!("{}{rest}", &text[..start]);
        }
    }
    text.to_owned()
}

/// Returns the ranks with the word: `rank 3`, `ranks 0–2, 4–9999`. `ranks` must be in ascending order.
#[must_use]
pub fn named(ranks: &[Rank]) -> String {
    let word = if ranks.len() == 1 { "rank" } else { "ranks" };
    format!("{word} {}", spans(ranks))
}

/// Returns the ranks as ranges: `0–2, 4–9999`. `ranks` must be in ascending order.
#[must_use]
pub fn spans(ranks: &[Rank]) -> String {
    let texts: Vec<String> = runs(ranks)
        .iter()
        .map(|(first, last)| match last - first {
            0 => first.to_string(),
            1 => format!("{first}, {last}"),
            _ => format!("{first}–{last}"),
        })
        .collect();
    texts.join(", ")
}

/// Returns the first and the last of each run of consecutive ranks. `ranks` must be in ascending order.
#[must_use]
pub fn runs(ranks: &[Rank]) -> Vec<(u32, u32)> {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for rank in ranks {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == rank.0 => *last = rank.0,
            _ => runs.push((rank.0, rank.0)),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use crate::diagnosis::rank_set::*;

    #[test]
    fn equal_places_are_folded() {
        let line = |rank, text: &str| RankLine {
            rank: Rank(rank),
            text: text.to_owned(),
        };
        let text = |rank: u32| match rank {
            3 => "after init".to_owned(),
            rank => format!("in barrier for {rank}.5 s"),
        };
        let all: Vec<RankLine> = (0..10_000).map(|rank| line(rank, &text(rank))).collect();
        assert_eq!(
            places(&all),
            ["ranks 0–2, 4–9999: in barrier", "rank 3: after init"]
        );
        assert_eq!(places(&all[..1]), ["rank 0: in barrier for 0.5 s"]);
        let keys = [
            line(0, "in a wait for `a` of a store for 1.0 s"),
            line(1, "in a wait for `b` of a store for 1.0 s"),
            line(2, "in a wait for `b` of a store for 2.0 s, after an error"),
        ];
        assert_eq!(
            places(&keys),
            [
                "rank 0: in a wait for `a` of a store for 1.0 s",
                "rank 1: in a wait for `b` of a store for 1.0 s",
                "rank 2: in a wait for `b` of a store for 2.0 s, after an error"
            ]
        );
        assert_eq!(named(&[Rank(0), Rank(1), Rank(5)]), "ranks 0, 1, 5");
    }
}
