//! `dormouse-agent explain`: explains a packet's path, an address, or a drop code.

use std::io::Write;
use std::net::{IpAddr, SocketAddr};

use clap::{Args, Subcommand};
use dormouse_agent_datapath::protocol_name;
use dormouse_agent_inspect::address::Found;
use dormouse_agent_inspect::explanation::From;
use dormouse_agent_inspect::frame::Opening;
use dormouse_agent_inspect::names::{Source, service_protocol};
use dormouse_agent_inspect::packet_path::PacketPath;
use dormouse_agent_inspect::{API_VERSION, Exit, InspectError, address, reason};
use dormouse_agent_services::address::parse_address;
use dormouse_command::{OutputFormat, write_value};
use dormouse_ebpf::packet::{ICMP, ICMPV6};
use serde_json::json;

use super::flows::service;
use super::node_flags::NodeFlags;

/// The client's port if none is given; the choice of a backend depends on it.
const SOURCE_PORT: u16 = 40_000;

/// The flags of `explain`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  sudo dormouse-agent explain flow 2001:db8:7::17 service/shop/web tcp/80
  sudo dormouse-agent explain flow 192.0.2.9 203.0.113.5 udp/53 --from outside
  sudo dormouse-agent explain flow 192.0.2.9 203.0.113.5 icmp --from outside
  sudo dormouse-agent explain address fd00:20::7
  dormouse-agent explain code DM6020

Exit status: 0 the packet is delivered or forwarded, 1 it is dropped or refused. The command changes nothing.")]
pub struct Explain {
    /// What to explain
    #[command(subcommand)]
    what: What,
}

#[derive(Clone, Debug, Subcommand)]
enum What {
    /// Explain the path of a connection's first packet on this node
    Flow(FlowFlags),
    /// Show the role of an address on this node
    Address(AddressFlags),
    /// Explain a drop code or drop reason
    Code(CodeFlags),
}

#[derive(Clone, Debug, Args)]
struct FlowFlags {
    /// Source: an address, with a port to get the same backend as that client
    source: String,
    /// Destination: an address, or service/NAMESPACE/NAME
    target: String,
    /// Protocol and destination port, like tcp/80; or icmp, for an echo request
    port: String,
    /// The node itself is the source
    #[arg(long, conflicts_with = "from")]
    node_sent: bool,
    /// Origin of the packet [default: derived from the source address]
    #[arg(long)]
    from: Option<From>,
    /// Skip the socket hooks, as a raw socket does
    #[arg(long)]
    bare: bool,
    /// Output format
    #[arg(short, long)]
    output: Option<OutputFormat>,
    #[command(flatten)]
    node: NodeFlags,
}

#[derive(Clone, Debug, Args)]
struct AddressFlags {
    /// IPv4 or IPv6 address
    address: String,
    /// Output format
    #[arg(short, long)]
    output: Option<OutputFormat>,
    #[command(flatten)]
    node: NodeFlags,
}

#[derive(Clone, Debug, Args)]
struct CodeFlags {
    /// Code like DM6020, or a reason's name as in metrics
    code: String,
    /// Output format
    #[arg(short, long)]
    output: Option<OutputFormat>,
}

/// Runs `explain`.
pub(super) fn explain(flags: &Explain, out: &mut dyn Write) -> Result<Exit, InspectError> {
    match &flags.what {
        What::Flow(flags) => explain_flow(flags, out),
        What::Address(flags) => explain_address(flags, out),
        What::Code(flags) => explain_code(flags, out),
    }
}

fn explain_flow(flags: &FlowFlags, out: &mut dyn Write) -> Result<Exit, InspectError> {
    let opening = opening(flags)?;
    let from = if flags.node_sent {
        Some(From::Node)
    } else {
        flags.from
    };
    let (pinned, names) = flags.node.named()?;
    let source = Source {
        pinned: &pinned,
        names: &names,
    };
    let path = PacketPath::new(source, opening, from, flags.bare);
    let found = path.explain()?;
    match flags.output {
        Some(output @ (OutputFormat::Json | OutputFormat::Yaml)) => {
            write_value(out, &found.value(), output)?;
        }
        _ => write!(out, "{}", found.screen())?,
    }
    Ok(if found.is_delivered() {
        Exit::Yes
    } else {
        Exit::No
    })
}

/// The packet to explain, from the command line.
fn opening(flags: &FlowFlags) -> Result<Opening, InspectError> {
    let mut source = source(&flags.source)?;
    let (protocol, port) = if flags.port.eq_ignore_ascii_case("icmp") {
        source.set_port(0);
        (if source.is_ipv4() { ICMP } else { ICMPV6 }, 0)
    } else {
        wanted_port(&flags.port)?
    };
    let target = match parse_address(flags.target.trim_matches(['[', ']'])) {
        Some(address) => address,
        None => service_address(flags, source.is_ipv4(), (protocol, port))?,
    };
    if target.is_ipv4() != source.is_ipv4() {
        let message = format!("{} and {target} are of different families", source.ip());
        return Err(InspectError::usage(
            message,
            "give both as IPv4, or both as IPv6",
        ));
    }
    Ok(Opening {
        source,
        target: SocketAddr::new(target, port),
        protocol,
    })
}

