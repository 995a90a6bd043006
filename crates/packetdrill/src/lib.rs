//! netchan where every packet and every moment is written down beforehand: one stack in virtual time, on a cable whose other end is a script.
//!
//! Two kinds of script drive it:
//!
//! * **packetdrill's**, through the shared-object interface of that program: `packetdrill --so_filename=libnetchan_packetdrill.so
//!   [--so_flags=SETTINGS] SCRIPT`. The table of C functions is [`table`]; what they do with sockets is `netchan-preload`'s, so that what the
//!   scripts see is what an unmodified program sees. Some calls (`sendfile`, the `getsockopt` behind `%{ }%`) packetdrill makes past the table:
//!   with the same file in `LD_PRELOAD`, too, they find the same descriptors.
//! * **our own**, in `scripts/`: [`script`] reads and runs them in this process, one after the other, without packetdrill.
//!
//! # Time
//!
//! Nothing moves but by order of the script. A pause goes from timer to timer, so that each packet is stamped with the moment
//! at which it left; asking for the time costs a microsecond, because packetdrill asks until it is late enough. See [`world`].
//!
//! # Settings
//!
//! `SETTINGS` are names of Linux's `net.ipv4` directory with a value, separated by commas, or `settings=FILE` with a line for each; the
//! file is read when the first socket is used, and what is written behind its end afterwards takes effect with the next call or packet, as far
//! as a running stack lets it. What netchan has no setting for is taken without effect: see [`settings`].

pub mod cable;
pub mod script;
pub mod settings;
pub mod table;
pub mod turns;
pub mod world;
