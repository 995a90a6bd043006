//! Links that `netchan run` opens and its program uses: servers that give up root before their first socket, programs that start others.

use super::{PROGRAM, Scratch, has_tun, is_root, prepare, skipped_here, text, wanted};
use std::process::Command;

/// Runs a shell script in network and mount namespaces of its own; what it printed. `RUN` starts a program at 10.7.8.2, `PEER` is an echo server of
/// the kernel's at 10.7.8.1 port 7.
pub fn script(name: &str, script: &str) -> Option<String> {
    let has = |what: &str| {
        Command::new("sh")
            .args(["-c", &format!("command -v {what} > /dev/null")])
            .status()
            .is_ok_and(|status| status.success())
    };
    if !wanted() {
        return None;
    }
    if !is_root() || !has_tun() || !has("python3") {
        skipped_here("needs root, /dev/net/tun and python3");
        return None;
    }
    let scratch = Scratch::new(name);
    let before = format!(
        "cd '{}'\nip link set lo up\nip tuntap add dev nc8 mode tap\nip addr add 10.7.8.1/24 dev nc8\nip link set nc8 up\n\
         netchan='{PROGRAM}'; RUN=\"$netchan run --link tap:nc8 --address 10.7.8.2/24 --\"\n\
         await() {{ for i in $(seq 400); do \"$@\" 2>/dev/null >&2 && return 0; sleep 0.05; done; echo \"no: $*\"; return 1; }}\n\
         cat > echo.py <<'END'\n\
import socket, threading\n\
listener = socket.create_server(('10.7.8.1', 7))\n\
def serve(stream):\n  \
  while data := stream.recv(9): stream.sendall(data)\n\
while True: threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()\n\
END\n\
         cat > ask.py <<'END'\n\
import ctypes, encodings.idna, os, socket, sys\n\
for step in sys.argv[1:]:\n  \
  if step == 'drop': os.setgroups([]); os.setgid(65534); os.setuid(65534)\n  \
  if step == 'bind': listener = socket.create_server(('0.0.0.0', 8))\n  \
  if step == 'close': os.closerange(3, 4096)\n  \
  if step == 'ask':\n    \
    stream = socket.create_connection(('10.7.8.1', 7), 20)\n    \
    stream.sendall(b'hello'); print('uid', os.getuid(), 'from', stream.getsockname()[0], stream.recv(9), flush=True); stream.close()\n  \
  if step == 'show':\n    \
    line = lambda name: [l.split()[1] for l in open('/proc/self/status') if l.startswith(name)][0]\n    \
    print('rights', line('CapBnd') if os.getuid() == 0 else line('CapEff'), line('NoNewPrivs'), os.getgroups(), os.environ['USER'], flush=True)\n  \
  if step == 'wait': sys.stdin.readline()\n  \
  if step == 'list': ctypes.CDLL(None).execl(b'/usr/bin/python3', b'python3', b'ask.py', b'ask', *[b'' for _ in range(9)], None)\n  \
  if step == 'exec': os.execv('/usr/bin/python3', ['python3', 'ask.py', 'ask'])\n\
END\n\
         python3 echo.py & PEER=$!\n\
         await grep -q ':0007 00000000:0000 0A' /proc/net/tcp\n",
        scratch.0.display()
    );
    let mut command = Command::new("unshare");
    let whole = format!("{before}{script}\nkill $PEER\n");
    command.args(["-n", "-m", "timeout", "-k", "1", "100", "sh", "-c", &whole]);
    prepare(&mut command, &scratch);
    let done = command.output().unwrap();
    Some(format!("{}{}", text(&done.stdout), text(&done.stderr)))
}

#[track_caller]
pub fn says(output: Option<String>, wanted: &[&str]) {
    let Some(output) = output else { return };
    for line in wanted {
        assert!(output.contains(line), "`{line}` is missing:\n{output}");
    }
    assert!(!output.contains("NETCHAN_"), "{output}");
}

