//! Master keys of TCP-AO and what is made of them (RFC 5926): traffic keys, and the codes of segments.

use core::{fmt, net::IpAddr, net::SocketAddr, ops::Range};

use super::{AO_KEY_MAX, AO_MAC_MAX, LEAD};
use crate::{
    tcp::digests::{self, CAN_SIGN, hmac_sha1},
    wire::tcp::{HEADER_LEN, SeqNum},
};

/// The length of a code that both algorithms of RFC 5926 ask for.
const MAC_LEN: u8 = 12;

/// How keys are derived and codes made: the two of RFC 5926 §3, both mandatory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum AoAlgorithm {
    /// KDF_HMAC_SHA1 and HMAC-SHA-1-96.
    #[default]
    HmacSha1,
    /// KDF_AES_128_CMAC and AES-128-CMAC-96.
    Aes128Cmac,
}

/// A key of one connection, one direction and one kind of segment, or a code: 20 bytes of SHA-1, or 16 of AES.
pub type TrafficKey = [u8; 20];

/// A master key tuple (RFC 5925 §3.1) without its peer: ids, algorithm and secret.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct AoKey {
    secret: [u8; AO_KEY_MAX],
    len: u8,
    send_id: u8,
    receive_id: u8,
    algorithm: AoAlgorithm,
    mac_len: u8,
    /// Other options are not covered, so that a middlebox may change them.
    excludes_options: bool,
}

impl fmt::Debug for AoKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (send, receive) = (self.send_id, self.receive_id);
        write!(f, "AoKey({send}, {receive}, {:?})", self.algorithm)
    }
}

impl AoKey {
    /// A key with codes of 96 bits that cover all options. `None`: the secret is empty, or longer than [`AO_KEY_MAX`], or this build
    /// signs nothing ([`CAN_SIGN`]).
    pub fn new(algorithm: AoAlgorithm, secret: &[u8], send_id: u8, receive_id: u8) -> Option<Self> {
        let mut bytes = [0; AO_KEY_MAX];
        bytes.get_mut(..secret.len())?.copy_from_slice(secret);
        let len = u8::try_from(secret.len())
            .ok()
            .filter(|&len| len > 0 && CAN_SIGN)?;
        Some(Self {
            secret: bytes,
            len,
            send_id,
            receive_id,
            algorithm,
            mac_len: MAC_LEN,
            excludes_options: false,
        })
    }

    /// With codes of so many bytes, 1 to [`AO_MAC_MAX`]; `None` for others.
    pub fn with_mac_len(self, mac_len: u8) -> Option<Self> {
        (1..=AO_MAC_MAX)
            .contains(&mac_len)
            .then_some(Self { mac_len, ..self })
    }

    /// Options other than TCP-AO's own are not covered.
    pub const fn excluding_options(mut self) -> Self {
        self.excludes_options = true;
        self
    }

    /// SendID: what segments out name.
    pub const fn send_id(&self) -> u8 {
        self.send_id
    }

    /// RecvID: what segments in name.
    pub const fn receive_id(&self) -> u8 {
        self.receive_id
    }

    /// Its algorithms.
    pub const fn algorithm(&self) -> AoAlgorithm {
        self.algorithm
    }

    /// Bytes of its codes.
    pub const fn mac_len(&self) -> u8 {
        self.mac_len
    }

    /// Whether options other than TCP-AO's own are left out of codes.
    pub const fn excludes_options(&self) -> bool {
        self.excludes_options
    }

    /// The master key.
    pub fn secret(&self) -> &[u8] {
        self.secret.get(..usize::from(self.len)).unwrap_or_default()
    }

    /// Two keys for the same peer may not (RFC 5925 §3.1).
    pub const fn shares_id(&self, other: &Self) -> bool {
        self.send_id == other.send_id || self.receive_id == other.receive_id
    }

