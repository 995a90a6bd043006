//! Random worlds: what a seed stands for, how a run of it has to end, and how to make a failing one smaller.

use std::panic::{AssertUnwindSafe, catch_unwind};

use proto::{
    tcp::{Config, CongestionControl, EcnMode, Keepalive},
    time::Duration,
    wire::tcp::SeqNum,
};

use super::{
    Outcome, START, World,
    app::{App, Burst, Ending, Reading},
    dice::Dice,
    endpoint::{EndShape, Seen},
    link::{Bursts, LinkShape},
};

/// What may go wrong, or differ from the usual.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Faults(pub u32);

#[allow(missing_docs)] // what they turn on is in `Plan`
impl Faults {
    pub const LOSS: Self = Self(1 << 0);
    pub const BURSTS: Self = Self(1 << 1);
    pub const JITTER: Self = Self(1 << 2);
    pub const LATE: Self = Self(1 << 3);
    pub const DUPLICATE: Self = Self(1 << 4);
    pub const CORRUPT: Self = Self(1 << 5);
    pub const QUEUE: Self = Self(1 << 6);
    pub const CODEL: Self = Self(1 << 7);
    pub const MARK: Self = Self(1 << 8);
    pub const CHANGE: Self = Self(1 << 9);
    pub const MTU: Self = Self(1 << 10);
    pub const READERS: Self = Self(1 << 11);
    pub const RUDE: Self = Self(1 << 12);
    pub const SIMULTANEOUS: Self = Self(1 << 13);
    pub const SIZES: Self = Self(1 << 14);
    pub const OPTIONS: Self = Self(1 << 15);
    pub const SHARED: Self = Self(1 << 16);
    pub const PATIENCE: Self = Self(1 << 17);
    pub const SENDING: Self = Self(1 << 18);
    pub const TIGHT: Self = Self(1 << 19);
    pub const TALK: Self = Self(1 << 20);
    /// How many there are.
    pub const COUNT: u32 = 21;

    /// Whether `one` is among them.
    #[must_use]
    pub const fn has(self, one: Self) -> bool {
        self.0 & one.0 != 0
    }
}

/// A world in four numbers. Whatever a flow or a link draws follows from the seed and its own name, so that a smaller shape leaves the rest as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Of everything random.
    pub seed: u64,
    /// Connections.
    pub flows: u8,
    /// Most bytes that one end writes.
    pub bytes: u64,
    /// See there.
    pub faults: Faults,
}

/// Virtual time without any progress after which a run counts as stuck: several times what backed-off timers may take at 30 % loss.
const STUCK: Duration = Duration::from_secs(8 * 3600);
/// Things that may happen in one world. The longest honest ones take a tenth.
const STEPS_MAX: u64 = 8_000_000;
/// The links that all flows share are counted from here on.
const MIDDLE: u64 = 900;
/// For what is not to be tested: patience.
const NEVER: Duration = Duration::from_secs(1_000_000);

const fn micros(n: u64) -> Duration {
    Duration::from_micros(n)
}

impl Shape {
    /// What `seed` stands for.
    #[must_use]
    pub fn random(seed: u64) -> Self {
        let mut dice = Dice::of(seed, 1);
        let flows = dice.pick(&[1, 1, 1, 1, 2, 2, 3, 5, 8]);
        let bytes = dice.pick(&[1, 3_000, 30_000, 30_000, 100_000, 100_000, 400_000]);
        // Each in two worlds of seven, so that there are quiet ones too.
        let faults = (0..Faults::COUNT)
            .filter(|_| dice.below(7) < 2)
            .fold(0, |all, bit| all | 1 << bit);
        Self {
            seed,
            flows,
            bytes,
            faults: Faults(faults),
        }
    }

    /// Runs it to its end; says what went wrong.
    ///
    /// # Errors
    /// Whatever the referee, the connections' own checks or the bookkeeping at the end found.
    pub fn run(&self) -> Result<Outcome, String> {
        self.run_in(&mut Plan::new(self).build())
    }

