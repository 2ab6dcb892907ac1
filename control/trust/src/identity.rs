//! Identities: a node, a role of the control plane, or a user with groups, as in the subject of a certificate. The names are those of
//! Kubernetes: the common name (CN) is the user, each organization (O) a group.

use std::fmt;

use x509_cert::attr::AttributeTypeAndValue;
use x509_cert::der::asn1::ObjectIdentifier;
use x509_cert::ext::pkix::name::DirectoryString;
use x509_cert::{Certificate, der::Decode};

/// Prefix of the names that only this package gives.
pub const RESERVED: &str = "system:";
/// Group of the users who may do everything.
pub const MASTERS: &str = "system:masters";
const NODE: &str = "system:node:";
const NODES: &str = "system:nodes";
const CONTROL: &str = "system:control:";
const CONTROLS: &str = "system:control";
/// Longest name: that of a Kubernetes object.
const NAME_MAX: usize = 253;
/// Most groups of a user to whom this package gives a name.
const GROUPS_MAX: usize = 64;
/// Characters of a malformed name in a message.
const SHOWN_MAX: usize = 64;
/// `id-at-commonName` and `id-at-organizationName` (X.520).
const COMMON_NAME: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.3");
const ORGANIZATION: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.10");

/// The client of a connection.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Identity {
    /// `system:node:NAME` in the group `system:nodes`.
    Node(String),
    /// `system:control:ROLE` in the group `system:control`.
    Control(String),
    /// Any other user.
    User {
        /// The name.
        name: String,
        /// The groups.
        groups: Vec<String>,
    },
}

/// A name that no identity can have, or a certificate without one.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum IdentityError {
    /// It is not a name of a Kubernetes node.
    #[error(
        "`{0}` is not the name of a node or role: write at most 253 lower-case letters, digits, `-` and `.`, beginning and ending with a letter or digit"
    )]
    Name(String),
    /// It is a name that only nodes and roles have.
    #[error(
        "the user `{0}` has a reserved name: choose one that is not empty and does not begin with `system:`"
    )]
    User(String),
    /// The name is too long, or has characters that a terminal or a log does not show.
    #[error(
        "the name of a user or group has at most {NAME_MAX} bytes, no control characters, and no space at its ends; this one is {0:?}"
    )]
    Form(String),
    /// There are too many groups.
    #[error("a user has at most {GROUPS_MAX} groups")]
    Groups,
    /// The certificate cannot be parsed.
    #[error("the client's certificate is not readable")]
    Certificate,
    /// The subject has no common name.
    #[error("the client's certificate has no common name (CN), which names the user")]
    Nameless,
}

impl Identity {
    /// A node.
    pub fn node(name: &str) -> Result<Self, IdentityError> {
        checked(name).map(Self::Node)
    }

    /// A role of the control plane.
    pub fn control(role: &str) -> Result<Self, IdentityError> {
        checked(role).map(Self::Control)
    }

    /// A person, or another client of the API.
    pub fn user(name: &str, groups: Vec<String>) -> Result<Self, IdentityError> {
        if name.is_empty() || name.starts_with(RESERVED) {
            return Err(IdentityError::User(name.to_owned()));
        }
        if groups.len() > GROUPS_MAX {
            return Err(IdentityError::Groups);
        }
        for one in groups.iter().map(String::as_str).chain([name]) {
            check_form(one)?;
        }
        Ok(Self::User {
            name: name.to_owned(),
            groups,
        })
    }

    /// The identity in the subject of a certificate that has been verified.
    pub fn of_certificate(der: &[u8]) -> Result<Self, IdentityError> {
        let certificate =
            Certificate::from_der(der).map_err(|_malformed| IdentityError::Certificate)?;
        let subject = certificate.tbs_certificate().subject();
        let values = |oid| {
            let of_kind = subject.iter().filter(move |one| one.oid == oid);
            of_kind.filter_map(text)
        };
        let name = values(COMMON_NAME).next().ok_or(IdentityError::Nameless)?;
        Self::of_subject(name, values(ORGANIZATION).collect())
    }

    /// The identity of a user's name and groups. As in Kubernetes, a node is one by its name and by its group.
    fn of_subject(name: String, groups: Vec<String>) -> Result<Self, IdentityError> {
        let is_in = |group: &str| groups.iter().any(|one| one == group);
        match (name.strip_prefix(NODE), name.strip_prefix(CONTROL)) {
            (Some(node), _) if is_in(NODES) => Self::node(node),
            (_, Some(role)) if is_in(CONTROLS) => Self::control(role),
            _ if name.is_empty() => Err(IdentityError::Nameless),
            _ => Ok(Self::User { name, groups }),
        }
    }

