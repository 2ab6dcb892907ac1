//! Requests to apps without a ready pod, which the activator holds.

use std::net::{Ipv6Addr, SocketAddrV6};

use anyhow::{Context, Result};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::app::PORT;

/// The acting prefix of [`crate::place::ACTING_PREFIX`].
const PREFIX: u128 = 0x2001_0db8_00a1 << 80;

/// Requests that wait for their response until this is dropped.
pub(crate) struct Parked {
    _streams: Vec<TcpStream>,
}

impl Parked {
    /// Sends this many requests to each app.
    pub(crate) async fn at(vips: impl Iterator<Item = u32>, each: usize) -> Result<Self> {
        let mut streams = Vec::new();
        for vip in vips {
            for _ in 0..each {
                streams.push(request(vip).await?);
            }
        }
        Ok(Self { _streams: streams })
    }
}

async fn request(vip: u32) -> Result<TcpStream> {
    let address = Ipv6Addr::from(PREFIX | u128::from(vip));
    let socket = SocketAddrV6::new(address, PORT, 0, 0);
    let stream = TcpStream::connect(socket).await;
    let mut stream =
        stream.with_context(|| format!("the activator does not accept at {socket}"))?;
    stream
        .write_all(b"GET / HTTP/1.1\r\nHost: app.example\r\n\r\n")
        .await?;
    Ok(stream)
}
