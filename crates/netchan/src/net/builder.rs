//! Settings before the start: what a stack is asked to be.

use std::{io, time::Duration};

use proto::{ip::address::Address, tcp};

use super::plan::LinkPlan;
use crate::config::RouteConfig;
use crate::{
    clock::Clock,
    driver::module::Boxed,
    environment::handed::Handed,
    errno::invalid,
    limits,
    link::{Link, specification},
    memory,
    regime::{Dispatch, Regime, choice::Choice},
    trace,
};

/// Which threads turn the stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Threads {
    /// A link thread of its own, and a background poller for shards whose application is away.
    #[default]
    Own,
    /// None: each socket call and [`Net::poll`](super::Net::poll) turn the link and the shards. For in-memory links, tests and one core.
    Caller,
    /// None, but everything is handed over as with threads, whose turns [`crate::steps::Steps`] takes. For simulations.
    Stepped,
}

/// Settings before the start.
pub struct Builder {
    pub(super) links: Vec<LinkPlan>,
    pub(super) choice: Choice,
    /// With the source of the setting.
    pub(super) forwarding: (bool, &'static str),
    pub(super) loopback: (bool, &'static str),
    pub(super) lends_loopback: bool,
    /// The number of the link that they are on; found at the start.
    pub(super) loopback_link: Option<usize>,
    pub(super) mss_clamp: bool,
    pub(super) limits_icmp: bool,
    /// The source of the settings that follow.
    source: &'static str,
    pub(super) threads: Threads,
    pub(super) clock: Clock,
    pub(super) seed: Option<u64>,
    pub(super) tcp: tcp::Config,
    pub(super) send_buffer: usize,
    pub(super) send_buffer_max: usize,
    pub(super) memory: memory::Limits,
    pub(super) spin: Duration,
    pub(super) background: Duration,
    pub(super) moderation: Duration,
    pub(super) control: bool,
    pub(super) trace: Option<trace::Level>,
    pub(super) trace_events: usize,
    pub(super) compile_filters: bool,
    pub(super) modules: Vec<Boxed>,
    /// Links that another process opened.
    pub(super) handed: Handed,
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            links: Vec::new(),
            choice: Choice::default(),
            forwarding: (false, "default"),
            loopback: (false, "default"),
            lends_loopback: false,
            loopback_link: None,
            mss_clamp: false,
            limits_icmp: true,
            source: "program",
            threads: Threads::default(),
            clock: Clock::default(),
            seed: None,
            tcp: tcp::Config {
                receive_buffer: limits::RECEIVE_BUFFER,
                receive_buffer_max: limits::RECEIVE_BUFFER_MAX,
                max_segments: limits::RECEIVE_BUFFER_MAX / limits::SEGMENT_EXPECTED,
                ..tcp::Config::default()
            },
            send_buffer: limits::SEND_BUFFER,
            send_buffer_max: limits::SEND_BUFFER_MAX,
            memory: memory::Limits::default(),
            spin: Duration::ZERO,
            background: crate::stack::link_leader::INTERVAL,
            moderation: Duration::ZERO,
            control: false,
            trace: None,
            trace_events: limits::TRACE_RECORDS,
            compile_filters: true,
            modules: Vec::new(),
            handed: Handed::default(),
        }
    }
}

impl Builder {
    /// Adds a link by its specification, `KIND[:NAME][,option=value]...`. A virtual clock is to be set before.
    ///
    /// # Errors
    /// `InvalidInput` for what cannot be understood; the system's error, in words, for a device that cannot be opened.
    pub fn link(mut self, text: &str) -> io::Result<Self> {
        let parsed = specification::parse(text).map_err(|e| invalid(e.to_string()))?;
        let handed = self.handed.links.pop_front().unwrap_or_default();
        let link = specification::adopt(&parsed, &self.clock, handed)?;
        Ok(self.link_with(link))
    }

    /// Opens the links named from now on over these descriptors.
    pub(crate) fn handed(mut self, handed: Handed) -> Self {
        self.handed = handed;
        self
    }

    /// The links so far.
    pub(crate) fn links(&self) -> impl Iterator<Item = &dyn Link> {
        self.links.iter().map(|plan| &*plan.link)
    }

    /// Answers `netchan show` on a control socket (see [`crate::control`]), with a thread of its own. Where no such socket can be
    /// had, a warning (`netchan::log`) says so, and the stack runs without.
    #[must_use]
    pub const fn control(mut self, control: bool) -> Self {
        self.control = control;
        self
    }

