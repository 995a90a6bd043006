//! What state a TCP connection is in, as a host between its ends can tell; simplified from what Linux's nf_conntrack does. A segment that lies
//! outside of the windows that it has seen does not belong to the connection (van Rooij, "Real stateful TCP packet filtering in IP filter").

use proto::wire::tcp::{Flags, SeqNum};

use super::{seen::Segment, state::State};

/// Which way a packet goes along its flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// As the first did.
    Original,
    /// Back.
    Reply,
}

/// What is known of the sequence numbers that one end sends.
#[derive(Clone, Copy, Debug, Default)]
pub struct Side {
    /// Behind its SYN.
    first: u32,
    /// Behind the last octet that it has sent.
    end: u32,
    /// What the other end has room for at most.
    end_max: u32,
    /// The largest window that it has offered.
    window_max: u32,
    /// The shift of its windows.
    scale: u8,
    /// Whether it has offered to scale.
    scales: bool,
    /// Whether it has sent anything.
    seen: bool,
}

/// The smallest distance behind what was sent at which an acknowledgment is taken for an old one: several full windows without scaling.
const OLD_ACK: u32 = 66_000;

const fn after(a: u32, b: u32) -> bool {
    (b.wrapping_sub(a)).cast_signed() < 0
}

fn max(a: u32, b: u32) -> u32 {
    if after(a, b) { a } else { b }
}

/// A connection.
#[derive(Clone, Copy, Debug, Default)]
pub struct Connection {
    /// Of the first packet's sender, and the other.
    sides: [Side; 2],
    /// It was begun before we saw it: its windows' shifts are not known, nothing is held against them.
    is_liberal: bool,
}

impl Connection {
    /// The state of one that begins with this segment. `None`: none does.
    pub fn open(segment: &Segment) -> Option<(State, Self)> {
        let mut new = Self::default();
        let flags = segment.flags;
        if flags.contains(Flags::RST) || flags.contains(Flags::SYN | Flags::ACK) {
            return None;
        }
        if flags.contains(Flags::SYN) {
            new.begin(Direction::Original, segment);
            return Some((State::SynSent, new));
        }
        new.is_liberal = true;
        (!flags.contains(Flags::FIN)).then_some((State::PickedUp, new))
    }

    /// The state after a segment. `None`: it does not belong to the connection.
    pub fn next(&mut self, state: State, way: Direction, segment: &Segment) -> Option<State> {
        let flags = segment.flags;
        let next = after_flags(state, way, flags)?;
        if flags.contains(Flags::SYN) && !self.side(way).seen {
            let other = self.side(reverse(way));
            // Text in a SYN may go unacknowledged (RFC 7413 §4.2).
            let ack = segment.ack.0;
            let acknowledges =
                !flags.contains(Flags::ACK) || !after(other.first, ack) && !after(ack, other.end);
            if !self.is_liberal && !acknowledges {
                return None;
            }
            self.begin(way, segment);
            return Some(next);
        }
        if flags.contains(Flags::SYN) && !matches!(state, State::SynSent | State::SynReceived) {
            return Some(next);
        }
        if self.is_liberal || self.is_in_window(way, segment) {
            self.note(way, segment);
            return Some(next);
        }
        None
    }

    const fn side(&self, way: Direction) -> &Side {
        match way {
            Direction::Original => &self.sides[0],
            Direction::Reply => &self.sides[1],
        }
    }

    fn both(&mut self, way: Direction) -> (&mut Side, &mut Side) {
        let [first, second] = &mut self.sides;
        match way {
            Direction::Original => (first, second),
            Direction::Reply => (second, first),
        }
    }

    /// Takes in the SYN of a side.
    fn begin(&mut self, way: Direction, segment: &Segment) {
        let (own, other) = self.both(way);
        let end = end_of(segment).0;
        *own = Side {
            first: segment.seq.0.wrapping_add(1),
            end,
            end_max: end.wrapping_add(if other.seen { other.window_max } else { 0 }),
            window_max: u32::from(segment.window).max(1),
            scale: segment.scale.unwrap_or(0),
            scales: segment.scale.is_some(),
            seen: true,
        };
        if other.seen && !(own.scales && other.scales) {
            (own.scale, other.scale) = (0, 0); // RFC 7323 §2.2: both, or none
        }
        if other.seen {
            let room = segment.ack.0.wrapping_add(u32::from(segment.window).max(1));
            other.end_max = max(other.end_max, room);
        }
    }

