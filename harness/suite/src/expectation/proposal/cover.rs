//! Covers a set of cells with few regions that hold no other cell: the `match:` of entries that excuse exactly what failed.

use std::collections::BTreeSet;

use super::field::Cell;

/// The cells that have one of some values in each field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Region {
    /// For each field the values; `None`: any, and none.
    pub values: Vec<Option<BTreeSet<String>>>,
}

impl Region {
    /// Returns the region of one cell. A field that the cell does not have is not asked for, as `match:` cannot ask that it be
    /// absent.
    fn of(cell: &Cell) -> Self {
        let one = |value: &String| BTreeSet::from([value.clone()]);
        Self {
            values: cell.iter().map(|value| value.as_ref().map(one)).collect(),
        }
    }

    /// Returns whether the cell is in it.
    pub(super) fn has(&self, cell: &Cell) -> bool {
        self.values
            .iter()
            .zip(cell)
            .all(|(values, value)| match (values, value) {
                (None, _) => true,
                (Some(values), Some(value)) => values.contains(value),
                (Some(_), None) => false,
            })
    }

    fn has_none(&self, cells: &[&Cell]) -> bool {
        !cells.iter().any(|cell| self.has(cell))
    }
}

/// The regions of a cover, and the cells that no region can have alone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Cover {
    /// Regions that hold wanted cells alone.
    pub regions: Vec<Region>,
    /// Wanted cells that have every value of a cell that is not wanted.
    pub inseparable: Vec<Cell>,
}

/// Covers the wanted cells with regions in which no other cell is. Each region is as large as the fields allow; the last fields are
/// left out first. Of the fields `kept` a region names at least one.
pub(super) fn cover(wanted: &[&Cell], others: &[&Cell], kept: &[usize]) -> Cover {
    let mut found = Cover::default();
    let mut open: Vec<&Cell> = wanted.to_vec();
    while let Some(first) = open.first().copied() {
        let region = Region::of(first);
        if !region.has_none(others) {
            found.inseparable.push(first.clone());
            open.remove(0);
            continue;
        }
        // What a longer list of values lets in may make another field needless.
        let region = (0..2).fold(region, |region, _| {
            let region = without_needless(region, others, kept);
            with_more_values(region, wanted, others)
        });
        let region = without_needless(region, others, kept);
        open.retain(|cell| !region.has(cell));
        found.regions.push(region);
    }
    found
}

fn without_needless(mut region: Region, others: &[&Cell], kept: &[usize]) -> Region {
    for field in (0..region.values.len()).rev() {
        let mut of_kept = kept.iter();
        let stays = |other: &usize| *other != field && region.values[*other].is_some();
        if region.values[field].is_none() || !of_kept.any(stays) {
            continue;
        }
        let values = region.values[field].take();
        if !region.has_none(others) {
            region.values[field] = values;
        }
    }
    region
}

fn with_more_values(mut region: Region, wanted: &[&Cell], others: &[&Cell]) -> Region {
    for field in (0..region.values.len()).rev() {
        let Some(values) = region.values[field].clone() else {
            continue;
        };
        let mut wider = region.clone();
        wider.values[field] = None;
        let like = wanted.iter().filter(|cell| wider.has(cell));
        let more: BTreeSet<&String> = like.filter_map(|cell| cell[field].as_ref()).collect();
        for value in more {
            if values.contains(value) {
                continue;
            }
            let mut larger = region.clone();
            if let Some(values) = &mut larger.values[field] {
                values.insert(value.clone());
            }
            if larger.has_none(others) {
                region = larger;
            }
        }
    }
    region
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(text: &str) -> Cell {
        let word = |word: &str| (word != "-").then(|| word.to_owned());
        text.split(' ').map(word).collect()
    }

    /// Every cell of a small table, in one order.
    fn table() -> Vec<Cell> {
        let mut cells = Vec::new();
        for op in ["reduce", "gather"] {
            for dtype in ["int8", "int16", "-"] {
                for size in ["1", "2", "3"] {
                    cells.push(cell(&format!("{op} {dtype} {size}")));
                }
            }
        }
        cells
    }

    fn covered(is_wanted: impl Fn(usize, &Cell) -> bool) -> (Cover, Vec<Cell>, Vec<Cell>) {
        let all = table();
        let split = |wanted: bool| {
            let cells = all.iter().enumerate();
            let cells = cells.filter(|(place, cell)| is_wanted(*place, cell) == wanted);
            cells.map(|(_, cell)| cell.clone()).collect::<Vec<Cell>>()
        };
        let (wanted, others) = (split(true), split(false));
        let found = cover(
            &wanted.iter().collect::<Vec<_>>(),
            &others.iter().collect::<Vec<_>>(),
            &[0],
        );
        (found, wanted, others)
    }

    #[test]
    fn a_cause_in_one_field_is_one_region() {
        let has = |place: usize, value: &'static str| {
            move |_: usize, cell: &Cell| cell[place].as_deref() == Some(value)
        };
        let (found, ..) = covered(has(1, "int8"));
        let [region] = &found.regions[..] else {
            panic!("{found:?}")
        };
        assert_eq!(region.values[1], Some(BTreeSet::from(["int8".to_owned()])));
        assert_eq!(region.values[2], None);
        assert_eq!(covered(has(0, "gather")).0.regions.len(), 1);
    }

    #[test]
    fn regions_hold_what_is_wanted_and_nothing_else_whatever_that_is() {
        let count = table().len();
        for pattern in 0_u32..1 << count {
            if pattern % 997 != 3 {
                continue;
            }
            let (found, wanted, others) = covered(|place, _| (pattern >> place) & 1 == 1);
            for cell in &wanted {
                let is_there = found.regions.iter().any(|region| region.has(cell));
                assert_ne!(is_there, found.inseparable.contains(cell), "{cell:?}");
            }
            for region in &found.regions {
                let refs: Vec<&Cell> = others.iter().collect();
                assert!(region.has_none(&refs), "{region:?}");
                assert!(region.values[0].is_some());
            }
        }
    }

    #[test]
    fn a_cell_without_a_field_is_not_told_from_those_that_have_it() {
        let (plain, more) = (cell("gather - 1"), cell("gather int8 1"));
        let found = cover(&[&plain], &[&more], &[0]);
        assert_eq!(found.inseparable, [plain]);
    }
}
