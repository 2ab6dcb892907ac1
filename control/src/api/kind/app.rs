//! Apps: the columns are the definition's printer columns; a create claims the VIP, and a change of the template writes revisions.

use std::{borrow::Cow, sync::LazyLock};

use dormouse_cluster::{
    App, FieldError, Guard, Object, claim::ClaimError, history, revision::key_of, validate, vip,
};
use k8s_openapi::jiff::Timestamp;
use serde_json::Value;

use super::{Kind, Rules};
use crate::{
    api::{
        Api, Failure, fields, storage,
        table::{Column, date},
    },
    up::OWN_PORTS,
};

static COLUMNS: LazyLock<Vec<(Column, String)>> = LazyLock::new(|| {
    let definition = App::definition();
    let version = definition.spec.versions.into_iter().next();
    let printed = version
        .and_then(|version| version.additional_printer_columns)
        .unwrap_or_default();
    let column = |name: &str, type_: &str, priority| Column {
        name: name.to_owned().into(),
        type_: type_.to_owned().into(),
        priority,
    };
    let name = (Column::new("Name", "string"), ".metadata.name".to_owned());
    let rest = printed.into_iter().map(|one| {
        (
            column(&one.name, &one.type_, one.priority.unwrap_or(0)),
            one.json_path,
        )
    });
    std::iter::once(name).chain(rest).collect()
});

/// The split of an app's traffic in words: `web-2=90,web-3=10`. Targets without traffic are left out.
fn traffic(app: &Value, targets: &[Value]) -> String {
    let name = fields::text(app, "metadata.name");
    let has_some = |target: &&Value| {
        target["percent"]
            .as_u64()
            .is_some_and(|percent| percent > 0)
    };
    let targets = targets.iter().filter(has_some);
    let words =
        targets.map(|target| format!("{name}-{}={}", target["revision"], target["percent"]));
    words.collect::<Vec<_>>().join(",")
}

/// Why a child cannot be deleted: its parent sends traffic to it, or is to. None: it is left from a split that is over.
fn use_of(child: &App, parent: &App) -> Option<String> {
    let (name, of) = (child.key().name, parent.key().name);
    let mut targets = parent.spec.traffic.iter();
    let text = format!("is a revision of app {of} that has a share of its traffic or a tag");
    if targets.any(|target| target.revision_name.as_ref() == Some(&name)) {
        return Some(format!(
            "{text}: remove {name} from spec.traffic of app {of}, then control deletes it"
        ));
    }
    let status = parent.status.clone().unwrap_or_default();
    let mut split = status.traffic.iter();
    let has_share = split.any(|target| Some(target.vip) == child.vip());
    let gives = status
        .rollout
        .is_some_and(|rollout| key_of(&parent.key(), rollout.from).name == name);
    (has_share || gives).then(|| {
        format!(
            "{text} until the split of its manifest is in force, after which control deletes it: see `dormouse rollout status app {of}`"
        )
    })
}

/// An error if `port` is one on which the control plane listens: the activator listens there for apps in proxy mode.
fn control_port(port: u16) -> Option<FieldError> {
    OWN_PORTS.contains(&port).then(|| {
        let all = OWN_PORTS.map(|port| port.to_string()).join(", ");
        let message = format!(
            "{port} is a port of the control plane ({all}): choose another; targetPort may be any"
        );
        FieldError::invalid("spec.port", message)
    })
}

impl Kind for App {
    const BASE: &'static str = "/apis/dormouse.dev/v1alpha1";
    const SINGULAR: &'static str = "app";
    const SHORT: &'static [&'static str] = &[];

    fn columns() -> Cow<'static, [Column]> {
        COLUMNS.iter().map(|(column, _)| column.clone()).collect()
    }

    fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
        let cell = |(column, path): &(Column, String)| match fields::at(object, path) {
            Some(value) if column.type_ == "date" => date(value, now),
            Some(Value::Array(targets)) => traffic(object, targets).into(),
            Some(value) => value.clone(),
            None => Value::Null,
        };
        COLUMNS.iter().map(cell).collect()
    }

    fn set_defaults(&mut self, old: Option<&Self>, _rules: &Rules<'_>) {
        if self.spec.container.name.is_empty() {
            "app".clone_into(&mut self.spec.container.name);
        }
        if self.spec.vip.is_none() {
            self.spec.vip = old.and_then(Self::vip);
        }
        self.status.get_or_insert_default();
    }

    fn validate(&self, old: Option<&Self>, rules: &Rules<'_>) -> Vec<FieldError> {
        let mut errors = validate::app(old, self, rules.ranges, &rules.autoscaling);
        errors.extend(control_port(self.spec.port));
        errors.extend(validate::child(old, self));
        errors.extend(
            old.map(|old| validate::app_update(old, self))
                .unwrap_or_default(),
        );
        errors
    }

    async fn preview(self, old: Option<&Self>, api: &Api) -> Result<Self, Failure> {
        let (key, ranges) = (self.key(), api.claims.ranges());
        let named = self.spec.vip.filter(|_| old.is_none());
        let claimed = named.and_then(|vip| Some((vip, vip::index_of(ranges, vip)?)));
        let Some((vip, index)) = claimed else {
            return Ok(self);
        };
        let owner = api
            .claims
            .owner(index)
            .await
            .map_err(|error| Failure::of_client::<Self>(&error, &key))?;
        match owner.filter(|owner| *owner != key) {
            Some(owner) => Err(Failure::of_claim::<Self>(
                &ClaimError::Taken {
                    vip,
                    owner: owner.to_string(),
                },
                &key,
            )),
            None => Ok(self),
        }
    }

    async fn insert(self, api: &Api) -> Result<Self, Failure> {
        let key = self.key();
        api.claims
            .create(self)
            .await
            .map_err(|error| Failure::of_claim::<Self>(&error, &key))
    }

    async fn replace(self, old: &Self, api: &Api) -> Result<Self, Failure> {
        let uid = old.metadata.uid.as_deref().unwrap_or_default();
        let written = if self.spec.template().hash(uid) == old.spec.template().hash(uid) {
            api.client.update(self, &Guard::at(old.revision())).await
        } else {
            history::replace(&api.client, old, self).await
        };
        written.map_err(|error| Failure::of_client::<Self>(&error, &old.key()))
    }

    async fn remove(&self, api: &Api, guard: &Guard) -> Result<(), Failure> {
        let mut parent = None;
        if let Some((key, owner)) = self.parent() {
            let is_its = |parent: &Self| parent.metadata.uid.as_ref() == Some(&owner.uid);
            parent = storage::find::<Self>(api, &key).await?.filter(is_its);
        }
        if let Some(used) = parent.as_ref().and_then(|parent| use_of(self, parent)) {
            let error = FieldError::invalid("metadata.ownerReferences", used);
            return Err(Failure::invalid::<Self>(&self.key().name, &[error]));
        }
        // A parent that changes meanwhile may have come to use it.
        let deleted = api.claims.delete(self, guard, parent.as_ref()).await;
        deleted
            .map(drop)
            .map_err(|error| Failure::of_claim::<Self>(&error, &self.key()))
    }
}
