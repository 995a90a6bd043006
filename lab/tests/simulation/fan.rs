//! A link with several queues over one with a single queue: a flow's frames come in by the queue by which the stack last sent for it, as those of a TAP do.

use std::{
    collections::{HashMap, VecDeque},
    io,
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use netchan::{
    Doorbell, Instant, Slab,
    link::{BURST, Link, LinkError, LinkRx, LinkTx, Properties, Queue, RxStatistics, TxStatistics},
    packet::Packet,
};

/// Such a link.
pub struct Fan {
    pub link: Box<dyn Link>,
    pub queues: usize,
}

struct Shared {
    under: Queue,
    /// What came in and is another queue's.
    waiting: Vec<VecDeque<Packet>>,
    /// The queue by which a flow was last sent for.
    last: HashMap<u64, usize>,
}

impl Link for Fan {
    fn properties(&self) -> &Properties {
        self.link.properties()
    }

    fn queues(&self) -> usize {
        self.queues
    }

    fn start(self: Box<Self>, bells: &[Arc<Doorbell>]) -> io::Result<Vec<Queue>> {
        let queues = self.queues.min(bells.len());
        let under = self.link.start(&bells[..1])?.pop().expect("a queue");
        let shared = Shared {
            under,
            waiting: (0..queues).map(|_| VecDeque::new()).collect(),
            last: HashMap::new(),
        };
        let shared = Arc::new(Mutex::new(shared));
        let half = |number| Half(shared.clone(), number);
        let queue = |number| Queue {
            rx: Box::new(half(number)),
            tx: Box::new(half(number)),
        };
        Ok((0..queues).map(queue).collect())
    }
}

struct Half(Arc<Mutex<Shared>>, usize);

impl Half {
    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LinkRx for Half {
    fn receive(
        &mut self,
        now: Instant,
        slab: &mut Slab,
        burst: &mut VecDeque<Packet>,
        max: usize,
    ) -> Result<usize, LinkError> {
        let mut shared = self.lock();
        let shared = &mut *shared;
        let mut came = VecDeque::new();
        let received = shared.under.rx.receive(now, slab, &mut came, BURST);
        for frame in came {
            let flow = flow_of(frame.bytes());
            let by_rule = deal(flow, shared.waiting.len());
            let queue = shared.last.get(&flow).copied().unwrap_or(by_rule);
            shared.waiting[queue].push_back(frame);
        }
        let own = &mut shared.waiting[self.1];
        let n = own.len().min(max);
        burst.extend(own.drain(..n));
        match received {
            Err(e) if n == 0 => Err(e),
            _ => Ok(n),
        }
    }

    fn next_event(&mut self) -> Instant {
        let mut shared = self.lock();
        if shared.waiting[self.1].is_empty() {
            shared.under.rx.next_event()
        } else {
            Instant::ZERO
        }
    }

    /// All of it is the first queue's.
    fn statistics(&self) -> RxStatistics {
        match self.1 {
            0 => self.lock().under.rx.statistics(),
            _ => RxStatistics::default(),
        }
    }
}

impl LinkTx for Half {
    fn transmit(
        &mut self,
        now: Instant,
        frames: &mut VecDeque<Packet>,
    ) -> Result<usize, LinkError> {
        let mut shared = self.lock();
        for frame in &*frames {
            shared.last.insert(flow_of(frame.bytes()), self.1);
        }
        shared.under.tx.transmit(now, frames)
    }

    fn statistics(&self) -> TxStatistics {
        match self.1 {
            0 => self.lock().under.tx.statistics(),
            _ => TxStatistics::default(),
        }
    }
}

/// The queue for a flow that nothing was sent for yet.
fn deal(flow: u64, queues: usize) -> usize {
    usize::try_from(flow % queues as u64).expect("a few")
}

/// The queue by which a connection begins, of IPv4.
#[allow(dead_code)] // not in every program that has this file
pub fn dealt(from: SocketAddr, to: SocketAddr, queues: usize) -> usize {
    let mut frame = [0; 14 + 24];
    let ip = &mut frame[14..];
    (ip[0], ip[9]) = (0x45, 6);
    for (end, place) in [from, to].into_iter().zip([0, 1]) {
        let IpAddr::V4(address) = end.ip() else {
            panic!("{end} is none of IPv4")
        };
        ip[12 + 4 * place..][..4].copy_from_slice(&address.octets());
        ip[20 + 2 * place..][..2].copy_from_slice(&end.port().to_be_bytes());
    }
    deal(flow_of(&frame), queues)
}

/// The same for both ways of a flow, and for all fragments of two hosts.
fn flow_of(frame: &[u8]) -> u64 {
    let ip = frame.get(14..).unwrap_or_default();
    let sum = |range: std::ops::Range<usize>| {
        let bytes = ip.get(range).unwrap_or_default().chunks(2);
        bytes.fold(0, |sum, two| {
            sum + two.iter().fold(0, |n, b| n << 8 | u64::from(*b))
        })
    };
    match ip.first().map(|b| b >> 4) {
        Some(4) if ip.get(6..8).is_some_and(|b| b[0] & 0x3f == 0 && b[1] == 0) => {
            sum(12..24) * 31 + u64::from(ip[9])
        }
        Some(4) => sum(12..20),
        Some(6) if matches!(ip.get(6), Some(6 | 17)) => sum(8..44) * 31 + u64::from(ip[6]),
        Some(6) => sum(8..40),
        _ => 0,
    }
}
