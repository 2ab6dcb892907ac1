//! The rights of a pod: what its program prints about itself, and what it is refused.

use std::fs;
use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};

use dormouse_agent::runtime::RuntimeConfig;
use dormouse_agent_logs::tail;
use dormouse_fleet::proto::{PodSpec, PodStatus, pod_status::Phase};
use dormouse_rig::{Node, PATIENCE, on_node};
use serde_json::{Value, json};

use super::{agent, agent_at, config, is_gone, is_ready, spec, stop, visible_folder};

/// The first user of those that pods get.
const OWN_USERS: u32 = 0x7000_0000;

/// The specification with these fields in `spec` and in its container.
fn with(spec: PodSpec, fields: &Value, of_container: &Value) -> PodSpec {
    let mut pod: Value = serde_json::from_slice(&spec.pod).unwrap();
    let add = |object: &mut Value, fields: &Value| {
        let fields = fields.as_object().unwrap().clone();
        object.as_object_mut().unwrap().extend(fields);
    };
    add(&mut pod["spec"], fields);
    add(&mut pod["spec"]["containers"][0], of_container);
    PodSpec {
        pod: pod.to_string().into_bytes(),
        ..spec
    }
}

/// What a shell script prints as a pod.
fn said(node: &Node, config: &RuntimeConfig, pod: PodSpec) -> String {
    let uid = pod.uid.clone();
    agent_at(node, config.clone(), async |agent| {
        agent.runtime.run(pod);
        let ended =
            |status: &PodStatus| [Phase::Succeeded, Phase::Failed].contains(&status.phase());
        let status = agent.until("the end of the pod", ended).await;
        assert_eq!(status.phase(), Phase::Succeeded, "{status:?}");
        let logs = config.logs();
        tokio::time::timeout(PATIENCE, logs.ended(&uid))
            .await
            .unwrap();
        let said = tail(&logs, &uid, 1_000).unwrap();
        agent.runtime.run(stop(&uid));
        agent.until("the pod to be gone", is_gone).await;
        said
    })
}

fn script(uid: &str, script: &str) -> PodSpec {
    spec(uid, &["sh", "-c", script])
}

#[test]
fn a_pod_has_no_rights_on_its_node() {
    on_node(|node| {
        let state = visible_folder();
        let key = state.path().join("key");
        fs::write(&key, "secret").unwrap();
        let config = RuntimeConfig {
            state_dir: state.path().to_owned(),
            ..config(node)
        };
        let looks = format!(
            "exec 2>&1
            echo user $(id -u) $(id -g) $(id -G)
            grep -E '^(Cap...|NoNewPrivs|Seccomp):' /proc/self/status
            echo shell $$, processes $(ls -d /proc/[0-9]*)
            for file in /x /usr/x /etc/x /dev/x /run/x /sys/kernel/x; do touch $file; done
            cat {key}; ls -A /run /var/lib/dormouse /sys/fs/bpf {state}
            touch /tmp/x /dev/shm/x && echo own files $(ls /tmp /dev/shm)
            echo devices $(ls /dev) $(head -c 3 /dev/zero | wc -c)
            echo to stdout > /dev/stdout
            unshare -U true; mount -t tmpfs x /mnt
            echo open $(cd /proc/1/fd && echo *)
            echo host $(hostname), limits $(ulimit -c)
            true",
            key = key.display(),
            state = state.path().display()
        );
        let said = said(node, &config, script("r-1", &looks));
        let user: u32 = said["user ".len()..]
            .split(' ')
            .next()
            .unwrap()
            .parse()
            .unwrap();
        assert!(user >= OWN_USERS, "{said}");
        assert!(
            said.starts_with(&format!("user {user} {user} {user}\n")),
            "{said}"
        );
        for set in ["Inh", "Prm", "Eff", "Bnd", "Amb"] {
            assert!(
                said.contains(&format!("Cap{set}:\t0000000000000000\n")),
                "{said}"
            );
        }
        assert!(said.contains("NoNewPrivs:\t1\nSeccomp:\t2\n"), "{said}");
        assert!(said.contains("shell 1, processes /proc/1"), "{said}");
        for path in ["/x", "/usr/x", "/etc/x", "/dev/x", "/run/x"] {
            let refused = format!("touch: cannot touch '{path}': Read-only file system\n");
            assert!(said.contains(&refused), "{said}");
        }
        assert!(
            !said.contains("secret") && said.contains("/key: No such file"),
            "{said}"
        );
        assert!(said.contains("own files /dev/shm: x /tmp: x\n"), "{said}");
        assert!(
            said.contains("null ptmx pts random shm stderr stdin stdout tty urandom zero 3\n"),
            "{said}"
        );
        assert!(said.contains("\nto stdout\n"), "{said}");
        assert!(
            said.contains("unshare failed: Operation not permitted"),
            "{said}"
        );
        // The last one is the shell's own, a pipe.
        assert!(said.contains("\nopen 0 1 2 3\n"), "{said}");
        assert!(said.contains("host web, "), "{said}");
    });
}

