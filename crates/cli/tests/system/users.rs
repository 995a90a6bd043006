//! Programs that run as another user: `--user`, which stacks `show` asks, and how much memory of a daemon they may have.

use netchan::link::lease::VERSION;

use super::handed::{says, script};

#[test]
fn rights_are_given_up_once_the_links_are_open() {
    let output = script(
        "user",
        "chmod 755 .; $netchan run --user nobody --link tap:nc8 --address 10.7.8.2/24 -- /usr/bin/python3 ask.py ask show\n\
         printf '[run]\\nuser = \"65534\"\\n[[link]]\\nkind = \"tap\"\\nname = \"nc8\"\\naddress = [\"10.7.8.2/24\"]\\n' > own.toml; chmod 600 own.toml\n\
         $netchan run --config own.toml -- /usr/bin/python3 ask.py ask && echo configured\n\
         $netchan run --user nouser -- true; echo status $?",
    );
    says(
        output,
        &[
            "uid 65534 from 10.7.8.2 b'hello'",
            "rights 0000000000000000 1 [65534] nobody",
            "configured",
            "there is no user nouser",
            "status 2",
        ],
    );
}

#[test]
fn a_stack_of_another_user_is_named_and_asked_only_when_named() {
    let output = script(
        "stranger",
        "chmod 755 .; mkfifo hold; cp $netchan show; chmod 755 show\n\
         $RUN python3 ask.py drop ask wait < hold > log & P=$!; exec 9> hold\n\
         await grep hello log\n\
         $netchan show; $netchan show links; $netchan show links --json --pid $P; echo status $?\n\
         echo >&9; wait $P; exec 9>&-\n\
         $RUN python3 ask.py ask wait < hold > log & P=$!; exec 9> hold\n\
         await grep 'uid 0' log\n\
         setpriv --reuid 65534 --clear-groups ./show show; setpriv --reuid 65534 --clear-groups ./show show links --pid $P; echo other $?\n\
         echo >&9; wait $P",
    );
    says(
        output,
        &[
            "A stack of user nobody runs in process",
            "name it with --pid",
            "\"name\": \"tap:nc8\"",
            "status 0",
            "A stack of user root runs in process",
            "is user root's: ask as that user, or as root",
            "other 1",
        ],
    );
}

#[test]
fn a_process_with_little_address_space_is_told() {
    let output = script(
        "little",
        "cat > serve.py <<'END'\n\
import socket\n\
socket.create_server(('10.9.9.9', 80)); print('served')\n\
END\n\
         for MIB in 300 420 500 560 600 650 700 760 800 860 900 1000 4000; do\n\
         (ulimit -v ${MIB}000; exec $netchan run --link loop --address 10.9.9.9/32 -- python3 -S serve.py) > said 2>&1\n\
         echo $MIB status $?; tail -n 2 said; done",
    );
    let Some(text) = output else { return };
    assert!(
        text.contains(
            "300 status 1\nnetchan: cannot start: the process has no address space left of the"
        ),
        "{text}"
    );
    assert!(text.contains("4000 status 0\nserved"), "{text}");
    // In between one serves that has no room left for what answers `netchan show`, and says so.
    let served = text.matches("\nserved").count();
    assert_eq!(text.matches(" status 0\n").count(), served, "{text}");
    let told = text.matches(" status 1\nnetchan: cannot start: ").count();
    assert_eq!(served + told, 13, "{text}");
}

/// Of a daemon: a user's leases have so much memory together, and what one of them gives back another one may have.
#[test]
fn a_users_leases_share_what_it_may_have() {
    let output = script(
        "users-memory",
        &format!(
            "chmod 755 .\n\
             cat > user.py <<'END'\n\
import json, os, socket\n\
os.setgroups([]); os.setgid(65534); os.setuid(65534)\n\
def lease():\n  \
  daemon = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); daemon.connect('d')\n  \
  daemon.send(json.dumps({{'attach': {{'version': {VERSION}, 'link': '', 'program': 'user'}}}}).encode())\n  \
  return daemon, json.loads(daemon.recv(1 << 16))\n\
one, two, three = lease(), lease(), lease()\n\
print('given:', 'terms' in one[1], 'terms' in two[1], 'refused:', three[1]['refused'])\n\
one[0].close()\n\
print('given again:', any('terms' in lease()[1] for _ in range(1000)))\n\
END\n\
             printf 'lease_memory_max = \"20 MiB\"\\n[[link]]\\nkind = \"tap\"\\nname = \"nc8\"\\naddress = [\"10.7.8.2/24\"]\\n' > daemon.toml\n\
             $netchan daemon --config daemon.toml --socket $PWD/d 2> log & daemon=$!\n\
             await grep -q lends log\n\
             python3 user.py\n\
             $netchan run --link daemon:$PWD/d,memory=1MiB -- true 2>&1\n\
             $netchan run --link daemon:$PWD/d,memory=16MiB -- /usr/bin/python3 -c \"import socket; socket.create_server(('', 8080)); print('small, and served')\"\n\
             kill $daemon; wait $daemon; cat log"
        ),
    );
    let wanted = [
        "given: True True refused: {'errno': 122,",
        "the leases of user 65534 have 18",
        "given again: True",
        "bytes of memory at least, not 1048576",
        "small, and served",
    ];
    says(output, &wanted);
}
