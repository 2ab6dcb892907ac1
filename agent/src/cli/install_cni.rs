//! `dormouse-agent install-cni`, and the flags of `run` for the network configuration.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::install::{CONFLIST_DEFAULT, Conflist, install_programs};

/// The flags of `install-cni`.
#[derive(Clone, Debug, clap::Args)]
pub struct InstallCni {
    /// Folder of the container runtime's plugins
    #[arg(long, env = "DORMOUSE_CNI_BIN_DIR", default_value = "/opt/cni/bin")]
    bin_dir: PathBuf,
    /// Folder with the programs to copy [default: the one of this program]
    #[arg(long)]
    from: Option<PathBuf>,
    /// State folder of the node, in which `uninstall` finds the names of the copied files
    #[arg(long, env = "DORMOUSE_STATE_DIR", default_value = "/var/lib/dormouse")]
    state_dir: PathBuf,
}

/// The flags of `run` for the network configuration of container runtimes.
#[derive(Clone, Debug, clap::Args)]
pub struct ConflistFlags {
    /// Folder of network configurations, like /etc/cni/net.d, into which to write the plugin's once pods can be connected
    #[arg(long, env = "DORMOUSE_CNI_CONF_DIR", value_name = "FOLDER")]
    cni_conf_dir: Option<PathBuf>,
    /// File name of that network configuration; container runtimes use the first of the folder in the order of names
    #[arg(
        long,
        env = "DORMOUSE_CNI_CONF_NAME",
        value_name = "NAME",
        default_value = CONFLIST_DEFAULT
    )]
    cni_conf_name: String,
}

impl ConflistFlags {
    /// Checks the file name.
    pub(super) fn validate(&self) -> Result<()> {
        let name = &self.cni_conf_name;
        let stem = name.strip_suffix(".conflist").unwrap_or_default();
        ensure!(
            !stem.is_empty() && !name.contains('/'),
            "--cni-conf-name {name:?}: use a file name that ends in .conflist"
        );
        Ok(())
    }

    /// Whether there is a folder for the network configuration.
    pub(super) fn is_given(&self) -> bool {
        self.cni_conf_dir.is_some()
    }

    /// The network configuration to write, if there is a folder for it.
    pub(super) fn conflist(&self, socket: &Path, state_dir: &Path) -> Option<Conflist> {
        Some(Conflist {
            folder: self.cni_conf_dir.clone()?,
            name: self.cni_conf_name.clone(),
            socket: socket.to_owned(),
            state_dir: state_dir.to_owned(),
        })
    }
}

/// Copies the programs, and prints where they are.
pub(super) fn install_cni(flags: &InstallCni, out: &mut dyn Write) -> Result<()> {
    let from = match &flags.from {
        Some(folder) => folder.clone(),
        None => own_folder()?,
    };
    let installed = install_programs(&from, &flags.bin_dir, &flags.state_dir)?;
    for program in installed {
        writeln!(out, "installed {}", program.display())?;
    }
    Ok(())
}

fn own_folder() -> Result<PathBuf> {
    let program = std::env::current_exe().context("failed to find this program")?;
    let folder = program.parent().map(Path::to_owned);
    folder.context("failed to find the folder of this program")
}
