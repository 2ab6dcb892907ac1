//! Validation of roles and bindings, with Kubernetes' rules.

use k8s_openapi::api::rbac::v1::{
    ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, RoleRef, Subject,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelectorRequirement, ObjectMeta};

use super::name;
use super::words::unsupported;
use crate::FieldError;
use crate::decode::CauseType;

/// The API group of roles, and of the users and groups in bindings.
const GROUP: &str = "rbac.authorization.k8s.io";

/// The errors of a Role.
pub fn role(role: &Role) -> Vec<FieldError> {
    let mut errors = metadata(&role.metadata);
    errors.extend(rules(role.rules.as_deref(), true));
    errors
}

/// The errors of a ClusterRole.
pub fn cluster_role(role: &ClusterRole) -> Vec<FieldError> {
    let mut errors = metadata(&role.metadata);
    errors.extend(rules(role.rules.as_deref(), false));
    let selectors = role.aggregation_rule.iter();
    let selectors = selectors.flat_map(|rule| rule.cluster_role_selectors.iter().flatten());
    for (index, selector) in selectors.enumerate() {
        let field = format!("aggregationRule.clusterRoleSelectors[{index}]");
        let labels = selector.match_labels.clone().unwrap_or_default();
        errors.extend(name::labels(&format!("{field}.matchLabels"), &labels));
        let required = selector.match_expressions.iter().flatten().enumerate();
        errors.extend(required.filter_map(|(index, required)| {
            expression(&format!("{field}.matchExpressions[{index}]"), required)
        }));
    }
    errors
}

fn expression(field: &str, required: &LabelSelectorRequirement) -> Option<FieldError> {
    let values = required.values.as_deref().unwrap_or_default();
    match required.operator.as_str() {
        "In" | "NotIn" if values.is_empty() => {
            let message = "must be specified when `operator` is 'In' or 'NotIn'";
            Some(FieldError::required(format!("{field}.values"), message))
        }
        "Exists" | "DoesNotExist" if !values.is_empty() => {
            let message = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
            let field = format!("{field}.values");
            Some(FieldError::new(field, CauseType::Forbidden, message))
        }
        "In" | "NotIn" | "Exists" | "DoesNotExist" => None,
        other => Some(unsupported(
            format!("{field}.operator"),
            other,
            &["In", "NotIn", "Exists", "DoesNotExist"],
        )),
    }
}

/// The errors of a RoleBinding in place of `old`.
pub fn role_binding(old: Option<&RoleBinding>, binding: &RoleBinding) -> Vec<FieldError> {
    let mut errors = metadata(&binding.metadata);
    let kinds = ["Role", "ClusterRole"];
    errors.extend(role_ref(
        old.map(|old| &old.role_ref),
        &binding.role_ref,
        &kinds,
    ));
    errors.extend(subjects(binding.subjects.as_deref(), true));
    errors
}

/// The errors of a ClusterRoleBinding in place of `old`.
pub fn cluster_role_binding(
    old: Option<&ClusterRoleBinding>,
    binding: &ClusterRoleBinding,
) -> Vec<FieldError> {
    let mut errors = metadata(&binding.metadata);
    errors.extend(role_ref(
        old.map(|old| &old.role_ref),
        &binding.role_ref,
        &["ClusterRole"],
    ));
    errors.extend(subjects(binding.subjects.as_deref(), false));
    errors
}

/// The errors of the name, which may have all characters of a segment of a path, and of the namespace.
fn metadata(meta: &ObjectMeta) -> Vec<FieldError> {
    let mut errors: Vec<FieldError> = match meta.name.as_deref() {
        None | Some("") => vec![FieldError::required("metadata.name", "is required")],
        Some(name) => segment("metadata.name", name).into_iter().collect(),
    };
    let namespace = meta.namespace.as_deref();
    errors.extend(
        namespace.and_then(|name| name::check("metadata.namespace", name, name::LABEL_LEN_MAX)),
    );
    errors
}

