//! The distribution's `ping`, which uses a ping socket, under `netchan run`.

use super::handed::{says, script};

/// What the kernel has no address for, so that it cannot answer in netchan's place: as source, or as destination.
#[test]
fn ping_runs_in_every_regime() {
    let output = script(
        "pings",
        "ip addr add fd78::1/64 dev nc8 nodad\n\
         for regime in app-channel locked giant percpu driver-channel socket-channel; do\n\
           for to in '10.7.8.1 -I 10.7.8.2' 10.7.8.2 'fd78::1 -I fd78::2' fd78::2 '10.7.8.1 -s 3000'; do\n\
             $netchan run --regime $regime --link tap:nc8 --address 10.7.8.2/24 --address fd78::2/64 -- \\\n\
               ping -c 3 -i 0.1 -W 5 $to > said 2>&1 || cat said\n\
             grep -q '3 packets transmitted, 3 received, 0% packet loss' said && echo \"$regime $to: 3 of 3\"\n\
           done\n\
         done\n\
         sysctl -qw net.ipv4.ping_group_range='0 1000'\n\
         $netchan run --link tap:nc8 --address 10.7.8.2/24 -- ping -c 1 -W 5 127.0.0.1 && echo the kernel answers\n\
         $netchan run --link tap:nc8 --address 10.7.8.2/24 -- ping -c 1 -W 5 10.7.8.77\n\
         $netchan run --link tap:nc8 --address 10.7.8.2/24 -- ping -M do -s 2000 -c 1 -W 1 10.7.8.1",
    );
    let mut wanted = Vec::new();
    for regime in [
        "app-channel",
        "locked",
        "giant",
        "percpu",
        "driver-channel",
        "socket-channel",
    ] {
        for to in [
            "10.7.8.1 -I 10.7.8.2",
            "10.7.8.2",
            "fd78::1 -I fd78::2",
            "fd78::2",
            "10.7.8.1 -s 3000",
        ] {
            wanted.push(format!("{regime} {to}: 3 of 3"));
        }
    }
    wanted.push("the kernel answers".into());
    wanted.push("From 10.7.8.2 icmp_seq=1 Destination Host Unreachable".into());
    wanted.push("local error: message too long, mtu=1500".into());
    says(
        output,
        &wanted.iter().map(String::as_str).collect::<Vec<_>>(),
    );
}

/// Programs on one daemon have identifiers of their own, and hear of what the daemon finds no way for.
#[test]
fn ping_runs_on_a_daemon() {
    let output = script(
        "pings-daemon",
        "ip addr add fd78::1/64 dev nc8 nodad\n\
         $netchan daemon --link tap:nc8 --address 10.7.8.2/24 --address fd78::2/64 --socket $PWD/d 2> log & daemon=$!\n\
         await grep -q lends log\n\
         on() { $netchan run --link daemon:$PWD/d -- \"$@\"; }\n\
         for to in '10.7.8.1 -I 10.7.8.2' 10.7.8.2 'fd78::1 -I fd78::2' fd78::2 '10.7.8.1 -s 3000' '10.7.8.1 -e 77'; do\n\
           on ping -c 3 -i 0.1 -W 5 $to > said 2>&1 || cat said\n\
           grep -q '3 packets transmitted, 3 received, 0% packet loss' said && echo \"$to: 3 of 3\"\n\
         done\n\
         on ping -c 20 -i 0.02 -W 5 10.7.8.1 > one 2>&1 & one=$!; on ping -c 20 -i 0.02 -W 5 10.7.8.1 > other 2>&1; wait $one\n\
         grep -h -c ' 20 received' one other | sort -u | sed 's/^/both: /'\n\
         on ping -c 1 -W 5 10.7.8.77; on ping -c 1 -W 5 192.0.2.1\n\
         kill $daemon; wait $daemon; cat log",
    );
    let wanted = [
        "10.7.8.1 -I 10.7.8.2: 3 of 3",
        "10.7.8.2: 3 of 3",
        "fd78::1 -I fd78::2: 3 of 3",
        "fd78::2: 3 of 3",
        "10.7.8.1 -s 3000: 3 of 3",
        "10.7.8.1 -e 77: 3 of 3",
        "both: 1",
        "From 10.7.8.2 icmp_seq=1 Destination Host Unreachable",
        "From 10.7.8.2 icmp_seq=1 Destination Net Unreachable",
    ];
    says(output, &wanted);
}
