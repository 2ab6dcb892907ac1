//! The table of sick apps.

use dormouse_fleet::proto::{PodStatus, pod_status::Phase};
use serde_json::{Value, json};

use super::pods;
use crate::node::POD;

/// What happens to an app, in order.
pub(super) enum Visit {
    /// A request, and parts of its response.
    Http1(&'static [&'static str]),
    /// A request over HTTP/2 with prior knowledge, and parts of its response.
    Http2(&'static [&'static str]),
    /// From now on the node reports this of its pods.
    Now(Box<PodStatus>),
    /// `get` shows these.
    Until(&'static [&'static str]),
}

impl Visit {
    pub(super) fn parts(&self) -> &'static [&'static str] {
        match self {
            Self::Http1(parts) | Self::Http2(parts) => parts,
            Self::Now(_) | Self::Until(_) => &[],
        }
    }
}

/// A sick app.
pub(super) struct Row {
    pub(super) vip: u32,
    pub(super) name: &'static str,
    /// Fields of its specification.
    pub(super) spec: Value,
    /// What its node reports of its pods.
    pub(super) report: Option<PodStatus>,
    pub(super) visits: Vec<Visit>,
    /// Parts of what is shown after the visits.
    pub(super) get: &'static [&'static str],
    pub(super) explain: &'static [&'static str],
    /// Parts of its events; none: there is no warning.
    pub(super) event: &'static [&'static str],
    /// Status and reason of the condition Ready.
    pub(super) ready: [&'static str; 2],
    /// A reason that was shown and is over: no screen of the present state has it.
    pub(super) over: Option<&'static str>,
    pub(super) timeline: &'static [&'static str],
    /// The outcome of its wake in the metrics.
    pub(super) outcome: &'static str,
    /// The reasons for which its requests are refused in the metrics.
    pub(super) refused: &'static [&'static str],
}

fn ended(reason: &str, message: &str, exit_code: i32) -> PodStatus {
    let mut status = PodStatus {
        reason: reason.to_owned(),
        message: message.to_owned(),
        exit_code,
        ..PodStatus::default()
    };
    status.set_phase(Phase::Failed);
    status
}

fn unready(reason: &str, message: &str) -> PodStatus {
    let mut status = PodStatus {
        reason: reason.to_owned(),
        message: message.to_owned(),
        address: POD.to_owned(),
        ..PodStatus::default()
    };
    status.set_phase(Phase::Running);
    status
}

fn ready_at(address: &str) -> PodStatus {
    let mut status = PodStatus {
        address: address.to_owned(),
        ready: true,
        ..PodStatus::default()
    };
    status.set_phase(Phase::Running);
    status
}

/// A short limit for a request of an app whose start takes long.
fn impatient() -> Value {
    json!({"wakeTimeout": "2s", "scale": {"window": "10m"}})
}

fn long() -> Value {
    json!({"scale": {"window": "10m"}})
}

pub(super) fn rows() -> Vec<Row> {
    vec![
        crash(),
        missing_binary(),
        wrong_port(),
        failing_probe(),
        no_room(),
        no_such_node(),
        hang(),
        slow_start(),
        slow_answer(),
        death(),
        http1_only(),
        full_log(),
    ]
}

fn crash() -> Row {
    Row {
        vip: 1,
        name: "crashes at its start",
        spec: long(),
        report: Some(ended(
            "Error",
            "the process exited with status 3\nno configuration",
            3,
        )),
        visits: vec![
            Visit::Http1(&[
                "503",
                "retry-after: 20",
                "does not start",
                "the process exited with status 3\n",
            ]),
            Visit::Http1(&["503", "retry-after: ", "does not start"]),
        ],
        get: &["Waking", "CrashLoopBackOff"],
        explain: &[
            "pods failed in a row",
            "exited with status 3",
            "no configuration",
            "answered 503",
        ],
        event: &["PodFailed", "Error: the process exited with status 3"],
        ready: ["False", "CrashLoopBackOff"],
        over: None,
        timeline: &["failed in ", "the process exited with status 3"],
        outcome: "failed",
        refused: &["failing", "failing"],
    }
}

