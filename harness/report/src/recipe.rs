//! Recommends an init recipe for each backend, from a run of a case that sweeps `world.init`.
//!
//! In: the checks of scenarios that record which `device_id`, `set_device` and `cpu_backend` they had. Out: for each backend an
//! [`InitAdvice`]: of the recipes with which every check passed and no refusal was expected, the plainest. It holds for this
//! machine and this version of torch only.

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

/// The axes of an init recipe, and their values from the plainest to the most special.
const AXES: &[(&str, &[&str])] = &[
    ("device_id", &["absent", "index", "device"]),
    ("set_device", &["before", "after", "never"]),
    ("cpu_backend", &["absent", "gloo"]),
];
/// The longest reason, in bytes.
const LIMIT: usize = 160;

/// One init recipe: the index of its value on each axis.
type InitRecipe = [usize; AXES.len()];

/// The init recipe that a run recommends for one backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InitAdvice {
    /// The platform and the backend: `xpu/xccl`.
    pub backend: String,
    /// The evidence of its checks.
    pub evidence: Evidence,
    /// The version of torch.
    pub torch: String,
    /// The number of recipes that were tried.
    pub tried: usize,
    /// The number of recipes with which every check passed.
    pub working: usize,
    /// The recommended recipe, as a sentence; `None` if none works.
    pub recipe: Option<String>,
    /// The recipes that do not work, each with the reason.
    pub failing: Vec<(String, String)>,
}

impl InitAdvice {
    /// Returns the backend and its evidence: `simxpu/simxccl (simulated)`.
    #[must_use]
    pub fn subject(&self) -> String {
        format!("{} ({})", self.backend, evidence_word(self.evidence))
    }

    /// Returns the recommendation, and the number of recipes that it was chosen from.
    #[must_use]
    pub fn summary_line(&self) -> String {
        let tried = counted(self.tried as u64, "way");
        match &self.recipe {
            Some(recipe) => format!("{recipe}; {} of {tried} worked", self.working),
            None => format!("none: none of {tried} worked with every group"),
        }
    }
}

/// Returns the advice for each backend and torch. A backend with which only one recipe was tried gets none.
#[must_use]
pub fn advise_init(checks: &impl CheckSet) -> Vec<InitAdvice> {
    let mut backends = BTreeMap::<Subject, BTreeMap<InitRecipe, Option<String>>>::new();
    for check in checks.records() {
        let Some(recipe) = recipe_of(&check) else {
            continue;
        };
        let recipes = backends.entry(Subject::of(&check.column)).or_default();
        let first = recipes.entry(recipe).or_default();
        *first = first.take().or_else(|| objection(&check));
    }
    backends
        .into_iter()
        .filter(|(_, recipes)| recipes.len() > 1)
        .map(|(subject, recipes)| subject.advice(&recipes))
        .collect()
}

/// Returns the recipe of a check's scenario; `None` if its parameters do not name all of it.
fn recipe_of(check: &CheckRecord) -> Option<InitRecipe> {
    let mut recipe = InitRecipe::default();
    for (index, (axis, values)) in recipe.iter_mut().zip(AXES) {
        let value = check.params.get(*axis)?;
        *index = values.iter().position(|known| known == value)?;
    }
    Some(recipe)
}

