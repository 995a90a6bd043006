//! Listeners: the SYN queue (handshakes in progress) and the accept queue (finished ones), both bounded.

mod cookies;
mod parts;
mod queue;

use std::{
    collections::VecDeque,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    task::Waker,
};

use proto::{
    ip::Ecn,
    tcp::{self, State},
    time::Instant,
    wire::tcp::{Flags, Header, SeqNum},
};

pub use self::parts::Parts;
use self::queue::{Embryo, LOOKS_MAX, SynQueue};
use super::{
    Binding, Shard, TcpSocket,
    bound::{Member, Place},
    defaults::Defaults,
    fast_open::EarlyLimit,
    table::Table,
    tcp::TcpOptions,
    wakers::Wakers,
};
use crate::{api::Readiness, counters::Counter, flow::FlowKey, limits, packet::Packet};

/// A listening socket's part in one shard.
#[derive(Debug)]
pub struct Listener {
    /// Unspecified: every address of the family (of both, if IPv6 and not `v6_only`).
    pub address: IpAddr,
    /// Its port.
    pub port: u16,
    v6_only: bool,
    /// Its socket was shut down: it takes no connection until it listens again.
    shut: bool,
    /// No process serves it: see [`Shard::refuse_at`].
    unserved: bool,
    backlog: usize,
    options: TcpOptions,
    /// What its connections begin with, if its socket wants that otherwise than the stack's settings say.
    own: Option<Box<tcp::Template>>,
    /// TCP_DEFER_ACCEPT, in retransmissions of the SYN-ACK.
    defer_accept: u8,
    /// Handshakes in progress, oldest first, with the sequence numbers they began at; some may be over, and their places taken.
    embryos: SynQueue,
    /// How many of them are not over.
    embryo_count: usize,
    /// SYN cookies sent may come back until then.
    cookies_until: Instant,
    /// Connections that may be read before their handshake is over.
    early: EarlyLimit,
    /// Connections to be accepted, with the tickets that they have of `parts`.
    ready: VecDeque<(u32, u64)>,
    /// Where there are several shards.
    parts: Option<Arc<Parts>>,
    wakers: Wakers,
}

impl Listener {
    fn place(&self) -> Place {
        let place = Place::new(SocketAddr::new(self.address, self.port), self.v6_only);
        place.on(self.options.device)
    }

    /// Connections to be accepted, and handshakes in progress.
    pub fn depths(&self) -> (usize, usize) {
        (self.ready.len(), self.embryo_count)
    }

    /// Connections to be accepted, in all shards.
    fn waiting(&self) -> usize {
        match &self.parts {
            Some(parts) => parts.waiting(),
            None => self.ready.len(),
        }
    }

    /// Tells the other shards' parts what has become of the queue of this one: `gone` connections have left it.
    fn show_queue(&self, shard: usize, gone: usize) {
        if let Some(parts) = &self.parts {
            parts.leave(gone);
            parts.show(shard, self.ready.front().map(|(_, ticket)| *ticket));
        }
    }

    /// What its socket says.
    pub(super) const fn options(&self) -> &TcpOptions {
        &self.options
    }

    pub(super) const fn early_limit(&mut self) -> &mut EarlyLimit {
        &mut self.early
    }

    /// One more handshake is in progress.
    pub(super) const fn embryo_begins(&mut self) {
        self.embryo_count += 1;
    }

    /// The stack's settings are `config` now, or its socket's overrides have changed.
    pub(super) fn begin_with(&mut self, config: &tcp::Config) {
        let own = self.options.own.as_deref();
        self.own = own.map(|own| Box::new(own.template(config)));
        self.defer_accept = own.map_or(0, |own| tcp::retries_in(config, own.defer_accept));
    }

    /// What its connections begin with.
    fn template<'a>(&'a self, defaults: &'a Defaults) -> &'a tcp::Template {
        self.own.as_deref().unwrap_or(&defaults.template)
    }

    /// Most connections that wait to be accepted.
    pub const fn backlog(&self) -> usize {
        self.backlog
    }
}

/// Whether a handshake that began with `listener` is still in progress.
fn is_embryo_of(tcp: &Table<TcpSocket>, (connection, iss): Embryo, listener: u32) -> bool {
    tcp.get(connection).is_some_and(|s| {
        s.listener() == Some(listener) && !s.was_open() && s.connection.iss() == iss
    })
}

