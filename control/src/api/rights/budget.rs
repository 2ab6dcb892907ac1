//! The requests that one user has open at a time: with few rights, it could take the memory and the time of all others. A request waits for a seat
//! of its user, as with the priority and fairness of kube-apiserver, and keeps it until its client has read the response.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use dormouse_rbac::{Attributes, Resource, Target, User};
use http::Uri;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::attributes;
use crate::api::{Failure, position::begins_with_all};

/// Requests of a user that read all objects of a kind, which take memory and time by their number.
const LISTS_MAX: usize = 10;
/// Other requests of a user.
const OTHERS_MAX: usize = 90;
/// Most requests of a user that have seats or wait for them.
const REQUESTS_MAX: usize = 500;
/// Most watches and logs of a user.
const LONG_MAX: usize = 1_000;
/// Most objects of a list that counts as another request: a page of `kubectl`.
const PAGE_MAX: usize = 500;
/// Longest wait for a seat.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// The open requests of all users.
#[derive(Clone)]
pub(in crate::api) struct Budgets {
    users: Users,
    wait_max: Duration,
}

type Users = Arc<Mutex<HashMap<String, Open>>>;

/// The open requests of a user.
struct Open {
    lists: Arc<Semaphore>,
    others: Arc<Semaphore>,
    requests: usize,
    long: usize,
}

/// A request's place among those of its user.
pub(in crate::api) struct Place {
    seat: Option<OwnedSemaphorePermit>,
    of: Counted,
}

/// A request that is counted until it is dropped.
struct Counted {
    users: Users,
    user: String,
    is_long: bool,
}

impl Default for Budgets {
    fn default() -> Self {
        Self {
            users: Arc::default(),
            wait_max: WAIT_MAX,
        }
    }
}

impl Budgets {
    /// A place for a request, once its user has a seat for it. None: the request needs none, such as those of administrators, who have to see what
    /// goes on.
    pub(super) async fn take(
        &self,
        user: &User,
        attributes: &Attributes,
        uri: &Uri,
    ) -> Result<Option<Place>, Failure> {
        let Target::Resource(target) = &attributes.target else {
            return Ok(None);
        };
        if user.is_master() {
            return Ok(None);
        }
        let is_long = attributes::is_long(attributes);
        let is_list = is_list(&attributes.verb, target, uri);
        let (of, [lists, others]) = self.count(&user.name, is_long)?;
        let (seats, what, max) = match (is_list, is_long) {
            (true, _) => (lists, "requests for all objects of a kind", LISTS_MAX),
            (false, false) => (others, "requests", OTHERS_MAX),
            (false, true) => {
                return Ok(Some(Place { seat: None, of }));
            }
        };
        let waited = timeout(self.wait_max, seats.acquire_owned()).await;
        // It is never closed.
        let seat = waited.ok().and_then(Result::ok).ok_or_else(|| {
            Failure::too_many_requests(format!(
                "user {:?} has {max} {what} open, the most there can be, and none has ended for {} s: read the responses, list in pages of at most {PAGE_MAX} (limit), or send fewer at a time",
                user.name,
                self.wait_max.as_secs()
            ))
        })?;
        Ok(Some(Place {
            seat: Some(seat),
            of,
        }))
    }

    /// Counts a request; fails when its user has too many. Returns the user's seats for lists and for others.
    fn count(&self, user: &str, is_long: bool) -> Result<(Counted, [Arc<Semaphore>; 2]), Failure> {
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
            users: Arc::clone(&self.users),
            user: user.to_owned(),
            is_long,
        };
        Ok((counted, [&open.lists, &open.others].map(Arc::clone)))
    }
}

impl Place {
    /// The place of a response that has begun: a watch has read all objects by then, and keeps no seat.
    pub(super) fn begun(mut self) -> Self {
        if self.of.is_long {
            self.seat = None;
        }
        self
    }
}

