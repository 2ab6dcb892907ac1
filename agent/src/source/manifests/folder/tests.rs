//! What a look at a folder changes, and what a fault in it does not.

use proptest::prelude::*;

use super::*;
use crate::source::manifests::text::{Format, parse};

fn service(name: &str, address: &str) -> String {
    format!(
        "---\napiVersion: v1\nkind: Service\nmetadata: {{name: {name}}}\nspec: {{clusterIP: \"{address}\"}}\n"
    )
}

fn file(name: &str) -> FileName {
    FileName::from(OsStr::new(name))
}

fn read(name: &str, text: &str) -> (FileName, Content) {
    (file(name), Content::Read(parse(name, Format::Yaml, text)))
}

/// `+name=address` and `-name=address`.
fn told(batch: &Batch) -> Vec<String> {
    let tell = |change: &Change| {
        let (sign, object) = match change {
            Change::Applied(object) => ('+', object),
            Change::Deleted(object) => ('-', object),
        };
        let Object::Service(service) = object else {
            panic!("{object:?}");
        };
        let name = service.metadata.name.as_deref().unwrap();
        let address = service.spec.as_ref().unwrap().cluster_ip.as_deref();
        format!("{sign}{name}={}", address.unwrap())
    };
    batch.changes.iter().map(tell).collect()
}

#[test]
fn only_what_really_differs_is_told() {
    let mut folder = Folder::default();
    let both = service("a", "1") + &service("b", "1");
    assert_eq!(
        told(&folder.update(vec![read("x", &both)])),
        ["+a=1", "+b=1"]
    );
    assert_eq!(folder.update(vec![read("x", &both)]), Batch::default());
    let changed = service("b", "2") + &service("c", "1");
    assert_eq!(
        told(&folder.update(vec![read("x", &changed)])),
        ["-a=1", "+b=2", "+c=1"]
    );
    let moved = vec![read("x", &service("b", "2")), read("y", &service("c", "1"))];
    assert_eq!(folder.update(moved), Batch::default());
    assert_eq!(
        told(&folder.update(vec![(file("x"), Content::Gone)])),
        ["-b=2"]
    );
}

#[test]
fn a_typo_loses_nothing_and_holds_nothing_back() {
    let mut folder = Folder::default();
    let good = service("a", "1") + &service("b", "1") + &service("c", "1");
    folder.update(vec![read("x", &good)]);
    let typo = service("a", "2") + &service("b", "2").replace("spec", "[") + &service("d", "1");
    let batch = folder.update(vec![read("x", &typo)]);
    assert_eq!(told(&batch), ["+a=2", "+d=1"]);
    assert_eq!(batch.problems.len(), 1);
    let mended = service("a", "2") + &service("b", "3") + &service("d", "1");
    assert_eq!(
        told(&folder.update(vec![read("x", &mended)])),
        ["+b=3", "-c=1"]
    );
}

#[test]
fn the_first_file_by_name_wins_whoever_came_first() {
    let mut folder = Folder::default();
    folder.update(vec![read("y", &service("a", "y"))]);
    let batch = folder.update(vec![read("x", &service("a", "x"))]);
    assert_eq!(told(&batch), ["+a=x"]);
    let twice = Problem::Duplicate {
        object: "Service default/a".to_owned(),
        winner: "x".to_owned(),
        loser: "y".to_owned(),
    };
    assert_eq!(batch.problems, [twice]);
    assert_eq!(
        folder.update(vec![read("y", &service("a", "z"))]),
        Batch::default()
    );
    assert_eq!(
        told(&folder.update(vec![(file("x"), Content::Gone)])),
        ["+a=z"]
    );
    assert_eq!(
        told(&folder.update(vec![(file("y"), Content::Gone)])),
        ["-a=z"]
    );
}

#[test]
fn an_unreadable_file_keeps_its_objects() {
    let mut folder = Folder::default();
    folder.update(vec![read("x", &service("a", "1"))]);
    let problem = Problem::Unreadable {
        file: "x".to_owned(),
        what: "no".to_owned(),
    };
    let batch = folder.update(vec![(file("x"), Content::Unreadable(problem.clone()))]);
    assert_eq!((told(&batch), batch.problems), (vec![], vec![problem]));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever came before, who follows the changes knows what the files say now.
    #[test]
    fn the_sum_of_changes_is_what_the_files_say(
        steps in prop::collection::vec(prop::collection::vec((0..3_usize, prop::option::of(prop::collection::btree_map(0..4_u8, 0..3_u8, 0..4))), 1..3), 1..12)
    ) {
        let mut folder = Folder::default();
        let mut files = BTreeMap::<usize, BTreeMap<u8, u8>>::new();
        let mut followed = BTreeMap::new();
        for step in steps {
            let step: BTreeMap<_, _> = step.into_iter().collect();
            let update = step.iter().map(|(index, objects)| {
                let name = ["x", "y", "z"][*index];
                match objects {
                    Some(objects) => {
                        let text: String = objects.iter().map(|(name, value)| service(&format!("s{name}"), &format!("v{value}"))).collect();
                        read(name, &text)
                    }
                    None => (file(name), Content::Gone),
                }
            });
            let batch = folder.update(update.collect());
            files.extend(step.into_iter().map(|(index, objects)| (index, objects.unwrap_or_default())));
            for change in told(&batch) {
                let (name, value) = change[1..].split_once('=').unwrap();
                if change.starts_with('+') {
                    let before = followed.insert(name.to_owned(), value.to_owned());
                    prop_assert_ne!(before.as_deref(), Some(value));
                } else {
                    let last = followed.remove(name);
                    prop_assert_eq!(last.as_deref(), Some(value));
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
