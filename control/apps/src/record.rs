//! The controller's record of one app: its settings, pods, scaling decisions, and the published status and entry.

mod floor;
mod manifest;
mod scaling;

use std::collections::BTreeMap;
use std::net::SocketAddrV6;
use std::sync::Arc;
use std::time::Duration;

use dormouse_autoscaler::decider::{Decider, NoDecision, Stat};
use dormouse_autoscaler::kpa::{Activity, Reason, Reconciler};
use dormouse_autoscaler::path::Path;
use dormouse_autoscaler::settings::Fault;
use dormouse_autoscaler::{Decision, Settings};
use dormouse_cluster::{App, AppStatus, Key, Mode, Object, StoredApp};
use dormouse_fleet::Boottime;
use dormouse_fleet::proto::Target;

use crate::action::Route;
use crate::admission::Held;
use crate::allowance::Allowance;
use crate::backoff::Backoff;
use crate::decisions::Decisions;
use crate::member::{Member, Published};
use crate::metrics::{ASLEEP, ModeValue, StateValue};
use crate::plan;
use crate::pod;
use crate::rollout::Rollout;
use crate::settings::InForce;
use crate::sleep::Sleeper;

/// Time for which a pod's failed request counts: an activator repeats what lasts each minute.
const FAULT_KNOWN: Duration = Duration::from_mins(5);

/// The record of one app.
#[derive(Debug, Clone)]
pub(crate) struct AppRecord {
    pub(crate) key: Key,
    pub(crate) vip: u32,
    /// None: the app was deleted, and its pods are being removed.
    pub(crate) app: Option<Arc<App>>,
    /// The store's revision at which the app was deleted.
    pub(crate) deleted_at: Option<u64>,
    pub(crate) settings: Settings,
    /// The number of the cluster's settings that are in them.
    settings_number: u32,
    /// The annotations that are ignored, as they are not valid.
    pub(crate) ignored: Vec<Fault>,
    pub(crate) template: String,
    pub(crate) members: BTreeMap<Key, Member>,
    pub(crate) decider: Option<Decider>,
    pub(crate) kpa: Reconciler,
    pub(crate) decision: Option<Decision>,
    pub(crate) no_decision: Option<NoDecision>,
    /// Number of pods wanted; negative while unknown.
    pub(crate) want: i32,
    /// The number of wanted pods up to which its changes are counted in the metrics.
    pub(crate) want_counted: i32,
    /// The last decisions of the awake app.
    pub(crate) decisions: Decisions,
    /// Serve mode as soon as a pod is ready, or proxy mode.
    pub(crate) path: Path,
    pub(crate) mode_since: Boottime,
    pub(crate) published: Published,
    pub(crate) route: Option<Route>,
    /// The traffic split in force: VIP indexes and weights.
    pub(crate) split: Vec<Target>,
    /// The least number of pods that its share of an app's traffic needs now, besides the settings.
    pub(crate) floor: i32,
    pub(crate) backoff: Backoff,
    pub(crate) rollout: Rollout,
    pub(crate) last_wake: Option<Boottime>,
    pub(crate) slept_at: Option<Boottime>,
    /// The state and mode under which the metrics count the app.
    pub(crate) counted: Option<(StateValue, ModeValue)>,
    /// What the limits of pods leave to the app.
    pub(crate) allowance: Allowance,
    /// The limit because of which it has fewer pods than the autoscaler wants.
    pub(crate) held: Option<Held>,
    /// When an event about that was recorded last.
    pub(crate) held_event: Option<Boottime>,
    /// The reason of the last event about a pod that is not ready, and its time.
    pub(crate) waiting_event: Option<(String, Boottime)>,
    /// The request that woke the app was counted at the wake, and must not be counted again.
    wake_counted: bool,
    /// Load of connections directly to pods, since the last tick.
    direct_load: Stat,
}

impl AppRecord {
    /// An app without a manifest and without pods: [`AppRecord::configure`] or [`AppRecord::begin`] follows.
    pub(crate) fn new(vip: u32, key: Key, now: Boottime) -> Self {
        Self {
            key,
            vip,
            deleted_at: None,
            template: String::new(),
            app: None,
            settings: Settings::default(),
            settings_number: 0,
            ignored: Vec::new(),
            members: BTreeMap::new(),
            decider: None,
            kpa: Reconciler::new(ms(now)),
            decision: None,
            no_decision: None,
            want: 0,
            want_counted: 0,
            decisions: Decisions::default(),
            path: Path::default(),
            mode_since: now,
            published: Published::default(),
            route: None,
            split: Vec::new(),
            floor: 0,
            backoff: Backoff::default(),
            rollout: Rollout::default(),
            last_wake: None,
            slept_at: None,
            counted: None,
            allowance: Allowance::default(),
            held: None,
            held_event: None,
            waiting_event: None,
            wake_counted: false,
            direct_load: Stat::default(),
        }
    }

