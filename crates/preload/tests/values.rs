//! What options do, and not only what they say: the same program on the kernel's sockets and on netchan's, its lines compared.

mod common;

use std::path::Path;

use common::have;

/// Runs a topic of `values.py` on both; `before` prepares the namespace.
fn alike(topic: &str, before: &str) {
    alike_by("values.py", topic, before);
}

fn alike_by(program: &str, topic: &str, before: &str) {
    if !have(&["python3"]) {
        return;
    }
    let program = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/py")
        .join(program);
    let script = format!(
        "{before}\n$PEER 0.0.0.0 > up & P=$!\nawait grep -q ready up\n\
         timeout 50 python3 {0} 127.0.0.1 {topic} || {{ kill $P; exit 1; }}\necho '--- netchan'\n\
         (on_netchan python3 {0} 10.77.0.1 {topic}); R=$?; kill $P; exit $R",
        program.display()
    );
    let Some(output) = common::in_namespace(&script) else {
        return;
    };
    let said = String::from_utf8_lossy(&output.stdout);
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}\n{complained}");
    let (kernel, netchan) = said.split_once("--- netchan\n").expect("two halves");
    assert!(!kernel.is_empty());
    let differ: Vec<_> = (kernel.lines().zip(netchan.lines()))
        .filter(|(linux, ours)| linux != ours)
        .collect();
    assert!(differ.is_empty(), "Linux, netchan: {differ:#?}");
    assert_eq!(kernel, netchan);
}

#[test]
fn timeouts() {
    alike("timeouts", "");
}

#[test]
fn buffer_sizes() {
    alike("buffers", "");
}

#[test]
fn linger_waits_for_the_answer_to_the_fin() {
    if !have(&["nft"]) {
        return;
    }
    let no_fin = "nft add table ip t\nnft add chain ip t in '{ type filter hook input priority 0; }'\n\
                  nft add rule ip t in tcp dport 9001 tcp flags '& fin == fin' drop";
    alike("linger", no_fin);
    alike("lingers_no_longer", "");
}

/// Without DF nothing that is forbidden to be cut comes to the peer, and nothing else with it: dropped, neither would be answered.
#[test]
fn df_is_set_as_discovery_says() {
    if !have(&["nft"]) {
        return;
    }
    let table =
        "nft add table ip t\nnft add chain ip t in '{ type filter hook input priority 0; }'\n";
    let drop = |bits| {
        format!("{table}nft add rule ip t in tcp dport 9001 ip frag-off '& 0x4000 == {bits}' drop")
    };
    alike("no_df", &drop("0x4000"));
    alike("df", &drop("0"));
}

#[test]
fn inquiry() {
    alike("inquiry", "");
}

#[test]
fn splice_to_and_from_pipes() {
    alike("splicing", "");
}

#[test]
fn zero_copy_sends_are_told_of() {
    alike("zero_copy", "");
}

#[test]
fn streams_leave_their_peers() {
    alike("unspecified", "");
}

#[test]
fn time_stamps_of_what_is_sent_and_received() {
    alike("stamps", "");
}

#[test]
fn when_the_last_datagram_came() {
    alike("arrival_ioctls", "");
}

#[test]
fn flags_without_effect() {
    alike("flags", "");
}

#[test]
fn broadcast_addresses() {
    alike("broadcast", "ip route add 224.0.0.0/4 dev lo");
}

/// EMSGSIZE, and what the error queue has of it.
#[test]
fn datagrams_that_are_too_long() {
    alike("too_long", "ip link set lo mtu 1500");
}

#[test]
fn busy_polls() {
    alike("busy_polls", "");
}

#[test]
fn datagrams_sent_are_told_of() {
    alike("datagrams_sent", "");
}

/// With the packet, which is cut where it is longer than the link takes.
#[test]
fn stamps_show_what_was_sent() {
    alike_by("sent_packets.py", "packets", "ip link set lo mtu 1500");
    alike_by("sent_packets.py", "pieces", "ip link set lo mtu 1500");
    alike_by("sent_packets.py", "controls", "");
}

#[test]
fn a_send_asks_for_its_own_stamps() {
    alike_by("sent_packets.py", "along", "");
}

#[test]
fn tee_and_vmsplice_are_for_pipes() {
    alike("pipes_only", "");
}

#[test]
fn a_splice_is_a_datagram() {
    alike("datagram_splices", "");
}

#[test]
fn the_fields_of_ipv4_and_of_ipv6() {
    alike("header_fields", "");
}

#[test]
fn priorities() {
    alike("priorities", "");
}

#[test]
fn acknowledgments_at_once() {
    alike("quick_acks", "");
}

#[test]
fn options_of_accepted_streams() {
    alike("accepted_options", "");
}
