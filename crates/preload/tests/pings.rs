//! Ping sockets (ICMP datagram sockets): the same program on the kernel's and on netchan's, and the `ping` of the distribution.

mod common;

use std::path::Path;

use common::{expect, have};

/// A namespace `$K` whose kernel is for a while what netchan is later: 10.77.0.2 and fd77::2, behind this one.
const KERNEL: &str = "unshare -n sleep 100 & K=$!\n\
    await sh -c \"! test /proc/self/ns/net -ef /proc/$K/ns/net\"\n\
    in_kernel() { nsenter -t $K -n \"$@\"; }\n\
    sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1\n\
    sysctl -qw net.ipv4.icmp_ratemask=0 net.ipv6.icmp.ratelimit=0 net.ipv4.icmp_msgs_per_sec=100000\n\
    ip route add prohibit 192.0.2.0/24; ip -6 route add prohibit 2001:db8::/48\n\
    there() { ip addr flush dev $1; ip link set $1 down; ip link set $2 up\n\
      ip addr add 10.77.0.1/24 dev $2; ip addr add fd77::1/64 dev $2 nodad\n\
      ip route add 198.51.100.0/24 dev $2; ip route add 2001:db8:1::/48 dev $2; }\n\
    ip link add k0 type veth peer name k1; ip link set k1 netns $K\n\
    in_kernel ip link set lo up; in_kernel ip link set k1 up; there nc0 k0\n\
    in_kernel ip addr add 10.77.0.2/24 dev k1; in_kernel ip addr add fd77::2/64 dev k1 nodad\n\
    in_kernel ip route add default via 10.77.0.1; in_kernel ip -6 route add default via fd77::1\n\
    await in_kernel ping -c 1 -W 1 10.77.0.1; await in_kernel ping -c 1 -W 1 fd77::1\n\
    in_kernel sysctl -qw net.ipv4.ping_group_range='0 2147483647'\n";

fn alike(regime: &str, allowed: bool) {
    if !have(&["python3", "ping", "nsenter"]) {
        return;
    }
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/py/pings.py");
    let range = if allowed { "0 2147483647" } else { "1 0" };
    let script = format!(
        "mkdir -p $$ && cd $$\n{KERNEL}\
         run='timeout 60 python3 {} 10.77.0.2 fd77::2 10.77.0.1 fd77::1'\n\
         in_kernel $run > kernel || exit 1\n\
         there k0 nc0\n\
         sysctl -qw net.ipv4.ping_group_range='{range}'\n\
         (export NETCHAN_GATEWAY=10.77.0.1,fd77::1 NETCHAN_REGIME={regime}; on_netchan $run > netchan); R=$?\n\
         kill $K; diff kernel netchan && test $R = 0 && test $(wc -l < kernel) -gt 200 && echo the same",
        program.display()
    );
    expect(&script, "the same");
}

#[test]
fn in_app_channel() {
    alike("app-channel", true);
}

#[test]
fn in_locked() {
    alike("locked", true);
}

#[test]
fn in_giant() {
    alike("giant", true);
}

#[test]
fn where_each_socket_has_a_shard() {
    alike("socket-channel", true);
}

/// `net.ipv4.ping_group_range` says which groups may have ping sockets of the kernel's.
#[test]
fn where_the_kernel_has_none_for_us() {
    alike("percpu", false);
}

/// There it says so instead of asking in vain.
#[test]
fn an_address_of_the_kernels_is_out_of_reach_then() {
    if !have(&["python3"]) {
        return;
    }
    let script = "sysctl -qw net.ipv4.ping_group_range='1 0'\n\
        cat > nobody.py <<'END'\n\
import socket\n\
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP)\n\
for call in (s.connect, lambda to: s.sendto(bytes([8] + [0] * 7), to)):\n  \
  for to in '10.77.0.1', '127.0.0.1':\n    \
    try: call((to, 0)); print('well')\n    \
    except OSError as error: print(error.errno)\n\
END\n\
        (on_netchan python3 nobody.py) | tr '\\n' ' '";
    expect(script, "well 101 well 101");
}
