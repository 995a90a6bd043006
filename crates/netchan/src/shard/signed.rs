//! Signed connections (RFC 2385): whose key is whose, and what is signed and verified where headers are made and read.

use std::{net::IpAddr, sync::Arc};

use percore::slab::Buffer;
use proto::{
    ip::Ecn,
    tcp::{self, Md5Key, SIGNATURE_LEN, Transmit},
    time::Instant,
    wire::tcp::{Flags, Header},
};

use super::{Shard, TcpSocket};
use crate::{
    counters::Counter,
    emit::{self, IpFields},
    link::Segmentation,
    packet::Packet,
    steer::{flow::FlowKey, short},
};

/// Keys that one socket may have.
const KEYS_MAX: usize = 256;

/// The keys of a socket, each for the peers of a network.
#[derive(Clone, Debug, Default)]
pub struct Keys(Vec<(IpAddr, u8, Arc<Md5Key>)>);

impl Keys {
    /// Sets the key of a network, or takes it away.
    ///
    /// # Errors
    /// An errno: EINVAL (no such prefix), ENOENT (nothing to take away), ENOMEM (too many).
    pub fn set(&mut self, peer: IpAddr, prefix: u8, key: Option<Md5Key>) -> Result<(), i32> {
        if prefix > if peer.is_ipv4() { 32 } else { 128 } {
            return Err(libc::EINVAL);
        }
        let same = |entry: &(IpAddr, u8, _)| entry.1 == prefix && covers(peer, prefix, entry.0);
        let at = self.0.iter().position(same);
        match (key, at) {
            (Some(key), Some(at)) => self.0[at].2 = Arc::new(key),
            (Some(_), None) if self.0.len() >= KEYS_MAX => return Err(libc::ENOMEM),
            (Some(key), None) => self.0.push((peer, prefix, Arc::new(key))),
            (None, Some(at)) => drop(self.0.swap_remove(at)),
            (None, None) => return Err(libc::ENOENT),
        }
        Ok(())
    }

    /// The key for a peer: that of the smallest network.
    pub fn of(&self, peer: IpAddr) -> Option<Arc<Md5Key>> {
        let matching = self.0.iter().filter(|(ip, len, _)| covers(*ip, *len, peer));
        let nearest = matching.max_by_key(|(_, len, _)| *len)?;
        Some(nearest.2.clone())
    }
}

/// Whether `ip` is in the network of `prefix` bits that `network` is in.
fn covers(network: IpAddr, prefix: u8, ip: IpAddr) -> bool {
    let prefix = u32::from(prefix);
    match (network, ip) {
        (IpAddr::V4(a), IpAddr::V4(b)) => {
            let differs = a.to_bits() ^ b.to_bits();
            differs.leading_zeros() >= prefix
        }
        (IpAddr::V6(a), IpAddr::V6(b)) => {
            let differs = a.to_bits() ^ b.to_bits();
            differs.leading_zeros() >= prefix
        }
        _ => false,
    }
}

/// Whether a segment is signed with `auth`, or not at all where there is none.
fn verify(auth: Option<&Md5Key>, key: &FlowKey, segment: &[u8]) -> bool {
    match auth {
        Some(auth) => auth.verifies(key.remote, key.local, segment),
        None => !tcp::is_signed(segment),
    }
}

/// Signs a packet that has the room for it.
fn sign(auth: &Md5Key, template: &emit::Template, key: &FlowKey, packet: &mut Packet) -> bool {
    let at = emit::ip_header_len(key.remote);
    let segment = packet.bytes_mut().get_mut(at..).unwrap_or_default();
    let signed = auth.sign(key.local, key.remote, segment);
    template.seal(packet);
    signed
}

impl Shard {
    /// Signs what a connection sends from now on, and takes only what is signed.
    pub(super) fn sign_with(&mut self, number: u32, auth: Option<Arc<Md5Key>>) {
        if let Some(socket) = self.tcp.get_mut(number) {
            socket.sign_with(auth);
        }
    }

    /// The key that the listener of a flow has for its peer.
    pub(super) fn key_for(&self, key: &FlowKey) -> Option<Arc<Md5Key>> {
        if !self.keyed {
            return None;
        }
        let flow = short(self.host.flow_hash.hash(key));
        let number = self.listener_for(key.local, key.local_port, flow)?;
        let keys = self.listeners.get(number)?.options().keys.as_ref();
        keys?.of(key.remote)
    }

    /// Whether a connection may take a segment.
    pub(super) fn is_authentic(&self, number: u32, segment: &[u8]) -> bool {
        let socket = self.tcp.get(number);
        socket.is_none_or(|s| verify(s.auth.as_deref(), &s.key, segment))
    }