impl Shard {
    /// Listens, with a part in each of several shards, or in one. `None`: too many listeners.
    pub fn listen(
        &mut self,
        binding: &Binding,
        backlog: usize,
        options: TcpOptions,
        parts: Option<Arc<Parts>>,
    ) -> Option<u32> {
        self.keyed |= options.keys.is_some();
        let mut listener = Listener {
            address: binding.address.ip(),
            port: binding.address.port(),
            v6_only: binding.v6_only,
            shut: false,
            unserved: false,
            backlog,
            options,
            own: None,
            defer_accept: 0,
            embryos: SynQueue::new(),
            embryo_count: 0,
            cookies_until: Instant::ZERO,
            early: EarlyLimit::default(),
            ready: VecDeque::with_capacity(backlog.min(limits::BACKLOG_MAX) + 1),
            parts,
            wakers: Wakers::default(),
        };
        listener.begin_with(&self.defaults.config);
        let number = self.listeners.insert(listener).ok()?;
        self.enter_listener(number, binding);
        Some(number)
    }

    /// Lets it be found.
    fn enter_listener(&mut self, number: u32, binding: &Binding) {
        if let Some(listener) = self.listeners.get(number) {
            let member = Member {
                number,
                order: binding.order,
                shares: binding.shares,
                connected: false,
                at_home: binding.at_home,
                cpu: listener.options.cpu,
            };
            self.lookup.listeners.set(listener.place(), member);
        }
    }

    /// listen(2) after a shutdown.
    pub fn listen_again(
        &mut self,
        number: u32,
        binding: &Binding,
        backlog: usize,
        options: TcpOptions,
    ) {
        self.keyed |= options.keys.is_some();
        if let Some(listener) = self.listeners.get_mut(number) {
            (listener.address, listener.port) = (binding.address.ip(), binding.address.port());
            (listener.v6_only, listener.backlog) = (binding.v6_only, backlog);
            listener.options = options;
            listener.shut = false;
            listener.unserved = false;
            listener.begin_with(&self.defaults.config);
            self.enter_listener(number, binding);
        }
    }

    /// How many listeners go first here of those that share the binding's address, port and interface.
    pub fn listeners_at_home(&self, binding: &Binding, device: Option<u8>) -> usize {
        let place = Place::new(binding.address, binding.v6_only);
        self.lookup.listeners.at_home(place.on(device))
    }

    /// The listener with this number.
    pub fn listener(&self, number: u32) -> Option<&Listener> {
        self.listeners.get(number)
    }

    /// listen(2) again.
    pub fn set_backlog(&mut self, number: u32, backlog: usize) {
        if let Some(listener) = self.listeners.get_mut(number) {
            listener.backlog = backlog;
        }
    }

    /// An option of a listening socket was set: what its connections begin with from now on.
    pub fn set_listener_options(&mut self, number: u32, options: TcpOptions) {
        self.keyed |= options.keys.is_some();
        let Some(listener) = self.listeners.get_mut(number) else {
            return;
        };
        let was = &listener.options;
        let moves = (was.device, was.cpu) != (options.device, options.cpu);
        let (place, cpu) = (listener.place(), options.cpu);
        listener.options = options;
        listener.begin_with(&self.defaults.config);
        let to = listener.place();
        let listeners = &mut self.lookup.listeners;
        if moves && let Some(member) = listeners.remove(place, number) {
            listeners.set(to, Member { cpu, ..member });
        }
    }

    /// The listener for what comes in by an interface to an address and port; of several that share them (SO_REUSEPORT) the one that
    /// `flow` falls to.
    pub(super) fn listener_for(
        &self,
        local: IpAddr,
        port: u16,
        flow: u32,
        interface: u8,
    ) -> Option<u32> {
        self.lookup.listeners.find(local, port, flow, interface)
    }

    /// LISTEN took a SYN.
    pub(super) fn open_passive(
        &mut self,
        number: u32,
        key: &FlowKey,
        syn: &Header,
        packet: Packet,
        iss: Option<SeqNum>,
        now: Instant,
    ) {
        // As Linux does: a handshake whose end would have to wait is not begun, and pushes out none that nearly is there.
        if self.accept_queue_is_full(number) {
            return self.count(Counter::DropAcceptQueue);
        }
        if iss.is_none() && self.wants_cookie(number) {
            return self.send_cookie(number, key, syn, &packet, now);
        }
        if !self.make_room_for_embryo(number, now) {
            return self.count(Counter::DropSynQueue);
        }
        let verdict = self.judge_fast_open(number, key, syn, &packet, now);
        let Some(listener) = self.listeners.get(number) else {
            return;
        };
        let (local, remote) = (
            (key.local, key.local_port).into(),
            (key.remote, key.remote_port).into(),
        );
        let interface = packet.meta.interface;
        let iss =
            iss.unwrap_or_else(|| tcp::initial_sequence(&self.host.secret, local, remote, now));
        let offset = tcp::timestamp_offset(&self.host.secret, key.local, key.remote);
        let options = &listener.options;
        let start = options.start(
            &self.host,
            &self.defaults.config,
            key,
            interface,
            (iss, offset),
        );
        let template = listener.template(&self.defaults);
        let mut connection = template.passive(&start, syn, now);
        connection.set_syn_ecn(Ecn::of(packet.meta.ecn));
        self.recall_path(key.remote, &mut connection, now);
        if let Some(cookie) = verdict.option {
            connection.grant_cookie(cookie);
        }
        let kept = (options.fields, options.linger, options.reuse);
        let (mark, shut) = (options.mark, options.shut);
        let hash = packet.meta.flow;
        let embryo = self.insert_tcp(key, hash, connection, interface, kept, Some(number));
        let Some(embryo) = embryo else {
            return self.count(Counter::DropConnectionTable);
        };
        self.mark_with(embryo, mark);
        self.came_with(embryo, &packet);
        self.tcp_begin_shut(embryo, shut);
        if verdict.takes_text {
            return self.open_early(number, embryo, syn, packet, now);
        }
        self.sign_with(embryo, self.key_for(key));
        let tcp = &self.tcp;
        if let Some(listener) = self.listeners.get_mut(number) {
            let begun = (embryo, iss);
            (listener.embryos).push(begun, |other| !is_embryo_of(tcp, other, number));
            listener.embryo_count += 1;
        }
        self.mark_dirty(embryo);
    }

