//! Clients of servers that fork, on the kernel's stack: children serve what they inherit, and what no process serves is refused or reset, not left to wait.

mod common;

use common::{have, in_namespace};

const WANTED: &str = "\
accept waiting: b'child 7000'
accept new: {b'child 7000'}
accept parent: b'here'
poll waiting: b'child 7000'
poll new: {b'child 7000'}
poll parent: b'here'
epoll waiting: b'child 7000'
epoll new: {b'child 7000'}
epoll parent: b'here'
inherited waiting: b'child 7000'
inherited new: {b'child 7000'}
inherited parent: b'here'
nested waiting: b'child 7000'
nested new: {b'child 7000'}
nested parent: b'here'
_Fork waiting: b'child 7000'
_Fork new: {b'child 7000'}
_Fork parent: b'here'
SYS_clone waiting: b'child 7000'
SYS_clone new: {b'child 7000'}
SYS_clone parent: b'here'
SYS_clone3 waiting: b'child 7000'
SYS_clone3 new: {b'child 7000'}
SYS_clone3 parent: b'here'
served: b'child 7000' b'here'
named: b'here'
silent: 1
handed: same
kept: same
executed: b'hello to <AddressFamily.AF_INET: 2>10.77.0.2'
halves: end
slow: bounded
slow: whole
storm: [] many
unread: ECONNRESET
left_alone: let go ECONNREFUSED
replaced: end ECONNREFUSED
left: end TimeoutError('timed out')
spawned: end
exit: b'the rest' end ECONNRESET 0
_exit: b'the rest' end ECONNRESET 0
quick_exit: b'the rest' end ECONNRESET 0
exit_group: b'the rest' end ECONNRESET 0
SIGHUP: b'the rest' end ECONNRESET -1
SIGINT: b'the rest' end ECONNRESET -2
SIGTERM: b'the rest' end ECONNRESET -15
waiting: b'the rest' end ECONNRESET -15
daemon: b'the rest' b'behind' 0 b'more' end end
background: b'the rest' b'behind' 0 b'more' end end
";

fn clients_learn_it(regime: &str) {
    if !have(&["python3"]) {
        return;
    }
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/py/forking_clients.py");
    let script = format!("export NETCHAN_REGIME={regime}\ntimeout 140 python3 {program}");
    let Some(output) = in_namespace(&script) else {
        return;
    };
    let said = String::from_utf8_lossy(&output.stdout);
    let complained = String::from_utf8_lossy(&output.stderr);
    assert_eq!(said, WANTED, "{complained}");
    let lines = complained.matches("cannot use them").count();
    assert_eq!(lines, 0, "all can serve: {complained}");
    let said = "which has one as its standard input";
    assert!(complained.contains(said), "{said}: {complained}");
}

#[test]
fn children_serve_their_clients_in_app_channel() {
    clients_learn_it("app-channel");
}

#[test]
fn children_serve_their_clients_in_percpu() {
    clients_learn_it("percpu");
}
