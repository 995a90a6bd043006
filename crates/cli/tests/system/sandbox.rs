//! `--sandbox`: a program does its work in it, and not what a network server has no need of.

use super::handed::{says, script};

/// Tries what is named on the command line, in a directory that is not beneath /tmp; prints the outcome of each.
const TRY: &str = "cat > try.py <<'END'\n\
import ctypes, os, socket, subprocess, sys\n\
libc = ctypes.CDLL(None, use_errno=True)\n\
def write(path):\n  \
  with open(path, 'w') as file: file.write('x')\n\
def call(name, *arguments):\n  \
  if getattr(libc, name)(*arguments) < 0: raise OSError(ctypes.get_errno(), '')\n\
def process(): assert subprocess.run(['true']).returncode == 0\n\
tries = {\n  \
  'own': lambda: write('own'), 'state': lambda: write('state/kept'), 'tmp': lambda: write(os.environ['SCRATCH'] + '/kept'),\n  \
  'null': lambda: write('/dev/null'), 'remove': lambda: os.unlink('try.py'), 'knob': lambda: write('/proc/sys/net/ipv4/ip_forward'),\n  \
  'mount': lambda: call('mount', b'none', b'/mnt', b'tmpfs', 0, None), 'unshare': lambda: call('unshare', 0x10000000),\n  \
  'trace': lambda: call('ptrace', 0, 0, 0, 0), 'packet': lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW),\n  \
  'unix': lambda: socket.socketpair(), 'udp': lambda: socket.socket(socket.AF_INET6, socket.SOCK_DGRAM), 'process': process,\n  \
  'ring': lambda: call('syscall', 425, 8, None),\n\
}\n\
for name in sys.argv[1:]:\n  \
  try: tries[name](); print(name, 'done', flush=True)\n  \
  except OSError as why: print(name, os.strerror(why.errno), flush=True)\n\
END\n\
export SCRATCH=$(pwd)\nmount -t tmpfs none /mnt; cp *.py /mnt; cd /mnt; mkdir state\n";

/// Outcomes in the sandbox with `--writable state`.
const INSIDE: [&str; 14] = [
    "state done",
    "tmp done",
    "null done",
    "unix done",
    "udp done",
    "process done",
    "own Permission denied",
    "remove Permission denied",
    "knob Permission denied",
    "mount Operation not permitted",
    "unshare Operation not permitted",
    "trace Operation not permitted",
    "packet Address family not supported by protocol",
    "ring Function not implemented",
];

#[test]
fn a_confined_program_works_and_does_no_harm() {
    let names = INSIDE.map(|line| line.split(' ').next().unwrap_or_default());
    let all = names.join(" ");
    let output = script(
        "sandbox",
        &format!(
            "{TRY}\
             S=\"$netchan run --sandbox --writable state --link tap:nc8 --address 10.7.8.2/24 --\"\n\
             $S python3 try.py {all}\n\
             $S python3 ask.py ask\n\
             $S sh -c 'python3 ask.py drop ask' | sed 's/^/beneath: /'\n"
        ),
    );
    says(output.clone(), &INSIDE);
    says(
        output,
        &[
            "uid 0 from 10.7.8.2 b'hello'",
            "beneath: uid 65534 from 10.7.8.2 b'hello'",
        ],
    );
}

#[test]
fn without_a_sandbox_nothing_is_refused() {
    let output = script(
        "open",
        &format!("{TRY}$RUN python3 try.py own state tmp mount packet unshare remove\n"),
    );
    let done = [
        "own", "state", "tmp", "mount", "unshare", "packet", "remove",
    ];
    says(
        output,
        &done
            .map(|name| format!("{name} done"))
            .each_ref()
            .map(String::as_str),
    );
}

#[test]
fn the_file_confines_too_and_a_user_goes_with_it() {
    let output = script(
        "confined",
        &format!(
            "{TRY}chmod 755 .; chmod 777 state; \
             printf '[run]\\nuser = \"nobody\"\\nsandbox = true\\nwritable = [\"state\"]\\n[[link]]\\nkind = \"tap\"\\nname = \"nc8\"\\naddress = [\"10.7.8.2/24\"]\\n' > own.toml\n\
             $netchan run --config own.toml -- /usr/bin/python3 try.py state own trace\n\
             mkfifo hold; $netchan run --config own.toml -- /usr/bin/python3 ask.py ask show wait < hold > log & P=$!; exec 9> hold\n\
             await grep rights log; cat log; $netchan show links --pid $P && echo shown; echo >&9; wait $P; exec 9>&-\n\
             $netchan run --sandbox --writable nowhere --link tap:nc8 --address 10.7.8.2/24 -- true; echo status $?\n\
             $netchan run --writable state -- true; echo status $?"
        ),
    );
    says(
        output,
        &[
            "state done",
            "own Permission denied",
            "trace Operation not permitted",
            "uid 65534 from 10.7.8.2 b'hello'",
            "[65534] nobody",
            "tap:nc8",
            "shown",
            "--sandbox: nowhere",
            "status 1",
            "--writable is for a confined program",
            "status 2",
        ],
    );
}

/// Once a program has a filter that ends it for calls it does not know, none is made for it that an ordinary program does not make: it sleeps as long as there is
/// nothing to read.
#[test]
fn a_program_that_confines_itself_lives_on() {
    let output = script(
        "confines-itself",
        "$netchan daemon --link tap:nc8 --address 10.7.8.2/24 --socket $PWD/d 2> log & daemon=$!\n\
         await grep -q lends log\n\
         cat > confined.py <<'END'\n\
import ctypes, socket, struct, sys, threading, time\n\
libc, FUTEX_WAITV, KILL, ALLOW = ctypes.CDLL(None), 449, 0x80000000, 0x7fff0000\n\
server = socket.create_server(('10.7.8.2', 9))\n\
stream = socket.create_connection(('10.7.8.2', 9)); far = server.accept()[0]\n\
def words():\n  \
  for wait in (0, .03):\n    \
    timer = threading.Timer(wait, far.sendall, (b'text',)); timer.start()\n    \
    assert stream.recv(9) == b'text'; timer.join()\n\
words()\n\
code = struct.pack('HBBI' * 4, 0x20, 0, 0, 0, 0x15, 0, 1, FUTEX_WAITV, 6, 0, 0, KILL, 6, 0, 0, ALLOW)\n\
code = ctypes.create_string_buffer(code); filter = struct.pack('HxxxxxxP', 4, ctypes.addressof(code))\n\
assert libc.prctl(38, 1, 0, 0, 0) == 0\n\
if sys.argv[1] == 'prctl': assert libc.prctl(22, 2, filter, 0, 0) == 0\n\
else: assert libc.syscall(317, 1, 0, filter) == 0\n\
for _ in range(20): words()\n\
print(sys.argv[1], 'lives', flush=True)\n\
END\n\
         for how in prctl seccomp; do $netchan run --link daemon:$PWD/d -- python3 confined.py $how; echo status $?; done\n\
         kill $daemon; wait $daemon; cat log",
    );
    says(
        output,
        &["prctl lives\nstatus 0", "seccomp lives\nstatus 0"],
    );
}
