//! The bridges of the node's pods: created, or brought into the required state. All of them have the gateway's addresses, so
//! a pod's configuration does not depend on its bridge.

use std::collections::HashSet;
use std::io;
use std::net::IpAddr;

use dormouse_agent_netlink::links;
use futures::TryStreamExt;
use netlink_packet_route::address::{AddressAttribute, AddressFlags, AddressScope};
use netlink_packet_route::link::{BridgeStpState, LinkAttribute, LinkMessage};
use rtnetlink::{Handle, LinkBridge, LinkMessageBuilder, LinkUnspec};

use super::messages::no_generated_addresses;
use super::names::BRIDGE_MAC;
use super::unreachable_routes::{self, Net};
use super::{GATEWAY, GATEWAY4, Sysctls, shards, sysctl};

/// MTU in bytes, if the uplink does not report one.
const MTU_DEFAULT: u32 = 1500;
/// The least MTU in bytes with which an interface has IPv6.
const MTU_MIN: u32 = 1280;

/// Why a bridge cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum BridgeError {
    /// There is no interface with the uplink's name.
    #[error("there is no interface `{0}`: give the node's uplink with --uplink")]
    NoUplink(String),
    /// The kernel refused a request.
    #[error("failed to {what} `{name}`")]
    Kernel {
        /// The operation.
        what: &'static str,
        /// The interface's name.
        name: String,
        /// The kernel's error.
        #[source]
        source: rtnetlink::Error,
    },
    /// The routing socket cannot be opened.
    #[error("failed to open a routing socket")]
    Socket(#[source] io::Error),
    /// A sysctl cannot be set.
    #[error(transparent)]
    Sysctl(#[from] sysctl::SysctlError),
}

/// The interfaces of the pod network, by ifindex.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fabric {
    /// The bridges, in the order of their numbers.
    pub(crate) bridges: Vec<u32>,
    /// MTU of all of them, in bytes.
    pub(crate) mtu: u32,
}

/// What all bridges have in common.
#[derive(Clone, Debug)]
pub(crate) struct BridgeOptions {
    /// Whether pods have IPv4 addresses.
    pub(crate) has_ipv4: bool,
    /// The sysctls of the node.
    pub(crate) sysctls: Sysctls,
}

/// The MTU in bytes of bridges and pods behind this uplink: with less than IPv6 needs (RFC 8200 5), the kernel would remove it from all
/// of them, and what the uplink does not take is answered with "packet too big".
pub(crate) fn mtu_behind(uplink: &LinkMessage) -> Option<u32> {
    links::mtu(uplink).map(|mtu| mtu.max(MTU_MIN))
}

/// Creates the first bridge, finds further ones, and refuses packets to unused addresses of `networks`.
pub(crate) fn ensure(
    name: &str,
    uplink: &str,
    refused: &HashSet<Net>,
    options: &BridgeOptions,
) -> Result<Fabric, BridgeError> {
    on_a_thread(async |handle| {
        let outer = find(&handle, uplink).await;
        let outer = outer.ok_or_else(|| BridgeError::NoUplink(uplink.to_owned()))?;
        let mtu = mtu_behind(&outer).unwrap_or(MTU_DEFAULT);
        let mut bridges = Vec::new();
        loop {
            let name = shards::name(name, bridges.len());
            if !bridges.is_empty() && find(&handle, &name).await.is_none() {
                break;
            }
            bridges.push(
                Bridge {
                    name,
                    handle: handle.clone(),
                    options: options.clone(),
                }
                .ensure(mtu)
                .await?,
            );
        }
        let refused = unreachable_routes::settle(&handle, refused).await;
        refused.map_err(|source| BridgeError::Kernel {
            what: "add unreachable routes beside",
            name: name.to_owned(),
            source,
        })?;
        Ok(Fabric { bridges, mtu })
    })
}

/// Creates the bridge after `count` others. Returns its ifindex.
pub(crate) fn ensure_next(
    base: &str,
    count: usize,
    mtu: u32,
    options: &BridgeOptions,
) -> Result<u32, BridgeError> {
    let name = shards::name(base, count);
    on_a_thread(async |handle| {
        let bridge = Bridge {
            name,
            handle,
            options: options.clone(),
        };
        bridge.ensure(mtu).await
    })
}

