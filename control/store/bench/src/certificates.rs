//! The certificates of a run over TLS, in a folder: those of a store and of a role that calls it, as a control plane issues them.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};
use dormouse_fleet::client::Target;
use dormouse_store::server::Tls;
use dormouse_trust::server::administers;
use dormouse_trust::{Authority, Clients, Current, Identity, Validity, client, folder, server};

/// The files.
const AUTHORITY: &str = "ca.crt";
const SERVER: &str = "server.pem";
const CLIENT: &str = "client.pem";
/// The address of the measured servers.
const ADDRESS: &str = "127.0.0.1";
/// Life of the certificates: longer than a run.
const LIFE: Duration = Duration::from_hours(24);

/// Issues the certificates.
pub(crate) fn issue(path: &Path) -> Result<()> {
    let now = SystemTime::now();
    let authority = Authority::create(now)?;
    let validity = Validity::issued(now, LIFE, None);
    let (store, role) = (Identity::control("store")?, Identity::control("scheduler")?);
    let store = authority.server(&store, &[ADDRESS.to_owned()], validity)?;
    let role = authority.client(&role, validity)?;
    folder::keep_certificates(&path.join(AUTHORITY), &[authority.certificate().clone()])?;
    folder::keep(&path.join(SERVER), &store)?;
    folder::keep(&path.join(CLIENT), &role)?;
    Ok(())
}

/// The TLS of the store of `dormouse up`.
pub(crate) fn server(path: &Path) -> Result<Tls> {
    let authorities = folder::load_certificates(&path.join(AUTHORITY))?;
    let config = server::config(
        current(path, SERVER)?,
        &authorities,
        Clients::Only(administers),
    );
    Ok(config?.into())
}

/// A store at this host and port, as a role reaches it over TLS.
pub(crate) fn target(path: &Path, address: &str) -> Result<Target> {
    let authorities = folder::load_certificates(&path.join(AUTHORITY))?;
    let config = client::config(&authorities, Some(current(path, CLIENT)?))?;
    Ok(Target::secured(&format!("https://{address}"), config)?)
}

fn current(path: &Path, file: &str) -> Result<Arc<Current>> {
    let path = path.join(file);
    let credentials = folder::load(&path, &path)?;
    Current::new(credentials).with_context(|| format!("failed to use {}", path.display()))
}
