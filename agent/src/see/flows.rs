//! The connections that a node remembers, as people read them.

use std::collections::HashSet;
use std::io::Write;
use std::net::{IpAddr, SocketAddr};

use dormouse_agent_services::Prefix;
use dormouse_ebpf::decide::{NO_BACKEND, Tables as _};
use dormouse_ebpf::flow::{ACTIVATED, ENDED, Flow, FlowKey, HIDDEN, ONWARD, REPLY, Stage};
use serde::Serialize;
use serde_json::to_string;

use super::names::{Names, protocol_name};
use super::output::{Column, Form, Output, Row, Table, value};
use super::{API_VERSION, Exit, Trouble};
use crate::datapath::{Pinned, Place};

/// So many rows decide how wide columns are.
const FITTED: usize = 512;

/// What a flow is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "camelCase")]
pub enum Kind {
    /// To a backend, from the client's own address
    Direct,
    /// To a backend, from an address of the node's own
    Hidden,
    /// To the node of the backend, which knows the VIP as well
    Onward,
    /// To an activator
    Activated,
    /// Nowhere any more: its packets are refused
    Ended,
    /// The answers to one of the others
    Reply,
}

impl Kind {
    fn of(flow: &Flow) -> Self {
        let kinds = [
            (REPLY, Self::Reply),
            (ENDED, Self::Ended),
            (ONWARD, Self::Onward),
            (ACTIVATED, Self::Activated),
            (HIDDEN, Self::Hidden),
        ];
        let found = kinds.iter().find(|(bit, _)| flow.is(*bit));
        found.map_or(Self::Direct, |(_, kind)| *kind)
    }

    fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Hidden => "hidden",
            Self::Onward => "onward",
            Self::Activated => "activated",
            Self::Ended => "ended",
            Self::Reply => "reply",
        }
    }
}

/// How far a connection is, as far as the node has to know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "camelCase")]
pub enum State {
    /// The client asked for it
    Asked,
    /// It stands
    Open,
    /// One side has ended it
    Ended,
    /// The node does not follow it so closely
    Unknown,
}

impl State {
    fn of(pinned: &Pinned, key: &FlowKey, flow: &Flow) -> Self {
        if flow.is(ENDED) {
            return Self::Ended;
        }
        if flow.open == 1 {
            return Self::Open;
        }
        let stage = if !flow.is(HIDDEN) {
            None
        } else if flow.is(REPLY) {
            Some(flow.stage)
        } else {
            pinned.flow(&key.answered(flow)).map(|reply| reply.stage)
        };
        match stage {
            Some(stage) if stage == Stage::Asked as u32 => Self::Asked,
            Some(stage) if stage == Stage::Stands as u32 => Self::Open,
            Some(_) => Self::Ended,
            None => Self::Unknown,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Asked => "asked",
            Self::Open => "open",
            Self::Ended => "ended",
            Self::Unknown => "",
        }
    }
}

/// A flow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FlowRow {
    /// `tcp`, `udp`, `sctp`.
    pub protocol: String,
    /// Who asks.
    pub client: SocketAddr,
    /// What it asks for.
    pub vip: SocketAddr,
    /// Who answers.
    pub backend: SocketAddr,
    /// The node's own address and port that stand for the client.
    pub via: Option<SocketAddr>,
    /// What it is.
    pub kind: Kind,
    /// How far it is.
    pub state: State,
    /// Who has the VIP.
    pub service: Option<String>,
    /// Seconds since its last packet, in steps of one.
    pub idle_seconds: u64,
    /// The backend's id in the maps; none: an activator.
    pub backend_id: Option<u32>,
}

impl Row for FlowRow {
    const KIND: &'static str = "FlowList";
    const COLUMNS: &'static [Column] = &[
        ("PROTO", false),
        ("CLIENT", false),
        ("VIP", false),
        ("BACKEND", false),
        ("KIND", false),
        ("STATE", false),
        ("IDLE", false),
        ("SERVICE", false),
        ("VIA", true),
    ];

    fn cells(&self) -> Vec<String> {
        vec![
            self.protocol.clone(),
            self.client.to_string(),
            self.vip.to_string(),
            self.backend.to_string(),
            self.kind.name().to_owned(),
            self.state.name().to_owned(),
            age(self.idle_seconds),
            self.service.clone().unwrap_or_default(),
            self.via.map(|via| via.to_string()).unwrap_or_default(),
        ]
    }

    fn name(&self) -> String {
        format!("flow/{}/{}/{}", self.protocol, self.client, self.vip)
    }
}

