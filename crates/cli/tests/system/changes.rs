//! `netchan address`, `route`, `set` and `module` at a running program, beside the kernel, which asks the new addresses.

use super::handed::{says, script};

#[test]
fn addresses_routes_settings_and_modules_change_while_a_program_runs() {
    let output = script(
        "changes",
        "ip addr add 10.7.9.1/24 dev nc8\nmkfifo hold\n\
         $RUN python3 ask.py bind wait < hold & run=$!; exec 9> hold\n\
         at() { $netchan \"$@\" --pid $run; }\n\
         asked() { ping -c 1 -W 1 \"$1\" > /dev/null 2>&1; }\n\
         await at show links\n\
         asked 10.7.9.2 || echo not yet\n\
         at address add 10.7.9.2/24; await asked 10.7.9.2 && echo answers\n\
         at address add 10.7.9.2/24; echo again $?\n\
         at address add fd07::2/64 --link nc8 --json\n\
         at show addresses\n\
         at route add 10.99.0.0/16 --via 10.7.9.1 && at show routes\n\
         at route add 10.98.0.0/16 --via 10.99.0.1; echo far $?\n\
         at route add default; echo usage $?\n\
         at set tcp.congestion bbr; at show settings | grep congestion\n\
         at set shards 2; echo boot $?\n\
         at set link.nc8.mtu 1200; at set link.nc8.mtu 1501; echo mtu $?\n\
         long() { ping -c 1 -W 1 -M do -s 1372 10.7.8.2 > /dev/null 2>&1; }\n\
         long && at set link.nc8.mtu 1280 && at show links | grep -c ' 1280 ' && long; ip -o link show nc8 | grep -o 'mtu 1500'\n\
         at set link.nc8.mtu 1500 && long && echo whole\n\
         at module load wall kind=filter 'rules=[\"drop in proto icmp\"]'; asked 10.7.9.2 || echo dropped\n\
         at module list | grep wall; at module unload wall; asked 10.7.9.2 && echo again\n\
         at address del 10.7.9.2; ip neigh flush dev nc8; asked 10.7.9.2 || echo silent; asked 10.7.8.2 && echo the other answers\n\
         at show routes | grep -c 10.99; at route del fd07::/64; echo >&9; wait $run",
    );
    says(
        output,
        &[
            "not yet\ntap:nc8 has 10.7.9.2/24\nanswers\n",
            "tap:nc8 has 10.7.9.2 already",
            "again 1",
            "\"done\": \"tap:nc8 has fd07::2/64\"",
            "fd07::2/64",
            "10.99.0.0/16",
            "gateway 10.99.0.1 is on none of tap:nc8's networks",
            "far 1",
            "a default route needs --via GATEWAY",
            "usage 2",
            "tcp.congestion is bbr",
            "shards is boot-time: it is said before the start, by the regime, the links' queues, or Builder::shards",
            "boot 1",
            "nc8 has IPv6 addresses, which need an MTU of 1280 bytes at least (RFC 8200 §5), not 1200",
            "1501 is more than the 1500 bytes that the buffers of nc8 hold since the start",
            "mtu 1\nthe MTU of tap:nc8 is 1280\n",
            "mtu 1500\nthe MTU of tap:nc8 is 1500\nwhole\n",
            "module wall is loaded\ndropped\n",
            "module wall is unloaded\nagain\n",
            "tap:nc8 no longer has 10.7.9.2\nsilent\nthe other answers\n0\n",
            "the route to fd07::/64 is gone",
        ],
    );
}
