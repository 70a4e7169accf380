//! A table that stores each distinct value once; others refer to it by its index.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

/// Distinct values in the order in which they were added.
#[derive(Clone, Debug)]
pub(crate) struct Index<T> {
    places: HashMap<Arc<T>, usize>,
    values: Vec<Arc<T>>,
}

impl<T: Clone + Eq + Hash> Index<T> {
    /// Makes an index without values.
    pub(crate) fn new() -> Self {
        Self {
            places: HashMap::new(),
            values: Vec::new(),
        }
    }

    /// Returns the place of a value, which is added if it is new.
    pub(crate) fn of(&mut self, value: &T) -> usize {
        if let Some(place) = self.places.get(value) {
            return *place;
        }
        let place = self.values.len();
        let value = Arc::new(value.clone());
        self.values.push(Arc::clone(&value));
        self.places.insert(value, place);
        place
    }

    /// Returns the value at a place; `None` if no value has it.
    pub(crate) fn get(&self, place: usize) -> Option<&T> {
        self.values.get(place).map(|value| &**value)
    }

    /// Returns all values, each at its place.
    pub(crate) fn into_values(self) -> Vec<T> {
        drop(self.places);
        self.values.into_iter().map(Arc::unwrap_or_clone).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_has_one_place_however_often_it_is_added() {
        let mut index = Index::new();
        let places = ["b", "a", "b", "c"].map(|value| index.of(&value));
        assert_eq!(places, [0, 1, 0, 2]);
        assert_eq!((index.get(1), index.get(3)), (Some(&"a"), None));
        assert_eq!(index.into_values(), ["b", "a", "c"]);
    }
}
