//! The requests of an activator: parked, granted a slot, at a backend, refused.

use std::net::SocketAddrV6;
use std::time::Duration;

use dormouse_activator::Report;
use dormouse_activator::park::{QueueLimits, Ticket};
use dormouse_fleet::Boottime;

use super::{AHEAD, Activator};
use crate::simulation::SECOND;
use crate::simulation::processes::Processes;

/// Longest time in which a request waits for a route or for a pod.
const PATIENCE: Duration = Duration::from_secs(8);
const ATTEMPTS_MAX: u32 = 10;
const PAUSE: Duration = Duration::from_millis(100);
const LIMITS: QueueLimits = QueueLimits {
    count_max: 1_000,
    bytes_max: 1 << 20,
};

#[derive(Clone, Copy)]
pub(in crate::simulation) struct Request {
    pub(in crate::simulation) vip: u32,
    pub(in crate::simulation) port: u16,
    pub(in crate::simulation) arrived: Boottime,
    /// Time from the grant of a slot to the end of the response.
    pub(in crate::simulation) lasts: Duration,
}

/// How a request ended that got no response.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::simulation) enum Refusal {
    /// No route or no pod in time: 503 with Retry-After.
    Late,
    /// 404: there is no app, or another port is the app's.
    Unknown,
    /// 502: no backend accepted it.
    Backend,
}

/// A request at a backend.
pub(super) struct Exchange {
    pub(super) vip: u32,
    backend: SocketAddrV6,
    number: u32,
    until: Boottime,
}

/// What happened in a step.
#[derive(Default)]
pub(in crate::simulation) struct Ended {
    pub(in crate::simulation) answered: usize,
    pub(in crate::simulation) refused: Vec<(Request, Refusal)>,
    /// Backends that were dialled and whose pods were removed.
    pub(in crate::simulation) removed: Vec<u32>,
}

pub(super) fn number_of(backend: SocketAddrV6) -> u32 {
    let segments = backend.ip().segments();
    (u32::from(segments[6]) << 16) | u32::from(segments[7])
}

impl Activator {
    pub(in crate::simulation) fn request(&mut self, request: Request, now: Boottime) {
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        self.requests.insert(ticket, (request, 0));
        let app = self.apps.entry(request.vip).or_default();
        if app.route.is_none() {
            app.demand.ask(request.port, 0, LIMITS).unwrap();
            self.asking.insert(ticket);
            self.raise(request.vip, now);
        } else {
            self.enter(ticket, now);
        }
    }

    /// A request whose route is known waits for a slot.
    pub(super) fn enter(&mut self, ticket: Ticket, now: Boottime) {
        let Some((request, attempts)) = self.requests.get(&ticket) else {
            return;
        };
        let (vip, port) = (request.vip, request.port);
        let app = self.apps.entry(vip).or_default();
        if *attempts == 0 {
            app.load.enter(now);
        }
        if app.route.as_ref().is_some_and(|route| route.port != port) {
            app.load.leave(now);
            let (request, _) = self.requests.remove(&ticket).unwrap();
            self.unknown.push(request);
            return;
        }
        // A free slot is granted by the next step, in the same order.
        app.breaker.park(ticket, 0, ticket, LIMITS).unwrap();
        self.raise(vip, now);
    }

    pub(super) fn end_exchanges(&mut self, now: Boottime, processes: &mut Processes) {
        let all = std::mem::take(&mut self.exchanges);
        for exchange in all {
            if exchange.until > now && processes.runs(exchange.number) {
                self.exchanges.push(exchange);
                continue;
            }
            let process = processes.all.get_mut(&exchange.number).unwrap();
            process.open = process.open.saturating_sub(1);
            if let Some(app) = self.apps.get_mut(&exchange.vip) {
                app.breaker.leave(exchange.backend);
                app.load.leave(now);
            }
        }
    }

    /// Requests whose route is known by now.
    pub(super) fn answer_asking(&mut self, now: Boottime) {
        for ticket in self.asking.clone() {
            let request = self.requests[&ticket].0;
            let app = self.apps.entry(request.vip).or_default();
            if app.route.is_some() {
                self.asking.remove(&ticket);
                app.demand.asked(0);
                self.enter(ticket, now);
            }
        }
    }

    /// Grants slots to parked requests, and sends them to their backends.
    pub(super) fn grant(
        &mut self,
        vip: u32,
        now: Boottime,
        processes: &mut Processes,
        ended: &mut Ended,
    ) {
        loop {
            let app = self.apps.entry(vip).or_default();
            let Some((ticket, backend)) = app.breaker.next(now) else {
                return;
            };
            let Some((request, attempts)) = self.requests.get_mut(&ticket) else {
                app.breaker.leave(backend);
                continue;
            };
            let number = number_of(backend);
            if processes.runs(number) {
                let until = now + request.lasts;
                processes.all.get_mut(&number).unwrap().open += 1;
                self.exchanges.push(Exchange {
                    vip,
                    backend,
                    number,
                    until,
                });
                self.requests.remove(&ticket);
                ended.answered += 1;
                if app.demand.responded() {
                    let at = now + AHEAD;
                    self.follower.report(Report::FirstByte { vip, at });
                }
                continue;
            }
            if processes.is_removed(number) {
                ended.removed.push(number);
            }
            *attempts += 1;
            let last = *attempts >= ATTEMPTS_MAX;
            app.breaker.avoid(backend, now + SECOND);
            app.breaker.leave(backend);
            if last {
                self.refuse(ticket, Refusal::Backend, now, ended);
            } else {
                self.pausing.push((now + PAUSE, ticket));
            }
        }
    }

    pub(super) fn time_out(&mut self, now: Boottime, ended: &mut Ended) {
        let late = |request: &Request| now.since(request.arrived) >= PATIENCE;
        let late = self
            .requests
            .iter()
            .filter(|(_, (request, _))| late(request));
        let late: Vec<Ticket> = late.map(|(ticket, _)| *ticket).collect();
        for ticket in late {
            self.refuse(ticket, Refusal::Late, now, ended);
        }
    }

    fn refuse(&mut self, ticket: Ticket, refusal: Refusal, now: Boottime, ended: &mut Ended) {
        let Some((request, _)) = self.requests.remove(&ticket) else {
            return;
        };
        let app = self.apps.entry(request.vip).or_default();
        if self.asking.remove(&ticket) {
            app.demand.asked(0);
        } else {
            let _ = app.breaker.unpark(ticket);
            app.load.leave(now);
        }
        ended.refused.push((request, refusal));
    }

    /// The activator is killed: what it parked is lost, and its connections to pods end.
    pub(in crate::simulation) fn kill(&mut self, processes: &mut Processes) {
        for exchange in self.exchanges.drain(..) {
            let process = processes.all.get_mut(&exchange.number).unwrap();
            process.open = process.open.saturating_sub(1);
        }
    }
}
