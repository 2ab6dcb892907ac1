//! Secrets are in no log, error, object, metric, audit event, record of the store or command line: each of these is searched for each secret in the
//! forms in which programs write bytes.

mod core_dump;
mod forms;
mod work;

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use serde_json::Value;
use tokio::process::{Child, Command};

use super::processes::ACTIVATOR;
use super::{Trusted, output};
use crate::world::in_namespace;
use forms::{Secret, found};

/// A file with the log of each process.
const LOGS: [&str; 4] = ["up.log", "scheduler.log", "activator.log", "store.log"];

/// What is searched: texts and files, with a name for each.
#[derive(Default)]
struct Evidence {
    texts: Vec<(String, Vec<u8>)>,
    secrets: Vec<Secret>,
}

impl Evidence {
    fn add(&mut self, name: &str, text: impl Into<Vec<u8>>) {
        self.texts.push((name.to_owned(), text.into()));
    }

    fn add_file(&mut self, path: &Path) {
        let text = fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        self.add(&path.display().to_string(), text);
    }

    /// All files of a folder but the ones that are made for secrets.
    fn add_folder(&mut self, folder: &Path) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_file() {
                self.add_file(&path);
            } else if !path.ends_with("pki") && !path.ends_with("identity") {
                self.add_folder(&path);
            }
        }
    }

    /// The secret of a key in the only file that may have it.
    fn add_key(&mut self, name: &'static str, file: &Path) {
        let key = Secret::of_key(name, &fs::read_to_string(file).unwrap());
        self.add_secret(key, &fs::read(file).unwrap());
    }

    /// A secret that the search finds where it belongs: it would find it elsewhere.
    fn add_secret(&mut self, secret: Secret, place: &[u8]) {
        let place = [(secret.name.to_owned(), place.to_vec())];
        assert_eq!(found(std::slice::from_ref(&secret), &place).len(), 1);
        self.secrets.push(secret);
    }

    fn add_token(&mut self, name: &'static str, token: &str) {
        let (_, secret) = token.trim().rsplit_once('.').unwrap();
        self.add_secret(Secret::of_text(name, secret), token.as_bytes());
    }

    /// Runs a client, whose output is searched.
    async fn run(&mut self, program: &str, args: &[&str]) -> (bool, String) {
        let (ok, said) = output(program, args).await;
        // Without the arguments, which the test itself has chosen.
        self.add(&format!("{program} {}", self.texts.len()), said.clone());
        (ok, said)
    }

    async fn command(&mut self, control: &Trusted, words: &str) -> (bool, String) {
        let args: Vec<&str> = words.split(' ').collect();
        let (ok, said) = control.admin(&args).await;
        self.add(&format!("dormouse {words}"), said.clone());
        (ok, said)
    }

    /// The command line of a process that runs.
    fn add_command_line(&mut self, process: &Child) {
        let id = process.id().unwrap();
        self.add_file(format!("/proc/{id}/cmdline").as_ref());
    }
}

/// A process that logs all that it can.
fn log_all(command: &mut Command, file: &Path) {
    let log = File::create(file).unwrap();
    command.env("DORMOUSE_LOG", "trace").stderr(log);
}

/// The administrator's kubeconfig.
fn admin(control: &Trusted) -> Value {
    let text = fs::read_to_string(control.pki("admin.kubeconfig")).unwrap();
    serde_saphyr::from_str(&text).unwrap()
}

fn kept(control: &Trusted, name: &str, text: &str) -> PathBuf {
    let path = control.world.folder.path().join(name);
    dormouse_trust::folder::keep_secret(&path, text).unwrap();
    path
}

/// A role in a process of its own, with the line of its token in a file.
async fn role(control: &Trusted, evidence: &mut Evidence, words: &[&str]) -> Child {
    let role = words[0];
    let line = control.role_line(role).await;
    evidence.add_token("the token of a role", &line);
    let file = kept(control, &format!("{role}.line"), &line);
    let log = control.world.folder.path().join(format!("{role}.log"));
    let join = ["--join", file.to_str().unwrap()];
    let process = control.role_with(words, &join, |command| log_all(command, &log));
    evidence.add_command_line(&process);
    process
}

#[test]
fn secrets_are_in_no_log_error_object_metric_record_or_command_line() {
    in_namespace(async || {
        let audit = tempfile::NamedTempFile::new().unwrap();
        let flags = [
            "--without",
            "scheduler",
            "--audit-log",
            audit.path().to_str().unwrap(),
        ];
        let control = Trusted::start_with(&flags, |command, folder| {
            log_all(command, &folder.join("up.log"));
        })
        .await;
        let mut evidence = Evidence::default();
        evidence.add_command_line(&control.process);
        evidence.add_key("the key of the authority", control.pki("ca.key").as_ref());
        // As one line of base64: in the file, it may be folded.
        let kubeconfig = admin(&control);
        let key = Secret::of_kubeconfig("the administrator's key", &kubeconfig);
        evidence.add_secret(key, kubeconfig.to_string().as_bytes());
        let _scheduler = role(&control, &mut evidence, &["scheduler"]).await;
        let _activator = role(&control, &mut evidence, &ACTIVATOR).await;
        control.until_ready().await;
        for role in ["scheduler", "activator"] {
            let pem = control.world.folder.path().join("roles").join(role);
            evidence.add_key("the key of a running role", &pem.join("identity/role.pem"));
        }
        work::nodes(&control, &mut evidence).await;
        work::users(&control, &mut evidence).await;
        work::damaged_files(&control, &mut evidence).await;
        work::shown(&control, &mut evidence).await;
        let _store = work::passwords(&control, &mut evidence).await;
        work::stored(&control, &mut evidence).await;

        let folder = control.world.folder.path();
        for log in LOGS {
            evidence.add_file(&folder.join(log));
            let (_, text) = evidence.texts.last().unwrap();
            let text = String::from_utf8_lossy(text);
            assert!(text.contains("\"TRACE\""), "{log} is not verbose");
        }
        evidence.add_folder(&folder.join("control"));
        evidence.add_folder(&folder.join("store"));
        evidence.add_file(audit.path());
        let leaks = found(&evidence.secrets, &evidence.texts);
        assert_eq!(leaks.join("\n"), "");
    });
}
