//! `dormouse-agent flows`: the connection tracking entries of this node.

use std::collections::HashSet;
use std::io::Write;
use std::net::{IpAddr, SocketAddr};

use clap::Args;
use dormouse_agent_datapath::FrontendAddress;
use dormouse_agent_inspect::flows::{self, Fill, Filter, Kind, Listed, Listing, State, To};
use dormouse_agent_inspect::names::{Source, service_protocol};
use dormouse_agent_inspect::services::{self, ServiceQuery, ServiceRow};
use dormouse_agent_inspect::{Exit, InspectError};
use dormouse_agent_services::{Prefix, address::parse_address};
use dormouse_command::ListFormat;

use super::node_flags::{NodeFlags, print_note};

/// The flags of `flows`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  sudo dormouse-agent flows --to shop/web                   connections to a Service
  sudo dormouse-agent flows --from 10.1.0.0/16 --proto udp
  sudo dormouse-agent flows --kind masqueraded -o json      connections that use a NAT port of the node

Connections that the socket hooks translated at connect(2) have no flow: their packets need no NAT.")]
pub struct Flows {
    /// Only flows to this Service (NAMESPACE/NAME) or VIP
    #[arg(long, value_name = "NAME|VIP")]
    to: Option<String>,
    /// Only flows from this address or range
    #[arg(long, value_name = "ADDRESS")]
    from: Option<String>,
    /// Only flows of this protocol: tcp, udp, sctp
    #[arg(long, visible_alias = "protocol")]
    proto: Option<String>,
    /// Only flows to this port of the VIP
    #[arg(long)]
    port: Option<u16>,
    /// Only flows of this kind
    #[arg(long)]
    kind: Option<Kind>,
    /// Only flows in this state
    #[arg(long)]
    state: Option<State>,
    /// Also list the flows of the replies
    #[arg(long)]
    all: bool,
    /// Maximum number of flows to list; 0: only count them
    #[arg(long)]
    limit: Option<usize>,
    #[command(flatten)]
    form: ListFormat,
    #[command(flatten)]
    node: NodeFlags,
}

/// Runs `flows`.
pub(super) fn flows(flags: &Flows, out: &mut dyn Write) -> Result<Exit, InspectError> {
    let filter = flags.filter()?;
    let (pinned, names) = flags.node.named()?;
    let source = Source {
        pinned: &pinned,
        names: &names,
    };
    if flags.limit == Some(0) {
        let all = Listing {
            filter,
            limit: usize::MAX,
            form: ListFormat::default(),
        };
        let listed = flows::write(&mut std::io::sink(), source, &all)?;
        writeln!(out, "{}", listed.count)?;
        note_fill(listed);
        return Ok(Exit::Yes);
    }
    let limit = flags.limit.unwrap_or(usize::MAX);
    let listing = Listing {
        filter,
        limit,
        form: flags.form,
    };
    let listed = flows::write(out, source, &listing)?;
    note_fill(listed);
    let count = listed.count;
    if count == 0 {
        print_note("no such flows");
    } else if count == limit {
        print_note(&format!(
            "note: the first {limit} flows; raise --limit to see more"
        ));
    }
    Ok(Exit::Yes)
}

/// Notes that a table is nearly full.
fn note_fill(listed: Listed) {
    let Fill { entries, room } = listed.established;
    if listed.established.is_scarce() {
        print_note(&format!(
            "note: the flow table is nearly full ({entries} of {room}): ended connections leave it early, and idle ones may be \
             evicted; raise --flows-max of the agent"
        ));
    }
    let Fill { entries, room } = listed.opening;
    if listed.opening.is_scarce() {
        print_note(&format!(
            "note: the table of opening connections is nearly full ({entries} of {room}), as in a flood of SYNs: new connections \
             may need a second SYN"
        ));
    }
}

impl Flows {
    fn filter(&self) -> Result<Filter, InspectError> {
        Ok(Filter {
            to: self
                .to
                .as_deref()
                .map_or(Ok(To::Anything), |to| self.to(to))?,
            from: self.from.as_deref().map(from).transpose()?,
            protocol: self.proto.as_deref().map(protocol).transpose()?,
            port: self.port,
            kind: self.kind,
            state: self.state,
            all: self.all,
        })
    }

    fn to(&self, text: &str) -> Result<To, InspectError> {
        if let Some(address) = parse_address(text.trim_matches(['[', ']'])) {
            return Ok(To::Address(address));
        }
        if let Ok(end) = text.parse::<SocketAddr>() {
            let protocols = [0, 6, 17, 132];
            let frontend = |protocol| FrontendAddress {
                address: end.ip().to_canonical(),
                port: end.port(),
                protocol,
            };
            return Ok(To::Frontends(protocols.map(frontend).into_iter().collect()));
        }
        let rows = service(text, self.node.agent())?;
        Ok(To::Frontends(frontends(&rows)))
    }
}

fn from(text: &str) -> Result<Prefix, InspectError> {
    let single = || parse_address(text).map(Prefix::single);
    Prefix::parse(text).or_else(single).ok_or_else(|| {
        InspectError::usage(
            format!("--from {text}: not an address or range"),
            "write it like 10.1.2.3, fd00::1 or 10.1.0.0/16",
        )
    })
}

fn protocol(text: &str) -> Result<u8, InspectError> {
    service_protocol(text).ok_or_else(|| {
        let message = format!("--proto {text}: unknown protocol");
        InspectError::usage(message, "write tcp, udp or sctp")
    })
}

/// The service ports of a Service that is given as `NAMESPACE/NAME`, with an optional `service/` prefix.
pub(super) fn service(text: &str, agent: SocketAddr) -> Result<Vec<ServiceRow>, InspectError> {
    let name = ["service/", "services/", "svc/"]
        .iter()
        .find_map(|noun| text.strip_prefix(noun))
        .unwrap_or(text);
    let (namespace, name) = name.split_once('/').unwrap_or(("default", name));
    let is_name = |text: &str| {
        let mut bytes = text.bytes();
        !text.is_empty() && bytes.all(|byte| byte.is_ascii_alphanumeric() || b"-.".contains(&byte))
    };
    if !is_name(namespace) || !is_name(name) {
        let message = format!("{text:?} is neither an address nor a Service");
        return Err(InspectError::usage(
            message,
            "write an address, or NAMESPACE/NAME",
        ));
    }
    let wanted = ServiceQuery {
        namespace: Some(namespace.to_owned()),
        name: Some(name.to_owned()),
    };
    let rows = services::read(agent, &wanted)?;
    if rows.is_empty() {
        let message = format!("this node serves no Service {namespace}/{name}");
        return Err(InspectError::new(
            Exit::NotFound,
            message,
            "dormouse-agent get services -A",
        ));
    }
    Ok(rows)
}

/// The frontends (VIP, port, protocol) of service ports.
fn frontends(rows: &[ServiceRow]) -> HashSet<FrontendAddress> {
    let frontend = |row: &ServiceRow, address: IpAddr, port: u16| FrontendAddress {
        address,
        port,
        protocol: service_protocol(&row.protocol).unwrap_or(0),
    };
    let all = rows.iter().flat_map(|row| {
        let vips = row.vips.iter();
        vips.map(move |vip| frontend(row, vip.address, vip.port))
    });
    all.collect()
}
