//! Stores values once, to be referred to by index.

use std::collections::BTreeMap;

/// Distinct values in the order in which they were added.
pub(super) struct Index<T> {
    places: BTreeMap<T, usize>,
}

impl<T: Ord + Clone> Index<T> {
    pub(super) fn new() -> Self {
        let places = BTreeMap::new();
        Self { places }
    }

    pub(super) fn of(&mut self, value: &T) -> usize {
        if let Some(place) = self.places.get(value) {
            return *place;
        }
        let place = self.places.len();
        self.places.insert(value.clone(), place);
        place
    }

    pub(super) fn into_values(self) -> Vec<T> {
        let mut values: Vec<(usize, T)> = self.places.into_iter().map(|(v, p)| (p, v)).collect();
        values.sort_unstable_by_key(|(place, _)| *place);
        values.into_iter().map(|(_, value)| value).collect()
    }
}
