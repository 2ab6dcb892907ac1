//! EndpointSlices, with kubectl's columns.

use std::borrow::Cow;

use dormouse_cluster::{FieldError, validate};
use k8s_openapi::{api::discovery::v1::EndpointSlice, jiff::Timestamp};
use serde_json::{Value, json};

use super::{Kind, Rules};
use crate::api::{
    fields,
    table::{Column, date_at},
};

/// Ports and addresses that a row shows.
const SHOWN: usize = 3;

const COLUMNS: &[Column] = &[
    Column::new("Name", "string"),
    Column::new("AddressType", "string"),
    Column::new("Ports", "string"),
    Column::new("Endpoints", "string"),
    Column::new("Age", "string"),
];

impl Kind for EndpointSlice {
    const BASE: &'static str = "/apis/discovery.k8s.io/v1";
    const SINGULAR: &'static str = "endpointslice";
    const SHORT: &'static [&'static str] = &["eps"];

    fn columns() -> Cow<'static, [Column]> {
        COLUMNS.into()
    }

    fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
        let items = |name: &str| object[name].as_array().cloned().unwrap_or_default();
        let port = |port: &Value| {
            port["port"]
                .as_i64()
                .map_or("*".to_owned(), |port| port.to_string())
        };
        let addresses = |endpoint: &Value| {
            endpoint["addresses"]
                .as_array()
                .cloned()
                .unwrap_or_default()
        };
        let address = |address: &Value| address.as_str().unwrap_or_default().to_owned();
        let ports: Vec<String> = items("ports").iter().map(port).collect();
        let addresses: Vec<Value> = items("endpoints").iter().flat_map(addresses).collect();
        let addresses: Vec<String> = addresses.iter().map(address).collect();
        vec![
            json!(fields::text(object, "metadata.name")),
            json!(fields::text(object, "addressType")),
            json!(first(&ports)),
            json!(first(&addresses)),
            date_at(object, "metadata.creationTimestamp", now),
        ]
    }

    fn set_defaults(&mut self, _old: Option<&Self>, _rules: &Rules<'_>) {
        for port in self.ports.iter_mut().flatten() {
            port.name.get_or_insert_default();
            port.protocol.get_or_insert_with(|| "TCP".to_owned());
        }
    }

    fn validate(&self, old: Option<&Self>, _rules: &Rules<'_>) -> Vec<FieldError> {
        validate::endpoint_slice(old, self)
    }
}

/// The first words, and the number of the others.
fn first(words: &[String]) -> String {
    match words {
        [] => "<unset>".to_owned(),
        words if words.len() > SHOWN => {
            let (shown, rest) = words.split_at(SHOWN);
            format!("{} + {} more...", shown.join(","), rest.len())
        }
        words => words.join(","),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_shows_three_addresses_and_counts_the_others() {
        let endpoints: Vec<Value> = (1..6)
            .map(|n| json!({"addresses": [format!("fd00::{n}")]}))
            .collect();
        let slice = json!({"metadata": {"name": "web-1"}, "addressType": "IPv6", "endpoints": endpoints, "ports": []});
        let cells = EndpointSlice::cells(&slice, Timestamp::UNIX_EPOCH);
        assert_eq!(
            cells[..4],
            [
                json!("web-1"),
                json!("IPv6"),
                json!("<unset>"),
                json!("fd00::1,fd00::2,fd00::3 + 2 more...")
            ]
        );
    }
}
