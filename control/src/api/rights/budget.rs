//! The requests that one user has open at a time: with few rights, it could take the memory and the time of all others. A request waits for seats of
//! its user, as with the priority and fairness of kube-apiserver, and keeps them until its client has read the response.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use dormouse_rbac::{Attributes, Target, User};
use http::Uri;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::attributes;
use crate::api::Failure;

/// Seats of a user.
const SEATS: usize = 100;
/// Seats of a request for all objects of a kind; any other one takes one.
const SEATS_OF_ALL: u32 = 10;
/// Most objects of a list that takes one seat: a page of `kubectl`.
const PAGE_MAX: usize = 500;
/// Most requests of a user that have seats or wait for them.
const REQUESTS_MAX: usize = 500;
/// Most watches and logs of a user.
const LONG_MAX: usize = 1_000;
/// Longest wait for seats.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// The open requests of all users.
#[derive(Clone)]
pub(in crate::api) struct Budgets {
    users: Arc<Mutex<HashMap<String, Open>>>,
    wait_max: Duration,
}

impl Default for Budgets {
    fn default() -> Self {
        Self {
            users: Arc::default(),
            wait_max: WAIT_MAX,
        }
    }
}

struct Open {
    seats: Arc<Semaphore>,
    requests: usize,
    long: usize,
}

impl Default for Open {
    fn default() -> Self {
        Self {
            seats: Arc::new(Semaphore::new(SEATS)),
            requests: 0,
            long: 0,
        }
    }
}

impl Open {
    fn count(&mut self, is_long: bool) -> (&mut usize, usize) {
        if is_long {
            (&mut self.long, LONG_MAX)
        } else {
            (&mut self.requests, REQUESTS_MAX)
        }
    }
}

/// A request's place among those of its user.
pub(in crate::api) struct Place {
    _of: Counted,
    _seats: Option<OwnedSemaphorePermit>,
}

impl Budgets {
    /// A place for a request, once its user has the seats. None: the request needs none, such as those of administrators, who have to see what goes on.
    pub(super) async fn take(
        &self,
        user: &User,
        attributes: &Attributes,
        uri: &Uri,
    ) -> Result<Option<Place>, Failure> {
        if user.is_master() || matches!(attributes.target, Target::Path(_)) {
            return Ok(None);
        }
        let is_long = attributes::is_long(attributes);
        let (of, seats) = self.count(&user.name, is_long)?;
        if is_long {
            return Ok(Some(Place {
                _of: of,
                _seats: None,
            }));
        }
        let seats = seats.acquire_many_owned(cost(attributes, uri));
        let waited = timeout(self.wait_max, seats).await;
        // It is never closed.
        let seats = waited.ok().and_then(Result::ok).ok_or_else(|| {
            Failure::too_many_requests(format!(
                "the open requests of user {:?} take all its {SEATS} seats, for {} s by now: read the responses, list in pages of at most {PAGE_MAX} (limit), or send fewer at a time",
                user.name,
                self.wait_max.as_secs()
            ))
        })?;
        Ok(Some(Place {
            _of: of,
            _seats: Some(seats),
        }))
    }

    /// Counts a request; fails when its user has too many.
    fn count(&self, user: &str, is_long: bool) -> Result<(Counted, Arc<Semaphore>), Failure> {
        let mut users = self.users.lock();
        let open = users.entry(user.to_owned()).or_default();
        let (count, max) = open.count(is_long);
        if *count >= max {
            let what = if is_long {
                "watches and logs"
            } else {
                "requests"
            };
            return Err(Failure::too_many_requests(format!(
                "user {user:?} has {max} {what} open, the most there can be: wait until some end"
            )));
        }
        *count += 1;
        let counted = Counted {
            budgets: self.clone(),
            user: user.to_owned(),
            is_long,
        };
        Ok((counted, Arc::clone(&open.seats)))
    }
}

