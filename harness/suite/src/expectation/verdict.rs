//! Gives an outcome its verdict.

use crate::expectation::{Entry, EntryKind};
use allranks_model::capability::Declared;
use allranks_model::outcome::{Outcome, Verdict};

/// The summary of checks that were not run because their world did not initialise.
pub const NO_WORLD: &str = "its world did not initialise";

/// The class of a failure that an `intermittent` entry describes, and that occurred again in a new world.
pub const FAILED_TWICE: &str = "failed-twice";

/// Returns the verdict on an outcome, and the reason in one line if the outcome alone does not explain it. `class` and
/// `summary` are those of the check's result, `entry` is the expectation that matches, `declared` what the platform file
/// says of the check.
///
/// | outcome | declared | no entry | entry pins it | entry pins something else |
/// |---|---|---|---|---|
/// | pass | supported | expected | | unexpected pass (¹) |
/// | pass | unsupported | unexpected pass | | unexpected pass (¹) |
/// | unsupported | unsupported | expected | expected | unexpected pass (¹) |
/// | unsupported | supported | regression | known failure (²) | regression |
/// | mismatch, error, hang, crash, init failed | either | regression | known failure (²) | regression |
/// | harness error | either | regression | regression | regression |
/// | not run | either | not run | not run (³) | not run |
///
/// (¹) expected, if the entry is `intermittent`, or says that some checks pass: the failure does not occur every time, or not
/// in every check. An `intermittent` failure that occurs twice is a regression.
/// (²) waived, if the entry is a waiver or says `waived: true`; a regression, if it is a waiver that has expired.
/// (³) known failure, if the entry says that the world does not initialise, and that is why.
#[must_use]
pub fn judge(
    outcome: Outcome,
    class: Option<&str>,
    summary: &str,
    entry: Option<&Entry>,
    declared: &Declared,
) -> (Verdict, Option<String>) {
    let plain = |verdict| (verdict, None);
    let because = |verdict, reason: &str| (verdict, Some(reason.to_owned()));
    match outcome {
        Outcome::NotRun => match entry {
            Some(entry) if entry.is_about_init() && summary == NO_WORLD => {
                because(Verdict::KnownFailure, &entry.reason)
            }
            Some(_) | None => plain(Verdict::NotRun),
        },
        // Nothing excuses the harness: an expectation is about a backend.
        Outcome::HarnessError => because(
            Verdict::Regression,
            "the harness or the machine failed, not the backend",
        ),
        Outcome::Pass => match (entry, declared) {
            (None, Declared::Supported) => plain(Verdict::Expected),
            (None, Declared::Unsupported(what)) => {
                let reason = format!("it works, although {what}: declare it");
                (Verdict::UnexpectedPass, Some(reason))
            }
            (Some(entry), Declared::Supported | Declared::Unsupported(_)) => not_failing(entry),
        },
        Outcome::Unsupported => match (entry, declared) {
            (None, Declared::Unsupported(_)) => plain(Verdict::Expected),
            (None, Declared::Supported) => because(
                Verdict::Regression,
                "refused, although it is declared as supported",
            ),
            (Some(entry), Declared::Unsupported(_)) if entry.outcomes.contains(&outcome) => {
                plain(Verdict::Expected)
            }
            (Some(entry), Declared::Unsupported(_)) => not_failing(entry),
            (Some(entry), Declared::Supported) => failure(outcome, class, summary, entry),
        },
        Outcome::Mismatch
        | Outcome::Error
        | Outcome::Hang
        | Outcome::Crash
        | Outcome::InitFailed => match entry {
            None => plain(Verdict::Regression),
            Some(entry) => failure(outcome, class, summary, entry),
        },
    }
}

/// Returns the verdict on an outcome that is no failure, although an entry says that the check fails.
fn not_failing(entry: &Entry) -> (Verdict, Option<String>) {
    if entry.is_expired() {
        return (Verdict::Expected, None);
    }
    if entry.intermittent {
        let reason = format!("this time; {} says that it fails now and then", entry.at);
        return (Verdict::Expected, Some(reason));
    }
    if let Some(which) = &entry.also_passes {
        let reason = format!("{} says which checks pass: {which}", entry.at);
        return (Verdict::Expected, Some(reason));
    }
    let reason = format!("{} says that it fails: remove the entry", entry.at);
    (Verdict::UnexpectedPass, Some(reason))
}

