//! Comparison of each packet's decision with kube-proxy's.

use std::net::SocketAddr;

use dormouse_agent_services::{Backend, Vip};
use dormouse_agent_services_oracle::{Decision, Fate, Packet, Translation, decide};
use serde_json::{Value, json};

use crate::scenario::Run;
use crate::tally::{Tally, Topic};
use dormouse_agent_services_samples::recorded::{self, list, sorted};

pub(crate) fn compare(run: &Run, expect: &Value, tally: &mut Tally) {
    for outcome in list(&expect["outcomes"]) {
        let mut wanted = outcome.clone();
        wanted.as_object_mut().unwrap().remove("packets");
        for packet in list(&outcome["packets"]) {
            let packet = packet.as_str().unwrap();
            let asked = recorded::packet(packet);
            let decision = decide(&run.services, &asked, &run.affinities, 0);
            if refuses_all(run, &asked) {
                tally.refused += 1;
                let refused = json!({"verdict": "reject"});
                tally.compare(Topic::Packet, packet, &decision_value(&decision), &refused);
            } else {
                tally.compare(Topic::Packet, packet, &decision_value(&decision), &wanted);
            }
        }
    }
}

/// Whether the packet goes to a load balancer's address that refuses every source: strict source ranges, none of them valid.
fn refuses_all(run: &Run, packet: &Packet) -> bool {
    let vip = Vip {
        address: packet.destination,
        port: packet.port,
        protocol: packet.protocol,
    };
    let frontend = run.services.frontend(&vip);
    let limited = frontend.filter(|frontend| frontend.limited);
    let ranges = limited.and_then(|limited| limited.port.addresses.source_ranges.as_ref());
    ranges.is_some_and(|ranges| ranges.is_empty())
}

fn decision_value(decision: &Decision<'_>) -> Value {
    match decision {
        Decision::Pass => json!({"verdict": "none"}),
        Decision::Reject => json!({"verdict": "reject"}),
        Decision::Drop => json!({"verdict": "drop"}),
        Decision::Translate(translation) => translated(translation),
    }
}

fn translated(translation: &Translation<'_>) -> Value {
    let texts = |wanted: fn(Fate) -> bool| {
        let backends = translation.backends();
        let some = backends.filter(|backend| wanted(translation.fate(*backend)));
        sorted(some.map(backend_text).collect())
    };
    let to = texts(|fate| matches!(fate, Fate::Deliver { .. }));
    let hidden = texts(|fate| fate == Fate::Deliver { masquerade: true });
    let snat = if hidden.is_empty() {
        json!("none")
    } else if hidden == to {
        json!("all")
    } else {
        json!(hidden)
    };
    json!({"verdict": "dnat", "to": to, "snat": snat})
}

pub(crate) fn backend_text(backend: Backend) -> String {
    SocketAddr::new(backend.address, backend.port).to_string()
}