fn source(text: &str) -> Result<SocketAddr, InspectError> {
    let address = parse_address(text.trim_matches(['[', ']']));
    let with_port = || text.parse::<SocketAddr>().ok();
    let source = address
        .map(|address| SocketAddr::new(address, SOURCE_PORT))
        .or_else(with_port);
    source.ok_or_else(|| {
        let message = format!("{text:?} is not a source address");
        InspectError::usage(message, "write it like 10.1.2.3, [fd00::1]:4711 or fd00::1")
    })
}

fn wanted_port(text: &str) -> Result<(u8, u16), InspectError> {
    let parts = text.split_once('/');
    let read = parts.and_then(|(protocol, port)| {
        let port = port.parse::<u16>().ok().filter(|port| *port > 0)?;
        Some((service_protocol(protocol)?, port))
    });
    read.ok_or_else(|| {
        let message = format!("{text:?} is not a protocol and port");
        InspectError::usage(message, "write it like tcp/80, udp/53, sctp/3868 or icmp")
    })
}

/// The address of a Service that has the port, in the source's family.
fn service_address(
    flags: &FlowFlags,
    v4: bool,
    (protocol, port): (u8, u16),
) -> Result<IpAddr, InspectError> {
    let rows = service(&flags.target, flags.node.agent())?;
    let mut family = rows
        .iter()
        .filter(|row| row.cluster_ip.is_ipv4() == v4)
        .peekable();
    if family.peek().is_none() {
        let message = format!("{} has no address of the source's family", flags.target);
        return Err(InspectError::new(
            Exit::NotFound,
            message,
            "give a source of the other family",
        ));
    }
    // For a port that the Service does not have, the refusal is the answer.
    let first = family.peek().map(|row| row.cluster_ip);
    let has =
        family.find(|row| row.port == port && service_protocol(&row.protocol) == Some(protocol));
    has.map(|row| row.cluster_ip).or(first).ok_or_else(|| {
        let port = format!("{}/{port}", protocol_name(protocol));
        InspectError::new(
            Exit::NotFound,
            format!("{} has no {port}", flags.target),
            "get services -A",
        )
    })
}

fn explain_address(flags: &AddressFlags, out: &mut dyn Write) -> Result<Exit, InspectError> {
    let address = parse_address(flags.address.trim_matches(['[', ']'])).ok_or_else(|| {
        let message = format!("{:?} is not an address", flags.address);
        InspectError::usage(message, "write it like 10.96.0.7 or fd00:20::7")
    })?;
    let (wiring, pinned) = flags.node.wiring()?;
    let mut facts = wiring
        .one(address)
        .as_ref()
        .map(address::wired)
        .unwrap_or_default();
    match pinned {
        Some(pinned) => {
            let names = flags.node.names(&pinned)?;
            facts.extend(address::find(&pinned, &names, address)?.facts);
        }
        // The data path was not read: "nothing known" would not be true.
        None if facts.is_empty() => drop(flags.node.pinned()?),
        None => {}
    }
    let found = Found { address, facts };
    match flags.output {
        Some(output @ (OutputFormat::Json | OutputFormat::Yaml)) => {
            write_value(out, &found.value(), output)?;
        }
        _ => write!(out, "{}", found.screen())?,
    }
    Ok(if found.facts.is_empty() {
        Exit::NotFound
    } else {
        Exit::Yes
    })
}

fn explain_code(flags: &CodeFlags, out: &mut dyn Write) -> Result<Exit, InspectError> {
    let verdict = reason::verdict(&flags.code);
    let found = verdict.and_then(|verdict| Some((reason::code(verdict), reason::reason(verdict)?)));
    let Some((code, found)) = found else {
        let message = format!("no drop code {:?}", flags.code);
        return Err(InspectError::new(
            Exit::NotFound,
            message,
            "sudo dormouse-agent get drops",
        ));
    };
    if let Some(output @ (OutputFormat::Json | OutputFormat::Yaml)) = flags.output {
        let runbook =
            json!({"apiVersion": API_VERSION, "kind": "Runbook", "code": code, "reason": found});
        write_value(out, &runbook, output)?;
        return Ok(Exit::Yes);
    }
    writeln!(out, "{code}     {}: {}", found.kind, found.name)?;
    writeln!(out, "meaning    {}", found.meaning)?;
    writeln!(out, "next       {}", found.next)?;
    Ok(Exit::Yes)
}
