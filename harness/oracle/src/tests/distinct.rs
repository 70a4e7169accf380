//! Every check of profile `full`, as it is planned, tells the usual bugs from the right answer.
//!
//! The whole plan is walked. For every combination of op, dtype, operator, values, size and group size that occurs in it,
//! the data must differ from what each bug would leave: identity, own × W, rotation of the ranks, reversal, swap of
//! chunks, a rank dropped or doubled. Where no data could differ, [`excuse`] says why; an excuse is no longer good where
//! the data do differ for every case of it, and nothing is passed over in silence.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use super::*;
use crate::bug_model::BugModel;
use crate::comparison::Comparison;
use allranks_suite::case;
use allranks_suite::plan::{CheckKind, Selection, Target, plan};
use allranks_suite::platform;

/// Elements looked at: data do not depend on how many follow.
const ENOUGH: u64 = 512;

const EMPTY: &str = "there are no elements";

/// What a backend could do instead.
fn bugs(ranks: u32, len: i64) -> Vec<(&'static str, BugModel)> {
    let whole = false;
    let mut bugs = vec![
        ("identity", BugModel::Before),
        ("own times world", BugModel::OwnForAll),
        ("reversal", BugModel::Reversed { whole }),
        ("shift", BugModel::Rotated { by: 1, whole }),
        (
            "swap of halves",
            BugModel::Rotated {
                by: (len / 2).max(1),
                whole,
            },
        ),
        ("swap of neighbours' chunks", BugModel::DestinationPair),
    ];
    for by in 1..ranks {
        bugs.push(("rotation of sources", BugModel::SourceShift(by)));
        bugs.push(("rotation of destinations", BugModel::DestinationShift(by)));
    }
    for rank in 0..ranks {
        bugs.push(("rank dropped", BugModel::Without(rank)));
        bugs.push(("rank doubled", BugModel::Twice(rank)));
    }
    bugs
}

/// Why no data of a check could tell a bug from the right answer.
fn excuse(check: &OpCheck, bug: &'static str, model: BugModel) -> Option<&'static str> {
    use ReduceOp::{Avg, Band, Bor, Max, Min, PremulSum, Product, Sum};
    let ranks = check.group.size() as u64;
    let elements = check.extent.numel();
    let rank_bug = matches!(model, BugModel::Without(_) | BugModel::Twice(_));
    let moves_within = matches!(bug, "reversal" | "shift" | "swap of halves");
    let narrow = check.dtype.size() == 1 || check.dtype == DType::Bfloat16;
    match check.reduce {
        _ if elements == 0 => Some(EMPTY),
        _ if moves_within && elements == 1 => Some("one element has one order"),
        _ if ranks == 1 && !check.op.reduces() => Some("alone, a rank moves only its own data"),
        _ if ranks == 1 && !rank_bug => Some("alone, a rank's result is its own contribution"),
        Some(Min | Max | Band | Bor) if bug == "rank doubled" => {
            Some("taking the same again changes no extreme and no bit")
        }
        None if check.splits == Splits::WithZero && model == BugModel::OwnForAll && ranks < 4 => {
            Some("no two ranks have a block for each other")
        }
        None if check.op == Op::Gather
            && check.placement == Placement::InPlace
            && check.root.map(|root| BugModel::Without(root.group_rank)) == Some(model) =>
        {
            Some("in place, the root's own block lies where it belongs before the call")
        }
        // Here every rank holds a value at every index, and it may be 0 by chance.
        Some(Sum | Avg | PremulSum) if rank_bug && !narrow && elements > 3 => None,
        Some(_) if rank_bug && elements < 16 * ranks => {
            Some("with so few elements, some rank holds nothing that decides")
        }
        Some(Sum | Avg | PremulSum | Product) if rank_bug && narrow && ranks > 8 => {
            Some("a type so narrow has room for few ranks' values at each index")
        }
        _ => None,
    }
}

/// Why a bug cannot happen to a check at all.
fn no_room(check: &OpCheck, bug: &'static str) -> Option<&'static str> {
    let op = check.op;
    let gathers = matches!(
        op,
        Op::AllGather
            | Op::AllGatherCoalesced
            | Op::AllGatherIntoTensor
            | Op::CoalescedAllGatherIntoTensor
            | Op::Gather
            | Op::AllToAll
            | Op::AllToAllSingle
    );
    let scatters = matches!(
        op,
        Op::Scatter
            | Op::ReduceScatter
            | Op::ReduceScatterTensor
            | Op::CoalescedReduceScatterTensor
            | Op::AllToAll
            | Op::AllToAllSingle
    );
    let everyone = op.has_pairs() && check.pairs == Pairs::All && check.group.size() > 2;
    match bug {
        _ if check.group.size() == 1 => {
            Some("a group of one has no other rank to be confused with")
        }
        "own times world" | "rank dropped" if !op.reduces() && !gathers => {
            Some("a rank receives one block, and another rank's")
        }
        "rank doubled" if !op.reduces() => {
            Some("a block that is only moved has no place to count twice")
        }
        "rotation of sources" if !gathers => {
            Some("blocks of several ranks do not lie side by side")
        }
        "rotation of destinations" | "swap of neighbours' chunks" if !scatters && !everyone => {
            Some("no rank has blocks for several ranks")
        }
        // The neighbour's block has another length, so the call itself would fail.
        "rotation of destinations" | "swap of neighbours' chunks" | "rotation of sources"
            if !matches!(check.splits, Splits::Even) =>
        {
            Some("other ranks' blocks have other sizes")
        }
        _ => None,
    }
}

/// Why a rank is not missed, if it has nothing to send.
fn unmissed(prepared: &Prepared, model: BugModel) -> Option<&'static str> {
    let BugModel::Without(position) = model else {
        return None;
    };
    let rank = prepared.facts.members[position as usize];
    let blocks = prepared.block_index[rank as usize].iter().flatten();
    let sent: usize = blocks.map(|held| held.len).sum();
    (sent == 0).then_some("a rank that sends nothing is not missed")
}

/// Returns true if any rank must receive an element.
fn has_results(prepared: &Prepared) -> bool {
    let pieces = prepared.works.iter().flat_map(|work| &work.buffers);
    pieces
        .flat_map(|buffer| &buffer.pieces)
        .any(|piece| piece.len > 0 && piece.after != crate::rank_plan::Origin::Keep)
}

/// Whether a bug leaves what is right: none if it has no meaning there.
fn is_invisible(prepared: &Prepared, model: BugModel) -> Option<bool> {
    let comparison = Comparison {
        prepared,
        replies: &[],
    };
    let mut meant = false;
    for rank in &prepared.facts.members {
        for element in comparison.elements(*rank) {
            if element.piece.after == crate::rank_plan::Origin::Keep {
                continue;
            }
            if let Some(value) = comparison.predict(model, &element) {
                meant = true;
                if !comparison.is_right(&element, value.bits) {
                    return Some(false);
                }
            }
        }
    }
    meant.then_some(true)
}

/// The checks of ops that the suite plans, each once, with its id.
fn planned() -> Vec<(CheckId, OpCheck)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let library = case::load(&[root.join("cases")]).unwrap_or_else(|wrong| panic!("{}", wrong[0]));
    let platforms = platform::load(&[root.join("fixtures/platforms/cpu.yaml")])
        .unwrap_or_else(|wrong| panic!("{}", wrong[0]));
    let targets: Vec<Target> = platforms
        .into_iter()
        .map(|platform| Target {
            backend: "gloo".to_owned(),
            platform: Arc::new(platform),
            devices: None,
        })
        .collect();
    let plan = plan(&library.cases, &targets, &Selection::default());
    let mut seen = BTreeSet::new();
    let checks = plan
        .scenarios
        .into_iter()
        .flat_map(|scenario| scenario.checks);
    checks
        .filter_map(|check| match check.kind {
            CheckKind::Op(op) => Some((check.id, op)),
            CheckKind::Script(_) | CheckKind::Program(_) | CheckKind::Stack(_) => None,
        })
        .filter(|(_, check)| check.op.has_tensors())
        .map(|(id, check)| {
            let extent = match check.extent {
                Extent::Flat(numel) => Extent::Flat(numel.min(ENOUGH)),
                Extent::Scalar => Extent::Scalar,
            };
            (id, OpCheck { extent, ..check })
        })
        .filter(|(_, check)| {
            seen.insert((
                (check.op, check.dtype, check.reduce, check.values),
                (
                    check.extent,
                    check.group.size(),
                    check.factor,
                    check.placement,
                ),
                (
                    check.pairs,
                    check.splits.clone(),
                    check.root.map(|root| root.group_rank),
                ),
            ))
        })
        .collect()
}

