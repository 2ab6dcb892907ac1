//! The socket hooks: their decision function runs in user space, over the node's maps.

use std::net::{IpAddr, SocketAddr};

use dormouse_agent_datapath::octets;
use dormouse_ebpf::decide::{Choice, Request, Tables as _};
use dormouse_ebpf::packet::UDP;
use dormouse_ebpf::pick::mix;
use dormouse_ebpf::socket::{Call, Caller, Unchanged, decide_call};

use super::PacketPath;
use crate::explanation::From;
use crate::frame::Opening;
use crate::render::{Evidence, Line, activator};

impl PacketPath<'_> {
    /// The socket hooks (connect(2), sendmsg(2)): the VIP becomes a backend before there is a packet.
    pub(super) fn socket(&self, lines: &mut Vec<Line>, sent: &mut Opening) -> Call {
        let hook = self.socket_hook();
        let mut line = |topic, text: String| {
            lines.push(Line {
                hook,
                topic,
                text,
                evidence: Evidence::Read,
            });
        };
        let pinned = self.pinned;
        let process = Process {
            protocol: self.opening.protocol,
            from: self.from,
            // A socket's pick is random: any of the backends can be next.
            hash: mix(pinned.now_ns()),
        };
        let mut request = Request {
            target: octets(self.opening.target.ip()),
            port: self.opening.target.port(),
            ..Request::default()
        };
        let mut choice = Choice::default();
        pinned.take_steps();
        let call = decide_call(pinned, &process, &mut request, &mut choice);
        let steps = pinned.take_steps();
        match call {
            Call::Unchanged(Unchanged::NoFrontend) => {
                line("frontend", "none: no service at this address".to_owned());
                return call;
            }
            Call::Unchanged(Unchanged::NeedsClientAddress) => {
                let text =
                    "left to the packet programs: the answer depends on the client's address";
                line("frontend", text.to_owned());
                return call;
            }
            _ => {}
        }
        for (topic, text) in self.renderer(self.opening, true).render(&steps) {
            line(topic, text);
        }
        match call {
            Call::Translated(_, verdict) => {
                if let Some(verdict) = verdict {
                    let why = activator(verdict).unwrap_or("used");
                    line("activator", why.to_owned());
                }
                let address = IpAddr::from(choice.address).to_canonical();
                sent.target = SocketAddr::new(address, choice.port);
                let text = format!(
                    "connected to {}; getpeername(2) returns the VIP",
                    sent.target
                );
                line("socket", text);
            }
            Call::Unchanged(_) => {
                line("socket", "unchanged: the packet programs decide".to_owned());
            }
            Call::Refused(_) => line("socket", "refused: ECONNREFUSED".to_owned()),
        }
        call
    }

    fn socket_hook(&self) -> &'static str {
        match (self.opening.protocol, self.opening.target.is_ipv4()) {
            (UDP, true) => "cg_sendmsg4",
            (UDP, false) => "cg_sendmsg6",
            (_, true) => "cg_connect4",
            (_, false) => "cg_connect6",
        }
    }
}

/// The process whose connect(2) or sendmsg(2) is explained.
struct Process {
    protocol: u8,
    from: From,
    hash: u64,
}

impl Caller for Process {
    fn protocol(&self) -> u8 {
        self.protocol
    }

    fn is_node(&self, _netns: u64) -> bool {
        self.from == From::Node
    }

    fn hash(&self) -> u64 {
        self.hash
    }
}
