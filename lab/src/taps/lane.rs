//! Datagrams between two stacks in one thread, over links in memory, straight or through a router; and a reader of a tap on another core.

use std::{
    io::{self, ErrorKind},
    net::SocketAddr,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::Duration,
};

use netchan::{
    Builder, Net, Threads, UdpSocket,
    link::wire,
    tap::{self, Tap},
};

use super::Places;
use crate::{
    experiment::LabError,
    kit::{Pinned, processor_seconds},
};

/// Datagrams that are under way at once: they fit in each queue, so that none is lost for want of room.
pub(super) const BATCH: usize = 128;
/// Their text, bytes.
const TEXT: usize = 64;
/// Bytes of a frame that taps keep, as tcpdump's default once was.
pub(super) const SNAP: usize = 96;
/// Frames that a tap's reader may be behind: less than its ring has room for.
const BEHIND_MAX: u64 = 4096;

/// Two stacks, and between them a third one where it forwards.
pub(super) struct Lane {
    from: Net,
    router: Option<Net>,
    to: Net,
    sender: UdpSocket,
    receiver: UdpSocket,
    address: SocketAddr,
}

/// What a batch came to.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Passed {
    pub sent: u64,
    pub received: u64,
    /// Processor time of the stack that is measured.
    pub seconds: f64,
}

impl Passed {
    /// Nanoseconds for each datagram.
    #[allow(clippy::cast_precision_loss)] // below 2^52
    pub fn each_ns(&self) -> f64 {
        self.seconds * 1e9 / self.received.max(1) as f64
    }
}

fn start(builder: Builder) -> io::Result<Net> {
    builder.threads(Threads::Caller).start()
}

fn host(link: wire::Wire, network: u8, end: u8) -> io::Result<Builder> {
    let builder = Net::builder().link_with(Box::new(link));
    builder.address(&format!("10.0.{network}.{end}/24"))
}

impl Lane {
    /// Two stacks on one link.
    pub fn straight() -> Result<Self, LabError> {
        let (near, far) = wire::pair(&wire::Options::default());
        let (from, to) = (host(near, 0, 1)?, host(far, 0, 2)?);
        Self::of(start(from)?, None, start(to)?, 0)
    }

    /// Two stacks with a third one between them, which forwards.
    pub fn forwarding() -> Result<Self, LabError> {
        let (near, first) = wire::pair(&wire::Options::default());
        let other = wire::Options {
            seed: 1, // other MAC addresses
            ..wire::Options::default()
        };
        let (second, far) = wire::pair(&other);
        let router = host(first, 0, 254)?.link_with(Box::new(second));
        let router = router.address("10.0.1.254/24")?.forwarding(true);
        let from = host(near, 0, 1)?.gateway("10.0.0.254")?;
        let to = host(far, 1, 2)?.gateway("10.0.1.254")?;
        Self::of(start(from)?, Some(start(router)?), start(to)?, 1)
    }

    fn of(from: Net, router: Option<Net>, to: Net, network: u8) -> Result<Self, LabError> {
        let address = SocketAddr::from(([10, 0, network, 2], 7));
        let (sender, receiver) = (from.udp().bind("0.0.0.0:9")?, to.udp().bind(address)?);
        sender.set_nonblocking(true)?;
        receiver.set_nonblocking(true)?;
        let lane = Self {
            from,
            router,
            to,
            sender,
            receiver,
            address,
        };
        // The first datagrams wait until their neighbours are known.
        for _ in 0..1000 {
            lane.sender.send_to(&[0; TEXT], lane.address)?;
            for _ in 0..4 {
                lane.nets().for_each(|net| while net.poll() {});
            }
            if lane.take(&mut || ())? > 0 {
                return Ok(lane);
            }
        }
        Err(LabError::Failed("no datagram arrives".to_owned()))
    }

    fn nets(&self) -> impl Iterator<Item = &Net> {
        [&self.from]
            .into_iter()
            .chain(&self.router)
            .chain([&self.to])
    }

