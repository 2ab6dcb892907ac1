//! The policy that exists from the start, and aggregation.

use dormouse_rbac::{CONTROL, Decision, MASTERS, Policy, User, builtin, decide};
use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule};

use crate::world::{binding, cluster_role, request, rule, subject};

/// Repeats what control does after each change until no aggregated role is outdated.
fn settle(policy: &mut Policy) {
    for _ in 0..4 {
        for role in policy.outdated() {
            let name = role.metadata.name.clone().unwrap();
            policy.set_cluster_role(&name, Some(&role));
        }
    }
    assert_eq!(policy.outdated(), Vec::new());
}

fn policy() -> Policy {
    let mut policy = Policy::default();
    for role in builtin::roles() {
        policy.set_cluster_role(&role.metadata.name.clone().unwrap(), Some(&role));
    }
    for one in builtin::bindings() {
        policy.set_cluster_role_binding(&one.metadata.name.clone().unwrap(), Some(&one));
    }
    for name in ["view", "edit", "admin"] {
        let role = format!("ClusterRole {name}");
        let one = binding("shop", name, &role, &[&format!("User {name}")]);
        policy.set_role_binding("shop", name, Some(&one));
    }
    settle(&mut policy);
    policy
}

#[test]
fn the_roles_of_the_control_plane_may_do_everything_by_their_group() {
    let policy = policy();
    let control = User::authenticated("system:control:scheduler", [CONTROL]);
    let impostor = User::authenticated("system:control:scheduler", ["dev"]);
    for text in ["update pods/status shop web", "list nodes"] {
        let decided = |user| decide(&policy, user, &request(text));
        assert!(matches!(decided(&control), Decision::Allow(_)), "{text}");
        assert!(matches!(decided(&impostor), Decision::Forbid(_)), "{text}");
    }
}

#[test]
fn the_roles_of_people_contain_one_another() {
    let policy = policy();
    let users = ["view", "edit", "admin"];
    // The first of the users who may.
    for (text, from) in [
        ("get pods shop web", 0),
        ("get pods/log shop web", 0),
        ("watch dormouse.dev:apps shop", 0),
        ("get dormouse.dev:apps/wakes shop web", 0),
        ("list discovery.k8s.io:endpointslices shop", 0),
        ("create dormouse.dev:apps shop", 1),
        ("patch dormouse.dev:apps/scale shop web", 1),
        ("delete services shop web", 1),
        ("create pods/eviction shop web", 1),
        ("list rbac.authorization.k8s.io:roles shop", 2),
        ("create rbac.authorization.k8s.io:rolebindings shop", 2),
        (
            "create authorization.k8s.io:localsubjectaccessreviews shop",
            2,
        ),
        ("update dormouse.dev:apps/status shop web", 3),
        ("update pods/status shop web", 3),
        ("create discovery.k8s.io:endpointslices shop", 3),
        ("escalate rbac.authorization.k8s.io:roles shop r", 3),
        ("get pods other web", 3),
        ("list nodes", 3),
    ] {
        for (index, name) in users.into_iter().enumerate() {
            let user = User::authenticated(name, ["dev"]);
            let allowed = policy.allows(&user, &request(text)).is_some();
            assert_eq!(allowed, index >= from, "{name}: {text}");
        }
    }
}

#[test]
fn all_users_discover_and_ask_for_their_rights_and_the_anonymous_see_version_and_health() {
    let policy = policy();
    let allowed =
        |user: &User, text| matches!(decide(&policy, user, &request(text)), Decision::Allow(_));
    let ann = User::authenticated("ann", ["dev"]);
    for text in [
        "get /api/v1",
        "get /openapi/v3",
        "create authorization.k8s.io:selfsubjectaccessreviews",
        "create authentication.k8s.io:selfsubjectreviews",
    ] {
        assert!(allowed(&ann, text), "{text}");
        assert!(!allowed(&User::anonymous(), text), "{text}");
    }
    for text in ["get /version", "get /readyz"] {
        assert!(
            allowed(&User::anonymous(), text) && allowed(&ann, text),
            "{text}"
        );
    }
    assert!(!allowed(
        &ann,
        "create authorization.k8s.io:subjectaccessreviews"
    ));
    assert!(!allowed(&ann, "get /readyz/store"));
    let monitor = User::authenticated("m", ["system:monitoring"]);
    assert!(allowed(&monitor, "get /readyz/store"));
    // The rights of this group do not depend on the policy, in which they are, too.
    let master = User::authenticated("root", [MASTERS]);
    assert!(
        policy
            .allows(&master, &request("delete nodes - n1"))
            .is_some()
    );
}

#[test]
fn a_role_with_the_label_extends_the_aggregated_ones_until_it_is_deleted() {
    let mut policy = policy();
    let mut more = cluster_role("more", vec![rule("get | x | widgets")]);
    let label = (
        "rbac.authorization.k8s.io/aggregate-to-view".to_owned(),
        "true".to_owned(),
    );
    more.metadata.labels = Some([label].into());
    let admin = User::authenticated("admin", ["dev"]);
    let asked = request("get x:widgets shop w");
    assert!(policy.allows(&admin, &asked).is_none());
    policy.set_cluster_role("more", Some(&more));
    settle(&mut policy);
    assert!(policy.allows(&admin, &asked).is_some());
    policy.set_cluster_role("more", None);
    settle(&mut policy);
    assert!(policy.allows(&admin, &asked).is_none());
}

#[test]
fn what_a_role_or_binding_lacks_is_added_and_nothing_is_removed() {
    let wanted = builtin::roles()
        .into_iter()
        .find(|role| role.metadata.name.as_deref() == Some("system:basic-user"));
    let wanted = wanted.unwrap();
    assert_eq!(builtin::repaired_role(&wanted, &wanted), None);
    let own = rule("get | core | pods");
    let mut stored = ClusterRole {
        rules: Some(vec![own.clone()]),
        ..wanted.clone()
    };
    let repaired = builtin::repaired_role(&stored, &wanted).unwrap();
    let rules: Vec<PolicyRule> = repaired.rules.clone().unwrap();
    assert!(rules.contains(&own) && rules.len() == 4, "{rules:?}");
    assert_eq!(builtin::repaired_role(&repaired, &wanted), None);
    let annotations = stored.metadata.annotations.as_mut().unwrap();
    annotations.insert(
        "rbac.authorization.kubernetes.io/autoupdate".to_owned(),
        "false".to_owned(),
    );
    assert_eq!(builtin::repaired_role(&stored, &wanted), None);

    let wanted = builtin::bindings().remove(0);
    let mut stored = wanted.clone();
    stored.subjects = Some(vec![subject("User ann")]);
    let repaired = builtin::repaired_binding(&stored, &wanted).unwrap();
    assert_eq!(repaired.subjects.unwrap().len(), 2);
    assert_eq!(builtin::repaired_binding(&wanted, &wanted), None);
}