/// Returns why a check speaks against its recipe; `None` if it passed and no refusal was expected.
fn objection(check: &CheckRecord) -> Option<String> {
    let short = |text: &str| clip(&one_line(text), LIMIT);
    match check.status() {
        Status::Passed => {
            let refused = check.params.get(REFUSED);
            refused.map(|what| format!("{} cannot be made", short(what)))
        }
        // The backend does not support it with any recipe.
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

    fn advice(&self, recipes: &BTreeMap<InitRecipe, Option<String>>) -> InitAdvice {
        let tried: BTreeSet<InitRecipe> = recipes.keys().copied().collect();
        let working: Vec<InitRecipe> = recipes
            .iter()
            .filter(|(_, objection)| objection.is_none())
            .map(|(recipe, _)| *recipe)
            .collect();
        // The recipe with the fewest special values; of several, special values on the first axes count more.
        let plainest = working
            .iter()
            .min_by_key(|recipe| (recipe.iter().sum::<usize>(), **recipe));
        let mut reasons = BTreeMap::<&str, BTreeSet<InitRecipe>>::new();
        for (recipe, objection) in recipes {
            if let Some(objection) = objection {
                reasons.entry(objection).or_default().insert(*recipe);
            }
        }
        InitAdvice {
            backend: format!("{}/{}", self.platform, self.backend),
            evidence: self.evidence,
            torch: torch_version(&self.torch)
                .map_or_else(|| self.torch.clone(), |version| version.to_string()),
            tried: tried.len(),
            working: working.len(),
            recipe: plainest.map(|recipe| self.recipe_text(*recipe)),
            failing: reasons
                .into_iter()
                .map(|(reason, failing)| (describe(&failing, &tried), reason.to_owned()))
                .collect(),
        }
    }

    /// Returns a recipe as text: `make the device current, then init_process_group("xccl") without device_id`.
    fn recipe_text(&self, recipe: InitRecipe) -> String {
        let [device_id, set_device, cpu_backend] = axis_values(recipe);
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

/// Returns the value of a recipe on each axis.
fn axis_values(recipe: InitRecipe) -> [&'static str; AXES.len()] {
    let mut words = [""; AXES.len()];
    for ((word, index), (_, values)) in words.iter_mut().zip(recipe).zip(AXES) {
        *word = values[index];
    }
    words
}

/// Describes some of the recipes that were tried: by the values of each axis, `device_id index or device`, if that is enough,
/// otherwise by their number.
fn describe(these: &BTreeSet<InitRecipe>, tried: &BTreeSet<InitRecipe>) -> String {
    let values = |recipes: &BTreeSet<InitRecipe>, axis: usize| -> BTreeSet<usize> {
        recipes.iter().map(|recipe| recipe[axis]).collect()
    };
    let own: Vec<_> = (0..AXES.len()).map(|axis| values(these, axis)).collect();
    let is_product = tried
        .iter()
        .filter(|recipe| (0..AXES.len()).all(|axis| own[axis].contains(&recipe[axis])))
        .count()
        == these.len();
    if !is_product {
        return format!("{} of {}", these.len(), counted(tried.len() as u64, "way"));
    }
    let narrowed = (0..AXES.len()).filter(|axis| own[*axis] != values(tried, *axis));
    let parts: Vec<String> = narrowed
        .map(|axis| {
            let (name, words) = AXES[axis];
            let words: Vec<_> = own[axis].iter().map(|index| words[*index]).collect();
            format!("{name} {}", words.join(" or "))
        })
        .collect();
    match parts.as_slice() {
        [] => "every way".to_owned(),
        parts => parts.join(" with "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use allranks_model::names::{CaseId, CheckId, ScenarioId, WorldSize};
    use allranks_model::outcome::{Outcome, Verdict};
    use allranks_model::record::FORMAT;

    fn check(recipe: InitRecipe, outcome: Outcome) -> CheckRecord {
        let params = AXES.iter().zip(axis_values(recipe));
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
    fn sweep(spoil: impl Fn(InitRecipe, &mut CheckRecord)) -> Vec<CheckRecord> {
        let mut checks = Vec::new();
        for device_id in 0..3 {
            for set_device in 0..3 {
                for cpu_backend in 0..2 {
                    let recipe = [device_id, set_device, cpu_backend];
                    let mut check = check(recipe, Outcome::Pass);
                    spoil(recipe, &mut check);
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
        let advice = advise_init(&sweep(|_, _| {})).remove(0);
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
        let checks = sweep(|recipe, check| {
            if recipe[0] > 0 {
                refuse(check);
            }
        });
        let advice = advise_init(&checks).remove(0);
        assert_eq!((advice.tried, advice.working), (18, 6));
        assert!(advice.recipe.unwrap().ends_with("without device_id"));
        let failing = (
            "device_id index or device".to_owned(),
            "group cpu cannot be made".to_owned(),
        );
        assert_eq!(advice.failing, [failing]);
    }

    #[test]
    fn a_platform_that_wants_its_device_gets_a_recipe_with_it() {
        let advice = advise_init(&sweep(|recipe, check| {
            if recipe[0] < 2 || recipe[1] == 0 || recipe[2] == 0 {
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
        assert_eq!(advise_init(&checks)[0].working, 18);
        checks.push(check(plain, Outcome::NotRun));
        checks.push(check(plain, Outcome::Pass));
        let advice = advise_init(&checks).remove(0);
        assert_eq!(advice.working, 17);
        assert_ne!(advice.recipe, advise_init(&sweep(|_, _| {}))[0].recipe);
    }

    #[test]
    fn where_no_way_works_none_is_recommended() {
        let advice = advise_init(&sweep(|_, check| refuse(check))).remove(0);
        assert_eq!(advice.recipe, None);
        assert_eq!(
            advice.summary_line(),
            "none: none of 18 ways worked with every group"
        );
        assert_eq!(advice.failing[0].0, "every way");
    }

    #[test]
    fn what_was_tried_in_one_way_only_says_nothing() {
        assert_eq!(
            advise_init(&Vec::from([check([0, 0, 0], Outcome::Pass)])),
            []
        );
        let mut other = check([0, 0, 0], Outcome::Pass);
        other.params.remove("cpu_backend");
        assert_eq!(advise_init(&Vec::from([other.clone(), other])), []);
    }
}
