//! Sockets by the address and port that they are bound to: found by a packet's destination without a look at any other socket.
//!
//! Of several that share one address (SO_REUSEPORT), the flow's hash names one: evenly, and always the same. Where they share it by
//! SO_REUSEADDR alone, the last one bound has it, as on Linux. One that names the processor which takes the packet in (SO_INCOMING_CPU) goes
//! before the others; only where one names any is it looked at. Else, of listeners that share one, those whose home is this shard go first.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use hashbrown::HashTable;
use proto::wire::ipv4::Protocol;

/// What a socket is bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    ip: IpAddr,
    port: u16,
    /// IPv6's wildcard that takes IPv4, too.
    dual: bool,
    /// SO_BINDTODEVICE: only what comes in there.
    device: Option<u8>,
}

impl Place {
    /// Of a socket at `address`.
    pub fn new(address: SocketAddr, v6_only: bool) -> Self {
        let ip = address.ip();
        Self {
            ip,
            port: address.port(),
            dual: ip.is_ipv6() && ip.is_unspecified() && !v6_only,
            device: None,
        }
    }

    /// The same, of what comes in by one interface.
    pub const fn on(self, device: Option<u8>) -> Self {
        Self { device, ..self }
    }

    /// Those that a packet to `ip` and `port` may be for, the best first: the address itself, the wildcard of its family, the one of both.
    fn of_destination(ip: IpAddr, port: u16) -> [Self; 3] {
        let at = |ip, dual| Self {
            ip,
            port,
            dual,
            device: None,
        };
        let own = match ip {
            IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        };
        let both = IpAddr::V6(Ipv6Addr::UNSPECIFIED);
        [at(ip, false), at(own, false), at(both, true)]
    }

    /// The same where sockets are bound to interfaces, too: as in Linux such a one goes before others at its address, and before any wildcard.
    fn of_interface(ip: IpAddr, port: u16, interface: u8) -> [Self; 6] {
        let [address, own, both] = Self::of_destination(ip, port);
        let here = |place: Self| place.on(Some(interface));
        [here(address), address, here(own), here(both), own, both]
    }

    /// Programs choose what they bind to, not peers: no key.
    #[inline]
    fn hash(&self) -> u64 {
        let ip = match self.ip {
            IpAddr::V4(ip) => u64::from(ip.to_bits()),
            IpAddr::V6(ip) => {
                let (high, low) = (ip.to_bits() >> 64, ip.to_bits() & u128::from(u64::MAX));
                #[allow(clippy::cast_possible_truncation)] // both are halves
                let (high, low) = (high as u64, low as u64);
                high.rotate_left(17) ^ low ^ 1 << 40
            }
        };
        let device = self.device.map_or(0, |number| u64::from(number) + 1);
        let word = ip ^ u64::from(self.port) << 44 ^ u64::from(self.dual) << 43 ^ device << 32;
        let mixed = word.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed ^ mixed >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
}

/// How a socket is bound.
#[derive(Clone, Copy, Debug)]
pub struct Binding {
    /// Unspecified: every address of the family (of both, if IPv6 and not `v6_only`).
    pub address: SocketAddr,
    /// IPV6_V6ONLY.
    pub v6_only: bool,
    /// Grows with each bind: the same order in every shard.
    pub order: u64,
    /// SO_REUSEPORT.
    pub shares: bool,
    /// As [`Member`] has it.
    pub at_home: bool,
    /// Of the socket.
    pub protocol: Protocol,
}

/// A socket among those of one place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its number in the shard.
    pub number: u32,
    /// As [`Binding`] has it.
    pub order: u64,
    /// As [`Binding`] has it.
    pub shares: bool,
    /// Connected: found by its flow, not by its address.
    pub connected: bool,
    /// Of listeners that share a port, this one goes first in this shard.
    pub at_home: bool,
    /// SO_INCOMING_CPU.
    pub cpu: Option<u16>,
}