/// Returns the verdict on a failure for which there is an entry: known if it is exactly the one that the entry
/// describes.
fn failure(
    outcome: Outcome,
    class: Option<&str>,
    summary: &str,
    entry: &Entry,
) -> (Verdict, Option<String>) {
    match difference(outcome, class, summary, entry) {
        Some(difference) => {
            let reason = format!("not the failure that {} describes: {difference}", entry.at);
            (Verdict::Regression, Some(reason))
        }
        None if entry.is_expired() => {
            let reason = format!("{} excuses it no more: {}", entry.at, entry.why());
            (Verdict::Regression, Some(reason))
        }
        None => {
            let verdict = match entry.kind {
                EntryKind::Accepted | EntryKind::Waiver(_) => Verdict::Waived,
                EntryKind::KnownFailure => Verdict::KnownFailure,
            };
            (verdict, Some(entry.reason.clone()))
        }
    }
}

/// Returns how a failure differs from what an entry pins; `None` if it does not.
fn difference(
    outcome: Outcome,
    class: Option<&str>,
    summary: &str,
    entry: &Entry,
) -> Option<String> {
    if !entry.outcomes.contains(&outcome) {
        let pinned: Vec<_> = entry
            .outcomes
            .iter()
            .map(|outcome| outcome.name())
            .collect();
        return Some(format!(
            "it pins {}, and this is {outcome}",
            pinned.join(" or ")
        ));
    }
    if entry.intermittent && class == Some(FAILED_TWICE) {
        return Some("it is intermittent, and this failed twice".to_owned());
    }
    let has_class = matches!(outcome, Outcome::Mismatch | Outcome::Error);
    let is_pinned = |class: &str| entry.classes.iter().any(|pinned| pinned == class);
    if has_class && !entry.classes.is_empty() && !class.is_some_and(is_pinned) {
        let pinned = entry.classes.join(" or ");
        let class = class.unwrap_or("of no class");
        return Some(format!("it pins class {pinned}, and this is {class}"));
    }
    let mut messages = entry.messages.iter();
    let differs = !entry.messages.is_empty() && !messages.any(|text| summary.contains(text));
    differs.then(|| format!("it pins the text `{}`", entry.messages.join("` or `")))
}

impl Entry {
    /// Returns whether a failure is exactly the one that this entry describes.
    #[must_use]
    pub fn describes(&self, outcome: Outcome, class: Option<&str>, summary: &str) -> bool {
        difference(outcome, class, summary, self).is_none()
    }

