//! One copy of equal values.

use std::hash::Hash;
use std::sync::Arc;

use foldhash::fast::FixedState;
use hashbrown::HashSet;

/// The number of values at which unused ones are looked for first.
const SWEEP_LEN: usize = 1 << 10;

/// Values of which equal ones are shared.
#[derive(Clone, Debug)]
pub struct Interner<T> {
    values: HashSet<Arc<T>, FixedState>,
    sweep_len: usize,
}

impl<T> Default for Interner<T> {
    fn default() -> Self {
        Self {
            values: HashSet::default(),
            sweep_len: SWEEP_LEN,
        }
    }
}

impl<T: Eq + Hash> Interner<T> {
    /// The shared one of values that are equal to this.
    pub fn intern(&mut self, value: &Arc<T>) -> Arc<T> {
        if let Some(known) = self.values.get(value) {
            return known.clone();
        }
        if self.values.len() >= self.sweep_len {
            self.values.retain(|value| Arc::strong_count(value) > 1);
            self.sweep_len = (self.values.len() * 2).max(SWEEP_LEN);
        }
        self.values.insert(value.clone());
        value.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_values_are_one_and_unused_ones_go() {
        let mut interner = Interner::default();
        let first = interner.intern(&Arc::new(7));
        assert!(Arc::ptr_eq(&first, &interner.intern(&Arc::new(7))));
        for value in 0..SWEEP_LEN * 2 {
            interner.intern(&Arc::new(value));
        }
        assert!(interner.values.len() <= SWEEP_LEN);
        assert!(Arc::ptr_eq(&first, &interner.intern(&Arc::new(7))));
    }
}
