//! Changes from updates of files, with and without mistakes.

use std::mem;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use proptest::prelude::*;

use super::*;
use crate::source::manifests::text::{Format, parse};

fn service(name: &str, address: &str) -> String {
    format!(
        "---\napiVersion: v1\nkind: Service\nmetadata: {{name: {name}}}\nspec: {{clusterIP: \"{address}\"}}\n"
    )
}

fn file(name: &str) -> FileName {
    FileName::new(name.into())
}

fn read(name: &str, text: &str) -> (FileName, Content) {
    (file(name), Content::Read(parse(name, Format::Yaml, text)))
}

/// An update after which no file has to be read again.
fn update(folder: &mut Folder, contents: Vec<(FileName, Content)>) -> Batch {
    let update = folder.update(contents);
    assert_eq!(update.again, BTreeSet::new());
    update.batch()
}

/// `+name=address` and `-name`.
fn reported(batch: &Batch) -> Vec<String> {
    let text = |change: &Change| {
        let (sign, object) = match change {
            Change::Applied(object) => ('+', object),
            Change::Deleted(object) => ('-', object),
        };
        let Object::Service(service) = object else {
            panic!("{object:?}");
        };
        let name = service.metadata.name.as_deref().unwrap();
        let Some(spec) = &service.spec else {
            return format!("{sign}{name}");
        };
        format!("{sign}{name}={}", spec.cluster_ip.as_deref().unwrap())
    };
    batch.changes.iter().map(text).collect()
}

#[test]
fn only_differences_are_reported() {
    let mut folder = Folder::default();
    let both = service("a", "1") + &service("b", "1");
    assert_eq!(
        reported(&update(&mut folder, vec![read("x", &both)])),
        ["+a=1", "+b=1"]
    );
    assert_eq!(
        update(&mut folder, vec![read("x", &both)]),
        Batch::default()
    );
    let changed = service("b", "2") + &service("c", "1");
    assert_eq!(
        reported(&update(&mut folder, vec![read("x", &changed)])),
        ["-a", "+b=2", "+c=1"]
    );
    let moved = vec![read("x", &service("b", "2")), read("y", &service("c", "1"))];
    assert_eq!(update(&mut folder, moved), Batch::default());
    assert_eq!(
        reported(&update(&mut folder, vec![(file("x"), Content::Gone)])),
        ["-b"]
    );
}

#[test]
fn a_typo_loses_no_object_and_delays_no_other() {
    let mut folder = Folder::default();
    let good = service("a", "1") + &service("b", "1") + &service("c", "1");
    update(&mut folder, vec![read("x", &good)]);
    let typo = service("a", "2") + &service("b", "2").replace("spec", "[") + &service("d", "1");
    let batch = update(&mut folder, vec![read("x", &typo)]);
    assert_eq!(reported(&batch), ["+a=2", "+d=1"]);
    assert_eq!(batch.problems.len(), 1);
    let mended = service("a", "2") + &service("b", "3") + &service("d", "1");
    assert_eq!(
        reported(&update(&mut folder, vec![read("x", &mended)])),
        ["+b=3", "-c"]
    );
}

#[test]
fn the_first_file_by_name_wins_in_any_order_of_arrival() {
    let mut folder = Folder::default();
    update(&mut folder, vec![read("y", &service("a", "y"))]);
    let batch = update(&mut folder, vec![read("x", &service("a", "x"))]);
    assert_eq!(reported(&batch), ["+a=x"]);
    let twice = Problem::Duplicate {
        object: "Service default/a".to_owned(),
        winner: "x".to_owned(),
        loser: "y".to_owned(),
    };
    assert_eq!(batch.problems, [twice]);
    assert_eq!(
        update(&mut folder, vec![read("y", &service("a", "z"))]),
        Batch::default()
    );
    let lost = folder.update(vec![(file("x"), Content::Gone)]);
    assert_eq!(lost.again, BTreeSet::from([file("y")]));
    assert_eq!(lost.batch(), Batch::default());
    assert_eq!(
        reported(&update(&mut folder, vec![read("y", &service("a", "z"))])),
        ["+a=z"]
    );
    assert_eq!(
        reported(&update(&mut folder, vec![(file("y"), Content::Gone)])),
        ["-a"]
    );
}

#[test]
fn an_unreadable_file_keeps_its_objects() {
    let mut folder = Folder::default();
    update(&mut folder, vec![read("x", &service("a", "1"))]);
    let problem = Problem::Unreadable {
        file: "x".to_owned(),
        what: "no".to_owned(),
    };
    let batch = update(
        &mut folder,
        vec![(file("x"), Content::Unreadable(problem.clone()))],
    );
    assert_eq!((reported(&batch), batch.problems), (vec![], vec![problem]));
}