/// The sockets of one place.
#[derive(Debug)]
struct Group {
    place: Place,
    /// In the order in which they were bound.
    members: Vec<Member>,
    /// Which of them take what is for the address: all that share the port (where some are at home here, these), or the last one bound.
    takers: Vec<u32>,
    /// The processors that these name, if one of them names any.
    cpus: Vec<Option<u16>>,
}

impl Group {
    fn choose_takers(&mut self) {
        self.takers.clear();
        self.cpus.clear();
        let open = || self.members.iter().filter(|m| !m.connected);
        match open().next_back() {
            Some(last) if last.shares => {
                let all = || open().filter(|m| m.shares);
                let names_cpus = all().any(|m| m.cpu.is_some());
                let has_home = !names_cpus && all().any(|m| m.at_home);
                let takers = all().filter(|m| m.at_home || !has_home);
                self.takers.extend(takers.map(|m| m.number));
                if names_cpus && self.takers.len() > 1 {
                    self.cpus.extend(all().map(|m| m.cpu));
                }
            }
            last => self.takers.extend(last.map(|m| m.number)),
        }
    }

    /// As Linux: of those that name this processor the first from the one on that the flow falls to, else that one.
    #[cold]
    #[inline(never)]
    fn taker_on(&self, cpu: Option<u16>, flow: u32) -> Option<u32> {
        let first = among(flow, self.takers.len());
        let all = self.takers.iter().zip(&self.cpus).cycle().skip(first);
        let named = |(_, named): &(&u32, &Option<u16>)| cpu.is_some() && **named == cpu;
        let mut round = all.take(self.takers.len());
        let taker = round.find(named).map(|(number, _)| *number);
        taker.or_else(|| self.takers.get(first).copied())
    }
}

/// The bound sockets of a shard.
#[derive(Debug, Default)]
pub struct Lookup {
    /// Listeners.
    pub listeners: Bound,
    /// UDP sockets.
    pub datagrams: Bound,
    /// Ping sockets.
    pub pings: Bound,
    /// From a flow's (short) hash to the UDP socket that is connected so.
    pub connected: HashTable<u32>,
    /// How many UDP sockets are connected to all ports of a host: to port 0.
    pub of_hosts: usize,
}

impl Lookup {
    /// UDP sockets, or ping sockets.
    pub const fn of_datagrams(&mut self, are_pings: bool) -> &mut Bound {
        if are_pings {
            &mut self.pings
        } else {
            &mut self.datagrams
        }
    }
}

/// The bound sockets of one kind in a shard.
#[derive(Debug, Default)]
pub struct Bound {
    groups: HashTable<Group>,
    /// How many of them have an interface.
    on_devices: usize,
}

impl Bound {
    /// A socket is bound, or connected, or no longer connected.
    pub fn set(&mut self, place: Place, member: Member) {
        let same = |group: &Group| group.place == place;
        let is_new = self.groups.find(place.hash(), same).is_none();
        self.on_devices += usize::from(is_new && place.device.is_some());
        let new = || Group {
            place,
            members: Vec::new(),
            takers: Vec::new(),
            cpus: Vec::new(),
        };
        let hash = |group: &Group| group.place.hash();
        let entry = self.groups.entry(place.hash(), same, hash);
        let mut entry = entry.or_insert_with(new);
        let group = entry.get_mut();
        group.members.retain(|m| m.number != member.number);
        let at = group.members.partition_point(|m| m.order < member.order);
        group.members.insert(at, member);
        group.choose_takers();
    }

    /// A socket is gone from there: what it was.
    pub fn remove(&mut self, place: Place, number: u32) -> Option<Member> {
        let same = |group: &Group| group.place == place;
        let mut entry = self.groups.find_entry(place.hash(), same).ok()?;
        let group = entry.get_mut();
        let was = group.members.iter().find(|m| m.number == number).copied();
        group.members.retain(|m| m.number != number);
        group.choose_takers();
        if group.members.is_empty() {
            entry.remove();
            self.on_devices -= usize::from(place.device.is_some());
        }
        was
    }

