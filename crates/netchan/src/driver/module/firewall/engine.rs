//! What happens to one packet at one point of the path: its flow, the rules, the translation. Runs under the firewall's lock.

use std::net::IpAddr;

use proto::{
    ip::keyed::Seed,
    time::Instant,
    wire::{ipv4::Protocol, tcp::Flags},
};

use super::{
    change::{Which, translate},
    rules::{CtState, Facts, Hook, Ruleset, Said, Target, number},
    seen::{self, End, Seen, Tuple},
    state::State,
    table::{Flow, Refused, Table},
    tcp::{Connection, Direction},
};
use crate::driver::module::{Draft, Point, Verdict, View};

/// Ports that are tried before a flow is refused for want of one.
const TRIES: u64 = 128;
/// What a translated source's port is where its own is taken: none that a server has by custom.
const PORTS: (u16, u16) = (1024, u16::MAX);

/// Rules and flows.
pub struct Engine {
    pub rules: Ruleset,
    pub table: Table,
    key: Seed,
    /// Flows that were refused since no port of theirs was free, or their link had no address.
    pub without_port: u64,
    /// Packets that belong to no flow, and begin none.
    pub invalid: u64,
}

/// The flow of a packet, as it was found where rules see it.
#[derive(Clone, Copy)]
struct Found {
    place: u32,
    way: Direction,
    /// What the packet makes of it; `None`: it does not belong to it, or is only about it.
    next: Option<(State, Connection)>,
}

/// What a packet is to the flows.
#[derive(Clone, Copy)]
struct Standing {
    state: CtState,
    found: Option<Found>,
    /// What it begins.
    new: Option<Flow>,
}

impl Engine {
    pub fn new(rules: Ruleset, flows: usize, each: usize, key: Seed) -> Self {
        Self {
            rules,
            table: Table::new(flows, each, key.derive(1)),
            key: key.derive(2),
            without_port: 0,
            invalid: 0,
        }
    }

    /// Holds a packet against rules and flows, and translates it.
    pub fn take(&mut self, point: Point, packet: &mut Draft<'_>, now: Instant) -> Verdict {
        self.table.expire(now);
        let Some(hook) = hook_of(point) else {
            return self.arrive(packet, now);
        };
        let seen = seen::read(&packet.view());
        let standing = self.standing(seen.as_ref(), now);
        let links = (packet.incoming(), packet.outgoing());
        let facts = facts(packet.view(), links, standing.state);
        match self.rules.judge(hook, false, &facts, now) {
            Said::Accept | Said::Source(_) | Said::Destination(_) => {}
            Said::Drop => return self.refuse(&standing, Verdict::Drop),
            Said::Reject(what) => return self.refuse(&standing, Verdict::Reject(what)),
        }
        match seen {
            Some(seen) => self.pass(hook, packet, &seen, standing, now),
            None => Verdict::Pass,
        }
    }

    /// The same for one that cannot be changed: nothing is translated.
    pub fn look(&mut self, point: Point, view: &View<'_>, now: Instant) -> Verdict {
        let Some(hook) = hook_of(point) else {
            return Verdict::Pass;
        };
        let seen = seen::read(view);
        let standing = self.standing(seen.as_ref(), now);
        let facts = facts(*view, (None, None), standing.state);
        match self.rules.judge(hook, false, &facts, now) {
            Said::Accept | Said::Source(_) | Said::Destination(_) => {}
            Said::Drop => return self.refuse(&standing, Verdict::Drop),
            Said::Reject(what) => return self.refuse(&standing, Verdict::Reject(what)),
        }
        match self.track(&standing, view.len(), now) {
            Ok(_) => Verdict::Pass,
            Err(_) => Verdict::Drop,
        }
    }

    /// A packet that came by a link: where it is for, by its flow, or by the rules for new ones.
    fn arrive(&mut self, packet: &mut Draft<'_>, now: Instant) -> Verdict {
        let Some(seen) = seen::read(&packet.view()) else {
            return Verdict::Pass;
        };
        let mut found = self.table.find_arriving(&seen.tuple);
        if let Some((place, way)) = found
            && self.is_over(place, way, &seen, now)
        {
            self.table.remove(place);
            found = None;
        }
        let change = match found {
            Some((place, way)) => self.table.flow(place).map(|flow| match way {
                Direction::Original => (flow.destination, flow.inside),
                Direction::Reply => (flow.outside, flow.source),
            }),
            None => match self.redirect(packet, &seen, now) {
                Ok(inside) => inside.map(|inside| (seen.tuple.destination, inside)),
                Err(_) => return Verdict::Drop,
            },
        };
        match change {
            Some((is, becomes)) if is != becomes => {
                drop_unless(translate(packet, &seen, Which::Destination, becomes))
            }
            _ => Verdict::Pass,
        }
    }