fn segment(field: &str, name: &str) -> Option<FieldError> {
    let message = if name == "." || name == ".." {
        format!("may not be '{name}'")
    } else if let Some(character) = ['/', '%'].into_iter().find(|one| name.contains(*one)) {
        format!("may not contain '{character}'")
    } else if name.len() > name::LEN_MAX {
        let (len, max) = (name.len(), name::LEN_MAX);
        format!("has {len} characters, at most {max} are allowed")
    } else {
        return None;
    };
    Some(FieldError::invalid(field, message))
}

fn rules(rules: Option<&[PolicyRule]>, is_namespaced: bool) -> Vec<FieldError> {
    let rules = rules.unwrap_or_default().iter().enumerate();
    rules
        .flat_map(|(index, one)| rule(&format!("rules[{index}]"), one, is_namespaced))
        .collect()
}

fn rule(field: &str, rule: &PolicyRule, is_namespaced: bool) -> Vec<FieldError> {
    let has = |values: &[String]| !values.is_empty();
    let [groups, resources, names, urls] = [
        &rule.api_groups,
        &rule.resources,
        &rule.resource_names,
        &rule.non_resource_urls,
    ]
    .map(|values| values.as_deref().unwrap_or_default());
    let mut errors = Vec::new();
    let mut required = |name: &str, message| {
        errors.push(FieldError::required(format!("{field}.{name}"), message));
    };
    if rule.verbs.is_empty() {
        required("verbs", "verbs must contain at least one value");
    }
    if !has(urls) {
        if !has(groups) {
            required(
                "apiGroups",
                "resource rules must supply at least one api group",
            );
        }
        if !has(resources) {
            required(
                "resources",
                "resource rules must supply at least one resource",
            );
        }
        if has(names) && resources.len() > 1 {
            required(
                "resourceNames",
                "resource names cannot apply to multiple resources",
            );
        }
        return errors;
    }
    let mut invalid = |message| {
        let field = format!("{field}.nonResourceURLs");
        errors.push(FieldError::invalid(field, message));
    };
    if is_namespaced {
        invalid("namespaced rules cannot apply to non-resource URLs");
    }
    if has(groups) || has(resources) || has(names) {
        invalid("rules cannot apply to both regular resources and non-resource URLs");
    }
    errors
}

fn role_ref(old: Option<&RoleRef>, role: &RoleRef, kinds: &[&str]) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let group = role.api_group.as_deref().unwrap_or_default();
    if group != GROUP {
        errors.push(unsupported("roleRef.apiGroup", group, &[GROUP]));
    }
    if !kinds.contains(&role.kind.as_str()) {
        errors.push(unsupported("roleRef.kind", &role.kind, kinds));
    }
    if role.name.is_empty() {
        errors.push(FieldError::required("roleRef.name", "is required"));
    }
    errors.extend(segment("roleRef.name", &role.name));
    if old.is_some_and(|old| old != role) {
        let message = "cannot change roleRef: delete the binding and create it again";
        errors.push(FieldError::invalid("roleRef", message));
    }
    errors
}

fn subjects(subjects: Option<&[Subject]>, is_namespaced: bool) -> Vec<FieldError> {
    let subjects = subjects.unwrap_or_default().iter().enumerate();
    subjects
        .flat_map(|(index, one)| subject(&format!("subjects[{index}]"), one, is_namespaced))
        .collect()
}

