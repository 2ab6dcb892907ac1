//! `dormouse activator` and `dormouse up --without activator`: each is killed and restarted alone.

use std::time::{Duration, Instant};

use crate::world::{
    PARKED_MAX, TIMEOUT, WAKE_TIMEOUT, World, get, in_namespace, kill, served, terminate, until,
};

/// A window that keeps an app awake for the whole test.
const LONG: &str = "10m";

async fn timed_get(vip: u32) -> (String, Duration) {
    let begun = Instant::now();
    (get(vip).await, begun.elapsed())
}

#[test]
fn the_help_states_what_is_lost_and_what_is_not() {
    let help = std::process::Command::new(env!("CARGO_BIN_EXE_dormouse"))
        .args(["activator", "--help"])
        .output()
        .unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let words: Vec<_> = help.split_whitespace().collect();
    let help = words.join(" ");
    for part in [
        "dormouse up --without activator",
        "awake apps are served with the last routes",
        "requests that it had parked are lost and nothing else",
        "dormouse activator --join LINE --acting-prefix",
    ] {
        assert!(help.contains(part), "{part} is not in {help}");
    }
}

#[test]
fn a_restarted_activator_gets_its_routes_again_and_a_new_one_wakes_apps() {
    in_namespace(async || {
        let world = World::new().await;
        let control = world.control().await;
        let activator = world.activator().await;
        world.create_app(1, LONG).await;
        world.create_app(2, LONG).await;
        // The first request is parked, and wakes its app.
        assert!(get(1).await.ends_with("ok"));
        kill(activator).await;
        assert!(!get(1).await.ends_with("ok"), "no activator runs");
        let activator = world.activator().await;
        served(1).await;
        served(2).await;
        assert_eq!(world.pods().await, 2);
        terminate(activator).await;
        terminate(control).await;
    });
}

#[test]
fn a_killed_activator_loses_what_it_parked_and_nothing_else() {
    in_namespace(async || {
        let world = World::new().await;
        let _control = world.control().await;
        let activator = world.activator().await;
        world.create_app(1, LONG).await;
        world.create_app(2, LONG).await;
        served(1).await;
        world.starting.set(true);
        let parked = tokio::spawn(get(2));
        until("the parked request wakes its app", async || {
            world.pods().await == 2
        })
        .await;
        kill(activator).await;
        let lost = parked.await.unwrap();
        assert!(!lost.contains("HTTP/1.1"), "{lost}");
        let _activator = world.activator().await;
        assert!(get(1).await.ends_with("ok"), "it has the routes again");
        let parked = tokio::spawn(get(2));
        world.starting.set(false);
        let reply = parked.await.unwrap();
        assert!(reply.ends_with("ok"), "{reply}");
        assert_eq!(world.pods().await, 2, "the wake was not begun again");
    });
}

#[test]
fn without_control_awake_apps_are_served_and_sleeping_ones_refused_until_it_is_back() {
    in_namespace(async || {
        let world = World::new().await;
        let control = world.control().await;
        let _activator = world.activator().await;
        world.create_app(1, LONG).await;
        world.create_app(2, LONG).await;
        served(1).await;
        kill(control).await;
        for _ in 0..20 {
            assert!(get(1).await.ends_with("ok"));
        }
        let begun = Instant::now();
        let refused = get(2).await;
        assert!(refused.starts_with("HTTP/1.1 503"), "{refused}");
        assert!(refused.contains("retry-after: 1"), "{refused}");
        assert!(begun.elapsed() >= WAKE_TIMEOUT);
        // Of many requests only as many are parked as the budget allows.
        let all: Vec<_> = (0..30).map(|_| tokio::spawn(timed_get(2))).collect();
        let mut at_once = 0;
        for each in all {
            let (reply, took) = each.await.unwrap();
            assert!(reply.starts_with("HTTP/1.1 503"), "{reply}");
            at_once += usize::from(took < WAKE_TIMEOUT);
        }
        assert_eq!(at_once, 30 - PARKED_MAX);
        // A request that is parked while control comes back is answered.
        let parked = tokio::spawn(async {
            let begun = Instant::now();
            while !get(2).await.ends_with("ok") {
                assert!(begun.elapsed() < TIMEOUT, "not served again");
            }
        });
        let _control = world.control().await;
        parked.await.unwrap();
        assert!(get(1).await.ends_with("ok"));
        until("no pod is lost", async || world.pods().await == 2).await;
    });
}
