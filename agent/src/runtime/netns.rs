//! A pod's network namespace: made on a thread of its own, kept alive by a file in `/run/netns`.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use rtnetlink::LinkUnspec;

/// The loopback's index in every namespace.
const LOOPBACK: u32 = 1;

/// Makes a namespace with its loopback up, bound to `path`.
pub(super) async fn make(path: &Path) -> io::Result<()> {
    let path = path.to_owned();
    // The thread ends with the call: no other task ever runs in the pod's namespace.
    let made =
        tokio::task::spawn_blocking(move || std::thread::spawn(move || make_here(&path)).join());
    made.await?
        .map_err(|_panic| io::Error::other("the thread that makes a namespace panicked"))?
}

fn make_here(path: &Path) -> io::Result<()> {
    if let Some(dir) = path.parent() {
        fs::create_dir_all(dir)?;
    }
    unshare(CloneFlags::CLONE_NEWNET)?;
    raise_loopback()?;
    File::create(path)?;
    let here = "/proc/thread-self/ns/net";
    Ok(mount(
        Some(here),
        path,
        None::<&str>,
        MsFlags::MS_BIND,
        None::<&str>,
    )?)
}

/// No CNI plugin of ours cares for it, and programs expect `::1`.
fn raise_loopback() -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()?;
    runtime.block_on(async {
        let (connection, handle, _) = rtnetlink::new_connection()?;
        tokio::spawn(connection);
        let up = LinkUnspec::new_with_index(LOOPBACK).up().build();
        handle
            .link()
            .set(up)
            .execute()
            .await
            .map_err(io::Error::other)
    })
}

/// Lets go of a namespace; the kernel ends it with its last process. One that does not exist is done.
pub(super) fn remove(path: &Path) -> io::Result<()> {
    // EINVAL: not mounted, as after a death between making the file and binding it.
    match umount2(path, MntFlags::MNT_DETACH) {
        Ok(()) | Err(nix::Error::EINVAL | nix::Error::ENOENT) => {}
        Err(error) => return Err(error.into()),
    }
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}
