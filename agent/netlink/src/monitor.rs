//! Link notifications: a pod's link was deleted, so the pod vanished without DEL; or another link, such as the uplink, has a
//! new MTU.

use std::collections::HashMap;
use std::io;

use futures::{Stream, StreamExt};
use netlink_packet_core::{NetlinkMessage, NetlinkPayload};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{LinkAttribute, LinkMessage};
use netlink_sys::{AsyncSocket, SocketAddr};
use rtnetlink::MulticastGroup;
use tokio::task::AbortHandle;

use crate::rtnl::Rtnl;
use crate::{link_filter, links};

/// Recognizes the links of pods.
#[derive(Clone, Copy, Debug)]
pub struct PodLinks {
    /// Their interface group.
    pub group: u32,
    /// Whether a name is that of a pod's link.
    pub is_name: fn(&str) -> bool,
}

/// Watches links in the network namespace in which it was opened.
pub struct Monitor {
    pods: PodLinks,
    /// MTU by ifindex, of links that are not a pod's.
    mtus: HashMap<u32, u32>,
    messages: futures::stream::BoxStream<'static, RouteNetlinkMessage>,
    connection: AbortHandle,
}

impl Monitor {
    /// Subscribes to the kernel's link notifications.
    pub fn open(pods: PodLinks) -> io::Result<Self> {
        let groups = [MulticastGroup::Link];
        let (mut connection, _, messages) = rtnetlink::new_multicast_connection(&groups)?;
        link_filter::skip_group(connection.socket_mut().socket_ref(), pods.group)?;
        let connection = tokio::spawn(connection).abort_handle();
        let mut monitor = Self {
            pods,
            mtus: HashMap::new(),
            messages: inner(messages).boxed(),
            connection,
        };
        for link in Rtnl::open()?.links()? {
            monitor.is_news(&RouteNetlinkMessage::NewLink(link));
        }
        Ok(monitor)
    }

    /// Resolves when a pod's link was deleted or another link's MTU changed; never, if the notifications end. Cancel safe.
    pub async fn changed(&mut self) {
        while let Some(message) = self.messages.next().await {
            if self.is_news(&message) {
                return;
            }
        }
        std::future::pending::<()>().await;
    }

    fn is_news(&mut self, message: &RouteNetlinkMessage) -> bool {
        match message {
            RouteNetlinkMessage::DelLink(link) if self.is_pod(link) => true,
            RouteNetlinkMessage::DelLink(link) => {
                self.mtus.remove(&link.header.index);
                false
            }
            RouteNetlinkMessage::NewLink(link) if !self.is_pod(link) => links::mtu(link)
                .is_some_and(|mtu| {
                    let before = self.mtus.insert(link.header.index, mtu);
                    before.is_some_and(|before| before != mtu)
                }),
            _ => false,
        }
    }

    fn is_pod(&self, link: &LinkMessage) -> bool {
        link.attributes.iter().any(|attribute| {
            matches!(attribute, LinkAttribute::IfName(name) if (self.pods.is_name)(name))
        })
    }
}

fn inner(
    messages: impl Stream<Item = (NetlinkMessage<RouteNetlinkMessage>, SocketAddr)>,
) -> impl Stream<Item = RouteNetlinkMessage> {
    messages.filter_map(async |(message, _)| match message.payload {
        NetlinkPayload::InnerMessage(inner) => Some(inner),
        _ => None,
    })
}

impl Drop for Monitor {
    fn drop(&mut self) {
        self.connection.abort();
    }
}
