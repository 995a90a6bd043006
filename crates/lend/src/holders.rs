//! Which lease has which port, so that one look finds it.

use std::collections::{BTreeMap, HashMap};

use netchan::link::lease::{Binding, PortRange, Transport, covers};

/// The ports of all leases.
#[derive(Debug, Default)]
pub struct Holders {
    bindings: HashMap<(Transport, u16), Vec<Holder>>,
    /// By their first port: the last one, and the lease.
    ranges: BTreeMap<u16, (u16, u64)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Holder {
    lease: u64,
    binding: Binding,
    /// Others may have it, too, by SO_REUSEPORT.
    shares: bool,
    /// Nothing new comes to it.
    is_closed: bool,
}

impl Holder {
    fn is_of(&self, lease: u64, binding: &Binding) -> bool {
        self.lease == lease && self.binding == *binding
    }
}

fn key(binding: &Binding) -> (Transport, u16) {
    (binding.transport, binding.address.port())
}

impl Holders {
    /// A lease has a port, and shares it or not: from now on, where it had it already.
    pub fn bind(&mut self, lease: u64, binding: Binding, shares: bool) {
        if self.in_range(binding.address.port()) == Some(lease) {
            return; // it has it anyway
        }
        self.unbind(lease, &binding);
        let all = self.bindings.entry(key(&binding)).or_default();
        all.push(Holder {
            lease,
            binding,
            shares,
            is_closed: false,
        });
    }

    /// Nothing new comes to it.
    pub fn close(&mut self, lease: u64, binding: &Binding) {
        let all = self.bindings.get_mut(&key(binding)).into_iter().flatten();
        for holder in all.filter(|holder| holder.is_of(lease, binding)) {
            holder.is_closed = true;
        }
    }

    /// It has it no more.
    pub fn unbind(&mut self, lease: u64, binding: &Binding) {
        if let Some(all) = self.bindings.get_mut(&key(binding)) {
            all.retain(|holder| !holder.is_of(lease, binding));
            if all.is_empty() {
                self.bindings.remove(&key(binding));
            }
        }
    }

    /// A lease has these ports for sockets that name none.
    pub fn add_ranges(&mut self, lease: u64, ranges: &[PortRange]) {
        let ranges = ranges.iter();
        self.ranges
            .extend(ranges.map(|range| (range.0, (range.1, lease))));
    }

    /// A lease has ended, which had these.
    pub fn remove(&mut self, lease: u64, bindings: &[Binding], ranges: &[PortRange]) {
        for binding in bindings {
            self.unbind(lease, binding);
        }
        for range in ranges {
            self.ranges.remove(&range.0);
        }
    }

    /// The lease that has this port: one that has it at this very address before one that has it at all of them.
    pub fn find(&self, to: &Binding) -> Option<u64> {
        let port = to.address.port();
        let bound = self.bindings.get(&key(to)).into_iter().flatten();
        let bound = bound.filter(|holder| !holder.is_closed);
        let covered = |holder: &&Holder| covers(holder.binding.address.ip(), to.address.ip());
        let bound = (bound.clone().find(|holder| holder.binding == *to))
            .or_else(|| bound.clone().find(covered));
        bound.map_or_else(|| self.in_range(port), |holder| Some(holder.lease))
    }

    /// The lease that has this port for sockets that name none.
    fn in_range(&self, port: u16) -> Option<u64> {
        let (_, &(last, lease)) = self.ranges.range(..=port).next_back()?;
        (port <= last).then_some(lease)
    }

    /// Whether a lease is not the only one that may have a port, at whatever address.
    pub fn is_shared(&self, lease: u64, binding: &Binding) -> bool {
        let mut all = self.bindings.get(&key(binding)).into_iter().flatten();
        all.any(|holder| holder.lease != lease || holder.shares && holder.binding == *binding)
    }

    /// The other leases that have the same port, at whatever address.
    pub fn rivals(&self, lease: u64, binding: &Binding) -> impl Iterator<Item = u64> {
        let all = self.bindings.get(&key(binding)).into_iter().flatten();
        all.map(|holder| holder.lease)
            .filter(move |&other| other != lease)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(address: &str) -> Binding {
        Binding {
            transport: Transport::Tcp,
            address: address.parse().unwrap(),
        }
    }

    #[test]
    fn the_nearest_holder_is_found_and_goes() {
        let mut holders = Holders::default();
        let one = [tcp("0.0.0.0:80"), tcp("0.0.0.0:80"), tcp("[::]:81")];
        let two = [tcp("10.0.0.2:80")];
        let ranges = [PortRange(40_000, 40_015), PortRange(50_000, 50_000)];
        for (lease, bindings) in [(1, &one[..]), (2, &two[..])] {
            let bindings = bindings.iter();
            bindings.for_each(|&binding| holders.bind(lease, binding, false));
        }
        holders.add_ranges(1, &ranges[..1]);
        holders.add_ranges(2, &ranges[1..]);
        holders.bind(1, tcp("0.0.0.0:40001"), false); // it has it anyway
        let all = [
            ("10.0.0.2:80", Some(2)),
            ("10.0.0.3:80", Some(1)),
            ("[fd00::1]:80", None),
            ("[fd00::1]:81", Some(1)),
            ("10.0.0.3:81", None),
            ("10.0.0.3:40000", Some(1)),
            ("10.0.0.3:40015", Some(1)),
            ("10.0.0.3:40016", None),
            ("10.0.0.3:50000", Some(2)),
            ("10.0.0.3:9", None),
        ];
        for (address, expected) in all {
            assert_eq!(holders.find(&tcp(address)), expected, "{address}");
        }
        let rivals = |holders: &Holders, lease| -> Vec<_> {
            holders.rivals(lease, &tcp("10.0.0.9:80")).collect()
        };
        assert_eq!(
            (rivals(&holders, 1), rivals(&holders, 2)),
            (vec![2], vec![1])
        );
        holders.remove(2, &two, &ranges[1..]);
        assert_eq!(holders.find(&tcp("10.0.0.2:80")), Some(1));
        assert_eq!(holders.find(&tcp("10.0.0.2:50000")), None);
        holders.remove(1, &one, &ranges[..1]);
        assert!(holders.bindings.is_empty() && holders.ranges.is_empty());
    }
}