    /// A full SYN queue gives up its oldest handshake: under a flood honest peers still have the time of a whole queue to answer. False: it is
    /// hidden behind very many that are over, of which fewer are left for the next SYN.
    fn make_room_for_embryo(&mut self, number: u32, now: Instant) -> bool {
        let mut looks = LOOKS_MAX;
        while let Some(listener) = self.listeners.get_mut(number)
            && listener.embryo_count >= limits::SYN_QUEUE
            && let Some(oldest) = listener.embryos.pop()
        {
            if is_embryo_of(&self.tcp, oldest, number) {
                self.count(Counter::DropSynQueue);
                self.discard(oldest.0, now);
            } else if looks == 0 {
                return false;
            }
            looks = looks.saturating_sub(1);
        }
        true
    }

    /// Forgets a connection without a word to its peer.
    fn discard(&mut self, number: u32, now: Instant) {
        self.tcp_with(number, |socket| {
            let _ = socket.connection.abort();
            while socket.connection.output(now).is_some() {}
        });
        self.tcp_output(number, now);
    }

    /// An embryo ended. It is not in the accept queue: what is there stays until it is accepted, whatever became of it.
    pub(super) fn embryo_gone(&mut self, listener: u32) {
        if let Some(listener) = self.listeners.get_mut(listener) {
            listener.embryo_count = listener.embryo_count.saturating_sub(1);
        }
    }

    /// Whether a segment of a connection that is not accepted yet would end its handshake, and is left out, as Linux does: the peer
    /// repeats it, or our SYN-ACK's timer makes it.
    #[cold]
    pub(super) fn puts_off(&self, number: u32, flags: Flags, packet: &Packet) -> bool {
        let Some(socket) = self.tcp(number) else {
            return false;
        };
        let Some(listener) = socket.listener() else {
            return false;
        };
        let ends_handshake = socket.connection.state() == State::SynReceived
            && !socket.was_open()
            && !flags.intersects(Flags::RST | Flags::SYN);
        if !ends_handshake {
            return false;
        }
        if self.accept_queue_is_full(listener) {
            self.count(Counter::DropAcceptQueue);
            return true;
        }
        // TCP_DEFER_ACCEPT: a peer that says nothing is not accepted before its SYN-ACK was sent again so many times.
        let defer = self.listeners.get(listener).map_or(0, |l| l.defer_accept);
        let repeated = socket.connection.attempts();
        let says_nothing = packet.is_empty() && !flags.contains(Flags::FIN);
        says_nothing && repeated < defer
    }

    /// Whether a handshake's end must wait. As Linux, a backlog of n takes n + 1, in whatever shards.
    pub(super) fn accept_queue_is_full(&self, listener: u32) -> bool {
        self.listeners
            .get(listener)
            .is_some_and(|l| l.waiting() > l.backlog)
    }

    /// A handshake is done: to the accept queue.
    pub(super) fn handshake_done(&mut self, number: u32, connection: u32) {
        self.count(Counter::PassiveOpens);
        if let Some(listener) = self.listeners.get_mut(number) {
            listener.embryo_count = listener.embryo_count.saturating_sub(1);
            let ticket = listener.parts.as_ref().map_or(0, |parts| parts.join());
            listener.ready.push_back((connection, ticket));
            listener.show_queue(self.number, 0);
            listener.wakers.wake(Readiness::READABLE, &mut self.woken);
        }
        // In the SYN queue the number stays until it comes up: most handshakes are done in order.
        if let Some(listener) = self.listeners.get_mut(number) {
            listener.embryos.remove_first(connection);
        }
    }

