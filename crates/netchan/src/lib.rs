//! netchan: a multicore TCP/IP stack for Linux that lives in user space.
//!
//! The modules stand in layers: each names only what stands above it (`lab/tests/tidy.rs`).

mod assignment;
mod counters;
mod emit;
mod ephemeral;
mod errno;
mod flow;
mod forked;
mod giant;
pub mod log;
mod memory;
mod moved;
mod sys;
pub mod trace;

mod channel;

pub mod tap;

mod driver;

mod api;

mod shard;

pub mod regime;

mod stack;

pub mod c;
pub mod config;
pub mod control;
pub mod environment;
mod net;
pub mod relay;
mod show;
pub mod socket;
pub mod steps;

#[cfg(test)]
#[path = "../../../lab/tests/skips/mod.rs"]
mod skips;

pub use channel::{LeaseSize, PairEnd};
pub use driver::{module, network::LinkFacts};
pub use errno::code as errno_of;
#[doc(hidden)]
pub use forked::{ForFork, begin_anew, held_for_fork};
pub use net::{Builder, LeaseSet, Lent, Net, Paused, Tcp, Threads, Udp};
#[doc(inline)]
pub use netchan_base::{Clock, clock, limits, locks, packet, units};
#[doc(inline)]
pub use netchan_link as link;
pub use percore::{
    checks,
    doorbell::{Doorbell, several},
    own, raw,
    slab::Slab,
};
pub use proto::tcp::{CongestionControl, EcnMode, Info as TcpInfo, State as TcpState};
pub use proto::{time::Instant, wire::ethernet::MacAddr};
pub use regime::{Dispatch, Regime};
pub use socket::{
    LentPacket, PacketChannel, PacketDestination, PacketOptions, PacketProtocol, SendLease,
    TcpListener, TcpStream, UdpSocket,
};
#[doc(hidden)]
pub use sys::spawn;
/// What the lab measures alone.
#[doc(hidden)]
pub mod parts {
    pub use crate::{
        driver::steer::table::FlowTable,
        flow::{FlowHash, FlowKey},
    };
}
