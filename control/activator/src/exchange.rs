//! One exchange: finds the request's app, waits for a slot, and tries backends until one responds.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use dormouse_proxy::{Failure, ForwardError, Outbound, Relayed, forward, is_coded};
use http::header::CONNECTION;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{Either, Full};
use hyper::body::Incoming;
use tokio::time::{Instant, sleep, timeout_at};
use tokio_util::task::task_tracker::TaskTrackerToken;
use tracing::{debug, warn};

use crate::app::{Asked, Claim, Core, CountedRequest, Grant, NoSlot, RequestRoute, SentRequest};
use crate::client_stream::{self, Protocol};
use crate::connection::ClientConnection;
use crate::cutoff;
use crate::footprint;
use crate::host;
use crate::lookup::Found;
use crate::park::Ticket;
use crate::refusal::Refusal;

/// Limit of attempts at backends before a request is answered 502.
const ATTEMPTS_MAX: u32 = 10;
/// First pause after all backends refused a connection; each further one is 1.5 times as long: about 2.8 s in total.
const PAUSE_FIRST: Duration = Duration::from_millis(25);
/// The body of a backend's response, or of a refusal.
pub(crate) type ResponseBody = Either<Relayed<ExchangeGuard>, Full<Bytes>>;

/// The client closed the connection before the response's head.
#[derive(Debug, thiserror::Error)]
#[error("the client closed the connection before the response")]
pub(crate) struct ClientClosed;

/// Claims of an exchange until its response has ended. The fields are dropped in order: the slot is freed first.
pub(crate) struct ExchangeGuard {
    _grant: Grant,
    _response: cutoff::Response,
    _record: Arc<Record>,
}

/// The load and the metrics of one request, from its arrival to the end of its response.
struct Record {
    _counted: CountedRequest,
    _tracked: TaskTrackerToken,
    _timing: Arc<Timing>,
}

/// Why a request has no response from a pod.
enum Unserved {
    Refused(Refusal),
    /// Its app was removed before a pod got it.
    Removed(Box<Outbound>),
}

impl From<Refusal> for Unserved {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

struct Timing {
    core: Arc<Core>,
    method: Method,
    arrived: Instant,
    ticket: Ticket,
    status: std::sync::OnceLock<StatusCode>,
}

impl Drop for Timing {
    fn drop(&mut self) {
        if let Some(status) = self.status.get() {
            self.core
                .metrics
                .response_ended(&self.method, *status, self.arrived.elapsed());
        }
    }
}

impl ClientConnection {
    /// Answers one request. If the client closes first, its queue place, slot and backend connection are
    /// released at once, although no task reads from the client's socket.
    pub(crate) async fn call(
        self: Arc<Self>,
        request: Request<Incoming>,
    ) -> Result<Response<ResponseBody>, ClientClosed> {
        let unread = self.protocol == Protocol::Http1;
        tokio::select! {
            biased;
            response = self.answer(request) => Ok(response),
            () = client_stream::closed(&self.stream), if unread => Err(ClientClosed),
        }
    }

    async fn answer(&self, request: Request<Incoming>) -> Response<ResponseBody> {
        let timing = Timing {
            core: Arc::clone(&self.shared.core),
            method: request.method().clone(),
            arrived: Instant::now(),
            ticket: Ticket(self.shared.core.tickets.fetch_add(1, Ordering::Relaxed)),
            status: std::sync::OnceLock::new(),
        };
        if let Err(error) = host::check(&request) {
            let mut response = refuse(&Refusal::Host(error), &timing);
            if self.protocol == Protocol::Http1 {
                self.ask_to_close(&mut response);
            }
            return response;
        }
        let asked = Asked {
            port: self.local.port(),
            bytes: footprint::bytes(&request),
            arrived: timing.arrived,
        };
        if let Some(refusal) = unsupported(&request) {
            return refuse(&refusal, &timing);
        }
        let mut outbound = Outbound::new(request, self.address.into());
        let timing = Arc::new(timing);
        loop {
            let found = match self.find(asked, outbound.headers()).await {
                Ok(found) => found,
                Err(refusal) => return refuse(&refusal, &timing),
            };
            let ended = self.exchange(&found, asked.bytes, outbound, &timing).await;
            let refusal = match ended {
                Ok(response) => {
                    // Set only here: no other code has this exchange's timing.
                    let _ = timing.status.set(response.status());
                    return self.finished(&found, response.map(Either::Left));
                }
                // The split has changed meanwhile.
                Err(Unserved::Removed(unsent)) if found.has_split() => {
                    outbound = *unsent;
                    continue;
                }
                Err(Unserved::Removed(_)) => no_slot(NoSlot::Removed, &found.route),
                Err(Unserved::Refused(refusal)) => refusal,
            };
            if let Some(how) = refusal.unanswered() {
                found.app.unanswered(how);
            }
            return self.finished(&found, refuse(&refusal, &timing));
        }
    }