    /// [`Self::run`] with each connection taken apart and put together again at one of so many moments (0: left alone); and what they
    /// were like then.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub fn run_apart(&self, one_of: u64) -> Result<(Outcome, Seen), String> {
        let mut world = Plan::new(self).build();
        world.set_apart(one_of);
        let outcome = self.run_in(&mut world)?;
        let mut all = Seen::new();
        for (name, count) in world.ends().filter_map(|end| end.seen_apart()).flatten() {
            *all.entry(name).or_default() += count;
        }
        Ok((outcome, all))
    }

    fn run_in(&self, world: &mut World) -> Result<Outcome, String> {
        let result = catch_unwind(AssertUnwindSafe(|| {
            self.run_to_end(world)?;
            self.check_end(world)
        }));
        let found = match result {
            Ok(Ok(())) => return Ok(world.outcome()),
            Ok(Err(found)) => found,
            Err(panic) => {
                let text = panic.downcast_ref::<String>().cloned();
                let text = text.or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned()));
                text.unwrap_or_else(|| "panicked".to_owned())
            }
        };
        let ms = world.now().since(START).as_secs_f64() * 1e3;
        Err(format!("{self:?} at {ms:.3} ms: {found}"))
    }

    fn run_to_end(&self, world: &mut World) -> Result<(), String> {
        world.set_steps_max(STEPS_MAX);
        let (mut progress, mut since) = (0, world.now());
        let slice = Duration::from_secs(600);
        while world.run(world.now() + slice) {
            let sum = world.ends().map(super::Endpoint::progress).sum();
            if sum != progress {
                (progress, since) = (sum, world.now());
            }
            if world.now().since(since) > STUCK {
                return Err(format!("no progress in {STUCK:?}: {}", describe(world)));
            }
        }
        Ok(())
    }

    /// Everything that was written was read, unless an end left early; nothing is left over.
    fn check_end(&self, world: &World) -> Result<(), String> {
        world.check_memory();
        for (index, end) in world.ends().enumerate() {
            let peer = world.end(index ^ 1);
            let apps = (&end.shape().app, &peer.shape().app);
            let rude = apps.0.is_rude() || apps.1.is_rude();
            // A listener whose peer gave up before it was heard.
            let never_began = rude && end.finished_at().is_none() && end.read_bytes() == 0;
            if !(end.is_over() || never_began) {
                return Err(format!("end {index} did not end: {}", describe(world)));
            }
            if rude {
                continue;
            }
            if end.error().is_some() {
                return Err(format!(
                    "end {index} ended by an error: {}",
                    describe(world)
                ));
            }
            if end.read_bytes() != apps.1.writes() || end.read_all_at().is_none() {
                let (got, sent) = (end.read_bytes(), apps.1.writes());
                return Err(format!(
                    "end {index} read {got} of {sent}: {}",
                    describe(world)
                ));
            }
        }
        Ok(())
    }

    /// The smallest shape found that still fails, and how. `self` fails.
    #[must_use]
    pub fn shrink(&self, found: String) -> (Self, String) {
        let (mut best, mut why) = (*self, found);
        let mut tries = 400;
        loop {
            let smaller = best.smaller().into_iter().find_map(|shape| {
                tries -= 1;
                if tries < 0 {
                    return None;
                }
                shape.run().err().map(|why| (shape, why))
            });
            let Some(next) = smaller else {
                return (best, why);
            };
            (best, why) = next;
        }
    }

    /// What is one step smaller.
    fn smaller(&self) -> Vec<Self> {
        let mut all = Vec::new();
        let mut flows = vec![1, self.flows / 2, self.flows - 1];
        flows.dedup();
        all.extend(
            flows
                .into_iter()
                .filter(|&n| n > 0 && n < self.flows)
                .map(|flows| Self { flows, ..*self }),
        );
        for bit in 0..Faults::COUNT {
            if self.faults.0 & (1 << bit) != 0 {
                let faults = Faults(self.faults.0 & !(1 << bit));
                all.push(Self { faults, ..*self });
            }
        }
        for bytes in [self.bytes / 8, self.bytes / 2, self.bytes - self.bytes / 8] {
            if bytes < self.bytes {
                all.push(Self { bytes, ..*self });
            }
        }
        all
    }
}

