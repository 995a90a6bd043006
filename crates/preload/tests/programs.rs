//! Unmodified programs on netchan, their peers on the kernel's stack at the other end of a TAP.

mod common;

use std::{fs, os::unix::fs::MetadataExt};

use common::{expect, have};

const FILE: &str = "mkdir -p $$ && cd $$ && head -c 20000000 /dev/urandom > file\n";

#[test]
fn python_serves_http_to_curl() {
    if have(&["python3", "curl"]) {
        let script = format!(
            "{FILE}(on_netchan python3 -u -m http.server 8000) > log 2>&1 & P=$!\n\
             await grep -q Serving log\n\
             curl -s -m 30 -o got http://10.77.0.2:8000/file && cmp file got && echo same\n\
             kill $P; cat log"
        );
        expect(&script, "same");
    }
}

#[test]
fn curl_fetches_from_the_kernel() {
    if have(&["python3", "curl"]) {
        let script = format!(
            "{FILE}(exec python3 -u -m http.server --bind 10.77.0.1 8000) > log 2>&1 & P=$!\n\
             await grep -q Serving log\n\
             (on_netchan curl -s -m 30 -o got http://10.77.0.1:8000/file) && cmp file got && echo same\n\
             kill $P; cat log"
        );
        expect(&script, "same");
    }
}

const ASYNC_SERVER: &str = "import asyncio\n\
async def serve(reader, writer):\n    \
    while data := await reader.read(65536):\n        \
        writer.write(data); await writer.drain()\n    \
    writer.close()\n\
async def main():\n    \
    server = await asyncio.start_server(serve, '0.0.0.0', 8100)\n    \
    print('Serving', flush=True)\n    \
    await server.serve_forever()\n\
asyncio.run(main())\n";

const ASYNC_CLIENT: &str = "import asyncio, os, sys\n\
async def one(number):\n    \
    reader, writer = await asyncio.open_connection(sys.argv[1], 8100)\n    \
    sent = os.urandom(50000 + number)\n    \
    writer.write(sent); writer.write_eof()\n    \
    got = await reader.read(-1)\n    \
    writer.close(); await writer.wait_closed()\n    \
    return got == sent\n\
async def main():\n    \
    results = await asyncio.gather(*(one(number) for number in range(50)))\n    \
    print('all same' if all(results) else 'different')\n\
asyncio.run(main())\n";

fn asyncio(server: &str, client: &str, address: &str) {
    if have(&["python3"]) {
        let script = format!(
            "mkdir -p $$ && cd $$\ncat > server.py <<'END'\n{ASYNC_SERVER}END\ncat > client.py <<'END'\n{ASYNC_CLIENT}END\n\
             ({server} python3 server.py) > log 2>&1 & P=$!\n\
             await grep -q Serving log\n\
             ({client} python3 client.py {address})\nkill $P; cat log"
        );
        expect(&script, "all same");
    }
}

#[test]
fn asyncio_serves() {
    asyncio("on_netchan", "exec timeout 60", "10.77.0.2");
}

#[test]
fn asyncio_connects() {
    asyncio("exec timeout 60", "on_netchan", "10.77.0.1");
}

fn netcat(server: &str, client: &str, address: &str) {
    if have(&["nc"]) {
        let family = if address.contains(':') { "-6" } else { "-4" };
        let script = format!(
            "{FILE}({server} nc {family} -l 8200) > got & P=$!\n\
             # Refused, nothing is sent: tried until it listens.\n\
             sends() {{ ({client} nc {family} -N {address} 8200) < file; }}\n\
             await sends\nwait $P; cmp file got && echo same"
        );
        expect(&script, "same");
    }
}

#[test]
fn netcat_receives() {
    netcat("on_netchan", "exec timeout 60", "10.77.0.2");
}

#[test]
fn netcat_sends() {
    netcat("exec timeout 60", "on_netchan", "10.77.0.1");
}

#[test]
fn netcat_receives_over_ipv6() {
    netcat("on_netchan", "exec timeout 60", "fd77::2");
}

#[test]
fn netcat_sends_over_ipv6() {
    netcat("exec timeout 60", "on_netchan", "fd77::1");
}

fn iperf(server: &str, client: &str, address: &str) {
    if have(&["iperf3"]) {
        let script = format!(
            "mkdir -p $$ && cd $$\n({server} iperf3 -s --forceflush) > log 2>&1 & P=$!\n\
             await grep -q listening log\n\
             for how in '' -R '-P 4' '-u -b 50M'; do\n\
             ({client} iperf3 -c {address} -t 1 $how) > out 2>&1 || {{ echo \"$how\"; cat out log; exit 1; }}\n\
             done\nkill $P; echo done well"
        );
        expect(&script, "done well");
    }
}