    /// Adds a module behind those that are there. One that needs Giant puts the whole stack under it, with a warning that
    /// names it (F3): [`Net::load_module`](super::Net::load_module) after the start does not.
    #[must_use]
    pub fn module(mut self, module: Boxed) -> Self {
        self.modules.push(module);
        self
    }

    /// Adds a link of your own.
    #[must_use]
    pub fn link_with(mut self, link: Box<dyn Link>) -> Self {
        self.links.push(LinkPlan {
            link,
            addresses: Vec::new(),
            gateways: Vec::new(),
            routes: Vec::new(),
        });
        self
    }

    /// An address with its prefix length, for the link named last.
    ///
    /// # Errors
    /// `InvalidInput`: not an address, or no link was named.
    pub fn address(mut self, text: &str) -> io::Result<Self> {
        let address = text
            .parse::<Address>()
            .map_err(|e| invalid(format!("address '{text}': {e}")))?;
        self.last("address")?.addresses.push(address);
        Ok(self)
    }

    /// The default gateway for the link named last; once per family.
    ///
    /// # Errors
    /// `InvalidInput`: not an address, or no link was named.
    pub fn gateway(mut self, text: &str) -> io::Result<Self> {
        let gateway = text
            .parse()
            .map_err(|_| invalid(format!("gateway '{text}': not an IPv4 or IPv6 address")))?;
        self.last("gateway")?.gateways.push(gateway);
        Ok(self)
    }

    /// A route over the link named last, to the network `to` (`10.0.0.0/8`; empty: everything of the gateway's family), by `gateway` unless all
    /// of that is on the link. With a `mark` other than 0 it is for what is marked so (SO_MARK) only; such a route goes before all without a
    /// mark, and among equals the longest prefix counts.
    ///
    /// # Errors
    /// `InvalidInput`: not a route, or no link was named. A gateway that is on none of the link's networks is told at the start.
    pub fn route(mut self, to: &str, gateway: Option<&str>, mark: u32) -> io::Result<Self> {
        let bad = |what| invalid(format!("route to '{to}': {what}"));
        let route = RouteConfig::read(to, gateway, mark).map_err(bad)?;
        self.last("route")?.routes.push(route);
        Ok(self)
    }

    /// The link named last, or why `what` can say nothing of it.
    pub(super) fn last(&mut self, what: &str) -> io::Result<&mut LinkPlan> {
        self.links
            .last_mut()
            .ok_or_else(|| invalid(format!("an {what} needs a link named before it")))
    }

    /// Names the source of the settings that follow, for `netchan show settings`.
    pub(crate) const fn said_by(mut self, source: &'static str) -> Self {
        self.source = source;
        self
    }

    /// The regime; default `app-channel`, unless the build says otherwise ([`Regime::default`]).
    #[must_use]
    pub const fn regime(mut self, regime: Regime) -> Self {
        self.choice.regime = Some(regime);
        self.choice.origins.regime = self.source;
        self
    }

    /// Puts Giant around everything (F1): around `locked`, or, where no regime is named, as the regime `giant`. It cannot be changed
    /// once the stack runs.
    #[must_use]
    pub const fn giant(mut self, giant: bool) -> Self {
        self.choice.giant = giant;
        self.choice.origins.giant = self.source;
        self
    }

    /// Where protocol work runs; default `direct`.
    #[must_use]
    pub const fn dispatch(mut self, dispatch: Dispatch) -> Self {
        self.choice.dispatch = dispatch;
        self.choice.origins.dispatch = self.source;
        self
    }

    /// Whether packets for other hosts are passed on between the links (and back out of the one they came by): a router, by the routes that
    /// links and gateways make. Default: off, they are dropped.
    #[must_use]
    pub const fn forwarding(mut self, forwarding: bool) -> Self {
        self.forwarding = (forwarding, self.source);
        self
    }

    /// Whether 127.0.0.0/8 and ::1 are this stack's own, on an interface `lo` behind the links that are named; it may be the only one. Else these
    /// are no addresses of it, and it sends and takes nothing for them. Where a link is a lease, and its lender lends these addresses, the stack shares them with
    /// the lender's other leases instead.
    #[must_use]
    pub const fn loopback(mut self, loopback: bool) -> Self {
        self.loopback = (loopback, self.source);
        self
    }

    /// Whether 127.0.0.0/8 and ::1, where this stack has them ([`Self::loopback`]), are lent with its first link: its leases share them
    /// ([`Lent::share_loopback`](super::Lent::share_loopback)), and nothing of them is seen on the link. Default: off.
    #[must_use]
    pub const fn lends_loopback(mut self, lends: bool) -> Self {
        self.lends_loopback = lends;
        self
    }

