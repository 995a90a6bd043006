//! TCP-AO (RFC 5925) of a socket: keys for peers, which of them is in use, and what was counted. As Linux's TCP_AO_ADD_KEY,
//! TCP_AO_DEL_KEY, TCP_AO_INFO and TCP_AO_GET_KEYS.

use std::{io, net::IpAddr, sync::Arc};

use proto::tcp::{AoCounts, AoKey, AoSession};

use super::{Role, Socket};
use crate::api::Kind;
use crate::{
    errno::error,
    shard::{AoSettings, Network, TcpSocket},
};

/// A key, and the peers it is for: those in the network of `prefix` bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AoPeerKey {
    /// An address in the network.
    pub peer: IpAddr,
    /// Bits of it that count.
    pub prefix: u8,
    /// The key.
    pub key: AoKey,
}

/// What a change of keys chooses beside: ids that are not `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AoChoice {
    /// Send id of the key to sign with from now on.
    pub current: Option<u8>,
    /// Receive id of the key that the peer is asked to sign with.
    pub next: Option<u8>,
}

/// TCP_AO_INFO.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AoInfo {
    /// The keys in use, or to be used.
    pub keys: AoChoice,
    /// A listener takes no peer without a key.
    pub required: bool,
    /// ICMP errors count as without TCP-AO (RFC 5925 §7.8).
    pub accept_icmps: bool,
    /// Of a connection, what was counted.
    pub counts: AoCounts,
}

/// One key of [`Socket::ao_keys`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AoKeyInfo {
    /// The key and its peer.
    pub key: AoPeerKey,
    /// A connection's segments are signed with it.
    pub is_current: bool,
    /// A connection's peer is asked to sign with it.
    pub is_next: bool,
    /// Segments that verified with it.
    pub good: u64,
    /// Segments that named it and did not.
    pub bad: u64,
}

/// An IPv4 peer of an IPv6 socket, by its mapped address.
pub(super) fn canonical(peer: IpAddr, prefix: u8) -> Network {
    match (peer.to_canonical(), prefix) {
        (mapped @ IpAddr::V4(_), 96..) if peer.is_ipv6() => (mapped, prefix - 96),
        _ => (peer, prefix),
    }
}

/// Both at once, or neither.
fn choose(session: &mut AoSession, choice: AoChoice) -> Result<(), i32> {
    let has = |session: &AoSession| {
        let (mut current, mut next) = (choice.current.is_none(), choice.next.is_none());
        for state in session.keys() {
            current |= choice.current == Some(state.key.send_id());
            next |= choice.next == Some(state.key.receive_id());
        }
        current && next
    };
    if !has(session) {
        return Err(libc::ENOENT);
    }
    choice.current.map(|id| session.set_current(id));
    choice.next.map(|id| session.set_next(id));
    Ok(())
}

impl Socket {
    /// TCP_AO_ADD_KEY. What was opened before keeps the keys it has, but for this socket's own connection, and signs with this one, or
    /// asks for it, if `current` or `next` say so.
    ///
    /// # Errors
    /// EINVAL (no such prefix; `current` or `next` of a listener), EEXIST (a peer has a key with one of its ids), EKEYREJECTED (a peer has
    /// a key of RFC 2385), ENOMEM (too many), EISCONN (a connection without TCP-AO), ENOPROTOOPT (a datagram socket).
    pub fn ao_add_key(&self, key: &AoPeerKey, current: bool, next: bool) -> io::Result<()> {
        let network = canonical(key.peer, key.prefix);
        let choice = AoChoice {
            current: current.then_some(key.key.send_id()),
            next: next.then_some(key.key.receive_id()),
        };
        self.ao_may_choose(choice)?;
        let key = key.key;
        self.ao_session(|socket| socket.ao().map(|_| ()).ok_or(libc::EISCONN))?;
        let shared = self.options.lock().keys_mut().add(network, key);
        let shared: Arc<AoKey> = shared.map_err(error)?;
        self.ao_session(move |socket| {
            let session = socket.ao().ok_or(libc::EISCONN)?;
            if !session.add(shared.clone()) {
                return Err(libc::EEXIST);
            }
            choose(session, choice)?;
            socket.ao_changed();
            Ok(())
        })?;
        self.ao_settle(choice);
        Ok(())
    }

    /// TCP_AO_DEL_KEY; first the connection turns to the keys of `choice`.
    ///
    /// # Errors
    /// ENOENT (no such key, also of `choice`), EBUSY (a connection uses it still), EINVAL (a `choice` of a listener).
    pub fn ao_delete_key(
        &self,
        (peer, prefix): (IpAddr, u8),
        (send_id, receive_id): (u8, u8),
        choice: AoChoice,
    ) -> io::Result<()> {
        let network = canonical(peer, prefix);
        self.ao_may_choose(choice)?;
        self.ao_session(|socket| {
            let session = socket.ao().ok_or(libc::ENOENT)?;
            let ids = |(send, receive)| (send, receive) == (send_id, receive_id);
            let mut keys = session.keys();
            if !keys.any(|state| ids((state.key.send_id(), state.key.receive_id()))) {
                return Err(libc::ENOENT);
            }
            drop(keys);
            choose(session, choice)?;
            if !session.remove(send_id, receive_id) {
                return Err(libc::EBUSY);
            }
            socket.ao_changed();
            Ok(())
        })?;
        let gone = self
            .options
            .lock()
            .keys_mut()
            .remove(network, send_id, receive_id);
        if !gone && !matches!(self.role(), Some(Role::Stream(_))) {
            return Err(error(libc::ENOENT));
        }
        self.ao_settle(choice);
        Ok(())
    }

