//! Signed connections (RFC 2385, RFC 5925): what is signed and verified where headers are made and read.

mod ao;
mod keys;

use std::sync::Arc;

use percore::slab::Buffer;
use proto::{
    ip::Ecn,
    tcp::{self, AoIsns, AoSession, AoVerdict, Md5Key, SIGNATURE_LEN, Transmit},
    time::Instant,
    wire::tcp::{Flags, Header},
};

pub use self::keys::{AoSettings, Keys, Network};
use super::{Shard, TcpSocket};
use crate::{
    counters::Counter,
    driver::steer::short,
    emit::{self, IpFields},
    flow::FlowKey,
    link::Segmentation,
    packet::Packet,
};

/// What a connection's segments are signed with.
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant)] // always behind a box, and most are the large one
pub enum Auth {
    /// RFC 2385.
    Md5(Arc<Md5Key>),
    /// RFC 5925.
    Ao(AoSession),
}

impl Auth {
    /// Bytes of each header that it takes.
    fn room(&self) -> u8 {
        match self {
            Self::Md5(_) => SIGNATURE_LEN,
            Self::Ao(session) => session.room(),
        }
    }

    /// Signs a packet that has the room for it.
    fn sign(
        &mut self,
        isns: AoIsns,
        template: &emit::Template,
        key: &FlowKey,
        packet: &mut Packet,
    ) -> bool {
        let at = emit::ip_header_len(key.remote);
        let segment = packet.bytes_mut().get_mut(at..).unwrap_or_default();
        let signed = match self {
            Self::Md5(auth) => auth.sign(key.local, key.remote, segment),
            Self::Ao(session) => session.sign(isns, segment),
        };
        template.seal(packet);
        signed
    }
}

/// Whether a segment is signed with `auth`, or not at all where there is none: what to count. An option of RFC 5925 that was not asked for
/// does no harm (RFC 5925 §7.5).
fn verify(
    auth: Option<&mut Auth>,
    isns: impl FnOnce() -> Option<AoIsns>,
    key: &FlowKey,
    segment: &[u8],
) -> Result<Option<Counter>, Counter> {
    let md5 = match auth {
        None => !tcp::is_signed(segment),
        Some(Auth::Md5(auth)) => auth.verifies(key.remote, key.local, segment),
        Some(Auth::Ao(session)) => {
            let Some(isns) = isns() else {
                return Err(Counter::DropTcpAoBad);
            };
            return match session.verify(isns, segment) {
                AoVerdict::Good => Ok(Some(Counter::TcpAoGood)),
                AoVerdict::Missing => Err(Counter::DropTcpAoRequired),
                AoVerdict::NoKey => Err(Counter::DropTcpAoKeyNotFound),
                AoVerdict::Bad => Err(Counter::DropTcpAoBad),
            };
        }
    };
    md5.then_some(None).ok_or(Counter::DropTcpSignature)
}

impl Shard {
    /// Signs what a connection sends from now on, and takes only what is signed.
    pub(super) fn sign_with(&mut self, number: u32, auth: Option<Box<Auth>>) {
        if let Some(socket) = self.tcp.get_mut(number) {
            socket.sign_with(auth);
        }
    }

    /// The keys of the listener of a flow.
    fn keys_for(&self, key: &FlowKey) -> Option<&Keys> {
        if !self.keyed {
            return None;
        }
        let flow = short(self.host.flow_hash.hash(key));
        let interface = u8::try_from(self.host.net.interface_of(key.local)?).ok()?;
        let number = self.listener_for(key.local, key.local_port, flow, interface)?;
        self.listeners.get(number)?.options().keys.as_deref()
    }

    /// What the listener of a flow signs with for its peer, as the segment that was just verified asks for it.
    pub(super) fn key_for(&self, key: &FlowKey) -> Option<Box<Auth>> {
        let (local, remote) = ao::ends(key);
        self.keys_for(key)?.auth(local, remote, self.asked)
    }

    /// Whether a connection may take a segment; counted if not.
    pub(super) fn is_authentic(&mut self, number: u32, segment: &[u8]) -> bool {
        let Some(socket) = self.tcp.get_mut(number) else {
            return true;
        };
        let connection = &socket.connection;
        let isns = || Some(connection.ao_isns());
        let verdict = verify(
            socket.auth.as_deref_mut(),
            isns,
            &socket.template.tuple().tcp_key(),
            segment,
        );
        self.counted(verdict)
    }

    fn counted(&self, verdict: Result<Option<Counter>, Counter>) -> bool {
        if let Ok(Some(counter)) | Err(counter) = verdict {
            self.count(counter);
        }
        verdict.is_ok()
    }

