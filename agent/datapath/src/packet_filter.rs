//! The text of a packet filter: the part of tcpdump's language without alternatives.

use std::str::FromStr;

use dormouse_agent_services::{Family, Prefix};
use dormouse_ebpf::config::Net;
use dormouse_ebpf::packet::{ICMP, ICMPV6, SCTP, TCP, UDP};
use dormouse_ebpf::packet_filter::{ANY, ONLY_V4, ONLY_V6, PacketFilter};

use super::services::layout::net;

/// A text that is not a filter.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FilterError {
    /// A word that begins no part.
    #[error(
        "`{0}` is not understood; write parts like `src 2001:db8::1`, `dst net 10.0.0.0/8`, `tcp`, `udp`, `icmp6`, `ip6`, `dst port 80`, with `and` between them"
    )]
    Unknown(String),
    /// A word of tcpdump's language for which there is nothing here.
    #[error("`{0}` is not supported: a packet must have all parts of the filter")]
    Alternative(String),
    /// The filter ends too early.
    #[error("after `{after}` there must be {what}")]
    Missing {
        /// The last word.
        after: String,
        /// What must follow.
        what: &'static str,
    },
    /// A word that is not what it must be.
    #[error("`{word}` is not {what}")]
    Wrong {
        /// The word.
        word: String,
        /// What must be there.
        what: &'static str,
    },
    /// Two parts of one kind.
    #[error("the {0} is given twice")]
    Twice(&'static str),
    /// No packet has addresses of both families.
    #[error("no packet has both IPv4 and IPv6")]
    Families,
    /// A port, and a protocol without ports.
    #[error("packets of protocol {0} have no ports: only those of tcp, udp and sctp do")]
    NoPorts(u8),
}

const ADDRESS: &str = "an address";
const RANGE: &str = "a range like 2001:db8::/32";
const PORT: &str = "a port from 1 to 65535";
const PROTOCOL: &str = "a protocol number from 0 to 255";

/// The end that a part is about.
#[derive(Clone, Copy)]
enum End {
    Source,
    Target,
    Either,
}

/// Parses a filter like `dst 2001:db8::1 and tcp port 80`.
pub fn parse(text: &str) -> Result<PacketFilter, FilterError> {
    let mut parser = Parser {
        words: text.split_whitespace(),
        last: "",
        filter: PacketFilter::default(),
    };
    while let Some(word) = parser.next() {
        parser.part(word)?;
    }
    if parser.last == "and" {
        return Err(parser.missing("another part"));
    }
    let filter = parser.filter;
    let ports = [filter.source_port, filter.target_port, filter.either_port];
    let lacks_ports = filter.has_protocol == 1 && ![TCP, UDP, SCTP].contains(&filter.protocol);
    if lacks_ports && ports != [0; 3] {
        return Err(FilterError::NoPorts(filter.protocol));
    }
    Ok(filter)
}

struct Parser<'a> {
    words: std::str::SplitWhitespace<'a>,
    /// The word before.
    last: &'a str,
    filter: PacketFilter,
}

