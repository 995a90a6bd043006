//! Which shard a flow goes to.

use super::*;
use crate::assignment::ShardAssignment;

const PORT: u16 = 80;
// Flags, in the low byte of their word.
const SYN: u8 = 0x02;
const ACK: u8 = 0x10;
const RST: u8 = 0x04;

fn leasing(assignment: Option<&Arc<ShardAssignment>>, shards: usize) -> (HostView, Steer) {
    let host = host_with(|host, _| host.assignment = assignment.cloned());
    let placement = Placement::Lease {
        pending_opens: assignment.map(|_| PendingOpens::new(shards)),
        shards,
        flows: FlowTable::new(8).unwrap(),
    };
    (host, Steer::new(0, placement))
}

/// A segment, or a datagram with the same bytes, that stands at its IP header.
fn segment(protocol: Protocol, flags: u8, len: usize) -> Packet {
    let mut slab = Slab::new(1, 2048).unwrap();
    let mut packet = Packet::new(slab.alloc().unwrap(), 0);
    packet.set_len(ipv4::HEADER_LEN + len);
    packet.bytes_mut().fill(0);
    let mut bytes = [0; 20];
    (bytes[3], bytes[13]) = (PORT.to_be_bytes()[1], flags);
    packet.bytes_mut()[ipv4::HEADER_LEN..].copy_from_slice(&bytes[..len]);
    (packet.meta.protocol, packet.meta.upper) = (protocol, 20);
    packet
}

/// The highest shard by hash of three.
const HASH: u64 = u64::MAX;

/// RFC 9293 §3.5: a SYN begins a connection, and nothing that belongs to one. Where its port is bound it gets a shard of its own.
#[test]
fn what_begins_a_connection_gets_a_free_shard() {
    let free = |protocol, flags, len, bound: u16| {
        let assignment = Arc::new(ShardAssignment::new(3));
        let (host, mut steer) = leasing(Some(&assignment), 3);
        let packet = segment(protocol, flags, len);
        let shard = steer.place(&host, HASH, &packet, |port| port == bound, Instant::ZERO);
        let is_free = shard == 0;
        assert!(is_free || shard == 2, "else by its hash");
        assert_eq!(assignment.claim(), Some(usize::from(is_free)), "claimed");
        assert_eq!(steer.leased(HASH), is_free.then_some(0));
        is_free
    };
    assert!(free(Protocol::TCP, SYN, 20, PORT));
    assert!(free(Protocol::TCP, SYN | 0xc0, 20, PORT), "with ECN");
    for flags in [0, ACK, RST, SYN | ACK, SYN | RST] {
        assert!(!free(Protocol::TCP, flags, 20, PORT), "{flags:#x}");
    }
    assert!(
        !free(Protocol::TCP, SYN, 20, PORT + 1),
        "no socket is there"
    );
    assert!(!free(Protocol::UDP, SYN, 20, PORT));
    assert!(!free(Protocol::TCP, SYN, 12, PORT), "cut off");
}

#[test]
fn without_places_a_connection_begins_by_its_hash() {
    let (host, mut steer) = leasing(None, 3);
    let packet = segment(Protocol::TCP, SYN, 20);
    let shard = steer.place(&host, HASH, &packet, |_| true, Instant::ZERO);
    assert_eq!((shard, steer.leased(HASH)), (2, None));
}

/// Datagram sockets live where their port does, connections where their flow is leased.
#[test]
fn an_error_goes_where_its_flow_lives() {
    let assignment = Arc::new(ShardAssignment::new(3));
    assignment.publish(0, 1);
    assignment.settle_port(53);
    assert_eq!(assignment.of_port(53), 1);
    let (host, mut steer) = leasing(Some(&assignment), 3);
    let key = |protocol| FlowKey {
        protocol,
        ..FlowKey::between("10.0.0.2", "10.0.0.9")
    };
    let of = |steer: &Steer, protocol, port| {
        let key = FlowKey {
            local_port: port,
            ..key(protocol)
        };
        steer.shard_of_key(&host, &key, HASH)
    };
    assert_eq!(of(&steer, Protocol::UDP, 53), 1);
    assert_eq!(of(&steer, Protocol::UDP, 54), 0, "no socket's");
    assert_eq!(of(&steer, Protocol::TCP, 53), 2, "by its hash");
    assert!(steer.heed(Request::Add(HASH), 0));
    assert_eq!(of(&steer, Protocol::TCP, 53), 0);
    // Where sockets have no places, datagrams go by their hash, too.
    let (host, steer) = leasing(None, 3);
    assert_eq!(steer.shard_of_key(&host, &key(Protocol::UDP), HASH), 2);
}

