//! ECN (RFC 3168) with Linux in both roles and both directions, on a link that marks packets: the mark is echoed, the sender slows down, says so, and
//! sends nothing again. netchan offers the accurate kind (RFC 9768), too; where Linux does not take it, both fall back.

use std::fs;

use serde_json::Value;

use crate::{
    Case, Outcome,
    place::{KERNEL, Knobs, OURS, Place, SOON, find, netchan},
    process::Process,
    transfer::{patience, place_for},
};

pub const CASES: &[Case] = &[("ecn_slows_down", slows)];

/// Both directions of one connection each; the client compares what came, and prints the senders' `TCP_INFO`: MiB, a host.
/// CUBIC, because BBR, which a kernel may begin with, does not heed ECN.
const PEER: &str = "\
import hashlib, json, socket, struct, sys
def info(s):
    raw = s.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 232)
    at = lambda offset: struct.unpack_from('=I', raw, offset)[0]
    return dict(options=raw[5], ssthresh=at(76), cwnd=at(80), retransmits=at(100), segments=at(156), marked=at(196))
def send(s, mib):
    block, sum = bytes(i * 7 % 251 for i in range(1 << 16)), hashlib.sha256()
    for i in range(16 * mib):
        sum.update(block)
        s.sendall(block)
    s.shutdown(socket.SHUT_WR)
    return sum.hexdigest()
def receive(s):
    sum = hashlib.sha256()
    while data := s.recv(1 << 18):
        sum.update(data)
    return sum.hexdigest()
def serve():
    l = socket.create_server(('::', 8000), family=socket.AF_INET6, dualstack_ipv6=True)
    l.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b'cubic')
    while True:
        s, _ = l.accept()
        way = s.recv(1)
        s.sendall(b'.')
        if way == b'>':
            s.sendall(json.dumps([receive(s), info(s)]).encode())
        else:
            sum = send(s, way[0])
            assert s.recv(1) == b''
            print(json.dumps([sum, info(s)]), flush=True)
        s.close()
def client(mib, host):
    s = socket.create_connection((host, 8000))
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b'cubic')
    s.sendall(b'>')
    assert s.recv(1) == b'.'
    sum = send(s, mib)
    got, theirs = json.loads(s.makefile().read())
    assert got == sum, 'other bytes went'
    print(json.dumps([sum, info(s)]))
    s = socket.create_connection((host, 8000))
    s.sendall(bytes([mib]))
    assert s.recv(1) == b'.'
    print(json.dumps([receive(s)]))
serve() if len(sys.argv) == 1 else client(int(sys.argv[1]), sys.argv[2])
";

/// Marks some of what may be marked, at the kernel's end of the link, and counts what the ends say about it but in their SYNs.
fn marks() -> String {
    let chain = |way: &str, hook: &str| {
        format!(
            "\
  counter echoed_{way} {{ }}
  counter reduced_{way} {{ }}
  chain {way} {{
    type filter hook {hook} device \"nc0\" priority 0;
    tcp flags & (syn|ecn) == ecn counter name echoed_{way}
    tcp flags & (syn|cwr) == cwr counter name reduced_{way}
    ip ecn != not-ect numgen random mod 100 < 5 ip ecn set ce
    ip6 ecn != not-ect numgen random mod 100 < 5 ip6 ecn set ce
  }}
"
        )
    };
    let (received, sent) = (chain("in", "ingress"), chain("out", "egress"));
    format!("table netdev marks {{\n{received}{sent}}}\n")
}

/// At 5 % of marks CUBIC and Reno come to some six segments (RFC 9438 §5.1, RFC 8312); without reaction to a thousand and more within a MiB.
const WINDOW_MAX: u64 = 80;

fn slows(knobs: &Knobs) -> Outcome {
    let mib = if knobs.soak { 64 } else { 2 };
    for (mode, v6) in [("classic", false), ("accurate", true)] {
        for serving in [true, false] {
            marked(mode, serving, v6, mib)
                .map_err(|e| format!("{mode}, netchan serving {serving}: {e}"))?;
        }
    }
    Ok(())
}