    /// The same for a TIME-WAIT record, a listener, or nobody.
    pub(super) fn is_authentic_elsewhere(
        &self,
        found: Option<Result<u32, u32>>,
        key: &FlowKey,
        packet: &Packet,
    ) -> bool {
        let segment = packet.bytes().get(usize::from(packet.meta.upper)..);
        let auth = match found {
            Some(Err(number)) => self.time_waits.auth(number),
            _ => self.key_for(key),
        };
        verify(auth.as_deref(), key, segment.unwrap_or_default())
    }

    /// Sends a segment that belongs to no connection, signed if a listener has a key for the peer; resets are limited.
    pub(super) fn answer(&mut self, key: &FlowKey, header: &Header, interface: u8, now: Instant) {
        let auth = self.key_for(key);
        self.answer_signed(key, header, interface, auth.as_deref(), now);
    }

    /// The same with this key.
    pub(super) fn answer_signed(
        &mut self,
        key: &FlowKey,
        header: &Header,
        interface: u8,
        auth: Option<&Md5Key>,
        now: Instant,
    ) {
        if header.flags.contains(Flags::RST) {
            if !self.resets.allow(key.remote, now) {
                return;
            }
            self.count(Counter::ResetsOut);
        }
        let mut header = *header;
        header.options.free = auth.map_or(0, |_| SIGNATURE_LEN);
        let template = emit::Template::new(key.local, key.remote, IpFields::default());
        let packet =
            self.slab.alloc().and_then(|buffer| {
                let mut packet = template.packet(buffer, &header, 0, Ecn::NotEct, |_| {
                    Some(Default::default())
                })?;
                let signed = auth.is_none_or(|auth| sign(auth, &template, key, &mut packet));
                signed.then_some(packet)
            });
        self.send(packet, interface, Counter::TcpOut);
    }
}

impl TcpSocket {
    /// Signs with `auth` from now on, and takes only what is signed with it.
    pub fn sign_with(&mut self, auth: Option<Arc<Md5Key>>) {
        if auth.is_some() || self.auth.is_some() {
            let len = auth.as_ref().map_or(0, |_| SIGNATURE_LEN);
            self.connection.keep_free(len);
            self.auth = auth;
            // Each segment has a signature of its own: no link can cut them.
            self.segmentation = Segmentation::None;
        }
    }

    /// The packet of a segment, signed.
    #[cold]
    #[inline(never)]
    pub(super) fn signed(&self, buffer: Buffer, transmit: &Transmit) -> Option<Packet> {
        let auth = self.auth.as_deref()?;
        let mut header = transmit.header;
        header.options.free = SIGNATURE_LEN;
        // There is no room for it in a SYN-ACK, and it may always be left out (RFC 9768 §3.2.3.2).
        header.options.accecn = None;
        let (offset, len) = (transmit.offset as usize, transmit.len as usize);
        let fill = |text: &mut [u8]| self.send.copy_out(offset, text);
        let mut packet = self
            .template
            .packet(buffer, &header, len, transmit.ecn, fill)?;
        sign(auth, &self.template, &self.key, &mut packet).then_some(packet)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_network_s_key_counts() {
        let key = |text: &[u8]| Md5Key::new(text);
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let mut keys = Keys::default();
        keys.set(ip("10.0.0.0"), 8, key(b"wide")).unwrap();
        keys.set(ip("10.1.2.3"), 32, key(b"one")).unwrap();
        keys.set(ip("fd00::"), 16, key(b"six")).unwrap();
        let of = |keys: &Keys, text: &str| keys.of(ip(text)).map(|key| *key);
        assert_eq!(of(&keys, "10.9.9.9"), key(b"wide"));
        assert_eq!(of(&keys, "10.1.2.3"), key(b"one"));
        assert_eq!(of(&keys, "11.1.2.3"), None);
        assert_eq!(of(&keys, "fd00:1::1"), key(b"six"));
        assert_eq!(of(&keys, "fd01::1"), None);
        keys.set(ip("10.77.0.0"), 8, key(b"other")).unwrap();
        assert_eq!(of(&keys, "10.9.9.9"), key(b"other"), "the same network");
        keys.set(ip("10.1.2.3"), 32, None).unwrap();
        assert_eq!(of(&keys, "10.1.2.3"), key(b"other"));
        assert_eq!(keys.set(ip("10.1.2.3"), 32, None), Err(libc::ENOENT));
        assert_eq!(keys.set(ip("10.1.2.3"), 33, None), Err(libc::EINVAL));
        for n in 0..300_u32 {
            let result = keys.set(IpAddr::V4((n << 8).into()), 32, key(b"many"));
            assert_eq!(result.is_ok(), n < 254, "{n}");
        }
    }
}
