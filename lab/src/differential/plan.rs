//! What is tried: a group of connections over one pair of stacks and one link, drawn from a seed or written down.

use proto::{
    tcp::{Config, CongestionControl, EcnMode},
    time::Duration,
};

use crate::world::{app::Reading, dice::Dice, link::LinkShape};

/// Which end opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opening {
    /// netchan; the other listens.
    Ours,
    /// The other; netchan listens.
    Theirs,
    /// Both at once (RFC 9293 §3.5, figure 8).
    Both,
}

/// When a connection is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// Before it is there: SYN-SENT.
    Connecting,
    /// As soon as it is there: the peer may be in SYN-RECEIVED.
    Open,
    /// After so many bytes.
    Written(u64),
    /// Right behind its own FIN: FIN-WAIT-1.
    Shut,
    /// This long after its FIN: FIN-WAIT-2, or whatever the peer made of it.
    ShutFor(Duration),
    /// With the peer's FIN: CLOSE-WAIT.
    PeerEnded,
    /// With the peer's FIN and right behind its own: LAST-ACK or CLOSING.
    BothEnded,
}

/// How an end ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// No more is written after the last byte; reading goes on.
    Shut,
    /// Shut, but not before the peer ended.
    ShutAfterPeer,
    /// Closed after the last byte and so many of the peer's.
    Close {
        /// Bytes read before.
        needs: u64,
    },
    /// Given up.
    Abort(When),
}

/// What one end does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Manners {
    /// Bytes it writes.
    pub bytes: u64,
    /// So many with each call at most.
    pub chunk: usize,
    /// The byte at this offset is urgent.
    pub urgent: Option<u64>,
    /// Whether it reads urgent bytes like all others.
    pub inline: bool,
    /// How it reads.
    pub reading: Reading,
    /// How it ends.
    pub ending: Ending,
    /// SO_RCVBUF.
    pub receive_buffer: Option<usize>,
    /// TCP_NODELAY.
    pub no_delay: bool,
    /// TCP_MAXSEG, where the side can.
    pub max_segment: Option<u16>,
}

impl Manners {
    /// Writes `bytes` and ends, reads all.
    #[must_use]
    pub const fn plain(bytes: u64) -> Self {
        Self {
            bytes,
            chunk: 16 << 10,
            urgent: None,
            inline: false,
            reading: Reading::Eager,
            ending: Ending::Shut,
            receive_buffer: None,
            no_delay: false,
            max_segment: None,
        }
    }

    /// Whether its end may cut off what the peer has to say.
    #[must_use]
    pub const fn is_rude(&self) -> bool {
        matches!(self.ending, Ending::Abort(_) | Ending::Close { .. })
    }
}

/// One connection: netchan's end and the other's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowPlan {
    /// Over IPv6.
    pub v6: bool,
    /// Which end opens.
    pub opening: Opening,
    /// netchan's, and the other's.
    pub ends: [Manners; 2],
}

/// What the other stack is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Theirs {
    /// RFC 7323 §3.
    pub timestamps: bool,
    /// RFC 2018.
    pub sack: bool,
    /// RFC 7323 §2.
    pub window_scale: bool,
    /// Linux's `tcp_ecn`.
    pub ecn: u8,
    /// Largest receive buffer: the window scale follows from it.
    pub receive_buffer_max: u32,
}

/// Connections between two stacks.
#[derive(Clone, Debug)]
pub struct Group {
    /// Of the link's dice and netchan's.
    pub seed: u64,
    /// Of the link.
    pub mtu: usize,
    /// netchan's settings.
    pub ours: Config,
    /// The other's.
    pub theirs: Theirs,
    /// From netchan, and to it.
    pub shapes: [LinkShape; 2],
    /// Longest it may take.
    pub limit: Duration,
    /// The connections.
    pub flows: Vec<FlowPlan>,
}

/// MTUs: from a segment of 536 bytes up.
const MTUS: [usize; 7] = [576, 1_280, 1_500, 4_000, 9_000, 32_000, 65_521];

/// Linux with a smaller one, its window not scaled, comes to offer a single byte for as long as the connection lasts: its window is not taken back,
/// and not opened either while what it has room for is less than a segment (seed 5 on a TAP, one time in three).
const THEIR_LEAST_BUFFER: usize = 8_000;

/// The seed of a group with a faithful way from netchan, and urgent bytes on it for readers out of line, which most groups lack.
pub const FAITHFUL: u64 = 109;

impl Group {
    /// The group of this seed. `rough`: links as bad as they get, which takes its time.
    #[must_use]
    pub fn random(seed: u64, rough: bool) -> Self {
        let mut dice = Dice::of(seed, 31);
        let mtu = dice.pick(&MTUS);
        let (ours, theirs) = (ours(&mut dice), theirs(&mut dice));
        let shape = shape(&mut dice, rough);
        let shapes = [
            shape,
            if dice.below(3) == 0 {
                LinkShape {
                    loss_ppm: 0,
                    ..shape
                }
            } else {
                shape
            },
        ];
        let mut flows: Vec<_> = (0..12).map(|_| flow(&mut dice, mtu)).collect();
        // Linux scales its windows after crossing SYNs although our SYN had no such option (RFC 7323 §2.2 forbids it): 65,536 bytes become 8.
        let lies = theirs.window_scale && !ours.window_scale;
        for flow in flows.iter_mut().filter(|_| lies) {
            if flow.opening == Opening::Both {
                flow.opening = Opening::Ours;
            }
        }
        for flow in &mut flows {
            let theirs = &mut flow.ends[1].receive_buffer;
            *theirs = theirs.map(|bytes| bytes.max(THEIR_LEAST_BUFFER));
        }
        // Linux, out of line, takes a byte of a header for the urgent one where a segment from behind it comes first (the system test
        // `linux_and_a_late_urgent_byte`; seed 1 on a TAP, one time in fifty): it is told of none where that can happen.
        let is_safe = |reader: &Manners| reader.inline || shapes[0].is_faithful();
        for [ours, theirs] in flows.iter_mut().map(|flow| &mut flow.ends) {
            ours.urgent = ours.urgent.filter(|_| is_safe(theirs));
        }
        Self {
            seed,
            mtu,
            ours,
            theirs,
            shapes,
            limit: Duration::from_secs(if rough { 300 } else { 100 }),
            flows,
        }
    }
}

