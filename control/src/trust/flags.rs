//! The flags of the control plane's TLS.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use dormouse_trust::CertificateFiles;
use tokio_rustls::rustls::pki_types::ServerName;

use crate::flags::period;

/// The TLS of the control plane.
#[derive(Args, Debug, Clone)]
pub struct TrustFlags {
    /// Speak plain text, without certificates: each client that reaches a port is an administrator. Only with --address ::1, for tests on one host.
    /// Without it, all ports have TLS 1.3; the certificates are in the folder pki of --data-dir, with a kubeconfig for the
    /// administrator
    #[arg(long, env = "DORMOUSE_INSECURE")]
    pub insecure: bool,
    /// Certificate of a certificate authority to use, in PEM; without it, the control plane creates one
    #[arg(
        long,
        conflicts_with = "insecure",
        requires = "ca_key",
        env = "DORMOUSE_CA_CERT"
    )]
    pub ca_cert: Option<PathBuf>,
    /// Private key of --ca-cert, in PEM (PKCS#8)
    #[arg(long, requires = "ca_cert", env = "DORMOUSE_CA_KEY")]
    pub ca_key: Option<PathBuf>,
    /// Certificate of the ports, in PEM, which another program renews, such as cert-manager: from the certificate authority of the cluster, for
    /// --address; without it, the control plane issues one. New connections get the newest one in the file
    #[arg(
        long,
        conflicts_with_all = ["insecure", "tls_san"],
        requires = "key_file",
        env = "DORMOUSE_CERT_FILE"
    )]
    pub cert_file: Option<PathBuf>,
    /// Private key of --cert-file, in PEM
    #[arg(long, requires = "cert_file", env = "DORMOUSE_KEY_FILE")]
    pub key_file: Option<PathBuf>,
    /// Further DNS names and addresses by which clients connect
    #[arg(
        long,
        conflicts_with = "insecure",
        env = "DORMOUSE_TLS_SAN",
        value_delimiter = ',',
        value_parser = name_of_server
    )]
    pub tls_san: Vec<String>,
    /// Life of the certificates, which are renewed at two thirds of it
    #[arg(long, conflicts_with = "insecure", value_parser = period, env = "DORMOUSE_CERTIFICATE_LIFE")]
    pub certificate_life: Option<Duration>,
}

impl TrustFlags {
    /// The files of the listeners' certificate.
    pub(super) fn files(&self) -> Option<CertificateFiles> {
        let (certificate, key) = self.cert_file.clone().zip(self.key_file.clone())?;
        Some(CertificateFiles { certificate, key })
    }
}

/// A DNS name, which may begin with `*.`, or an address.
fn name_of_server(text: &str) -> Result<String, String> {
    let name = ServerName::try_from(text.strip_prefix("*.").unwrap_or(text));
    let is_name = match name {
        Ok(ServerName::DnsName(_)) => true,
        Ok(_) => !text.starts_with('*'),
        Err(_malformed) => false,
    };
    if is_name {
        return Ok(text.to_owned());
    }
    Err("write a DNS name or an address, such as control.example.com or 2001:db8::c".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_no_certificate_can_have_are_refused() {
        for name in [
            "control",
            "control.example.com",
            "*.example.com",
            "2001:db8::c",
            "10.0.0.1",
        ] {
            assert_eq!(name_of_server(name).as_deref(), Ok(name));
        }
        for wrong in [
            "",
            "a b",
            "https://control",
            "control:6443",
            "[2001:db8::c]",
            "*.10.0.0.1",
            "*",
            "a..b",
            "-a",
            "é",
        ] {
            let error = name_of_server(wrong).unwrap_err();
            assert!(error.contains("DNS name or an address"), "{wrong}: {error}");
        }
    }
}
