//! A diagnosis for people: the one place where it becomes text.

use super::evidence::list;
use super::verdict::{Confidence, Diagnosis, Kind};
use crate::names::Rank;
use crate::report::RankLine;

/// As many ranks are shown at one place.
const SHOWN: usize = 16;

/// One line: `KIND: who, where, what (how sure)`.
#[must_use]
pub fn headline(diagnosis: &Diagnosis) -> String {
    let sure = match diagnosis.confidence {
        Confidence::Proved => " (proved)",
        Confidence::Likely => " (likely)",
        Confidence::None => "",
    };
    format!("{}: {}{sure}", diagnosis.kind, diagnosis.summary)
}

/// Everything it says, the headline first; the other lines are indented.
#[must_use]
pub fn lines(diagnosis: &Diagnosis) -> Vec<String> {
    let mut lines = vec![headline(diagnosis)];
    let mut ranks = |what: &str, ranks: &[Rank]| {
        if !ranks.is_empty() {
            lines.push(format!("  {what}: rank {}", some(ranks)));
        }
    };
    let blame = match diagnosis.confidence {
        Confidence::Proved | Confidence::Likely => "culprit",
        Confidence::None => "waited for",
    };
    ranks(blame, &diagnosis.culprits);
    ranks("victims", &diagnosis.victims);
    if !diagnosis.places.is_empty() {
        lines.push("  where each rank is:".to_owned());
        lines.extend(places(&diagnosis.places));
    }
    let mut section = |title: &str, texts: &[String]| {
        if !texts.is_empty() {
            lines.push(format!("  {title}:"));
            lines.extend(texts.iter().map(|text| format!("    - {text}")));
        }
    };
    section("why", &diagnosis.evidence);
    // Whoever is accused of nothing needs no defence.
    if diagnosis.confidence != Confidence::None {
        section("refuted if", std::slice::from_ref(&diagnosis.refuted_by));
    }
    if !matches!(diagnosis.kind, Kind::Unknown) {
        section("what to try", &diagnosis.advice);
    }
    lines
}

/// Ranks one by one; of a crowd at one place, the first ones and a number.
fn places(places: &[RankLine]) -> Vec<String> {
    let mut lines = Vec::new();
    let mut rest = 0;
    let mut seen: Vec<(String, usize)> = Vec::new();
    for line in places {
        // Times differ from rank to rank.
        let place = line.text.split(" for ").next().unwrap_or_default();
        let count = match seen.iter_mut().find(|(known, _)| known == place) {
            Some((_, count)) => {
                *count += 1;
                *count
            }
            None => {
                seen.push((place.to_owned(), 1));
                1
            }
        };
        match count <= SHOWN {
            true => lines.push(format!("    rank {}: {}", line.rank, line.text)),
            false => rest += 1,
        }
    }
    if rest > 0 {
        lines.push(format!("    and {rest} more at the same places"));
    }
    lines
}

fn some(ranks: &[Rank]) -> String {
    match ranks.get(..SHOWN) {
        Some(first) if ranks.len() > SHOWN => {
            format!("{} and {} more", list(first), ranks.len() - SHOWN)
        }
        _ => list(ranks),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn diagnosis(size: u32) -> Diagnosis {
        Diagnosis {
            kind: Kind::PeerStopped,
            confidence: Confidence::Proved,
            culprits: vec![Rank(1)],
            victims: (2..size).map(Rank).collect(),
            summary: "rank 1 is stopped (state T)".into(),
            evidence: vec!["rank 1 stopped in barrier on world".into()],
            refuted_by: "the named rank is seen to go on".into(),
            advice: vec!["let it go on".into()],
            places: (0..size)
                .map(|rank| RankLine {
                    rank: Rank(rank),
                    text: format!("in barrier on world (train.py:3) for {rank}.0 s"),
                })
                .collect(),
        }
    }

    #[test]
    fn a_verdict_reads_like_this() {
        let expected = "\
peer-stopped: rank 1 is stopped (state T) (proved)
  culprit: rank 1
  victims: rank 2
  where each rank is:
    rank 0: in barrier on world (train.py:3) for 0.0 s
    rank 1: in barrier on world (train.py:3) for 1.0 s
    rank 2: in barrier on world (train.py:3) for 2.0 s
  why:
    - rank 1 stopped in barrier on world
  refuted if:
    - the named rank is seen to go on
  what to try:
    - let it go on";
        assert_eq!(lines(&diagnosis(3)).join("\n"), expected);
    }

    #[test]
    fn a_crowd_is_counted() {
        let text = lines(&diagnosis(1000)).join("\n");
        assert!(text.contains("16, 17 and 982 more"), "{text}");
        assert!(text.contains("and 984 more at the same places"), "{text}");
        assert!(text.lines().count() < 40);
    }
}
