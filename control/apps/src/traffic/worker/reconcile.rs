//! One plan of an app: what it needs is read from the store, and what it says is written.

use std::collections::{BTreeMap, BTreeSet};

use dormouse_cluster::claim::ClaimError;
use dormouse_cluster::events::{self, Occurrence};
use dormouse_cluster::revision::key_of;
use dormouse_cluster::{App, ClientError, Guard, Key, Object, Revision, history, vip};
use dormouse_fleet::Boottime;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::{Clients, Known};
use crate::traffic::{Family, Plan, numbers, plan};
use dormouse_cluster::client::chain;

/// The end of a plan.
#[derive(Clone, Copy)]
pub(super) enum Ended {
    /// The app divides no traffic and has no children, or is gone.
    Over,
    /// It is repeated.
    Failed,
    /// It was executed. Each write makes a change, after which the app is planned again.
    Done {
        known: Known,
        /// When it is planned again if nothing changes.
        due: Option<Timestamp>,
        /// Children wait for the nodes: the VIP whose entry they must have.
        settle: Option<u32>,
    },
}

/// Plans an app, and executes the plan. `children` are the numbers of its children, as far as changes of the store have shown them;
/// `began` is the time of this control's first plan.
pub(super) async fn reconcile(
    clients: &Clients,
    app: &Key,
    children: BTreeSet<u32>,
    known: Option<Known>,
    began: Boottime,
) -> Ended {
    let ended = Box::pin(attempt(clients, app, children, known, began)).await;
    ended.unwrap_or_else(|error| {
        // Another writer was faster: its change is seen.
        if !matches!(error, ClaimError::Client(ClientError::Conflict { .. })) {
            tracing::warn!(%app, error = %chain(&error), "cannot divide the traffic of an app");
        }
        Ended::Failed
    })
}

async fn attempt(
    clients: &Clients,
    key: &Key,
    numbers: BTreeSet<u32>,
    known: Option<Known>,
    began: Boottime,
) -> Result<Ended, ClaimError> {
    let app: Option<App> = clients.store.get(key).await?;
    let uid = app.as_ref().and_then(|app| app.metadata.uid.clone());
    let mut own = BTreeMap::new();
    for number in numbers {
        match find(clients, key, uid.as_deref(), number).await? {
            Found::Child(child) => drop(own.insert(number, child)),
            Found::Orphan(child) => delete(clients, &child).await?,
            Found::Other | Found::Nothing => {}
        }
    }
    let Some(app) = app else {
        return Ok(Ended::Over);
    };
    if !app.divides_traffic() && app_is_clean(&app) && own.is_empty() {
        return Ok(Ended::Over);
    }
    let now = Timestamp::now();
    // A clock that is set makes the time of this control no longer.
    let age = SignedDuration::try_from(Boottime::now().since(began)).unwrap_or_default();
    let family = Family {
        app,
        cluster: clients.shared.settings.get(),
        children: own,
        templates: BTreeMap::new(),
        taken: BTreeSet::new(),
        since: now.checked_sub(age).unwrap_or(now),
    };
    let family = Box::pin(read(clients, family, now)).await?;
    let plan = plan(&family, now);
    Box::pin(execute(clients, family, plan, known)).await
}

/// What has the name of a revision of an app.
enum Found {
    /// Its child.
    Child(App),
    /// The child of an earlier app of its name.
    Orphan(App),
    /// An app that is no child.
    Other,
    Nothing,
}

/// Finds the child of an app that is the revision with this number. `uid` is the app's, if that exists.
async fn find(
    clients: &Clients,
    app: &Key,
    uid: Option<&str>,
    number: u32,
) -> Result<Found, ClientError> {
    let found: Option<App> = clients.store.get(&key_of(app, number)).await?;
    let Some(found) = found else {
        return Ok(Found::Nothing);
    };
    let parent = found.parent().filter(|(parent, _)| parent == app);
    let owner = parent.map(|(_, owner)| owner.uid.clone());
    Ok(match owner {
        None => Found::Other,
        Some(owner) if Some(owner.as_str()) == uid => Found::Child(found),
        Some(_) => Found::Orphan(found),
    })
}

/// Whether the app's status has nothing left of a split.
fn app_is_clean(app: &App) -> bool {
    let status = app.status.as_ref();
    status.is_none_or(|status| status.split_revision.is_none() && status.pods_min == 0)
}

