//! Where the last datagram over IPv4 went: what the next one to the same peer need not find out again. A hint, which is forgotten when addresses
//! or routes change.

use std::net::SocketAddr;

use super::Destination;

/// The route of the last datagram, of those that nothing but the socket's own address and the peer's decided.
#[derive(Debug, Default)]
pub struct RouteCache {
    /// The address that the socket is bound to, and where it went.
    last: Option<(SocketAddr, Destination)>,
}

impl RouteCache {
    /// Addresses or routes have changed.
    pub const fn forget(&mut self) {
        self.last = None;
    }

    /// Where a datagram from a socket bound to `local` goes, if the last one went there.
    #[inline]
    pub fn get(&self, local: SocketAddr, remote: SocketAddr) -> Option<Destination> {
        let (bound, to) = self.last.as_ref()?;
        (to.remote == remote && *bound == local).then_some(*to)
    }

    /// A datagram from a socket bound to `local` goes there: to one host, by the routes alone. Of IPv6 the scope matters, too; it is not kept.
    pub fn put(&mut self, local: SocketAddr, to: Destination) {
        if to.remote.is_ipv4() {
            self.last = Some((local, to));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    fn to(remote: &str) -> Destination {
        Destination {
            local: at("10.0.0.1:53"),
            remote: at(remote),
            interface: 1,
        }
    }

    #[test]
    fn route_is_known_for_the_same_ends_until_forgotten() {
        let (any, own) = (at("0.0.0.0:53"), at("10.0.0.1:53"));
        let mut cache = RouteCache::default();
        cache.put(any, to("10.0.0.2:53"));
        let known = cache.get(any, at("10.0.0.2:53")).expect("the last one");
        assert_eq!((known.local, known.interface), (own, 1));
        assert!(cache.get(own, at("10.0.0.2:53")).is_none());
        assert!(cache.get(any, at("10.0.0.2:54")).is_none());
        assert!(cache.get(any, at("10.0.0.3:53")).is_none());
        cache.forget();
        assert!(cache.get(any, at("10.0.0.2:53")).is_none());
    }

    #[test]
    fn route_of_ipv6_is_not_kept() {
        let mut cache = RouteCache::default();
        cache.put(at("[::]:53"), to("[fe80::1]:53"));
        assert!(cache.get(at("[::]:53"), at("[fe80::1]:53")).is_none());
    }
}
