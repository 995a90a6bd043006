//! What a UDP socket tells of its sends: time stamps and completions, both known once the send is done.
//!
//! A datagram has left the shard by then, whose turn ended with the send; what waits for a neighbour or for its link has its stamps all the same.

use std::{net::IpAddr, sync::Arc};

use proto::time::Instant;

use super::{
    super::told::{Told, ToldOf},
    Shard, UdpSocket,
};
use crate::{
    api::{DatagramInfo, Readiness, SentPacket, Stamp, StampRequest},
    counters::Counter,
};

/// Of one socket, since its program first asked for any.
#[derive(Debug, Default)]
pub(super) struct Notices {
    told: Told,
    /// SOF_TIMESTAMPING_OPT_ID: of the next send.
    next_id: u32,
}

/// A datagram that was sent and is to have time stamps, until its socket is told of it: it may have left by another shard than that tells.
#[derive(Debug)]
pub struct Stamped {
    request: StampRequest,
    packet: Option<SentPacket>,
}

#[cfg(test)]
impl Stamped {
    /// Without the packet.
    pub const fn of(request: StampRequest) -> Self {
        Self {
            request,
            packet: None,
        }
    }
}

impl UdpSocket {
    /// Whether MSG_ERRQUEUE has something to say of sends.
    pub(super) fn has_notices(&self) -> bool {
        self.notices.as_ref().is_some_and(|n| !n.told.is_empty())
    }

    fn make_notices(&mut self) -> &mut Notices {
        self.notices.get_or_insert_default()
    }
}

impl Shard {
    /// From now on identifiers of time stamps count from 0.
    pub fn udp_number_stamps(&mut self, number: u32) {
        if let Some(socket) = self.udp.get_mut(number) {
            socket.make_notices().next_id = 0;
        }
    }

    /// What was sent is to have time stamps.
    #[cold]
    pub(super) fn udp_keep_stamped(
        &mut self,
        request: StampRequest,
        (source, info): (IpAddr, DatagramInfo),
    ) {
        let frame = std::mem::take(&mut self.kept);
        let packet = (!frame.is_empty()).then_some(SentPacket {
            frame,
            source,
            info,
        });
        self.stamped = Some(Stamped { request, packet });
    }

    /// What the last send is to be told of, if it asked for that.
    #[inline]
    pub const fn udp_take_stamped(&mut self) -> Option<Stamped> {
        self.stamped.take()
    }

    /// A datagram was sent that is to have time stamps.
    pub fn udp_stamp(&mut self, number: u32, stamped: Stamped, now: Instant) {
        let Some(socket) = self.udp.get_mut(number) else {
            return;
        };
        let Stamped { request, packet } = stamped;
        let packet = packet.map(Arc::new);
        let notices = socket.make_notices();
        let mut id = request.id.unwrap_or(0);
        if request.with_id && request.id.is_none() {
            id = notices.next_id;
            notices.next_id = id.wrapping_add(1);
        }
        let all = [
            (request.scheduled, Stamp::Scheduled),
            (request.sent, Stamp::Sent),
        ];
        let asked = all.into_iter().filter(|(is_asked, _)| *is_asked);
        let told = &mut notices.told;
        let lost = asked.filter(|(_, stamp)| !told.stamp_packet(*stamp, id, now, packet.clone()));
        let lost = lost.count() as u64;
        socket.wakers.wake(Readiness::ERROR, &mut self.woken);
        self.counters
            .add(self.number, Counter::DropUdpErrorQueue, lost);
    }

    /// A zero-copy send returned: what it sent was copied, its memory is free.
    pub fn udp_copied(&mut self, number: u32) {
        if let Some(socket) = self.udp.get_mut(number) {
            socket.make_notices().told.copied();
            socket.wakers.wake(Readiness::ERROR, &mut self.woken);
        }
    }

    /// MSG_ERRQUEUE.
    pub fn udp_take_notice(&mut self, number: u32, now: Instant) -> Option<ToldOf> {
        self.udp.get_mut(number)?.notices.as_mut()?.told.take(now)
    }
}
