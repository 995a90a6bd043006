//! The tracked flows. A fixed number of places, made when the module is loaded; a keyed hash, so that no peer aims at a bucket; a list for each
//! state, in the order in which flows time out. Every call is a bounded number of steps.

use std::{iter::successors, net::IpAddr};

use proto::{ip::keyed::Seed, time::Instant, wire::ipv4::Protocol};

use super::{
    seen::{End, Tuple},
    state::{STATES, State},
    tcp::{Connection, Direction},
};

const NONE: u32 = u32::MAX;
/// Ways in which a flow is found: as it came, between the two translations, as it leaves.
const KEYS: usize = 3;
/// The nodes of each place.
const EACH: u32 = 3;
const _: () = assert!(EACH as usize == KEYS);
/// Flows that are taken out for being over, at each packet.
const EXPIRED_EACH: usize = 2;

/// A tracked flow.
#[derive(Clone, Copy, Debug)]
pub struct Flow {
    pub protocol: Protocol,
    /// Where its first packet came from.
    pub source: End,
    /// Where that was sent to.
    pub destination: End,
    /// Where it goes instead: `destination` unless that is translated.
    pub inside: End,
    /// Where it seems to come from there: `source` unless that is translated.
    pub outside: End,
    pub state: State,
    pub connection: Connection,
    /// Its first packet has passed all rules.
    pub is_confirmed: bool,
    /// Packets each way.
    pub packets: [u64; 2],
    /// Bytes each way.
    pub bytes: [u64; 2],
    /// When it is given up without a further packet.
    pub due: Instant,
}

impl Flow {
    /// One that is not translated.
    pub const fn new(tuple: Tuple, state: State, connection: Connection) -> Self {
        Self {
            protocol: tuple.protocol,
            source: tuple.source,
            destination: tuple.destination,
            inside: tuple.destination,
            outside: tuple.source,
            state,
            connection,
            is_confirmed: false,
            packets: [0; 2],
            bytes: [0; 2],
            due: Instant::ZERO,
        }
    }

    const fn between(&self, source: End, destination: End) -> Tuple {
        Tuple {
            protocol: self.protocol,
            source,
            destination,
        }
    }

    /// Its first packet as it came.
    pub const fn original(&self) -> Tuple {
        self.between(self.source, self.destination)
    }

    /// The same where rules see it, behind the first translation and ahead of the second.
    pub const fn middle(&self) -> Tuple {
        self.between(self.source, self.inside)
    }

    /// An answer as it comes.
    pub const fn answer(&self) -> Tuple {
        self.between(self.inside, self.outside)
    }

    fn key(&self, number: usize) -> Option<Tuple> {
        match number {
            0 => Some(self.middle()),
            1 => (self.inside != self.destination).then(|| self.original()),
            _ => (self.outside != self.source).then(|| self.answer()),
        }
    }
}

/// Why a flow is not tracked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// There is no room, and no flow that may go.
    Full,
    /// Its source has as many as it may have.
    Source,
    /// Another flow looks the same on one side.
    Taken,
}

/// What became of flows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub made: u64,
    pub expired: u64,
    /// Half-open, or over: they made room for new ones.
    pub evicted: u64,
    pub refused_full: u64,
    pub refused_source: u64,
    pub refused_taken: u64,
}

/// A place.
#[derive(Clone, Copy)]
struct Place {
    flow: Option<Flow>,
    /// The place behind it on its state's list, and before it; of a free one, the next free one.
    links: [u32; 2],
    /// The nodes behind each of its keys' in their buckets.
    chains: [u32; KEYS],
}

/// The flows.
pub struct Table {
    seed: Seed,
    places: Vec<Place>,
    /// The first node of each bucket: place times [`KEYS`] plus key.
    buckets: Vec<u32>,
    /// First and last of each state's list.
    lists: [[u32; 2]; STATES],
    lengths: [u32; STATES],
    free: u32,
    /// Flows of each source, by its keyed hash: two sources in one cell share its bound.
    sources: Vec<u32>,
    each_max: u32,
    counts: Counts,
}

