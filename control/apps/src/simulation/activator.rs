//! An activator of the simulation: the real end of the link; breaker, demand and load of each app.

mod requests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use dormouse_activator::breaker::Breaker;
use dormouse_activator::demand::{Demand, Need};
use dormouse_activator::link::follower::{Change, Follower};
use dormouse_activator::link::proto::{Down, Hello, Load as LoadMessage, Up};
use dormouse_activator::link::root::Session;
use dormouse_activator::load::Load;
use dormouse_activator::park::Ticket;
use dormouse_activator::{Report, Route};
use dormouse_fleet::Boottime;

use super::processes::Processes;
use super::{SECOND, Without};
pub(super) use requests::{Ended, Refusal, Request};
use requests::{Exchange, number_of};

/// Its clock is another machine's.
const AHEAD: Duration = Duration::from_secs(5_000);

#[derive(Default)]
struct App {
    route: Option<Route>,
    demand: Demand,
    breaker: Breaker<Ticket>,
    load: Load,
    active: bool,
    /// When the demand is repeated.
    repeat_at: Option<Boottime>,
}

pub(super) struct Activator {
    follower: Follower,
    /// The epoch of the control at the other end of the stream, and its session.
    pub(super) session: Option<(u64, Session)>,
    pub(super) attached_at: Boottime,
    pub(super) up: VecDeque<(Boottime, Up)>,
    pub(super) down: VecDeque<(Boottime, Down)>,
    pub(super) ports: BTreeSet<u16>,
    complete: bool,
    apps: BTreeMap<u32, App>,
    requests: BTreeMap<Ticket, (Request, u32)>,
    /// Requests that wait for a route.
    asking: BTreeSet<Ticket>,
    /// Requests that wait before their next attempt.
    pausing: Vec<(Boottime, Ticket)>,
    /// Requests of apps that do not exist, to be answered.
    unknown: Vec<Request>,
    exchanges: Vec<Exchange>,
    tickets: u64,
    second: Boottime,
    without: Without,
}

impl Activator {
    pub(super) fn new(now: Boottime, without: Without) -> Self {
        let hello = Hello {
            name: "a".into(),
            boot_id: "elsewhere".into(),
            ..Hello::default()
        };
        Self {
            follower: Follower::new(hello),
            session: None,
            attached_at: now,
            up: VecDeque::new(),
            down: VecDeque::new(),
            ports: BTreeSet::new(),
            complete: false,
            apps: BTreeMap::new(),
            requests: BTreeMap::new(),
            asking: BTreeSet::new(),
            pausing: Vec::new(),
            unknown: Vec::new(),
            exchanges: Vec::new(),
            tickets: 0,
            second: now + SECOND / 2,
            without,
        }
    }

    /// Whether nodes may send connections here.
    pub(super) fn is_ready(&self) -> bool {
        self.complete || self.without == Without::HealthyWhenComplete
    }

    /// Whether a request for the VIP would be sent to a pod at once.
    pub(super) fn has_backend(&self, vip: u32) -> bool {
        self.apps
            .get(&vip)
            .is_some_and(|app| app.breaker.has_backend())
    }

    /// The pods of its routes.
    pub(super) fn backends(&self) -> BTreeMap<u32, BTreeSet<u32>> {
        let routes = self.apps.iter().filter_map(|(vip, app)| {
            let backends = app.route.as_ref()?.backends.iter().copied().map(number_of);
            let backends: BTreeSet<u32> = backends.collect();
            (!backends.is_empty()).then_some((*vip, backends))
        });
        routes.collect()
    }

    pub(super) fn has_requests(&self) -> bool {
        !self.requests.is_empty() || !self.exchanges.is_empty()
    }

    pub(super) fn open(&mut self, now: Boottime) -> Up {
        self.attached_at = now;
        self.follower.open(now + AHEAD)
    }

    /// The stream has ended.
    pub(super) fn close(&mut self) {
        self.session = None;
        self.up.clear();
        self.down.clear();
        self.follower.close();
        if self.without == Without::RoutesOutliveStream {
            for app in self.apps.values_mut() {
                app.asleep();
            }
        }
    }

    pub(super) fn next(&mut self, now: Boottime) -> Option<Up> {
        self.follower
            .has_next()
            .then(|| self.follower.next(now + AHEAD))
    }

