//! netchan: a multicore TCP/IP stack for Linux that lives in user space.
//!
//! The modules stand in the order in which a packet meets them.

pub mod link;
pub mod packet;
pub mod socket;

pub mod clock;
pub mod config;
pub mod control;
pub mod errno;
mod net;

pub use clock::Clock;
pub use net::{Builder, Dispatch, Net, Regime, Threads};
pub use socket::{TcpListener, TcpStream, UdpSocket};
