//! From a request to its app: by the address that it dialled, and by control's answer if the VIP has no route here.

use std::sync::Arc;

use crate::app::{App, Asked, NoRoute, RequestRoute};
use crate::connection::ClientConnection;
use crate::refusal::Refusal;

impl ClientConnection {
    /// The app and the route of a request. A request on another port than the app's is refused.
    pub(crate) async fn find(
        &self,
        asked: Asked,
    ) -> Result<(Arc<App>, Arc<RequestRoute>), Refusal> {
        let vip = self.vip().ok_or(Refusal::OutsidePrefix {
            address: *self.local.ip(),
        })?;
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
