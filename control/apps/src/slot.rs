//! One app as the controller knows it: what is wanted, what is there, what is under way.

use std::collections::BTreeMap;
use std::net::SocketAddrV6;
use std::sync::Arc;
use std::time::Duration;

use dormouse_autoscaler::decider::{Decider, NoDecision, Stat};
use dormouse_autoscaler::kpa::{self, Activity, Inputs, Reason, Reconciler};
use dormouse_autoscaler::{Decision, Settings};
use dormouse_cluster::{App, AppStatus, Key, Mode, Object};
use dormouse_fleet::Boottime;

use crate::action::{Action, Route};
use crate::backoff::Backoff;
use crate::member::{Member, Published};
use crate::metrics::{ModeValue, StateValue};
use crate::plan;
use crate::pod;
use crate::settings;

/// One app.
#[derive(Debug, Clone)]
pub(crate) struct Slot {
    pub(crate) key: Key,
    pub(crate) vip: u32,
    /// None: the app was deleted, and its pods are going.
    pub(crate) app: Option<Arc<App>>,
    /// The store's revision at which the app was deleted.
    pub(crate) buried_at: Option<u64>,
    pub(crate) settings: Settings,
    pub(crate) template: String,
    pub(crate) members: BTreeMap<Key, Member>,
    pub(crate) decider: Option<Decider>,
    pub(crate) kpa: Reconciler,
    pub(crate) decision: Option<Decision>,
    pub(crate) undecided: Option<NoDecision>,
    pub(crate) want: i32,
    pub(crate) serve: bool,
    pub(crate) mode_since: Boottime,
    pub(crate) published: Published,
    pub(crate) route: Option<Route>,
    pub(crate) direct: bool,
    pub(crate) backoff: Backoff,
    pub(crate) last_wake: Option<Boottime>,
    pub(crate) slept_at: Option<Boottime>,
    /// What the metrics count it as.
    pub(crate) counted: Option<(StateValue, ModeValue)>,
    /// The request that woke the app was counted at once: it is not to be counted again.
    counted_early: bool,
    /// What nodes counted since the last second.
    connected: Stat,
}

impl Slot {
    /// An app that is new to this control; none: only its pods are left.
    pub(crate) fn new(
        vip: u32,
        app: Option<Arc<App>>,
        key: Key,
        grace: Duration,
        now: Boottime,
    ) -> Self {
        let settings = app
            .as_ref()
            .map_or_else(Settings::default, |app| settings::of(&app.spec, grace));
        let mut slot = Self {
            key,
            vip,
            buried_at: None,
            template: app.as_deref().map(pod::template).unwrap_or_default(),
            app,
            settings,
            members: BTreeMap::new(),
            decider: None,
            kpa: Reconciler::new(ms(now)),
            decision: None,
            undecided: None,
            want: 0,
            serve: false,
            mode_since: now,
            published: Published::default(),
            route: None,
            direct: false,
            backoff: Backoff::default(),
            last_wake: None,
            slept_at: None,
            counted: None,
            counted_early: false,
            connected: Stat::default(),
        };
        slot.begin(now);
        slot
    }

    /// A new app is given the pods it asks for before any traffic; others sleep.
    fn begin(&mut self, now: Boottime) {
        let floor = self.settings.min_scale.max(self.settings.initial_scale);
        if self.app.is_some() && floor > 0 {
            self.decider
                .get_or_insert_with(|| Decider::new(ms(now), self.settings.clone(), Some(0)));
            self.judge(now);
        } else {
            self.kpa.activity = Activity::Inactive;
            self.kpa.reason = Reason::NoTraffic;
            self.kpa.initialized = true;
        }
    }

    /// Control has just started. An app that is found asleep, as its status says, is announced as it is; one with pods
    /// goes on as it was.
    pub(crate) fn resume(&mut self, now: Boottime) -> Option<Action> {
        let app = self.app.clone()?;
        let stored = app.status.clone().unwrap_or_default();
        if !self.members.is_empty() {
            self.adopt(&stored, now);
            return None;
        }
        let status = plan::status(self);
        let known = app.status.is_some()
            && (stored.state, stored.mode) == (status.state, status.mode)
            && (stored.ready, stored.wanted, stored.reason.is_none())
                == (status.ready, status.wanted, true);
        if !known || self.decider.is_some() {
            return None;
        }
        let (listing, version) = (plan::listing(self), app.revision());
        let entry = listing.entry.clone();
        plan::written(self, version, Some(listing));
        self.published.status = Some(status);
        Some(Action::Announce {
            vip: self.vip,
            version,
            entry,
        })
    }

    fn adopt(&mut self, stored: &AppStatus, now: Boottime) {
        self.serve = stored.mode == Mode::Serve;
        self.want = count(self.live()).max(self.settings.min_scale);
        self.kpa = Reconciler {
            activity: Activity::Active,
            reason: Reason::None,
            initialized: true,
            ..Reconciler::new(ms(now))
        };
        self.decider = Some(Decider::new(
            ms(now),
            self.settings.clone(),
            Some(self.ready()),
        ));
    }

    /// Whether this is the app that the slot knew, perhaps with another manifest: not one made anew after it.
    pub(crate) fn is_of(&self, app: &App) -> bool {
        self.key == app.key()
            && self
                .app
                .as_ref()
                .is_some_and(|known| known.metadata.uid == app.metadata.uid)
    }

