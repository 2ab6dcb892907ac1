//! The history of an app: its revisions in the store. They are written in the transaction that changes the app's template, and
//! deleted in that which deletes the app, so that neither is ever seen without the other.

use std::collections::BTreeSet;

use etcd_client::{Compare, CompareOp, Txn, TxnOp};
use futures::future::try_join_all;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use k8s_openapi::jiff::Timestamp;

use crate::app::{AppStatus, CRASH_LOOP, PROGRESSING, ROLLED_OUT};
use crate::client::{KeyRange, encode, revision_of};
use crate::revision::{key_of, number_of};
use crate::{App, Client, ClientError, Key, Object, Revision, RevisionSpec};

/// The label with the name of a pod's or a revision's app.
pub const APP_LABEL: &str = "dormouse.dev/app";

/// The revisions of an app in the store, in the order of their numbers. Those of a deleted app of its name are not among them.
pub async fn list(client: &Client, app: &App) -> Result<Vec<Revision>, ClientError> {
    let key = app.key();
    let prefix =
        |digit: char| Revision::path(&Key::new(&key.namespace, format!("{}-{digit}", key.name)));
    let range = KeyRange::of_prefixes(&prefix('0'), &prefix('9'));
    // The range has the revisions of all apps whose names go on with a digit, `web-0001` for `web`: only its own are read.
    let paths = client.paths(&range).await?;
    let names = paths.iter().filter_map(|path| path.rsplit('/').next());
    let own = names.filter(|name| number_of(&key.name, name).is_some());
    let read = own.map(|name| {
        let revision = Key::new(&key.namespace, name);
        async move { client.get::<Revision>(&revision).await }
    });
    let all = try_join_all(read).await?.into_iter().flatten();
    let mut own: Vec<Revision> = all.filter(|one| is_of(one, app)).collect();
    own.sort_by_key(|revision| revision.spec.revision);
    Ok(own)
}

/// Replaces an app by one with another template, if it is still `old`, and writes the revisions of both templates. A template
/// that the app had before gets the number of that revision again; the oldest revisions beyond the app's limit are deleted.
pub async fn replace(client: &Client, old: &App, new: App) -> Result<App, ClientError> {
    let known = list(client, old).await?;
    let change = change(old, new, &known);
    let mut app = change.app;
    let path = App::path(&app.key());
    let mut operations = vec![TxnOp::put(path.as_str(), encode(&app)?, None)];
    for revision in &change.written {
        let path = Revision::path(&revision.key());
        operations.push(TxnOp::put(path, encode(revision)?, None));
    }
    let deleted = change.deleted.iter();
    operations.extend(deleted.map(|key| TxnOp::delete(Revision::path(key), None)));
    let at = i64::try_from(old.revision()).unwrap_or(i64::MAX);
    let is_old = Compare::mod_revision(path.as_str(), CompareOp::Equal, at);
    let reply = client
        .txn(Txn::new().when([is_old]).and_then(operations))
        .await?;
    if !reply.succeeded() {
        return Err(ClientError::Conflict { path });
    }
    app.metadata.resource_version = Some(revision_of(&reply).to_string());
    Ok(app)
}

/// The operations that delete the revisions of an app. One that never had a second template has none, and nothing is read.
pub(crate) async fn deletions(client: &Client, app: &App) -> Result<Vec<TxnOp>, ClientError> {
    let had_others = app
        .status
        .as_ref()
        .is_some_and(|status| status.revision.is_some());
    if !had_others {
        return Ok(Vec::new());
    }
    let all = list(client, app).await?;
    let paths = all.iter().map(|revision| Revision::path(&revision.key()));
    Ok(paths.map(|path| TxnOp::delete(path, None)).collect())
}

/// What a change of an app's template writes.
#[derive(Debug)]
pub struct Change {
    /// The app with its new template, and the numbers of its revisions in its status.
    pub app: App,
    /// The new revisions.
    pub written: Vec<Revision>,
    /// The revisions that are deleted.
    pub deleted: Vec<Key>,
}

/// The change from `old` to `new`, which has another template. `known` are the revisions in the store. Pure but for the time of
/// creation of the new revisions.
pub fn change(old: &App, mut new: App, known: &[Revision]) -> Change {
    let before = old.revision_number();
    let hash = hash(&new);
    let equal = known.iter().find(|one| one.spec.template_hash == hash);
    let numbers = known.iter().map(|one| one.spec.revision);
    let newest = numbers.max().unwrap_or(0).max(before);
    let number = equal.map_or(newest + 1, |one| one.spec.revision);
    let mut written = Vec::new();
    if !known.iter().any(|one| one.spec.revision == before) {
        written.push(revision(old, before));
    }
    if equal.is_none() {
        written.push(revision(&new, number));
    }
    let status = new.status.get_or_insert_default();
    // A control of a release without revisions has written the status: a pod of this template was ready if the app has ever woken.
    if status.observed_generation.is_none() && status.last_wake.is_some() {
        status.ready_revision.get_or_insert(before);
    }
    left(status, before);
    status.revision = Some(number);
    status.previous_revision = Some(before);
    // They are about the template before.
    let of_template = [PROGRESSING, ROLLED_OUT];
    status
        .conditions
        .retain(|condition| !of_template.contains(&condition.type_.as_str()));
    status.pod_failures = None;
    let all = known.iter().chain(&written).map(|one| one.spec.revision);
    let deleted = surplus(&new, all.collect());
    let names: BTreeSet<&str> = deleted.iter().map(|key| key.name.as_str()).collect();
    let key = new.key();
    let status = new.status.get_or_insert_default();
    for numbers in [
        &mut status.earlier_ready_revisions,
        &mut status.failed_revisions,
    ] {
        numbers.retain(|number| !names.contains(key_of(&key, *number).name.as_str()));
    }
    Change {
        app: new,
        written,
        deleted,
    }
}

