//! The explanation of an app, as the core gives it: the golden screens of `dormouse explain app` are made of it. `DORMOUSE_RENEW=1 cargo test
//! -p dormouse-apps --lib explained` writes it again.

use std::path::Path;
use std::{env, fs};

use super::world::VIP;
use super::*;

/// An app in panic: one pod has served for ten minutes, one fails its probe, and one starts.
fn panicking() -> World {
    let mut world = scaled(&json!({"max": 3}));
    world.demand();
    world.execute_all();
    world.ready_all();
    let serving: Vec<Key> = world.pods.keys().cloned().collect();
    let loads = [12.0; 600].into_iter().chain([180.0; 6]);
    for load in loads {
        world.tick(load);
        world.execute_all();
    }
    let new = world.pods.keys().find(|key| !serving.contains(key));
    let new = new.expect("panic starts pods").clone();
    let message = "GET /up on port 8000 is answered 500 Oops: db is down";
    world.unready_some(|key| *key == new, "ProbeFailed", message);
    world
}

#[test]
fn the_explanation_of_an_app_in_panic_is_the_golden_one() {
    let world = panicking();
    let explained = crate::explain::explain(&world.apps.records[&VIP], None, world.now);
    let text = format!("{explained:#}\n");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/api/screens/app.json");
    if env::var_os("DORMOUSE_RENEW").is_some() {
        fs::write(&path, &text).unwrap();
    }
    let golden = fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(text, golden, "{}", path.display());
}