    /// The user's name, the CN of a certificate.
    pub fn name(&self) -> String {
        match self {
            Self::Node(name) => format!("{NODE}{name}"),
            Self::Control(role) => format!("{CONTROL}{role}"),
            Self::User { name, .. } => name.clone(),
        }
    }

    /// The user's groups, each an O of a certificate.
    pub fn groups(&self) -> Vec<String> {
        match self {
            Self::Node(_) => vec![NODES.to_owned()],
            Self::Control(_) => vec![CONTROLS.to_owned()],
            Self::User { groups, .. } => groups.clone(),
        }
    }

    /// Whether it is the node of this name.
    pub fn is_node(&self, node: &str) -> bool {
        matches!(self, Self::Node(name) if name == node)
    }

    /// Whether it is a user who may do everything.
    pub fn is_admin(&self) -> bool {
        matches!(self, Self::User { groups, .. } if groups.iter().any(|group| group == MASTERS))
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.name())
    }
}

fn text(value: &AttributeTypeAndValue) -> Option<String> {
    let text = DirectoryString::try_from(&value.value).ok()?;
    Some(text.value().into_owned())
}

/// Refuses the name of a user or group that looks like another one in a log or a table.
fn check_form(name: &str) -> Result<(), IdentityError> {
    let is_clear = !name.is_empty()
        && name.len() <= NAME_MAX
        && name.trim() == name
        && !name.contains(char::is_control);
    if is_clear {
        return Ok(());
    }
    Err(IdentityError::Form(name.chars().take(SHOWN_MAX).collect()))
}

fn checked(name: &str) -> Result<String, IdentityError> {
    let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let ends = [name.bytes().next(), name.bytes().last()];
    let is_name = name.len() <= NAME_MAX
        && ends.iter().all(|end| end.is_some_and(is_inner))
        && name
            .bytes()
            .all(|byte| is_inner(byte) || matches!(byte, b'-' | b'.'));
    if is_name {
        Ok(name.to_owned())
    } else {
        Err(IdentityError::Name(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(name: &str, groups: &[&str]) -> Result<Identity, IdentityError> {
        let groups = groups.iter().map(|group| (*group).to_owned());
        Identity::of_subject(name.to_owned(), groups.collect())
    }

    #[test]
    fn a_node_is_one_by_its_name_and_its_group() {
        let node = of("system:node:n-1.example", &["system:nodes"]).unwrap();
        assert_eq!(node, Identity::Node("n-1.example".into()));
        assert!(node.is_node("n-1.example") && !node.is_node("n-2"));
        for user in [
            of("system:node:n", &[]).unwrap(),
            of("n", &["system:nodes"]).unwrap(),
        ] {
            assert!(matches!(user, Identity::User { .. }));
            assert!(!user.is_node("n"));
        }
    }

    #[test]
    fn names_that_no_node_can_have_are_refused() {
        let long = "a".repeat(254);
        for name in ["", "-a", "a.", "A", "a/b", "a:b", &long] {
            assert!(Identity::node(name).is_err(), "{name}");
            assert!(of(&format!("system:node:{name}"), &["system:nodes"]).is_err());
        }
    }

    #[test]
    fn users_cannot_take_the_names_of_nodes_and_roles() {
        assert!(Identity::user("system:node:a", vec![NODES.into()]).is_err());
        assert!(Identity::user("", Vec::new()).is_err());
        let admin = Identity::user("eve", vec![MASTERS.into()]).unwrap();
        assert!(admin.is_admin());
        assert!(
            !Identity::user("eve", vec!["dev".into()])
                .unwrap()
                .is_admin()
        );
    }

    #[test]
    fn names_of_users_and_groups_that_look_like_others_are_refused() {
        let long = "a".repeat(254);
        for name in ["ann\n", "a\tb", " ann", "ann ", "ann\u{a0}", &long] {
            let refused = Identity::user(name, Vec::new()).unwrap_err();
            assert!(refused.to_string().len() < 300, "{refused}");
            assert!(
                Identity::user("ann", vec![name.into()]).is_err(),
                "{name:?}"
            );
        }
        assert!(Identity::user("ann", vec![String::new()]).is_err());
        assert!(Identity::user("ann", vec!["dev".into(); 65]).is_err());
        assert!(Identity::user("Ann Example <ann@example.org>", vec!["a b".into()]).is_ok());
    }

    #[test]
    fn the_subject_of_an_identity_is_that_identity() {
        for identity in [
            Identity::node("a").unwrap(),
            Identity::control("store").unwrap(),
            Identity::user("eve", vec!["dev".into(), "ops".into()]).unwrap(),
        ] {
            let again = Identity::of_subject(identity.name(), identity.groups());
            assert_eq!(again, Ok(identity));
        }
        assert_eq!(
            Identity::of_certificate(b"no"),
            Err(IdentityError::Certificate)
        );
    }
}
