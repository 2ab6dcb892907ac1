//! A running agent, and the places that it is given.

use std::ffi::OsString;
use std::fs;
use std::mem;
use std::ops::Deref;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use dormouse_world::Cgroup;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

use crate::address::{NODE, PREFIX};
use crate::binaries;
use crate::names;
use crate::node::UPLINK;
use crate::wait::wait;

/// The paths of one agent: state, socket, cgroup and pins.
#[derive(Clone, Debug)]
pub struct Home {
    /// The node's name.
    pub node: String,
    /// The folder of state and socket.
    pub folder: PathBuf,
    /// The cgroup (version 2) of the node's pods.
    pub cgroup: PathBuf,
    /// Where maps and links are pinned.
    pub bpffs: PathBuf,
}

impl Home {
    /// The places of the node of this name.
    pub fn new(node: String, folder: &Path, cgroup: &Path) -> Self {
        Self {
            bpffs: Path::new("/sys/fs/bpf/dormouse").join(&node),
            folder: folder.to_owned(),
            cgroup: cgroup.to_owned(),
            node,
        }
    }

    /// Where the agent keeps what outlives it.
    pub fn state_dir(&self) -> PathBuf {
        self.folder.join("state")
    }

    /// The socket on which the plugin finds the agent.
    pub fn socket(&self) -> PathBuf {
        self.folder.join("agent.sock")
    }

    /// The variables by which the agent's commands know these places.
    pub fn environment(&self) -> [(&'static str, OsString); 5] {
        [
            ("DORMOUSE_NODE", self.node.clone().into()),
            ("DORMOUSE_BPFFS", self.bpffs.clone().into()),
            ("DORMOUSE_STATE_DIR", self.state_dir().into()),
            ("DORMOUSE_SOCKET", self.socket().into()),
            ("DORMOUSE_CGROUP", self.cgroup.clone().into()),
        ]
    }

    /// A command of the agent's binary about this node.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(binaries::agent());
        command.args(arguments).envs(self.environment());
        command.stdin(Stdio::null());
        command
    }

    /// `dormouse-agent run` on the uplink, without a runtime, at the node's address; metrics on a free port.
    pub fn run(&self) -> Command {
        let mut command = self.command(&["run", "--runtime", "none", "--uplink", UPLINK]);
        command.args(["--prefix", PREFIX, "--address", &NODE.to_string()]);
        command
    }

    /// Detaches the programs and removes the maps of an agent that does not run, by removing their pins.
    pub fn detach(&self) {
        // There are none where no agent ran.
        let _ = fs::remove_dir_all(&self.bpffs);
    }
}

/// The places of one agent that a test makes: an empty folder and a cgroup. Dropping it ends what runs in the cgroup, and
/// removes both, and the pins.
#[derive(Debug)]
pub struct OwnedHome {
    home: Home,
    _cgroup: Cgroup,
    _folder: TempDir,
}

impl OwnedHome {
    /// Makes the places for the node of this name, which is one of [`names`].
    pub fn new(name: &str) -> Self {
        let cgroup = Cgroup::create(names::own(), name).unwrap();
        let folder = tempfile::tempdir().unwrap();
        Self {
            home: Home::new(name.to_owned(), folder.path(), cgroup.path()),
            _cgroup: cgroup,
            _folder: folder,
        }
    }
}

impl Deref for OwnedHome {
    type Target = Home;

    fn deref(&self) -> &Home {
        &self.home
    }
}

impl Drop for OwnedHome {
    fn drop(&mut self) {
        self.home.detach();
    }
}

/// A running agent; killed when dropped.
#[derive(Debug)]
pub struct Agent(Child);

impl Agent {
    /// Starts it.
    pub fn start(command: &mut Command) -> Self {
        Self(command.spawn().expect("the agent starts"))
    }

    /// Starts it and waits until it serves on its socket.
    pub fn serving(command: &mut Command, socket: &Path) -> Self {
        let mut agent = Self::start(command);
        wait("the agent to serve", || {
            assert_eq!(agent.ended(), None, "the agent ended");
            UnixStream::connect(socket).is_ok()
        });
        agent
    }

    /// Takes a process that was started otherwise.
    pub fn adopt(child: Child) -> Self {
        Self(child)
    }

    /// Its process id.
    pub fn pid(&self) -> Pid {
        Pid::from_raw(self.0.id().cast_signed())
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        kill(self.pid(), signal).unwrap();
    }

    /// How it ended, if it did.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.0.try_wait().unwrap()
    }

    /// Kills it, as a crash would, and waits until it is gone.
    pub fn kill(self) {
        drop(self);
    }

    /// Leaves its end to another observer, such as a tracer.
    pub fn forget(self) -> Pid {
        let pid = self.pid();
        mem::forget(self);
        pid
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
