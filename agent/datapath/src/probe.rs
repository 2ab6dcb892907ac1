//! The check whether this kernel and this user can run the data path; pure.

use nix::errno::Errno;

/// A step that the kernel may refuse.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Creating a map or loading a program.
    Load,
    /// Attaching to ingress or egress of the uplink by a TCX link.
    AttachTcx,
    /// Attaching to the node's cgroup.
    AttachCgroup,
}

/// The facts that the check uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Findings {
    /// The agent runs as root.
    pub root: bool,
    /// The step that failed, with the kernel's error number.
    pub failed: Option<(Step, i32)>,
}

/// Why the data path cannot run on this machine; the message contains the remedy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unsupported {
    /// Not root.
    #[error("the agent needs root to load BPF programs: run it as root, for instance by sudo")]
    NotRoot,
    /// No TCX.
    #[error("this kernel has no TCX: use Linux 6.6 or newer")]
    NoTcx,
    /// No bpf(2).
    #[error("this kernel has no bpf(2): use one built with CONFIG_BPF_SYSCALL")]
    NoBpf,
    /// bpf(2) is forbidden.
    #[error(
        "the kernel forbids bpf(2) even to root: a container needs CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON, and kernel \
         lockdown must not be in `confidentiality` mode"
    )]
    Forbidden,
    /// The cgroup is not of version 2.
    #[error("the kernel refuses the cgroup: give a folder of a cgroup2 file system with --cgroup")]
    NoCgroup2,
}

/// Checks the facts. A failure with another cause passes: it is reported by the caller.
pub fn judge(found: &Findings) -> Result<(), Unsupported> {
    if !found.root {
        return Err(Unsupported::NotRoot);
    }
    let Some((step, number)) = found.failed else {
        return Ok(());
    };
    match (step, Errno::from_raw(number)) {
        (_, Errno::ENOSYS) => Err(Unsupported::NoBpf),
        (_, Errno::EPERM | Errno::EACCES) => Err(Unsupported::Forbidden),
        (Step::AttachTcx, Errno::EINVAL | Errno::EOPNOTSUPP) => Err(Unsupported::NoTcx),
        (Step::AttachCgroup, Errno::EBADF | Errno::EINVAL) => Err(Unsupported::NoCgroup2),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(step: Step, number: i32, expected: &Result<(), Unsupported>) {
        assert_eq!(
            judge(&Findings {
                root: true,
                failed: Some((step, number))
            }),
            *expected
        );
    }

    #[test]
    fn a_kernel_before_6_6_refuses_tcx_with_einval_and_is_named_too_old() {
        check(Step::AttachTcx, libc::EINVAL, &Err(Unsupported::NoTcx));
        assert!(Unsupported::NoTcx.to_string().contains("6.6"));
    }

    #[test]
    fn errors_of_containers_and_of_unusual_kernels_are_distinguished() {
        check(Step::Load, libc::EPERM, &Err(Unsupported::Forbidden));
        check(Step::Load, libc::ENOSYS, &Err(Unsupported::NoBpf));
        check(
            Step::AttachCgroup,
            libc::EBADF,
            &Err(Unsupported::NoCgroup2),
        );
    }

    #[test]
    fn an_unrelated_failure_is_not_attributed_to_the_machine() {
        check(Step::Load, libc::EINVAL, &Ok(()));
        check(Step::AttachTcx, libc::EBUSY, &Ok(()));
        check(Step::AttachTcx, libc::ENODEV, &Ok(()));
    }

    #[test]
    fn without_root_the_check_fails_first() {
        assert_eq!(
            judge(&Findings {
                root: false,
                failed: None
            }),
            Err(Unsupported::NotRoot)
        );
        assert_eq!(
            judge(&Findings {
                root: true,
                failed: None
            }),
            Ok(())
        );
    }
}
