//! An activator of the simulation: the real end of the link, breaker, demand and load of each app, and its requests.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddrV6;
use std::time::Duration;

use dormouse_activator::breaker::Breaker;
use dormouse_activator::demand::{Demand, Need};
use dormouse_activator::link::follower::{Change, Follower};
use dormouse_activator::link::proto::{Down, Hello, Load as LoadMessage, Up};
use dormouse_activator::link::root::Session;
use dormouse_activator::load::Load;
use dormouse_activator::park::{QueueLimits, Ticket};
use dormouse_activator::{Report, Route};
use dormouse_fleet::Boottime;

use super::processes::Processes;
use super::{SECOND, Without};

/// Longest time in which a request waits for a route or for a pod.
pub(super) const PATIENCE: Duration = Duration::from_secs(8);
const ATTEMPTS_MAX: u32 = 10;
const PAUSE: Duration = Duration::from_millis(100);
/// Its clock is another machine's.
const AHEAD: Duration = Duration::from_secs(5_000);
const LIMITS: QueueLimits = QueueLimits {
    count_max: 1_000,
    bytes_max: 1 << 20,
};

#[derive(Clone, Copy)]
pub(super) struct Request {
    pub(super) vip: u32,
    pub(super) port: u16,
    pub(super) arrived: Boottime,
    /// Time from the grant of a slot to the end of the response.
    pub(super) lasts: Duration,
}

/// How a request ended that got no response.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Refusal {
    /// No route or no pod in time: 503 with Retry-After.
    Late,
    /// 404: there is no app, or another port is the app's.
    Unknown,
    /// 502: no backend accepted it.
    Backend,
}

/// A request at a backend.
struct Exchange {
    vip: u32,
    backend: SocketAddrV6,
    number: u32,
    until: Boottime,
}

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

/// What happened in a step.
#[derive(Default)]
pub(super) struct Ended {
    pub(super) answered: usize,
    pub(super) refused: Vec<(Request, Refusal)>,
    /// Backends that were dialled and whose pods were removed.
    pub(super) removed: Vec<u32>,
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

fn number_of(backend: SocketAddrV6) -> u32 {
    let segments = backend.ip().segments();
    (u32::from(segments[6]) << 16) | u32::from(segments[7])
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

    pub(super) fn request(&mut self, request: Request, now: Boottime) {
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
    fn enter(&mut self, ticket: Ticket, now: Boottime) {
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

    fn end_exchanges(&mut self, now: Boottime, processes: &mut Processes) {
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
    fn answer_asking(&mut self, now: Boottime) {
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
    fn grant(&mut self, vip: u32, now: Boottime, processes: &mut Processes, ended: &mut Ended) {
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

    fn repeat(&mut self, vip: u32, now: Boottime) {
        let app = self.apps.entry(vip).or_default();
        if app.repeat_at.take_if(|at| *at <= now).is_none() {
            return;
        }
        let need = app.need();
        if let Some(need) = app.demand.repeat(need) {
            app.repeat_at = Some(now + SECOND);
            self.report(vip, need, now);
        }
    }

    fn time_out(&mut self, now: Boottime, ended: &mut Ended) {
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

    /// The activator is killed: what it parked is lost, and its connections to pods end.
    pub(super) fn kill(&mut self, processes: &mut Processes) {
        for exchange in self.exchanges.drain(..) {
            let process = processes.all.get_mut(&exchange.number).unwrap();
            process.open = process.open.saturating_sub(1);
        }
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
