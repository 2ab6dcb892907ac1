//! `dormouse-agent doctor`: examines this machine.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use dormouse_agent_inspect::{Exit, InspectError};
use dormouse_agent_pod::SYSCTLS_DEFAULT;
use dormouse_command::{OutputFormat, write_value};

use super::node_flags::NodeFlags;
use super::run::network_profile;
use crate::doctor::examine;
use crate::doctor::probe::{Places, look};
use crate::profile::{self, Profile};

/// The flags of `doctor`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  sudo dormouse-agent doctor                    before the installation, and whenever something does not work
  sudo dormouse-agent doctor -o json

Exit status: 0 no problem was found (there may be warnings), 1 there is a problem. The command changes nothing.")]
pub struct Doctor {
    /// Output format
    #[arg(short, long)]
    output: Option<OutputFormat>,
    /// Interface to the network outside of the node [default: that of the last agent, or eth0]
    #[arg(long, env = "DORMOUSE_UPLINK")]
    uplink: Option<String>,
    /// Kind of network
    #[arg(
        long,
        env = "DORMOUSE_NETWORK_PROFILE",
        default_value = profile::DEFAULT,
        value_parser = network_profile()
    )]
    network_profile: &'static Profile,
    /// cgroup (v2) of the node
    #[arg(long, env = "DORMOUSE_CGROUP", default_value = "/sys/fs/cgroup")]
    cgroup: PathBuf,
    /// Folder of the network's sysctls
    #[arg(long, env = "DORMOUSE_SYSCTLS", default_value = SYSCTLS_DEFAULT)]
    sysctls: PathBuf,
    /// Folder of network configurations
    #[arg(
        long,
        env = "DORMOUSE_CNI_CONF_DIR",
        value_name = "FOLDER",
        default_value = "/etc/cni/net.d"
    )]
    cni_conf_dir: PathBuf,
    #[command(flatten)]
    node: NodeFlags,
}

/// Runs `doctor`.
pub(super) fn doctor(flags: &Doctor, out: &mut dyn Write) -> Result<Exit, InspectError> {
    let places = Places {
        uplink: flags.uplink.clone(),
        profile: flags.network_profile,
        cgroup: flags.cgroup.clone(),
        sysctls: flags.sysctls.clone(),
        state_dir: flags.node.state_dir().to_owned(),
        pins: flags.node.folder().ok(),
        agent: flags.node.agent(),
        conflists: flags.cni_conf_dir.clone(),
    };
    let facts = look(&places).map_err(|error| {
        let hint = "run as root: sudo dormouse-agent doctor";
        InspectError::new(
            Exit::NotAllowed,
            format!("cannot examine this machine: {error}"),
            hint,
        )
    })?;
    let report = examine(&facts);
    match flags.output {
        Some(output @ (OutputFormat::Json | OutputFormat::Yaml)) => {
            write_value(out, &report.value(), output)?;
        }
        _ => report.write(out)?,
    }
    Ok(report.exit())
}
