//! Handlers of all events but changes of the cluster and lost pods.

use std::net::SocketAddrV6;
use std::sync::Arc;

use dormouse_activator::{Fault, FaultKind, Unanswered};
use dormouse_cluster::{App, Key, Mode, Object};
use dormouse_fleet::Boottime;
use dormouse_fleet::proto::Count;

use super::turn::Turn;
use super::{Apps, RETRY_AFTER};
use crate::action::{Action, Failure};
use crate::admission;
use crate::backoff::RESET_AFTER;
use crate::event::{Change, RevisionRead};
use crate::member::{Member, PodFault};
use crate::plan;
use crate::record::ms;
use crate::settings::SHORT_WINDOW;

/// IP protocol number of apps' ports.
const TCP: u32 = 6;

impl Apps {
    /// A request is parked: wakes the app, if it is asleep. The activator does not know yet that an app was deleted while no
    /// control ran.
    pub(super) fn demand(&mut self, vip: u32, at: Boottime, turn: &mut Turn) {
        if self.port_at(vip).is_none() {
            turn.actions.push(Action::Route {
                vip,
                version: 0,
                route: None,
            });
            return;
        }
        self.wake(vip, turn);
        match self.reading.get_mut(&vip) {
            Some(reading) => reading.parked(at),
            None => self.wakes.parked(vip, at),
        }
    }

    /// An activator asks for the route of a VIP. A request on another port than the app's wakes nothing, and costs no read of the
    /// store.
    pub(super) fn want(&mut self, (vip, port): (u32, u16), at: Boottime, turn: &mut Turn) {
        // An activator that gets a split asks for the target that it selects.
        if self.port_at(vip) == Some(port) && !self.is_split(vip) {
            self.demand(vip, at, turn);
        }
        let (record, sleeper) = (self.records.get(&vip), self.sleep.get(vip));
        let version = record.map(|record| record.published.version);
        let version = version.or(sleeper.map(|sleeper| sleeper.revision));
        let route = record.and_then(|record| plan::route_of(record));
        let mut route = route.or_else(|| self.sleep.route(vip));
        if let Some(scope) = self.shared.admission.waits_for(vip)
            && let Some(route) = &mut route
        {
            route.problem = Some(admission::waiting_problem(scope));
        }
        turn.actions.push(Action::Route {
            vip,
            version: version.unwrap_or(0),
            route,
        });
    }

    /// Whether the requests of a VIP are spread over several.
    fn is_split(&self, vip: u32) -> bool {
        let record = self.records.get(&vip);
        record.is_some_and(|record| !record.split.is_empty())
    }

    /// Whether a reported packet wakes the app: it is for its port. Nodes without the app's entry report packets to any; protocol 0 is
    /// one that the kernel found to be for the app, without its port.
    pub(super) fn serves(&self, vip: u32, port: u32, protocol: u32) -> bool {
        let port_at = self.port_at(vip).filter(|_| !self.is_split(vip));
        port_at.is_some_and(|own| protocol == 0 || (protocol == TCP && port == u32::from(own)))
    }

    /// The kernel of a node reported a first packet. A packet from before the app fell asleep belongs to the previous wake.
    pub(super) fn woke(&mut self, vip: u32, node: &str, at: Boottime, turn: &mut Turn) {
        let record = self.records.get(&vip);
        let asleep = self.sleep.get(vip).map(|sleeper| sleeper.slept_at);
        let slept_at = record.and_then(|record| record.slept_at).or(asleep);
        if slept_at.is_some_and(|slept| at < slept) {
            return;
        }
        self.wake(vip, turn);
        match self.reading.get_mut(&vip) {
            Some(reading) => reading.seen(node, at),
            None => self.wakes.seen(vip, node, at),
        }
    }

