//! The nouns of the command line, and the path where each lives.

use serde_json::Value;

use super::{Exit, Failure, codes::Code};

/// A kind of object that people name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Noun {
    /// For one object.
    pub(super) singular: &'static str,
    plural: &'static str,
    short: &'static str,
    kind: &'static str,
    api_version: &'static str,
    base: &'static str,
    /// Whether its objects live in a namespace.
    pub(super) namespaced: bool,
}

const CORE: &str = "/api/v1";

pub(super) const APP: Noun = Noun {
    singular: "app",
    plural: "apps",
    short: "app",
    kind: "App",
    api_version: "dormouse.dev/v1alpha1",
    base: "/apis/dormouse.dev/v1alpha1",
    namespaced: true,
};

pub(super) const EVENT: Noun = Noun {
    singular: "event",
    plural: "events",
    short: "ev",
    kind: "Event",
    api_version: "v1",
    base: CORE,
    namespaced: true,
};

const NOUNS: [Noun; 4] = [
    APP,
    Noun {
        singular: "pod",
        plural: "pods",
        short: "po",
        kind: "Pod",
        api_version: "v1",
        base: CORE,
        namespaced: true,
    },
    Noun {
        singular: "node",
        plural: "nodes",
        short: "no",
        kind: "Node",
        api_version: "v1",
        base: CORE,
        namespaced: false,
    },
    EVENT,
];

impl Noun {
    /// The noun that people wrote: singular, plural or short.
    pub(super) fn parse(text: &str) -> Result<Self, Failure> {
        let text = text.to_lowercase();
        let found = NOUNS
            .into_iter()
            .find(|noun| [noun.singular, noun.plural, noun.short].contains(&text.as_str()));
        found.ok_or_else(|| {
            let message = format!("there is no kind of object called {text:?}");
            Failure::new(
                Code::Kind,
                Exit::Usage,
                message,
                "use app, pod, node or event",
            )
        })
    }

    /// The noun of a manifest's document.
    pub(super) fn of_document(document: &Value) -> Option<Self> {
        let is = |noun: &Noun| {
            document["apiVersion"] == noun.api_version && document["kind"] == noun.kind
        };
        NOUNS.into_iter().find(is)
    }

    /// Where its objects live; in all namespaces when `namespace` is `None`.
    pub(super) fn path(&self, namespace: Option<&str>) -> String {
        match namespace.filter(|_| self.namespaced) {
            Some(namespace) => format!(
                "{}/namespaces/{}/{}",
                self.base,
                encoded(namespace),
                self.plural
            ),
            None => format!("{}/{}", self.base, self.plural),
        }
    }

    /// Where one of its objects lives.
    pub(super) fn path_of(&self, namespace: &str, name: &str) -> String {
        format!("{}/{}", self.path(Some(namespace)), encoded(name))
    }
}

/// Reads `NOUN`, `NOUN NAME...` or `NOUN/NAME...`. One noun at a time.
pub(super) fn objects(words: &[String]) -> Result<(Noun, Vec<String>), Failure> {
    let first = words.first().map_or("", String::as_str);
    if !first.contains('/') {
        return Ok((Noun::parse(first)?, words[1.min(words.len())..].to_vec()));
    }
    let split = |word: &String| {
        word.split_once('/')
            .map(|(noun, name)| (noun.to_owned(), name.to_owned()))
    };
    let pairs: Option<Vec<(String, String)>> = words.iter().map(split).collect();
    let pairs = pairs.unwrap_or_default();
    let nouns: Result<Vec<Noun>, Failure> =
        pairs.iter().map(|(noun, _)| Noun::parse(noun)).collect();
    match nouns?.as_slice() {
        [noun, rest @ ..] if rest.iter().all(|one| one == noun) => {
            Ok((*noun, pairs.into_iter().map(|(_, name)| name).collect()))
        }
        _ => {
            let message = format!(
                "cannot read {:?}: name objects of one kind, each as NOUN/NAME",
                words.join(" ")
            );
            Err(Failure::new(
                Code::Kind,
                Exit::Usage,
                message,
                "dormouse get app/web app/api",
            ))
        }
    }
}

/// A word inside a URL.
pub(super) fn encoded(text: &str) -> String {
    let one = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
            char::from(byte).to_string()
        }
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(words: &str, want: Option<(&str, &[&str])>) {
        let words: Vec<String> = words.split_whitespace().map(String::from).collect();
        let found = objects(&words).ok();
        let found = found.as_ref().map(|(noun, names)| {
            (
                noun.plural,
                names.iter().map(String::as_str).collect::<Vec<_>>(),
            )
        });
        assert_eq!(
            found,
            want.map(|(noun, names)| (noun, names.to_vec())),
            "{words:?}"
        );
    }

    #[test]
    fn nouns_are_read_in_every_form_that_people_write() {
        check("apps", Some(("apps", &[])));
        check("App web", Some(("apps", &["web"])));
        check("po/a pod/b", Some(("pods", &["a", "b"])));
        check("no n1 n2", Some(("nodes", &["n1", "n2"])));
        check("service", None);
        check("app/a pod/b", None);
        check("app/a b", None);
    }

    #[test]
    fn a_name_cannot_leave_its_path() {
        assert_eq!(
            APP.path_of("a b", "../x"),
            "/apis/dormouse.dev/v1alpha1/namespaces/a%20b/apps/..%2Fx"
        );
    }
}
