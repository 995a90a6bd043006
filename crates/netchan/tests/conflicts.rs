//! Another station has an address of ours (RFC 5227 §2.4, RFC 4862 §5.4): it is noticed, counted, reported and defended, in virtual time.

use std::{
    collections::VecDeque,
    net::{Ipv4Addr, Ipv6Addr},
    time::Duration,
};

use netchan::{
    Clock, Net, Regime, Threads,
    link::{LinkRx, LinkTx, wire},
    packet::Packet,
};
use percore::slab::Slab;
use proto::{
    neighbor::{arp, ndp},
    wire::{
        arp as wire_arp,
        ethernet::{self, EtherType, MacAddr},
    },
};

const OTHER: MacAddr = MacAddr([2, 0, 0, 0, 0, 99]);
const OURS: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const OURS_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2);

struct Segment {
    wire: wire::Wire,
    slab: Slab,
    clock: Clock,
    net: Net,
}

impl Segment {
    fn new(regime: Regime) -> Self {
        let clock = Clock::new_virtual();
        let (wire, far) = wire::pair(&wire::Options::default());
        let builder = Net::builder().link_with(Box::new(far)).regime(regime);
        let builder = builder.address("10.0.0.2/24").unwrap();
        let builder = builder.address("fd00::2/64").unwrap();
        let builder = builder.threads(Threads::Caller).clock(clock.clone());
        let mut new = Self {
            net: builder.seed(5).start().unwrap(),
            slab: Slab::new(256, 2048).unwrap(),
            wire,
            clock,
        };
        new.pass(Duration::from_secs(5)); // announcements
        new
    }

    /// Time goes by; the frames that came meanwhile.
    fn pass(&mut self, time: Duration) -> Vec<Vec<u8>> {
        let until = self.clock.now() + time;
        let (mut burst, mut heard) = (VecDeque::new(), Vec::new());
        loop {
            let now = self.clock.now();
            while self.net.poll() {}
            self.wire
                .receive(now, &mut self.slab, &mut burst, 64)
                .unwrap();
            heard.extend(burst.drain(..).map(|frame| frame.bytes().to_vec()));
            if now >= until {
                return heard;
            }
            self.clock.advance(Duration::from_millis(100));
        }
    }

    /// A frame from the other station, and what the stack sends within a second.
    fn say(
        &mut self,
        to: MacAddr,
        kind: EtherType,
        fill: impl FnOnce(&mut [u8]) -> usize,
    ) -> Vec<Vec<u8>> {
        let mut frame = Packet::new(self.slab.alloc().unwrap(), 0);
        let (head, body) = frame.room_mut().split_at_mut(ethernet::HEADER_LEN);
        ethernet::Header::new(to, OTHER, kind).emit(head);
        let len = ethernet::HEADER_LEN + fill(body);
        frame.set_len(len);
        let now = self.clock.now();
        self.wire
            .transmit(now, &mut VecDeque::from([frame]))
            .unwrap();
        self.pass(Duration::from_secs(1))
    }

    fn arp(&mut self, message: &wire_arp::Packet) -> Vec<Vec<u8>> {
        self.say(MacAddr::BROADCAST, EtherType::ARP, |body| {
            message.emit(body)
        })
    }

    fn ndp(&mut self, message: &ndp::Outgoing) -> Vec<Vec<u8>> {
        let to = MacAddr::from_multicast_v6(message.destination);
        self.say(to, EtherType::IPV6, |body| message.emit(body))
    }

    fn conflicts(&self) -> u64 {
        let counters = self.net.show("counters").unwrap();
        let row = counters
            .as_array()
            .and_then(|rows| rows.iter().find(|row| row["name"] == "address_conflicts"));
        row.map_or(0, |row| row["value"].as_u64().unwrap())
    }
}

/// Whether `frame` announces our IPv4 address (RFC 5227 §2.3).
fn announces(frame: &[u8]) -> bool {
    frame.get(12..14) == Some(&[8, 6])
        && wire_arp::Packet::parse(&frame[14..])
            .is_ok_and(|m| m.sender_ip == OURS && m.target_ip == OURS && m.sender_mac != OTHER)
}

/// Whether `frame` advertises our IPv6 address to all nodes.
fn advertises(frame: &[u8]) -> bool {
    frame.get(12..14) == Some(&[0x86, 0xdd])
        && frame.get(54) == Some(&136)
        && frame.get(62..78) == Some(&OURS_V6.octets())
}

const REGIMES: [Regime; 3] = [Regime::AppChannel, Regime::Locked, Regime::PerCpu];

#[test]
fn a_station_with_our_ipv4_address_is_noticed_and_answered_once() {
    for regime in REGIMES {
        let mut segment = Segment::new(regime);
        assert_eq!(segment.conflicts(), 0, "{regime}");
        // Its announcement; a request and an answer of its to others: each says that it has our address.
        let request = arp::request(OTHER, OURS, Ipv4Addr::new(10, 0, 0, 7));
        let answer = wire_arp::Packet {
            operation: wire_arp::Operation::Reply,
            ..request
        };
        let messages = [arp::announcement(OTHER, OURS), request, answer];
        for (number, message) in messages.iter().enumerate() {
            let heard = segment.arp(message);
            assert_eq!(segment.conflicts(), number as u64 + 1, "{regime}");
            // The defence comes once: two that defend for ever would fill the network (RFC 5227 §2.4 (b)).
            let defended = heard.iter().filter(|frame| announces(frame)).count();
            assert_eq!(defended, usize::from(number == 0), "{regime}");
        }
    }
}

#[test]
fn questions_for_our_address_are_no_conflict() {
    let mut segment = Segment::new(Regime::AppChannel);
    let asker = Ipv4Addr::new(10, 0, 0, 7);
    assert_eq!(segment.arp(&arp::request(OTHER, asker, OURS)).len(), 1);
    assert_eq!(segment.arp(&arp::probe(OTHER, OURS)).len(), 1);
    assert_eq!(segment.ndp(&ndp::probe(OURS_V6)).len(), 1);
    assert_eq!(segment.conflicts(), 0);
}

#[test]
fn a_station_with_our_ipv6_address_is_noticed_and_answered() {
    for regime in REGIMES {
        let mut segment = Segment::new(regime);
        let heard = segment.ndp(&ndp::advertisement(OURS_V6, OTHER, None));
        assert_eq!(segment.conflicts(), 1, "{regime}");
        assert_eq!(
            heard.iter().filter(|f| advertises(f)).count(),
            1,
            "{regime}"
        );
        segment.ndp(&ndp::advertisement(OURS_V6, OTHER, None));
        assert_eq!(segment.conflicts(), 2, "{regime}");
        // It asks for the host with an address of ours, with one of ours.
        let ask = ndp::solicitation(OTHER, OURS_V6, OURS_V6, None);
        segment.ndp(&ask);
        assert_eq!(segment.conflicts(), 3, "{regime}");
        // Our own message that a bridge sends back tells nothing.
        let own = MacAddr(heard[0][6..12].try_into().unwrap());
        segment.ndp(&ndp::advertisement(OURS_V6, own, None));
        assert_eq!(segment.conflicts(), 3, "{regime}");
    }
}
