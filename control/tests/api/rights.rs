//! Users and their rights: roles, the escalation check, reviews, impersonation, and the messages of refusals.

use serde_json::{Value, json};

use crate::client::{request, send, until};
use crate::world::{World, manifest};

const ADMIN: &str = "root/system:masters";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const PODS: &str = "GET /api/v1/namespaces/shop/pods";

fn role(name: &str, rules: &Value) -> Value {
    json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": name}, "rules": rules})
}

fn binding(name: &str, (kind, role): (&str, &str), user: &str) -> Value {
    json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": name},
        "roleRef": {"kind": kind, "name": role}, "subjects": [{"kind": "User", "name": user}]})
}

async fn create(world: &World, user: &str, plural: &str, object: &Value) -> (u16, Value) {
    let what = format!("POST {RBAC}/namespaces/shop/{plural}");
    request(world, user, &what, object).await
}

/// Gives a user a ClusterRole in the namespace `shop`.
async fn give(world: &World, role: &str, user: &str) {
    let one = binding(&format!("{role}-{user}"), ("ClusterRole", role), user);
    assert_eq!(create(world, ADMIN, "rolebindings", &one).await.0, 201);
}

fn message(status: &Value) -> &str {
    status["message"].as_str().unwrap()
}

#[tokio::test]
async fn a_user_without_a_right_is_refused_in_the_words_of_kubernetes() {
    let world = World::start_for_users().await;
    for (user, what, code, want) in [
        (
            "ann",
            PODS,
            403,
            "pods is forbidden: User \"ann\" cannot list resource \"pods\" in API group \"\" in the namespace \"shop\"",
        ),
        (
            "ann",
            "GET /apis/dormouse.dev/v1alpha1/namespaces/shop/apps/web",
            403,
            "apps.dormouse.dev \"web\" is forbidden: User \"ann\" cannot get resource \"apps\" in API group \"dormouse.dev\" in the \
             namespace \"shop\"",
        ),
        (
            "ann",
            "PUT /api/v1/nodes/n1/status",
            403,
            "nodes \"n1\" is forbidden: User \"ann\" cannot update resource \"nodes/status\" in API group \"\" at the cluster scope",
        ),
        (
            "ann",
            "GET /readyz/store",
            403,
            "forbidden: User \"ann\" cannot get path \"/readyz/store\"",
        ),
        // What is not there is refused, too.
        (
            "ann",
            "GET /nothing",
            403,
            "forbidden: User \"ann\" cannot get path \"/nothing\"",
        ),
        (
            "",
            "GET /api",
            403,
            "forbidden: User \"system:anonymous\" cannot get path \"/api\"",
        ),
        ("wrong", "GET /api", 401, "Unauthorized"),
        ("wrong", "GET /readyz", 401, "Unauthorized"),
    ] {
        let (answered, status) = request(&world, user, what, &Value::Null).await;
        assert_eq!((answered, message(&status)), (code, want), "{user} {what}");
    }
    let (_, status) = request(
        &world,
        "ann",
        "GET /apis/dormouse.dev/v1alpha1/namespaces/shop/apps/web",
        &Value::Null,
    )
    .await;
    let details = json!({"group": "dormouse.dev", "kind": "apps", "name": "web"});
    assert_eq!(
        (&status["details"], &status["reason"]),
        (&details, &json!("Forbidden"))
    );
    assert_eq!(
        request(&world, "", "GET /readyz", &Value::Null).await.0,
        200
    );
    assert_eq!(
        request(&world, ADMIN, "GET /nothing", &Value::Null).await.0,
        404
    );
}

#[tokio::test]
async fn without_authentication_all_requests_are_of_the_administrator() {
    let world = World::start().await;
    for user in ["", "wrong"] {
        let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
        let what = "POST /apis/authentication.k8s.io/v1/selfsubjectreviews";
        let (code, answered) = request(&world, user, what, &review).await;
        let want = json!({"username": "system:admin", "groups": ["system:masters", "system:authenticated"]});
        assert_eq!((code, &answered["status"]["userInfo"]), (201, &want));
    }
}

