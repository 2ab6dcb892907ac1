//! The layer in front of all routes: it finds the user of a request and what the request does, refuses what the user may not do, and has all
//! requests recorded for the audit.

use std::sync::Arc;

use axum::{
    extract::{ConnectInfo, Request, State},
    middleware::Next,
    response::{IntoResponse, Response},
};
use dormouse_fleet::Peer;
use dormouse_rbac::Attributes;

use super::{
    attributes, audit::Event, authentication::user_of, authorize, impersonation, origin::Origin,
};
use crate::api::{Api, Failure};

/// Passes on the requests that are allowed, with the user and the attributes as extensions.
pub(in crate::api) async fn check(
    State(api): State<Arc<Api>>,
    ConnectInfo(peer): ConnectInfo<Peer>,
    mut request: Request,
    next: Next,
) -> Response {
    let origin = Origin(peer);
    let attributes = attributes::of(request.method(), request.uri());
    let audit = api.audit.as_ref();
    let mut event = audit.map(|audit| Event::begin(audit, &origin, &request, &attributes));
    let response = match admit(&api, &origin, &mut request, attributes, event.as_mut()).await {
        Ok(()) => next.run(request).await,
        Err(failure) => failure.into_response(),
    };
    match event {
        Some(event) => event.answered(response),
        None => response,
    }
}

async fn admit(
    api: &Api,
    origin: &Origin,
    request: &mut Request,
    attributes: Attributes,
    mut event: Option<&mut Event>,
) -> Result<(), Failure> {
    let connected = origin.user(api.fleet.revocations())?;
    let sender = user_of(connected, request.headers(), api.authenticator.as_ref()).await?;
    if let Some(event) = &mut event {
        event.set_user(&sender);
    }
    let user = impersonation::effective(api, sender, request.headers()).await?;
    let verdict = authorize(api, &user, &attributes).await?;
    if let Some(event) = &mut event {
        event.set_impersonated(&user);
        event.set_decision(verdict.allowed, &verdict.reason);
    }
    verdict.required(&user, &attributes)?;
    request.extensions_mut().insert(user);
    request.extensions_mut().insert(attributes);
    Ok(())
}
