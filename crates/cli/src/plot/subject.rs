//! A connection that is to be drawn: its segments, and all that is to be said of it.

use std::net::SocketAddr;

use super::{
    connections::{Connection, Kept, SEGMENTS_MAX, Side},
    direction::Direction,
    live::Live,
    series::{Scale, scales},
};
use crate::{
    failure::{Failure, failed},
    output::printable,
};

/// A connection that is to be drawn, and all that is to be said of it.
pub struct Subject {
    /// The file, or the socket.
    pub source: String,
    pub connection: Connection,
    pub segments: Vec<Kept>,
    pub scales: [Scale; 2],
    pub notes: Vec<String>,
}

impl Subject {
    /// What each end sent, that of the client first. Numbers that are drawn nowhere are noted.
    pub fn directions(&mut self) -> [Direction; 2] {
        let of = |side| Direction::new(&self.connection, &self.segments, side, self.scales);
        let both = [Side::Client, Side::Server].map(of);
        let strays: u64 = both.iter().map(|direction| direction.series.strays).sum();
        if strays > 0 {
            self.notes.push(format!(
                "{strays} sequence or acknowledgment numbers are more than 1 GiB away from all others: they are not drawn"
            ));
        }
        both
    }
}

/// What is known of a connection that was captured.
///
/// # Errors
/// No segment of it was seen.
pub fn captured(live: Live) -> Result<Subject, Failure> {
    let (left_out, mut notes) = (live.connections.left_out, live.notes);
    let Some((connection, segments)) = live.connections.into_wanted() else {
        return Err(failed(format!("{}: no segment of it was seen", live.name)));
    };
    let agreed = |end: SocketAddr| {
        let found = live.scales.iter().find(|(of, _)| *of == end);
        found.map_or(Scale::Unknown, |(_, scale)| *scale)
    };
    let agreed = [agreed(connection.client), agreed(connection.server)];
    notes.extend(beyond(left_out));
    Ok(subject(live.name, connection, segments, agreed, notes))
}

/// Says how many segments there was no room for.
pub fn beyond(left_out: u64) -> Option<String> {
    (left_out > 0).then(|| {
        format!("only the first {SEGMENTS_MAX} segments are drawn, {left_out} later ones are not")
    })
}

/// Puts together what is known; `agreed` are the scales that are known from elsewhere.
pub fn subject(
    source: String,
    connection: Connection,
    mut segments: Vec<Kept>,
    agreed: [Scale; 2],
    mut notes: Vec<String>,
) -> Subject {
    // Some captures put the packets of several queues one behind the other.
    segments.sort_by_key(|kept| kept.header.time);
    let [client, server] = scales(&segments);
    let or = |seen, agreed| match seen {
        Scale::Unknown => agreed,
        known @ Scale::Known(_) => known,
    };
    let scales = [or(client, agreed[0]), or(server, agreed[1])];
    if !connection.is_begun {
        notes.push("the handshake is not in the capture: that the end with the higher port is the client is a guess".to_owned());
    }
    if scales.contains(&Scale::Unknown) {
        notes.push("window scales are not known, as the handshake is not in the capture: windows are drawn as they are in the headers, and may be up to 16384 times as large".to_owned());
    }
    for side in [Side::Client, Side::Server] {
        if segments.iter().all(|kept| kept.from != side) {
            notes.push(format!("no segment of the {} was captured", side.name()));
        }
    }
    Subject {
        source: printable(&source),
        connection,
        segments,
        scales,
        notes,
    }
}
