//! The machine: cores, memory and time stamps. It has never heard of a packet.

pub mod clock;
pub mod counter;
pub mod doorbell;
pub mod ring;
pub mod slab;
pub mod sync;
