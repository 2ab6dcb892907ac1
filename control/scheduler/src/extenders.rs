//! Extenders: HTTP services that filter and score the nodes for a pod after the plugins, and bind it.
//!
//! The decision loop does not wait for them: a task asks them, and the decision is made with their replies.

mod messages;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use dormouse_cluster::Object;
use dormouse_scheduler_decide::{Extender, Vetoes};
use futures::future::join_all;
use http_body_util::{BodyExt, Full, Limited};
use hyper::header::CONTENT_TYPE;
use hyper::{Request, StatusCode};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use k8s_openapi::api::core::v1::Pod;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::{self, ClientConfig, RootCertStore, crypto::ring};

use crate::state::{Asked, Consultation, Replies};
use messages::{Args, BindingArgs, BindingResult, Filtered, Priority};

/// Longest reply: the names, or the objects, of all nodes.
const REPLY_BYTES_MAX: usize = 256 << 20;
/// The largest score of a plugin for one of an extender.
const SCORES_PER_PRIORITY: i64 = 100 / 10;

/// An extender that cannot be asked.
#[derive(Debug, thiserror::Error)]
pub enum ExtenderError {
    /// Its authority's file has no readable certificate.
    #[error("{path} has no readable certificate")]
    Authority {
        /// The file.
        path: String,
        /// The cause.
        source: pem::Error,
    },
    /// Its TLS configuration cannot be used.
    #[error("the TLS configuration of the extender {url} cannot be used")]
    Tls {
        /// The extender.
        url: String,
        /// The cause.
        source: rustls::Error,
    },
}

/// The extenders, in the order in which they are asked; clones share their connections.
#[derive(Clone, Default)]
pub(crate) struct Extenders(Arc<[Connected]>);

struct Connected {
    extender: Extender,
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
}

impl Extenders {
    pub(crate) fn new(extenders: &[Extender]) -> Result<Self, ExtenderError> {
        let all = extenders.iter().map(Connected::new);
        let all: Result<Vec<_>, _> = all.collect();
        Ok(Self(all?.into()))
    }

    /// Asks the extenders about the nodes for a pod: filters one after another, then scores of the nodes that are left.
    pub(crate) async fn consult(&self, consultation: &Consultation) -> Result<Replies, String> {
        let pod = &consultation.pod;
        let mut nodes: Vec<_> = consultation.nodes.iter().collect();
        let mut vetoes = Vetoes::new();
        for one in self.interested(pod, |one| &one.filter_verb) {
            if nodes.is_empty() {
                break;
            }
            match one.filter(pod, &nodes).await {
                Ok(filtered) => {
                    nodes.retain(|node| filtered.passed.contains(&node.name));
                    vetoes.extend(filtered.vetoes);
                }
                Err(error) if one.extender.ignorable => {
                    let url = &one.extender.url_prefix;
                    tracing::warn!(extender = url, error, "an extender failed, it is ignored");
                }
                Err(error) => return Err(error),
            }
        }
        let scores = if nodes.len() > 1 {
            self.scores(pod, &nodes).await
        } else {
            BTreeMap::new()
        };
        Ok(Replies { vetoes, scores })
    }

    /// The sums of the weighted scores. An extender that fails gives none.
    async fn scores(&self, pod: &Pod, nodes: &[&Asked]) -> BTreeMap<String, i64> {
        let scoring = self.interested(pod, |one| &one.prioritize_verb);
        let all = join_all(scoring.map(|one| one.prioritize(pod, nodes))).await;
        let mut sums = BTreeMap::<_, i64>::new();
        for (name, score) in all.into_iter().flatten() {
            let sum = sums.entry(name).or_default();
            *sum = sum.saturating_add(score);
        }
        sums
    }

    /// Binds a pod by the extender that does so; `None` if there is none for the pod.
    pub(crate) async fn bind(&self, pod: &Pod, node: &str) -> Option<Result<(), String>> {
        for one in self.interested(pod, |one| &one.bind_verb) {
            match Box::pin(one.bind(pod, node)).await {
                Err(error) if one.extender.ignorable => {
                    let url = &one.extender.url_prefix;
                    tracing::warn!(
                        extender = url,
                        error,
                        "an extender does not bind, it is ignored"
                    );
                }
                bound => return Some(bound),
            }
        }
        None
    }

