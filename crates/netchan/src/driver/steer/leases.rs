//! Which ports of a link are leased, and to which applications (C4).

use std::net::{IpAddr, Ipv6Addr};

use proto::wire::ipv4::Protocol;

use crate::{
    channel::LeaseEnd,
    counters::Counter,
    link::lease::{Binding, PortRange, Transport, covers},
    packet::Packet,
};

const PORTS: usize = 1 << 16;

/// The leases of a link, and their ends.
#[derive(Debug)]
pub struct LeaseTable {
    ends: Vec<Option<LeaseEnd>>,
    /// For each port of TCP, of UDP and each identifier of echo: 0, or one more than the place of its holders.
    tcp: Box<[u32]>,
    udp: Box<[u32]>,
    ping: Box<[u32]>,
    /// Those of one port.
    holders: Vec<Vec<Holder>>,
    /// IP protocol numbers without ports, and the ends of those that have them.
    protocols: Vec<(Protocol, usize)>,
    /// Ends to which something was given.
    staged: Vec<usize>,
}

#[derive(Clone, Copy, Debug)]
struct Holder {
    /// Unspecified: at all addresses of IPv4, or at all of both.
    address: IpAddr,
    end: usize,
}

impl Default for LeaseTable {
    fn default() -> Self {
        Self {
            ends: Vec::new(),
            tcp: vec![0; PORTS].into(),
            udp: vec![0; PORTS].into(),
            ping: vec![0; PORTS].into(),
            holders: Vec::new(),
            protocols: Vec::new(),
            staged: Vec::new(),
        }
    }
}

impl LeaseTable {
    /// The end of the lease that has this port, or identifier of echo, at this address.
    #[inline]
    pub fn find(&self, protocol: Protocol, address: IpAddr, port: u16) -> Option<usize> {
        let places = match protocol {
            Protocol::TCP => &self.tcp,
            Protocol::UDP => &self.udp,
            Protocol::ICMP | Protocol::ICMPV6 => &self.ping,
            _ => return None,
        };
        let place = places.get(usize::from(port))?.checked_sub(1)?;
        let all = self.holders.get(place as usize)?; // widening: u32 to usize
        if address.is_loopback() {
            return self.find_sharing(all, address);
        }
        let exact = all.iter().find(|holder| holder.address == address);
        let holder = exact.or_else(|| all.iter().find(|holder| covers(holder.address, address)))?;
        Some(holder.end)
    }

    /// The same at a loopback address, which those have that share them.
    fn find_sharing(&self, all: &[Holder], address: IpAddr) -> Option<usize> {
        let shares = |holder: &&Holder| {
            let end = self.ends.get(holder.end).and_then(Option::as_ref);
            end.is_some_and(|end| end.core().has_loopback())
        };
        let mut sharing = all.iter().filter(shares);
        let exact = sharing.clone().find(|holder| holder.address == address);
        let holder = exact.or_else(|| sharing.find(|holder| covers(holder.address, address)))?;
        Some(holder.end)
    }

    /// The end of the lease that has the packets of a protocol without ports.
    pub fn find_protocol(&self, protocol: Protocol) -> Option<usize> {
        let mut all = self.protocols.iter();
        all.find(|(of, _)| *of == protocol).map(|&(_, end)| end)
    }

    /// A lease has the packets of a protocol from now on. False: another one has them.
    pub fn add_protocol(&mut self, lease: u64, protocol: Protocol) -> bool {
        let Some(end) = self.end_of(lease) else {
            return false;
        };
        match self.find_protocol(protocol) {
            Some(holder) => holder == end,
            None => {
                self.protocols.push((protocol, end));
                true
            }
        }
    }

    /// Gives a lease's application a copy of a packet.
    ///
    /// # Errors
    /// Why it is dropped.
    pub fn put(&mut self, end: usize, packet: &Packet) -> Result<(), Counter> {
        let to = self.ends.get_mut(end).and_then(Option::as_mut);
        to.ok_or(Counter::DropLeaseFull)?.put(packet)?;
        if self.staged.last() != Some(&end) {
            self.staged.push(end);
        }
        Ok(())
    }

    /// Shows applications what they were given since the last time.
    #[inline]
    pub fn flush(&mut self) {
        while let Some(number) = self.staged.pop() {
            if let Some(Some(end)) = self.ends.get_mut(number) {
                end.flush();
            }
        }
    }

    /// One more lease.
    pub fn add(&mut self, end: LeaseEnd) {
        match self.ends.iter_mut().find(|place| place.is_none()) {
            Some(place) => *place = Some(end),
            None => self.ends.push(Some(end)),
        }
    }

