//! Every bound of the stack, as sums that can be audited. All of them are settings' defaults or hard maxima.

use std::{ops::RangeInclusive, time::Duration};

use proto::icmp::limit;

/// Packets handed over at a time. 32: lab/experiments will say.
pub const BURST: usize = 32;
/// Shards that a stack can have: a bit each of a word (`channel::BackgroundPoller`).
pub const SHARDS_MAX: usize = 64;
/// Hosts with a path narrower than their link that a shard remembers for connections to come.
pub const PATHS: usize = 256;
/// Peers whose Fast Open cookies a shard remembers.
pub const FAST_OPEN_PEERS: usize = 256;
/// Connections a shard can hold, embryonic ones included, and as many in TIME-WAIT. 262,144 × about 1 KiB = 256 MiB if all are used;
/// what is not used is address space.
pub const CONNECTIONS_PER_SHARD: usize = 262_144;
/// Flows of a shard before its table of them grows: flows lie anywhere in it, so that a large one costs memory also where few are open.
pub const FLOWS_AT_FIRST: usize = 65_536;
/// What a shard of a single socket has room for: it may have to take more than one, where there are more sockets than shards.
/// 4,096 connections × 64 shards are four times what one shard takes; transmit buffers for a window of 1 MiB, which a wire in memory hands
/// to the receiver as they are; and as many send buffers as take less than a huge page (2 MiB), which the system would back as a whole.
pub const SOCKET_SHARD: Room = Room {
    connections: 4_096,
    transmit: 1_024,
    transmit_large: 128,
    ready: 32,
    send_buffers: 7,
    shelf: [1_024, 1_024, 128],
};
/// What any other has room for.
pub const SHARD: Room = Room {
    connections: CONNECTIONS_PER_SHARD,
    transmit: TRANSMIT_SLAB,
    transmit_large: TRANSMIT_SLAB_LARGE,
    ready: TRANSMIT_SLAB,
    send_buffers: 256,
    shelf: [32_768, 16_384, 2_048],
};
/// Bytes that a connection may always hold, whatever others do: what its window offers at least. As Linux (the first of tcp_rmem).
pub const LITTLE: u32 = 4096;
/// Bytes of received data that a connection keeps for its application in the beginning, unless SO_RCVBUF says otherwise: as Linux.
pub const RECEIVE_BUFFER: u32 = 128 << 10;
/// What that grows to with what the application takes (R4), unless the setting says otherwise: as Linux. 500 Mbit/s over 50 ms.
pub const RECEIVE_BUFFER_MAX: u32 = 6 << 20;
/// Bytes of a stream's send buffer in the beginning: two windows of a 10 Gbit/s path with 100 µs.
pub const SEND_BUFFER: usize = 256 << 10;
/// What that grows to with the congestion window, unless the setting or SO_SNDBUF says otherwise.
pub const SEND_BUFFER_MAX: usize = 8 << 20;
/// What a setting may make of either: a send queue counts its bytes in 32 bits, and no window is wider (RFC 7323 §2.3).
pub const SEND_BUFFER_LIMIT: usize = 1 << 30;
/// What a send queue is made of: a chunk for each so many bytes, so that what it holds is what it takes. A full burst lies in two.
pub const SEND_CHUNK: usize = 64 << 10;
/// Bytes of a segment that a receive queue is expected to hold at least: what many segments its buffer may consist of.
pub const SEGMENT_EXPECTED: u32 = 1024;
/// Local ports that connect(2) and bind(2) choose from: as Linux (RFC 6056 would allow 1024–65535).
pub const EPHEMERAL_PORTS: RangeInclusive<u16> = 32_768..=60_999;
/// How often bind(2) draws another port, because connections have those it drew: with nine of ten in use it fails once in a million times.
pub const BIND_TRIES: usize = 128;
/// IPv4 groups that one socket can be in: as Linux (igmp_max_memberships).
pub const MEMBERSHIPS: usize = 20;
/// IPv6 groups that one socket can be in. Linux's only limit is the memory of its options.
pub const MEMBERSHIPS_V6: usize = 64;
/// Sources that a socket's filter for one IPv4 group names: as Linux (igmp_max_msf).
pub const GROUP_SOURCES: usize = 10;
/// Sources that a socket's filter for one IPv6 group names (mld_max_msf).
pub const GROUP_SOURCES_V6: usize = 64;
/// Buffers of a shard for datagrams to groups that several sockets hear; address space until they are used.
pub const GROUP_SLAB: usize = 1_024;
/// Such buffers for what was put together from fragments, 64 KiB each.
pub const GROUP_SLAB_LONG: usize = 32;
/// UDP sockets of a shard.
pub const UDP_SOCKETS_PER_SHARD: usize = 4_096;
/// Listeners of a shard.
pub const LISTENERS_PER_SHARD: usize = 1_024;
/// Handshakes in progress for one listener (SYN queue), at most.
pub const SYN_QUEUE: usize = 1_024;
/// Of a listener with a small backlog, before SYNs are answered with cookies.
pub const SYN_QUEUE_LEAST: usize = 64;
/// Largest backlog of listen(2): as Linux's somaxconn.
pub const BACKLOG_MAX: usize = 4_096;
/// All UDP sockets together hold at most this part (1/n) of what receive queues may have of the slabs.
pub const UDP_SHARE: usize = 4;
/// Bytes that a datagram which waits is counted with beside its payload, against twice SO_RCVBUF (Linux doubles it, too, and counts
/// 512 to 768): the default holds 512 empty ones, or 132 of Ethernet's size.
pub const UDP_OVERHEAD: usize = 512;
/// Datagrams that wait in one part of a UDP socket, whatever SO_RCVBUF says: more than all sockets may have of one link's buffers.
pub const UDP_QUEUE_MAX: usize = RECEIVE_SLAB * QUEUED_EIGHTHS / 8 / UDP_SHARE;
/// Errors that wait in one UDP socket with IP_RECVERR, and bytes of payload that they hold together: 16 datagrams of Ethernet's
/// size, or what four times as many ICMP errors of IPv4 quote at most.
pub const UDP_ERRORS: usize = 64;
/// See [`UDP_ERRORS`].
pub const UDP_ERROR_BYTES: usize = 24 << 10;
/// Time stamps of sends that wait for a socket's program, and as many sends that wait for them.
pub const SEND_NOTICES: usize = 256;
/// Bytes of the packets that they show: two stamps of the longest datagram fit.
pub const SEND_NOTICE_BYTES: usize = 2 * (66 << 10);
/// UDP sockets without buffers that a turn looks at: with every socket of a shard waiting, each has its look after 64 turns.
pub const SENDERS_A_TURN: usize = 64;
/// Datagrams that one send with UDP_SEGMENT may make: as Linux (UDP_MAX_SEGMENTS).
pub const UDP_SEGMENTS: usize = 128;
/// Datagrams that one receive with UDP_GRO may bring: as Linux (UDP_GRO_CNT_MAX).
pub const UDP_MERGED: usize = 64;
/// Bytes that these have together: what fits one IP packet.
pub const UDP_MERGED_BYTES: usize = 65_535 - 20 - 8;
/// Packets of the receive slab that sockets and channels may hold: the rest always stays free for the link.
pub const RECEIVE_SLAB: usize = 32_768;
/// Receive buffers where frames can be 64 KiB (offloads, loopback MTU): fewer, larger.
pub const RECEIVE_SLAB_LARGE: usize = 2_048;
/// Bytes of a link's receive buffers that are touched before they are needed. More would take a program's start: 134 MB are 50 ms.
pub const RECEIVE_READY_BYTES: usize = 8 << 20;
/// Transmit buffers of a shard: what can be on its way in channels, link queues and a wire at one time.
pub const TRANSMIT_SLAB: usize = 2_048 - BURST_SLAB;
/// Buffers of 64 KiB for text that leaves uncut, where a link carries or cuts it: address space (8 MiB a shard), of which only what is used
/// at one time is touched. Where there is none, text is cut into ordinary buffers.
pub const BURST_SLAB: usize = 128;
/// Chunks beyond the shard's own that it keeps for the next connection that needs one, bytes. What a large answer has filled is mostly filled again by the
/// next, and new memory costs a page fault for every 4 KiB of it.
pub const SPARE_SEND_BUFFERS: usize = 8 << 20;
/// Most text in one of them: the longest IP packet, less IPv6 and the longest TCP header.
pub const BURST_TEXT: u32 = 65_535 - 40 - 60;
/// Text for which a link that makes checksums is asked for one: less is summed sooner than asked.
pub const UNSUMMED_MIN: u32 = 512;
/// Transmit buffers of a shard for 64 KiB packets.
pub const TRANSMIT_SLAB_LARGE: usize = 512;
/// Receive buffers where each socket has a shard of its own, so that one connection's window fits each shard's share.
pub const RECEIVE_SLAB_SOCKETS: usize = 2 * RECEIVE_SLAB;
/// Such buffers for frames of 64 KiB: address space (1 GiB), not memory.
pub const RECEIVE_SLAB_SOCKETS_LARGE: usize = 8 * RECEIVE_SLAB_LARGE;
/// Buffers of what an interface's host sends by itself: ARP, NDP, ICMP.
pub const HOST_SLAB: usize = 512;
/// Longest rest of a link's thread between two wake-ups by packets (D6): with a longer one a peer would see retransmission timers run.
pub const MODERATION_MAX: Duration = Duration::from_millis(10);
/// Longest time that a leader of the links' pollers is away before a link's thread takes its place: a peer's delayed acknowledgment takes 40 ms.
pub const BACKGROUND_MAX: Duration = Duration::from_millis(100);
/// Longest look before a sleep.
pub const SPIN_MAX: Duration = Duration::from_millis(10);
/// Slots of the channel from a link to each link, where packets are forwarded: 64 links would take 64 × 64 × 1,024 × 48 bytes = 192 MiB
/// of address space, two take 192 KiB.
pub const FORWARD_RING: usize = 1_024;
/// Buffers of an interface for what is forwarded and cannot stay where it was received: fragments, and packets that wait for a
/// neighbour's address, which may take seconds.
pub const FORWARD_SLAB: usize = 1_024;
/// Of a link's receive buffers, the share (1/n) that must be free for a packet to be forwarded: the rest is for what is ours.
pub const FORWARD_SPARE: usize = 8;
/// What the host itself says on one link (an echo reply, an ICMP error) and has to send by another one waits here for the next turn.
pub const ELSEWHERE: usize = 256;
/// Buffers for datagrams put together from fragments, 64 KiB each.
pub const REASSEMBLED: usize = 32;
/// Resets to segments of no connection: a flood is not answered in kind.
pub const RESETS: limit::Config = limit::Config {
    per_second: 50_000,
    burst: 5_000,
    per_second_each: 20_000,
    burst_each: 2_000,
};
/// Undeliverable packets kept until their senders are told; the others' senders find out by their timers.
pub const UNREACHABLE: usize = 64;
/// Between two looks at an interface's timers, all of which are seconds long but for the wire's, which it keeps itself.
pub const LOOK_INTERVAL: Duration = Duration::from_millis(1);
/// Slots of the channel from a link to a shard.
pub const CHANNEL_RX: usize = 2_048;
/// Slots of the channel from a shard to a link.
pub const CHANNEL_TX: usize = 2_048;
/// Slots of the ring from a link to a packet channel: a quarter of the receive buffers where these are few and large.
pub const PACKET_CHANNEL: usize = 512;
/// Packets that the application of a packet channel may hold, unless it says otherwise: as many as wait.
pub const PACKETS_HELD: usize = 512;
/// Packet channels of a stack: 64 links would take 64 × 32 × 512 × 40 bytes = 40 MiB of address space, two take 1.3 MiB.
pub const PACKET_CHANNELS: usize = 32;
/// Buffers of each of a lease's two slabs; each holds the longest IP packet there is, since datagrams cross whole: 64 MiB of address space, of which the
/// same few are touched again and again.
pub const LEASE_BUFFERS: usize = 1_024;
/// Of each of a lease's slabs, buffers that have memory from the beginning, 2 MiB: a program that is idle takes no more, and starts in a moment.
pub const LEASE_READY: usize = 32;
/// The same of the smallest lease there is: a burst.
pub const LEASE_BUFFERS_LEAST: usize = 64;
/// What the leases of a user may be bounded to, bytes: a lease or more.
pub const LEASE_MEMORY: RangeInclusive<u64> = (16 << 20)..=(4 << 40);
/// Buffers of one of its slabs by copies of a lease's packets that can be on their way to the link.
pub const LEASE_COPIES_SHARE: usize = 4;
/// Returns that one look takes from a lease: all there can be.
pub const LEASE_BUDGET: usize = LEASE_BUFFERS;
/// Leases of a stack.
pub const LEASES: usize = 4_096;
/// Buffers of a short cut between two leases, in each direction: so many packets are under way. Memory comes as they are used.
pub const PAIR_BUFFERS: usize = 1_024;
/// Connections over a short cut whose text goes by pipes, half of them each side's to begin; that of others goes in packets.
pub const PAIR_PIPES: u32 = 128;
/// Bytes of a pipe, in each direction: what a reader has to do while its writer wakes up. All together 128 MiB, as much as the slabs of a short cut; memory
/// comes as they are used, and text that is read as it comes uses the first 8 KiB.
pub const PIPE_BYTES: u32 = 512 << 10;
/// Bytes of news that an application has not read; one that reads none loses its short cuts.
pub const LEASE_NEWS_BYTES: usize = 64 << 10;
/// Ports for sockets that name none, of a lease's beginning; each further time twice as many as it has, at most [`LEASE_PORTS_MAX`].
pub const LEASE_PORTS: usize = 16;
/// Most of them at a time.
pub const LEASE_PORTS_MAX: usize = 1_024;
/// How often a bind(2) that names no port asks for more of them, because connections have nearly all.
pub const LEASE_PORTS_ASKED: usize = 3;
/// Most of them in all: a third of what there is, so that one application does not use up those of the others.
pub const LEASE_PORTS_ALL: usize = 8_192;
/// IP protocol numbers and EtherTypes of which a lease has the packets: more than it has channels for at a time.
pub const LEASE_PROTOCOLS: usize = 8 * PACKET_CHANNELS;
/// Ports that a lease has by name.
pub const LEASE_BINDINGS: usize = 1_024;
/// Connections of a lease whose peers hear of its end; others hear when they ask. 1.4 MiB.
pub const LEASE_FLOWS: usize = 16_384;
/// Connections of all leases of a port that are gone through when these change; what is beyond is not pinned. Some milliseconds.
pub const LEASE_SHARED_FLOWS: usize = 2 * LEASE_FLOWS;
/// Connections of a lease that the control plane goes through at a time: so long a link waits for it.
pub const LEASE_LOOK: usize = 512;
/// Connections that live on when their port's last socket has ended, of which the application tells the lender: those that did not pass it.
pub const LEASE_CLOSED_FLOWS: usize = 1_024;
/// Datagrams whose first fragment a lease has sent and whose others may follow.
pub const LEASE_FRAGMENTED: usize = 8;
/// Groups that the sockets of a lease are in: an eighth of what an interface has room for, so that one application does not use up that of the others.
pub const LEASE_GROUPS: usize = 512;
/// Members of a group, sockets and leases, whose filters are put together; of more, all sources are let in, and each member's own filter still holds. With the
/// longest lists that leases have it is some 256 × 128 looks into a list, while the link waits.
pub const GROUP_MERGED: usize = 256;