fn describe(world: &World) -> String {
    let ends = world.ends().enumerate();
    ends.map(|(i, end)| format!("\n  {i}: {}", end.describe()))
        .collect()
}

/// A shape on its way to a world.
struct Plan<'a> {
    shape: &'a Shape,
}

impl<'a> Plan<'a> {
    const fn new(shape: &'a Shape) -> Self {
        Self { shape }
    }

    fn has(&self, fault: Faults) -> bool {
        self.shape.faults.has(fault)
    }

    fn dice(&self, name: u64, index: u64) -> Dice {
        Dice::of(self.shape.seed, name * 100_000 + index)
    }

    fn build(&self) -> World {
        let mut world = World::new(self.shape.seed);
        let shared = self.has(Faults::SHARED);
        let middle = [0, 1].map(|way| shared.then(|| self.link(&mut world, MIDDLE + way)));
        if self.has(Faults::MTU) {
            world.set_icmp(Some(Duration::from_millis(3)));
        }
        // All ends on two hosts that are short of memory, or on hosts of their own.
        let tight = self.has(Faults::TIGHT);
        let two = tight.then(|| [world.host(64 * 8), world.host(64 * 8)]);
        for flow in 0..u64::from(self.shape.flows) {
            let hosts = two.unwrap_or_else(|| [world.host(8192), world.host(8192)]);
            let mut routes = [Vec::new(), Vec::new()];
            for (way, route) in routes.iter_mut().enumerate() {
                route.push(self.link(&mut world, flow * 2 + way as u64));
                route.extend(middle[way]);
            }
            let ends = self.ends(flow);
            world.flow(hosts, ends, routes);
        }
        world
    }

    fn link(&self, world: &mut World, index: u64) -> usize {
        let mut dice = self.dice(2, index);
        let shape = self.link_shape(index, &mut dice);
        let link = world.link(shape);
        if self.has(Faults::CHANGE) {
            let mut at = START;
            for _ in 0..dice.below(6) {
                at = at + Duration::from_millis(dice.below(3000));
                let mut other = self.link_shape(index, &mut dice);
                if !self.has(Faults::MTU) {
                    other.mtu = shape.mtu;
                }
                world.change(link, other, at);
            }
        }
        link
    }

    fn link_shape(&self, index: u64, dice: &mut Dice) -> LinkShape {
        // Every number is drawn, whether it is used or not: one fault less must not change the others.
        let delay = micros(dice.pick(&[10, 500, 5_000, 20_000, 120_000]));
        let jitter = micros(dice.pick(&[100, 2_000, 30_000]));
        let loss = dice.pick(&[1_000, 10_000, 50_000, 150_000, 300_000]);
        let bursts = Bursts {
            enter_ppm: dice.pick(&[1_000, 10_000, 50_000]),
            leave_ppm: dice.pick(&[50_000, 200_000, 500_000]),
            loss_ppm: dice.pick(&[300_000, 700_000, 1_000_000]),
        };
        let late = dice.pick(&[5_000, 50_000, 400_000]);
        let late_by = micros(dice.pick(&[200, 5_000, 50_000, 400_000]));
        let duplicate = dice.pick(&[2_000, 20_000, 200_000]);
        let corrupt = dice.pick(&[1_000, 50_000]);
        let rate = dice.pick(&[20_000, 200_000, 2_000_000, 20_000_000]);
        let queue = dice.pick(&[3_000, 20_000, 100_000, 1_000_000]);
        let mark = dice.pick(&[1_500, 15_000, 60_000]);
        let mtu = dice.pick(&[296, 576, 1_280, 1_500, 9_000]);
        let on = |fault, value: u32| if self.has(fault) { value } else { 0 };
        LinkShape {
            delay,
            jitter: if self.has(Faults::JITTER) {
                jitter
            } else {
                Duration::ZERO
            },
            loss_ppm: on(Faults::LOSS, loss),
            spared: 0,
            doomed: [0; 2],
            // On four links in a row they would leave nothing: not on those that flows share.
            bursts: (self.has(Faults::BURSTS) && index < MIDDLE).then_some(bursts),
            late_ppm: on(Faults::LATE, late),
            late_by,
            duplicate_ppm: on(Faults::DUPLICATE, duplicate),
            corrupt_ppm: on(Faults::CORRUPT, corrupt),
            rate: if self.has(Faults::QUEUE) { rate } else { 0 },
            queue_max: queue,
            mark_from: self.has(Faults::MARK).then_some(mark),
            codel: self.has(Faults::CODEL),
            mtu: if self.has(Faults::MTU) { mtu } else { 65_535 },
        }
    }

