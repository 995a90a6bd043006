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
fn ends_on_netchan() {
    on_netchan("ends", "app-channel");
}

#[test]
fn ends_on_netchan_when_locked() {
    on_netchan("ends", "locked");
}

#[test]
fn interfaces_on_netchan() {
    on_netchan("interfaces", "app-channel");
}

/// Which of several sockets a packet goes to by the processor that takes it in.
#[test]
fn processors_on_linux_and_netchan() {
    expect("$CALLS 127.0.0.1 kernel cpus", "all right");
    for regime in ["app-channel", "locked", "percpu"] {
        on_netchan("cpus", regime);
    }
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
fn signals_on_netchan() {
    on_netchan("signals", "app-channel");
}

#[test]
fn numbers_on_netchan() {
    on_netchan("numbers exhausted", "app-channel");
}

/// Where the program may not have more numbers than it uses.
#[test]
fn numbers_exhausted_for_good() {
    on_netchan("exhausted-hard", "app-channel");
}

#[test]
fn a_vfork_before_the_stack_leaves_the_numbers_alone() {
    on_netchan("vfork-first", "app-channel");
}

#[test]
fn a_fork_before_the_stack_makes_its_own() {
    on_netchan("fork-first", "app-channel");
}

/// It has closed what it inherited; else the second run would find the TAP busy.
#[test]
fn a_child_left_behind_has_no_part_in_the_link() {
    let script = "$PEER 10.77.0.1 > up & P=$!\nawait grep -q ready up\n\
                  (on_netchan $CALLS 10.77.0.1 netchan leaves-child) && \
                  (on_netchan $CALLS 10.77.0.1 netchan leaves-child); R=$?; kill $P; exit $R";
    expect(script, "all right");
}

/// Links that sleep in ppoll and links that take many frames at a time.
#[test]
fn netchans_own_calls_go_to_the_kernel() {
    let counter = common::counter().display();
    for link in ["tap:nc0", "packet:nc1"] {
        let script = format!(
            "ip link add nc1 type veth peer name nc2 && ip link set nc1 up && ip link set nc2 up\n\
             [ {link} = tap:nc0 ] || {{ ip addr flush dev nc0; ip addr add 10.77.0.1/24 dev nc2; }}\n\
             export NETCHAN_LINK={link} LIBRARY=\"{counter}:$LIBRARY\"\n\
             $PEER 10.77.0.1 > up & P=$!\nawait grep -q ready up\n\
             (on_netchan $CALLS 10.77.0.1 netchan counts); R=$?; kill $P; exit $R"
        );
        expect(&script, "all right");
    }
}

#[test]
fn cancellation_on_netchan() {
    on_netchan("cancels", "app-channel");
}

/// Where a call that waits leads no shard.
#[test]
fn signals_and_cancellation_under_locked() {
    on_netchan("signals cancels", "locked");
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
