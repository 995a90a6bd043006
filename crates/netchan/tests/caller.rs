//! Stacks without threads: each call does what there is to do.

use std::{
    io::{IoSlice, IoSliceMut},
    time::Duration,
};

use netchan::{
    Clock, Net, Regime, Threads,
    link::wire,
    socket::{Domain, Kind, ReceiveFlags, Socket},
};

/// A program that writes, and does nothing else, takes in the acknowledgments by its writes: the window does not fill while there is room in the send
/// buffer, so that no write finds that out.
#[test]
fn writes_take_in_acknowledgments() {
    const PIECE: usize = 1000;
    const PIECES: usize = 100;
    for regime in Regime::ALL {
        let clock = Clock::new_virtual();
        let (near, far) = wire::pair(&wire::Options::default());
        let [sender, receiver] = [(near, "10.0.0.1/24"), (far, "10.0.0.2/24")].map(|(end, own)| {
            let net = Net::builder().regime(regime).threads(Threads::Caller);
            let net = net.link_with(Box::new(end)).address(own).unwrap();
            net.clock(clock.clone()).start().unwrap()
        });
        let listener = Socket::new(&receiver, Domain::V4, Kind::Stream).unwrap();
        listener.bind("10.0.0.2:80".parse().unwrap()).unwrap();
        listener.listen(1).unwrap();
        let client = Socket::new(&sender, Domain::V4, Kind::Stream).unwrap();
        let _ = client.connect("10.0.0.2:80".parse().unwrap()); // under way
        while sender.poll() | receiver.poll() {}
        let (server, _) = listener.accept().unwrap();
        while sender.poll() | receiver.poll() {}

        let mut there = 0;
        for _ in 0..PIECES {
            clock.advance_to(clock.now() + Duration::from_micros(200));
            client.send(&[IoSlice::new(&[7; PIECE])], None).unwrap();
            // The other end has a loop of its own.
            while receiver.poll() {}
            let mut room = vec![0; 64 << 10];
            let got = server.receive(&mut [IoSliceMut::new(&mut room)], ReceiveFlags::default());
            there += got.map_or(0, |got| got.len);
        }
        // Four segments at most are on their way.
        assert!(
            there + 4 * PIECE >= PIECES * PIECE,
            "{regime}: {there} bytes arrived"
        );
    }
}
