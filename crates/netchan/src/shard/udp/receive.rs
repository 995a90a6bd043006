//! Datagrams on their way to the application: one, or several of one sender at a time (UDP_GRO), with what their headers said.

use std::{io::IoSliceMut, net::SocketAddr};

use proto::{
    tcp::Shelf,
    time::Instant,
    wire::{ipv4::Protocol, udp::HEADER_LEN},
};

use super::{Shard, UdpSocket};
use crate::{
    api::{DatagramInfo, ReceiveFlags, Received},
    limits,
    packet::Packet,
    shard::samples::Reader,
};

/// A datagram that waits.
#[derive(Debug)]
pub(super) struct Waiting {
    /// Its payload. The headers still stand before it.
    pub packet: Packet,
    /// On the shelf.
    pub place: u8,
    /// Its sender's number among those that share memory.
    pub peer: u16,
    pub from: SocketAddr,
    /// When it came.
    pub at: Instant,
    /// Datagrams dropped before it.
    pub drops: u32,
}

/// What a datagram's IP header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Facts {
    destination: SocketAddr,
    ttl: u8,
    tos: u8,
}

impl Waiting {
    #[inline]
    fn facts(&self) -> Option<Facts> {
        let upper = usize::from(self.packet.meta.upper);
        let (ip, port) = if self.packet.meta.protocol == Protocol::UDP {
            let headers = self.packet.before(upper + HEADER_LEN)?;
            let (ip, udp) = headers.split_at_checked(upper)?;
            (ip, [udp[2], udp[3]])
        } else {
            // As Linux: where a port would stand.
            let [_, _, port @ ..] = *self.packet.bytes().first_chunk::<4>()?;
            (self.packet.before(upper)?, port)
        };
        let port = u16::from_be_bytes(port);
        Some(match *ip.first()? >> 4 {
            4 => {
                let ip = ip.first_chunk::<20>()?;
                let [.., a, b, c, d] = *ip;
                Facts {
                    destination: SocketAddr::from(([a, b, c, d], port)),
                    ttl: ip[8],
                    tos: ip[1],
                }
            }
            _ => {
                let ip = ip.first_chunk::<40>()?;
                let destination: &[u8; 16] = ip.last_chunk()?;
                Facts {
                    destination: SocketAddr::from((*destination, port)),
                    ttl: ip[7],
                    tos: ip[0] << 4 | ip[1] >> 4,
                }
            }
        })
    }
}

/// Where received bytes go: the program's buffers, filled from front to back.
struct Room<'a, 'b> {
    buffers: &'a mut [IoSliceMut<'b>],
    buffer: usize,
    at: usize,
}

impl Room<'_, '_> {
    /// Copies what fits; how much that is.
    fn put(&mut self, mut bytes: &[u8]) -> usize {
        let all = bytes.len();
        while let Some(buffer) = self.buffers.get_mut(self.buffer) {
            let n = bytes.len().min(buffer.len() - self.at);
            buffer[self.at..self.at + n].copy_from_slice(&bytes[..n]);
            bytes = &bytes[n..];
            self.at += n;
            if bytes.is_empty() {
                break;
            }
            (self.buffer, self.at) = (self.buffer + 1, 0);
        }
        all - bytes.len()
    }
}

impl UdpSocket {
    /// How many of the datagrams that wait go into one receive with room for `room` bytes: those of one sender that are as long as the
    /// first, and maybe a shorter one after them, as Linux's GRO merges them. Only what fits: none is cut that would not be alone.
    fn merged(&self, room: usize) -> usize {
        let Some(first) = self.queue.front() else {
            return 1;
        };
        let (size, facts) = (first.packet.len(), first.facts());
        let (mut count, mut bytes) = (1, size);
        for next in self.queue.iter().skip(1).take(limits::UDP_MERGED - 1) {
            let len = next.packet.len();
            let same = next.from == first.from && next.facts() == facts;
            if len == 0 || len > size || !same || bytes + len > room.min(limits::UDP_MERGED_BYTES) {
                break;
            }
            bytes += len;
            count += 1;
            if len < size {
                break;
            }
        }
        count
    }

    fn info(&self, count: usize, now: Instant) -> Option<DatagramInfo> {
        let first = self.queue.front()?;
        let facts = first.facts()?;
        let merged = if count > 1 { first.packet.len() } else { 0 };
        Some(DatagramInfo {
            destination: facts.destination,
            interface: first.packet.meta.interface,
            ttl: facts.ttl,
            tos: facts.tos,
            segment: u16::try_from(merged).unwrap_or(0),
            age: now.since(first.at),
            drops: first.drops,
        })
    }
}

impl Shard {
    /// Takes (or looks at) the first datagram; several, where they may be merged.
    ///
    /// # Errors
    /// An errno: EAGAIN, or what an ICMP error said.
    pub fn udp_receive(
        &mut self,
        number: u32,
        buffers: &mut [IoSliceMut<'_>],
        flags: ReceiveFlags,
        now: Instant,
    ) -> Result<Received, i32> {
        let socket = self.udp.get_mut(number).ok_or(libc::EBADF)?;
        if let Some(error) = socket.error.take() {
            return Err(error);
        }
        let Some(from) = socket.queue.front().map(|first| first.from) else {
            // As Linux: shut down is the end to a call that would wait.
            if socket.read_shut && flags.enough {
                return Ok(Received::stream(0));
            }
            return Err(libc::EAGAIN);
        };
        let count = if socket.options.merge {
            socket.merged(buffers.iter().map(|buffer| buffer.len()).sum())
        } else {
            1
        };
        let (info, is_ping) = (socket.info(count, now), socket.is_ping());
        let mut room = Room {
            buffers,
            buffer: 0,
            at: 0,
        };
        let (mut whole, mut copied, mut memory, mut peer) = (0, 0, 0, 0);
        for waiting in (0..count).map_while(|at| socket.queue.get(at)) {
            whole += waiting.packet.len();
            copied += room.put(waiting.packet.bytes());
            memory += waiting.packet.true_size();
            peer = waiting.peer; // of one sender, all
        }
        if !flags.peek {
            for _ in 0..count {
                if let Some(waiting) = socket.queue.pop_front() {
                    self.pool.shelf_mut().free(waiting.place);
                }
            }
            socket.show_first(self.number);
            socket.queued -= whole + count * limits::UDP_OVERHEAD;
            socket.memory -= memory;
            self.udp_queued -= count;
            let read = u32::try_from(count).unwrap_or(u32::MAX);
            self.samples.read(Reader::Udp(number), read);
            self.datagrams_gone(peer, memory);
        }
        Ok(Received {
            // As Linux: ping sockets say what they copied.
            len: if flags.truncate && !is_ping {
                whole
            } else {
                copied
            },
            from: Some(from),
            truncated: copied < whole,
            info,
        })
    }
}

#[cfg(test)]
#[path = "score_tests.rs"]
mod score_tests;
