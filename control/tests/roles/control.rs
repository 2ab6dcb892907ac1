//! Two control planes: the one that cannot run changes nothing, and the one that lost the epoch ends.

use dormouse_apps::epoch;

use crate::world::{World, dormouse, ended, in_namespace, served, until};

#[test]
fn a_second_control_plane_on_the_same_ports_ends_and_the_first_still_scales_down() {
    in_namespace(async || {
        let world = World::new().await;
        let _control = world.control().await;
        let _activator = world.activator().await;
        world.create_app(1, "6s").await;
        served(1).await;
        let before = world.epoch().await;
        let other_store = ["--without", "store", "--store", "http://[::1]:2379"];
        for more in [&[][..], &other_store] {
            let (status, log) = ended(world.up("second", more)).await;
            assert!(!status.success(), "{log}");
            assert!(log.contains("failed to listen on"), "{log}");
        }
        assert!(!world.folder.path().join("second").exists());
        assert_eq!(world.epoch().await, before);
        until("the app sleeps", async || world.pods().await == 0).await;
    });
}

#[test]
fn an_acting_prefix_that_is_not_local_is_refused_with_the_command_that_makes_it_local() {
    in_namespace(async || {
        let world = World::new().await;
        let elsewhere = ["--acting-prefix", "2001:db8:a2::/96"];
        let activator = dormouse(&["activator"]).args(elsewhere).spawn().unwrap();
        let up = dormouse(&["up"]).args(elsewhere).spawn().unwrap();
        for process in [activator, up] {
            let (status, log) = ended(process).await;
            assert_eq!(status.code(), Some(1), "{log}");
            let remedy = "ip -6 route add local 2001:db8:a2::/96 dev lo";
            assert!(log.contains(remedy), "{log}");
        }
        drop(world);
    });
}

#[test]
fn a_control_plane_that_lost_the_epoch_ends_with_the_reason() {
    in_namespace(async || {
        let world = World::new().await;
        let control = world.control().await;
        let newer = epoch::take(&world.store().await).await.unwrap().number;
        let (status, log) = ended(control).await;
        assert_eq!(status.code(), Some(1), "{log}");
        let reason = format!("another control plane has taken over the fleet with epoch {newer}");
        assert!(log.contains(&reason), "{log}");
    });
}