    /// Whether forwarded SYNs are made to offer no longer segments than the two links they cross take (MSS clamping): for paths on which ICMP
    /// errors get lost. Default: off, connections find out by these errors or by probing.
    #[must_use]
    pub const fn mss_clamp(mut self, mss_clamp: bool) -> Self {
        self.mss_clamp = mss_clamp;
        self
    }

    /// Whether ICMP errors to others are rate limited (RFC 1122 §3.2.2, RFC 4443 §2.4 f). Default: on; off is for tests in which every sender
    /// is to be told.
    #[must_use]
    pub const fn icmp_rate_limit(mut self, limited: bool) -> Self {
        self.limits_icmp = limited;
        self
    }

    /// Number of shards where the regime leaves it open: 1 to 64.
    #[must_use]
    pub const fn shards(mut self, shards: usize) -> Self {
        self.choice.shards = Some(shards);
        self
    }

    /// Chooses the threads that turn the stack.
    #[must_use]
    pub const fn threads(mut self, threads: Threads) -> Self {
        self.threads = threads;
        self
    }

    /// Its clock.
    #[must_use]
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Makes keys, initial sequence numbers and ports a function of `seed`: for tests that replay. Otherwise from getrandom(2).
    #[must_use]
    pub const fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// What TCP connections start with; MSS follows from the link.
    #[must_use]
    pub const fn tcp(mut self, config: tcp::Config) -> Self {
        self.tcp = config;
        self
    }

    /// How the congestion window moves, unless a socket says otherwise ([`crate::socket::SocketOption::Congestion`]).
    #[must_use]
    pub const fn congestion(mut self, control: tcp::CongestionControl) -> Self {
        self.tcp.congestion = control;
        self
    }

    /// What TCP asks for, and agrees to, of explicit congestion notification.
    #[must_use]
    pub const fn ecn(mut self, mode: tcp::EcnMode) -> Self {
        self.tcp.ecn = mode;
        self
    }

    /// Whether text leaves at the rate of the window, whatever the congestion control.
    #[must_use]
    pub const fn pacing(mut self, on: bool) -> Self {
        self.tcp.pacing = on;
        self
    }

    /// Bytes that a stream's receive buffer may grow to with what its application takes in a round trip (R4); at most 2³⁰.
    #[must_use]
    pub fn receive_buffer_max(mut self, bytes: usize) -> Self {
        let most = u32::try_from(bytes).unwrap_or(u32::MAX).min(1 << 30);
        self.tcp.receive_buffer_max = most;
        self.tcp.receive_buffer = self.tcp.receive_buffer.min(most);
        let segments = most / limits::SEGMENT_EXPECTED;
        self.tcp.max_segments = segments.max(tcp::Config::default().max_segments);
        self
    }

    /// Bytes of a stream's send buffer, always; rounded up to a power of two, at most 2³⁰.
    #[must_use]
    pub fn send_buffer(mut self, bytes: usize) -> Self {
        let bytes = bytes.min(limits::SEND_BUFFER_LIMIT);
        self.send_buffer = bytes;
        self.send_buffer_max = bytes;
        self
    }

    /// Bytes that a stream's send buffer may grow to with its congestion window; at most 2³⁰.
    #[must_use]
    pub fn send_buffer_max(mut self, bytes: usize) -> Self {
        let bytes = bytes.min(limits::SEND_BUFFER_LIMIT);
        self.send_buffer = limits::SEND_BUFFER.min(bytes);
        self.send_buffer_max = bytes;
        self
    }

    /// Most bytes that all TCP sockets hold together (N4): buffers of received packets that wait, in order and out of order, and text to
    /// be sent. Beyond it windows close, text that comes all the same is not acknowledged, and sending waits; a socket that holds nothing may
    /// always take a segment. Default: twice the memory of the receive slabs.
    #[must_use]
    pub const fn tcp_memory(mut self, bytes: usize) -> Self {
        self.memory.tcp = Some(bytes as u64);
        self
    }

    /// Most bytes that all UDP sockets hold together, in buffers of datagrams that wait. Beyond it datagrams are dropped, unless their socket has
    /// none. Default, and most: a quarter of what receive queues may have of the slabs, so that
    /// datagrams that are not read never keep a link from receiving.
    #[must_use]
    pub const fn udp_memory(mut self, bytes: usize) -> Self {
        self.memory.udp = Some(bytes as u64);
        self
    }

