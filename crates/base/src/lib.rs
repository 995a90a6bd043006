//! The nouns of netchan that know no other part of it: what its links and what stands above them both name.
//!
//! Programs take them from the crate `netchan`, which has all of them under the same names.
//!
//! ```
//! use netchan_base::packet::{HEADROOM, Packet};
//! use percore::slab::Slab;
//!
//! # fn main() -> std::io::Result<()> {
//! let mut slab = Slab::new(4, 2048)?;
//! let buffer = slab.alloc().expect("four are free");
//! let mut packet = Packet::new(buffer, HEADROOM);
//! packet.room_mut()[..5].copy_from_slice(b"hello");
//! packet.set_len(5);
//! packet.push(14).expect("the headroom takes an Ethernet header").fill(0xff);
//! assert_eq!(packet.len(), 14 + 5);
//! packet.pull(14);
//! assert_eq!(packet.bytes(), b"hello");
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

pub mod clock;
mod concurrency;
pub mod descriptor;
pub mod limits;
pub mod locks;
pub mod packet;
mod payload;
pub mod shelf;
pub mod units;

pub use clock::Clock;
pub use concurrency::Concurrency;
