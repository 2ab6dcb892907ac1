//! The `Revision` resource: one template that an app has or had.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Key, Template};

/// A template that an app has or had; immutable.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "dormouse.dev",
    version = "v1alpha1",
    kind = "Revision",
    plural = "revisions",
    namespaced,
    derive = "PartialEq",
    doc = "A template that an app has or had. An app that never had a second template has none.",
    printcolumn = r#"{"name":"App","type":"string","jsonPath":".spec.app"}"#,
    printcolumn = r#"{"name":"Revision","type":"integer","jsonPath":".spec.revision"}"#,
    printcolumn = r#"{"name":"Image","type":"string","jsonPath":".spec.template.container.image"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#,
    printcolumn = r#"{"name":"Command","type":"string","jsonPath":".spec.template.container.command","priority":1}"#,
    printcolumn = r#"{"name":"Hash","type":"string","jsonPath":".spec.templateHash","priority":1}"#
)]
#[serde(rename_all = "camelCase")]
pub struct RevisionSpec {
    /// The name of the app.
    pub app: String,
    /// The revision's number; the first template of an app is revision 1.
    pub revision: u32,
    /// The hash of the template and of the app's uid.
    pub template_hash: String,
    /// What the pods of the revision run.
    pub template: Template,
}

/// The key of a revision of an app: its name is the app's, a dash and the revision's number.
pub fn key_of(app: &Key, number: u32) -> Key {
    Key::new(&app.namespace, format!("{}-{number}", app.name))
}

/// The number of the revision of an app with this name; none: the name is not one of its revisions.
pub fn number_of(app: &str, name: &str) -> Option<u32> {
    let number = name.strip_prefix(app)?.strip_prefix('-')?;
    let parsed: u32 = number.parse().ok()?;
    (parsed > 0 && parsed.to_string() == number).then_some(parsed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_a_revision_of_one_app_only() {
        assert_eq!(number_of("web", "web-12"), Some(12));
        assert_eq!(key_of(&Key::new("a", "web"), 12).name, "web-12");
        assert_eq!(number_of("web-1", "web-1-2"), Some(2));
        for other in [
            "web", "web-", "web-0", "web-01", "web-+1", "web-1-2", "we-1", "docs-1",
        ] {
            assert_eq!(number_of("web", other), None, "{other}");
        }
    }
}
