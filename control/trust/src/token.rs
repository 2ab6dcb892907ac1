//! Join tokens: a secret that admits a process to a cluster, and the line that carries it together with the address and the authority.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

use zeroize::Zeroizing;

use crate::hash::{AuthorityHash, hex, sha256};

/// Bytes of a token's id, which is no secret.
const ID_BYTES: usize = 5;
/// Bytes of a token's secret: 128 bits cannot be guessed.
const SECRET_BYTES: usize = 16;

/// A token: `ID.SECRET`, in hexadecimal.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    id: String,
    secret: Zeroizing<String>,
}

/// A text that is no token or no line for joining.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// It is no token.
    #[error("this is no join token, ID.SECRET as `dormouse token create` prints it")]
    Token,
    /// It is no line.
    #[error("this is no line of `dormouse token create`: ADDRESS:PORT,sha256:HASH,ID.SECRET")]
    Line,
    /// There is no randomness.
    #[error("the kernel has no random numbers")]
    Random,
}

impl Token {
    /// A new token.
    pub fn create() -> Result<Self, TokenError> {
        let mut id = [0; ID_BYTES];
        let mut secret = Zeroizing::new([0; SECRET_BYTES]);
        getrandom::fill(&mut id)
            .and_then(|()| getrandom::fill(&mut *secret))
            .map_err(|_unavailable| TokenError::Random)?;
        Ok(Self {
            id: hex(&id),
            secret: Zeroizing::new(hex(&*secret)),
        })
    }

    /// The name under which the token is stored.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// What is stored of the secret: its SHA-256, in hexadecimal.
    pub fn hashed(&self) -> String {
        hex(&sha256(self.secret.as_bytes()))
    }

    /// Whether the stored hash is that of the secret. Hashes are compared: the time that it takes shows nothing of the secret.
    pub fn fits(&self, hashed: &str) -> bool {
        self.hashed() == hashed
    }

    /// The token as it is sent.
    pub fn reveal(&self) -> Zeroizing<String> {
        Zeroizing::new(format!("{}.{}", self.id, *self.secret))
    }
}

impl FromStr for Token {
    type Err = TokenError;

    fn from_str(text: &str) -> Result<Self, TokenError> {
        let (id, secret) = text.split_once('.').ok_or(TokenError::Token)?;
        let is_hex = |part: &str, bytes| {
            part.len() == 2 * bytes && part.bytes().all(|byte| byte.is_ascii_hexdigit())
        };
        if !is_hex(id, ID_BYTES) || !is_hex(secret, SECRET_BYTES) {
            return Err(TokenError::Token);
        }
        Ok(Self {
            id: id.to_owned(),
            secret: Zeroizing::new(secret.to_owned()),
        })
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Token({}.…)", self.id)
    }
}

/// What a process needs to join: where control listens for joins, the hash of its authority, and a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinLine {
    /// Where control listens for joins.
    pub address: SocketAddr,
    /// Its authority.
    pub authority: AuthorityHash,
    /// The token.
    pub token: Token,
}

impl JoinLine {
    /// The line, with the secret.
    pub fn reveal(&self) -> Zeroizing<String> {
        let token = self.token.reveal();
        Zeroizing::new(format!("{},{},{}", self.address, self.authority, *token))
    }
}

impl FromStr for JoinLine {
    type Err = TokenError;

    fn from_str(text: &str) -> Result<Self, TokenError> {
        let parts: Vec<&str> = text.trim().split(',').collect();
        let [address, authority, token] = parts[..] else {
            return Err(TokenError::Line);
        };
        Ok(Self {
            address: address.parse().map_err(|_malformed| TokenError::Line)?,
            authority: authority.parse().map_err(|()| TokenError::Line)?,
            token: token.parse().map_err(|_malformed| TokenError::Line)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Authority;

    #[test]
    fn a_line_carries_what_is_needed_to_join() {
        let authority = Authority::create(std::time::SystemTime::now()).unwrap();
        let line = JoinLine {
            address: "[2001:db8::c]:7445".parse().unwrap(),
            authority: authority.hash(),
            token: Token::create().unwrap(),
        };
        let text = line.reveal();
        assert!(!text.contains(' '));
        assert_eq!(format!("{}\n", *text).parse(), Ok(line));
        for end in 0..text.len() {
            assert!(text[..end].parse::<JoinLine>().is_err(), "{end}");
        }
    }

    #[test]
    fn only_the_hash_of_a_secret_is_stored_and_no_debug_output_has_it() {
        let (token, other) = (Token::create().unwrap(), Token::create().unwrap());
        assert!(token.fits(&token.hashed()));
        assert!(!token.fits(&other.hashed()) && !token.fits(""));
        let secret = token.reveal();
        let secret = secret.split_once('.').unwrap().1;
        assert!(!token.hashed().contains(secret));
        assert!(!format!("{token:?}").contains(secret));
        for wrong in [
            "",
            "a.b",
            "0011223344.",
            &format!("0011223344.{}x", &secret[1..]),
        ] {
            assert_eq!(wrong.parse::<Token>(), Err(TokenError::Token), "{wrong}");
        }
    }
}
