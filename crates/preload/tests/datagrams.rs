//! Addresses, ports and errors of UDP sockets: the same program on the kernel's sockets and on netchan's, its lines compared. Each is a kind
//! of difference that random sequences of calls (`sequences.rs`) have found.

mod common;

use std::path::Path;

/// Runs a topic of `datagrams.py` on both, in two regimes.
fn alike(topic: &str) {
    if !common::have(&["python3"]) {
        return;
    }
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/py/datagrams.py");
    for regime in ["app-channel", "locked"] {
        let script = format!(
            "export NETCHAN_LOOPBACK=true NETCHAN_REGIME={regime}\n\
             timeout 60 python3 {0} 10.77.0.1 fd77::1 {topic} || exit 1\necho '--- netchan'\n\
             (on_netchan python3 {0} 10.77.0.2 fd77::2 {topic})",
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
        assert!(differ.is_empty(), "{regime}: Linux, netchan: {differ:#?}");
        assert_eq!(kernel, netchan);
    }
}

#[test]
fn urgent_datagrams_are_for_ipv6_only() {
    alike("urgent");
}

#[test]
fn a_send_without_a_destination_gives_a_port() {
    alike("unaddressed");
}

#[test]
fn the_address_of_the_first_connect_stays() {
    alike("reconnected");
}

#[test]
fn a_socket_bound_to_ipv6_is_of_ipv6_alone() {
    alike("family");
}

#[test]
fn a_peer_without_a_port_is_a_whole_host() {
    alike("port_zero");
}

#[test]
fn each_datagram_to_a_closed_port_of_ours_is_refused() {
    alike("errors");
}

#[test]
fn shutdown_before_there_is_a_port() {
    alike("shut");
}

#[test]
fn there_is_no_mark_in_datagrams() {
    alike("requests");
}
