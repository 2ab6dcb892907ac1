//! One row of `flows`.

use std::net::SocketAddr;

use dormouse_agent_datapath::Pinned;
use dormouse_ebpf::flow::{
    FORWARDED, Flow, FlowKey, MASQUERADED, OPENING, REPLY, REVOKED, TO_ACTIVATOR,
};
use dormouse_ebpf::stage::{self, Stage};
use serde::Serialize;

use crate::output::{Column, Row, age};

/// The kind of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "camelCase")]
pub enum Kind {
    /// DNAT to a backend; the source is the client's
    Dnat,
    /// DNAT to a backend, and masquerade (SNAT) to an address of the node
    Masqueraded,
    /// Forwarded to the backend's node, which translates the VIP
    Forwarded,
    /// DNAT to an activator
    Activator,
    /// Revoked: its backend was removed, and its packets are refused
    Revoked,
    /// The reverse NAT of another flow
    Reply,
}

impl Kind {
    pub(super) fn of(flow: &Flow) -> Self {
        let kinds = [
            (REPLY, Self::Reply),
            (REVOKED, Self::Revoked),
            (FORWARDED, Self::Forwarded),
            (TO_ACTIVATOR, Self::Activator),
            (MASQUERADED, Self::Masqueraded),
        ];
        let found = kinds.iter().find(|(bit, _)| flow.is(*bit));
        found.map_or(Self::Dnat, |(_, kind)| *kind)
    }

    fn name(self) -> &'static str {
        match self {
            Self::Dnat => "dnat",
            Self::Masqueraded => "masqueraded",
            Self::Forwarded => "forwarded",
            Self::Activator => "activator",
            Self::Revoked => "revoked",
            Self::Reply => "reply",
        }
    }
}

/// The state of a connection, by the packets that this node has seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "camelCase")]
pub enum State {
    /// The client has not confirmed it yet (TCP, SCTP), or the backend has not answered (UDP)
    Opening,
    /// Established
    Established,
    /// Closed by one side
    Closing,
    /// Closed by both sides, reset, or revoked
    Closed,
    /// Not known: the connection is older than this version
    Unknown,
}

impl State {
    pub(super) fn of(pinned: &Pinned, key: &FlowKey, flow: &Flow) -> Self {
        if flow.is(REVOKED) {
            return Self::Closed;
        }
        let (other, stage) = (key.reply(flow), Stage(flow.stage));
        let opposite = pinned.flow(&other).filter(|it| other.reply(it) == *key);
        let stage = opposite.map_or(stage, |opposite| stage.and(Stage(opposite.stage)));
        match stage.state() {
            stage::State::Established if flow.is(OPENING) => Self::Opening,
            stage::State::Opening => Self::Opening,
            stage::State::Established => Self::Established,
            stage::State::Closing => Self::Closing,
            stage::State::Ended => Self::Closed,
            stage::State::Unknown => Self::Unknown,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Opening => "opening",
            Self::Established => "established",
            Self::Closing => "closing",
            Self::Closed => "closed",
            Self::Unknown => "",
        }
    }
}

/// A connection tracking entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FlowRow {
    /// `tcp`, `udp`, `sctp`.
    pub protocol: String,
    /// Address and port of the client.
    pub client: SocketAddr,
    /// Address and port that the client connects to.
    pub vip: SocketAddr,
    /// Address and port of the backend, after DNAT.
    pub backend: SocketAddr,
    /// Address and NAT port of the node, for a masqueraded connection.
    pub via: Option<SocketAddr>,
    /// The kind.
    pub kind: Kind,
    /// The state.
    pub state: State,
    /// The Service port, app or address that owns the VIP.
    pub service: Option<String>,
    /// Seconds since the last packet, in full seconds.
    pub idle_seconds: u64,
    /// Id of the backend in the maps; none: an activator.
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
