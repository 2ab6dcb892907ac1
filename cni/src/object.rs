//! A JSON object that keeps the order of its fields and the bytes of their values: results of other plugins must be
//! returned unchanged. Pure.

use std::fmt;

use serde::de::{DeserializeOwned, MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::{RawValue, to_raw_value};

/// Field names and the text of their values.
#[derive(Clone, Debug, Default)]
pub struct Object(Vec<(String, Box<RawValue>)>);

impl Object {
    /// The value of a field; `None` if it is missing, null or of another type.
    pub fn get<T: DeserializeOwned>(&self, key: &str) -> Option<T> {
        let (_, value) = self.0.iter().find(|(name, _)| name == key)?;
        serde_json::from_str(value.get()).ok()
    }

    /// Removes a field and returns its value; `None` if it is missing or null.
    pub fn take<T: DeserializeOwned>(&mut self, key: &str) -> serde_json::Result<Option<T>> {
        let Some(at) = self.0.iter().position(|(name, _)| name == key) else {
            return Ok(None);
        };
        let (_, value) = self.0.remove(at);
        serde_json::from_str(value.get())
    }

    /// Replaces the value of a field in its place, or appends the field.
    pub fn set(&mut self, key: &str, value: impl Serialize) -> serde_json::Result<()> {
        self.set_raw(key.to_owned(), to_raw_value(&value)?);
        Ok(())
    }

    fn set_raw(&mut self, key: String, value: Box<RawValue>) {
        match self.0.iter_mut().find(|(name, _)| *name == key) {
            Some((_, place)) => *place = value,
            None => self.0.push((key, value)),
        }
    }

    /// Renames a field, if present.
    pub fn rename(&mut self, from: &str, to: &str) {
        if let Some((name, _)) = self.0.iter_mut().find(|(name, _)| name == from) {
            to.clone_into(name);
        }
    }

    /// Whether it has no field.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Appends another object's fields.
    pub fn extend(&mut self, more: Self) {
        self.0.extend(more.0);
    }
}

impl Serialize for Object {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, value) in &self.0 {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields;

        impl<'de> Visitor<'de> for Fields {
            type Value = Object;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Object, A::Error> {
                let mut object = Object::default();
                while let Some((name, value)) = map.next_entry()? {
                    object.set_raw(name, value);
                }
                Ok(object)
            }
        }

        deserializer.deserialize_map(Fields)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unchanged_fields_keep_their_order_and_bytes() {
        let text = r#"{"z":1.50e3,"a":{"b" : [ 18446744073709551616 ]},"n":null,"":"\u00e4"}"#;
        let mut object: Object = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&object).unwrap(), text);
        assert_eq!(object.get::<String>("n"), None);
        assert_eq!(object.take::<String>("n").unwrap(), None);
        object.rename("z", "y");
        object.set("y", "new").unwrap();
        object.set("last", true).unwrap();
        let changed = r#"{"y":"new","a":{"b" : [ 18446744073709551616 ]},"":"\u00e4","last":true}"#;
        assert_eq!(serde_json::to_string(&object).unwrap(), changed);
    }

    #[test]
    fn the_last_of_two_equal_fields_wins() {
        let object: Object = serde_json::from_str(r#"{"a":1,"b":2,"a":3}"#).unwrap();
        assert_eq!(serde_json::to_string(&object).unwrap(), r#"{"a":3,"b":2}"#);
    }

    #[test]
    fn values_other_than_objects_are_refused() {
        for text in ["[]", "3", "{", r#"{"a":}"#] {
            assert!(serde_json::from_str::<Object>(text).is_err(), "{text}");
        }
    }
}