#[test]
fn iperf_serves() {
    iperf("on_netchan", "exec timeout 60", "10.77.0.2");
}

#[test]
fn iperf_connects() {
    iperf("exec timeout 60", "on_netchan", "10.77.0.1");
}

/// Whatever the machine does: nothing is lost on a TAP, so nothing may look lost to the kernel, as segments with an old timestamp do (PAWS).
#[test]
fn nothing_sent_over_a_tap_is_dropped() {
    if have(&["iperf3", "python3"]) {
        let script = "mkdir -p $$ && cd $$\n(exec iperf3 -s --forceflush) > log 2>&1 & P=$!\n\
             await grep -q listening log\n\
             (on_netchan iperf3 -c 10.77.0.1 -t 2 -P 2) > out 2>&1 || { cat out log; exit 1; }\n\
             kill $P\n\
             python3 -c \"\n\
             lines = [l.split() for l in open('/proc/net/netstat')]\n\
             found = dict(zip(lines[0], lines[1]))\n\
             print({n: int(found[n]) for n in ('PAWSEstab', 'TCPBacklogDrop', 'TCPRcvQDrop', 'TCPOFODrop') if n in found})\"";
        let script = script.replace("\n             ", "\n");
        expect(
            &script,
            "'PAWSEstab': 0, 'TCPBacklogDrop': 0, 'TCPRcvQDrop': 0, 'TCPOFODrop': 0",
        );
    }
}

/// The TAP's kernel end is bridged to a device that lets a packet a second go, and takes some ten of ours before it takes no more.
#[test]
fn a_full_tap_holds_no_call_up_and_loses_nothing() {
    if have(&["python3", "tc"]) {
        let program = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/py/full_tap.py");
        let script = format!(
            "mkdir -p $$ && cd $$\nunshare -n sh -c 'echo > apart; exec sleep 140' & N=$!\nawait test -s apart\n\
             ip link add br0 type bridge; ip link add v0 type veth peer name v1 netns $N\n\
             ip addr flush dev nc0; ip link set nc0 master br0; ip link set v0 master br0\n\
             for one in br0 v0; do ip link set $one up; done\n\
             nsenter -t $N -n sh -c 'ip addr add 10.77.0.9/24 dev v1; ip link set v1 up'\n\
             nsenter -t $N -n timeout 100 python3 {program} count > counted & C=$!\nawait grep -q counts counted\n\
             SLOW='tbf rate 8kbit burst 3000 limit 100000000'; tc qdisc add dev v0 root $SLOW\n\
             mkfifo hold; (on_netchan python3 {program} send) < hold > said & P=$!\nexec 9> hold\n\
             await grep -q own said\ntc qdisc change dev v0 root tbf rate 100mbit burst 30000 limit 100000000\necho >&9\n\
             wait $P; echo $?; wait $C; cat said counted; kill $N\n\
             awk '/came/ {{ if ($2 == $4) print \"all came\" }}' counted"
        );
        expect(&script, "all came");
    }
}

#[test]
fn iperf_connects_over_ipv6() {
    iperf("exec timeout 60", "on_netchan", "fd77::1");
}

/// A shell makes no socket: the stack starts in the program that it runs.
#[test]
fn a_shell_in_between_does_no_harm() {
    if have(&["python3", "curl"]) {
        let script = "mkdir -p $$ && cd $$\n\
             (on_netchan sh -c 'cd .; python3 -u -m http.server 8000; true') > log 2>&1 & P=$!\n\
             await grep -q Serving log\n\
             curl -s -m 30 http://10.77.0.2:8000/ | grep -q Directory && echo reached\nkill $P; cat log";
        expect(script, "reached");
    }
}

/// Programs that a program on netchan starts have leases of its link.
#[test]
fn programs_that_a_program_starts_use_its_link() {
    if have(&["python3", "curl"]) {
        let script = "mkdir -p $$ && cd $$\n\
             (exec python3 -u -m http.server --bind 10.77.0.1 8000) > log 2>&1 & P=$!\n\
             await grep -q Serving log\n\
             cat > own.py <<'END'\n\
import socket, subprocess\n\
s = socket.create_connection(('10.77.0.1', 8000))\n\
print(s.getsockname()[0], flush=True)\n\
subprocess.run(['python3', '-c', \"import socket; print(socket.create_connection(('10.77.0.1', 8000)).getsockname()[0])\"], check=True)\n\
END\n\
             (on_netchan python3 own.py) | tr '\\n' ' '; kill $P";
        expect(script, "10.77.0.2 10.77.0.2 ");
    }
}

