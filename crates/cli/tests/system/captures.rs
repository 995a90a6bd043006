//! `netchan capture` at a running program: text, files that tcpdump and tshark read, filters, readers that go, stop or ask for too much.

use super::{
    handed::{says, script},
    skipped_here,
};

/// That part of a test which tshark says, where it is installed.
fn says_with_tshark(output: Option<String>, expected: &[&str]) {
    let is_missing = |said: &String| said.contains("no tshark");
    if output.as_ref().is_some_and(is_missing) {
        skipped_here("tshark is not installed: tcpdump and the test ask the same");
    } else {
        says(output, expected);
    }
}

#[test]
fn frames_are_shown_and_written() {
    let output = script(
        "captures",
        "mkfifo hold\n$RUN python3 ask.py bind ask wait < hold & run=$!; exec 9> hold\n\
         at() { $netchan \"$@\" --pid $run; }\n\
         cap=\"$netchan capture --pid $run\"\n\
         await at show links\n\
         ready() { at show taps --json | grep -c '\"tap\"' | grep -qx $1; }\n\
         $cap icmp > text 2>> said & text=$!\n\
         $cap -w taken.pcapng -s 60 icmp and greater 1000 2>> said & file=$!\n\
         $cap -c 2 -w - --way out icmp > two.pcapng 2>> said & two=$!\n\
         await ready 3 && at show taps\n\
         ping -c 3 -i 0.1 -s 1400 10.7.8.2 > /dev/null; ping -c 1 10.7.8.2 > /dev/null\n\
         wait $two; kill -INT $text $file; wait $text; wait $file; await ready 0 && echo none left\n\
         cat text said; stat -c 'file %a' taken.pcapng\n\
         tcpdump -nr taken.pcapng 2>&1; echo read $(tcpdump -nr taken.pcapng 2> /dev/null | wc -l) and $(tcpdump -nr two.pcapng 2> /dev/null | wc -l)\n\
         if ! command -v tshark > /dev/null; then echo no tshark; fi\n\
         look() { tshark -n -r \"$@\" 2> warned; grep -v '^Running as user' warned; }\n\
         for file in taken two; do echo tshark $(look $file.pcapng | wc -l) of them malformed $(look $file.pcapng -Y _ws.malformed | wc -l); done\n\
         echo >&9; wait $run",
    );
    // Each warning would be a line more.
    let tshark = [
        "tshark 6 of them malformed 0",
        "tshark 2 of them malformed 0",
    ];
    says_with_tshark(output.clone(), &tshark);
    says(
        output,
        &[
            "tap:nc8 In  IP 10.7.8.1 > 10.7.8.2: ICMP echo request",
            "tap:nc8 Out IP 10.7.8.2 > 10.7.8.1: ICMP echo reply",
            "seq 3, length 1408",
            "8 frames captured; 8 of ",
            "6 frames captured; 6 of ",
            "2 frames captured; ",
            "0 of them were dropped",
            "none left",
            // `show taps`.
            if cfg!(target_arch = "x86_64") {
                "compiled"
            } else {
                "interpreted"
            },
            "file 600",
            "read 6 and 2",
        ],
    );
}

