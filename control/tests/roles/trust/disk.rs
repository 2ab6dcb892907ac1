//! Renewal while the disk is full: the new certificates are used, the previous files stay, and are replaced once there is room.

use std::cell::RefCell;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::rc::Rc;
use std::time::{Duration, SystemTime};

use dormouse_trust::folder;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Child;
use tokio::time::{Instant, sleep};

use super::processes::ACTIVATOR;
use super::{READY, Trusted, output};
use crate::world::{World, in_namespace, kill, until};

/// Life of the certificates, and longer than two of them.
const LIFE: &str = "8s";
const LIVES: Duration = Duration::from_secs(20);

/// A file system of 64 KiB.
struct Disk(PathBuf);

impl Disk {
    async fn mount(path: PathBuf) -> Self {
        folder::create_folder(&path).unwrap();
        let at = path.to_str().unwrap();
        let args = ["-t", "tmpfs", "-o", "size=64k,mode=700", "tmpfs", at];
        let (ok, said) = output("mount", &args).await;
        assert!(ok, "run as root: {said}");
        Self(path)
    }

    fn fill(&self) {
        let mut filler = fs::File::create(self.0.join("filler")).unwrap();
        while filler.write_all(&[0; 512]).is_ok() {}
    }

    fn free(&self) {
        fs::remove_file(self.0.join("filler")).unwrap();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let unmount = std::process::Command::new("umount")
            .arg("-l")
            .arg(&self.0)
            .status();
        assert!(unmount.is_ok());
    }
}

/// For longer than two lives of certificates, all roles are ready.
async fn goes_on(control: &Trusted) {
    let ca = control.pki("ca.crt");
    let begun = Instant::now();
    while begun.elapsed() < LIVES {
        let (_, said) = output("curl", &["-gs", "--cacert", &ca, READY]).await;
        assert_eq!(said, "ok");
        sleep(Duration::from_millis(100)).await;
    }
}

/// Reads the log of a process while it runs: control logs each attempt of the world's node, whose stream is plain text, and a full pipe would stop it.
fn log_of(process: &mut Child) -> Rc<RefCell<String>> {
    let log = Rc::new(RefCell::new(String::new()));
    let (mut lines, read) = (
        BufReader::new(process.stderr.take().unwrap()).lines(),
        Rc::clone(&log),
    );
    tokio::task::spawn_local(async move {
        while let Ok(Some(line)) = lines.next_line().await {
            read.borrow_mut().push_str(&line);
        }
    });
    log
}

/// A control plane in this world, with certificates of a short life.
async fn start(world: World) -> Trusted {
    let authority = world.folder.path().join("control/pki/ca.crt");
    Trusted::start_in(
        world,
        &["--certificate-life", LIFE],
        &authority,
        |control, _| {
            control.stderr(Stdio::piped());
        },
    )
    .await
}

fn is_valid(path: &Path) -> bool {
    let kept = folder::load(path, path).unwrap().validity();
    kept.is_some_and(|kept| kept.contains(SystemTime::now()))
}

#[test]
fn a_role_whose_disk_is_full_goes_on_and_keeps_its_certificate_once_there_is_room() {
    in_namespace(async || {
        let world = World::new().await;
        let disk = Disk::mount(world.folder.path().join("roles/activator")).await;
        let mut control = start(world).await;
        log_of(&mut control.process);
        let line = control.role_line("activator").await;
        let mut activator = control.role(&ACTIVATOR, &["--join", &line]);
        let log = log_of(&mut activator);
        control.until_ready().await;
        disk.fill();
        let path = disk.0.join("identity/role.pem");
        let kept = fs::read(&path).unwrap();
        goes_on(&control).await;
        assert!(fs::read(&path).unwrap() == kept, "the previous file stays");
        assert!(!is_valid(&path));
        disk.free();
        until("the certificate is kept", async || is_valid(&path)).await;
        kill(activator).await;
        for part in ["identity", "No space left on device", "it is tried again"] {
            assert!(log.borrow().contains(part), "{}", log.borrow());
        }
        let again = control.role(&ACTIVATOR, &[]);
        control.until_ready().await;
        kill(again).await;
    });
}

#[test]
fn a_control_plane_whose_disk_is_full_goes_on_and_writes_its_kubeconfig_once_there_is_room() {
    in_namespace(async || {
        let world = World::new().await;
        let disk = Disk::mount(world.folder.path().join("control/pki")).await;
        let mut control = start(world).await;
        let log = log_of(&mut control.process);
        let line = control.role_line("activator").await;
        let activator = control.role(&ACTIVATOR, &["--join", &line]);
        control.until_ready().await;
        disk.fill();
        let path = control.pki("admin.kubeconfig");
        let kept = fs::read(&path).unwrap();
        goes_on(&control).await;
        assert!(fs::read(&path).unwrap() == kept, "the previous file stays");
        disk.free();
        until("the kubeconfig is written", async || {
            control.admin(&["token", "list"]).await.0
        })
        .await;
        kill(activator).await;
        for part in ["admin.kubeconfig", "No space left on device"] {
            assert!(log.borrow().contains(part), "{}", log.borrow());
        }
    });
}
