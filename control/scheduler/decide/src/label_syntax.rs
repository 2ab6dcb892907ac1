//! The syntax of label keys and values, with Kubernetes' words for what is wrong.

/// Bytes of a name or a value, at most.
const LEN_MAX: usize = 63;
/// Bytes of a key's prefix, at most.
const PREFIX_LEN_MAX: usize = 253;
const NAME_FORM: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";
const NAME_WORDS: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character";
const VALUE_WORDS: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character";
const SUBDOMAIN_FORM: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";
const SUBDOMAIN_WORDS: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character";

/// What is wrong with a label value.
pub(crate) fn value_errors(value: &str) -> Vec<String> {
    let mut errors = too_long(value, LEN_MAX);
    if !value.is_empty() && !is_name(value) {
        let examples = ["MyValue", "my_value", "12345"];
        errors.push(form_error(
            VALUE_WORDS,
            &format!("({NAME_FORM})?"),
            &examples,
        ));
    }
    errors
}

/// What is wrong with a label key, which is a name with an optional prefix.
pub(crate) fn key_errors(key: &str) -> Vec<String> {
    let form = form_error(NAME_WORDS, NAME_FORM, &["MyName", "my.name", "123-abc"]);
    let parts: Vec<&str> = key.split('/').collect();
    let (mut errors, name) = match parts.as_slice() {
        [name] => (Vec::new(), *name),
        [prefix, name] => (prefix_errors(prefix), *name),
        _ => {
            let words =
                " with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')";
            return vec![format!("a valid label key {form}{words}")];
        }
    };
    if name.is_empty() {
        errors.push("name part must be non-empty".to_owned());
    } else if name.len() > LEN_MAX {
        errors.push(format!("name part must be no more than {LEN_MAX} bytes"));
    }
    if !is_name(name) {
        errors.push(format!("name part {form}"));
    }
    errors
}

fn prefix_errors(prefix: &str) -> Vec<String> {
    if prefix.is_empty() {
        return vec!["prefix part must be non-empty".to_owned()];
    }
    let mut errors = too_long(prefix, PREFIX_LEN_MAX);
    if !is_subdomain(prefix) {
        errors.push(form_error(
            SUBDOMAIN_WORDS,
            SUBDOMAIN_FORM,
            &["example.com"],
        ));
    }
    let errors = errors.into_iter();
    errors.map(|error| format!("prefix part {error}")).collect()
}

fn too_long(text: &str, max: usize) -> Vec<String> {
    let error = (text.len() > max).then(|| format!("must be no more than {max} bytes"));
    error.into_iter().collect()
}

fn is_name(text: &str) -> bool {
    let is_inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let is_end = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    is_end(text.chars().next()) && is_end(text.chars().last()) && text.chars().all(is_inner)
}

fn is_subdomain(text: &str) -> bool {
    let is_end = |c: Option<char>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    text.split('.').all(|part| {
        let inner = |c: char| c == '-' || is_end(Some(c));
        is_end(part.chars().next()) && is_end(part.chars().last()) && part.chars().all(inner)
    })
}

fn form_error(words: &str, form: &str, examples: &[&str]) -> String {
    let examples: Vec<_> = examples.iter().map(|text| format!("'{text}', ")).collect();
    let examples = examples.join(" or ");
    format!("{words} (e.g. {examples}regex used for validation is '{form}')")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_values_as_in_kubernetes() {
        for key in ["a", "kubernetes.io/hostname", "A_b.c-9"] {
            assert_eq!(key_errors(key), [""; 0], "{key}");
        }
        for key in ["", "/a", "a/", "-a", "A/b", "a/b/c", &"x".repeat(64)] {
            assert!(!key_errors(key).is_empty(), "{key}");
        }
        for value in ["", "x", "a.b-c_d"] {
            assert_eq!(value_errors(value), [""; 0], "{value}");
        }
        for value in ["-2", "a b", "x.", &"x".repeat(64)] {
            assert_eq!(value_errors(value).len(), 1, "{value}");
        }
    }
}