#[test]
fn a_program_that_gives_up_root_first_has_its_link() {
    let output = script(
        "drop",
        "$RUN python3 ask.py drop ask\n\
         mkfifo hold\n\
         $netchan run --link tap:nc8,capture=taken.pcapng --address 10.7.8.2/24 -- python3 ask.py drop ask wait < hold & exec 9> hold\n\
         await grep -aq hello taken.pcapng && echo recorded; stat -c 'capture %a %u' taken.pcapng; echo >&9; wait $!",
    );
    says(
        output,
        &[
            "uid 65534 from 10.7.8.2 b'hello'",
            "capture 600 0",
            "recorded",
        ],
    );
}

#[test]
fn a_packet_link_is_handed_over_too() {
    let output = script(
        "packet",
        "ip link add v0 type veth peer name v1\nip addr flush dev nc8\nip addr add 10.7.8.1/24 dev v0\n\
         ip link set v0 up; ip link set v1 up\nkill $PEER; python3 echo.py & PEER=$!\n\
         await grep -q ':0007 00000000:0000 0A' /proc/net/tcp\n\
         $netchan run --link packet:v1 --address 10.7.8.2/24 -- python3 ask.py drop ask",
    );
    says(output, &["uid 65534 from 10.7.8.2 b'hello'"]);
}

#[test]
fn an_address_conflict_is_reported() {
    let output = script(
        "conflict",
        "ip link add v0 type veth peer name v1; ip addr add 10.7.7.2/24 dev v0; ip link set v0 up; ip link set v1 up; mkfifo hold\n\
         $netchan run --link packet:v1 --address 10.7.7.2/24 -- python3 ask.py bind wait < hold 2> said & exec 9> hold\n\
         echo 1 > /proc/sys/net/ipv4/conf/v0/arp_notify\n\
         await sh -c \"ip link set v0 address 02:00:00:00:00:41; ip link set v0 address 02:00:00:00:00:42; grep conflict said\"; cat said; echo >&9; wait $!",
    );
    says(
        output,
        &[
            "address conflict on packet:v1: 02:00:00:00:00:4",
            "has our address 10.7.7.2, too",
        ],
    );
}

#[test]
fn what_the_stack_tells_goes_to_the_log_file() {
    let output = script(
        "told",
        "ip link add v0 type veth peer name v1; ip addr add 10.7.7.2/24 dev v0; ip link set v0 up; ip link set v1 up; mkfifo hold\n\
         $netchan run -v --log-file told --link packet:v1 --address 10.7.7.2/24 -- python3 ask.py bind wait < hold 2> said & exec 9> hold\n\
         echo 1 > /proc/sys/net/ipv4/conf/v0/arp_notify\n\
         await sh -c \"ip link set v0 address 02:00:00:00:00:41; ip link set v0 address 02:00:00:00:00:42; grep conflict told\"; cat told; echo >&9; wait $!\n\
         grep -q conflict said || echo stderr has nothing of it",
    );
    says(
        output,
        &[
            "netchan: address conflict on packet:v1: 02:00:00:00:00:4",
            "(error netchan::link link=packet:v1 address=10.7.7.2",
            "stderr has nothing of it",
        ],
    );
}

#[test]
fn programs_of_one_run_have_the_link_one_after_the_other_or_lend_it() {
    let output = script(
        "chain",
        "$RUN sh -c 'python3 ask.py drop ask; python3 ask.py ask; exec python3 ask.py ask drop exec'; echo done $?; $RUN python3 ask.py ask drop list\n\
         mkfifo hold\n\
         $RUN sh -c 'python3 ask.py ask wait < hold & exec 9> hold; sleep 2; python3 ask.py ask drop ask; echo second $?; echo >&9; wait' 2>&1\n\
         $RUN sh -c 'python3 ask.py drop ask wait < hold & exec 9> hold; sleep 2; python3 ask.py ask; echo third $?; echo >&9; wait' 2>&1",
    );
    let Some(text) = &output else { return };
    assert_eq!(text.matches("from 10.7.8.2").count(), 10, "{text}");
    says(
        output,
        &[
            "done 0",
            "second 0",
            "third 1",
            "lent by another user, not root",
            "uid 65534 from",
        ],
    );
}

