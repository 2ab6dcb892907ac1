//! The encoding of backends in an entry: 24 packed bytes each, because decoding a protobuf message per backend costs ten
//! times as much.

use std::net::{Ipv6Addr, SocketAddrV6};

/// Bytes of one packed backend.
pub const BACKEND_LEN: usize = 24;

/// One `pod IP:port` behind a VIP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Backend {
    /// The node prefix: the upper 96 bits of the pod's address.
    pub prefix: [u8; 12],
    /// The pod's number on its node: the lower 32 bits of its address.
    pub host: u32,
    /// The pod's port.
    pub port: u16,
    /// Distinguishes a pod from an earlier one with the same address.
    pub generation: u16,
    /// Zone and flags; 0 for now.
    pub flags: u16,
    /// Share of new connections relative to the VIP's other backends; usually 1; 0: no new connections.
    pub weight: u16,
}

/// The length of the packed bytes is not a multiple of [`BACKEND_LEN`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("failed to unpack backends: {len} bytes are not a multiple of {BACKEND_LEN}")]
pub struct UnpackError {
    len: usize,
}

impl Backend {
    /// A backend of weight 1 at `socket`.
    pub fn new(socket: SocketAddrV6) -> Self {
        let octets = socket.ip().octets();
        let mut prefix = [0; 12];
        prefix.copy_from_slice(&octets[..12]);
        let host = u32::from_be_bytes([octets[12], octets[13], octets[14], octets[15]]);
        Self {
            prefix,
            host,
            port: socket.port(),
            generation: 0,
            flags: 0,
            weight: 1,
        }
    }

    /// The pod's address: prefix and host.
    pub fn address(&self) -> Ipv6Addr {
        let mut octets = [0; 16];
        octets[..12].copy_from_slice(&self.prefix);
        octets[12..].copy_from_slice(&self.host.to_be_bytes());
        Ipv6Addr::from(octets)
    }

    /// Encodes `Entry.backends`; numbers are big-endian.
    pub fn pack(backends: &[Self]) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(backends.len() * BACKEND_LEN);
        for backend in backends {
            bytes.extend_from_slice(&backend.prefix);
            bytes.extend_from_slice(&backend.host.to_be_bytes());
            for number in [
                backend.port,
                backend.generation,
                backend.flags,
                backend.weight,
            ] {
                bytes.extend_from_slice(&number.to_be_bytes());
            }
        }
        bytes
    }

    /// Decodes `Entry.backends`.
    pub fn unpack(bytes: &[u8]) -> Result<Vec<Self>, UnpackError> {
        let (records, rest) = bytes.as_chunks::<BACKEND_LEN>();
        if !rest.is_empty() {
            return Err(UnpackError { len: bytes.len() });
        }
        Ok(records.iter().map(Self::unpack_one).collect())
    }

    fn unpack_one(record: &[u8; BACKEND_LEN]) -> Self {
        let number = |at: usize| u16::from_be_bytes([record[at], record[at + 1]]);
        let mut prefix = [0; 12];
        prefix.copy_from_slice(&record[..12]);
        Self {
            prefix,
            host: u32::from_be_bytes([record[12], record[13], record[14], record[15]]),
            port: number(16),
            generation: number(18),
            flags: number(20),
            weight: number(22),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_backend_is_made_from_its_socket_address() {
        let socket: SocketAddrV6 = "[2001:db8:d0:0:0:1:0:7]:8000".parse().unwrap();
        let backend = Backend::new(socket);
        assert_eq!((backend.address(), backend.port), (*socket.ip(), 8000));
        assert_eq!(backend.host, 7);
    }

    #[test]
    fn a_length_that_is_no_multiple_of_a_backend_is_refused() {
        assert_eq!(Backend::unpack(&[0; 25]), Err(UnpackError { len: 25 }));
        assert_eq!(Backend::unpack(&[]), Ok(vec![]));
    }

    proptest! {
        #[test]
        fn unpacking_returns_what_was_packed(records in prop::collection::vec(any::<[u8; BACKEND_LEN]>(), 0..9)) {
            let bytes = records.concat();
            let backends = Backend::unpack(&bytes).unwrap();
            prop_assert_eq!(Backend::pack(&backends), bytes);
        }
    }
}
