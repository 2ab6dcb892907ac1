//! The syntax of labels, as in Kubernetes.

/// Maximum length of a label's value, and of its key after the domain, in bytes.
const LEN_MAX: usize = 63;
/// Maximum length of the domain of a label's key, in bytes.
const DOMAIN_LEN_MAX: usize = 253;

/// Whether this is the key of a label: `name` or `domain/name`.
pub fn is_key(key: &str) -> bool {
    let (domain, name) = key
        .split_once('/')
        .map_or((None, key), |(domain, name)| (Some(domain), name));
    domain.is_none_or(is_domain) && !name.is_empty() && is_value(name)
}

/// Whether this is a value of a label.
pub fn is_value(text: &str) -> bool {
    let inner = |c: char| c.is_ascii_alphanumeric() || ['-', '_', '.'].contains(&c);
    let edge = |c: char| c.is_ascii_alphanumeric();
    let is_edged = text.is_empty() || (text.starts_with(edge) && text.ends_with(edge));
    text.len() <= LEN_MAX && is_edged && text.chars().all(inner)
}

fn is_domain(text: &str) -> bool {
    let edge = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let is_part = |part: &str| {
        part.starts_with(edge) && part.ends_with(edge) && part.chars().all(|c| edge(c) || c == '-')
    };
    text.len() <= DOMAIN_LEN_MAX && text.split('.').all(is_part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_kubernetes_syntax() {
        let (longest, domain) = ("a".repeat(LEN_MAX), "a".repeat(DOMAIN_LEN_MAX));
        let with = |domain: &str, name: &str| format!("{domain}/{name}");
        for (key, is_one) in [
            ("zone", true),
            ("A", true),
            ("0", true),
            ("a_b.c-D", true),
            ("a..b", true),
            ("example.org/disk", true),
            ("a-b.0/A_b", true),
            (&longest, true),
            (&with(&domain, &longest), true),
            ("", false),
            ("a b", false),
            ("é", false),
            ("a\n", false),
            ("-a", false),
            ("a.", false),
            ("_a", false),
            ("/a", false),
            ("a/", false),
            ("/", false),
            ("a/b/c", false),
            ("A.b/c", false),
            ("a_b/c", false),
            ("a..b/c", false),
            (".a/c", false),
            ("a./c", false),
            ("-a/c", false),
            ("a-.b/c", false),
            ("a/-c", false),
            (&"a".repeat(LEN_MAX + 1), false),
            (&with("a", &"a".repeat(LEN_MAX + 1)), false),
            (&with(&"a".repeat(DOMAIN_LEN_MAX + 1), "a"), false),
        ] {
            assert_eq!(is_key(key), is_one, "{key:?}");
        }
    }

    #[test]
    fn values_have_kubernetes_syntax() {
        for (value, is_one) in [
            ("", true),
            ("eu-1a", true),
            ("A_b.c", true),
            (&"a".repeat(LEN_MAX), true),
            ("a b", false),
            ("a-", false),
            (".a", false),
            ("a/b", false),
            ("\n", false),
            (&"a".repeat(LEN_MAX + 1), false),
        ] {
            assert_eq!(is_value(value), is_one, "{value:?}");
        }
    }
}
