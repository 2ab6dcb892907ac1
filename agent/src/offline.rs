//! Serves one request of the plugin while no agent runs: the same network under the same journal's lock, but without
//! a data path. The agent finds what was made when it starts, and tells the data path then.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;

use anyhow::{Context, Result};

use crate::cni::connection;
use dormouse_agent_pod::remembered::recall;
use dormouse_agent_pod::{Network, PodEntry, PodTable};

/// Serves the plugin at the other end of standard input.
pub fn serve(state_dir: &Path) -> Result<()> {
    let input = io::stdin().as_fd().try_clone_to_owned()?;
    let stream = UnixStream::from(input);
    stream
        .peer_addr()
        .context("standard input is no connection; dormouse-cni calls this by itself")?;
    let opened = recall(state_dir).and_then(|config| Network::open(config, Box::new(Nobody)));
    match opened {
        Ok(network) => connection::serve(&stream, &network)?,
        Err(error) => connection::refuse(&stream, &error)?,
    }
    Ok(())
}

/// The data path is left as the last agent left it.
struct Nobody;

impl PodTable for Nobody {
    fn add(&mut self, _: PodEntry) -> io::Result<()> {
        Ok(())
    }

    fn remove(&mut self, _: Ipv6Addr, _: Option<Ipv4Addr>) -> io::Result<()> {
        Ok(())
    }
}