    fn finished(
        &self,
        found: &Found,
        mut response: Response<ResponseBody>,
    ) -> Response<ResponseBody> {
        if found.is_served_directly(&self.shared) {
            self.ask_to_close(&mut response);
        }
        response
    }

    async fn exchange(
        &self,
        found: &Found,
        bytes: usize,
        mut outbound: Outbound,
        timing: &Arc<Timing>,
    ) -> Result<Response<Relayed<ExchangeGuard>>, Unserved> {
        let (app, route) = (&found.app, &found.route);
        let record = Arc::new(Record {
            _counted: app.count_request(),
            _tracked: self.shared.tracker.token(),
            _timing: Arc::clone(timing),
        });
        let deadline = timing.arrived + route.timeout;
        let claim = Claim {
            ticket: timing.ticket,
            bytes,
            arrived: timing.arrived,
            wake_timeout: route.wake_timeout,
        };
        let mut pause = PAUSE_FIRST;
        let mut attempts = 0;
        loop {
            let slot = timeout_at(deadline, app.slot(claim)).await;
            let grant = match slot.map_err(|_elapsed| parked_too_long(route))? {
                Ok(grant) => grant,
                Err(NoSlot::Removed) => return Err(Unserved::Removed(Box::new(outbound))),
                Err(reason) => return Err(no_slot(reason, route).into()),
            };
            let backend = Arc::clone(grant.backend());
            let guard = ExchangeGuard {
                _grant: grant,
                _response: cutoff::Response::until(deadline),
                _record: Arc::clone(&record),
            };
            let sent = SentRequest::new(app, backend.address(), route.wake_timeout);
            let ended = forward(outbound, &backend, deadline, guard).await;
            sent.ended();
            let failure = match ended {
                Ok(response) => {
                    app.response_begun(backend.address());
                    return Ok(response);
                }
                Err(failure) => *failure,
            };
            attempts += 1;
            outbound = retry(failure, attempts, route).inspect_err(|refusal| {
                if let Some(fault) = refusal.fault() {
                    app.failed(backend.address(), fault);
                }
            })?;
            if !app.avoid(backend.address()) {
                sleep(pause).await;
                pause = pause * 3 / 2;
            }
        }
    }

    fn ask_to_close(&self, response: &mut Response<ResponseBody>) {
        match self.protocol {
            Protocol::Http2 => self.reconnect.notify_one(),
            Protocol::Http1 if response.status() == StatusCode::SWITCHING_PROTOCOLS => {}
            Protocol::Http1 => {
                response
                    .headers_mut()
                    .insert(CONNECTION, HeaderValue::from_static("close"));
            }
        }
    }
}

/// Why a request is refused whatever its app.
fn unsupported(request: &Request<Incoming>) -> Option<Refusal> {
    if request.method() == Method::CONNECT {
        Some(Refusal::Connect)
    } else {
        is_coded(request.headers()).then_some(Refusal::Coded)
    }
}

/// The request, if it may be tried at another backend.
fn retry(failure: Failure, attempts: u32, route: &RequestRoute) -> Result<Outbound, Refusal> {
    let Failure { error, unsent } = failure;
    match unsent {
        Some(outbound) if attempts < ATTEMPTS_MAX => {
            debug!(app = route.name, attempts, %error, "backend did not accept a request");
            Ok(outbound)
        }
        _ => Err(failed(error, route)),
    }
}

fn failed(error: ForwardError, route: &RequestRoute) -> Refusal {
    let app = route.name.clone();
    if let ForwardError::Deadline { .. } = error {
        return Refusal::Timeout {
            app,
            limit: route.timeout,
        };
    }
    warn!(app, %error, "request failed");
    Refusal::Backend { app, source: error }
}

fn parked_too_long(route: &RequestRoute) -> Refusal {
    Refusal::ParkedTooLong {
        app: route.name.clone(),
        limit: route.timeout,
    }
}

fn no_slot(reason: NoSlot, route: &RequestRoute) -> Refusal {
    let app = route.name.clone();
    match reason {
        NoSlot::Limit(limit) => Refusal::limit(&app, limit),
        NoSlot::Removed => Refusal::Removed { app },
        NoSlot::NotReady(problem) => Refusal::NotReady {
            app,
            waited: route.wake_timeout,
            problem,
        },
        NoSlot::Failing(problem) => Refusal::Failing { app, problem },
    }
}

fn refuse(refusal: &Refusal, timing: &Timing) -> Response<ResponseBody> {
    if let Some(reason) = refusal.reason() {
        timing.core.metrics.refused(reason);
    }
    let _ = timing.status.set(refusal.status());
    refusal.response().map(Either::Right)
}
