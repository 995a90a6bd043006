//! The internet layer: addresses, routes, fragments out, reassembly in. Everything here is bounded,
//! and every table that an untrusted peer can fill is keyed by a secret.

pub mod address;
mod ecn;
pub mod forward;
pub mod fragment;
pub mod ident;
pub mod keyed;
pub mod path_mtu;
pub mod reassembly;
pub mod route;
pub mod validate;

pub use address::{Address, AddressError, Addresses, Destination, solicited_node};
pub use ecn::Ecn;
pub use keyed::Seed;