#[test]
fn every_planned_check_tells_the_usual_bugs_apart() {
    let mut excused: BTreeMap<&str, [usize; 2]> = BTreeMap::new();
    let mut missed: BTreeMap<String, (usize, String)> = BTreeMap::new();
    let mut impossible = BTreeSet::new();
    let (mut told, mut checks) = (0, 0);
    for (id, check) in planned() {
        let members: Vec<Rank> = check.group.ranks.clone();
        let world = members.iter().map(|rank| rank.0 + 1).max().unwrap_or(1);
        let prepared = Prepared::new(&check, WorldSize(world), 42)
            .unwrap_or_else(|error| panic!("{check:?}: {error}"));
        checks += 1;
        if prepared.facts.overlaps {
            // Such an output must be refused: nothing is compared.
            continue;
        }
        for (bug, model) in bugs(members.len() as u32, check.extent.numel() as i64) {
            let Some(invisible) = is_invisible(&prepared, model) else {
                match no_room(&check, bug) {
                    _ if !has_results(&prepared) => excused.entry(EMPTY).or_default()[1] += 1,
                    Some(reason) => excused.entry(reason).or_default()[1] += 1,
                    None => {
                        impossible.insert((bug, check.op.name(), id.to_string()));
                    }
                }
                continue;
            };
            let excuse = excuse(&check, bug, model).or_else(|| unmissed(&prepared, model));
            match (invisible, excuse) {
                (_, Some(excuse)) => {
                    excused.entry(excuse).or_default()[usize::from(invisible)] += 1
                }
                (false, None) => told += 1,
                (true, None) => {
                    let what = format!(
                        "{bug}: {} {} {:?} {:?} in a group of {}",
                        check.op.name(),
                        check.dtype,
                        check.reduce,
                        check.values,
                        members.len()
                    );
                    let at = format!("{:?} {model:?} {id}", check.extent);
                    missed.entry(what).or_insert((0, at)).0 += 1;
                }
            }
        }
    }
    let list: Vec<String> = missed
        .iter()
        .map(|(what, (count, first))| format!("{count} × {what}, {first}"))
        .collect();
    assert!(list.is_empty(), "not told apart:\n{}", list.join("\n"));
    assert_eq!(impossible, BTreeSet::new(), "no excuse for what cannot be");
    assert!(
        checks > 1000 && told > 10_000,
        "{checks} checks, {told} told"
    );
    for (excuse, [_, used]) in excused {
        assert!(used > 0, "no check needs the excuse that {excuse}");
    }
}
