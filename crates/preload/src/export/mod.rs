//! The exported C functions, grouped. Each asks whether the number is ours and hands over; nothing else happens here.
//!
//! They are `C-unwind`, and where the kernel serves, they hold nothing that would need dropping: a thread that is cancelled inside
//! the C library's own call unwinds through them.
//!
//! # Safety of all of them
//! They have the contracts of the functions whose names they bear: pointers must be valid for what the manual page says, or
//! NULL. Since programs link to them by name, this crate does not call them.

pub mod calls;
pub mod descriptors;
pub mod endpoints;
pub mod interfaces;
pub mod lists;
pub mod processes;
pub mod programs;
pub mod signals;
pub mod streams;
pub mod transfers;
pub mod waiting;