    /// Takes a message of control. False: it is refused.
    pub(super) fn receive(&mut self, down: Down) -> bool {
        let complete = down.complete;
        let Ok(mut changes) = self.follower.receive(down) else {
            return false;
        };
        changes.sort_by_key(|change| match change {
            Change::Route(vip, _) | Change::Asleep(vip) | Change::Absent(vip) => *vip,
            Change::Ports(_) => 0,
        });
        for change in changes {
            match change {
                Change::Route(vip, route) => {
                    let app = self.apps.entry(vip).or_default();
                    app.breaker
                        .configure(route.container_concurrency, &route.backends);
                    app.route = Some(*route);
                }
                Change::Asleep(vip) => {
                    if let Some(app) = self.apps.get_mut(&vip) {
                        app.asleep();
                    }
                }
                Change::Absent(vip) => self.absent(vip),
                Change::Ports(ports) => self.ports = ports,
            }
        }
        self.complete |= complete;
        true
    }

    /// An app does not exist: the next step answers its requests.
    fn absent(&mut self, vip: u32) {
        self.apps.remove(&vip);
        let of_app = self
            .requests
            .extract_if(.., |_, (request, _)| request.vip == vip);
        for (ticket, (request, _)) in of_app {
            self.asking.remove(&ticket);
            self.unknown.push(request);
        }
    }

    fn raise(&mut self, vip: u32, now: Boottime) {
        let app = self.apps.entry(vip).or_default();
        let need = app.need();
        if let Some(begun) = app.demand.begin(need) {
            app.repeat_at.get_or_insert(now + SECOND);
            self.report(vip, begun.need, now);
        }
    }

    fn report(&mut self, vip: u32, need: Need, now: Boottime) {
        let at = now + AHEAD;
        self.follower.report(match need {
            Need::Route { port } => Report::Want { vip, port, at },
            Need::Pod => Report::Demand { vip, at },
        });
    }

    pub(super) fn step(&mut self, now: Boottime, processes: &mut Processes) -> Ended {
        let mut ended = Ended::default();
        let unknown = std::mem::take(&mut self.unknown).into_iter();
        ended
            .refused
            .extend(unknown.map(|request| (request, Refusal::Unknown)));
        self.end_exchanges(now, processes);
        self.answer_asking(now);
        let (due, later) = std::mem::take(&mut self.pausing)
            .into_iter()
            .partition(|(at, _)| *at <= now);
        self.pausing = later;
        let due: Vec<(Boottime, Ticket)> = due;
        for (_, ticket) in due {
            self.enter(ticket, now);
        }
        let vips: Vec<u32> = self.apps.keys().copied().collect();
        for vip in vips {
            self.grant(vip, now, processes, &mut ended);
            self.raise(vip, now);
            self.repeat(vip, now);
        }
        self.time_out(now, &mut ended);
        if now >= self.second {
            self.second = now + SECOND;
            self.second_passed(now);
        }
        ended
    }

    fn repeat(&mut self, vip: u32, now: Boottime) {
        let app = self.apps.entry(vip).or_default();
        if app.repeat_at.take_if(|at| *at <= now).is_none() {
            return;
        }
        let need = app.need();
        if let Some(need) = app.demand.repeat(need) {
            app.repeat_at = Some(now + SECOND);
            if self.without != Without::RepeatedDemand {
                self.report(vip, need, now);
            }
        }
    }

    /// Reports the load, and forgets the apps without backends that nothing uses.
    fn second_passed(&mut self, now: Boottime) {
        let since = Boottime(
            now.0
                .saturating_sub(u64::try_from(SECOND.as_nanos()).unwrap()),
        );
        let mut loads = Vec::new();
        for (vip, app) in &mut self.apps {
            let was_active = std::mem::replace(&mut app.active, !app.load.is_idle());
            if !was_active && !app.active {
                continue;
            }
            let average = app.load.take(since, now);
            app.active = !app.load.is_idle();
            loads.push(LoadMessage {
                vip: *vip,
                concurrency: average.concurrency,
                requests: average.requests,
            });
        }
        self.follower.loads(loads);
        let used: BTreeSet<u32> = self
            .requests
            .values()
            .map(|(request, _)| request.vip)
            .chain(self.exchanges.iter().map(|exchange| exchange.vip))
            .collect();
        self.apps
            .retain(|vip, app| app.breaker.has_backend() || used.contains(vip));
    }
}

impl App {
    fn asleep(&mut self) {
        self.breaker.configure(0, &[]);
        if let Some(route) = &mut self.route {
            route.backends.clear();
        }
    }

    fn need(&self) -> Option<Need> {
        let stranded = self.breaker.parked() > 0 && !self.breaker.has_backend();
        self.demand.need(self.route.is_some(), stranded)
    }
}
