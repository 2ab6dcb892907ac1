//! A command's context: the API server, the default namespace, and the output.

use std::io::{IsTerminal, Write, stderr, stdout};
use std::{path::Path, time::Duration};

use dormouse_command::{CommandError, Exit, screen_width, wrap};
use futures::{AsyncBufRead, AsyncBufReadExt, Stream, TryStreamExt};
use http::{Method, Request, header};
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::Value;

use super::Connection;
use super::codes::Code;
use super::request::{ApiRequest, TABLE, request_error};

/// The address of control's API, used without `--endpoint` and without a kubeconfig.
const ENDPOINT_DEFAULT: &str = "https://[::1]:6443";
/// The administrator's kubeconfig of a control plane on this host, used without another one by users who may read it.
const ADMIN: &str = "/var/lib/dormouse/control/pki/admin.kubeconfig";
/// Longest time to wait for a TCP connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// Longest time to wait for the reply to a request.
const REPLY_TIMEOUT: Duration = Duration::from_secs(15);

/// What a command works with.
pub struct Context {
    client: kube::Client,
    /// The namespace of objects that are named without one.
    pub(super) namespace: String,
    /// Where the server's address comes from; printed with errors.
    origin: String,
    /// Output of the command, usually stdout.
    pub(super) out: Box<dyn Write + Send>,
    /// Width of the screen in characters; none: lines are not wrapped.
    pub width: Option<usize>,
    /// Whether a terminal shows the output: control characters of pods could change it.
    pub is_terminal: bool,
    /// What is not the output itself, for people, usually stderr.
    pub notes: Box<dyn Write + Send>,
    notes_width: Option<usize>,
}

impl Context {
    /// Chooses the API server. Sends no request yet.
    pub async fn connect(
        connection: &Connection,
        out: Box<dyn Write + Send>,
    ) -> Result<Self, CommandError> {
        let (mut config, origin) = match &connection.endpoint {
            Some(endpoint) => (
                of_endpoint(endpoint)?,
                format!("the endpoint is {endpoint}"),
            ),
            None => of_kubeconfig(connection).await?,
        };
        config.connect_timeout = Some(CONNECT_TIMEOUT);
        // An error is printed at once: the user decides whether to retry.
        config.default_retry = false;
        let namespace = connection
            .namespace
            .clone()
            .unwrap_or_else(|| config.default_namespace.clone());
        let client = kube::Client::try_from(config).map_err(|error| no_endpoint(&error))?;
        Ok(Self {
            client,
            namespace,
            origin,
            out,
            width: screen_width(stdout()),
            is_terminal: stdout().is_terminal(),
            notes: Box::new(stderr()),
            notes_width: screen_width(stderr()),
        })
    }

    /// Writes a note for people beside the output.
    pub(super) fn note(&mut self, text: &str) {
        for line in wrap(text, self.notes_width) {
            // If stderr is closed, the output is there without its notes.
            drop(writeln!(self.notes, "{line}"));
        }
    }

    /// Reads objects at `path`.
    pub(super) async fn get(&self, path: &str, action: &str) -> Result<Value, CommandError> {
        self.request(ApiRequest::new(Method::GET, path, action))
            .await
    }

    /// Reads objects at `path` as a table.
    pub(super) async fn get_table(&self, path: &str, action: &str) -> Result<Value, CommandError> {
        let request = ApiRequest::new(Method::GET, path, action);
        self.request(ApiRequest {
            accept: TABLE,
            ..request
        })
        .await
    }

    /// Sends a request and returns the reply's body.
    pub(super) async fn request(&self, request: ApiRequest<'_>) -> Result<Value, CommandError> {
        let action = request.action;
        let built = Request::builder()
            .method(request.method)
            .uri(request.path)
            .header(header::ACCEPT, request.accept)
            .header(header::CONTENT_TYPE, request.media_type)
            .body(request.body);
        let built = built.map_err(|error| self.failed(&kube::Error::HttpError(error), action))?;
        let reply = tokio::time::timeout(REPLY_TIMEOUT, self.client.request(built)).await;
        let reply = reply.map_err(|_elapsed| self.timed_out(action))?;
        reply.map_err(|error| self.failed(&error, action))
    }

