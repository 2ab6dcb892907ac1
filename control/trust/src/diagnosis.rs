//! The reason of a failed handshake, for people: what is wrong with which certificate or clock, and what to do. The side that refuses a
//! certificate knows the times; the other side gets an alert without them.

use std::io;
use std::time::{Duration, SystemTime};

use jiff::{SignedDuration, Timestamp};
use tokio_rustls::rustls::pki_types::UnixTime;
use tokio_rustls::rustls::{AlertDescription, CertificateError, Error, PeerIncompatible};

/// The reason of an error of TLS in an error of a connection; none if TLS has not failed.
pub fn of_connection(error: &io::Error) -> Option<String> {
    let inner = error.get_ref()?.downcast_ref::<Error>()?;
    Some(of(inner))
}

/// The reason of an error of TLS.
pub fn of(error: &Error) -> String {
    match error {
        Error::InvalidCertificate(error) => certificate(error),
        Error::AlertReceived(alert) => refused(*alert),
        Error::NoCertificatesPresented => {
            "the other side has shown no certificate: it has to join the cluster first (dormouse token create)".to_owned()
        }
        Error::PeerIncompatible(
            PeerIncompatible::Tls12NotOffered
            | PeerIncompatible::Tls12NotOfferedOrEnabled
            | PeerIncompatible::ServerTlsVersionIsDisabledByOurConfig
            | PeerIncompatible::ServerDoesNotSupportTls12Or13
            | PeerIncompatible::SupportedVersionsExtensionRequired,
        ) => "the other side does not offer TLS 1.3, the only version that is spoken here".to_owned(),
        Error::InvalidMessage(_) => {
            "the other side does not speak TLS here: is its URL https://, and the port the right one?".to_owned()
        }
        other => other.to_string(),
    }
}

/// What is wrong with the certificate of the other side.
fn certificate(error: &CertificateError) -> String {
    match error {
        CertificateError::ExpiredContext { time, not_after } => format!(
            "the certificate of the other side expired at {}, {} ago by the clock of this host, which shows {}: if that time is wrong, set the clock, otherwise the other side has to renew its certificate",
            at(system(*not_after)),
            between(*not_after, *time),
            at(system(*time)),
        ),
        CertificateError::NotValidYetContext { time, not_before } => format!(
            "the certificate of the other side is valid from {}, in {} by the clock of this host, which shows {}: one of both clocks is wrong, that of this host is behind or that of the issuer is ahead",
            at(system(*not_before)),
            between(*time, *not_before),
            at(system(*time)),
        ),
        CertificateError::UnknownIssuer => {
            "the certificate of the other side is from another certificate authority than this cluster's: it belongs to another cluster, or joined an earlier one at this address".to_owned()
        }
        CertificateError::BadSignature => {
            "the certificate of the other side is not signed by this cluster's certificate authority, although it names it: it joined an earlier cluster, or is forged".to_owned()
        }
        CertificateError::NotValidForNameContext {
            expected,
            presented,
        } => format!(
            "the server's certificate is for {}, not for {}: connect to one of these, or add the name to the server's (--tls-san)",
            presented.join(", "),
            expected.to_str(),
        ),
        CertificateError::ApplicationVerificationFailure => {
            "the identity of the other side may not use this port: it is for the control plane and administrators".to_owned()
        }
        CertificateError::InvalidPurposeContext { .. } | CertificateError::InvalidPurpose => {
            "the certificate of the other side is for another purpose: a node's is no server's".to_owned()
        }
        other => format!("the certificate of the other side is refused: {other}"),
    }
}

/// Why the other side has refused the certificate of this one. An alert does not say more.
fn refused(alert: AlertDescription) -> String {
    match alert {
        AlertDescription::CertificateExpired => {
            "the other side refused this certificate as expired or not valid yet: compare the clocks of both hosts; if they agree, join again (dormouse token create)".to_owned()
        }
        AlertDescription::UnknownCA | AlertDescription::DecryptError => {
            "the other side refused this certificate, which is from another certificate authority: this is another cluster, or it was created again".to_owned()
        }
        AlertDescription::CertificateRequired => {
            "the other side needs a certificate: join the cluster first, with a line of dormouse token create".to_owned()
        }
        AlertDescription::AccessDenied => {
            "the other side does not admit this identity at this port".to_owned()
        }
        AlertDescription::ProtocolVersion => {
            "the other side does not speak TLS 1.3, the only version that is spoken here".to_owned()
        }
        AlertDescription::BadCertificate
        | AlertDescription::CertificateUnknown
        | AlertDescription::UnsupportedCertificate => {
            "the other side refused this certificate; its log has the reason".to_owned()
        }
        other => format!("the other side ended the handshake: {other:?}"),
    }
}

/// A time for people.
pub fn at(time: SystemTime) -> String {
    let whole = Timestamp::try_from(time).and_then(|at| Timestamp::from_second(at.as_second()));
    whole.map_or_else(
        |_out_of_range| "an impossible time".to_owned(),
        |at| at.to_string(),
    )
}

fn between(from: UnixTime, to: UnixTime) -> String {
    let seconds = i64::try_from(to.as_secs().saturating_sub(from.as_secs()));
    format!(
        "{:#}",
        SignedDuration::from_secs(seconds.unwrap_or(i64::MAX))
    )
}

fn system(time: UnixTime) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(time.as_secs())
}
