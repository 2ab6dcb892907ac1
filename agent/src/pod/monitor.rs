//! Hears from the kernel when a pod's link goes, so that a pod that vanished without DEL is noticed at once.

use std::io;

use futures::StreamExt;
use netlink_packet_core::NetlinkPayload;
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{LinkAttribute, LinkMessage};
use rtnetlink::MulticastGroup;
use tokio::task::AbortHandle;

use super::names;

/// Tells of links that go, in the namespace in which it was opened.
pub struct Monitor {
    messages: futures::stream::BoxStream<'static, RouteNetlinkMessage>,
    connection: AbortHandle,
}

impl Monitor {
    /// Subscribes to the kernel's messages about links.
    pub fn open() -> io::Result<Self> {
        let groups = [MulticastGroup::Link];
        let (connection, _, messages) = rtnetlink::new_multicast_connection(&groups)?;
        let connection = tokio::spawn(connection).abort_handle();
        let messages = messages.filter_map(async |(message, _)| match message.payload {
            NetlinkPayload::InnerMessage(inner) => Some(inner),
            _ => None,
        });
        Ok(Self {
            messages: messages.boxed(),
            connection,
        })
    }

    /// Returns when a pod's link has gone; never, if the kernel's messages end. Cancel safe.
    pub async fn pod_link_gone(&mut self) {
        while let Some(message) = self.messages.next().await {
            if matches!(&message, RouteNetlinkMessage::DelLink(link) if is_pod(link)) {
                return;
            }
        }
        std::future::pending::<()>().await;
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

fn is_pod(link: &LinkMessage) -> bool {
    link.attributes.iter().any(|attribute| {
        matches!(attribute, LinkAttribute::IfName(name) if names::suffix_of_link(name).is_some())
    })
}
