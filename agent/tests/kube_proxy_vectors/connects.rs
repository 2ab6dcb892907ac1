//! What real connections and datagrams of the node's own processes reach, beside what kube-proxy did with their packets.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use dormouse_agent_services::Protocol;
use dormouse_agent_services_oracle::Packet;
use serde_json::{Value, json};

use crate::calls::{Answer, Asker, Call, Servers};
use crate::frame::Parcel;
use crate::outcome::runs;
use crate::tally::Tally;
use crate::world::World;
use dormouse_agent_services_samples::recorded::{self, list, text};

/// What `connect(2)` says when the other side refuses.
const ECONNREFUSED: &str = "111";

/// The first scenarios of each group in which the node calls a service: one for each last character of their names,
/// which is a family, or for those made by chance a digit.
pub(crate) fn sample(scenarios: Vec<Value>) -> impl Iterator<Item = Value> {
    let mut had = BTreeSet::new();
    scenarios.into_iter().filter(move |scenario| {
        let last = text(&scenario["id"]).pop();
        let steps = list(&scenario["steps"]);
        let mut outcomes = steps.flat_map(|step| list(&step["expect"]["outcomes"]));
        let calls = outcomes.any(|outcome| {
            let mut packets =
                list(&outcome["packets"]).map(|packet| recorded::packet(&text(packet)));
            outcome["verdict"] == "dnat" && packets.any(|packet| is_a_call(scenario, &packet))
        });
        calls && had.insert((text(&scenario["group"]), last))
    })
}

/// A process's packets come from the node's primary address, and are no SCTP, which not every kernel has.
fn is_a_call(scenario: &Value, packet: &Packet) -> bool {
    let primary = recorded::node(&scenario["node"]).addresses.primary;
    packet.protocol != Protocol::Sctp && primary.contains(&packet.source)
}

/// Who calls, and who may be reached.
pub(crate) struct Line<'a> {
    pub(crate) scenario: &'a Value,
    pub(crate) asker: &'a mut Asker,
    pub(crate) servers: &'a mut Servers,
}

impl Line<'_> {
    pub(crate) fn compare(&mut self, world: &mut World, expect: &Value, tally: &mut Tally) {
        for outcome in list(&expect["outcomes"]) {
            let to: Vec<String> = list(&outcome["to"]).map(text).collect();
            let wanted = match outcome["verdict"].as_str() {
                Some("dnat") => json!(to),
                Some("reject") => json!(["refused"]),
                Some("drop") => json!(["nobody"]),
                // The packet's way is the kernel's alone.
                _ => continue,
            };
            for packet in list(&outcome["packets"]).map(text) {
                let asked = recorded::packet(&packet);
                if !is_a_call(self.scenario, &asked) {
                    continue;
                }
                for backend in &to {
                    self.servers.open(backend.parse().unwrap(), asked.protocol);
                }
                for call in Call::all(asked.protocol, asked.destination) {
                    let seen = self.watch(world, &asked, call, &to);
                    tally.compare(&format!("{packet} by {call:?}"), &json!(seen), &wanted);
                }
            }
        }
    }

    /// Calls until all have been seen that may be reached.
    fn watch(
        &mut self,
        world: &mut World,
        packet: &Packet,
        call: Call,
        to: &[String],
    ) -> BTreeSet<String> {
        let mut seen = BTreeSet::new();
        let (least, most) = runs(to.len());
        for run in 0..most {
            if run >= least && to.iter().all(|backend| seen.contains(backend)) {
                break;
            }
            let target = SocketAddr::new(packet.destination, packet.port);
            let answer = self.asker.ask(call, target, self.servers);
            seen.insert(match answer {
                Answer::Error(number) if number == ECONNREFUSED => "refused".to_owned(),
                // Which error it is depends on the node's routes.
                Answer::Error(_) if to.is_empty() => "nobody".to_owned(),
                Answer::Error(number) => format!("error {number}"),
                Answer::From { believed, .. } if believed != target => {
                    format!("believes that it is {believed}")
                }
                Answer::From { real, .. } => {
                    let source = SocketAddr::new(packet.source, 1);
                    let parcel = Parcel::first(source, target, packet.protocol);
                    let noted = world.called(&parcel, real.parse().unwrap());
                    noted.err().unwrap_or(real)
                }
            });
        }
        seen
    }
}
