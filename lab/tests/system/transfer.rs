//! Bulk over TAP and veth, both directions, both roles, v4 and v6: every byte hashed, every checksum seen by tcpdump.

use std::{
    fs,
    io::{BufWriter, Read, Write},
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use sha2::{Digest, Sha256};

use crate::{
    Case, Outcome,
    place::{KERNEL, Knobs, OURS, Place, SOON, socket_address},
    process::{Finished, Process},
};

pub const CASES: &[Case] = &[
    ("curl_fetches_from_netchan_tap", |k| {
        curl_from_netchan(k, "tap:nc0")
    }),
    ("curl_fetches_from_netchan_veth", |k| {
        curl_from_netchan(k, "packet:nc0")
    }),
    ("curl_on_netchan_fetches", curl_on_netchan),
    ("nc_both_ways_tap", |_| nc_both_ways("tap:nc0", 64)),
    ("nc_both_ways_veth", |_| nc_both_ways("packet:nc0", 64)),
    ("iperf3_tap", |k| iperf3("tap:nc0", k)),
    ("iperf3_veth", |k| iperf3("packet:nc0", k)),
    ("tcpdump_sees_no_bad_checksum", checksums),
];

/// How long a transfer of `mib` may take: 2 MiB a second is not worth calling a success.
pub fn patience(mib: usize) -> Duration {
    SOON + Duration::from_millis(500) * u32::try_from(mib).unwrap_or(u32::MAX)
}

/// A namespace with the link that `link` names; netchan's end of a veth is called nc0 too.
pub fn place_for(link: &str) -> Result<Place, String> {
    let place = Place::new()?;
    match link {
        "packet:nc0" => place.veth("peer0", "nc0")?,
        several if several.contains("queues=") => place.tap_with("nc0", &["multi_queue"])?,
        _ => place.tap("nc0")?,
    }
    Ok(place)
}

/// The kernel's device of that link.
pub fn kernel_device(link: &str) -> &'static str {
    if link == "packet:nc0" { "peer0" } else { "nc0" }
}

/// Writes a file of `mib` MiB that does not compress; returns its SHA-256.
pub fn make_file(path: &Path, mib: usize) -> Result<String, String> {
    let file = fs::File::create(path).map_err(|e| format!("{}: {e}", path.display()))?;
    let (mut file, mut sum) = (BufWriter::new(file), Sha256::new());
    let (mut state, mut block) = (0x243f_6a88_85a3_08d3u64, vec![0u8; 1 << 20]);
    for _ in 0..mib {
        for chunk in block.chunks_exact_mut(8) {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            chunk.copy_from_slice(&state.to_le_bytes());
        }
        sum.update(&block);
        file.write_all(&block)
            .map_err(|e| format!("{}: {e}", path.display()))?;
    }
    file.flush()
        .map_err(|e| format!("{}: {e}", path.display()))?;
    Ok(hex(sum))
}

pub fn hex(sum: Sha256) -> String {
    sum.finalize().iter().map(|b| format!("{b:02x}")).collect()
}

/// SHA-256 of what a program writes to its output, and how many bytes that was.
fn hash_output(process: &mut Process) -> Result<(String, u64), String> {
    let mut output = process.stdout().ok_or("no pipe")?;
    let (mut sum, mut block, mut total) = (Sha256::new(), vec![0; 1 << 20], 0);
    loop {
        let n = output.read(&mut block).map_err(|e| e.to_string())?;
        if n == 0 {
            return Ok((hex(sum), total));
        }
        total += n as u64;
        sum.update(&block[..n]);
    }
}

/// SHA-256 of a file, and its length.
pub fn hash_file(path: &Path) -> Result<(String, u64), String> {
    let bytes = fs::read(path).map_err(|e| format!("{}: {e}", path.display()))?;
    Ok((hex(Sha256::new_with_prefix(&bytes)), bytes.len() as u64))
}

/// What curl is told: to say nothing but errors, to count an HTTP error as one, and when to give up.
pub const fn curl_arguments<'a>(seconds: &'a str, url: &'a str) -> [&'a str; 6] {
    let [silent, errors] = ["--silent", "--show-error"];
    [silent, errors, "--fail", "--max-time", seconds, url]
}

/// Fetches with curl (which gives up by itself) and compares.
pub fn fetch(place: &Place, mut command: Command, url: &str, sum: &str, mib: usize) -> Outcome {
    command.args(curl_arguments(&patience(mib).as_secs().to_string(), url));
    let mut curl = Process::start_piped(command, &place.folder, "curl")?;
    let (got, length) = hash_output(&mut curl)?;
    curl.finish(SOON)?.success()?;
    let wanted = (mib as u64) << 20;
    if length != wanted {
        return Err(format!("{url}: {length} of {wanted} bytes came"));
    }
    if got == *sum {
        Ok(())
    } else {
        Err(format!("{url}: the right number of other bytes came"))
    }
}

