//! Options of SOL_UDP (udp(7)).

use super::super::{
    Setting, SocketOption,
    row::{Row, UDP, Value, both, datagram, row},
    values::{flag, short},
};
use crate::{api::UdpOption, errno::fail, socket::Socket};

#[rustfmt::skip] // a row a line
pub(super) static ROWS: &[Row] = &[
    row(1, "UDP_CORK", "flag", UDP, datagram!(Cork, flag)),
    row(101, "UDP_NO_CHECK6_TX", "flag", UDP, datagram!(NoChecksumOut, flag)),
    row(102, "UDP_NO_CHECK6_RX", "flag", UDP, datagram!(NoChecksumIn, flag)),
    row(103, "UDP_SEGMENT", "bytes", UDP, datagram!(Segment, short)),
    row(104, "UDP_GRO", "flag", UDP, datagram!(Merge, flag)),
];