/// Seconds as kubectl writes ages.
pub fn age(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7_200 => format!("{}m", seconds / 60),
        _ => format!("{}h", seconds / 3_600),
    }
}

/// What a flow goes to.
#[derive(Debug, Clone, Default)]
pub enum To {
    /// Whatever.
    #[default]
    Anything,
    /// An address.
    Address(IpAddr),
    /// One of these places.
    Places(HashSet<Place>),
}

/// Which flows are asked for.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    /// To what.
    pub to: To,
    /// From where.
    pub from: Option<Prefix>,
    /// Of which protocol, by IP's number.
    pub protocol: Option<u8>,
    /// To which port of the VIP.
    pub port: Option<u16>,
    /// Of which kind.
    pub kind: Option<Kind>,
    /// In which state.
    pub state: Option<State>,
    /// Replies too.
    pub all: bool,
}

impl Filter {
    /// The flow as a row, if it is asked for.
    fn row(&self, pinned: &Pinned, names: &Names, of: (&FlowKey, &Flow)) -> Option<FlowRow> {
        let (key, flow) = of;
        let kind = Kind::of(flow);
        let is_shown = self.all || kind != Kind::Reply || self.kind == Some(Kind::Reply);
        if !is_shown || self.kind.is_some_and(|wanted| wanted != kind) {
            return None;
        }
        let ends = Ends::of(key, flow);
        if !self.fits(key.protocol, &ends) {
            return None;
        }
        let state = State::of(pinned, key, flow);
        if self.state.is_some_and(|wanted| wanted != state) {
            return None;
        }
        let idle_ns = pinned.now_ns().saturating_sub(flow.seen_ns);
        Some(FlowRow {
            protocol: protocol_name(key.protocol),
            client: ends.client,
            vip: ends.vip,
            backend: ends.backend,
            via: flow.is(HIDDEN).then_some(ends.via),
            kind,
            state,
            service: service(pinned, names, key.protocol, &ends, flow.slot),
            idle_seconds: idle_ns / 1_000_000_000,
            backend_id: (flow.backend != NO_BACKEND).then_some(flow.backend),
        })
    }

    fn fits(&self, protocol: u8, ends: &Ends) -> bool {
        let to = match &self.to {
            To::Anything => true,
            To::Address(address) => ends.vip.ip() == *address,
            To::Places(places) => places.contains(&ends.place(protocol)),
        };
        to && self.from.is_none_or(|from| from.contains(ends.client.ip()))
            && self.protocol.is_none_or(|wanted| wanted == protocol)
            && self.port.is_none_or(|wanted| wanted == ends.vip.port())
    }
}

fn service(pinned: &Pinned, names: &Names, protocol: u8, ends: &Ends, slot: u32) -> Option<String> {
    let title = names.at(&ends.place(protocol)).map(ToOwned::to_owned);
    title.or_else(|| names.of_slot(pinned, slot))
}

/// Who talks to whom, whichever way the packets of the flow go.
struct Ends {
    client: SocketAddr,
    vip: SocketAddr,
    backend: SocketAddr,
    via: SocketAddr,
}

impl Ends {
    fn of(key: &FlowKey, flow: &Flow) -> Self {
        let end =
            |address: [u8; 16], port| SocketAddr::new(IpAddr::from(address).to_canonical(), port);
        let here = end(key.source, key.source_port);
        let there = end(key.target, key.target_port);
        let source = end(flow.source, flow.source_port);
        let target = end(flow.target, flow.target_port);
        let (client, vip, backend, via) = if flow.is(REPLY) {
            (target, source, here, there)
        } else {
            (here, there, target, source)
        };
        Self {
            client,
            vip,
            backend,
            via,
        }
    }

    fn place(&self, protocol: u8) -> Place {
        Place {
            address: self.vip.ip(),
            port: self.vip.port(),
            protocol,
        }
    }
}