    /// The extenders that are asked about a pod by a verb.
    fn interested(
        &self,
        pod: &Pod,
        verb: impl Fn(&Extender) -> &String,
    ) -> impl Iterator<Item = &Connected> {
        let has_verb = move |one: &&Connected| !verb(&one.extender).is_empty();
        let all = self.0.iter().filter(has_verb);
        all.filter(|one| one.extender.is_interested(pod))
    }
}

impl Connected {
    fn new(extender: &Extender) -> Result<Self, ExtenderError> {
        let mut roots = RootCertStore::empty();
        if let Some(path) = &extender.authority {
            let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect);
            let read: Vec<_> = read.map_err(|source| ExtenderError::Authority {
                path: path.clone(),
                source,
            })?;
            roots.add_parsable_certificates(read);
        }
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|source| ExtenderError::Tls {
                url: extender.url_prefix.clone(),
                source,
            })?;
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(config.with_root_certificates(roots).with_no_client_auth())
            .https_or_http()
            .enable_http1()
            .build();
        Ok(Self {
            extender: extender.clone(),
            client: Client::builder(TokioExecutor::new()).build(connector),
        })
    }

    async fn filter(&self, pod: &Pod, nodes: &[&Asked]) -> Result<Filtered, String> {
        let args = Args::new(&self.extender, pod, nodes);
        let reply = self.send(&self.extender.filter_verb, &args).await?;
        let filtered = messages::filtered(reply, self.extender.node_cache_capable, nodes);
        filtered.map_err(|error| format!("extender {}: {error}", self.extender.url_prefix))
    }

    /// The weighted scores; none if the extender fails.
    async fn prioritize(&self, pod: &Pod, nodes: &[&Asked]) -> Vec<(String, i64)> {
        let args = Args::new(&self.extender, pod, nodes);
        let list = self.send(&self.extender.prioritize_verb, &args).await;
        let list = list.and_then(messages::decode::<Vec<Priority>>);
        let weight = self.extender.weight.saturating_mul(SCORES_PER_PRIORITY);
        match list {
            Ok(list) => {
                let scored = list.into_iter();
                let weighted = scored.map(|one| (one.host, one.score.saturating_mul(weight)));
                weighted.collect()
            }
            Err(error) => {
                let url = &self.extender.url_prefix;
                tracing::warn!(extender = url, error, "an extender gives no scores");
                Vec::new()
            }
        }
    }

    async fn bind(&self, pod: &Pod, node: &str) -> Result<(), String> {
        let key = pod.key();
        let args = BindingArgs {
            pod_name: &key.name,
            pod_namespace: &key.namespace,
            pod_uid: pod.metadata.uid.as_deref().unwrap_or_default(),
            node,
        };
        let reply = self.send(&self.extender.bind_verb, &args).await?;
        let result: BindingResult = messages::decode(reply)?;
        match result.error.as_str() {
            "" => Ok(()),
            error => Err(error.to_owned()),
        }
    }

    /// Sends a message to a verb; returns the reply.
    async fn send<T: DeserializeOwned>(
        &self,
        verb: &str,
        args: &impl Serialize,
    ) -> Result<T, String> {
        let url = format!("{}/{verb}", self.extender.url_prefix);
        let timeout = self.extender.timeout;
        let called = tokio::time::timeout(timeout, self.call(&url, args)).await;
        let called = called.map_err(|_elapsed| format!("no reply within {timeout:?}"));
        called
            .flatten()
            .map_err(|error| format!("extender {url}: {error}"))
    }

    async fn call<T: DeserializeOwned>(
        &self,
        url: &str,
        args: &impl Serialize,
    ) -> Result<T, String> {
        let body = serde_json::to_vec(args).map_err(|error| error.to_string())?;
        let request = Request::post(url).header(CONTENT_TYPE, "application/json");
        let request = request
            .body(Full::from(body))
            .map_err(|error| error.to_string())?;
        let response = self.client.request(request).await;
        let response = response.map_err(|error| format!("cannot be asked: {error:?}"))?;
        let status = response.status();
        if status != StatusCode::OK {
            return Err(format!("replied with {status}"));
        }
        let body = Limited::new(response.into_body(), REPLY_BYTES_MAX).collect();
        let body = body.await.map_err(|error| error.to_string())?.to_bytes();
        serde_json::from_slice(&body).map_err(|error| format!("the reply cannot be read: {error}"))
    }
}

/// The names of nodes.
fn names(nodes: &[&Asked]) -> BTreeSet<String> {
    nodes.iter().map(|node| node.name.clone()).collect()
}