    /// A node follows a VIP of which the fleet has no entry. None: the entry is being written, and its publication answers.
    pub(super) fn wanted(&mut self, vip: u32) -> Option<Action> {
        if let Some(sleeper) = self.sleep.get(vip) {
            return Some(Action::Announce {
                vip,
                version: sleeper.revision,
                entry: plan::asleep(sleeper.port),
            });
        }
        let record = self.records.get_mut(&vip);
        let Some(record) = record.filter(|record| record.app.is_some()) else {
            return Some(Action::Absent { vip });
        };
        record.published.wanted = true;
        record.published.announce(vip)
    }

    /// Load of connections directly to pods.
    pub(super) fn counts(&mut self, counts: &[Count]) {
        for count in counts.iter().filter(|count| count.interval_ns > 0) {
            if let Some(record) = self.records.get_mut(&count.vip) {
                let seconds = count.interval_ns as f64 / 1e9;
                let concurrency = count.connection_ns as f64 / count.interval_ns as f64;
                record.add_direct_load(concurrency, count.connections as f64 / seconds);
            }
        }
    }

    /// A slice of the second has passed: records the load of its awake apps, and decides for those whose tick it is.
    pub(super) fn slice(&mut self, slice: usize, turn: &mut Turn) {
        if slice == 0 {
            self.seconds += 1;
            self.shared.admission.forget_idle(turn.now);
        }
        self.read_again(turn);
        let every = self.shared.config.tick.as_secs().max(1);
        let stats = self.loads.take(slice);
        // A parked request wakes its app also if its demand was lost.
        for stat in stats.values().filter(|stat| stat.concurrency > 0.0) {
            self.wake(stat.vip, turn);
        }
        for vip in self.awake.slice(slice) {
            let Some(record) = self.records.get_mut(&vip) else {
                continue;
            };
            let stat = stats
                .get(&vip)
                .map_or((0.0, 0.0), |stat| (stat.concurrency, stat.requests));
            let before = (record.want, record.path.serves());
            record.update_settings(&self.shared.settings, turn.now);
            record.record_load(turn.now, stat.0, stat.1);
            let short = u64::from(record.settings.stable_window_s) <= SHORT_WINDOW.as_secs();
            if short || self.seconds.is_multiple_of(every) {
                record.decide(turn.now);
                record.reconcile(turn.now);
            }
            let template = &record.template;
            let stable = |member: &Member| {
                let since = member.ready_since.filter(|_| member.template == *template);
                since.is_some_and(|since| turn.now.since(since) >= RESET_AFTER)
            };
            let recovers = record.members.values().any(stable) && record.recover();
            record.clear_earlier_backoff(turn.now);
            let is_forgotten = record.forget_faults(turn.now);
            let is_steady = record.is_steady() && !recovers && !is_forgotten;
            if before != (record.want, record.path.serves()) || !is_steady {
                self.plan(vip, turn);
            }
        }
    }

    pub(super) fn first_byte(&mut self, vip: u32, at: Boottime) {
        if let Some(wake) = self.wakes.answered(vip, at) {
            self.shared.metrics.woken(wake);
        }
    }

    /// The requests of a wake have ended without a response: the reason is that of the app's missing pods, or that of the pod that is
    /// ready and did not respond.
    pub(super) fn unanswered(&mut self, vip: u32, at: Boottime, how: Unanswered) {
        let outcome = how.into();
        let record = self.records.get(&vip);
        if how == Unanswered::Refused && !self.wakes.has_open(vip) {
            let app = record.map(|record| record.key.clone());
            if let Some(app) = app.or_else(|| self.sleep.key(vip)) {
                self.wakes.refused(vip, app, at);
                self.shared.metrics.wake_ended(outcome);
            }
            return;
        }
        let reason = record.and_then(|record| match how {
            // A ready pod had the request, whatever keeps others from being ready.
            Unanswered::TimedOut | Unanswered::Failed => {
                plan::unresponsive(record).or_else(|| plan::failure(record))
            }
            Unanswered::Abandoned | Unanswered::Refused => plan::failure(record),
        });
        let reason = reason.map(|failure| failure.brief());
        if self.wakes.unanswered(vip, at, outcome, reason) {
            self.shared.metrics.wake_ended(outcome);
        }
    }

