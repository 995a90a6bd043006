//! netchan: a multicore TCP/IP stack for Linux that lives in user space.
//!
//! The modules stand in the order in which a packet meets them.

pub mod link;
pub mod packet;

pub mod steer;

pub mod module;

pub mod channel;
pub mod shard;

pub mod socket;

mod forward;
mod giant;
mod path;
pub mod regime;
mod stack;
pub mod steps;
mod watch;
mod worker;

pub mod host;
pub mod interface;

pub mod clock;
pub mod config;
pub mod control;
pub mod counters;
mod directory;
pub mod emit;
pub mod environment;
pub mod errno;
pub mod groups;
pub mod limits;
pub mod locks;
pub mod memory;
mod net;
pub mod settings;
mod show;
pub mod stages;
mod sys;
pub mod trace;

pub use clock::Clock;
pub use net::{Builder, Net, Threads};
pub use percore::{checks, own, raw};
pub use proto::tcp::{CongestionControl, EcnMode, Info as TcpInfo, State as TcpState};
pub use regime::{Dispatch, Regime};
pub use socket::{TcpListener, TcpStream, UdpSocket};
#[doc(hidden)]
pub use sys::spawn;
