//! Interrupt moderation (D6), for the experiment `interrupts`: a stack's own link thread, woken by each packet and once in a while.

use std::{
    collections::VecDeque,
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{Arc, mpsc},
    time::Duration,
};

use netchan::{
    Net, Regime,
    link::{
        Link, LinkError, LinkRx, LinkTx, Properties, Queue, RxStatistics, Segmentation,
        TxStatistics,
    },
    packet::Packet,
};
use percore::{doorbell::Doorbell, slab::Slab};
use proto::{time::Instant, wire::ethernet::MacAddr};
use rustix::{
    io::Errno,
    net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair},
};

use super::{Bench, Player, per_operation};
use crate::{
    experiment::LabError,
    kit::{Stopwatch, process_seconds, processor_seconds},
    report::Row,
};

/// Seconds between two packets: ten of them in the shorter of the times below.
const PACE: f64 = 5e-6;
/// Longer pauses are slept.
const SPIN: f64 = 50e-6;
const OFF: &str = "off";
const SHORT: &str = "50 us";
const LONG: &str = "200 us";

/// A link whose frames come over a socket pair: one system call each, and a descriptor to sleep on, as a TAP has.
struct Socket {
    properties: Properties,
    socket: OwnedFd,
    rx: RxStatistics,
    tx: TxStatistics,
}

const MTU: usize = 1500;
const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
/// An EtherType for experiments (IEEE 802, local experimental 1): no protocol of ours, so that the stack classifies it and is done.
const FRAME: [u8; 64] = {
    let mut frame = [0; 64];
    (frame[0], frame[5], frame[6], frame[11]) = (MAC[0], MAC[5], 2, 2);
    (frame[12], frame[13]) = (0x88, 0xb5);
    frame
};

impl Socket {
    fn new(socket: OwnedFd) -> Self {
        let properties = Properties {
            name: "socket".into(),
            kind: "socket",
            mac: MacAddr(MAC),
            mtu: MTU,
            frame_max: 2048,
            segmentation: Segmentation::None,
        };
        Self {
            properties,
            socket,
            rx: RxStatistics::default(),
            tx: TxStatistics::default(),
        }
    }
}

impl Link for Socket {
    fn properties(&self) -> &Properties {
        &self.properties
    }

    fn start(self: Box<Self>, _bells: &[Arc<Doorbell>]) -> io::Result<Vec<Queue>> {
        Ok(vec![Queue::of_one(*self)?])
    }
}

impl LinkRx for Socket {
    fn receive(
        &mut self,
        _now: Instant,
        slab: &mut Slab,
        burst: &mut VecDeque<Packet>,
        max: usize,
    ) -> Result<usize, LinkError> {
        for n in 0..max {
            let Some(buffer) = slab.alloc() else {
                return Ok(n);
            };
            let mut packet = Packet::new(buffer, 0);
            match recv(&self.socket, packet.room_mut(), RecvFlags::DONTWAIT) {
                Ok((0, _)) => return Err(LinkError::Ended("its other end was closed".into())),
                Ok((len, _)) => packet.set_len(len),
                Err(Errno::AGAIN | Errno::INTR) => return Ok(n),
                Err(e) => return Err(LinkError::Io(e.into())),
            }
            self.rx.packets += 1;
            self.rx.bytes += packet.len() as u64; // widening
            burst.push_back(packet);
        }
        Ok(max)
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.as_fd())
    }

    fn statistics(&self) -> RxStatistics {
        self.rx
    }
}

impl LinkTx for Socket {
    fn transmit(
        &mut self,
        _now: Instant,
        frames: &mut VecDeque<Packet>,
    ) -> Result<usize, LinkError> {
        let taken = frames.len();
        self.tx.errors += taken as u64; // widening; no link listens
        frames.clear();
        Ok(taken)
    }

    fn statistics(&self) -> TxStatistics {
        self.tx
    }
}

/// A fact of the stack's only link.
fn fact(net: &Net, name: &str) -> f64 {
    let links = net.show("links").unwrap_or_default();
    links[0][name].as_f64().unwrap_or(0.0)
}

