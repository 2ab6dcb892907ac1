//! The escalation check, by hand and by properties.

use dormouse_rbac::{Policy, User, allows, describe, missing};
use k8s_openapi::api::rbac::v1::PolicyRule;
use proptest::prelude::*;

use crate::reference::{all_requests, rules};
use crate::world::{binding, cluster_role, rule, urls};

fn lacks(owned: &[PolicyRule], wanted: &[PolicyRule]) -> String {
    describe(&missing(owned, wanted))
}

#[test]
fn only_rights_that_one_rule_covers_are_owned() {
    let owned = [
        rule("get list | core | pods */scale"),
        rule("update | core | pods | web"),
        urls("get | /api/*"),
    ];
    for (wanted, want) in [
        (rule("get | core | pods"), ""),
        (rule("get | core | pods | web"), ""),
        (rule("get | core | apps/scale"), ""),
        (rule("update | core | pods | web"), ""),
        (urls("get | /api/v1 /api/v1/*"), ""),
        (
            rule("update | core | pods"),
            r#"{APIGroups:[""], Resources:["pods"], Verbs:["update"]}"#,
        ),
        (
            rule("update | core | pods | web api"),
            r#"{APIGroups:[""], Resources:["pods"], ResourceNames:["api"], Verbs:["update"]}"#,
        ),
        (
            rule("get watch delete | core | pods"),
            r#"{APIGroups:[""], Resources:["pods"], Verbs:["watch" "delete"]}"#,
        ),
        (
            rule("* | core | pods"),
            r#"{APIGroups:[""], Resources:["pods"], Verbs:["*"]}"#,
        ),
        (
            rule("get | * | pods"),
            r#"{APIGroups:["*"], Resources:["pods"], Verbs:["get"]}"#,
        ),
        (
            rule("get | core | *"),
            r#"{APIGroups:[""], Resources:["*"], Verbs:["get"]}"#,
        ),
        (
            urls("get | /api /apis/*"),
            "{NonResourceURLs:[\"/api\"], Verbs:[\"get\"]}\n{NonResourceURLs:[\"/apis/*\"], Verbs:[\"get\"]}",
        ),
    ] {
        assert_eq!(lacks(&owned, std::slice::from_ref(&wanted)), want);
    }
}

#[test]
fn the_error_has_the_user_and_the_missing_rights_and_rights_in_a_namespace_count_only_there() {
    let mut policy = Policy::default();
    let reader = cluster_role("reader", vec![rule("get | core | pods")]);
    policy.set_cluster_role("reader", Some(&reader));
    let readers = binding("shop", "readers", "ClusterRole reader", &["User ann"]);
    policy.set_role_binding("shop", "readers", Some(&readers));
    let ann = User::authenticated("ann", ["dev"]);
    let rules = [rule("get | core | pods")];
    assert_eq!(policy.check_grant(&ann, "shop", &rules), Ok(()));
    for namespace in ["", "other"] {
        let error = policy.check_grant(&ann, namespace, &rules).unwrap_err();
        let want = "user \"ann\" (groups=[\"dev\" \"system:authenticated\"]) is attempting to grant RBAC permissions not currently \
                    held:\n{APIGroups:[\"\"], Resources:[\"pods\"], Verbs:[\"get\"]}";
        assert_eq!(error, want);
    }
}

proptest! {
    /// Who may grant rules may send each request that they allow.
    #[test]
    fn no_granted_rule_allows_a_request_that_its_granter_may_not_send(owned in rules(), wanted in rules()) {
        if missing(&owned, &wanted).is_empty() {
            for request in all_requests() {
                let allowed = |rules: &[PolicyRule]| rules.iter().any(|rule| allows(rule, &request));
                prop_assert!(!allowed(&wanted) || allowed(&owned), "{request:?}");
            }
        }
    }

    #[test]
    fn own_rules_can_be_granted_and_missing_ones_are_enough(owned in rules(), wanted in rules()) {
        prop_assert!(missing(&owned, &owned).is_empty());
        let lacking = missing(&owned, &wanted);
        let all = [owned, lacking].concat();
        prop_assert!(missing(&all, &wanted).is_empty());
    }

    /// The check of a user's rules, which divides none that it need not and stops early, decides as the comparison of all rights.
    #[test]
    fn a_grant_is_refused_if_a_right_is_missing(owned in rules(), wanted in rules()) {
        let mut policy = Policy::default();
        policy.set_cluster_role("own", Some(&cluster_role("own", owned.clone())));
        let own = binding("shop", "own", "ClusterRole own", &["User ann"]);
        policy.set_role_binding("shop", "own", Some(&own));
        let ann = User::authenticated("ann", ["dev"]);
        let lacks = !missing(&owned, &wanted).is_empty();
        prop_assert_eq!(policy.check_grant(&ann, "shop", &wanted).is_err(), lacks);
    }
}
