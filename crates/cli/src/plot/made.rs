//! Segments that are made, for the tests.

use std::{net::SocketAddr, time::Duration};

use super::{
    connections::{Connections, Kept, Side, Wanted},
    direction::Direction,
    segment::{Flags, Header, Segment},
    series::scales,
};

pub const SYN: Flags = Flags::SYN;
pub const ACK: Flags = Flags::ACK;

/// The two ends.
pub fn ends() -> (SocketAddr, SocketAddr) {
    let end = |text: &str| text.parse().expect("an address");
    (end("10.0.0.1:40000"), end("10.0.0.2:80"))
}

/// A connection that is made segment by segment.
pub struct Made {
    pub segments: Vec<Segment>,
    /// The sequence numbers of both SYNs.
    pub first: [u32; 2],
}

impl Made {
    /// Nothing yet.
    pub fn new(client: u32, server: u32) -> Self {
        Self {
            segments: Vec::new(),
            first: [client, server],
        }
    }

    /// After a handshake of 10 ms, from 0 on, with these window scales.
    pub fn begun(client: u32, server: u32, scale: [Option<u8>; 2]) -> Self {
        let mut made = Self::new(client, server);
        made.add(0, Side::Client, 0, None, 0).flags = SYN;
        made.last().scale = scale[0];
        made.add(8_000, Side::Server, 0, Some(1), 0).flags = SYN.with(ACK, true);
        made.last().scale = scale[1];
        made.add(10_000, Side::Client, 1, Some(1), 0);
        made
    }

    /// One more segment at `us`, with relative numbers and a window of 1,000.
    pub fn add(
        &mut self,
        us: u64,
        from: Side,
        seq: u32,
        ack: Option<u32>,
        text: u32,
    ) -> &mut Header {
        let (client, server) = ends();
        let [mine, other] = match from {
            Side::Client => self.first,
            Side::Server => [self.first[1], self.first[0]],
        };
        let mut header = Header::default();
        header.time = Duration::from_secs(1_700_000_000) + Duration::from_micros(us);
        header.seq = mine.wrapping_add(seq);
        header.ack = ack.map_or(0, |ack| other.wrapping_add(ack));
        header.flags = Flags::default().with(ACK, ack.is_some());
        header.window = 1_000;
        header.text = text;
        let (from, to) = match from {
            Side::Client => (client, server),
            Side::Server => (server, client),
        };
        self.segments.push(Segment { from, to, header });
        self.last()
    }

    /// The last one.
    pub fn last(&mut self) -> &mut Header {
        &mut self.segments.last_mut().expect("a segment").header
    }

    /// Text of the client.
    pub fn sent(&mut self, us: u64, seq: u32, text: u32) -> &mut Header {
        self.add(us, Side::Client, seq, Some(1), text)
    }

    /// An acknowledgment of the server.
    pub fn acked(&mut self, us: u64, ack: u32) -> &mut Header {
        self.add(us, Side::Server, 1, Some(ack), 0)
    }

    /// As the command takes it.
    pub fn direction(&self, sender: Side) -> Direction {
        let mut connections = Connections::new(Wanted::Only);
        for segment in &self.segments {
            connections.take(segment);
        }
        let (connection, segments) = connections.into_wanted().expect("a connection");
        let kept: Vec<Kept> = segments;
        Direction::new(&connection, &kept, sender, scales(&kept))
    }
}