/// Python's web server, which listens on one family at a time.
pub const fn web_server(v6: bool) -> [&'static str; 5] {
    [
        "-m",
        "http.server",
        "8000",
        "--bind",
        if v6 { "::" } else { "0.0.0.0" },
    ]
}

fn curl_from_netchan(knobs: &Knobs, link: &str) -> Outcome {
    let mib = if link.starts_with("tap") || knobs.soak {
        knobs.bulk_mib
    } else {
        knobs.bulk_mib / 4
    };
    for v6 in [false, true] {
        let place = place_for(link)?;
        let sum = make_file(&place.folder.join("large"), mib)?;
        let mut server = place.start_netchan(link, "python3", &web_server(v6))?;
        let ours = OURS[usize::from(v6)];
        place.wait_for(&mut server, ours, 8000)?;
        let url = format!("http://{}/large", socket_address(ours, 8000));
        fetch(&place, place.command("curl"), &url, &sum, mib)
            .map_err(|e| format!("{e}; {}", server.said()))?;
    }
    Ok(())
}

fn curl_on_netchan(knobs: &Knobs) -> Outcome {
    let mib = knobs.bulk_mib / 4;
    for v6 in [false, true] {
        let place = place_for("tap:nc0")?;
        let sum = make_file(&place.folder.join("large"), mib)?;
        let mut server = place.start("python3", &web_server(v6))?;
        let kernel = KERNEL[usize::from(v6)];
        // The kernel reaches its own address without a link.
        place.wait_for(&mut server, kernel, 8000)?;
        let url = format!("http://{}/large", socket_address(kernel, 8000));
        fetch(
            &place,
            place.netchan_run("tap:nc0", "curl", &[])?,
            &url,
            &sum,
            mib,
        )?;
    }
    Ok(())
}

/// A file through `nc`, in each direction and each role.
pub fn nc_both_ways(link: &str, mib: usize) -> Outcome {
    for v6 in [false, true] {
        for serving in [true, false] {
            for sending in [true, false] {
                nc(link, mib, v6, serving, sending, |_| Ok(())).map_err(|e| {
                    format!("v6 {v6}, netchan serving {serving}, netchan sending {sending}: {e}")
                })?;
            }
        }
    }
    Ok(())
}

/// One file: netchan has the listening end (`serving`) and the file (`sending`), or not.
pub fn nc(
    link: &str,
    mib: usize,
    v6: bool,
    serving: bool,
    sending: bool,
    prepare: impl Fn(&Place) -> Outcome,
) -> Outcome {
    nc_in("app-channel", link, mib, v6, (serving, sending), prepare)
}

/// [`nc`] in `regime`.
pub fn nc_in(
    regime: &str,
    link: &str,
    mib: usize,
    v6: bool,
    (serving, sending): (bool, bool),
    prepare: impl Fn(&Place) -> Outcome,
) -> Outcome {
    let place = place_for(link)?;
    prepare(&place)?;
    let (from, to) = (place.folder.join("from"), place.folder.join("to"));
    let sum = make_file(&from, mib)?;
    let at = if serving { OURS } else { KERNEL }[usize::from(v6)];
    let family = if v6 { "-6" } else { "-4" };
    let side = |on_netchan: bool, listens: bool| -> Result<Process, String> {
        // The sender shuts down after its file (-N); the receiver has nothing to say (-d) and ends with the sender.
        let how = if on_netchan == sending { "-N" } else { "-d" };
        let mut arguments = vec![family, how];
        arguments.extend(listens.then_some("-l"));
        arguments.extend([at, "9000"]);
        let mut command = if on_netchan {
            place.netchan_run_in(regime, link, "nc", &arguments)?
        } else {
            place.command_on(None, "nc", &arguments)?
        };
        if on_netchan == sending {
            command.stdin(Stdio::from(
                fs::File::open(&from).map_err(|e| e.to_string())?,
            ));
            return Process::start(command, &place.folder, "nc-sends");
        }
        command.stdin(Stdio::null());
        Process::start(command, &place.folder, "nc-gets")
    };
    let mut server = side(serving, true)?;
    place.wait_listening(&mut server, serving, 9000)?;
    let client = side(!serving, false)?;
    client.finish(patience(mib))?.success()?;
    server.finish(patience(mib))?.success()?;
    let got = place.folder.join("nc-gets.out");
    fs::rename(&got, &to).map_err(|e| e.to_string())?;
    let (got, length) = hash_file(&to)?;
    if got == sum {
        Ok(())
    } else {
        Err(format!("other bytes came, {length} of {}", mib << 20))
    }
}

