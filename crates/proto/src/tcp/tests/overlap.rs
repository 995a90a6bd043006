//! Every way in which two and three segments can lie to one another, against a set of bytes: what is delivered, RCV.NXT, SACK and D-SACK
//! (RFC 9293 §3.10.7.4, RFC 2018, RFC 2883).

use std::vec;

use super::*;

/// Bytes of a unit: segments begin and end at whole ones.
const UNIT: u32 = 100;
/// Units in play: enough for three segments with gaps between them, and ends of their own.
const UNITS: usize = 7;

/// Half open, in units.
type Stretch = (usize, usize);

/// What has arrived, as a set.
#[derive(Clone, Copy, Default)]
struct Model {
    has: [bool; UNITS],
}

impl Model {
    fn next(&self) -> usize {
        self.has.iter().take_while(|&&has| has).count()
    }

    /// Stretches without a gap of what `is` so, between `from` and `to`.
    fn runs(is: &[bool], from: usize, to: usize) -> Vec<Stretch> {
        let mut runs: Vec<Stretch> = Vec::new();
        for at in (from..to).filter(|&at| is[at]) {
            match runs.last_mut() {
                Some(run) if run.1 == at => run.1 = at + 1,
                _ => runs.push((at, at + 1)),
            }
        }
        runs
    }

    /// A segment comes. What came before, the lowest stretch of it.
    fn take(&mut self, (from, to): Stretch) -> Option<Stretch> {
        let duplicate = Self::runs(&self.has, from, to).first().copied();
        self.has[from..to].fill(true);
        duplicate
    }

    /// What lies behind gaps.
    fn behind(&self) -> Vec<Stretch> {
        Self::runs(&self.has, self.next(), UNITS)
    }
}

fn byte(at: usize) -> u8 {
    at.wrapping_mul(7).to_le_bytes()[0]
}

struct Trial {
    pair: Pair,
    /// Where the stream was when it began.
    base: SeqNum,
    model: Model,
}

impl Trial {
    fn text((from, to): Stretch) -> Vec<u8> {
        let unit = UNIT as usize;
        (from * unit..to * unit).map(byte).collect()
    }

    /// A segment comes; panics with `way` if the connection does not do what the set says.
    fn segment(&mut self, segment: Stretch, way: &[Stretch]) {
        self.pair.intercept();
        let before = self.model.next();
        let duplicate = self.model.take(segment);
        let mut header = self.pair.forge(1, Flags::ACK);
        header.seq = self.base + UNIT * segment.0 as u32;
        self.pair.deliver(1, &header, Self::text(segment));
        let units = |seq: SeqNum| (seq - self.base) as usize / UNIT as usize;
        let end = &mut self.pair.ends[1];
        let next = units(end.conn().rcv.nxt);
        assert_eq!(
            next,
            self.model.next(),
            "RCV.NXT after {segment:?} of {way:?}"
        );
        let said = self.pair.intercept();
        let wanted = duplicate.is_some() || segment.0 > before || !self.model.behind().is_empty();
        let Some((_, answer, _)) = said.last() else {
            assert!(!wanted, "no acknowledgment of {segment:?} of {way:?}");
            return;
        };
        assert_eq!(units(answer.ack), next, "{segment:?} of {way:?}");
        let blocks = answer.options.sack;
        let blocks = blocks.as_slice().iter();
        let blocks: Vec<Stretch> = blocks.map(|&(l, r)| (units(l), units(r))).collect();
        let (told, held) = blocks.split_at(usize::from(duplicate.is_some()));
        assert_eq!(
            told.first().copied(),
            duplicate,
            "D-SACK: {segment:?} of {way:?}"
        );
        let behind = self.model.behind();
        let mut sorted = held.to_vec();
        sorted.sort_unstable();
        assert_eq!(sorted, behind, "SACK: {segment:?} of {way:?}");
        // The first of these is what the segment became a part of (RFC 2018 §4), or holds the duplicate (RFC 2883 §4).
        let part = duplicate.unwrap_or(segment);
        if let Some(run) = behind.iter().find(|run| run.0 <= part.0 && part.1 <= run.1) {
            assert_eq!(held[0], *run, "the first block: {segment:?} of {way:?}");
        }
    }

