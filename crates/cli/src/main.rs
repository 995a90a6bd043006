//! The netchan program.

fn main() {}
