//! What runtimes send, right and wrong.

use serde_json::json;

use super::*;

fn environment() -> Environment {
    Environment {
        container_id: "c1".into(),
        netns: "/run/netns/c1".into(),
        ifname: "eth0".into(),
        ..Environment::default()
    }
}

fn conf(more: &Value) -> Value {
    let mut conf = json!({"cniVersion": "1.1.0", "name": "pods", "type": "dormouse"});
    for (key, value) in more.as_object().unwrap() {
        conf[key] = value.clone();
    }
    conf
}

fn parse(command: Command, more: &Value) -> Result<Invocation, CniError> {
    Invocation::parse(command, environment(), conf(more).to_string().as_bytes())
}

#[track_caller]
fn refused(result: Result<Invocation, CniError>, code: u32, part: &str) {
    let error = result.unwrap_err();
    assert_eq!(error.code, code, "{error}");
    assert!(error.msg.contains(part), "{error}");
}

#[test]
fn a_plain_add_uses_the_defaults() {
    let invocation = parse(Command::Add, &json!({})).unwrap();
    assert_eq!(invocation.network, "pods");
    assert_eq!(invocation.socket, PathBuf::from("/run/dormouse/agent.sock"));
    assert_eq!(invocation.state_dir, PathBuf::from("/var/lib/dormouse"));
    assert_eq!((invocation.address, invocation.valid), (None, None));
}

#[test]
fn missing_variables_are_all_named() {
    let stdin = conf(&json!({})).to_string();
    let parse =
        |command| Invocation::parse(command, Environment::default(), stdin.as_bytes()).map(|_| ());
    let error = parse(Command::Add).unwrap_err();
    assert_eq!(error.code, 4);
    assert!(
        error
            .msg
            .ends_with("CNI_CONTAINERID, CNI_NETNS, CNI_IFNAME"),
        "{error}"
    );
    let error = parse(Command::Del).unwrap_err();
    assert!(
        error.msg.ends_with("CNI_CONTAINERID, CNI_IFNAME"),
        "{error}"
    );
    parse(Command::Status).unwrap();
}

#[test]
fn bad_ids_and_interface_names_are_refused_by_their_variable() {
    let stdin = conf(&json!({})).to_string();
    let with = |environment| Invocation::parse(Command::Add, environment, stdin.as_bytes());
    for id in ["../x", "-a", "a b", &"a".repeat(129)] {
        refused(
            with(Environment {
                container_id: id.into(),
                ..environment()
            }),
            4,
            "CNI_CONTAINERID",
        );
    }
    for name in [".", "..", "a/b", "a:b", "a b", "sixteen-bytes-xx"] {
        refused(
            with(Environment {
                ifname: name.into(),
                ..environment()
            }),
            4,
            "CNI_IFNAME",
        );
    }
}

