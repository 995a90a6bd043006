//! What C programs pass and are answered: socket addresses, memory, poll's bits, errno. For libraries with an edge to C; Rust programs need none of it.

pub mod address;
pub mod buffers;
pub mod errno;
pub mod readiness;
