//! One plan of an app: what it needs is read from the store, and what it says is written.

use std::collections::{BTreeMap, BTreeSet};

use dormouse_cluster::claim::ClaimError;
use dormouse_cluster::events::{self, Occurrence};
use dormouse_cluster::revision::key_of;
use dormouse_cluster::{App, ClientError, Guard, Key, Object, Revision, children, history, vip};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;

use super::{Clients, Known};
use crate::actuator::chain;
use crate::traffic::{Family, Plan, numbers, plan};

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

/// Plans an app, and executes the plan.
pub(super) async fn reconcile(clients: &Clients, app: &Key, known: Option<Known>) -> Ended {
    let ended = Box::pin(attempt(clients, app, known)).await;
    ended.unwrap_or_else(|error| {
        // Another writer was faster: its change is seen.
        if !matches!(error, ClaimError::Client(ClientError::Conflict { .. })) {
            tracing::warn!(%app, error = %chain(&error), "cannot divide the traffic of an app");
        }
        Ended::Failed
    })
}

async fn attempt(clients: &Clients, key: &Key, known: Option<Known>) -> Result<Ended, ClaimError> {
    let app: Option<App> = clients.store.get(key).await?;
    let all = children::list(&clients.store, key).await?;
    let uid = app.as_ref().and_then(|app| app.metadata.uid.clone());
    let (own, orphans): (BTreeMap<_, _>, BTreeMap<_, _>) =
        all.into_iter().partition(|(_, child)| {
            let owner = child.parent().map(|(_, owner)| owner.uid.clone());
            owner == uid
        });
    for orphan in orphans.values() {
        delete(clients, orphan).await?;
    }
    let Some(app) = app else {
        return Ok(Ended::Over);
    };
    if !app.divides_traffic() && app_is_clean(&app) && own.is_empty() {
        return Ok(Ended::Over);
    }
    let now = Timestamp::now();
    let family = read(clients, app, own, now).await?;
    let plan = plan(&family, now);
    Box::pin(execute(clients, family, plan, known)).await
}

/// Whether the app's status has nothing left of a split.
fn app_is_clean(app: &App) -> bool {
    let status = app.status.as_ref();
    status.is_none_or(|status| status.split_revision.is_none())
}

/// Reads the templates of revisions that need a child, and which of their names other apps have.
async fn read(
    clients: &Clients,
    app: App,
    children: BTreeMap<u32, App>,
    now: Timestamp,
) -> Result<Family, ClientError> {
    let key = app.key();
    let mut family = Family {
        app,
        cluster: clients.shared.settings.get(),
        children,
        templates: BTreeMap::new(),
        taken: BTreeSet::new(),
    };
    for number in numbers(&family, now) {
        if family.children.contains_key(&number) {
            continue;
        }
        let name = key_of(&key, number);
        if clients.store.get::<App>(&name).await?.is_some() {
            family.taken.insert(number);
        }
        let revision: Option<Revision> = clients.store.get(&name).await?;
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
    // This control knows nothing of the splits before its start. Without a surplus child, they matter to none.
    let first = Known {
        since: if plan.surplus.is_empty() {
            0
        } else {
            app.revision()
        },
        ..Known::default()
    };
    let mut known = known.unwrap_or(first);
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
    let about = events::reference(&app);
    if let Some(status) = plan.status {
        let read = Guard::at(app.revision());
        let mut app = app;
        app.status = Some(*status);
        let written = clients.store.update(app, &read).await?;
        if plan.takes_traffic {
            known.since = written.revision();
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
    let is_settled = known.settled >= known.since;
    for child in children.values().filter(|_| is_settled) {
        if plan.surplus.contains(&child.key()) {
            delete(clients, child).await?;
        }
    }
    let waits = !plan.surplus.is_empty() && !is_settled;
    Ok(Ended::Done {
        known,
        due: plan.due,
        settle: vip.filter(|_| waits).map(|vip| vip.0),
    })
}

async fn delete(clients: &Clients, child: &App) -> Result<(), ClaimError> {
    let read = Guard::at(child.revision());
    match clients.claims.delete(child, &read).await {
        Ok(_) => {
            tracing::info!(child = %child.key(), "child app deleted");
            Ok(())
        }
        Err(error) => Err(error),
    }
}