/// Taps of a stack.
pub const TAPS: usize = 16;
/// Frames that wait for a tap's reader at each point.
pub const TAP_RECORDS: usize = 8_192;
/// Their buffers at each point, of them that are not longer than what a tap keeps: how many, and of how many bytes. Few frames are long. Memory is taken when
/// they are first used, 26 MiB at most.
pub const TAP_BUFFERS: [(usize, usize); 3] = [(8_192, 256), (4_096, 2_048), (256, 65_536)];
/// Frames that are copied before their link is asked to take them.
pub const TAP_BURST: usize = 32;
/// Points at which a tap has all that room; one that is at more of them has an eighth of it at each.
pub const TAP_POINTS: usize = 8;
/// Bytes of a packet that a shard keeps until it is through with it, while drops are watched: the headers, and the smallest buffers' size.
pub const TAP_DROPPED: usize = 256;
/// Writers of frames at a time.
pub const WRITERS: usize = 4;
/// Frames that one of them has written and its link has not taken.
pub const WRITTEN: usize = 256;
/// Bytes of address space that a stack leaves free for its threads and its process when it starts.
pub const SPARE: usize = 64 << 20;
/// Frames that wait for a link that is full.
pub const LINK_QUEUE: usize = 2_048;
/// Of these, frames that are left to the host's own: ARP, echoes, errors.
pub const LINK_QUEUE_HOST: usize = 64;
/// Of a link's receive buffers, the share (in eighths) that the receive queues of all shards together may hold: the rest stays with
/// the link, so that a slow reader never keeps others from receiving.
pub const QUEUED_EIGHTHS: usize = 6;
/// Bursts that one turn of a shard or link takes before it looks at the other direction.
pub const BURSTS_PER_TURN: usize = 4;
/// Connections whose timers a shard serves in a turn. Each may send a segment: as much work as a burst of packets.
pub const TIMERS_A_TURN: usize = 32;
/// Records of TIME-WAIT that a shard forgets in a turn.
pub const TIME_WAITS_A_TURN: usize = 64;
/// How long output that found no transmit buffer waits before it is tried again, unless something happens earlier.
pub const BUFFER_RETRY: Duration = Duration::from_millis(1);
/// Threads of one process that have a trace ring: the stack's own come first, the application's as they make their first call. 32 × 1024 × 64 bytes = 2 MiB
/// unless more is asked for, 2 GiB at most.
pub const TRACE_THREADS: usize = 32;
/// Events that each of them keeps, unless the setting says otherwise.
pub const TRACE_RECORDS: usize = 1_024;
/// What the setting may be: a power of two within.
pub const TRACE_EVENTS: RangeInclusive<usize> = 64..=1 << 20;
/// Packets of a shard that are timed and wait to be read: with details recorded, what an ordinary receive window holds. 40 bytes each.
pub const TIMED_PACKETS: usize = 256;
/// Queues of one link that a stack uses.
pub const QUEUES_MAX: usize = 16;
/// Queues of all links together: a bit each in a word.
pub const QUEUES_ALL: usize = 64;
/// Flows in a steering table.
pub const FLOWS: usize = 1 << 20;

