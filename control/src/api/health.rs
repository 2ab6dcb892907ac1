//! `/livez` and `/readyz` as kube-apiserver has them: `ok`, or a line for each check, with `?verbose` also if all passed.
//! `?exclude=NAME` leaves a check out, `/readyz/NAME` runs only one. `/healthz` is `/livez`.

use std::sync::Arc;

use axum::{
    Router,
    extract::{Path, Query, State},
    response::{IntoResponse, Response},
    routing::get,
};
use http::{StatusCode, header};

use super::{Api, Failure};
use crate::readiness::Outcome;

/// The check that passes if there is a response at all.
const PING: (&str, Outcome) = ("ping", Ok(()));

/// The parameters of a request; `exclude` may be there more than once.
type Parameters = Query<Vec<(String, String)>>;

pub(super) fn routes() -> Router<Arc<Api>> {
    Router::new()
        .route("/healthz", get(alive))
        .route("/livez", get(alive))
        .route("/readyz", get(ready))
        .route("/readyz/{check}", get(one))
}

async fn alive(Query(parameters): Parameters) -> Response {
    report("livez", &[PING], is_verbose(&parameters))
}

async fn ready(State(api): State<Arc<Api>>, Query(parameters): Parameters) -> Response {
    let excluded = |name: &str| {
        let mut all = parameters.iter();
        all.any(|(key, value)| key == "exclude" && value == name)
    };
    let mut outcomes = vec![PING];
    outcomes.extend(api.checks.run(|name| !excluded(name)).await);
    outcomes.retain(|(name, _)| !excluded(name));
    report("readyz", &outcomes, is_verbose(&parameters))
}

async fn one(
    State(api): State<Arc<Api>>,
    Path(check): Path<String>,
    Query(parameters): Parameters,
) -> Response {
    let outcomes = api.checks.run(|name| name == check).await;
    if outcomes.is_empty() {
        return Failure::no_such_path().into_response();
    }
    report("readyz", &outcomes, is_verbose(&parameters))
}

fn is_verbose(parameters: &[(String, String)]) -> bool {
    parameters.iter().any(|(key, _)| key == "verbose")
}

fn report(path: &str, outcomes: &[(&str, Outcome)], verbose: bool) -> Response {
    let line = |(name, outcome): &(&str, Outcome)| match outcome {
        Ok(()) => format!("[+]{name} ok\n"),
        Err(reason) => format!("[-]{name} failed: {reason}\n"),
    };
    let lines: String = outcomes.iter().map(line).collect();
    let passed = outcomes.iter().all(|(_, outcome)| outcome.is_ok());
    let (status, text) = match (passed, verbose) {
        (true, false) => (StatusCode::OK, "ok".to_owned()),
        (true, true) => (StatusCode::OK, format!("{lines}{path} check passed\n")),
        (false, _) => {
            let text = format!("{lines}{path} check failed\n");
            (StatusCode::INTERNAL_SERVER_ERROR, text)
        }
    };
    let media_type = [(header::CONTENT_TYPE, "text/plain; charset=utf-8")];
    (status, media_type, text).into_response()
}

#[cfg(test)]
mod tests {
    use axum::body::to_bytes;

    use super::*;

    async fn text(outcomes: &[(&str, Outcome)], verbose: bool) -> (u16, String) {
        let response = report("readyz", outcomes, verbose);
        let status = response.status().as_u16();
        let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn a_report_has_a_line_for_each_check_if_it_is_verbose_or_if_one_has_failed() {
        let passed = [PING, ("store", Ok(()))];
        assert_eq!(text(&passed, false).await, (200, "ok".to_owned()));
        let lines = "[+]ping ok\n[+]store ok\nreadyz check passed\n";
        assert_eq!(text(&passed, true).await, (200, lines.to_owned()));
        let failed = [PING, ("store", Err("the disk is full".to_owned()))];
        let lines = "[+]ping ok\n[-]store failed: the disk is full\nreadyz check failed\n";
        assert_eq!(text(&failed, false).await, (500, lines.to_owned()));
    }
}
