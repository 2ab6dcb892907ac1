//! A model of an API server: objects, versions, and the events that it remembers.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};

/// Objects that are never deleted.
pub(crate) const PERMANENT: [&str; 2] = ["s0", "s1"];

/// Objects of a page.
const PAGE: usize = 2;

pub(crate) struct Server {
    /// Whether it has streaming lists.
    pub(crate) streams: bool,
    version: u64,
    /// Watches from older versions are refused.
    oldest: u64,
    objects: BTreeMap<String, Service>,
    events: Vec<(u64, String)>,
    /// Changes when pages that were begun can no longer be continued.
    epoch: u64,
}

impl Server {
    pub(crate) fn new() -> Self {
        let mut server = Self {
            streams: true,
            version: 1 << 60,
            oldest: 0,
            objects: BTreeMap::new(),
            events: Vec::new(),
            epoch: 0,
        };
        (0..4).for_each(|number| server.put(number));
        server
    }

    pub(crate) fn objects(&self) -> &BTreeMap<String, Service> {
        &self.objects
    }

    pub(crate) fn put(&mut self, number: u8) {
        let name = format!("s{number}");
        self.version += 1;
        let service = Service {
            metadata: ObjectMeta {
                name: Some(name.clone()),
                namespace: Some("shop".to_owned()),
                resource_version: Some(self.version.to_string()),
                ..ObjectMeta::default()
            },
            ..Service::default()
        };
        self.note("MODIFIED", &service);
        self.objects.insert(name, service);
    }

    pub(crate) fn delete(&mut self, number: u8) {
        let name = format!("s{number}");
        if PERMANENT.contains(&&*name) {
            return;
        }
        if let Some(mut service) = self.objects.remove(&name) {
            self.version += 1;
            service.metadata.resource_version = Some(self.version.to_string());
            self.note("DELETED", &service);
        }
    }

    fn note(&mut self, kind: &str, service: &Service) {
        let line = format!("{}\n", json!({"type": kind, "object": service}));
        self.events.push((self.version, line));
    }

    pub(crate) fn forget(&mut self) {
        self.version += 1;
        self.oldest = self.version;
        self.events.clear();
        self.epoch += 1;
    }

    pub(crate) fn restore(&mut self, deleted: &[u8]) {
        // Far enough back that no later change reaches the versions of before.
        self.version -= 1 << 40;
        self.oldest = self.version;
        self.events.clear();
        self.epoch += 1;
        for number in deleted {
            self.delete(*number);
        }
    }

    /// Status and body of a response.
    pub(crate) fn respond(&self, target: &str) -> (u16, String) {
        let query: BTreeMap<&str, &str> = target
            .split(['?', '&'])
            .filter_map(|pair| pair.split_once('='))
            .collect();
        let version = query.get("resourceVersion");
        let version: u64 = version.map_or(0, |version| version.parse().unwrap());
        if query.contains_key("sendInitialEvents") {
            if !self.streams {
                return (422, "no streaming lists".to_owned());
            }
            return (200, self.initial());
        }
        if query.contains_key("watch") {
            return (200, self.watch(version));
        }
        if version > self.version {
            return (504, "too large resource version".to_owned());
        }
        self.page(query.get("continue").copied())
    }

    fn watch(&self, version: u64) -> String {
        if version < self.oldest {
            return "{\"type\":\"ERROR\",\"object\":{\"code\":410}}\n".to_owned();
        }
        let new = self.events.iter().filter(|(at, _)| *at > version);
        new.map(|(_, line)| line.as_str()).collect()
    }

    fn initial(&self) -> String {
        let added = self.objects.values();
        let added = added.map(|service| json!({"type": "ADDED", "object": service}));
        let end = json!({"type": "BOOKMARK", "object": {"metadata": {
            "resourceVersion": self.version.to_string(),
            "annotations": {"k8s.io/initial-events-end": "true"},
        }}});
        let lines: Vec<_> = added
            .chain([end])
            .map(|event| format!("{event}\n"))
            .collect();
        lines.concat()
    }

    /// A page. The token names the version: pages of another one would not be consistent.
    fn page(&self, token: Option<&str>) -> (u16, String) {
        let mut start = 0;
        if let Some(token) = token {
            let mut parts = token.split('.').map(|part| part.parse::<u64>().unwrap());
            let (version, place) = (parts.next().unwrap(), parts.next().unwrap());
            if version != self.version || parts.next() != Some(self.epoch) {
                return (
                    410,
                    "{\"metadata\":{\"continue\":\"0.0.0\"},\"code\":410}".to_owned(),
                );
            }
            start = usize::try_from(place).unwrap();
        }
        let all: Vec<&Service> = self.objects.values().collect();
        let end = (start + PAGE).min(all.len());
        let mut meta = json!({"resourceVersion": self.version.to_string()});
        if end < all.len() {
            meta["continue"] = Value::from(format!("{}.{end}.{}", self.version, self.epoch));
        }
        (
            200,
            json!({"kind": "ServiceList", "metadata": meta, "items": all[start..end]}).to_string(),
        )
    }
}