    /// Starts the pods of an app without load, of a new one the initial ones too; without any, the app sleeps.
    pub(crate) fn begin(&mut self, now: Boottime) {
        let floor = self.pods_min().max(self.settings.pods_idle());
        let initial = if self.kpa.initialized {
            0
        } else {
            self.settings.initial_scale
        };
        let floor = floor.max(initial);
        if self.app.is_some() && floor > 0 {
            self.decider
                .get_or_insert_with(|| Decider::new(ms(now), self.settings.clone(), Some(0)));
            self.reconcile(now);
        } else {
            self.kpa.activity = Activity::Inactive;
            self.kpa.reason = Reason::NoTraffic;
            self.kpa.initialized = true;
        }
    }

    /// Starts the minimum of pods of an app that slept.
    pub(crate) fn start(&mut self, now: Boottime) {
        self.kpa = Reconciler::new(ms(now));
        self.is_not_new();
        self.begin(now);
    }

    /// The app had its initial pods, or needs none.
    pub(crate) fn is_not_new(&mut self) {
        self.kpa.initialized = true;
    }

    /// Takes over a sleeping app whose compact record was `sleeper`. Its status and entry are published again, unless
    /// [`AppRecord::asleep_as_published`] follows.
    pub(crate) fn rouse(&mut self, app: Arc<App>, sleeper: &Sleeper, settings: &InForce) {
        self.set(&app, settings);
        self.template = pod::template(&app);
        self.resume_rollout(app.status.as_ref());
        self.app = Some(app);
        self.kpa.activity = Activity::Inactive;
        self.kpa.reason = Reason::NoTraffic;
        self.kpa.initialized = true;
        self.kpa.activator_since_ms = sleeper.activator_since_ms;
        self.counted = Some(ASLEEP);
        self.slept_at = Some(sleeper.slept_at);
        self.published.version = sleeper.revision;
        self.published.proxy_since = Some(sleeper.revision);
        // The nodes had acknowledged proxy mode when its last pod was removed.
        if sleeper.activator_since_ms.is_some() {
            self.published.settled = sleeper.revision;
        }
    }

    /// The status and the entry of the sleeping app are those of this revision.
    pub(crate) fn asleep_as_published(&mut self, revision: u64) {
        let listing = plan::listing(self);
        plan::written(self, revision, Some(listing));
        self.published.status = Some(plan::status(self));
    }

    /// Whether nothing but a compact record is needed: the app sleeps, and that is published.
    pub(crate) fn is_folded_up(&self) -> bool {
        let idle = self.app.is_some() && self.decider.is_none() && self.members.is_empty();
        let published = &self.published;
        let status = self.app.as_ref().and_then(|app| app.status.as_ref());
        let has_traffic = status.is_some_and(AppStatus::divides_traffic);
        let busy = published.in_progress.is_some() || published.retry_at.is_some();
        let entry = published.entry.as_ref();
        idle && !has_traffic
            && self.want <= 0
            && !busy
            && published.settling.is_none()
            && published.status.as_ref() == Some(&plan::status(self))
            && self.published.split == self.split
            && entry.is_some_and(|entry| plan::same_routing(entry, &plan::listing(self).entry))
    }

    /// Takes over an app with pods at the start of control: mode and number of pods stay as they are.
    pub(crate) fn adopt(&mut self, stored: &AppStatus, now: Boottime) {
        self.path = Path::found(stored.mode == Mode::Serve);
        self.floor = floor::of(stored);
        let floor = self.pods_min().max(self.settings.pods_idle());
        self.want = count(self.live_of(stored)).max(floor);
        self.want_counted = self.want;
        self.adopt_rollout();
        self.kpa = Reconciler {
            activity: Activity::Active,
            reason: Reason::None,
            initialized: true,
            ..Reconciler::new(ms(now))
        };
        // Those beyond will leave: they are no part of a peak.
        let ready = self.ready().min(self.want);
        let settings = self.settings.clone();
        self.decider = Some(Decider::new(ms(now), settings, Some(ready)));
    }

    /// Whether any of its pods is the app's, and not one that another app with this VIP has left.
    pub(crate) fn has_own_pods(&self) -> bool {
        let app = self.app.as_ref();
        let uid = app.and_then(|app| app.metadata.uid.as_deref());
        self.members.values().any(|member| member.is_owned(uid))
    }