    /// Most bytes of that which one TCP socket holds, and which all of one peer (an IPv4 address, an IPv6 /64) hold. Text beyond it is dropped
    /// and not acknowledged (`drop_tcp_socket_share`, `drop_tcp_peer_share`), sending waits; a socket that holds nothing may always take a little.
    /// Default: a quarter and half.
    #[must_use]
    pub const fn tcp_shares(mut self, socket: usize, peer: usize) -> Self {
        self.memory.tcp_socket = Some(socket as u64);
        self.memory.tcp_peer = Some(peer as u64);
        self
    }

    /// The same for UDP: datagrams beyond it are dropped (`drop_udp_socket_share`, `drop_udp_peer_share`), unless their socket has none.
    #[must_use]
    pub const fn udp_shares(mut self, socket: usize, peer: usize) -> Self {
        self.memory.udp_socket = Some(socket as u64);
        self.memory.udp_peer = Some(peer as u64);
        self
    }

    /// How long waiting threads and link threads look again and again before they sleep, 0 to 10 ms. Zero: not at all.
    #[must_use]
    pub const fn spin(mut self, spin: Duration) -> Self {
        self.spin = spin;
        self
    }
    /// In `locked` and the regimes whose shards are the application's (`socket-channel`, `app-channel`): threads that wait for sockets poll the links
    /// themselves, and where none has waited for so long (0 to 100 ms), the links' threads do. Shorter, and a program that computes between its
    /// calls answers its peers earlier; longer, and it is interrupted less. 5 ms if not said. Zero: the links' threads poll always.
    #[must_use]
    pub const fn background(mut self, interval: Duration) -> Self {
        self.background = interval;
        self
    }

    /// Interrupt moderation (D6), as a network card's: packets wake a link's thread at most once in this time, 0 to 10 ms. What comes sooner
    /// waits, so that one wake-up serves many packets, and is late by as much at most; what is sent is not. For links with a descriptor
    /// (`tap`, `packet`). Zero, the default: each sleep ends with the first packet.
    #[must_use]
    pub const fn moderation(mut self, least: Duration) -> Self {
        self.moderation = least;
        self
    }

    /// What the process's threads record (see [`crate::trace`]); default `rare`, or what an earlier stack of this process asked for.
    #[must_use]
    pub const fn trace(mut self, level: trace::Level) -> Self {
        self.trace = Some(level);
        self
    }

    /// Events that each thread's trace ring keeps, 64 bytes each: a power of two from 64 to 1 Mi; default 1,024. The rings are made once for the process
    /// (32 of them, 2 MiB by default): its first stack's value counts, a later one's is without effect.
    #[must_use]
    pub const fn trace_events(mut self, events: usize) -> Self {
        self.trace_events = events;
        self
    }

    /// Whether the filters of taps become machine code, where that can be (see [`Filter::compiled`](crate::tap::Filter::compiled)); default true. Else they are
    /// interpreted: for a process that is killed where it asks for executable memory, instead of being refused it.
    #[must_use]
    pub const fn compile_filters(mut self, compile: bool) -> Self {
        self.compile_filters = compile;
        self
    }

    /// Whether regime, Giant, dispatch and number of shards go together, and memory limits, moderation and trace rings are in range.
    ///
    /// # Errors
    /// `InvalidInput`, with the reason.
    pub fn check(&self) -> io::Result<()> {
        self.memory.check()?;
        if self.moderation > limits::MODERATION_MAX {
            return Err(invalid("moderation goes from 0 to 10 ms"));
        }
        if self.background > limits::BACKGROUND_MAX {
            return Err(invalid("background goes from 0 to 100 ms"));
        }
        if self.spin > limits::SPIN_MAX {
            return Err(invalid("spin goes from 0 to 10 ms"));
        }
        if !self.trace_events.is_power_of_two()
            || !limits::TRACE_EVENTS.contains(&self.trace_events)
        {
            return Err(invalid("trace_events is a power of two from 64 to 1048576"));
        }
        self.choice.layout().map(|_| ()).map_err(invalid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn send_buffers_stay_within_what_their_queues_count() {
        let buffers = |b: &Builder| (b.send_buffer, b.send_buffer_max);
        let most = limits::SEND_BUFFER_LIMIT;
        for bytes in [most, most + 1, 8 << 30, usize::MAX] {
            let one = Builder::default().send_buffer(bytes);
            assert_eq!(buffers(&one), (most, most));
            let growing = Builder::default().send_buffer_max(bytes);
            assert_eq!(buffers(&growing), (limits::SEND_BUFFER, most));
        }
        let small = Builder::default().send_buffer_max(1000);
        assert_eq!(buffers(&small), (1000, 1000));
    }
}