/// Reads the revisions that need a child: one that changes have not shown yet, or its template, or whether another app has its name.
async fn read(clients: &Clients, mut family: Family, now: Timestamp) -> Result<Family, ClaimError> {
    let key = family.app.key();
    let status = family.app.status.as_ref();
    let named = status.into_iter().flat_map(|status| &status.traffic);
    let named: BTreeSet<u32> = named
        .filter(|row| !row.latest)
        .map(|row| row.revision)
        .collect();
    for number in named {
        let uid = family.app.metadata.uid.as_deref();
        if !family.children.contains_key(&number)
            && let Found::Child(child) = find(clients, &key, uid, number).await?
        {
            family.children.insert(number, child);
        }
    }
    for number in numbers(&family, now) {
        if family.children.contains_key(&number) {
            continue;
        }
        match find(clients, &key, family.app.metadata.uid.as_deref(), number).await? {
            Found::Child(child) => drop(family.children.insert(number, child)),
            Found::Orphan(child) => delete(clients, &child).await?,
            Found::Other => drop(family.taken.insert(number)),
            Found::Nothing => {}
        }
        let revision: Option<Revision> = clients.store.get(&key_of(&key, number)).await?;
        if let Some(revision) = revision.filter(|revision| history::is_of(revision, &family.app)) {
            family.templates.insert(number, revision.spec.template);
        }
    }
    Ok(family)
}

async fn execute(
    clients: &Clients,
    family: Family,
    plan: Plan,
    known: Option<Known>,
) -> Result<Ended, ClaimError> {
    let Family { app, children, .. } = family;
    let now = Timestamp::now();
    // This control knows nothing of the splits before its start. Without a surplus child, they matter to none.
    let since = if plan.surplus.is_empty() {
        0
    } else {
        app.revision()
    };
    let mut known = known.unwrap_or(Known::since(since, now));
    for mut child in plan.create {
        child.metadata.uid = Some(clients.shared.names.uid());
        child.metadata.creation_timestamp = Some(Time(Timestamp::now()));
        let created = clients.claims.create(child).await?;
        tracing::info!(app = %app.key(), child = %created.key(), "child app created");
    }
    for child in plan.update {
        let read = Guard::at(child.revision());
        clients.store.update(child, &read).await?;
    }
    let vip = app
        .vip()
        .and_then(|vip| vip::index_of(clients.claims.ranges(), vip));
    let (about, timeout) = (events::reference(&app), app.spec.timeout());
    if let Some(status) = plan.status {
        let read = Guard::at(app.revision());
        let mut app = app;
        app.status = Some(*status);
        let written = clients.store.update(app, &read).await?;
        if plan.takes_traffic {
            (known.since, known.at) = (written.revision(), now);
        }
    }
    if let Some((type_, reason, message)) = plan.event {
        let message = message.as_str();
        let occurrence = Occurrence {
            type_,
            reason,
            message,
        };
        // The plan goes on without it: what it has written must be remembered.
        if let Err(error) = events::record(&clients.store, &about, &occurrence).await {
            tracing::warn!(app = about.name, %error, "failed to record an event");
        }
    }
    for surplus in &plan.surplus {
        let mut children = children.values();
        let child = children.find(|child| child.key() == surplus.child);
        if let Some(child) = child.filter(|_| known.is_over(surplus, timeout, now)) {
            delete(clients, child).await?;
        }
    }
    let waits = !plan.surplus.is_empty() && !known.is_settled();
    let is_awake = plan.surplus.iter().any(|surplus| !surplus.sleeps);
    let answered = known
        .answered_at(timeout)
        .filter(|at| is_awake && *at > now);
    Ok(Ended::Done {
        known,
        due: plan.due.into_iter().chain(answered).min(),
        settle: vip.filter(|_| waits).map(|vip| vip.0),
    })
}

async fn delete(clients: &Clients, child: &App) -> Result<(), ClaimError> {
    let read = Guard::at(child.revision());
    match clients.claims.delete(child, &read, None).await {
        Ok(_) => {
            tracing::info!(child = %child.key(), "child app deleted");
            Ok(())
        }
        Err(error) => Err(error),
    }
}
