//! One request from its head to its response: finds the app, waits for a slot, tries backends.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use dormouse_proxy::{Failure, ForwardError, Outbound, Relayed, forward};
use http::header::CONNECTION;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{Either, Full};
use hyper::body::Incoming;
use tokio::time::{Instant, sleep, timeout_at};
use tokio_util::task::task_tracker::TaskTrackerToken;
use tracing::{debug, warn};

use crate::app::{App, Core, Facts, Grant, NoSlot, Visit};
use crate::connection::Caller;
use crate::park::Ticket;
use crate::peer::{self, Protocol};
use crate::refusal::Refusal;

/// Backends tried for one request before it is answered 502.
const ATTEMPTS_MAX: u32 = 10;
/// The pause after every backend refused, ×1.5 each time: about 2.8 s in all.
const PAUSE_FIRST: Duration = Duration::from_millis(25);
/// What a parked request holds besides its head: the connection's buffers and tasks.
const PARKED_OVERHEAD_BYTES: usize = 8 * 1024;

/// A backend's body, or our own words.
pub(crate) type Answer = Either<Relayed<Held>, Full<Bytes>>;

/// The client left before its response's head: there is nobody to answer.
#[derive(Debug, thiserror::Error)]
#[error("the client left before its response")]
pub(crate) struct ClientLeft;

/// What an exchange holds until its response has ended. Dropped in this order: the slot goes first.
pub(crate) struct Held {
    _grant: Grant,
    _account: Arc<Account>,
}

/// One request's entry in the books, from its arrival to the end of its response.
struct Account {
    _visit: Visit,
    _tracked: TaskTrackerToken,
    timing: Timing,
}

struct Timing {
    core: Arc<Core>,
    method: Method,
    arrived: Instant,
    status: std::sync::OnceLock<StatusCode>,
}

impl Drop for Timing {
    fn drop(&mut self) {
        if let Some(status) = self.status.get() {
            self.core
                .metrics
                .answered(&self.method, *status, self.arrived.elapsed());
        }
    }
}

impl Caller {
    /// Answers one request, unless the client leaves first: then its place, slot and backend
    /// connection are given up at once, although nobody reads from the client's socket.
    pub(crate) async fn call(
        self: Arc<Self>,
        request: Request<Incoming>,
    ) -> Result<Response<Answer>, ClientLeft> {
        let unread = self.protocol == Protocol::Http1;
        tokio::select! {
            biased;
            response = self.answer(request) => Ok(response),
            () = peer::left(&self.stream), if unread => Err(ClientLeft),
        }
    }

    async fn answer(&self, request: Request<Incoming>) -> Response<Answer> {
        let timing = Timing {
            core: Arc::clone(&self.shared.core),
            method: request.method().clone(),
            arrived: Instant::now(),
            status: std::sync::OnceLock::new(),
        };
        let (app, facts) = match self.find(&request) {
            Ok(found) => found,
            Err(refusal) => return refuse(&refusal, &timing),
        };
        let account = Arc::new(Account {
            _visit: app.visit(),
            _tracked: self.shared.tracker.token(),
            timing,
        });
        let mut response = match self.exchange(&app, &facts, request, &account).await {
            Ok(response) => {
                app.answered();
                // Set once, here: nobody else has the account's timing.
                let _ = account.timing.status.set(response.status());
                response.map(Either::Left)
            }
            Err(refusal) => refuse(&refusal, &account.timing),
        };
        if app.direct.load(Ordering::Acquire) {
            self.ask_to_reconnect(&mut response);
        }
        response
    }

    fn find(&self, request: &Request<Incoming>) -> Result<(Arc<App>, Arc<Facts>), Refusal> {
        let vip = self.vip().ok_or(Refusal::OutsidePrefix {
            address: *self.local.ip(),
        })?;
        let app = self.shared.app(vip).ok_or(Refusal::Unknown { vip })?;
        let facts = app.facts();
        if facts.port != self.local.port() {
            return Err(Refusal::WrongPort {
                app: facts.name.clone(),
                port: facts.port,
            });
        }
        if request.method() == Method::CONNECT {
            return Err(Refusal::Connect);
        }
        Ok((app, facts))
    }

