//! The certificates of a control plane: its authority, those of its listeners and of its administrator, which are renewed, and the signing of
//! those of nodes.

mod flags;
mod known;
mod kubeconfig;
mod registrar;
mod tokens;
mod users;

use std::collections::BTreeSet;
use std::net::Ipv6Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, ensure};
use dormouse_trust::identity::MASTERS;
use dormouse_trust::validity::LIFE;
use dormouse_trust::{
    Authority, CertificateFiles, Clients, Current, FileCertificate, Identity, Validity, client,
    folder, server,
};
use tokio::time::sleep;
use tokio_rustls::rustls::pki_types::{IpAddr, ServerName};
use tokio_rustls::rustls::server::ResolvesServerCert;
use tokio_rustls::rustls::{ClientConfig, ServerConfig};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::up::API_PORT;
pub use flags::TrustFlags;
pub use registrar::Registrar;
pub use tokens::{CreateError, Listed, Subject, Tokens};
pub use users::TokenUser;

/// The folder of the certificates in the data directory.
const FOLDER: &str = "pki";
/// The administrator's kubeconfig in that folder.
const ADMIN: &str = "admin.kubeconfig";
/// Names of this host, by which clients on it connect.
const LOCAL: [&str; 3] = ["localhost", "::1", "127.0.0.1"];
/// Longest pause between looks at the clock: it may be set.
const LOOK: Duration = Duration::from_mins(1);
/// Shortest pause.
const LOOK_LEAST: Duration = Duration::from_millis(100);
/// Shortest life of certificates: their times are in seconds.
const LIFE_LEAST: Duration = Duration::from_secs(1);
/// Longest and shortest pause after a failed renewal: the next one may be due before it is tried again.
const RETRY: Duration = Duration::from_secs(5);
const RETRY_LEAST: Duration = Duration::from_secs(1);

/// The certificates of a control plane.
#[derive(Debug)]
pub struct Trust {
    authority: Authority,
    /// The certificate of this process, which it shows to other roles, too.
    certificate: Arc<Current>,
    /// That of the listeners: the same, or one in files.
    listeners: Arc<dyn ResolvesServerCert>,
    names: Vec<String>,
    life: Duration,
    folder: PathBuf,
    address: Ipv6Addr,
}

impl Trust {
    /// Opens the authority, creates it at the first start, and issues the certificates of this process. None with `--insecure`.
    pub fn open(
        flags: &TrustFlags,
        data_dir: &Path,
        address: Ipv6Addr,
    ) -> Result<Option<Arc<Self>>> {
        if flags.insecure {
            warn!(%address, "--insecure: plain text without certificates, every process on this host is an administrator");
            return Ok(None);
        }
        warn_of_writers(data_dir);
        let now = SystemTime::now();
        let pki = data_dir.join(FOLDER);
        let authority = match (&flags.ca_cert, &flags.ca_key) {
            (Some(certificate), Some(key)) => folder::authority(certificate, key, now)?,
            _ => folder::embedded(&pki, now)?,
        };
        let local = LOCAL.map(str::to_owned).into_iter();
        let names = local.chain([address.to_string()]);
        let names: BTreeSet<String> = names.chain(flags.tls_san.iter().cloned()).collect();
        let names: Vec<String> = names.into_iter().collect();
        let life = flags.certificate_life.unwrap_or(LIFE);
        ensure!(
            life >= LIFE_LEAST,
            "--certificate-life is at least {} s",
            LIFE_LEAST.as_secs()
        );
        let certificate = Current::new(issue(&authority, &names, life)?)?;
        let listeners = match flags.files() {
            Some(files) => of_files(files, &authority, address)?,
            None => Arc::clone(&certificate) as _,
        };
        let trust = Self {
            certificate,
            listeners,
            authority,
            names,
            life,
            folder: pki,
            address,
        };
        let is_new = !trust.admin_path().exists();
        trust.write_admin()?;
        if is_new {
            let path = trust.admin_path();
            info!(path = %path.display(), "wrote the administrator's kubeconfig: use it with KUBECONFIG=");
        }
        Ok(Some(Arc::new(trust)))
    }