impl<'a> Parser<'a> {
    fn next(&mut self) -> Option<&'a str> {
        self.words.next().inspect(|word| self.last = word)
    }

    fn need(&mut self, what: &'static str) -> Result<&'a str, FilterError> {
        self.next().ok_or_else(|| self.missing(what))
    }

    fn missing(&self, what: &'static str) -> FilterError {
        FilterError::Missing {
            after: self.last.to_owned(),
            what,
        }
    }

    fn part(&mut self, word: &'a str) -> Result<(), FilterError> {
        match word {
            // As in `tcp port 80`, it may be left out.
            "and" => Ok(()),
            "or" | "not" | "!" | "||" | "(" | ")" => Err(FilterError::Alternative(word.to_owned())),
            "src" => self.of_end(End::Source),
            "dst" => self.of_end(End::Target),
            "ip" => self.family(ONLY_V4),
            "ip6" => self.family(ONLY_V6),
            "icmp" => self.family(ONLY_V4).and_then(|()| self.protocol(ICMP)),
            "icmp6" => self.family(ONLY_V6).and_then(|()| self.protocol(ICMPV6)),
            "tcp" => self.protocol(TCP),
            "udp" => self.protocol(UDP),
            "sctp" => self.protocol(SCTP),
            "proto" => {
                let number = self.number(PROTOCOL)?;
                self.protocol(number)
            }
            _ => self.about(End::Either, word),
        }
    }

    fn of_end(&mut self, end: End) -> Result<(), FilterError> {
        let word = self.need("an address, `net` or `port`")?;
        self.about(end, word)
    }

    /// A part about an end that begins with this word.
    fn about(&mut self, end: End, word: &'a str) -> Result<(), FilterError> {
        let address = match word {
            "port" => return self.port(end),
            "net" => {
                let word = self.need(RANGE)?;
                let range = Prefix::parse_or_single(word);
                range.ok_or_else(|| wrong(word, RANGE))
            }
            "host" => {
                let word = self.need(ADDRESS)?;
                single(word).ok_or_else(|| wrong(word, ADDRESS))
            }
            word => single(word).ok_or_else(|| FilterError::Unknown(word.to_owned())),
        }?;
        self.address(end, address)
    }

    fn address(&mut self, end: End, range: Prefix) -> Result<(), FilterError> {
        self.family(match range.family() {
            Family::V4 => ONLY_V4,
            Family::V6 => ONLY_V6,
        })?;
        let (place, name) = match end {
            End::Source => (&mut self.filter.source, "source"),
            End::Target => (&mut self.filter.target, "destination"),
            End::Either => (&mut self.filter.either, "address of either end"),
        };
        if *place != Net::default() {
            return Err(FilterError::Twice(name));
        }
        *place = net(&range);
        Ok(())
    }

    fn port(&mut self, end: End) -> Result<(), FilterError> {
        let port = self.number(PORT)?;
        if port == 0 {
            return Err(wrong("0", PORT));
        }
        let (place, name) = match end {
            End::Source => (&mut self.filter.source_port, "source port"),
            End::Target => (&mut self.filter.target_port, "destination port"),
            End::Either => (&mut self.filter.either_port, "port of either end"),
        };
        if *place != 0 {
            return Err(FilterError::Twice(name));
        }
        *place = port;
        Ok(())
    }

    fn number<N: FromStr>(&mut self, what: &'static str) -> Result<N, FilterError> {
        let word = self.need(what)?;
        word.parse().map_err(|_error| wrong(word, what))
    }

    fn protocol(&mut self, number: u8) -> Result<(), FilterError> {
        if self.filter.has_protocol == 1 {
            return Err(FilterError::Twice("protocol"));
        }
        self.filter.has_protocol = 1;
        self.filter.protocol = number;
        Ok(())
    }

    fn family(&mut self, family: u64) -> Result<(), FilterError> {
        if self.filter.family != ANY && self.filter.family != family {
            return Err(FilterError::Families);
        }
        self.filter.family = family;
        Ok(())
    }
}

/// A single address.
fn single(word: &str) -> Option<Prefix> {
    dormouse_agent_services::address::parse_address(word).map(Prefix::single)
}

fn wrong(word: &str, what: &'static str) -> FilterError {
    FilterError::Wrong {
        word: word.to_owned(),
        what,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(text: &str) -> Net {
        net(&Prefix::parse_or_single(text).unwrap())
    }

    #[test]
    fn a_filter_has_all_its_parts() {
        let filter = parse("dst 2001:db8::1 and tcp port 80").unwrap();
        let expected = PacketFilter {
            target: range("2001:db8::1"),
            has_protocol: 1,
            protocol: TCP,
            either_port: 80,
            family: ONLY_V6,
            ..PacketFilter::default()
        };
        assert_eq!(filter, expected);
        let filter =
            parse("src net 10.0.0.0/8 and dst host 192.0.2.7 and udp dst port 53 and src port 9");
        let expected = PacketFilter {
            source: range("10.0.0.0/8"),
            target: range("192.0.2.7"),
            has_protocol: 1,
            protocol: UDP,
            target_port: 53,
            source_port: 9,
            family: ONLY_V4,
            ..PacketFilter::default()
        };
        assert_eq!(filter, Ok(expected));
        let icmp = parse("icmp6 and 2001:db8::7").unwrap();
        assert_eq!((icmp.protocol, icmp.either), (ICMPV6, range("2001:db8::7")));
        assert_eq!(parse("proto 0").map(|filter| filter.has_protocol), Ok(1));
        assert_eq!(parse(""), Ok(PacketFilter::default()));
    }

    #[test]
    fn a_text_that_is_no_filter_is_refused_with_its_word() {
        let cases = [
            ("tcp or udp", "`or` is not supported"),
            ("tcp and udp", "the protocol is given twice"),
            ("src 10.0.0.1 and dst 2001:db8::1", "both IPv4 and IPv6"),
            ("icmp6 and 10.0.0.1", "both IPv4 and IPv6"),
            ("port 80 and icmp", "protocol 1 have no ports"),
            ("src", "after `src` there must be an address"),
            ("tcp and", "after `and` there must be another part"),
            ("port http", "`http` is not a port"),
            ("port 0", "`0` is not a port"),
            ("port 65536", "`65536` is not a port"),
            ("proto 256", "`256` is not a protocol"),
            ("net 10.0.0.0/33", "`10.0.0.0/33` is not a range"),
            ("host example.org", "`example.org` is not an address"),
            ("gateway 10.0.0.1", "`gateway` is not understood"),
            (
                "dst 10.0.0.1 and dst 10.0.0.2",
                "destination is given twice",
            ),
        ];
        for (text, message) in cases {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains(message), "{text}: {error}");
        }
    }
}
