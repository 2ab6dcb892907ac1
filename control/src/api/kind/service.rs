//! Services, with kubectl's columns. A write gives addresses and node ports.

use std::borrow::Cow;

use dormouse_cluster::{FieldError, Guard, Object, service, validate};
use dormouse_rbac::User;
use k8s_openapi::{api::core::v1::Service, jiff::Timestamp};
use serde_json::{Value, json};

use super::{Kind, Rules};
use crate::api::{
    Api, Failure, fields,
    table::{Column, date_at},
};

const COLUMNS: &[Column] = &[
    Column::new("Name", "string"),
    Column::new("Type", "string"),
    Column::new("Cluster-IP", "string"),
    Column::new("External-IP", "string"),
    Column::new("Port(s)", "string"),
    Column::new("Age", "string"),
    Column::wide("Selector", "string"),
];

impl Kind for Service {
    const BASE: &'static str = "/api/v1";
    const SINGULAR: &'static str = "service";
    const SHORT: &'static [&'static str] = &["svc"];

    fn columns() -> Cow<'static, [Column]> {
        COLUMNS.into()
    }

    fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
        let text = |path| fields::text(object, path);
        vec![
            json!(text("metadata.name")),
            json!(text("spec.type")),
            json!(or_none(text("spec.clusterIP").to_owned())),
            json!(or_none(external(object))),
            json!(or_none(joined(object, "spec.ports", port))),
            date_at(object, "metadata.creationTimestamp", now),
            json!(or_none(selector(object))),
        ]
    }

    fn set_defaults(&mut self, old: Option<&Self>, rules: &Rules<'_>) {
        service::set_defaults(self, old, rules.services);
    }

    fn validate(&self, old: Option<&Self>, rules: &Rules<'_>) -> Vec<FieldError> {
        validate::service(old, self, rules.services)
    }

    /// Refuses external addresses of the control plane or of pods: all nodes would send connections to them to the Service's backends.
    async fn admit(&self, old: Option<&Self>, _user: &User, api: &Api) -> Result<(), Failure> {
        let known: Vec<&str> = old.into_iter().flat_map(outside).map(|one| one.1).collect();
        let new = outside(self).filter(|(_, text)| !known.contains(text));
        let check = |(field, text): (&str, &str)| {
            // What is no address has been refused, or is no place to answer at.
            let refused = api.fleet.check_external_address(text.parse().ok()?).err()?;
            Some(FieldError::invalid(field, refused.to_string()))
        };
        let errors: Vec<FieldError> = new.filter_map(check).collect();
        if errors.is_empty() {
            return Ok(());
        }
        Err(Failure::invalid::<Self>(&self.key().name, &errors))
    }

    async fn preview(self, old: Option<&Self>, api: &Api) -> Result<Self, Failure> {
        let key = self.key();
        let previewed = api.services.preview(self, old).await;
        previewed.map_err(|error| Failure::of_service::<Self>(&error, &key))
    }

    async fn insert(self, api: &Api) -> Result<Self, Failure> {
        let key = self.key();
        let created = api.services.create(self).await;
        created.map_err(|error| Failure::of_service::<Self>(&error, &key))
    }

    async fn replace(self, old: &Self, api: &Api) -> Result<Self, Failure> {
        let replaced = api.services.replace(self, old).await;
        replaced.map_err(|error| Failure::of_service::<Self>(&error, &old.key()))
    }

    async fn remove(&self, api: &Api, guard: &Guard) -> Result<(), Failure> {
        let deleted = api.services.delete(self, guard).await;
        deleted.map_err(|error| Failure::of_service::<Self>(&error, &self.key()))
    }
}