#[test]
fn bad_configurations_are_refused_by_their_field() {
    let parse_text = |text: &str| Invocation::parse(Command::Add, environment(), text.as_bytes());
    refused(parse_text("{"), 6, "no JSON object");
    refused(parse_text("[]"), 6, "no JSON object");
    refused(
        parse_text(r#"{"cniVersion":"1.1.0","type":"dormouse"}"#),
        7,
        "`name`",
    );
    refused(
        parse_text(r#"{"cniVersion":"1.1.0","name":"pods"}"#),
        7,
        "`type`",
    );
    refused(parse(Command::Add, &json!({"name": 3})), 6, "`name`");
    refused(parse(Command::Add, &json!({"name": "a b"})), 7, "`name`");
    refused(
        parse(Command::Add, &json!({"cniVersion": "2.0.0"})),
        1,
        "2.0.0",
    );
    refused(
        parse(Command::Add, &json!({"socket": "agent.sock"})),
        7,
        "`socket`",
    );
    refused(
        parse(Command::Add, &json!({"ipMasq": true})),
        2,
        "`ipMasq` with value true",
    );
    refused(
        parse(Command::Add, &json!({"ipam": {"type": "host-local"}})),
        2,
        "`ipam`",
    );
    let ports = json!({"runtimeConfig": {"portMappings": [{"hostPort": 80}]}});
    refused(parse(Command::Add, &ports), 2, "runtimeConfig.portMappings");
    refused(parse(Command::Check, &json!({})), 7, "prevResult");
}

#[test]
fn commands_need_the_version_that_brought_them() {
    refused(
        parse(Command::Check, &json!({"cniVersion": "0.3.1"})),
        1,
        "CHECK needs cniVersion 0.4.0",
    );
    refused(
        parse(Command::Gc, &json!({"cniVersion": "1.0.0"})),
        1,
        "GC needs",
    );
    refused(
        parse(Command::Status, &json!({"cniVersion": ""})),
        1,
        "STATUS needs",
    );
}

#[test]
fn garbage_collection_refuses_a_missing_list_and_tells_null_from_empty() {
    refused(
        parse(Command::Gc, &json!({})),
        7,
        "cni.dev/valid-attachments",
    );
    let key = "cni.dev/valid-attachments";
    assert_eq!(parse(Command::Gc, &json!({key: null})).unwrap().valid, None);
    assert_eq!(
        parse(Command::Gc, &json!({key: []})).unwrap().valid,
        Some(vec![])
    );
    let one = json!([{"containerID": "c1", "ifname": "eth0"}]);
    let kept = Some(vec![("c1".to_owned(), "eth0".to_owned())]);
    assert_eq!(parse(Command::Gc, &json!({key: one})).unwrap().valid, kept);
    assert_eq!(
        parse(Command::Gc, &json!({"cni.dev/attachments": one}))
            .unwrap()
            .valid,
        kept
    );
    refused(
        parse(Command::Gc, &json!({key: [{"containerID": "c1"}]})),
        6,
        key,
    );
}

#[test]
fn a_requested_address_is_taken_from_the_first_place_that_has_one() {
    let ips = |address: &str| json!([address]);
    let all = json!({
        "runtimeConfig": {"ips": ips("2001:db8::10/128")},
        "args": {"cni": {"ips": ips("2001:db8::11")}},
    });
    let mut environment = environment();
    environment.args = "IgnoreUnknown=1;IP=2001:db8::12;K8S_POD_NAME=a".into();
    let address = |more: &Value| {
        let stdin = conf(more).to_string();
        Invocation::parse(Command::Add, environment.clone(), stdin.as_bytes()).map(|i| i.address)
    };
    let some = |text: &str| Some(text.parse().unwrap());
    assert_eq!(address(&all).unwrap(), some("2001:db8::10"));
    assert_eq!(
        address(&json!({"args": all["args"]})).unwrap(),
        some("2001:db8::11")
    );
    assert_eq!(address(&json!({})).unwrap(), some("2001:db8::12"));
    for (ips, code) in [
        (json!(["10.0.0.1"]), 7),
        (json!(["2001:db8::10/64"]), 7),
        (json!(["2001:db8::10", "2001:db8::11"]), 2),
        (json!("2001:db8::10"), 6),
    ] {
        assert_eq!(
            address(&json!({"runtimeConfig": {"ips": ips}}))
                .unwrap_err()
                .code,
            code
        );
    }
}

#[test]
fn an_error_answers_in_the_version_of_the_configuration_if_it_has_one() {
    assert_eq!(
        version_for_errors(br#"{"cniVersion":"0.4.0"}"#),
        SpecVersion::V0_4_0
    );
    assert_eq!(version_for_errors(b"garbage"), SpecVersion::V1_1_0);
}

proptest::proptest! {
    #[test]
    fn no_input_makes_it_panic(stdin: Vec<u8>, id: String, ifname: String) {
        let environment = Environment { container_id: id, ifname, ..environment() };
        for command in [Command::Add, Command::Gc] {
            let _ = Invocation::parse(command, environment.clone(), &stdin);
        }
    }
}
