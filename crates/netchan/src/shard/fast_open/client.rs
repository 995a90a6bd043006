//! The client's side: cookies of peers, and paths that swallow SYNs with text.

use std::io::IoSlice;

use proto::{
    tcp::{Connection, FastOpenPeer, FastOpenResult},
    time::{Duration, Instant},
    wire::tcp::FastOpen as Cookie,
};

use super::{FastOpenOptions, Pair, pair};
use crate::{
    counters::Counter,
    flow::FlowKey,
    limits,
    shard::{Shard, TcpSocket, send_queue::SendMemory},
};

/// What is remembered of a peer.
#[derive(Clone, Copy, Debug)]
struct Peer {
    of: Pair,
    cookie: Option<Cookie>,
    /// The segment size that it announced last.
    mss: u16,
    /// What came of asking without an answer: the experimental form is tried once, then the usual one for good, as in Linux.
    tries: Tries,
    used: Instant,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Tries {
    #[default]
    Usual,
    Experimental,
    UsualAgain,
}

/// Cookies of peers; the least recently used gives way.
#[derive(Debug, Default)]
pub(in crate::shard) struct Cookies(Vec<Peer>);

impl Cookies {
    fn of(&mut self, of: Pair, now: Instant) -> Option<Peer> {
        let peer = self.0.iter_mut().find(|peer| peer.of == of)?;
        peer.used = now;
        Some(*peer)
    }

    fn entry(&mut self, of: Pair, now: Instant) -> Option<&mut Peer> {
        let fresh = Peer {
            of,
            cookie: None,
            mss: 0,
            tries: Tries::Usual,
            used: now,
        };
        let at = match self.0.iter().position(|peer| peer.of == of) {
            Some(at) => at,
            None if self.0.len() < limits::FAST_OPEN_PEERS => {
                self.0.push(fresh);
                self.0.len() - 1
            }
            None => {
                let oldest = (0..self.0.len()).min_by_key(|&at| self.0[at].used)?;
                self.0[oldest] = fresh;
                oldest
            }
        };
        self.0.get_mut(at)
    }

    /// Keeps what an answer says.
    fn learn(&mut self, of: Pair, result: &FastOpenResult, now: Instant) {
        let Some(peer) = self.entry(of, now) else {
            return;
        };
        peer.mss = result.mss;
        // A cookie that was not asked for is not kept.
        let Some(sent) = result.sent else { return };
        match result.received {
            Some(cookie) if !cookie.is_request() => peer.cookie = Some(cookie),
            _ if result.repeated || result.carried_text || peer.cookie.is_some() => {}
            _ => {
                let next = match sent.experimental {
                    true => Tries::UsualAgain,
                    false => Tries::Experimental,
                };
                peer.tries = peer.tries.max(next);
            }
        }
    }
}

/// Whether the path swallows connections that begin with text: what swallows one is usually near, so it is believed of all.
#[derive(Debug, Default)]
pub(in crate::shard) struct BlackHole {
    until: Instant,
    /// How often in a row it was found.
    times: u32,
}

impl BlackHole {
    fn is_open(&self, now: Instant) -> bool {
        now < self.until
    }

    /// Each time it takes twice as long, as in Linux, up to 64 times.
    fn found(&mut self, rest: Duration, now: Instant) {
        let factor = 1_u32 << self.times.min(6);
        self.times = self.times.saturating_add(1);
        self.until = now + rest.saturating_mul(factor);
    }
}

impl Shard {
    /// Makes an active open a fast one, if its peer is known and nothing speaks against it: then its SYN waits for the first write. Else
    /// the SYN asks for a cookie.
    #[cold]
    pub(in crate::shard) fn begin_fast_open(
        &mut self,
        key: &FlowKey,
        options: FastOpenOptions,
        connection: &mut Connection,
        now: Instant,
    ) {
        let mode = self.defaults.config.fast_open;
        if !mode.client {
            return;
        }
        let known = self.fast_opens.cookies.of(pair(key), now);
        let mss = known.map(|peer| peer.mss).filter(|mss| *mss > 0);
        let swallowed = self.fast_opens.black_hole.is_open(now);
        let cookie = known.and_then(|peer| peer.cookie);
        let without = mode.client_without_cookie || options.without_cookie;
        let experimental = known.is_some_and(|peer| peer.tries == Tries::Experimental);
        let (option, carries_text) = match cookie {
            _ if swallowed => return,
            _ if without => (None, true),
            Some(cookie) => (Some(cookie), true),
            None => (Some(Cookie::request(experimental)), false),
        };
        connection.open_fast(&FastOpenPeer {
            option,
            carries_text,
            mss,
        });
    }

    /// Whether a connection's SYN waits for the first write.
    pub fn is_held(&self, number: u32) -> bool {
        self.tcp(number).is_some_and(|s| s.connection.is_held())
    }

    /// A write waits for the end of the handshake.
    pub fn text_follows(&mut self, number: u32) {
        if let Some(socket) = self.tcp_mut(number) {
            socket.connection.text_follows();
        }
    }

