//! A relay between the agent and the API, which counts the agent's requests and open connections.

use std::net::{Ipv6Addr, SocketAddr, TcpListener as StdListener, TcpStream as StdStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Result;
use dormouse_world::Host;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// The beginnings of requests: the agent reads lists and watches, and writes its Node and Events.
const REQUESTS: [&[u8]; 4] = [b"GET /", b"PATCH /", b"POST /", b"PUT /"];

/// What the agent asks for.
#[derive(Debug, Default)]
struct Counts {
    requests: AtomicUsize,
    open: AtomicUsize,
}

/// A running relay.
pub(crate) struct Relay {
    /// Where the agent connects to.
    pub(crate) address: SocketAddr,
    counts: Arc<Counts>,
    /// Ends with the relay: its listener keeps the node's namespace.
    _accepting: JoinSet<()>,
}

impl Relay {
    /// Listens on a node's loopback address.
    pub(crate) fn start(node: &Host, api: SocketAddr) -> Result<Self> {
        let listener = node.enter(|| StdListener::bind((Ipv6Addr::LOCALHOST, 0)))??;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let counts = Arc::new(Counts::default());
        let (listener, node) = (TcpListener::from_std(listener)?, node.clone());
        let mut accepting = JoinSet::new();
        accepting.spawn(accept(listener, node, api, Arc::clone(&counts)));
        Ok(Self {
            address,
            counts,
            _accepting: accepting,
        })
    }

    /// Requests since the start.
    pub(crate) fn requests(&self) -> usize {
        self.counts.requests.load(Ordering::Relaxed)
    }

    /// Open connections: one for each watch, and one that the agent keeps for its writes, if it has made any lately.
    pub(crate) fn open(&self) -> usize {
        self.counts.open.load(Ordering::Relaxed)
    }
}

async fn accept(listener: TcpListener, node: Host, api: SocketAddr, counts: Arc<Counts>) {
    while let Ok((agent, _)) = listener.accept().await {
        let (node, counts) = (node.clone(), Arc::clone(&counts));
        tokio::spawn(async move {
            counts.open.fetch_add(1, Ordering::Relaxed);
            // A connection that breaks is the agent's to open again.
            let _ = pass(agent, &node, api, &counts).await;
            counts.open.fetch_sub(1, Ordering::Relaxed);
        });
    }
}

async fn pass(agent: TcpStream, node: &Host, api: SocketAddr, counts: &Counts) -> Result<()> {
    let server = node.enter(|| StdStream::connect(api))??;
    server.set_nonblocking(true)?;
    let (mut from_server, mut to_server) = TcpStream::from_std(server)?.into_split();
    let (mut from_agent, mut to_agent) = agent.into_split();
    let requests = async {
        let mut buffer = vec![0; 16 << 10];
        loop {
            let length = from_agent.read(&mut buffer).await?;
            if length == 0 {
                return std::io::Result::Ok(());
            }
            // The head of a request is smaller than a segment, and is written at once.
            let bytes = &buffer[..length];
            if REQUESTS.iter().any(|request| bytes.starts_with(request)) {
                counts.requests.fetch_add(1, Ordering::Relaxed);
            }
            to_server.write_all(bytes).await?;
        }
    };
    // Either end closes both.
    tokio::select! {
        ended = requests => ended?,
        ended = copy(&mut from_server, &mut to_agent) => drop(ended?),
    }
    Ok(())
}
