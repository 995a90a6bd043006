//! Many datagrams of one send in one packet, for a link behind which it is cut apart and gets its checksums.

use percore::slab::Slab;
use proto::wire::{
    checksum::{Partial, fold, pseudo_header},
    ipv4::Protocol,
    udp::HEADER_LEN,
};

use super::{Shard, send::Head, text::Text};
use crate::{
    counters::Counter,
    link::{IP_MAX, Segmentation},
    packet::{HEADROOM, Packet},
};

/// Where a UDP header has its checksum.
const CHECKSUM: usize = 6;

impl Shard {
    /// Sends `text` in one packet, to be cut behind its link into datagrams of `size` bytes. False: it has to be cut here, since the link
    /// takes no such packet, or no large buffer is free, or each datagram is something of its own: it needs an identification
    /// (RFC 6864 §4.1), or is for ourselves, or for a group of which we may be a member.
    pub(super) fn udp_send_uncut(
        &mut self,
        head: &Head,
        text: &Text<'_, '_>,
        size: usize,
    ) -> Result<bool, i32> {
        let (to, len) = (head.to, text.len());
        let headers = head.ip_len() + HEADER_LEN;
        let link = self.host.net.interfaces.get(usize::from(to.interface));
        let link = link.map(|i| i.segmentation);
        let fits = headers + len <= IP_MAX;
        let is_own = to.remote.ip().is_multicast() || self.host.net.is_local(to.remote.ip());
        let is_plain = !head.may_be_cut && !is_own;
        if link != Some(Segmentation::Offloaded { datagrams: true }) || !fits || !is_plain {
            return Ok(false);
        }
        let Some(buffer) = self.bursts.as_mut().and_then(Slab::alloc) else {
            return Ok(false);
        };
        let mut packet = Packet::new(buffer, HEADROOM);
        packet.set_len(headers + len);
        let room = packet.bytes_mut().split_at_mut_checked(headers);
        let (front, payload) = room.ok_or(libc::EMSGSIZE)?;
        text.copy_unsummed(payload);
        head.emit(front, 0, Partial::ZERO, len)?;
        let ends = (to.local.ip(), to.remote.ip());
        let sum = pseudo_header(ends.0, ends.1, Protocol::UDP, HEADER_LEN + len);
        let at = head.ip_len() + CHECKSUM;
        if let (Some(field), Some(sum)) = (front.get_mut(at..at + 2), sum) {
            field.copy_from_slice(&fold(sum).to_be_bytes());
        }
        packet.meta.segment = u16::try_from(size).map_err(|_| libc::EMSGSIZE)?;
        packet.meta.upper = u16::try_from(head.ip_len()).map_err(|_| libc::EMSGSIZE)?;
        packet.meta.protocol = Protocol::UDP;
        packet.meta.flow = head.mark;
        head.keep(packet.bytes(), &mut self.kept);
        self.send(Some(packet), to.interface, Counter::UdpOut);
        let others = len.div_ceil(size.max(1)) as u64 - 1;
        self.counters.add(self.number, Counter::UdpOut, others);
        Ok(true)
    }
}
