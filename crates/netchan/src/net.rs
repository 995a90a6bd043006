//! Starting and holding a stack: what `netchan::Net` is.

mod parts;
mod plan;

use std::{
    io,
    net::{IpAddr, SocketAddr},
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use percore::lock::mutex;
use proto::{
    ip::{
        address::Address,
        keyed::{Random, Seed},
        route,
    },
    tcp,
};

use self::{
    parts::Parts,
    plan::{LinkPlan, facts},
};
use crate::{
    clock::Clock,
    config::Config,
    control,
    directory::Directory,
    errno::invalid,
    giant::Giant,
    groups::Groups,
    host::Host,
    limits,
    link::{Link, specification},
    locks, memory,
    module::{Boxed, load, registry::Registry},
    regime::{Dispatch, Layout, Regime, SHARDS_MAX, choice::Choice, places::Places},
    socket::{TcpListener, TcpStream, UdpSocket},
    stack::Stack,
    steer::flow::FlowHash,
    trace,
    watch::Watch,
    worker,
};

/// Who turns the stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Threads {
    /// A link thread of its own, and an attendant for shards whose application is away.
    #[default]
    Own,
    /// None: each socket call and [`Net::poll`] turn the link and the shards. For in-memory links, tests and one core.
    Caller,
    /// None, but everything is handed over as with threads, whose turns [`crate::steps::Steps`] takes. For simulations.
    Stepped,
}

/// Settings before the start.
pub struct Builder {
    links: Vec<LinkPlan>,
    choice: Choice,
    /// With who said so.
    forwarding: (bool, &'static str),
    mss_clamp: bool,
    /// Who speaks: where settings come from.
    source: &'static str,
    threads: Threads,
    clock: Clock,
    seed: Option<u64>,
    tcp: tcp::Config,
    send_buffer: usize,
    send_buffer_max: usize,
    memory: memory::Limits,
    spin: Duration,
    moderation: Duration,
    control: bool,
    trace: Option<trace::Level>,
    modules: Vec<Boxed>,
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            links: Vec::new(),
            choice: Choice::default(),
            forwarding: (false, "default"),
            mss_clamp: false,
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
            moderation: Duration::ZERO,
            control: false,
            trace: None,
            modules: Vec::new(),
        }
    }
}

impl Builder {
    /// Adds a link by its specification, `KIND[:NAME][,option=value]...`. A virtual clock is to be set before.
    ///
    /// # Errors
    /// `InvalidInput` for what cannot be understood; the system's error, in words, for a device that cannot be opened.
    pub fn link(self, text: &str) -> io::Result<Self> {
        let parsed = specification::parse(text).map_err(|e| invalid(e.to_string()))?;
        let link = specification::open(&parsed, &self.clock)?;
        Ok(self.link_with(link))
    }

    /// Everything that a configuration says.
    ///
    /// # Errors
    /// The system's, in words, for a link that cannot be opened.
    pub fn from_config(config: &Config) -> io::Result<Self> {
        let mut builder = Self::default().chosen(config);
        builder.trace = config.trace;
        for link in &config.links {
            let opened = specification::open(&link.specification, &builder.clock)?;
            builder = builder.link_with(opened);
            let plan = builder.last("address")?;
            for &(ip, prefix_len) in &link.addresses {
                plan.addresses.push(
                    Address::new(ip, prefix_len)
                        .map_err(|e| invalid(format!("address {ip}: {e}")))?,
                );
            }
            plan.gateways.clone_from(&link.gateways);
        }
        for module in &config.modules {
            builder = builder.module(module.make()?);
        }
        if let Some(bytes) = config.tcp.receive_buffer_max {
            builder = builder.receive_buffer_max(bytes);
        }
        if let Some(bytes) = config.tcp.send_buffer_max {
            builder = builder.send_buffer_max(bytes);
        }
        if let Some(congestion) = config.tcp.congestion {
            builder.tcp.congestion = congestion;
        }
        if let Some(ecn) = config.tcp.ecn {
            builder.tcp.ecn = ecn;
        }
        if let Some(pacing) = config.tcp.pacing {
            builder.tcp.pacing = pacing;
        }
        if let Some(syn_cookies) = config.tcp.syn_cookies {
            builder.tcp.syn_cookies = syn_cookies;
        }
        if let Some(fast_open) = config.tcp.fast_open {
            builder.tcp.fast_open = fast_open;
        }
        if let Some(probing) = config.tcp.mtu_probing {
            builder.tcp.mtu_probing = probing;
        }
        if config.tcp.user_timeout_option == Some(true) {
            builder.tcp.user_timeout_option = tcp::UserTimeoutOption::Negotiable;
        }
        if let Some(nagle) = config.tcp.nagle {
            builder.tcp.nagle = nagle;
        }
        builder.memory.tcp = config.tcp.memory_max.map(|bytes| bytes as u64);
        builder.memory.udp = config.udp.memory_max.map(|bytes| bytes as u64);
        if !config.cores.is_empty() {
            return Err(invalid(
                "cores is not in this version: pin the process with taskset(1)",
            ));
        }
        Ok(builder)
    }

