//! Impersonation: requests that a user sends as another one, as `kubectl --as`.

use dormouse_rbac::{ANONYMOUS, Attributes, Resource, User};
use http::HeaderMap;

use crate::api::{Api, Failure};

const USER: &str = "impersonate-user";
const GROUP: &str = "impersonate-group";
/// Headers that begin so, and are not the two above, set what users here do not have.
const PREFIX: &str = "impersonate-";

/// The user as whom a request is sent; `user` itself, if it names none. Fails unless `user` may impersonate.
pub(super) async fn effective(api: &Api, user: User, headers: &HeaderMap) -> Result<User, Failure> {
    let Some(wanted) = wanted(headers)? else {
        return Ok(user);
    };
    let mut asked = vec![subject(&wanted.name)];
    let groups = wanted.groups.iter();
    asked.extend(groups.map(|group| attributes("", "groups", group)));
    for attributes in &asked {
        super::require(api, &user, attributes).await?;
    }
    if wanted.name == ANONYMOUS {
        return Ok(User::anonymous());
    }
    Ok(User::authenticated(wanted.name, wanted.groups))
}

/// The user and groups in the headers.
fn wanted(headers: &HeaderMap) -> Result<Option<User>, Failure> {
    let mut names = headers.keys().map(http::HeaderName::as_str);
    let other = names.find(|name| name.starts_with(PREFIX) && ![USER, GROUP].contains(name));
    if let Some(other) = other {
        let message = format!("the server does not support the header {other}: leave it out");
        return Err(Failure::bad_request(message));
    }
    let values = |name: &str| {
        let values = headers.get_all(name).iter();
        let texts = values.map(|value| value.to_str().map(str::to_owned));
        let texts: Result<Vec<String>, _> = texts.collect();
        texts.map_err(|_not_text| Failure::bad_request(format!("the header {name} is not text")))
    };
    let (name, groups) = (values(USER)?, values(GROUP)?);
    match (name.as_slice(), groups.is_empty()) {
        ([name], _) if !name.is_empty() => Ok(Some(User {
            name: name.clone(),
            groups,
        })),
        ([], true) => Ok(None),
        _ => {
            let message = "requested groups without impersonating a user: name one user";
            Err(Failure::bad_request(message))
        }
    }
}

/// The right to impersonate a user, or a service account by its name.
fn subject(name: &str) -> Attributes {
    let account = name.strip_prefix("system:serviceaccount:");
    match account.and_then(|account| account.split_once(':')) {
        Some((namespace, name)) => attributes(namespace, "serviceaccounts", name),
        None => attributes("", "users", name),
    }
}

fn attributes(namespace: &str, resource: &str, name: &str) -> Attributes {
    let wanted = Resource {
        version: "v1".to_owned(),
        namespace: namespace.to_owned(),
        resource: resource.to_owned(),
        name: name.to_owned(),
        ..Resource::default()
    };
    Attributes::resource("impersonate", wanted)
}
