//! A list that nearly always has one item.

use std::fmt;
use std::ops::{Deref, DerefMut};

/// A list without spare capacity; a single item needs no allocation. Most services have one port, one slice, one address.
#[derive(Clone)]
pub enum Few<T> {
    /// One item.
    One([T; 1]),
    /// Zero, or more than one.
    Many(Box<[T]>),
}

impl<T> Few<T> {
    /// Inserts an item at an index.
    pub(crate) fn insert(&mut self, place: usize, item: T) {
        let mut all = std::mem::take(self).into_vec();
        all.reserve_exact(1);
        all.insert(place, item);
        *self = all.into();
    }

    /// Removes the item at an index.
    pub(crate) fn remove(&mut self, place: usize) -> T {
        let mut all = std::mem::take(self).into_vec();
        let item = all.remove(place);
        *self = all.into();
        item
    }

    fn into_vec(self) -> Vec<T> {
        match self {
            Self::One(one) => one.into(),
            Self::Many(all) => all.into(),
        }
    }
}

impl<T> Default for Few<T> {
    fn default() -> Self {
        Self::Many(Box::default())
    }
}

impl<T> Deref for Few<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        match self {
            Self::One(one) => one,
            Self::Many(all) => all,
        }
    }
}

impl<T> DerefMut for Few<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        match self {
            Self::One(one) => one,
            Self::Many(all) => all,
        }
    }
}

impl<T> From<Vec<T>> for Few<T> {
    fn from(all: Vec<T>) -> Self {
        match <[T; 1]>::try_from(all) {
            Ok(one) => Self::One(one),
            Err(all) => Self::Many(all.into()),
        }
    }
}

impl<'a, T> IntoIterator for &'a Few<T> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<T: PartialEq> PartialEq for Few<T> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl<T: Eq> Eq for Few<T> {}

impl<T: fmt::Debug> fmt::Debug for Few<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_come_and_go_and_a_single_one_lies_inside() {
        let mut few = Few::default();
        for (place, item) in [(0, 'b'), (0, 'a'), (2, 'd'), (2, 'c')] {
            few.insert(place, item);
        }
        assert_eq!(*few, ['a', 'b', 'c', 'd']);
        assert_eq!(
            [few.remove(3), few.remove(0), few.remove(1)],
            ['d', 'a', 'c']
        );
        assert!(matches!(few, Few::One(['b'])));
        assert_eq!(few.remove(0), 'b');
        assert!(few.is_empty());
    }
}
