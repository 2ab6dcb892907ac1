//! `dormouse-agent deny`: adds sources to the node's deny list, removes them, lists them.

use std::io::{self, Write};
use std::path::PathBuf;

use clap::{Args, Subcommand};
use dormouse_agent_inspect::output::list;
use dormouse_agent_inspect::{Exit, InspectError, denied};
use dormouse_command::ListFormat;
use jiff::SignedDuration;

use super::node_flags::{NodeFlags, print_note};
use crate::deny::message::{Reply, Request, ask, socket};
use crate::deny::{file, record};

/// The flags of `deny`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  sudo dormouse-agent deny add 2001:db8:7::/64 192.0.2.7 --for 10m
  sudo dormouse-agent deny remove 192.0.2.7
  sudo dormouse-agent deny list

The list holds for packets that come in by the uplink. Commands' entries survive restarts of the agent and of the machine. Long lists
belong into the file of --deny-file, which the agent watches.")]
pub struct Deny {
    #[command(subcommand)]
    action: Action,
}

#[derive(Clone, Debug, Subcommand)]
enum Action {
    /// Drop packets of these sources; of one that is denied already, only the end changes
    Add(Add),
    /// Drop packets of these sources no longer, which were added by a command
    Remove(Change),
    /// List the denied prefixes, with their ends; works without a running agent
    List(Listing),
}

#[derive(Clone, Debug, Args)]
struct Add {
    #[command(flatten)]
    change: Change,
    /// Time after which the entries end, like 10m or 36h; without it they have no end
    #[arg(long = "for", value_name = "TIME", value_parser = seconds)]
    seconds: Option<u64>,
}

#[derive(Clone, Debug, Args)]
struct Change {
    /// Prefixes or addresses, IPv6 or IPv4
    #[arg(required = true, value_name = "PREFIX")]
    prefixes: Vec<String>,
    /// Unix socket of the agent
    #[arg(
        long,
        env = "DORMOUSE_SOCKET",
        default_value = "/run/dormouse/agent.sock"
    )]
    socket: PathBuf,
}

#[derive(Clone, Debug, Args)]
struct Listing {
    #[command(flatten)]
    form: ListFormat,
    #[command(flatten)]
    node: NodeFlags,
}

/// Runs `deny`.
pub(super) fn deny(flags: &Deny, out: &mut dyn Write) -> Result<Exit, InspectError> {
    match &flags.action {
        Action::Add(add) => change(
            &add.change,
            &Request::Add {
                prefixes: add.change.prefixes.clone(),
                seconds: add.seconds,
            },
        ),
        Action::Remove(removed) => change(
            removed,
            &Request::Remove {
                prefixes: removed.prefixes.clone(),
            },
        ),
        Action::List(listing) => {
            let state_dir = listing.node.state_dir();
            let record = state_dir.is_dir().then(|| record::load(state_dir));
            let record = record.transpose().map_err(|error| {
                let message = format!("cannot read {}: {error}", state_dir.display());
                if error.kind() == io::ErrorKind::PermissionDenied {
                    InspectError::not_allowed(message)
                } else {
                    InspectError::new(Exit::Unreachable, message, "see --state-dir")
                }
            })?;
            let rows = denied::rows(&listing.node.pinned()?, |prefix| match &record {
                Some(record) if record.contains_key(prefix) => "command",
                Some(_) => "file",
                None => "unknown",
            })?;
            if record.is_none() {
                print_note(&format!(
                    "there is no state folder {}, so the origins are unknown: give the node's with --state-dir",
                    state_dir.display()
                ));
            }
            list(out, &rows, listing.form)?;
            if rows.is_empty() {
                print_note("no denied sources");
            }
            Ok(Exit::Yes)
        }
    }
}

/// Sends a change to the agent. A prefix that is none is refused here, with or without an agent.
fn change(flags: &Change, request: &Request) -> Result<Exit, InspectError> {
    for text in &flags.prefixes {
        file::prefix(text).map_err(|why| {
            let hint = "dormouse-agent deny add 2001:db8:7::/64 192.0.2.7";
            InspectError::usage(format!("{text}: {why}"), hint)
        })?;
    }
    let socket = socket(&flags.socket);
    match ask(&socket, request) {
        Ok(Reply::Done) => Ok(Exit::Yes),
        Ok(Reply::Refused(why)) => Err(InspectError::new(
            Exit::No,
            why,
            "dormouse-agent deny list shows the denied prefixes",
        )),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            let message = format!("cannot connect to {}: {error}", socket.display());
            let hint = "run as root: sudo dormouse-agent deny ...";
            Err(InspectError::new(Exit::NotAllowed, message, hint))
        }
        Err(error) => {
            let message = format!("no agent answers at {}: {error}", socket.display());
            let hint = "start the agent of this node, or give its --socket";
            Err(InspectError::new(Exit::Unreachable, message, hint))
        }
    }
}

/// Parses a time of at least a second.
fn seconds(text: &str) -> Result<u64, String> {
    let wrong = || "write a time of at least a second, like 10m or 36h".to_owned();
    let time: Option<SignedDuration> = text.parse().ok();
    let seconds = time.and_then(|time| u64::try_from(time.as_secs()).ok());
    seconds.filter(|seconds| *seconds > 0).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_with_units() {
        assert_eq!(seconds("10m"), Ok(600));
        assert_eq!(seconds("1h 30s"), Ok(3_630));
        for wrong in ["", "10", "0s", "-10m", "soon", "10 parsecs"] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
    }
}