#[tokio::test]
async fn a_role_gives_rights_until_its_binding_is_deleted() {
    let world = World::start_for_users().await;
    let rules = json!([{"verbs": ["list"], "apiGroups": [""], "resources": ["pods"]}]);
    assert_eq!(
        create(&world, ADMIN, "roles", &role("lists", &rules))
            .await
            .0,
        201
    );
    assert_eq!(request(&world, "ann", PODS, &Value::Null).await.0, 403);
    let one = binding("lists", ("Role", "lists"), "ann");
    let (code, stored) = create(&world, ADMIN, "rolebindings", &one).await;
    assert_eq!(code, 201);
    // The API group is the default.
    let group = "rbac.authorization.k8s.io";
    assert_eq!(
        stored["subjects"][0],
        json!({"kind": "User", "name": "ann", "apiGroup": group})
    );
    until(&world, "ann", PODS, 200).await;
    assert_eq!(
        request(
            &world,
            "ann",
            "GET /api/v1/namespaces/other/pods",
            &Value::Null
        )
        .await
        .0,
        403
    );
    assert_eq!(
        request(&world, "ann", "GET /api/v1/pods", &Value::Null)
            .await
            .0,
        403
    );
    assert_eq!(
        request(
            &world,
            "ann",
            "GET /api/v1/namespaces/shop/pods?watch=1",
            &Value::Null
        )
        .await
        .0,
        403
    );
    let what = format!("DELETE {RBAC}/namespaces/shop/rolebindings/lists");
    assert_eq!(request(&world, ADMIN, &what, &Value::Null).await.0, 200);
    until(&world, "ann", PODS, 403).await;
}

#[tokio::test]
async fn an_apply_that_creates_needs_the_right_to_create() {
    let world = World::start_for_users().await;
    let rules = json!([{"verbs": ["patch"], "apiGroups": ["dormouse.dev"], "resources": ["apps"]}]);
    create(&world, ADMIN, "roles", &role("patches", &rules)).await;
    create(
        &world,
        ADMIN,
        "rolebindings",
        &binding("patches", ("Role", "patches"), "ann"),
    )
    .await;
    let path = "/apis/dormouse.dev/v1alpha1/namespaces/shop/apps/web";
    let merge = format!("PATCH {path}");
    // A patch that merges creates nothing.
    until(&world, "ann", &merge, 404).await;
    let applied = async |user| {
        let what = ("APPLY", path);
        send(&world, (user, ""), what, &manifest("web")).await.0
    };
    assert_eq!(applied("ann").await, 403);
    assert_eq!(applied(ADMIN).await, 201);
    assert_eq!(applied("ann").await, 200);
}

#[tokio::test]
async fn a_user_grants_only_own_rights_unless_the_user_may_escalate_or_bind() {
    let world = World::start_for_users().await;
    give(&world, "admin", "ann").await;
    until(
        &world,
        "ann",
        &format!("GET {RBAC}/namespaces/shop/roles"),
        200,
    )
    .await;
    let get =
        |resource: &str| json!([{"verbs": ["get"], "apiGroups": [""], "resources": [resource]}]);
    assert_eq!(
        create(&world, "ann", "roles", &role("own", &get("pods")))
            .await
            .0,
        201
    );
    let (code, status) = create(&world, "ann", "roles", &role("more", &get("nodes"))).await;
    let want = "roles.rbac.authorization.k8s.io \"more\" is forbidden: user \"ann\" (groups=[\"users\" \"system:authenticated\"]) is \
                attempting to grant RBAC permissions not currently held:\n{APIGroups:[\"\"], Resources:[\"nodes\"], Verbs:[\"get\"]}";
    assert_eq!((code, message(&status)), (403, want));
    // An update and a dry run, too.
    let patch = format!("PATCH {RBAC}/namespaces/shop/roles/own");
    assert_eq!(
        request(&world, "ann", &patch, &json!({"rules": get("nodes")}))
            .await
            .0,
        403
    );
    let dry = format!("POST {RBAC}/namespaces/shop/roles?dryRun=All");
    assert_eq!(
        request(&world, "ann", &dry, &role("more", &get("nodes")))
            .await
            .0,
        403
    );
    // A binding gives the rights of its role.
    for (role, code) in [
        (("Role", "own"), 201),
        (("ClusterRole", "view"), 201),
        (("ClusterRole", "cluster-admin"), 403),
        (("Role", "none"), 404),
    ] {
        let one = binding(&format!("b-{}", role.1), role, "bob");
        assert_eq!(
            create(&world, "ann", "rolebindings", &one).await.0,
            code,
            "{role:?}"
        );
    }
    let escalates = json!([{"verbs": ["escalate", "bind"], "apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles", "clusterroles"]}]);
    create(&world, ADMIN, "roles", &role("escalates", &escalates)).await;
    create(
        &world,
        ADMIN,
        "rolebindings",
        &binding("escalates", ("Role", "escalates"), "ann"),
    )
    .await;
    let what = format!("POST {RBAC}/namespaces/shop/roles");
    while request(&world, "ann", &what, &role("more", &get("nodes")))
        .await
        .0
        != 201
    {
        tokio::task::yield_now().await;
    }
    let one = binding("all", ("ClusterRole", "cluster-admin"), "bob");
    assert_eq!(create(&world, "ann", "rolebindings", &one).await.0, 201);
}

