//! Peers that a shard connected to lately, with what a connect would have to find out each time: route, our address, and the keyed
//! hashes of the two. A hint, which is forgotten when addresses or routes change.

use std::net::{IpAddr, SocketAddr};

use proto::tcp;

use crate::driver::host::HostView;

/// Peers kept, each at one place: 64 × 96 bytes.
const PLACES: usize = 64;

/// What there is to know before a connect.
#[derive(Clone, Copy, Debug)]
pub struct Peer {
    remote: SocketAddr,
    /// The address that connections to it come from, unless they are bound to another.
    pub source: IpAddr,
    /// Where they leave.
    pub interface: u8,
    /// Where the search for a port begins (RFC 6056).
    pub port_offset: u32,
    /// Where the timestamp clock begins (RFC 7323 §7.1).
    pub ts_offset: u32,
}

impl Peer {
    /// Finds it all out, for connections from `source`, or from the address that the route suggests. `None`: no route.
    fn find(
        host: &HostView,
        remote: SocketAddr,
        source: Option<IpAddr>,
        (device, mark): (Option<u8>, u32),
    ) -> Option<Self> {
        let (interface, suggested) = host.net.route_by(device, remote.ip(), mark)?;
        let source = source.unwrap_or(suggested);
        Some(Self {
            remote,
            source,
            interface,
            port_offset: tcp::port_offset(&host.secret, source, remote),
            ts_offset: tcp::timestamp_offset(&host.secret, source, remote.ip()),
        })
    }
}

/// Those connected to lately.
#[derive(Debug)]
pub struct Peers(Vec<Option<Peer>>);

impl Peers {
    /// None yet.
    pub fn new() -> Self {
        Self(vec![None; PLACES])
    }

    /// The routes have changed.
    pub fn forget(&mut self) {
        self.0.fill(None);
    }

    /// What there is to know before a connect to `remote`, from `source` if the socket is bound to an address, by `device` if it is bound
    /// to a link, with its mark. `None`: no route.
    #[inline]
    pub fn get(
        &mut self,
        host: &HostView,
        remote: SocketAddr,
        source: Option<IpAddr>,
        (device, mark): (Option<u8>, u32),
    ) -> Option<Peer> {
        if source.is_some() || device.is_some() || mark != 0 {
            return Peer::find(host, remote, source, (device, mark));
        }
        let place = &mut self.0[place_of(remote)];
        match place {
            Some(peer) if peer.remote == remote => Some(*peer),
            _ => {
                let peer = Peer::find(host, remote, None, (None, 0))?;
                *place = Some(peer);
                Some(peer)
            }
        }
    }
}

fn place_of(remote: SocketAddr) -> usize {
    let last = match remote.ip() {
        IpAddr::V4(ip) => ip.octets()[3],
        IpAddr::V6(ip) => ip.octets()[15],
    };
    (usize::from(last) ^ usize::from(remote.port())) % PLACES
}
