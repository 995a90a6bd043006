//! 127.0.0.0/8 and ::1 of a daemon: unmodified programs that share them, and those that do not.

use super::handed::{says, script};

/// A daemon that lends them, and servers on it; `$ON` runs a program that shares them.
const SERVERS: &str = "ip addr add fd78::1/64 dev nc8 nodad\n\
     $netchan daemon --link tap:nc8 --address 10.7.8.2/24 --address fd78::2/64 --loopback --socket $PWD/d 2> log & daemon=$!\n\
     await grep -q lends log\n\
     ON=\"$netchan run --link daemon:$PWD/d --loopback --\"\n\
     get() { $ON curl -s -m 10 \"$@\"; }\n\
     has() { $netchan show leases --pid $daemon | grep -q \"$1\"; }\n\
     echo hello > page\n\
     $ON python3 -m http.server 8000 --bind 127.0.0.1 > one 2>&1 & one=$!\n\
     $ON python3 -m http.server 8001 --bind 0.0.0.0 > two 2>&1 & two=$!\n\
     $ON python3 -m http.server 8002 --bind ::1 > three 2>&1 & three=$!\n\
     $netchan run --link daemon:$PWD/d -- python3 -m http.server 8003 --bind 0.0.0.0 > four 2>&1 & four=$!\n\
     for port in 8000 8001 8002 8003; do await has $port; done\n";

const END: &str =
    "kill $one $two $three $four; wait $one $two $three $four; kill $daemon; wait $daemon; cat log";

#[test]
fn programs_on_a_daemon_share_loopback() {
    let output = script(
        "loopback",
        &format!(
            "{SERVERS}\
             for at in 127.0.0.1:8000 127.0.0.1:8001 127.8.8.8:8001 localhost:8000 10.7.8.2:8001 [::1]:8002 10.7.8.2:8003; do\n\
               echo \"$at: $(get http://$at/page) $?\"\n\
             done\n\
             for at in 10.7.8.2:8000 127.0.0.2:8000 127.0.0.1:8003 127.0.0.1:8004 [::1]:8001; do get http://$at/page; echo \"$at: status $?\"; done\n\
             $ON python3 -m http.server 8000 --bind 127.0.0.1 2>&1 | tail -1 | sed 's/^/taken: /'\n\
             $ON python3 -c 'import socket; s = socket.create_server((\"127.0.0.2\", 8000)); print(\"another address is another place\")'\n\
             for to in 127.0.0.1 127.9.9.9 ::1; do $ON ping -c 2 -i 0.1 -W 5 $to 2>&1 | grep -o '2 received' | sed \"s/^/$to: /\"; done\n\
             sysctl -qw net.ipv4.ping_group_range='0 1000'\n\
             ip link set lo up\n\
             curl -s -m 10 http://127.0.0.1:8001/page; echo \"the kernel's: status $?\"\n\
             $netchan run --link daemon:$PWD/d -- curl -s -m 10 http://127.0.0.1:8001/page; echo \"the kernel's from there: status $?\"\n\
             {END}"
        ),
    );
    let wanted = [
        "127.0.0.1:8000: hello 0",
        "127.0.0.1:8001: hello 0",
        "127.8.8.8:8001: hello 0",
        "localhost:8000: hello 0",
        "10.7.8.2:8001: hello 0",
        "[::1]:8002: hello 0",
        "10.7.8.2:8003: hello 0",
        // curl's 7: no connection; its 28 would be no answer in 10 s.
        "10.7.8.2:8000: status 7",
        "127.0.0.2:8000: status 7",
        "127.0.0.1:8003: status 7",
        "127.0.0.1:8004: status 7",
        "[::1]:8001: status 7",
        "taken: OSError: [Errno 98] Address already in use",
        "another address is another place",
        "127.0.0.1: 2 received",
        "127.9.9.9: 2 received",
        "::1: 2 received",
        "the kernel's: status 7",
        "the kernel's from there: status 7",
        "lends nc8 (10.7.8.2/24, fd78::2/64",
        "and 127.0.0.0/8 and ::1 at ",
    ];
    says(output, &wanted);
}

/// A capture of the daemon's sees what they send each other, and the link has nothing of it.
#[test]
fn a_capture_sees_what_programs_send_each_other_at_loopback() {
    let output = script(
        "loopback-capture",
        &format!(
            "{SERVERS}\
             get http://127.0.0.1:8000/page > /dev/null\n\
             tcpdump --immediate-mode -U -ni nc8 -w wire.pcap 2> heard & wire=$!; await grep -q listening heard\n\
             $netchan capture --pid $daemon -w taken.pcapng host 127.0.0.1 2> said & taken=$!\n\
             ready() {{ $netchan show taps --pid $daemon --json | grep -c '\"tap\"' | grep -qx 1; }}\n\
             await ready\n\
             get http://127.0.0.1:8000/page; get http://10.7.8.1:9/; get http://127.0.0.1:8000/page\n\
             seen() {{ tcpdump -nr wire.pcap host 10.7.8.1 2> /dev/null | grep -q '10.7.8.1.9:'; }}\n\
             await seen && echo the link was looked at\n\
             kill -INT $taken; wait $taken; kill -INT $wire; wait $wire\n\
             echo \"$(tcpdump -nr taken.pcapng 'tcp port 8000 and tcp[tcpflags] & tcp-syn != 0' 2> /dev/null | wc -l) at loopback\"\n\
             echo \"$(tcpdump -nr wire.pcap net 127.0.0.0/8 2> /dev/null | wc -l) of them on the link\"\n\
             {END}"
        ),
    );
    let wanted = [
        "4 at loopback",
        "0 of them on the link",
        "the link was looked at",
    ];
    says(output, &wanted);
}