#[tokio::test]
async fn a_role_that_is_not_valid_is_refused_with_the_field() {
    let world = World::start_for_users().await;
    let urls = json!([{"verbs": ["get"], "nonResourceURLs": ["/x"]}]);
    let (code, status) = create(&world, ADMIN, "roles", &role("x", &urls)).await;
    assert_eq!(
        (code, &status["details"]["causes"][0]["field"]),
        (422, &json!("rules[0].nonResourceURLs"))
    );
    let one = binding("lists", ("Role", "lists"), "ann");
    create(&world, ADMIN, "rolebindings", &one).await;
    let patch = format!("PATCH {RBAC}/namespaces/shop/rolebindings/lists");
    let (code, status) = request(
        &world,
        ADMIN,
        &patch,
        &json!({"roleRef": {"name": "other"}}),
    )
    .await;
    assert_eq!(
        (code, &status["details"]["causes"][0]["field"]),
        (422, &json!("roleRef"))
    );
    // The namespace goes only without them: another one of its name would have their rights.
    let (code, status) = request(
        &world,
        ADMIN,
        "DELETE /api/v1/namespaces/shop",
        &Value::Null,
    )
    .await;
    assert!(
        code == 403 && message(&status).contains("rolebindings"),
        "{status}"
    );
}

#[tokio::test]
async fn aggregated_roles_follow_the_roles_with_their_label() {
    let world = World::start_for_users().await;
    give(&world, "view", "ann").await;
    let rules = json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["nodes"]}]);
    let label = json!({"rbac.authorization.k8s.io/aggregate-to-view": "true"});
    let more = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": "more", "labels": label}, "rules": rules});
    let what = format!("POST {RBAC}/clusterroles");
    assert_eq!(request(&world, ADMIN, &what, &more).await.0, 201);
    let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {"verb": "get", "resource": "nodes", "namespace": "shop"}}});
    let what = "POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let allowed = async || {
        let (_, answered) = request(&world, "ann", what, &review).await;
        answered["status"]["allowed"] == true
    };
    while !allowed().await {
        tokio::task::yield_now().await;
    }
    // Through two levels.
    let admin = format!("GET {RBAC}/clusterroles/admin");
    loop {
        let (_, role) = request(&world, ADMIN, &admin, &Value::Null).await;
        if role["rules"].as_array().unwrap().contains(&rules[0]) {
            break;
        }
        tokio::task::yield_now().await;
    }
    let what = format!("DELETE {RBAC}/clusterroles/more");
    request(&world, ADMIN, &what, &Value::Null).await;
    while allowed().await {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_node_reads_its_own_pods_and_writes_their_status_only() {
    let world = World::start_for_users().await;
    for (name, on) in [("mine", "n1"), ("other", "n2")] {
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
            "spec": {"nodeName": on, "containers": [{"name": "a", "command": ["x"]}]}});
        let what = "POST /api/v1/namespaces/shop/pods";
        assert_eq!(request(&world, ADMIN, what, &pod).await.0, 201);
    }
    let as_node = "Impersonate-User: system:node:n1\r\nImpersonate-Group: system:nodes\r\n";
    let status = json!({"status": {"phase": "Running"}});
    for (what, code) in [
        ("GET /api/v1/namespaces/shop/pods/mine", 200),
        ("GET /api/v1/namespaces/shop/pods/other", 403),
        ("GET /api/v1/namespaces/shop/pods/none", 403),
        ("PATCH /api/v1/namespaces/shop/pods/mine/status", 200),
        ("PATCH /api/v1/namespaces/shop/pods/other/status", 403),
        ("PATCH /api/v1/namespaces/shop/pods/mine", 403),
        ("GET /api/v1/pods", 403),
        ("GET /api/v1/pods?fieldSelector=spec.nodeName%3Dn1", 200),
        ("GET /api/v1/pods?fieldSelector=spec.nodeName%3Dn2", 403),
        ("GET /api/v1/services", 200),
    ] {
        let answered = send(
            &world,
            (ADMIN, as_node),
            what.split_once(' ').unwrap(),
            &status,
        )
        .await;
        assert_eq!(answered.0, code, "{what}: {}", answered.1);
    }
    for (address, code) in [
        ("::1", 422),
        ("127.0.0.1", 422),
        ("fe80::1", 422),
        ("ff02::1", 422),
        ("::", 422),
        ("0.0.0.0", 422),
        ("255.255.255.255", 422),
        ("169.254.169.254", 422),
        ("::ffff:127.0.0.1", 422),
        ("2001:db8::7", 200),
    ] {
        let what = ("PATCH", "/api/v1/namespaces/shop/pods/mine/status");
        for status in [
            json!({"podIP": address}),
            json!({"podIPs": [{"ip": address}]}),
        ] {
            let status = json!({"status": status});
            let answered = send(&world, (ADMIN, as_node), what, &status).await;
            assert_eq!(answered.0, code, "{address}: {}", answered.1);
        }
    }
}

