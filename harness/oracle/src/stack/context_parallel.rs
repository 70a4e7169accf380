//! `context_parallel`: attention over a sequence of which each rank has a part.
//!
//! Tensors: `query`, `key`, `value` and `cotangent`, the rank's positions; `output`, `gradient.query`, `gradient.key` and
//! `gradient.value`.

use serde_json::json;

use super::class::StackClass as Class;
use super::data::{About, RankData, World};
use crate::hash::{Stream, below};
use allranks_model::dtype::DType;
use allranks_model::stack::ContextParallel;

const HEADS: usize = 2;
/// Positions of each rank: kernels pad to multiples of 32, and each of two halves must be one.
const LENGTH: usize = 64;
const FEATURES: usize = 4;
/// How long the late rank sleeps, milliseconds.
const LATE_MS: u64 = 100;
/// Slots.
const QUERY: u32 = 0;
const KEY: u32 = 1;
const VALUE: u32 = 2;
const COTANGENT: u32 = 3;
/// The largest difference: kernels may multiply in TF32, whose precision is 11 bits.
const SHARE: f64 = 1.0 / 256.0;

/// Returns the data that every rank is given, and those that it must give back.
pub(super) fn ranks(point: ContextParallel, world: World) -> Vec<RankData> {
    let attention = Attention { point, world };
    let right = attention.results(|_, _| true);
    let without =
        |which: u32| attention.results(move |own: u32, other: u32| own == other || other != which);
    let mut wrong = vec![
        (
            Class::NotPermuted,
            attention.results(|own, other| own == other),
        ),
        (Class::FirstRankDropped, without(0)),
    ];
    // The end of the sequence is the last rank's, and no other sees it.
    if !point.causal || point.balanced {
        wrong.push((Class::LastRankDropped, without(world.size - 1)));
    }
    world
        .ranks()
        .map(|rank| attention.of_rank(rank, &right, &wrong))
        .collect()
}

#[derive(Clone, Copy)]
struct Attention {
    point: ContextParallel,
    world: World,
}

/// What all ranks end with, by rank.
struct Results {
    output: Vec<Vec<f64>>,
    query: Vec<Vec<f64>>,
    key: Vec<Vec<f64>>,
    value: Vec<Vec<f64>>,
    /// What each rank's queries add to the keys' and the values' gradients at each place of a part, of all parts together.
    key_of_queries: Vec<Vec<f64>>,
    value_of_queries: Vec<Vec<f64>>,
}

