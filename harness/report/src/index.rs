//! A list that stores each distinct value once, to be referred to by its index.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

/// Distinct values in the order in which they were added.
#[derive(Clone, Debug)]
pub(crate) struct Index<T> {
    indices: HashMap<Arc<T>, usize>,
    values: Vec<Arc<T>>,
}

impl<T: Clone + Eq + Hash> Index<T> {
    /// Makes an index without values.
    pub(crate) fn new() -> Self {
        Self {
            indices: HashMap::new(),
            values: Vec::new(),
        }
    }

    /// Returns the index of a value, which is added if it is new.
    pub(crate) fn of(&mut self, value: &T) -> usize {
        if let Some(index) = self.indices.get(value) {
            return *index;
        }
        let index = self.values.len();
        let value = Arc::new(value.clone());
        self.values.push(Arc::clone(&value));
        self.indices.insert(value, index);
        index
    }

    /// Returns the value with this index; `None` if there is none.
    pub(crate) fn get(&self, index: usize) -> Option<&T> {
        self.values.get(index).map(|value| &**value)
    }

    /// Returns all values in the order of their indices.
    pub(crate) fn into_values(self) -> Vec<T> {
        drop(self.indices);
        self.values.into_iter().map(Arc::unwrap_or_clone).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_has_one_place_however_often_it_is_added() {
        let mut index = Index::new();
        let indices = ["b", "a", "b", "c"].map(|value| index.of(&value));
        assert_eq!(indices, [0, 1, 0, 2]);
        assert_eq!((index.get(1), index.get(3)), (Some(&"a"), None));
        assert_eq!(index.into_values(), ["b", "a", "c"]);
    }
}