    /// The stack that is measured: the one that forwards, or the one that receives.
    pub fn measured(&self) -> &Net {
        self.router.as_ref().unwrap_or(&self.to)
    }

    /// The stack that sends.
    pub const fn sending(&self) -> &Net {
        &self.from
    }

    fn take(&self, look: &mut impl FnMut()) -> io::Result<u64> {
        let (mut room, mut count) = ([0; 2 * TEXT], 0);
        loop {
            match self.receiver.recv_from(&mut room) {
                Ok(_) => count += 1,
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(count),
                Err(e) => return Err(e),
            }
            look();
        }
    }

    /// A batch from end to end; `look` is called for each packet at each end.
    pub fn batch(&self, mut look: impl FnMut()) -> Result<Passed, LabError> {
        let mut sent = 0;
        for _ in 0..BATCH {
            look();
            match self.sender.send_to(&[0x5a; TEXT], self.address) {
                Ok(_) => sent += 1,
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(e) => return Err(e.into()),
            }
        }
        while self.from.poll() {}
        let before = processor_seconds();
        while self.measured().poll() {}
        let seconds = processor_seconds() - before;
        self.nets().for_each(|net| while net.poll() {});
        let received = self.take(&mut look)?;
        Ok(Passed {
            sent,
            received,
            seconds,
        })
    }

    /// So many batches, of which nothing may be lost. `wait` is called between them.
    pub fn batches(&self, count: usize, wait: impl Fn(u64)) -> Result<Passed, LabError> {
        let mut all = Passed::default();
        for _ in 0..count {
            let one = self.batch(|| ())?;
            all.sent += one.sent;
            all.received += one.received;
            all.seconds += one.seconds;
            wait(all.sent);
        }
        if all.received == all.sent {
            return Ok(all);
        }
        let Passed { sent, received, .. } = all;
        let what = format!("of {sent} datagrams {received} arrived");
        Err(LabError::Failed(what))
    }

    /// [`Self::batches`] while a tap that takes `frames` frames of each datagram is read on another core.
    pub fn batches_read(
        &self,
        count: usize,
        options: tap::Options,
        frames: u64,
        places: Places,
    ) -> Result<Passed, LabError> {
        let tap = self.measured().tap(options)?;
        let (read, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
        thread::scope(|scope| {
            let reader = scope.spawn(|| empty(tap, &read, &is_over, places.other));
            // It cannot be the reader's core that is measured, but for whether it keeps up.
            let wait = |sent: u64| {
                while sent * frames > read.load(Ordering::Relaxed) + BEHIND_MAX
                    && !reader.is_finished()
                {
                    thread::yield_now();
                }
            };
            let passed = self.batches(count, wait);
            // Release: pairs with Acquire in `empty`, all has been put into the ring.
            is_over.store(true, Ordering::Release);
            let done = reader.join();
            done.map_err(|_| LabError::Failed("the tap's reader panicked".to_owned()))??;
            let passed = passed?;
            let (least, all) = (passed.sent * frames, read.load(Ordering::Relaxed));
            if all < least {
                let what = format!("a tap saw {all} of {least} frames");
                return Err(LabError::Failed(what));
            }
            Ok(passed)
        })
    }
}

/// Reads a tap until `is_over`, and then what is left. All that it has seen must come.
fn empty(
    mut tap: Tap,
    read: &AtomicU64,
    is_over: &AtomicBool,
    core: usize,
) -> Result<(), LabError> {
    let _pinned = Pinned::to(core);
    let mut count = 0;
    loop {
        let is_last = is_over.load(Ordering::Acquire); // pairs with Release in `batches_read`
        while tap.read().is_some() {
            count += 1;
        }
        read.store(count, Ordering::Relaxed); // a number on its own
        if is_last {
            break;
        }
        thread::sleep(Duration::from_micros(50));
    }
    let counted = tap.statistics();
    if counted.taken == count && counted.seen == count {
        return Ok(());
    }
    let what = format!("{count} frames were read of a tap that counts {counted:?}");
    Err(LabError::Failed(what))
}