/// What is dropped comes with its reason, a socket's tap sees that socket alone; tcpdump reads the files, and what one of them holds is written again.
#[test]
fn drops_sockets_and_written_frames() {
    let output = script(
        "inside",
        "cat > two.py <<'END'\n\
import socket, sys\n\
one, two = socket.socket(socket.AF_INET, socket.SOCK_DGRAM), socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n\
one.bind(('10.7.8.2', 41)); two.bind(('10.7.8.2', 42))\n\
for _ in range(3): print('heard', one.recv(99), flush=True)\n\
END\n\
         $RUN python3 two.py > heard & run=$!; cap=\"$netchan capture --pid $run\"\n\
         at() { $netchan \"$@\" --pid $run; };\n\
         ready() { at show taps --json | grep -c '\"tap\"' | grep -qx $1; }\n\
         two() { at show sockets | grep -q ':42'; }; await two\n\
         $cap --dropped -w dropped.pcapng 2>> said & drops=$!\n\
         $cap --dropped > text 2>> said & text=$!\n\
         $cap --socket :41 -w one.pcapng 2>> said & one=$!\n\
         $cap --shard 0 --comments > shard 2>> said & shard=$!\n\
         $cap --comments > link 2>> said & link=$!\n\
         await ready 5; at show taps\n\
         bash -c 'echo lost > /dev/udp/10.7.8.2/9; echo first > /dev/udp/10.7.8.2/41; echo other > /dev/udp/10.7.8.2/42'\n\
         await grep -q first heard; await grep -q 'dropped: udp_no_socket' text\n\
         kill -INT $drops $text $one $shard $link; wait $drops; wait $text; wait $one; wait $shard; wait $link\n\
         cat text; echo one $(tcpdump -nr one.pcapng 2> /dev/null | grep -c UDP) lost $(tcpdump -nr dropped.pcapng 2> /dev/null | grep -c 8.2.9:)\n\
         grep -q 'shard 0, core [0-9]*, regime app-channel' shard && echo shard told; grep -q '8.2.41: .*\\[shard 0, core [0-9]*, regime' link && grep -q 'ARP.*\\[host, core' link && echo link told; cat link; grep -aq \"dropped: udp_no_socket, shard 0\" dropped.pcapng && echo noted\n\
         at show links --json > links; python3 - <<'END'\n\
import json, struct\n\
mac = bytes.fromhex(json.load(open('links'))[0]['mac'].replace(':', ''))\n\
ip = struct.pack('>BBHHHBBH4s4s', 69, 0, 33, 1, 0, 64, 17, 0, bytes([10, 7, 8, 1]), bytes([10, 7, 8, 2]))\n\
total = sum(struct.unpack('>10H', ip)); total = (total & 0xffff) + (total >> 16)\n\
frame = mac + bytes([2, 0, 0, 0, 0, 1, 8, 0]) + ip[:10] + struct.pack('>H', 0xffff - total) + ip[12:] + struct.pack('>HHHH', 40, 41, 13, 0) + b'again'\n\
open('again.pcap', 'wb').write(struct.pack('<IHHIIII', 0xa1b2c3d4, 2, 4, 0, 0, 65535, 1) + struct.pack('<IIII', 1, 0, len(frame), len(frame)) + frame)\n\
END\n\
         at inject --in again.pcap; at inject --in again.pcap --json --rate 10\n\
         wait $run; cat heard; echo done",
    );
    says(
        output,
        &[
            "[dropped: udp_no_socket, shard 0, core ",
            ", regime app-channel]",
            "one 1 lost 1",
            "shard told\nlink told\n",
            "\nnoted\n",
            "1 frames were written in by tap:nc8",
            "\"frames\": 1",
            "heard b'first\\n'\nheard b'again'\nheard b'again'\ndone",
        ],
    );
}

