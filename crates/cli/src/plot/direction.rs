//! One direction of a connection, as it is told in words and figures: for the terminal, the picture and the page.

use std::net::SocketAddr;

use serde_json::{Value, json};

use super::{
    connections::{Connection, Kept, Side},
    series::{Point, Scale, Series, What, series},
    track::Kind,
};
use crate::units;

/// What one end sent.
#[derive(Debug)]
pub struct Direction {
    pub sender: Side,
    pub from: SocketAddr,
    pub to: SocketAddr,
    pub series: Series,
    /// Nanoseconds from the connection's first segment to its last.
    pub duration: u64,
}

impl Direction {
    /// Of `connection`, whose segments are in the order of their times. `scales` are of the windows of client and server.
    pub fn new(
        connection: &Connection,
        segments: &[Kept],
        sender: Side,
        scales: [Scale; 2],
    ) -> Self {
        let (from, to) = match sender {
            Side::Client => (connection.client, connection.server),
            Side::Server => (connection.server, connection.client),
        };
        let [client, server] = scales;
        let scale = match sender {
            Side::Client => server,
            Side::Server => client,
        };
        let time = |kept: Option<&Kept>| kept.map(|kept| kept.header.time).unwrap_or_default();
        let duration = time(segments.last()).saturating_sub(time(segments.first()));
        Self {
            sender,
            from,
            to,
            series: series(segments, sender, scale, connection.round_trip()),
            duration: u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX),
        }
    }

    /// Its figures, under names that tell their units.
    pub fn facts(&self) -> Value {
        let series = &self.series;
        let mut trips: Vec<u64> = series.round_trips.iter().map(|trip| trip.1).collect();
        trips.sort_unstable();
        let us = |ns: Option<&u64>| ns.map(|ns| *ns as f64 / 1e3);
        let scale = match series.scale {
            Scale::Known(shift) => json!(shift),
            Scale::Unknown => Value::Null,
        };
        json!({
            "sender": self.sender.name(), "from": self.from.to_string(), "to": self.to.to_string(),
            "segments": series.bars.len(), "text_bytes": series.bytes,
            "retransmissions": series.count(Kind::Again), "retransmitted_bytes": series.bytes_again,
            "out_of_order": series.count(Kind::Late), "keep_alives": series.count(Kind::Probe),
            "duplicate_acks": series.marked(What::DuplicateAck), "sack_blocks": series.blocks.len(),
            "zero_windows": series.marked(What::ZeroWindow),
            "in_flight_max_bytes": highest(&series.flight),
            "window_max_bytes": series.answers.iter().map(|answer| answer.window).max(),
            "window_scale": scale,
            "rtt_samples": trips.len(), "rtt_min_us": us(trips.first()),
            "rtt_median_us": us(trips.get(trips.len() / 2)), "rtt_max_us": us(trips.last()),
            "goodput_bytes_per_s": self.goodput(),
        })
    }

    /// Bytes a second that were acknowledged, over the whole connection.
    fn goodput(&self) -> Option<f64> {
        if self.duration == 0 || self.series.answers.is_empty() {
            return None;
        }
        Some(self.series.acked as f64 * 1e9 / self.duration as f64)
    }

    /// What is said of it above its charts.
    pub fn title(&self) -> String {
        let to = self.sender.other().name();
        format!("{} {} → {to} {}", self.sender.name(), self.from, self.to)
    }

    /// Its figures in a line.
    pub fn line(&self) -> String {
        let series = &self.series;
        let mut parts = vec![
            format!(
                "{} in {} segments",
                units::bytes(series.bytes as f64),
                series.bars.len()
            ),
            format!("{} retransmissions", series.count(Kind::Again)),
        ];
        let mut more = |count: usize, what: &str| {
            if count > 0 {
                parts.push(format!("{count} {what}"));
            }
        };
        more(series.count(Kind::Late), "out of order");
        more(series.marked(What::DuplicateAck), "duplicate ACKs");
        more(series.marked(What::ZeroWindow), "zero windows");
        parts.push(match series.scale {
            Scale::Known(shift) => format!("window scale {shift}"),
            Scale::Unknown => "window scale unknown".to_owned(),
        });
        parts.push(format!("{} long", units::nanoseconds(self.duration as f64)));
        parts.join(", ")
    }
}

fn highest(all: &[Point]) -> Option<u64> {
    all.iter().map(|point| point.1).max()
}