fn missing_binary() -> Row {
    Row {
        vip: 2,
        name: "its binary is missing",
        spec: long(),
        report: Some(ended(
            "StartError",
            "failed to execute /no/server: No such file or directory (os error 2)",
            128,
        )),
        visits: vec![Visit::Http1(&[
            "503",
            "does not start",
            "/no/server: No such file or directory",
        ])],
        get: &["Waking", "CrashLoopBackOff"],
        explain: &["StartError: failed to execute /no/server: No such file"],
        event: &["StartError: failed to execute /no/server: No such file"],
        ready: ["False", "CrashLoopBackOff"],
        over: None,
        timeline: &["failed in ", "/no/server: No such file"],
        outcome: "failed",
        refused: &["failing"],
    }
}

fn wrong_port() -> Row {
    Row {
        vip: 3,
        name: "listens on another port",
        spec: impatient(),
        report: Some(unready(
            "NotListening",
            "nothing listens on port 8000; the process listens on 8080",
        )),
        visits: vec![Visit::Http1(&[
            "503",
            "retry-after: 5",
            "no ready pod after 2s",
            "the process listens on 8080",
        ])],
        get: &["Waking", "NotListening"],
        explain: &[
            "not ready: NotListening",
            "the process listens on 8080",
            "parked for 2s at most",
        ],
        event: &["\"NotListening\"", "the process listens on 8080"],
        ready: ["False", "NotListening"],
        over: None,
        timeline: &["timed out in ready", "the process listens on 8080"],
        outcome: "timed_out",
        refused: &["age"],
    }
}

fn failing_probe() -> Row {
    Row {
        vip: 4,
        name: "fails its readiness probe",
        spec: impatient(),
        report: Some(unready(
            "ProbeFailed",
            "GET /up on port 8000 is answered 500 Oops: db is down",
        )),
        visits: vec![Visit::Http1(&[
            "503",
            "no ready pod after 2s",
            "answered 500 Oops: db is down",
        ])],
        get: &["Waking", "ProbeFailed"],
        explain: &["answered 500 Oops: db is down"],
        event: &["\"ProbeFailed\"", "db is down"],
        ready: ["False", "ProbeFailed"],
        over: None,
        timeline: &["timed out in ready", "db is down"],
        outcome: "timed_out",
        refused: &["age"],
    }
}

fn no_room() -> Row {
    Row {
        vip: 5,
        name: "has no room",
        spec: json!({
            "wakeTimeout": "2s",
            "container": {"name": "app", "command": ["serve"], "resources": {"requests": {"cpu": "100"}}},
        }),
        report: None,
        visits: vec![Visit::Http1(&[
            "503",
            "no ready pod after 2s",
            "Unschedulable",
            "1 Insufficient cpu",
        ])],
        get: &["Waking", "Unschedulable"],
        explain: &[
            "no node yet: not ready: Unschedulable: 0/1 nodes are available: 1 Insufficient cpu",
        ],
        event: &["\"Unschedulable\"", "Insufficient cpu"],
        ready: ["False", "Unschedulable"],
        over: None,
        timeline: &["timed out in place", "Insufficient cpu"],
        outcome: "timed_out",
        refused: &["age"],
    }
}

fn no_such_node() -> Row {
    Row {
        vip: 6,
        name: "selects a node that does not exist",
        spec: json!({"wakeTimeout": "2s", "nodeSelector": {"disk": "fast"}}),
        report: None,
        visits: vec![Visit::Http1(&[
            "503",
            "didn't match Pod's node affinity/selector",
        ])],
        get: &["Waking", "Unschedulable"],
        explain: &["didn't match Pod's node affinity/selector"],
        event: &["didn't match Pod's node affinity/selector"],
        ready: ["False", "Unschedulable"],
        over: None,
        timeline: &[
            "timed out in place",
            "didn't match Pod's node affinity/selector",
        ],
        outcome: "timed_out",
        refused: &["age"],
    }
}

