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

use crate::world::{TIMEOUT, World, dormouse, healthy, in_namespace, page, until};
use table::{Row, Visit, rows};

/// The output of a command.
async fn output(arguments: &[&str]) -> String {
    let mut command = dormouse(arguments);
    // Without a kubeconfig, commands use the control plane on this host.
    command.env_remove("KUBECONFIG").env("HOME", "/nonexistent");
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
    says(
        &name,
        "events",
        &["events", "--for", &format!("app/{app}"), "-o", "json"],
        row.event,
    )
    .await;
    says(
        &name,
        "the timeline",
        &["wake", "timeline", &app],
        row.timeline,
    )
    .await;
}

/// The number of wakes with this outcome.
async fn wakes(outcome: &str) -> usize {
    let text = page("[::1]:9090", "/metrics").await.unwrap();
    let label = format!("dormouse_wakes_total{{outcome=\"{outcome}\"}} ");
    let count = text.lines().find_map(|line| line.strip_prefix(&label));
    count.map_or(0, |count| count.parse().unwrap())
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
        for row in rows {
            let world = Rc::clone(&world);
            checks.push(tokio::task::spawn_local(async move {
                check(&world, &row).await;
            }));
        }
        for check in checks {
            check.await.unwrap();
        }
        for outcome in ["answered", "failed", "timed_out"] {
            let expected = outcomes.iter().filter(|known| **known == outcome).count();
            assert_eq!(wakes(outcome).await, expected, "{outcome}");
        }
        let apps: Value =
            serde_json::from_str(&output(&["get", "apps", "-o", "json"]).await).unwrap();
        assert_eq!(apps["items"].as_array().unwrap().len(), outcomes.len());
    });
}
