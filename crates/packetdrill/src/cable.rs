//! The cable: a link whose other end is a script. Towards the script it carries bare IP packets; the Ethernet header and the answers to
//! ARP and neighbour discovery are its own, so that no script has to know of them.

use std::{
    collections::VecDeque,
    io,
    net::{IpAddr, Ipv6Addr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use netchan::{
    link::{
        FRAME_OVERHEAD, Link, LinkError, LinkRx, LinkTx, Properties, Queue, RxStatistics,
        Segmentation, TxStatistics,
    },
    packet::Packet,
};
use percore::{doorbell::Doorbell, slab::Slab};
use proto::{
    time::Instant,
    wire::{
        arp,
        ethernet::{EtherType, Header, MacAddr},
        ipv4::Protocol,
        ipv6, ndp,
    },
};

/// Our end.
const OURS: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
/// Every neighbour's.
const THEIRS: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);
const ETHERNET: usize = 14;

/// An IP packet that the stack sent.
#[derive(Clone, Debug)]
pub struct Sent {
    /// When it left.
    pub at: Instant,
    /// From the IP header's first byte on.
    pub bytes: Vec<u8>,
}

#[derive(Debug, Default)]
struct Under {
    /// Frames on their way to the stack.
    inbound: VecDeque<Vec<u8>>,
    /// Packets that the script has not seen yet.
    outbound: VecDeque<Sent>,
    bell: Option<Arc<Doorbell>>,
}

/// The script's end of a cable.
#[derive(Clone, Debug, Default)]
pub struct Cable(Arc<Mutex<Under>>);

impl Cable {
    /// The stack's end, for IP packets of at most `mtu` bytes, and up to `longest` from the script; with `trains` the script also gets several
    /// segments in one packet, as from a host whose network card cuts them.
    pub fn link(&self, mtu: usize, longest: usize, trains: bool) -> Box<dyn Link> {
        Box::new(End {
            under: self.0.clone(),
            properties: Properties {
                name: "script".to_owned(),
                kind: "script",
                mac: OURS,
                mtu,
                frame_max: longest.max(mtu) + FRAME_OVERHEAD,
                segmentation: match trains {
                    true => Segmentation::Carried,
                    false => Segmentation::None,
                },
            },
            rx: RxStatistics::default(),
            tx: TxStatistics::default(),
        })
    }

    /// Puts an IP packet on the cable.
    pub fn inject(&self, packet: &[u8]) {
        let kind = match packet.first() {
            Some(first) if first >> 4 == 6 => EtherType::IPV6,
            _ => EtherType::IPV4,
        };
        let mut under = lock(&self.0);
        under.inbound.push_back(frame(kind, packet));
        if let Some(bell) = &under.bell {
            bell.ring();
        }
    }

    /// The next packet that the stack sent.
    pub fn take(&self) -> Option<Sent> {
        lock(&self.0).outbound.pop_front()
    }

    /// Whether there is one.
    pub fn has_packet(&self) -> bool {
        !lock(&self.0).outbound.is_empty()
    }
}

fn lock(under: &Mutex<Under>) -> MutexGuard<'_, Under> {
    under.lock().unwrap_or_else(PoisonError::into_inner)
}

/// `payload` in a frame from a neighbour to us.
fn frame(kind: EtherType, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; ETHERNET];
    Header::new(OURS, THEIRS, kind).emit(&mut bytes);
    bytes.extend_from_slice(payload);
    bytes
}

/// The neighbour's answer to an ARP request: it has every address.
fn arp_reply(bytes: &[u8]) -> Option<Vec<u8>> {
    let asked = arp::Packet::parse(bytes).ok()?;
    if asked.operation != arp::Operation::Request || asked.sender_ip == asked.target_ip {
        return None; // no host objects to an address of ours
    }
    if asked.sender_ip.is_unspecified() {
        return None;
    }
    let reply = arp::Packet {
        operation: arp::Operation::Reply,
        sender_mac: THEIRS,
        sender_ip: asked.target_ip,
        target_mac: asked.sender_mac,
        target_ip: asked.sender_ip,
    };
    let mut bytes = [0; arp::LEN];
    reply.emit(&mut bytes);
    Some(frame(EtherType::ARP, &bytes))
}

/// What the neighbour does with an IPv6 packet that is the link's own business: `None` if it is the script's.
fn ndp_reply(packet: &[u8]) -> Option<Option<Vec<u8>>> {
    let header = ipv6::Header::parse(packet).ok()?;
    let body = packet.get(ipv6::HEADER_LEN..)?;
    if header.next_header == Protocol(0) {
        return Some(None); // hop-by-hop options: a report of group memberships
    }
    if header.next_header != Protocol::ICMPV6 || !matches!(body.first(), Some(133..=137)) {
        return None;
    }
    let message = ndp::Message::parse(header.source, header.destination, header.hop_limit, body);
    let Ok(ndp::Message::NeighborSolicitation { target, .. }) = message else {
        return Some(None);
    };
    if header.source.is_unspecified() {
        return Some(None);
    }
    Some(advertisement(target, header.source))
}

