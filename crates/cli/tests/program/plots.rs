//! `netchan plot` on a real transfer: two stacks in virtual time, a wire that loses and turns around, and what the sender's link recorded.

use std::{
    io::{self, IoSlice, IoSliceMut},
    path::{Path, PathBuf},
    time::Duration,
};

use netchan::{
    Clock, Net, Threads,
    link::{Link, pcap::Capture, wire},
    socket::{Domain, Kind, ReceiveFlags, Socket},
};
use resvg::{tiny_skia::Pixmap, usvg::roxmltree::Document};
use serde_json::Value;

use super::{Runtime, run};

const BYTES: usize = 400_000;
/// Of the wire, one way.
const DELAY: Duration = Duration::from_millis(20);

fn stack(clock: &Clock, link: Box<dyn Link>, address: &str) -> Net {
    let builder = Net::builder().link_with(link).address(address).unwrap();
    let builder = builder.threads(Threads::Caller).clock(clock.clone());
    builder.seed(1).start().unwrap()
}

/// A server at port 80 sends BYTES to a client, as its link saw it.
fn transfer(file: &Path) {
    let clock = Clock::new_virtual();
    let options = wire::Options {
        delay: DELAY,
        loss: wire::Probability::new(0.02),
        rate: 20_000_000.try_into().ok(),
        seed: 5,
        ..wire::Options::default()
    };
    let (left, right) = wire::pair(&options);
    let left = Capture::new(Box::new(left), file, &clock).unwrap();
    let server = stack(&clock, Box::new(left), "10.0.0.1/24");
    let client = stack(&clock, Box::new(right), "10.0.0.2/24");
    let turn = || {
        while server.poll() | client.poll() {}
        let next = [&server, &client]
            .into_iter()
            .filter_map(Net::next_event)
            .min();
        clock.advance_to(next.expect("something is under way"));
    };
    let listener = Socket::new(&server, Domain::V4, Kind::Stream).unwrap();
    listener.bind(([10, 0, 0, 1], 80).into()).unwrap();
    listener.listen(1).unwrap();
    let reader = Socket::new(&client, Domain::V4, Kind::Stream).unwrap();
    let _ = reader.connect(([10, 0, 0, 1], 80).into()); // under way
    let writer = loop {
        match listener.accept() {
            Ok((writer, _)) => break writer,
            Err(_) => turn(),
        }
    };
    let text = vec![7; BYTES];
    let (mut sent, mut got) = (0, 0);
    while got < BYTES {
        if sent < BYTES {
            match writer.send(&[IoSlice::new(&text[sent..])], None) {
                Ok(n) => sent += n,
                Err(e) => assert_eq!(e.kind(), io::ErrorKind::WouldBlock),
            }
        }
        let mut room = [0; 65_536];
        match reader.receive(&mut [IoSliceMut::new(&mut room)], ReceiveFlags::default()) {
            Ok(received) => got += received.len,
            Err(e) => assert_eq!(e.kind(), io::ErrorKind::WouldBlock),
        }
        turn();
    }
}

fn json(arguments: &[&str]) -> Value {
    let (status, out, err) = run(&[&["plot", "--json"], arguments].concat());
    assert_eq!((status, err.as_str()), (0, ""), "{arguments:?}");
    serde_json::from_str(&out).unwrap()
}

struct Files {
    folder: Runtime,
    capture: String,
}

impl Files {
    fn new(name: &str) -> Self {
        let folder = Runtime::new(name);
        let capture = folder.0.join("transfer.pcapng");
        transfer(&capture);
        let capture = capture.to_str().unwrap().to_owned();
        Self { folder, capture }
    }

    fn at(&self, name: &str) -> (PathBuf, String) {
        let path = self.folder.0.join(name);
        let text = path.to_str().unwrap().to_owned();
        (path, text)
    }
}

#[test]
fn transfer_is_listed_and_measured() {
    let files = Files::new("plot-list");
    let (status, out, _) = run(&["plot", &files.capture]);
    assert_eq!(status, 0);
    assert!(
        out.contains("10.0.0.1:80") && out.lines().count() == 2,
        "{out}"
    );
    assert!(out.lines().all(|line| line.chars().count() <= 100), "{out}");
    let rows = json(&[&files.capture]);
    assert_eq!(rows.as_array().map(Vec::len), Some(1));
    let row = &rows[0];
    assert_eq!(
        (&row["server"], &row["handshake"]),
        (&"10.0.0.1:80".into(), &true.into())
    );
    let again = row["server_retransmissions"].as_u64().unwrap();
    assert!((1..40).contains(&again), "2 % of 280 segments: {again}");
    assert_eq!(row["client_retransmissions"], 0);
    for connection in [
        "1",
        &format!("10.0.0.1:80-{}", row["client"].as_str().unwrap()),
    ] {
        let facts = json(&[&files.capture, "--connection", connection]);
        let [client, server] = facts["directions"].as_array().unwrap().as_slice() else {
            panic!("{facts}");
        };
        let number = |facts: &Value, name: &str| facts[name].as_f64().unwrap();
        assert_eq!(number(client, "text_bytes"), 0.0);
        let text = number(server, "text_bytes") - number(server, "retransmitted_bytes");
        assert_eq!(text, BYTES as f64);
        assert_eq!(server["retransmissions"], again);
        assert!(number(server, "duplicate_acks") > 0.0 && number(server, "sack_blocks") > 0.0);
        assert_eq!(
            (&server["out_of_order"], &server["zero_windows"]),
            (&0.into(), &0.into())
        );
        // There and back; the queue of the wire makes it longer.
        let rtt = number(server, "rtt_min_us");
        assert!((40_000.0..60_000.0).contains(&rtt), "{rtt}");
        assert!(number(server, "rtt_max_us") >= rtt);
        let goodput = number(server, "goodput_bytes_per_s");
        assert!((10_000.0..2_500_000.0).contains(&goodput), "{goodput}");
        assert!(number(server, "in_flight_max_bytes") <= number(server, "window_max_bytes"));
        assert!(server["window_scale"].is_u64());
    }
}

