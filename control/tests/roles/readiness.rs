//! `/readyz` by role: each role that does not work is red by its name, with the reason.

use nix::sys::signal::{self, Signal};
use nix::unistd::Pid;
use tokio::process::{Child, Command};

use crate::world::{World, dormouse, in_namespace, kill, page, until};

const API: &str = "[::1]:6443";

/// The status and the text of `/readyz` with these parameters.
async fn readyz(path: &str) -> (bool, String) {
    let page = page(API, path).await.unwrap_or_default();
    let (head, body) = page.split_once("\r\n\r\n").unwrap_or_default();
    (head.contains("200 OK"), body.to_owned())
}

async fn until_line(line: &str) {
    until(line, async || {
        readyz("/readyz?verbose").await.1.contains(line)
    })
    .await;
}

async fn until_ready() {
    until("all roles are ready", async || {
        readyz("/readyz").await == (true, "ok".to_owned())
    })
    .await;
}

fn send(process: &Child, signal: Signal) {
    let id = i32::try_from(process.id().unwrap()).unwrap();
    signal::kill(Pid::from_raw(id), signal).unwrap();
}

#[test]
fn all_roles_in_one_process_are_ready_and_each_has_a_line() {
    in_namespace(async || {
        let world = World::new().await;
        let _control = world.up("control", &[]);
        until_ready().await;
        let lines: String = ["ping", "store", "scheduler", "apps", "activator", "fleet"]
            .map(|name| format!("[+]{name} ok\n"))
            .concat();
        let passed = lines + "readyz check passed\n";
        assert_eq!(readyz("/readyz?verbose").await, (true, passed));
        assert_eq!(readyz("/readyz/store").await, (true, "ok".to_owned()));
        assert!(!readyz("/readyz/other").await.0);
    });
}

#[test]
fn control_is_not_ready_while_no_activator_is_attached() {
    in_namespace(async || {
        let world = World::new().await;
        let _control = world.control().await;
        until_line("[-]activator failed: no activator is attached").await;
        assert!(!readyz("/readyz").await.0);
        assert!(readyz("/readyz?exclude=activator").await.0);
        assert!(readyz("/livez").await.0);
        let activator = world.activator().await;
        until_ready().await;
        kill(activator).await;
        until_line("[-]activator failed: no activator is attached").await;
    });
}

#[test]
fn control_is_not_ready_while_the_scheduler_does_not_answer() {
    in_namespace(async || {
        let world = World::new().await;
        let _control = world.up("control", &["--without", "scheduler"]);
        until_line("[-]scheduler failed: ").await;
        let scheduler = dormouse(&["scheduler"]).spawn().unwrap();
        until_ready().await;
        send(&scheduler, Signal::SIGSTOP);
        until_line("[-]scheduler failed: no answer within 2 s").await;
        send(&scheduler, Signal::SIGCONT);
        until_ready().await;
        kill(scheduler).await;
        until_line("[-]scheduler failed: ").await;
    });
}

#[test]
fn control_is_not_ready_while_the_store_does_not_answer() {
    in_namespace(async || {
        let world = World::new().await;
        let store = dormouse(&["store"]).spawn().unwrap();
        let _control = world.up("control", &["--without", "store"]);
        until_ready().await;
        send(&store, Signal::SIGSTOP);
        until_line("[-]store failed: no answer within 2 s").await;
        until_line("[-]fleet failed: the store does not confirm the epoch").await;
        send(&store, Signal::SIGCONT);
        until_ready().await;
    });
}

/// A process that gets an error from writes above the limit, as on a full disk.
fn with_full_disk(command: &Command) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", "trap '' XFSZ; ulimit -f 128; exec \"$0\" \"$@\""]);
    shell.arg(command.as_std().get_program());
    shell.args(command.as_std().get_args()).kill_on_drop(true);
    shell.env("DORMOUSE_LOG", "off");
    shell
}

async fn until_the_store_cannot_write() {
    let mut client = etcd_client::Client::connect(["http://[::1]:2379"], None)
        .await
        .unwrap();
    until("the disk is full", async || {
        client.put("key", vec![b'v'; 8_192], None).await.is_err()
    })
    .await;
    until_line("[-]store failed: ").await;
    let (ready, text) = readyz("/readyz").await;
    assert!(!ready && text.contains("failed to write"), "{text}");
}

#[test]
fn control_is_not_ready_when_its_store_cannot_write() {
    in_namespace(async || {
        let world = World::new().await;
        let up = world.up_command("control", &["--insecure"]);
        let _control = with_full_disk(&up).spawn().unwrap();
        until_ready().await;
        until_the_store_cannot_write().await;
    });
}

#[test]
fn control_is_not_ready_when_an_external_store_cannot_write() {
    in_namespace(async || {
        let world = World::new().await;
        let mut store = dormouse(&["store", "--data-dir"]);
        store.arg(world.folder.path().join("store"));
        let _store = with_full_disk(&store).spawn().unwrap();
        let _control = world.up("control", &["--without", "store"]);
        until_ready().await;
        until_the_store_cannot_write().await;
    });
}
