//! The end of a pipe to which a command writes (`| head -1`): a command that waits for changes would notice it with the next one only.

use std::io;
use std::os::fd::AsFd;
use std::thread;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use tokio::sync::oneshot;

/// Resolves when no process reads standard output any more; never if it is no pipe.
pub(super) async fn reader_gone() {
    let (sender, gone) = oneshot::channel();
    // It ends with the process: a task that blocks would delay the end of the runtime.
    thread::spawn(|| {
        if wait_for_hangup().is_ok() {
            // The command may have ended.
            let _ = sender.send(());
        }
    });
    if gone.await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// Errors and hang-ups are reported also if nothing is asked for.
fn wait_for_hangup() -> nix::Result<()> {
    let stdout = io::stdout();
    loop {
        let mut watched = [PollFd::new(stdout.as_fd(), PollFlags::empty())];
        match poll(&mut watched, PollTimeout::NONE) {
            Err(Errno::EINTR) => {}
            polled => return polled.map(drop),
        }
    }
}
