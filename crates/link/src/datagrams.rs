//! Datagrams that the sender's kernel merged into one frame (UDP_SEGMENT, udp(7)), cut apart again.
//!
//! Unlike TCP's segments they cannot be taken as they come: where a datagram ends means something to its receiver.

use netchan_base::packet::Packet;
use percore::slab::Slab;
use proto::wire::checksum;

/// No buffer for a datagram: it is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoBuffer;

/// A merged frame and how much of it has been cut off.
#[derive(Debug)]
pub struct Datagrams {
    merged: Packet,
    v6: bool,
    /// Where the IP header and the UDP header start, bytes into the frame.
    ip: usize,
    udp: usize,
    /// Bytes of payload in each datagram but the last.
    size: usize,
    /// Bytes of payload already cut off.
    done: usize,
    number: u16,
}

const UDP_HEADER: usize = 8;

impl Datagrams {
    /// `udp`: where the UDP header starts, bytes into the frame; `size`: bytes of payload in each datagram.
    /// Gives back a frame that cannot be what these say.
    pub fn new(merged: Packet, udp: usize, size: usize) -> Result<Self, Packet> {
        let bytes = merged.bytes();
        let word = |at: usize| bytes.get(at..at + 2).map(|w| [w[0], w[1]]);
        let ip = if word(12) == Some([0x81, 0x00]) {
            18
        } else {
            14
        };
        let v6 = word(ip - 2) == Some([0x86, 0xdd]);
        let least = if v6 { 40 } else { 20 };
        let known = v6 || word(ip - 2) == Some([0x08, 0x00]);
        let fits = udp >= ip + least && udp - ip <= 256 && udp + UDP_HEADER < bytes.len();
        if known && fits && size > 0 {
            Ok(Self {
                merged,
                v6,
                ip,
                udp,
                size,
                done: 0,
                number: 0,
            })
        } else {
            Err(merged)
        }
    }

    /// The next datagram, as a frame of its own; `None` after the last.
    pub fn next(&mut self, slab: &mut Slab) -> Option<Result<Packet, NoBuffer>> {
        let (head, data) = self
            .merged
            .bytes()
            .split_at_checked(self.udp + UDP_HEADER)?;
        let data = data.get(self.done..).filter(|rest| !rest.is_empty())?;
        let data = data.get(..self.size).unwrap_or(data);
        self.done += data.len();
        self.number = self.number.wrapping_add(1);
        let Some(buffer) = slab.alloc() else {
            return Some(Err(NoBuffer));
        };
        let mut packet = Packet::new(buffer, 0);
        packet.set_len(head.len() + data.len());
        packet.meta = self.merged.meta;
        let (front, back) = packet.bytes_mut().split_at_mut_checked(head.len())?;
        front.copy_from_slice(head);
        // Shorter than its source only if a buffer cannot hold a frame, which `frame_max` rules out.
        back.get_mut(..data.len())?.copy_from_slice(data);
        self.mend(front, data.len());
        Some(Ok(packet))
    }

    /// Makes the headers those of a datagram with `len` bytes of payload.
    fn mend(&self, head: &mut [u8], len: usize) {
        let mut put = |at: usize, value: usize| {
            if let (Some(to), Ok(value)) = (head.get_mut(at..at + 2), u16::try_from(value)) {
                to.copy_from_slice(&value.to_be_bytes());
            }
        };
        put(self.udp + 4, UDP_HEADER + len);
        if self.v6 {
            put(self.ip + 4, self.udp - self.ip - 40 + UDP_HEADER + len);
            return;
        }
        put(self.ip + 2, self.udp - self.ip + UDP_HEADER + len);
        put(self.ip + 10, 0);
        if let Some(header) = head.get_mut(self.ip..self.udp) {
            // Identifications count up, as the kernel's own cutting makes them; `number` counts from 1.
            let id = u16::from_be_bytes([header[4], header[5]]).wrapping_add(self.number - 1);
            header[4..6].copy_from_slice(&id.to_be_bytes());
            let sum = checksum::finish(checksum::sum(header));
            header[10..12].copy_from_slice(&sum.to_be_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merged(slab: &mut Slab, headers: &[u8], payload: usize) -> Packet {
        let mut packet = Packet::new(slab.alloc().expect("a buffer"), 0);
        packet.set_len(headers.len() + payload);
        let (head, data) = packet.bytes_mut().split_at_mut(headers.len());
        head.copy_from_slice(headers);
        data.iter_mut().zip(0u8..=255).for_each(|(to, n)| *to = n);
        packet
    }

    #[test]
    fn cut_into_equal_parts_and_a_rest() {
        let mut slab = Slab::new(16, 2048).unwrap();
        let mut v4 = vec![0; 12];
        v4.extend([
            0x08, 0, 0x45, 0, 0xff, 0xff, 0xff, 0xff, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
        ]);
        v4.extend([0, 1, 0, 2, 0xff, 0xff, 0, 0]);
        let mut cut = Datagrams::new(merged(&mut slab, &v4, 250), 34, 100).unwrap();
        for (n, len) in [(0u16, 100u16), (1, 100), (2, 50)] {
            let packet = cut.next(&mut slab).unwrap().unwrap();
            let bytes = packet.bytes();
            assert_eq!(bytes.len(), 42 + usize::from(len));
            assert_eq!(bytes[16..18], (28 + len).to_be_bytes());
            assert_eq!(bytes[18..20], 0xffffu16.wrapping_add(n).to_be_bytes());
            assert!(checksum::is_valid(checksum::sum(&bytes[14..34])));
            assert_eq!(bytes[38..40], (8 + len).to_be_bytes());
            assert_eq!(u16::from(bytes[42]), n * 100);
        }
        assert!(cut.next(&mut slab).is_none() && cut.next(&mut slab).is_none());
        drop(cut);
        let mut v6 = vec![0; 12];
        v6.extend([0x81, 0, 0, 5, 0x86, 0xdd, 0x60, 0, 0, 0, 0xff, 0xff, 17, 64]);
        v6.extend([1; 32]);
        v6.extend([0, 1, 0, 2, 0xff, 0xff, 0, 0]);
        let mut cut = Datagrams::new(merged(&mut slab, &v6, 200), 58, 100).unwrap();
        let packet = cut.next(&mut slab).unwrap().unwrap();
        assert_eq!(
            (packet.len(), packet.bytes()[22..24].to_vec()),
            (166, vec![0, 108])
        );
        let held: Vec<_> = std::iter::from_fn(|| slab.alloc()).collect();
        assert_eq!(cut.next(&mut slab).unwrap().err(), Some(NoBuffer));
        assert!(cut.next(&mut slab).is_none());
        drop((cut, packet, held));
        assert_eq!(slab.available(), slab.capacity());
    }

    #[test]
    fn nonsense_is_given_back() {
        let mut slab = Slab::new(4, 2048).unwrap();
        for (headers, payload, udp, size) in [
            (vec![0; 12], 0, 0, 0),
            (vec![8; 60], 10, 34, 100),
            ([vec![0; 12], vec![8, 0], vec![0; 28]].concat(), 100, 34, 0),
            ([vec![0; 12], vec![8, 0], vec![0; 28]].concat(), 100, 20, 10),
            (
                [vec![0; 12], vec![8, 0], vec![0; 28]].concat(),
                100,
                65_535,
                10,
            ),
            ([vec![0; 12], vec![8, 0], vec![0; 28]].concat(), 0, 34, 10),
        ] {
            let packet = merged(&mut slab, &headers, payload);
            assert!(Datagrams::new(packet, udp, size).is_err());
        }
    }
}