    /// How many of a place go first here.
    pub fn at_home(&self, place: Place) -> usize {
        let members = self.at(place).map_or(&[][..], |group| &group.members);
        members.iter().filter(|member| member.at_home).count()
    }

    fn at(&self, place: Place) -> Option<&Group> {
        self.groups.find(place.hash(), |g| g.place == place)
    }

    /// The socket that takes what comes in by an interface for this address and port, and belongs to the flow of this (short) hash.
    pub fn find(&self, ip: IpAddr, port: u16, flow: u32, interface: u8) -> Option<u32> {
        if self.on_devices > 0 {
            let places = Place::of_interface(ip, port, interface);
            return places.iter().find_map(|place| self.taker(place, flow));
        }
        // Nearly always the address itself, or the wildcard of its family.
        let exact = Place {
            ip,
            port,
            dual: false,
            device: None,
        };
        self.taker(&exact, flow).or_else(|| {
            let [_, own, both] = Place::of_destination(ip, port);
            let own = self.taker(&own, flow);
            own.or_else(|| self.taker(&both, flow))
        })
    }

    /// The socket of one place that takes what belongs to a flow.
    #[inline(always)]
    fn taker(&self, place: &Place, flow: u32) -> Option<u32> {
        let group = self.at(*place)?;
        match group.takers.as_slice() {
            [] => None,
            &[only] => Some(only),
            _ if !group.cpus.is_empty() => group.taker_on(crate::sys::processor(), flow),
            takers => takers.get(among(flow, takers.len())).copied(),
        }
    }

    /// All sockets that hear what comes in by an interface for this address and port, connected or not.
    pub fn hearers(&self, ip: IpAddr, port: u16, interface: u8) -> impl Iterator<Item = u32> {
        let places = Place::of_interface(ip, port, interface).into_iter();
        let may_be = |place: &Place| place.device.is_none() || self.on_devices > 0;
        let groups = places.filter(may_be).filter_map(|place| self.at(place));
        groups.flat_map(|group| group.members.iter().map(|m| m.number))
    }
}

