//! The state of the uplink, and the changes of it after which neighbours may need new advertisements.

use std::io;

use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use netlink_packet_core::{NetlinkMessage, NetlinkPayload};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{LinkAttribute, LinkEvent, LinkFlags, LinkMessage};
use netlink_sys::{AsyncSocket, SocketAddr};
use rtnetlink::{Handle, MulticastGroup};
use tokio::task::AbortHandle;

use dormouse_agent_netlink::link_filter;
use dormouse_agent_pod::POD_GROUP;

/// The uplink's attributes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Uplink {
    /// ifindex; 0: no such interface.
    pub(super) index: u32,
    /// Link-layer address.
    pub(super) mac: Vec<u8>,
    /// It is up and has a carrier.
    pub(super) is_running: bool,
    /// MTU in bytes.
    pub(super) mtu: Option<u32>,
}

impl Uplink {
    fn read(link: &LinkMessage) -> Self {
        let mut uplink = Self {
            index: link.header.index,
            is_running: link.header.flags.contains(LinkFlags::Running),
            ..Self::default()
        };
        for attribute in &link.attributes {
            match attribute {
                LinkAttribute::Address(mac) => uplink.mac.clone_from(mac),
                LinkAttribute::Mtu(mtu) => uplink.mtu = Some(*mtu),
                _ => {}
            }
        }
        uplink
    }

    /// Whether neighbours must be informed of all pods: the carrier came back (perhaps at another switch), or the link-layer
    /// address changed.
    pub(super) fn needs_announcing_after(&self, before: &Self) -> bool {
        let moved = !before.is_running || self.index != before.index || self.mac != before.mac;
        self.is_running && moved
    }
}

/// A notification about the uplink.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum News {
    /// The current attributes; all zero if there is no such interface.
    Is(Uplink),
    /// The kernel requests announcements: a bond failed over, or a virtual machine was migrated.
    Moved,
}

/// A watch of one interface, in the network namespace in which it was opened.
pub(super) struct Watch {
    name: String,
    handle: Handle,
    messages: BoxStream<'static, NetlinkMessage<RouteNetlinkMessage>>,
    connection: AbortHandle,
}

impl Watch {
    /// Subscribes to the kernel's link notifications.
    pub(super) fn open(name: &str) -> io::Result<Self> {
        let groups = [MulticastGroup::Link];
        let (mut connection, handle, messages) = rtnetlink::new_multicast_connection(&groups)?;
        link_filter::skip_group(connection.socket_mut().socket_ref(), POD_GROUP)?;
        let messages = messages.map(|(message, _): (_, SocketAddr)| message);
        Ok(Self {
            name: name.to_owned(),
            handle,
            messages: messages.boxed(),
            connection: tokio::spawn(connection).abort_handle(),
        })
    }

    /// The interface's name.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The netlink socket, for requests.
    pub(super) fn handle(&self) -> &Handle {
        &self.handle
    }

    /// The current attributes; all zero if there is no such interface.
    pub(super) async fn look(&mut self) -> Uplink {
        let request = self.handle.link().get().match_name(self.name.clone());
        let found = request.execute().try_next().await.ok().flatten();
        found.as_ref().map(Uplink::read).unwrap_or_default()
    }

    /// The next notification; never, if the notifications end. Cancel safe; notifications that overran the socket's buffer are
    /// made up for by reading the current attributes.
    pub(super) async fn news(&mut self) -> News {
        while let Some(message) = self.messages.next().await {
            match message.payload {
                NetlinkPayload::InnerMessage(message) => {
                    if let Some(news) = read(&message, &self.name) {
                        return news;
                    }
                }
                // The socket's buffer overran: notifications were lost.
                NetlinkPayload::Overrun(_) => return News::Is(self.look().await),
                _ => {}
            }
        }
        std::future::pending().await
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

fn read(message: &RouteNetlinkMessage, name: &str) -> Option<News> {
    let (link, is_there) = match message {
        RouteNetlinkMessage::NewLink(link) => (link, true),
        RouteNetlinkMessage::DelLink(link) => (link, false),
        _ => return None,
    };
    let has = |wanted: &dyn Fn(&LinkAttribute) -> bool| link.attributes.iter().any(wanted);
    if !has(&|attribute| matches!(attribute, LinkAttribute::IfName(found) if found == name)) {
        return None;
    }
    let asks_to_tell = |attribute: &LinkAttribute| {
        matches!(
            attribute,
            LinkAttribute::Event(LinkEvent::NotifyPeers | LinkEvent::BondingFailover)
        )
    };
    Some(match is_there {
        false => News::Is(Uplink::default()),
        true if has(&asks_to_tell) => News::Moved,
        true => News::Is(Uplink::read(link)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(name: &str, more: &[LinkAttribute]) -> RouteNetlinkMessage {
        let mut link = LinkMessage::default();
        link.header.index = 4;
        link.header.flags = LinkFlags::Up | LinkFlags::Running;
        link.attributes = vec![
            LinkAttribute::IfName(name.to_owned()),
            LinkAttribute::Address(vec![2, 0, 0, 0, 0, 1]),
        ];
        link.attributes.extend_from_slice(more);
        RouteNetlinkMessage::NewLink(link)
    }

    fn uplink() -> Uplink {
        Uplink {
            index: 4,
            mac: vec![2, 0, 0, 0, 0, 1],
            is_running: true,
            mtu: None,
        }
    }

    #[test]
    fn notifications_of_other_interfaces_are_ignored() {
        assert_eq!(read(&link("eth0", &[]), "eth0"), Some(News::Is(uplink())));
        assert_eq!(read(&link("eth00", &[]), "eth0"), None);
        let RouteNetlinkMessage::NewLink(gone) = link("eth0", &[]) else {
            panic!("a new link")
        };
        let gone = read(&RouteNetlinkMessage::DelLink(gone), "eth0");
        assert_eq!(gone, Some(News::Is(Uplink::default())));
    }

    #[test]
    fn a_request_to_notify_peers_is_reported() {
        for event in [LinkEvent::NotifyPeers, LinkEvent::BondingFailover] {
            let message = link("eth0", &[LinkAttribute::Event(event)]);
            assert_eq!(read(&message, "eth0"), Some(News::Moved));
        }
        let message = link("eth0", &[LinkAttribute::Event(LinkEvent::Features)]);
        assert_eq!(read(&message, "eth0"), Some(News::Is(uplink())));
    }

    #[test]
    fn pods_are_announced_again_when_their_path_changes() {
        let down = Uplink {
            is_running: false,
            ..uplink()
        };
        let moved = Uplink {
            mac: vec![2, 0, 0, 0, 0, 9],
            ..uplink()
        };
        let larger = Uplink {
            mtu: Some(9_001),
            ..uplink()
        };
        assert!(uplink().needs_announcing_after(&down));
        assert!(uplink().needs_announcing_after(&Uplink::default()));
        assert!(moved.needs_announcing_after(&uplink()));
        assert!(!down.needs_announcing_after(&uplink()));
        assert!(!larger.needs_announcing_after(&uplink()));
    }
}
