//! A capture of everything to a disk beside a stream of 10 Gbit/s: what the capture has no room for is counted to the frame, and the stream loses nothing to it.

use std::{fs, path::PathBuf, time::Duration};

use serde_json::Value;

use crate::{
    Case, Outcome,
    place::{Knobs, OURS, SOON, netchan},
    process::eventually,
    transfer::place_for,
};

pub const CASES: &[Case] = &[("capture_beside_a_stream", capture)];

/// A file that is gone with this value.
struct Scratch(PathBuf);

impl Scratch {
    fn length(&self) -> u64 {
        fs::metadata(&self.0).map_or(0, |found| found.len())
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // One that was never made is as good.
        let _ = fs::remove_file(&self.0);
    }
}

/// The numbers in a capture's last words: frames captured, those that passed the filter, those that it saw, those that were dropped.
fn counted(said: &str) -> Option<[u64; 4]> {
    let line = said.lines().find(|line| line.contains("frames captured"))?;
    let numbers: Vec<_> = line
        .split(' ')
        .filter_map(|word| word.parse().ok())
        .collect();
    numbers.try_into().ok()
}

fn capture(knobs: &Knobs) -> Outcome {
    let (wanted, patience) = match knobs.soak {
        true => (10_u64 << 30, Duration::from_secs(240)),
        false => (256 << 20, Duration::from_secs(60)),
    };
    let place = place_for("packet:nc0")?;
    // A place's own folder is in memory where that is possible.
    let file = Scratch(PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(&place.name));
    let mut server = place.start_netchan("packet:nc0", "iperf3", &["-s", "-1", "-B", OURS[0]])?;
    place.wait_listening(&mut server, true, 5201)?;
    let (pid, path) = (
        server.pid().to_string(),
        file.0.to_string_lossy().into_owned(),
    );
    let program = netchan()?.to_string_lossy().into_owned();
    let arguments = ["capture", "--pid", &pid, "-w", &path, "tcp"];
    let capture = place.start(&program, &arguments)?;
    let shows = |topic: &str| place.show(server.pid(), topic);
    let is_there =
        || shows("taps").is_ok_and(|taps| taps.as_array().is_some_and(|t| !t.is_empty()));
    if !eventually(SOON, is_there) {
        return Err(format!("no tap: {}", capture.said()));
    }
    let time = patience.as_secs().to_string();
    let arguments = ["-c", OURS[0], "-t", &time, "-b", "10G", "-C", "cubic", "-J"];
    let mut client = place.start("iperf3", &arguments)?;
    let is_over = || file.length() >= wanted || !client.is_running();
    eventually(patience, is_over);
    let links = shows("links")?;
    // What it holds is still written, to a disk that may be slow.
    let said = capture.interrupt_within(patience)?.success()?;
    let asked = client.interrupt()?.output;
    let numbers = counted(&said.errors).ok_or_else(|| said.describe())?;
    let [captured, passed, _, dropped] = numbers;
    println!(
        "    {} bytes; captured, passed, seen, dropped: {numbers:?}",
        file.length()
    );
    println!("    {}", rates(&asked));
    if file.length() < wanted {
        return Err(format!("only {} bytes: {asked}", file.length()));
    }
    if captured + dropped != passed {
        return Err(format!(
            "{captured} captured and {dropped} dropped of {passed}"
        ));
    }
    let read = place.run(
        "sh",
        &["-c", &format!("tcpdump -nr '{path}' 2> /dev/null | wc -l")],
        patience,
    )?;
    if read.success()?.output.trim() != captured.to_string() {
        return Err(format!(
            "tcpdump reads others than the {captured} frames of the file"
        ));
    }
    let lost = |name: &str| links[0][name].as_u64();
    let all = ["rx_missed", "rx_no_buffer", "tx_errors"].map(lost);
    // On a machine that is not its own the kernel's queue may fill for other reasons.
    if knobs.soak && all != [Some(0); 3] {
        return Err(format!("the stream lost packets: {all:?}"));
    }
    Ok(())
}

/// The stream's rates, second by second, and what it sent again.
fn rates(asked: &str) -> String {
    let asked: Value = serde_json::from_str(asked).unwrap_or_default();
    let intervals = asked["intervals"].as_array().into_iter().flatten();
    let (mut rates, mut again) = (Vec::new(), 0);
    for interval in intervals {
        let sum = &interval["sum"];
        rates.extend(
            sum["bits_per_second"]
                .as_f64()
                .map(|rate| format!("{:.1}", rate / 1e9)),
        );
        again += sum["retransmits"].as_u64().unwrap_or(0);
    }
    format!("Gbit/s: {}; segments sent again: {again}", rates.join(" "))
}
