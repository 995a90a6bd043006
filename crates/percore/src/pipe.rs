//! Pipes between two processes: streams of bytes in one sealed memfd that both map, each with a ring in either direction.
//!
//! The memory has *slots*, each for one stream at a time. One side *offers* a stream in a slot of its own, with a label that says which; the other side
//! *accepts* it, or does not. When both have let go of their ends the slot can be used again.
//!
//! Guarantees:
//! * Bytes come out in order and once; what the other process writes makes this one read or write nothing outside of the rings ([`ring`](crate::ring), over
//!   foreign memory). What is taken is a copy.
//! * Each cache line is written by one side.
//! * An end that a side accepts is never that of a stream which the other side has let go of before.
//! * Nothing here wakes a sleeper: each side counts up a word ([`Pipes::post`]) behind what it does, and rings a doorbell of the caller's.

mod handshake;
#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(not(loom))]
mod memory;
mod room;
#[cfg(all(test, not(loom)))]
mod tests;

#[cfg(not(loom))]
pub use memory::{End, Heard, LABEL, LOG, Label, Look, Pipes, PipesLayout};
