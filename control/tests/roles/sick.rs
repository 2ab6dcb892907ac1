//! Sick apps: what visitors get, and what `get`, `explain`, events, the timeline and the metrics say, in one table. The node reports
//! of a pod what an agent reports; how an agent finds that is tested there.

mod logs;
mod pods;
mod table;

use std::process::Stdio;
use std::rc::Rc;
use std::time::{Duration, Instant};

use dormouse_fleet::proto::PodStatus;
use serde_json::Value;
use tokio::time::sleep;

use crate::world::{TIMEOUT, World, command, healthy, in_namespace, page, until};
use table::{Row, Visit, rows};

/// The output of a command.
async fn output(arguments: &[&str]) -> String {
    let mut command = command(arguments);
    let output = command.stdout(Stdio::piped()).output().await.unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text + &String::from_utf8_lossy(&output.stderr)
}

/// Waits until the output of a command has all parts.
async fn says(app: &str, what: &str, arguments: &[&str], parts: &[&str]) {
    let began = Instant::now();
    loop {
        let text = output(arguments).await;
        if parts.iter().all(|part| text.contains(part)) {
            return;
        }
        assert!(
            began.elapsed() < TIMEOUT,
            "{app}: {what} has not {parts:?}: {text}"
        );
        sleep(Duration::from_millis(200)).await;
    }
}

/// One app: its visits, and what each screen says after them.
async fn check(world: &World, row: &Row) {
    let app = format!("app-{}", row.vip);
    for visit in &row.visits {
        let reply = match visit {
            Visit::Http1(_) => crate::world::get(row.vip).await,
            Visit::Http2(_) => pods::get_http2(row.vip).await,
            Visit::Now(report) => {
                world
                    .reports
                    .borrow_mut()
                    .insert(app.clone(), PodStatus::clone(report));
                continue;
            }
            Visit::Until(parts) => {
                says(&app, "get", &["get", "app", &app], parts).await;
                continue;
            }
        };
        for part in visit.parts() {
            assert!(
                reply.contains(part),
                "{app} ({}): {part} is not in {reply}",
                row.name
            );
        }
    }
    let name = format!("{app} ({})", row.name);
    says(&name, "get", &["get", "app", &app], row.get).await;
    says(&name, "explain", &["explain", "app", &app], row.explain).await;
    let events = ["events", "--for", &format!("app/{app}"), "-o", "json"];
    says(&name, "events", &events, row.event).await;
    if row.event.is_empty() {
        let text = output(&events).await;
        assert!(!text.contains("Warning"), "{name}: {text}");
    }
    let json = ["get", "app", &app, "-o", "json"];
    let [status, reason] = row.ready;
    until_ready(&name, &json, status, reason).await;
    if let Some(reason) = row.over {
        for command in [&json[..], &["get", "app", &app], &["explain", "app", &app]] {
            let text = output(command).await;
            assert!(!text.contains(reason), "{name}: {reason} is over: {text}");
        }
    }
    says(
        &name,
        "the timeline",
        &["wake", "timeline", &app],
        row.timeline,
    )
    .await;
}

/// Waits until the condition Ready of an app has this status and reason.
async fn until_ready(app: &str, json: &[&str], status: &str, reason: &str) {
    let began = Instant::now();
    loop {
        let object: Value = serde_json::from_str(&output(json).await).unwrap();
        let conditions = object["status"]["conditions"].as_array().cloned();
        let mut conditions = conditions.unwrap_or_default().into_iter();
        let ready = conditions.find(|condition| condition["type"] == "Ready");
        let ready = ready.unwrap_or_default();
        if (&ready["status"], &ready["reason"]) == (&status.into(), &reason.into()) {
            return;
        }
        assert!(
            began.elapsed() < TIMEOUT,
            "{app}: the condition Ready is not {status}, {reason}: {ready}"
        );
        sleep(Duration::from_millis(200)).await;
    }
}

/// The value of a counter.
async fn counter(name: &str) -> usize {
    let text = page("[::1]:9090", "/metrics").await.unwrap();
    let start = format!("{name} ");
    let count = text.lines().find_map(|line| line.strip_prefix(&start));
    count.map_or(0, |count| count.parse().unwrap())
}

/// What is counted is what the rows say.
async fn check_counters(outcomes: &[&str], refusals: &[&str]) {
    let count = |all: &[&str], one: &str| all.iter().filter(|known| **known == one).count();
    for outcome in ["answered", "failed", "timed_out", "abandoned", "refused"] {
        let counted = counter(&format!("dormouse_wakes_total{{outcome=\"{outcome}\"}}")).await;
        assert_eq!(counted, count(outcomes, outcome), "{outcome}");
    }
    for reason in ["failing", "age", "count"] {
        let name = format!("dormouse_refused_requests_total{{reason=\"{reason}\"}}");
        assert_eq!(counter(&name).await, count(refusals, reason), "{reason}");
    }
    let woken =
        "dormouse_scale_decisions_total{direction=\"up\",window=\"stable\",reason=\"wake\"}";
    assert_eq!(counter(woken).await, outcomes.len());
}

#[test]
fn all_screens_give_the_reason_of_a_sick_app() {
    in_namespace(async || {
        let world = Rc::new(World::new().await);
        pods::start().await;
        let _control = world.up("control", &[]);
        until("control is up", async || healthy("[::1]:9090").await).await;
        logs::offer().await;
        let rows = rows();
        let mut checks = Vec::new();
        for row in &rows {
            let app = format!("app-{}", row.vip);
            world
                .reports
                .borrow_mut()
                .extend(row.report.clone().map(|report| (app, report)));
            world.create_app_with(row.vip, &row.spec).await;
        }
        let outcomes: Vec<&str> = rows.iter().map(|row| row.outcome).collect();
        let refusals: Vec<&str> = rows.iter().flat_map(|row| row.refused).copied().collect();
        for row in rows {
            let world = Rc::clone(&world);
            checks.push(tokio::task::spawn_local(async move {
                check(&world, &row).await;
            }));
        }
        for check in checks {
            check.await.unwrap();
        }
        check_counters(&outcomes, &refusals).await;
        let apps: Value =
            serde_json::from_str(&output(&["get", "apps", "-o", "json"]).await).unwrap();
        assert_eq!(apps["items"].as_array().unwrap().len(), outcomes.len());
    });
}
