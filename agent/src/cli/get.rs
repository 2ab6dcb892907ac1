//! `dormouse-agent get`: lists Services, apps, backends, drops, pods, addresses and neighbours of this node.

use std::io::Write;

use clap::{Args, Subcommand};
use dormouse_agent_inspect::names::slots;
use dormouse_agent_inspect::output::list;
use dormouse_agent_inspect::services::{self, ServiceQuery, ServiceRow};
use dormouse_agent_inspect::{
    Exit, InspectError, addresses, apps, backends, drops, neighbours, pods,
};
use dormouse_command::{ListFormat, OutputFormat};

use super::node_flags::{NodeFlags, print_note};

/// The flags of `get`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  dormouse-agent get services -A              every service port that this node serves
  dormouse-agent get services web -n shop -o yaml
  dormouse-agent get backends shop/web         connections of each backend: started, and still open
  dormouse-agent get backends -A
  sudo dormouse-agent get drops                dropped and refused packets, by reason and Service
  sudo dormouse-agent get addresses            address leases; works without a running agent")]
pub struct Get {
    /// The resource to list
    #[command(subcommand)]
    resource: Resource,
}

#[derive(Clone, Debug, Subcommand)]
enum Resource {
    /// Service ports: addresses, backends, policies, and the answer to new connections
    #[command(alias = "service", alias = "svc")]
    Services(ServicesFlags),
    /// Apps of the fleet that this node follows, by VIP
    #[command(alias = "app")]
    Apps(Plain),
    /// Backends: connections that this node has started to each, and how many are open
    #[command(alias = "backend")]
    Backends(BackendsFlags),
    /// Packets that were dropped, rejected or reset, by reason and Service
    #[command(alias = "drop")]
    Drops(Plain),
    /// Pods of this node: address, holder, link, bridge
    #[command(alias = "pod")]
    Pods(Plain),
    /// Pod addresses of this node: holder, age, quarantine
    #[command(alias = "address", alias = "addr")]
    Addresses(Plain),
    /// Neighbour entries of pods: permanent entries, and NDP proxy entries
    #[command(alias = "neighbour", alias = "neighbors", alias = "neigh")]
    Neighbours(Plain),
}

#[derive(Clone, Debug, Args)]
struct Plain {
    #[command(flatten)]
    form: ListFormat,
    #[command(flatten)]
    node: NodeFlags,
}

#[derive(Clone, Debug, Args)]
struct BackendsFlags {
    /// Only backends of this Service (namespace/name, or namespace/name:port), or of the app with this VIP
    of: Option<String>,
    /// Backends of all Services and apps; the same as without a name
    #[arg(short = 'A', long, conflicts_with = "of")]
    all_namespaces: bool,
    #[command(flatten)]
    plain: Plain,
}

#[derive(Clone, Debug, Args)]
struct ServicesFlags {
    /// Only this Service
    name: Option<String>,
    /// Namespace of the Services
    #[arg(short, long, env = "DORMOUSE_NAMESPACE", default_value = "default")]
    namespace: String,
    /// Services of all namespaces
    #[arg(short = 'A', long)]
    all_namespaces: bool,
    #[command(flatten)]
    form: ListFormat,
    #[command(flatten)]
    node: NodeFlags,
}

/// Runs `get`.
pub(super) fn get(flags: &Get, out: &mut dyn Write) -> Result<Exit, InspectError> {
    match &flags.resource {
        Resource::Services(flags) => return get_services(flags, out),
        Resource::Apps(plain) => {
            let rows = apps::rows(&plain.node.pinned()?);
            list(out, &rows, plain.form)?;
            say_none("apps that this node follows", rows.is_empty());
        }
        Resource::Backends(BackendsFlags { of, plain, .. }) => {
            let (pinned, names) = plain.node.named()?;
            let rows = backends::rows(&pinned, &names, of.as_deref());
            list(out, &rows, plain.form)?;
            let of = of.as_ref().map(|of| format!(" of {of}"));
            say_none(
                &format!("backends{}", of.unwrap_or_default()),
                rows.is_empty(),
            );
        }
        Resource::Drops(plain) => {
            let (pinned, names) = plain.node.named()?;
            let rows = drops::read(&pinned, &names)?;
            list(out, &rows, plain.form)?;
            say_none("drops, rejections or resets", rows.is_empty());
            if let Some(first) = rows.first().filter(|_| plain.form.output.is_none()) {
                print_note(&format!("next: dormouse-agent explain code {}", first.code));
            }
        }
        Resource::Pods(plain) => {
            let rows = pods::rows(&plain.node.wiring()?.0);
            list(out, &rows, plain.form)?;
            say_none("pods on this node", rows.is_empty());
        }
        Resource::Addresses(plain) => {
            let rows = addresses::rows(&plain.node.wiring()?.0);
            list(out, &rows, plain.form)?;
            say_none(
                "addresses that are leased or in quarantine",
                rows.is_empty(),
            );
        }
        Resource::Neighbours(plain) => get_neighbours(plain, out)?,
    }
    Ok(Exit::Yes)
}

fn get_neighbours(plain: &Plain, out: &mut dyn Write) -> Result<(), InspectError> {
    let (wiring, pinned) = plain.node.wiring()?;
    let rows = neighbours::rows(&wiring);
    list(out, &rows, plain.form)?;
    say_none("permanent or proxy neighbour entries", rows.is_empty());
    if let (Some(pinned), None) = (pinned, plain.form.output) {
        let (answered, ignored) = neighbours::solicitations(&pinned.stats()?);
        print_note(&format!(
            "solicitations at the uplink: {answered} for pods, answered; {ignored} for addresses without a pod, not answered"
        ));
    }
    Ok(())
}

fn say_none(what: &str, none: bool) {
    if none {
        print_note(&format!("no {what}"));
    }
}

fn get_services(flags: &ServicesFlags, out: &mut dyn Write) -> Result<Exit, InspectError> {
    let namespace = (!flags.all_namespaces).then(|| flags.namespace.clone());
    let wanted = ServiceQuery {
        namespace,
        name: flags.name.clone(),
    };
    let mut rows = services::read(flags.node.agent(), &wanted)?;
    let place = wanted.namespace.as_ref().map_or_else(
        || "any namespace".to_owned(),
        |namespace| format!("namespace {namespace}"),
    );
    if let (Some(name), true) = (&flags.name, rows.is_empty()) {
        let message = format!("this node serves no Service {name} in {place}");
        let hint = "dormouse-agent get services -A; headless Services have no service ports";
        return Err(InspectError::new(Exit::NotFound, message, hint));
    }
    if matches!(
        flags.form.output,
        Some(OutputFormat::Wide | OutputFormat::Json | OutputFormat::Yaml)
    ) {
        fill_slots(&flags.node, &mut rows);
    }
    list(out, &rows, flags.form)?;
    if rows.is_empty() {
        print_note(&format!("no services in {place}"));
    }
    Ok(Exit::Yes)
}

/// Adds the slots, which only root can read in the maps; without root the rows are written without them.
fn fill_slots(node: &NodeFlags, rows: &mut [ServiceRow]) {
    match node.pinned() {
        Ok(pinned) => {
            for row in rows {
                row.slots = slots(&pinned, row);
            }
        }
        Err(error) => print_note(&format!("note: slots are not shown: {}", error.message)),
    }
}
