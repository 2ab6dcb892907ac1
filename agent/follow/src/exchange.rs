//! One request of a follower and its response, while it is received.

use crate::fault::{Fault, Refusal};
use crate::inflate::Inflate;
use crate::list::List;
use crate::request::Head;
use crate::watch::Lines;

/// The purpose of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Purpose {
    StreamingList,
    Page,
    Check,
    Watch,
}

/// A request and its response.
#[derive(Debug)]
pub(crate) struct Exchange {
    pub(crate) purpose: Purpose,
    pub(crate) body: Body,
    pub(crate) inflate: Inflate,
    pub(crate) progress: bool,
    pub(crate) refusal: Option<Refusal>,
    pub(crate) fault: Option<Fault>,
}

/// The part of a response that was received and is not processed yet.
#[derive(Debug)]
pub(crate) enum Body {
    /// No head was received.
    None,
    List(List),
    Lines(Lines),
    /// The body of a check.
    Ignored,
    /// The body of a refusal.
    Text(Head, Vec<u8>),
}

impl Exchange {
    /// A request without a response yet.
    pub(crate) fn new(purpose: Purpose) -> Self {
        Self {
            purpose,
            body: Body::None,
            inflate: Inflate::Plain,
            progress: false,
            refusal: None,
            fault: None,
        }
    }

    /// Whether a streaming list ended before all objects were received.
    pub(crate) fn is_broken_list(&self) -> bool {
        self.purpose == Purpose::StreamingList && self.refusal.is_none()
    }
}
