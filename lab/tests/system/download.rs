//! curl of a stream of many GiB, hashed, while one packet in a hundred is lost each way: netchan serves, and netchan fetches. Nothing is kept, so that the
//! size is a matter of patience (`NETCHAN_BULK_MIB`), not of memory. Segments go and are lost one by one.

use std::{fs, io::Read};

use sha2::{Digest, Sha256};

use crate::{
    Case, Outcome,
    frames::Random,
    loss::lose,
    place::{KERNEL, Knobs, OURS, Place, SOON, socket_address},
    process::Process,
    transfer::{curl_arguments, hex, patience, place_for},
};

pub const CASES: &[Case] = &[
    ("curl_streams_from_netchan_with_loss", |k| both(k, true)),
    ("curl_on_netchan_streams_with_loss", |k| both(k, false)),
];

const BLOCK: usize = 1 << 20;

/// Serves as many MiB as it is told to, each of them the block in the file with its number in front.
const SERVER: &str = "\
import socket, sys, threading
block, mib = open('block', 'rb').read(), int(sys.argv[1])
def serve(s):
    if not s.recv(65536):
        return s.close()
    s.sendall(b'HTTP/1.0 200 OK\\r\\nContent-Length: %d\\r\\n\\r\\n' % (mib << 20))
    mine = bytearray(block)
    for i in range(mib):
        mine[:8] = i.to_bytes(8, 'little')
        s.sendall(mine)
    s.shutdown(socket.SHUT_WR)
    s.recv(1)
    s.close()
l = socket.create_server(('::', 8000), family=socket.AF_INET6, dualstack_ipv6=True)
while True:
    s, _ = l.accept()
    threading.Thread(target=serve, args=(s,), daemon=True).start()
";

/// Both families where it is quick; the long form has IPv4 for netchan's server and IPv6 for its client.
fn both(knobs: &Knobs, serving: bool) -> Outcome {
    if knobs.soak {
        return once(knobs.bulk_mib, serving, !serving);
    }
    [false, true]
        .into_iter()
        .try_for_each(|v6| once(12, serving, v6))
}

fn once(mib: usize, serving: bool, v6: bool) -> Outcome {
    let place = place_for("tap:nc0")?;
    let block = Random::new(1).bytes(BLOCK);
    fs::write(place.folder.join("block"), &block).map_err(|e| e.to_string())?;
    let count = mib.to_string();
    let link = "tap:nc0,offload=off";
    let mut server = if serving {
        place.start_netchan(link, "python3", &["-c", SERVER, &count])?
    } else {
        place.start("python3", &["-c", SERVER, &count])?
    };
    place.wait_listening(&mut server, serving, 8000)?;
    place.ip(&["link", "set", "nc0", "gso_max_segs", "1"])?;
    let single = ["-K", "nc0", "tso", "off", "gso", "off", "gro", "off"];
    place.run("ethtool", &single, SOON)?.success()?;
    lose(&place, "nc0", 1)?;
    let at = if serving { OURS } else { KERNEL }[usize::from(v6)];
    let url = format!("http://{}/", socket_address(at, 8000));
    let took = fetch(&place, (link, serving), &url, (mib, block))
        .map_err(|e| format!("v6 {v6}: {e}; server: {}", server.said()))?;
    println!("    {mib} MiB, v6 {v6}: {took:.1} s");
    Ok(())
}

/// curl's output hashed beside what it should be; seconds.
#[allow(clippy::disallowed_methods)] // a test's stopwatch
fn fetch(
    place: &Place,
    (link, serving): (&str, bool),
    url: &str,
    (mib, mut block): (usize, Vec<u8>),
) -> Result<f64, String> {
    let seconds = patience(mib).as_secs().to_string();
    let link = (!serving).then_some(link);
    let command = place.command_on(link, "curl", &curl_arguments(&seconds, url))?;
    let begin = std::time::Instant::now();
    let mut curl = Process::start_piped(command, &place.folder, "curl")?;
    let mut output = curl.stdout().ok_or("no pipe")?;
    let (mut wanted, mut got) = (Sha256::new(), Sha256::new());
    let mut came = vec![0; BLOCK];
    for number in 0..mib as u64 {
        block[..8].copy_from_slice(&number.to_le_bytes());
        wanted.update(&block);
        if let Err(e) = output.read_exact(&mut came) {
            let ended = curl.finish(SOON)?;
            return Err(format!("ended in MiB {number}: {e}: {}", ended.describe()));
        }
        got.update(&came);
    }
    let took = begin.elapsed().as_secs_f64();
    let more = output.read(&mut came).map_err(|e| e.to_string())?;
    curl.finish(SOON)?.success()?;
    if more == 0 && hex(wanted) == hex(got) {
        Ok(took)
    } else {
        Err("other bytes came".to_owned())
    }
}