    /// The same for a TIME-WAIT record, a listener, or neither.
    pub(super) fn is_authentic_elsewhere(
        &mut self,
        found: Option<Result<u32, u32>>,
        key: &FlowKey,
        packet: &Packet,
    ) -> bool {
        let segment = packet.bytes().get(usize::from(packet.meta.upper)..);
        let segment = segment.unwrap_or_default();
        let verdict = if let Some(Err(number)) = found {
            let (auth, isns) = self.time_waits.auth_mut(number).unzip();
            verify(auth, || isns, key, segment)
        } else {
            self.asked = None;
            let required = self.keys_for(key).is_some_and(|k| k.settings.required);
            let mut auth = self.key_for(key);
            if required && !matches!(auth.as_deref(), Some(Auth::Ao(_))) {
                Err(ao::unwanted(segment))
            } else {
                let isns = || tcp::ao_isns_of(segment);
                verify(auth.as_deref_mut(), isns, key, segment)
            }
        };
        if self.keyed {
            self.asked = tcp::ao_ids(segment);
        }
        self.counted(verdict)
    }

    /// Sends a segment that belongs to no connection, signed if a listener has a key for the peer; resets are limited.
    pub(super) fn answer(&mut self, key: &FlowKey, header: &Header, interface: u8, now: Instant) {
        self.answer_marked(key, header, (interface, 0), now);
    }

    /// The same of a listener's, with its SO_MARK.
    pub(super) fn answer_marked(
        &mut self,
        key: &FlowKey,
        header: &Header,
        leaves: (u8, u32),
        now: Instant,
    ) {
        let isns = ao::isns_of_answer(header);
        let auth = self.key_for(key);
        // RFC 5925 §7.7: without a connection no reset can be signed.
        if isns.is_none() && matches!(auth.as_deref(), Some(Auth::Ao(_))) {
            return;
        }
        let auth = auth.map(|auth| (auth, isns.unwrap_or_default()));
        self.answer_signed(key, header, leaves, auth, now);
    }

    /// The same with this.
    pub(super) fn answer_signed(
        &mut self,
        key: &FlowKey,
        header: &Header,
        (interface, mark): (u8, u32),
        mut auth: Option<(Box<Auth>, AoIsns)>,
        now: Instant,
    ) {
        if header.flags.contains(Flags::RST) {
            if !self.resets.allow(key.remote, now) {
                return;
            }
            self.count(Counter::ResetsOut);
        }
        let mut header = *header;
        header.options.free = auth.as_ref().map_or(0, |(auth, _)| auth.room());
        let template = emit::Template::new(key, IpFields::default());
        let packet =
            self.slab.alloc().and_then(|buffer| {
                let mut packet = template.packet(buffer, &header, 0, Ecn::NotEct, |_| {
                    Some(Default::default())
                })?;
                let signed = auth
                    .as_mut()
                    .is_none_or(|(auth, isns)| auth.sign(*isns, &template, key, &mut packet));
                packet.meta.flow = mark;
                signed.then_some(packet)
            });
        self.send(packet, interface, Counter::TcpOut);
    }
}

impl TcpSocket {
    /// Signs with `auth` from now on, and takes only what is signed with it.
    pub fn sign_with(&mut self, auth: Option<Box<Auth>>) {
        if auth.is_some() || self.auth.is_some() {
            let len = auth.as_ref().map_or(0, |auth| auth.room());
            self.connection.keep_free(len);
            self.auth = auth;
            // Each segment has a signature of its own: no link can cut them.
            self.segmentation = Segmentation::None;
        }
    }

    /// The same with a key of RFC 2385, unless it has one of RFC 5925.
    pub fn sign_with_md5(&mut self, key: Option<Arc<Md5Key>>) {
        if !matches!(self.auth.as_deref(), Some(Auth::Ao(_))) {
            self.sign_with(key.map(|key| Box::new(Auth::Md5(key))));
        }
    }

    /// The packet of a segment, signed.
    #[cold]
    #[inline(never)]
    pub(super) fn signed(&mut self, buffer: Buffer, transmit: Transmit) -> Option<Packet> {
        let auth = self.auth.as_deref_mut()?;
        let mut header = transmit.header;
        header.options.free = auth.room();
        // There is no room for it in a SYN-ACK, and it may always be left out (RFC 9768 §3.2.3.2).
        header.options.accecn = None;
        let (offset, len) = (transmit.offset as usize, transmit.len as usize);
        let fill = |text: &mut [u8]| self.send.copy_out(offset, text);
        let mut packet = self
            .template
            .packet(buffer, &header, len, transmit.ecn, fill)?;
        let isns = self.connection.ao_isns();
        let key = self.template.tuple().tcp_key();
        auth.sign(isns, &self.template, &key, &mut packet)
            .then_some(packet)
    }
}
