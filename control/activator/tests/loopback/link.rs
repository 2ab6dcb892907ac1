//! The activator attached to a controller, in its process and over gRPC.

use std::time::Duration;

use dormouse_activator::Report;
use dormouse_activator::link::{self, Attachment, Event, Hub, Load};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::rig::{Rig, TIMEOUT, VIP, path_backend, until};

/// A controller of one epoch.
struct Controller {
    hub: Hub,
    events: mpsc::Receiver<Event>,
    shutdown: CancellationToken,
    served: JoinSet<()>,
}

impl Controller {
    fn start(epoch: u64) -> Self {
        let (hub, events) = link::start(epoch);
        Self {
            hub,
            events,
            shutdown: CancellationToken::new(),
            served: JoinSet::new(),
        }
    }

    /// Serves on `port`; 0: a free one. Returns the port.
    async fn serve(&mut self, port: u16) -> u16 {
        let listener = TcpListener::bind(("::1", port)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let served = link::serve(listener, self.hub.clone(), self.shutdown.clone());
        self.served.spawn(async { served.await.unwrap() });
        port
    }

    /// Ends the streams and closes the port.
    async fn stop(mut self) {
        self.shutdown.cancel();
        let stopped = timeout(TIMEOUT, self.served.join_next()).await;
        stopped.expect("still serves").unwrap().unwrap();
    }

    /// The next event but attachments and loads.
    async fn event(&mut self) -> Event {
        loop {
            let event = timeout(TIMEOUT, self.events.recv()).await;
            match event.expect("no event within the timeout").unwrap() {
                Event::Attached { .. } | Event::Load(_) => {}
                event => return event,
            }
        }
    }

    async fn load(&mut self) -> Vec<Load> {
        loop {
            let event = timeout(TIMEOUT, self.events.recv()).await;
            if let Event::Load(loads) = event.expect("no load within the timeout").unwrap() {
                return loads;
            }
        }
    }

    fn publish(&self, rig: &Rig, backends: Vec<std::net::SocketAddrV6>) {
        let mut route = rig.route();
        route.backends = backends;
        self.hub.publish(VIP, route);
    }
}

fn attachment(rig: &mut Rig) -> Attachment {
    let (_, closed) = mpsc::channel(1);
    let reports = std::mem::replace(&mut rig.reports, closed);
    Attachment::new(rig.handle.clone(), reports, "test".to_owned())
}

fn dial(rig: &mut Rig, port: u16) {
    let endpoint = dormouse_fleet::client::endpoint(&format!("http://[::1]:{port}")).unwrap();
    tokio::spawn(attachment(rig).dial(endpoint, rig.shutdown.clone()));
}

#[tokio::test]
async fn an_app_is_asked_for_woken_and_forgotten_in_one_process() {
    let mut rig = Rig::start();
    let controller = Controller::start(1);
    let attached = attachment(&mut rig).follow(controller.hub.clone(), rig.shutdown.clone());
    tokio::spawn(attached);
    wakes_and_sleeps(&rig, controller).await;
}

#[tokio::test]
async fn an_app_is_asked_for_woken_and_forgotten_over_grpc() {
    let mut rig = Rig::start();
    let mut controller = Controller::start(1);
    let port = controller.serve(0).await;
    dial(&mut rig, port);
    wakes_and_sleeps(&rig, controller).await;
}

async fn wakes_and_sleeps(rig: &Rig, mut controller: Controller) {
    controller.hub.ports([rig.address.port()].into());
    controller.hub.complete();
    let reply = rig.spawn_get("/first");
    let wanted = controller.event().await;
    let Event::Report(Report::Want { vip: VIP, port, at }) = wanted else {
        panic!("no want, but {wanted:?}");
    };
    assert_eq!(port, rig.address.port());
    controller.publish(rig, Vec::new());
    assert!(matches!(
        controller.event().await,
        Event::Report(Report::Demand { vip: VIP, .. })
    ));
    let loads = controller.load().await;
    assert!(
        loads[0].vip == VIP && loads[0].concurrency > 0.0,
        "{loads:?}"
    );
    controller.publish(rig, vec![path_backend().await]);
    assert_eq!(reply.await.unwrap().body, "/first");
    loop {
        match controller.event().await {
            Event::Report(Report::Demand { .. }) => {}
            Event::Report(Report::FirstByte {
                vip: VIP,
                at: first,
            }) => break assert!(first >= at),
            other => panic!("no first byte, but {other:?}"),
        }
    }
    assert_eq!(controller.hub.routes(), 1);
    controller.publish(rig, Vec::new());
    until("the app is forgotten", || rig.handle.apps() == 0).await;
    assert_eq!(controller.hub.routes(), 0);
}

#[tokio::test]
async fn routes_of_an_earlier_control_are_used_until_the_next_has_sent_its_own() {
    let mut rig = Rig::start();
    let mut first = Controller::start(1);
    let port = first.serve(0).await;
    first.hub.ports([rig.address.port()].into());
    first.publish(&rig, vec![path_backend().await]);
    first.hub.complete();
    dial(&mut rig, port);
    until("the route is there", || rig.handle.apps() == 1).await;
    first.stop().await;
    assert_eq!(rig.get("/without").await.body, "/without");
    let mut second = Controller::start(2);
    second.serve(port).await;
    second.hub.ports([rig.address.port()].into());
    until("attached again", || second.hub.streams() == 1).await;
    assert_eq!(rig.get("/before").await.body, "/before");
    second.hub.complete();
    until("the route is dropped", || rig.handle.apps() == 0).await;
}

#[tokio::test]
async fn an_older_control_is_not_followed() {
    let mut rig = Rig::start();
    let mut newer = Controller::start(2);
    let port = newer.serve(0).await;
    newer.hub.ports([rig.address.port()].into());
    newer.publish(&rig, vec![path_backend().await]);
    newer.hub.complete();
    dial(&mut rig, port);
    until("the route is there", || rig.handle.apps() == 1).await;
    newer.stop().await;
    let mut older = Controller::start(1);
    older.serve(port).await;
    older.hub.complete();
    // It attaches, is refused, and leaves.
    let left =
        async { while !matches!(older.events.recv().await, Some(Event::Detached { .. })) {} };
    timeout(Duration::from_secs(20), left).await.expect("left");
    assert_eq!(rig.get("/still").await.body, "/still");
}
