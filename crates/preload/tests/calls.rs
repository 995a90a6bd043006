//! The socket calls of a C program: the same checks on the kernel's sockets, through the library, and on netchan.

mod common;

use common::expect;

/// The checks themselves are right: Linux passes them.
#[test]
fn linux_passes_the_checks() {
    expect(
        "$PEER 127.0.0.1 > up & P=$!\nawait grep -q ready up\n$CALLS 127.0.0.1 kernel; R=$?; kill $P; exit $R",
        "all right",
    );
}

/// Preloaded, but not told to use netchan: nothing changes.
#[test]
fn a_library_without_settings_changes_nothing() {
    let script = "unset NETCHAN_LINK\n$PEER 127.0.0.1 > up & P=$!\nawait grep -q ready up\n\
                  LD_PRELOAD=$LIBRARY $CALLS 127.0.0.1 kernel; R=$?; kill $P; exit $R";
    expect(script, "all right");
}

/// Preloaded and configured, on loopback: still the kernel's sockets, from undecided on.
#[test]
fn loopback_stays_with_the_kernel() {
    let script = "ip link del nc0\n$PEER 127.0.0.1 > up & P=$!\nawait grep -q ready up\n\
                  (on_netchan $CALLS 127.0.0.1 kernel transfers waiting epoll descriptors options processes)\n\
                  R=$?; kill $P; exit $R";
    expect(script, "all right");
}

fn on_netchan(group: &str, regime: &str) {
    let script = format!(
        "export NETCHAN_REGIME={regime}\n$PEER 10.77.0.1 > up & P=$!\nawait grep -q ready up\n\
         (on_netchan $CALLS 10.77.0.1 netchan {group}); R=$?; kill $P; exit $R"
    );
    expect(&script, "all right");
}

#[test]
fn transfers_on_netchan() {
    on_netchan("transfers", "app-channel");
}

/// What goes through the regime's own ways to hold a shard and to wait for it.
#[test]
fn transfers_and_waits_in_driver_channel() {
    on_netchan("transfers waiting epoll threads", "driver-channel");
}

#[test]
fn transfers_and_waits_in_percpu() {
    on_netchan("transfers waiting epoll threads", "percpu");
}

#[test]
fn endpoints_on_netchan() {
    on_netchan("endpoints", "app-channel");
}

#[test]
fn waiting_on_netchan() {
    on_netchan("waiting", "app-channel");
}

#[test]
fn epoll_on_netchan() {
    on_netchan("epoll", "app-channel");
}

#[test]
fn descriptors_on_netchan() {
    on_netchan("descriptors", "app-channel");
}

#[test]
fn options_on_netchan() {
    on_netchan("options", "app-channel");
}

#[test]
fn datagrams_on_netchan() {
    on_netchan("datagrams messages", "app-channel");
}

#[test]
fn groups_on_netchan() {
    on_netchan("groups", "app-channel");
}

/// Where the sender's socket has another shard than the members'.
#[test]
fn groups_in_socket_channel() {
    on_netchan("groups", "socket-channel");
}

#[test]
fn fast_open_on_netchan() {
    on_netchan("fastopen", "app-channel");
}

#[test]
fn threads_on_netchan() {
    on_netchan("threads", "app-channel");
}

#[test]
fn processes_on_netchan() {
    on_netchan("processes", "app-channel");
}

#[test]
fn everything_under_giant() {
    on_netchan("", "giant");
}

#[test]
fn everything_under_locked() {
    on_netchan("", "locked");
}