#[test]
fn transfer_is_drawn() {
    let files = Files::new("plot-draw");
    let [(html, html_at), (svg, svg_at), (png, png_at)] =
        ["x.html", "x.svg", "x.png"].map(|name| files.at(name));
    let outputs = ["--html", &html_at, "--svg", &svg_at, "--png", &png_at];
    let (status, out, err) = run(&[&["plot", &files.capture], &outputs[..]].concat());
    assert_eq!((status, err.as_str()), (0, ""));
    assert!(
        out.contains("server 10.0.0.1:80 → client 10.0.0.2:"),
        "{out}"
    );
    let svg = std::fs::read_to_string(svg).unwrap();
    let parsed = Document::parse(&svg).unwrap();
    assert_eq!(parsed.root_element().tag_name().name(), "svg");
    assert!(svg.contains("transfer.pcapng: server") && svg.contains("retransmissions"));
    let pixels = Pixmap::decode_png(&std::fs::read(png).unwrap()).unwrap();
    let size = |name| {
        parsed
            .root_element()
            .attribute(name)
            .unwrap()
            .parse::<u32>()
    };
    let expected = (size("width").unwrap() * 2, size("height").unwrap() * 2);
    assert_eq!((pixels.width(), pixels.height()), expected);
    let page = std::fs::read_to_string(html).unwrap();
    assert!(page.contains("<title>netchan plot</title>") && page.contains("\"round_trips\""));
    for outside in ["src=", "href=", "url(", "@import"] {
        assert!(!page.contains(outside), "{outside}");
    }
    // To standard output, and from the other end.
    let (status, out, _) = run(&["plot", &files.capture, "--svg", "-", "--from", "client"]);
    assert!(status == 0 && Document::parse(&out).is_ok());
    assert!(out.contains("client 10.0.0.2:") && !out.contains("pcapng: server"));
    let (_, both, _) = run(&["plot", &files.capture, "--svg", "-", "--from", "both"]);
    assert!(both.contains("width=\"2400\""));
}

#[test]
fn what_cannot_be_plotted_is_said() {
    let files = Files::new("plot-wrong");
    let whole = std::fs::read(&files.capture).unwrap();
    let (cut, cut_at) = files.at("cut.pcapng");
    std::fs::write(&cut, &whole[..whole.len() / 2 + 1]).unwrap();
    let (status, out, err) = run(&["plot", &cut_at]);
    assert!(status == 0 && out.contains("10.0.0.1:80"), "{out}");
    assert!(err.contains("cut off or damaged after packet"), "{err}");
    let (text, text_at) = files.at("text");
    std::fs::write(&text, "x".repeat(1000)).unwrap();
    let (empty, empty_at) = files.at("empty.pcap");
    let header: Vec<u8> = [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 65_535, 1]
        .iter()
        .flat_map(|word| word.to_le_bytes())
        .collect();
    std::fs::write(&empty, header).unwrap();
    assert_eq!(run(&["plot", &empty_at]).1, "(none)\n");
    let capture = files.capture.as_str();
    for (arguments, status, why) in [
        (&["/nonexistent/x"][..], 1, "/nonexistent/x: No such file"),
        (&[&text_at], 1, "neither pcap nor pcapng"),
        (&[&empty_at, "--svg", "-"], 1, "no TCP connection"),
        (
            &[capture, "--connection", "2"],
            1,
            "no such connection among its 1",
        ),
        (&[capture, "--connection", "0"], 2, "want a number"),
        (
            &[capture, "--connection", "10.0.0.1:80"],
            2,
            "want a number",
        ),
        (
            &[capture, "--svg", "/nonexistent/x.svg"],
            1,
            "/nonexistent/x.svg: No such file",
        ),
        (&[capture, "--svg", "/dev/full"], 1, "No space left"),
        (&[capture, "--svg", "-", "--png", "-"], 2, "only one of"),
        (
            &[capture, "--svg", "-", "--json"],
            2,
            "both want standard output",
        ),
        (&[capture, "--from", "left"], 2, "left"),
        (&[capture, "--live", ":80"], 2, "cannot be used"),
        (&["--live", "x"], 2, "want LOCAL-REMOTE"),
        (&["--live", ":80", "--duration", "0"], 2, "above 0"),
        (&[], 2, "required"),
    ] {
        let (found, out, err) = run(&[&["plot"], arguments].concat());
        assert_eq!((found, out.as_str()), (status, ""), "{arguments:?}: {err}");
        assert!(err.contains(why), "{arguments:?}: {err}");
    }
}
