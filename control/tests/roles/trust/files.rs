//! `dormouse up` with the certificate of its ports in files, as cert-manager writes them, and flags that are refused at the start.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use dormouse_fleet::join;
use dormouse_trust::{Authority, Identity, Validity, folder};
use tokio::time::timeout;

use super::{Trusted, open, output};
use crate::world::{TIMEOUT, World, ended, in_namespace};

/// The files of cert-manager: links into a folder that is swapped.
struct Files {
    folder: PathBuf,
    authority: Authority,
}

impl Files {
    fn new(world: &World) -> Self {
        let folder = world.folder.path().join("certificates");
        folder::create_folder(&folder).unwrap();
        let authority = Authority::create(SystemTime::now()).unwrap();
        let files = Self { folder, authority };
        let key = files.path("ca.key");
        folder::keep_secret(&key, &files.authority.key_pem()).unwrap();
        fs::write(files.path("ca.crt"), files.authority.certificate_pem()).unwrap();
        for name in ["tls.crt", "tls.key"] {
            symlink(Path::new("..data").join(name), files.path(name)).unwrap();
        }
        files
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Publishes a certificate for `::1` and this name, by which it is known.
    fn publish(&self, name: &str) {
        let identity = Identity::control("up").unwrap();
        let validity = Validity::issued(SystemTime::now(), Duration::from_hours(1), None);
        let names = ["::1".to_owned(), name.to_owned()];
        let issued = self.authority.server(&identity, &names, validity).unwrap();
        let fresh = self.path(&format!("..{name}"));
        folder::create_folder(&fresh).unwrap();
        fs::write(fresh.join("tls.crt"), issued.chain_pem()).unwrap();
        folder::keep_secret(&fresh.join("tls.key"), &issued.key_pem()).unwrap();
        let link = self.path("..data_tmp");
        symlink(&fresh, &link).unwrap();
        fs::rename(link, self.path("..data")).unwrap();
    }

    fn flags(&self) -> Vec<String> {
        let flags = [
            ("--ca-cert", "ca.crt"),
            ("--ca-key", "ca.key"),
            ("--cert-file", "tls.crt"),
            ("--key-file", "tls.key"),
        ];
        let flags = flags.map(|(flag, name)| {
            [
                flag.to_owned(),
                self.path(name).to_str().unwrap().to_owned(),
            ]
        });
        flags.concat()
    }

    /// The certificate that the API shows.
    async fn shown(&self) -> String {
        let ca = self.path("ca.crt");
        let (_, text) = output(
            "sh",
            &[
                "-c",
                "openssl s_client -connect '[::1]:6443' -CAfile \"$0\" -verify_return_error </dev/null 2>/dev/null | openssl x509 -noout -ext subjectAltName",
                ca.to_str().unwrap(),
            ],
        )
        .await;
        text
    }
}

#[test]
fn a_certificate_in_files_is_used_by_the_next_connection_and_streams_go_on() {
    in_namespace(async || {
        let world = World::new().await;
        let files = Files::new(&world);
        files.publish("first.example");
        let flags = files.flags();
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let mut control = Trusted::start_in(world, &flags, &files.path("ca.crt"), |_, _| ()).await;
        let line = control.line(&["--node", "a"]).await;
        let joined = join::join(&line, "a").await.unwrap();
        let mut stream = open(&joined, "a").await.unwrap();
        assert!(files.shown().await.contains("first.example"));

        files.publish("second.example");
        assert!(files.shown().await.contains("second.example"));
        // A process that joins knows the authority by its hash only.
        let line = control.line(&["--node", "b"]).await;
        let other = join::join(&line, "b").await.unwrap();
        open(&other, "b").await.unwrap();
        // Half of a pair, and what no client would accept.
        let key = fs::read(files.path("tls.key")).unwrap();
        fs::write(files.path("tls.key"), &key[..key.len() / 2]).unwrap();
        for _ in 0..3 {
            assert!(files.shown().await.contains("second.example"));
        }
        fs::write(files.path("tls.key"), &key).unwrap();
        assert!(files.shown().await.contains("second.example"));
        let other = Authority::create(SystemTime::now()).unwrap();
        fs::write(files.path("tls.crt"), other.certificate_pem()).unwrap();
        assert!(files.shown().await.contains("second.example"));
        files.publish("third.example");
        assert!(files.shown().await.contains("third.example"));

        let idle = async { while stream.receive().await.is_ok() {} };
        let ended_early = timeout(Duration::from_millis(200), idle).await;
        assert!(ended_early.is_err(), "the stream has ended");
        control.process.start_kill().unwrap();
        ended(control.process).await;
        let log = fs::read_to_string(control.world.folder.path().join("up.log")).unwrap();
        let warnings = log
            .lines()
            .filter(|line| line.contains("cannot be used: the previous certificate is used on"));
        let warnings: Vec<&str> = warnings.collect();
        assert_eq!(warnings.len(), 2, "{log}");
        assert!(warnings[0].contains("tls.key"), "{log}");
        assert!(warnings[1].contains("not one of a server at ::1"), "{log}");
    });
}

/// Fails unless `dormouse up` ends with an error that has all of these parts.
async fn refused(world: &World, flags: &[&str], parts: &[&str]) {
    let process = world.up_command("control", flags).spawn().unwrap();
    let (status, log) = ended(process).await;
    assert!(!status.success(), "{flags:?}: {log}");
    for part in parts {
        assert!(log.contains(part), "{flags:?}: {log}");
    }
}

#[test]
fn files_and_names_that_make_no_server_are_refused_at_the_start() {
    in_namespace(async || {
        let world = World::new().await;
        let files = Files::new(&world);
        let flags = files.flags();
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        refused(&world, &flags, &["cannot read", "tls.crt"]).await;
        files.publish("first.example");
        let other = [&flags[..], &["--address", crate::node::POD]].concat();
        refused(
            &world,
            &other,
            &["not one of a server at", crate::node::POD],
        )
        .await;
        let embedded = &flags[4..];
        refused(&world, embedded, &["not one of a server at ::1", "tls.crt"]).await;
        let authority = &flags[..4];
        fs::write(files.path("ca.crt"), "-----BEGIN CERTIFICATE-----\nMIIB").unwrap();
        refused(&world, authority, &["ca.crt", "cut off"]).await;
        fs::copy(files.path("tls.crt"), files.path("ca.crt")).unwrap();
        refused(
            &world,
            authority,
            &["ca.crt", "both files must be replaced together"],
        )
        .await;
        for san in ["a b", "https://control", "[::1]", ""] {
            refused(
                &world,
                &["--tls-san", san],
                &["--tls-san", "write a DNS name or an address"],
            )
            .await;
        }
    });
}

/// The permissions of a file or folder.
fn mode(path: &Path) -> u32 {
    use std::os::unix::fs::PermissionsExt;
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn what_a_control_plane_writes_is_its_owners_also_with_an_open_umask() {
    in_namespace(async || {
        let world = World::new().await;
        let data = world.folder.path().join("control");
        let up = world.up_command("control", &[]);
        let up = up.as_std();
        let mut command = tokio::process::Command::new("sh");
        command.args(["-c", "umask 0; exec \"$0\" \"$@\""]);
        command.arg(up.get_program()).args(up.get_args());
        command
            .stderr(std::process::Stdio::null())
            .kill_on_drop(true);
        let _control = command.spawn().unwrap();
        let kubeconfig = data.join("pki/admin.kubeconfig");
        let wal = || fs::read_dir(&data).into_iter().flatten().flatten();
        timeout(TIMEOUT, async {
            while !kubeconfig.exists() || wal().filter(|one| one.path().is_file()).count() < 2 {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await
        .unwrap();
        for folder in ["", "pki"] {
            assert_eq!(mode(&data.join(folder)), 0o700, "{folder}");
        }
        for secret in ["pki/ca.key", "pki/admin.kubeconfig"] {
            assert_eq!(mode(&data.join(secret)), 0o600, "{secret}");
        }
        for file in wal().map(|one| one.path()).filter(|path| path.is_file()) {
            assert_eq!(mode(&file), 0o600, "{}", file.display());
        }
    });
}
