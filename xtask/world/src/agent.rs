//! The command line of an agent on a host: the host's places, its prefix and its address.

use std::path::{Path, PathBuf};

use crate::host::Host;
use crate::process::Program;

impl Host {
    /// The socket on which an agent of this host serves the CNI plugin.
    pub fn socket(&self) -> PathBuf {
        self.folder.join("agent.sock")
    }

    /// The folder of the state of an agent of this host.
    pub fn state_dir(&self) -> PathBuf {
        self.folder.join("state")
    }

    /// `dormouse-agent run`, as the node of the host's name.
    pub fn agent(&self, program: &Path) -> Program {
        let places = [
            ("--state-dir", self.state_dir()),
            ("--socket", self.socket()),
            ("--bpffs", self.bpffs.clone()),
            ("--cgroup", self.cgroup.clone()),
        ];
        let mut run = Program::new(program)
            .args(["run", "--node", &self.name, "--uplink", self.uplink()])
            .args(["--address", &self.address.to_string()]);
        if let Some(prefix) = self.prefix {
            run = run.args(["--prefix", &format!("{prefix}/96")]);
        }
        for (flag, place) in places {
            run = run.arg(flag).arg(place);
        }
        run
    }
}
