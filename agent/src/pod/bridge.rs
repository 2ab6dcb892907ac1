//! The bridge that the node's pods share: made or found as it shall be, with the gateway's address and the node's
//! prefix behind it.

use std::io;
use std::net::IpAddr;

use dormouse_agent_ipam::NodePrefix;
use futures::TryStreamExt;
use netlink_packet_route::address::{AddressAttribute, AddressFlags, AddressScope};
use netlink_packet_route::link::{BridgeStpState, LinkAttribute, LinkMessage};
use rtnetlink::{Handle, LinkBridge, LinkMessageBuilder, LinkUnspec, RouteMessageBuilder};

use super::messages::no_generated_addresses;
use super::names::BRIDGE_MAC;
use super::{GATEWAY, sysctl};

/// Why the bridge cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum BridgeError {
    /// The outer interface does not exist.
    #[error("there is no uplink `{0}`: name the node's outer interface")]
    NoUplink(String),
    /// The kernel refused.
    #[error("failed to {what} `{name}`")]
    Kernel {
        /// What was attempted.
        what: &'static str,
        /// The interface.
        name: String,
        /// The kernel's reason.
        #[source]
        source: rtnetlink::Error,
    },
    /// No routing socket.
    #[error("failed to open a routing socket")]
    Socket(#[source] io::Error),
    /// A setting could not be made.
    #[error(transparent)]
    Sysctl(#[from] sysctl::SysctlError),
}

/// The interfaces that pods are wired to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fabric {
    /// The bridge.
    pub bridge: u32,
    /// The outer interface.
    pub uplink: u32,
    /// Largest packet of both, in bytes.
    pub mtu: u32,
}

/// Makes the bridge, on a thread with a runtime of its own: this is the start, and callers may be inside another.
pub(crate) fn ensure(name: &str, uplink: &str, prefix: NodePrefix) -> Result<Fabric, BridgeError> {
    let work = || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        runtime.map_err(BridgeError::Socket)?.block_on(async {
            let (connection, handle, _) =
                rtnetlink::new_connection().map_err(BridgeError::Socket)?;
            tokio::spawn(connection);
            Bridge { name, handle }.ensure(uplink, prefix).await
        })
    };
    std::thread::scope(|scope| {
        let joined = scope.spawn(work).join();
        joined.unwrap_or_else(|_| Err(BridgeError::Socket(io::Error::other("bridge thread died"))))
    })
}

struct Bridge<'a> {
    name: &'a str,
    handle: Handle,
}

impl Bridge<'_> {
    async fn ensure(&self, uplink: &str, prefix: NodePrefix) -> Result<Fabric, BridgeError> {
        let missing = || BridgeError::NoUplink(uplink.to_owned());
        let outer = self.find(uplink).await.ok_or_else(missing)?;
        let mtu = mtu(&outer).unwrap_or(1500);
        if self.find(self.name).await.is_none() {
            self.create(mtu).await?;
        }
        let found = self.find(self.name).await;
        let gone = || self.error("find", rtnetlink::Error::RequestFailed);
        let bridge = found.ok_or_else(gone)?.header.index;
        self.settle(bridge, mtu).await?;
        sysctl::quiet_bridge(self.name)?;
        self.address(bridge).await?;
        self.route(bridge, prefix).await?;
        Ok(Fabric {
            bridge,
            uplink: outer.header.index,
            mtu,
        })
    }

    async fn find(&self, name: &str) -> Option<LinkMessage> {
        let request = self.handle.link().get().match_name(name);
        request.execute().try_next().await.ok().flatten()
    }

    async fn create(&self, mtu: u32) -> Result<(), BridgeError> {
        let link = LinkMessageBuilder::<LinkBridge>::new(self.name)
            .mcast_snooping(false)
            .stp_state(BridgeStpState::Disabled)
            .forward_delay(0)
            .address(BRIDGE_MAC.to_vec())
            .mtu(mtu)
            .build();
        let made = self.handle.link().add(link).execute().await;
        made.map_err(|source| self.error("create bridge", source))
    }

    /// In two steps: an interface that comes up makes its own address unless it was told before not to.
    async fn settle(&self, bridge: u32, mtu: u32) -> Result<(), BridgeError> {
        let quiet = LinkUnspec::new_with_index(bridge)
            .address(BRIDGE_MAC.to_vec())
            .mtu(mtu)
            .append_extra_attribute(no_generated_addresses())
            .build();
        let up = LinkUnspec::new_with_index(bridge).up().build();
        for link in [quiet, up] {
            let set = self.handle.link().set(link).execute().await;
            set.map_err(|source| self.error("set up bridge", source))?;
        }
        Ok(())
    }

    async fn address(&self, bridge: u32) -> Result<(), BridgeError> {
        let mut request = self
            .handle
            .address()
            .add(bridge, IpAddr::V6(GATEWAY), 64)
            .replace();
        let message = request.message_mut();
        message.header.scope = AddressScope::Link;
        message
            .attributes
            .push(AddressAttribute::Flags(AddressFlags::Nodad));
        let added = request.execute().await;
        added.map_err(|source| self.error("give the gateway's address to bridge", source))
    }

    async fn route(&self, bridge: u32, prefix: NodePrefix) -> Result<(), BridgeError> {
        let route = RouteMessageBuilder::<std::net::Ipv6Addr>::new()
            .destination_prefix(prefix.network(), prefix.length())
            .output_interface(bridge)
            .build();
        let added = self.handle.route().add(route).replace().execute().await;
        added.map_err(|source| self.error("route the node's prefix to bridge", source))
    }

    fn error(&self, what: &'static str, source: rtnetlink::Error) -> BridgeError {
        BridgeError::Kernel {
            what,
            name: self.name.to_owned(),
            source,
        }
    }
}

fn mtu(link: &LinkMessage) -> Option<u32> {
    link.attributes
        .iter()
        .find_map(|attribute| match attribute {
            LinkAttribute::Mtu(mtu) => Some(*mtu),
            _ => None,
        })
}
