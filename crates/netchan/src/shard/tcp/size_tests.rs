//! What an idle connection takes, part by part, so that none of them grows unnoticed. `netchan lab run tcp` measures the whole.

use crate::{
    shard::{table::Table, tcp::TcpSocket, timer::Wheel},
    socket::Socket,
};

/// A connection without text under way or waiting has nothing on the heap: its place in the shard's table, its timer's node, its entry in the
/// table of flows, which is at least 7/16 full before it grows, with a byte of its own for each place; and the application's handle.
#[test]
fn an_idle_connection_is_small() {
    let place = Table::<TcpSocket>::SLOT;
    let (node, handle) = (Wheel::NODE, size_of::<Socket>());
    let flow = (size_of::<u32>() + 1) * 16_usize.div_ceil(7);
    let whole = place + node + flow + handle;
    println!("idle: {place} + {node} + {flow} + {handle} = {whole} bytes");
    assert_eq!((node, flow), (16, 15));
    assert!(handle <= 120 && place <= 840, "{place}, {handle}");
}
