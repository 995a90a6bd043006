//! The links' side of a stack: the classifier, the interfaces with their neighbours and groups, the modules that look at packets, and
//! forwarding. It knows nothing of shards and sockets.

pub mod forward;
pub(crate) mod giant_shim;
pub mod groups;
pub mod host;
pub mod interface;
pub mod module;
pub mod network;
pub mod settings;
pub mod steer;
