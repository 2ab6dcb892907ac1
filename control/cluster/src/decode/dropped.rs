//! The fields that decoding dropped: those that the schema has are empty, the others are unknown.

use std::collections::HashMap;
use std::ptr;

use serde_json::Value;

use super::schema::{Schema, child};
use super::{CauseType, FieldError, Step, suggest, text};

/// Most unknown fields that errors name.
const NAMED_MAX: usize = 50;

/// Whether decoding dropped a field of `given`.
pub(super) fn any(given: &Value, decoded: &Value) -> bool {
    match (given, decoded) {
        (Value::Object(given), Value::Object(decoded)) => given
            .iter()
            .any(|(name, value)| decoded.get(name).is_none_or(|decoded| any(value, decoded))),
        (Value::Array(given), Value::Array(decoded)) => {
            let mut pairs = given.iter().zip(decoded);
            pairs.any(|(given, decoded)| any(given, decoded))
        }
        _ => false,
    }
}

/// The errors of the unknown fields: of the first ones, the last of which counts those after it.
pub(super) fn errors(schema: &Schema, given: &Value, decoded: &Value) -> Vec<FieldError> {
    let mut search = Search {
        schema,
        known: HashMap::new(),
        path: Vec::new(),
        errors: Vec::new(),
        further: 0,
    };
    search.visit(Some(schema.root()), given, decoded);
    let Search {
        mut errors,
        further,
        ..
    } = search;
    if let Some(last) = errors.last_mut().filter(|_| further > 0) {
        let more = format!("; and {further} more unknown fields");
        last.message.push_str(&more);
    }
    errors
}

struct Search<'a> {
    schema: &'a Schema,
    /// The fields of each part of the schema of which one was dropped, by its address.
    known: HashMap<*const Value, Known>,
    path: Vec<Step>,
    errors: Vec<FieldError>,
    /// The unknown fields after those of the errors.
    further: usize,
}

#[derive(Default)]
struct Known {
    fields: Vec<String>,
    /// Whether an error lists them: once is enough.
    is_listed: bool,
}

impl<'a> Search<'a> {
    /// Goes through a value and what it was decoded to. Below a value without fields, the schema is `None`.
    fn visit(&mut self, schema: Option<&'a Value>, given: &Value, decoded: &Value) {
        match (given, decoded) {
            (Value::Object(given), Value::Object(decoded)) => {
                for (name, value) in given {
                    self.path.push(Step::Field(name.clone()));
                    match decoded.get(name) {
                        None => self.dropped(schema, name),
                        Some(decoded) if value.is_object() || value.is_array() => {
                            let field = Step::Field(name.clone());
                            let schema = schema.and_then(|schema| child(schema, &field));
                            self.visit(schema, value, decoded);
                        }
                        Some(_) => {}
                    }
                    self.path.pop();
                }
            }
            (Value::Array(given), Value::Array(decoded)) => {
                let schema = schema.and_then(|schema| child(schema, &Step::Item(0)));
                for (index, (value, decoded)) in given.iter().zip(decoded).enumerate() {
                    self.path.push(Step::Item(index));
                    self.visit(schema, value, decoded);
                    self.path.pop();
                }
            }
            _ => {}
        }
    }

    /// Notes the dropped field at the path, unless the schema has it: then it was dropped because it is empty.
    fn dropped(&mut self, schema: Option<&'a Value>, name: &str) {
        let address = schema.map_or(ptr::null(), ptr::from_ref);
        let fields = || schema.map(|schema| self.schema.fields_of(schema));
        let known = self.known.entry(address).or_insert_with(|| Known {
            fields: fields().unwrap_or_default(),
            is_listed: false,
        });
        if known.fields.iter().any(|field| field == name) {
            return;
        }
        if self.errors.len() == NAMED_MAX {
            self.further += 1;
            return;
        }
        let close = suggest::closest(name, &known.fields);
        let close = close.map(|close| format!("did you mean `{close}`?"));
        let listing = (!known.is_listed).then(|| suggest::listing(&known.fields));
        known.is_listed = true;
        let help: Vec<String> = close.into_iter().chain(listing).collect();
        let message = match help.join(" ") {
            help if help.is_empty() => "unknown field".to_owned(),
            help => format!("unknown field; {help}"),
        };
        self.errors.push(FieldError::new(
            text(&self.path),
            CauseType::Unknown,
            message,
        ));
    }
}