#[test]
fn an_error_names_the_user_that_the_program_has_become() {
    let output = script("closed", "$RUN python3 ask.py close drop ask");
    // A program may also keep what it was handed when it closes everything.
    if output
        .as_ref()
        .is_some_and(|text| text.contains("from 10.7.8.2"))
    {
        return;
    }
    says(output, &["cannot start: the program has become uid 65534"]);
}

#[test]
fn a_program_that_never_came_to_netchan_is_named_at_its_end() {
    let output = script(
        "unused",
        "$RUN true; echo one; $RUN python3 ask.py ask; echo two; $RUN sh -c 'python3 ask.py ask'; echo three\n\
         ip link del nc8; $netchan run -- python3 -c 'import os; os.write(2, b\"first\\n\"); import socket; socket.create_server((\"0.0.0.0\", 8))' ",
    );
    let Some(text) = output else { return };
    assert_eq!(text.matches("no stack was started").count(), 1, "{text}");
    assert!(text.contains("true has ended"), "{text}");
    let first = text.find("first").expect("printed");
    assert!(
        text.find("is at 10.77.0.2").is_some_and(|at| at > first),
        "{text}"
    );
}

#[test]
fn a_program_of_go_behind_another_one_is_named() {
    let output = script(
        "go",
        "cat > fake.c <<'END'\n\
static const char info[] __attribute__((section(\".go.buildinfo\"), used)) = \"\\377 Go buildinf:\";\n\
int main(void) { return 0; }\n\
END\n\
         cc -o fake fake.c\n\
         $RUN ./fake && echo served; $RUN env ./fake; $RUN sh -c './fake; python3 ask.py ask'",
    );
    let Some(text) = &output else { return };
    // By itself it is served.
    assert_eq!(text.matches("fake is a Go program").count(), 2, "{text}");
    assert!(text.contains("served\n"), "{text}");
    assert!(text.contains("from 10.7.8.2"), "{text}");
}

#[test]
fn a_program_out_of_reach_behind_another_one_is_named_at_once() {
    let output = script(
        "static",
        "echo 'int main(void) { return 0; }' > main.c\n\
         cc -static -o still main.c; cc -static-pie -o pie main.c; cc -o gained main.c; cc -o moving main.c; chown 65534 gained; chmod 4755 gained\n\
         echo '#!./still' > script; chmod 755 script\n\
         for command in './still' 'exec ./pie' './script' './still; :' './gained'; do $RUN sh -c \"$command\"; done\n\
         PATH=.:$PATH $RUN env still\n\
         $RUN python3 -c 'import os\n\
for start in os.posix_spawn, os.posix_spawnp: os.waitpid(start(\"./still\", [\"still\"], os.environ), 0)\n\
os.execve(os.open(\"still\", os.O_RDONLY), [\"still\"], os.environ)'\n\
         echo quiet; $RUN sh -c '/lib64/ld-linux-x86-64.so.2 ./moving; ./moving; python3 ask.py ask; ./still'; echo loud",
    );
    let Some(text) = &output else { return };
    assert_eq!(
        text.matches("is statically linked: it runs on the kernel's stack, not on netchan's")
            .count(),
        9,
        "{text}"
    );
    assert_eq!(text.matches("./gained is set-user-ID").count(), 1, "{text}");
    says(
        output,
        &[
            "netchan: ./script is statically",
            "netchan: ./pie is statically",
        ],
    );
}

