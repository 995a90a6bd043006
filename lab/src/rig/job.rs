//! What a job is, and what it came to. Both go between processes as JSON.

use netchan::trace::stages::{COUNT, Stage};
use percore::operations;
use serde::{Deserialize, Serialize};

use super::{carrier::Carrier, role::Role};

/// How fast a stream is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Pace {
    /// Packets a second; 0: as fast as the receiver lets it.
    pub per_second: usize,
    /// Packets that leave at once.
    pub burst: usize,
}

/// What to carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Work {
    /// So many packets' text on each TCP connection, from a generator to a reader, after a warm-up of an eighth of them.
    Stream { packets: usize, pace: Pace },
    /// So many datagrams of 1,448 bytes over loopback, a window of them at a time, which the reader grants.
    Datagrams { packets: usize },
    /// So many requests and responses of each of so many clients.
    Service { clients: usize, transactions: usize },
}

impl Work {
    /// A stream at so many packets a second, in bursts, for about so many seconds; whole bursts.
    pub fn paced(per_second: usize, burst: usize, seconds: f64) -> Self {
        #[allow(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss
        )] // thousands
        let packets = (per_second as f64 * seconds) as usize;
        Self::Stream {
            packets: packets.next_multiple_of(burst.max(1)),
            pace: Pace { per_second, burst },
        }
    }

    /// A stream of so many packets as fast as the receiver lets it.
    pub fn fast(packets: usize) -> Self {
        let pace = Pace::default();
        Self::Stream { packets, pace }
    }
}

/// On which cores.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Place {
    /// All threads on any of these.
    Cores(Vec<usize>),
    /// Each role on a core: generator, link, application. Protocol threads are with one of the last two, as the settings say.
    Roles([usize; 3]),
}

/// What is looked at beside the clocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Look {
    /// Nothing: the times count.
    #[default]
    Clocks,
    /// Time by stage: then the times say little.
    Stages,
    /// System calls of the receiving side: then the times say nothing.
    Calls,
}

/// What disturbs the receiving side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Disturbance {
    #[default]
    None,
    /// The application walks through so many bytes of other memory after each read. Its time for that is left out.
    ColdCaches { bytes: usize },
    /// Another thread on the protocol's core computes for so long, and sleeps for as long, again and again; with the least priority there is, if it
    /// `yields`. Its time is left out.
    Preempt { us: u64, yields: bool },
}

/// One job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Job {
    pub carrier: Carrier,
    pub work: Work,
    pub place: Place,
    pub look: Look,
    /// Links, each with a generator and a reader; with loopback, one more pair inside the receiving stack. A service has one of them.
    pub links: usize,
    pub loopback: bool,
    /// Frames that the receiver's link hands over at once; 0: as many as it has.
    pub batch: usize,
    /// The receiver's link declares that its driver needs Giant (F4).
    pub needs_giant: bool,
    pub disturbance: Disturbance,
    /// Each packet carries the time at which it was written. Only with one packet a burst.
    pub stamps: bool,
    /// The server counts each request with this (N2).
    pub counter: Counter,
}

/// What a server adds to for each request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Counter {
    #[default]
    None,
    /// One atomic for all threads, so many additions a request.
    Atomic(u32),
    /// N2: a slot for each thread, folded into the total in batches.
    Batched(u32),
    /// N3: a slot for each thread, with two halves.
    Flip(u32),
}

impl Job {
    /// A job with nothing special about it: one link, the clocks.
    pub fn new(carrier: Carrier, work: Work, place: Place) -> Self {
        Self {
            carrier,
            work,
            place,
            look: Look::Clocks,
            links: 1,
            loopback: false,
            batch: 0,
            needs_giant: false,
            disturbance: Disturbance::None,
            stamps: false,
            counter: Counter::None,
        }
    }

    /// The same over the receiver's loopback alone.
    pub fn over_loopback(mut self) -> Self {
        (self.links, self.loopback) = (0, true);
        self
    }
}

/// What the threads of a role used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Used {
    pub processor_ns: f64,
    /// Voluntary and involuntary.
    pub switches: f64,
    /// By stage; zero unless looked at.
    pub stages_ns: [f64; COUNT],
}

/// What a job came to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Outcome {
    /// From the first byte to the last.
    pub seconds: f64,
    /// Processor time of all threads meanwhile but the generators' and of what disturbs.
    pub processor_seconds: f64,
    /// The generators'.
    pub generator_seconds: f64,
    /// Packets that came in at the receiver; where none are counted (the kernel's stack, loopback), full segments that the bytes would fill.
    pub packets: f64,
    /// Bytes of text.
    pub bytes: f64,
    /// Requests answered.
    pub transactions: f64,
    /// In the order of [`Role::ALL`].
    pub roles: [Used; Role::ALL.len()],
    /// System calls of the receiving side, if they were counted.
    pub system_calls: Option<f64>,
    /// What `percore::operations` counted, without the generators; zero in a build that does not count.
    pub operations: [u64; operations::COUNT],
    /// From write to read: the middle and the 99th percentile, ns; only with stamps.
    pub latency_ns: Option<[f64; 2]>,
    /// Giant: taken, waits, ns waited.
    pub giant: [f64; 3],
    /// The build does not have this: why.
    pub absent: Option<String>,
}

impl Outcome {
    /// Processor time of the receiving side a packet, ns.
    pub fn packet_ns(&self) -> f64 {
        self.processor_seconds * 1e9 / self.packets.max(1.0)
    }

    /// With the generators'.
    pub fn both_ends_ns(&self) -> f64 {
        (self.processor_seconds + self.generator_seconds) * 1e9 / self.packets.max(1.0)
    }

    /// Text, Gbit/s.
    pub fn gbit_per_s(&self) -> f64 {
        self.bytes * 8.0 / 1e9 / self.seconds.max(1e-9)
    }

    /// Transactions a second.
    pub fn per_second(&self) -> f64 {
        self.transactions / self.seconds.max(1e-9)
    }

    /// Processor time a transaction, ns.
    pub fn transaction_ns(&self) -> f64 {
        self.processor_seconds * 1e9 / self.transactions.max(1.0)
    }

    /// Thread switches of the receiving side for 1,000 packets.
    pub fn switches_per_1000(&self) -> f64 {
        let receiving = Role::RECEIVING.iter().map(|&role| self.of(role).switches);
        1000.0 * receiving.sum::<f64>() / self.packets.max(1.0)
    }

    /// System calls of the receiving side for 1,000 packets.
    pub fn calls_per_1000(&self) -> Option<f64> {
        Some(1000.0 * self.system_calls? / self.packets.max(1.0))
    }

    /// What a role used.
    pub const fn of(&self, role: Role) -> &Used {
        &self.roles[role as usize]
    }

    /// The part of the receiving side's time that went to a stage, 0 to 1.
    pub fn share(&self, stage: Stage) -> f64 {
        let of = |role: &Role| self.share_of(*role, stage);
        Role::RECEIVING.iter().map(of).sum()
    }

    /// The part that went to a stage in the threads of a role.
    pub fn share_of(&self, role: Role, stage: Stage) -> f64 {
        let receiving = Role::RECEIVING.iter().map(|&role| self.of(role).stages_ns);
        let all: f64 = receiving.flatten().sum();
        self.of(role).stages_ns[stage as usize] / all.max(1.0)
    }
}