    fn ends(&self, flow: u64) -> [EndShape; 2] {
        let mut dice = self.dice(3, flow);
        let mut opens = START + micros(dice.below(50_000));
        if dice.below(4) == 0 {
            opens = opens + Duration::from_millis(dice.below(5_000));
        }
        let simultaneous = self.has(Faults::SIMULTANEOUS) && dice.below(2) == 0;
        let apps = self.apps(flow);
        let mut index = 0;
        apps.map(|app| {
            index += 1;
            let mut dice = self.dice(4, flow * 2 + index);
            // Sequence numbers come round in every second connection.
            let near = u32::try_from(dice.below(1 << 20)).unwrap_or(0);
            let iss = dice.pick(&[
                0_u32.wrapping_sub(near),
                0x8000_0000_u32.wrapping_sub(near),
                near,
            ]);
            let patience = micros(dice.pick(&[0, 20, 1_000, 10_000]));
            EndShape {
                config: self.config(&mut dice),
                app,
                opens_at: (index == 1 || simultaneous).then_some(opens),
                iss: SeqNum(iss),
                ts_offset: dice.pick(&[77, 0xffff_ff00, 0x7fff_ff00]),
                patience: if self.has(Faults::PATIENCE) {
                    patience
                } else {
                    Duration::ZERO
                },
            }
        })
    }

    fn config(&self, dice: &mut Dice) -> Config {
        let mss = dice.pick(&[100, 536, 1_460, 8_960, 65_495]);
        let receive_buffer = dice.pick(&[300, 5_000, 65_535, 1 << 20]);
        let max_segments = dice.pick(&[16, 100, 4_096]);
        let max_gaps = dice.pick(&[1, 4, 256]);
        let usual = Config::default();
        let sizes = self.has(Faults::SIZES);
        let config = Config {
            mss: if sizes { mss } else { usual.mss },
            receive_buffer: if sizes {
                receive_buffer
            } else {
                usual.receive_buffer
            },
            max_segments: if sizes {
                max_segments
            } else {
                usual.max_segments
            },
            max_gaps: if sizes { max_gaps } else { usual.max_gaps },
            rto_max: Duration::from_secs(60),
            retry_timeout: NEVER,
            syn_timeout: NEVER,
            syn_received_timeout: NEVER,
            // A peer that left without a word must be found out.
            keepalive: self.has(Faults::RUDE).then_some(Keepalive {
                idle: Duration::from_secs(30),
                interval: Duration::from_secs(10),
                // A burst of losses ends after so many packets, not after so much time.
                probes: 255,
            }),
            ..usual
        };
        self.sending(self.options(config, dice), dice)
    }

    fn options(&self, config: Config, dice: &mut Dice) -> Config {
        let mut of_ten = |n| dice.below(10) < n;
        let drawn = Config {
            timestamps: of_ten(6),
            sack: of_ten(7),
            window_scale: of_ten(7),
            nagle: of_ten(5),
            quick_ack: of_ten(7),
            time_wait: Duration::from_millis(if of_ten(5) { 500 } else { 60_000 }),
            ..config
        };
        if self.has(Faults::OPTIONS) {
            drawn
        } else {
            config
        }
    }

    fn sending(&self, config: Config, dice: &mut Dice) -> Config {
        let drawn = Config {
            congestion: dice.pick(&CongestionControl::ALL),
            ecn: dice.pick(&[
                EcnMode::Off,
                EcnMode::Passive,
                EcnMode::Classic,
                EcnMode::Accurate,
            ]),
            pacing: dice.below(3) == 0,
            burst: dice.pick(&[0, 5_000, 65_000]),
            initial_cwnd: dice.pick(&[1, 2, 10, 10, 100]),
            ..config
        };
        let ecn = drawn.ecn;
        match (self.has(Faults::SENDING), self.has(Faults::MARK)) {
            (true, _) => drawn,
            (false, true) => Config { ecn, ..config },
            (false, false) => config,
        }
    }