/// A shard that says the flow is its own keeps it: it is no opening any more that others may have after a second.
#[test]
fn a_flow_that_its_shard_took_is_kept() {
    let assignment = Arc::new(ShardAssignment::new(1));
    for takes in [true, false] {
        assignment.publish(0, 0);
        let (host, mut steer) = leasing(Some(&assignment), 1);
        let packet = segment(Protocol::TCP, SYN, 20);
        let begin = |steer: &mut Steer, hash, at: u64| {
            steer.place(&host, hash, &packet, |_| true, Instant(at * 1_000_000_000))
        };
        begin(&mut steer, HASH, 0);
        assert_eq!(steer.leased(HASH), Some(0));
        assert!(!takes || steer.heed(Request::Add(HASH), 0));
        begin(&mut steer, HASH - 1, 2);
        assert_eq!(steer.leased(HASH), takes.then_some(0));
        assert_eq!(steer.leased(HASH - 1), (!takes).then_some(0));
    }
}

/// Of several queues, each places what begins there in the shards of its lane, all of them; what has been leased stays where it is.
#[test]
fn what_no_shard_has_leased_goes_to_the_lane_of_its_queue() {
    let (shards, of) = (5, 2);
    for number in 0..of {
        let (host, steer) = leasing(None, shards);
        let mut steer = steer.of_queue(NthQueue { number, of });
        let packet = segment(Protocol::TCP, SYN, 20);
        let mut used = [0; 5];
        for n in 0..1000_u64 {
            let hash = n.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
            let shard = steer.place(&host, hash, &packet, |_| true, Instant::ZERO);
            assert_eq!(shard % of, number);
            used[shard] += 1;
        }
        let of_lane = (number..shards).step_by(of);
        let least = 800 / of_lane.clone().count();
        assert!(of_lane.clone().all(|shard| used[shard] > least), "{used:?}");
        let other = (number + 1) % of;
        assert!(steer.heed(Request::Add(HASH), other));
        assert_eq!(steer.leased(HASH), Some(other));
    }
}

#[test]
fn without_a_table_there_is_nothing_to_heed() {
    for placement in [Placement::Single, Placement::Hash { shards: 3 }] {
        let mut steer = Steer::new(0, placement);
        assert!(steer.heed(Request::Add(HASH), 0) && steer.heed(Request::Remove(HASH), 0));
        assert_eq!((steer.flows(), steer.leased(HASH)), (None, None));
    }
    // A shard that no entry can name is refused.
    let (_, mut steer) = leasing(None, 3);
    assert!(!steer.heed(Request::Add(HASH), 1 << 16));
    assert_eq!(steer.flows(), Some(0));
}

/// What was found out for a flow holds while the addresses do.
#[test]
fn a_run_ends_with_the_addresses() {
    let (before, mut steer) = (host(), Steer::new(0, Placement::Single));
    let after = host_with(|_, live| {
        let net = Arc::make_mut(&mut live.net);
        net.interfaces = vec![interface(0, &["10.0.0.3/24"])];
    });
    let frame = {
        let mut frame = [&MAC[..], &[2, 0, 0, 0, 0, 9], &[8, 0]].concat();
        frame.resize(ethernet::HEADER_LEN + ipv4::HEADER_LEN + 20, 0x11);
        let header = ipv4::Header::new(Protocol::UDP, [10, 0, 0, 9].into(), [10, 0, 0, 2].into());
        header.emit(20, &mut frame[ethernet::HEADER_LEN..]);
        frame
    };
    let mut slab = Slab::new(1, 2048).unwrap();
    let mut verdict = |steer: &mut Steer, host: &HostView| {
        let mut packet = Packet::new(slab.alloc().unwrap(), 0);
        packet.set_len(frame.len());
        packet.bytes_mut().copy_from_slice(&frame);
        steer.classify(host, &mut packet)
    };
    for _ in 0..2 {
        assert_eq!(verdict(&mut steer, &before), Verdict::Shard(0));
    }
    steer.forget();
    let gone = Verdict::Drop(Counter::DropIpDestination);
    assert_eq!(verdict(&mut steer, &after), gone);
}
