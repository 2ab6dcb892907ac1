//! The activator's end of the link, pure: what it has to report, and whose routes it holds.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::SocketAddrV6;

use dormouse_fleet::Boottime;

use super::message::{MalformedRoute, pack_answer, unpack};
use super::proto::unanswered::How;
use super::proto::{Answer, Demand, Down, FirstByte, Hello, Load, Unanswered, Up, Want};
use crate::{Fault, Report, Route, Unanswered as Why};

/// Limit of first bytes, and of ends without one, that wait for a stream; further ones are lost.
const FIRST_BYTES_MAX: usize = 4_096;

/// A message of the controller is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// A control with a higher epoch was followed before.
    #[error("control has epoch {found}, but one with epoch {newest} was followed before")]
    Older {
        /// Its epoch.
        found: u64,
        /// The highest epoch seen.
        newest: u64,
    },
    /// A route is malformed.
    #[error(transparent)]
    Malformed(#[from] MalformedRoute),
}

/// A change of the activator's apps.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// Set an app's route.
    Route(u32, Box<Route>),
    /// Take an app's backends and its problem away.
    Asleep(u32),
    /// A VIP has no app.
    Absent(u32),
    /// Set the ports of all apps.
    Ports(BTreeSet<u16>),
}

/// The activator's end of the link.
#[derive(Debug)]
pub struct Follower {
    hello: Hello,
    attached: bool,
    /// The highest epoch seen.
    epoch: u64,
    /// VIPs of routes with backends or a problem; true: sent on the current stream.
    held: HashMap<u32, bool>,
    wants: BTreeMap<u32, Want>,
    demands: BTreeMap<u32, Boottime>,
    first_bytes: BTreeMap<u32, Boottime>,
    unanswered: BTreeMap<u32, Unanswered>,
    /// To be sent, by VIP and pod.
    answers: BTreeMap<(u32, SocketAddrV6), Answer>,
    /// Those of pods that fail.
    faults: BTreeMap<(u32, SocketAddrV6), Answer>,
    loads: Vec<Load>,
}

impl Follower {
    /// An activator that has never been attached.
    pub fn new(hello: Hello) -> Self {
        Self {
            hello,
            attached: false,
            epoch: 0,
            held: HashMap::new(),
            wants: BTreeMap::new(),
            demands: BTreeMap::new(),
            first_bytes: BTreeMap::new(),
            unanswered: BTreeMap::new(),
            answers: BTreeMap::new(),
            faults: BTreeMap::new(),
            loads: Vec::new(),
        }
    }

    /// The first message of a new stream.
    pub fn open(&mut self, now: Boottime) -> Up {
        self.attached = true;
        self.answers.extend(self.faults.clone());
        self.held.values_mut().for_each(|sent| *sent = false);
        Up {
            hello: Some(self.hello.clone()),
            epoch: self.epoch,
            sent_ns: now.0,
            ..Up::default()
        }
    }

    /// The stream has ended: routes stay and are used. Wants and demands are dropped, because those still needed are
    /// repeated within a second.
    pub fn close(&mut self) {
        self.attached = false;
        self.wants.clear();
        self.demands.clear();
        self.answers.clear();
        self.loads.clear();
    }

    /// Takes a report to be sent. Without a stream only first bytes, and ends without one, are kept.
    pub fn report(&mut self, report: Report) {
        match report {
            Report::FirstByte { vip, at } => {
                if self.first_bytes.len() < FIRST_BYTES_MAX {
                    self.first_bytes.insert(vip, at);
                }
            }
            Report::Unanswered { vip, at, how } => {
                if self.unanswered.len() < FIRST_BYTES_MAX {
                    self.unanswered.insert(vip, unanswered(vip, at, how));
                }
            }
            Report::Answer {
                vip,
                pod,
                at,
                fault,
            } => self.answer((vip, pod), at, fault),
            Report::Want { vip, port, at } if self.attached => {
                self.wants.entry(vip).or_insert(Want {
                    vip,
                    port: u32::from(port),
                    at_ns: at.0,
                });
            }
            Report::Demand { vip, at } if self.attached => {
                self.demands.entry(vip).or_insert(at);
            }
            Report::Want { .. } | Report::Demand { .. } => {}
        }
    }

