//! `flows`: the connection tracking entries (flows) of a node.

use std::collections::HashSet;
use std::io::Write;
use std::net::IpAddr;

use dormouse_agent_datapath::{FrontendAddress, protocol_name};
use dormouse_agent_services::Prefix;
use dormouse_command::ListFormat;
use dormouse_ebpf::decide::{NO_BACKEND, Tables as _};
use dormouse_ebpf::flow::{Flow, FlowKey, MASQUERADED, OPENING};

use self::ends::Ends;
use self::writer::Writer;
use super::InspectError;
use super::names::Source;

mod ends;
mod row;
mod writer;

pub use row::{FlowRow, Kind, State};

/// The destination of a flow.
#[derive(Debug, Clone, Default)]
pub enum To {
    /// Any.
    #[default]
    Anything,
    /// A VIP, on any port.
    Address(IpAddr),
    /// One of these frontends.
    Frontends(HashSet<FrontendAddress>),
}

/// The conditions that a listed flow fulfils.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    /// The destination.
    pub to: To,
    /// The range of the client's address.
    pub from: Option<Prefix>,
    /// The IP protocol number.
    pub protocol: Option<u8>,
    /// The port of the VIP.
    pub port: Option<u16>,
    /// The kind.
    pub kind: Option<Kind>,
    /// The state.
    pub state: Option<State>,
    /// Also list the flows of the replies.
    pub all: bool,
}

impl Filter {
    /// The flow as a row, if it fulfils the conditions.
    fn row(&self, source: Source<'_>, key: &FlowKey, flow: &Flow) -> Option<FlowRow> {
        let kind = Kind::of(flow);
        let is_shown = self.all || kind != Kind::Reply || self.kind == Some(Kind::Reply);
        if !is_shown || self.kind.is_some_and(|wanted| wanted != kind) {
            return None;
        }
        let ends = Ends::of(key, flow);
        if !self.fits(key.protocol(), &ends) {
            return None;
        }
        let state = State::of(source.pinned, key, flow);
        if self.state.is_some_and(|wanted| wanted != state) {
            return None;
        }
        let idle_ns = source.pinned.now_ns().saturating_sub(flow.seen_ns);
        Some(FlowRow {
            protocol: protocol_name(key.protocol()).into_owned(),
            client: ends.client,
            vip: ends.vip,
            backend: ends.backend,
            via: flow.is(MASQUERADED).then_some(ends.via),
            kind,
            state,
            service: service(source, key.protocol(), &ends, flow.slot),
            idle_seconds: idle_ns / 1_000_000_000,
            backend_id: (flow.backend != NO_BACKEND).then_some(flow.backend),
        })
    }

    fn fits(&self, protocol: u8, ends: &Ends) -> bool {
        let to = match &self.to {
            To::Anything => true,
            To::Address(address) => ends.vip.ip() == *address,
            To::Frontends(frontends) => frontends.contains(&ends.frontend(protocol)),
        };
        to && self.from.is_none_or(|from| from.contains(ends.client.ip()))
            && self.protocol.is_none_or(|wanted| wanted == protocol)
            && self.port.is_none_or(|wanted| wanted == ends.vip.port())
    }
}

fn service(source: Source<'_>, protocol: u8, ends: &Ends, slot: u32) -> Option<String> {
    let Source { pinned, names } = source;
    let title = names.at(&ends.frontend(protocol)).map(ToOwned::to_owned);
    title.or_else(|| names.of_slot(pinned, slot))
}

/// A list of flows: its conditions, length and form.
#[derive(Clone, Debug)]
pub struct Listing {
    /// The conditions.
    pub filter: Filter,
    /// The most flows that are listed.
    pub limit: usize,
    /// The form of the output.
    pub form: ListFormat,
}

/// The result of a listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Number of listed flows.
    pub count: usize,
    /// The table of established connections.
    pub established: Fill,
    /// The table of opening connections.
    pub opening: Fill,
}

/// The fill of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fill {
    /// Number of flows in the table, those of replies included; fewer if the limit ended the listing.
    pub entries: usize,
    /// Capacity of the table, in flows.
    pub room: usize,
}

impl Fill {
    /// Whether the table is nearly full: three quarters.
    pub const fn is_scarce(&self) -> bool {
        self.entries > self.room / 4 * 3
    }
}

/// Writes flows while they are read, so memory does not grow with their number.
pub fn write(
    out: &mut dyn Write,
    source: Source<'_>,
    listing: &Listing,
) -> Result<Listed, InspectError> {
    let mut writer = Writer::new(out, listing.form)?;
    let mut failed = None;
    let [mut established, mut opening] = source.pinned.flows_max()?.map(|room| Fill {
        entries: 0,
        room: room as usize,
    });
    source.pinned.flows(|key, flow| {
        let table = if flow.is(OPENING) {
            &mut opening
        } else {
            &mut established
        };
        table.entries += 1;
        let Some(row) = listing.filter.row(source, key, flow) else {
            return true;
        };
        if writer.count == listing.limit {
            return false;
        }
        failed = writer.row(row).err();
        failed.is_none()
    })?;
    if let Some(failed) = failed {
        return Err(failed);
    }
    let count = writer.end()?;
    Ok(Listed {
        count,
        established,
        opening,
    })
}

#[cfg(test)]
mod tests {
    use dormouse_ebpf::flow::REPLY;

    use super::*;
    use dormouse_agent_datapath::octets;

    fn flow(kind: u32) -> (FlowKey, Flow) {
        let address = |text: &str| octets(text.parse().unwrap());
        let key = FlowKey {
            source: address("10.0.0.9"),
            target: address("10.96.0.7"),
            source_port: 40_000,
            target_port: 80,
            protocol: 6,
        };
        let flow = Flow {
            source: address("10.0.0.1"),
            target: address("10.1.0.3"),
            source_port: 12_345,
            target_port: 8_000,
            kind,
            ..Flow::default()
        };
        (key, flow)
    }

    #[test]
    fn a_flow_and_its_reply_have_the_same_client_and_backend() {
        let (key, there) = flow(MASQUERADED);
        let back_key = key.reply(&there);
        let back = Flow {
            source: key.target,
            target: key.source,
            source_port: key.target_port,
            target_port: key.source_port,
            kind: MASQUERADED | REPLY,
            ..there
        };
        let (a, b) = (Ends::of(&key, &there), Ends::of(&back_key, &back));
        assert_eq!((a.client, a.vip, a.backend), (b.client, b.vip, b.backend));
        assert_eq!(
            (a.via, a.via.to_string().as_str()),
            (b.via, "10.0.0.1:12345")
        );
    }

    #[test]
    fn a_filter_selects_by_each_condition() {
        let (key, there) = flow(0);
        let ends = Ends::of(&key, &there);
        let fits = |filter: Filter| filter.fits(6, &ends);
        let to = |text: &str| Filter {
            to: To::Address(text.parse().unwrap()),
            ..Filter::default()
        };
        assert!(fits(to("10.96.0.7")) && !fits(to("10.1.0.3")));
        let from = |text: &str| Filter {
            from: Prefix::parse(text),
            ..Filter::default()
        };
        assert!(fits(from("10.0.0.0/8")) && !fits(from("11.0.0.0/8")));
        let port = |port| Filter {
            port: Some(port),
            ..Filter::default()
        };
        assert!(fits(port(80)) && !fits(port(8_000)));
    }
}
