//! The name of the end of a pair that programs hold: what it stands for, which a program that came by it through exec(2) knows from nothing else.

use std::{
    net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use percore::clock::now_ns;

use crate::socket::Domain;

/// What a shared end stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Bytes go through it.
    Connection,
    /// Connections come through it, a message each.
    Listener,
    /// Datagrams go through it, each behind a head ([`super::letter`]).
    Datagrams,
}

/// What the name of a shared end says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Name {
    /// What it stands for.
    pub role: Role,
    /// The family of its socket.
    pub domain: Domain,
    /// What processes call it to each other.
    pub number: u64,
    /// The socket's own address.
    pub local: SocketAddr,
    /// Of a connection; of a datagram socket port 0, if it is not connected.
    pub peer: SocketAddr,
    /// What recvmsg(2) shall tell of datagrams, as bits.
    pub asked: u32,
}

/// How each of these names begins; the last byte is their version.
const MAGIC: &[u8; 8] = b"netchan\x01";
const ADDRESS: usize = 22;
/// Bytes of a name: magic, role, domain, number, two addresses, what it is asked, and what makes it the only one of its kind.
pub const LEN: usize = MAGIC.len() + 2 + 8 + 2 * ADDRESS + 4 + 20;

/// A name's bytes.
pub type Encoded = [u8; LEN];

impl Name {
    /// As bytes, which no other shared end has.
    pub fn encode(&self) -> Encoded {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let next = NEXT.fetch_add(1, Relaxed); // only has to differ
        let mut bytes = [0; LEN];
        let mut rest = bytes.as_mut_slice();
        let mut put = |part: &[u8]| {
            let room = rest.split_off_mut(..part.len()).unwrap_or_default();
            room.copy_from_slice(part);
        };
        put(MAGIC);
        let role = match self.role {
            Role::Connection => 0,
            Role::Listener => 1,
            Role::Datagrams => 2,
        };
        let is_v6 = self.domain == Domain::V6;
        put(&[role, u8::from(is_v6)]);
        put(&self.number.to_le_bytes());
        put(&address(self.local));
        put(&address(self.peer));
        put(&self.asked.to_le_bytes());
        put(&std::process::id().to_le_bytes());
        put(&next.to_le_bytes());
        // Process ids repeat, also beside each other in several namespaces.
        put(&now_ns().to_le_bytes());
        bytes
    }

    /// `None`: these are no name's.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &Encoded = bytes.try_into().ok()?;
        let (magic, rest) = bytes.split_first_chunk()?;
        let ([role, domain], rest) = rest.split_first_chunk()?;
        let (number, rest) = rest.split_first_chunk()?;
        let (local, rest) = rest.split_first_chunk()?;
        let (peer, rest) = rest.split_first_chunk()?;
        let (asked, _) = rest.split_first_chunk()?;
        let role = match role {
            0 => Role::Connection,
            1 => Role::Listener,
            2 => Role::Datagrams,
            _ => return None,
        };
        (magic == MAGIC).then(|| Self {
            role,
            domain: if *domain == 0 { Domain::V4 } else { Domain::V6 },
            number: u64::from_le_bytes(*number),
            local: of_bytes(local),
            peer: of_bytes(peer),
            asked: u32::from_le_bytes(*asked),
        })
    }
}

/// IPv4 as IPv6 carries it, or IPv6; port; scope.
fn address(address: SocketAddr) -> [u8; ADDRESS] {
    let (ip, scope) = match address {
        SocketAddr::V4(v4) => (v4.ip().to_ipv6_mapped(), 0),
        SocketAddr::V6(v6) => (*v6.ip(), v6.scope_id()),
    };
    let mut bytes = [0; ADDRESS];
    let (to, rest) = bytes.split_at_mut(16);
    let (port, to_scope) = rest.split_at_mut(2);
    to.copy_from_slice(&ip.octets());
    port.copy_from_slice(&address.port().to_le_bytes());
    to_scope.copy_from_slice(&scope.to_le_bytes());
    bytes
}

fn of_bytes(bytes: &[u8; ADDRESS]) -> SocketAddr {
    let [ip @ .., p0, p1, s0, s1, s2, s3] = *bytes;
    let port = u16::from_le_bytes([p0, p1]);
    let scope = u32::from_le_bytes([s0, s1, s2, s3]);
    let ip = Ipv6Addr::from(ip);
    match ip.to_ipv4_mapped() {
        Some(v4) => SocketAddr::new(IpAddr::V4(v4), port),
        None => SocketAddrV6::new(ip, port, 0, scope).into(),
    }
}
