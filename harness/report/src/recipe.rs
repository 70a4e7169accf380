//! How to initialise on a platform: what a run of a case that sweeps all of `world.init` says of it.
//!
//! In: the checks of scenarios that say which `device_id`, `set_device` and `cpu_backend` they had. Out: for each
//! backend the [`Advice`]: of the ways in which every check passed and nothing was to fail, the one with least that is
//! special. It says what worked here and with this torch, and no more than that.

use std::collections::{BTreeMap, BTreeSet};

use super::check_set::CheckSet;
use super::details::summary_line;
use super::results::evidence_word;
use super::text::{clip, counted, one_line};
use allranks_model::evidence::Evidence;
use allranks_model::record::REFUSED;
use allranks_model::record::{CheckRecord, Column};
use allranks_model::status::Status;
use allranks_model::version::torch_version;

/// The axes of a way to initialise, and their values from the plainest to the most special.
const AXES: &[(&str, &[&str])] = &[
    ("device_id", &["absent", "index", "device"]),
    ("set_device", &["before", "after", "never"]),
    ("cpu_backend", &["absent", "gloo"]),
];
/// The most bytes of a reason.
const LIMIT: usize = 160;

/// One way to initialise: the place of its value on each axis.
type Way = [usize; AXES.len()];

/// The init recipe that a run recommends for one backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advice {
    /// The platform and the backend: `xpu/xccl`.
    pub backend: String,
    /// The evidence of its checks.
    pub evidence: Evidence,
    /// The version of torch.
    pub torch: String,
    /// The number of ways to initialise that were tried.
    pub tried: usize,
    /// The number of ways that worked in every check.
    pub working: usize,
    /// The recommended way, as a sentence; `None` if no way works.
    pub recipe: Option<String>,
    /// The ways that do not work, each with the reason.
    pub failing: Vec<(String, String)>,
}

impl Advice {
    /// Returns the backend and its evidence: `simxpu/simxccl (simulated)`.
    #[must_use]
    pub fn subject(&self) -> String {
        format!("{} ({})", self.backend, evidence_word(self.evidence))
    }

    /// Returns the recommendation, and the number of ways that it was chosen from.
    #[must_use]
    pub fn summary_line(&self) -> String {
        let tried = counted(self.tried as u64, "way");
        match &self.recipe {
            Some(recipe) => format!("{recipe}; {} of {tried} worked", self.working),
            None => format!("none: none of {tried} worked with every group"),
        }
    }
}

/// Returns the advice for each backend and torch. A backend of which only one way was tried gets none.
#[must_use]
pub fn advise(checks: &impl CheckSet) -> Vec<Advice> {
    let mut backends = BTreeMap::<Subject, BTreeMap<Way, Option<String>>>::new();
    for check in checks.records() {
        let Some(way) = way(&check) else { continue };
        let ways = backends.entry(Subject::of(&check.column)).or_default();
        let first = ways.entry(way).or_default();
        *first = first.take().or_else(|| fault(&check));
    }
    backends
        .into_iter()
        .filter(|(_, ways)| ways.len() > 1)
        .map(|(subject, ways)| subject.advice(&ways))
        .collect()
}

/// Returns the way a check's scenario initialised, if the case says all of it.
fn way(check: &CheckRecord) -> Option<Way> {
    let mut way = Way::default();
    for (place, (axis, values)) in way.iter_mut().zip(AXES) {
        let value = check.params.get(*axis)?;
        *place = values.iter().position(|known| known == value)?;
    }
    Some(way)
}

