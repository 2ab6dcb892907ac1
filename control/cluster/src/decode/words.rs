//! What serde says about a malformed value, in the words of manifests instead of those of Rust.

/// The message about a malformed value. `fields` are those that the value may have, if it is an object.
pub(super) fn plain(message: &str, fields: &[String]) -> String {
    if let Some((name, known)) = unknown_variant(message) {
        return format!("`{name}` is not known: use {known}");
    }
    let Some((found, wanted)) = mismatch(message) else {
        return message.to_owned();
    };
    let is_choice = wanted.contains("single key") || wanted == "string or map";
    if is_choice && !fields.is_empty() {
        return format!("must have exactly one of the fields {}", fields.join(", "));
    }
    format!("is {}, must be {}", given(found), allowed(wanted))
}

/// The name and the known names of "unknown variant `a`, expected `b` or `c`".
fn unknown_variant(message: &str) -> Option<(&str, &str)> {
    let (name, known) = message
        .strip_prefix("unknown variant `")?
        .split_once("`, expected ")?;
    Some((name, known.strip_prefix("one of ").unwrap_or(known)))
}

/// What was found and what is expected, of "invalid type: map, expected u16".
fn mismatch(message: &str) -> Option<(&str, &str)> {
    let both = ["invalid type: ", "invalid value: "]
        .into_iter()
        .find_map(|start| message.strip_prefix(start))?;
    both.rsplit_once(", expected ")
}

fn given(found: &str) -> &str {
    let number = ["integer ", "floating point ", "boolean ", "string "]
        .into_iter()
        .find_map(|kind| found.strip_prefix(kind));
    match (number, found) {
        (Some(value), _) => value.trim_matches('`'),
        (None, "map") => "an object",
        (None, "sequence") => "a list",
        (None, other) => other,
    }
}

fn allowed(wanted: &str) -> String {
    let range = |from: i64, to: u64| format!("a whole number from {from} to {to}");
    match wanted {
        "u8" => range(0, u8::MAX.into()),
        "u16" => range(0, u16::MAX.into()),
        "u32" => range(0, u32::MAX.into()),
        "i32" => range(i32::MIN.into(), i32::MAX.unsigned_abs().into()),
        "u64" | "usize" => "a whole number of 0 or more".to_owned(),
        "i64" => "a whole number".to_owned(),
        "f32" | "f64" => "a number".to_owned(),
        "str" | "string" | "a borrowed string" | "string or map" => "a string".to_owned(),
        "a boolean" => "true or false".to_owned(),
        "a sequence" => "a list".to_owned(),
        "IntOrString" => "a number or a string".to_owned(),
        "Quantity" => "a quantity, such as 250m or 64Mi".to_owned(),
        "Time" | "MicroTime" => "a time, such as 2026-01-01T00:00:00Z".to_owned(),
        "a map" => "an object".to_owned(),
        other if other.starts_with("struct ") || other.starts_with(char::is_uppercase) => {
            "an object".to_owned()
        }
        other => other.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(message: &str, want: &str) {
        assert_eq!(plain(message, &[]), want);
    }

    #[test]
    fn a_value_is_named_with_what_is_allowed_instead_of_a_type_of_rust() {
        check(
            "invalid value: integer `70000`, expected u16",
            "is 70000, must be a whole number from 0 to 65535",
        );
        check(
            "invalid type: string \"a, expected b\", expected i32",
            "is \"a, expected b\", must be a whole number from -2147483648 to 2147483647",
        );
        check(
            "invalid type: map, expected a string",
            "is an object, must be a string",
        );
        check(
            "invalid type: sequence, expected struct Scale",
            "is a list, must be an object",
        );
        check(
            "invalid type: null, expected Container",
            "is null, must be an object",
        );
        check(
            "unknown variant `qps`, expected `concurrency` or `rps`",
            "`qps` is not known: use `concurrency` or `rps`",
        );
        check("invalid IPv6 address syntax", "invalid IPv6 address syntax");
    }

    #[test]
    fn a_choice_between_fields_names_them() {
        let fields = ["cookie", "header"].map(str::to_owned);
        let message = plain(
            "invalid value: map, expected map with a single key",
            &fields,
        );
        assert_eq!(
            message,
            "must have exactly one of the fields cookie, header"
        );
    }
}
