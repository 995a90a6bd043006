//! Accounting: whatever arrives is counted as taken in or as dropped for a reason, frame by frame, and every buffer comes home.

use std::{collections::VecDeque, time::Duration};

use netchan::{
    Clock, Net, Regime, Threads,
    link::{Link, LinkRx, LinkTx, wire},
    packet::Packet,
};
use percore::slab::Slab;

use crate::frames::{Ends, Random, corpus, mutate};

/// A stack with a listener and a bound UDP socket, and the bare other end of its wire.
struct Host {
    net: Net,
    clock: Clock,
    wire: wire::Wire,
    slab: Slab,
    ends: Ends,
    // Held open for the frames to meet a socket.
    _tcp: netchan::socket::TcpListener,
    udp: netchan::socket::UdpSocket,
}

impl Host {
    fn new(regime: Regime, seed: u64) -> Self {
        let (ours, theirs) = wire::pair(&wire::Options::default());
        let mac = ours.properties().mac.0;
        let clock = Clock::new_virtual();
        let builder = Net::builder()
            .link_with(Box::new(ours))
            .address("10.77.0.2/24")
            .and_then(|b| b.address("fd77::2/64"))
            .expect("addresses");
        let net = builder
            .regime(regime)
            .threads(Threads::Caller)
            .clock(clock.clone())
            .seed(seed)
            .start()
            .expect("a stack");
        let listener = net.tcp().listen("[::]:8000").expect("a listener");
        let socket = net.udp().bind("[::]:8000").expect("a socket");
        Self {
            net,
            clock,
            wire: theirs,
            slab: Slab::new(1024, 2048).expect("memory"),
            ends: Ends::new(mac),
            _tcp: listener,
            udp: socket,
        }
    }

    /// What came in counts as one of these: taken in by a protocol, or dropped.
    fn accounted(&self) -> u64 {
        let shown = self.net.show("counters").expect("counters");
        let rows = shown.as_array().expect("a list");
        let is_end = |name: &str| {
            name.starts_with("drop_")
                || matches!(
                    name,
                    "tcp_segments_in" | "udp_datagrams_in" | "icmp_in" | "arp_in" | "fragments_in"
                )
        };
        rows.iter()
            .filter(|row| row["name"].as_str().is_some_and(is_end))
            .filter_map(|row| row["value"].as_u64())
            .sum()
    }

    fn free(&self) -> Vec<(String, u64)> {
        let shown = self.net.show("memory").expect("memory");
        let rows = shown.as_array().expect("a list");
        // The accounts of sockets' memory, which have no `free`, keep a chunk claimed.
        rows.iter()
            .filter_map(|r| Some((format!("{} of {}", r["what"], r["of"]), r["free"].as_u64()?)))
            .collect()
    }

    /// Turns the stack until it is quiet, and throws away what it says.
    fn settle(&mut self) {
        let mut said = VecDeque::new();
        for _ in 0..64 {
            let moved = self.net.poll();
            let now = self.clock.now();
            let heard = self
                .wire
                .receive(now, &mut self.slab, &mut said, 32)
                .unwrap_or(0);
            said.clear();
            if !moved && heard == 0 {
                break;
            }
        }
    }

    /// Reads what waits in the UDP socket: small datagrams are copied, and lie in buffers of the shard until then.
    fn read_all(&self) {
        self.udp.set_nonblocking(true).expect("an option");
        while self.udp.recv_from(&mut [0; 2048]).is_ok() {}
    }

    fn take(&mut self, frame: &[u8]) {
        let mut packet = Packet::new(self.slab.alloc().expect("a buffer"), 0);
        packet.room_mut()[..frame.len()].copy_from_slice(frame);
        packet.set_len(frame.len());
        let mut burst = VecDeque::from([packet]);
        let sent = self.wire.transmit(self.clock.now(), &mut burst);
        assert_eq!(sent.expect("the wire takes it"), 1);
        self.settle();
    }
}

/// Sends `rounds` sets of frames, whole and broken; returns the frame that left no trace, if one did.
fn silent_loss(host: &mut Host, random: &mut Random, rounds: usize) -> Option<Vec<u8>> {
    for round in 0..rounds {
        host.ends.source[3] = 3 + random.byte() % 200;
        for frame in corpus(&host.ends, random) {
            let frame = if random.below(8) == 0 {
                frame
            } else {
                mutate(&frame, random)
            };
            if frame.len() < 14 || frame.len() > 1514 {
                continue;
            }
            let before = host.accounted();
            host.take(&frame);
            if host.accounted() == before {
                return Some(frame);
            }
        }
        if round % 8 == 7 {
            host.clock.advance(Duration::from_secs(1));
        }
    }
    None
}

#[test]
fn every_frame_is_taken_in_or_dropped_for_a_reason() {
    for seed in crate::seeds() {
        for regime in crate::regimes() {
            println!("seed {seed} {regime:?}");
            let mut host = Host::new(regime, seed);
            let before = host.free();
            let mut random = Random::new(seed);
            if let Some(frame) = silent_loss(&mut host, &mut random, 24) {
                panic!("seed {seed} {regime:?}: nothing was counted for {frame:02x?}");
            }
            // Half-open connections, fragments and unanswered neighbours all give up within three minutes.
            for _ in 0..1_800 {
                host.clock.advance(Duration::from_millis(100));
                host.settle();
            }
            host.read_all();
            assert_eq!(host.free(), before, "seed {seed} {regime:?}");
        }
    }
}
