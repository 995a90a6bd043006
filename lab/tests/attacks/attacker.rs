//! A peer without a stack: it opens connections by hand, remembers where they are, and says whatever it likes.

use std::collections::BTreeMap;

use crate::{
    door::Outside,
    frames::{Ends, Random, checksum, ethernet, ipv4, ipv4_with, transport},
};

pub const FIN: u8 = 1;
pub const SYN: u8 = 2;
pub const RST: u8 = 4;
pub const ACK: u8 = 16;

/// A connection as this end knows it.
#[derive(Clone, Copy)]
pub struct Peer {
    pub port: u16,
    pub service: u16,
    /// What this end says next.
    pub next: u32,
    /// What is expected of the other end.
    pub expected: u32,
    /// The highest that came from there.
    pub highest: u32,
    pub open: bool,
    pub window: u16,
}

pub struct Attacker {
    pub outside: Outside,
    pub ends: Ends,
    pub random: Random,
    pub peers: BTreeMap<u16, Peer>,
    /// Whether text is acknowledged as it comes.
    pub acknowledges: bool,
    /// Whether its segments are of IPv6.
    pub v6: bool,
    /// The Fast Open cookie that came last.
    pub cookie: Vec<u8>,
    pub sent_bytes: u64,
    pub sent_frames: u64,
    next_port: u16,
}

impl Attacker {
    pub fn new(outside: Outside, target_mac: [u8; 6]) -> Self {
        Self {
            outside,
            ends: Ends::new(target_mac),
            random: Random::new(1),
            peers: BTreeMap::new(),
            acknowledges: false,
            v6: false,
            cookie: Vec::new(),
            sent_bytes: 0,
            sent_frames: 0,
            next_port: 1024,
        }
    }

    pub fn send(&mut self, frame: Vec<u8>) {
        self.sent_bytes += frame.len() as u64;
        self.sent_frames += 1;
        self.outside.push(frame);
    }

    /// A segment of `peer`'s connection, with what `options` and `text` say.
    pub fn segment(
        &mut self,
        peer: &Peer,
        sequence: u32,
        acknowledgment: u32,
        flags: u8,
        options: &[u8],
        text: &[u8],
    ) {
        let mut message = [peer.port.to_be_bytes(), peer.service.to_be_bytes()].concat();
        message.extend(sequence.to_be_bytes());
        message.extend(acknowledgment.to_be_bytes());
        let words = 5 + options.len() / 4;
        message.extend([u8::try_from(words << 4).unwrap_or(0xf0), flags]);
        message.extend(peer.window.to_be_bytes());
        message.extend([0, 0, 0, 0]);
        message.extend(options);
        message.extend(text);
        let frame = transport(&self.ends, self.v6, 6, 16, message);
        self.send(frame);
    }

    /// Text behind what was said before.
    pub fn say(&mut self, port: u16, text: &[u8]) {
        let Some(mut peer) = self.peers.get(&port).copied() else {
            return;
        };
        self.segment(&peer, peer.next, peer.expected, ACK, &[], text);
        peer.next = peer
            .next
            .wrapping_add(u32::try_from(text.len()).unwrap_or(0));
        self.peers.insert(port, peer);
    }

    /// SYN; the rest of the handshake is `hear`'s.
    pub fn open(&mut self, service: u16, window: u16, options: &[u8]) -> u16 {
        self.open_with(service, window, options, &[])
    }

    /// [`Self::open`] with text behind the SYN.
    pub fn open_with(&mut self, service: u16, window: u16, options: &[u8], text: &[u8]) -> u16 {
        let port = self.next_port;
        self.next_port = if port == u16::MAX { 1024 } else { port + 1 };
        let start = self.random.next().to_le_bytes();
        let start = u32::from_le_bytes([start[0], start[1], start[2], start[3]]);
        let peer = Peer {
            port,
            service,
            next: start.wrapping_add(1),
            expected: 0,
            highest: 0,
            open: false,
            window,
        };
        self.segment(&peer, start, 0, SYN, options, text);
        self.peers.insert(port, peer);
        port
    }

    pub fn ports(&self) -> Vec<u16> {
        self.peers
            .values()
            .filter(|peer| peer.open)
            .map(|peer| peer.port)
            .collect()
    }

