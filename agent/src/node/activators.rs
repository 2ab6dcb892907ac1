//! The activators' health endpoints, also of a node whose agent starts while control is away.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use dormouse_files::{Durability, write_whole};

/// The file in the node's state folder: one endpoint per line.
const FILE: &str = "activators";
const FILE_MODE: u32 = 0o644;

/// The endpoints that control sent last.
#[derive(Debug)]
pub struct Activators {
    file: PathBuf,
    endpoints: Vec<SocketAddr>,
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
    pub(super) fn endpoints(&self) -> &[SocketAddr] {
        &self.endpoints
    }

    /// Sets the endpoints and writes them to the file, if they have changed.
    pub(super) fn set(&mut self, endpoints: Vec<SocketAddr>) -> io::Result<()> {
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
        let endpoints: Vec<SocketAddr> = vec!["[2001:db8::c]:9090".parse().unwrap()];
        activators.set(endpoints.clone()).unwrap();
        assert_eq!(Activators::load(dir.path()).endpoints(), endpoints);
    }
}
