//! netchan: a multicore TCP/IP stack for Linux that lives in user space.
//!
//! The modules stand in layers: each names only what stands above it (`lab/tests/tidy.rs`).

mod assignment;
pub mod counters;
pub mod emit;
pub mod errno;
pub mod flow;
mod giant;
pub mod log;
pub mod memory;
mod sys;
pub mod trace;

pub mod channel;

pub mod driver;

pub mod api;

pub mod shard;

pub mod regime;

mod stack;

pub mod config;
pub mod control;
pub mod environment;
mod net;
mod show;
pub mod socket;
pub mod steps;

#[cfg(test)]
#[path = "../../../lab/tests/skips/mod.rs"]
mod skips;

pub use driver::network::LinkFacts;
pub use net::{Builder, Net, Tcp, Threads, Udp};
#[doc(inline)]
pub use netchan_base::{Clock, clock, limits, locks, packet, units};
#[doc(inline)]
pub use netchan_link as link;
pub use percore::{checks, doorbell::Doorbell, own, raw, slab::Slab};
pub use proto::tcp::{CongestionControl, EcnMode, Info as TcpInfo, State as TcpState};
pub use proto::{time::Instant, wire::ethernet::MacAddr};
pub use regime::{Dispatch, Regime};
pub use socket::{
    LentPacket, PacketChannel, PacketDestination, PacketOptions, PacketProtocol, SendLease,
    TcpListener, TcpStream, UdpSocket,
};
#[doc(hidden)]
pub use sys::spawn;
