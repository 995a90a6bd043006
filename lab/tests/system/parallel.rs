//! iperf3 with sixteen streams for a while, in both roles and one way, the other way, and both at once; and both ends' counts of bytes compared.

use std::time::Duration;

use serde_json::Value;

use crate::{
    Case, Outcome,
    place::{KERNEL, Knobs, OURS, SOON},
    transfer::{iperf3_ends, place_for},
};

pub const CASES: &[Case] = &[("sixteen_streams", streams)];

const STREAMS: u64 = 16;

/// What a stream may have under way, or unread, when iperf3 stops to count: a send buffer and a receive buffer as large as they grow, and then some.
const UNCOUNTED_MAX: u64 = 32 << 20;

fn streams(knobs: &Knobs) -> Outcome {
    let seconds = if knobs.soak { 60 } else { 1 };
    for (number, way) in [None, Some("-R"), Some("--bidir")].into_iter().enumerate() {
        for serving in [true, false] {
            // One family each is enough.
            let v6 = serving != number.is_multiple_of(2);
            let rates = once(seconds, way, serving, v6)
                .map_err(|e| format!("{way:?}, netchan serving {serving}, v6 {v6}: {e}"))?;
            println!("    {way:?}, netchan serving {serving}, v6 {v6}: {rates}");
        }
    }
    Ok(())
}

fn once(seconds: u64, way: Option<&str>, serving: bool, v6: bool) -> Result<String, String> {
    let place = place_for("tap:nc0")?;
    let at = if serving { OURS } else { KERNEL }[usize::from(v6)];
    let (time, streams) = (seconds.to_string(), STREAMS.to_string());
    let listen = ["-s", "-1", "-J", "-B", at];
    let mut connect = vec!["-c", at, "-t", &time, "-P", &streams, "-J"];
    connect.extend(way);
    let patience = Duration::from_secs(2 * seconds) + SOON + SOON;
    let ends = iperf3_ends(&place, "tap:nc0", serving, (&listen, &connect), patience)?;
    let [client, server] = ends.map(|end| {
        serde_json::from_str::<Value>(&end.output).map_err(|e| format!("{e}: {}", end.output))
    });
    let (client, server) = (client?, server?);
    let mut said = Vec::new();
    // In both ways at once the client's second set is what it receives.
    for (sent, received, by_client) in [
        ("sum_sent", "sum_received", way != Some("-R")),
        (
            "sum_sent_bidir_reverse",
            "sum_received_bidir_reverse",
            false,
        ),
    ] {
        if client["end"][sent].is_null() {
            continue;
        }
        said.push(compare(&client, &server, sent, received, by_client)?);
    }
    let wanted = if way == Some("--bidir") { 2 } else { 1 };
    if said.len() == wanted {
        Ok(said.join(", "))
    } else {
        Err(format!("no counts: {}", client["end"]))
    }
}

/// Bytes that one end sent and the other received, as each of them counted.
fn compare(
    client: &Value,
    server: &Value,
    sent: &str,
    received: &str,
    by_client: bool,
) -> Result<String, String> {
    let bytes = |end: &Value, name: &str| {
        let count = end["end"][name]["bytes"].as_u64();
        count.ok_or_else(|| format!("no {name}: {}", end["end"]))
    };
    let (sender, receiver) = if by_client {
        (client, server)
    } else {
        (server, client)
    };
    let (left, came) = (bytes(sender, sent)?, bytes(receiver, received)?);
    // What each was told by the other.
    let told = [bytes(receiver, sent)?, bytes(sender, received)?];
    let uncounted = left.checked_sub(came);
    if came == 0 || uncounted.is_none_or(|n| n > STREAMS * UNCOUNTED_MAX) {
        return Err(format!("{left} bytes sent, {came} received; told {told:?}"));
    }
    let rate = sender["end"][sent]["bits_per_second"]
        .as_f64()
        .unwrap_or(0.0);
    Ok(format!("{:.2} Gbit/s", rate / 1e9))
}