impl Table {
    /// Room for so many flows, and for so many of each source.
    pub fn new(flows: usize, each: usize, seed: Seed) -> Self {
        let flows = flows.clamp(1, 1 << 24);
        let last = u32::try_from(flows).unwrap_or(1);
        let place = |next: u32| Place {
            flow: None,
            links: [if next < last { next } else { NONE }, NONE],
            chains: [NONE; KEYS],
        };
        Self {
            seed,
            places: (1..=last).map(place).collect(),
            buckets: vec![NONE; (flows * 2).next_power_of_two()],
            lists: [[NONE; 2]; STATES],
            lengths: [0; STATES],
            free: 0,
            sources: vec![0; flows.next_power_of_two().clamp(1024, 1 << 16)],
            each_max: u32::try_from(each).unwrap_or(u32::MAX),
            counts: Counts::default(),
        }
    }

    /// Places in all.
    pub const fn capacity(&self) -> usize {
        self.places.len()
    }

    /// Flows that there are.
    pub fn len(&self) -> usize {
        self.lengths.iter().map(|&n| n as usize).sum()
    }

    /// Flows in a state.
    pub const fn len_of(&self, state: State) -> u32 {
        self.lengths[state as usize]
    }

    /// What became of flows.
    pub const fn counts(&self) -> Counts {
        self.counts
    }

    /// The flow in a place.
    pub fn flow(&self, place: u32) -> Option<&Flow> {
        self.places.get(place as usize)?.flow.as_ref()
    }

    /// The same, to change what it is not found by.
    pub fn flow_mut(&mut self, place: u32) -> Option<&mut Flow> {
        self.places.get_mut(place as usize)?.flow.as_mut()
    }

    /// Flows, at most so many: state by state, those that time out first ahead. Places that have none cost nothing.
    pub fn flows(&self, most: usize) -> impl Iterator<Item = &Flow> {
        let place = |&place: &u32| self.places.get(place as usize);
        let of_state = move |state: State| {
            let first = self.lists[state as usize][0];
            let all = successors(Some(first), move |at| Some(place(at)?.links[0]));
            all.map_while(move |at| place(&at)?.flow.as_ref())
        };
        State::ALL.into_iter().flat_map(of_state).take(most)
    }

    /// The flow of a packet as it comes from a link.
    pub fn find_arriving(&self, tuple: &Tuple) -> Option<(u32, Direction)> {
        self.find(tuple, |flow| {
            if flow.original() == *tuple {
                Some(Direction::Original)
            } else {
                (flow.answer() == *tuple).then_some(Direction::Reply)
            }
        })
    }

    /// The flow of a packet where rules see it.
    pub fn find_inside(&self, tuple: &Tuple) -> Option<(u32, Direction)> {
        self.find(tuple, |flow| {
            let middle = flow.middle();
            if middle == *tuple {
                Some(Direction::Original)
            } else {
                (middle.reversed() == *tuple).then_some(Direction::Reply)
            }
        })
    }

    fn find(
        &self,
        tuple: &Tuple,
        is: impl Fn(&Flow) -> Option<Direction>,
    ) -> Option<(u32, Direction)> {
        let mut node = self.buckets[self.bucket(tuple)];
        while let Some((place, key)) = split(node) {
            let found = self.places.get(place as usize)?;
            if let Some(way) = found.flow.as_ref().and_then(&is) {
                return Some((place, way));
            }
            node = found.chains[key];
        }
        None
    }

    /// Whether packets with these ends would be taken for some flow's.
    pub fn is_taken(&self, tuple: &Tuple) -> bool {
        self.find_arriving(tuple).is_some() || self.find_inside(tuple).is_some()
    }

