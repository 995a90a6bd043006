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

use crate::{api::Kind, api::binding::BindRequest, limits::EPHEMERAL_PORTS, locks, places::Places};

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
            listening: false,
        }
    }
}

/// The bound ports of one stack.
pub struct Directory {
    bindings: Mutex<(Vec<Binding>, u64, Random)>,
    /// A bit for each bound TCP port, read by connect without the lock.
    tcp_ports: Vec<AtomicU64>,
    /// Where datagram sockets live, if each has a shard of its own.
    places: Option<Arc<Places>>,
}

impl Directory {
    /// None bound.
    pub fn new(seed: Seed, places: Option<Arc<Places>>) -> Self {
        Self {
            bindings: mutex(&locks::BINDINGS, (Vec::new(), 0, Random::new(seed))),
            tcp_ports: (0..1024).map(|_| AtomicU64::new(0)).collect(),
            places,
        }
    }

    /// Binds; returns the id to release, and the address with its port.
    ///
    /// # Errors
    /// EADDRINUSE.
    pub fn bind(&self, request: BindRequest) -> Result<(u64, SocketAddr), i32> {
        let mut guard = self.bindings.lock();
        let (bindings, next, random) = &mut *guard;
        let mut address = request.address;
        if address.port() == 0 {
            let (first, last) = (*EPHEMERAL_PORTS.start(), *EPHEMERAL_PORTS.end());
            let count = u64::from(last - first) + 1;
            let start = random.below(count);
            let free = (0..count).find_map(|step| {
                let port = first + u16::try_from((start + step) % count).ok()?;
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
            if bindings.iter().any(|b| conflicts(b, &wanted)) {
                return Err(libc::EADDRINUSE);
            }
        }
        *next += 1;
        bindings.push(Binding::new(*next, &request, address));
        if request.kind == Kind::Stream {
            let (word, bit) = place(address.port());
            // Relaxed: a hint for the choice of ports; the flow table decides.
            self.tcp_ports[word].fetch_or(bit, Relaxed);
        } else if let Some(places) = &self.places {
            places.settle_port(address.port());
        }
        Ok((*next, address))
    }

    /// A bound stream socket starts to listen.
    ///
    /// # Errors
    /// EADDRINUSE: another is there, and not both share the port. As Linux, which asks for it anew.
    pub fn listen(&self, id: u64) -> Result<(), i32> {
        let mut guard = self.bindings.lock();
        let bindings = &mut guard.0;
        let Some(me) = bindings.iter().find(|b| b.id == id).copied() else {
            return Err(libc::EINVAL);
        };
        if bindings.iter().any(|b| b.id != id && conflicts(b, &me)) {
            return Err(libc::EADDRINUSE);
        }
        if let Some(binding) = bindings.iter_mut().find(|b| b.id == id) {
            binding.listening = true;
            binding.shared = binding.reuse_port;
        }
        Ok(())
    }

    /// A listener that was shut: it is bound still, and stands against others as what does not listen.
    pub fn listens_no_more(&self, id: u64) {
        let mut guard = self.bindings.lock();
        if let Some(binding) = guard.0.iter_mut().find(|b| b.id == id) {
            binding.listening = false;
        }
    }

    /// A bound socket says SO_REUSEADDR and SO_REUSEPORT so from now on: what counts is what it says when another is bound.
    pub fn set_reuse(&self, id: u64, address: bool, port: bool) {
        let mut guard = self.bindings.lock();
        if let Some(binding) = guard.0.iter_mut().find(|b| b.id == id) {
            (binding.reuse_address, binding.reuse_port) = (address, port);
        }
    }

    /// A bound socket hears one link only from now on, or all. As in Linux, that it stands against others is not looked at.
    pub fn set_device(&self, id: u64, device: Option<u8>) {
        let mut guard = self.bindings.lock();
        if let Some(binding) = guard.0.iter_mut().find(|b| b.id == id) {
            binding.device = device;
        }
    }

    /// A bound socket has another address from now on: a connected one that of its connection, as in Linux, where others may be bound
    /// beside it.
    pub fn set_address(&self, id: u64, ip: IpAddr) {
        let mut guard = self.bindings.lock();
        if let Some(binding) = guard.0.iter_mut().find(|b| b.id == id) {
            binding.address.set_ip(ip);
        }
    }

    /// Releases what `bind` gave.
    pub fn release(&self, id: u64) {
        let mut guard = self.bindings.lock();
        let bindings = &mut guard.0;
        let Some(at) = bindings.iter().position(|b| b.id == id) else {
            return;
        };
        let gone = bindings.swap_remove(at);
        let port = gone.address.port();
        let is_stream = |b: &Binding| b.kind == Kind::Stream;
        let same = |b: &Binding| is_stream(b) == is_stream(&gone) && b.address.port() == port;
        if bindings.iter().any(same) {
            return;
        }
        if gone.kind == Kind::Stream {
            let (word, bit) = place(port);
            self.tcp_ports[word].fetch_and(!bit, Relaxed);
        } else if let Some(places) = &self.places {
            places.leave_port(port);
        }
    }

    /// Whether a TCP port is bound by anyone.
    #[inline]
    pub fn is_tcp_port_bound(&self, port: u16) -> bool {
        let (word, bit) = place(port);
        self.tcp_ports[word].load(Relaxed) & bit != 0
    }
}

const fn place(port: u16) -> (usize, u64) {
    (port as usize / 64, 1 << (port % 64))
}

/// As Linux: two bindings of one port conflict unless both reuse the port, or both reuse the address and neither listens
/// (for datagrams: unless both reuse one or the other; for ping sockets: unless both reuse the address).
fn conflicts(there: &Binding, wanted: &Binding) -> bool {
    if there.kind != wanted.kind || !overlap(there, wanted) {
        return false;
    }
    let shares = there.reuse_port || there.shared;
    let by_port = shares && wanted.reuse_port && wanted.kind != Kind::Ping;
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
