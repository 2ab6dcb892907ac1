//! The HTTP endpoints of a store, read over HTTP/1.1.

use std::io;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

/// The code and the body of the response to a GET; `address` is `HOST:PORT`.
pub async fn get(address: &str, path: &str) -> io::Result<(u16, String)> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: store\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut response = String::new();
    stream.read_to_string(&mut response).await?;
    parse(&response).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, response))
}

fn parse(response: &str) -> Option<(u16, String)> {
    let (head, body) = response.split_once("\r\n\r\n")?;
    let code = head.split(' ').nth(1)?.parse().ok()?;
    Some((code, body.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_is_split_into_code_and_body() {
        let response = "HTTP/1.1 503 Service Unavailable\r\nDate: x\r\n\r\nnot\r\n\r\nready";
        let parsed = parse(response);
        assert_eq!(parsed, Some((503, "not\r\n\r\nready".to_owned())));
        assert_eq!(parse("HTTP/1.1 200 OK\r\n"), None);
    }
}