    /// The bucket of both directions.
    #[allow(clippy::cast_possible_truncation)] // the mask keeps fewer bits than a usize has
    fn bucket(&self, tuple: &Tuple) -> usize {
        let (a, b) = (tuple.source, tuple.destination);
        let ends = if a <= b { [a, b] } else { [b, a] };
        let mut bytes = [0; 37];
        bytes[0] = tuple.protocol.0;
        for (end, to) in ends.iter().zip(bytes[1..].as_chunks_mut::<18>().0) {
            match end.ip {
                IpAddr::V4(ip) => to[..4].copy_from_slice(&ip.octets()),
                IpAddr::V6(ip) => to[..16].copy_from_slice(&ip.octets()),
            }
            to[16..].copy_from_slice(&end.port.to_be_bytes());
        }
        self.seed.hash(&bytes) as usize & (self.buckets.len() - 1)
    }

    /// The cell in which a source's flows are counted: of IPv6, its network's of 64 bits, all of which one host can have.
    #[allow(clippy::cast_possible_truncation)] // as above
    fn cell(&self, source: IpAddr) -> usize {
        let hash = match source {
            IpAddr::V4(ip) => self.seed.hash(&ip.octets()),
            IpAddr::V6(ip) => self.seed.hash(&ip.octets()[..8]),
        };
        hash.rotate_right(32) as usize & (self.sources.len() - 1)
    }

    /// Tracks a flow.
    ///
    /// # Errors
    /// Why not; that is counted.
    pub fn insert(&mut self, flow: Flow, now: Instant) -> Result<u32, Refused> {
        let cell = self.cell(flow.source.ip);
        let ways = [flow.middle(), flow.original(), flow.answer()];
        if ways.iter().any(|way| self.is_taken(way)) {
            self.counts.refused_taken += 1;
            return Err(Refused::Taken);
        }
        if self.sources[cell] >= self.each_max {
            self.counts.refused_source += 1;
            return Err(Refused::Source);
        }
        if self.free == NONE {
            self.make_room(now);
        }
        let place = self.free;
        let Some(room) = self.places.get_mut(place as usize) else {
            self.counts.refused_full += 1;
            return Err(Refused::Full);
        };
        self.free = room.links[0];
        self.sources[cell] += 1;
        self.counts.made += 1;
        let mut flow = flow;
        flow.due = now + flow.state.lasts();
        room.flow = Some(flow);
        for key in 0..KEYS {
            self.chain(place, key);
        }
        self.append(place, flow.state);
        Ok(place)
    }

    /// Makes a flow come from `outside`. False: another does.
    pub fn set_outside(&mut self, place: u32, outside: End) -> bool {
        let Some(flow) = self.flow(place) else {
            return false;
        };
        let mut new = *flow;
        new.outside = outside;
        if outside != new.source && self.is_taken(&new.answer()) {
            return false;
        }
        self.unchain(place, KEYS - 1);
        if let Some(flow) = self.flow_mut(place) {
            flow.outside = outside;
        }
        self.chain(place, KEYS - 1);
        true
    }

    /// Notes a packet: the state from then on, and the time.
    pub fn touch(&mut self, place: u32, state: State, now: Instant) {
        let Some(flow) = self.flow_mut(place) else {
            return;
        };
        let before = std::mem::replace(&mut flow.state, state);
        flow.due = now + state.lasts();
        self.detach(place, before);
        self.append(place, state);
    }

    /// Takes a flow out.
    pub fn remove(&mut self, place: u32) {
        let Some(flow) = self.flow(place).copied() else {
            return;
        };
        for key in 0..KEYS {
            self.unchain(place, key);
        }
        self.detach(place, flow.state);
        let cell = self.cell(flow.source.ip);
        self.sources[cell] = self.sources[cell].saturating_sub(1);
        let free = self.free;
        if let Some(room) = self.places.get_mut(place as usize) {
            room.flow = None;
            room.links = [free, NONE];
            self.free = place;
        }
    }

    /// Takes out a few flows whose time is over.
    pub fn expire(&mut self, now: Instant) {
        let mut left = EXPIRED_EACH;
        for state in State::ALL {
            while left > 0 && self.is_first_over(state, now) {
                self.remove(self.lists[state as usize][0]);
                self.counts.expired += 1;
                left -= 1;
            }
        }
    }

