//! `DeviceMesh`: a sum over the ranks of each of its groups, and the members of each.
//!
//! Tensors: for each group G (`outer`, `inner`, `slice`, `flat`) `input.G`, `sum.G`, and `members.G`, the global ranks in the
//! group's order.

use serde_json::json;

use super::class::StackClass as Class;
use super::data::{RankData, World, sum};
use allranks_model::stack::Mesh;

/// Elements of what is summed.
const LEN: usize = 33;

/// Returns the data that every rank is given, and those that it must give back.
pub(super) fn ranks(point: Mesh, world: World) -> Vec<RankData> {
    let inner = world.size / point.outer;
    world
        .ranks()
        .map(|rank| of_rank(point, world, inner, rank))
        .collect()
}

fn of_rank(point: Mesh, world: World, inner: u32, rank: u32) -> RankData {
    let mut data = RankData {
        options: json!({"mesh": [point.outer, inner]}),
        ..RankData::default()
    };
    // Row-major: the second dimension's ranks are next to each other.
    let column: Vec<u32> = world
        .ranks()
        .filter(|other| other % inner == rank % inner)
        .collect();
    let row: Vec<u32> = world
        .ranks()
        .filter(|other| other / inner == rank / inner)
        .collect();
    let all: Vec<u32> = world.ranks().collect();
    let groups = [
        ("outer", &column, &row),
        ("inner", &row, &column),
        ("slice", &row, &column),
        ("flat", &all, &row),
    ];
    for (slot, (name, members, others)) in (0..).zip(groups) {
        let blocks = |ranks: &[u32]| -> Vec<Vec<f64>> {
            let numbers = |rank: &u32| world.inputs(point.dtype, 1, *rank, slot, LEN);
            ranks.iter().map(numbers).collect()
        };
        let numbers =
            |ranks: &[u32]| -> Vec<f64> { ranks.iter().map(|rank| f64::from(*rank)).collect() };
        let own = blocks(&[rank]).concat();
        data.reads(format!("input.{name}"), &[LEN as u64], own.clone());
        let mut guesses = vec![(Class::WrongGroup, sum(&blocks(others)))];
        if members.len() > 1 {
            guesses.push((Class::NotReduced, own));
        }
        if members.len() < all.len() {
            guesses.push((Class::WholeWorld, sum(&blocks(&all))));
        }
        data.gives(
            format!("sum.{name}"),
            &[LEN as u64],
            sum(&blocks(members)),
            guesses,
        );
        let is_as_long = others.len() == members.len();
        let guess = is_as_long.then(|| (Class::WrongGroup, numbers(others)));
        let guesses = guess.into_iter().collect();
        let name = format!("members.{name}");
        data.gives(name, &[members.len() as u64], numbers(members), guesses);
    }
    data
}
