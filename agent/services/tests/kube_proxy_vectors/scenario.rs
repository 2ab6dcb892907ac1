//! Plays one scenario: events in, then everything that the step expects.

use std::net::SocketAddr;

use dormouse_agent_services::{Changes, Family, Flow, Services, Strictness};
use dormouse_agent_services_oracle::Affinities;
use serde_json::{Value, json};

use crate::outcomes;
use crate::service_ports;
use crate::tally::{Tally, Topic};
use dormouse_agent_services_samples::recorded::{self, address, list, sorted, text};

/// The node of one scenario, with the state that it keeps between steps.
pub(crate) struct Run {
    pub(crate) services: Services,
    pub(crate) affinities: Affinities,
    flows: Vec<(String, Flow)>,
}

impl Run {
    pub(crate) fn new(node: &Value, strictness: Strictness) -> Self {
        Self {
            services: Services::new(recorded::node(node), strictness),
            affinities: Affinities::default(),
            flows: Vec::new(),
        }
    }

    pub(crate) fn step(&mut self, step: &Value, tally: &mut Tally) {
        for event in list(&step["events"]) {
            recorded::apply(&mut self.services, event);
        }
        let changes = self.services.sync();
        self.affinities.forget(&changes);
        let flushed = self.flush(&changes);
        for affinity in list(&step["newAffinity"]) {
            self.bind(affinity);
        }
        for flow in list(&step["newFlows"]) {
            self.flows.push((text(&flow["id"]), recorded::flow(flow)));
        }
        let expect = &step["expect"];
        service_ports::compare(self, expect, tally);
        outcomes::compare(self, expect, tally);
        let scanned = Family::ALL
            .into_iter()
            .filter(|family| changes.scans(*family));
        let scanned: Vec<_> = scanned.map(Family::name).collect();
        tally.compare(
            Topic::Scan,
            "families",
            &json!(scanned),
            &or_empty(&expect["conntrackScan"]),
        );
        let wanted = sorted(list(&expect["conntrackFlushed"]).map(text).collect());
        tally.compare(Topic::Flush, "flows", &json!(flushed), &json!(wanted));
    }

    /// Removes stale flows in the families that must be checked.
    fn flush(&mut self, changes: &Changes) -> Vec<String> {
        let stale = |flow: &Flow| {
            changes.scans(Family::of(flow.destination)) && self.services.is_stale(flow)
        };
        let known = std::mem::take(&mut self.flows);
        let (gone, kept): (Vec<_>, Vec<_>) = known.into_iter().partition(|(_, flow)| stale(flow));
        self.flows = kept;
        sorted(gone.into_iter().map(|(id, _)| id).collect())
    }

    fn bind(&mut self, affinity: &Value) {
        let client = address(&affinity["client"]);
        let backend: SocketAddr = text(&affinity["backend"]).parse().unwrap();
        let id = recorded::bound_to(affinity);
        self.affinities.record(&id, client, backend, 0);
    }
}

fn or_empty(value: &Value) -> Value {
    match value {
        Value::Null => json!([]),
        other => other.clone(),
    }
}
