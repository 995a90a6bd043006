//! What a socket tells of its sends afterwards: time stamps, and the ends of zero-copy sends.

use std::sync::Arc;

use super::{Role, Socket};
use crate::{
    api::{Notice, SentPacket, StampRequest},
    shard::Shard,
};

impl Socket {
    /// A stream's send took what it takes: its last byte gets these time stamps, for [`take_notice`](Self::take_notice).
    /// Datagrams get what [`SendInfo::stamps`] says.
    pub fn stamp_send(&self, request: StampRequest) {
        if let Some(Role::Stream(stream)) = self.role() {
            let now = self.stack().clock.now();
            stream.hold(self.stack(), |shard, number| {
                shard.tcp_stamp(number, request, now);
            });
        }
    }

    /// Identifiers of a stream's time stamps count from here: the first byte that is not acknowledged, or the next to be written; those of
    /// datagrams from the next one.
    pub fn number_stamps(&self, from_end: bool) {
        if let Some(Role::Stream(stream)) = self.role() {
            stream.hold(self.stack(), |shard, number| {
                shard.tcp_number_stamps(number, from_end);
            });
        }
        if let Some(Role::Datagram(datagram)) = self.role() {
            datagram.first(self.stack(), Shard::udp_number_stamps);
        }
    }

    /// A send with MSG_ZEROCOPY returned: it is told of as done, since what is sent is copied.
    pub fn complete_zero_copy(&self) {
        if let Some(Role::Stream(stream)) = self.role() {
            stream.hold(self.stack(), |shard, number| shard.tcp_copied(number));
        }
        if let Some(Role::Datagram(datagram)) = self.role() {
            datagram.first(self.stack(), Shard::udp_copied);
        }
    }

    /// MSG_ERRQUEUE: what there is to tell of sends.
    pub fn take_notice(&self) -> Option<Notice> {
        self.take_notice_with_packet().map(|(notice, _)| notice)
    }

    /// The same, and the packet that it is about, if [`StampRequest::with_packet`] asked for it.
    pub fn take_notice_with_packet(&self) -> Option<(Notice, Option<Arc<SentPacket>>)> {
        let now = self.stack().clock.now();
        let stream = match self.role()? {
            Role::Stream(stream) => stream,
            Role::Datagram(datagram) => {
                return datagram
                    .first(self.stack(), |shard, part| shard.udp_take_notice(part, now));
            }
            Role::Listening(_) => return None,
        };
        stream.hold(self.stack(), |shard, number| {
            shard.tcp_take_notice(number, now)
        })
    }
}