    /// Where the first packet of a flow goes instead; the flow is tracked from here on.
    fn redirect(
        &mut self,
        packet: &Draft<'_>,
        seen: &Seen,
        now: Instant,
    ) -> Result<Option<End>, Refused> {
        let begins = seen.quote.is_none()
            && seen.opens
            && seen.segment.is_none_or(|segment| {
                segment.flags.contains(Flags::SYN) && !segment.flags.contains(Flags::ACK)
            });
        if !begins || !self.rules.has_nat(Hook::Prerouting) {
            return Ok(None);
        }
        let facts = facts(packet.view(), (packet.incoming(), None), CtState::NEW);
        let said = self.rules.judge(Hook::Prerouting, true, &facts, now);
        let (Said::Destination(target), Some(mut flow)) = (said, begin(seen)) else {
            return Ok(None);
        };
        let ip = match target.ips {
            Some(ips) => self.one_of(ips, flow.source.ip),
            None => packet.address_in(flow.source.ip).ok_or(Refused::Full)?,
        };
        flow.inside = End {
            ip,
            port: match target.ports {
                Some((first, last)) => {
                    let spread = u64::from(last - first) + 1;
                    first + u16::try_from(self.number_of(flow.source) % spread).unwrap_or(0)
                }
                None => flow.destination.port,
            },
        };
        if flow.inside == flow.destination || ip.is_ipv4() != flow.source.ip.is_ipv4() {
            return Ok(None);
        }
        self.table.insert(flow, now)?;
        Ok(Some(flow.inside))
    }

    /// What a packet is to the flows, where rules see it.
    fn standing(&mut self, seen: Option<&Seen>, now: Instant) -> Standing {
        let none = Standing {
            state: CtState::INVALID,
            found: None,
            new: None,
        };
        let standing = seen.map_or(none, |seen| self.standing_of(seen, now, none));
        self.invalid += u64::from(standing.state == CtState::INVALID);
        standing
    }

    fn standing_of(&mut self, seen: &Seen, now: Instant, none: Standing) -> Standing {
        let mut found = self.table.find_inside(&seen.tuple);
        if let Some((place, way)) = found
            && self.is_over(place, way, seen, now)
        {
            self.table.remove(place);
            found = None;
        }
        let Some((place, way, flow)) =
            found.and_then(|(place, way)| Some((place, way, self.table.flow(place)?)))
        else {
            let new = begin(seen);
            let state = new.map_or(CtState::INVALID, |_| CtState::NEW);
            return Standing { state, new, ..none };
        };
        let standing = |state, next| Standing {
            state,
            found: Some(Found { place, way, next }),
            new: None,
        };
        if seen.quote.is_some() {
            return standing(CtState::RELATED, None);
        }
        let next = match &seen.segment {
            Some(segment) => {
                let mut connection = flow.connection;
                let next = connection.next(flow.state, way, segment);
                next.map(|state| (state, connection))
            }
            None => Some((answered(flow, way), flow.connection)),
        };
        let is_new = way == Direction::Original
            && matches!(flow.state, State::SynSent | State::PickedUp | State::Asked);
        match next {
            None => standing(CtState::INVALID, None),
            Some(next) if is_new => standing(CtState::NEW, Some(next)),
            Some(next) => standing(CtState::ESTABLISHED, Some(next)),
        }
    }

    /// Whether a flow's time is over; or the packet begins another in the place of a connection that has ended.
    fn is_over(&self, place: u32, way: Direction, seen: &Seen, now: Instant) -> bool {
        let Some(flow) = self.table.flow(place) else {
            return true;
        };
        let begins = seen.segment.is_some_and(|segment| {
            segment.flags.contains(Flags::SYN) && !segment.flags.contains(Flags::ACK)
        });
        let has_ended = matches!(flow.state, State::Closed | State::TimeWait);
        flow.due <= now || begins && has_ended && way == Direction::Original
    }

