//! One request of a user, by hand: the `kube` crate would repeat some.

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::world::World;

/// The method of a request in HTTP, and the media type of its body. A PATCH merges; an APPLY is a PATCH that applies, a JSON one
/// that is a list of operations.
fn method_and_media(method: &str) -> (&str, &'static str) {
    match method {
        "PATCH" => ("PATCH", "application/merge-patch+json"),
        "APPLY" => ("PATCH", "application/apply-patch+yaml"),
        "JSON" => ("PATCH", "application/json-patch+json"),
        other => (other, "application/json"),
    }
}

/// Sends a request with the token `user` (empty: without), more header lines and a body (null: none); its status, and its body if that
/// is JSON.
pub(crate) async fn send(
    world: &World,
    (user, headers): (&str, &str),
    (method, target): (&str, &str),
    body: &Value,
) -> (u16, Value) {
    let address = world.endpoint.strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(address).await.unwrap();
    let token = match user {
        "" => String::new(),
        user => format!("Authorization: Bearer {user}\r\n"),
    };
    let (method, media) = method_and_media(method);
    let body = if body.is_null() {
        String::new()
    } else {
        body.to_string()
    };
    let request = format!(
        "{method} {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{token}{headers}Content-Type: {media}\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).await.unwrap();
    let (head, body) = response.split_once("\r\n\r\n").unwrap();
    let code = head.split(' ').nth(1).unwrap().parse().unwrap();
    (code, serde_json::from_str(body).unwrap_or_default())
}

/// Sends a request of a user.
pub(crate) async fn request(
    world: &World,
    user: &str,
    request: &str,
    body: &Value,
) -> (u16, Value) {
    let request = request.split_once(' ').unwrap();
    send(world, (user, ""), request, body).await
}

/// Repeats a request until it is answered with this code: the API follows the roles in the store.
pub(crate) async fn until(world: &World, user: &str, what: &str, code: u16) -> Value {
    loop {
        let (answered, body) = request(world, user, what, &json!({})).await;
        if answered == code {
            return body;
        }
        tokio::task::yield_now().await;
    }
}
