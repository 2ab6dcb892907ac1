//! From a request to its app: by the address that it dialled, and by control's answer if the VIP has no route here.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use http::HeaderMap;

use crate::app::{App, Asked, NoRoute, RequestRoute};
use crate::connection::ClientConnection;
use crate::refusal::Refusal;
use crate::shared::Shared;

/// The app that gets a request.
pub(crate) struct Found {
    pub(crate) app: Arc<App>,
    pub(crate) route: Arc<RequestRoute>,
    /// The route of the VIP that was dialled, if it has a split.
    split: Option<Arc<RequestRoute>>,
}

impl Found {
    /// Whether a split has selected the app.
    pub(crate) fn has_split(&self) -> bool {
        self.split.is_some()
    }

    /// Whether nodes connect clients of the VIP that was dialled directly to pods.
    pub(crate) fn is_served_directly(&self, shared: &Shared) -> bool {
        let split = self.split.as_ref().and_then(|route| route.split.as_ref());
        let Some(split) = split else {
            return self.app.serving.load(Ordering::Acquire);
        };
        let apps = shared.apps.read();
        let mut targets = split.targets.iter().filter(|target| target.weight > 0);
        let serves = |vip| {
            let app = apps.get(vip);
            app.is_some_and(|app| app.serving.load(Ordering::Acquire))
        };
        split.sticky.is_none() && targets.all(|target| serves(target.vip))
    }
}

impl ClientConnection {
    /// The app and the route of a request: those of the VIP that was dialled, or of a target of its split. A request on another port
    /// than the app's is refused.
    pub(crate) async fn find(&self, asked: Asked, headers: &HeaderMap) -> Result<Found, Refusal> {
        let vip = self.vip().ok_or(Refusal::OutsidePrefix {
            address: *self.local.ip(),
        })?;
        loop {
            let (app, route) = self.app_of(vip, asked).await?;
            let Some(split) = &route.split else {
                let split = None;
                return Ok(Found { app, route, split });
            };
            let turn = app.turns.fetch_add(1, Ordering::Relaxed);
            let target = split.target(headers, self.address, turn).unwrap_or(vip);
            let split = Some(Arc::clone(&route));
            if target == vip {
                return Ok(Found { app, route, split });
            }
            match self.app_of(target, asked).await {
                Ok((app, route)) => return Ok(Found { app, route, split }),
                // It was removed after the split had changed: that of now selects another one.
                Err(Refusal::Unknown { .. }) if !app.has_route(&route) => {}
                Err(refusal) => return Err(refusal),
            }
        }
    }

    async fn app_of(
        &self,
        vip: u32,
        asked: Asked,
    ) -> Result<(Arc<App>, Arc<RequestRoute>), Refusal> {
        let app = self.shared.app(vip);
        let route = app.route(asked).await;
        let route = route.map_err(|reason| no_route(reason, vip))?;
        if route.port == asked.port {
            Ok((app, route))
        } else {
            Err(Refusal::WrongPort {
                app: route.name.clone(),
                port: route.port,
            })
        }
    }
}

fn no_route(reason: NoRoute, vip: u32) -> Refusal {
    match reason {
        NoRoute::Absent => Refusal::Unknown { vip },
        NoRoute::Limit(limit) => Refusal::limit(&format!("with VIP index {vip}"), limit),
        NoRoute::Unanswered(limit) => Refusal::Unanswered { vip, limit },
    }
}
