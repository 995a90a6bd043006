//! The libc symbols of an unmodified program, served by netchan.
