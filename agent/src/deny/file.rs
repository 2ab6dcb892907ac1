//! The text of `--deny-file`: a prefix or an address per line. Pure.

use std::net::{IpAddr, Ipv6Addr};

use dormouse_agent_services::Prefix;

/// Wrong lines that are named; of the others only the number is.
const NAMED_MAX: usize = 10;
/// Characters of a wrong line that are shown.
const SHOWN_MAX: usize = 64;
/// U+FEFF in UTF-8, with which some editors begin a file.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// A list, as it was read.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Parsed {
    /// The prefixes, in the order of the lines.
    pub prefixes: Vec<Prefix>,
    /// The first lines that are no prefix.
    pub wrong: Vec<Wrong>,
    /// The number of lines that are no prefix.
    pub wrong_count: usize,
}

/// A line that is no prefix.
#[derive(Debug, PartialEq, Eq)]
pub struct Wrong {
    /// Its number, from 1.
    pub line: usize,
    /// Its text, shortened.
    pub text: String,
    /// Why it cannot be used.
    pub why: &'static str,
}

/// Parses a list. A `#` begins a comment; empty lines are allowed. Lines that are wrong are left out.
pub fn parse(bytes: &[u8]) -> Parsed {
    let mut parsed = Parsed::default();
    let bytes = bytes.strip_prefix(BYTE_ORDER_MARK).unwrap_or(bytes);
    for (place, bytes) in bytes.split(|byte| *byte == b'\n').enumerate() {
        let line = String::from_utf8_lossy(bytes);
        let text = line.split('#').next().unwrap_or_default().trim();
        if text.is_empty() {
            continue;
        }
        match prefix(text) {
            Ok(prefix) => parsed.prefixes.push(prefix),
            Err(why) => {
                parsed.wrong_count += 1;
                if parsed.wrong.len() < NAMED_MAX {
                    parsed.wrong.push(Wrong {
                        line: place + 1,
                        text: text.chars().take(SHOWN_MAX).collect(),
                        why,
                    });
                }
            }
        }
    }
    parsed
}

/// Parses a prefix, or an address, that can be denied.
pub fn prefix(text: &str) -> Result<Prefix, &'static str> {
    let prefix = Prefix::parse_or_single(text).ok_or("write 2001:db8:7::/64 or 192.0.2.0/24")?;
    if is_ambiguous(text) {
        return Err("write its numbers without leading zeros, which some programs read as octal");
    }
    if prefix.length() == 0 {
        return Err("it contains all addresses");
    }
    let mapped = Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, 0, 0);
    if prefix.contains(mapped.into()) {
        return Err("it contains all IPv4 addresses (::ffff:0:0/96)");
    }
    if prefix.contains(Ipv6Addr::UNSPECIFIED.into()) {
        return Err("it contains ::, which is no host's address");
    }
    let link_local = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0);
    if prefix.contains(link_local.into()) {
        return Err(
            "it contains fe80::, of which neighbours and routers of the link have addresses",
        );
    }
    Ok(prefix)
}

/// Whether the text of a prefix has decimal numbers with leading zeros, which [`Prefix`] accepts because Kubernetes does.
fn is_ambiguous(text: &str) -> bool {
    let (address, length) = text.split_once('/').unwrap_or((text, "0"));
    let is_padded = length.len() > 1 && length.starts_with('0');
    is_padded || address.parse::<IpAddr>().is_err()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_order_mark_is_skipped_at_the_beginning_only() {
        let parsed = parse(b"\xef\xbb\xbf2001:db8:7::/64\n\xef\xbb\xbf192.0.2.7\n");
        let texts: Vec<String> = parsed.prefixes.iter().map(ToString::to_string).collect();
        assert_eq!(
            (texts, parsed.wrong_count),
            (vec!["2001:db8:7::/64".to_owned()], 1)
        );
    }

    #[test]
    fn numbers_with_leading_zeros_are_refused() {
        for text in [
            "01.2.3.4/8",
            "010.2.3.4",
            "::ffff:01.2.3.4",
            "192.0.2.0/024",
            "2001:db8::/064",
        ] {
            assert!(
                prefix(text).unwrap_err().contains("leading zeros"),
                "{text}"
            );
        }
        for text in ["2001:0db8::/32", "10.0.0.0/8", "::ffff:192.0.2.8"] {
            assert!(prefix(text).is_ok(), "{text}");
        }
    }

    #[test]
    fn prefixes_addresses_comments_and_empty_lines_are_read() {
        let parsed =
            parse(b"# attackers\n2001:db8:7::9/64\r\n\n192.0.2.7 # one\n ::ffff:192.0.2.8\n");
        let texts: Vec<String> = parsed.prefixes.iter().map(ToString::to_string).collect();
        assert_eq!(texts, ["2001:db8:7::/64", "192.0.2.7/32", "192.0.2.8/32"]);
        assert_eq!((parsed.wrong, parsed.wrong_count), (vec![], 0));
    }

    #[test]
    fn wrong_lines_are_named_and_the_others_are_read() {
        let parsed = parse(
            b"2001:db8::/129\n192.0.2.0/24\n\xff\xfe\n::/0\n0.0.0.0/0\n::/64\nhost.example\n::\nfe80::/10\n",
        );
        assert_eq!(parsed.prefixes.len(), 1);
        let lines: Vec<usize> = parsed.wrong.iter().map(|wrong| wrong.line).collect();
        assert_eq!(lines, [1, 3, 4, 5, 6, 7, 8, 9]);
        assert_eq!(parsed.wrong[3].text, "0.0.0.0/0");
        assert!(parsed.wrong[4].why.contains("IPv4"));
    }

    #[test]
    fn of_many_wrong_lines_a_few_are_named_in_part() {
        let long = "x".repeat(1_000) + "\n";
        let parsed = parse(long.repeat(100).as_bytes());
        assert_eq!((parsed.wrong.len(), parsed.wrong_count), (10, 100));
        assert!(parsed.wrong.iter().all(|wrong| wrong.text.len() == 64));
    }
}
