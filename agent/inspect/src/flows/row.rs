//! A flow as a row.

use std::net::SocketAddr;

use dormouse_ebpf::flow::{ACTIVATED, ENDED, Flow, FlowKey, HIDDEN, ONWARD, REPLY, Stage};
use serde::Serialize;

use crate::output::{Column, Row, age};
use dormouse_agent_datapath::Pinned;

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
    pub(super) fn of(flow: &Flow) -> Self {
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
    pub(super) fn of(pinned: &Pinned, key: &FlowKey, flow: &Flow) -> Self {
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
