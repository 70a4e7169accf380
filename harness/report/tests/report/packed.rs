//! Checks in little memory are the same checks, and every report of them has the same bytes.

use std::path::Path;

use allranks_model::status::Status;
use allranks_report::check_set::CheckSet;
use allranks_report::diff::diff;
use allranks_report::junit::Dialect;
use allranks_report::merge::merge;
use allranks_report::{
    PackedChecks, PackedResults, Results, console, html, junit, markdown, metrics,
};

use crate::sample::{self, Shape};

/// The same results with packed checks.
fn packed(results: &Results) -> PackedResults {
    let mut packed = PackedResults::begin(results.folder.clone(), results.run.clone());
    results.records().for_each(|record| packed.push(record));
    packed.remarks.clone_from(&results.remarks);
    packed
}

fn samples() -> impl Iterator<Item = Results> {
    let shape = |hostile| Shape {
        hostile,
        ..Shape::default()
    };
    [shape(false), shape(true)].into_iter().map(sample::results)
}

#[test]
fn a_record_comes_back_as_it_was() {
    for mut results in samples() {
        results.checks[1].id = "of no scenario".into();
        results.checks[2].id = results.checks[2].scenario.as_str().into();
        let packed = packed(&results);
        assert_eq!(packed.checks.count(), results.checks.len());
        for (place, check) in results.checks.iter().enumerate() {
            assert_eq!(*packed.checks.record(place), *check);
            assert_eq!(packed.checks.brief(place), results.checks.brief(place));
        }
        let kinds: std::collections::BTreeSet<_> =
            results.checks.iter().map(|c| c.status()).collect();
        assert_eq!(kinds.len(), Status::ALL.len());
    }
}

#[test]
fn another_order_moves_every_check() {
    let results = samples().next().unwrap();
    let mut packed = packed(&results).checks;
    let mut plain = results.checks;
    let order: Vec<usize> = (0..plain.len()).rev().collect();
    packed.reorder(&order);
    plain.reorder(&order);
    assert!(packed.records().eq(plain.records()));
    assert_ne!(packed, PackedChecks::default());
}

#[test]
fn every_report_has_the_same_bytes() {
    for results in samples() {
        let packed = packed(&results);
        assert!(html::render(&packed) == html::render(&results));
        assert!(markdown::render(&packed) == markdown::render(&results));
        assert_eq!(metrics::render(&packed), metrics::render(&results));
        for dialect in [Dialect::Strict, Dialect::Extended] {
            let bytes = junit::render(&packed, dialect).unwrap();
            assert!(bytes == junit::render(&results, dialect).unwrap());
        }
        let (mut one, mut other) = (Vec::new(), Vec::new());
        console::summarise(&mut one, &packed, &[]).unwrap();
        console::summarise(&mut other, &results, &[]).unwrap();
        assert!(one == other);
        let mut changed = results.clone();
        changed.checks.swap_remove(3);
        changed.checks[4].verdict = allranks_model::outcome::Verdict::NotRun;
        let of_packed = diff(&packed, &self::packed(&changed));
        assert_eq!(of_packed, diff(&results, &changed));
        let into = Path::new("/runs/all");
        let of_packed = merge(vec![packed.clone(), packed], into).unwrap();
        let of_plain = merge(vec![results.clone(), results], into).unwrap();
        assert!(of_packed.records().eq(of_plain.records()));
    }
}
