//! From settings to a running stack.

use std::{
    io,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use percore::{lock::mutex, snapshot::Snapshot};
use proto::ip::{
    keyed::{Random, Seed},
    route,
};

use serde_json::Value;

use super::{
    Builder, Net, Threads,
    parts::Parts,
    plan::{LinkPlan, add_interface},
    queues,
};
use crate::{
    assignment::ShardAssignment,
    clock::Clock,
    control::{self, Answers, Change, capture, inject},
    driver::module::Giant,
    driver::{
        groups::Groups,
        host::{Host, Live},
        module::{Boxed, registry::Registry},
        network::Network,
    },
    errno::invalid,
    flow::FlowHash,
    limits,
    link::{Link, lease::Lease},
    locks, memory,
    moved::Moved,
    net::{live, modules},
    regime::{Layout, Regime},
    stack::{
        Stack,
        control_plane::{Borrowed, ControlPlane, Lending},
        directory::Directory,
        driver_side::{DriverSide, Lane},
        leased::ephemeral_ports,
        socket_side::SocketSide,
        visitors::Visitors,
        watch::Watch,
        worker,
    },
    tap::Taps,
    trace,
};

impl Builder {
    /// Starts it.
    ///
    /// # Errors
    /// `InvalidInput` for settings that contradict each other or are not in this version; the system's when it has no memory or threads.
    pub fn start(mut self) -> io::Result<Net> {
        let modules = std::mem::take(&mut self.modules);
        let claim = self.handed.claim.take();
        let (layout, degraded) = self.prepare(&modules)?;
        let (threads, threaded) = (self.threads, self.threads != Threads::Caller);
        let (clock, spin, control) = (self.clock.clone(), self.spin, self.control);
        let (moderation, background) = (self.moderation, self.background);
        let (choice, most, now) = (self.choice, self.memory, clock.now());
        let (forwarding_by, loopback_by) = (self.forwarding.1, self.loopback.1);
        memory::probe(limits::SPARE)?;
        let leases = self.leases();
        let (host, links) = self.host(layout)?;
        let giant = Arc::new(Giant::new(layout.giant));
        let (host, owns_links) = (Arc::new(host), !threaded && layout.shards == 1);
        (leases.iter()).for_each(|(_, lease)| host.taps.watched.add_table(lease.pipes()));
        let wanted = queues::wanted(layout, host.forwarding, owns_links);
        let started = queues::start(links, wanted, host.forwarding, layout, &giant)?;
        let registry = Registry::new(started.len(), giant.clone(), host.taps.watched.clone());
        modules::at_boot(&registry, modules, host.forwarding)?;
        let parts = Parts::make(&host, started, layout, owns_links, &registry, most, now)?;
        let directory = Directory::new(host.seed.derive(0x0064_6972), host.assignment.clone());
        let driver = DriverSide {
            host: host.clone(),
            counters: parts.counters.clone(),
            bound_ports: directory.tcp_ports.clone(),
            udp_ports: directory.udp_ports.clone(),
            own: parts.queues.iter().position(|queue| queue.kind == "lo"),
            queues: parts.queues,
            lanes: Lane::of_links(&parts.links),
            links: parts.links,
            can_lead: AtomicBool::new(false),
            lends: AtomicBool::new(false),
            background,
            moderation,
        };
        let control_plane = ControlPlane {
            regime: choice.regime(),
            choice,
            degraded,
            forwarding_by,
            loopback_by,
            host,
            directory,
            modules: registry,
            packet_channels: mutex(&locks::PACKET_CHANNELS, Vec::new()),
            lent: mutex(&locks::LENT, Lending::default()),
            leases: Borrowed::new(leases),
            counters: parts.counters,
            started: now,
            threads: mutex(&locks::THREADS, Vec::new()),
            watch: Watch::new()?,
            visitors: Visitors::new(),
            companions: mutex(&locks::COMPANIONS, Vec::new()),
            claim,
        };
        let stack = Arc::new(Stack {
            layout,
            clock,
            threaded,
            stepped: threads == Threads::Stepped,
            owns_links,
            giant: layout.giant.then_some(giant),
            spin_ns: u64::try_from(spin.as_nanos()).unwrap_or(u64::MAX),
            stop: AtomicBool::new(false),
            paused: AtomicBool::new(false),
            driver,
            sockets: SocketSide::new(parts.cells, parts.memory, parts.background),
            control: control_plane,
        });
        run(&stack, control)?;
        Ok(Net::of(stack))
    }

    /// What it comes to, and why it runs under Giant if it was not asked to; all that can be wrong before anything is made is found here.
    fn prepare(&mut self, modules: &[Boxed]) -> io::Result<(Layout, Option<String>)> {
        self.add_loopback()?;
        let (layout, degraded) = self.layout_for(modules)?;
        self.may_sleep()?;
        self.prepare_trace()?;
        let layout = match self.threads {
            Threads::Caller => layout.without_threads(),
            Threads::Own | Threads::Stepped => layout,
        };
        Ok((layout, degraded))
    }

    /// What other processes lend with the links, each with its link's number.
    fn leases(&self) -> Vec<(u8, Arc<dyn Lease>)> {
        let links = (0..).zip(&self.links);
        links
            .filter_map(|(number, plan)| Some((number, plan.link.lease()?)))
            .collect()
    }

    fn prepare_trace(&self) -> io::Result<()> {
        trace::prepare(self.trace_events)?;
        if let Some(level) = self.trace {
            trace::set_level(level);
        }
        Ok(())
    }

    /// Finds the link that loopback addresses are shared by, or makes one that has them alone.
    fn add_loopback(&mut self) -> io::Result<()> {
        if !self.loopback.0 {
            return Ok(());
        }
        let mut leases = self.links.iter().map(|plan| plan.link.lease());
        let lends = self.lends_loopback && matches!(leases.clone().next(), Some(None));
        let shared = leases.position(|lease| lease.is_some_and(|l| l.share_loopback().is_ok()));
        self.loopback_link = shared.or_else(|| lends.then_some(0));
        if self.loopback_link.is_none() {
            // The last one: others come first where it is not asked for by an address.
            self.loopback_link = Some(self.links.len());
            self.links.push(LinkPlan::loopback()?);
        }
        Ok(())
    }

    fn may_sleep(&self) -> io::Result<()> {
        if self.threads == Threads::Own && matches!(self.clock, Clock::Virtual(_)) {
            return Err(invalid(
                "threads cannot sleep in virtual time: use Threads::Caller with a virtual clock",
            ));
        }
        Ok(())
    }

    /// What its settings come to with these modules, and why it runs under Giant if it was not asked to.
    fn layout_for(&mut self, modules: &[Boxed]) -> io::Result<(Layout, Option<String>)> {
        self.check()?;
        self.shards_of_queues();
        let mut layout = self.choice.layout().map_err(invalid)?;
        let degraded = modules::need_giant(modules, self.choice.regime(), layout);
        if degraded.is_some() {
            self.choice.degrade();
            layout = self.choice.layout().map_err(invalid)?;
        }
        if self.links.is_empty() || self.links.len() > 64 || layout.shards > limits::SHARDS_MAX {
            return Err(invalid("a stack needs 1 to 64 links and at most 64 shards"));
        }
        Ok((layout, degraded))
    }

    /// Of `app-channel`: where the number of shards was left open, it is that of the queues of the link that has most.
    fn shards_of_queues(&mut self) {
        let queues = self.links.iter().map(|plan| plan.link.queues());
        let queues = queues.max().map(|most| most.min(limits::QUEUES_MAX));
        let is_open = self.choice.regime() == Regime::AppChannel && self.choice.shards.is_none();
        let uses_them = is_open && self.threads != Threads::Caller && !self.forwarding.0;
        self.choice.shards = queues.filter(|_| uses_them).or(self.choice.shards);
    }

    /// The facts that everyone shares, and the links apart from them.
    fn host(self, layout: Layout) -> io::Result<(Host, Vec<Box<dyn Link>>)> {
        let mut random = match self.seed {
            Some(seed) => Random::new(Seed([seed, !seed])),
            None => Random::new(Seed([crate::sys::random_u64()?, crate::sys::random_u64()?])),
        };
        let mut net = Network {
            interfaces: Vec::new(),
            loopback: (self.loopback_link).and_then(|number| u8::try_from(number).ok()),
            routes: route::Table::new(),
        };
        let leases = self.leases().into_iter().map(|(_, lease)| lease);
        let ports = ephemeral_ports(&leases.collect::<Vec<_>>());
        let mut links = Vec::new();
        for plan in self.links {
            add_interface(&mut net, &plan)?;
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
        tcp.receive_buffer_max = tcp.receive_buffer_max.min(layout.receive_share());
        let host = Host {
            live: Arc::new(Snapshot::new(Live {
                groups: Arc::new(Groups::new(links.len())),
                net: Arc::new(net),
                tcp: Arc::new(tcp),
                limits_icmp: self.limits_icmp,
                ports: Arc::new(ports),
            })),
            forwarding: self.forwarding.0,
            mss_clamp: self.mss_clamp,
            flow_hash,
            secret,
            seed,
            taps: Arc::new(Taps::new(self.compile_filters)),
            send_buffer: self.send_buffer.next_power_of_two(),
            send_buffer_max: self.send_buffer_max.next_power_of_two(),
            assignment: layout
                .own_shards
                .then(|| Arc::new(ShardAssignment::new(layout.shards))),
            moved: Moved::default(),
        };
        Ok((host, links))
    }
}

/// What answers at a stack's control socket.
struct Outside(Weak<Stack>);

impl Answers for Outside {
    fn show(&self, topic: &str) -> Option<Value> {
        crate::show::topic(&*self.0.upgrade()?, topic)
    }

    fn change(&self, change: &Change) -> Result<String, String> {
        let stack = self.0.upgrade().ok_or("the stack is ending")?;
        live::change(&stack, change)
    }

    fn capture(&self, request: &capture::Request) -> Result<capture::Captured, String> {
        let stack = self.0.upgrade().ok_or("the stack is ending")?;
        live::capture(&stack, request)
    }

    fn inject(&self, request: &inject::Request) -> Result<inject::Injecting, String> {
        let stack = self.0.upgrade().ok_or("the stack is ending")?;
        live::inject(&stack, request)
    }
}

/// Opens the control socket.
fn answer_from_outside(stack: &Arc<Stack>) {
    // A stack that cannot be watched can still serve.
    match control::serve(Outside(Arc::downgrade(stack))) {
        Ok(control) => stack.control.companions.lock().push(Box::new(control)),
        Err(e) => {
            tracing::warn!(target: "netchan::control", "`netchan show` will not see this stack: {e}");
        }
    }
}

/// Starts what a stack is turned by, and what answers for it.
pub(super) fn run(stack: &Arc<Stack>, control: bool) -> io::Result<()> {
    memory::probe(limits::SPARE)?;
    // Relaxed: before the threads.
    stack.driver.can_lead.store(stack.may_lead_links(), Relaxed);
    if stack.threaded && !stack.stepped {
        percore::doorbell::reserve()?;
        worker::start(stack)?;
    }
    if control {
        answer_from_outside(stack);
    }
    Ok(())
}
