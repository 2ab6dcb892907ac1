//! Reading of typed values from a map of strings, with all faults collected.

use std::collections::BTreeMap;
use std::fmt;

use super::refusal::{Fault, Refused};
use super::{duration, float};

/// The names of one value: its key, then the aliases. The first one that is present counts.
pub(super) type Keys = [&'static str];

/// A map of strings, and the faults found in it.
pub(super) struct Entries<'a> {
    map: &'a BTreeMap<String, String>,
    faults: Vec<Fault>,
}

impl<'a> Entries<'a> {
    pub(super) fn new(map: &'a BTreeMap<String, String>) -> Self {
        let faults = Vec::new();
        Self { map, faults }
    }

    /// The name under which a value is present, and the value.
    pub(super) fn get(&self, keys: &Keys) -> Option<(&'static str, &'a str)> {
        keys.iter()
            .find_map(|&key| self.map.get(key).map(|value| (key, value.as_str())))
    }

    /// A value that `parse` accepts; `None` if it is absent or refused.
    pub(super) fn read<T>(
        &mut self,
        keys: &Keys,
        allowed: impl fmt::Display,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Option<T> {
        let (key, value) = self.get(keys)?;
        let parsed = parse(value);
        if parsed.is_none() {
            self.refuse(key, value, allowed);
        }
        parsed
    }

    /// A number.
    pub(super) fn float(
        &mut self,
        keys: &Keys,
        allowed: impl fmt::Display,
        valid: impl FnOnce(f64) -> bool,
    ) -> Option<f64> {
        self.read(keys, allowed, |text| {
            float::parse(text).filter(|&value| valid(value))
        })
    }

    /// An integer of 32 bits.
    pub(super) fn integer(
        &mut self,
        keys: &Keys,
        allowed: impl fmt::Display,
        valid: impl FnOnce(i32) -> bool,
    ) -> Option<i32> {
        self.read(keys, allowed, |text| {
            text.parse().ok().filter(|&value| valid(value))
        })
    }

    /// A duration in nanoseconds.
    pub(super) fn duration(
        &mut self,
        keys: &Keys,
        allowed: impl fmt::Display,
        valid: impl FnOnce(i64) -> bool,
    ) -> Option<i64> {
        self.read(keys, allowed, |text| {
            duration::parse(text).filter(|&value| valid(value))
        })
    }

    /// A boolean, in the spellings of Go's `strconv.ParseBool`.
    pub(super) fn boolean(&mut self, keys: &Keys) -> Option<bool> {
        self.read(keys, "true or false", |text| match text {
            "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
            "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
            _ => None,
        })
    }

    /// Refuses a value.
    pub(super) fn refuse(
        &mut self,
        key: &str,
        value: impl fmt::Display,
        allowed: impl fmt::Display,
    ) {
        self.faults.push(Fault {
            key: key.to_owned(),
            value: value.to_string(),
            allowed: allowed.to_string(),
        });
    }

    /// The faults.
    pub(super) fn faults(self) -> Vec<Fault> {
        self.faults
    }

    /// The faults so far, if there are any. Rules between values are checked only after it: what was refused has no
    /// value.
    pub(super) fn check(&mut self) -> Result<(), Refused> {
        if self.faults.is_empty() {
            return Ok(());
        }
        let faults = std::mem::take(&mut self.faults);
        Err(Refused { faults })
    }
}
