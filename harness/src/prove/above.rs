//! Mutants above c10d: bugs that no check of c10d's functions may detect, so that only checks of the layers above kill them.

use super::kill::is_unexpected;
use allranks_model::outcome::Verdict;
use allranks_model::record::CheckRecord;

/// The case with one check of each op of c10d.
pub(super) const EACH_OP: &str = "collectives/smoke";
/// The prefix of the ids of checks above c10d.
const STACK: &str = "stack/";

/// Returns what is wrong with a mutant above c10d: a check of c10d's functions detected it, or none was run. `None` if nothing is
/// wrong.
pub(super) fn seen_in_c10d<'a>(checks: impl Iterator<Item = &'a CheckRecord>) -> Option<String> {
    visible_to_c10d(checks.map(|check| (check.id.as_str(), check.verdict)))
}

fn visible_to_c10d<'a>(checks: impl Iterator<Item = (&'a str, Verdict)>) -> Option<String> {
    let mut own = checks.filter(|(id, _)| !id.starts_with(STACK)).peekable();
    let is_run = |verdict: &Verdict| *verdict != Verdict::NotRun;
    if own.peek().is_none_or(|(_, verdict)| !is_run(verdict)) {
        return Some("no check of c10d's own functions was tried on it".to_owned());
    }
    let (id, _) = own.find(|(_, verdict)| is_unexpected(*verdict))?;
    Some(format!("it is not above c10d: {id} sees it"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OF_DDP: &str = "stack/ddp@cpu.gloo.ws2#0.ddp";
    const OF_C10D: &str = "collectives/smoke@cpu.gloo.ws2#1.barrier";

    #[test]
    fn only_what_c10d_s_own_checks_see_counts() {
        let said = |checks: &[(&'static str, Verdict)]| visible_to_c10d(checks.iter().copied());
        let in_stack = (OF_DDP, Verdict::Regression);
        assert_eq!(said(&[in_stack, (OF_C10D, Verdict::Expected)]), None);
        let seen = said(&[in_stack, (OF_C10D, Verdict::Regression)]);
        assert!(seen.is_some_and(|why| why.contains("#1.barrier sees it")));
    }

    #[test]
    fn what_was_not_tried_proves_nothing() {
        let untried = [(OF_DDP, Verdict::Regression), (OF_C10D, Verdict::NotRun)];
        for checks in [&untried[..1], &untried] {
            let why = visible_to_c10d(checks.iter().copied());
            assert!(why.is_some_and(|why| why.contains("no check")));
        }
    }
}
