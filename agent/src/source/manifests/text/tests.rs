//! Documents as users and programs write them, and the lines of mistakes.

use super::*;

const SERVICE: &str = "apiVersion: v1\nkind: Service\nmetadata: {name: web, namespace: shop}\nspec:\n  clusterIP: None\n  ports:\n  - port: 80\n    targetPort: http\n";

fn names(parsed: &Parsed) -> Vec<String> {
    parsed.objects.keys().map(ToString::to_string).collect()
}

fn yaml(text: &str) -> Parsed {
    parse("f.yaml", Format::Yaml, text)
}

#[track_caller]
fn check_problem(parsed: &Parsed, document: usize, line: u64, part: &str) {
    let [
        Problem::Malformed {
            document: d,
            line: l,
            what,
            ..
        },
    ] = &*parsed.problems
    else {
        panic!("{:?}", parsed.problems);
    };
    assert_eq!((*d, *l), (document, line), "{what}");
    assert!(what.contains(part), "{what}");
    assert!(!parsed.is_whole);
}

#[test]
fn documents_lists_and_default_namespaces_are_read_and_other_kinds_are_not() {
    let text = format!(
        "# first\n---\n{SERVICE}---\n# nothing\n--- # the node\napiVersion: v1\nkind: Node\nmetadata: {{name: n1, namespace: x}}\n...\n\
         apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: d}}\n---\napiVersion: serving.knative.dev/v1\nkind: Service\n\
         metadata: {{name: other}}\n---\napiVersion: v1\nkind: List\nitems:\n- apiVersion: discovery.k8s.io/v1\n  kind: EndpointSlice\n  \
         addressType: IPv4\n  endpoints: []\n  metadata: {{name: web-1}}\n---\napiVersion: v1\nkind: ServiceList\nitems:\n- metadata: {{name: plain}}\n"
    );
    let parsed = yaml(&text);
    assert_eq!(parsed.problems, []);
    assert!(parsed.is_whole);
    let expected = [
        "Node n1",
        "Service default/plain",
        "Service shop/web",
        "EndpointSlice default/web-1",
    ];
    assert_eq!(names(&parsed), expected);
    let Object::Service(web) = parsed.objects.values().nth(2).unwrap() else {
        panic!();
    };
    let spec = web.spec.as_ref().unwrap();
    assert_eq!(spec.cluster_ip.as_deref(), Some("None"));
}

#[test]
fn json_documents_follow_one_another() {
    let one = r#"{"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"}}"#;
    let text = format!(
        "{one}\n{}\n{{\"apiVersion\": 1",
        one.replace("\"a\"", "\"b\"")
    );
    let parsed = parse("f.json", Format::Json, &text);
    assert_eq!(names(&parsed), ["Service default/a", "Service default/b"]);
    check_problem(&parsed, 3, 3, "EOF");
}

#[test]
fn a_malformed_document_is_reported_with_its_line_and_the_others_are_read() {
    let parsed = yaml(&format!(
        "{SERVICE}---\na: [1\nb: 2\n---\n{}",
        SERVICE.replace("web", "x")
    ));
    assert_eq!(names(&parsed), ["Service shop/web", "Service shop/x"]);
    let [
        Problem::Malformed {
            document: 2, line, ..
        },
    ] = &*parsed.problems
    else {
        panic!("{:?}", parsed.problems);
    };
    assert!((10..=12).contains(line), "{line}");
}

#[test]
fn a_field_of_the_wrong_type_is_reported_with_its_path_and_line() {
    let bad = SERVICE.replace("port: 80", "port: eighty");
    check_problem(
        &yaml(&format!("---\n{SERVICE}---\n{}", bad.replace("web", "x"))),
        2,
        17,
        "spec.ports[0].port: ",
    );
    let item = "- {apiVersion: v1, kind: Node, metadata: {name: a}}\n- {apiVersion: v1, kind: Node, metadata: 7}\n";
    check_problem(
        &yaml(&format!("apiVersion: v1\nkind: List\nitems:\n{item}")),
        1,
        5,
        "metadata: ",
    );
    let text = "{\"apiVersion\": \"v1\",\n\"kind\": \"Service\",\n\"metadata\": {\"name\": 1}}";
    check_problem(
        &parse("f.json", Format::Json, text),
        1,
        1,
        "metadata.name: ",
    );
}

#[test]
fn a_missing_kind_or_name_is_reported() {
    check_problem(
        &yaml("\n# a\nmetadata: {name: x}\n"),
        1,
        3,
        "apiVersion is missing",
    );
    check_problem(&yaml("just text\n"), 1, 1, "apiVersion is missing");
    check_problem(
        &yaml("apiVersion: v1\nkind: Service\n"),
        1,
        1,
        "metadata.name is missing",
    );
}

#[test]
fn of_two_descriptions_in_a_file_the_first_is_used() {
    let parsed = yaml(&format!(
        "{SERVICE}---\n{}",
        SERVICE.replace("None", "10.0.0.1")
    ));
    let loser = "f.yaml, document 2, line 10".to_owned();
    let twice = Problem::Duplicate {
        object: "Service shop/web".to_owned(),
        winner: "f.yaml".to_owned(),
        loser,
    };
    assert_eq!(parsed.problems, [twice]);
    assert!(parsed.is_whole);
}

#[test]
fn many_mistakes_are_counted_not_listed() {
    let parsed = yaml(&"---\nkind: Service\n".repeat(50));
    assert_eq!(parsed.problems.len(), PROBLEMS_MAX + 1);
    let more = Problem::More {
        file: "f.yaml".to_owned(),
        count: 50 - PROBLEMS_MAX,
    };
    assert_eq!(parsed.problems.last(), Some(&more));
}

#[test]
fn aliases_do_not_expand_a_small_file_without_bound() {
    let mut lines = vec!["a0: &a0 [x, x, x, x, x, x, x, x, x, x]".to_owned()];
    for level in 1..9 {
        let before = vec![format!("*a{}", level - 1); 10].join(", ");
        lines.push(format!("a{level}: &a{level} [{before}]"));
    }
    let text = lines.join("\n");
    assert_eq!(yaml(&text).problems.len(), 1);
}

/// Run with `--ignored --release --nocapture`; prints the time for a large cluster's Services.
#[test]
#[ignore = "a measurement"]
fn a_hundred_thousand_services_in_one_file_take_seconds() {
    let services: Vec<String> = (0..100_000)
        .map(|n| {
            SERVICE
                .replace("web", &format!("web-{n}"))
                .replace("None", "10.1.2.3")
        })
        .collect();
    let timed = |what: &str, format: Format, text: &str| {
        let started = std::time::Instant::now();
        let parsed = parse("f", format, text);
        println!(
            "{what}: {} MB in {:?}",
            text.len() / 1_000_000,
            started.elapsed()
        );
        assert_eq!((parsed.objects.len(), parsed.problems.len()), (100_000, 0));
    };
    timed("documents", Format::Yaml, &services.join("---\n"));
    let items: String = services
        .iter()
        .flat_map(|it| {
            [
                "- ".to_owned(),
                it.trim_end().replace('\n', "\n  "),
                "\n".to_owned(),
            ]
        })
        .collect();
    timed(
        "list",
        Format::Yaml,
        &format!("apiVersion: v1\nkind: List\nitems:\n{items}"),
    );
    let values: Vec<Value> = services
        .iter()
        .map(|it| serde_saphyr::from_str(it).unwrap())
        .collect();
    let json = serde_json::json!({"apiVersion": "v1", "kind": "List", "items": values});
    timed("json", Format::Json, &json.to_string());
}