fn subject(field: &str, subject: &Subject, is_namespaced: bool) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let at = |name: &str| format!("{field}.{name}");
    let group = subject.api_group.as_deref().unwrap_or_default();
    let namespace = subject.namespace.as_deref().unwrap_or_default();
    if subject.name.is_empty() {
        errors.push(FieldError::required(at("name"), "is required"));
    }
    match subject.kind.as_str() {
        "User" | "Group" => {
            if group != GROUP {
                errors.push(unsupported(at("apiGroup"), group, &[GROUP]));
            }
        }
        "ServiceAccount" => {
            if !subject.name.is_empty() {
                errors.extend(name::check(&at("name"), &subject.name, name::LEN_MAX));
            }
            if !group.is_empty() {
                errors.push(unsupported(at("apiGroup"), group, &[""]));
            }
            if !is_namespaced && namespace.is_empty() {
                errors.push(FieldError::required(at("namespace"), "is required"));
            }
        }
        other => errors.push(unsupported(
            at("kind"),
            other,
            &["ServiceAccount", "User", "Group"],
        )),
    }
    errors
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn fields(errors: &[FieldError]) -> Vec<&str> {
        errors.iter().map(|error| error.field.as_str()).collect()
    }

    fn of_rule(rule: &Value, is_namespaced: bool) -> Vec<FieldError> {
        rules(
            Some(&[serde_json::from_value(rule.clone()).unwrap()]),
            is_namespaced,
        )
    }

    #[test]
    fn a_rule_is_for_resources_or_in_the_cluster_for_paths() {
        let none = json!({"verbs": []});
        let all = ["rules[0].verbs", "rules[0].apiGroups", "rules[0].resources"];
        assert_eq!(fields(&of_rule(&none, true)), all);
        let path = json!({"verbs": ["get"], "nonResourceURLs": ["/x"]});
        assert_eq!(of_rule(&path, false), []);
        assert_eq!(fields(&of_rule(&path, true)), ["rules[0].nonResourceURLs"]);
        let both = json!({"verbs": ["get"], "nonResourceURLs": ["/x"], "resources": ["pods"]});
        assert_eq!(fields(&of_rule(&both, false)), ["rules[0].nonResourceURLs"]);
        let names = json!({"verbs": ["get"], "apiGroups": [""], "resources": ["a", "b"], "resourceNames": ["x"]});
        assert_eq!(fields(&of_rule(&names, true)), ["rules[0].resourceNames"]);
    }

    fn bound(kind: &str, subject: &Value) -> RoleBinding {
        let role = json!({"apiGroup": GROUP, "kind": kind, "name": "r"});
        let binding = json!({"metadata": {"name": "a:b"}, "roleRef": role, "subjects": [subject]});
        serde_json::from_value(binding).unwrap()
    }

    #[test]
    fn a_binding_names_subjects_of_three_kinds_and_keeps_its_role() {
        let ann = json!({"kind": "User", "name": "ann", "apiGroup": GROUP});
        let binding = bound("ClusterRole", &ann);
        assert_eq!(role_binding(None, &binding), []);
        let other = bound("Role", &ann);
        assert_eq!(fields(&role_binding(Some(&binding), &other)), ["roleRef"]);
        assert_eq!(
            fields(&role_binding(None, &bound("Pod", &ann))),
            ["roleRef.kind"]
        );
        for (subject, want) in [
            (json!({"kind": "Robot", "name": "x"}), "subjects[0].kind"),
            (json!({"kind": "User", "name": "x"}), "subjects[0].apiGroup"),
            (
                json!({"kind": "ServiceAccount", "name": "X"}),
                "subjects[0].name",
            ),
            (
                json!({"kind": "Group", "name": "", "apiGroup": GROUP}),
                "subjects[0].name",
            ),
        ] {
            assert_eq!(
                fields(&role_binding(None, &bound("Role", &subject))),
                [want]
            );
        }
        let account = json!([{"kind": "ServiceAccount", "name": "x"}]);
        let account: Vec<Subject> = serde_json::from_value(account).unwrap();
        assert_eq!(
            fields(&subjects(Some(&account), false)),
            ["subjects[0].namespace"]
        );
    }

    #[test]
    fn names_are_segments_of_a_path_and_selectors_are_valid() {
        for (name, is_fine) in [
            ("system:x", true),
            ("A b", true),
            ("..", false),
            ("a/b", false),
            ("a%b", false),
        ] {
            let meta = ObjectMeta {
                name: Some(name.to_owned()),
                ..ObjectMeta::default()
            };
            assert_eq!(metadata(&meta).is_empty(), is_fine, "{name}");
        }
        let wrong = json!({"metadata": {"name": "x"}, "aggregationRule": {"clusterRoleSelectors": [
            {"matchExpressions": [{"key": "a", "operator": "In"}, {"key": "a", "operator": "Is"}]}]}});
        let wrong: ClusterRole = serde_json::from_value(wrong).unwrap();
        let at = "aggregationRule.clusterRoleSelectors[0].matchExpressions";
        let want = [format!("{at}[0].values"), format!("{at}[1].operator")];
        assert_eq!(fields(&cluster_role(&wrong)), want);
    }
}
