//! The revisions that a change of an app's template writes and deletes.

use serde_json::json;

use super::*;
use crate::app::RolloutStatus;
use crate::{TrafficStatus, TrafficTarget};

/// An app with this image, this revision and this limit of earlier ones.
fn app(image: &str, revision: Option<u32>, limit: u32) -> App {
    let app = json!({
        "apiVersion": "dormouse.dev/v1alpha1", "kind": "App",
        "metadata": {"name": "web", "namespace": "shop", "uid": "0e7ab29c-0000-4000-8000-000000000000"},
        "spec": {"container": {"name": "app", "image": image}, "revisionHistoryLimit": limit},
        "status": {"revision": revision},
    });
    serde_json::from_value(app).unwrap()
}

impl Change {
    /// The numbers of the revision before and of the new one.
    fn numbers(&self) -> (u32, u32) {
        let status = self.app.status.clone().unwrap();
        (status.previous_revision.unwrap(), status.revision.unwrap())
    }
}

/// A history: each image is that of a revision, the first of revision 1.
fn known(images: &[&str]) -> Vec<Revision> {
    let numbers = 1..;
    let all = numbers.zip(images);
    all.map(|(number, image)| revision(&app(image, None, 10), number))
        .collect()
}

fn numbers(revisions: &[Revision]) -> Vec<u32> {
    revisions.iter().map(|one| one.spec.revision).collect()
}

fn names(keys: &[Key]) -> Vec<&str> {
    keys.iter().map(|key| key.name.as_str()).collect()
}

#[test]
fn the_second_template_writes_the_revisions_of_both() {
    let change = change(&app("a", None, 10), app("b", None, 10), &[]);
    assert_eq!(change.numbers(), (1, 2));
    assert_eq!(numbers(&change.written), [1, 2]);
    let images = change.written.iter();
    let images: Vec<_> = images
        .map(|one| one.spec.template.container.image.clone())
        .collect();
    assert_eq!(images, [Some("a".to_owned()), Some("b".to_owned())]);
    let first = &change.written[0];
    assert_eq!(first.key(), Key::new("shop", "web-1"));
    assert!(is_of(first, &app("c", None, 10)));
    let mut another = app("a", None, 10);
    another.metadata.uid = Some("another".to_owned());
    assert!(!is_of(first, &another));
}

#[test]
fn a_template_that_the_app_had_before_makes_no_other_revision() {
    let known = known(&["a", "b", "c"]);
    let change = change(&app("c", Some(3), 10), app("a", Some(3), 10), &known);
    assert_eq!(change.numbers(), (3, 1));
    assert!(change.written.is_empty() && change.deleted.is_empty());
}

#[test]
fn a_number_is_not_used_again_after_a_return_to_an_earlier_template() {
    let known = known(&["a", "b", "c"]);
    let change = change(&app("a", Some(1), 10), app("d", Some(1), 10), &known);
    assert_eq!(change.numbers(), (1, 4));
    assert_eq!(numbers(&change.written), [4]);
}

#[test]
fn the_oldest_revisions_beyond_the_limit_are_deleted() {
    let known = known(&["a", "b", "c", "d"]);
    let change = change(&app("d", Some(4), 2), app("e", Some(4), 2), &known);
    assert_eq!(change.numbers(), (4, 5));
    assert_eq!(names(&change.deleted), ["web-1", "web-2"]);
}

#[test]
fn the_revision_that_serves_and_the_one_before_are_kept_beyond_the_limit() {
    let known = known(&["a", "b", "c", "d"]);
    let mut new = app("e", Some(4), 0);
    new.status.as_mut().unwrap().ready_revision = Some(2);
    let change = change(&app("d", Some(4), 0), new, &known);
    assert_eq!(names(&change.deleted), ["web-1", "web-3"]);
}

#[test]
fn revisions_that_the_traffic_names_or_that_get_some_are_kept_beyond_the_limit() {
    let known = known(&["a", "b", "c", "d", "e"]);
    let mut new = app("f", Some(5), 0);
    new.spec.traffic = vec![TrafficTarget {
        revision_name: Some("web-1".to_owned()),
        percent: 100,
        ..TrafficTarget::default()
    }];
    new.status.as_mut().unwrap().traffic = vec![TrafficStatus {
        revision: 3,
        percent: 100,
        tag: None,
        vip: "fd00:10::3".parse().unwrap(),
        latest: false,
    }];
    let change = change(&app("e", Some(5), 0), new, &known);
    assert_eq!(names(&change.deleted), ["web-2", "web-4"]);
}