/// Tries the sockets that are given, and all that the pod finds.
const LOOKS_FOR_SOCKETS: &str = "
import os, socket, stat, sys
def tries(family, address):
    try:
        socket.socket(family).connect(address)
        return 'connected'
    except OSError as error:
        return error.strerror
print('agent:', tries(socket.AF_UNIX, sys.argv[1]))
print('abstract:', tries(socket.AF_UNIX, chr(0) + 'dormouse-attacked'))
print('loopback:', tries(socket.AF_INET6, ('::1', 10249)))
for folder, folders, names in os.walk('/'):
    if folder == '/':
        folders[:] = set(folders) - {'proc', 'sys', 'usr', 'work'}
    for path in (os.path.join(folder, name) for name in names):
        if stat.S_ISSOCK(os.lstat(path).st_mode):
            print('found:', path, tries(socket.AF_UNIX, path))
";

#[test]
fn a_pod_reaches_no_socket_of_its_node() {
    on_node(|node| {
        let folder = visible_folder();
        let config = RuntimeConfig {
            socket: folder.path().join("agent.sock"),
            ..config(node)
        };
        let name = SocketAddr::from_abstract_name("dormouse-attacked").unwrap();
        let _abstract = UnixListener::bind_addr(&name).unwrap();
        // As an agent's metrics.
        let _loopback = TcpListener::bind("[::1]:10249").unwrap();
        let socket = config.socket.to_str().unwrap();
        let pod = spec("r-10", &["python3", "-c", LOOKS_FOR_SOCKETS, socket]);
        let said = said(node, &config, pod);
        let refused = "Connection refused";
        let expected =
            format!("agent: No such file or directory\nabstract: {refused}\nloopback: {refused}\n");
        assert!(said.starts_with(&expected), "{said}");
        assert!(!said.contains("connected"), "{said}");
    });
}

#[test]
fn a_pod_has_the_user_and_groups_that_it_asks_for() {
    on_node(|node| {
        let context = json!({ "runAsUser": 1_700_001_234, "supplementalGroups": [1_700_000_077], "fsGroup": 1_700_000_088, "runAsNonRoot": true });
        let fields = json!({ "securityContext": context });
        let container = json!({ "securityContext": { "runAsGroup": 1_700_004_321, "capabilities": { "drop": ["ALL"] } } });
        let pod = script("r-2", "echo $(id -u) $(id -g) $(id -G)");
        let said = said(node, &config(node), with(pod, &fields, &container));
        assert_eq!(
            said,
            "1700001234 1700004321 1700004321 1700000077 1700000088\n"
        );
        let unconfined =
            json!({ "securityContext": { "seccompProfile": { "type": "Unconfined" } } });
        let pod = script("r-7", "grep Seccomp: /proc/self/status");
        let said = self::said(node, &config(node), with(pod, &unconfined, &json!({})));
        assert_eq!(said, "Seccomp:\t0\n");
    });
}

