//! The rights that `dormouse-agent run` gives up at its start, before it has threads: capabilities, core dumps, system calls.

use std::io;

use anyhow::{Context, Result};
use dormouse_agent_sys::seccomp::{self, List};
use nix::sys::prctl::{set_dumpable, set_no_new_privs};
use rustix::process::{Resource, Rlimit, setrlimit};
use rustix::thread::CapabilitySet;

use crate::capabilities;

/// A capability, and what needs it.
type Needed = (CapabilitySet, &'static str);

/// Capabilities of every agent.
const ALL: [Needed; 7] = [
    (
        CapabilitySet::NET_ADMIN,
        "links, routes, neighbours, sysctls of the network; programs at links and cgroups",
    ),
    (
        CapabilitySet::NET_RAW,
        "unsolicited neighbour advertisements",
    ),
    (
        CapabilitySet::NET_BIND_SERVICE,
        "ports of pods on the node, of health checks and of metrics may be below 1024",
    ),
    (CapabilitySet::BPF, "to load programs and create maps"),
    (
        CapabilitySet::PERFMON,
        "to load programs that read packets at offsets of their own",
    ),
    (
        CapabilitySet::SYS_ADMIN,
        "to enter the network namespaces of pods, and to make the namespaces and mounts of those that it runs",
    ),
    (
        CapabilitySet::SYS_PTRACE,
        "to find the network namespaces of pods that run",
    ),
];

/// Further ones of an agent that runs pods itself; `pod-init` gives them up.
const STANDALONE: [Needed; 8] = [
    (
        CapabilitySet::CHOWN,
        "the FIFO of a pod's log is its user's",
    ),
    (
        CapabilitySet::DAC_OVERRIDE,
        "to open it, and what other files pods' users have",
    ),
    (CapabilitySet::KILL, "to end processes of pods' users"),
    (CapabilitySet::MKNOD, "the devices of pods"),
    (CapabilitySet::SETGID, "the group of a pod"),
    (CapabilitySet::SETUID, "the user of a pod"),
    (CapabilitySet::SETPCAP, "to limit the capabilities of a pod"),
    (
        CapabilitySet::SYS_CHROOT,
        "to enter the mount namespace of pods",
    ),
];

/// Calls that neither the agent nor a program that it starts needs, pods included: those that change the kernel or the machine's clock.
const DENIED: List = List {
    calls: &[
        ("acct", libc::SYS_acct),
        ("clock_adjtime", libc::SYS_clock_adjtime),
        ("clock_settime", libc::SYS_clock_settime),
        ("delete_module", libc::SYS_delete_module),
        ("finit_module", libc::SYS_finit_module),
        ("init_module", libc::SYS_init_module),
        ("kexec_file_load", libc::SYS_kexec_file_load),
        ("kexec_load", libc::SYS_kexec_load),
        ("open_by_handle_at", libc::SYS_open_by_handle_at),
        ("quotactl", libc::SYS_quotactl),
        ("reboot", libc::SYS_reboot),
        ("settimeofday", libc::SYS_settimeofday),
        ("swapoff", libc::SYS_swapoff),
        ("swapon", libc::SYS_swapon),
        ("syslog", libc::SYS_syslog),
        ("userfaultfd", libc::SYS_userfaultfd),
    ],
    namespaces: false,
};

/// Gives up what an agent does not need; `runs_pods`: it runs pods itself. Its threads and children have no more.
pub(crate) fn confine(runs_pods: bool) -> Result<()> {
    forbid_dumps().context("failed to forbid core dumps")?;
    capabilities::reduce(kept(runs_pods)).context("failed to drop capabilities")?;
    set_no_new_privs().context("failed to set no_new_privs")?;
    seccomp::install(&DENIED).context("failed to filter system calls")
}

fn kept(runs_pods: bool) -> CapabilitySet {
    let standalone = if runs_pods { &STANDALONE[..] } else { &[] };
    let needed = ALL.iter().chain(standalone);
    needed.map(|(capability, _why)| *capability).collect()
}

/// The node's key is in the agent's memory: no core dump has it, and no process of the agent's user may read it.
fn forbid_dumps() -> io::Result<()> {
    set_dumpable(false)?;
    let none = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    setrlimit(Resource::Core, none)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_capability_is_named_once_with_its_reason() {
        let all = || ALL.iter().chain(&STANDALONE);
        assert_eq!(all().count(), kept(true).iter().count());
        assert!(all().all(|(one, why)| one.iter().count() == 1 && !why.is_empty()));
        assert!(!kept(false).contains(CapabilitySet::SETUID));
        let never = CapabilitySet::SYS_MODULE | CapabilitySet::SYS_RAWIO | CapabilitySet::SYS_BOOT;
        assert!(!kept(true).intersects(never));
    }

    #[test]
    fn calls_that_change_the_kernel_are_denied() {
        let names: Vec<&str> = DENIED.calls.iter().map(|(name, _)| *name).collect();
        let expected = [
            "acct",
            "clock_adjtime",
            "clock_settime",
            "delete_module",
            "finit_module",
            "init_module",
            "kexec_file_load",
            "kexec_load",
            "open_by_handle_at",
            "quotactl",
            "reboot",
            "settimeofday",
            "swapoff",
            "swapon",
            "syslog",
            "userfaultfd",
        ];
        assert_eq!(names, expected);
    }

    #[test]
    fn no_core_dump_is_written() {
        forbid_dumps().unwrap();
        assert!(!nix::sys::prctl::get_dumpable().unwrap());
        let limit = rustix::process::getrlimit(Resource::Core);
        assert_eq!((limit.current, limit.maximum), (Some(0), Some(0)));
    }
}
