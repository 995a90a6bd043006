//! Segments signed with a key that both ends were given: TCP MD5 (RFC 2385), as BGP peers use it.
//!
//! MD5 is broken as a hash, and this is no HMAC; it keeps out an attacker that cannot see the segments, and is what routers speak.

use core::fmt;
use core::net::IpAddr;

use super::digests::{CAN_SIGN, md5};
use crate::wire::tcp::{HEADER_LEN, option};

/// Longest key: as Linux (TCP_MD5SIG_MAXKEYLEN).
pub const MD5_KEY_MAX: usize = 80;
/// Bytes of the option (RFC 2385 §3.0) with the two NOPs in front of it.
pub const SIGNATURE_LEN: u8 = 20;
/// Option kind 19, 18 bytes long.
const KIND: u8 = 19;
const LEAD: [u8; 4] = [1, 1, KIND, 18];

/// A key of RFC 2385, 1 to 80 bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Md5Key {
    bytes: [u8; MD5_KEY_MAX],
    len: usize,
}

impl fmt::Debug for Md5Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Md5Key({} bytes)", self.len)
    }
}

impl Md5Key {
    /// `None`: empty, or longer than [`MD5_KEY_MAX`], or this build signs nothing ([`CAN_SIGN`]).
    pub fn new(key: &[u8]) -> Option<Self> {
        let mut bytes = [0; MD5_KEY_MAX];
        bytes.get_mut(..key.len())?.copy_from_slice(key);
        (CAN_SIGN && !key.is_empty()).then_some(Self {
            bytes,
            len: key.len(),
        })
    }

    /// RFC 2385 §2.0: pseudo header, header without options and checksum, text, key. `None`: no whole segment, or two families.
    fn digest(&self, source: IpAddr, destination: IpAddr, segment: &[u8]) -> Option<[u8; 16]> {
        let (header, _) = segment.split_first_chunk::<HEADER_LEN>()?;
        let text = segment.get(usize::from(header[12] >> 4) * 4..)?;
        let len = u16::try_from(segment.len()).ok()?.to_be_bytes();
        let key = self.bytes.get(..self.len)?;
        let (before, behind) = (&header[..16], &header[18..]);
        match (source, destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                let (from, to) = (source.octets(), destination.octets());
                Some(md5(&[
                    &from,
                    &to,
                    &[0, 6, len[0], len[1]],
                    before,
                    &[0, 0],
                    behind,
                    text,
                    key,
                ]))
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                let (from, to) = (source.octets(), destination.octets());
                let rest = [0, 0, len[0], len[1], 0, 0, 0, 6];
                Some(md5(&[
                    &from,
                    &to,
                    &rest,
                    before,
                    &[0, 0],
                    behind,
                    text,
                    key,
                ]))
            }
            _ => None,
        }
    }

    /// Signs a segment whose options end with [`SIGNATURE_LEN`] bytes kept free. Its checksum is to be made again. False: there are none.
    pub fn sign(&self, source: IpAddr, destination: IpAddr, segment: &mut [u8]) -> bool {
        let Some(digest) = self.digest(source, destination, segment) else {
            return false;
        };
        let end = segment.get(12).map_or(0, |b| usize::from(b >> 4) * 4);
        let area = segment.get_mut(HEADER_LEN..end).unwrap_or_default();
        let Some(place) = area.last_chunk_mut::<{ SIGNATURE_LEN as usize }>() else {
            return false;
        };
        let (lead, rest) = place.split_at_mut(LEAD.len());
        lead.copy_from_slice(&LEAD);
        rest.copy_from_slice(&digest);
        true
    }

    /// Whether a segment is signed with this key.
    pub fn verifies(&self, source: IpAddr, destination: IpAddr, segment: &[u8]) -> bool {
        let Some(signed) = option(segment, KIND).filter(|digest| digest.len() == 16) else {
            return false;
        };
        let Some(digest) = self.digest(source, destination, segment) else {
            return false;
        };
        // Without a branch that tells how much was right.
        let differences = signed
            .iter()
            .zip(digest)
            .fold(0, |all, (a, b)| all | (a ^ b));
        differences == 0
    }
}

