//! Renders a diagnosis as text; every report uses this text.

use crate::diagnosis::rank_set::{named, places};
use crate::diagnosis::{Confidence, Diagnosis, HangKind};
use crate::names::Rank;

/// Returns the verdict in one line: `KIND: SUMMARY (CONFIDENCE)`.
#[must_use]
pub fn headline(diagnosis: &Diagnosis) -> String {
    let sure = match diagnosis.confidence {
        Confidence::Proved => " (proved)",
        Confidence::Likely => " (likely)",
        Confidence::None => "",
    };
    format!("{}: {}{sure}", diagnosis.kind, diagnosis.summary)
}

/// Returns the whole verdict, the headline first; the other lines are indented.
#[must_use]
pub fn lines(diagnosis: &Diagnosis) -> Vec<String> {
    let mut lines = vec![headline(diagnosis)];
    let mut ranks = |what: &str, ranks: &[Rank]| {
        if !ranks.is_empty() {
            lines.push(format!("  {what}: {}", named(ranks)));
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
        lines.extend(
            places(&diagnosis.places)
                .iter()
                .map(|line| format!("    {line}")),
        );
    }
    let mut section = |title: &str, texts: &[String]| {
        if !texts.is_empty() {
            lines.push(format!("  {title}:"));
            lines.extend(texts.iter().map(|text| format!("    - {text}")));
        }
    };
    section("why", &diagnosis.evidence);
    // A verdict that accuses no rank has nothing to refute.
    if diagnosis.confidence != Confidence::None {
        section("refuted if", std::slice::from_ref(&diagnosis.refuted_by));
    }
    if !matches!(diagnosis.kind, HangKind::Unknown) {
        section("what to try", &diagnosis.advice);
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rank_line::RankLine;

    fn diagnosis(size: u32) -> Diagnosis {
        Diagnosis {
            after_s: 1.0,
            kind: HangKind::PeerStopped,
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
    ranks 0–2: in barrier on world (train.py:3)
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
        assert!(text.contains("victims: ranks 2–999"), "{text}");
        assert!(text.contains("ranks 0–999: in barrier"), "{text}");
        assert!(text.lines().count() < 20);
    }
}
