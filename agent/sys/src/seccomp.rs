//! Filters of system calls (seccomp): a list of calls that a process and its children are refused.
#![expect(unsafe_code, reason = "seccomp(2) has no safe form")]

use std::io;

use libc::sock_filter;

/// The namespaces that clone(2) can make (linux/sched.h): mount, cgroup, UTS, IPC, user, PID, network.
const NAMESPACES: u32 = 0x7E02_0000;
/// Calls with this bit are of another ABI, x32, with other numbers (asm/unistd.h).
#[cfg(target_arch = "x86_64")]
const X32: u32 = 0x4000_0000;

/// `AUDIT_ARCH_*` (linux/audit.h) of this program.
#[cfg(target_arch = "x86_64")]
const ARCH: u32 = 0xC000_003E;
#[cfg(target_arch = "aarch64")]
const ARCH: u32 = 0xC000_00B7;

/// Offsets in `struct seccomp_data` (linux/seccomp.h); the argument's low half, on little-endian machines.
const NUMBER_AT: u32 = 0;
const ARCH_AT: u32 = 4;
const FIRST_ARGUMENT_AT: u32 = 16;

const ALLOW: u32 = libc::SECCOMP_RET_ALLOW;
const REFUSE: u32 = libc::SECCOMP_RET_ERRNO | libc::EPERM.unsigned_abs();
const UNKNOWN: u32 = libc::SECCOMP_RET_ERRNO | libc::ENOSYS.unsigned_abs();

/// A system call: its name and number.
pub type Call = (&'static str, libc::c_long);

/// What is refused.
#[derive(Clone, Copy, Debug)]
pub struct List {
    /// Calls that fail with EPERM.
    pub calls: &'static [Call],
    /// Namespaces cannot be made by clone(2) either; clone3(2), whose flags a filter cannot read, is unknown (ENOSYS), and the C
    /// library then uses clone(2).
    pub namespaces: bool,
}

/// Installs the filter for the calling thread and what it starts. Needs `no_new_privs`, or CAP_SYS_ADMIN. Calls of other ABIs of the
/// machine are unknown (ENOSYS).
pub fn install(list: &List) -> io::Result<()> {
    let mut filter = program(list)?;
    let program = libc::sock_fprog {
        len: u16::try_from(filter.len()).map_err(io::Error::other)?,
        filter: filter.as_mut_ptr(),
    };
    // All threads get it, or none.
    let flags = libc::SECCOMP_FILTER_FLAG_TSYNC;
    // SAFETY: the kernel copies the program, which is `len` instructions long.
    let result = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            flags,
            &raw const program,
        )
    };
    match result {
        0 => Ok(()),
        error if error < 0 => Err(io::Error::last_os_error()),
        thread => Err(io::Error::other(format!(
            "thread {thread} has another filter"
        ))),
    }
}

fn program(list: &List) -> io::Result<Vec<sock_filter>> {
    let mut program = vec![
        load(ARCH_AT),
        jump(libc::BPF_JEQ, ARCH, 1, 0),
        give(UNKNOWN),
    ];
    program.push(load(NUMBER_AT));
    #[cfg(target_arch = "x86_64")]
    program.extend([jump(libc::BPF_JGE, X32, 0, 1), give(UNKNOWN)]);
    for (_name, number) in list.calls {
        let number = u32::try_from(*number).map_err(io::Error::other)?;
        program.extend([jump(libc::BPF_JEQ, number, 0, 1), give(REFUSE)]);
    }
    if list.namespaces {
        let [clone, clone3] = [libc::SYS_clone, libc::SYS_clone3].map(u32::try_from);
        let (clone, clone3) = (
            clone.map_err(io::Error::other)?,
            clone3.map_err(io::Error::other)?,
        );
        program.extend([jump(libc::BPF_JEQ, clone3, 0, 1), give(UNKNOWN)]);
        program.extend([jump(libc::BPF_JEQ, clone, 0, 3), load(FIRST_ARGUMENT_AT)]);
        program.extend([jump(libc::BPF_JSET, NAMESPACES, 0, 1), give(REFUSE)]);
    }
    program.push(give(ALLOW));
    Ok(program)
}

fn load(at: u32) -> sock_filter {
    instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, at, 0, 0)
}

fn give(verdict: u32) -> sock_filter {
    instruction(libc::BPF_RET | libc::BPF_K, verdict, 0, 0)
}

fn jump(compare: u32, with: u32, jt: u8, jf: u8) -> sock_filter {
    instruction(libc::BPF_JMP | compare | libc::BPF_K, with, jt, jf)
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "codes of instructions have 16 bits"
)]
fn instruction(code: u32, k: u32, jt: u8, jf: u8) -> sock_filter {
    let code = code as u16;
    sock_filter { code, jt, jf, k }
}

#[cfg(test)]
mod tests {
    use nix::errno::Errno;
    use nix::sched::{CloneFlags, unshare};
    use nix::sys::wait::{WaitStatus, waitpid};
    use nix::unistd::{ForkResult, fork};

    use super::*;

    #[test]
    fn calls_of_the_list_are_refused_and_all_others_work() {
        let list = List {
            calls: &[("unshare", libc::SYS_unshare)],
            namespaces: true,
        };
        // A filter stays: another process gets it.
        // SAFETY: the child makes system calls only.
        let child = match unsafe { fork() }.unwrap() {
            ForkResult::Child => {
                // SAFETY: ends the child.
                unsafe { libc::_exit(refused(&list)) }
            }
            ForkResult::Parent { child } => child,
        };
        assert_eq!(waitpid(child, None).unwrap(), WaitStatus::Exited(child, 0));
    }

    /// 0, or the step that failed.
    fn refused(list: &List) -> i32 {
        nix::sys::prctl::set_no_new_privs().unwrap();
        if install(list).is_err() {
            return 1;
        }
        if unshare(CloneFlags::CLONE_NEWUTS) != Err(Errno::EPERM) {
            return 2;
        }
        // SAFETY: refused, so there is no child.
        let made = unsafe { libc::syscall(libc::SYS_clone, libc::CLONE_NEWUSER, 0, 0, 0, 0) };
        if made != -1 || Errno::last() != Errno::EPERM {
            return 3;
        }
        // SAFETY: the child ends at once.
        match unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) } {
            // SAFETY: ends the child.
            0 => unsafe { libc::_exit(0) },
            child if child > 0 => 0,
            _error => 4,
        }
    }
}