    /// Sets TCP_AO_INFO; ids that are `None` stay as they are, and counts too unless `counts` says so.
    ///
    /// # Errors
    /// ENOENT (no such key), EINVAL (keys of a listener), EISCONN (a connection without TCP-AO).
    pub fn set_ao_info(&self, info: AoInfo, counts: bool) -> io::Result<()> {
        self.ao_may_choose(info.keys)?;
        if self.role().is_none() {
            let mut options = self.options.lock();
            let keys = options.keys_mut();
            let has = |id: Option<u8>, of: fn(&AoKey) -> u8| {
                id.is_none_or(|id| keys.ao().any(|(_, key)| of(key) == id))
            };
            if !has(info.keys.current, AoKey::send_id) || !has(info.keys.next, AoKey::receive_id) {
                return Err(error(libc::ENOENT));
            }
        }
        self.ao_session(|socket| {
            let session = socket.ao().ok_or(libc::EISCONN)?;
            choose(session, info.keys)?;
            session.accepts_icmp = info.accept_icmps;
            if counts {
                *session.counts() = info.counts;
            }
            Ok(())
        })?;
        {
            let mut options = self.options.lock();
            let settings = &mut options.keys_mut().settings;
            (settings.required, settings.accepts_icmp) = (info.required, info.accept_icmps);
        }
        self.ao_settle(info.keys);
        Ok(())
    }

    /// TCP_AO_INFO.
    ///
    /// # Errors
    /// ENOENT (neither keys nor settings).
    pub fn ao_info(&self) -> io::Result<AoInfo> {
        let settings = self.options.lock().keys().map(|keys| keys.settings);
        let AoSettings {
            current,
            next,
            required,
            accepts_icmp,
        } = settings.ok_or(error(libc::ENOENT))?;
        let mut info = AoInfo {
            keys: AoChoice { current, next },
            required,
            accept_icmps: accepts_icmp,
            counts: AoCounts::default(),
        };
        self.ao_session(|socket| {
            let session = socket.ao().ok_or(libc::ENOENT)?;
            let ids = session.ids();
            info.keys = AoChoice {
                current: Some(ids.key),
                next: Some(ids.next),
            };
            (info.accept_icmps, info.counts) = (session.accepts_icmp, *session.counts());
            Ok(())
        })?;
        Ok(info)
    }

    /// TCP_AO_GET_KEYS: all, those of its peer if it is a connection.
    ///
    /// # Errors
    /// ENOENT (none).
    pub fn ao_keys(&self) -> io::Result<Vec<AoKeyInfo>> {
        let info = |(peer, prefix): Network, key| AoKeyInfo {
            key: AoPeerKey { peer, prefix, key },
            is_current: false,
            is_next: false,
            good: 0,
            bad: 0,
        };
        let all: Vec<AoKeyInfo> = match self.options.lock().keys() {
            Some(keys) => keys.ao().map(|(of, key)| info(of, **key)).collect(),
            None => return Err(error(libc::ENOENT)),
        };
        let mut held = None;
        self.ao_session(|socket| {
            let remote = socket.key().remote;
            let whole = (remote, if remote.is_ipv4() { 32 } else { 128 });
            let session = socket.ao().ok_or(libc::ENOENT)?;
            let of = session.keys().map(|state| {
                let known = all.iter().find(|other| other.key.key == *state.key);
                AoKeyInfo {
                    is_current: state.is_current,
                    is_next: state.is_next,
                    good: state.good,
                    bad: state.bad,
                    ..known.copied().unwrap_or_else(|| info(whole, *state.key))
                }
            });
            held = Some(of.collect());
            Ok(())
        })?;
        Ok(held.unwrap_or(all))
    }

    /// A listener has many peers, each with a current key of its own.
    fn ao_may_choose(&self, choice: AoChoice) -> io::Result<()> {
        if self.kind != Kind::Stream {
            return Err(error(libc::ENOPROTOOPT));
        }
        let chooses = choice != AoChoice::default();
        match self.role() {
            Some(Role::Listening(_)) if chooses => Err(error(libc::EINVAL)),
            _ => Ok(()),
        }
    }

    /// Does something with the connection, if there is one.
    fn ao_session(
        &self,
        act: impl FnOnce(&mut TcpSocket) -> Result<(), i32> + Send,
    ) -> io::Result<()> {
        let mut result = Ok(());
        if let Some(Role::Stream(stream)) = self.role() {
            stream.with(self.stack(), |socket| result = act(socket));
        }
        result.map_err(error)
    }

    /// What was chosen counts for the next connection too; a listener hears of its keys.
    fn ao_settle(&self, choice: AoChoice) {
        let mut options = self.options.lock();
        let settings = &mut options.keys_mut().settings;
        settings.current = choice.current.or(settings.current);
        settings.next = choice.next.or(settings.next);
        // Still locked, as in `set_option`.
        if let Some(Role::Listening(listening)) = self.role() {
            listening.set_options(self.stack(), &options.tcp_options());
        }
    }
}
