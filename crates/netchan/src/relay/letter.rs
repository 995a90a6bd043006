//! What stands before each datagram on its way through a pair: where it comes from or goes to, and what was said along with it. It is read from what
//! any process may have written: whatever the bytes are, they are a letter or none.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV6},
    time::Duration,
};

use crate::socket::{DatagramInfo, SendInfo};

/// What the library of a supervised program passes behind the arguments of bind(2) and connect(2): it will put heads before datagrams.
pub const CAN_WRITE: u64 = 0x6e65_7463_6861_6e01;

/// Bytes of a letter's head; the text follows.
pub const HEAD: usize = 96;

/// A head's bytes.
pub type Head = [u8; HEAD];

/// To the processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inward {
    /// A datagram came.
    Datagram(Arrived),
    /// The socket has an error, by its number.
    Failed(i32),
}

/// A datagram that came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrived {
    /// Its sender.
    pub from: Option<SocketAddr>,
    /// What else is known of it. Its age counts from `at`.
    pub info: Option<DatagramInfo>,
    /// The address of ours that an answer goes out from ([`crate::socket::Socket::answer_from`]).
    pub answer_from: Option<IpAddr>,
    /// When it came, by CLOCK_MONOTONIC.
    pub at: Duration,
}

/// From the processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outward {
    /// A datagram, to where the socket is connected or to an address.
    Datagram(Option<SocketAddr>, SendInfo),
    /// connect(2).
    Connect(SocketAddr),
    /// connect(2) with AF_UNSPEC.
    Disconnect,
}

const ARRIVED: u8 = 1;
const FAILED: u8 = 2;
const SENT: u8 = 3;
const CONNECT: u8 = 4;
const DISCONNECT: u8 = 5;

/// Which of the small fields say something.
const INFO: u8 = 1;
const INTERFACE: u8 = 2;
const TTL: u8 = 4;
const TOS: u8 = 8;
const SEGMENT: u8 = 16;
const MORE: u8 = 32;

/// Family, address, port, scope.
const PLACE: usize = 23;
const PLACES: usize = 24;

/// The fields as they lie there.
#[derive(Clone, Copy, Default)]
struct Fields {
    kind: u8,
    flags: u8,
    interface: u8,
    ttl: u8,
    tos: u8,
    segment: u16,
    /// Drops, or an error.
    word: u32,
    ns: u64,
    places: [Option<SocketAddr>; 3],
}

impl Fields {
    fn encode(&self) -> Head {
        let mut head = [0; HEAD];
        head[0] = self.kind;
        head[1] = self.flags;
        head[2] = self.interface;
        head[3] = self.ttl;
        head[4] = self.tos;
        head[6..8].copy_from_slice(&self.segment.to_le_bytes());
        head[8..12].copy_from_slice(&self.word.to_le_bytes());
        head[16..24].copy_from_slice(&self.ns.to_le_bytes());
        let rooms = head[PLACES..].chunks_exact_mut(PLACE);
        for (room, place) in rooms.zip(self.places) {
            write_place(room, place);
        }
        head
    }

    /// `None`: an address is none.
    fn decode(head: &Head) -> Option<Self> {
        let (small, rest) = head.split_first_chunk::<8>()?;
        let (word, rest) = rest.split_first_chunk()?;
        let (_, rest) = rest.split_first_chunk::<4>()?;
        let (ns, rest) = rest.split_first_chunk()?;
        let [kind, flags, interface, ttl, tos, _, low, high] = *small;
        let mut places = [None; 3];
        for (place, bytes) in places.iter_mut().zip(rest.chunks_exact(PLACE)) {
            *place = read_place(bytes)?;
        }
        Some(Self {
            kind,
            flags,
            interface,
            ttl,
            tos,
            segment: u16::from_le_bytes([low, high]),
            word: u32::from_le_bytes(*word),
            ns: u64::from_le_bytes(*ns),
            places,
        })
    }

