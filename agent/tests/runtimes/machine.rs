//! A machine that is set up by hand, as docs/RUNTIMES.md describes: the agent with its default paths, the plugin, and the
//! configuration as shipped. Folders to which runtimes write are private, so that the real machine does not change.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::net::{Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use dormouse_rig::netns::links;
use dormouse_rig::{Agent, Node, binaries, wait};
use dormouse_world::enter;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};

/// Folders to which runtimes and the agent write.
const PRIVATE: [&str; 3] = ["/run", "/var/lib", "/dev/shm"];
/// The cgroup of a runtime's own processes, and the one above those of its pods; both below the node's.
const PROGRAMS: &str = "programs";
const PODS: &str = "pods";
/// Time limit of a connection. Only a failure is this slow.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// The machine, on the calling thread.
pub(crate) struct Machine<'a> {
    node: &'a Node,
    /// The node's cgroup, below the root of all cgroups.
    cgroup: PathBuf,
    /// Runs until the machine is dropped.
    agent: Option<Agent>,
}

impl<'a> Machine<'a> {
    /// Gives the calling thread private folders, installs the plugin and its configuration, and starts the agent.
    pub(crate) fn start(node: &'a Node) -> Self {
        let mut machine = Self::bare(node);
        let mut run = node.home().run();
        run.env_remove("DORMOUSE_SOCKET")
            .env_remove("DORMOUSE_STATE_DIR");
        let agent = Agent::serving(&mut run, Path::new("/run/dormouse/agent.sock"));
        machine.agent = Some(agent);
        fs::copy(binaries::plugin(), machine.plugins().join("dormouse-cni")).unwrap();
        let shipped = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../deploy/cni/10-dormouse.conflist"
        );
        fs::copy(shipped, machine.networks().join("10-dormouse.conflist")).unwrap();
        machine
    }

    /// The same without agent, plugin and configuration.
    pub(crate) fn bare(node: &'a Node) -> Self {
        let cgroup = below_root(node.cgroup());
        mount_privately();
        fs::create_dir(node.cgroup().join(PROGRAMS)).unwrap();
        node.take_address();
        let machine = Self {
            node,
            cgroup,
            agent: None,
        };
        fs::create_dir(machine.plugins()).unwrap();
        fs::create_dir(machine.networks()).unwrap();
        machine
    }

    /// A folder for what a runtime keeps.
    pub(crate) fn folder(&self) -> &Path {
        self.node.dir()
    }

    /// The folder of CNI plugins.
    pub(crate) fn plugins(&self) -> PathBuf {
        self.folder().join("bin")
    }

    /// The folder of CNI configurations.
    pub(crate) fn networks(&self) -> PathBuf {
        self.folder().join("net.d")
    }

    /// The cgroup for what a runtime starts, as a path below the root of all cgroups.
    pub(crate) fn cgroup(&self) -> String {
        format!("/{}", self.cgroup.join(PODS).display())
    }

    /// A command in the node's cgroup: what it leaves running ends with the test.
    pub(crate) fn command(&self, program: &str) -> Command {
        let procs = self.node.cgroup().join(PROGRAMS).join("cgroup.procs");
        let mut command = Command::new("sh");
        command.args(["-c", "echo $$ > \"$0\" && exec \"$@\""]);
        command.arg(procs).arg(program);
        command
    }
}

/// Files that name the network namespaces of containerd's pods.
pub(crate) fn namespaces() -> Vec<PathBuf> {
    let files = fs::read_dir("/run/netns").into_iter().flatten().flatten();
    files.map(|file| file.path()).collect()
}

/// Waits until no pod has a link on the node.
pub(crate) fn await_no_pod() {
    wait("the links of pods to be gone", || pod_links().is_empty());
}

/// Fails unless a connection from the node to a pod carries data both ways.
pub(crate) fn dial(pod: &Path, address: Ipv6Addr) {
    let listener = enter(pod, || TcpListener::bind((address, 0)));
    let listener = listener.unwrap().unwrap();
    let to = listener.local_addr().unwrap();
    let echo = std::thread::spawn(move || echo(&listener));
    assert_eq!(say(to).unwrap(), *WORD);
    echo.join().unwrap().unwrap();
}

impl Drop for Machine<'_> {
    fn drop(&mut self) {
        drop(self.agent.take());
        let _ = fs::write(self.node.cgroup().join("cgroup.kill"), "1");
        for root in old_hierarchies() {
            remove_cgroup(&root, &self.cgroup.join(PODS));
        }
    }
}

/// Roots of the hierarchies of cgroups of version 1, in which a runtime makes cgroups of the same path.
fn old_hierarchies() -> Vec<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let fields = mounts
        .lines()
        .map(|line| line.split(' ').collect::<Vec<_>>());
    let old = fields.filter(|fields| fields.get(2) == Some(&"cgroup"));
    old.map(|fields| fields[1].into()).collect()
}

/// Removes what a runtime left of a cgroup, and the empty ones above it.
fn remove_cgroup(root: &Path, cgroup: &Path) {
    for child in fs::read_dir(root.join(cgroup))
        .into_iter()
        .flatten()
        .flatten()
    {
        // Files vanish with the folder; a failed test's folders stay while the kernel ends their processes.
        let _ = fs::remove_dir(child.path());
    }
    for folder in cgroup
        .ancestors()
        .filter(|path| !path.as_os_str().is_empty())
    {
        let _ = fs::remove_dir(root.join(folder));
    }
}

/// What a connection carries.
const WORD: &[u8; 5] = b"hello";

fn say(to: SocketAddr) -> io::Result<[u8; WORD.len()]> {
    let mut stream = TcpStream::connect_timeout(&to, CONNECT_LIMIT)?;
    stream.set_read_timeout(Some(CONNECT_LIMIT))?;
    stream.write_all(WORD)?;
    let mut word = [0; WORD.len()];
    stream.read_exact(&mut word)?;
    Ok(word)
}

fn echo(listener: &TcpListener) -> io::Result<()> {
    let (mut stream, _peer) = listener.accept()?;
    let mut word = [0; WORD.len()];
    stream.read_exact(&mut word)?;
    stream.write_all(&word)
}

/// Names of the pods' links in the calling thread's namespace.
pub(crate) fn pod_links() -> Vec<String> {
    let mut links = links().unwrap();
    links.retain(|name| name.starts_with("dm0"));
    links
}

/// Gives the calling thread a mount namespace with private folders.
fn mount_privately() {
    unshare(CloneFlags::CLONE_NEWNS).expect("a mount namespace");
    let nothing: Option<&str> = None;
    let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
    mount(nothing, "/", nothing, private, nothing).unwrap();
    for folder in PRIVATE {
        let (kind, flags) = (Some("tmpfs"), MsFlags::empty());
        mount(kind, folder, kind, flags, nothing).unwrap();
    }
}

/// Path of a cgroup below the root of all cgroups of its version.
fn below_root(cgroup: &Path) -> PathBuf {
    let root = dormouse_world::cgroups().unwrap();
    cgroup.strip_prefix(root).unwrap().to_owned()
}

/// Executes a command that must succeed; returns its output.
pub(crate) fn succeed(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| {
        let program = command.get_program().display();
        panic!("{program}: {error}: cargo xtask setup")
    });
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

/// Executes a command that must fail; returns its errors.
pub(crate) fn fail(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(!output.status.success(), "{command:?} succeeded");
    String::from_utf8(output.stderr).unwrap()
}
