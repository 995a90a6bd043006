//! Datagrams on their way out: whole, cut into fragments, cut into many (UDP_SEGMENT), or put together from several sends (UDP_CORK).

use std::{
    io::IoSlice,
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use proto::{
    time::Instant,
    wire::{
        checksum::Partial,
        ethernet::{self, EtherType, MacAddr},
        ipv4,
        ipv4::Protocol,
        ipv6,
        udp::{HEADER_LEN, Header},
    },
};

use super::{Shard, ping::Echo, text::Text};
use crate::{
    api::{DatagramInfo, SendInfo},
    counters::Counter,
    emit::{IpFields, fragments, ip_header_len, pieces_max},
    limits,
    packet::{HEADROOM, Packet},
};

/// Where a datagram goes.
#[derive(Clone, Copy, Debug)]
pub struct Destination {
    /// Our end.
    pub local: SocketAddr,
    /// The other.
    pub remote: SocketAddr,
    /// The interface it leaves by.
    pub interface: u8,
}

/// All that the headers of a send's datagrams say.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head {
    pub(super) to: Destination,
    fields: IpFields,
    /// SO_MARK.
    pub(super) mark: u32,
    /// Without DF: identifications are drawn (RFC 6864 §4.1 asks it of what may be cut).
    pub(super) may_be_cut: bool,
    no_checksum: bool,
    /// Of a ping socket, instead of a UDP header.
    echo: Option<Echo>,
    /// Its time stamps show the packet.
    pub(super) is_shown: bool,
}

impl Head {
    pub(super) const fn ip_len(&self) -> usize {
        ip_header_len(self.to.remote.ip())
    }

    const fn counter(&self) -> Counter {
        match self.echo {
            Some(_) => Counter::IcmpOut,
            None => Counter::UdpOut,
        }
    }

    /// Keeps the first packet of a send for its time stamps, as a frame.
    pub(super) fn keep(&self, packet: &[u8], kept: &mut Vec<u8>) {
        if !self.is_shown || !kept.is_empty() {
            return;
        }
        let ethertype = match self.to.remote.is_ipv4() {
            true => EtherType::IPV4,
            false => EtherType::IPV6,
        };
        let unset = MacAddr([0; 6]);
        kept.resize(ethernet::HEADER_LEN, 0);
        ethernet::Header::new(unset, unset, ethertype).emit(kept);
        kept.extend_from_slice(packet);
    }

    /// What time stamps say of it.
    pub(super) const fn as_info(&self) -> DatagramInfo {
        let (ttl, tos) = match self.to.remote {
            SocketAddr::V4(_) => (self.fields.ttl, self.fields.tos),
            SocketAddr::V6(_) => (self.fields.hops, self.fields.class),
        };
        DatagramInfo {
            destination: self.to.remote,
            interface: self.to.interface,
            ttl,
            tos,
            segment: 0,
            age: Duration::ZERO,
            drops: 0,
        }
    }

    fn protocol(&self) -> Protocol {
        self.echo.map_or(Protocol::UDP, |echo| echo.protocol())
    }

    /// Bytes of payload that the longest IP packet takes.
    const fn payload_max(&self) -> usize {
        let ip = if self.to.remote.is_ipv4() {
            ipv4::HEADER_LEN
        } else {
            0
        };
        u16::MAX as usize - ip - HEADER_LEN
    }

