//! Sends a packet again and again, as new connections, until all have been seen to whom it may go.

use dormouse_agent_services_oracle::Packet;
use std::collections::BTreeMap;
use std::net::SocketAddr;

use serde_json::{Value, json};

use crate::frame::Parcel;
use crate::tally::Tally;
use crate::world::{Fate, Sender, World};
use dormouse_agent_services_samples::recorded::{self, list, sorted, text};

/// All of a set are missed by chance less often than once in this many decisions.
const PATIENCE: f64 = 1e10;

pub(crate) fn compare(world: &mut World, expect: &Value, tally: &mut Tally) {
    for outcome in list(&expect["outcomes"]) {
        let mut wanted = outcome.clone();
        wanted.as_object_mut().unwrap().remove("packets");
        let to: Vec<String> = list(&wanted["to"]).map(text).collect();
        for packet in list(&outcome["packets"]) {
            let packet = packet.as_str().unwrap();
            let asked = recorded::packet(packet);
            let seen = watch(world, &asked, &to);
            for (backend, times) in &seen.to {
                if let Ok(place) = to.binary_search(backend) {
                    tally.chosen(place, to.len(), times.1);
                }
            }
            tally.by_reset += usize::from(seen.by_reset);
            tally.by_node += usize::from(world.sender(asked.source) == Sender::Node);
            tally.compare(packet, &seen.told(), &wanted);
        }
    }
}

/// What became of the packets.
#[derive(Default)]
struct Seen {
    /// By backend: whether the source was hidden, and how often it was chosen.
    to: BTreeMap<String, (bool, u32)>,
    /// Verdicts, and what went wrong.
    words: Vec<String>,
    /// A refusal was no ICMP error.
    by_reset: bool,
}

fn watch(world: &mut World, packet: &Packet, to: &[String]) -> Seen {
    world.refresh();
    let mut seen = Seen::default();
    let (least, most) = runs(to.len());
    for run in 0..most {
        if run >= least && to.iter().all(|backend| seen.to.contains_key(backend)) {
            break;
        }
        let source = SocketAddr::new(packet.source, world.fresh_port());
        let target = SocketAddr::new(packet.destination, packet.port);
        let parcel = Parcel::first(source, target, packet.protocol);
        let fate = world.send(&parcel);
        if !seen.note(&parcel, fate) {
            break;
        }
    }
    seen
}

/// How often a packet that may go to so many is sent at least and at most.
pub(crate) fn runs(len: usize) -> (usize, usize) {
    let len = len as f64;
    let missed = 1.0 - 1.0 / len.max(2.0);
    let most = (PATIENCE * len.max(1.0)).ln() / -missed.ln();
    // Enough packets to detect a backend that must not be selected as well.
    let least = 2.0 + 2.0 * len;
    (whole(least), whole(most.max(least)))
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a positive number of some thousands at most"
)]
fn whole(number: f64) -> usize {
    number.ceil() as usize
}

impl Seen {
    /// Whether more runs would add information.
    fn note(&mut self, sent: &Parcel, fate: Result<Fate, String>) -> bool {
        let word = match fate {
            Ok(Fate::Deliver(led)) => {
                let hidden = led.source != sent.source;
                let before = self.to.entry(led.target.to_string()).or_insert((hidden, 0));
                before.1 += 1;
                if before.0 == hidden {
                    return true;
                }
                format!("{} sees two sources", led.target)
            }
            Ok(Fate::Pass) => "none".to_owned(),
            Ok(Fate::Reject) => "reject".to_owned(),
            Ok(Fate::Drop) => "drop".to_owned(),
            Ok(Fate::Reset) => {
                self.by_reset = true;
                "reject".to_owned()
            }
            Err(wrong) => format!("{sent:?}: {wrong}"),
        };
        let simple = !word.contains(' ');
        if !self.words.contains(&word) {
            self.words.push(word);
        }
        simple
    }

    /// In the words of the vectors.
    fn told(&self) -> Value {
        match (self.to.is_empty(), &self.words[..]) {
            (true, [verdict]) => json!({ "verdict": verdict }),
            (false, []) => self.translated(),
            (_, words) => json!({ "verdict": words, "to": self.to.keys().collect::<Vec<_>>() }),
        }
    }

    fn translated(&self) -> Value {
        let all = sorted(self.to.keys().cloned().collect());
        let hidden = self.to.iter().filter(|(_, (hidden, _))| *hidden);
        let hidden = sorted(hidden.map(|(backend, _)| backend.clone()).collect());
        let snat = if hidden.is_empty() {
            json!("none")
        } else if hidden == all {
            json!("all")
        } else {
            json!(hidden)
        };
        json!({ "verdict": "dnat", "to": all, "snat": snat })
    }
}
