//! The controller's own writes of an app's status, as it sees them in the store.

use dormouse_cluster::{Mode, Object};

use super::*;

/// The model's store shows them without the container, so that an app that was decoded from one would be lost.
#[test]
fn an_own_write_is_not_decoded_again_whether_it_is_seen_before_or_after_its_response() {
    for responses_first in [false, true] {
        let mut world = small();
        world.responses_first = responses_first;
        world.execute_all();
        let before = world.own_writes_seen;
        world.demand();
        world.execute_all();
        world.ready_all();
        assert_eq!(world.status().mode, Mode::Serve);
        assert!(world.own_writes_seen > before);
        let app = world.apps.records[&world::VIP].app.as_ref();
        assert_eq!(app.map(|app| app.revision()), Some(world.revision));
    }
}

#[test]
fn a_change_that_arrives_during_a_write_is_used_after_it() {
    for fails in [false, true] {
        let mut world = small();
        world.execute_all();
        world.demand();
        world.execute_all();
        world.ready_all();
        world.connections(30.0);
        world.tick(0.0);
        assert!(world.is_writing(), "no write is in progress");
        world.edit(|spec| spec.container.command = Some(vec!["serve-better".into()]));
        let before = world.apps.records[&world::VIP].template.clone();
        if fails {
            world.fail_write();
        }
        world.execute_all();
        assert_ne!(world.apps.records[&world::VIP].template, before);
    }
}

#[test]
fn an_app_that_is_changed_and_deleted_during_a_write_is_deleted() {
    let mut world = small();
    world.execute_all();
    world.demand();
    world.answer_read();
    assert!(world.is_writing(), "no write is in progress");
    world.edit(|spec| spec.port = 81);
    world.delete_app();
    world.execute_all();
    assert!(world.gone && world.pods.is_empty());
    assert!(world.ports.is_empty());
}