    /// Runs one way: its segments, then what is missing, in one.
    fn run(&mut self, way: &[Stretch]) {
        self.base = self.pair.ends[1].conn().rcv.nxt;
        self.model = Model::default();
        self.pair.ends[1].received.clear();
        for &segment in way {
            self.segment(segment, way);
        }
        self.segment((0, UNITS), way);
        let end = &self.pair.ends[1];
        assert_eq!(end.received, Self::text((0, UNITS)), "{way:?}");
        assert_eq!((end.pool.memory().held(), end.pool.behind().held()), (0, 0));
    }
}

fn trial() -> Trial {
    let config = Config {
        timestamps: false, // four blocks fit
        ..Config::default()
    };
    Trial {
        pair: Pair::established(&config, &config),
        base: SeqNum(0),
        model: Model::default(),
    }
}

/// Orders of the ends of `count` segments, ends that touch included: the ways that they can lie to one another, each once, in the
/// first units; unit 0 stays free or not.
fn ways(count: usize) -> Vec<Vec<Stretch>> {
    let stretches: Vec<Stretch> = (0..UNITS)
        .flat_map(|from| (from + 1..=UNITS).map(move |to| (from, to)))
        .collect();
    let mut ways = vec![Vec::new()];
    for _ in 0..count {
        let longer = |way: &Vec<Stretch>| {
            let add = |&next: &Stretch| [&way[..], &[next]].concat();
            stretches.iter().map(add).collect::<Vec<_>>()
        };
        ways = ways.iter().flat_map(longer).collect();
    }
    let is_dense = |way: &Vec<Stretch>| {
        // Every end that is used, in order and without holes but for the first: others are the same way, stretched.
        let mut ends: Vec<usize> = way.iter().flat_map(|&(from, to)| [from, to]).collect();
        ends.sort_unstable();
        ends.dedup();
        ends[0] <= 1 && ends.windows(2).all(|two| two[1] == two[0] + 1)
    };
    ways.retain(is_dense);
    ways
}

#[test]
fn all_ways_two_segments_overlap() {
    let (ways, mut trial) = (ways(2), trial());
    // Allen's thirteen relations, with the first at RCV.NXT or behind a gap.
    assert_eq!(ways.len(), 2 * 13);
    ways.iter().for_each(|way| trial.run(way));
}

#[test]
fn all_ways_three_segments_overlap() {
    let (ways, mut trial) = (ways(3), trial());
    assert_eq!(ways.len(), 2 * 409);
    ways.iter().for_each(|way| trial.run(way));
}

/// A retransmission over three holes fills them all: what was between them is not cut off with what follows.
#[test]
fn a_retransmission_over_three_holes_fills_them() {
    let mut trial = trial();
    trial.run(&[(2, 3), (4, 5), (6, 7), (1, 7)]);
    trial.run(&[(1, 2), (3, 4), (5, 6), (0, 7)]);
    trial.run(&[(1, 2), (3, 4), (5, 6), (0, 6)]);
    trial.run(&[(1, 2), (3, 4), (5, 7), (0, 6)]);
    trial.run(&[(1, 3), (4, 5), (6, 7), (2, 6)]);
}

/// A segment that is refused for want of memory leaves what is there as it is.
#[test]
fn what_is_refused_replaces_nothing() {
    let mut trial = trial();
    trial.base = trial.pair.ends[1].conn().rcv.nxt;
    trial.segment((2, 3), &[]);
    trial.segment((4, 5), &[]);
    let pool = &mut trial.pair.ends[1].pool;
    let held = pool.memory().held();
    pool.memory_mut().allow(held);
    let mut header = trial.pair.forge(1, Flags::ACK);
    header.seq = trial.base + UNIT;
    let input = trial.pair.deliver(1, &header, Trial::text((1, 6)));
    assert_eq!(input.unwrap().drop, Some(Drop::Limit));
    let end = &mut trial.pair.ends[1];
    assert_eq!((end.queue.gaps(), end.pool.memory().held()), (2, held));
    end.pool.memory_mut().allow(u64::MAX);
    trial.segment((1, 6), &[]);
    trial.segment((0, 7), &[]);
    assert_eq!(trial.pair.ends[1].received, Trial::text((0, UNITS)));
}
