//! The request of `dormouse-agent deny` and the agent's reply: one of each per connection, as JSON, ended by closing that direction.

use std::io::{self, Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Bytes of a request at most: some 20,000 prefixes. Longer lists belong into a file.
pub const REQUEST_BYTES_MAX: u64 = 1 << 20;
/// Longest wait for the reply: a list of a million prefixes is replaced in seconds.
const REPLY_DEADLINE: Duration = Duration::from_mins(1);

/// A change of the deny list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub enum Request {
    /// Deny these prefixes, too; one that is denied already gets the new end.
    Add {
        /// The prefixes.
        prefixes: Vec<String>,
        /// For so many seconds; none: without end.
        seconds: Option<u64>,
    },
    /// Deny these prefixes no longer.
    Remove {
        /// The prefixes.
        prefixes: Vec<String>,
    },
}

/// The agent's reply.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Reply {
    /// The change is in force.
    Done,
    /// Nothing was changed.
    Refused(String),
}

/// The socket for these requests, beside that of the plugin.
pub fn socket(plugin: &Path) -> PathBuf {
    plugin.with_file_name("deny.sock")
}

/// Sends a request to the agent and returns its reply.
pub fn ask(socket: &Path, request: &Request) -> io::Result<Reply> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(REPLY_DEADLINE))?;
    stream.set_write_timeout(Some(REPLY_DEADLINE))?;
    stream.write_all(&serde_json::to_vec(request)?)?;
    stream.shutdown(Shutdown::Write)?;
    let mut reply = Vec::new();
    stream.read_to_end(&mut reply)?;
    Ok(serde_json::from_slice(&reply)?)
}