    /// Writes IP and UDP (or ICMP) headers to `room`, which is as long as they are, for a payload of `len` bytes that sums to `sum`.
    pub(super) fn emit(
        &self,
        room: &mut [u8],
        ident: u16,
        sum: Partial,
        len: usize,
    ) -> Result<(), i32> {
        let (local, remote) = (self.to.local, self.to.remote);
        let (ip, udp) = room
            .split_at_mut_checked(self.ip_len())
            .ok_or(libc::EMSGSIZE)?;
        if let Some(echo) = self.echo {
            echo.emit((local, remote), sum, len, udp)?;
        } else {
            self.emit_udp(udp, sum, len);
        }
        let len = HEADER_LEN + len;
        let written = match (local.ip(), remote.ip()) {
            (IpAddr::V4(local), IpAddr::V4(remote)) => {
                let mut header = ipv4::Header::new(self.protocol(), local, remote);
                header.ttl = self.fields.ttl;
                header.tos = self.fields.tos;
                if self.may_be_cut {
                    header.dont_fragment = false;
                    header.ident = ident;
                }
                header.emit(len, ip)
            }
            (IpAddr::V6(local), IpAddr::V6(remote)) => {
                let mut header = ipv6::Header::new(self.protocol(), local, remote);
                header.hop_limit = self.fields.hops;
                header.traffic_class = self.fields.class;
                header.emit(len, ip)
            }
            _ => 0,
        };
        if written == 0 {
            return Err(libc::EAFNOSUPPORT);
        }
        Ok(())
    }

    fn emit_udp(&self, room: &mut [u8], sum: Partial, len: usize) {
        let (local, remote) = (self.to.local, self.to.remote);
        let header = Header {
            source_port: local.port(),
            destination_port: remote.port(),
            ..Header::default()
        };
        header.emit(local.ip(), remote.ip(), sum, len, room);
        if self.no_checksum
            && let Some(field) = room.get_mut(6..8)
        {
            field.fill(0);
        }
    }

    /// Writes a whole IP packet with the next `len` bytes of `text` to `room`, which is as long as that.
    fn build(
        &self,
        room: &mut [u8],
        ident: u16,
        text: &mut Text<'_, '_>,
        len: usize,
    ) -> Result<(), i32> {
        let (headers, payload) = room
            .split_at_mut_checked(self.ip_len() + HEADER_LEN)
            .ok_or(libc::EMSGSIZE)?;
        let sum = text.copy_to(payload);
        self.emit(headers, ident, sum, len)
    }
}

/// A datagram that several sends make up. The first of them says where it goes.
#[derive(Debug)]
pub(super) struct Corked {
    text: Vec<u8>,
    /// `None`: nothing is under way.
    first: Option<(Destination, SendInfo)>,
}

