//! A frame of an EtherType that the stack does not speak, on its way from a shard to its link, among IP packets: the payload behind a label that
//! says where it goes. What looks at IP packets takes the label for none: it has neither version, and as IPv6 it would be from `::`, from which
//! nothing is sent but by the host itself.

use percore::slab::Buffer;
use proto::wire::ethernet::{self, EtherType, MacAddr};

use crate::packet::{HEADROOM, Packet};

/// Byte 0 is zero, then comes the address; bytes 8 to 23, IPv6's source address, are zero; then comes the type.
const LABEL: usize = 26;
const MAC_AT: usize = 1;
const TYPE_AT: usize = 24;

const _: () = assert!(LABEL + ethernet::HEADER_LEN <= HEADROOM);

/// A packet of `len` bytes of payload, to be written where `fill` is shown. `None`: they do not fit.
pub fn labelled(
    buffer: Buffer,
    destination: MacAddr,
    kind: EtherType,
    len: usize,
    fill: impl FnOnce(&mut [u8]),
) -> Option<Packet> {
    let mut packet = Packet::new(buffer, HEADROOM - LABEL);
    packet.set_len(LABEL + len);
    let (label, payload) = packet.bytes_mut().split_at_mut_checked(LABEL)?;
    if payload.len() != len {
        return None;
    }
    label.fill(0);
    label[MAC_AT..MAC_AT + 6].copy_from_slice(&destination.0);
    label[TYPE_AT..].copy_from_slice(&kind.0.to_be_bytes());
    fill(payload);
    Some(packet)
}

/// Takes the label off; what it says. `None`: it is an IP packet.
pub fn take_label(packet: &mut Packet) -> Option<(MacAddr, EtherType)> {
    let label = packet.bytes().first_chunk::<LABEL>()?;
    if label[0] != 0 {
        return None;
    }
    let mac = MacAddr(*label.get(MAC_AT..)?.first_chunk()?);
    let kind = EtherType(u16::from_be_bytes(*label.last_chunk()?));
    packet.pull(LABEL);
    Some((mac, kind))
}

#[cfg(test)]
mod tests {
    use percore::slab::Slab;

    use super::*;

    #[test]
    fn label_comes_off_as_it_was_put_on() {
        let mut slab = Slab::new(4, 128).unwrap();
        let (mac, kind) = (MacAddr([0x45, 1, 2, 3, 4, 5]), EtherType(0x88b5));
        for len in [0, 1, 88] {
            let fill = |payload: &mut [u8]| payload.fill(7);
            let mut packet = labelled(slab.alloc().unwrap(), mac, kind, len, fill).unwrap();
            assert_eq!(take_label(&mut packet), Some((mac, kind)));
            assert_eq!(packet.bytes(), vec![7; len]);
            assert!(packet.push(ethernet::HEADER_LEN).is_some());
        }
        let too_long = labelled(slab.alloc().unwrap(), mac, kind, 89, |_| ());
        assert!(too_long.is_none());
    }

    #[test]
    fn packet_has_no_label() {
        let mut slab = Slab::new(4, 128).unwrap();
        for bytes in [&[0x45; 40][..], &[0x60; 40], &[0; 25], &[]] {
            let mut packet = Packet::new(slab.alloc().unwrap(), HEADROOM);
            packet.set_len(bytes.len());
            packet.bytes_mut().copy_from_slice(bytes);
            assert_eq!(take_label(&mut packet), None);
            assert_eq!(packet.bytes(), bytes);
        }
    }
}
