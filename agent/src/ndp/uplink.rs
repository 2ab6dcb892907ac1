//! What the kernel says of the uplink: when neighbours may have lost sight of the pods behind it.

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

/// The uplink as the kernel describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Uplink {
    /// Its number.
    pub(super) index: u32,
    /// Its link-layer address.
    pub(super) mac: Vec<u8>,
    /// It is up and has a carrier.
    pub(super) is_running: bool,
    /// Largest packet in bytes.
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

    /// Whether the link learns nothing of the pods by itself: the carrier is back, perhaps of another switch, or frames
    /// come from elsewhere.
    pub(super) fn needs_announcing_after(&self, before: &Self) -> bool {
        let moved = !before.is_running || self.index != before.index || self.mac != before.mac;
        self.is_running && moved
    }
}

/// News of the uplink.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum News {
    /// So it is now; all zero when there is none.
    Is(Uplink),
    /// Its kernel asks to tell neighbours: a bond or a virtual machine has moved.
    Moved,
}

/// Watches one interface of the namespace in which it was opened.
pub(super) struct Watch {
    name: String,
    handle: Handle,
    messages: BoxStream<'static, NetlinkMessage<RouteNetlinkMessage>>,
    connection: AbortHandle,
}

impl Watch {
    /// Subscribes to the kernel's messages about links.
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

    /// Of what.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The socket, for requests.
    pub(super) fn handle(&self) -> &Handle {
        &self.handle
    }

    /// The uplink now; all zero when there is none.
    pub(super) async fn look(&mut self) -> Uplink {
        let request = self.handle.link().get().match_name(self.name.clone());
        let found = request.execute().try_next().await.ok().flatten();
        found.as_ref().map(Uplink::read).unwrap_or_default()
    }

    /// The next news; never, if the kernel's messages end. Cancel safe but for messages that were lost, which the next
    /// ones make good.
    pub(super) async fn news(&mut self) -> News {
        while let Some(message) = self.messages.next().await {
            match message.payload {
                NetlinkPayload::InnerMessage(message) => {
                    if let Some(news) = read(&message, &self.name) {
                        return news;
                    }
                }
                // More was said than the socket held.
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
    fn only_the_uplink_makes_news() {
        assert_eq!(read(&link("eth0", &[]), "eth0"), Some(News::Is(uplink())));
        assert_eq!(read(&link("eth00", &[]), "eth0"), None);
        let RouteNetlinkMessage::NewLink(gone) = link("eth0", &[]) else {
            panic!("a new link")
        };
        let gone = read(&RouteNetlinkMessage::DelLink(gone), "eth0");
        assert_eq!(gone, Some(News::Is(Uplink::default())));
    }

    #[test]
    fn a_kernel_that_asks_to_tell_neighbours_is_heard() {
        for event in [LinkEvent::NotifyPeers, LinkEvent::BondingFailover] {
            let told = link("eth0", &[LinkAttribute::Event(event)]);
            assert_eq!(read(&told, "eth0"), Some(News::Moved));
        }
        let told = link("eth0", &[LinkAttribute::Event(LinkEvent::Features)]);
        assert_eq!(read(&told, "eth0"), Some(News::Is(uplink())));
    }

    #[test]
    fn pods_are_announced_anew_when_the_way_to_them_is_another() {
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
