//! Serves one request of the plugin while no agent runs: the same pod network under the same journal lock, without a data
//! path. The next agent finds the pods when it starts, and adds them to the data path then.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use dormouse_agent_pod::saved_config;
use dormouse_agent_pod::{Network, PodEntry, PodTable};
use tokio::sync::watch;

use crate::cni::{Parts, connection};

/// Serves the plugin on the connection that is standard input.
pub fn serve(state_dir: &Path) -> Result<()> {
    let input = io::stdin().as_fd().try_clone_to_owned()?;
    let stream = UnixStream::from(input);
    stream
        .peer_addr()
        .context("standard input is not a connection; only dormouse-cni runs this command")?;
    let opened = saved_config::load_of_this_boot(state_dir)
        .and_then(|config| Network::open(config, Box::new(NoTable)));
    match opened {
        Ok(network) => {
            let (_, in_force) = watch::channel(true);
            let parts = Parts {
                network: Arc::new(network),
                host_ports: None,
                in_force,
            };
            connection::serve(&stream, &parts)?;
        }
        Err(error) => connection::refuse(&stream, &error)?,
    }
    Ok(())
}

/// No pod table: the data path stays as the last agent left it.
struct NoTable;

impl PodTable for NoTable {
    fn add(&mut self, _: PodEntry) -> io::Result<()> {
        Ok(())
    }

    fn remove(&mut self, _: Ipv6Addr, _: Option<Ipv4Addr>) -> io::Result<()> {
        Ok(())
    }
}