    /// Without a stream, only failing pods are kept: they are sent on the next one.
    fn answer(&mut self, pod: (u32, SocketAddrV6), at: Boottime, fault: Option<Fault>) {
        let fails = fault.is_some();
        let answer = pack_answer(pod.0, pod.1, at, fault);
        if !fails {
            self.faults.remove(&pod);
        } else if self.faults.len() < FIRST_BYTES_MAX {
            self.faults.insert(pod, answer.clone());
        }
        if self.attached && self.answers.len() < FIRST_BYTES_MAX {
            self.answers.insert(pod, answer);
        }
    }

    /// An app has these pods.
    fn has_pods(&mut self, vip: u32, pods: &[SocketAddrV6]) {
        self.faults
            .retain(|(app, pod), _| *app != vip || pods.contains(pod));
    }

    /// Takes the load of a second. If the stream did not accept the previous one, that is replaced.
    pub fn loads(&mut self, loads: Vec<Load>) {
        if self.attached {
            self.loads = loads;
        }
    }

    /// Takes a message of the controller. An error ends the stream.
    pub fn receive(&mut self, down: Down) -> Result<Vec<Change>, Refused> {
        if down.epoch < self.epoch {
            return Err(Refused::Older {
                found: down.epoch,
                newest: self.epoch,
            });
        }
        self.epoch = down.epoch;
        let mut changes = Vec::new();
        if let Some(ports) = down.ports {
            let ports = ports.listen.into_iter();
            let valid = ports.filter_map(|port| u16::try_from(port).ok());
            changes.push(Change::Ports(valid.collect()));
        }
        for route in down.routes {
            let vip = route.vip;
            let route = unpack(route)?;
            self.has_pods(vip, &route.backends);
            if route.is_held() {
                self.held.insert(vip, true);
            } else {
                self.held.remove(&vip);
            }
            changes.push(Change::Route(vip, Box::new(route)));
        }
        for vip in down.absent {
            self.held.remove(&vip);
            self.has_pods(vip, &[]);
            changes.push(Change::Absent(vip));
        }
        if down.complete {
            let stale = self.held.iter().filter(|(_, sent)| !**sent);
            changes.extend(stale.map(|(vip, _)| Change::Asleep(*vip)));
            let held = &self.held;
            self.faults
                .retain(|(vip, _), _| held.get(vip).is_some_and(|sent| *sent));
            self.held.retain(|_, sent| *sent);
        }
        Ok(changes)
    }

    /// Whether there is anything to send.
    pub fn has_next(&self) -> bool {
        self.attached
            && !(self.wants.is_empty()
                && self.demands.is_empty()
                && self.first_bytes.is_empty()
                && self.unanswered.is_empty()
                && self.answers.is_empty()
                && self.loads.is_empty())
    }

    /// The next message, with everything that is to be reported.
    pub fn next(&mut self, now: Boottime) -> Up {
        Up {
            hello: None,
            epoch: self.epoch,
            sent_ns: now.0,
            wants: std::mem::take(&mut self.wants).into_values().collect(),
            demands: std::mem::take(&mut self.demands)
                .into_iter()
                .map(|(vip, at)| Demand { vip, at_ns: at.0 })
                .collect(),
            loads: std::mem::take(&mut self.loads),
            first_bytes: std::mem::take(&mut self.first_bytes)
                .into_iter()
                .map(|(vip, at)| FirstByte { vip, at_ns: at.0 })
                .collect(),
            unanswered: std::mem::take(&mut self.unanswered).into_values().collect(),
            answers: std::mem::take(&mut self.answers).into_values().collect(),
        }
    }

    /// The highest epoch of control seen; 0: none.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }
}

fn unanswered(vip: u32, at: Boottime, how: Why) -> Unanswered {
    let how = match how {
        Why::Abandoned => How::Abandoned,
        Why::TimedOut => How::TimedOut,
        Why::Failed => How::Failed,
        Why::Refused => How::Refused,
    };
    Unanswered {
        vip,
        at_ns: at.0,
        how: how.into(),
    }
}