fn advertisement(target: Ipv6Addr, to: Ipv6Addr) -> Option<Vec<u8>> {
    let message = ndp::Message::NeighborAdvertisement {
        target,
        router: true,
        solicited: true,
        replace: true,
        target_link: Some(THEIRS),
    };
    let mut body = [0; 64];
    let len = message.emit(target, to, &mut body);
    let mut header = ipv6::Header::new(Protocol::ICMPV6, target, to);
    header.hop_limit = ndp::HOP_LIMIT;
    let mut packet = vec![0; ipv6::HEADER_LEN];
    header.emit(len, &mut packet);
    packet.extend_from_slice(body.get(..len)?);
    Some(frame(EtherType::IPV6, &packet))
}

/// The addresses of an IP packet.
pub fn addresses(packet: &[u8]) -> Option<(IpAddr, IpAddr)> {
    match packet.first()? >> 4 {
        4 => {
            let header = proto::wire::ipv4::Header::parse(packet).ok()?;
            Some((header.source.into(), header.destination.into()))
        }
        _ => {
            let header = ipv6::Header::parse(packet).ok()?;
            Some((header.source.into(), header.destination.into()))
        }
    }
}

/// The stack's end.
struct End {
    under: Arc<Mutex<Under>>,
    properties: Properties,
    rx: RxStatistics,
    tx: TxStatistics,
}

impl End {
    fn sent(&mut self, now: Instant, frame: &[u8]) {
        let Ok((header, len)) = Header::parse(frame) else {
            return;
        };
        let payload = frame.get(len..).unwrap_or_default();
        let mut under = lock(&self.under);
        let answer = match header.ethertype {
            EtherType::ARP => arp_reply(payload),
            EtherType::IPV6 => match ndp_reply(payload) {
                Some(answer) => answer,
                None => return under.push(now, payload),
            },
            _ => return under.push(now, payload),
        };
        under.inbound.extend(answer);
        if let Some(bell) = &under.bell {
            bell.ring();
        }
    }
}

impl Under {
    fn push(&mut self, at: Instant, packet: &[u8]) {
        let bytes = packet.to_vec();
        self.outbound.push_back(Sent { at, bytes });
    }
}

impl Link for End {
    fn properties(&self) -> &Properties {
        &self.properties
    }

    fn start(self: Box<Self>, bells: &[Arc<Doorbell>]) -> io::Result<Vec<Queue>> {
        lock(&self.under).bell = bells.first().cloned();
        Ok(vec![Queue::of_one(*self)?])
    }
}

impl LinkRx for End {
    fn receive(
        &mut self,
        _now: Instant,
        slab: &mut Slab,
        burst: &mut VecDeque<Packet>,
        max: usize,
    ) -> Result<usize, LinkError> {
        let mut under = lock(&self.under);
        let mut count = 0;
        while count < max {
            let Some(bytes) = under.inbound.pop_front() else {
                break;
            };
            let Some(buffer) = slab.alloc() else {
                self.rx.no_buffer += 1;
                break;
            };
            let mut packet = Packet::new(buffer, 0);
            let Some(room) = packet.room_mut().get_mut(..bytes.len()) else {
                self.rx.length += 1;
                slab.free(packet.into_buffer());
                continue;
            };
            room.copy_from_slice(&bytes);
            packet.set_len(bytes.len());
            self.rx.packets += 1;
            self.rx.bytes += bytes.len() as u64;
            burst.push_back(packet);
            count += 1;
        }
        Ok(count)
    }

    /// What is under way arrives at once.
    fn next_event(&mut self) -> Instant {
        if lock(&self.under).inbound.is_empty() {
            Instant::FAR
        } else {
            Instant::ZERO
        }
    }

    fn statistics(&self) -> RxStatistics {
        self.rx
    }
}

impl LinkTx for End {
    fn transmit(
        &mut self,
        now: Instant,
        frames: &mut VecDeque<Packet>,
    ) -> Result<usize, LinkError> {
        let count = frames.len();
        for packet in frames.drain(..) {
            self.tx.packets += 1;
            self.tx.bytes += packet.len() as u64;
            self.sent(now, packet.bytes());
        }
        Ok(count)
    }

    fn statistics(&self) -> TxStatistics {
        self.tx
    }
}
