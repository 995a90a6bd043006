//! TCP Fast Open (RFC 7413) in a shard: what clients remember of peers, and which SYNs may bring text to a listener.

mod client;

use std::{
    collections::{HashMap, VecDeque},
    net::IpAddr,
};

use proto::{
    tcp::{CookieMatch, Events, FastOpenKeys},
    time::{Duration, Instant},
    wire::tcp::{FastOpen as Cookie, Header},
};

use self::client::{BlackHole, Cookies};
use super::{Shard, TcpSocket};
use crate::{counters::Counter, flow::FlowKey, packet::Packet};

/// How long a connection that its peer reset before its handshake was over counts against the listener's limit, as in Linux
/// (RFC 7413 §5.1: forged addresses shall not get rid of the limit by resets).
const RESET_COUNTS: Duration = Duration::from_secs(60);

/// What a socket asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FastOpenOptions {
    /// TCP_FASTOPEN: most connections of a listener whose handshake is not over; 0: it takes no text in SYNs.
    pub queue: u32,
    /// TCP_FASTOPEN_NO_COOKIE: neither asks for cookies nor waits for them.
    pub without_cookie: bool,
    /// TCP_FASTOPEN_KEY.
    pub keys: Option<FastOpenKeys>,
}

/// What a shard keeps for Fast Open.
#[derive(Debug, Default)]
pub(super) struct FastOpens {
    cookies: Cookies,
    black_hole: BlackHole,
    /// Connections whose handshake is not over although they may be read: their listeners.
    early: HashMap<u32, u32>,
}

impl FastOpens {
    /// Forgets what peers granted, and which paths swallowed.
    pub fn forget_peers(&mut self) {
        self.cookies = Cookies::default();
        self.forget_black_hole();
    }

    /// Believes the path again.
    pub fn forget_black_hole(&mut self) {
        self.black_hole = BlackHole::default();
    }
}

/// What a listener keeps for it.
#[derive(Debug, Default)]
pub(super) struct EarlyLimit {
    /// Connections whose handshake is not over.
    early: u32,
    /// When those that were reset stop to count.
    resets: VecDeque<Instant>,
}

impl EarlyLimit {
    /// Whether one more is allowed; a reset that is long past gives its place up.
    fn has_room(&mut self, most: u32, now: Instant) -> bool {
        let resets = u32::try_from(self.resets.len()).unwrap_or(u32::MAX);
        if self.early.saturating_add(resets) < most {
            return true;
        }
        let is_past = self.resets.front().is_some_and(|until| *until <= now);
        if is_past {
            self.resets.pop_front();
        }
        is_past && self.early.saturating_add(resets) == most
    }
}

/// What becomes of a SYN.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Verdict {
    /// Its text is taken, and the connection may be accepted at once.
    pub takes_text: bool,
    /// What the SYN-ACK says.
    pub option: Option<Cookie>,
}

impl Shard {
    /// What a listener makes of a SYN with text, a cookie or a request for one.
    #[inline]
    pub(super) fn judge_fast_open(
        &mut self,
        number: u32,
        key: &FlowKey,
        syn: &Header,
        packet: &Packet,
        now: Instant,
    ) -> Verdict {
        if syn.options.fast_open.is_none() && packet.is_empty() {
            return Verdict::default();
        }
        self.judge_syn(number, key, syn.options.fast_open, now)
    }

    #[cold]
    fn judge_syn(
        &mut self,
        number: u32,
        key: &FlowKey,
        option: Option<Cookie>,
        now: Instant,
    ) -> Verdict {
        let mode = self.defaults.config.fast_open;
        if option.is_some_and(|option| option.is_request()) {
            self.count(Counter::FastOpenCookieRequests);
        }
        let Some(listener) = self.listeners.get_mut(number).filter(|_| mode.server) else {
            return Verdict::default();
        };
        let options = listener.options().fast_open;
        let is_signed = listener.options().keys.is_some();
        let queue = match options.queue {
            0 if mode.every_listener => u32::try_from(listener.backlog()).unwrap_or(u32::MAX),
            // Each shard has its part of the limit.
            most => most.div_ceil(u32::try_from(self.shards).unwrap_or(1)),
        };
        if queue == 0 || is_signed {
            return Verdict::default();
        }
        if !listener.early_limit().has_room(queue, now) {
            self.count(Counter::FastOpenOverflows);
            return Verdict::default();
        }
        let taken = Verdict {
            takes_text: true,
            option: None,
        };
        if mode.server_without_cookie || options.without_cookie {
            return taken;
        }
        let Some(option) = option else {
            return Verdict::default();
        };
        let keys = self.fast_open_keys(options.keys);
        let (client, server) = (key.remote, key.local);
        let fresh = || keys.cookie(client, server, option.experimental);
        match keys.check(client, server, &option) {
            Some(CookieMatch::Current) => taken,
            Some(CookieMatch::Previous) => {
                self.count(Counter::FastOpenPreviousKey);
                Verdict {
                    option: fresh(),
                    ..taken
                }
            }
            None => {
                if !option.is_request() {
                    self.count(Counter::FastOpenPassiveFails);
                }
                Verdict {
                    takes_text: false,
                    option: fresh(),
                }
            }
        }
    }