    /// Another app has the VIP now. The pods of the one before go, as of any app that is gone.
    pub(crate) fn replace(&mut self, key: Key, app: Arc<App>, grace: Duration, now: Boottime) {
        self.key = key;
        self.published.status = None;
        self.backoff.clear();
        self.kpa = Reconciler::new(ms(now));
        (self.decider, self.decision, self.undecided) = (None, None, None);
        (self.last_wake, self.want, self.serve) = (None, 0, false);
        self.configure(app, grace, now);
    }

    /// Takes a new manifest in.
    pub(crate) fn configure(&mut self, app: Arc<App>, grace: Duration, now: Boottime) {
        self.settings = settings::of(&app.spec, grace);
        self.template = pod::template(&app);
        self.app = Some(app);
        self.buried_at = None;
        if let Some(decider) = &mut self.decider {
            decider.configure(self.settings.clone());
            decider.resize(ms(now));
        } else {
            self.begin(now);
        }
    }

    /// Something asks for the app: the first one to do so wakes it. Returns whether this did.
    pub(crate) fn wake(&mut self, now: Boottime) -> bool {
        if self.app.is_none() || self.live() > 0 || (self.want > 0 && self.decider.is_some()) {
            return false;
        }
        let decider = self
            .decider
            .get_or_insert_with(|| Decider::new(ms(now), self.settings.clone(), Some(0)));
        decider.record(
            ms(now),
            &Stat {
                concurrency: 1.0,
                requests: 1.0,
                ..Stat::default()
            },
        );
        self.counted_early = true;
        self.decide(now);
        self.judge(now);
        self.last_wake = Some(now);
        true
    }

    /// Notes what a node counted of connections that went straight to pods; it is added with the next second, so that
    /// no second is read while half of the nodes are missing from it.
    pub(crate) fn connected(&mut self, concurrency: f64, requests: f64) {
        self.connected.concurrency += concurrency;
        self.connected.requests += requests;
    }

    /// Adds what was measured over the last second, in the activator and by the nodes; nothing measured is a
    /// measurement too.
    pub(crate) fn measured(&mut self, now: Boottime, concurrency: f64, requests: f64) {
        let early = if std::mem::take(&mut self.counted_early) {
            1.0
        } else {
            0.0
        };
        let mut stat = std::mem::take(&mut self.connected);
        stat.concurrency += (concurrency - early).max(0.0);
        stat.requests += (requests - early).max(0.0);
        if let Some(decider) = &mut self.decider {
            decider.record(ms(now), &stat);
        }
    }

    /// A tick of the decider.
    pub(crate) fn decide(&mut self, now: Boottime) {
        let ready = self.ready();
        let Some(decider) = &mut self.decider else {
            return;
        };
        match decider.decide(ms(now), Some(ready)) {
            Ok(decision) => (self.decision, self.undecided) = (Some(decision), None),
            Err(reason) => self.undecided = Some(reason),
        }
    }

    /// What follows from the last decision and from what is there.
    pub(crate) fn judge(&mut self, now: Boottime) {
        let Some(status) = self.decider.as_ref().map(Decider::status) else {
            return;
        };
        let inputs = Inputs {
            now_ms: ms(now),
            status: Some(status),
            ready: self.ready(),
            activator_in_path: self.proxied_everywhere(),
        };
        let outcome = self.kpa.reconcile(&self.settings, &inputs);
        if outcome.applied {
            self.want = outcome.desired;
        }
        // Without data a new control keeps the mode that it found.
        let serve = outcome.mode == kpa::Mode::Serve || (status.desired < 0 && self.serve);
        if serve != self.serve {
            (self.serve, self.mode_since) = (serve, now);
        }
    }

    /// Nothing runs, nothing is wanted: the app costs nothing from here on.
    pub(crate) fn rest(&mut self, now: Boottime) {
        let idle =
            self.kpa.activity == Activity::Inactive && self.want <= 0 && self.members.is_empty();
        if idle && self.decider.take().is_some() {
            self.slept_at = Some(now);
            self.backoff.clear();
            self.counted_early = false;
        }
    }

    /// Whether time alone can change anything.
    pub(crate) fn awake(&self) -> bool {
        self.decider.is_some() || !self.members.is_empty() || self.published.retry_at.is_some()
    }

    /// Every node has been told that the activator is in the path.
    pub(crate) fn proxied_everywhere(&self) -> bool {
        self.published
            .proxy_since
            .is_some_and(|since| self.published.settled >= since)
    }

    /// Pods that answer and are meant to.
    pub(crate) fn ready(&self) -> i32 {
        count(
            self.members
                .values()
                .filter(|member| member.address().is_some())
                .count(),
        )
    }

    /// Pods that count towards the number that is wanted.
    pub(crate) fn live(&self) -> usize {
        self.members
            .values()
            .filter(|member| member.lives())
            .count()
    }

    /// Where the VIP leads, as things are.
    pub(crate) fn mode(&self) -> Mode {
        if self.serve && self.ready() > 0 {
            Mode::Serve
        } else {
            Mode::Proxy
        }
    }

    /// The sockets of pods that answer, in order.
    pub(crate) fn backends(&self) -> Vec<SocketAddrV6> {
        let Some(app) = &self.app else {
            return Vec::new();
        };
        let port = app.spec.target_port();
        let addresses = self.members.values().filter_map(Member::address);
        let mut all: Vec<_> = addresses
            .map(|address| SocketAddrV6::new(address, port, 0, 0))
            .collect();
        all.sort_unstable();
        all
    }
}

/// The autoscaler's milliseconds.
pub(crate) fn ms(now: Boottime) -> i64 {
    i64::try_from(now.0 / 1_000_000).unwrap_or(i64::MAX)
}

fn count(pods: usize) -> i32 {
    i32::try_from(pods).unwrap_or(i32::MAX)
}
