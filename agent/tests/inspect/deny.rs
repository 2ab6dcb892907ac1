//! `deny` as a user runs it, and the watched file: what is denied, by real packets and by explanations.

use std::fs;
use std::net::Ipv6Addr;
use std::path::Path;

use dormouse_agent_datapath::{Pinned, Verdict};
use dormouse_rig::address::NODE;
use dormouse_rig::frame::{SYN, tcp};
use dormouse_rig::node::FAR_END;
use dormouse_rig::wait;
use dormouse_world::PacketSocket;

use super::node::Inspected;
use super::{CLIENT, with_place};

/// Whether a packet of this source would be dropped.
fn is_denied(place: &Inspected<'_>, source: &str) -> bool {
    let (screen, _) = place.screen(&format!("explain flow {source} {NODE} tcp/22"));
    screen.contains("(DM6041)")
}

/// Sends a packet of the client to the node, and waits until it was dropped. The agent may be dead.
fn assert_dropped(place: &Inspected<'_>) {
    let dropped = || {
        let stats = Pinned::open(place.node.bpffs()).unwrap().stats().unwrap();
        let denied = stats.iter().find(|(it, _)| *it == Verdict::DroppedDenied);
        denied.unwrap().1
    };
    let before = dropped();
    let source: Ipv6Addr = CLIENT.parse().unwrap();
    let far = PacketSocket::open(FAR_END).unwrap();
    far.send(&tcp((source, 40_000), (NODE, 22), SYN)).unwrap();
    wait("the packet to be dropped", || dropped() == before + 1);
}

/// Runs `deny` with the socket of this node's agent: its text, and its exit code.
fn deny(place: &Inspected<'_>, change: &str) -> (String, i32) {
    let socket = place.node.home().socket();
    place.said(&format!("deny {change} --socket {}", socket.display()))
}

fn listed(place: &Inspected<'_>) -> String {
    let state = place.node.home().state_dir();
    let (screen, code) = place.screen(&format!("deny list --state-dir {}", state.display()));
    assert_eq!(code, 0);
    screen
}

/// Writes a file as an editor does that replaces it by another one.
fn replace(path: &Path, text: &str) {
    let fresh = path.with_extension("new");
    fs::write(&fresh, text).unwrap();
    fs::rename(fresh, path).unwrap();
}

#[test]
fn commands_deny_sources_until_they_remove_them_also_while_no_agent_runs() {
    with_place(|place| {
        let agent = place.agent();
        assert!(!is_denied(place, CLIENT));
        assert_eq!(
            deny(place, &format!("add {CLIENT} 10.9.0.0/16 --for 1h")).1,
            0
        );
        assert!(is_denied(place, CLIENT));
        assert_dropped(place);
        let list = listed(place);
        for part in [CLIENT, "10.9.0.0/16", "command", "59m"] {
            assert!(list.contains(part), "{list} lacks {part}");
        }
        let (list, _) = place.said("deny list --state-dir /nowhere");
        for part in ["unknown", "/nowhere", "--state-dir"] {
            assert!(list.contains(part), "{list} lacks {part}");
        }
        let metrics = Inspected::metrics();
        assert!(
            metrics.contains(r#"dormouse_map_entries{map="deny"} 2"#),
            "{metrics}"
        );

        for (wrong, code, part) in [
            ("add ::/0", 2, "all addresses"),
            ("add host", 2, "write 2001:db8:7::/64"),
            ("add 192.0.2.1 --for soon", 2, "10m"),
            ("remove 192.0.2.1", 1, "not denied"),
        ] {
            let (text, ended) = deny(place, wrong);
            assert!(text.contains(part), "{wrong}: {text}");
            assert_eq!(ended, code, "{wrong}: {text}");
        }

        agent.kill();
        assert_dropped(place);
        let (text, code) = deny(place, "remove 10.9.0.0/16");
        assert!(text.contains("no agent answers"), "{text}");
        assert_eq!(code, 3, "{text}");
        let _agent = place.agent();
        assert_dropped(place);
        assert_eq!(deny(place, &format!("remove {CLIENT}")).1, 0);
        assert!(!is_denied(place, CLIENT));
        assert!(!listed(place).contains(CLIENT));
    });
}

#[test]
fn a_file_is_followed_and_what_is_wrong_in_it_is_left_out() {
    with_place(|place| {
        let file = place.node.dir().join("deny.txt");
        let start = || {
            place.agent_with(|command| {
                command.arg("--deny-file").arg(&file);
            })
        };
        let agent = start();
        assert!(!is_denied(place, CLIENT), "there is no file yet");
        fs::write(
            &file,
            "garbage\n2001:db8:77::/64 # attackers\n192.0.2.0/33\n10.9.0.0/16\n",
        )
        .unwrap();
        wait("the file to be in force", || is_denied(place, CLIENT));
        assert_dropped(place);
        let list = listed(place);
        assert!(
            list.contains("2001:db8:77::/64") && list.contains("10.9.0.0/16"),
            "{list}"
        );
        assert!(list.contains("file") && list.contains("never"), "{list}");
        let (text, code) = deny(place, "remove 10.9.0.0/16");
        assert!(text.contains("--deny-file"), "{text}");
        assert_eq!(code, 1);

        replace(&file, "2001:db8:78::/64\n");
        wait("the next file to be in force", || {
            is_denied(place, "2001:db8:78::1")
        });
        assert!(!is_denied(place, CLIENT));

        // A file that is gone changes nothing, whatever commands do, and not for the next agent either.
        fs::remove_file(&file).unwrap();
        assert_eq!(deny(place, &format!("add {CLIENT}")).1, 0);
        assert!(is_denied(place, CLIENT) && is_denied(place, "2001:db8:78::1"));
        agent.kill();
        assert!(is_denied(place, CLIENT) && is_denied(place, "2001:db8:78::1"));
        let _agent = start();
        assert_eq!(deny(place, &format!("remove {CLIENT}")).1, 0);
        assert!(!is_denied(place, CLIENT) && is_denied(place, "2001:db8:78::1"));

        fs::write(&file, "").unwrap();
        wait("the empty file to be in force", || {
            !is_denied(place, "2001:db8:78::1")
        });
    });
}