/// Whether a segment carries a signature of RFC 2385, right or wrong.
pub fn is_signed(segment: &[u8]) -> bool {
    option(segment, KIND).is_some()
}

#[cfg(all(test, feature = "tcp-auth"))]
mod tests {
    use super::*;
    use crate::wire::tcp::{Flags, Header, Options, SeqNum};

    fn segment(text: &[u8], free: u8) -> alloc::vec::Vec<u8> {
        let header = Header {
            source_port: 179,
            destination_port: 4000,
            seq: SeqNum(1),
            ack: SeqNum(2),
            flags: Flags::ACK,
            window: 3,
            options: Options {
                free,
                ..Options::default()
            },
            ..Header::default()
        };
        let mut bytes = alloc::vec![0; header.len()];
        assert_eq!(header.emit(&mut bytes), bytes.len());
        bytes.extend_from_slice(text);
        bytes
    }

    /// RFC 2385 §2.0, with the input written out: 12 or 40 bytes of pseudo header, 20 of header, text, key.
    #[test]
    fn what_is_signed_is_what_the_rfc_says() {
        let key = Md5Key::new(b"secret").unwrap();
        let bytes = segment(b"text", SIGNATURE_LEN);
        let mut header = bytes[..20].to_vec();
        header[16..18].fill(0);
        let cases: [(IpAddr, IpAddr, &[u8]); 2] = [
            (
                [10, 0, 0, 1].into(),
                [10, 0, 0, 2].into(),
                &[10, 0, 0, 1, 10, 0, 0, 2, 0, 6, 0, 44],
            ),
            (
                [7; 16].into(),
                [8; 16].into(),
                &[[7; 16], [8; 16], [0; 16]].concat(),
            ),
        ];
        for (from, to, pseudo) in cases {
            let pseudo = match from {
                IpAddr::V4(_) => pseudo.to_vec(),
                IpAddr::V6(_) => [&pseudo[..32], &[0, 0, 0, 44, 0, 0, 0, 6]].concat(),
            };
            let whole = [&pseudo[..], &header, b"text", b"secret"].concat();
            let expected: [u8; 16] = md5(&[&whole]);
            let mut signed = bytes.clone();
            assert!(key.sign(from, to, &mut signed));
            assert_eq!(signed[20..24], LEAD);
            assert_eq!(signed[24..40], expected);
            assert!(key.verifies(from, to, &signed) && is_signed(&signed));
            assert!(!key.verifies(to, from, &signed), "the other direction");
        }
    }

    /// Every bit that RFC 2385 §2.0 covers, every bit of the signature, and no other.
    #[test]
    fn each_bit_counts() {
        let (from, to) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
        let key = Md5Key::new(&[9; MD5_KEY_MAX]).unwrap();
        let mut signed = segment(b"some text", SIGNATURE_LEN);
        key.sign(from, to, &mut signed);
        assert!(key.verifies(from, to, &signed));
        for bit in 0..signed.len() * 8 {
            let mut changed = signed.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            // The checksum's bits are not covered, nor is a NOP that becomes END, or an option of one byte's length.
            let covered = !(16 * 8..18 * 8).contains(&bit) && !(20 * 8..22 * 8).contains(&bit);
            assert!(!(covered && key.verifies(from, to, &changed)), "bit {bit}");
        }
        let other = Md5Key::new(&[9; MD5_KEY_MAX - 1]).unwrap();
        assert!(!other.verifies(from, to, &signed));
    }

    #[test]
    fn nonsense_is_not_signed() {
        let (from, to) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
        let key = Md5Key::new(b"k").unwrap();
        assert_eq!(Md5Key::new(b""), None);
        assert_eq!(Md5Key::new(&[0; MD5_KEY_MAX + 1]), None);
        let mut bare = segment(b"text", 0);
        assert!(!key.sign(from, to, &mut bare) && !key.verifies(from, to, &bare));
        assert!(!key.verifies(from, [1; 16].into(), &segment(b"", SIGNATURE_LEN)));
        for len in 0..44 {
            let mut cut = segment(b"", SIGNATURE_LEN);
            cut.truncate(len);
            assert!(!key.verifies(from, to, &cut));
            let _ = key.sign(from, to, &mut cut);
        }
    }
}