/// Runs on a thread with its own runtime: it is rare, and the caller may be inside another runtime.
fn on_a_thread<T: Send>(
    work: impl AsyncFnOnce(Handle) -> Result<T, BridgeError> + Send,
) -> Result<T, BridgeError> {
    let work = || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        runtime.map_err(BridgeError::Socket)?.block_on(async {
            let (connection, handle, _) =
                rtnetlink::new_connection().map_err(BridgeError::Socket)?;
            tokio::spawn(connection);
            work(handle).await
        })
    };
    std::thread::scope(|scope| {
        let joined = scope.spawn(work).join();
        joined.unwrap_or_else(|_| Err(BridgeError::Socket(io::Error::other("bridge thread died"))))
    })
}

async fn find(handle: &Handle, name: &str) -> Option<LinkMessage> {
    let request = handle.link().get().match_name(name.to_owned());
    request.execute().try_next().await.ok().flatten()
}

struct Bridge {
    name: String,
    handle: Handle,
    /// Its pods have IPv4 addresses besides the IPv6 ones.
    options: BridgeOptions,
}

impl Bridge {
    async fn ensure(&self, mtu: u32) -> Result<u32, BridgeError> {
        if find(&self.handle, &self.name).await.is_none() {
            self.create(mtu).await?;
        }
        let found = find(&self.handle, &self.name).await;
        let gone = || self.error("find", rtnetlink::Error::RequestFailed);
        let found = found.ok_or_else(gone)?;
        let bridge = found.header.index;
        if !found
            .attributes
            .contains(&LinkAttribute::Address(BRIDGE_MAC.to_vec()))
        {
            self.name_itself(bridge).await?;
        }
        self.settle(bridge, mtu).await?;
        self.options
            .sysctls
            .ignore_router_advertisements(&self.name)?;
        self.address(bridge, (GATEWAY.into(), 64)).await?;
        if self.options.has_ipv4 {
            self.options.sysctls.loosen_rp_filter(&self.name)?;
            self.address(bridge, (GATEWAY4.into(), 32)).await?;
        }
        Ok(bridge)
    }

    async fn create(&self, mtu: u32) -> Result<(), BridgeError> {
        let link = LinkMessageBuilder::<LinkBridge>::new(&self.name)
            .mcast_snooping(false)
            .stp_state(BridgeStpState::Disabled)
            .forward_delay(0)
            .address(BRIDGE_MAC.to_vec())
            .mtu(mtu)
            .build();
        let made = self.handle.link().add(link).execute().await;
        made.map_err(|source| self.error("create bridge", source))
    }

    /// Sets the link-layer address only if it differs: setting the same one again flushes the bridge's permanent neighbours.
    async fn name_itself(&self, bridge: u32) -> Result<(), BridgeError> {
        let named = LinkUnspec::new_with_index(bridge)
            .address(BRIDGE_MAC.to_vec())
            .build();
        let set = self.handle.link().set(named).execute().await;
        set.map_err(|source| self.error("give its address to bridge", source))
    }

    /// In three steps: with a smaller MTU than IPv6 needs, an interface takes no setting of IPv6; and one that comes up creates a
    /// link-local address, unless that was disabled before.
    async fn settle(&self, bridge: u32, mtu: u32) -> Result<(), BridgeError> {
        let wide = LinkUnspec::new_with_index(bridge).mtu(mtu).build();
        let quiet = LinkUnspec::new_with_index(bridge)
            .append_extra_attribute(no_generated_addresses())
            .build();
        let up = LinkUnspec::new_with_index(bridge).up().build();
        for link in [wide, quiet, up] {
            let set = self.handle.link().set(link).execute().await;
            set.map_err(|source| self.error("set up bridge", source))?;
        }
        Ok(())
    }

    async fn address(
        &self,
        bridge: u32,
        (address, length): (IpAddr, u8),
    ) -> Result<(), BridgeError> {
        let addresses = self.handle.address();
        let mut request = addresses.add(bridge, address, length).replace();
        let message = request.message_mut();
        message.header.scope = AddressScope::Link;
        // With a length of 32, the broadcast address would be the gateway's own.
        let is_broadcast = |it: &AddressAttribute| matches!(it, AddressAttribute::Broadcast(_));
        message.attributes.retain(|it| !is_broadcast(it));
        message
            .attributes
            .push(AddressAttribute::Flags(AddressFlags::Nodad));
        let added = request.execute().await;
        added.map_err(|source| self.error("give the gateway's address to bridge", source))
    }

    fn error(&self, what: &'static str, source: rtnetlink::Error) -> BridgeError {
        BridgeError::Kernel {
            what,
            name: self.name.clone(),
            source,
        }
    }
}