    /// Answers `netchan show` on a control socket (see [`crate::control`]), with a thread of its own. Where no such socket can be
    /// had, a warning on stderr says so, and the stack runs without.
    #[must_use]
    pub const fn control(mut self, control: bool) -> Self {
        self.control = control;
        self
    }

    /// Adds a module behind those that are there. One that needs Giant puts the whole stack under it, with a warning on stderr that
    /// names it (F3): [`Net::load_module`] after the start does not.
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

    fn last(&mut self, what: &str) -> io::Result<&mut LinkPlan> {
        self.links
            .last_mut()
            .ok_or_else(|| invalid(format!("an {what} needs a link named before it")))
    }

    fn chosen(mut self, config: &Config) -> Self {
        self = self.said_by("configuration");
        if let Some(regime) = config.regime {
            self = self.regime(regime);
        }
        if let Some(giant) = config.giant {
            self = self.giant(giant);
        }
        if let Some(dispatch) = config.dispatch {
            self = self.dispatch(dispatch);
        }
        if let Some(forwarding) = config.forwarding {
            self = self.forwarding(forwarding);
        }
        if let Some(mss_clamp) = config.mss_clamp {
            self = self.mss_clamp(mss_clamp);
        }
        if let Some(moderation) = config.moderation {
            self = self.moderation(moderation);
        }
        self.said_by("program")
    }

    /// Who says what follows, for `netchan show settings`.
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

    /// Whether forwarded SYNs are made to offer no longer segments than the two links they cross take (MSS clamping): for paths on which ICMP
    /// errors get lost. Default: off, connections find out by these errors or by probing.
    #[must_use]
    pub const fn mss_clamp(mut self, mss_clamp: bool) -> Self {
        self.mss_clamp = mss_clamp;
        self
    }

    /// Number of shards where the regime leaves it open: 1 to 64.
    #[must_use]
    pub const fn shards(mut self, shards: usize) -> Self {
        self.choice.shards = Some(shards);
        self
    }

    /// Who turns the stack.
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

    /// Bytes of a stream's send buffer, always; rounded up to a power of two.
    #[must_use]
    pub const fn send_buffer(mut self, bytes: usize) -> Self {
        self.send_buffer = bytes;
        self.send_buffer_max = bytes;
        self
    }