/// Why a check speaks against its way; none if it passed and nothing was to fail.
fn fault(check: &CheckRecord) -> Option<String> {
    let short = |text: &str| clip(&one_line(text), LIMIT);
    match check.status() {
        Status::Passed => {
            let refused = check.params.get(REFUSED);
            refused.map(|what| format!("{} cannot be made", short(what)))
        }
        // What the backend does not have it has in no way.
        Status::Refused => None,
        Status::Regression
        | Status::HarnessError
        | Status::UnexpectedPass
        | Status::NotRun
        | Status::Waived
        | Status::KnownFailure => Some(short(&summary_line(check))),
    }
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Subject {
    platform: String,
    backend: String,
    torch: String,
    evidence: Evidence,
}

impl Subject {
    fn of(column: &Column) -> Self {
        Self {
            platform: one_line(&column.platform),
            backend: one_line(&column.backend),
            torch: column.torch.clone(),
            evidence: column.evidence,
        }
    }

    fn advice(&self, ways: &BTreeMap<Way, Option<String>>) -> Advice {
        let tried: BTreeSet<Way> = ways.keys().copied().collect();
        let working: Vec<Way> = ways
            .iter()
            .filter(|(_, fault)| fault.is_none())
            .map(|(way, _)| *way)
            .collect();
        // Fewest special things; of as many, those of the first axes are worse.
        let plainest = working
            .iter()
            .min_by_key(|way| (way.iter().sum::<usize>(), **way));
        let mut reasons = BTreeMap::<&str, BTreeSet<Way>>::new();
        for (way, fault) in ways {
            if let Some(fault) = fault {
                reasons.entry(fault).or_default().insert(*way);
            }
        }
        Advice {
            backend: format!("{}/{}", self.platform, self.backend),
            evidence: self.evidence,
            torch: torch_version(&self.torch)
                .map_or_else(|| self.torch.clone(), |version| version.to_string()),
            tried: tried.len(),
            working: working.len(),
            recipe: plainest.map(|way| self.recipe(*way)),
            failing: reasons
                .into_iter()
                .map(|(reason, failing)| (which(&failing, &tried), reason.to_owned()))
                .collect(),
        }
    }

    /// `make the device current, then init_process_group("xccl") without device_id`.
    fn recipe(&self, way: Way) -> String {
        let [device_id, set_device, cpu_backend] = words(way);
        let backend = match cpu_backend {
            "absent" => format!("\"{}\"", self.backend),
            gloo => format!("\"cpu:{gloo},DEVICE:{}\"", self.backend),
        };
        let device_id = match device_id {
            "absent" => "without device_id".to_owned(),
            index => format!("with device_id (given as {index})"),
        };
        let init = format!("init_process_group({backend}) {device_id}");
        match set_device {
            "before" => format!("make the rank's device current, then {init}"),
            "after" => format!("{init}, then make the rank's device current"),
            _ => format!("{init}; the device need not be made current"),
        }
    }
}

fn words(way: Way) -> [&'static str; AXES.len()] {
    let mut words = [""; AXES.len()];
    for ((word, place), (_, values)) in words.iter_mut().zip(way).zip(AXES) {
        *word = values[place];
    }
    words
}

/// `device_id index or device`: which of the ways that were tried these are, if that can be said of each axis alone,
/// else how many.
fn which(these: &BTreeSet<Way>, tried: &BTreeSet<Way>) -> String {
    let values = |ways: &BTreeSet<Way>, axis: usize| -> BTreeSet<usize> {
        ways.iter().map(|way| way[axis]).collect()
    };
    let own: Vec<_> = (0..AXES.len()).map(|axis| values(these, axis)).collect();
    let is_product = tried
        .iter()
        .filter(|way| (0..AXES.len()).all(|axis| own[axis].contains(&way[axis])))
        .count()
        == these.len();
    if !is_product {
        return format!("{} of {}", these.len(), counted(tried.len() as u64, "way"));
    }
    let narrowed = (0..AXES.len()).filter(|axis| own[*axis] != values(tried, *axis));
    let said: Vec<String> = narrowed
        .map(|axis| {
            let (name, words) = AXES[axis];
            let words: Vec<_> = own[axis].iter().map(|place| words[*place]).collect();
            format!("{name} {}", words.join(" or "))
        })
        .collect();
    match said.as_slice() {
        [] => "every way".to_owned(),
        said => said.join(" with "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use allranks_model::names::{CaseId, CheckId, ScenarioId, WorldSize};
    use allranks_model::outcome::{Outcome, Verdict};
    use allranks_model::record::FORMAT;

    fn check(way: Way, outcome: Outcome) -> CheckRecord {
        let params = AXES.iter().zip(words(way));
        let verdict = match outcome {
            Outcome::Pass | Outcome::Unsupported => Verdict::Expected,
            _ => Verdict::Regression,
        };
        CheckRecord {
            format: FORMAT,
            id: CheckId::from("a"),
            scenario: ScenarioId::from("a"),
            case: CaseId::from("a"),
            column: Column {
                platform: "xpu".to_owned(),
                backend: "xccl".to_owned(),
                world_size: WorldSize(2),
                nodes: 1,
                driver: "python".to_owned(),
                launcher: "local".to_owned(),
                evidence: Evidence::Simulated,
                torch: "2.11.0+cpu".to_owned(),
                label: String::new(),
            },
            covers: Vec::new(),
            params: params
                .map(|((axis, _), word)| ((*axis).to_owned(), word.to_owned()))
                .collect(),
            at: String::new(),
            outcome,
            verdict,
            summary: format!("it went {outcome:?}"),
            remark: None,
            class: None,
            difference: None,
            ranks: Vec::new(),
            diagnosis: None,
            expectation: None,
            observations: BTreeMap::new(),
            checked: vec![1, 1],
            duration_us: 1,
        }
    }

    /// A check of every way that passes, except for what `spoil` does to it.
    fn sweep(spoil: impl Fn(Way, &mut CheckRecord)) -> Vec<CheckRecord> {
        let mut checks = Vec::new();
        for device_id in 0..3 {
            for set_device in 0..3 {
                for cpu_backend in 0..2 {
                    let way = [device_id, set_device, cpu_backend];
                    let mut check = check(way, Outcome::Pass);
                    spoil(way, &mut check);
                    checks.push(check);
                }
            }
        }
        checks
    }

    fn refuse(check: &mut CheckRecord) {
        let what = "group cpu".to_owned();
        check.params.insert(REFUSED.to_owned(), what);
    }

    #[test]
    fn where_every_way_works_the_plainest_is_recommended() {
        let advice = advise(&sweep(|_, _| {})).remove(0);
        assert_eq!((advice.tried, advice.working), (18, 18));
        assert_eq!(
            advice.recipe.as_deref(),
            Some(
                "make the rank's device current, then init_process_group(\"xccl\") without device_id"
            )
        );
        assert_eq!(advice.failing, []);
        assert_eq!(advice.subject(), "xpu/xccl (simulated)");
    }

    #[test]
    fn what_must_fail_in_a_way_speaks_against_it_although_it_is_expected() {
        let checks = sweep(|way, check| {
            if way[0] > 0 {
                refuse(check);
            }
        });
        let advice = advise(&checks).remove(0);
        assert_eq!((advice.tried, advice.working), (18, 6));
        assert!(advice.recipe.unwrap().ends_with("without device_id"));
        let said = (
            "device_id index or device".to_owned(),
            "group cpu cannot be made".to_owned(),
        );
        assert_eq!(advice.failing, [said]);
    }

    #[test]
    fn a_platform_that_wants_its_device_gets_a_recipe_with_it() {
        let advice = advise(&sweep(|way, check| {
            if way[0] < 2 || way[1] == 0 || way[2] == 0 {
                check.outcome = Outcome::Hang;
                check.verdict = Verdict::Regression;
            }
        }))
        .remove(0);
        assert_eq!(
            advice.recipe.as_deref(),
            Some(
                "init_process_group(\"cpu:gloo,DEVICE:xccl\") with device_id (given as device), \
                 then make the rank's device current"
            )
        );
        assert_eq!(
            (advice.working, advice.failing[0].0.as_str()),
            (2, "16 of 18 ways")
        );
    }

    #[test]
    fn one_bad_check_among_good_ones_is_enough_and_a_declared_refusal_is_none() {
        let plain = [0, 0, 0];
        let mut checks = sweep(|_, _| {});
        checks.push(check(plain, Outcome::Unsupported));
        assert_eq!(advise(&checks)[0].working, 18);
        checks.push(check(plain, Outcome::NotRun));
        checks.push(check(plain, Outcome::Pass));
        let advice = advise(&checks).remove(0);
        assert_eq!(advice.working, 17);
        assert_ne!(advice.recipe, advise(&sweep(|_, _| {}))[0].recipe);
    }

    #[test]
    fn where_no_way_works_none_is_recommended() {
        let advice = advise(&sweep(|_, check| refuse(check))).remove(0);
        assert_eq!(advice.recipe, None);
        assert_eq!(
            advice.summary_line(),
            "none: none of 18 ways worked with every group"
        );
        assert_eq!(advice.failing[0].0, "every way");
    }

    #[test]
    fn what_was_tried_in_one_way_only_says_nothing() {
        assert_eq!(advise(&Vec::from([check([0, 0, 0], Outcome::Pass)])), []);
        let mut other = check([0, 0, 0], Outcome::Pass);
        other.params.remove("cpu_backend");
        assert_eq!(advise(&Vec::from([other.clone(), other])), []);
    }
}
