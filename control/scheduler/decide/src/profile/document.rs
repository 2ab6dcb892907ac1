//! Fields of a configuration, with their paths for errors.

use std::ops::RangeInclusive;

use serde_json::Value;

use crate::Malformed;

/// A field and its path.
pub(super) struct Field<'a> {
    path: String,
    value: &'a Value,
}

impl<'a> Field<'a> {
    pub(super) fn root(value: &'a Value) -> Self {
        Self {
            path: String::new(),
            value,
        }
    }

    pub(super) fn error(&self, reason: &str) -> Malformed {
        Malformed::new(&self.path, reason)
    }

    pub(super) fn value(&self) -> &'a Value {
        self.value
    }

    fn child(&self, name: &str, value: &'a Value) -> Self {
        let dot = if self.path.is_empty() { "" } else { "." };
        Self {
            path: format!("{}{dot}{name}", self.path),
            value,
        }
    }

    /// An error unless it is an object that has no fields but these.
    pub(super) fn only(&self, names: &[&str]) -> Result<(), Malformed> {
        let object = self.value.as_object();
        let object = object.ok_or_else(|| self.error("not an object"))?;
        let unknown = object
            .iter()
            .find(|(name, _)| !names.contains(&name.as_str()));
        match unknown {
            Some((name, value)) => Err(self.child(name, value).error("not supported")),
            None => Ok(()),
        }
    }

    /// A field that is there, and not null.
    pub(super) fn get(&self, name: &str) -> Option<Self> {
        let value = self.value.get(name).filter(|value| !value.is_null())?;
        Some(self.child(name, value))
    }

    pub(super) fn required(&self, name: &str) -> Result<Self, Malformed> {
        self.get(name)
            .ok_or_else(|| self.child(name, self.value).error("missing"))
    }

    /// The items of a list; none if it is missing.
    pub(super) fn items(&self, name: &str) -> Result<Vec<Self>, Malformed> {
        let Some(list) = self.get(name) else {
            return Ok(Vec::new());
        };
        let items = list.value.as_array();
        let items = items.ok_or_else(|| list.error("not a list"))?;
        let items = items.iter().enumerate().map(|(index, value)| Self {
            path: format!("{}[{index}]", list.path),
            value,
        });
        Ok(items.collect())
    }

    pub(super) fn text(&self) -> Result<&'a str, Malformed> {
        let text = self.value.as_str().filter(|text| !text.is_empty());
        text.ok_or_else(|| self.error("not a text"))
    }

    pub(super) fn equals(&self, expected: &str) -> Result<(), Malformed> {
        if self.text()? == expected {
            return Ok(());
        }
        Err(self.error(&format!("not {expected}")))
    }

    pub(super) fn integer(&self, range: RangeInclusive<i64>) -> Result<i64, Malformed> {
        let integer = self
            .value
            .as_i64()
            .filter(|integer| range.contains(integer));
        let (from, to) = (range.start(), range.end());
        integer.ok_or_else(|| self.error(&format!("not an integer from {from} to {to}")))
    }

    pub(super) fn flag(&self) -> Result<bool, Malformed> {
        self.value
            .as_bool()
            .ok_or_else(|| self.error("not true or false"))
    }
}