    /// Bytes that a stream's send buffer may grow to with its congestion window.
    #[must_use]
    pub fn send_buffer_max(mut self, bytes: usize) -> Self {
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
    /// none. Default: a quarter of what receive queues may have of the slabs.
    #[must_use]
    pub const fn udp_memory(mut self, bytes: usize) -> Self {
        self.memory.udp = Some(bytes as u64);
        self
    }

    /// How long waiting threads and link threads look again and again before they sleep. Zero: not at all.
    #[must_use]
    pub const fn spin(mut self, spin: Duration) -> Self {
        self.spin = spin;
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

    /// Whether regime, Giant, dispatch and number of shards go together, and memory limits and moderation are in range.
    ///
    /// # Errors
    /// `InvalidInput`, with the reason.
    pub fn check(&self) -> io::Result<()> {
        self.memory.check()?;
        if self.moderation > limits::MODERATION_MAX {
            return Err(invalid("moderation goes from 0 to 10 ms"));
        }
        self.choice.layout().map(|_| ()).map_err(invalid)
    }

    /// Starts it.
    ///
    /// # Errors
    /// `InvalidInput` for settings that contradict each other or are not in this version; the system's when it has no memory or threads.
    pub fn start(mut self) -> io::Result<Net> {
        let modules = std::mem::take(&mut self.modules);
        let (layout, degraded) = self.layout_for(&modules)?;
        let threaded = self.threads != Threads::Caller;
        let layout = if threaded {
            layout
        } else {
            layout.without_threads()
        };
        if self.threads == Threads::Own && matches!(self.clock, Clock::Virtual(_)) {
            return Err(invalid(
                "threads cannot sleep in virtual time: use Threads::Caller with a virtual clock",
            ));
        }
        trace::prepare();
        if let Some(level) = self.trace {
            trace::set_level(level);
        }
        let (clock, spin, control) = (self.clock.clone(), self.spin, self.control);
        let moderation = self.moderation;
        let stepped = self.threads == Threads::Stepped;
        let (choice, memory, now) = (self.choice, self.memory, clock.now());
        let forwarding_by = self.forwarding.1;
        let (host, links) = self.host(layout)?;
        let owns_links = !threaded && layout.shards == 1;
        let giant = Arc::new(Giant::new(layout.giant));
        let registry = Registry::new(links.len(), giant.clone());
        load::at_boot(&registry, modules, host.forwarding)?;
        let (host, own) = (Arc::new(host), owns_links);
        let parts = Parts::make(&host, links, layout, own, &registry, memory, now)?;
        let stack = Arc::new(Stack {
            regime: choice.regime(),
            choice,
            layout,
            clock,
            threaded,
            stepped,
            owns_links,
            giant: layout.giant.then_some(giant),
            degraded,
            forwarding_by,
            modules: registry,
            directory: Directory::new(
                parts.host.seed.derive(0x0064_6972),
                parts.host.places.clone(),
            ),
            host: parts.host,
            counters: parts.counters,
            memory: parts.memory,
            ports: parts.ports,
            cells: parts.cells,
            stop: AtomicBool::new(false),
            attended: AtomicBool::new(false),
            attendant: parts.attendant,
            threads: mutex(&locks::THREADS, Vec::new()),
            watch: Watch::new()?,
            moderation,
            spin_ns: u64::try_from(spin.as_nanos()).unwrap_or(u64::MAX),
            started: now,
            control: mutex(&locks::CONTROL, None),
        });
        if threaded && !stepped {
            worker::start(&stack)?;
        }
        if control {
            answer_from_outside(&stack);
        }
        Ok(Net::of(stack))
    }

    /// What its settings come to with these modules, and why it runs under Giant if it was not asked to.
    fn layout_for(&mut self, modules: &[Boxed]) -> io::Result<(Layout, Option<String>)> {
        self.check()?;
        let mut layout = self.choice.layout().map_err(invalid)?;
        let degraded = load::need_giant(modules, self.choice.regime(), layout);
        if degraded.is_some() {
            self.choice.degrade();
            layout = self.choice.layout().map_err(invalid)?;
        }
        if self.links.is_empty() || self.links.len() > 64 || layout.shards > SHARDS_MAX {
            return Err(invalid("a stack needs 1 to 64 links and at most 64 shards"));
        }
        Ok((layout, degraded))
    }

    /// The facts that everyone shares, and the links apart from them.
    fn host(self, layout: Layout) -> io::Result<(Host, Vec<Box<dyn Link>>)> {
        let mut random = match self.seed {
            Some(seed) => Random::new(Seed([seed, !seed])),
            None => Random::new(Seed([crate::sys::random_u64()?, crate::sys::random_u64()?])),
        };
        let mut routes = route::Table::new();
        let mut interfaces = Vec::new();
        let mut links = Vec::new();
        for (number, plan) in self.links.into_iter().enumerate() {
            let number = u8::try_from(number).map_err(|_| invalid("too many links"))?;
            interfaces.push(facts(number, &plan, &mut routes)?);
            links.push(plan.link);
        }
        let mut key = || {
            let mut bytes = [0; 16];
            bytes[..8].copy_from_slice(&random.next_u64().to_le_bytes());
            bytes[8..].copy_from_slice(&random.next_u64().to_le_bytes());
            bytes
        };
        let (flow_hash, secret) = (FlowHash::new(&key()), key());
        let seed = Seed([random.next_u64(), random.next_u64()]);
        let mut tcp = self.tcp;
        tcp.receive_buffer_max = tcp.receive_buffer_max.min(limits::receive_share(layout));
        let host = Host {
            groups: Groups::new(interfaces.len()),
            interfaces,
            routes,
            forwarding: self.forwarding.0,
            mss_clamp: self.mss_clamp,
            flow_hash,
            secret,
            seed,
            tcp,
            template: tcp::Template::new(&tcp),
            send_buffer: self.send_buffer.next_power_of_two(),
            send_buffer_max: self.send_buffer_max.next_power_of_two(),
            places: layout
                .own_shards
                .then(|| Arc::new(Places::new(layout.shards))),
        };
        Ok((host, links))
    }
}

/// Opens the control socket.
fn answer_from_outside(stack: &Arc<Stack>) {
    let weak = Arc::downgrade(stack);
    let answer = move |topic: &str| crate::show::topic(&*weak.upgrade()?, topic);
    // Who cannot be watched can still serve.
    match control::serve(answer) {
        Ok(control) => *stack.control.lock() = Some(control),
        Err(e) => eprintln!("netchan: `netchan show` will not see this stack: {e}"),
    }
}

/// Ends the stack when the last handle or socket is gone.
struct Guard(Arc<Stack>);

impl Drop for Guard {
    fn drop(&mut self) {
        worker::stop(&self.0);
    }
}

/// A running stack; clones share it. It ends with the last clone and the last socket.
#[derive(Clone)]
pub struct Net(Arc<Guard>);

impl Net {
    /// Settings before the start.
    pub fn builder() -> Builder {
        Builder::default()
    }
    pub(crate) fn of(stack: Arc<Stack>) -> Self {
        Self(Arc::new(Guard(stack)))
    }
    pub(crate) fn stack(&self) -> &Arc<Stack> {
        &self.0.0
    }
    /// TCP.
    pub const fn tcp(&self) -> Tcp<'_> {
        Tcp { net: self }
    }
    /// UDP.
    pub const fn udp(&self) -> Udp<'_> {
        Udp { net: self }
    }
    /// Turns the links and shards once, without waiting: for [`Threads::Caller`]. True if there was work.
    pub fn poll(&self) -> bool {
        self.stack().turn_all()
    }
    /// When `poll` has something to do by time alone; `None` if never. For virtual time.
    pub fn next_event(&self) -> Option<proto::time::Instant> {
        let at = self.stack().next_event();
        (at != proto::time::Instant::FAR).then_some(at)
    }
    /// Its clock.
    pub fn clock(&self) -> &Clock {
        &self.stack().clock
    }
    /// Its regime.
    pub fn regime(&self) -> Regime {
        self.stack().regime
    }
    /// Whether `ip` is one of this stack's own addresses.
    pub fn is_local(&self, ip: IpAddr) -> bool {
        self.stack().host.is_local(ip)
    }
    /// The attendant turns the shards at once instead of after two ticks: for event loops that wait by themselves (tokio).
    pub fn attend(&self) {
        self.stack().attend();
    }
    /// Waits, at most `limit` (of real time), until the peers have acknowledged all that was sent to them, the end of each closed
    /// stream included: for a program that ends, since its connections end with it. True if nothing is owed any more.
    pub fn drain(&self, limit: Duration) -> bool {
        let begin = percore::clock::now_ns();
        loop {
            self.poll(); // what is in the channels goes out, whoever else turns them
            if !self.stack().owes_peers() {
                return true;
            }
            if u128::from(percore::clock::now_ns().saturating_sub(begin)) >= limit.as_nanos() {
                return false;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    /// The facts behind `netchan show TOPIC` as JSON; `None` for an unknown topic.
    pub fn show(&self, topic: &str) -> Option<serde_json::Value> {
        crate::show::topic(self.stack(), topic)
    }
}

/// TCP of one stack.
#[derive(Clone, Copy)]
pub struct Tcp<'a> {
    net: &'a Net,
}

impl Tcp<'_> {
    /// Listens on `address` (`"0.0.0.0:80"`, `"[::]:80"`) with a backlog of 1024.
    ///
    /// # Errors
    /// `InvalidInput` for what is no address; `AddrInUse`, `AddrNotAvailable`.
    pub fn listen(&self, address: &str) -> io::Result<TcpListener> {
        TcpListener::bind(self.net, parse(address)?, 1024)
    }
    /// Opens a connection and waits for it.
    ///
    /// # Errors
    /// `ConnectionRefused`, `TimedOut`, `NetworkUnreachable`, `HostUnreachable`.
    pub fn connect(&self, address: SocketAddr) -> io::Result<TcpStream> {
        TcpStream::connect(self.net, address, None)
    }
    /// Opens a connection and waits for it at most `timeout`.
    ///
    /// # Errors
    /// As for `connect`.
    pub fn connect_timeout(&self, address: SocketAddr, timeout: Duration) -> io::Result<TcpStream> {
        TcpStream::connect(self.net, address, Some(timeout))
    }
}

/// UDP of one stack.
#[derive(Clone, Copy)]
pub struct Udp<'a> {
    net: &'a Net,
}

impl Udp<'_> {
    /// A socket bound to `address`.
    ///
    /// # Errors
    /// `InvalidInput` for what is no address; `AddrInUse`, `AddrNotAvailable`.
    pub fn bind(&self, address: &str) -> io::Result<UdpSocket> {
        UdpSocket::bind(self.net, parse(address)?)
    }
}

fn parse(address: &str) -> io::Result<SocketAddr> {
    address.parse().map_err(|_| {
        invalid(format!(
            "'{address}' is no address: write it like 0.0.0.0:80 or [::]:80"
        ))
    })
}