#[test]
fn a_revision_has_a_uid_of_its_own() {
    let of = |number| revision(&app("a", None, 10), number).metadata.uid.unwrap();
    assert_eq!(of(2), "0e7ab29c-0000-4000-8000-000000000002");
    assert_ne!(of(1), of(2));
}

#[test]
fn a_template_that_served_before_there_were_revisions_is_the_one_to_fall_back_to() {
    let ready = |status: serde_json::Value| {
        let mut new = app("b", None, 10);
        new.status = Some(serde_json::from_value(status).unwrap());
        let change = change(&app("a", None, 10), new, &[]);
        change.app.status.unwrap().ready_revision
    };
    let woken = "2026-01-01T00:00:00Z";
    assert_eq!(ready(json!({"lastWake": woken})), Some(1));
    assert_eq!(ready(json!({})), None);
    assert_eq!(
        ready(json!({"lastWake": woken, "observedGeneration": 1})),
        None
    );
}

/// An app and its revisions.
struct Line {
    app: App,
    known: Vec<Revision>,
}

impl Line {
    /// The first template was ready.
    fn new(limit: u32) -> Self {
        let mut line = Self {
            app: app("a", None, limit),
            known: Vec::new(),
        };
        line.status().ready_revision = Some(1);
        line
    }

    fn status(&mut self) -> &mut AppStatus {
        self.app.status.as_mut().unwrap()
    }

    /// The template has this image from now on, and a pod of it is ready.
    fn ready(&mut self, image: &str) {
        let mut new = self.app.clone();
        new.spec.container.image = Some(image.to_owned());
        let change = change(&self.app, new, &self.known);
        self.known.extend(change.written);
        self.known
            .retain(|one| !change.deleted.contains(&one.key()));
        self.app = change.app;
        let number = self.app.revision_number();
        let status = self.status();
        status.ready_revision = Some(number);
        (status.reason, status.rollout) = (None, None);
    }

    /// The revisions that are good, and those that failed.
    fn before(&mut self) -> (Vec<u32>, Vec<u32>) {
        let status = self.status().clone();
        (status.earlier_ready_revisions, status.failed_revisions)
    }
}

#[test]
fn a_revision_that_failed_is_none_to_return_to_and_the_good_ones_before_are_kept() {
    let progressing = json!([{
        "type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded", "message": "text",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }]);
    let signs: [fn(&mut AppStatus, &serde_json::Value); 3] = [
        |status, _| status.reason = Some(CRASH_LOOP.to_owned()),
        |status, progressing| {
            status.conditions = serde_json::from_value(progressing.clone()).unwrap();
        },
        |status, _| {
            status.rollout = Some(RolloutStatus {
                revision: 3,
                from: 2,
                percent: 0,
                since: None,
                failure: Some("Error".to_owned()),
            });
        },
    ];
    for sign in signs {
        let mut line = Line::new(10);
        line.ready("b");
        line.ready("c");
        assert!(!fails(line.status(), 3));
        sign(line.status(), &progressing);
        assert!(fails(line.status(), 3));
        assert_eq!(way_back(line.status()), Some(2));
        line.ready("b");
        assert_eq!(line.before(), (vec![2, 1], vec![3]));
        assert_eq!(way_back(line.status()), Some(1));
        // It works the second time.
        line.ready("c");
        line.ready("d");
        assert_eq!(line.before(), (vec![3, 2, 1], vec![]));
    }
}

#[test]
fn pods_fall_back_to_the_last_revision_that_did_not_fail_if_there_is_one() {
    let mut line = Line::new(10);
    line.status().reason = Some(CRASH_LOOP.to_owned());
    let next = |line: &Line| {
        let mut new = line.app.clone();
        new.spec.container.image = Some("new".to_owned());
        change(&line.app, new, &line.known).app.status.unwrap()
    };
    assert_eq!(next(&line).ready_revision, Some(1), "there is no other");
    line.status().reason = None;
    line.ready("b");
    assert_eq!(next(&line).ready_revision, Some(2));
    line.status().reason = Some(CRASH_LOOP.to_owned());
    assert_eq!(next(&line).ready_revision, Some(1));
}

#[test]
fn the_revision_to_return_to_is_kept_beyond_the_limit_and_no_deleted_one_is_named() {
    let mut line = Line::new(0);
    for image in ["b", "c", "d"] {
        line.ready(image);
    }
    assert_eq!(line.before(), (vec![3], vec![]));
    assert_eq!(numbers(&line.known), [3, 4]);
}
