//! The machine: cores, memory and time stamps. It has never heard of a packet.
//!
//! Each primitive states its guarantees first (what is wait-free, what is visible to which thread), and has tests, a model that
//! [loom](https://docs.rs/loom) runs through its interleavings, and a bench beside what else there is:
//!
//! ```text
//! cargo test -p percore [--features witness]
//! RUSTFLAGS="--cfg loom" cargo test -p percore --release --lib
//! netchan lab run channels crossbar sched slab counters trace locks interrupts epoch [--quick]
//! ```

pub mod barrier;
pub mod checks;
pub mod clock;
pub mod counter;
pub mod crossbar;
pub mod doorbell;
#[cfg(not(loom))]
pub mod edge;
#[cfg(not(loom))]
mod foreign;
pub mod leader;
#[cfg(not(loom))]
pub mod lines;
pub mod lock;
pub mod operations;
#[cfg(not(loom))]
pub mod own;
pub mod pipe;
pub mod raw;
#[cfg(not(loom))]
mod region;
pub mod remote_call;
pub mod ring;
pub mod sched;
#[cfg(test)]
mod set_on_drop;
pub mod slab;
pub mod snapshot;
pub mod sync;
pub mod trace;
pub mod wake_gate;
pub mod wake_list;
pub mod witness;