/// Memory limits that make sense: a window without scaling (RFC 9293), or the longest datagram, at least; 4 TiB at most.
pub const MEMORY: RangeInclusive<u64> = (1 << 16)..=(1 << 42);
/// What all TCP sockets may hold, unless the setting says otherwise: so many times the receive slabs. Receive queues can take three
/// quarters of these (`QUEUED_EIGHTHS`); send buffers may hold as much and more. 128 MiB with one link of 1500 bytes MTU.
pub const TCP_MEMORY_SLABS: u64 = 2;
/// One socket holds at most this part (1/n) of what all may, unless the setting says otherwise: two of the largest buffers, 6 MiB to receive
/// and 8 MiB to send, fit the default twice.
pub const SOCKET_SHARE: u64 = 4;
/// All sockets of one peer hold at most this part: others find as much again.
pub const PEER_SHARE: u64 = 2;
/// Text behind gaps may hold this part of what all TCP sockets may.
pub const BEHIND_SHARE: u64 = 2;
/// Most memory that a shard claims ahead: 32 packets of 1500 bytes, so that the account is asked once a burst at most.
pub const MEMORY_CHUNK: u64 = 64 << 10;
/// All shards claim so much of the limit ahead at most that two chunks each make up an eighth of it.
pub const MEMORY_CHUNKS: u64 = 16;
/// No window offers more than this part (1/n) of the memory that is left.
pub const WINDOW_SHARE: i64 = 8;
/// Memory that must be free again, in bytes, for each connection that is told so.
pub const RELIEF: usize = 16 << 10;
/// How often a shard whose connections wait for memory looks whether other shards have freed some.
pub const MEMORY_RETRY: Duration = Duration::from_millis(10);

