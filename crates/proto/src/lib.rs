//! The protocols: pure functions over bytes, time and randomness that the caller hands in.
//! Never names a thread, a clock or a socket.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod allowance;
pub mod icmp;
pub mod ip;
pub mod membership;
pub mod neighbor;
pub mod siphash;
pub mod tcp;
pub mod time;
pub mod udp;
pub mod wire;