/// Maps a short hash evenly to `0..n`: by its upper bits, since the lowest one is always set (`FlowHash`), and those of the long hash
/// that choose the shard are not among them.
const fn among(flow: u32, n: usize) -> usize {
    crate::driver::steer::spread((flow as u64) << 32, n)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        driver::steer::{short, spread},
        flow::{FlowHash, FlowKey},
    };

    const PORT: u16 = 53;

    fn place(ip: &str, v6_only: bool) -> Place {
        Place::new(SocketAddr::new(ip.parse().unwrap(), PORT), v6_only)
    }

    fn member(number: u32, shares: bool) -> Member {
        Member {
            number,
            order: u64::from(number),
            shares,
            connected: false,
            at_home: false,
            cpu: None,
        }
    }

    fn find(bound: &Bound, ip: &str) -> Option<u32> {
        bound.find(ip.parse().unwrap(), PORT, 1, 0)
    }

    #[test]
    fn the_nearest_address_goes_first() {
        let mut bound = Bound::default();
        let there = [
            ("::", false),
            ("::", true),
            ("0.0.0.0", false),
            ("10.0.0.1", false),
        ];
        for (number, (ip, v6_only)) in (0..).zip(there) {
            bound.set(place(ip, v6_only), member(number, false));
        }
        assert_eq!(find(&bound, "10.0.0.1"), Some(3));
        assert_eq!(find(&bound, "10.0.0.2"), Some(2));
        assert_eq!(find(&bound, "fd00::1"), Some(1));
        bound.remove(place("0.0.0.0", false), 2);
        assert_eq!(find(&bound, "10.0.0.2"), Some(0), "both families'");
        bound.remove(place("::", true), 1);
        assert_eq!(find(&bound, "fd00::1"), Some(0));
        assert_eq!(bound.find([10, 0, 0, 1].into(), PORT + 1, 1, 0), None);
        bound.remove(place("::", false), 0);
        bound.remove(place("10.0.0.1", false), 3);
        assert!(bound.groups.is_empty());
    }

    #[test]
    fn of_those_that_share_one_at_home_goes_first() {
        let mut bound = Bound::default();
        let here = place("10.0.0.1", false);
        let taken = |bound: &Bound| {
            let flows = (0..64_u32).map(|n| n << 26 | 1);
            let numbers = flows.map(|flow| bound.find("10.0.0.1".parse().unwrap(), PORT, flow, 0));
            numbers.flatten().collect::<std::collections::BTreeSet<_>>()
        };
        (0..3).for_each(|number| bound.set(here, member(number, true)));
        assert_eq!(taken(&bound), [0, 1, 2].into());
        let at_home = |number| Member {
            at_home: true,
            ..member(number, true)
        };
        bound.set(here, at_home(1));
        assert_eq!(taken(&bound), [1].into());
        bound.set(here, at_home(2));
        assert_eq!(taken(&bound), [1, 2].into());
        // A processor that is named by one of them goes before that.
        let named = Member {
            cpu: Some(u16::MAX),
            ..member(0, true)
        };
        bound.set(here, named);
        assert_eq!(
            taken(&bound),
            [0, 1, 2].into(),
            "no packet comes on that one"
        );
        bound.remove(here, 0);
        bound.remove(here, 1);
        bound.remove(here, 2);
        bound.set(here, member(3, true));
        assert_eq!(taken(&bound), [3].into());
    }

    #[test]
    fn the_last_one_bound_has_it_unless_it_shares() {
        let (mut bound, here) = (Bound::default(), place("0.0.0.0", false));
        // In another order than they were bound in, as two shards may hear of it.
        [2, 0, 1]
            .into_iter()
            .for_each(|n| bound.set(here, member(n, false)));
        assert_eq!(find(&bound, "10.0.0.1"), Some(2));
        bound.remove(here, 2);
        assert_eq!(find(&bound, "10.0.0.1"), Some(1));
        bound.set(here, member(5, true));
        bound.set(here, member(6, true));
        let found = [1, u32::MAX].map(|flow| bound.find([10, 0, 0, 1].into(), PORT, flow, 0));
        assert_eq!(
            found,
            [Some(5), Some(6)],
            "those that share, among themselves"
        );
        let connected = Member {
            connected: true,
            ..member(6, true)
        };
        bound.set(here, connected);
        let found = [1, u32::MAX].map(|flow| bound.find([10, 0, 0, 1].into(), PORT, flow, 0));
        assert_eq!(found, [Some(5); 2]);
        let hearers: Vec<_> = bound.hearers([10, 0, 0, 1].into(), PORT, 0).collect();
        assert_eq!(hearers, [0, 1, 5, 6]);
    }

    #[test]
    fn a_socket_that_names_the_processor_goes_first() {
        let (mut bound, here) = (Bound::default(), place("0.0.0.0", false));
        let names = [Some(3), None, Some(3), Some(4)];
        for (number, cpu) in (0..).zip(names) {
            bound.set(
                here,
                Member {
                    cpu,
                    ..member(number, true)
                },
            );
        }
        // Flows that fall to each of the four.
        let flows = [1, 1 << 30 | 1, 1 << 31 | 1, u32::MAX];
        let on = |bound: &Bound, cpu| flows.map(|flow| bound.at(here).unwrap().taker_on(cpu, flow));
        assert_eq!(on(&bound, None), [0, 1, 2, 3].map(Some));
        assert_eq!(on(&bound, Some(9)), [0, 1, 2, 3].map(Some), "named by none");
        assert_eq!(on(&bound, Some(3)), [0, 2, 2, 0].map(Some));
        assert_eq!(on(&bound, Some(4)), [3; 4].map(Some));
        for (number, _) in (0..).zip(names) {
            bound.set(here, member(number, true));
        }
        assert!(
            bound.at(here).unwrap().cpus.is_empty(),
            "no socket names one"
        );
    }

    /// SO_INCOMING_CPU at the lookup itself: the socket that names the processor that looks, whatever flow it is.
    #[test]
    fn the_processor_that_looks_is_the_one_that_is_named() {
        let (mut bound, here) = (Bound::default(), place("0.0.0.0", false));
        for number in 0..512 {
            let named = Member {
                cpu: Some(u16::try_from(number).unwrap()),
                ..member(number, true)
            };
            bound.set(here, named);
        }
        let find = |flow| bound.find([10, 0, 0, 1].into(), PORT, flow, 0);
        // The thread may be moved in between.
        let stayed = (0..1000).any(|_| {
            let before = crate::sys::processor();
            let found = [1, 1 << 30 | 1, u32::MAX].map(find);
            let stays = before == crate::sys::processor();
            assert!(!stays || found == [before.map(u32::from); 3], "{found:?}");
            stays
        });
        assert!(stayed);
    }

    /// As Linux scores them.
    #[test]
    fn of_an_interface_goes_before_the_others_at_its_address() {
        let (mut bound, ip) = (Bound::default(), [10, 0, 0, 1].into());
        let there = [
            (place("10.0.0.1", false), None),
            (place("0.0.0.0", false), Some(1)),
            (place("::", false), Some(1)),
            (place("0.0.0.0", false), None),
            (place("10.0.0.1", false), Some(1)),
        ];
        for (number, (place, device)) in (0..).zip(there) {
            bound.set(place.on(device), member(number, false));
        }
        let hears = |bound: &Bound, interface| -> Vec<u32> {
            let mut all: Vec<_> = bound.hearers(ip, PORT, interface).collect();
            all.sort_unstable();
            all
        };
        assert_eq!(hears(&bound, 1), [0, 1, 2, 3, 4]);
        assert_eq!(hears(&bound, 0), [0, 3]);
        for (first, here, elsewhere) in [(4, 4, 0), (0, 0, 0), (1, 1, 3), (2, 2, 3), (3, 3, 3)] {
            assert_eq!(bound.find(ip, PORT, 1, 1), Some(here));
            assert_eq!(bound.find(ip, PORT, 1, 2), Some(elsewhere));
            let (place, device) = there[first];
            let was = bound.remove(place.on(device), here);
            assert_eq!(was, Some(member(here, false)));
        }
        assert_eq!((bound.find(ip, PORT, 1, 1), bound.on_devices), (None, 0));
    }

    /// However many share a port in however many shards: each gets its part, within four standard deviations, in each shard.
    #[test]
    fn flows_are_spread_evenly() {
        const FLOWS: u16 = 20_000;
        let hash = FlowHash::new(&[7; 16]);
        for protocol in [Protocol::TCP, Protocol::UDP] {
            for shards in [1, 2, 3, 8, 64] {
                for sockets in [2, 3, 4, 5, 8, 16] {
                    let mut bound = Bound::default();
                    (0..sockets).for_each(|n| bound.set(place("::", false), member(n, true)));
                    let mut got = vec![vec![0; sockets as usize]; shards];
                    for remote_port in 0..FLOWS {
                        let key = FlowKey {
                            local: [10, 0, 0, 1].into(),
                            remote: [10, 0, 0, 2].into(),
                            local_port: PORT,
                            remote_port,
                            protocol,
                        };
                        let flow = hash.hash(&key);
                        let number = bound.find(key.local, PORT, short(flow), 0).unwrap();
                        got[spread(flow, shards)][number as usize] += 1;
                    }
                    let parts = f64::from(sockets) * shards as f64;
                    let mean = f64::from(FLOWS) / parts;
                    let most = 4.5 * (mean * (1.0 - 1.0 / parts)).sqrt();
                    let even = |&n: &i32| (f64::from(n) - mean).abs() <= most;
                    assert!(got.iter().flatten().all(even), "{mean} +- {most}: {got:?}");
                }
            }
        }
    }
}
