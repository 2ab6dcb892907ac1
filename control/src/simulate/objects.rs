//! Objects of files: documents in YAML or JSON, and the items of lists.

use std::fs;
use std::path::Path;

use dormouse_command::CommandError;
use serde_json::Value;

use crate::cli::unusable;

/// One object.
pub(super) struct Object {
    /// Its kind; items of a `NodeList` have that of the list.
    pub(super) kind: String,
    pub(super) value: Value,
    /// File and number of the document and item, for errors.
    pub(super) place: String,
}

/// The objects of a file.
pub(super) fn read(file: &Path) -> Result<Vec<Object>, CommandError> {
    let name = file.display().to_string();
    // The files of a large cluster are as large as they are.
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_events: usize::MAX,
            max_nodes: usize::MAX,
            max_documents: usize::MAX,
            max_total_scalar_bytes: usize::MAX,
            max_total_comment_bytes: usize::MAX,
        },
        with_snippet: false,
    };
    let documents: Vec<Value> = serde_saphyr::from_multiple_with_options(&text(file)?, options)
        .map_err(|error| unreadable(&name, &error.to_string()))?;
    let mut objects = Vec::new();
    for (number, document) in documents.into_iter().enumerate() {
        if !document.is_null() {
            let place = format!("{name}, document {}", number + 1);
            flatten(document, None, place, &mut objects)?;
        }
    }
    Ok(objects)
}

fn flatten(
    mut value: Value,
    of_list: Option<&str>,
    place: String,
    objects: &mut Vec<Object>,
) -> Result<(), CommandError> {
    let kind = value["kind"].as_str().or(of_list).map(str::to_owned);
    let Some(kind) = kind.filter(|kind| !kind.is_empty()) else {
        return Err(unreadable(&place, "kind is missing"));
    };
    let Some(items) = kind.strip_suffix("List") else {
        objects.push(Object { kind, value, place });
        return Ok(());
    };
    let of_items = Some(items).filter(|kind| !kind.is_empty());
    let Some(Value::Array(all)) = value.get_mut("items").map(Value::take) else {
        return Err(unreadable(&place, "items are missing"));
    };
    for (number, item) in all.into_iter().enumerate() {
        let place = format!("{place}, item {}", number + 1);
        flatten(item, of_items, place, objects)?;
    }
    Ok(())
}

/// The text of a file.
pub(super) fn text(file: &Path) -> Result<String, CommandError> {
    fs::read_to_string(file)
        .map_err(|error| unreadable(&file.display().to_string(), &error.to_string()))
}

/// The error of a file that cannot be used.
pub(super) fn unreadable(place: &str, reason: &str) -> CommandError {
    let hint = "give objects as kubectl prints them with -o yaml or -o json";
    unusable(place, reason, hint)
}
