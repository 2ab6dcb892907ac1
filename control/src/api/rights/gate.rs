//! The layer in front of all routes: it finds the user of a request and what the request does, refuses what the user may not do, and has all
//! requests recorded for the audit.

use std::sync::Arc;

use axum::{
    extract::{ConnectInfo, Request, State},
    middleware::Next,
    response::{IntoResponse, Response},
};
use dormouse_fleet::{Peer, http::hold};
use dormouse_rbac::Attributes;

use super::{
    attributes, audit::Event, authentication::sender_of, authorize, browser, budget::Place,
    ending::Credential, impersonation, origin::Origin,
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
    let (attributes, names) = attributes::of(request.method(), request.uri());
    if let Some(names) = names {
        request.extensions_mut().insert(names);
    }
    let audit = api.audit.as_ref();
    let mut event = audit.map(|audit| Event::begin(audit, &origin, &request, &attributes));
    let watched = attributes::is_long(&attributes).then(|| api.ends.watch());
    let response = match admit(&api, &origin, &mut request, attributes, event.as_mut()).await {
        Ok(Admitted { credential, place }) => {
            let response = next.run(request).await;
            let response = match watched.zip(credential) {
                Some((watched, credential)) => watched.limit(response, credential),
                None => response,
            };
            match place {
                Some(place) => response.map(|body| hold(body, place.begun())),
                None => response,
            }
        }
        Err(failure) => failure.into_response(),
    };
    match event {
        Some(event) => event.answered(response),
        None => response,
    }
}

/// What a request has while it is answered.
struct Admitted {
    /// What may end meanwhile.
    credential: Option<Credential>,
    place: Option<Place>,
}

async fn admit(
    api: &Api,
    origin: &Origin,
    request: &mut Request,
    attributes: Attributes,
    mut event: Option<&mut Event>,
) -> Result<Admitted, Failure> {
    let connected = origin.user(api.fleet.revocations())?;
    if connected.is_none() && api.authenticator.is_none() {
        browser::check(request.uri(), request.headers())?;
    }
    let sender = sender_of(connected, request.headers(), api.authenticator.as_ref()).await?;
    if let Some(event) = &mut event {
        event.set_user(&sender.user);
    }
    let place = api.budgets.take(&sender.user, &attributes, request.uri());
    let place = place.await?;
    let user = impersonation::effective(api, sender.user, request.headers()).await?;
    let verdict = authorize(api, &user, &attributes).await?;
    if let Some(event) = &mut event {
        event.set_impersonated(&user);
        event.set_decision(verdict.allowed, &verdict.reason);
    }
    verdict.required(&user, &attributes)?;
    request.extensions_mut().insert(user);
    request.extensions_mut().insert(attributes);
    Ok(Admitted {
        credential: sender.credential,
        place,
    })
}
