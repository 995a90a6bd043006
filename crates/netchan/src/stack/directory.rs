//! Which ports are bound, for bind(2)'s errors and for the choice of ports. Control plane: no packet comes here.

use std::{
    net::{IpAddr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use percore::lock::{Mutex, mutex};
use proto::ip::keyed::{Random, Seed};

use crate::{
    api::{
        Kind,
        binding::{BindRequest, PortChange, Released},
    },
    assignment::ShardAssignment,
    ephemeral::EphemeralPorts,
    limits::EPHEMERAL_PORTS,
    link::lease::PortRange,
    locks,
};

/// A bound port.
#[derive(Clone, Copy, Debug)]
struct Binding {
    id: u64,
    kind: Kind,
    address: SocketAddr,
    v6_only: bool,
    /// An IPv6 socket's, whose address is a mapped one.
    mapped: bool,
    reuse_address: bool,
    reuse_port: bool,
    /// A stream said SO_REUSEPORT when it was bound, or began to listen: as Linux remembers of the port.
    shared: bool,
    device: Option<u8>,
    listening: bool,
    /// The lease that it is of.
    lease: Option<u64>,
    user: Option<u32>,
    /// The address, where bind(2) named a port: connect(2) changes the other one.
    named: Option<SocketAddr>,
}

impl Binding {
    fn new(id: u64, request: &BindRequest, address: SocketAddr) -> Self {
        Self {
            id,
            kind: request.kind,
            address,
            v6_only: request.is_v6_only(),
            mapped: request.mapped,
            reuse_address: request.reuse_address,
            reuse_port: request.reuse_port,
            shared: request.reuse_port && request.kind == Kind::Stream,
            device: request.device,
            // A lease does not say whether it listens: as if it did, so that no other has the port beside it by SO_REUSEADDR.
            listening: request.lease.is_some() && request.kind == Kind::Stream,
            lease: request.lease,
            user: request.user,
            named: (request.address.port() != 0).then_some(request.address),
        }
    }
}

impl Binding {
    /// Whether it is a UDP socket's of this process.
    fn is_own_datagrams(&self) -> bool {
        self.kind == Kind::Datagram && self.lease.is_none()
    }

    /// What its lender is asked for, and gets back; `None`: no port was named.
    fn released(&self) -> Option<Released> {
        self.named.map(|address| Released {
            kind: self.kind,
            address,
            v6_only: self.v6_only,
        })
    }
}

/// A bit for each bound port, read by connect(2) and by the links' threads without a lock.
#[derive(Debug)]
pub struct BoundPorts(Box<[AtomicU64]>);

impl Default for BoundPorts {
    fn default() -> Self {
        Self((0..1024).map(|_| AtomicU64::new(0)).collect())
    }
}

impl BoundPorts {
    /// Whether a socket is bound to this port, at any address.
    #[inline]
    pub fn contains(&self, port: u16) -> bool {
        let (word, bit) = place(port);
        // Relaxed: a hint for the choice of ports; the flow table decides.
        self.0[word].load(Relaxed) & bit != 0
    }

    fn insert(&self, port: u16) {
        let (word, bit) = place(port);
        self.0[word].fetch_or(bit, Relaxed); // as in `contains`
    }

    fn remove(&self, port: u16) {
        let (word, bit) = place(port);
        self.0[word].fetch_and(!bit, Relaxed); // as in `contains`
    }
}

/// What the directory's lock guards.
struct Bound {
    bindings: Vec<Binding>,
    /// The id given last.
    next: u64,
    random: Random,
    /// Ports that leases have for sockets that name none, of all protocols.
    lent: Vec<PortRange>,
}

/// The bound ports of one stack.
pub struct Directory {
    bindings: Mutex<Bound>,
    /// Its TCP ports, for those that have no lock.
    pub tcp_ports: Arc<BoundPorts>,
    /// The same of UDP, but for those of leases.
    pub udp_ports: Arc<BoundPorts>,
    /// Where datagram sockets live, if each has a shard of its own.
    assignment: Option<Arc<ShardAssignment>>,
    /// Held while a listener that shares its port gets a home.
    pub homes: Mutex<()>,
}

impl Directory {
    /// None bound.
    pub fn new(seed: Seed, assignment: Option<Arc<ShardAssignment>>) -> Self {
        Self {
            bindings: mutex(
                &locks::BINDINGS,
                Bound {
                    bindings: Vec::new(),
                    next: 0,
                    random: Random::new(seed),
                    lent: Vec::new(),
                },
            ),
            tcp_ports: Arc::default(),
            udp_ports: Arc::default(),
            assignment,
            homes: mutex(&locks::HOMES, ()),
        }
    }

    /// Binds; returns the id to release, and the address with its port.
    ///
    /// # Errors
    /// EADDRINUSE.
    pub fn bind(
        &self,
        request: BindRequest,
        ports: &EphemeralPorts,
    ) -> Result<(u64, SocketAddr), i32> {
        let mut guard = self.bindings.lock();
        let Bound {
            bindings,
            next,
            random,
            lent,
        } = &mut *guard;
        let is_lent = |port| lent.iter().any(|range| (range.0..=range.1).contains(&port));
        let mut address = request.address;
        if address.port() == 0 {
            let (first, last) = ports.indexes().into_inner();
            let count = u64::from(last.saturating_sub(first)) + 1;
            let start = random.below(count);
            let free = (0..count).find_map(|step| {
                let port = ports.port(first + u16::try_from((start + step) % count).ok()?);
                if port == 0 || is_lent(port) {
                    return None;
                }
                address.set_port(port);
                let request = BindRequest {
                    address,
                    reuse_address: false,
                    reuse_port: false,
                    ..request
                };
                let wanted = Binding::new(0, &request, address);
                (!bindings.iter().any(|b| conflicts(b, &wanted))).then_some(port)
            });
            address.set_port(free.ok_or(libc::EADDRINUSE)?);
        } else {
            let wanted = Binding::new(0, &request, address);
            if is_lent(address.port()) || bindings.iter().any(|b| conflicts(b, &wanted)) {
                return Err(libc::EADDRINUSE);
            }
        }
        *next += 1;
        let binding = Binding::new(*next, &request, address);
        if binding.is_own_datagrams() {
            self.udp_ports.insert(address.port());
        }
        bindings.push(binding);
        if request.kind == Kind::Stream {
            self.tcp_ports.insert(address.port());
        } else if let Some(assignment) = &self.assignment {
            assignment.settle_port(address.port());
        }
        Ok((*next, address))
    }

    /// Sets `count` ports aside that nothing is bound to, of all protocols: for a lease's sockets that name none.
    ///
    /// # Errors
    /// EADDRNOTAVAIL: so many are not free one behind the other.
    pub fn lend(&self, count: u16) -> Result<PortRange, i32> {
        let mut guard = self.bindings.lock();
        let Bound {
            bindings,
            random,
            lent,
            ..
        } = &mut *guard;
        let (first, last) = EPHEMERAL_PORTS.into_inner();
        let blocks = (last - first + 1) / count.max(1);
        let start = random.below(blocks.max(1).into());
        let is_free = |range: &PortRange| {
            let overlaps = |other: &PortRange| range.0 <= other.1 && other.0 <= range.1;
            let holds = |b: &Binding| (range.0..=range.1).contains(&b.address.port());
            !lent.iter().any(overlaps) && !bindings.iter().any(holds)
        };
        let mut all = (0..u64::from(blocks)).filter_map(|step| {
            let block = u16::try_from((start + step) % u64::from(blocks)).ok()?;
            let begin = first + block * count;
            Some(PortRange(begin, begin + count - 1))
        });
        let range = all.find(is_free).ok_or(libc::EADDRNOTAVAIL)?;
        lent.push(range);
        (range.0..=range.1).for_each(|port| self.tcp_ports.insert(port));
        Ok(range)
    }

    /// A lease's ports are free again.
    pub fn take_back(&self, ranges: &[PortRange]) {
        let mut guard = self.bindings.lock();
        guard.lent.retain(|range| !ranges.contains(range));
        for range in ranges {
            (range.0..=range.1).for_each(|port| self.tcp_ports.remove(port));
        }
    }

    /// A bound stream socket starts to listen.
    ///
    /// # Errors
    /// EADDRINUSE: another one listens there, and not both share the port. As Linux, which asks for it anew.
    pub fn listen(&self, id: u64) -> Result<(), i32> {
        let mut guard = self.bindings.lock();
        let bindings = &mut guard.bindings;
        let Some(at) = bindings.iter().position(|b| b.id == id) else {
            return Err(libc::EINVAL);
        };
        let wanted = bindings[at];
        let mut others = bindings.iter().filter(|b| b.id != id);
        if others.any(|b| conflicts(b, &wanted)) {
            return Err(libc::EADDRINUSE);
        }
        let binding = &mut bindings[at];
        binding.listening = true;
        binding.shared = binding.reuse_port;
        Ok(())
    }

    /// Changes what `bind` gave; of an id that it did not give, nothing.
    pub fn change(&self, id: u64, change: PortChange) {
        let mut guard = self.bindings.lock();
        let bindings = &mut guard.bindings;
        let Some(at) = bindings.iter().position(|b| b.id == id) else {
            return;
        };
        let binding = &mut bindings[at];
        match change {
            PortChange::StopListening => binding.listening = false,
            PortChange::Reuse { address, port } => {
                (binding.reuse_address, binding.reuse_port) = (address, port);
            }
            PortChange::Device(device) => binding.device = device,
            PortChange::Address(ip) => binding.address.set_ip(ip),
        }
    }

    /// Ends what `bind` gave: what it was, where a port was named; of an id that it did not give, nothing.
    pub fn release(&self, id: u64) -> Option<Released> {
        let bindings = &mut self.bindings.lock().bindings;
        let at = bindings.iter().position(|b| b.id == id)?;
        let gone = bindings.swap_remove(at);
        self.forget_port(bindings, &gone);
        gone.released()
    }

    /// What `bind` gave, where a port was named.
    pub fn named(&self, id: u64) -> Option<Released> {
        let bindings = &self.bindings.lock().bindings;
        bindings.iter().find(|b| b.id == id)?.released()
    }

    /// Nothing is known any more of the port of a binding that is gone, if it was the last one there.
    fn forget_port(&self, bindings: &[Binding], gone: &Binding) {
        let port = gone.address.port();
        let has_it = |b: &Binding| b.is_own_datagrams() && b.address.port() == port;
        if gone.is_own_datagrams() && !bindings.iter().any(has_it) {
            self.udp_ports.remove(port);
        }
        let is_stream = |b: &Binding| b.kind == Kind::Stream;
        let same = |b: &Binding| is_stream(b) == is_stream(gone) && b.address.port() == port;
        if bindings.iter().any(same) {
            return;
        }
        if gone.kind == Kind::Stream {
            self.tcp_ports.remove(port);
        } else if let Some(assignment) = &self.assignment {
            assignment.leave_port(port);
        }
    }
}

const fn place(port: u16) -> (usize, u64) {
    (port as usize / 64, 1 << (port % 64))
}

/// As Linux: two bindings of one port conflict unless both reuse the port, or both reuse the address and neither listens
/// (for datagrams: unless both reuse one or the other; for ping sockets: unless both reuse the address).
fn conflicts(there: &Binding, wanted: &Binding) -> bool {
    let is_of_one_lease = there.lease.is_some() && there.lease == wanted.lease;
    if there.kind != wanted.kind || is_of_one_lease || !overlap(there, wanted) {
        return false;
    }
    let shares = there.reuse_port || there.shared;
    let is_of_one_user = there.user == wanted.user;
    let by_port = shares && wanted.reuse_port && is_of_one_user && wanted.kind != Kind::Ping;
    let by_address = there.reuse_address && wanted.reuse_address && !there.listening;
    !(by_port || by_address)
}

fn overlap(a: &Binding, b: &Binding) -> bool {
    let are_apart = a.device.is_some() && b.device.is_some() && a.device != b.device;
    if a.address.port() != b.address.port() || are_apart {
        return false;
    }
    // As Linux: an identifier is one, whatever the addresses and families.
    if a.kind == Kind::Ping {
        return true;
    }
    let covers = |x: &Binding, y: &Binding| match (x.address.ip(), y.address.ip()) {
        (IpAddr::V4(x4), IpAddr::V4(_)) => x4.is_unspecified(),
        (IpAddr::V6(x6), IpAddr::V6(_)) => x6.is_unspecified(),
        (IpAddr::V6(x6), IpAddr::V4(_)) => x6.is_unspecified() && !x.v6_only,
        // As Linux: IPv4's wildcard stands against all that is not of IPv6 alone, as one is not that has an IPv6 address by its connection;
        // not so as an IPv6 socket's mapped address.
        (IpAddr::V4(x4), IpAddr::V6(_)) => x4.is_unspecified() && !y.v6_only && !x.mapped,
    };
    a.address.ip() == b.address.ip() || covers(a, b) || covers(b, a)
}