    fn apps(&self, flow: u64) -> [App; 2] {
        let mut dice = self.dice(5, flow);
        let sizes = [0, 1].map(|_| match dice.below(6) {
            0 => 0,
            1 => 1 + dice.below(200),
            _ => 1 + dice.below(1 << 30),
        });
        let mut sizes = sizes.map(|n| n.min(1 + n % self.shape.bytes.max(1)));
        let (rounds, pause) = (
            1 + dice.below(8),
            micros(dice.pick(&[0, 300, 20_000, 2_000_000])),
        );
        let buffers = [0, 1].map(|_| dice.pick(&[2_000, 20_000, 100_000, 1 << 20]));
        let kind = dice.below(4);
        let mut apps = match kind {
            0 if self.has(Faults::TALK) => {
                sizes = sizes.map(|n| n.min(20_000));
                talk(sizes, rounds, pause)
            }
            1 if self.has(Faults::TALK) => sizes.map(|n| on_off(n, rounds, pause)),
            _ => sizes.map(|n| on_off(n, 1, Duration::ZERO)),
        }
        .map(|bursts| App {
            bursts,
            send_buffer: 0,
            reading: Reading::Eager,
            ending: Ending::Shut,
        });
        let writes = [apps[0].writes(), apps[1].writes()];
        for (index, app) in apps.iter_mut().enumerate() {
            app.send_buffer = buffers[index];
            self.manners(app, index, writes[1 - index], &mut dice);
        }
        apps
    }

    /// How an application reads and ends, when the other writes `theirs` bytes.
    fn manners(&self, app: &mut App, index: usize, theirs: u64, dice: &mut Dice) {
        let slow = Reading::Slow {
            bytes: u32::try_from(1_000 + dice.below(20_000)).unwrap_or(1_000),
            every: micros(dice.pick(&[500, 20_000, 300_000])),
        };
        let stall = Reading::Stall {
            from: dice.below(theirs + 1),
            lasts: Duration::from_millis(dice.pick(&[50, 3_000, 400_000])),
        };
        if self.has(Faults::READERS) {
            app.reading = dice.pick(&[Reading::Eager, slow, stall]);
        }
        // Only the second may wait for the first, or both would.
        if index == 1 && dice.below(3) == 0 {
            app.ending = Ending::ShutAfterPeer;
        }
        let close = Ending::Close {
            needs: dice.pick(&[theirs, theirs / 2, 0]),
        };
        let abort = Ending::Abort {
            after: dice.below(app.writes() + 1),
        };
        let rude = dice.pick(&[app.ending, close, abort]);
        if self.has(Faults::RUDE) && (app.ending == Ending::Shut || index == 0) {
            app.ending = rude;
        }
    }
}

/// `n` bytes in so many parts, with pauses between them.
fn on_off(n: u64, rounds: u64, pause: Duration) -> Vec<Burst> {
    let part = n / rounds.max(1);
    let burst = |i: u64| Burst {
        bytes: if i == 0 {
            n - part * (rounds - 1)
        } else {
            part
        },
        needs: 0,
        pause,
    };
    (0..rounds).map(burst).filter(|b| b.bytes > 0).collect()
}

/// Requests and responses: each waits for the other's.
fn talk(sizes: [u64; 2], rounds: u64, pause: Duration) -> [Vec<Burst>; 2] {
    let [request, response] = sizes;
    let asks = |i: u64| Burst {
        bytes: request.max(1),
        needs: i * response,
        pause,
    };
    let answers = |i: u64| Burst {
        bytes: response,
        needs: (i + 1) * request.max(1),
        pause: Duration::ZERO,
    };
    let asks = (0..rounds).map(asks).collect();
    let answers = (0..rounds).map(answers).filter(|b| b.bytes > 0).collect();
    [asks, answers]
}
