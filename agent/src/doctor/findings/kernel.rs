//! The kernel and its file systems.

use super::super::facts::KernelFacts;
use super::super::report::{Finding, Level};

/// The first release with TCX links.
const RELEASE_MIN: (u32, u32) = (6, 6);

pub(super) fn examine(facts: &KernelFacts) -> Vec<Finding> {
    let problem = |check, found: String, reason: &str, fix: &str| {
        Finding::bad(Level::Problem, check, found, (reason, fix))
    };
    let release = match version(&facts.release) {
        Some(version) if version >= RELEASE_MIN => Finding::ok("kernel", &facts.release),
        _ => problem(
            "kernel",
            facts.release.clone(),
            "the programs are attached by TCX links, which Linux has since 6.6",
            "install Linux 6.6 or newer",
        ),
    };
    let btf = if facts.has_btf {
        Finding::ok("btf", "/sys/kernel/btf/vmlinux")
    } else {
        let reason = "the programs are loaded with the kernel's type information";
        let fix = "use a kernel that is built with CONFIG_DEBUG_INFO_BTF";
        problem("btf", "no /sys/kernel/btf/vmlinux".to_owned(), reason, fix)
    };
    let path = facts.cgroup.display();
    let cgroup = if facts.has_cgroup2 {
        Finding::ok("cgroup", format!("{path} is of version 2"))
    } else {
        let reason = "socket load balancing is attached to a cgroup of version 2";
        let fix =
            "boot with systemd.unified_cgroup_hierarchy=1, or give a cgroup2 folder with --cgroup";
        problem("cgroup", format!("{path} is not of version 2"), reason, fix)
    };
    let bpffs = if facts.has_bpffs {
        Finding::ok("bpffs", "/sys/fs/bpf is mounted")
    } else {
        let reason = "programs and maps are pinned there, so that they outlive the agent";
        let fix = "mount -t bpf bpf /sys/fs/bpf";
        problem(
            "bpffs",
            "no BPF file system at /sys/fs/bpf".to_owned(),
            reason,
            fix,
        )
    };
    vec![release, btf, cgroup, bpffs, clock(facts.is_synchronized)]
}

fn clock(is_synchronized: Option<bool>) -> Finding {
    match is_synchronized {
        Some(true) => Finding::ok("clock", "synchronized"),
        found => {
            let found = found.map_or(
                "it cannot be read whether it is synchronized",
                |_| "not synchronized",
            );
            let reason = "certificates and tokens of the API server are valid for a time, and logs of nodes are compared by it";
            let fix = "run an NTP client: systemctl enable --now systemd-timesyncd";
            Finding::bad(Level::Warning, "clock", found, (reason, fix))
        }
    }
}

/// Major and minor number of a release.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut parts = release.split(|c: char| !c.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}