/// Writes flows as they are read; memory does not grow with their number. Returns how many.
pub fn write(
    out: &mut dyn Write,
    (pinned, names): (&Pinned, &Names),
    (filter, limit, form): (&Filter, usize, Form),
) -> Result<usize, Trouble> {
    let mut writer = Writer::new(out, form)?;
    let mut failed = None;
    pinned.flows(|key, flow| {
        let Some(row) = filter.row(pinned, names, (key, flow)) else {
            return true;
        };
        if writer.count == limit {
            return false;
        }
        failed = writer.row(row).err();
        failed.is_none()
    })?;
    if let Some(failed) = failed {
        return Err(failed);
    }
    writer.end()
}

/// Rows on their way out.
struct Writer<'a> {
    out: &'a mut dyn Write,
    form: Form,
    table: Table,
    /// Rows that wait until it is known how wide they are.
    waiting: Vec<FlowRow>,
    count: usize,
}

impl<'a> Writer<'a> {
    fn new(out: &'a mut dyn Write, form: Form) -> Result<Self, Trouble> {
        if form.output == Some(Output::Json) {
            let kind = FlowRow::KIND;
            write!(
                out,
                "{{\"apiVersion\":\"{API_VERSION}\",\"kind\":\"{kind}\",\"items\":["
            )?;
        }
        Ok(Self {
            table: Table::new::<FlowRow>(form.output == Some(Output::Wide), !form.no_headers),
            out,
            form,
            waiting: Vec::new(),
            count: 0,
        })
    }

    fn row(&mut self, row: FlowRow) -> Result<(), Trouble> {
        self.count += 1;
        match self.form.output {
            Some(Output::Json) => {
                let comma = if self.count == 1 { "" } else { "," };
                let text = to_string(&row).map_err(|error| unwritable(&error))?;
                Ok(write!(self.out, "{comma}\n{text}")?)
            }
            Some(Output::Name) => Ok(writeln!(self.out, "{}", row.name())?),
            _ if self.count <= FITTED || self.form.output == Some(Output::Yaml) => {
                self.waiting.push(row);
                Ok(())
            }
            _ => {
                self.flush()?;
                let cells = row.cells();
                self.table.fit(&cells);
                Ok(self.table.write(self.out, &cells)?)
            }
        }
    }

    fn flush(&mut self) -> Result<(), Trouble> {
        let rows = std::mem::take(&mut self.waiting);
        let cells: Vec<Vec<String>> = rows.iter().map(Row::cells).collect();
        for cells in &cells {
            self.table.fit(cells);
        }
        for cells in &cells {
            self.table.write(self.out, cells)?;
        }
        Ok(())
    }

    fn end(mut self) -> Result<usize, Trouble> {
        match self.form.output {
            Some(Output::Json) => writeln!(self.out, "\n]}}")?,
            Some(Output::Yaml) => {
                let list = super::output::listed(&self.waiting);
                value(self.out, &list, Output::Yaml)?;
            }
            _ => self.flush()?,
        }
        self.out.flush()?;
        Ok(self.count)
    }
}

fn unwritable(error: &dyn std::error::Error) -> Trouble {
    Trouble::new(
        Exit::No,
        format!("cannot write the answer: {error}"),
        "use -o wide",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::datapath::octets;

    fn flow(kind: u32) -> (FlowKey, Flow) {
        let address = |text: &str| octets(text.parse().unwrap());
        let key = FlowKey {
            source: address("10.0.0.9"),
            target: address("10.96.0.7"),
            source_port: 40_000,
            target_port: 80,
            protocol: 6,
            pad: [0; 3],
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
    fn client_and_backend_are_the_same_whichever_way_packets_go() {
        let (key, there) = flow(HIDDEN);
        let back_key = key.answered(&there);
        let back = Flow {
            source: key.target,
            target: key.source,
            source_port: key.target_port,
            target_port: key.source_port,
            kind: HIDDEN | REPLY,
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
    fn a_filter_takes_what_it_names() {
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

    #[test]
    fn ages_are_kubectls() {
        let ages = [0, 119, 120, 7_199, 7_200].map(age);
        assert_eq!(ages, ["0s", "119s", "2m", "119m", "2h"]);
    }
}