impl Shard {
    /// Sends what `buffers` hold as one datagram or, with UDP_SEGMENT, as many; how many bytes.
    ///
    /// # Errors
    /// An errno: EMSGSIZE, EINVAL (more datagrams than UDP_SEGMENT may make), EAGAIN (no buffer at the moment), or what an ICMP error said
    /// about an earlier datagram.
    pub fn udp_send(
        &mut self,
        number: u32,
        to: Destination,
        info: &SendInfo,
        buffers: &[IoSlice<'_>],
        now: Instant,
    ) -> Result<usize, i32> {
        let text = Text::new(buffers);
        let len = text.len();
        let is_long = len > usize::from(u16::MAX);
        if is_long && to.remote.is_ipv4() {
            return Err(libc::EMSGSIZE); // as Linux, without a word in the error queue
        }
        let socket = self.udp.get_mut(number).ok_or(libc::EBADF)?;
        if socket.write_shut {
            return Err(socket.error.take().unwrap_or(libc::EPIPE));
        }
        if is_long {
            if let Some(corked) = &mut socket.corked {
                corked.forget();
            }
            return Err(self.udp_too_long(number, &to, now));
        }
        if info.more || socket.corked().0 {
            return self.udp_cork(number, to, info, buffers, now);
        }
        self.udp_emit(number, (to, None), info, text, now)
    }

    /// Sends an echo request, which `buffers` hold whole, with the identifier of a ping socket.
    ///
    /// # Errors
    /// As [`Self::udp_send`].
    pub fn ping_send(
        &mut self,
        number: u32,
        (to, echo): (Destination, Echo),
        info: &SendInfo,
        buffers: &[IoSlice<'_>],
        now: Instant,
    ) -> Result<usize, i32> {
        let socket = self.udp.get_mut(number).ok_or(libc::EBADF)?;
        if socket.write_shut {
            return Err(socket.error.take().unwrap_or(libc::EPIPE));
        }
        let mut text = Text::new(buffers);
        text.copy_to(&mut [0; HEADER_LEN]);
        let sent = self.udp_emit(number, (to, Some(echo)), info, text, now)?;
        Ok(HEADER_LEN + sent)
    }

    /// Adds to the datagram under way, and sends it if no more is to come. As Linux: an error forgets all of it.
    fn udp_cork(
        &mut self,
        number: u32,
        to: Destination,
        info: &SendInfo,
        buffers: &[IoSlice<'_>],
        now: Instant,
    ) -> Result<usize, i32> {
        let socket = self.udp.get_mut(number).ok_or(libc::EBADF)?;
        let stays = info.more || socket.options.cork;
        let corked = socket.corked.get_or_insert_with(|| {
            Box::new(Corked {
                text: Vec::with_capacity(1 << 16),
                first: None,
            })
        });
        let (first, _) = *corked.first.get_or_insert((to, *info));
        let len: usize = buffers.iter().map(|buffer| buffer.len()).sum();
        let is_v4 = first.remote.is_ipv4();
        let most = usize::from(u16::MAX) - HEADER_LEN - if is_v4 { ipv4::HEADER_LEN } else { 0 };
        if corked.text.len() + len > most {
            corked.forget();
            return Err(self.udp_too_long(number, &first, now));
        }
        for buffer in buffers {
            corked.text.extend_from_slice(buffer);
        }
        if !stays {
            self.udp_uncork(number, now)?;
        }
        Ok(len)
    }

    /// Sends the datagram under way, if there is one.
    ///
    /// # Errors
    /// As [`Self::udp_send`].
    pub fn udp_uncork(&mut self, number: u32, now: Instant) -> Result<(), i32> {
        let socket = self.udp.get_mut(number).ok_or(libc::EBADF)?;
        let Some(mut corked) = socket.corked.take() else {
            return Ok(());
        };
        let mut result = Ok(0);
        if let Some((to, info)) = corked.first.take() {
            let buffers = [IoSlice::new(&corked.text)];
            result = self.udp_emit(number, (to, None), &info, Text::new(&buffers), now);
        }
        corked.text.clear();
        if let Some(socket) = self.udp.get_mut(number) {
            socket.corked = Some(corked);
        }
        result.map(|_| ())
    }

    fn udp_emit(
        &mut self,
        number: u32,
        (to, echo): (Destination, Option<Echo>),
        info: &SendInfo,
        text: Text<'_, '_>,
        now: Instant,
    ) -> Result<usize, i32> {
        let socket = self.udp.get_mut(number).ok_or(libc::EBADF)?;
        let options = socket.options;
        let fields = socket.fields_to(to.remote.ip());
        let mut head = Head {
            to,
            fields: IpFields {
                ttl: info.ttl.unwrap_or(fields.ttl),
                tos: info.tos.unwrap_or(fields.tos),
                hops: info.ttl.unwrap_or(fields.hops),
                class: info.tos.unwrap_or(fields.class),
                may_be_cut: false,
            },
            may_be_cut: !options.discovery.sets_df(),
            mark: options.mark,
            no_checksum: options.no_checksum_out && to.remote.is_ipv6(),
            echo,
            is_shown: info.stamps.with_packet && info.stamps.is_any(),
        };
        let (mtu, path) = self.udp_mtu(options.discovery, &to, now);
        head.may_be_cut |= path < mtu && Self::udp_path_is_odd(to.remote.ip(), path);
        let len = text.len();
        let room = path.saturating_sub(head.ip_len() + HEADER_LEN);
        let segment = usize::from(info.segment.unwrap_or(options.segment));
        let is_cut = segment == 0 && options.discovery.may_cut() && len > room;
        if len > head.payload_max() || (segment == 0 && len > room && !is_cut) {
            return Err(self.udp_too_long(number, &to, now));
        }
        if segment > 0 && len.min(segment) > room {
            return Err(libc::EMSGSIZE);
        }
        if segment > 0 && (len > segment * limits::UDP_SEGMENTS || head.no_checksum) {
            return Err(libc::EINVAL);
        }
        let socket = self.udp.get_mut(number).ok_or(libc::EBADF)?;
        if let Some(error) = socket.error.take() {
            return Err(error);
        }
        self.kept.clear();
        if is_cut {
            self.udp_send_fragments(number, &head, path, text)?;
        } else {
            let size = if segment > 0 { segment.min(len) } else { len };
            if len <= size || !self.udp_send_uncut(&head, &text, size)? {
                self.udp_send_each(number, &head, text, size)?;
            }
        }
        if info.stamps.is_any() {
            self.udp_keep_stamped(info.stamps, (to.local.ip(), head.as_info()));
        }
        Ok(len)
    }

    /// One datagram for each `size` bytes, each copied and summed in one pass; all of them or none.
    fn udp_send_each(
        &mut self,
        number: u32,
        head: &Head,
        mut text: Text<'_, '_>,
        size: usize,
    ) -> Result<(), i32> {
        let mut left = text.len();
        if left > size && self.slab.available() < left.div_ceil(size) {
            return Err(self.udp_lacks(number, left.div_ceil(size)));
        }
        loop {
            let len = left.min(size);
            let Some(buffer) = self.slab.alloc() else {
                return Err(self.udp_lacks(number, 1));
            };
            let mut packet = Packet::new(buffer, HEADROOM);
            packet.set_len(head.ip_len() + HEADER_LEN + len);
            let ident = if head.may_be_cut { self.ident(head) } else { 0 };
            #[allow(clippy::cast_possible_truncation)] // the field of IPv4 has 16 bits
            head.build(packet.bytes_mut(), ident as u16, &mut text, len)?;
            packet.meta.flow = head.mark;
            head.keep(packet.bytes(), &mut self.kept);
            let interface = head.to.interface;
            let leaves = self.mail_ourselves(number, head.to.remote, interface, packet.bytes());
            if let Some(to_group) = leaves {
                packet.meta.to_group = to_group;
                self.send(Some(packet), interface, head.counter());
            }
            left -= len;
            if left == 0 {
                return Ok(());
            }
        }
    }

    fn ident(&mut self, head: &Head) -> u32 {
        let (local, remote) = (head.to.local.ip(), head.to.remote.ip());
        self.idents.next(local, remote, head.protocol().0)
    }

    /// A datagram longer than `mtu`: built whole, then cut.
    fn udp_send_fragments(
        &mut self,
        number: u32,
        head: &Head,
        mtu: usize,
        mut text: Text<'_, '_>,
    ) -> Result<(), i32> {
        let len = text.len();
        let ident = self.ident(head);
        let mut whole = std::mem::take(&mut self.datagram);
        whole.resize(head.ip_len() + HEADER_LEN + len, 0);
        let built = head.build(&mut whole, 0, &mut text, len);
        let interface = head.to.interface;
        let remote = head.to.remote;
        let leaves = (built.is_ok())
            .then(|| self.mail_ourselves(number, remote, interface, &whole))
            .flatten();
        let outbox = self
            .outboxes
            .get_mut(usize::from(interface))
            .ok_or(libc::ENETUNREACH)?;
        let kept = &mut self.kept;
        let sent = leaves.is_none_or(|to_group| {
            fragments(&mut self.slab, &whole, mtu, ident, |mut packet| {
                packet.meta.interface = interface;
                packet.meta.flow = head.mark;
                packet.meta.to_group = to_group;
                head.keep(packet.bytes(), kept);
                outbox.push_back(packet);
            })
        });
        self.datagram = whole;
        built?;
        if !sent {
            let count = pieces_max(HEADER_LEN + len, mtu);
            return Err(self.udp_lacks(number, count));
        }
        self.count(head.counter());
        Ok(())
    }
}

impl Corked {
    /// An error: nothing of it is sent.
    fn forget(&mut self) {
        self.text.clear();
        self.first = None;
    }

    /// Where the datagram under way goes.
    pub(super) fn to(&self) -> Option<Destination> {
        self.first.map(|(to, _)| to)
    }
}