fn ours(dice: &mut Dice) -> Config {
    let mut of_ten = |n| dice.below(10) < n;
    let (timestamps, sack, window_scale, nagle, pacing) =
        (of_ten(6), of_ten(7), of_ten(8), of_ten(6), of_ten(2));
    Config {
        timestamps,
        sack,
        window_scale,
        nagle,
        pacing,
        // Window scales 0 to 14.
        receive_buffer: 65_535 << dice.below(15),
        ecn: dice.pick(&EcnMode::ALL),
        congestion: dice.pick(&CongestionControl::ALL),
        ..Config::default()
    }
}

fn theirs(dice: &mut Dice) -> Theirs {
    let mut of_ten = |n| dice.below(10) < n;
    Theirs {
        timestamps: of_ten(6),
        sack: of_ten(7),
        window_scale: of_ten(8),
        ecn: dice.pick(&[0, 1, 2]),
        receive_buffer_max: 131_072 << dice.below(14),
    }
}

fn shape(dice: &mut Dice, rough: bool) -> LinkShape {
    let some = |dice: &mut Dice, from: &[u32]| {
        if dice.below(2) == 0 {
            0
        } else {
            dice.pick(from)
        }
    };
    let worse = if rough { 4 } else { 1 };
    let millis = |dice: &mut Dice, from: &[u64]| Duration::from_millis(dice.pick(from));
    LinkShape {
        delay: millis(dice, &[1, 3, 10]),
        jitter: millis(dice, &[0, 0, 2]),
        loss_ppm: some(dice, &[1_000, 10_000, 30_000]) * worse,
        late_ppm: some(dice, &[5_000, 100_000]),
        late_by: millis(dice, &[1, 5, 30]),
        duplicate_ppm: some(dice, &[5_000, 50_000]),
        corrupt_ppm: some(dice, &[1_000, 20_000]) * worse,
        rate: dice.pick(&[0, 0, 2_000_000, 20_000_000]),
        queue_max: 300_000,
        mark_from: (dice.below(3) == 0).then_some(20_000),
        ..LinkShape::default()
    }
}

fn flow(dice: &mut Dice, mtu: usize) -> FlowPlan {
    let v6 = mtu >= 1_280 && dice.below(2) == 0;
    let opening = dice.pick(&[
        Opening::Ours,
        Opening::Theirs,
        Opening::Ours,
        Opening::Theirs,
        Opening::Both,
    ]);
    let mut ends = [manners(dice), manners(dice)];
    let rude = usize::from(dice.below(2) == 0);
    if dice.below(4) == 0 {
        ends[rude].ending = ending(dice, ends[1 - rude].bytes);
    } else if dice.below(3) == 0 {
        ends[rude].ending = Ending::ShutAfterPeer;
    }
    FlowPlan { v6, opening, ends }
}

fn manners(dice: &mut Dice) -> Manners {
    let bytes = dice.pick(&[0, 1, 700, 10_000, 60_000, 60_000, 250_000]);
    let reading = match dice.below(6) {
        0 => Reading::Slow {
            bytes: 4_000,
            every: Duration::from_millis(10),
        },
        1 => Reading::Stall {
            from: dice.below(20_000),
            lasts: Duration::from_millis(dice.pick(&[50, 700])),
        },
        _ => Reading::Eager,
    };
    Manners {
        chunk: dice.pick(&[100, 1_000, 16 << 10, 64 << 10]),
        urgent: (bytes > 0 && dice.below(4) == 0).then(|| dice.below(bytes)),
        inline: dice.below(2) == 0,
        reading,
        receive_buffer: (dice.below(4) == 0).then(|| dice.pick(&[2_304, 8_000, 50_000])),
        no_delay: dice.below(2) == 0,
        max_segment: (dice.below(4) == 0).then(|| dice.pick(&[200, 536, 1_000])),
        ..Manners::plain(bytes)
    }
}

/// A rude one, when the peer writes so many bytes.
fn ending(dice: &mut Dice, peer: u64) -> Ending {
    match dice.below(9) {
        0 => Ending::Close {
            needs: dice.below(peer + 1),
        },
        1 => Ending::Close { needs: peer },
        2 => Ending::Abort(When::Connecting),
        3 => Ending::Abort(When::Open),
        4 => Ending::Abort(When::Shut),
        5 => Ending::Abort(When::ShutFor(Duration::from_millis(dice.pick(&[20, 300])))),
        6 => Ending::Abort(When::PeerEnded),
        7 => Ending::Abort(When::BothEnded),
        _ => Ending::Abort(When::Written(dice.below(5_000))),
    }
}
