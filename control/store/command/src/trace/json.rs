//! Messages as JSON: fields by their names, bytes as text, enums by name, defaults left out.

use std::fmt::Write;

use prost_reflect::{DynamicMessage, FieldDescriptor, Kind, Value as Field};
use serde_json::{Map, Value, json};

/// Fields that are secrets; their values are not written.
const SECRETS: [&str; 3] = ["password", "hashedPassword", "token"];
const SECRET: &str = "~";

/// A message as an object of its fields.
pub(super) fn message(message: &DynamicMessage) -> Value {
    let fields = message.fields().map(|(field, value)| {
        let value = match value {
            _ if SECRETS.contains(&field.name()) => json!(SECRET),
            Field::List(items) => items.iter().map(|item| one(item, &field)).collect(),
            value => one(value, &field),
        };
        (field.name().to_owned(), value)
    });
    Value::Object(fields.collect::<Map<_, _>>())
}

fn one(value: &Field, field: &FieldDescriptor) -> Value {
    match (value, field.kind()) {
        (Field::Message(inner), _) => message(inner),
        (Field::EnumNumber(number), Kind::Enum(names)) => names
            .get_value(*number)
            .map_or_else(|| json!(number), |value| json!(value.name())),
        (Field::Bytes(bytes), _) => json!(escape(bytes)),
        (Field::String(text), _) => json!(text),
        (Field::Bool(flag), _) => json!(flag),
        (Field::I32(number) | Field::EnumNumber(number), _) => json!(number),
        (Field::I64(number), _) => json!(number),
        (Field::U32(number), _) => json!(number),
        (Field::U64(number), _) => json!(number),
        (Field::F32(number), _) => json!(number),
        (Field::F64(number), _) => json!(number),
        // etcd's messages have no maps, and lists are taken apart before.
        (Field::List(_) | Field::Map(_), _) => Value::Null,
    }
}

/// Printable ASCII as it is; `%` and all other bytes as `%` and two hexadecimal digits.
fn escape(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for &byte in bytes {
        if matches!(byte, b' '..=b'~') && byte != b'%' {
            text.push(char::from(byte));
        } else {
            // Writing to a string does not fail.
            let _ = write!(text, "%{byte:02X}");
        }
    }
    text
}
