//! The hash of an authority's public key, by which a joining process recognizes it: `sha256:` and 64 hexadecimal digits, as kubeadm has it.

use std::fmt;
use std::str::FromStr;

use ring::digest::{SHA256, digest};
use x509_cert::Certificate;
use x509_cert::der::{Decode, Encode};

const PREFIX: &str = "sha256:";

/// The SHA-256 of a public key's SubjectPublicKeyInfo.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct AuthorityHash([u8; 32]);

impl AuthorityHash {
    /// The hash of a certificate's public key; none if the certificate cannot be parsed.
    pub fn of_certificate(der: &[u8]) -> Option<Self> {
        let certificate = Certificate::from_der(der).ok()?;
        let key = certificate.tbs_certificate().subject_public_key_info();
        Some(Self(sha256(&key.to_der().ok()?)))
    }
}

/// The SHA-256 of `bytes`.
pub(crate) fn sha256(bytes: &[u8]) -> [u8; 32] {
    let mut hash = [0; 32];
    hash.copy_from_slice(digest(&SHA256, bytes).as_ref());
    hash
}

/// Bytes in hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    let digits = digits.filter_map(|digit| char::from_digit(digit.into(), 16));
    digits.collect()
}

impl fmt::Display for AuthorityHash {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{PREFIX}{}", hex(&self.0))
    }
}

impl fmt::Debug for AuthorityHash {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

impl FromStr for AuthorityHash {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let digits = text.strip_prefix(PREFIX).ok_or(())?;
        let is_hash = digits.len() == 64 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        let mut hash = [0; 32];
        for (byte, at) in hash.iter_mut().zip((0..64).step_by(2)) {
            let pair = is_hash.then(|| &digits[at..at + 2]).ok_or(())?;
            *byte = u8::from_str_radix(pair, 16).map_err(|_not_hexadecimal| ())?;
        }
        Ok(Self(hash))
    }
}
