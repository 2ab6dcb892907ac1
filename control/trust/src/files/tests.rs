//! Certificates in files that are replaced: in place, as cert-manager does, halfway, and by what cannot be used.

use std::error::Error;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::time::Duration;

use super::*;
use crate::{Authority, Credentials, Identity};

const NAME: &str = "2001:db8::c";
const DAY: Duration = Duration::from_hours(24);

struct Folder {
    folder: tempfile::TempDir,
    authority: Authority,
}

impl Folder {
    fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
            authority: Authority::create(SystemTime::now()).unwrap(),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn files(&self) -> CertificateFiles {
        CertificateFiles {
            certificate: self.path("tls.crt"),
            key: self.path("tls.key"),
        }
    }

    fn write(&self, issued: &Credentials) {
        write(&self.path("tls.crt"), issued.chain_pem().as_bytes());
        write(&self.path("tls.key"), issued.key_pem().as_bytes());
    }

    fn load(&self) -> Arc<FileCertificate> {
        FileCertificate::load(self.files(), provider()).unwrap()
    }

    fn of_cluster(&self) -> Result<Arc<FileCertificate>, String> {
        let authority = self.authority.certificate().clone();
        let name = NAME.try_into().unwrap();
        let opened = FileCertificate::of_cluster(self.files(), authority, name);
        opened.map_err(|error| chain(&error))
    }
}

/// Writes a file for its owner.
fn write(path: &Path, bytes: &[u8]) {
    fs::write(path, bytes).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
}

fn issued(authority: &Authority, name: &str, at: SystemTime) -> Credentials {
    let identity = Identity::user("server", Vec::new()).unwrap();
    let validity = Validity::issued(at, DAY, None);
    let issued = authority.server(&identity, &[name.to_owned()], validity);
    issued.unwrap()
}

fn now(authority: &Authority) -> Credentials {
    issued(authority, NAME, SystemTime::now())
}

/// The certificate in use.
fn used(certificate: &FileCertificate) -> CertificateDer<'static> {
    certificate.current().cert[0].clone()
}

fn refused(certificate: &FileCertificate) -> String {
    certificate.current();
    certificate.used.lock().refused.clone().unwrap_or_default()
}

#[test]
fn a_renewed_certificate_is_used_as_soon_as_its_key_fits() {
    let folder = Folder::new();
    let [first, second] = [(); 2].map(|()| now(&folder.authority));
    folder.write(&first);
    let certificate = folder.load();
    assert_eq!(used(&certificate), first.chain()[0]);
    write(&folder.path("tls.crt"), second.chain_pem().as_bytes());
    assert_eq!(used(&certificate), first.chain()[0]);
    assert!(refused(&certificate).contains("both files must be replaced together"));
    write(&folder.path("tls.key"), second.key_pem().as_bytes());
    assert_eq!(used(&certificate), second.chain()[0]);
    assert_eq!(refused(&certificate), "");
    fs::remove_file(folder.path("tls.key")).unwrap();
    assert_eq!(used(&certificate), second.chain()[0]);
    assert!(refused(&certificate).contains("tls.key"));
}

/// Publishes credentials as the kubelet and cert-manager's CSI driver do: a new folder, and a link that is swapped to it.
fn publish(folder: &Folder, version: &str, issued: &Credentials) {
    let fresh = folder.path(version);
    fs::create_dir(&fresh).unwrap();
    write(&fresh.join("tls.crt"), issued.chain_pem().as_bytes());
    write(&fresh.join("tls.key"), issued.key_pem().as_bytes());
    let link = folder.path("..data_tmp");
    symlink(version, &link).unwrap();
    fs::rename(link, folder.path("..data")).unwrap();
}