    /// A packet that the rules refuse: a flow that would have begun with it has not.
    fn refuse(&mut self, standing: &Standing, verdict: Verdict) -> Verdict {
        if let Some(Found { place, .. }) = standing.found
            && self
                .table
                .flow(place)
                .is_some_and(|flow| !flow.is_confirmed)
        {
            self.table.remove(place);
        }
        verdict
    }

    /// A packet that the rules accept: it is tracked, and its source translated.
    fn pass(
        &mut self,
        hook: Hook,
        packet: &mut Draft<'_>,
        seen: &Seen,
        standing: Standing,
        now: Instant,
    ) -> Verdict {
        // What goes to this host itself keeps its source.
        let leaves = match hook {
            Hook::Forward => true,
            Hook::Output => packet.outgoing() != Some("lo"),
            _ => false,
        };
        let mut standing = standing;
        if leaves && self.masquerade(packet, &mut standing, now).is_err() {
            self.without_port += 1;
            return self.refuse(&standing, Verdict::Drop);
        }
        let len = packet.view().len();
        let Ok(place) = self.track(&standing, len, now) else {
            return Verdict::Drop;
        };
        let way = standing
            .found
            .map_or(Direction::Original, |found| found.way);
        let Some(flow) = place
            .and_then(|place| self.table.flow(place))
            .filter(|_| leaves)
        else {
            return Verdict::Pass;
        };
        let (is, becomes) = match way {
            Direction::Original => (flow.source, flow.outside),
            Direction::Reply => (flow.inside, flow.destination),
        };
        if is == becomes {
            return Verdict::Pass;
        }
        drop_unless(translate(packet, seen, Which::Source, becomes))
    }

    /// Enters a packet into its flow, or a new one: the flow's place.
    fn track(
        &mut self,
        standing: &Standing,
        len: usize,
        now: Instant,
    ) -> Result<Option<u32>, Refused> {
        let (place, way, next) = match (standing.found, standing.new) {
            (Some(Found { place, way, next }), _) => (place, way, next),
            (None, Some(flow)) => {
                let place = self.table.insert(flow, now)?;
                let next = Some((flow.state, flow.connection));
                (place, Direction::Original, next)
            }
            (None, None) => return Ok(None),
        };
        if let (Some((state, connection)), Some(flow)) = (next, self.table.flow_mut(place)) {
            flow.connection = connection;
            flow.is_confirmed = true;
            flow.packets[way as usize] += 1;
            flow.bytes[way as usize] += len as u64;
            self.table.touch(place, state, now);
        }
        Ok(Some(place))
    }

    /// Decides on the source of the first packet of a flow that leaves.
    fn masquerade(
        &mut self,
        packet: &Draft<'_>,
        standing: &mut Standing,
        now: Instant,
    ) -> Result<(), ()> {
        let known = standing
            .found
            .and_then(|found| Some((found, *self.table.flow(found.place)?)));
        let flow = match (&known, standing.new) {
            (Some((found, flow)), _) if !flow.is_confirmed && found.way == Direction::Original => {
                *flow
            }
            (None, Some(new)) => new,
            _ => return Ok(()),
        };
        let said = if self.rules.has_nat(Hook::Postrouting) {
            let facts = facts(packet.view(), (None, packet.outgoing()), CtState::NEW);
            self.rules.judge(Hook::Postrouting, true, &facts, now)
        } else {
            Said::Accept
        };
        let outside = match said {
            Said::Source(target) => self.outside(packet, &flow, target)?,
            // It would look like another flow that was translated: it gets another port.
            _ if known.is_none()
                && self.table.is_taken(&flow.answer())
                && !self.table.is_taken(&flow.middle()) =>
            {
                let own = (flow.source.ip, flow.source.ip);
                self.outside(
                    packet,
                    &flow,
                    Target {
                        ips: Some(own),
                        ports: None,
                    },
                )?
            }
            _ => return Ok(()),
        };
        match (known, &mut standing.new) {
            (Some((found, _)), _) => match self.table.set_outside(found.place, outside) {
                true => Ok(()),
                false => Err(()),
            },
            (None, Some(new)) => {
                new.outside = outside;
                Ok(())
            }
            (None, None) => Ok(()),
        }
    }

