//! Merges by hand, and against a comparison of all pairs.

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn check(kind: &str, mut object: Value, patch: &Value, want: &Value) {
    merge(kind, &mut object, patch).unwrap();
    assert_eq!(object, *want, "{patch}");
}

#[test]
fn containers_are_merged_by_name_and_other_lists_replaced() {
    check(
        "Pod",
        json!({"spec": {"containers": [{"name": "a", "command": ["x"]}], "list": [1]}}),
        &json!({"spec": {"$setElementOrder/containers": [{"name": "a"}],
            "containers": [{"name": "a", "image": "i"}, {"name": "b", "$patch": "merge"}], "list": [2]}}),
        &json!({"spec": {"containers": [{"name": "a", "command": ["x"], "image": "i"}, {"name": "b"}], "list": [2]}}),
    );
}

#[test]
fn ports_of_a_service_are_merged_by_number_and_deleted() {
    let object = json!({"spec": {"ports": [{"port": 80, "nodePort": 30_080}, {"port": 81}]}});
    let ports = json!([{"port": 80, "targetPort": 8_080}, {"port": 81, "$patch": "delete"}, {"port": 9, "$patch": "delete"}]);
    check(
        "Service",
        object.clone(),
        &json!({"spec": {"ports": ports}}),
        &json!({"spec": {"ports": [{"port": 80, "nodePort": 30_080, "targetPort": 8_080}]}}),
    );
    check(
        "Service",
        object.clone(),
        &json!({"spec": {"ports": [{"port": 82}, {"$patch": "replace"}], "selector": null}}),
        &json!({"spec": {"ports": [{"port": 82}]}}),
    );
    check(
        "Service",
        object,
        &json!({"spec": {"$patch": "replace", "type": "ExternalName"}}),
        &json!({"spec": {"type": "ExternalName"}}),
    );
}

/// The merge of a list of items with the key `name`, each item compared with each.
fn merged_by_pairs(list: &mut Vec<Value>, items: &[Value]) {
    for item in items {
        let place = list.iter().position(|one| one["name"] == item["name"]);
        let is_deleted = item[DIRECTIVE] == "delete";
        match place {
            Some(place) if is_deleted => drop(list.remove(place)),
            Some(place) => merge("Pod", &mut list[place], item).unwrap(),
            None if is_deleted => {}
            None => list.push(without_directives(item)),
        }
    }
}

/// Few names, so that items are equal, and some with fields in them, which a merge changes.
fn items() -> impl Strategy<Value = Vec<Value>> {
    let name = prop_oneof![
        (0..4).prop_map(|number| json!(number)),
        (0..2).prop_map(|number| json!({"a": number, "b": null})),
        (0..2).prop_map(|number| json!({"a": number})),
    ];
    let item = (name, any::<bool>(), 0..9).prop_map(|(name, is_deleted, image)| {
        let mut item = json!({"name": name, "image": image});
        if is_deleted {
            item[DIRECTIVE] = json!("delete");
        }
        item
    });
    prop::collection::vec(item, 0..12)
}

proptest! {
    #[test]
    fn a_list_is_merged_as_by_comparing_all_pairs(list in items(), items in items()) {
        let mut want = list.clone();
        merged_by_pairs(&mut want, &items);
        let mut merged = json!({"containers": list});
        merge("Pod", &mut merged, &json!({"containers": items})).unwrap();
        prop_assert_eq!(merged, json!({"containers": want}));
    }

    #[test]
    fn a_set_keeps_its_order_and_its_duplicates(set in prop::collection::vec(0..6, 0..9), added in prop::collection::vec(0..6, 0..9), removed in prop::collection::vec(0..6, 0..4)) {
        let mut want = set.clone();
        for word in &added {
            if !want.contains(word) {
                want.push(*word);
            }
        }
        want.retain(|word| !removed.contains(word));
        let mut object = json!({"finalizers": set});
        let patch = json!({"finalizers": added, "$deleteFromPrimitiveList/finalizers": removed});
        merge("Pod", &mut object, &patch).unwrap();
        prop_assert_eq!(object, json!({"finalizers": want}));
    }
}

/// Each item's key is compared with those of a few others only: 400 million comparisons would take most of a minute.
#[test]
fn a_large_list_is_merged_by_its_keys() {
    let list = |image: &str| {
        let items = (0..20_000).map(|number| json!({"name": number, "image": image}));
        json!({"containers": items.collect::<Vec<_>>()})
    };
    check("Pod", list("a"), &list("b"), &list("b"));
}

#[test]
fn ports_of_a_slice_and_taints_are_replaced() {
    let ports = |numbers: &[u16]| {
        let ports = numbers
            .iter()
            .map(|number| json!({"name": "a", "port": number}));
        json!({"ports": ports.collect::<Vec<_>>()})
    };
    check("EndpointSlice", ports(&[80]), &ports(&[81]), &ports(&[81]));
    let taints = json!({"taints": [{"key": "a"}]});
    check("Node", json!({"taints": [{"key": "b"}]}), &taints, &taints);
}

#[test]
fn finalizers_are_added_and_an_item_without_its_key_is_refused() {
    let finalizers = |words: &[&str]| json!({"metadata": {"finalizers": words}});
    check(
        "Service",
        finalizers(&["a"]),
        &finalizers(&["b", "a"]),
        &finalizers(&["a", "b"]),
    );
    let removal = json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"]}});
    check(
        "Service",
        finalizers(&["a", "b"]),
        &removal,
        &finalizers(&["b"]),
    );
    let mut service = json!({"spec": {"ports": [{"port": 80}]}});
    let patch = json!({"spec": {"ports": [{"targetPort": 81}]}});
    assert!(merge("Service", &mut service, &patch).is_err());
}
