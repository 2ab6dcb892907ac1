//! Health over HTTP: `/health` with a JSON object, `/livez` and `/readyz` with a line for each check.

use std::fmt::Write;

use axum::{
    Router,
    extract::{Query, State},
    http::{StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
    routing::get,
};
use serde_json::json;

use crate::{
    Store,
    alarm::Alarm,
    proto::etcdserverpb::{AlarmType, RangeRequest},
};

/// The parameters of a request; some names may be there more than once.
type Parameters = Query<Vec<(String, String)>>;

/// A check of `/livez` or `/readyz`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Check {
    DataCorruption,
    SerializableRead,
    LinearizableRead,
    /// Passes always: the server is the only voting member.
    NonLearner,
}

const LIVEZ: &[Check] = &[Check::SerializableRead];
const READYZ: &[Check] = &[
    Check::DataCorruption,
    Check::SerializableRead,
    Check::LinearizableRead,
    Check::NonLearner,
];

impl Check {
    fn name(self) -> &'static str {
        match self {
            Self::DataCorruption => "data_corruption",
            Self::SerializableRead => "serializable_read",
            Self::LinearizableRead => "linearizable_read",
            Self::NonLearner => "non_learner",
        }
    }

    async fn run(self, store: &Store) -> Result<(), String> {
        match self {
            Self::DataCorruption if corrupt(store) => Err("alarm activated: CORRUPT".into()),
            Self::DataCorruption | Self::NonLearner => Ok(()),
            Self::SerializableRead => read(store).await,
            Self::LinearizableRead => linearizable_read(store).await,
        }
    }
}

pub(super) fn router(store: &Store) -> Router {
    let mut router = Router::new().route("/health", get(health));
    for (path, checks) in [("/livez", LIVEZ), ("/readyz", READYZ)] {
        router = router.route(path, checks_route(checks));
        for check in checks {
            let one = std::slice::from_ref(check);
            router = router.route(&format!("{path}/{}", check.name()), checks_route(one));
        }
    }
    router.with_state(store.clone())
}

/// The alarms that `exclude` does not name, then a read.
async fn health(State(store): State<Store>, Query(parameters): Parameters) -> Response {
    let excluded = |alarm: &Alarm| {
        let name = AlarmType::try_from(alarm.kind).map_or("", |kind| kind.as_str_name());
        parameters.contains(&("exclude".into(), name.into()))
    };
    let alarms = store.alarms(AlarmType::None.into()).0;
    let reason = match alarms.iter().find(|alarm| !excluded(alarm)) {
        Some(alarm) => format!("ALARM {}", known_name(*alarm)),
        None => match linearizable_read(&store).await {
            Ok(()) => String::new(),
            Err(error) => format!("RANGE ERROR:{error}"),
        },
    };
    let healthy = reason.is_empty();
    let body = json!({"health": healthy.to_string(), "reason": reason});
    (status(healthy), body.to_string()).into_response()
}

fn known_name(alarm: Alarm) -> &'static str {
    match AlarmType::try_from(alarm.kind) {
        Ok(AlarmType::Nospace) => "NOSPACE",
        Ok(AlarmType::Corrupt) => "CORRUPT",
        _ => "UNKNOWN",
    }
}

fn checks_route(checks: &'static [Check]) -> axum::routing::MethodRouter<Store> {
    get(
        async move |State(store): State<Store>, Query(parameters): Parameters| {
            let excluded =
                |check: &&Check| parameters.contains(&("exclude".into(), check.name().into()));
            let verbose = parameters.iter().any(|(name, _)| name == "verbose");
            let wanted = checks.iter().filter(|check| !excluded(check));
            run_all(&store, wanted.copied(), verbose).await
        },
    )
}

/// The lines of failed checks are always in the response, those of passed ones if it is verbose.
async fn run_all(store: &Store, checks: impl Iterator<Item = Check>, verbose: bool) -> Response {
    let (mut lines, mut healthy) = (String::new(), true);
    for check in checks {
        let line = match check.run(store).await {
            Ok(()) => writeln!(lines, "[+]{} ok", check.name()),
            Err(error) => {
                healthy = false;
                writeln!(lines, "[-]{} failed: {error}", check.name())
            }
        };
        debug_assert!(line.is_ok(), "a string takes every line");
    }
    let body = match (healthy, verbose) {
        (false, _) => lines,
        (true, true) => lines + "ok\n",
        (true, false) => "ok\n".into(),
    };
    let text = [(CONTENT_TYPE, "text/plain; charset=utf-8")];
    (status(healthy), text, body).into_response()
}

fn status(healthy: bool) -> StatusCode {
    if healthy {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    }
}

fn corrupt(store: &Store) -> bool {
    !store.alarms(AlarmType::Corrupt.into()).0.is_empty()
}

/// As [`read`], if writes can be acknowledged: after a failure of the journal, reads show what was acknowledged before.
async fn linearizable_read(store: &Store) -> Result<(), String> {
    match store.journal_failure() {
        Some(reason) => Err(reason),
        None => read(store).await,
    }
}

/// Reads at most one key.
async fn read(store: &Store) -> Result<(), String> {
    let zero = bytes::Bytes::from_static(b"\0");
    let first = RangeRequest {
        key: zero.clone(),
        range_end: zero,
        limit: 1,
        keys_only: true,
        ..RangeRequest::default()
    };
    let read = store.range(&first).await;
    read.map(drop).map_err(|error| error.to_string())
}
