//! Very many sockets that wait for buffers: what a turn does about them does not grow with their number.

use std::task::Waker;

use super::*;
use crate::{
    Net, Threads,
    link::wire,
    socket::{Domain, Kind, Socket},
};

const SOCKETS: usize = 2_000;

/// Sockets of a stack, all of which wait since no buffer is left; and the buffers.
fn starved(check: impl FnOnce(&mut Shard, &[u32], &mut Vec<percore::slab::Buffer>) + Send) {
    let (a, _b) = wire::pair(&wire::Options::default());
    let builder = Net::builder()
        .threads(Threads::Caller)
        .link_with(Box::new(a));
    let net = builder.address("10.0.0.1/24").unwrap().start().unwrap();
    let bound = |_| {
        let socket = Socket::new(&net, Domain::V4, Kind::Datagram).unwrap();
        socket.bind("10.0.0.1:0".parse().unwrap()).unwrap();
        socket
    };
    let sockets: Vec<Socket> = (0..SOCKETS).map(bound).collect();
    net.stack().with_shard(0, |shard, _| {
        let numbers: Vec<u32> = shard.udp_sockets().map(|(number, _)| number).collect();
        assert_eq!(numbers.len(), SOCKETS);
        let mut taken: Vec<_> = std::iter::from_fn(|| shard.slab.alloc()).collect();
        for &number in &numbers {
            assert!(!shard.udp_register(number, Readiness::WRITABLE, Waker::noop()));
            assert!(!shard.udp_has_buffers(number), "asked twice, it waits once");
        }
        check(shard, &numbers, &mut taken);
        taken.clear();
        while !shard.udp_waiting.is_empty() {
            shard.udp_wake_senders();
        }
    });
    drop(sockets);
}

fn waiting(shard: &Shard) -> usize {
    shard.udp.iter().filter(|(_, socket)| socket.waits).count()
}

#[test]
fn a_buffer_is_for_one_and_few_are_looked_at() {
    starved(|shard, _, taken| {
        assert_eq!(shard.udp_wake_senders(), 0, "no buffer: no look");
        let mut looks = 0;
        for left in (0..500).rev() {
            drop(taken.pop());
            looks += shard.udp_wake_senders();
            assert_eq!(waiting(shard), SOCKETS - (500 - left), "one more goes on");
            taken.push(shard.slab.alloc().expect("whose turn it is takes it"));
        }
        assert_eq!(looks, 500, "a look for each that goes on");
    });
}

#[test]
fn a_sender_that_needs_many_keeps_no_other_waiting() {
    starved(|shard, numbers, taken| {
        // All but the last hundred need more than there will be.
        let (greedy, modest) = numbers.split_at(SOCKETS - 100);
        for &number in greedy {
            shard.udp_lacks(number, 50);
        }
        taken.truncate(taken.len() - 40);
        let mut turns = 0;
        while modest.iter().any(|&n| shard.udp.get(n).unwrap().waits) {
            turns += 1;
            assert!(shard.udp_wake_senders() <= limits::SENDERS_A_TURN);
            assert!(
                turns <= SOCKETS.div_ceil(limits::SENDERS_A_TURN) + 3,
                "round by round"
            );
        }
        assert_eq!(waiting(shard), greedy.len());
    });
}

/// Sockets that wait, and are closed: the list does not grow.
#[test]
fn a_sender_that_is_gone_is_forgotten() {
    starved(|shard, numbers, _| {
        for _ in 0..20 {
            for &number in &numbers[..1_000] {
                if let Some(socket) = shard.udp.get_mut(number) {
                    socket.waits = false; // as another one that has its number
                }
                shard.udp_has_buffers(number);
                assert!(shard.udp_waiting.len() <= 2 * SOCKETS);
            }
        }
        assert_eq!(waiting(shard), SOCKETS);
    });
}
