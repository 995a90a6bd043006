//! A link of one's own: what is sent comes back, counted. Names nothing but `netchan`.

use std::{
    collections::VecDeque,
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
        mpsc::{Receiver, SyncSender, TrySendError, sync_channel},
    },
    time::Duration,
};

use netchan::{
    Doorbell, Instant, MacAddr, Net, Slab,
    link::{
        FRAME_OVERHEAD, Link, LinkError, LinkRx, LinkTx, Properties, Queue, RxStatistics,
        Segmentation, TxStatistics,
    },
    packet::{Meta, Packet},
};

struct Mirror {
    properties: Properties,
    frames: Arc<AtomicU64>,
}

impl Mirror {
    fn new(frames: Arc<AtomicU64>) -> Self {
        let properties = Properties {
            name: "mirror".into(),
            kind: "mirror",
            mac: MacAddr([2, 0, 0, 0, 0, 1]),
            mtu: 1500,
            frame_max: 1500 + FRAME_OVERHEAD,
            segmentation: Segmentation::None,
        };
        Self { properties, frames }
    }
}

impl Link for Mirror {
    fn properties(&self) -> &Properties {
        &self.properties
    }
    fn start(self: Box<Self>, bells: &[Arc<Doorbell>]) -> io::Result<Vec<Queue>> {
        let (tx, rx) = sync_channel(64);
        let (bell, frames) = (bells[0].clone(), self.frames);
        Ok(vec![Queue {
            rx: Box::new(Rx(rx)),
            tx: Box::new(Tx { tx, bell, frames }),
        }])
    }
}

struct Rx(Receiver<Packet>);

impl LinkRx for Rx {
    fn receive(
        &mut self,
        _: Instant,
        _: &mut Slab,
        burst: &mut VecDeque<Packet>,
        max: usize,
    ) -> Result<usize, LinkError> {
        let before = burst.len();
        burst.extend(self.0.try_iter().take(max).map(|mut packet| {
            packet.meta = Meta::default(); // nothing is known of what comes in
            packet
        }));
        Ok(burst.len() - before)
    }
    fn statistics(&self) -> RxStatistics {
        RxStatistics::default()
    }
}

struct Tx {
    tx: SyncSender<Packet>,
    bell: Arc<Doorbell>,
    frames: Arc<AtomicU64>,
}

impl LinkTx for Tx {
    fn transmit(&mut self, _: Instant, frames: &mut VecDeque<Packet>) -> Result<usize, LinkError> {
        let offered = frames.len();
        while let Some(packet) = frames.pop_front() {
            if let Err(TrySendError::Full(packet) | TrySendError::Disconnected(packet)) =
                self.tx.try_send(packet)
            {
                frames.push_front(packet); // the stack keeps it, and offers it again
                break;
            }
        }
        let taken = offered - frames.len();
        self.frames.fetch_add(taken as u64, Relaxed);
        if taken > 0 {
            self.bell.ring();
        }
        Ok(taken)
    }
    fn statistics(&self) -> TxStatistics {
        TxStatistics::default()
    }
}

fn main() -> io::Result<()> {
    let frames = Arc::new(AtomicU64::new(0));
    let net = Net::builder()
        .link_with(Box::new(Mirror::new(frames.clone())))
        .address("10.0.0.1/24")?
        .start()?;
    // No host has this address: the question for it comes back, and is no answer.
    let peer = ([10, 0, 0, 9], 80).into();
    let refused = net.tcp().connect_timeout(peer, Duration::from_millis(200));
    println!(
        "no connection: {}; {} frames were sent",
        refused
            .as_ref()
            .err()
            .map_or_else(String::new, ToString::to_string),
        frames.load(Relaxed)
    );
    assert!(refused.is_err() && frames.load(Relaxed) > 0);
    Ok(())
}
