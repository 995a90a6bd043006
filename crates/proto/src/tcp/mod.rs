//! TCP (RFC 9293): one connection as a state machine over segments, time and byte counts.
//!
//! Nothing here owns a payload byte, a clock or a socket. The caller keeps
//!
//! * a **send queue** of bytes whose first byte is the one at SND.UNA: it appends, calls
//!   [`Connection::written`], and drops [`Input::acked`] bytes from the front after each segment;
//! * a **receive queue** ([`ReceiveQueue`]) whose nodes lie in a [`SegmentPool`] shared by many
//!   connections: it reads, and calls [`Connection::consumed`];
//! * a **timer**: [`Connection::deadline`] may move either way after every call. A deadline that
//!   moved later may be noticed when the earlier one fires: [`Connection::on_timer`] called too
//!   early does nothing.
//!
//! The calling order, for every event (segment, write, read, close, timer): the event's method
//! first, then [`Connection::output`] until it says `None`. Several segments may be put in before
//! output is asked: acknowledgments aggregate (RFC 9293 MUST-58, MUST-59).
//!
//! The files of this folder are the parts of a connection, and know nothing of it: variables, timers, records of what was sent, congestion control. What a
//! connection does with them, event by event, is in the files of `connection`.
//!
//! LISTEN and CLOSED hold no connection; what they answer are the functions [`listen`] and
//! [`reset_for`]. TIME-WAIT holds a [`TimeWait`] record instead of a connection.

mod accecn;
mod ao;
mod busy;
mod cold;
mod config;
mod congestion;
mod connection;
mod cookie;
mod delivery;
mod digests;
mod ecn;
mod fast_open;
mod fast_open_cookie;
mod image;
mod isn;
mod pacing;
mod path_mtu;
mod payload;
mod port;
mod prr;
mod rack;
mod rate;
mod reassembly;
mod receive_buffer;
mod recovery;
mod retries;
mod rtt;
mod sent;
mod signature;
mod template;
mod time_wait;
mod timer;
mod types;
mod undo;
mod user_timeout;
mod variables;

#[cfg(test)]
#[allow(clippy::cast_possible_truncation)] // lengths and random numbers of tests
mod tests;

pub use ao::{
    AO_KEY_MAX, AO_MAC_MAX, AoAlgorithm, AoCounts, AoIds, AoIsns, AoKey, AoKeyState, AoSession,
    AoVerdict, ao_ids, ao_isns_of,
};
pub use config::{Config, EcnMode, IcmpWhileConnecting, Keepalive, MtuProbing, SynCookies};
pub use congestion::CongestionControl;
pub use connection::Connection;
pub use connection::close::{listen, reset_for};
pub use connection::icmp::IcmpError;
pub use connection::image::ConnectionImage;
pub use connection::info::{Info, Repair, Sending};
pub use cookie::CookieFlow;
pub use digests::CAN_SIGN;
pub use fast_open::{FastOpenPeer, FastOpenResult};
pub use fast_open_cookie::{CookieMatch, FastOpenKeys, FastOpenMode};
pub use image::ImageError;
pub use isn::{initial_sequence, timestamp_offset};
pub use payload::{Keep, NoShelf, Payload, Shelf};
pub use port::{ephemeral_port, port_offset};
pub use reassembly::image::{HeldRun, HeldText, ReceiveQueueImage};
pub use reassembly::{ReceiveQueue, SegmentPool, Segments};
pub use retries::{retries_in, retry_budget, time_of};
pub use signature::{MD5_KEY_MAX, Md5Key, SIGNATURE_LEN, is_signed};
pub use template::{Start, Template};
pub use time_wait::{TimeWait, TimeWaitVerdict};
pub use types::{Drop, Error, Events, Input, Listen, State, Transmit};
pub use user_timeout::UserTimeoutOption;
