//! Size classes of slots: steps of 16 bytes up to 256, above that sixteen steps per power of two.

/// Bytes of the largest slot; a longer record has a mapping of its own, whose unused part (less
/// than a page) is smaller than the step of a class would be.
pub(super) const SLOT_BYTES_MAX: usize = 128 << 10;

const STEP_BYTES: usize = 16;
const LINEAR_BYTES_MAX: usize = 256;
const LINEAR_CLASSES: usize = LINEAR_BYTES_MAX / STEP_BYTES;
const STEPS_PER_DOUBLING: usize = 16;
const DOUBLINGS: usize = (SLOT_BYTES_MAX / LINEAR_BYTES_MAX).ilog2() as usize;

/// A size of slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Class(usize);

impl Class {
    /// Number of classes.
    pub(super) const COUNT: usize = LINEAR_CLASSES + STEPS_PER_DOUBLING * DOUBLINGS;

    /// The class with the smallest slots that hold `len` bytes; `None` above [`SLOT_BYTES_MAX`].
    pub(super) fn of(len: usize) -> Option<Self> {
        let last = len.max(1) - 1;
        if last < LINEAR_BYTES_MAX {
            return Some(Self(last / STEP_BYTES));
        }
        if last >= SLOT_BYTES_MAX {
            return None;
        }
        let doubling = (last / LINEAR_BYTES_MAX).ilog2() as usize;
        let step = last / (STEP_BYTES << doubling) - STEPS_PER_DOUBLING;
        Some(Self(LINEAR_CLASSES + doubling * STEPS_PER_DOUBLING + step))
    }

    /// Position among the classes, below [`Class::COUNT`].
    pub(super) fn index(self) -> usize {
        self.0
    }

    /// Bytes of a slot.
    pub(super) fn slot_bytes(self) -> usize {
        let Some(above) = self.0.checked_sub(LINEAR_CLASSES) else {
            return (self.0 + 1) * STEP_BYTES;
        };
        let (doubling, step) = (above / STEPS_PER_DOUBLING, above % STEPS_PER_DOUBLING);
        (STEPS_PER_DOUBLING + step + 1) * (STEP_BYTES << doubling)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_is_the_smallest_that_fits_and_loses_at_most_a_sixteenth() {
        for len in 0..=SLOT_BYTES_MAX {
            let class = Class::of(len).unwrap();
            let slot = class.slot_bytes();
            assert!(slot >= len && class.index() < Class::COUNT, "{len}");
            assert!(slot - len <= (len / 16).max(STEP_BYTES), "{len} in {slot}");
            if let Some(smaller) = class.0.checked_sub(1) {
                assert!(Class(smaller).slot_bytes() < len, "{len}");
            }
        }
        assert_eq!(Class::of(SLOT_BYTES_MAX).unwrap().index(), Class::COUNT - 1);
        assert_eq!(Class::of(SLOT_BYTES_MAX + 1), None);
    }
}