    /// Returns true if a failure is one that this entry describes as intermittent, and that has occurred once. The
    /// check is then made again.
    #[must_use]
    pub fn wants_another_try(&self, outcome: Outcome, class: Option<&str>, summary: &str) -> bool {
        self.intermittent && self.describes(outcome, class, summary)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expectation::Expectations;
    use allranks_yaml::Source;
    use strum::VariantArray as _;

    fn entry(fields: &str) -> Entry {
        let text = format!(
            "- {{match: {{op: barrier}}, reason: known., url: \"https://example.org/1\", {fields}}}"
        );
        let found = Expectations::parse(Source::new("e.yaml", text));
        let found = found.unwrap_or_else(|problems| panic!("{}", problems[0]));
        found.iter().next().unwrap().clone()
    }

    fn unsupported() -> Declared {
        Declared::Unsupported("gloo does not declare all_to_all".to_owned())
    }

    fn verdict(outcome: Outcome, entry: Option<&Entry>, declared: &Declared) -> Verdict {
        judge(outcome, None, "raised: Timed out", entry, declared).0
    }

    #[test]
    fn without_an_entry_only_a_declared_pass_and_an_undeclared_refusal_are_expected() {
        use Verdict::{Expected, NotRun, Regression, UnexpectedPass};
        let supported = Outcome::VARIANTS
            .iter()
            .map(|outcome| verdict(*outcome, None, &Declared::Supported))
            .collect::<Vec<_>>();
        assert_eq!(
            supported,
            [
                Expected, Regression, Regression, Regression, Regression, Regression, Regression,
                Regression, NotRun
            ]
        );
        let undeclared = Outcome::VARIANTS
            .iter()
            .map(|outcome| verdict(*outcome, None, &unsupported()))
            .collect::<Vec<_>>();
        assert_eq!(
            undeclared,
            [
                UnexpectedPass,
                Regression,
                Regression,
                Regression,
                Regression,
                Regression,
                Expected,
                Regression,
                NotRun
            ]
        );
    }

    #[test]
    fn an_entry_excuses_the_outcome_it_pins_and_no_other() {
        use Verdict::{KnownFailure, NotRun, Regression, UnexpectedPass};
        let entry = entry("outcome: [error, hang]");
        let with_entry = Outcome::VARIANTS
            .iter()
            .map(|outcome| verdict(*outcome, Some(&entry), &Declared::Supported))
            .collect::<Vec<_>>();
        assert_eq!(
            with_entry,
            [
                UnexpectedPass,
                Regression,
                KnownFailure,
                KnownFailure,
                Regression,
                Regression,
                Regression,
                Regression,
                NotRun
            ]
        );
        let undeclared = Outcome::VARIANTS
            .iter()
            .map(|outcome| verdict(*outcome, Some(&entry), &unsupported()))
            .collect::<Vec<_>>();
        assert_eq!(
            undeclared,
            [
                UnexpectedPass,
                Regression,
                KnownFailure,
                KnownFailure,
                Regression,
                Regression,
                UnexpectedPass,
                Regression,
                NotRun
            ]
        );
    }

    #[test]
    fn class_and_text_are_pinned_too_and_the_reason_says_how_a_failure_differs() {
        let classed = entry("outcome: mismatch, class: no-op");
        let judged = |class| {
            judge(
                Outcome::Mismatch,
                class,
                "",
                Some(&classed),
                &Declared::Supported,
            )
        };
        assert_eq!(
            judged(Some("no-op")),
            (Verdict::KnownFailure, Some("known.".to_owned()))
        );
        let (verdict, reason) = judged(Some("rank-dropped"));
        assert_eq!(verdict, Verdict::Regression);
        assert_eq!(
            reason.unwrap(),
            "not the failure that e.yaml:1 describes: it pins class no-op, and this is rank-dropped"
        );
        assert_eq!(judged(None).0, Verdict::Regression);

        let text = entry("outcome: error, message: Timed out");
        let judged = |summary| {
            judge(
                Outcome::Error,
                None,
                summary,
                Some(&text),
                &Declared::Supported,
            )
            .0
        };
        assert_eq!(judged("rank 1: Timed out waiting"), Verdict::KnownFailure);
        assert_eq!(judged("rank 1: Connection reset"), Verdict::Regression);
    }

    #[test]
    fn waivers_and_intermittent_failures() {
        let waiver = entry("outcome: mismatch, waived: true");
        assert_eq!(
            verdict(Outcome::Mismatch, Some(&waiver), &Declared::Supported),
            Verdict::Waived
        );
        assert_eq!(
            verdict(Outcome::Pass, Some(&waiver), &Declared::Supported),
            Verdict::UnexpectedPass
        );
        let now_and_then = entry("outcome: crash, intermittent: true");
        assert_eq!(
            verdict(Outcome::Pass, Some(&now_and_then), &Declared::Supported),
            Verdict::Expected
        );
        assert_eq!(
            verdict(Outcome::Crash, Some(&now_and_then), &Declared::Supported),
            Verdict::KnownFailure
        );
        assert_eq!(
            verdict(Outcome::Hang, Some(&now_and_then), &Declared::Supported),
            Verdict::Regression
        );
        let twice = judge(
            Outcome::Crash,
            Some(FAILED_TWICE),
            "SIGABRT",
            Some(&now_and_then),
            &Declared::Supported,
        );
        assert_eq!(twice.0, Verdict::Regression);
        assert!(now_and_then.wants_another_try(Outcome::Crash, Some("crash"), ""));
        assert!(!now_and_then.wants_another_try(Outcome::Hang, None, ""));
        let partly = entry("outcome: crash, also_passes: Where nothing is sent.");
        assert_eq!(
            verdict(Outcome::Pass, Some(&partly), &Declared::Supported),
            Verdict::Expected
        );
        assert!(!partly.wants_another_try(Outcome::Crash, Some("crash"), ""));
    }

    #[test]
    fn several_classes_and_texts_may_be_pinned_and_errors_have_classes_too() {
        let pinned = entry(
            "outcome: [mismatch, error], class: [no-op, raised-on-every-rank], message: [closed, Timed out]",
        );
        let judged = |outcome, class, summary| {
            judge(
                outcome,
                Some(class),
                summary,
                Some(&pinned),
                &Declared::Supported,
            )
            .0
        };
        use Outcome::{Error, Mismatch};
        for (outcome, class, summary, verdict) in [
            (Mismatch, "no-op", "Timed out", Verdict::KnownFailure),
            (
                Error,
                "raised-on-every-rank",
                "closed",
                Verdict::KnownFailure,
            ),
            (Error, "raised-and-written", "closed", Verdict::Regression),
            (Mismatch, "no-op", "other", Verdict::Regression),
        ] {
            assert_eq!(
                judged(outcome, class, summary),
                verdict,
                "{class} {summary}"
            );
        }
    }
}