#[test]
fn the_variables_of_a_pod_are_its_own_alone() {
    on_node(|node| {
        // The loader reads the one, and the agent's programs the other.
        let variables = json!({ "env": [
            { "name": "LD_PRELOAD", "value": "/none" }, { "name": "DORMOUSE_LOG", "value": "[" },
        ] });
        let pod = with(script("r-8", "echo $DORMOUSE_LOG"), &json!({}), &variables);
        let said = said(node, &config(node), pod);
        assert!(said.contains("[\n"), "{said}");
        assert_eq!(said.matches("/none").count(), 1, "{said}");
    });
}

#[test]
fn a_pod_does_not_get_a_group_of_its_node() {
    on_node(|node| {
        agent(node, async |agent| {
            // Debian's shadow.
            let fields = json!({ "securityContext": { "supplementalGroups": [42] } });
            agent
                .runtime
                .run(with(script("r-9", "true"), &fields, &json!({})));
            let failed = |status: &PodStatus| status.phase() == Phase::Failed;
            let status = agent.until("the pod to be refused", failed).await;
            assert_eq!(status.reason, "InvalidPod");
            assert!(status.message.contains("securityContext"), "{status:?}");
        });
    });
}

#[test]
fn what_a_pod_is_not_given_is_refused_with_the_field() {
    on_node(|node| {
        agent(node, async |agent| {
            let container = json!({ "securityContext": { "privileged": true } });
            agent
                .runtime
                .run(with(script("r-3", "true"), &json!({}), &container));
            let failed = |status: &PodStatus| status.phase() == Phase::Failed;
            let status = agent.until("a failure", failed).await;
            assert_eq!(status.reason, "InvalidPod");
            let message =
                "spec.containers[0].securityContext.privileged: pods have no capabilities";
            assert_eq!(status.message, message);
            agent.runtime.run(stop("r-3"));
            agent.until("the pod to be gone", is_gone).await;
        });
        node.assert_nothing_is_left("r-3");
    });
}

#[test]
fn a_pod_may_listen_on_a_low_port() {
    on_node(|node| {
        agent(node, async |agent| {
            let server = ["python3", "-m", "http.server", "--bind", "::", "80"];
            let ports = json!({ "ports": [{ "containerPort": 80 }] });
            agent
                .runtime
                .run(with(spec("r-4", &server), &json!({}), &ports));
            agent.until("the pod to be ready", is_ready).await;
            agent.runtime.run(stop("r-4"));
            agent.until("the pod to be gone", is_gone).await;
        });
    });
}

#[test]
fn a_program_without_a_handler_ends_at_once_when_its_pod_is_stopped() {
    on_node(|node| {
        let pod = |uid, program: &str| {
            let grace = json!({ "terminationGracePeriodSeconds": 600 });
            with(script(uid, program), &grace, &json!({ "ports": [] }))
        };
        agent(node, async |agent| {
            agent.runtime.run(pod("r-5", "sleep 1000; true"));
            let runs = |status: &PodStatus| status.phase() == Phase::Running;
            agent.until("the pod to run", runs).await;
            agent.runtime.run(stop("r-5"));
            agent.until("the pod to be gone", is_gone).await;
            // One that has a handler runs it.
            let handler = "trap 'echo bye; exit 0' TERM; echo on; while :; do sleep 0.02; done";
            agent.runtime.run(pod("r-6", handler));
            let logs = config(node).logs();
            tokio::task::block_in_place(|| {
                dormouse_rig::wait("the handler", || {
                    tail(&logs, "r-6", 9).is_ok_and(|said| said == "on\n")
                });
            });
            agent.runtime.run(stop("r-6"));
            agent.until("the pod to be gone", is_gone).await;
            tokio::time::timeout(PATIENCE, logs.ended("r-6"))
                .await
                .unwrap();
            assert_eq!(tail(&logs, "r-6", 9).unwrap(), "on\nbye\n");
        });
        node.assert_nothing_is_left("r-6");
    });
}
