//! The flags of `run` about the node's pods: who runs them, how many, and their logs.

use std::path::PathBuf;

use anyhow::{Result, ensure};
use clap::ValueEnum;

use crate::runtime::logs::LogFlags;

/// The runtime of the node's pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RuntimeKind {
    /// The agent runs each pod as a process; dormouse-cni connects it to the network
    Standalone,
    /// The agent runs no pods; another runtime (kubelet) does
    None,
}

/// The flags about pods.
#[derive(Clone, Debug, clap::Args)]
pub struct PodOptions {
    /// Runtime of the node's pods
    #[arg(
        long,
        env = "DORMOUSE_RUNTIME",
        value_enum,
        default_value = "standalone"
    )]
    pub runtime: RuntimeKind,
    /// Plugin binary that connects standalone pods to the network
    #[arg(
        long,
        env = "DORMOUSE_CNI",
        default_value = "/opt/cni/bin/dormouse-cni"
    )]
    pub cni: PathBuf,
    /// Maximum number of pods on this node
    #[arg(long, env = "DORMOUSE_PODS_MAX", default_value_t = 500)]
    pub pods_max: u32,
    /// The bounds of the pods' logs.
    #[command(flatten)]
    pub logs: LogFlags,
}

impl PodOptions {
    /// Checks what clap cannot.
    pub(super) fn validate(&self) -> Result<()> {
        ensure!(self.pods_max > 0, "--pods-max 0: use 1 or more");
        if self.runtime == RuntimeKind::Standalone {
            ensure!(
                self.cni.is_file(),
                "--cni {}: no such file; install the dormouse-cni binary there, or give --runtime none",
                self.cni.display()
            );
        }
        Ok(())
    }
}
