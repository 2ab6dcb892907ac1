//! Clients on the nodes: their requests and connections.

use std::collections::BTreeMap;
use std::time::Duration;

use dormouse_fleet::Boottime;

use super::activator::{Ended, Refusal, Request};
use super::machine::Decision;
use super::world::{PORT, World};
use super::{NODES, TICK};

/// A connection of a client directly to a pod.
pub(super) struct Connection {
    node: usize,
    vip: u32,
    number: u32,
    until: Boottime,
}

impl World {
    /// Clients of busy apps send requests.
    pub(super) fn send_requests(&mut self) {
        let now = self.now;
        let vips: Vec<u32> = self
            .busy
            .iter()
            .filter(|(_, until)| **until > now)
            .map(|(vip, _)| *vip)
            .collect();
        for vip in vips {
            if self.random.once_in(12) {
                let index = self.random.index(NODES);
                let port = if self.random.once_in(20) { 81 } else { PORT };
                let lasts = self.random.period(1_500) + TICK;
                self.request(index, vip, port, lasts);
            }
        }
    }

    /// A client on a node sends a request to a VIP.
    pub(super) fn request(&mut self, index: usize, vip: u32, port: u16, lasts: Duration) {
        let now = self.now;
        let reaches = self.reaches_activator(index);
        let machine = &mut self.machines[index];
        if !machine.is_on(now) {
            return;
        }
        let usable = machine.uses_entries(now);
        if let Decision::Pods(pods) = machine.kernel.decide(vip, usable)
            && port == PORT
        {
            let number = pods[self.random.index(pods.len())];
            if self.processes.runs(number) {
                self.seen.direct += 1;
                machine.kernel.count(vip, 1, 0);
                self.processes.all.get_mut(&number).unwrap().open += 1;
                self.connections.push(Connection {
                    node: index,
                    vip,
                    number,
                    until: now + lasts,
                });
            }
            return;
        }
        let clock = machine.node.clock(now);
        machine.kernel.notice(vip, u32::from(port), clock);
        if reaches && let Some(activator) = &mut self.activator {
            let request = Request {
                vip,
                port,
                arrived: now,
                lasts,
            };
            activator.request(request, now);
        }
    }

    pub(super) fn take_ended(&mut self, ended: &Ended) -> Result<(), String> {
        self.seen.proxied += ended.answered;
        for (request, refusal) in &ended.refused {
            self.log(|| format!("VIP {}: refused: {refusal:?}", request.vip));
            self.seen.late += usize::from(*refusal == Refusal::Late);
            self.check_refused(request, *refusal)?;
        }
        for number in &ended.removed {
            self.check_dialled(*number)?;
        }
        Ok(())
    }

    /// Connections end with their time or with their pod.
    pub(super) fn end_connections(&mut self) {
        let now = self.now;
        let (machines, processes) = (&mut self.machines, &mut self.processes);
        let mut open: BTreeMap<(usize, u32), u64> = BTreeMap::new();
        self.connections.retain(|connection| {
            let runs = processes.runs(connection.number);
            let stays = connection.until > now && runs && machines[connection.node].is_on(now);
            if stays {
                *open.entry((connection.node, connection.vip)).or_default() += 1;
            } else {
                let process = processes.all.get_mut(&connection.number).unwrap();
                process.open = process.open.saturating_sub(1);
            }
            stays
        });
        for ((node, vip), open) in open {
            machines[node].kernel.count(vip, 0, open);
        }
        self.seen.removed = processes.removed;
    }
}