/// Returns where a feature of a head at a place of a rank's part is.
fn at(head: usize, place: usize, feature: usize) -> usize {
    (head * LENGTH + place) * FEATURES + feature
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// Adds a vector times a factor.
fn add(to: &mut [f64], vector: &[f64], factor: f64) {
    for (to, number) in to.iter_mut().zip(vector) {
        *to += number * factor;
    }
}

impl Attention {
    fn drawn(self, rank: u32, slot: u32) -> Vec<f64> {
        let largest = if slot == VALUE { 8 } else { 2 };
        let words = self.world.key.stream(Stream::Block, rank, slot);
        let number = |index: usize| {
            let word = words.word(index as u64);
            let number = 1 + below(word, largest) as i64;
            (if word & 1 == 0 { number } else { -number }) as f64
        };
        (0..HEADS * LENGTH * FEATURES).map(number).collect()
    }

    /// Returns the position in the sequence of a place of a rank's part.
    fn position(self, rank: u32, place: usize) -> usize {
        let (rank, size, half) = (rank as usize, self.world.size as usize, LENGTH / 2);
        match self.point.balanced {
            false => rank * LENGTH + place,
            true if place < half => rank * half + place,
            true => (2 * size - 1 - rank) * half + place - half,
        }
    }

    /// Forward and backward in which the queries of a rank see the keys of those ranks of which `sees` says so.
    fn results(self, sees: impl Fn(u32, u32) -> bool) -> Results {
        let of = |slot| -> Vec<Vec<f64>> {
            let ranks = self.world.ranks();
            ranks.map(|rank| self.drawn(rank, slot)).collect()
        };
        let (queries, keys, values, cotangents) = (of(QUERY), of(KEY), of(VALUE), of(COTANGENT));
        let zeros = vec![vec![0.0; HEADS * LENGTH * FEATURES]; queries.len()];
        let mut results = Results {
            output: zeros.clone(),
            query: zeros.clone(),
            key: zeros.clone(),
            value: zeros.clone(),
            key_of_queries: zeros.clone(),
            value_of_queries: zeros,
        };
        let scale = (FEATURES as f64).sqrt().recip();
        for rank in self.world.ranks() {
            let own = rank as usize;
            for (head, place) in (0..HEADS).flat_map(|head| (0..LENGTH).map(move |at| (head, at))) {
                let here = at(head, place, 0)..at(head, place, FEATURES);
                let position = self.position(rank, place);
                let query = &queries[own][here.clone()];
                let others = self.world.ranks().filter(|other| sees(rank, *other));
                let places = others.flat_map(|other| (0..LENGTH).map(move |place| (other, place)));
                let seen: Vec<(usize, std::ops::Range<usize>)> = places
                    .filter(|(other, place)| {
                        !self.point.causal || self.position(*other, *place) <= position
                    })
                    .map(|(other, place)| {
                        (
                            other as usize,
                            at(head, place, 0)..at(head, place, FEATURES),
                        )
                    })
                    .collect();
                let scores: Vec<f64> = seen
                    .iter()
                    .map(|(other, there)| (dot(query, &keys[*other][there.clone()]) * scale).exp())
                    .collect();
                let total: f64 = scores.iter().sum();
                let cotangent = &cotangents[own][here.clone()];
                for ((other, there), score) in seen.iter().zip(&scores) {
                    let value = &values[*other][there.clone()];
                    add(&mut results.output[own][here.clone()], value, score / total);
                }
                let of_output = dot(cotangent, &results.output[own][here.clone()]);
                for ((other, there), score) in seen.iter().zip(&scores) {
                    let weight = score / total;
                    let of_weight = dot(cotangent, &values[*other][there.clone()]) - of_output;
                    let of_score = weight * of_weight * scale;
                    let key = &keys[*other][there.clone()];
                    add(&mut results.query[own][here.clone()], key, of_score);
                    add(&mut results.key[*other][there.clone()], query, of_score);
                    add(&mut results.value[*other][there.clone()], cotangent, weight);
                    add(
                        &mut results.key_of_queries[own][there.clone()],
                        query,
                        of_score,
                    );
                    add(
                        &mut results.value_of_queries[own][there.clone()],
                        cotangent,
                        weight,
                    );
                }
            }
        }
        results
    }

    fn of_rank(self, rank: u32, right: &Results, wrong: &[(Class, Results)]) -> RankData {
        let ContextParallel {
            causal,
            balanced,
            rotation,
            late,
        } = self.point;
        let is_late = late && rank + 1 == self.world.size;
        let mut data = RankData {
            options: json!({
                "causal": causal,
                "balanced": balanced,
                "rotation": rotation,
                "length": LENGTH * self.world.size as usize,
                "sleep_ms": if is_late { LATE_MS } else { 0 },
            }),
            ..RankData::default()
        };
        let shape = [1, HEADS as u64, LENGTH as u64, FEATURES as u64];
        for (name, slot) in [
            ("query", QUERY),
            ("key", KEY),
            ("value", VALUE),
            ("cotangent", COTANGENT),
        ] {
            data.reads(name.to_owned(), &shape, self.drawn(rank, slot));
        }
        let about = About {
            dtype: DType::Float32,
            share: SHARE,
        };
        let own = rank as usize;
        let mut gives =
            |name: &str, part: fn(&Results) -> &Vec<Vec<f64>>, kept: Option<&Vec<f64>>| {
                let wrong = wrong
                    .iter()
                    .map(|(class, results)| (*class, part(results)[own].clone()));
                let kept = kept.map(|kept| (Class::NotReduced, kept.clone()));
                let guesses = wrong.chain(kept).collect();
                data.gives_about(name.to_owned(), &shape, &about, &part(right)[own], guesses);
            };
        gives("output", |results| &results.output, None);
        gives("gradient.query", |results| &results.query, None);
        let kept = Some(&right.key_of_queries[own]);
        gives("gradient.key", |results| &results.key, kept);
        let kept = Some(&right.value_of_queries[own]);
        gives("gradient.value", |results| &results.value, kept);
        data
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::Key;

    fn attention(point: ContextParallel) -> Attention {
        let world = World {
            key: Key::of_check(1, 1, 0),
            size: 2,
        };
        Attention { point, world }
    }

    #[test]
    fn the_parts_of_all_ranks_are_the_sequence() {
        for balanced in [false, true] {
            let attention = attention(ContextParallel {
                causal: true,
                balanced,
                ..ContextParallel::default()
            });
            let mut positions: Vec<usize> = [0, 1]
                .into_iter()
                .flat_map(|rank| (0..LENGTH).map(move |place| attention.position(rank, place)))
                .collect();
            positions.sort_unstable();
            assert!(positions.into_iter().eq(0..2 * LENGTH));
        }
    }

    #[test]
    fn the_first_position_sees_itself_only_and_what_queries_add_is_all_there_is() {
        let attention = attention(ContextParallel {
            causal: true,
            ..ContextParallel::default()
        });
        let results = attention.results(|_, _| true);
        let value = attention.drawn(0, VALUE);
        for feature in 0..FEATURES {
            let output = results.output[0][at(0, 0, feature)];
            assert!((output - value[at(0, 0, feature)]).abs() < 1e-12);
        }
        // Weights add up to 1, so the values' gradients add up to the cotangents.
        for (gradients, of_queries) in [
            (&results.value, &results.value_of_queries),
            (&results.key, &results.key_of_queries),
        ] {
            let total = |blocks: &Vec<Vec<f64>>| -> f64 { blocks.iter().flatten().sum() };
            assert!((total(gradients) - total(of_queries)).abs() < 1e-6);
        }
        let cotangents = [0, 1].map(|rank| attention.drawn(rank, COTANGENT)).concat();
        let all: f64 = results.value.iter().flatten().sum();
        assert!((all - cotangents.iter().sum::<f64>()).abs() < 1e-6);
    }
}
