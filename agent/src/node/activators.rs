//! The activators' health endpoints, also of a node whose agent starts while control is away.

use std::fmt;
use std::fs;
use std::io;
use std::net::{AddrParseError, SocketAddr};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use dormouse_files::{Durability, write_whole};

/// The file in the node's state folder: one endpoint per line.
const FILE: &str = "activators";
const FILE_MODE: u32 = 0o644;

/// The beginning of an endpoint with TLS.
const SECURED: &str = "https://";

/// Where an activator says whether it serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Endpoint {
    /// Address and port.
    pub(super) address: SocketAddr,
    /// Whether it has TLS.
    pub(super) is_secured: bool,
}

impl FromStr for Endpoint {
    type Err = AddrParseError;

    fn from_str(text: &str) -> Result<Self, AddrParseError> {
        let secured = text.strip_prefix(SECURED);
        Ok(Self {
            address: secured.unwrap_or(text).parse()?,
            is_secured: secured.is_some(),
        })
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_secured { SECURED } else { "" };
        write!(formatter, "{scheme}{}", self.address)
    }
}

/// The endpoints that control sent last.
#[derive(Debug)]
pub struct Activators {
    file: PathBuf,
    endpoints: Vec<Endpoint>,
}

impl Activators {
    /// The endpoints that the previous agent wrote; none if there is no file.
    pub fn load(state_dir: &Path) -> Self {
        let file = state_dir.join(FILE);
        let text = fs::read_to_string(&file).unwrap_or_default();
        let endpoints = text.lines().filter_map(|line| line.parse().ok()).collect();
        Self { file, endpoints }
    }

    /// The endpoints.
    pub(super) fn endpoints(&self) -> &[Endpoint] {
        &self.endpoints
    }

    /// Sets the endpoints and writes them to the file, if they have changed.
    pub(super) fn set(&mut self, endpoints: Vec<Endpoint>) -> io::Result<()> {
        if endpoints == self.endpoints {
            return Ok(());
        }
        self.endpoints = endpoints;
        let lines: Vec<String> = self.endpoints.iter().map(ToString::to_string).collect();
        let text = lines.join("\n");
        write_whole(
            &self.file,
            text.as_bytes(),
            FILE_MODE,
            Durability::PowerFailure,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_agent_knows_the_endpoints() {
        let dir = tempfile::tempdir().unwrap();
        let mut activators = Activators::load(dir.path());
        assert!(activators.endpoints().is_empty());
        let endpoints = ["[2001:db8::c]:9090", "https://[2001:db8::d]:9090"];
        let endpoints = endpoints.map(|one| one.parse().unwrap()).to_vec();
        activators.set(endpoints.clone()).unwrap();
        assert_eq!(Activators::load(dir.path()).endpoints(), endpoints);
    }
}
