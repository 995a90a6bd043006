//! Clients of servers that fork, on the kernel's stack: what a child was to serve is refused or reset, not left to wait.

mod common;

use common::{have, in_namespace};

const WANTED: &str = "\
accept waiting: ECONNRESET
accept new: refused
accept parent: b'here'
poll waiting: ECONNRESET
poll new: refused
poll parent: b'here'
epoll waiting: ECONNRESET
epoll new: refused
epoll parent: b'here'
inherited waiting: ECONNRESET
inherited new: refused
inherited parent: b'here'
nested waiting: ECONNRESET
nested new: refused
nested parent: b'here'
_Fork waiting: ECONNRESET
_Fork new: refused
_Fork parent: b'here'
SYS_clone waiting: ECONNRESET
SYS_clone new: refused
SYS_clone parent: b'here'
SYS_clone3 waiting: ECONNRESET
SYS_clone3 new: refused
SYS_clone3 parent: b'here'
served: b'here' b'here' b'here' b'here'
named: b'here'
silent: 1
handed: ECONNRESET
replaced: ECONNRESET ECONNREFUSED
left: ECONNRESET ECONNREFUSED
spawned: end
exit: b'the rest' end ECONNRESET 0
_exit: b'the rest' end ECONNRESET 0
quick_exit: b'the rest' end ECONNRESET 0
exit_group: b'the rest' end ECONNRESET 0
SIGHUP: b'the rest' end ECONNRESET -1
SIGINT: b'the rest' end ECONNRESET -2
SIGTERM: b'the rest' end ECONNRESET -15
waiting: b'the rest' end ECONNRESET -15
daemon: b'the rest' end ECONNRESET 0
background: b'the rest' end ECONNRESET 0
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
    assert_eq!(lines, 10, "each child says it once: {complained}");
    for said in [
        "which has one as its standard input",
        "has become another program",
    ] {
        assert!(complained.contains(said), "{said}: {complained}");
    }
    let lines = complained
        .matches("its children go on without them")
        .count();
    assert_eq!(lines, 2, "in the background: {complained}");
}

#[test]
fn clients_of_children_are_refused_in_app_channel() {
    clients_learn_it("app-channel");
}

#[test]
fn clients_of_children_are_refused_in_percpu() {
    clients_learn_it("percpu");
}
