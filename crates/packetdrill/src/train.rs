//! Trains: segments that leave together, as a host with segmentation offload would hand them to its link.
//!
//! Linux gives such a host's segments to the network card as one, and sets PSH on each such one, whether or not all of the sender's text is
//! in it; RFC 9293 §3.9.1.2 asks for PSH where it is, and leaves the rest open. packetdrill's scripts look at the flag. With the
//! setting `trains`, the cable shows what a card would make of it: PSH on the last of several consecutive segments of one burst.

use proto::wire::{
    checksum,
    tcp::{Flags, Header},
};

/// Where in an IP packet its TCP header starts; `None`: it is something else.
fn tcp_at(packet: &[u8]) -> Option<usize> {
    let first = *packet.first()?;
    let (at, protocol) = match first >> 4 {
        4 => (usize::from(first & 0xf) * 4, *packet.get(9)?),
        6 => (40, *packet.get(6)?),
        _ => return None,
    };
    (protocol == 6).then_some(at)
}

/// What makes two segments neighbours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    ports: (u16, u16),
    begin: u32,
    end: u32,
}

fn place(packet: &[u8]) -> Option<Place> {
    let segment = packet.get(tcp_at(packet)?..)?;
    let (header, len) = Header::parse(segment).ok()?;
    let text = u32::try_from(segment.len() - len).ok()?;
    let plain = !header.flags.intersects(Flags::SYN) && text > 0;
    plain.then_some(Place {
        ports: (header.source_port, header.destination_port),
        begin: header.seq.0,
        end: header.seq.0.wrapping_add(text),
    })
}

/// What was sent so far: what is sent again is no part of a train.
#[derive(Clone, Debug, Default)]
pub struct Yard {
    /// Where each flow's new text begins.
    fresh: Vec<((u16, u16), u32)>,
}

impl Yard {
    /// Whether a segment is new; it is not a second time.
    fn is_fresh(&mut self, here: Place) -> bool {
        match self
            .fresh
            .iter_mut()
            .find(|(ports, _)| *ports == here.ports)
        {
            Some((_, fresh)) => {
                let new = here.begin.wrapping_sub(*fresh).cast_signed() >= 0;
                if new {
                    *fresh = here.end;
                }
                new
            }
            None => {
                self.fresh.push((here.ports, here.end));
                true
            }
        }
    }
}

/// Sets PSH on the last segment of each train of at least two in `burst`.
pub fn mark<'a>(yard: &mut Yard, burst: impl Iterator<Item = &'a mut [u8]>) {
    let mut before: Option<(Place, &mut [u8], bool)> = None;
    for packet in burst {
        let here = place(packet).filter(|here| yard.is_fresh(*here));
        let joins = before
            .as_ref()
            .zip(here)
            .is_some_and(|((last, ..), here)| last.ports == here.ports && last.end == here.begin);
        if let Some((_, last, true)) = before.take().filter(|_| !joins) {
            push(last);
        }
        before = here.map(|here| (here, packet, joins));
    }
    if let Some((_, last, true)) = before {
        push(last);
    }
}

/// Sets PSH, and mends the checksum.
fn push(packet: &mut [u8]) {
    let Some(at) = tcp_at(packet) else { return };
    let Some([high, low, _, _, sum @ ..]) = packet.get_mut(at + 12..at + 18) else {
        return;
    };
    let Ok(place) = <&mut [u8; 2]>::try_from(sum) else {
        return;
    };
    let old = u16::from_be_bytes([*high, *low]);
    *low |= 0x08;
    let new = u16::from_be_bytes([*high, *low]);
    *place = checksum::update(u16::from_be_bytes(*place), old, new).to_be_bytes();
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An IPv4 packet without addresses: a TCP header of 20 bytes and `len` of text.
    fn segment(seq: u32, len: usize) -> Vec<u8> {
        let mut packet = vec![0; 40 + len];
        packet[0] = 0x45;
        packet[9] = 6;
        packet[24..28].copy_from_slice(&seq.to_be_bytes());
        packet[32] = 0x50;
        packet[33] = 0x10;
        packet
    }

    fn pushed(packets: &mut [Vec<u8>]) -> Vec<bool> {
        mark(
            &mut Yard::default(),
            packets.iter_mut().map(Vec::as_mut_slice),
        );
        packets.iter().map(|packet| packet[33] & 8 != 0).collect()
    }

    #[test]
    fn the_last_of_several_neighbours_is_pushed() {
        let mut burst = [segment(1, 10), segment(11, 10), segment(21, 5)];
        assert_eq!(pushed(&mut burst), [false, false, true]);
        let mut burst = [
            segment(1, 10),
            segment(11, 10),
            segment(51, 10),
            segment(61, 0),
        ];
        assert_eq!(pushed(&mut burst), [false, true, false, false]);
    }

    #[test]
    fn one_segment_is_no_train() {
        assert_eq!(pushed(&mut [segment(1, 10)]), [false]);
        assert_eq!(
            pushed(&mut [segment(1, 10), segment(1, 10)]),
            [false, false]
        );
    }

    #[test]
    fn the_checksum_follows() {
        let mut burst = [segment(1, 10), segment(11, 10)];
        let before = checksum::checksum(&burst[1][20..]);
        mark(
            &mut Yard::default(),
            burst.iter_mut().map(Vec::as_mut_slice),
        );
        // The field began as zero, so it now holds the difference, which the sum of all takes back.
        assert_eq!(checksum::checksum(&burst[1][20..]), before);
    }
}
