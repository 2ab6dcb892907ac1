//! A node in a namespace of its own: an uplink, a state folder, a cgroup, all gone when the test ends.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use nix::sched::{CloneFlags, unshare};

pub(crate) const PATIENCE: Duration = Duration::from_mins(1);

/// Where a test stands.
pub(crate) struct Ground {
    pub(crate) node: String,
    pub(crate) cgroup: PathBuf,
    dir: tempfile::TempDir,
}

/// Runs a test on a thread in a fresh network namespace.
pub(crate) fn stand(play: impl FnOnce(&Ground) + Send + 'static) {
    static GROUNDS: AtomicU32 = AtomicU32::new(0);
    assert!(
        nix::unistd::geteuid().is_root(),
        "run as root: sudo -E cargo test -p dormouse-agent"
    );
    let number = GROUNDS.fetch_add(1, Ordering::Relaxed);
    let node = format!("t{}-{number}", std::process::id());
    let played = std::thread::spawn(move || {
        unshare(CloneFlags::CLONE_NEWNET).unwrap();
        ip("link set lo up");
        ip("link add eth0 type veth peer name far");
        ip("link set far up");
        ip("link set eth0 up");
        let cgroup = cgroup_root().join(format!("dormouse-test-{node}"));
        fs::create_dir(&cgroup).unwrap();
        play(&Ground {
            node,
            cgroup,
            dir: tempfile::tempdir().unwrap(),
        });
    });
    if let Err(panic) = played.join() {
        std::panic::resume_unwind(panic);
    }
}

pub(crate) fn ip(arguments: &str) {
    let done = Command::new("ip")
        .args(arguments.split(' '))
        .status()
        .expect("iproute2 is installed");
    assert!(done.success(), "ip {arguments}");
}

/// The cgroup v2 hierarchy, wherever it is mounted.
fn cgroup_root() -> PathBuf {
    let mounts = fs::read_to_string("/proc/mounts").unwrap();
    let mut fields = mounts
        .lines()
        .map(|line| line.split(' ').collect::<Vec<_>>());
    let mount = fields
        .find(|fields| fields[2] == "cgroup2")
        .expect("cgroup v2 is mounted");
    mount[1].into()
}

/// The plugin's binary, beside the agent's: cargo builds binaries only for tests of their own package.
pub(crate) fn plugin() -> PathBuf {
    let path = Path::new(env!("CARGO_BIN_EXE_dormouse-agent")).with_file_name("dormouse-cni");
    if !path.exists() {
        let build = Command::new(env!("CARGO"))
            .args(["build", "--package", "dormouse-cni"])
            .status();
        assert!(build.unwrap().success(), "dormouse-cni builds");
    }
    path
}

pub(crate) fn wait(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

impl Ground {
    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn state_dir(&self) -> PathBuf {
        self.dir().join("state")
    }

    /// Where plugins meet a whole agent.
    pub(crate) fn socket(&self) -> PathBuf {
        self.dir().join("agent.sock")
    }

    /// Where a whole agent has its pins.
    pub(crate) fn bpffs(&self) -> PathBuf {
        Path::new("/sys/fs/bpf/dormouse").join(&self.node)
    }

    /// A command of the agent's own binary about this node.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_dormouse-agent"));
        command
            .args(arguments)
            .env("DORMOUSE_NODE", &self.node)
            .env("DORMOUSE_BPFFS", self.bpffs())
            .env("DORMOUSE_STATE_DIR", self.state_dir())
            .env("DORMOUSE_SOCKET", self.socket())
            .env("DORMOUSE_CGROUP", &self.cgroup);
        command
    }

    pub(crate) fn record(&self, uid: &str) -> PathBuf {
        self.state_dir().join("pods").join(format!("{uid}.json"))
    }

    /// The process of a running pod.
    pub(crate) fn pid(&self, uid: &str) -> u64 {
        let bytes = fs::read(self.record(uid)).unwrap();
        let record: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
        record["state"]["running"]["pid"].as_u64().unwrap()
    }

    fn namespaces(&self) -> Vec<PathBuf> {
        let prefix = format!("/run/netns/{}-", self.node);
        let files = fs::read_dir("/run/netns").into_iter().flatten().flatten();
        let paths = files.map(|file| file.path());
        paths
            .filter(|path| path.to_string_lossy().starts_with(&prefix))
            .collect()
    }

    pub(crate) fn assert_nothing_is_left(&self, uid: &str) {
        assert!(
            !self.cgroup.join(format!("pod-{uid}")).exists(),
            "its cgroup is gone"
        );
        assert!(self.namespaces().is_empty(), "its namespace is gone");
        assert!(!self.record(uid).exists(), "its record is gone");
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        let _ = fs::write(self.cgroup.join("cgroup.kill"), "1");
        for pod in fs::read_dir(&self.cgroup).into_iter().flatten().flatten() {
            wait("a cgroup to empty", || {
                !pod.path().is_dir() || fs::remove_dir(pod.path()).is_ok()
            });
        }
        let _ = fs::remove_dir(&self.cgroup);
        for file in self.namespaces() {
            let _ = nix::mount::umount(&file);
            let _ = fs::remove_file(&file);
        }
    }
}