/// The seats of a request.
fn cost(attributes: &Attributes, uri: &Uri) -> u32 {
    let is_of_all = match attributes.verb.as_str() {
        "list" => attributes::limit(uri).is_none_or(|limit| limit > PAGE_MAX),
        "deletecollection" => true,
        _ => false,
    };
    if is_of_all { SEATS_OF_ALL } else { 1 }
}

/// A request that is counted until it is dropped.
struct Counted {
    budgets: Budgets,
    user: String,
    is_long: bool,
}

impl Drop for Counted {
    fn drop(&mut self) {
        let mut users = self.budgets.users.lock();
        let Some(open) = users.get_mut(&self.user) else {
            return;
        };
        *open.count(self.is_long).0 -= 1;
        if open.requests + open.long == 0 {
            users.remove(&self.user);
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use dormouse_rbac::Resource;
    use futures::FutureExt;

    use super::*;
    use crate::api::held::hold;

    fn user(name: &str) -> User {
        User::authenticated(name, ["dev"])
    }

    fn pods(verb: &str) -> Attributes {
        let resource = Resource {
            version: "v1".to_owned(),
            resource: "pods".to_owned(),
            ..Resource::default()
        };
        Attributes::resource(verb, resource)
    }

    async fn take(budgets: &Budgets, name: &str, verb: &str) -> Result<Option<Place>, Failure> {
        budgets
            .take(&user(name), &pods(verb), &Uri::default())
            .await
    }

    #[tokio::test]
    async fn a_request_waits_for_the_seats_of_its_user_only() {
        let budgets = Budgets::default();
        let mut bodies = Vec::new();
        for _ in 0..SEATS / SEATS_OF_ALL as usize {
            let place = take(&budgets, "ann", "list").await.unwrap().unwrap();
            bodies.push(hold(Body::from("[]"), place));
        }
        assert!(take(&budgets, "eve", "list").await.unwrap().is_some());
        let mut waits = Box::pin(take(&budgets, "ann", "get"));
        assert!(waits.as_mut().now_or_never().is_none());
        bodies.pop();
        assert!(waits.await.unwrap().is_some());
        let one = take(&budgets, "ann", "list").await.unwrap();
        let soon = Budgets {
            wait_max: Duration::from_millis(1),
            ..budgets.clone()
        };
        let refused = take(&soon, "ann", "get").await.map(drop).unwrap_err();
        assert!(refused.message().contains("limit"), "{refused:?}");
        assert_eq!(refused.status()["code"], 429);
        drop((one, bodies));
        assert!(budgets.users.lock().is_empty());
    }

    #[tokio::test]
    async fn watches_take_no_seats_and_have_a_limit_and_administrators_have_none() {
        let budgets = Budgets::default();
        let mut places = Vec::new();
        for _ in 0..LONG_MAX {
            places.push(take(&budgets, "ann", "watch").await.unwrap());
        }
        let refused = take(&budgets, "ann", "watch").await.map(drop).unwrap_err();
        assert!(refused.message().contains("watches"), "{refused:?}");
        assert!(take(&budgets, "ann", "get").await.unwrap().is_some());
        let root = User::authenticated("root", ["system:masters"]);
        let any = Uri::default();
        let free = budgets.take(&root, &pods("watch"), &any).await.unwrap();
        assert!(free.is_none());
        let health = Attributes::path("get", "/healthz");
        let free = budgets.take(&user("ann"), &health, &any).await.unwrap();
        assert!(free.is_none());
    }

    #[test]
    fn a_page_takes_one_seat_and_all_objects_take_more() {
        for (verb, query, want) in [
            ("list", "limit=500", 1),
            ("list", "limit=501", SEATS_OF_ALL),
            ("list", "limit=500&resourceVersion=0", SEATS_OF_ALL),
            ("list", "", SEATS_OF_ALL),
            ("deletecollection", "limit=1", SEATS_OF_ALL),
            ("get", "", 1),
            ("create", "", 1),
        ] {
            let uri = format!("/api/v1/pods?{query}").parse().unwrap();
            assert_eq!(cost(&pods(verb), &uri), want, "{verb} {query}");
        }
    }
}
