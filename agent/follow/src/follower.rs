//! The state machine of one followed kind: the next request by what is known, and changes by what is received.

use std::fmt;
use std::marker::PhantomData;
use std::mem;
use std::time::Duration;

use k8s_openapi::Metadata;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::de::DeserializeOwned;

use crate::event::{Ended, Event};
use crate::exchange::{Body, Exchange, Purpose};
use crate::fault::{self, Fault, Refusal};
use crate::inflate::Inflate;
use crate::list::List;
use crate::names::{Key, Names};
use crate::request::{Head, Relist, Request, Scope};
use crate::watch::{self, Line, Lines, Meta};

/// After so many checks in a row that the server does not pass (each takes it three seconds), its store is another one. One
/// of several servers may be behind for a moment.
const CHECKS_MAX: u32 = 2;

/// What is known of the objects.
#[derive(Debug)]
enum Position {
    /// Nothing, or nothing that can be continued: a list is needed.
    Unlisted(Relist),
    /// A part of a list, up to this token.
    Paging(String),
    /// All objects at this version.
    At {
        version: String,
        /// Whether the server is known to have this version. A server that was restored to an older one accepts a watch,
        /// and stays silent.
        is_checked: bool,
        /// Checks in a row that the server did not pass.
        failed_checks: u32,
    },
}

/// A follower of the objects of one kind.
pub struct Follower<T> {
    scope: Scope,
    /// Whether the server is thought to have streaming lists.
    streams: bool,
    position: Position,
    names: Names,
    exchange: Option<Exchange>,
    object: PhantomData<fn() -> T>,
}

impl<T> fmt::Debug for Follower<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Follower")
            .field("scope", &self.scope)
            .field("position", &self.position)
            .finish_non_exhaustive()
    }
}

impl<T: DeserializeOwned + Metadata<Ty = ObjectMeta>> Follower<T> {
    /// A follower that knows nothing yet.
    pub fn new(scope: Scope) -> Self {
        Self {
            scope,
            streams: true,
            position: Position::Unlisted(Relist::Start),
            names: Names::default(),
            exchange: None,
            object: PhantomData,
        }
    }

    /// The next request; the one before must have ended. A watch ends after `lasts`.
    pub fn request(&mut self, lasts: Duration) -> Request {
        let (purpose, request) = match &mut self.position {
            Position::Unlisted(relist) => {
                let relist = *relist;
                self.names.begin_list();
                if self.streams {
                    let request = Request::stream(&self.scope, lasts, relist);
                    (Purpose::StreamingList, request)
                } else {
                    (Purpose::Page, Request::first_page(&self.scope, relist))
                }
            }
            Position::Paging(token) => (Purpose::Page, Request::next_page(&self.scope, token)),
            Position::At {
                version,
                is_checked,
                ..
            } if *is_checked => {
                // Each check is for one watch: the server may be another one after it.
                *is_checked = false;
                let request = Request::watch(&self.scope, version, lasts);
                (Purpose::Watch, request)
            }
            Position::At { version, .. } => (Purpose::Check, Request::check(&self.scope, version)),
        };
        self.exchange = Some(Exchange::new(purpose));
        request
    }

    /// Receives the head of the response.
    pub fn head(&mut self, head: Head) {
        let Some(exchange) = &mut self.exchange else {
            return;
        };
        exchange.inflate = Inflate::new(head.gzip);
        exchange.body = match exchange.purpose {
            _ if head.status != 200 => Body::Text(head, Vec::new()),
            Purpose::StreamingList | Purpose::Watch => Body::Lines(Lines::default()),
            Purpose::Page => Body::List(List::default()),
            Purpose::Check => Body::Ignored,
        };
    }

    /// Receives a part of the body. Returns false if the rest does not matter, and the response can be closed.
    pub fn body(&mut self, bytes: &[u8], out: &mut impl FnMut(Event<T>)) -> bool {
        let Some(mut exchange) = self.exchange.take() else {
            return false;
        };
        let mut inflate = mem::replace(&mut exchange.inflate, Inflate::Plain);
        let fed = inflate.feed(bytes, |bytes| self.plain(&mut exchange, bytes, out));
        exchange.inflate = inflate;
        if let Err(error) = fed {
            exchange.fault = Some(Fault::malformed(&error));
        }
        let goes_on = exchange.fault.is_none() && exchange.refusal.is_none();
        self.exchange = Some(exchange);
        goes_on
    }

    /// Ends the response; `whole`: it is complete. An incomplete line or item is dropped.
    pub fn end(&mut self, whole: bool, out: &mut impl FnMut(Event<T>)) -> Ended {
        let Some(mut exchange) = self.exchange.take() else {
            return Ended::default();
        };
        let mut ended = Ended {
            progress: exchange.progress,
            ..Ended::default()
        };
        match mem::replace(&mut exchange.body, Body::None) {
            Body::Text(head, text) => {
                let refusal = Refusal::of_response(head.status, head.retry_after, &text);
                exchange.refusal = Some(refusal);
            }
            Body::List(list) if exchange.fault.is_none() => {
                self.end_page(list, whole, &mut ended, out);
            }
            Body::Ignored if whole => {
                self.checked();
                ended.progress = true;
            }
            Body::Lines(_) if exchange.is_broken_list() => self.relist(Relist::Interrupted),
            _ => {}
        }
        ended.fault = exchange.fault;
        if let Some(refusal) = exchange.refusal {
            ended.retry_after = refusal.retry_after;
            ended.fault = self.refused(exchange.purpose, refusal);
        }
        ended
    }

    /// Begins again with a list, for example at another cluster's server.
    fn relist(&mut self, relist: Relist) {
        self.position = Position::Unlisted(relist);
    }

