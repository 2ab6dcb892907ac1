//! Processes that the rig needs beside the test's: the test program once more, with a role.
//!
//! A test program that needs them has an ignored test named [`TEST`] that calls [`play`].

use std::env;
use std::io::{self, Read as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use dormouse_world::{Program, World, WorldError};

use crate::sockets;

/// The name of the test that plays a role.
pub const TEST: &str = "process_of_the_rig";
/// Which role, and what it needs to know.
const ROLE: &str = "DORMOUSE_RIG_ROLE";
const OF: &str = "DORMOUSE_RIG_ROLE_OF";
/// How long the test program may need to end once its pipes are closed.
const END_LIMIT: Duration = Duration::from_secs(30);

const ARGUMENTS: [&str; 4] = [TEST, "--exact", "--ignored", "--nocapture"];

/// Opens sockets for the test.
pub(crate) const OPENER: &str = "opener";
/// Removes a world when the test program has ended.
const REMOVER: &str = "remover";

/// Plays the role that this process was started for. Without one there is nothing to do.
pub fn play() -> io::Result<()> {
    let of = env::var(OF).unwrap_or_default();
    match env::var(ROLE).as_deref() {
        Ok(OPENER) => sockets::open_for(&of),
        Ok(REMOVER) => remove(&of),
        _ => Ok(()),
    }
}

/// The program of a role, for a host of a world.
pub(crate) fn program(role: &str, of: &str) -> Program {
    let program = Program::new(env::current_exe().expect("the running test"));
    program.args(ARGUMENTS).env(ROLE, role).env(OF, of)
}

/// Starts a process that removes the world of this prefix when the calling process has ended, whatever way.
pub(crate) fn remove_at_end(prefix: &str) -> Child {
    Command::new(env::current_exe().expect("the running test"))
        .args(ARGUMENTS)
        .envs([(ROLE, REMOVER), (OF, prefix)])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        // A signal from the keyboard ends the test, and not its remover.
        .process_group(0)
        .spawn()
        .expect("the running test starts once more")
}

/// Waits for the end of the process that holds the other end of the standard input.
fn remove(prefix: &str) -> io::Result<()> {
    io::stdin().read_to_end(&mut Vec::new())?;
    let deadline = Instant::now() + END_LIMIT;
    loop {
        match World::clear(prefix) {
            // The claim on the world's name is closed a moment later than the pipe.
            Err(WorldError::InUse { .. }) if Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(5));
            }
            cleared => return cleared.map_err(io::Error::other),
        }
    }
}