#[test]
fn a_moved_description_is_reported_when_it_can_be_read() {
    let mut folder = Folder::default();
    let both = [("x", "1"), ("y", "2"), ("z", "1")];
    let files = both.map(|(file, address)| read(file, &service("a", address)));
    assert_eq!(reported(&update(&mut folder, files.into())), ["+a=1"]);
    let lost = folder.update(vec![read("x", "")]);
    assert_eq!(lost.again, BTreeSet::from([file("y")]));
    let problem = Problem::Unreadable {
        file: "y".to_owned(),
        what: "no".to_owned(),
    };
    let unreadable = vec![(file("y"), Content::Unreadable(problem))];
    assert_eq!(reported(&update(&mut folder, unreadable)), [""; 0]);
    let faulty = service("a", "2").replace("spec", "[");
    assert_eq!(
        reported(&update(&mut folder, vec![read("y", &faulty)])),
        [""; 0]
    );
    assert_eq!(
        reported(&update(&mut folder, vec![read("y", &service("a", "2"))])),
        ["+a=2"]
    );
    // The third file has the first one's content, which is a change again.
    let gone = folder.update(vec![(file("y"), Content::Gone)]);
    assert_eq!(gone.again, BTreeSet::from([file("z")]));
    assert_eq!(
        reported(&update(&mut folder, vec![read("z", &service("a", "1"))])),
        ["+a=1"]
    );
}

#[test]
fn a_move_to_an_equal_description_is_no_change() {
    let mut folder = Folder::default();
    let files = ["x", "y"].map(|file| read(file, &service("a", "1")));
    assert_eq!(reported(&update(&mut folder, files.into())), ["+a=1"]);
    let gone = vec![(file("x"), Content::Gone)];
    assert_eq!(update(&mut folder, gone), Batch::default());
    let gone = vec![(file("y"), Content::Gone)];
    assert_eq!(reported(&update(&mut folder, gone)), ["-a"]);
}

#[test]
fn a_pending_object_that_is_deleted_is_reported_as_deleted() {
    let mut folder = Folder::default();
    let files = [("x", "1"), ("y", "2")].map(|(file, address)| read(file, &service("a", address)));
    update(&mut folder, files.into());
    let lost = folder.update(vec![(file("x"), Content::Gone)]);
    assert_eq!(lost.again, BTreeSet::from([file("y")]));
    let gone = vec![(file("y"), Content::Gone)];
    assert_eq!(reported(&update(&mut folder, gone)), ["-a"]);
    assert!(folder.winners.is_empty() && folder.losers.is_empty() && folder.stale.is_empty());
}

#[test]
fn a_deletion_contains_the_name_only() {
    let mut folder = Folder::default();
    let text = "kind: Node\napiVersion: v1\nmetadata: {name: node, labels: {a: b}}\n---\n\
        kind: EndpointSlice\napiVersion: discovery.k8s.io/v1\naddressType: IPv4\nendpoints: []\n\
        metadata: {name: s-1, namespace: far, labels: {kubernetes.io/service-name: s}}\n";
    assert_eq!(update(&mut folder, vec![read("x", text)]).changes.len(), 2);
    let batch = update(&mut folder, vec![(file("x"), Content::Gone)]);
    let [
        Change::Deleted(Object::Node(node)),
        Change::Deleted(Object::EndpointSlice(slice)),
    ] = &*batch.changes
    else {
        panic!("{batch:?}");
    };
    let names = |metadata: &ObjectMeta| (metadata.namespace.clone(), metadata.name.clone());
    assert_eq!(names(&node.metadata), (None, Some("node".to_owned())));
    assert_eq!(
        names(&slice.metadata),
        (Some("far".to_owned()), Some("s-1".to_owned()))
    );
    assert_eq!(
        (&node.metadata.labels, &slice.metadata.labels),
        (&None, &None)
    );
}

fn services(objects: &BTreeMap<u8, u8>) -> String {
    let services = objects.iter();
    services
        .map(|(name, value)| service(&format!("s{name}"), &format!("v{value}")))
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// The sum of all changes is the content of the files, in any order of updates.
    #[test]
    fn the_sum_of_changes_is_the_content_of_the_files(
        steps in prop::collection::vec(prop::collection::vec((0..3_usize, prop::option::of(prop::collection::btree_map(0..4_u8, 0..3_u8, 0..4))), 1..3), 1..12)
    ) {
        let mut folder = Folder::default();
        let mut files = BTreeMap::<usize, BTreeMap<u8, u8>>::new();
        let mut followed = BTreeMap::new();
        for step in steps {
            let step: BTreeMap<_, _> = step.into_iter().collect();
            let contents = step.iter().map(|(index, objects)| {
                let name = ["x", "y", "z"][*index];
                match objects {
                    Some(objects) => read(name, &services(objects)),
                    None => (file(name), Content::Gone),
                }
            });
            let mut update = folder.update(contents.collect());
            files.extend(step.into_iter().map(|(index, objects)| (index, objects.unwrap_or_default())));
            while !update.again.is_empty() {
                let again = mem::take(&mut update.again);
                let index = |name: &FileName| ["x", "y", "z"].iter().position(|it| **name == **it).unwrap();
                let contents = again.into_iter().map(|name| {
                    let text = services(&files[&index(&name)]);
                    read(name.to_str().unwrap(), &text)
                });
                update.then(folder.update(contents.collect()));
            }
            for change in reported(&update.batch()) {
                if let Some((name, value)) = change[1..].split_once('=') {
                    let before = followed.insert(name.to_owned(), value.to_owned());
                    prop_assert_ne!(before.as_deref(), Some(value));
                } else {
                    prop_assert!(followed.remove(&change[1..]).is_some());
                }
            }
            let mut expected = BTreeMap::new();
            for objects in files.values().rev() {
                expected.extend(objects.iter().map(|(name, value)| (format!("s{name}"), format!("v{value}"))));
            }
            prop_assert_eq!(&followed, &expected);
        }
    }
}