#[tokio::test]
async fn a_node_has_no_address_that_it_could_not_claim() {
    let world = World::start_for_users().await;
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}});
    assert_eq!(
        request(&world, ADMIN, "POST /api/v1/nodes", &node).await.0,
        201
    );
    let as_node = "Impersonate-User: system:node:n1\r\nImpersonate-Group: system:nodes\r\n";
    for (kind, address, code) in [
        ("InternalIP", "fd00:96::7", 422),
        ("InternalIP", "169.254.169.254", 422),
        ("ExternalIP", "bogus\n<script>", 422),
        ("Hostname", "bogus\n<script>", 422),
        ("Hostname", "n1.example.org", 200),
        ("InternalIP", "2001:db8::1", 200),
    ] {
        let status = json!({"status": {"addresses": [{"type": kind, "address": address}]}});
        let what = ("PATCH", "/api/v1/nodes/n1/status");
        let answered = send(&world, (ADMIN, as_node), what, &status).await;
        assert_eq!(answered.0, code, "{address}: {}", answered.1);
    }
}

#[tokio::test]
async fn only_a_user_with_the_right_to_impersonate_is_another_one() {
    let world = World::start_for_users().await;
    let what = ("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews");
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let headers = "Impersonate-User: bob\r\nImpersonate-Group: dev\r\nImpersonate-Group: ops\r\n";
    let (_, answered) = send(&world, (ADMIN, headers), what, &review).await;
    let want = json!({"username": "bob", "groups": ["dev", "ops", "system:authenticated"]});
    assert_eq!(answered["status"]["userInfo"], want);
    let (code, status) = send(&world, ("ann", headers), what, &review).await;
    let want = "users \"bob\" is forbidden: User \"ann\" cannot impersonate resource \"users\" in API group \"\" at the cluster scope";
    assert_eq!((code, message(&status)), (403, want));
    for headers in [
        "Impersonate-Group: dev\r\n",
        "Impersonate-User: bob\r\nImpersonate-Extra-Scope: all\r\n",
    ] {
        assert_eq!(send(&world, (ADMIN, headers), what, &review).await.0, 400);
    }
}

#[tokio::test]
async fn reviews_answer_for_the_sender_and_for_others() {
    let world = World::start_for_users().await;
    give(&world, "view", "ann").await;
    until(&world, "ann", PODS, 200).await;
    let base = "/apis/authorization.k8s.io/v1";
    let spec = json!({"user": "ann", "resourceAttributes": {"verb": "get", "resource": "pods", "namespace": "shop"}});
    let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec});
    let what = format!("POST {base}/subjectaccessreviews");
    let (code, answered) = request(&world, ADMIN, &what, &review).await;
    let reason =
        "RBAC: allowed by RoleBinding \"view-ann/shop\" of ClusterRole \"view\" to User \"ann\"";
    assert_eq!(
        (code, &answered["status"]),
        (201, &json!({"allowed": true, "reason": reason}))
    );
    assert_eq!(request(&world, "ann", &what, &review).await.0, 403);
    let local = format!("POST {base}/namespaces/other/localsubjectaccessreviews");
    assert_eq!(request(&world, ADMIN, &local, &review).await.0, 400);

    let rules = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview", "spec": {"namespace": "shop"}});
    let what = format!("POST {base}/selfsubjectrulesreviews");
    let (_, answered) = request(&world, "ann", &what, &rules).await;
    let own = json!({"verbs": ["get", "list", "watch"], "apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"]});
    assert!(
        answered["status"]["resourceRules"]
            .as_array()
            .unwrap()
            .contains(&own),
        "{answered}"
    );
    let discovery = &answered["status"]["nonResourceRules"][0];
    assert!(
        discovery["nonResourceURLs"]
            .as_array()
            .unwrap()
            .contains(&json!("/api")),
        "{answered}"
    );
}

