//! Control, as nodes see it: a fleet server with one app, which nodes meet by a packet to its VIP.

use std::net::{IpAddr, Ipv6Addr, TcpListener};

use dormouse_fleet::proto::{Activator, Entry, NodeConfig, VipRange, entry::Mode};
use dormouse_fleet::{Backend, Boottime, Event, Handle, Incoming, ServerConfig};
use dormouse_rig::Sockets;
use dormouse_world::{ACTING_PREFIX, CONTROL, World};
use tokio::runtime::Runtime;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::cluster::POD_PORT;

/// What an agent's command line has to name it.
pub(crate) const FLAGS: [&str; 2] = ["--control", "http://[::1]:7000"];
const PORT: u16 = 7_000;
/// The app's number in the range, and its VIP.
const APP: u32 = 7;
pub(crate) const APP_VIP: &str = "fd00:10::7";
pub(crate) const APP_PORT: u16 = 80;
/// More than there are nodes.
const CONNECTIONS_MAX: usize = 10;

/// Control; ends when dropped.
pub(crate) struct Control {
    _runtime: Runtime,
}

impl Control {
    /// Serves each node from its loopback address, where it may be plain text: the app has one pod, at this address.
    pub(crate) fn start(world: &World, pod: IpAddr) -> Self {
        let listen = || {
            let listener = TcpListener::bind((Ipv6Addr::LOCALHOST, PORT)).unwrap();
            listener.set_nonblocking(true).unwrap();
            listener
        };
        let nodes = world.nodes().iter();
        let listeners: Vec<_> = nodes
            .map(|node| Sockets::bare(&node.netns).inside(listen))
            .collect();
        let runtime = Runtime::new().unwrap();
        runtime.block_on(async {
            let shutdown = CancellationToken::new();
            let (handle, events) = dormouse_fleet::start(config(), shutdown.clone());
            handle.confirmed(Boottime(u64::MAX));
            for listener in listeners {
                let listener = tokio::net::TcpListener::from_std(listener).unwrap();
                let incoming = Incoming::new(listener, CONNECTIONS_MAX);
                tokio::spawn(dormouse_fleet::serve(
                    incoming,
                    handle.clone(),
                    shutdown.clone(),
                ));
            }
            tokio::spawn(answer(handle, events, pod));
        });
        Self { _runtime: runtime }
    }
}

fn config() -> ServerConfig {
    let range = VipRange {
        prefix: "fd00:10::/108".into(),
        base: 0,
    };
    // Nodes ask for no VIP without one.
    let activator = Activator {
        prefix: format!("{ACTING_PREFIX}/96"),
        via: CONTROL.to_string(),
        health: String::new(),
    };
    let config = NodeConfig {
        vip_ranges: vec![range],
        activators: vec![activator],
        ..NodeConfig::default()
    };
    ServerConfig::new(1, config)
}

/// Answers nodes that want to follow VIPs.
async fn answer(handle: Handle, mut events: mpsc::Receiver<Event>, pod: IpAddr) {
    while let Some(event) = events.recv().await {
        let Event::Wanted { vips } = event else {
            continue;
        };
        for vip in vips {
            if vip == APP {
                handle.publish(entry(pod));
            } else {
                handle.absent(vip);
            }
        }
    }
}

fn entry(pod: IpAddr) -> Entry {
    let IpAddr::V6(pod) = pod else {
        panic!("pods of apps have IPv6 addresses");
    };
    let backend = Backend {
        prefix: pod.octets()[..12].try_into().unwrap(),
        host: u32::from_be_bytes(pod.octets()[12..].try_into().unwrap()),
        port: POD_PORT,
        generation: 1,
        flags: 0,
        weight: 1,
    };
    Entry {
        vip: APP,
        version: 1,
        mode: Mode::Serve.into(),
        port: APP_PORT.into(),
        backends: Backend::pack(&[backend]),
        ..Entry::default()
    }
}