    /// A ready pod has failed a request, or has answered one after that. The pod may have gone meanwhile.
    pub(super) fn answer(
        &mut self,
        (vip, pod): (u32, SocketAddrV6),
        at: Boottime,
        fault: Option<Fault>,
        turn: &mut Turn,
    ) {
        let Some(record) = self.records.get_mut(&vip) else {
            return;
        };
        let port = record.app.as_ref().map_or(0, |app| app.spec.target_port());
        let mut members = record.members.iter_mut();
        let Some((key, member)) = members.find(|(_, member)| member.socket(port) == Some(pod))
        else {
            return;
        };
        member.fault = fault.map(|fault| {
            let reason = match fault.kind {
                FaultKind::NoResponse => "NoResponse",
                FaultKind::BadResponse => "BadResponse",
            };
            let message = format!("pod {} {}", key.name, fault.message);
            let failure = Failure::new(reason, message);
            PodFault { at, failure }
        });
        self.plan(vip, turn);
    }

    pub(super) fn created(&mut self, vip: u32, pod: &Key, written: bool, turn: &mut Turn) {
        let Some(record) = self.records.get_mut(&vip) else {
            return;
        };
        // A write without a response may have happened: the store shows it.
        let seen = |member: &Member| member.seen.is_some();
        if !written && !record.members.get(pod).is_some_and(seen) {
            record.members.remove(pod);
            record.backoff.failed(
                turn.now,
                Failure::new("CreateFailed", "the pod could not be written to the store"),
            );
        }
        self.plan(vip, turn);
    }

    pub(super) fn published(&mut self, vip: u32, app: Option<Arc<App>>, turn: &mut Turn) {
        let Some(record) = self.records.get_mut(&vip) else {
            return;
        };
        let Some((status, listing)) = record.published.in_progress.take() else {
            return;
        };
        let changed = record.published.changed.take();
        match app {
            Some(app) => {
                let version = app.revision();
                record.app_written(app);
                record.published.status = Some(status);
                if let Some(listing) = listing {
                    if listing.entry.mode == Mode::Serve {
                        record.kpa.set_activator_in_path(ms(turn.now), false);
                    }
                    plan::written(record, version, Some(listing));
                }
            }
            None => record.published.retry_at = Some(turn.now + RETRY_AFTER),
        }
        turn.actions.extend(record.published.announce(vip));
        if let Some(changed) = changed {
            let key = record.key.clone();
            let (revision, changed) = (changed.revision, Change::App(key, vip, changed));
            if self.change(revision, changed, turn).is_some()
                && let Some(record) = self.records.get_mut(&vip)
            {
                record.reconcile(turn.now);
            }
        }
        self.plan(vip, turn);
    }

    pub(super) fn settled(&mut self, vip: u32, version: u64, turn: &mut Turn) {
        let Some(record) = self.records.get_mut(&vip) else {
            return;
        };
        record.published.settling = None;
        record.published.settled = record.published.settled.max(version);
        if record.proxied_everywhere() {
            record.kpa.set_activator_in_path(ms(turn.now), true);
        }
        record.reconcile(turn.now);
        self.plan(vip, turn);
    }

    /// The read of the revision to which an app falls back has ended. One that failed is repeated by the next plan.
    pub(super) fn revision_read(&mut self, vip: u32, read: RevisionRead, turn: &mut Turn) {
        let Some(record) = self.records.get_mut(&vip) else {
            return;
        };
        match read {
            RevisionRead::Failed => {
                record.rollout.is_read = false;
                return;
            }
            RevisionRead::Absent => record.revision_read(None),
            RevisionRead::Found(revision) => record.revision_read(Some(revision.as_ref())),
        }
        self.plan(vip, turn);
    }

    /// A failed removal is retried at the next plan; a successful one arrives as a change of the cluster.
    pub(super) fn deleted(&mut self, vip: u32, pod: &Key, gone: bool) {
        let member = self
            .records
            .get_mut(&vip)
            .and_then(|record| record.members.get_mut(pod));
        if let Some(member) = member.filter(|_| !gone) {
            member.deleting = false;
        }
    }
}
