//! The table against a model: a map by VIP.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

fn key(name: u8) -> Key {
    Key::new(format!("n{}", name % 3), format!("app{name}"))
}

fn sleeper(revision: u64) -> Sleeper {
    Sleeper {
        revision,
        ..Sleeper::default()
    }
}

#[test]
fn an_app_is_found_by_its_vip_and_by_its_name_until_it_is_removed() {
    let mut sleep = Sleep::default();
    sleep.insert(7, &key(1), sleeper(5));
    assert_eq!(sleep.get(7), Some(&sleeper(5)));
    assert_eq!(
        (sleep.vip_of(&key(1)), sleep.key(7)),
        (Some(7), Some(key(1)))
    );
    assert_eq!(sleep.remove(7), Some((key(1), sleeper(5))));
    assert_eq!((sleep.vip_of(&key(1)), sleep.remove(7)), (None, None));
}

proptest! {
    #[test]
    fn the_table_equals_a_map(
        steps in prop::collection::vec((0u32..40, 0u8..40, any::<bool>()), 0..400),
    ) {
        let (mut sleep, mut model) = (Sleep::default(), BTreeMap::<u32, (Key, u64)>::new());
        for (revision, (vip, name, is_added)) in (1..).zip(steps) {
            if is_added {
                model.retain(|_, (known, _)| *known != key(name));
                model.insert(vip, (key(name), revision));
                sleep.insert(vip, &key(name), sleeper(revision));
            } else {
                let removed = sleep.remove(vip).map(|(key, sleeper)| (key, sleeper.revision));
                prop_assert_eq!(removed, model.remove(&vip));
            }
        }
        let mut vips: Vec<u32> = sleep.vips().collect();
        vips.sort_unstable();
        prop_assert_eq!(vips, model.keys().copied().collect::<Vec<_>>());
        for (vip, (key, revision)) in model {
            prop_assert_eq!(sleep.vip_of(&key), Some(vip));
            prop_assert_eq!(sleep.get(vip).map(|sleeper| sleeper.revision), Some(revision));
        }
        prop_assert_eq!(sleep.names.len(), sleep.slots.len());
    }
}