    /// A write to a connection whose handshake is not over: the SYN takes what fits, if it waits for that. EINPROGRESS where there is
    /// nothing to take.
    #[cold]
    pub(in crate::shard) fn tcp_send_first(
        &mut self,
        number: u32,
        buffers: &[IoSlice<'_>],
    ) -> Result<usize, i32> {
        let Some(socket) = self.tcp.get_mut(number) else {
            return Err(libc::ENOTCONN);
        };
        if !socket.connection.is_held() {
            return Err(libc::EAGAIN);
        }
        let n = socket.append_first(buffers, &mut self.send_memory);
        self.pool.memory_mut().add(n);
        socket.note_held(&mut self.memory.tcp_shares);
        self.mark_dirty(number);
        if n == 0 {
            Err(libc::EINPROGRESS)
        } else {
            Ok(n)
        }
    }

    /// The peer has answered.
    pub(super) fn fast_open_answered(&mut self, number: u32, now: Instant) {
        let Some(socket) = self.tcp.get(number) else {
            return;
        };
        let of = pair(&socket.key());
        let Some(result) = socket.connection.fast_open_result() else {
            return;
        };
        self.fast_opens.cookies.learn(of, &result, now);
        if result.text_taken {
            self.fast_opens.black_hole.times = 0;
            self.count(Counter::FastOpenActive);
        } else if result.carried_text {
            self.count(Counter::FastOpenActiveFails);
        }
    }

    /// The timer of such a connection expired for the `attempts`-th time, or it was given up.
    #[cold]
    pub(in crate::shard) fn fast_open_timed_out(&mut self, attempts: u8, over: bool, now: Instant) {
        let rest = self.defaults.config.fast_open.black_hole;
        // As Linux: after the second timeout in a row, or the only one.
        if (attempts == 2 || (attempts < 2 && over)) && !rest.is_zero() {
            self.fast_opens.black_hole.found(rest, now);
            self.count(Counter::FastOpenBlackHoles);
        }
    }
}

impl TcpSocket {
    /// The text of a SYN, which may leave now: what of `buffers` fits, how many bytes.
    fn append_first(&mut self, buffers: &[IoSlice<'_>], memory: &mut SendMemory) -> usize {
        let most = (self.connection.first_text_max() as usize).min(self.may_append());
        let n = self.send.append(buffers, memory, most);
        self.connection.written(u32::try_from(n).unwrap_or(0));
        self.connection.release();
        n
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ASKED: FastOpenResult = FastOpenResult {
        sent: Some(Cookie::request(false)),
        received: None,
        mss: 1400,
        carried_text: false,
        text_taken: false,
        repeated: false,
    };

    fn to(host: u8) -> Pair {
        ([10, 0, 0, 1].into(), [10, 0, 1, host].into())
    }

    fn at(seconds: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(seconds)
    }

    /// What is known of one peer after these answers: cookie and tries.
    fn after(results: &[FastOpenResult]) -> (Option<Cookie>, Tries) {
        let mut cookies = Cookies::default();
        for result in results {
            cookies.learn(to(1), result, at(1));
        }
        let peer = cookies.of(to(1), at(2)).unwrap();
        assert_eq!(peer.mss, 1400);
        assert!(cookies.of(to(2), at(2)).is_none());
        (peer.cookie, peer.tries)
    }

    /// RFC 7413 §4.1.3: the cookie and the segment size are kept; where none came, the experimental option is tried once.
    #[test]
    fn what_an_answer_teaches() {
        let cookie = Cookie::new(&[7; 8], false);
        let granted = FastOpenResult {
            received: cookie,
            ..ASKED
        };
        assert_eq!(after(&[granted]), (cookie, Tries::Usual));
        let unasked = FastOpenResult {
            sent: None,
            ..granted
        };
        assert_eq!(after(&[unasked]), (None, Tries::Usual), "not asked for");
        // No cookie, or an empty one, which is no cookie.
        let empty = FastOpenResult {
            received: Some(Cookie::request(false)),
            ..ASKED
        };
        for none in [ASKED, empty] {
            assert_eq!(after(&[none]), (None, Tries::Experimental));
            assert_eq!(
                after(&[granted, none]),
                (cookie, Tries::Usual),
                "it knows one"
            );
        }
        let experimental = FastOpenResult {
            sent: Some(Cookie::request(true)),
            ..ASKED
        };
        let gave_up = (None, Tries::UsualAgain);
        assert_eq!(after(&[ASKED, experimental]), gave_up);
        assert_eq!(after(&[ASKED, experimental, ASKED]), gave_up, "for good");
        // What says nothing about the option: the SYN was lost, or had text.
        for (repeated, carried_text) in [(true, false), (false, true)] {
            let unclear = FastOpenResult {
                repeated,
                carried_text,
                ..ASKED
            };
            assert_eq!(after(&[unclear]), (None, Tries::Usual));
        }
    }

    #[test]
    fn the_least_recently_used_peer_gives_way() {
        let mut cookies = Cookies::default();
        let peer = |n: usize| -> Pair {
            let [high, low] = u16::try_from(n).unwrap().to_be_bytes();
            ([10, 0, 0, 1].into(), [10, 9, high, low].into())
        };
        for n in 0..limits::FAST_OPEN_PEERS {
            cookies.learn(peer(n), &ASKED, at(n as u64));
        }
        assert!(cookies.of(peer(0), at(1_000)).is_some(), "used once more");
        cookies.learn(peer(limits::FAST_OPEN_PEERS), &ASKED, at(1_001));
        let known = |n| cookies.0.iter().any(|known| known.of == peer(n));
        assert!(known(0) && !known(1) && known(2) && known(limits::FAST_OPEN_PEERS));
        assert_eq!(cookies.0.len(), limits::FAST_OPEN_PEERS);
    }

    /// As tcp_fastopen_blackhole_timeout_sec of Linux: each time in a row twice as long, 64 times at most.
    #[test]
    fn a_path_that_swallows_is_left_alone_for_longer_each_time() {
        let mut hole = BlackHole::default();
        assert!(!hole.is_open(at(0)));
        let rest = Duration::from_secs(100);
        for factor in [1, 2, 4, 8, 16, 32, 64, 64, 64] {
            hole.found(rest, at(5_000));
            let end = 5_000 + 100 * factor;
            assert!(
                hole.is_open(at(end - 1)) && !hole.is_open(at(end)),
                "{factor}"
            );
        }
    }
}