    /// Reads what the host said: ARP is answered for each address, a SYN-ACK acknowledged.
    pub fn hear(&mut self) {
        for frame in self.outside.said() {
            match frame.get(12..14) {
                Some([0x08, 0x06]) => self.hear_arp(&frame),
                Some([0x08, 0x00]) if frame.get(23) == Some(&6) => {
                    let total = usize::from(frame[16]) << 8 | usize::from(frame[17]);
                    self.hear_tcp(frame.get(34..14 + total).unwrap_or_default());
                }
                Some([0x86, 0xdd]) if frame.get(20) == Some(&6) => {
                    let len = usize::from(frame[18]) << 8 | usize::from(frame[19]);
                    self.hear_tcp(frame.get(54..54 + len).unwrap_or_default());
                }
                Some([0x86, 0xdd]) if frame.get(20) == Some(&58) => self.hear_neighbor(&frame),
                _ => {}
            }
        }
    }

    fn hear_arp(&mut self, frame: &[u8]) {
        let (Some(asked), Some([0, 1])) = (frame.get(38..42), frame.get(20..22)) else {
            return;
        };
        // Of the neighbours that flood, none answers.
        if asked != self.ends.source {
            return;
        }
        let mut message = vec![0, 1, 8, 0, 6, 4, 0, 2];
        message.extend(self.ends.source_mac);
        message.extend(asked);
        message.extend(self.ends.target_mac);
        message.extend(self.ends.target);
        let frame = ethernet(&self.ends, 0x0806, &message);
        self.send(frame);
    }

    /// A neighbor solicitation for this address (RFC 4861 §4.3) is answered.
    fn hear_neighbor(&mut self, frame: &[u8]) {
        let own = self.ends.source6;
        if frame.get(54) != Some(&135) || frame.get(62..78) != Some(&own[..]) {
            return;
        }
        let mut message = vec![136, 0, 0, 0, 0x60, 0, 0, 0];
        message.extend(own);
        message.extend([2, 1]);
        message.extend(self.ends.source_mac);
        let frame = transport(&self.ends, true, 58, 2, message);
        self.send(frame);
    }

    fn hear_tcp(&mut self, segment: &[u8]) {
        let Some(header) = segment.get(..20) else {
            return;
        };
        let number = |at: usize| {
            u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
        };
        let port = u16::from_be_bytes([header[2], header[3]]);
        let Some(mut peer) = self.peers.get(&port).copied() else {
            return;
        };
        let options_end = usize::from(header[12] >> 4) * 4;
        let text = segment.len().saturating_sub(options_end);
        let flags = header[13];
        let end = number(4)
            .wrapping_add(u32::try_from(text).unwrap_or(0))
            .wrapping_add(u32::from(flags & FIN));
        if flags & RST != 0 {
            self.peers.remove(&port);
            return;
        }
        if flags & SYN != 0 && !peer.open {
            if let Some(cookie) = segment.get(20..options_end).and_then(cookie_in) {
                self.cookie = cookie;
            }
            peer.expected = number(4).wrapping_add(1);
            (peer.highest, peer.open) = (peer.expected, true);
            self.segment(&peer, peer.next, peer.expected, ACK, &[], &[]);
        } else if i32::from_ne_bytes(end.wrapping_sub(peer.highest).to_ne_bytes()) > 0 {
            peer.highest = end;
            if self.acknowledges {
                peer.expected = end;
                self.segment(&peer, peer.next, end, ACK, &[], &[]);
            }
        }
        self.peers.insert(port, peer);
    }

    /// Becomes another host of this network.
    pub fn move_elsewhere(&mut self) {
        let r = self.random.next().to_le_bytes();
        self.ends.source = [10, 77, r[0].max(1), r[1].clamp(1, 254)];
    }

    pub fn move_home(&mut self) {
        self.ends.source = [10, 77, 0, 9];
    }

    pub fn icmp(&mut self, kind: u8, code: u8, rest: &[u8]) {
        let mut message = [&[kind, code, 0, 0], rest].concat();
        let sum = checksum(&[&message]);
        message[2..4].copy_from_slice(&sum);
        let frame = ipv4(&self.ends, 1, &message);
        self.send(frame);
    }

    /// A first fragment of a datagram of which no other comes.
    pub fn fragment(&mut self, number: u16) {
        let mut frame = ipv4_with(&self.ends, 17, 0x2000, &[], &[0; 64]);
        frame[18..20].copy_from_slice(&number.to_be_bytes());
        frame[24..26].fill(0);
        let sum = checksum(&[&frame[14..34]]);
        frame[24..26].copy_from_slice(&sum);
        self.send(frame);
    }
}

/// The cookie among a SYN-ACK's options.
fn cookie_in(mut options: &[u8]) -> Option<Vec<u8>> {
    while let Some(&kind) = options.first() {
        let len = match kind {
            0 => return None,
            1 => 1,
            _ => usize::from(*options.get(1)?).max(2),
        };
        if kind == 34 {
            return options.get(2..len).map(<[u8]>::to_vec);
        }
        options = options.get(len..)?;
    }
    None
}