/// Wireshark's questions, in its order: interfaces, what they are, whether a filter is one, and the capture into a pipe.
#[test]
fn wireshark_captures_through_extcap() {
    let output = script(
        "extcap",
        "mkfifo hold pipe; ln -s $netchan netchan-extcap\n$RUN python3 ask.py bind wait < hold & run=$!; exec 9> hold\n\
         await $netchan show links --pid $run\n\
         ./netchan-extcap --extcap-interfaces --extcap-version=4.0 > list; grep -c . list; sed s/$run/RUN/g list\n\
         i=netchan_${run}_all\n\
         ./netchan-extcap --extcap-interface $i --extcap-dlts; ./netchan-extcap --extcap-interface $i --extcap-config | grep -c ^arg\n\
         ./netchan-extcap --extcap-interface $i --extcap-capture-filter icmp; echo good $?\n\
         ./netchan-extcap --extcap-interface $i --extcap-capture-filter 'icmp prot'; echo bad $?\n\
         ./netchan-extcap --extcap-interface eth0 --extcap-dlts; echo foreign $?\n\
         ./netchan-extcap --capture --extcap-interface netchan_1_all --fifo pipe; echo gone $?\n\
         ./netchan-extcap --capture --extcap-interface $i --fifo pipe --extcap-capture-filter icmp --comments true --way in 2> said & cap=$!\n\
         head -c 2000 pipe > taken.pcapng & read=$!\n\
         ready() { $netchan show taps --pid $run --json | grep -q '\"tap\"'; }; await ready\n\
         ping -c 20 -i 0.05 10.7.8.2 > /dev/null; wait $read; ping -c 3 -i 0.2 10.7.8.2 > /dev/null; wait $cap; echo ended $?\n\
         tcpdump -nr taken.pcapng 2> /dev/null | head -1 | grep -o 'echo request'; grep -a -o -m 1 'regime app-channel' taken.pcapng | head -1\n\
         folder() { tshark -G folders 2> /dev/null | sed -n 's/^Extcap path:[[:space:]]*//p'; }\n\
         mkdir here; cp -P netchan-extcap here\n\
         if ! command -v tshark > /dev/null; then echo no tshark; else mkdir -p \"$(folder)\"; mount --bind here \"$(folder)\"\n\
         echo tshark lists $(tshark -D 2> /dev/null | grep -o netchan_[0-9]*_all | sed s/$run/RUN/g); fi\n\
         echo >&9; wait $run",
    );
    says_with_tshark(output.clone(), &["tshark lists netchan_RUN_all"]);
    says(
        output,
        &[
            "extcap {version=",
            "interface {value=netchan_RUN_all}{display=netchan RUN (python3): all links}",
            "interface {value=netchan_RUN_drops}",
            "dlt {number=1}{name=EN10MB}{display=Ethernet}\n3\ngood 0\n",
            "syntax error",
            "bad 0",
            "'eth0' is no interface of netchan's",
            "foreign 1",
            "gone 1",
            "ended 0",
            "echo request\nregime app-channel\n",
        ],
    );
}

#[test]
fn what_a_capture_cannot_do_is_said() {
    let output = script(
        "refused",
        "mkfifo hold\n$RUN python3 ask.py bind wait < hold & run=$!; exec 9> hold\n\
         at() { $netchan capture --pid $run \"$@\"; echo \"= $?\"; }\n\
         await $netchan show links --pid $run\n\
         at 'tcp prot 80'; at --link nc9; at -w /nonexistent/x; at --bpf /nonexistent/y; at --duration 0\n\
         printf '1\\n6 0 0\\n' > bad; at --bpf bad; printf '1\\n5 0 0 9\\n' > jump; at --bpf jump\n\
         at -w /dev/full --duration 0.3; at --shard 99; at --socket :77; at --socket x; at --shard 0 --dropped\n\
         inject() { $netchan inject --pid $run \"$@\"; echo \"= $?\"; }\n\
         inject /nonexistent/z; inject bad; inject --rate 0 bad; inject .\n\
         at --duration 5 -w - 2> pipe | head -c 1 > /dev/null & p=$!; sleep 0.3; ping -c 1 10.7.8.2 > /dev/null; wait $p; cat pipe\n\
         for i in $(seq 16); do $netchan capture --pid $run > /dev/null 2>&1 & all=\"$all $!\"; done\n\
         full() { $netchan show taps --pid $run --json | grep -c '\"tap\"' | grep -qx 16; }; await full\n\
         at -c 1; kill -INT $all; wait $all\n\
         echo >&9; wait $run",
    );
    says(
        output,
        &[
            "filter 'tcp prot 80': ",
            "there is no link `nc9`",
            "/nonexistent/x: No such file",
            "/nonexistent/y: No such file",
            "--duration 0: give a number of seconds above 0",
            "bad: line 2: want four numbers, code jt jf k",
            "instruction 0: it jumps behind the end",
            "/dev/full: No space left on device",
            "16 taps are attached already",
            "there is no shard 99: they are 0 to 0",
            "--socket :77: there is no such socket, but:\n  tcp 0.0.0.0:8",
            "--socket x: want LOCAL-REMOTE",
            "cannot be used with",
            "/nonexistent/z: No such file",
            "bad: is no capture",
            "0 is not in 1..=100000",
            ".: is no file",
        ],
    );
}