/// A stack that cannot start ends the program with status 1 and one line that says why.
#[test]
fn a_stack_that_cannot_start_says_why() {
    if have(&["nc"]) {
        for (setting, word) in [
            ("NETCHAN_LINK=nonsense:x", "nonsense"),
            ("NETCHAN_ADDRESS=300.1.1.1/24", "300.1.1.1"),
            ("NETCHAN_REGIME=fastest", "fastest"),
            ("NETCHAN_KERNEL=10.0.0.0/99", "10.0.0.0/99"),
        ] {
            let script = format!(
                "export {setting}\n(on_netchan nc -N 10.77.0.1 80) < /dev/null 2> why; S=$?\n\
                 cat why; grep -q '{word}' why && [ $(wc -l < why) = 1 ] && [ $S = 1 ] && echo as promised"
            );
            expect(&script, "as promised");
        }
    }
}

/// Both workers serve, whole files and short ones; a reload in between loses no request.
#[test]
fn nginx_serves_from_its_workers() {
    if have(&["nginx", "curl"]) {
        let script = format!(
            "{FILE}\
             head -c 1000 file > short\n\
             printf '%s\\n' 'daemon off; worker_processes 2; error_log stderr notice; pid nginx.pid;' 'events {{}}' \
             \"http {{ access_log off; server {{ listen 10.77.0.2:8000; root $PWD; add_header Worker \\$pid; }} }}\" > conf\n\
             test $(id -u) = 0 && sed -i '1i user root;' conf\n\
             (on_netchan nginx -p $PWD -c $PWD/conf) > log 2>&1 & P=$!\n\
             await curl -s -m 5 -o got http://10.77.0.2:8000/short\n\
             for i in $(seq 40); do curl -s -m 20 -D head -o got http://10.77.0.2:8000/short && cmp got short || echo bad; grep Worker head; \
             test $i = 20 && kill -HUP $(cat nginx.pid); done > heads\n\
             grep -c Worker heads; sort -u heads | wc -l\n\
             curl -s -m 30 -o got http://10.77.0.2:8000/file && cmp got file && ! grep bad heads && test $(grep -c Worker heads) = 40 && echo same\n\
             kill $(cat nginx.pid); wait $P; cat log"
        );
        expect(&script, "same");
    }
}

/// A process for each connection, and transactions that are counted.
#[test]
fn postgres_serves_pgbench() {
    let is_root = fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0);
    let (Ok(found), true) = (fs::read_dir("/usr/lib/postgresql"), is_root) else {
        common::skips::skipped_here("takes PostgreSQL, and root's right to become another user");
        return;
    };
    let Some(bin) = found.flatten().map(|entry| entry.path().join("bin")).max() else {
        return;
    };
    // It refuses to be root, whose rights the link needs: the link is opened first.
    let program = common::library()
        .ancestors()
        .map(|folder| folder.join("netchan"))
        .find(|path| path.is_file());
    let (Some(program), true) = (program, have(&["setpriv"])) else {
        return;
    };
    let script = format!(
        "mkdir -p /tmp/netchan-$$ && cd /tmp/netchan-$$ && chmod 777 .\n\
         as() {{ setpriv --reuid=65534 --regid=65534 --clear-groups \"$@\"; }}\n\
         as {bin}/initdb -D data -A trust > init 2>&1 || {{ cat init; exit 1; }}\n\
         echo 'host all all 10.77.0.0/24 trust' >> data/pg_hba.conf\n\
         timeout -k 5 60 '{program}' run --link tap:nc0 --address 10.77.0.2/24 -- setpriv --reuid=65534 --regid=65534 --clear-groups \
         {bin}/postgres -D data -h 10.77.0.2 -k $PWD > log 2>&1 & P=$!\n\
         await as {bin}/psql -h 10.77.0.2 postgres -c 'select 1'\n\
         as {bin}/pgbench -h 10.77.0.2 -i -s 1 postgres > made 2>&1 || cat made\n\
         as {bin}/pgbench -h 10.77.0.2 -c 4 -t 50 postgres 2>&1 | grep -o 'actually processed: .*'\n\
         as {bin}/psql -h 10.77.0.2 -At postgres -c 'select inet_client_addr(), count(*) from pgbench_history'\n\
         kill $(head -n 1 data/postmaster.pid); wait $P; cat log; cd /; rm -r /tmp/netchan-$$",
        bin = bin.display(),
        program = program.display(),
    );
    expect(&script, "10.77.0.1|200");
}
