//! The channel between a link and a shard: packets each way and, apart from them, what the shard asks the classifier to do.
//! No lock, no cache line that both sides write; each ring is bounded, and the side that offers counts what does not fit.
//! A backlog is its first ring alone, where a link calls the shard unless another thread holds it.

mod background_call;
mod lease;
mod packets;
mod pair;

pub use background_call::{BackgroundCall, BackgroundPoller};
pub use lease::{
    Form, LeaseCore, LeaseEnd, LeaseFiles, LeasePorts, LeaseSize, LeaseSource, LeasedPort, Taken,
    lease,
};
pub use packets::{PacketChannelCore, PacketEnd, PacketProtocol, packet_channel};
pub use pair::{PairEnd, Watched, Watcher};

use std::sync::Arc;

use percore::{
    doorbell::Doorbell,
    ring::{Consumer, Producer, ring},
};

use crate::{
    limits::{CHANNEL_RX, CHANNEL_TX},
    packet::Packet,
};

/// A shard's request to the classifier; taken before the next packet is received, so that no answer overtakes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// This flow is mine.
    Add(u64),
    /// This flow is mine now; it may have been another shard's.
    Move(u64),
    /// No longer.
    Remove(u64),
}

/// The link's end.
#[derive(Debug)]
pub struct LinkEnd {
    /// Received packets, to the shard.
    pub received: Producer<Packet>,
    /// The shard's requests.
    pub requests: Consumer<Request>,
    /// Wakes the thread that turns the shard.
    pub shard: Arc<Doorbell>,
    /// Wakes the background poller, where the shard is the application's to turn.
    pub background_call: Option<Arc<BackgroundCall>>,
}

/// The transmit half of the link's end (it lies with the transmit side of the interface).
#[derive(Debug)]
pub struct TransmitEnd {
    /// Packets to send, from the shard.
    pub outgoing: Consumer<Packet>,
}

/// The shard's end.
#[derive(Debug)]
pub struct ShardEnd {
    /// Received packets.
    pub received: Consumer<Packet>,
    /// Packets to send.
    pub outgoing: Producer<Packet>,
    /// Requests to the classifier.
    pub requests: Producer<Request>,
    /// Wakes the link's thread.
    pub link: Arc<Doorbell>,
}

/// Both ends of a link's part of a shard's backlog.
pub fn backlog() -> (Producer<Packet>, Consumer<Packet>) {
    ring(CHANNEL_RX)
}

/// A channel with its three ends.
pub fn channel(
    link: Arc<Doorbell>,
    shard: Arc<Doorbell>,
    background_call: Option<Arc<BackgroundCall>>,
) -> (LinkEnd, TransmitEnd, ShardEnd) {
    let (received_in, received) = ring(CHANNEL_RX);
    let (outgoing, outgoing_out) = ring(CHANNEL_TX);
    let (requests, requests_out) = ring(CHANNEL_TX);
    (
        LinkEnd {
            received: received_in,
            requests: requests_out,
            shard,
            background_call,
        },
        TransmitEnd {
            outgoing: outgoing_out,
        },
        ShardEnd {
            received,
            outgoing,
            requests,
            link,
        },
    )
}
