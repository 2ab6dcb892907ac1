//! Running processes of other service proxies.

use std::fs;
use std::path::Path;

/// The program's name, as the kernel has it.
const KUBE_PROXY: &str = "kube-proxy";

/// The process ids of kube-proxy, in all containers of this machine; none in a container without the machine's process ids.
pub(crate) fn kube_proxy() -> Vec<u32> {
    named(Path::new("/proc"), KUBE_PROXY)
}

fn named(proc: &Path, name: &str) -> Vec<u32> {
    let entries = fs::read_dir(proc).into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let is_named = |pid: &u32| {
        let comm = fs::read_to_string(proc.join(pid.to_string()).join("comm"));
        comm.is_ok_and(|comm| comm.trim_end() == name)
    };
    let mut found: Vec<u32> = pids.filter(is_named).collect();
    found.sort_unstable();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_are_found_by_their_whole_names() {
        let proc = tempfile::tempdir().unwrap();
        for (folder, comm) in [
            ("7", "kube-proxy"),
            ("12", "kube-proxy2"),
            ("self", "kube-proxy"),
            ("3", "kube-proxy"),
        ] {
            fs::create_dir(proc.path().join(folder)).unwrap();
            fs::write(proc.path().join(folder).join("comm"), format!("{comm}\n")).unwrap();
        }
        fs::create_dir(proc.path().join("9")).unwrap();
        assert_eq!(named(proc.path(), KUBE_PROXY), [3, 7]);
    }
}