    fn is_first_over(&self, state: State, now: Instant) -> bool {
        let first = self.flow(self.lists[state as usize][0]);
        first.is_some_and(|flow| flow.due <= now)
    }

    /// Makes a place free, if a flow may go: one whose time is over; else the half-open one that was silent for longest; else one of a connection
    /// that is over.
    fn make_room(&mut self, now: Instant) {
        self.expire(now);
        if self.free != NONE {
            return;
        }
        let oldest = |table: &Self, states: &[State]| {
            let firsts = states.iter().map(|&state| table.lists[state as usize][0]);
            // By their last packet: each state has a time of its own.
            let age = |&place: &u32| {
                let flow = table.flow(place);
                flow.map(|flow| Instant(flow.due.0.saturating_sub(nanoseconds(flow.state))))
            };
            let flows = firsts.filter(|&place| table.flow(place).is_some());
            flows.min_by_key(age)
        };
        let victim = oldest(self, &State::HALF_OPEN).or_else(|| oldest(self, &State::OVER));
        if let Some(place) = victim {
            self.remove(place);
            self.counts.evicted += 1;
        }
    }

    fn chain(&mut self, place: u32, key: usize) {
        let tuple = self.flow(place).and_then(|flow| flow.key(key));
        let Some(tuple) = tuple else {
            return;
        };
        let bucket = self.bucket(&tuple);
        let first = self.buckets[bucket];
        if let Some(room) = self.places.get_mut(place as usize) {
            room.chains[key] = first;
            self.buckets[bucket] = join(place, key);
        }
    }

    fn unchain(&mut self, place: u32, key: usize) {
        let tuple = self.flow(place).and_then(|flow| flow.key(key));
        let (Some(tuple), Some(room)) = (tuple, self.places.get_mut(place as usize)) else {
            return;
        };
        let (own, behind) = (
            join(place, key),
            std::mem::replace(&mut room.chains[key], NONE),
        );
        let bucket = self.bucket(&tuple);
        if self.buckets[bucket] == own {
            self.buckets[bucket] = behind;
            return;
        }
        let mut node = self.buckets[bucket];
        while let Some((other, key)) = split(node) {
            let Some(room) = self.places.get_mut(other as usize) else {
                return;
            };
            if room.chains[key] == own {
                room.chains[key] = behind;
                return;
            }
            node = room.chains[key];
        }
    }

    /// Puts a place at the end of a state's list.
    fn append(&mut self, place: u32, state: State) {
        let last = self.lists[state as usize][1];
        if let Some(room) = self.places.get_mut(place as usize) {
            room.links = [NONE, last];
        }
        match self.places.get_mut(last as usize) {
            Some(last) => last.links[0] = place,
            None => self.lists[state as usize][0] = place,
        }
        self.lists[state as usize][1] = place;
        self.lengths[state as usize] += 1;
    }

    fn detach(&mut self, place: u32, state: State) {
        let Some(&Place { links, .. }) = self.places.get(place as usize) else {
            return;
        };
        let [next, before] = links;
        match self.places.get_mut(before as usize) {
            Some(before) => before.links[0] = next,
            None => self.lists[state as usize][0] = next,
        }
        match self.places.get_mut(next as usize) {
            Some(next) => next.links[1] = before,
            None => self.lists[state as usize][1] = before,
        }
        self.lengths[state as usize] = self.lengths[state as usize].saturating_sub(1);
    }
}

fn nanoseconds(state: State) -> u64 {
    u64::try_from(state.lasts().as_nanos()).unwrap_or(u64::MAX)
}

#[allow(clippy::cast_possible_truncation)] // below KEYS
const fn join(place: u32, key: usize) -> u32 {
    place * EACH + key as u32
}

const fn split(node: u32) -> Option<(u32, usize)> {
    if node == NONE {
        return None;
    }
    Some((node / EACH, (node % EACH) as usize))
}