    /// Marks the pods that another app with this VIP has left: they leave, and are none of this app's.
    pub(crate) fn disown(&mut self) {
        let Some(app) = &self.app else {
            return;
        };
        let uid = app.metadata.uid.as_deref();
        for member in self.members.values_mut() {
            member.draining |= !member.is_owned(uid);
        }
    }

    /// Whether `app` is this record's app, perhaps with another manifest, and not a new one of the same name.
    pub(crate) fn is_of(&self, app: &App) -> bool {
        self.key == app.key()
            && self
                .app
                .as_ref()
                .is_some_and(|known| known.metadata.uid == app.metadata.uid)
    }

    /// The revision of this record's app; none if `stored` is not a state of it.
    pub(crate) fn revision_of(&self, key: &Key, stored: &StoredApp) -> Option<u64> {
        let known = self.app.as_ref().filter(|_| self.key == *key)?;
        let uid = known.metadata.uid.as_deref().unwrap_or_default();
        (uid == stored.uid).then(|| known.revision())
    }

    /// The app as this control has written it. If its manifest has changed too, that arrives as a change of the cluster.
    pub(crate) fn app_written(&mut self, app: Arc<App>) {
        let known = self.app.as_ref().filter(|_| self.is_of(&app));
        if known
            .is_some_and(|known| known.is_configured_as(&app) && known.revision() < app.revision())
        {
            self.app = Some(app);
        }
    }

    /// Whether the passing of time can change anything.
    pub(crate) fn awake(&self) -> bool {
        self.decider.is_some() || !self.members.is_empty() || self.published.retry_at.is_some()
    }

    /// Whether a plan has nothing to do until something changes: the app has the pods that it wants, all ready, none fails requests, and
    /// nothing is to be retried.
    pub(crate) fn is_steady(&self) -> bool {
        let ready = usize::try_from(self.ready()).unwrap_or_default();
        self.want > 0
            && ready == self.wanted()
            && ready == self.members.len()
            && self.held.is_none()
            && self.members.values().all(|member| member.fault.is_none())
            && self.published.retry_at.is_none()
            && self.is_rolled_out()
    }

    /// Drops what activators have reported of its pods a while ago: in serve mode no activator has the next answer, and the report of one
    /// may be lost. Returns whether there was any.
    pub(crate) fn forget_faults(&mut self, now: Boottime) -> bool {
        let mut any = false;
        for member in self.members.values_mut() {
            let old = member
                .fault
                .take_if(|fault| now.since(fault.at) >= FAULT_KNOWN);
            any |= old.is_some();
        }
        any
    }

    /// Every node has acknowledged that the VIP is in proxy mode.
    pub(crate) fn proxied_everywhere(&self) -> bool {
        self.published
            .proxy_since
            .is_some_and(|since| self.published.settled >= since)
    }

    /// The number of ready pods that are not draining.
    pub(crate) fn ready(&self) -> i32 {
        count(
            self.members
                .values()
                .filter(|member| member.address().is_some())
                .count(),
        )
    }

    /// The number of pods that count towards the wanted number.
    pub(crate) fn live(&self) -> usize {
        self.members
            .values()
            .filter(|member| member.is_live())
            .count()
    }

    /// Whether each pod has a limit of concurrent requests. Only the activator enforces it, so the app stays in proxy mode.
    pub(crate) fn has_request_limit(&self) -> bool {
        self.settings.container_concurrency > 0
    }

    /// Whether requests that have something in common get the same target of the split. Only the activator reads them, so the app
    /// stays in proxy mode.
    pub(crate) fn is_sticky(&self) -> bool {
        let sticky = self.app.as_ref().and_then(|app| app.spec.sticky.as_ref());
        sticky.is_some() && !self.split.is_empty()
    }

    /// The mode for the current pods.
    pub(crate) fn mode(&self) -> Mode {
        let is_proxied = self.has_request_limit() || self.is_sticky();
        if self.path.serves() && self.ready() > 0 && !is_proxied {
            Mode::Serve
        } else {
            Mode::Proxy
        }
    }

    /// The sockets of ready pods, in order.
    pub(crate) fn backends(&self) -> Vec<SocketAddrV6> {
        let Some(app) = &self.app else {
            return Vec::new();
        };
        let port = app.spec.target_port();
        let members = self.members.values();
        let mut all: Vec<_> = members.filter_map(|member| member.socket(port)).collect();
        all.sort_unstable();
        all
    }
}

/// A time in the autoscaler's milliseconds.
pub(crate) fn ms(now: Boottime) -> i64 {
    i64::try_from(now.0 / 1_000_000).unwrap_or(i64::MAX)
}

fn count(pods: usize) -> i32 {
    i32::try_from(pods).unwrap_or(i32::MAX)
}