    /// The authority of the cluster.
    pub(crate) fn authority(&self) -> &Authority {
        &self.authority
    }

    /// The address of the control plane.
    pub(crate) fn address(&self) -> Ipv6Addr {
        self.address
    }

    /// The validity of a certificate that is issued now.
    fn validity(&self, floor: Option<SystemTime>) -> Validity {
        Validity::issued(SystemTime::now(), self.life, floor)
    }

    /// The TLS of a listener.
    pub fn listener(&self, clients: Clients) -> Result<Arc<ServerConfig>> {
        let authorities = [self.authority.certificate().clone()];
        let certificate = Arc::clone(&self.listeners);
        Ok(server::config(certificate, &authorities, clients)?)
    }

    /// The TLS of this process as a client of other roles.
    pub fn client(&self) -> Result<Arc<ClientConfig>> {
        let authorities = [self.authority.certificate().clone()];
        let certificate = Arc::clone(&self.certificate);
        Ok(client::config(&authorities, Some(certificate))?)
    }

    /// Renews the certificates of this process until `shutdown`. On an error the present ones are used on.
    pub async fn renew(self: Arc<Self>, shutdown: CancellationToken) {
        let renewing = async {
            let mut is_admin_due = false;
            loop {
                let pause = self.renew_due(&mut is_admin_due).unwrap_or_else(|error| {
                    let reason = format!("{error:#}");
                    warn!(reason, "failed to renew certificates");
                    self.renew_in().clamp(RETRY_LEAST, RETRY)
                });
                sleep(pause).await;
            }
        };
        shutdown.run_until_cancelled(renewing).await;
    }

    /// Renews what is due; the time until the next look. The listeners' certificate first: it needs no disk, which can be full.
    fn renew_due(&self, is_admin_due: &mut bool) -> Result<Duration> {
        if self.renew_in().is_zero() {
            *is_admin_due = true;
            let renewed = issue(&self.authority, &self.names, self.life)?;
            self.certificate.replace(renewed)?;
        }
        if *is_admin_due {
            self.write_admin()?;
            *is_admin_due = false;
        }
        Ok(self.renew_in().clamp(LOOK_LEAST, LOOK))
    }

    fn renew_in(&self) -> Duration {
        let validity = self.certificate.credentials().validity();
        validity.map_or(Duration::ZERO, |validity| {
            validity.renew_in(SystemTime::now())
        })
    }

    fn admin_path(&self) -> PathBuf {
        self.folder.join(ADMIN)
    }

    fn write_admin(&self) -> Result<()> {
        let admin = Identity::user("admin", vec![MASTERS.to_owned()])?;
        let credentials = self.authority.client(&admin, self.validity(None))?;
        let url = format!("https://[{}]:{API_PORT}", self.address);
        let text = kubeconfig::text(&url, &self.authority, &credentials)?;
        let path = self.admin_path();
        folder::create_folder(&self.folder)?;
        folder::keep_secret(&path, &text).context("failed to write the administrator's kubeconfig")
    }
}

/// Volumes of containers often are for all users: what is in them is not, and the folder's owner may know no other.
fn warn_of_writers(data_dir: &Path) {
    if data_dir.exists()
        && let Err(reason) = folder::check_data(data_dir)
    {
        warn!(%reason, "--data-dir is not safe from other users");
    }
}

fn issue(
    authority: &Authority,
    names: &[String],
    life: Duration,
) -> Result<dormouse_trust::Credentials> {
    let identity = Identity::control("up")?;
    let validity = Validity::issued(SystemTime::now(), life, None);
    let issued = authority.server(&identity, names, validity);
    issued.context("failed to issue the certificate of this control plane")
}

/// The certificate of the listeners in files.
fn of_files(
    files: CertificateFiles,
    authority: &Authority,
    address: Ipv6Addr,
) -> Result<Arc<dyn ResolvesServerCert>> {
    let name = ServerName::IpAddress(IpAddr::from(std::net::IpAddr::V6(address)));
    let opened = FileCertificate::of_cluster(files, authority.certificate().clone(), name);
    Ok(opened.context("--cert-file and --key-file cannot be used")?)
}
