//! Programs that talk to themselves over 127.0.0.0/8 and ::1, on netchan and beside it on the kernel's stack.

mod common;

use common::{expect, have};

/// Runs the program on the kernel's stack and with these variables; both must say the same.
fn same(variables: &str, whose: &str) {
    same_with("", 40, variables, whose);
}

/// The same for the program with an argument, which makes it say more than so many lines.
fn same_with(argument: &str, lines: usize, variables: &str, whose: &str) {
    same_beside("", argument, lines, variables, whose);
}

/// The same, with what comes before the program on the kernel's stack.
fn same_beside(kernels: &str, argument: &str, lines: usize, variables: &str, whose: &str) {
    if !have(&["python3"]) {
        return;
    }
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/py/loopback.py");
    let script = format!(
        "mkdir -p $$ && cd $$\n\
         ip route add default via 10.77.0.9\n\
         {kernels} timeout 60 python3 {program} {argument} > kernel 2> log; cat log; grep -q 'whose kernel' log || exit 1\n\
         (exec env {variables} LD_PRELOAD=$LIBRARY timeout -k 1 60 python3 {program} {argument}) > netchan 2> log; cat log\n\
         grep -q 'whose {whose}' log && diff kernel netchan && test $(wc -l < kernel) -gt {lines} && echo the same"
    );
    expect(&script, "the same");
}

#[test]
fn with_a_link() {
    same("NETCHAN_LOOPBACK=true", "netchan");
}

#[test]
fn alone() {
    // A kernel that has no route either.
    same_beside(
        "unshare -n sh -c 'ip link set lo up && exec \"$@\"' sh",
        "",
        40,
        "-u NETCHAN_LINK -u NETCHAN_ADDRESS -u NETCHAN_GATEWAY NETCHAN_LOOPBACK=true",
        "netchan",
    );
}

#[test]
fn by_a_file() {
    let file = "$(printf 'loopback = \"netchan\"\\n[[link]]\\nkind = \"tap\"\\nname = \"nc0\"\\naddress = [\"10.77.0.2/24\"]\\ngateway = \"10.77.0.1\"\\n' > file; echo file)";
    same(
        &format!("-u NETCHAN_LINK -u NETCHAN_ADDRESS -u NETCHAN_GATEWAY NETCHAN_CONFIG={file}"),
        "netchan",
    );
}

/// A server bound to a wildcard address is netchan's and hears the stack's links only, so these servers name their address.
#[test]
fn unless_they_are_the_kernels() {
    same_with("named", 25, "NETCHAN_LOOPBACK=false", "kernel");
    same_with(
        "named",
        25,
        "NETCHAN_LOOPBACK=true NETCHAN_KERNEL=127.0.0.0/8,::1/128",
        "kernel",
    );
}

/// Runs a topic of `binds.py` on the kernel's stack and on netchan's; both must say the same, in more than so many lines. What differs must do so twice: of
/// many ports that are drawn, one is now and then the one that was given up just before.
fn binds(topic: &str, lines: usize) {
    if !have(&["python3"]) {
        return;
    }
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/py/binds.py");
    let script = format!(
        "mkdir -p $$ && cd $$\nip route add default via 10.77.0.9\n\
         differ() {{\n\
         timeout 60 python3 {program} {topic} > kernel || exit 1\n\
         (exec env NETCHAN_LOOPBACK=true LD_PRELOAD=$LIBRARY timeout -k 1 60 python3 {program} {topic}) > netchan\n\
         test $(wc -l < kernel) = $(wc -l < netchan) || {{ diff kernel netchan; exit 1; }}\n\
         paste kernel netchan | awk -F '\\t' '$1 != $2 {{ print NR, $0 }}'; }}\n\
         differ > once; : > twice\n\
         test -s once && differ | while read -r line rest; do grep -q \"^$line \" once && echo \"$line $rest\"; done > twice\n\
         cat twice; test ! -s twice && test $(wc -l < kernel) -gt {lines} && echo the same"
    );
    expect(&script, "the same");
}

#[test]
fn ports_are_shared_as_sockets_say_by_then() {
    binds("reuse", 319);
    binds("listens_anew", 1);
}

#[test]
fn a_mapped_wildcard_is_of_ipv4_alone() {
    binds("mapped_wildcard", 5);
    binds("name_after_a_failure", 11);
}

#[test]
fn a_connect_to_a_mapped_address_gives_a_source() {
    binds("mapped_sources", 200);
}

#[test]
fn a_port_is_shown_by_the_call_that_gave_it() {
    binds("ports_shown", 4000);
}

#[test]
fn listeners_options_are_those_of_the_time_of_connecting() {
    binds("inherited", 6);
    binds("every_inherited", 90);
}

/// Runs a program on the kernel's stack and on netchan's where there are loopback addresses alone; both must say the same, in so many lines.
fn says_the_same(program: &str, topic: &str, lines: usize) {
    if !have(&["python3"]) {
        return;
    }
    let program = format!(
        "{}/tests/py/{program}.py {topic}",
        env!("CARGO_MANIFEST_DIR")
    );
    let script = format!(
        "mkdir -p $$ && cd $$\nunset NETCHAN_LINK NETCHAN_ADDRESS NETCHAN_GATEWAY\n\
         alone() {{ unshare -n sh -c 'ip link set lo up && exec \"$@\"' sh \"$@\"; }}\n\
         alone timeout 60 python3 {program} > kernel || exit 1\n\
         alone env NETCHAN_LOOPBACK=true LD_PRELOAD=$LIBRARY timeout -k 1 60 python3 {program} > netchan 2> log; cat log\n\
         grep -q 'no stack was started' log && exit 1\n\
         diff kernel netchan && test $(wc -l < kernel) = {lines} && echo the same"
    );
    expect(&script, "the same");
}

#[test]
fn what_is_sent_is_there_when_the_call_returns() {
    says_the_same("at_once", "arrives", 4);
    says_the_same("at_once", "datagrams", 2);
    says_the_same("at_once", "connects", 3);
    says_the_same("at_once", "ends", 4);
}

#[test]
fn what_was_held_back_leaves_with_the_next_send() {
    says_the_same("at_once", "more", 5);
}

#[test]
fn lengths_of_addresses_are_read_as_linux_does() {
    says_the_same("lengths", "", 704);
}

#[test]
fn without_a_route_nothing_leaves() {
    says_the_same("nowhere", "", 54);
}