    /// accept(2): the number of a connection that the application now holds.
    pub fn accept(&mut self, number: u32) -> Option<(u32, FlowKey)> {
        let listener = self.listeners.get_mut(number)?;
        let (connection, _) = listener.ready.pop_front()?;
        listener.show_queue(self.number, 1);
        let socket = self.tcp.get_mut(connection)?;
        socket.leave_listener();
        socket.attached = true;
        if socket.receive.readable_bytes() > 0 {
            socket
                .came_by
                .is_readable(&mut self.arrivals, Instant::ZERO); // now is what counts behind the last
        }
        Some((connection, socket.key()))
    }

    /// Everything that waits looks again.
    pub(super) fn wake_everyone(&mut self) {
        for listener in self.listeners.iter_mut() {
            listener.wakers.wake(Readiness(!0), &mut self.woken);
        }
        self.wake_datagrams();
    }

    /// What a listener is ready for.
    pub fn listener_readiness(&self, number: u32) -> Readiness {
        if self.all_gone {
            return Readiness::READABLE | Readiness::ERROR;
        }
        match self.listeners.get(number) {
            Some(listener) if listener.shut => Readiness::HANGUP | Readiness::WRITABLE,
            Some(listener) if listener.ready.is_empty() => Readiness::NONE,
            Some(_) => Readiness::READABLE,
            None => Readiness::HANGUP,
        }
    }

    /// Registers a waker, or wakes it at once: then true.
    pub fn listener_register(&mut self, number: u32, interest: Readiness, waker: &Waker) -> bool {
        let always = Readiness::ERROR | Readiness::HANGUP;
        let now = self.listener_readiness(number);
        match self.listeners.get_mut(number) {
            Some(listener) if !now.intersects(interest | always) => {
                listener.wakers.register(interest, waker);
                false
            }
            _ => {
                waker.wake_by_ref();
                true
            }
        }
    }

    /// Forgets a waker.
    pub fn listener_deregister(&mut self, number: u32, waker: &Waker) {
        if let Some(listener) = self.listeners.get_mut(number) {
            listener.wakers.deregister(waker);
        }
    }

    /// The application closed a listener: what was not accepted is reset.
    pub fn close_listener(&mut self, number: u32, now: Instant) {
        self.shut_listener(number, now);
        self.listeners.discard(number);
    }

    /// A listener takes no connection any more: what was not accepted is reset, and its waiters are woken.
    pub fn shut_listener(&mut self, number: u32, now: Instant) {
        self.forget_early(number);
        let Some(listener) = self.listeners.get_mut(number) else {
            return;
        };
        if !std::mem::replace(&mut listener.shut, true) {
            self.lookup.listeners.remove(listener.place(), number);
        }
        listener.wakers.wake(Readiness(!0), &mut self.woken);
        self.reset_unaccepted(number, now);
    }

    /// Another process was to accept here, and cannot: resets what was not accepted, and every SYN until [`serve_at`](Self::serve_at).
    pub fn refuse_at(&mut self, number: u32, now: Instant) {
        let Some(listener) = self.listeners.get_mut(number) else {
            return;
        };
        listener.unserved = true;
        let (ready, embryos) = listener.depths();
        for _ in 0..ready + embryos {
            self.count(Counter::DropTcpUnserved);
        }
        self.forget_early(number);
        self.reset_unaccepted(number, now);
    }

    /// This process accepts here, or is about to.
    pub fn serve_at(&mut self, number: u32) {
        if let Some(listener) = self.listeners.get_mut(number) {
            listener.unserved = false;
        }
    }

    pub(super) fn is_unserved(&self, number: u32) -> bool {
        self.listeners.get(number).is_some_and(|l| l.unserved)
    }

    fn reset_unaccepted(&mut self, number: u32, now: Instant) {
        let Some(listener) = self.listeners.get_mut(number) else {
            return;
        };
        listener.embryo_count = 0;
        let ready = listener.ready.drain(..).map(|(connection, _)| connection);
        let mut unaccepted: Vec<u32> = ready.collect();
        listener.show_queue(self.number, unaccepted.len());
        unaccepted.extend(listener.embryos.drain().map(|embryo| embryo.0));
        for connection in unaccepted {
            let Some(socket) = self.tcp_mut(connection) else {
                continue;
            };
            if socket.listener() == Some(number) {
                socket.leave_listener();
                socket.kept.set_resets(true);
                self.tcp_close(connection, now);
            }
        }
    }

    /// Listeners with their numbers.
    pub fn listeners(&self) -> impl Iterator<Item = (u32, &Listener)> {
        self.listeners.iter()
    }
}