/// The addresses outside at which a Service answers, with their fields.
fn outside(service: &Service) -> impl Iterator<Item = (&'static str, &str)> {
    let spec = service.spec.as_ref();
    let external = spec.and_then(|spec| spec.external_ips.as_ref());
    let external = external.into_iter().flatten();
    let status = service.status.as_ref();
    let given = status.and_then(|status| status.load_balancer.as_ref());
    let ingress = given.and_then(|given| given.ingress.as_ref());
    let ingress = ingress.into_iter().flatten();
    let ingress = ingress.filter_map(|one| one.ip.as_deref());
    external
        .map(|one| ("spec.externalIPs", one.as_str()))
        .chain(ingress.map(|one| ("status.loadBalancer.ingress", one)))
}

fn or_none(text: String) -> String {
    if text.is_empty() {
        return "<none>".to_owned();
    }
    text
}

/// The words for the items of the list at `path`, joined by commas.
fn joined(object: &Value, path: &str, word: impl Fn(&Value) -> Option<String>) -> String {
    let items = fields::at(object, path).and_then(Value::as_array);
    let words = items.into_iter().flatten().filter_map(word);
    words.collect::<Vec<_>>().join(",")
}

/// The addresses at which clients outside of the cluster reach a Service, besides those of nodes.
fn external(service: &Value) -> String {
    let text = |one: &Value| one.as_str().map(str::to_owned);
    let given = joined(service, "spec.externalIPs", text);
    match fields::text(service, "spec.type") {
        "ExternalName" => fields::text(service, "spec.externalName").to_owned(),
        "LoadBalancer" => {
            let one = |one: &Value| text(&one["ip"]).or_else(|| text(&one["hostname"]));
            let balanced = joined(service, "status.loadBalancer.ingress", one);
            let all = [balanced, given]
                .into_iter()
                .filter(|part| !part.is_empty());
            match all.collect::<Vec<_>>().join(",") {
                none if none.is_empty() => "<pending>".to_owned(),
                all => all,
            }
        }
        _ => given,
    }
}

/// `80/TCP`, or with a node port `80:30080/TCP`.
fn port(port: &Value) -> Option<String> {
    let (number, protocol) = (port["port"].as_i64()?, port["protocol"].as_str()?);
    Some(match port["nodePort"].as_i64() {
        Some(node_port) if node_port != 0 => format!("{number}:{node_port}/{protocol}"),
        _ => format!("{number}/{protocol}"),
    })
}

fn selector(service: &Value) -> String {
    let labels = fields::at(service, "spec.selector").and_then(Value::as_object);
    let labels = labels.into_iter().flatten();
    let words =
        labels.map(|(name, value)| format!("{name}={}", value.as_str().unwrap_or_default()));
    words.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[expect(clippy::needless_pass_by_value, reason = "the values are literals")]
    fn check(spec: Value, want: &[&str]) {
        let object = json!({"metadata": {"name": "web"}, "spec": spec});
        let mut cells = Service::cells(&object, Timestamp::UNIX_EPOCH);
        cells.remove(5);
        assert_eq!(
            cells,
            want.iter().map(|cell| json!(cell)).collect::<Vec<_>>()
        );
    }

    #[test]
    fn the_cells_are_those_of_kubectl() {
        check(
            json!({"type": "ClusterIP", "clusterIP": "fd00:96::5", "selector": {"app": "web", "tier": "front"},
                "ports": [{"port": 80, "protocol": "TCP"}, {"port": 53, "protocol": "UDP"}]}),
            &[
                "web",
                "ClusterIP",
                "fd00:96::5",
                "<none>",
                "80/TCP,53/UDP",
                "app=web,tier=front",
            ],
        );
        check(
            json!({"type": "LoadBalancer", "clusterIP": "fd00:96::5", "ports": [{"port": 80, "nodePort": 30_080, "protocol": "TCP"}]}),
            &[
                "web",
                "LoadBalancer",
                "fd00:96::5",
                "<pending>",
                "80:30080/TCP",
                "<none>",
            ],
        );
        check(
            json!({"type": "ExternalName", "externalName": "db.example.com"}),
            &[
                "web",
                "ExternalName",
                "<none>",
                "db.example.com",
                "<none>",
                "<none>",
            ],
        );
    }
}