    /// A lease has ended.
    pub fn remove(&mut self, lease: u64) {
        let Some(end) = self.end_of(lease) else {
            return;
        };
        self.ends[end] = None;
        self.protocols.retain(|(_, holder)| *holder != end);
        for holders in &mut self.holders {
            holders.retain(|holder| holder.end != end);
        }
        // A place without holders is as good as none, and is taken again by the port that has it.
    }

    fn end_of(&self, lease: u64) -> Option<usize> {
        let is = |end: &Option<LeaseEnd>| end.as_ref().is_some_and(|e| e.core().number == lease);
        self.ends.iter().position(is)
    }

    /// A lease has a port from now on.
    pub fn bind(&mut self, lease: u64, binding: &Binding) {
        let address = binding.address;
        self.give(lease, binding.transport, address.port(), address.ip());
    }

    /// A lease has these ports of all protocols, at all addresses.
    pub fn add_ports(&mut self, lease: u64, ports: PortRange) {
        for port in ports.0..=ports.1 {
            for transport in [Transport::Tcp, Transport::Udp, Transport::Ping] {
                self.give(lease, transport, port, Ipv6Addr::UNSPECIFIED.into());
            }
        }
    }

    fn give(&mut self, lease: u64, transport: Transport, port: u16, address: IpAddr) {
        let Some(end) = self.end_of(lease) else {
            return;
        };
        let places = match transport {
            Transport::Tcp => &mut self.tcp,
            Transport::Udp => &mut self.udp,
            Transport::Ping => &mut self.ping,
        };
        let place = &mut places[usize::from(port)];
        if *place == 0 {
            self.holders.push(Vec::new());
            *place = u32::try_from(self.holders.len()).unwrap_or(0); // at most one for each port of three protocols
        }
        if let Some(holders) = self.holders.get_mut((*place as usize).wrapping_sub(1)) {
            holders.push(Holder { address, end });
        }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.ends.iter().all(Option::is_none)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channel::lease;

    fn binding(transport: Transport, address: &str) -> Binding {
        Binding {
            transport,
            address: address.parse().unwrap(),
        }
    }

    #[test]
    fn a_port_is_of_the_lease_that_has_it() {
        let mut table = LeaseTable::default();
        for number in [5, 6, 7] {
            let (end, _source, _files) = lease((number, 0), "test".into()).unwrap();
            table.add(end);
        }
        table.bind(5, &binding(Transport::Tcp, "10.0.0.2:80"));
        table.bind(6, &binding(Transport::Tcp, "0.0.0.0:80"));
        table.bind(7, &binding(Transport::Udp, "[::]:80"));
        table.add_ports(7, PortRange(65_534, 65_535));
        table.bind(9, &binding(Transport::Tcp, "0.0.0.0:81")); // there is none
        let find = |table: &LeaseTable, protocol, ip: &str, port| {
            let end = table.find(protocol, ip.parse().unwrap(), port)?;
            Some(table.ends[end].as_ref().unwrap().core().number)
        };
        let (tcp, udp) = (Protocol::TCP, Protocol::UDP);
        for (protocol, ip, port, expected) in [
            (tcp, "10.0.0.2", 80, Some(5)),
            (tcp, "10.0.0.3", 80, Some(6)),
            (tcp, "fd00::2", 80, None),
            (udp, "10.0.0.2", 80, Some(7)),
            (udp, "fd00::2", 80, Some(7)),
            (tcp, "10.0.0.2", 81, None),
            (tcp, "fd00::2", 65_535, Some(7)),
            (udp, "10.0.0.2", 65_534, Some(7)),
            (tcp, "10.0.0.2", 65_533, None),
            (Protocol::ICMP, "10.0.0.2", 80, None),
        ] {
            assert_eq!(
                find(&table, protocol, ip, port),
                expected,
                "{protocol:?} {ip} {port}"
            );
        }
        // At a loopback address only one that shares these.
        table.bind(5, &binding(Transport::Tcp, "127.0.0.1:82"));
        for (number, shared) in [(6, None), (7, Some(7))] {
            table.ends[number - 5]
                .as_ref()
                .unwrap()
                .core()
                .share_loopback();
            assert_eq!(find(&table, tcp, "127.0.0.1", 65_535), shared);
            assert_eq!(find(&table, tcp, "127.0.0.1", 80), Some(6));
            assert_eq!(find(&table, tcp, "::1", 80), None);
            assert_eq!(find(&table, tcp, "127.0.0.1", 82), None);
        }
        table.remove(5);
        assert_eq!(find(&table, tcp, "10.0.0.2", 80), Some(6));
        // Its place is another's now, which has none of its ports.
        let (end, _source, _files) = lease((8, 0), "test".into()).unwrap();
        table.add(end);
        table.remove(6);
        assert_eq!(find(&table, tcp, "10.0.0.2", 80), None);
        table.remove(7);
        table.remove(8);
        assert!(table.is_empty());
    }
}