/// Sends `packets`, one every `pace` seconds, to a stack with so much moderation, whose threads are on `cores[0]`: its processor time for each packet
/// (ns), and its wake-ups for each.
fn stream(
    bench: &Bench,
    cores: [usize; 2],
    moderation: Duration,
    (packets, pace): (usize, f64),
) -> Result<[f64; 2], LabError> {
    let (here, there) = socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET, // datagrams' queue may be ten deep only
        SocketFlags::CLOEXEC,
        None,
    )
    .map_err(std::io::Error::from)?;
    let (tell, told) = mpsc::channel();
    let (begin, go) = mpsc::channel::<()>();
    let generate = move || {
        if go.recv().is_err() {
            return; // no stack
        }
        let (start, watch) = (processor_seconds(), Stopwatch::start());
        let mut due = 0.0;
        for _ in 0..packets {
            if pace > SPIN {
                std::thread::sleep(Duration::from_secs_f64(pace));
            }
            while watch.seconds() < due {
                std::hint::spin_loop();
            }
            due += pace;
            if send(&there, &FRAME, SendFlags::NOSIGNAL).is_err() {
                break;
            }
        }
        let _ = tell.send((processor_seconds() - start, there));
    };
    // Takes `begin` along: where it fails, the generator hears of it.
    let receive = move || -> Result<[f64; 2], LabError> {
        let net = Net::builder()
            .link_with(Box::new(Socket::new(here)))
            .address("10.0.0.1/24")?
            .regime(Regime::Locked)
            .moderation(moderation)
            .start()?;
        let before = process_seconds();
        let _ = begin.send(());
        let (generator, _open) = told.recv().map_err(|e| LabError::Failed(e.to_string()))?;
        while fact(&net, "rx_packets") < count(packets) {
            std::thread::sleep(Duration::from_micros(200));
        }
        let processor = process_seconds() - before - generator;
        Ok([
            per_operation(processor, packets),
            fact(&net, "wakeups") / count(packets),
        ])
    };
    bench.together(cores, receive, generate)
}

#[allow(clippy::cast_precision_loss)] // thousands
const fn count(packets: usize) -> f64 {
    packets as f64
}

/// The rows: off, and two settings.
pub(super) fn rows(bench: &Bench, cores: [usize; 2]) -> Result<Vec<Row>, LabError> {
    let packets = (bench.work / 100).clamp(20, 10_000);
    let settings = [(OFF, 0), (SHORT, 50), (LONG, 200)];
    // What fails, fails in the first turn already.
    stream(bench, cores, Duration::ZERO, (1, PACE))?;
    let players = settings.map(|(name, us)| {
        Player::own_of(name, move || {
            let terms = (packets, PACE);
            let figures = stream(bench, cores, Duration::from_micros(us), terms);
            figures.unwrap_or([f64::INFINITY; 2])
        })
    });
    let [processor, wakeups] = bench.contest_of(players.into());
    let mut rows = Vec::new();
    for ((name, us), id) in settings.into_iter().zip(["off", "50us", "200us"]) {
        let row = processor.bare_row(&format!("moderation_{id}_per_packet_ns"), name);
        rows.push(if us == 0 {
            row.reference("2500 (D6)")
        } else {
            row
        });
        rows.push(wakeups.bare_row(&format!("moderation_{id}_wakeups_per_packet_ratio"), name));
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// However slow the machine is: between two wake-ups by packets lies the time that was set.
    #[test]
    fn packets_wake_the_link_once_in_a_while() {
        let (bench, cores) = (Bench::tiny(), [crate::kit::cores()[0]; 2]);
        let (least, packets) = (Duration::from_millis(5), 200);
        let wakeups = |least| {
            let [_, each] = stream(&bench, cores, least, (packets, 200e-6)).unwrap();
            each * count(packets)
        };
        assert!(wakeups(Duration::ZERO) > 0.0, "packets wake it");
        let watch = Stopwatch::start();
        let moderated = wakeups(least);
        let most = watch.seconds() / least.as_secs_f64() + 1.0;
        assert!(moderated <= most, "{moderated} wake-ups, not {most}");
    }
}
