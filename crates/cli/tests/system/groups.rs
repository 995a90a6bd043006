//! Unmodified programs on `netchan daemon` that join a group: each has a copy of what the kernel's end of the TAP sends, and of what one of them sends; and the
//! kernel's end sees what the daemon tells routers of all of them together.

use super::handed::{says, script};

/// `igmp.py` prints what 10.7.8.2 reports (RFC 9776 §4.2.12), `member.py` what a member hears, `say.py` sends.
const PROGRAMS: &str = "\
cat > igmp.py <<'END'
import socket
s = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(0x800)); s.bind(('nc8', 0x800))
print('ready', flush=True)
while True:
    p = s.recv(9999)
    if p[9] != 2 or socket.inet_ntoa(p[12:16]) != '10.7.8.2': continue
    m = p[4 * (p[0] & 15):]
    at = 8
    for _ in range(int.from_bytes(m[6:8])):
        n = int.from_bytes(m[at + 2:at + 4])
        print('record', m[at], socket.inet_ntoa(m[at + 4:at + 8]), n, flush=True)
        at += 8 + 4 * n
END
cat > member.py <<'END'
import socket, sys
name, at, via, *source = sys.argv[1:]
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind((at, 5353))
group = socket.inet_aton('239.1.2.3') + socket.inet_aton(via)
if source: s.setsockopt(socket.IPPROTO_IP, 39, group + socket.inet_aton(source[0]))  # IP_ADD_SOURCE_MEMBERSHIP
else: s.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, group)
print(name, 'joined', flush=True)
while True:
    text, peer = s.recvfrom(9999)
    print(name, 'heard', text.decode(), 'from', peer[0], flush=True)
    if text == b'leave ' + name.encode(): break
s.setsockopt(socket.IPPROTO_IP, socket.IP_DROP_MEMBERSHIP, group)
print(name, 'left', flush=True)
sys.stdin.readline()
END
cat > say.py <<'END'
import socket, sys
own, text, loops = sys.argv[1:]
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind((own, 0))
s.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(own))
s.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, int(loops))
s.sendto(text.encode(), ('239.1.2.3', 5353))
END
";

#[test]
fn programs_on_a_daemon_are_in_a_group() {
    let output = script(
        "groups",
        &format!(
            "{PROGRAMS}\
             ip addr add 10.7.8.9/24 dev nc8\n\
             python3 igmp.py > igmp & igmp=$!\n\
             await grep -q ready igmp\n\
             $netchan daemon --link tap:nc8 --address 10.7.8.2/24 --socket $PWD/d 2> log & daemon=$!\n\
             await grep -q lends log\n\
             ON=\"$netchan run --link daemon:$PWD/d --\"\n\
             mkfifo hold; exec 9<> hold\n\
             $ON python3 member.py one '' 0.0.0.0 < hold > one & one=$!\n\
             $ON python3 member.py two 239.1.2.3 10.7.8.2 < hold > two & two=$!\n\
             $ON python3 member.py nine '' 0.0.0.0 10.7.8.9 < hold > nine & nine=$!\n\
             python3 member.py kernel '' 10.7.8.1 < hold > kernel & kernel=$!\n\
             for name in one two nine kernel; do await grep -q joined $name; done\n\
             await grep -q 'record 4 239.1.2.3' igmp && echo the group is reported\n\
             hears() {{ for name in $2; do await grep -q \"heard $1 from\" $name; done; }}\n\
             python3 say.py 10.7.8.1 hello 0; hears hello 'one two'\n\
             python3 say.py 10.7.8.9 ninth 0; hears ninth 'one two nine'\n\
             $ON python3 say.py 10.7.8.2 loud 1; hears loud 'one two kernel'\n\
             $ON python3 say.py 10.7.8.2 quiet 0; hears quiet kernel\n\
             $netchan show groups --pid $daemon | grep 239.1.2.3 | grep -q exclude && echo all together\n\
             python3 say.py 10.7.8.1 'leave one' 0; await grep -q left one\n\
             python3 say.py 10.7.8.9 later 0; hears later 'two nine'\n\
             kill -9 $nine; wait $nine\n\
             grep -q 'record 3 239.1.2.3' igmp || echo the group is not left\n\
             kill -9 $two; wait $two\n\
             await grep -q 'record 3 239.1.2.3 0' igmp && echo the group is left with its last member\n\
             echo >&9; wait $one\n\
             kill $kernel $igmp; wait $kernel $igmp\n\
             none() {{ ! $netchan show groups --pid $daemon | grep -q 239.1.2.3; }}; await none && echo nothing is left\n\
             cat one two nine kernel\n\
             kill $daemon; wait $daemon; cat log"
        ),
    );
    let wanted = [
        "the group is reported",
        "all together",
        "the group is not left",
        "the group is left with its last member",
        "nothing is left",
        "one joined\none heard hello from 10.7.8.1\none heard ninth from 10.7.8.9\none heard loud from 10.7.8.2\n\
         one heard leave one from 10.7.8.1\none left\n",
        "two joined\ntwo heard hello from 10.7.8.1\ntwo heard ninth from 10.7.8.9\ntwo heard loud from 10.7.8.2\n\
         two heard leave one from 10.7.8.1\ntwo heard later from 10.7.8.9\n",
        "nine joined\nnine heard ninth from 10.7.8.9\nnine heard later from 10.7.8.9\n",
        "kernel joined\nkernel heard loud from 10.7.8.2\nkernel heard quiet from 10.7.8.2\n",
    ];
    says(output, &wanted);
}
