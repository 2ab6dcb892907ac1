//! Asks the running agent, at the address where it serves metrics.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde::de::DeserializeOwned;

use super::{Exit, Trouble};

/// An agent on the same machine takes a connection at once, or not at all.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// An agent that is busy with a change may stay silent for a while.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(15);

/// Reads a path of the agent's, as JSON. `what` names it for people.
pub fn read<T: DeserializeOwned>(agent: SocketAddr, path: &str, what: &str) -> Result<T, Trouble> {
    let answer = ask(agent, path).map_err(|error| unreachable(agent, what, &error))?;
    let text = String::from_utf8_lossy(&answer);
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head.split(' ').nth(1).unwrap_or_default();
    let other = |why: &str| {
        let message = format!("cannot read {what}: what answers at {agent} {why}");
        let hint = "give the agent's own address by --metrics, and use one version on both sides";
        Trouble::new(Exit::Unreachable, message, hint)
    };
    if status != "200" {
        return Err(other(&format!("says {status:?}")));
    }
    serde_json::from_str(body).map_err(|error| other(&format!("is not understood: {error}")))
}

fn ask(agent: SocketAddr, path: &str) -> std::io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect_timeout(&agent, CONNECT_TIMEOUT)?;
    stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
    stream.set_write_timeout(Some(ANSWER_TIMEOUT))?;
    // HTTP/1.0: the answer ends with the connection, and comes in one piece.
    let request =
        format!("GET {path} HTTP/1.0\r\nHost: {agent}\r\nAccept: application/json\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    Ok(answer)
}

fn unreachable(agent: SocketAddr, what: &str, error: &std::io::Error) -> Trouble {
    Trouble::new(
        Exit::Unreachable,
        format!("cannot read {what}: no agent answers at {agent}: {error}"),
        "systemctl status dormouse-agent; or name its address by --metrics ADDRESS:PORT",
    )
}

/// A name in a query of an address.
pub fn encoded(text: &str) -> String {
    let encode = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' => {
            char::from(byte).to_string()
        }
        other => format!("%{other:02X}"),
    };
    text.bytes().map(encode).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_that_is_not_there_is_named_with_its_flag() {
        let nobody = SocketAddr::from(([127, 0, 0, 1], 1));
        let trouble = read::<serde_json::Value>(nobody, "/services", "services").unwrap_err();
        assert_eq!(trouble.exit, Exit::Unreachable);
        assert!(trouble.message.contains("127.0.0.1:1"), "{trouble}");
        assert!(trouble.hint.contains("--metrics"), "{trouble}");
    }

    #[test]
    fn names_cannot_break_out_of_a_query() {
        assert_eq!(encoded("a-b.c&d=é"), "a-b.c%26d%3D%C3%A9");
    }
}
