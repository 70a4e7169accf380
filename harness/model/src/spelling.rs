//! Tests that the name of a variant is the same from `name()` and from serde.

use serde::Serialize;
use strum::VariantArray;

use crate::axes::{
    Factor, Joined, Layout, LayoutOf, Mode, NonRoot, ObjectKind, Placement, RootBy, SplitsKind,
    TensorKind, Values,
};
use crate::capability::Accumulation;
use crate::dtype::{DType, ReduceOp};
use crate::launcher::Launcher;
use crate::op::Op;
use crate::outcome::{Outcome, Verdict};
use crate::recipe::{CpuBackend, DeviceId, SetDevice};
use crate::store::StoreMethod;

/// Returns the names of the variants that serde spells differently.
fn misspelt<T>() -> Vec<&'static str>
where
    T: VariantArray + Serialize + Copy + Into<&'static str>,
{
    let names = T::VARIANTS.iter().map(|variant| {
        let name: &'static str = (*variant).into();
        (name, serde_json::to_value(variant).unwrap())
    });
    names
        .filter(|(name, serialised)| serialised != name)
        .map(|(name, _)| name)
        .collect()
}

#[test]
fn names_are_the_serialised_names() {
    let all = [
        misspelt::<Accumulation>(),
        misspelt::<CpuBackend>(),
        misspelt::<DType>(),
        misspelt::<DeviceId>(),
        misspelt::<Launcher>(),
        misspelt::<Op>(),
        misspelt::<Outcome>(),
        misspelt::<ReduceOp>(),
        misspelt::<SetDevice>(),
        misspelt::<StoreMethod>(),
        misspelt::<TensorKind>(),
        misspelt::<Layout>(),
        misspelt::<LayoutOf>(),
        misspelt::<Joined>(),
        misspelt::<Mode>(),
        misspelt::<Placement>(),
        misspelt::<NonRoot>(),
        misspelt::<RootBy>(),
        misspelt::<SplitsKind>(),
        misspelt::<Values>(),
        misspelt::<Factor>(),
        misspelt::<ObjectKind>(),
        misspelt::<Verdict>(),
    ];
    assert_eq!(all.concat(), [""; 0]);
}

#[test]
fn another_spelling_is_found() {
    #[derive(Clone, Copy, Serialize, strum::IntoStaticStr, VariantArray)]
    #[serde(rename_all = "snake_case")]
    #[strum(serialize_all = "kebab-case")]
    enum Word {
        One,
        TwoWords,
    }
    assert_eq!(misspelt::<Word>(), ["two-words"]);
}
