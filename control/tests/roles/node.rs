//! A simulated node: it reports every pod as ready at one address, and connects again when control was restarted.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use dormouse_fleet::Boottime;
use dormouse_fleet::client::{Link, LinkError, connect, endpoint};
use dormouse_fleet::proto::{
    Beat, Hello, NodeStatus, PodSpec, PodStatus, Stages, Up, pod_status::Phase,
};
use tokio::time::{interval, sleep};

/// The address of all pods.
pub(crate) const POD: &str = "2001:db8:d0::1:0:7";

/// Runs the node until the test ends. While `starting` is set, its pods are not ready.
pub(crate) async fn run(control: &'static str, starting: Rc<Cell<bool>>) {
    let mut pods = Vec::new();
    loop {
        // The end of a stream is a restart of control.
        drop(follow(control, &mut pods, &starting).await);
        sleep(Duration::from_millis(50)).await;
    }
}

async fn follow(
    control: &str,
    pods: &mut Vec<PodStatus>,
    starting: &Cell<bool>,
) -> Result<(), LinkError> {
    let channel = connect(endpoint(control)?).await?;
    let mut first = beat();
    first.hello = Some(hello());
    first.pods.clone_from(pods);
    let mut link = Link::open(channel, first).await?;
    let mut beats = interval(Duration::from_millis(300));
    let mut changed: Vec<PodStatus> = Vec::new();
    loop {
        tokio::select! {
            down = link.receive() => {
                let down = down?;
                changed.extend(down.run.iter().map(status));
                link.send(Up { applied: down.seq, pods: report(&mut changed, pods, starting), ..Up::default() })?;
            }
            _ = beats.tick() => link.send(Up { pods: report(&mut changed, pods, starting), ..beat() })?,
        }
    }
}

/// The statuses to report, which the node then has.
fn report(
    changed: &mut Vec<PodStatus>,
    pods: &mut Vec<PodStatus>,
    starting: &Cell<bool>,
) -> Vec<PodStatus> {
    if starting.get() {
        return Vec::new();
    }
    for status in &*changed {
        pods.retain(|pod| pod.uid != status.uid);
        if status.phase() == Phase::Running {
            pods.push(status.clone());
        }
    }
    std::mem::take(changed)
}

fn beat() -> Up {
    let at_ns = Boottime::now().0;
    Up {
        beat: Some(Beat { at_ns }),
        ..Up::default()
    }
}

fn hello() -> Hello {
    let boot_id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    Hello {
        node: "n1".to_owned(),
        boot_id: boot_id.trim().to_owned(),
        follows: vec![1, 2],
        status: Some(NodeStatus {
            prefix: "2001:db8:d0::1:0:0/96".to_owned(),
            address: "2001:db8:d0::1:0:1".to_owned(),
            pods: 10,
            cpu_milli: 4_000,
            memory_bytes: 8 << 30,
            runs_pods: true,
            ..NodeStatus::default()
        }),
        version: "test".to_owned(),
    }
}

fn status(spec: &PodSpec) -> PodStatus {
    let now = Boottime::now().0;
    let mut status = PodStatus {
        namespace: spec.namespace.clone(),
        name: spec.name.clone(),
        uid: spec.uid.clone(),
        ..PodStatus::default()
    };
    if spec.stop {
        status.set_phase(Phase::Gone);
        return status;
    }
    status.set_phase(Phase::Running);
    (status.address, status.ready) = (POD.to_owned(), true);
    status.stages = Some(Stages {
        received_ns: now,
        cni_begin_ns: now,
        cni_end_ns: now,
        started_ns: now,
        ready_ns: now,
    });
    status
}