    /// RFC 5926 §3.1.1: one block of a counter, a label, the connection and the output's length in bits.
    pub(super) fn traffic_key(
        &self,
        (source, destination): (SocketAddr, SocketAddr),
        source_isn: SeqNum,
        destination_isn: SeqNum,
    ) -> TrafficKey {
        let mut input = Input::default();
        input.push(&[1]);
        input.push(b"TCP-AO");
        input.push_ip(source.ip());
        input.push_ip(destination.ip());
        input.push(&source.port().to_be_bytes());
        input.push(&destination.port().to_be_bytes());
        input.push(&source_isn.0.to_be_bytes());
        input.push(&destination_isn.0.to_be_bytes());
        match self.algorithm {
            AoAlgorithm::HmacSha1 => {
                input.push(&160_u16.to_be_bytes());
                hmac_sha1(self.secret(), &[input.bytes()])
            }
            AoAlgorithm::Aes128Cmac => {
                input.push(&128_u16.to_be_bytes());
                // RFC 5926 §3.1.1.2: a master key of another length is made one of 128 bits.
                let key = match self.secret().first_chunk::<16>() {
                    Some(key) if self.len == 16 => *key,
                    _ => first_16(&aes_cmac(&[0; 16], &[self.secret()])),
                };
                aes_cmac(&key, &[input.bytes()])
            }
        }
    }

    /// The code of a segment (RFC 5925 §5.1) whose option has it in the bytes `mac`, which count as zero, as does the checksum. `None`: no
    /// whole segment, or two families.
    pub(super) fn mac(
        &self,
        key: &TrafficKey,
        sne: u32,
        (source, destination): (SocketAddr, SocketAddr),
        segment: &[u8],
        mac: Range<usize>,
    ) -> Option<TrafficKey> {
        let len = u16::try_from(segment.len()).ok()?;
        let header = segment.first_chunk::<HEADER_LEN>()?;
        let mut lead = Input::default();
        lead.push(&sne.to_be_bytes());
        lead.push_ip(source.ip());
        lead.push_ip(destination.ip());
        let [high, low] = len.to_be_bytes();
        match (source.ip(), destination.ip()) {
            (IpAddr::V4(_), IpAddr::V4(_)) => lead.push(&[0, 6, high, low]),
            (IpAddr::V6(_), IpAddr::V6(_)) => lead.push(&[0, 0, high, low, 0, 0, 0, 6]),
            _ => return None,
        }
        lead.push(&header[..16]);
        lead.push(&[0, 0]);
        lead.push(&header[18..]);
        let end = usize::from(header[12] >> 4) * 4;
        let text = segment.get(end..)?;
        let own = mac.start.checked_sub(LEAD)?;
        let zeros = [0; AO_MAC_MAX as usize];
        let zeros = zeros.get(..mac.len())?;
        let (before, after) = if self.excludes_options {
            (segment.get(own..mac.start)?, &[][..])
        } else {
            let before = segment.get(HEADER_LEN..mac.start)?;
            (before, segment.get(mac.end..end)?)
        };
        let parts = [lead.bytes(), before, zeros, after, text];
        Some(match self.algorithm {
            AoAlgorithm::HmacSha1 => hmac_sha1(key, &parts),
            AoAlgorithm::Aes128Cmac => aes_cmac(&first_16(key), &parts),
        })
    }
}

/// What is hashed before options and text: at most a pseudo header of 40 bytes, a header of 20 and the extension of 4.
struct Input {
    bytes: [u8; 64],
    len: usize,
}

impl Default for Input {
    fn default() -> Self {
        Self {
            bytes: [0; 64],
            len: 0,
        }
    }
}

impl Input {
    fn push(&mut self, part: &[u8]) {
        let end = self.len + part.len();
        if let Some(place) = self.bytes.get_mut(self.len..end) {
            place.copy_from_slice(part);
            self.len = end;
        }
    }

    fn push_ip(&mut self, ip: IpAddr) {
        match ip {
            IpAddr::V4(ip) => self.push(&ip.octets()),
            IpAddr::V6(ip) => self.push(&ip.octets()),
        }
    }

    fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }
}

fn first_16(bytes: &TrafficKey) -> [u8; 16] {
    let mut first = [0; 16];
    first.copy_from_slice(&bytes[..16]);
    first
}

fn aes_cmac(key: &[u8; 16], parts: &[&[u8]]) -> TrafficKey {
    let mut code = [0; 20];
    code[..16].copy_from_slice(&digests::aes_cmac(key, parts));
    code
}
