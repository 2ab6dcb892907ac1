//! Extenders of a configuration: HTTP services that filter and score the nodes for a pod, and bind it.

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, Pod};
use k8s_openapi::jiff::SignedDuration;

use super::document::Field;
use crate::Malformed;

/// The timeout of a call, if none is set; kube-scheduler's.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The largest weight; kube-scheduler's scores are of 64 bits too.
const WEIGHT_MAX: i64 = i64::MAX / (100 * 100);

/// An extender.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extender {
    /// The URL before the verbs.
    pub url_prefix: String,
    /// The verb by which it filters nodes; empty if it does not.
    pub filter_verb: String,
    /// The verb by which it scores nodes; empty if it does not.
    pub prioritize_verb: String,
    /// The verb by which it binds pods; empty if it does not.
    pub bind_verb: String,
    /// The weight of its scores.
    pub weight: i64,
    /// The file with the certificate authorities of its server, PEM.
    pub authority: Option<String>,
    /// The timeout of a call.
    pub timeout: Duration,
    /// It knows the nodes: only their names are sent.
    pub node_cache_capable: bool,
    /// Pods are scheduled without it when it fails.
    pub ignorable: bool,
    managed: BTreeSet<String>,
    /// The managed resources that NodeResourcesFit ignores.
    pub(super) ignored: BTreeSet<String>,
}

impl Extender {
    /// The extenders of a configuration, of which one may bind.
    pub(super) fn all(document: &Field<'_>) -> Result<Vec<Self>, Malformed> {
        let mut all = Vec::new();
        for field in document.items("extenders")? {
            let extender = Self::of_field(&field)?;
            let binds = |one: &Self| !one.bind_verb.is_empty();
            if binds(&extender) && all.iter().any(binds) {
                return Err(field.error("only one extender can bind"));
            }
            all.push(extender);
        }
        Ok(all)
    }

    fn of_field(field: &Field<'_>) -> Result<Self, Malformed> {
        field.only(&[
            "urlPrefix",
            "filterVerb",
            "prioritizeVerb",
            "bindVerb",
            "preemptVerb",
            "weight",
            "enableHTTPS",
            "tlsConfig",
            "httpTimeout",
            "nodeCacheCapable",
            "managedResources",
            "ignorable",
        ])?;
        if !verb(field, "preemptVerb")?.is_empty() {
            return Err(field.required("preemptVerb")?.error("not supported"));
        }
        let prioritize_verb = verb(field, "prioritizeVerb")?;
        let weight = field.get("weight");
        let weight = weight.map_or(Ok(0), |weight| weight.integer(0..=WEIGHT_MAX))?;
        if !prioritize_verb.is_empty() && weight == 0 {
            return Err(field.error("an extender with a prioritizeVerb has a positive weight"));
        }
        let flag = |name| field.get(name).map_or(Ok(false), |flag| flag.flag());
        let (mut managed, mut ignored) = (BTreeSet::new(), BTreeSet::new());
        for resource in field.items("managedResources")? {
            resource.only(&["name", "ignoredByScheduler"])?;
            let name = resource.required("name")?.text()?;
            managed.insert(name.to_owned());
            let is_ignored = resource.get("ignoredByScheduler");
            if is_ignored.map_or(Ok(false), |flag| flag.flag())? {
                ignored.insert(name.to_owned());
            }
        }
        Ok(Self {
            url_prefix: url_prefix(field)?,
            filter_verb: verb(field, "filterVerb")?,
            prioritize_verb,
            bind_verb: verb(field, "bindVerb")?,
            weight,
            authority: authority(field)?,
            timeout: timeout(field)?,
            node_cache_capable: flag("nodeCacheCapable")?,
            ignorable: flag("ignorable")?,
            managed,
            ignored,
        })
    }

    /// Whether it is asked about a pod: without managed resources about each, else about those that request one of them.
    pub fn is_interested(&self, pod: &Pod) -> bool {
        let spec = pod.spec.as_ref();
        let init = spec.and_then(|spec| spec.init_containers.as_ref());
        let mut all = spec
            .into_iter()
            .flat_map(|spec| &spec.containers)
            .chain(init.into_iter().flatten());
        self.managed.is_empty() || all.any(|container| self.manages(container))
    }

    fn manages(&self, container: &Container) -> bool {
        let resources = container.resources.as_ref();
        let amounts = resources
            .into_iter()
            .flat_map(|one| [&one.requests, &one.limits]);
        let mut names = amounts.flatten().flat_map(|amounts| amounts.keys());
        names.any(|name| self.managed.contains(name))
    }
}

/// A verb; empty if it is missing.
fn verb(field: &Field<'_>, name: &str) -> Result<String, Malformed> {
    let Some(verb) = field.get(name) else {
        return Ok(String::new());
    };
    let text = verb.value().as_str();
    let text = text.ok_or_else(|| verb.error("not a text"))?;
    Ok(text.to_owned())
}

fn url_prefix(field: &Field<'_>) -> Result<String, Malformed> {
    let prefix = field.required("urlPrefix")?;
    let url = prefix.text()?;
    let is_http = url.starts_with("http://") || url.starts_with("https://");
    if !is_http {
        return Err(prefix.error("not the URL of an HTTP service"));
    }
    Ok(url.trim_end_matches('/').to_owned())
}

fn timeout(field: &Field<'_>) -> Result<Duration, Malformed> {
    let Some(timeout) = field.get("httpTimeout") else {
        return Ok(TIMEOUT);
    };
    let parsed = timeout.text()?.parse::<SignedDuration>().ok();
    let parsed = parsed.and_then(|duration| Duration::try_from(duration).ok());
    match parsed.ok_or_else(|| timeout.error("not a duration"))? {
        Duration::ZERO => Ok(TIMEOUT),
        given => Ok(given),
    }
}

/// A server over TLS is verified: kube-scheduler would take any certificate if there is no authority.
fn authority(field: &Field<'_>) -> Result<Option<String>, Malformed> {
    let Some(tls) = field.get("tlsConfig") else {
        let prefix = field.required("urlPrefix")?.text()?;
        let https = field.get("enableHTTPS");
        return match https {
            Some(https) if https.flag()? => Err(https.error("tlsConfig.caFile is required")),
            _ if prefix.starts_with("https://") => {
                Err(field.error("a URL of https needs tlsConfig.caFile"))
            }
            _ => Ok(None),
        };
    };
    tls.only(&["caFile"])?;
    Ok(Some(tls.required("caFile")?.text()?.to_owned()))
}
