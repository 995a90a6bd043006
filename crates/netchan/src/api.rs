//! What socket calls take and give, for those that make them and those that answer them.

pub(crate) mod binding;
mod message;
pub mod multicast;
mod readiness;
mod types;

pub(crate) use self::message::UdpOptions;
pub use self::{
    message::{
        DatagramInfo, Discovery, ErrorOrigin, Notice, ReceivedError, SendInfo, SentPacket,
        SocketError, Stamp, StampRequest, UdpOption,
    },
    readiness::Readiness,
    types::{Domain, Kind, ReceiveFlags, Received},
};
