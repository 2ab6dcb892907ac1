//! Amounts of resources in the units that filters and scores compare: int64, with Go's wrapping sums.

use std::collections::BTreeMap;

use crate::amount::Amounts;
use crate::label_syntax::key_errors;

/// CPU.
pub(crate) const CPU: &str = "cpu";
/// Memory.
pub(crate) const MEMORY: &str = "memory";
/// Local storage.
pub(crate) const EPHEMERAL_STORAGE: &str = "ephemeral-storage";
const PODS: &str = "pods";
/// Part of the names of Kubernetes' own resources with a prefix.
const NATIVE: &str = "kubernetes.io/";
const REQUESTS: &str = "requests.";

/// Amounts of all resources that count.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Resources {
    pub(crate) cpu_milli: i64,
    pub(crate) memory: i64,
    pub(crate) ephemeral_storage: i64,
    pub(crate) pods: i64,
    /// Extended resources, huge pages and attachable volumes.
    pub(crate) scalars: BTreeMap<String, i64>,
}

impl Resources {
    /// The sum of the amounts.
    pub(crate) fn total(amounts: &Amounts) -> Self {
        let mut all = Self::default();
        for (name, amount) in amounts {
            match name.as_str() {
                CPU => all.cpu_milli = amount.milli_value(),
                MEMORY => all.memory = amount.value(),
                EPHEMERAL_STORAGE => all.ephemeral_storage = amount.value(),
                PODS => all.pods = amount.value(),
                _ if is_scalar(name) => {
                    all.scalars.insert(name.clone(), amount.value());
                }
                _ => {}
            }
        }
        all
    }

    /// The amounts that are above 0, and 0 for all others.
    pub(crate) fn positive(amounts: &Amounts) -> Self {
        let mut all = Self::total(amounts);
        all.pods = 0;
        for value in [
            &mut all.cpu_milli,
            &mut all.memory,
            &mut all.ephemeral_storage,
        ] {
            *value = (*value).max(0);
        }
        for value in all.scalars.values_mut() {
            *value = (*value).max(0);
        }
        all
    }

    /// Whether nothing is requested; a scalar resource counts even with an amount of 0.
    pub(crate) fn is_nothing(&self) -> bool {
        self.cpu_milli == 0
            && self.memory == 0
            && self.ephemeral_storage == 0
            && self.scalars.is_empty()
    }

    pub(crate) fn scalar(&self, name: &str) -> i64 {
        self.scalars.get(name).copied().unwrap_or(0)
    }

    pub(crate) fn add(&mut self, more: &Self) {
        self.cpu_milli = self.cpu_milli.wrapping_add(more.cpu_milli);
        self.memory = self.memory.wrapping_add(more.memory);
        self.ephemeral_storage = self.ephemeral_storage.wrapping_add(more.ephemeral_storage);
        for (name, amount) in &more.scalars {
            let now = self.scalars.entry(name.clone()).or_default();
            *now = now.wrapping_add(*amount);
        }
    }

    pub(crate) fn subtract(&mut self, less: &Self) {
        self.cpu_milli = self.cpu_milli.wrapping_sub(less.cpu_milli);
        self.memory = self.memory.wrapping_sub(less.memory);
        self.ephemeral_storage = self.ephemeral_storage.wrapping_sub(less.ephemeral_storage);
        for (name, amount) in &less.scalars {
            let now = self.scalars.entry(name.clone()).or_default();
            *now = now.wrapping_sub(*amount);
        }
    }
}

/// Whether a resource is extended: it has a prefix that is not Kubernetes' own.
pub(crate) fn is_extended(name: &str) -> bool {
    let is_native = !name.contains('/') || name.contains(NATIVE);
    !is_native && !name.starts_with(REQUESTS) && key_errors(&format!("{REQUESTS}{name}")).is_empty()
}

/// Whether a resource that is neither CPU, memory nor local storage counts at all.
pub(crate) fn is_scalar(name: &str) -> bool {
    is_extended(name)
        || name.starts_with("hugepages-")
        || name.contains(NATIVE)
        || name.starts_with("attachable-volumes-")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::amount::Amount;

    #[test]
    fn names_of_resources_that_count() {
        for name in [
            "example.com/gpu",
            "hugepages-2Mi",
            "attachable-volumes-x",
            "kubernetes.io/batch-cpu",
        ] {
            assert!(is_scalar(name), "{name}");
        }
        for name in ["gpu", "storage", "requests.example.com/gpu", "a b/c"] {
            assert!(!is_scalar(name), "{name}");
        }
        assert!(!is_extended("kubernetes.io/batch-cpu"));
    }

    #[test]
    fn what_is_added_and_subtracted_again_is_gone_even_past_int64() {
        let half = Amount::whole(i64::MAX);
        let amounts = Amounts::from([(MEMORY.to_owned(), half), ("a/b".to_owned(), half)]);
        let one = Resources::total(&amounts);
        let mut sum = one.clone();
        sum.add(&one);
        assert_eq!((sum.memory, sum.scalar("a/b")), (-2, -2));
        sum.subtract(&one);
        assert_eq!(sum, one);
    }
}