    /// What cookies are made with: the socket's own keys, the stack's setting, or what only this stack knows.
    fn fast_open_keys(&self, own: Option<FastOpenKeys>) -> FastOpenKeys {
        own.or(self.defaults.config.fast_open.keys)
            .unwrap_or_else(|| FastOpenKeys::of_secret(&self.host.secret))
    }

    /// The handshake of `child` has begun, its SYN's cookie is good: the text is taken, and it may be accepted.
    #[cold]
    pub(super) fn open_early(
        &mut self,
        listener: u32,
        child: u32,
        syn: &Header,
        packet: Packet,
        now: Instant,
    ) {
        let refusal = self.make_way(child, &packet, syn.seq + 1);
        let Some(socket) = self.tcp.get_mut(child) else {
            return;
        };
        let (queue, pool) = (&mut socket.receive, &mut self.pool);
        socket
            .connection
            .take_syn_text(syn, packet, queue, pool, now);
        if let Some(refusal) = refusal {
            self.pool.memory_mut().allow(refusal.allowed);
        }
        socket.note_held(&mut self.memory.tcp_shares);
        socket.set_open();
        self.fast_opens.early.insert(child, listener);
        if let Some(listener) = self.listeners.get_mut(listener) {
            listener.early_limit().early += 1;
            listener.embryo_begins();
        }
        self.count(Counter::FastOpenPassive);
        self.handshake_done(listener, child);
        self.mark_dirty(child);
    }

    /// Whether a connection may be read although its handshake is not over.
    pub(super) fn is_early(&self, number: u32) -> bool {
        self.fast_opens.early.contains_key(&number)
    }

    /// Something rare happened to a connection that has to do with Fast Open.
    #[cold]
    pub(super) fn fast_open_event(&mut self, number: u32, events: Events, now: Instant) {
        if events.contains(Events::ESTABLISHED) {
            self.fast_open_answered(number, now);
        }
        let is_over = Events::ESTABLISHED | Events::RESET | Events::CLOSED;
        if !events.intersects(is_over) {
            return;
        }
        let was_reset = socket_was_reset(self.tcp.get(number)) && events.contains(Events::RESET);
        if let Some(listener) = self.fast_opens.early.remove(&number)
            && let Some(listener) = self.listeners.get_mut(listener)
        {
            let limit = listener.early_limit();
            limit.early = limit.early.saturating_sub(1);
            if was_reset {
                limit.resets.push_back(now + RESET_COUNTS);
            }
        }
    }

    /// A listener is closed.
    pub(super) fn forget_early(&mut self, listener: u32) {
        if !self.fast_opens.early.is_empty() {
            self.fast_opens.early.retain(|_, of| *of != listener);
        }
    }
}

fn socket_was_reset(socket: Option<&TcpSocket>) -> bool {
    socket.is_some_and(|s| s.connection.error() == Some(proto::tcp::Error::Reset))
}

/// Both addresses of a connection: a cookie is for one of each.
type Pair = (IpAddr, IpAddr);

const fn pair(key: &FlowKey) -> Pair {
    (key.local, key.remote)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 7413 §5.1: handshakes that are not over and those that were reset lately have places; a reset that is long past gives up its own.
    #[test]
    fn a_reset_has_its_place_for_a_while() {
        let at = |seconds| Instant::ZERO + Duration::from_secs(seconds);
        let mut limit = EarlyLimit::default();
        assert!(!limit.has_room(0, at(1)) && limit.has_room(1, at(1)));
        limit.early = 1;
        assert!(!limit.has_room(1, at(1)) && limit.has_room(2, at(1)));
        limit.resets.extend([at(10), at(20)]);
        assert!(limit.has_room(4, at(1)) && !limit.has_room(3, at(1)));
        assert!(!limit.has_room(2, at(9)), "none is past");
        assert_eq!(limit.resets.len(), 2);
        assert!(limit.has_room(3, at(10)), "the first one is");
        assert_eq!(limit.resets, [at(20)]);
        // One place is free again, but two are too many.
        assert!(!limit.has_room(1, at(30)));
        assert!(limit.resets.is_empty() && !limit.has_room(1, at(30)));
    }
}