    /// Watches `path` with tables: one value per line of the reply.
    pub(super) async fn watch(
        &self,
        path: &str,
        action: &'static str,
    ) -> Result<impl Stream<Item = Result<Value, CommandError>> + use<>, CommandError> {
        let lines = self.stream(path, TABLE, action).await?.lines();
        let origin = self.origin.clone();
        let lines = lines
            .map_err(move |error| request_error(&kube::Error::ReadEvents(error), action, &origin));
        Ok(lines.and_then(async |line| {
            serde_json::from_str(&line).map_err(|error| {
                CommandError::new(
                    Code::Output,
                    Exit::No,
                    format!("cannot parse a watch event: {error}"),
                    "use the same version of command and server",
                )
            })
        }))
    }

    /// Opens the log at `path`, whose lines arrive as the pod writes them.
    pub(super) async fn open(
        &self,
        path: &str,
        action: &str,
    ) -> Result<impl AsyncBufRead + Send + Unpin + use<>, CommandError> {
        self.stream(path, "*/*", action).await
    }

    async fn stream(
        &self,
        path: &str,
        accept: &str,
        action: &str,
    ) -> Result<impl AsyncBufRead + Send + Unpin + use<>, CommandError> {
        let request = Request::builder()
            .uri(path)
            .header(header::ACCEPT, accept)
            .body(Vec::new());
        let request =
            request.map_err(|error| self.failed(&kube::Error::HttpError(error), action))?;
        let opened = self.client.request_stream(request).await;
        Ok(Box::pin(
            opened.map_err(|error| self.failed(&error, action))?,
        ))
    }

    fn timed_out(&self, action: &str) -> CommandError {
        let message = format!("cannot {action}: no reply within {REPLY_TIMEOUT:?}");
        CommandError::new(
            Code::Unreachable,
            Exit::Unreachable,
            message,
            "look at the server's log",
        )
        .note(&self.origin)
    }

    fn failed(&self, error: &kube::Error, action: &str) -> CommandError {
        request_error(error, action, &self.origin)
    }
}

fn of_endpoint(endpoint: &str) -> Result<kube::Config, CommandError> {
    let uri = endpoint
        .parse::<http::Uri>()
        .ok()
        .filter(|uri| uri.scheme().is_some() && uri.host().is_some());
    uri.map(kube::Config::new).ok_or_else(|| {
        let message = format!("cannot use endpoint {endpoint:?}: it is not a URL");
        CommandError::new(
            Code::Endpoint,
            Exit::Usage,
            message,
            "write it as https://[::1]:6443",
        )
    })
}

async fn of_kubeconfig(connection: &Connection) -> Result<(kube::Config, String), CommandError> {
    let read = match &connection.kubeconfig {
        Some(path) => Kubeconfig::read_from(path),
        None if has_kubeconfig() => Kubeconfig::read(),
        None if Path::new(ADMIN).exists() => Kubeconfig::read_from(ADMIN),
        None => {
            let origin = format!(
                "no --endpoint is given and there is no kubeconfig, so {ENDPOINT_DEFAULT} was used"
            );
            return Ok((of_endpoint(ENDPOINT_DEFAULT)?, origin));
        }
    };
    let read = read.map_err(|error| no_endpoint(&error))?;
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
        .map_err(|error| no_endpoint(&error))?;
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

fn no_endpoint(error: &dyn std::error::Error) -> CommandError {
    let message = format!("cannot determine the API server: {error}");
    CommandError::new(
        Code::Endpoint,
        Exit::Usage,
        message,
        "export KUBECONFIG=/var/lib/dormouse/control/pki/admin.kubeconfig",
    )
}
