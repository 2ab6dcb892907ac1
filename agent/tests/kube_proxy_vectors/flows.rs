//! Flows that the node has known for some steps: they stay with their backends, or find others, as kube-proxy had it.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use dormouse_agent_services::{Flow, Protocol, Services, Vip};
use serde_json::{Value, json};

use crate::frame::Parcel;
use crate::tally::Tally;
use crate::world::{Fate, Sender, World, is_alike};
use dormouse_agent_services_samples::recorded::{self, address, list, text};

/// A backend of a recorded flow's set is found in so many tries, or the flow is none that we could have led.
const TRIES_MAX: usize = 400;

/// The flows under way.
#[derive(Default)]
pub(crate) struct Flows(Vec<Known>);

struct Known {
    id: String,
    flow: Flow,
    /// Its packets as they are sent, and as they leave.
    sent: Parcel,
    led: Parcel,
}

impl Flows {
    /// Makes the step's new flows real by sending their first packets, with another source port than the recorded one
    /// if the recorded one selects another backend.
    pub(crate) fn begin(&mut self, world: &mut World, step: &Value, tally: &mut Tally) {
        for recorded in list(&step["newFlows"]) {
            match lead(world, recorded) {
                Some(known) => self.0.push(known),
                None => tally.not_ours += 1,
            }
        }
    }

    /// Sends the next packet of each.
    pub(crate) fn go_on(
        &mut self,
        world: &mut World,
        services: &Services,
        expect: &Value,
        tally: &mut Tally,
    ) {
        let flushed: BTreeSet<_> = list(&expect["conntrackFlushed"]).map(text).collect();
        self.0.retain(|known| {
            tally.followed += 1;
            let next = known.next(world);
            let must_go = flushed.contains(&known.id);
            let right = if must_go {
                matches!(next, Next::Anew | Next::Either)
            } else {
                // Ours may let a flow go whose backend serves no more, where kube-proxy lets it go on.
                let gone = !serves(services, &known.flow);
                matches!(next, Next::Stays | Next::Either) || gone && next == known.end()
            };
            let wanted = if must_go { Next::Anew } else { Next::Stays };
            let wanted = if right { next.clone() } else { wanted };
            let (id, flow) = (&known.id, &known.flow);
            tally.compare(&format!("{id} {flow:?}"), &next.told(), &wanted.told());
            !must_go && matches!(next, Next::Stays | Next::Either)
        });
    }
}

fn lead(world: &mut World, recorded: &Value) -> Option<Known> {
    let flow = recorded::flow(recorded);
    let client = address(&recorded["src"]);
    if world.sender(client) == Sender::Node || flow.reply_source == flow.destination {
        return None;
    }
    let target = SocketAddr::new(flow.destination, flow.port);
    let backend = SocketAddr::new(flow.reply_source, flow.reply_port);
    (0..TRIES_MAX).find_map(|_| {
        let source = SocketAddr::new(client, world.fresh_port());
        let sent = Parcel::first(source, target, flow.protocol);
        let Ok(Fate::Deliver(led)) = world.send(&sent) else {
            return None;
        };
        (led.target == backend).then(|| Known {
            id: text(&recorded["id"]),
            flow,
            sent: sent.later(),
            led: led.later(),
        })
    })
}

/// What became of the next packet of a flow.
#[derive(Clone, PartialEq, Eq)]
enum Next {
    Stays,
    /// It was decided as the first packet of a new flow is.
    Anew,
    /// It stays where a new flow would go, too.
    Either,
    /// Its connection is over.
    Over,
    Wrong(String),
}

impl Next {
    fn told(&self) -> Value {
        json!(match self {
            Self::Stays => "stays",
            Self::Anew => "decided anew",
            Self::Either => "stays, or decided anew",
            Self::Over => "over",
            Self::Wrong(what) => what,
        })
    }
}

impl Known {
    fn next(&self, world: &mut World) -> Next {
        let told = world.explain(&self.sent).0;
        let fate = world.go(&self.sent);
        // How far it may go on is judged where it is run: its backend may have become a pod of this node.
        let stays = matches!(&fate, Ok(Fate::Deliver(led)) if led.at(self.led.hops) == self.led);
        let anew = fate
            .as_ref()
            .is_ok_and(|fate| is_alike(&self.sent, fate, &told));
        let over = match self.flow.protocol {
            Protocol::Tcp => fate == Ok(Fate::Reset),
            // No chunk without the peer's tag breaks an association off.
            Protocol::Sctp => fate == Ok(Fate::Drop),
            Protocol::Udp => false,
        };
        match (stays, anew) {
            (true, true) => Next::Either,
            (true, false) => Next::Stays,
            (false, _) if over => Next::Over,
            (false, true) => Next::Anew,
            (false, false) => Next::Wrong(format!("{fate:?}, a new one {told:?}")),
        }
    }

    /// How it goes on when its backend is gone.
    fn end(&self) -> Next {
        match self.flow.protocol {
            Protocol::Udp => Next::Anew,
            Protocol::Tcp | Protocol::Sctp => Next::Over,
        }
    }
}

/// Whether the flow's backend may go on with it: it is an endpoint of the service, and for UDP one that answers.
fn serves(services: &Services, flow: &Flow) -> bool {
    let vip = Vip {
        address: flow.destination,
        port: flow.port,
        protocol: flow.protocol,
    };
    let place = (flow.reply_source, flow.reply_port);
    let udp = flow.protocol == Protocol::Udp;
    let mut ports = services.claimants(&vip);
    ports.any(|port| {
        let mut backends = port.backends.iter();
        let backend = backends
            .any(|backend| (backend.address, backend.port) == place && (backend.serving || !udp));
        backend || port.stands_at(place)
    })
}
