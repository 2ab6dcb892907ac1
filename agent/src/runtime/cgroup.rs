//! A pod's cgroup, which contains all processes of the pod, limits them, and is used to kill them.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;
use std::time::Duration;

use tracing::warn;

use super::spec::Limits;

/// Number of attempts to remove a cgroup that still has processes, and the pause between them.
const REMOVE_TRIES: u32 = 200;
const REMOVE_PAUSE: Duration = Duration::from_millis(10);

/// The controllers of the pods' limits.
const CONTROLLERS: [&str; 3] = ["cpu", "memory", "pids"];

/// Enables the controllers of limits for the pods' cgroups, below that of the node.
pub(super) fn enable(node: &Path) {
    let known = fs::read_to_string(node.join("cgroup.controllers")).unwrap_or_default();
    let is_known = |name: &str| known.split_whitespace().any(|known| known == name);
    let enable = |name: &str| fs::write(node.join("cgroup.subtree_control"), format!("+{name}"));
    let mut missing = CONTROLLERS.to_vec();
    missing.retain(|name| !is_known(name) || enable(name).is_err());
    let missing = missing.join(", ");
    if !missing.is_empty() {
        warn!(cgroup = %node.display(), missing, "the cgroup has no such controllers for its children: these limits of pods are not enforced");
    }
}

/// Sets the limits of a pod. Those without a controller are left out: [`enable`] has warned of them.
pub(super) fn limit(path: &Path, limits: &Limits) -> io::Result<()> {
    for (name, text) in &limits.0 {
        match File::options().write(true).open(path.join(name)) {
            Ok(mut file) => file.write_all(text.as_bytes())?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Whether the kernel has killed a process of the cgroup for its limit of memory.
pub(super) fn has_killed(path: &Path) -> bool {
    let events = fs::read_to_string(path.join("memory.events")).unwrap_or_default();
    has_exceeded(&events)
}

/// A kill for the memory of the node counts as one, too (cgroup-v2.rst), but the limit was not reached then.
fn has_exceeded(events: &str) -> bool {
    let is_counted = |name| {
        let mut lines = events.lines();
        let count = lines.find_map(|line| line.strip_prefix(name));
        count.is_some_and(|count| count != "0")
    };
    is_counted("oom ") && is_counted("oom_kill ")
}

/// Creates the cgroup.
pub(super) fn make(path: &Path) -> io::Result<()> {
    fs::create_dir_all(path)
}

/// Kills all processes of the cgroup and removes it. A cgroup that does not exist is no error.
pub(super) async fn remove(path: &Path) -> io::Result<()> {
    for _ in 0..REMOVE_TRIES {
        kill(path)?;
        match fs::remove_dir(path) {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
                tokio::time::sleep(REMOVE_PAUSE).await;
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            other => return other,
        }
    }
    Err(io::Error::from(io::ErrorKind::ResourceBusy))
}

/// Kills all processes of the cgroup at once (cgroup.kill, Linux 5.14).
pub(super) fn kill(path: &Path) -> io::Result<()> {
    match fs::write(path.join("cgroup.kill"), "1") {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_written_where_the_cgroup_has_them() {
        let cgroup = tempfile::tempdir().unwrap();
        let file = |name: &str| cgroup.path().join(name);
        fs::write(file("pids.max"), "").unwrap();
        let limits = Limits(vec![
            ("pids.max", "9".into()),
            ("memory.max", "4096".into()),
        ]);
        limit(cgroup.path(), &limits).unwrap();
        assert_eq!(fs::read_to_string(file("pids.max")).unwrap(), "9");
        assert!(!file("memory.max").exists());
    }

    #[test]
    fn a_pod_without_memory_is_recognised_by_the_kernels_count() {
        let cgroup = tempfile::tempdir().unwrap();
        assert!(!has_killed(cgroup.path()));
        // Without `oom`, the node had no memory.
        for (oom, kills, expected) in [(1, 0, false), (1, 2, true), (0, 1, false)] {
            let events = format!("low 0\nmax 7\noom {oom}\noom_kill {kills}\noom_group_kill 0\n");
            fs::write(cgroup.path().join("memory.events"), events).unwrap();
            assert_eq!(has_killed(cgroup.path()), expected, "{oom} {kills}");
        }
    }
}