    const fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

fn write_place(room: &mut [u8], place: Option<SocketAddr>) {
    let Some(place) = place else { return };
    let (family, ip, scope) = match place {
        SocketAddr::V4(v4) => (4, v4.ip().to_ipv6_mapped(), 0),
        SocketAddr::V6(v6) => (6, *v6.ip(), v6.scope_id()),
    };
    let port = place.port().to_le_bytes();
    let fields = [family].into_iter().chain(ip.octets()).chain(port);
    let fields = fields.chain(scope.to_le_bytes());
    room.iter_mut()
        .zip(fields)
        .for_each(|(to, byte)| *to = byte);
}

fn read_place(bytes: &[u8]) -> Option<Option<SocketAddr>> {
    let (family, rest) = bytes.split_first()?;
    let (ip, rest) = rest.split_first_chunk::<16>()?;
    let (port, scope) = rest.split_first_chunk()?;
    let port = u16::from_le_bytes(*port);
    let scope = u32::from_le_bytes(*scope.first_chunk()?);
    match family {
        0 => Some(None),
        4 => {
            let [.., a, b, c, d] = *ip;
            Some(Some((Ipv4Addr::new(a, b, c, d), port).into()))
        }
        6 => Some(Some(SocketAddrV6::new((*ip).into(), port, 0, scope).into())),
        _ => None,
    }
}

/// An address as a place without a port.
fn place(ip: IpAddr) -> SocketAddr {
    SocketAddr::new(ip, 0)
}

impl Inward {
    /// As bytes.
    pub fn encode(&self) -> Head {
        let arrived = match self {
            Self::Datagram(arrived) => arrived,
            Self::Failed(code) => {
                let fields = Fields {
                    kind: FAILED,
                    word: code.cast_unsigned(),
                    ..Fields::default()
                };
                return fields.encode();
            }
        };
        let mut fields = Fields {
            kind: ARRIVED,
            ns: u64::try_from(arrived.at.as_nanos()).unwrap_or(u64::MAX),
            places: [arrived.from, None, arrived.answer_from.map(place)],
            ..Fields::default()
        };
        if let Some(info) = &arrived.info {
            fields.flags = INFO;
            fields.interface = info.interface;
            fields.ttl = info.ttl;
            fields.tos = info.tos;
            fields.segment = info.segment;
            fields.word = info.drops;
            fields.places[1] = Some(info.destination);
        }
        fields.encode()
    }

    /// `None`: these are none.
    pub fn decode(head: &Head) -> Option<Self> {
        let fields = Fields::decode(head)?;
        let [from, destination, answer_from] = fields.places;
        match fields.kind {
            FAILED => Some(Self::Failed(fields.word.cast_signed())),
            ARRIVED => Some(Self::Datagram(Arrived {
                from,
                info: destination
                    .filter(|_| fields.has(INFO))
                    .map(|destination| DatagramInfo {
                        destination,
                        interface: fields.interface,
                        ttl: fields.ttl,
                        tos: fields.tos,
                        segment: fields.segment,
                        age: Duration::ZERO,
                        drops: fields.word,
                    }),
                answer_from: answer_from.map(|place| place.ip()),
                at: Duration::from_nanos(fields.ns),
            })),
            _ => None,
        }
    }
}

impl Outward {
    /// As bytes.
    pub fn encode(&self) -> Head {
        let mut fields = Fields::default();
        match self {
            Self::Connect(to) => {
                fields.kind = CONNECT;
                fields.places[0] = Some(*to);
            }
            Self::Disconnect => fields.kind = DISCONNECT,
            Self::Datagram(to, info) => {
                fields.kind = SENT;
                fields.places = [*to, info.source.map(place), None];
                let mut put = |flag, is: bool| fields.flags |= if is { flag } else { 0 };
                put(INTERFACE, info.interface.is_some());
                put(TTL, info.ttl.is_some());
                put(TOS, info.tos.is_some());
                put(SEGMENT, info.segment.is_some());
                put(MORE, info.more);
                fields.interface = info.interface.unwrap_or(0);
                fields.ttl = info.ttl.unwrap_or(0);
                fields.tos = info.tos.unwrap_or(0);
                fields.segment = info.segment.unwrap_or(0);
            }
        }
        fields.encode()
    }

    /// Of whatever a process has written.
    ///
    /// # Errors
    /// It is none.
    pub fn decode(head: &Head) -> io::Result<Self> {
        let none = || io::Error::from(io::ErrorKind::InvalidData);
        let fields = Fields::decode(head).ok_or_else(none)?;
        let [to, source, _] = fields.places;
        match (fields.kind, to) {
            (SENT, _) => {
                let info = SendInfo {
                    source: source.map(|place| place.ip()),
                    interface: fields.has(INTERFACE).then_some(fields.interface),
                    ttl: fields.has(TTL).then_some(fields.ttl),
                    tos: fields.has(TOS).then_some(fields.tos),
                    segment: fields.has(SEGMENT).then_some(fields.segment),
                    more: fields.has(MORE),
                    ..SendInfo::default()
                };
                Ok(Self::Datagram(to, info))
            }
            (CONNECT, Some(to)) => Ok(Self::Connect(to)),
            (DISCONNECT, _) => Ok(Self::Disconnect),
            _ => Err(none()),
        }
    }
}

const _: () = assert!(PLACES + 3 * PLACE <= HEAD);

#[cfg(test)]
#[path = "letter_tests.rs"]
mod tests;
