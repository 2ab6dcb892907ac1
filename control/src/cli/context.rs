//! What a command works with: the server it asks, the namespace it means, and where its answer goes.

use std::{io::Write, path::Path, time::Duration};

use futures::{AsyncBufReadExt, Stream, TryStreamExt};
use http::{Method, Request, header};
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::Value;

use super::{Connection, Exit, Failure, codes::Code};

/// Where control listens when nobody says otherwise.
const ENDPOINT_DEFAULT: &str = "http://[::1]:6443";
/// A server that takes no connection for this long is away.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// A server that took a request and stays silent for this long is as good as away.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(15);
/// The form of an answer that people read.
pub(super) const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io, application/json";
/// The form of an answer that programs read.
pub(super) const OBJECT: &str = "application/json";

/// What a command works with.
pub struct Context {
    client: kube::Client,
    /// The namespace that is meant when none is named.
    pub(super) namespace: String,
    /// Where the server's address comes from, for people.
    origin: String,
    /// Where the answer goes.
    pub(super) out: Box<dyn Write + Send>,
}

impl Context {
    /// Finds out which server to ask. Nothing is asked yet.
    pub async fn connect(
        connection: &Connection,
        out: Box<dyn Write + Send>,
    ) -> Result<Self, Failure> {
        let (mut config, origin) = match &connection.endpoint {
            Some(endpoint) => (
                of_endpoint(endpoint)?,
                format!("the endpoint is {endpoint}"),
            ),
            None => of_kubeconfig(connection).await?,
        };
        config.connect_timeout = Some(CONNECT_TIMEOUT);
        // A person is told at once, and decides whether to try again.
        config.default_retry = false;
        let namespace = connection
            .namespace
            .clone()
            .unwrap_or_else(|| config.default_namespace.clone());
        let client = kube::Client::try_from(config).map_err(|error| unusable(&error))?;
        Ok(Self {
            client,
            namespace,
            origin,
            out,
        })
    }

    /// Asks for `path` in one of the forms that `accept` lists.
    pub(super) async fn get(&self, path: &str, accept: &str, what: &str) -> Result<Value, Failure> {
        self.request(Method::GET, path, accept, (OBJECT, Vec::new()), what)
            .await
    }

    /// Sends a request with a body, of the media type beside it.
    pub(super) async fn request(
        &self,
        method: Method,
        path: &str,
        accept: &str,
        (media, body): (&str, Vec<u8>),
        what: &str,
    ) -> Result<Value, Failure> {
        let request = Request::builder().method(method).uri(path);
        let request = request
            .header(header::ACCEPT, accept)
            .header(header::CONTENT_TYPE, media)
            .body(body);
        let request = request.map_err(|error| self.failed(&kube::Error::HttpError(error), what))?;
        let answer = tokio::time::timeout(ANSWER_TIMEOUT, self.client.request(request)).await;
        let answer = answer.map_err(|_elapsed| self.silent(what))?;
        answer.map_err(|error| self.failed(&error, what))
    }

    /// Watches `path`: one value for each line of the answer.
    pub(super) async fn watch(
        &self,
        path: &str,
        accept: &str,
        what: &'static str,
    ) -> Result<impl Stream<Item = Result<Value, Failure>> + use<>, Failure> {
        let request = Request::builder()
            .uri(path)
            .header(header::ACCEPT, accept)
            .body(Vec::new());
        let request = request.map_err(|error| self.failed(&kube::Error::HttpError(error), what))?;
        let lines = self
            .client
            .request_stream(request)
            .await
            .map_err(|error| self.failed(&error, what))?
            .lines();
        let origin = self.origin.clone();
        let lines = lines.map_err(move |error| {
            Failure::of_request(&kube::Error::ReadEvents(error), what, &origin)
        });
        Ok(lines.and_then(async |line| {
            serde_json::from_str(&line).map_err(|error| {
                Failure::new(
                    Code::Output,
                    Exit::No,
                    format!("cannot read a change: {error}"),
                    "use the same version on both sides",
                )
            })
        }))
    }

    fn silent(&self, what: &str) -> Failure {
        let message = format!("cannot {what}: no answer within {ANSWER_TIMEOUT:?}");
        Failure::new(
            Code::Unreachable,
            Exit::Unreachable,
            message,
            "look at the server's log",
        )
        .note(&self.origin)
    }

    fn failed(&self, error: &kube::Error, what: &str) -> Failure {
        Failure::of_request(error, what, &self.origin)
    }
}

fn of_endpoint(endpoint: &str) -> Result<kube::Config, Failure> {
    let uri = endpoint
        .parse::<http::Uri>()
        .ok()
        .filter(|uri| uri.scheme().is_some() && uri.host().is_some());
    uri.map(kube::Config::new).ok_or_else(|| {
        let message = format!("cannot use endpoint {endpoint:?}: it is no URL");
        Failure::new(
            Code::Endpoint,
            Exit::Usage,
            message,
            "write it as http://[::1]:6443",
        )
    })
}

async fn of_kubeconfig(connection: &Connection) -> Result<(kube::Config, String), Failure> {
    let read = match &connection.kubeconfig {
        Some(path) => Kubeconfig::read_from(path),
        None if has_kubeconfig() => Kubeconfig::read(),
        None => {
            let origin = format!(
                "no endpoint is named and there is no kubeconfig, so {ENDPOINT_DEFAULT} was asked"
            );
            return Ok((of_endpoint(ENDPOINT_DEFAULT)?, origin));
        }
    };
    let read = read.map_err(|error| unusable(&error))?;
    let context = connection
        .context
        .clone()
        .or_else(|| read.current_context.clone())
        .unwrap_or_default();
    let options = KubeConfigOptions {
        context: connection.context.clone(),
        ..KubeConfigOptions::default()
    };
    let config = kube::Config::from_custom_kubeconfig(read, &options)
        .await
        .map_err(|error| unusable(&error))?;
    let origin = format!(
        "the endpoint {} comes from context {context:?} of the kubeconfig",
        config.cluster_url
    );
    Ok((config, origin))
}

fn has_kubeconfig() -> bool {
    let home = std::env::home_dir().map(|home| home.join(".kube/config"));
    std::env::var_os("KUBECONFIG").is_some() || home.as_deref().is_some_and(Path::exists)
}

fn unusable(error: &dyn std::error::Error) -> Failure {
    let message = format!("cannot tell which server to ask: {error}");
    Failure::new(
        Code::Endpoint,
        Exit::Usage,
        message,
        "write --endpoint http://[::1]:6443",
    )
}