    fn is_in_window(&self, way: Direction, segment: &Segment) -> bool {
        let (own, other) = (self.side(way), self.side(reverse(way)));
        let (seq, end) = (segment.seq.0, end_of(segment).0);
        let begins_in_room = !own.seen || !after(seq, own.end_max);
        if !other.seen {
            return begins_in_room;
        }
        let is_recent = !own.seen || !after(own.end.wrapping_sub(other.window_max), end);
        let ack = segment.ack.0;
        let acknowledges = !segment.flags.contains(Flags::ACK) || {
            let oldest = other.end.wrapping_sub(own.window_max.max(OLD_ACK));
            !after(ack, other.end) && !after(oldest, ack)
        };
        if !own.seen && !segment.flags.contains(Flags::ACK) {
            return false; // a reset that says nothing that only the other end knows
        }
        begins_in_room && is_recent && acknowledges
    }

    fn note(&mut self, way: Direction, segment: &Segment) {
        let (own, other) = self.both(way);
        let end = end_of(segment).0;
        own.end = if own.seen { max(own.end, end) } else { end };
        own.end_max = if own.seen { own.end_max } else { end };
        own.seen = true;
        let is_syn = segment.flags.contains(Flags::SYN);
        let window = u32::from(segment.window) << if is_syn { 0 } else { own.scale };
        own.window_max = own.window_max.max(window).max(1);
        if segment.flags.contains(Flags::ACK) && other.seen {
            let room = segment.ack.0.wrapping_add(window.max(1)); // a probe of a closed window
            other.end_max = max(other.end_max, room);
        }
    }
}

/// Behind its last octet; SYN and FIN count as one each.
fn end_of(segment: &Segment) -> SeqNum {
    let counts = |flag| u32::from(segment.flags.contains(flag));
    segment.seq + segment.text + counts(Flags::SYN) + counts(Flags::FIN)
}

pub const fn reverse(way: Direction) -> Direction {
    match way {
        Direction::Original => Direction::Reply,
        Direction::Reply => Direction::Original,
    }
}

/// The state after a segment with these flags, in a window or not. `None`: it does not belong there.
fn after_flags(state: State, way: Direction, flags: Flags) -> Option<State> {
    use Direction::{Original, Reply};
    use State::{
        CloseWait, Closed, Established, FinWait, LastAck, PickedUp, SynReceived, SynSent, TimeWait,
    };
    let has = |flag| flags.contains(flag);
    if has(Flags::RST) {
        return Some(Closed);
    }
    if has(Flags::SYN) {
        return match (state, way, has(Flags::ACK)) {
            (SynSent, Original, false) => Some(SynSent),
            // The other end opens, too, at the same time.
            (SynSent, Reply, false) => Some(SynReceived),
            (SynSent, Original, true) | (Closed, ..) => None,
            (SynSent, Reply, true) => Some(SynReceived),
            // Sent again; or answered with a challenge, which is the end's matter (RFC 5961 §4).
            (same, ..) => Some(same),
        };
    }
    if has(Flags::FIN) {
        return match state {
            SynSent => None,
            SynReceived | PickedUp | Established => Some(FinWait),
            FinWait | CloseWait | LastAck => Some(LastAck),
            other => Some(other),
        };
    }
    match (state, way) {
        // Text with the SYN's own acknowledgment still out (RFC 7413), or nonsense: its window says.
        (SynSent, Original) => Some(SynSent),
        (SynSent, Reply) => None,
        (SynReceived, Original) | (PickedUp, Reply) => Some(Established),
        (FinWait, _) => Some(CloseWait),
        (LastAck, _) => Some(TimeWait),
        (same, _) => Some(same),
    }
}
