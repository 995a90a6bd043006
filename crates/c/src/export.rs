//! The functions of `netchan.h`: pointers become slices, strings and handles, and what they come to is answered at the edge. What each does is said in the header.

pub mod lending;
pub mod names;
pub mod options;
pub mod stack;
pub mod transfer;
