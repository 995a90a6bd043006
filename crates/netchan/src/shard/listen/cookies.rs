//! SYN cookies (RFC 4987 §3.6): what a listener does with SYNs while its SYN queue is full, and with the ACKs that come of them.

use proto::{
    ip::Ecn,
    tcp::{self, CookieFlow, SynCookies},
    time::{Duration, Instant},
    wire::tcp::{Flags, Header, SeqNum},
};

use super::Shard;
use crate::{counters::Counter, flow::FlowKey, limits, packet::Packet};

/// No cookie is good for longer.
const LIFE: Duration = Duration::from_secs(120);

impl Shard {
    /// Whether the next SYN is answered with a cookie.
    pub(super) fn wants_cookie(&self, number: u32) -> bool {
        let Some(listener) = self.listeners.get(number) else {
            return false;
        };
        match self.defaults.config.syn_cookies {
            SynCookies::Off => false,
            SynCookies::WhenFull => listener.embryo_count >= listener.syn_queue(),
            SynCookies::Always => true,
        }
    }

    /// Answers a SYN and forgets it.
    pub(super) fn send_cookie(
        &mut self,
        number: u32,
        key: &FlowKey,
        syn: &Header,
        packet: &Packet,
        now: Instant,
    ) {
        let interface = packet.meta.interface;
        let answer = self.with_cookies(number, key, interface, |template, start, flow| {
            template.cookie_answer(start, syn, flow, now)
        });
        let (Some(answer), Some(listener)) = (answer, self.listeners.get_mut(number)) else {
            return;
        };
        listener.cookies_until = now + LIFE;
        let mark = listener.options.mark;
        self.count(Counter::SynCookies);
        self.answer_marked(key, &answer, (interface, mark), now);
    }

    /// Whether a segment that LISTEN refuses may be the ACK of a cookie.
    pub(in crate::shard) fn takes_cookies(
        &self,
        number: u32,
        header: &Header,
        now: Instant,
    ) -> bool {
        let recently = |n| self.listeners.get(n).is_some_and(|l| now < l.cookies_until);
        let always = self.defaults.config.syn_cookies == SynCookies::Always;
        !header.flags.intersects(Flags::SYN | Flags::RST) && (always || recently(number))
    }

    /// Opens the connection that the ACK of a cookie is for; any other ACK is refused.
    pub(in crate::shard) fn cookie_came_back(
        &mut self,
        number: u32,
        key: &FlowKey,
        ack: &Header,
        packet: Packet,
        now: Instant,
    ) {
        let interface = packet.meta.interface;
        let connection = self.with_cookies(number, key, interface, |template, start, flow| {
            template.from_cookie(start, ack, flow, now)
        });
        let Some(connection) = connection else {
            self.count(Counter::DropSynCookie);
            let text_len = u32::try_from(packet.len()).unwrap_or(u32::MAX);
            if let Some(reset) = tcp::reset_for(ack, text_len) {
                self.answer(key, &reset, interface, now);
            }
            return;
        };
        // As Linux: the peer believes it is connected, and will say so again with its data.
        if self.accept_queue_is_full(number) {
            return self.count(Counter::DropAcceptQueue);
        }
        let Some(listener) = self.listeners.get_mut(number) else {
            return;
        };
        let options = &listener.options;
        let kept = (options.fields, options.linger, options.reuse);
        let (mark, shut) = (options.mark, options.shut);
        let hash = packet.meta.flow;
        let opened = self.insert_tcp(key, hash, connection, interface, kept, Some(number));
        let Some(opened) = opened else {
            return self.count(Counter::DropConnectionTable);
        };
        self.mark_with(opened, mark);
        self.came_with(opened, &packet);
        self.tcp_begin_shut(opened, shut);
        self.sign_with(opened, self.key_for(key));
        if let Some(listener) = self.listeners.get_mut(number) {
            // Until its first segment, which follows, has opened it.
            listener.embryo_count += 1;
        }
        self.count(Counter::SynCookiesTaken);
        let ecn = Ecn::of(packet.meta.ecn);
        self.segment(opened, ack, ecn, &mut Some(packet), now);
    }

    /// Does something with what a listener's connections begin with.
    fn with_cookies<T>(
        &self,
        number: u32,
        key: &FlowKey,
        interface: u8,
        act: impl FnOnce(&tcp::Template, &tcp::Start, &CookieFlow<'_>) -> Option<T>,
    ) -> Option<T> {
        let listener = self.listeners.get(number)?;
        let offset = tcp::timestamp_offset(&self.host.secret, key.local, key.remote);
        let start = (listener.options).start(
            &self.host,
            &self.defaults.config,
            key,
            interface,
            (SeqNum(0), offset),
        );
        let flow = CookieFlow {
            secret: &self.host.secret,
            local: (key.local, key.local_port).into(),
            remote: (key.remote, key.remote_port).into(),
        };
        act(listener.template(&self.defaults), &start, &flow)
    }
}

impl super::Listener {
    /// Handshakes in progress beyond which SYNs are answered with cookies: as many as the accept queue takes, as Linux, but for a
    /// small one, which honest peers can fill.
    fn syn_queue(&self) -> usize {
        self.backlog
            .clamp(limits::SYN_QUEUE_LEAST, limits::SYN_QUEUE)
    }
}
