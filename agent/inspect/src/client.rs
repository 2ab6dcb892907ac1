//! Reads from the running agent, over HTTP at its metrics address.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde::de::DeserializeOwned;

use super::{Exit, InspectError};

/// Limit for connecting: the agent is on the same machine.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Limit for the response; a large change can delay it.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(15);

/// Reads a path of the agent, as JSON. `what` names the data in error messages.
pub fn read<T: DeserializeOwned>(
    agent: SocketAddr,
    path: &str,
    what: &str,
) -> Result<T, InspectError> {
    let answer = status(agent, path).map_err(|error| unreachable(agent, what, &error))?;
    let (status, body) = answer;
    let other = |why: &str| {
        let message = format!("cannot read {what}: the server at {agent} {why}");
        let hint = "give the agent's metrics address with --metrics, and use the same version as the agent";
        InspectError::new(Exit::Unreachable, message, hint)
    };
    if status == 503 {
        let message = format!(
            "cannot read {what}: the agent at {agent} is not ready: {}",
            body.trim()
        );
        let hint = "the agent's log has the same reason; it ends by itself when the reason does";
        return Err(InspectError::new(Exit::Unreachable, message, hint));
    }
    if status != 200 {
        return Err(other(&format!("answered {status}")));
    }
    serde_json::from_str(&body)
        .map_err(|error| other(&format!("sent an unexpected document: {error}")))
}

/// The status and the text with which the agent answers a path.
pub fn status(agent: SocketAddr, path: &str) -> std::io::Result<(u16, String)> {
    let answer = ask(agent, path)?;
    let text = String::from_utf8_lossy(&answer);
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok());
    let status = status.ok_or_else(|| std::io::Error::other("the answer is not of HTTP"))?;
    Ok((status, body.to_owned()))
}

fn ask(agent: SocketAddr, path: &str) -> std::io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect_timeout(&agent, CONNECT_TIMEOUT)?;
    stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
    stream.set_write_timeout(Some(ANSWER_TIMEOUT))?;
    // HTTP/1.0: the response ends with the connection, and is not chunked.
    let request =
        format!("GET {path} HTTP/1.0\r\nHost: {agent}\r\nAccept: application/json\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    Ok(answer)
}

fn unreachable(agent: SocketAddr, what: &str, error: &std::io::Error) -> InspectError {
    InspectError::new(
        Exit::Unreachable,
        format!("cannot read {what}: no agent answers at {agent}: {error}"),
        "systemctl status dormouse-agent; or give its metrics address with --metrics ADDRESS:PORT",
    )
}

/// Percent-encodes a query parameter.
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
    fn an_unreachable_agent_is_reported_with_its_flag() {
        let closed = SocketAddr::from(([127, 0, 0, 1], 1));
        let error = read::<serde_json::Value>(closed, "/services", "services").unwrap_err();
        assert_eq!(error.exit, Exit::Unreachable);
        assert!(error.message.contains("127.0.0.1:1"), "{error}");
        assert!(error.hint.contains("--metrics"), "{error}");
    }

    #[test]
    fn names_cannot_break_out_of_a_query() {
        assert_eq!(encoded("a-b.c&d=é"), "a-b.c%26d%3D%C3%A9");
    }
}
