//! Where a list or a watch begins: the versions and pages that a request asks for, checked as in Kubernetes.

use super::{Failure, query::ListQuery};

/// The state that a list shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Position {
    /// The newest, which must not be older than this revision.
    Newest(u64),
    /// The one at this revision.
    Exact(u64),
    /// The one at this revision, after this key: the next page.
    After(u64, String),
}

impl Position {
    /// The position of a list.
    pub(super) fn of_list(query: &ListQuery) -> Result<Self, Failure> {
        let (version, matching) = (&query.resource_version, &query.resource_version_match);
        if !query.send_initial_events.is_empty() {
            return Err(Failure::list_option(
                "sendInitialEvents",
                "is forbidden for list",
            ));
        }
        if !query.continue_.is_empty() {
            if !matching.is_empty() {
                return Err(Failure::list_option(
                    MATCH,
                    "is forbidden when continue is provided",
                ));
            }
            if !matches!(version.as_str(), "" | "0") {
                return Err(Failure::bad_request(
                    "specifying resource version is not allowed when using continue",
                ));
            }
            return Self::of_token(&query.continue_);
        }
        let revision = revision(version)?;
        match (matching.as_str(), revision) {
            // A page of a version is one of that version: clients without resourceVersionMatch count on it.
            ("", revision) if revision > 0 && query.limit().is_some() => Ok(Self::Exact(revision)),
            ("", revision) => Ok(Self::Newest(revision)),
            (_, _) if version.is_empty() => Err(Failure::list_option(
                MATCH,
                "is forbidden unless resourceVersion is provided",
            )),
            ("NotOlderThan", revision) => Ok(Self::Newest(revision)),
            ("Exact", 0) => Err(Failure::list_option(
                MATCH,
                "\"exact\" is forbidden for resourceVersion \"0\"",
            )),
            ("Exact", revision) => Ok(Self::Exact(revision)),
            (other, _) => Err(Failure::list_option(
                MATCH,
                &format!("{other:?} is not supported: use Exact or NotOlderThan"),
            )),
        }
    }

    /// The position of a page's token.
    pub(super) fn of_token(token: &str) -> Result<Self, Failure> {
        let parts = token.split_once('/');
        let parsed = parts.and_then(|(revision, key)| Some((revision.parse().ok()?, key)));
        match parsed {
            Some((revision, key)) if revision > 0 => Ok(Self::After(revision, key.to_owned())),
            _ => Err(Failure::bad_request(format!(
                "invalid continue token: {token:?} is none that this server gave"
            ))),
        }
    }

    /// The token of the page after this key, of a list at this revision.
    pub(super) fn token(revision: u64, key: &str) -> String {
        format!("{revision}/{key}")
    }

    /// The revision at which the store is read; 0: the newest.
    pub(super) fn reads_at(&self) -> u64 {
        match self {
            Self::Newest(_) => 0,
            Self::Exact(revision) | Self::After(revision, _) => *revision,
        }
    }

    /// The error of a list that is older than what the request knows.
    pub(super) fn check(&self, current: u64) -> Result<(), Failure> {
        match self {
            Self::Newest(known) if *known > current => {
                Err(Failure::too_large_version(*known, current))
            }
            _ => Ok(()),
        }
    }
}

const MATCH: &str = "resourceVersionMatch";

/// Whether a watch begins with all objects that there are.
pub(super) fn begins_with_all(query: &ListQuery) -> bool {
    query.sends_initial_events() || revision(&query.resource_version).is_ok_and(|known| known == 0)
}

/// Parses a resource version; an empty one is 0, any.
pub(super) fn revision(version: &str) -> Result<u64, Failure> {
    if version.is_empty() {
        return Ok(0);
    }
    version.parse().map_err(|_not_a_number| {
        Failure::bad_request(format!(
            "invalid resourceVersion {version:?}: use the one of a list or an object"
        ))
    })
}

/// Checks the options of a watch that belong together.
pub(super) fn check_watch(query: &ListQuery) -> Result<(), Failure> {
    let matching = query.resource_version_match.as_str();
    if query.send_initial_events.is_empty() {
        if !matching.is_empty() {
            let detail = "is forbidden for watch unless sendInitialEvents is provided";
            return Err(Failure::list_option(MATCH, detail));
        }
    } else if matching != "NotOlderThan" {
        let detail = "must be NotOlderThan with sendInitialEvents";
        return Err(Failure::list_option(MATCH, detail));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(options: [(&str, &str); 4], want: Option<&Position>) {
        let mut query = ListQuery::default();
        for (name, value) in options {
            match name {
                "rv" => query.resource_version = value.to_owned(),
                "match" => query.resource_version_match = value.to_owned(),
                "continue" => query.continue_ = value.to_owned(),
                _ => query.send_initial_events = value.to_owned(),
            }
        }
        assert_eq!(Position::of_list(&query).ok().as_ref(), want, "{options:?}");
    }

    #[test]
    fn the_options_of_lists_are_those_of_kubernetes() {
        let options = |rv, matching, token| {
            [
                ("rv", rv),
                ("match", matching),
                ("continue", token),
                ("", ""),
            ]
        };
        check(options("", "", ""), Some(&Position::Newest(0)));
        check(options("0", "", ""), Some(&Position::Newest(0)));
        check(options("7", "", ""), Some(&Position::Newest(7)));
        check(options("7", "NotOlderThan", ""), Some(&Position::Newest(7)));
        check(options("7", "Exact", ""), Some(&Position::Exact(7)));
        let page = serde_json::json!({"resourceVersion": "7", "limit": 2});
        let page: ListQuery = serde_json::from_value(page).unwrap();
        assert_eq!(Position::of_list(&page).unwrap(), Position::Exact(7));
        let next = Position::After(9, "shop/web".to_owned());
        let token = Position::token(9, "shop/web");
        check(options("0", "", &token), Some(&next));
        for wrong in [
            options("", "NotOlderThan", ""),
            options("0", "Exact", ""),
            options("7", "Newest", ""),
            options("abc", "", ""),
            options("-1", "", ""),
            options("7", "", "9/shop/web"),
            options("", "", "abc"),
            options("", "", "0/shop/web"),
            [("", "true"), ("", "true"), ("", "true"), ("", "true")],
        ] {
            check(wrong, None);
        }
    }
}
