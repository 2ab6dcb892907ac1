//! The log of packets: the lines that programs write by aya-log become events of the agent's own log.

use std::borrow::Cow;
use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::fd::AsFd as _;
use std::sync::Arc;

use aya_log::EbpfLogger;
use dormouse_agent_sys::readiness;
use dormouse_ebpf::packet_log::{Facts, MAP, PROGRAMS, TARGET, WORDS, XDP_UPLINK};
use log::{Log, Metadata, Record};
use parking_lot::Mutex;

use super::Verdict;
use super::error::DatapathError;
use super::load::Loaded;
use super::protocol::protocol_name;

/// The reader of the programs' lines. All clones are one: it owns the ring buffer's file descriptor, whose number is in the instructions of programs
/// that are not loaded yet, so the data path keeps one as long as it may load any.
#[derive(Clone)]
pub struct PacketLog(Arc<Mutex<EbpfLogger<Lines>>>);

impl PacketLog {
    pub(super) fn open(loaded: &mut Loaded) -> Result<Self, DatapathError> {
        let opened = EbpfLogger::init_with_logger(loaded.object(), Lines);
        let reader = opened.map_err(DatapathError::map("open", MAP))?;
        Ok(Self(Arc::new(Mutex::new(reader))))
    }

    /// Logs lines as they come, until waiting for them fails.
    pub async fn run(self) -> io::Result<Infallible> {
        let ring = self.0.lock().as_fd().try_clone_to_owned()?;
        let watch = readiness::watch(ring)?;
        loop {
            // Readiness is cleared before reading: later lines wake again.
            watch.readable().await?.clear_ready();
            self.0.lock().flush();
        }
    }
}

impl std::fmt::Debug for PacketLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PacketLog").finish_non_exhaustive()
    }
}

/// The logger that aya-log passes the lines to.
struct Lines;

impl Log for Lines {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        let words = record.args().to_string();
        if let Some(line) = Line::parse(&words) {
            line.log();
        } else {
            tracing::warn!(words, "a program wrote an unknown line about a packet");
        }
    }

    fn flush(&self) {}
}

/// A packet that a program has handled.
#[derive(Debug, PartialEq, Eq)]
struct Line {
    program: &'static str,
    action: &'static str,
    verdicts: String,
    /// Packets without a line since the line before.
    skipped: u64,
    protocol: Cow<'static, str>,
    /// Bytes, with the IP header.
    len: u16,
    /// TCP's flag byte, SCTP's chunk type, ICMP's type.
    flags: u8,
    before: Ends,
    after: Ends,
}

/// Source and destination.
#[derive(Debug, PartialEq, Eq)]
struct Ends(SocketAddr, SocketAddr);

impl Line {
    /// Parses the words of a line; none if it is of another program than the agent's own.
    fn parse(text: &str) -> Option<Self> {
        let words: Vec<&str> = text.split(' ').collect();
        let words: [&str; WORDS] = words.try_into().ok()?;
        let [facts, counted, skipped, before @ ..] = words;
        let [from, from_port, to, to_port, after @ ..] = before;
        let [after_from, after_from_port, after_to, after_to_port] = after;
        let facts = Facts::unpack(facts.parse().ok()?);
        Some(Self {
            program: PROGRAMS.get(usize::from(facts.program))?,
            action: action(facts),
            verdicts: verdicts(counted.parse().ok()?),
            skipped: skipped.parse().ok()?,
            protocol: protocol_name(facts.protocol),
            len: facts.len,
            flags: facts.flags,
            before: Ends(end(from, from_port)?, end(to, to_port)?),
            after: Ends(
                end(after_from, after_from_port)?,
                end(after_to, after_to_port)?,
            ),
        })
    }

    fn log(&self) {
        let Self {
            program,
            action,
            len,
            flags,
            ..
        } = self;
        let protocol = &*self.protocol;
        let (before, after) = (&self.before, &self.after);
        let [source, destination] = [before.0, before.1].map(end_text);
        // Only where the program has changed them.
        let new_source = (before.0 != after.0).then(|| end_text(after.0));
        let new_destination = (before.1 != after.1).then(|| end_text(after.1));
        let verdicts = Some(&self.verdicts).filter(|verdicts| !verdicts.is_empty());
        let skipped = Some(self.skipped).filter(|skipped| *skipped > 0);
        tracing::info!(
            target: TARGET, program, source, destination, protocol, len, flags, action, verdicts, new_source, new_destination, skipped,
            "packet"
        );
    }
}

/// An end as a program writes it: an IPv6 address, or a mapped IPv4 address, and a port.
fn end(address: &str, port: &str) -> Option<SocketAddr> {
    let address: Ipv6Addr = address.parse().ok()?;
    let address = IpAddr::V6(address).to_canonical();
    Some(SocketAddr::new(address, port.parse().ok()?))
}

/// An address with its port, if it has one.
fn end_text(end: SocketAddr) -> String {
    if end.port() == 0 {
        end.ip().to_string()
    } else {
        end.to_string()
    }
}

/// The names of the verdicts whose bits are set.
fn verdicts(counted: u64) -> String {
    let all = Verdict::ALL.iter();
    let counted = all.filter(|verdict| counted >> (**verdict as u32) & 1 == 1);
    let names: Vec<_> = counted.map(|verdict| verdict.name()).collect();
    names.join(",")
}

/// The name of a program's return code (linux/bpf.h).
fn action(facts: Facts) -> &'static str {
    match (facts.program == XDP_UPLINK, facts.action) {
        (true, 1) | (false, 2) => "drop",
        // By a classifier: to the next program, or the kernel.
        (true, 2) | (false, -1 | 0) => "pass",
        (true, 3) => "send back",
        (false, 7) => "redirect",
        _ => "unknown",
    }
}

#[cfg(test)]
mod tests {
    use dormouse_ebpf::packet::TCP;

    use super::*;

    const ENDS: &str = "2001:db8::1 4000 fd00:10::7 80 2001:db8::1 4000 2001:db8:d0::5 8080";

    fn words(program: u8) -> String {
        let facts = Facts {
            program,
            action: 7,
            protocol: TCP,
            flags: 2,
            len: 60,
        };
        format!("{} {} 3 {ENDS}", facts.pack(), 1 << 28)
    }

    #[test]
    fn a_line_has_names_for_numbers() {
        let line = Line::parse(&words(1)).unwrap();
        assert_eq!(
            (line.program, line.action, &*line.protocol),
            ("tcx_uplink_in", "redirect", "tcp")
        );
        assert_eq!(line.verdicts, Verdict::ALL[28].name());
        assert_eq!((line.skipped, line.len, line.flags), (3, 60, 2));
        assert_eq!(line.before.1.to_string(), "[fd00:10::7]:80");
        assert_eq!(line.after.1.to_string(), "[2001:db8:d0::5]:8080");
    }

    #[test]
    fn mapped_addresses_are_ipv4() {
        let end = end("::ffff:192.0.2.7", "80").unwrap();
        assert_eq!(end_text(end), "192.0.2.7:80");
    }

    #[test]
    fn an_end_without_a_port_is_its_address() {
        let end = end("2001:db8::1", "0").unwrap();
        assert_eq!(end_text(end), "2001:db8::1");
    }

    #[test]
    fn a_line_with_a_word_missing_or_wrong_is_none() {
        for text in ["", ENDS, &words(1).replace("4000", "x"), &words(9)] {
            assert_eq!(Line::parse(text), None, "{text}");
        }
    }
}