/// What a shard has room for.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    /// Connections, and as many in TIME-WAIT.
    pub connections: usize,
    /// Transmit buffers.
    pub transmit: usize,
    /// Transmit buffers for 64 KiB packets.
    pub transmit_large: usize,
    /// How many of them are touched at the start.
    pub ready: usize,
    /// Send buffers that it lends to connections; address space until they are used. Beyond them they are made and freed as connections
    /// need them.
    pub send_buffers: usize,
    /// Places of 256 bytes, 2 and 8 KiB for received packets that fill little of their buffers: address space until they are used. Of the
    /// small ones there are as many more as there can be connections, for those that have nothing to read.
    pub shelf: [usize; 3],
}

const _: () = assert!(
    2 * SOCKET_SHARD.connections * SHARDS_MAX <= FLOWS,
    "an accepted connection's shard is known by the flow table alone"
);
const _: () = assert!(
    RECEIVE_SLAB_SOCKETS / SHARDS_MAX * QUEUED_EIGHTHS / 8 * 1448 >= RECEIVE_BUFFER as usize,
    "one connection's window must fit a socket's shard"
);
const _: () = assert!(
    QUEUED_EIGHTHS < 8,
    "receive queues must leave buffers to the link"
);
const _: () = assert!(
    RECEIVE_SLAB_LARGE * QUEUED_EIGHTHS / 8 >= 1024,
    "one connection's window must fit"
);
const _: () = assert!(
    CHANNEL_TX >= TRANSMIT_SLAB + BURST_SLAB && TRANSMIT_SLAB_LARGE < TRANSMIT_SLAB,
    "a shard's packets must fit its channel: push never fails"
);
const _: () = assert!(
    CHANNEL_RX >= BURST * BURSTS_PER_TURN,
    "one turn of a link must fit"
);