#[tokio::test]
async fn a_path_with_an_encoded_slash_in_a_name_is_no_objects_path() {
    let world = World::start_for_users().await;
    let web = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"},
        "spec": {"containers": [{"name": "a", "command": ["x"]}]}});
    let what = "POST /api/v1/namespaces/shop/pods";
    assert_eq!(request(&world, ADMIN, what, &web).await.0, 201);
    let before = world.written().await;
    let apps = "/apis/dormouse.dev/v1alpha1/namespaces";
    // Each user may get what is below /api and /apis but the objects.
    for (method, path) in [
        ("GET", "/api/v1/namespaces/x%2Fy/pods"),
        (
            "GET",
            "/api/v1/namespaces/shop%2Fweb/pods?watch=1&timeoutSeconds=1",
        ),
        ("GET", "/api/v1/namespaces/x%2fy/pods/web"),
        ("GET", "/api/v1/namespaces/shop/pods/x%2Fweb"),
        ("GET", "/api/v1/namespaces/shop%2F/pods/web/log"),
        ("GET", "/api/v1/namespaces/shop/pods/..%2Fshop%2Fweb/status"),
        ("GET", "/api/v1/namespaces/shop/pods/a%2Fb/explain"),
        ("GET", "/api/v1/nodes/a%2Fb"),
        ("GET", &format!("{apps}/x%2Fy/apps/web/explain")),
        ("GET", &format!("{apps}/x%2Fy/apps/web/scale")),
        ("GET", &format!("{apps}/x%2Fy/apps/web/logs")),
        ("GET", &format!("{apps}/x%2Fy/apps/web/wakes")),
        ("POST", "/api/v1/namespaces/x%2Fy/pods"),
        ("POST", "/api/v1/namespaces/shop/pods/x%2Fweb/eviction"),
        ("PUT", "/api/v1/namespaces/shop/pods/x%2Fweb"),
        ("PUT", "/api/v1/namespaces/shop/pods/x%2Fweb/status"),
        ("PATCH", "/api/v1/namespaces/x%2Fy/pods/web"),
        ("PATCH", "/api/v1/namespaces/x%2Fy/pods/web/status"),
        ("APPLY", "/api/v1/namespaces/x%2Fy/pods/web"),
        ("DELETE", "/api/v1/namespaces/x%2Fy/pods/web"),
        ("DELETE", "/apis/dormouse.dev/v1alpha1/usertokens/a%2Fb"),
    ] {
        let others = if method == "GET" { 404 } else { 403 };
        for (user, want) in [("ann", others), (ADMIN, 404)] {
            let answered = send(&world, (user, ""), (method, path), &web).await;
            assert_eq!(answered.0, want, "{user} {method} {path}: {}", answered.1);
        }
    }
    assert_eq!(world.written().await, before);
}

#[tokio::test]
async fn without_authentication_web_pages_are_refused() {
    let world = World::start().await;
    let what = ("POST", "/apis/dormouse.dev/v1alpha1/namespaces/shop/apps");
    let body = manifest("web");
    for headers in ["Origin: https://evil.example\r\n", "Origin: null\r\n"] {
        let (code, status) = send(&world, ("", headers), what, &body).await;
        assert!(
            code == 403 && message(&status).contains("web pages"),
            "{status}"
        );
    }
    let rebound = format!("http://evil.example{}", what.1);
    let (code, status) = send(&world, ("", ""), ("POST", &rebound), &body).await;
    assert!(
        code == 403 && message(&status).contains("IP addresses"),
        "{status}"
    );
    assert_eq!(world.written().await, Vec::<String>::new());
    let own = "Origin: http://localhost\r\n";
    assert_eq!(send(&world, ("", own), what, &body).await.0, 201);
    let users = World::start_for_users().await;
    let other = "Origin: https://evil.example\r\n";
    assert_eq!(send(&users, (ADMIN, other), what, &body).await.0, 201);
}