    fn plain(&mut self, exchange: &mut Exchange, bytes: &[u8], out: &mut impl FnMut(Event<T>)) {
        let mut body = mem::replace(&mut exchange.body, Body::None);
        let fed = match &mut body {
            Body::List(list) => list.feed(bytes, |item| self.item(item, out)),
            Body::Lines(lines) => lines.feed(bytes, |line| self.line(exchange, line, out)),
            Body::Text(_, text) => {
                fault::append(text, bytes);
                Ok(())
            }
            Body::None | Body::Ignored => Ok(()),
        };
        exchange.body = body;
        if let Err(fault) = fed {
            exchange.fault = Some(fault);
        }
    }

    /// Takes an item of a list.
    fn item(&mut self, text: &[u8], out: &mut impl FnMut(Event<T>)) {
        let read = serde_json::from_slice::<T>(text);
        // Without a name, it cannot be anything that is known.
        self.apply(
            read.map_err(|error| (Meta::of_item(text).unwrap_or_default(), error)),
            out,
        );
    }

    /// Takes an object. Returns its version.
    fn apply(&mut self, read: watch::Read<T>, out: &mut impl FnMut(Event<T>)) -> Option<String> {
        match read {
            Ok(object) => {
                let meta = object.metadata();
                self.names.insert(Key::of(meta));
                let version = meta.resource_version.clone();
                out(Event::Applied(object));
                version.filter(|version| !version.is_empty())
            }
            Err((meta, error)) => {
                let (key, what) = (meta.key(), error.to_string());
                self.names.insert(key.clone());
                out(Event::Unreadable { key, what });
                meta.version()
            }
        }
    }

    /// Takes a line of a watch. Returns whether the next ones matter.
    fn line(
        &mut self,
        exchange: &mut Exchange,
        text: &[u8],
        out: &mut impl FnMut(Event<T>),
    ) -> bool {
        let line = match watch::line::<T>(text) {
            Ok(line) => line,
            Err(error) => {
                exchange.fault = Some(Fault::malformed(&error));
                return false;
            }
        };
        exchange.progress = true;
        let version = match line {
            Line::Applied(read) => self.apply(read, out),
            Line::Deleted(meta) => {
                let key = meta.key();
                if self.names.remove(&key) {
                    out(Event::Deleted(key));
                }
                meta.version()
            }
            Line::Bookmark(meta, ends_list) => {
                let version = meta.version();
                if ends_list && exchange.purpose == Purpose::StreamingList {
                    return self.end_stream(exchange, version, out);
                }
                version
            }
            Line::Refused(refusal) => {
                exchange.progress = false;
                exchange.refusal = Some(refusal);
                return false;
            }
            Line::Unknown => None,
        };
        if let (Purpose::Watch, Some(version)) = (exchange.purpose, version) {
            self.at(version);
        }
        true
    }

    /// The initial events are complete: from now on, the response is a watch.
    fn end_stream(
        &mut self,
        exchange: &mut Exchange,
        version: Option<String>,
        out: &mut impl FnMut(Event<T>),
    ) -> bool {
        let Some(version) = version else {
            exchange.fault = Some(Fault::malformed("a list has no resourceVersion"));
            return false;
        };
        exchange.purpose = Purpose::Watch;
        self.at(version);
        self.end_list(out);
        true
    }

    fn end_page(
        &mut self,
        list: List,
        whole: bool,
        ended: &mut Ended,
        out: &mut impl FnMut(Event<T>),
    ) {
        let meta = match list.end() {
            Ok(meta) => meta,
            Err(error) => {
                if whole {
                    ended.fault = Some(Fault::malformed(&error));
                }
                return;
            }
        };
        ended.progress = true;
        let token = meta.token.filter(|token| !token.is_empty());
        let version = meta.resource_version.filter(|version| !version.is_empty());
        match (token, version) {
            (Some(token), _) => self.position = Position::Paging(token),
            (None, Some(version)) => {
                self.at(version);
                self.checked();
                self.end_list(out);
            }
            (None, None) => {
                self.relist(Relist::Interrupted);
                ended.fault = Some(Fault::malformed("a list has no resourceVersion"));
            }
        }
    }

    fn end_list(&mut self, out: &mut impl FnMut(Event<T>)) {
        for key in self.names.end_list() {
            out(Event::Deleted(key));
        }
        out(Event::Listed {
            objects: self.names.len(),
        });
    }

    /// All objects are known at this version.
    fn at(&mut self, version: String) {
        self.position = Position::At {
            version,
            is_checked: false,
            failed_checks: 0,
        };
    }

    /// The server has the known version.
    fn checked(&mut self) {
        if let Position::At {
            is_checked,
            failed_checks,
            ..
        } = &mut self.position
        {
            (*is_checked, *failed_checks) = (true, 0);
        }
    }

    /// Draws the conclusions from a refusal. Returns what to report.
    fn refused(&mut self, purpose: Purpose, refusal: Refusal) -> Option<Fault> {
        let has_no_stream = refusal.code == 422 || refusal.by_event && refusal.code == 500;
        match (purpose, refusal.code) {
            (Purpose::StreamingList, _) if has_no_stream => {
                self.streams = false;
                return None;
            }
            (_, 410) => {
                self.relist(Relist::Expired);
                return None;
            }
            (Purpose::Check, 504) => {
                self.fail_check();
                return None;
            }
            (Purpose::Page | Purpose::Check | Purpose::Watch, 400) => self.relist(Relist::Rejected),
            _ => {}
        }
        Some(Fault::status(refusal.code, refusal.message))
    }

    fn fail_check(&mut self) {
        if let Position::At { failed_checks, .. } = &mut self.position {
            *failed_checks += 1;
            if *failed_checks >= CHECKS_MAX {
                self.relist(Relist::Reset);
            }
        }
    }
}
