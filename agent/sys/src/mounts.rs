//! Mount namespaces: one that is made on a thread, and the attributes of all its mounts.
#![expect(unsafe_code, reason = "mount_setattr(2) has no safe form")]

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use nix::mount::MsFlags;
use nix::sched::{CloneFlags, unshare};

use crate::netns::on_a_thread;

/// `struct mount_attr` (linux/mount.h).
#[repr(C)]
#[derive(Default)]
struct MountAttr {
    attr_set: u64,
    attr_clr: u64,
    propagation: u64,
    userns_fd: u64,
}

/// `MOUNT_ATTR_RDONLY`, `MOUNT_ATTR_NOSUID` and `MOUNT_ATTR_NODEV` (linux/mount.h).
const SEALED: u64 = 1 | 2 | 4;
/// `AT_RECURSIVE` (linux/fcntl.h).
const RECURSIVE: u32 = 0x8000;

/// Makes a mount namespace with a copy of this one's mounts, which `build` changes on a thread that is inside. It lives as long as the
/// descriptor, or a process in it.
pub fn namespace(build: impl FnOnce() -> io::Result<()> + Send) -> io::Result<OwnedFd> {
    on_a_thread(|| {
        unshare(CloneFlags::CLONE_NEWNS)?;
        // Opened first: `build` may remove /proc.
        let namespace = File::open("/proc/thread-self/ns/mnt")?;
        build()?;
        Ok(namespace.into())
    })
}

/// Makes the mount at `path` and all below it private and read-only, without devices and set-user-id programs (Linux 5.12).
pub fn seal(path: &Path) -> io::Result<()> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let attributes = MountAttr {
        attr_set: SEALED,
        propagation: MsFlags::MS_PRIVATE.bits(),
        ..MountAttr::default()
    };
    // SAFETY: the kernel reads `path`, which ends with NUL, and `attributes` of the given size.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            libc::AT_FDCWD,
            path.as_ptr(),
            RECURSIVE,
            &raw const attributes,
            size_of::<MountAttr>(),
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_mounts_of_a_sealed_namespace_are_read_only_and_the_machines_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        namespace(|| {
            seal(Path::new("/"))?;
            let refused = fs::write(&file, "").unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::ReadOnlyFilesystem);
            Ok(())
        })
        .unwrap();
        fs::write(&file, "").unwrap();
    }
}