/// A place whose kernel asks for ECN and whose link carries single segments, marked as [`marks`] says.
fn place_with_marks() -> Result<Place, String> {
    let place = place_for("tap:nc0")?;
    let ask = ["-q", "-w", "net.ipv4.tcp_ecn=1"];
    place.run("sysctl", &ask, SOON)?.success()?;
    // A mark on what is cut up later would be many, and what TCP leaves to be cut up passes these rules whole.
    place.ip(&["link", "set", "nc0", "gso_max_segs", "1"])?;
    let single = ["-K", "nc0", "tso", "off", "gso", "off", "gro", "off"];
    place.run("ethtool", &single, SOON)?.success()?;
    let rules = place.folder.join("marks");
    fs::write(&rules, marks()).map_err(|e| e.to_string())?;
    place
        .run("nft", &["-f", &rules.to_string_lossy()], SOON)?
        .success()?;
    Ok(place)
}

fn marked(mode: &str, serving: bool, v6: bool, mib: usize) -> Outcome {
    let place = place_with_marks()?;
    let settings = format!(
        "[[link]]\nname = \"nc0\"\nkind = \"tap\"\naddress = [\"{}/24\", \"{}/64\"]\noptions = {{ offload = \"off\" }}\n[tcp]\necn = \"{mode}\"\n",
        OURS[0], OURS[1]
    );
    fs::write(place.folder.join("netchan.toml"), settings).map_err(|e| e.to_string())?;
    let start = |on_netchan: bool, arguments: &[&str]| {
        let python = find("python3").ok_or("python3 is missing")?;
        let mut command = place.command(&netchan()?.to_string_lossy());
        command.args(["run", "--config", "netchan.toml", "--"]);
        if !on_netchan {
            command = place.command("python3");
        } else {
            command.arg(python);
        }
        command.args(["-c", PEER]).args(arguments);
        Process::start(command, &place.folder, &format!("peer-{on_netchan}"))
    };
    let mut server = start(serving, &[])?;
    place.wait_listening(&mut server, serving, 8000)?;
    let host = if serving { OURS } else { KERNEL }[usize::from(v6)];
    let client = start(!serving, &[&mib.to_string(), host])?;
    let client = client.finish(patience(mib))?.success();
    let client = client.map_err(|e| format!("{e}; server: {}", server.said()))?;
    let heard = crate::process::eventually(SOON, || server.said().contains("marked"));
    let said = format!("{}{}", client.output, server.said());
    if !heard {
        return Err(format!("no word from the server: {said}"));
    }
    let lines: Result<Vec<Value>, _> = said
        .lines()
        .map(|l| serde_json::from_str(l.trim()))
        .collect();
    let lines = lines.map_err(|e| format!("{e}: {said}"))?;
    let [ours, got, theirs] = lines.as_slice() else {
        return Err(format!("three lines were to come: {said}"));
    };
    if got[0] != theirs[0] {
        return Err("other bytes came".to_owned());
    }
    reacted(&ours[1]).map_err(|e| format!("the client, sending: {e}"))?;
    reacted(&theirs[1]).map_err(|e| format!("the server, sending: {e}"))?;
    said_so(&place)
}

/// A sender's `TCP_INFO`, at its end.
fn reacted(info: &Value) -> Outcome {
    let number = |name: &str| {
        info[name]
            .as_u64()
            .ok_or_else(|| format!("no {name}: {info}"))
    };
    // TCPI_OPT_ECN.
    let agreed = number("options")? & 8 != 0;
    let slowed = number("ssthresh")? <= WINDOW_MAX && number("cwnd")? <= WINDOW_MAX;
    // The link loses nothing; a probe for a lost tail (RFC 8985 §7) may go when the machine is late.
    let whole = number("retransmits")? * 100 <= number("segments")?;
    if agreed && slowed && whole && number("marked")? > 0 {
        return Ok(());
    }
    Err(format!("no sign that it saw marks: {info}"))
}

/// Both ends echoed marks (ECE) and told of their reaction (CWR).
fn said_so(place: &Place) -> Outcome {
    let shown = place
        .run("nft", &["-j", "list", "counters"], SOON)?
        .success()?;
    let shown: Value = serde_json::from_str(&shown.output).map_err(|e| e.to_string())?;
    for name in ["echoed_in", "echoed_out", "reduced_in", "reduced_out"] {
        let mut all = shown["nftables"].as_array().ok_or("no counters")?.iter();
        let count = all.find_map(|c| c.get("counter").filter(|c| c["name"] == name));
        if count.and_then(|c| c["packets"].as_u64()).unwrap_or(0) == 0 {
            return Err(format!("{name}: none of {shown}"));
        }
    }
    Ok(())
}
