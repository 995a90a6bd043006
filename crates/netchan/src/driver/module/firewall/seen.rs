//! What of a packet tracking goes by: its flow, and of TCP its header. Every length is checked: it is all chosen by an untrusted peer.

use std::{fmt, net::IpAddr};

use proto::wire::{
    icmpv4, icmpv6,
    ipv4::Protocol,
    tcp::{self, Flags, SeqNum},
};

use crate::driver::module::View;

/// One end of a flow: an address and a port; of an echo, the side that asks has its identifier, the other 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct End {
    pub ip: IpAddr,
    pub port: u16,
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        std::net::SocketAddr::new(self.ip, self.port).fmt(f)
    }
}

/// The ends that a packet is between, in its direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuple {
    pub protocol: Protocol,
    pub source: End,
    pub destination: End,
}

impl Tuple {
    /// That of an answer.
    pub const fn reversed(self) -> Self {
        Self {
            protocol: self.protocol,
            source: self.destination,
            destination: self.source,
        }
    }
}

/// What of a TCP header tracking looks at.
#[derive(Clone, Copy, Debug)]
pub struct Segment {
    pub seq: SeqNum,
    pub ack: SeqNum,
    pub flags: Flags,
    pub window: u16,
    /// Bytes of text.
    pub text: u32,
    /// Of a SYN: the shift that it offers.
    pub scale: Option<u8>,
}

/// A packet of a flow, or an ICMP error about one.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    /// The ends, in the direction in which the packet goes: of an error, those of what it quotes, turned round.
    pub tuple: Tuple,
    /// Of an error: where the quoted IP header begins, from the packet's first byte on.
    pub quote: Option<usize>,
    /// Of TCP.
    pub segment: Option<Segment>,
    /// Whether a flow may begin with it, by its kind.
    pub opens: bool,
}

/// `None`: it belongs to no flow that can be followed. A fragment, a header that is cut short or makes no sense, ICMP that is neither an
/// echo nor an error.
pub fn read(view: &View<'_>) -> Option<Seen> {
    if view.is_fragment() || view.upper_at() == 0 {
        return None;
    }
    match view.protocol() {
        Protocol::ICMP | Protocol::ICMPV6 => {
            let is_v4 = view.source().is_ipv4();
            if is_v4 != (view.protocol() == Protocol::ICMP) {
                return None;
            }
            if !is_error(view) {
                let (tuple, opens) = echo(view)?;
                return Some(plain(tuple, opens));
            }
            about(view)
        }
        Protocol::TCP => {
            let segment = segment(view.upper())?;
            let seen = plain(tuple(view)?, false);
            Some(Seen {
                segment: Some(segment),
                opens: true,
                ..seen
            })
        }
        _ => Some(plain(tuple(view)?, true)),
    }
}

const fn plain(tuple: Tuple, opens: bool) -> Seen {
    Seen {
        tuple,
        quote: None,
        segment: None,
        opens,
    }
}

/// UDP-Lite and DCCP sum the pseudo header at places of their own: they are not followed.
const OTHER_SUMS: [Protocol; 2] = [Protocol(33), Protocol(136)];

fn tuple(view: &View<'_>) -> Option<Tuple> {
    let protocol = view.protocol();
    let (source, destination) = match protocol {
        Protocol::TCP | Protocol::UDP => view.ports()?,
        other if OTHER_SUMS.contains(&other) => return None,
        _ => (0, 0),
    };
    Some(Tuple {
        protocol,
        source: End {
            ip: view.source(),
            port: source,
        },
        destination: End {
            ip: view.destination(),
            port: destination,
        },
    })
}

/// The type of an ICMP message.
pub fn icmp_type(view: &View<'_>) -> Option<u8> {
    let is_icmp = match view.source() {
        IpAddr::V4(_) => view.protocol() == Protocol::ICMP,
        IpAddr::V6(_) => view.protocol() == Protocol::ICMPV6,
    };
    view.upper().first().copied().filter(|_| is_icmp)
}

fn is_error(view: &View<'_>) -> bool {
    let Some(kind) = icmp_type(view) else {
        return false;
    };
    match view.source() {
        // Unreachable, source quench, redirect, time exceeded, parameter problem.
        IpAddr::V4(_) => matches!(kind, 3 | 4 | 5 | 11 | 12),
        IpAddr::V6(_) => matches!(kind, 1..=4),
    }
}

/// An echo's ends, and whether it asks.
fn echo(view: &View<'_>) -> Option<(Tuple, bool)> {
    let asks = match (view.source(), icmp_type(view)?) {
        (IpAddr::V4(_), 8) | (IpAddr::V6(_), 128) => true,
        (IpAddr::V4(_), 0) | (IpAddr::V6(_), 129) => false,
        _ => return None,
    };
    let &[_, _, _, _, a, b, ..] = view.upper() else {
        return None;
    };
    let ident = u16::from_be_bytes([a, b]);
    let (source, destination) = if asks { (ident, 0) } else { (0, ident) };
    let tuple = Tuple {
        protocol: view.protocol(),
        source: End {
            ip: view.source(),
            port: source,
        },
        destination: End {
            ip: view.destination(),
            port: destination,
        },
    };
    Some((tuple, asks))
}

/// What an error quotes. An error about an error is none.
fn about(view: &View<'_>) -> Option<Seen> {
    const _: () = assert!(icmpv4::HEADER_LEN == 8 && icmpv6::HEADER_LEN == 8);
    let quoted = View::parse(view.upper().get(icmpv4::HEADER_LEN..)?)?;
    if quoted.upper_at() == 0 || quoted.source().is_ipv4() != view.source().is_ipv4() {
        return None;
    }
    let tuple = match quoted.protocol() {
        Protocol::ICMP | Protocol::ICMPV6 => echo(&quoted)?.0,
        _ => tuple(&quoted)?,
    };
    Some(Seen {
        tuple: tuple.reversed(),
        quote: Some(view.upper_at() + icmpv4::HEADER_LEN),
        segment: None,
        opens: false,
    })
}

fn segment(bytes: &[u8]) -> Option<Segment> {
    let head = bytes.first_chunk::<{ tcp::HEADER_LEN }>()?;
    let [
        _,
        _,
        _,
        _,
        s0,
        s1,
        s2,
        s3,
        a0,
        a1,
        a2,
        a3,
        offset,
        flags,
        w0,
        w1,
        ..,
    ] = *head;
    let header_len = usize::from(offset >> 4) * 4;
    if header_len < tcp::HEADER_LEN || header_len > bytes.len() {
        return None;
    }
    let flags = Flags(flags.into());
    if !makes_sense(flags) {
        return None;
    }
    let scale = flags.contains(Flags::SYN).then(|| {
        let option = tcp::option(bytes, 3)?; // RFC 7323 §2.2
        option.last().map(|&shift| shift.min(14))
    });
    Some(Segment {
        seq: SeqNum(u32::from_be_bytes([s0, s1, s2, s3])),
        ack: SeqNum(u32::from_be_bytes([a0, a1, a2, a3])),
        flags,
        window: u16::from_be_bytes([w0, w1]),
        text: u32::try_from(bytes.len() - header_len).unwrap_or(u32::MAX),
        scale: scale.flatten(),
    })
}

/// Whether a sender that follows RFC 9293 can send these (negative 57).
fn makes_sense(flags: Flags) -> bool {
    let [fin, syn, rst, ack] =
        [Flags::FIN, Flags::SYN, Flags::RST, Flags::ACK].map(|f| flags.contains(f));
    match (syn, rst, fin) {
        (true, false, false) | (false, true, false) => true,
        (false, false, _) => ack,
        _ => false,
    }
}
