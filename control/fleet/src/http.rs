//! Accepted connections as the listener of an axum server, whose routes find the client as `ConnectInfo<Peer>`.

use std::io;
use std::net::SocketAddr;

use axum::extract::connect_info::Connected;
use axum::serve::{IncomingStream, Listener};

use crate::incoming::{Connection, Incoming, Peer};

impl Listener for Incoming {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection, SocketAddr) {
        Self::accept(self).await
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Self::local_addr(self)
    }
}

impl Connected<IncomingStream<'_, Incoming>> for Peer {
    fn connect_info(stream: IncomingStream<'_, Incoming>) -> Self {
        stream.io().peer().clone()
    }
}
