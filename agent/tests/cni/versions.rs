//! The version of the specification that runtimes select from the shipped network configuration, and the plugin's answers in it.
//!
//! A runtime selects the highest version of `cniVersion` and `cniVersions` that its library knows (specification 1.1.0, "version
//! considerations"); libraries from before 1.1.0 read `cniVersion` only. It uses STATUS and GC from 1.1.0 on.

use dormouse_rig::Call;
use serde_json::{Value, json};

use crate::node::Node;
use crate::plugin::Attach as _;

const SHIPPED: &str = include_str!("../../../deploy/cni/10-dormouse.conflist");
const VALID: &str = "cni.dev/valid-attachments";

type Version = [u32; 3];

/// The library of a runtime.
struct Library {
    /// The runtimes that have it.
    of: &'static str,
    /// The newest version that it knows.
    newest: Version,
    /// It reads `cniVersions`.
    reads_list: bool,
    /// The version that it must select.
    selects: &'static str,
}

const LIBRARIES: [Library; 4] = [
    Library {
        of: "libcni 1.1: containerd 1.6 and 1.7, podman 4",
        newest: [1, 0, 0],
        reads_list: false,
        selects: "1.0.0",
    },
    Library {
        of: "libcni from 1.2 on: containerd 2, CRI-O",
        newest: [1, 1, 0],
        reads_list: true,
        selects: "1.1.0",
    },
    Library {
        of: "a library that knows a later version",
        newest: [2, 0, 0],
        reads_list: true,
        selects: "1.1.0",
    },
    Library {
        of: "a library that reads the list and knows no more than 1.0.0",
        newest: [1, 0, 0],
        reads_list: true,
        selects: "1.0.0",
    },
];

impl Library {
    /// The version that it selects from a configuration.
    fn select(&self, list: &Value) -> String {
        let listed = list["cniVersions"].as_array().filter(|_| self.reads_list);
        let all = listed.into_iter().flatten().chain([&list["cniVersion"]]);
        let known = all
            .map(|version| version.as_str().unwrap())
            .filter(|version| number(version) <= self.newest);
        known
            .max_by_key(|version| number(version))
            .unwrap()
            .to_owned()
    }
}

fn number(version: &str) -> Version {
    let parts: Vec<u32> = version
        .split('.')
        .map(|part| part.parse().unwrap())
        .collect();
    parts.try_into().unwrap()
}

/// The configuration that a library passes to the plugin of the list: the plugin's own one, with the list's name and the selected
/// version.
fn configuration(list: &Value, version: &str, node: &Node) -> Value {
    let mut conf = list["plugins"][0].clone();
    conf["name"] = list["name"].clone();
    conf["cniVersion"] = version.into();
    conf["socket"] = node.socket().to_str().unwrap().into();
    conf["stateDir"] = node.state_dir().to_str().unwrap().into();
    conf
}

#[test]
fn each_runtime_selects_a_version_in_which_the_plugin_answers() {
    let list: Value = serde_json::from_str(SHIPPED).unwrap();
    let node = Node::start();
    for (place, library) in LIBRARIES.iter().enumerate() {
        let version = library.select(&list);
        assert_eq!(version, library.selects, "{}", library.of);
        let conf = configuration(&list, &version, &node);
        let call = |command| Call::new(command, conf.clone()).on(node.netns().path());
        let supported = call("VERSION").ok()["supportedVersions"].clone();
        let supported = supported.as_array().unwrap();
        assert!(supported.contains(&json!(version)), "{}", library.of);

        let id = format!("pod{place}");
        let pod = node.pod(&id);
        let result = call("ADD").attachment(&id, pod.path()).ok();
        assert_eq!(result["cniVersion"], version, "{}", library.of);
        let check = call("CHECK").attachment(&id, pod.path());
        assert_eq!(check.conf(&json!({"prevResult": result})).ok(), Value::Null);
        let table = node.table();
        let valid = json!({VALID: [{"containerID": id, "ifname": "eth0"}]});
        if number(&version) >= [1, 1, 0] {
            assert_eq!(call("STATUS").ok(), Value::Null);
            assert_eq!(call("GC").conf(&valid).ok(), Value::Null);
            assert_eq!(node.table(), table, "a valid attachment stays");
            assert_eq!(call("GC").conf(&json!({VALID: []})).ok(), Value::Null);
            assert!(node.table().is_empty(), "{}", library.of);
        } else {
            for command in ["STATUS", "GC"] {
                call(command)
                    .conf(&valid)
                    .fails(1, "needs cniVersion 1.1.0");
            }
        }
        let del = call("DEL").attachment(&id, pod.path());
        assert_eq!(del.ok(), Value::Null, "{}", library.of);
        assert!(node.table().is_empty());
    }
}