#[test]
fn a_folder_of_links_that_is_swapped_is_a_renewed_certificate() {
    let folder = Folder::new();
    let [first, second, third] = [(); 3].map(|()| now(&folder.authority));
    publish(&folder, "..1", &first);
    for name in ["tls.crt", "tls.key"] {
        symlink(Path::new("..data").join(name), folder.path(name)).unwrap();
    }
    let certificate = folder.of_cluster().unwrap();
    assert_eq!(used(&certificate), first.chain()[0]);
    publish(&folder, "..2", &second);
    fs::remove_dir_all(folder.path("..1")).unwrap();
    assert_eq!(used(&certificate), second.chain()[0]);
    // The link leads nowhere for a moment.
    fs::remove_dir_all(folder.path("..2")).unwrap();
    assert_eq!(used(&certificate), second.chain()[0]);
    publish(&folder, "..3", &third);
    assert_eq!(used(&certificate), third.chain()[0]);
}

#[test]
fn half_written_files_keep_the_last_certificate_and_are_named() {
    let folder = Folder::new();
    let [first, second] = [(); 2].map(|()| now(&folder.authority));
    folder.write(&first);
    let certificate = folder.of_cluster().unwrap();
    for (name, whole) in [
        ("tls.crt", crate::credentials::to_pem(&second.chain()[..1])),
        ("tls.key", second.key_pem().to_string()),
    ] {
        for end in (0..whole.len() - 2).step_by(37) {
            folder.write(&second);
            write(&folder.path(name), &whole.as_bytes()[..end]);
            assert_eq!(used(&certificate), first.chain()[0], "{name} {end}");
            let reason = refused(&certificate);
            assert!(reason.contains(name), "{reason}");
            assert!(reason.contains("cut off"), "{reason}");
        }
    }
    folder.write(&second);
    assert_eq!(used(&certificate), second.chain()[0]);
}

#[test]
fn a_server_of_a_cluster_shows_its_authority_and_no_certificate_that_clients_would_refuse() {
    let folder = Folder::new();
    let first = now(&folder.authority);
    let leaf = Credentials::from_pem(
        &crate::credentials::to_pem(&first.chain()[..1]),
        &first.key_pem(),
    );
    folder.write(&leaf.unwrap());
    let certificate = folder.of_cluster().unwrap();
    assert_eq!(certificate.current().cert, first.chain());
    let other = Authority::create(SystemTime::now()).unwrap();
    let mine = &folder.authority;
    let client = Identity::user("client", Vec::new()).unwrap();
    let validity = Validity::issued(SystemTime::now(), DAY, None);
    for (wrong, reason) in [
        (now(&other), "not one of a server at 2001:db8::c"),
        (
            issued(mine, "2001:db8::d", SystemTime::now()),
            "not one of a server at 2001:db8::c",
        ),
        (
            issued(mine, NAME, SystemTime::now() - 2 * DAY),
            "not now by the clock of this host",
        ),
        (
            issued(mine, NAME, SystemTime::now() + 2 * DAY),
            "not now by the clock of this host",
        ),
        (
            mine.client(&client, validity).unwrap(),
            "not one of a server at",
        ),
    ] {
        folder.write(&wrong);
        assert_eq!(used(&certificate), first.chain()[0], "{reason}");
        let told = refused(&certificate);
        assert!(told.contains(reason), "{told}");
        let at_start = folder.of_cluster().unwrap_err();
        assert!(at_start.contains(reason), "{at_start}");
    }
}

#[test]
fn a_key_that_other_users_can_read_is_refused_for_a_server_of_a_cluster_only() {
    let folder = Folder::new();
    folder.write(&now(&folder.authority));
    let exposed = fs::Permissions::from_mode(0o644);
    fs::set_permissions(folder.path("tls.key"), exposed).unwrap();
    let error = folder.of_cluster().unwrap_err();
    assert!(error.contains("chmod 600"), "{error}");
    folder.load();
}

#[test]
fn files_that_are_missing_are_named_at_the_start() {
    let folder = Folder::new();
    let missing = folder.of_cluster().unwrap_err();
    assert!(missing.contains("tls.crt"), "{missing}");
    folder.write(&now(&folder.authority));
    fs::remove_file(folder.path("tls.key")).unwrap();
    fs::create_dir(folder.path("tls.key")).unwrap();
    fs::set_permissions(folder.path("tls.key"), fs::Permissions::from_mode(0o700)).unwrap();
    let error = FileCertificate::load(folder.files(), provider()).unwrap_err();
    assert!(error.to_string().contains("tls.key"), "{error}");
    assert!(error.source().is_some());
}