/// iperf3 in both roles, both directions, both families.
fn iperf3(link: &str, knobs: &Knobs) -> Outcome {
    let amount = format!("{}M", knobs.bulk_mib / 4);
    for v6 in [false, true] {
        for serving in [true, false] {
            for reverse in [false, true] {
                iperf3_once(
                    link,
                    &amount,
                    v6,
                    serving,
                    reverse,
                    patience(knobs.bulk_mib / 4),
                )
                .map_err(|e| {
                    format!("v6 {v6}, netchan serving {serving}, reverse {reverse}: {e}")
                })?;
            }
        }
    }
    Ok(())
}

/// One run of iperf3; it says itself when less came than was sent.
pub fn iperf3_once(
    link: &str,
    amount: &str,
    v6: bool,
    serving: bool,
    reverse: bool,
    patience: Duration,
) -> Outcome {
    let place = place_for(link)?;
    run_iperf3(&place, link, amount, v6, serving, reverse, patience)
}

/// Runs iperf3 in a place made before.
pub fn run_iperf3(
    place: &Place,
    link: &str,
    amount: &str,
    v6: bool,
    serving: bool,
    reverse: bool,
    patience: Duration,
) -> Outcome {
    let at = if serving { OURS } else { KERNEL }[usize::from(v6)];
    let listen = ["-s", "-1", "-B", at];
    let mut connect = vec!["-c", at, "-n", amount, "-J"];
    connect.extend(reverse.then_some("-R"));
    iperf3_ends(place, link, serving, (&listen, &connect), patience).map(drop)
}

/// iperf3 at both ends with these arguments, netchan at the listening one or (not `serving`) the other; what client and server said.
pub fn iperf3_ends(
    place: &Place,
    link: &str,
    serving: bool,
    (listen, connect): (&[&str], &[&str]),
    patience: Duration,
) -> Result<[Finished; 2], String> {
    let start = |on_netchan: bool, arguments: &[&str], name: &str| -> Result<Process, String> {
        let command = place.command_on(on_netchan.then_some(link), "iperf3", arguments)?;
        Process::start(command, &place.folder, name)
    };
    let mut server = start(serving, listen, "iperf3-server")?;
    place.wait_listening(&mut server, serving, 5201)?;
    let client = start(!serving, connect, "iperf3-client")?.finish(patience)?;
    let client = client
        .success()
        .map_err(|e| format!("{e}; server: {}", server.said()))?;
    Ok([client, server.finish(SOON)?.success()?])
}

/// tcpdump looks at whole packets of netchan's in both families and finds no checksum wrong.
fn checksums(_: &Knobs) -> Outcome {
    // Unfinished checksums are the rule on a link that takes them; this link is told not to (offload=off).
    let place = place_for("tap:nc0")?;
    let filter = format!("src host {} or src host {}", OURS[0], OURS[1]);
    let arguments = ["-i", "nc0", "-nn", "-vv", "-s", "0", "-l", &filter];
    let tcpdump = place.start("tcpdump", &arguments)?;
    let sum = make_file(&place.folder.join("large"), 8)?;
    for v6 in [false, true] {
        let link = "tap:nc0,offload=off";
        let mut server = place.start_netchan(link, "python3", &web_server(v6))?;
        let ours = OURS[usize::from(v6)];
        place.wait_for(&mut server, ours, 8000)?;
        place
            .run("ping", &["-c", "3", "-i", "0.1", ours], SOON)?
            .success()?;
        // A closed port too: what answers there is not the connection's code.
        place
            .inner(&["probe", &socket_address(ours, 1)])?
            .finish(SOON)?;
        let url = format!("http://{}/large", socket_address(ours, 8000));
        fetch(&place, place.command("curl"), &url, &sum, 8)?;
    }
    let seen = tcpdump.interrupt()?;
    let packets = seen.output.matches("cksum").count();
    let bad: Vec<&str> = seen
        .output
        .lines()
        .filter(|l| l.contains("incorrect") || l.contains("bad cksum") || l.contains("bad udp"))
        .collect();
    match (packets, bad.first()) {
        (0..100, _) => Err(format!(
            "tcpdump saw {packets} checksums only: {}",
            seen.errors
        )),
        (_, Some(first)) => Err(format!(
            "{} of {packets} checksums are wrong, first: {first}",
            bad.len()
        )),
        (_, None) => Ok(()),
    }
}