/// A reader that is stopped for as long as it takes costs the stream nothing, and knows what it has lost.
#[test]
fn stopped_reader_holds_nothing_up() {
    let output = script(
        "stopped",
        "head -c 60000000 /dev/urandom > file; sum=$(sha256sum < file)\n\
         $RUN python3 -m http.server 80 > /dev/null 2>&1 & run=$!\n\
         await curl -s -o /dev/null http://10.7.8.2/bad\n\
         $netchan capture --pid $run -w taken.pcapng tcp 2> said & tap=$!\n\
         ready() { $netchan show taps --pid $run --json | grep -q '\"tap\"'; }; await ready\n\
         kill -STOP $tap; got=$(curl -s -m 60 http://10.7.8.2/file | sha256sum); [ \"$got\" = \"$sum\" ] && echo same bytes\n\
         $netchan show taps --pid $run --json > counted; kill -CONT $tap; kill -INT $tap; wait $tap; cat said\n\
         python3 - <<'END'\n\
import json\n\
tap = json.load(open('counted'))[0]\n\
lost = tap['dropped_ring_full'] + tap['dropped_no_buffer']\n\
print('exact', tap['matched'] == tap['taken'] + lost, 'lost', lost > 0)\n\
END\n\
         tcpdump -nr taken.pcapng > lines 2> errors; grep -v '^reading' errors; kill $run; wait $run",
    );
    says(
        output,
        &["same bytes", "exact True lost True", "frames captured; "],
    );
}

/// A capture that is stopped while it waits for the stack's first answer goes on with it: a read with a limit of time is
/// interrupted by a stop, without a handler, too.
#[test]
fn stopped_before_its_answer_it_goes_on() {
    let output = script(
        "stopped-early",
        "$RUN python3 -m http.server 80 > /dev/null 2>&1 & run=$!\n\
         await curl -s -o /dev/null http://10.7.8.2/bad\n\
         kill -STOP $run; $netchan capture --pid $run -w taken.pcapng tcp 2> said & tap=$!\n\
         reads() { grep -q unix_stream /proc/$tap/wchan; }; await reads && echo it reads\n\
         kill -STOP $tap; state() { grep -q 'State:.T' /proc/$tap/status; }; await state; kill -CONT $tap; sleep .2; kill -CONT $run\n\
         ready() { $netchan show taps --pid $run --json | grep -q '\"tap\"'; }; await ready && echo taps\n\
         kill -INT $tap; wait $tap; cat said; kill $run; wait $run",
    );
    says(output, &["it reads", "taps", "frames captured; "]);
}

/// What a running stack knows of a connection that began before: its window scales.
#[test]
fn connection_is_plotted_live() {
    let output = script(
        "plotted",
        "head -c 40000000 /dev/zero > file\n\
         $RUN python3 -m http.server 80 > /dev/null 2>&1 & run=$!\n\
         await curl -s -o /dev/null http://10.7.8.2/bad\n\
         curl -s --limit-rate 1M -o /dev/null http://10.7.8.2/file & curl=$!\n\
         shown() { $netchan show sockets state established --pid $run | grep -q ESTAB; }; await shown\n\
         $netchan plot --live :80 --pid $run --duration 1 --png x.png --html x.html --json > facts 2> said; echo status $?; cat said\n\
         $netchan plot --live 10.7.8.2:81 --pid $run; echo status $?\n\
         python3 - <<'END'\n\
import json\n\
facts = json.load(open('facts')); server = [d for d in facts['directions'] if d['sender'] == 'server'][0]\n\
print('server', facts['server'], 'text', server['text_bytes'] > 10000, 'scaled', server['window_scale'] is not None, 'window', server['window_max_bytes'] > 65535)\n\
print('png', open('x.png', 'rb').read(8) == b'\\x89PNG\\r\\n\\x1a\\n', 'page', '10.7.8.2:80' in open('x.html').read())\n\
END\n\
         kill $curl $run; wait $run",
    );
    says(
        output,
        &[
            "status 0",
            "the handshake is not in the capture",
            "server 10.7.8.2:80 text True scaled True window True",
            "png True page True",
            "--live 10.7.8.2:81: there is no such TCP connection, but:\n  10.7.8.2:80-10.7.8.1:",
            "status 1",
        ],
    );
}