    async fn exchange(
        &self,
        app: &Arc<App>,
        facts: &Facts,
        request: Request<Incoming>,
        account: &Arc<Account>,
    ) -> Result<Response<Relayed<Held>>, Refusal> {
        let ticket = Ticket(self.shared.core.tickets.fetch_add(1, Ordering::Relaxed));
        let deadline = account.timing.arrived + facts.timeout;
        let bytes = head_bytes(&request) + PARKED_OVERHEAD_BYTES;
        let mut outbound = Outbound::new(request, self.client.into());
        let mut pause = PAUSE_FIRST;
        let mut attempts = 0;
        loop {
            let slot = timeout_at(deadline, app.slot(ticket, bytes)).await;
            let grant = slot.map_err(|_elapsed| parked_too_long(facts))?;
            let grant = grant.map_err(|reason| no_slot(reason, facts))?;
            let backend = Arc::clone(grant.backend());
            let held = Held {
                _grant: grant,
                _account: Arc::clone(account),
            };
            let failure = match forward(outbound, &backend, deadline, held).await {
                Ok(response) => return Ok(response),
                Err(failure) => *failure,
            };
            attempts += 1;
            outbound = retry(failure, attempts, facts)?;
            if !app.avoid(backend.address()) {
                sleep(pause).await;
                pause = pause * 3 / 2;
            }
        }
    }

    fn ask_to_reconnect(&self, response: &mut Response<Answer>) {
        match self.protocol {
            Protocol::Http2 => self.leave.notify_one(),
            Protocol::Http1 if response.status() == StatusCode::SWITCHING_PROTOCOLS => {}
            Protocol::Http1 => {
                response
                    .headers_mut()
                    .insert(CONNECTION, HeaderValue::from_static("close"));
            }
        }
    }
}

/// The request back, when it may be tried once more.
fn retry(failure: Failure, attempts: u32, facts: &Facts) -> Result<Outbound, Refusal> {
    let Failure { error, unsent } = failure;
    match unsent {
        Some(outbound) if attempts < ATTEMPTS_MAX => {
            debug!(app = facts.name, attempts, %error, "backend did not take a request");
            Ok(outbound)
        }
        _ => Err(failed(error, facts)),
    }
}

fn failed(error: ForwardError, facts: &Facts) -> Refusal {
    let app = facts.name.clone();
    if let ForwardError::Deadline { .. } = error {
        return Refusal::Timeout {
            app,
            limit: facts.timeout,
        };
    }
    warn!(app, %error, "request failed");
    Refusal::Backend { app, source: error }
}

fn parked_too_long(facts: &Facts) -> Refusal {
    Refusal::ParkedTooLong {
        app: facts.name.clone(),
        limit: facts.timeout,
    }
}

fn no_slot(reason: NoSlot, facts: &Facts) -> Refusal {
    match reason {
        NoSlot::Full(full) => Refusal::full(&facts.name, full),
        NoSlot::Removed => Refusal::Removed {
            app: facts.name.clone(),
        },
    }
}

fn refuse(refusal: &Refusal, timing: &Timing) -> Response<Answer> {
    if let Some(reason) = refusal.reason() {
        timing.core.metrics.refused(reason);
    }
    let _ = timing.status.set(refusal.status());
    refusal.response().map(Either::Right)
}

fn head_bytes(request: &Request<Incoming>) -> usize {
    let path = request
        .uri()
        .path_and_query()
        .map_or(0, |path| path.as_str().len());
    let fields = request.headers().iter();
    path + fields
        .map(|(name, value)| name.as_str().len() + value.len())
        .sum::<usize>()
}