impl Default for Open {
    fn default() -> Self {
        let seats = |max| Arc::new(Semaphore::new(max));
        Self {
            lists: seats(LISTS_MAX),
            others: seats(OTHERS_MAX),
            requests: 0,
            long: 0,
        }
    }
}

impl Open {
    /// The number of requests of this kind, and the most.
    fn count(&mut self, is_long: bool) -> (&mut usize, usize) {
        if is_long {
            (&mut self.long, LONG_MAX)
        } else {
            (&mut self.requests, REQUESTS_MAX)
        }
    }
}

/// Whether a request reads all objects of a kind: to select among them, to return them, or for what it shows of others.
fn is_list(verb: &str, target: &Resource, uri: &Uri) -> bool {
    match verb {
        "watch" => begins_with_all(&attributes::list_query(uri)),
        "list" if !target.name.is_empty() => false,
        "list" => {
            let query = attributes::list_query(uri);
            let is_page = query.limit().is_some_and(|limit| limit <= PAGE_MAX);
            !is_page || query.selects() || target.resource == "nodes"
        }
        _ => target.subresource == "logs",
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let mut users = self.users.lock();
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
    use dormouse_fleet::http::hold;
    use futures::FutureExt;

    use super::*;

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
        for _ in 0..LISTS_MAX {
            let place = take(&budgets, "ann", "list").await.unwrap().unwrap();
            bodies.push(hold(Body::from("[]"), place));
        }
        assert!(take(&budgets, "eve", "list").await.unwrap().is_some());
        assert!(take(&budgets, "ann", "get").await.unwrap().is_some());
        let mut waits = Box::pin(take(&budgets, "ann", "list"));
        assert!(waits.as_mut().now_or_never().is_none());
        bodies.pop();
        assert!(waits.await.unwrap().is_some());
        let one = take(&budgets, "ann", "list").await.unwrap();
        let soon = Budgets {
            wait_max: Duration::from_millis(1),
            ..budgets.clone()
        };
        let refused = take(&soon, "ann", "list").await.map(drop).unwrap_err();
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
            let place = take(&budgets, "ann", "watch").await.unwrap();
            places.push(place.unwrap().begun());
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

    #[tokio::test]
    async fn a_watch_has_a_seat_while_it_reads_all_objects() {
        let budgets = Budgets::default();
        let of_lists = || Arc::clone(&budgets.users.lock()["ann"].lists);
        let place = take(&budgets, "ann", "watch").await.unwrap().unwrap();
        assert_eq!(of_lists().available_permits(), LISTS_MAX - 1);
        let _place = place.begun();
        assert_eq!(of_lists().available_permits(), LISTS_MAX);
    }

    #[test]
    fn what_reads_all_objects_of_a_kind_is_a_list() {
        for (method, path, want) in [
            ("GET", "pods?limit=500", false),
            ("GET", "pods?limit=501", true),
            ("GET", "pods?limit=500&resourceVersion=0", true),
            ("GET", "pods?limit=5&labelSelector=a%3Db", true),
            ("GET", "pods", true),
            ("GET", "nodes?limit=5", true),
            ("GET", "pods?fieldSelector=metadata.name%3Da", false),
            ("GET", "pods?watch=1", true),
            ("GET", "pods?watch=1&resourceVersion=00", true),
            ("GET", "pods?watch=1&resourceVersion=7", false),
            ("GET", "pods/a/log?follow=true", false),
            ("GET", "pods/a", false),
            ("POST", "pods", false),
        ] {
            let uri: Uri = format!("/api/v1/namespaces/shop/{path}").parse().unwrap();
            let (attributes, _) = attributes::of(&method.parse().unwrap(), &uri);
            let Target::Resource(target) = &attributes.target else {
                panic!("{path}");
            };
            let is = is_list(&attributes.verb, target, &uri);
            assert_eq!(is, want, "{path}");
        }
    }
}