fn hang() -> Row {
    Row {
        vip: 7,
        name: "accepts and never answers",
        spec: json!({"timeout": "3s", "scale": {"window": "10m"}}),
        report: Some(ready_at(pods::SILENT)),
        visits: vec![Visit::Http1(&["504", "did not respond within 3s"])],
        get: &["Awake", "NoResponse"],
        explain: &["and fails: NoResponse", "did not respond within 3s"],
        event: &["\"NoResponse\"", "did not respond within 3s"],
        ready: ["True", "NoResponse"],
        over: None,
        timeline: &["timed out in first byte", "did not respond within 3s"],
        outcome: "timed_out",
        refused: &[],
    }
}

fn slow_start() -> Row {
    Row {
        vip: 8,
        name: "starts slowly",
        spec: impatient(),
        report: Some(unready("NotListening", "nothing listens on port 8000")),
        visits: vec![
            Visit::Http1(&["503", "no ready pod after 2s"]),
            Visit::Now(Box::new(ready_at(POD))),
            Visit::Until(&["Awake"]),
            Visit::Http1(&["200 OK", "ok"]),
        ],
        get: &["Awake"],
        explain: &["ready at"],
        event: &["\"NotListening\""],
        ready: ["True", "PodsReady"],
        over: Some("NotListening"),
        timeline: &["timed out in ready", "NotListening"],
        outcome: "timed_out",
        refused: &["age"],
    }
}

fn slow_answer() -> Row {
    Row {
        vip: 9,
        name: "answers slowly",
        spec: long(),
        report: Some(ready_at(pods::SLOW)),
        visits: vec![Visit::Http1(&["200 OK", "slow"])],
        get: &["Awake"],
        explain: &["ready at"],
        event: &[],
        ready: ["True", "PodsReady"],
        over: None,
        timeline: &["first byte after", "slowest first byte"],
        outcome: "answered",
        refused: &[],
    }
}

fn death() -> Row {
    Row {
        vip: 10,
        name: "dies while it serves",
        spec: long(),
        report: Some(ready_at(pods::FLEETING)),
        visits: vec![
            Visit::Http1(&["200 OK", "once"]),
            Visit::Http1(&["502", "lost the connection to "]),
            Visit::Now(Box::new(ended(
                "Error",
                "the process was killed by signal 11 (SIGSEGV)",
                139,
            ))),
            Visit::Until(&["Waking", "CrashLoopBackOff"]),
            Visit::Http1(&["503", "retry-after: ", "was killed by signal 11"]),
        ],
        get: &["CrashLoopBackOff"],
        explain: &["was killed by signal 11 (SIGSEGV)"],
        event: &["was killed by signal 11 (SIGSEGV)"],
        ready: ["False", "CrashLoopBackOff"],
        over: Some("BadResponse"),
        timeline: &["first byte after"],
        outcome: "answered",
        refused: &["failing"],
    }
}

fn http1_only() -> Row {
    Row {
        vip: 11,
        name: "speaks HTTP/1 when it is asked for HTTP/2",
        spec: long(),
        report: Some(ready_at(pods::HTTP1)),
        visits: vec![Visit::Http2(&["dormouse: app default/app-11 failed"])],
        get: &["Awake", "BadResponse"],
        explain: &["and fails: BadResponse", "lost the connection to "],
        event: &["\"BadResponse\"", "lost the connection to "],
        ready: ["True", "BadResponse"],
        over: None,
        timeline: &["failed in first byte", "lost the connection to "],
        outcome: "failed",
        refused: &[],
    }
}

fn full_log() -> Row {
    Row {
        vip: 12,
        name: "fills its log",
        spec: long(),
        report: Some(ready_at(POD)),
        visits: vec![Visit::Http1(&["200 OK", "ok"])],
        get: &["Awake"],
        explain: &[
            "10.0 MiB of the last ",
            "MiB/s: it fills its log",
            "about 30.0 MiB before that were removed",
        ],
        event: &[],
        ready: ["True", "PodsReady"],
        over: None,
        timeline: &["first byte after"],
        outcome: "answered",
        refused: &[],
    }
}
