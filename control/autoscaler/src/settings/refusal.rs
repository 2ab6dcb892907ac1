//! Refusal of values: the key, the value, and what is allowed.

use std::fmt;

/// A value that is not allowed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Key of the entry or annotation, as it was given.
    pub key: String,
    /// The value as it was given, or the default in force.
    pub value: String,
    /// The values that are allowed.
    pub allowed: String,
}

impl Fault {
    /// The fault without its key.
    pub fn message(&self) -> String {
        format!("{:?} is not valid: must be {}", self.value, self.allowed)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.key, self.message())
    }
}

/// All values of an input that are not allowed; at least one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct Refused {
    /// The faults, in the order in which the keys are read.
    pub faults: Vec<Fault>,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, fault) in self.faults.iter().enumerate() {
            let separator = if index == 0 { "" } else { "; " };
            write!(f, "{separator}{fault}")?;
        }
        Ok(())
    }
}
