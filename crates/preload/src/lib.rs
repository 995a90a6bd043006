//! The libc symbols of an unmodified program, served by netchan (`LD_PRELOAD=libnetchan_preload.so`, which `netchan run` sets).
//!
//! # Which stack serves a socket (C7)
//!
//! Every `socket(AF_INET | AF_INET6, SOCK_STREAM | SOCK_DGRAM)` is made in the kernel first: its number is the descriptor, so that
//! `fstat`, `FD_CLOEXEC`, `dup` and the numbers themselves are the kernel's business, and nothing collides. The socket
//! stays *undecided* until `bind`, `connect`, `listen` or a datagram to an address:
//!
//! | the address | the socket becomes |
//! | --- | --- |
//! | 127.0.0.0/8, ::1, 0.0.0.0 as a peer (all netchan's with `NETCHAN_LOOPBACK=true` or `loopback = "netchan"`), the prefixes in `NETCHAN_KERNEL` | the kernel's: untouched from then on |
//! | an address to bind that is neither a wildcard nor the stack's own | the kernel's |
//! | everything else | netchan's |
//!
//! A socket that was bound to a wildcard address is netchan's, but a `connect` to a kernel address hands it back (a datagram socket only if the
//! port was left open). Ping sockets (`SOCK_DGRAM` with `IPPROTO_ICMP` or `IPPROTO_ICMPV6`) are such datagram sockets, whose port is the echo's
//! identifier; where `net.ipv4.ping_group_range` forbids the kernel's, one is netchan's from the start. Other families and types, files and pipes never come near netchan: `read`, `write` and `close` cost them
//! two loads. The stack is started by the first socket that becomes netchan's.
//!
//! # What is served
//!
//! `socket bind listen accept accept4 connect shutdown getsockname getpeername getsockopt setsockopt`,
//! `read write readv writev send recv sendto recvfrom sendmsg recvmsg sendmmsg recvmmsg sendfile sendfile64`,
//! `poll ppoll select pselect epoll_create epoll_create1 epoll_ctl epoll_wait epoll_pwait epoll_pwait2`,
//! `getifaddrs freeifaddrs if_nametoindex if_indextoname getaddrinfo` (netchan's links beside the kernel's interfaces, see Interfaces),
//! `close close_range closefrom dup dup2 dup3 fcntl fcntl64 ioctl` (FIONREAD, FIONBIO, SIOCOUTQ, SIOCATMARK, SIOCGSTAMP, SIOCGSTAMPNS, SIOCGIFNAME and SIOCGIFINDEX of netchan's links; others go to the kernel's socket of
//! that number), `splice` (copies; `tee` and `vmsplice` are for pipes alone, as on the kernel), `fdopen fileno` (on a socket that is netchan's by then), `sigaction signal bsd_signal
//! sysv_signal sigset pthread_cancel` (see Signals), `_Fork clone` (see fork), `_exit _Exit daemon` (see Exit), `syscall` (for all of these), `prctl` (PR_SET_SECCOMP: no call is made
//! from then on that a filter may not know), `open openat pipe pipe2 socketpair eventfd
//! timerfd_create` (only to see which numbers are given out anew), `io_uring_setup` (ENOSYS), and the fortified `__read_chk __recv_chk __recvfrom_chk __poll_chk __ppoll_chk`.
//!
//! Flags: `MSG_DONTWAIT MSG_PEEK MSG_TRUNC MSG_WAITALL MSG_NOSIGNAL MSG_MORE MSG_EOR` (streams: no segment spans it) `MSG_OOB` (streams; RFC 6093: POLLPRI and SIOCATMARK go with it, SIGURG does
//! not), `MSG_WAITFORONE`, `MSG_ERRQUEUE` (errors of datagrams; completions and time stamps), `MSG_FASTOPEN`.
//!
//! Socket options are in netchan's table (`netchan::socket::options`), from which `docs/socket-options.md` is made.
//!
//! What other values and lengths are answered is compared with Linux, and where it differs said why, in `tests/sweep.rs`; so is every call in every state of
//! a socket, in `tests/states.rs`.
//!
//! Ancillary data comes with datagrams as these options ask for it, and goes with them: `IP_PKTINFO IP_TTL IP_TOS IPV6_PKTINFO IPV6_HOPLIMIT IPV6_TCLASS
//! UDP_SEGMENT SO_TIMESTAMPING SCM_TS_OPT_ID`, EINVAL for others. The interface in `in_pktinfo` is the stack's own number for it, from 1.
//! A datagram socket that joins a group, or names the interface for what it sends to groups, is netchan's from then on.
//!
//! `execve execveat execv execvp execvpe execl execle execlp fexecve` leave the links open for the program that the stack's process becomes. These and `posix_spawn posix_spawnp` say so where the
//! new program is out of this library's reach: statically linked, or with rights that it is to gain (set-user-ID, file capabilities).
//!
//! # Links
//!
//! `netchan run` opens them, with the rights it has, and hands their descriptors on (`netchan::environment::hand_on`): a program that gives up root
//! before its first socket has them. The first program of a run that starts a stack has them, and lends them to
//! the others that ask meanwhile, its children included; the next one has them when no process has them any more. Without
//! `netchan run`, or where the program closed the descriptors, the stack opens its links by their names, with the rights of that moment.
//!
//! # Interfaces
//!
//! A program that binds each address of its machine finds netchan's by getifaddrs(3): an `AF_PACKET` entry for each link, named as SO_BINDTODEVICE names
//! it (`nc0` of `tap:nc0`), then one for each of its addresses, behind the kernel's interfaces, whose addresses stay the kernel's. An address that the kernel
//! has, too (127.0.0.1), is listed once. if_nametoindex(3) and if_indextoname(3) answer with the stack's own numbers, from 1, as `in_pktinfo` has them: a
//! kernel's interface of a link's name or number is not found by it. The stack is started by the first of these calls as by a socket. A dump of RTM_GETLINK or
//! RTM_GETADDR that a program asks the kernel for itself (rtnetlink(7)) has them, too, ahead of the kernel's, and SIOCGIFFLAGS knows their names. Supervised programs see the links that there were
//! when they began. if_nameindex(3), other requests of netlink and /proc show the kernel's interfaces alone. getaddrinfo(3) with AI_ADDRCONFIG leaves nothing out
//! for which the kernel alone has no address.
//!
//! # What is different from the kernel's sockets
//!
//! * **fork.** The stack stays with the process that started it. Connections, listeners and datagram sockets that a forked child inherits serve it, too, and what it becomes by exec: they
//!   are the kernel's to all processes from the first use on, which this one's stack carries (`share`, `relay`). Differences are then: no MSG_OOB, TCP_INFO and getsockopt below
//!   SOL_SOCKET; a peer's reset is the end of the stream to those that read; a program that came by one through exec sets no options of it; of a datagram socket what `docs/decisions/0021` lists. A child's new sockets are those of a stack of its own, by a lease of its parent's links (`lending`), or of the daemon's; so are those of programs that the process and its children start and become.
//!   Other sockets answer EBADF in a child (poll: POLLNVAL): ping sockets, datagram sockets without a port, streams without a peer, and what an inherited epoll instance watches if one of these is among it. The first use
//!   says so on the standard error (where that is /dev/null by now, on the file or terminal that it was when the stack started). A child that asks again and again waits for its answer, up to a
//!   second, and poll does not report the socket any more.
//!   Where the stack's own process ends, what children hold goes on in a process of netchan's (`keeper`), with their leases; so it is where it becomes another program, and has sockets, children or leases. Descriptors that vfork and posix_spawn pass on are plain unconnected
//!   sockets of the kernel's; a program whose standard input or output is one says so. `vfork` and `posix_spawn` are safe.
//!   `_Fork`, `clone` and `syscall` are as `fork`; a child that was made by the bare instruction keeps the link open, and the rest goes for it, too.
//!   A program that forks before its first `bind` or `connect` (a shell, say) starts the stack in whichever child comes first.
//! * **close** by one thread while another waits in a call on the same descriptor: the other one gets EBADF at once.
//! * **Signals.** A handler that was installed by the C library's functions and comes in the middle of a call runs at the call's end, which
//!   comes at once where the call waits: EINTR, or with SA_RESTART the call goes on, as in Linux. The alternate stack is not used then. A handler that
//!   was installed by a bare system call runs in the middle, and its own calls answer EAGAIN then.
//! * **Cancellation** (`pthread_cancel`) acts as on the kernel's calls; `syscall` and `sendfile` are no cancellation points. A call that has done something by then returns; the next one ends the thread.
//! * **SO_RCVTIMEO, SO_SNDTIMEO** are read back as they were set; Linux rounds them up to its tick, 1 to 10 ms by its build.
//! * **Bad pointers.** NULL, the first page and the kernel's half are EFAULT; other addresses that are not mapped fault.
//! * **Ports below 1024** are open to any user: the stack is the process's own. `netchan daemon` has rules.
//! * **SO_BINDTODEVICE** knows links by their names in `netchan show`, with their kind or without (`tap:nc0`, `nc0`), and by the stack's numbers, from 1, which
//!   are not the kernel's; an index that no link has is ENODEV at once. A connection stays on its link: another is EINVAL. What a host sends to
//!   itself comes in by the link that has the address.
//! * **Beside the symbols.** Calls that the C library makes inside itself, statically linked programs, and those that make system calls
//!   themselves go past this library: they see the kernel's unconnected socket. A number that was closed that way is found out at the end
//!   of the stream, at an error, and when one of the functions above gives it out anew. A socket that is passed over a UNIX socket (sendmsg)
//!   is shared from then on, as one that a forked child uses.
//! * **Ancillary data** with a stream: what it is told is as its options ask (the time is that of the newest text that came); of what it sends along SO_TIMESTAMPING counts.
//! * **ICMP errors**: a connected datagram socket is told of hosts and networks that are unreachable for now without asking for it (`IP_RECVERR`), too, as
//!   RFC 1122 §4.1.3.3 has it; Linux tells only of what is final.
//! * **Exit.** A program that ends by `exit`, by returning from `main`, by `_exit`, or by SIGHUP, SIGINT or SIGTERM that it does not handle (our handler
//!   stands for SIG_DFL then; a second one ends it at once) waits up to 5 s until its peers have what it sent; other fatal signals do not. Where children hold
//!   sockets of it, as those of a server that puts itself into the background (`daemon`), these go on; sockets that cannot be shared do not, and it says so.
//! * **Numbers.** The stack's own descriptors stand above the program's soft limit (`RLIMIT_NOFILE`), or above 16,384 where that is higher, and close-on-exec.
//!   To the program they are not open: `close`, `dup` and `fcntl` answer EBADF, as does `dup2` onto one, and ranges leave them out. Where the hard
//!   limit is no higher they take numbers below it, eight of which are put aside for threads that begin to wait when no other is left.
//!
//! # Layers
//!
//! A file names only what stands in its own layer or above it, and no files import each other in a circle (`cargo test -p netchan-lab --test tidy`); the
//! list of modules below is sorted by them.
//!
//! | layer | what stands there |
//! | --- | --- |
//! | ground | system calls and the C library's functions, errno, the program's memory and values, addresses, the table of numbers |
//! | process | whether this process has the stack or was forked from one that has it; the region in which no handler runs and no thread is cancelled; signals; the edge at which results become return values and errno |
//! | numbers | what stands behind a descriptor: a socket's state, epoll instances, what was set and asked, waiting; which stack serves a call about it; what happens to the number |
//! | life | the stack's start, what becomes of it at fork, exec and exit |
//! | calls | by subject: the decision which stack serves a socket, connections and names, options, transfers and ancillary data, poll and epoll, interfaces |
//! | outside | the exported functions, and what runs as a program begins and ends |

// The ground; what C passes is netchan's to read.
use netchan::c::{address, buffers, readiness};

pub mod driver;
mod errno;
mod limits;
mod locks;
mod real;
mod share;
mod sys;

// The process.
mod edge;
mod ending;
mod handlers;
mod line;
mod process;
mod region;
mod signals;
mod stdio;
mod table;

// Numbers.
mod asked;
mod crossing;
mod instances;
mod numbers;
mod orphan;
mod placeholder;
mod queue;
mod relay;
mod serve;
mod shared;
mod state;
mod wait;

// The stack's life.
mod children;
mod exit;
mod fork;
mod hearing;
mod keeper;
mod lending;
mod notices;
mod start;

// Calls.
mod across;
mod ancillary;
mod anew;
mod decide;
mod descriptor;
mod endpoint;
mod epoll;
mod fast_open;
mod interfaces;
mod letters;
mod messages;
mod netlink;
mod options;
mod passing;
mod poll;
mod reach;
mod splice;
mod stamping;
mod streams;
mod transfer;

// Outside.
pub mod export;
mod program;
