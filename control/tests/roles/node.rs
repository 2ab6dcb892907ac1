//! A simulated node: it reports every pod as ready at one address, and connects again when control was restarted.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use dormouse_fleet::Boottime;
use dormouse_fleet::client::{Link, LinkError, connect, endpoint};
use dormouse_fleet::proto::{
    Beat, Hello, NodeStatus, PodSpec, PodStatus, Stages, Up, pod_status::Phase,
};
use tokio::time::{interval, sleep};

/// The address of all pods that respond.
pub(crate) const POD: &str = "2001:db8:d0::1:0:7";

/// What the node reports of a started pod, by the name of its app; of others that they are ready at [`POD`].
pub(crate) type Reports = Rc<RefCell<BTreeMap<String, PodStatus>>>;

/// Runs the node until the test ends. While `starting` is set, its pods are not ready.
pub(crate) async fn run(control: &'static str, starting: Rc<Cell<bool>>, reports: Reports) {
    let mut pods = Vec::new();
    loop {
        // The end of a stream is a restart of control.
        drop(follow(control, &mut pods, &starting, &reports).await);
        sleep(Duration::from_millis(50)).await;
    }
}

async fn follow(
    control: &str,
    pods: &mut Vec<PodStatus>,
    starting: &Cell<bool>,
    reports: &Reports,
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
                changed.extend(down.run.iter().map(|spec| status(spec, &reports.borrow())));
                link.send(Up { applied: down.seq, pods: report(&mut changed, pods, starting), ..Up::default() })?;
            }
            _ = beats.tick() => {
                changed.extend(newer(pods, &reports.borrow()));
                link.send(Up { pods: report(&mut changed, pods, starting), ..beat() })?;
            }
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

/// Pods of which something else is to be reported by now.
fn newer(pods: &[PodStatus], reports: &BTreeMap<String, PodStatus>) -> Vec<PodStatus> {
    let newer = pods.iter().map(|pod| as_reported(pod.clone(), reports));
    let mut newer: Vec<_> = newer.collect();
    newer.retain(|pod| !pods.contains(pod));
    newer
}

/// A pod's status with what is to be reported of its app's pods. One that has not ended was started.
fn as_reported(pod: PodStatus, reports: &BTreeMap<String, PodStatus>) -> PodStatus {
    let app = pod.name.rsplit_once('-').map_or("", |(app, _)| app);
    let Some(report) = reports.get(app) else {
        return pod;
    };
    let mut stages = pod.stages.unwrap_or_default();
    stages.ready_ns = match (report.ready, stages.ready_ns) {
        (true, 0) => Boottime::now().0,
        (true, known) => known,
        (false, _) => 0,
    };
    PodStatus {
        namespace: pod.namespace,
        name: pod.name,
        uid: pod.uid,
        stages: Some(stages),
        ..report.clone()
    }
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
            pods: 100,
            cpu_milli: 4_000,
            memory_bytes: 8 << 30,
            runs_pods: true,
            ..NodeStatus::default()
        }),
        version: "test".to_owned(),
    }
}

fn status(spec: &PodSpec, reports: &BTreeMap<String, PodStatus>) -> PodStatus {
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
    as_reported(status, reports)
}