/// Notes how the revision with this number, of which a pod was ready or not, leaves the app. One that fails is none to return to: pods
/// fall back to the last one that did not, if there is one.
fn left(status: &mut AppStatus, number: u32) {
    if status.ready_revision != Some(number) {
        return;
    }
    let fails = fails(status, number);
    let (good, failed) = (
        &mut status.earlier_ready_revisions,
        &mut status.failed_revisions,
    );
    for numbers in [&mut *good, &mut *failed] {
        numbers.retain(|known| *known != number);
    }
    if fails {
        failed.insert(0, number);
        status.ready_revision = good.first().copied().or(status.ready_revision);
    } else {
        good.insert(0, number);
    }
}

/// Whether the app's own revision, with this number, fails after a pod of it was ready.
pub fn fails(status: &AppStatus, number: u32) -> bool {
    let progressing = status.condition(PROGRESSING);
    let rollout = status.rollout.as_ref();
    let is_taken_back =
        rollout.is_some_and(|rollout| rollout.revision == number && rollout.failure.is_some());
    let is_failing = progressing.is_some_and(|condition| condition.status == "False")
        || status.reason.as_deref() == Some(CRASH_LOOP);
    status.ready_revision == Some(number) && (is_taken_back || is_failing)
}

/// The revision to which an undo returns: the newest one that was ready and did not fail, else the one before. None: there is no other.
pub fn way_back(status: &AppStatus) -> Option<u32> {
    let own = status.revision.unwrap_or(1);
    let ready = status.ready_revision.into_iter();
    let mut all = ready
        .chain(status.earlier_ready_revisions.iter().copied())
        .chain(status.previous_revision);
    all.find(|number| *number != own && !status.failed_revisions.contains(number))
}

/// The oldest revisions beyond the app's limit. Pods of the ready one may still serve, the ones before are what an undo returns to, and
/// others may have a share of the traffic.
fn surplus(app: &App, all: Vec<u32>) -> Vec<Key> {
    let status = app.status.clone().unwrap_or_default();
    let limit = usize::try_from(app.spec.revision_history_limit).unwrap_or(usize::MAX);
    let surplus = all.len().saturating_sub(1).saturating_sub(limit);
    let kept = [
        status.revision,
        status.previous_revision,
        status.ready_revision,
        way_back(&status),
        status.rollout.map(|rollout| rollout.from),
    ];
    let name = app.key().name;
    let named = app.spec.traffic.iter();
    let named = named.filter_map(|target| number_of(&name, target.revision_name.as_deref()?));
    let in_force = status.traffic.iter().map(|target| target.revision);
    let kept: BTreeSet<u32> = kept
        .into_iter()
        .flatten()
        .chain(named)
        .chain(in_force)
        .collect();
    let mut deleted: Vec<u32> = all
        .into_iter()
        .filter(|other| !kept.contains(other))
        .collect();
    deleted.sort_unstable();
    deleted.truncate(surplus);
    let key = app.key();
    deleted
        .into_iter()
        .map(|number| key_of(&key, number))
        .collect()
}

fn hash(app: &App) -> String {
    app.spec
        .template()
        .hash(app.metadata.uid.as_deref().unwrap_or_default())
}

/// The revision with this number, of the template that the app has.
pub fn revision(app: &App, number: u32) -> Revision {
    let key = app.key();
    let spec = RevisionSpec {
        app: key.name.clone(),
        revision: number,
        template_hash: hash(app),
        template: app.spec.template(),
    };
    let now = Timestamp::now();
    let created = Timestamp::from_second(now.as_second()).unwrap_or(now);
    let metadata = ObjectMeta {
        name: Some(key_of(&key, number).name),
        labels: Some([(APP_LABEL.to_owned(), key.name.clone())].into()),
        namespace: Some(key.namespace),
        owner_references: Some(vec![owner(app)]),
        uid: Some(uid(app, number)),
        creation_timestamp: Some(Time(created)),
        generation: Some(1),
        ..ObjectMeta::default()
    };
    Revision { metadata, spec }
}

/// The reference to an app as the controller of an object.
pub fn owner(app: &App) -> OwnerReference {
    OwnerReference {
        api_version: "dormouse.dev/v1alpha1".to_owned(),
        kind: "App".to_owned(),
        name: app.key().name,
        uid: app.metadata.uid.clone().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: None,
    }
}

/// A revision's uid: that of its app with the number in its last digits.
fn uid(app: &App, number: u32) -> String {
    let uid = app.metadata.uid.as_deref().unwrap_or_default();
    match uid.split_at_checked(uid.len().saturating_sub(8)) {
        Some((first, _)) => format!("{first}{number:08x}"),
        None => format!("{uid}-{number}"),
    }
}

/// Whether a revision belongs to this app, and not to one of another name or an earlier one of the same name.
pub fn is_of(revision: &Revision, app: &App) -> bool {
    let owners = revision.metadata.owner_references.as_deref();
    let owner = owners.unwrap_or_default().first();
    revision.spec.app == app.key().name
        && owner.map(|owner| owner.uid.as_str()) == app.metadata.uid.as_deref()
}

#[cfg(test)]
mod tests;