    /// The first free source that a target allows, by a bounded number of tries.
    fn outside(&self, packet: &Draft<'_>, flow: &Flow, target: Target) -> Result<End, ()> {
        let ip = match target.ips {
            Some(ips) => self.one_of(ips, flow.source.ip),
            None => packet.address_out(flow.inside.ip).ok_or(())?,
        };
        if ip.is_ipv4() != flow.source.ip.is_ipv4() {
            return Err(());
        }
        let answer = |port| Tuple {
            protocol: flow.protocol,
            source: flow.inside,
            destination: End { ip, port },
        };
        let is_free = |port: u16| !self.table.is_taken(&answer(port));
        let (first, last) = target.ports.unwrap_or(PORTS);
        let own = flow.source.port;
        let may_keep = target.ports.is_none() || (first..=last).contains(&own);
        if may_keep && is_free(own) {
            return Ok(End { ip, port: own });
        }
        let has_ports = matches!(
            flow.protocol,
            Protocol::TCP | Protocol::UDP | Protocol::ICMP | Protocol::ICMPV6
        );
        if !has_ports {
            return Err(());
        }
        let span = u64::from(last - first) + 1;
        let begin = self.number_of(flow.source) % span;
        let ports = (0..span.min(TRIES)).map(|n| (begin + n) % span);
        let mut ports = ports.filter_map(|n| first.checked_add(u16::try_from(n).ok()?));
        let port = ports.find(|&port| is_free(port)).ok_or(())?;
        Ok(End { ip, port })
    }

    /// The address of a range that an inside address always gets.
    fn one_of(&self, (first, last): (IpAddr, IpAddr), inside: IpAddr) -> IpAddr {
        let span = (number(last) - number(first)).saturating_add(1);
        let offset = u128::from(self.key.hash_ip(inside)) % span;
        match first {
            IpAddr::V4(first) => {
                let offset = u32::try_from(offset).unwrap_or(0);
                std::net::Ipv4Addr::from_bits(first.to_bits().saturating_add(offset)).into()
            }
            IpAddr::V6(first) => {
                std::net::Ipv6Addr::from_bits(first.to_bits().saturating_add(offset)).into()
            }
        }
    }

    /// A number that an inside end always has, and that no peer knows.
    fn number_of(&self, end: End) -> u64 {
        let mut bytes = [0; 18];
        match end.ip {
            IpAddr::V4(ip) => bytes[..4].copy_from_slice(&ip.octets()),
            IpAddr::V6(ip) => bytes[..16].copy_from_slice(&ip.octets()),
        }
        bytes[16..].copy_from_slice(&end.port.to_be_bytes());
        self.key.hash(&bytes)
    }
}

const fn hook_of(point: Point) -> Option<Hook> {
    match point {
        Point::Arrival => None,
        Point::In => Some(Hook::Input),
        Point::Out => Some(Hook::Output),
        Point::Forward => Some(Hook::Forward),
    }
}

fn facts<'a>(
    view: View<'a>,
    (incoming, outgoing): (Option<&'a str>, Option<&'a str>),
    state: CtState,
) -> Facts<'a> {
    const FLAGS: usize = 13;
    let is_tcp = view.protocol() == Protocol::TCP;
    Facts {
        view,
        incoming,
        outgoing,
        state,
        flags: view.upper().get(FLAGS).copied().filter(|_| is_tcp),
        icmp_type: seen::icmp_type(&view),
    }
}

/// The flow that begins with a packet.
fn begin(seen: &Seen) -> Option<Flow> {
    if !seen.opens {
        return None;
    }
    let (state, connection) = match &seen.segment {
        Some(segment) => Connection::open(segment)?,
        None => (State::Asked, Connection::default()),
    };
    Some(Flow::new(seen.tuple, state, connection))
}

/// The state of a flow without connections after a packet.
fn answered(flow: &Flow, way: Direction) -> State {
    match (way, flow.state) {
        (Direction::Reply, State::Asked) => match flow.protocol {
            Protocol::ICMP | Protocol::ICMPV6 => State::Echoed,
            _ => State::Stream,
        },
        (_, same) => same,
    }
}

const fn drop_unless(translated: bool) -> Verdict {
    if translated {
        Verdict::Pass
    } else {
        Verdict::Drop
    }
}
