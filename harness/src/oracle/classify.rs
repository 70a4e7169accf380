//! Which bug explains a wrong answer.

use super::Class;
use super::scene::Scene;
use super::verify::Wrong;

/// The class of a wrong answer, and what to add to its sentence.
pub(super) fn classify(scene: Scene<'_>, wrong: &[Wrong<'_>]) -> (Class, String) {
    let _ = (scene, wrong);
    (Class::Unclassified, String::new())
}
