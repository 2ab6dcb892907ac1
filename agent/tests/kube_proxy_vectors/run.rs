//! Plays one scenario: its events are served, then its packets are sent.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use dormouse_agent_services::{Services, Strictness, Vip};
use serde_json::{Value, json};

use crate::connects::Line;
use crate::flows::Flows;
use crate::outcome;
use crate::tally::Tally;
use crate::world::World;
use dormouse_agent_services_samples::recorded::{self, address, list, text};

pub(crate) struct Run<'a> {
    world: &'a mut World,
    services: Services,
    flows: Flows,
    /// What there is, to be taken away at the end.
    objects: BTreeMap<String, Value>,
}

impl<'a> Run<'a> {
    pub(crate) fn new(world: &'a mut World, scenario: &Value) -> Self {
        let node = recorded::node(&scenario["node"]);
        world.begin(&node);
        Self {
            world,
            services: Services::new(node, Strictness::KubeProxy),
            flows: Flows::default(),
            objects: BTreeMap::new(),
        }
    }

    /// Sends all packets of a step.
    pub(crate) fn send(&mut self, step: &Value, tally: &mut Tally) {
        self.serve(step);
        let expect = &step["expect"];
        self.flows.go_on(self.world, &self.services, expect, tally);
        self.bind(step, tally);
        self.flows.begin(self.world, step, tally);
        outcome::compare(self.world, expect, tally);
    }

    /// Makes those calls of a step that processes of the node can make.
    pub(crate) fn call(&mut self, step: &Value, line: &mut Line<'_>, tally: &mut Tally) {
        self.serve(step);
        self.bind(step, tally);
        line.compare(self.world, &step["expect"], tally);
    }

    /// Puts a step's events in force.
    fn serve(&mut self, step: &Value) {
        for event in list(&step["events"]) {
            recorded::apply(&mut self.services, event);
            let object = &event["object"];
            let name = &object["metadata"];
            let name = format!("{} {}/{}", object["kind"], name["namespace"], name["name"]);
            // A node that is deleted leaves its zone behind.
            if event["type"] == "DELETED" && object["kind"] != "Node" {
                self.objects.remove(&name);
            } else {
                self.objects.insert(name, object.clone());
            }
        }
        let changes = self.services.sync();
        self.world.serve(&self.services, &changes);
    }

    /// Another agent takes over.
    pub(crate) fn relieve(&mut self) {
        self.services = Services::new(self.services.node().clone(), Strictness::KubeProxy);
        for object in self.objects.values() {
            recorded::apply_object(&mut self.services, true, object);
        }
        let changes = self.services.sync();
        self.world.relieve(&self.services, &changes);
    }

    /// Puts clients on record for backends of service ports.
    fn bind(&mut self, step: &Value, tally: &mut Tally) {
        for affinity in list(&step["newAffinity"]) {
            if let Err(wrong) = self.bind_client(affinity) {
                tally.compare(&affinity.to_string(), &json!(wrong), &json!("bound"));
            }
        }
    }

    fn bind_client(&mut self, affinity: &Value) -> Result<(), String> {
        let client = address(&affinity["client"]);
        let backend: SocketAddr = text(&affinity["backend"]).parse().unwrap();
        let id = recorded::bound_to(affinity);
        let mut ports = self.services.ports_of(&id.service).iter();
        let port = ports.find(|port| port.id == id);
        let port = port.ok_or("there is no such service port")?;
        let is_its = |vip: &Vip| {
            let found = self.services.frontend(vip);
            found.is_some_and(|found| found.port.id == id)
        };
        let mut vips = self.services.vips_of(port);
        vips.retain(is_its);
        self.world.bind(client, &vips, backend)
    }

    /// Takes everything away, and looks whether something is left.
    pub(crate) fn end(mut self, tally: &mut Tally) {
        for object in std::mem::take(&mut self.objects).values() {
            recorded::apply_object(&mut self.services, false, object);
        }
        let changes = self.services.sync();
        self.world.serve(&self.services, &changes);
        self.world.forget_flows();
        let remains = self.world.remains();
        if !remains.is_empty() {
            tally.compare(
                "what is left when all is deleted",
                &json!(remains),
                &json!([]),
            );
        }
    }
}
