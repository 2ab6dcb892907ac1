//! One activator's stream as the controller sees it: the answers still to be sent, latest first, and its clock.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use dormouse_fleet::Boottime;
use prost::Message;

use super::super::proto::{self, Down};

/// Limit of the routes in one message, in bytes; the rest goes into the next.
const ROUTES_BYTES_MAX: usize = 64 * 1024;
/// Limit of the VIPs without an app in one message.
const VIPS_MAX: usize = 4_096;
/// Limit of unanswered wants; further ones are ignored, because activators repeat them.
const WANTS_MAX: usize = 65_536;

/// What an activator has to get for one VIP. Only the newest is kept.
#[derive(Clone, Debug)]
pub(super) enum Answer {
    Route(Arc<proto::Route>),
    Absent,
}

#[derive(Debug)]
pub(super) struct Peer {
    name: String,
    pub(super) clock: Clock,
    pending: BTreeMap<u32, Answer>,
    /// VIPs for whose route the activator waits.
    asked: BTreeSet<u32>,
    pub(super) ports_pending: bool,
    complete_sent: bool,
    greeted: bool,
}

impl Peer {
    pub(super) fn new(name: String, remote: bool) -> Self {
        Self {
            name,
            clock: if remote {
                Clock::Remote(None)
            } else {
                Clock::Local
            },
            pending: BTreeMap::new(),
            asked: BTreeSet::new(),
            ports_pending: true,
            complete_sent: false,
            greeted: false,
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn send(&mut self, vip: u32, answer: Answer) {
        self.pending.insert(vip, answer);
    }

    /// Records a want. False at the limit.
    pub(super) fn asks(&mut self, vip: u32) -> bool {
        if self.asked.len() >= WANTS_MAX && !self.asked.contains(&vip) {
            return false;
        }
        self.asked.insert(vip);
        true
    }

    /// Records an answer; returns whether the activator waits for it.
    pub(super) fn answered(&mut self, vip: u32) -> bool {
        self.asked.remove(&vip)
    }

    /// The next message, if there is anything to send. The first one of a stream is sent in any case.
    pub(super) fn next(
        &mut self,
        epoch: u64,
        ports: &BTreeSet<u16>,
        complete: bool,
    ) -> Option<Down> {
        let completes = complete && !self.complete_sent;
        if self.greeted && self.pending.is_empty() && !self.ports_pending && !completes {
            return None;
        }
        self.greeted = true;
        let mut down = Down {
            epoch,
            ports: std::mem::take(&mut self.ports_pending).then(|| proto::Ports {
                listen: ports.iter().copied().map(u32::from).collect(),
            }),
            ..Down::default()
        };
        let mut bytes = 0;
        while bytes < ROUTES_BYTES_MAX && down.absent.len() < VIPS_MAX {
            let Some((vip, answer)) = self.pending.pop_first() else {
                break;
            };
            match answer {
                Answer::Route(route) => {
                    bytes += route.encoded_len();
                    down.routes.push(Arc::unwrap_or_clone(route));
                }
                Answer::Absent => down.absent.push(vip),
            }
        }
        down.complete = completes && self.pending.is_empty();
        self.complete_sent |= down.complete;
        Some(down)
    }
}

/// The relation of an activator's clock to the controller's.
#[derive(Debug)]
pub(super) enum Clock {
    /// Both are on one machine.
    Local,
    /// Nanoseconds to add to get the controller's time, once known.
    Remote(Option<i128>),
}

impl Clock {
    /// A message that was sent at `sent` arrived at `now`.
    pub(super) fn heard(&mut self, sent: Boottime, now: Boottime) {
        if let Self::Remote(offset_ns) = self {
            let offset = i128::from(now.0) - i128::from(sent.0);
            // The smallest difference seen contains the least network delay.
            *offset_ns = Some(offset_ns.map_or(offset, |smallest| smallest.min(offset)));
        }
    }

    /// Converts a time of the activator's clock to the controller's.
    pub(super) fn root_time(&self, at_ns: u64) -> Boottime {
        let Self::Remote(Some(offset_ns)) = self else {
            return Boottime(at_ns);
        };
        let shifted = i128::from(at_ns) + offset_ns;
        Boottime(u64::try_from(shifted.max(0)).unwrap_or(u64::MAX))
    }
}