#[test]
fn a_program_out_of_reach_by_a_system_call_is_named() {
    let output = script(
        "by-number",
        "echo 'int main(void) { return 0; }' > main.c; cc -static -o still main.c\n\
         cat > calls.py <<'END'\n\
import ctypes, os\n\
library = ctypes.CDLL(None)\n\
words = (ctypes.c_char_p * 2)(b'still', None)\n\
folder, file = os.open('.', os.O_PATH), os.open('still', os.O_RDONLY)\n\
calls = (library.syscall, 59, b'./still', words, None), (library.syscall, 322, -100, b'./still', words, None, 0), \\\n\
    (library.execveat, folder, b'still', words, None, 0), (library.execveat, file, b'', words, None, 0x1000), \\\n\
    (library.execveat, folder, b'none', words, None, 0)\n\
for call, *arguments in calls:\n  \
  if (child := os.fork()) == 0: call(*arguments); os._exit(9)\n  \
  print('child', os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)\n\
END\n\
         $RUN python3 calls.py",
    );
    let Some(text) = &output else { return };
    assert_eq!(
        text.matches("still is statically linked: it").count(),
        3,
        "{text}"
    );
    assert_eq!(text.matches("/proc/self/fd/").count(), 1, "{text}");
    assert_eq!(text.matches("child 0").count(), 4, "{text}");
    assert_eq!(text.matches("child 9").count(), 1, "{text}");
}

/// Named is what the kernel runs in the loader's secure mode, and nothing else.
#[test]
fn a_program_with_file_capabilities_is_named() {
    let output = script(
        "capable",
        "echo '#include <stdio.h>\n#include <sys/auxv.h>\nint main(int n, char **words) { printf(\"%s secure %lu\", words[1], getauxval(AT_SECURE)); puts(\"\"); }' > main.c\n\
         for name in effective none; do cc -w -o $name main.c; done\n\
         python3 -c 'import os, struct\n\
os.setxattr(\"effective\", \"security.capability\", struct.pack(\"<5I\", 0x02000001, 1 << 10, 0, 0, 0))' || exit\n\
         for name in effective none; do $netchan run -- setpriv --reuid 65534 --clear-groups ./$name $name; done < /dev/null",
    );
    says(
        output,
        &[
            "netchan: ./effective has file capabilities: it runs",
            "effective secure 1",
            "none secure 0",
        ],
    );
}

#[test]
fn a_shell_that_ends_at_once_is_named_at_its_end() {
    // dash ends by _exit(2), which runs no handlers.
    let output = script(
        "shell",
        "$RUN sh -c ':'; $RUN python3 -c 'import os; os._exit(0)'; $RUN sh -c 'sleep 3 &'",
    );
    let Some(text) = &output else { return };
    assert_eq!(text.matches("no stack was started").count(), 2, "{text}");
}

#[test]
fn an_address_without_a_link_is_on_a_tap_of_its_own() {
    let output = script(
        "address",
        "cat > serve.py <<'END'\n\
import socket\n\
listener = socket.create_server(('0.0.0.0', 9)); stream = listener.accept()[0]; stream.sendall(b'served'); stream.close()\n\
END\n\
         $netchan run --address 10.7.9.7/24 -- python3 serve.py & S=$!\n\
         await python3 -c 'import socket; socket.create_connection((\"10.7.9.7\", 9), 5).recv(9).decode() == \"served\" or exit(1)' && echo served\n\
         wait $S",
    );
    says(
        output,
        &[
            "served",
            "is at 10.7.9.7 on tap:nc0; this machine's end is 10.7.9.1",
        ],
    );
}

#[test]
fn mosquitto_serves() {
    let there = Command::new("mosquitto").arg("-h").output().is_ok();
    if !there {
        return skipped_here("no mosquitto");
    }
    let output = script(
        "mosquitto",
        "printf 'listener 1883 0.0.0.0\\nallow_anonymous true\\nuser nobody\\n' > conf; chmod 755 .\n\
         $RUN mosquitto -c $PWD/conf > log 2>&1 & S=$!\n\
         cat > mqtt.py <<'END'\n\
import socket\n\
s = socket.create_connection(('10.7.8.2', 1883), 5)\n\
s.sendall(bytes([16, 14, 0, 4]) + b'MQTT' + bytes([4, 2, 0, 60, 0, 2]) + b'ab')\n\
print('connack', list(s.recv(4)))\n\
END\n\
         await python3 mqtt.py; python3 mqtt.py; grep Uid /proc/$S/status; kill $S; wait $S; cat log",
    );
    says(output, &["connack [32, 2, 0, 0]", "Uid:\t65534"]);
}
