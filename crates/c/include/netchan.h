/*
 * netchan.h - TCP, UDP and ping sockets of netchan, a TCP/IP stack in user space
 *
 * Link with -lnetchan (pkg-config --cflags --libs netchan).
 *
 * A program opens a stack, makes sockets on it, and calls them as it would call the kernel's: the functions have the names,
 * the order of arguments and the errors of POSIX and Linux, with the prefix netchan_. The protocols run in the program's own
 * address space.
 *
 * Results.  Functions return -1, or NULL where they return a pointer, and set errno. Where they succeed errno stays as it was.
 * All may fail with
 *   EBADF   the handle is NULL or closed, is none, or is of the other kind; or the process is a child made by fork(2)
 *   EIO     a fault of netchan's own (a panic, which was caught at this boundary)
 * and only further errors are named below.
 *
 * Handles.  A struct netchan * and a struct netchan_socket * are numbers in the guise of pointers. They point to nothing, are
 * never given out again, and are no descriptors: read(2), write(2), fcntl(2), select(2) and epoll do not know them.
 *
 * Threads.  Every function may be called from any thread, several at a time also on one socket, unless it says otherwise. None
 * may be called from a signal handler. A call that waits returns with EINTR when a signal handler has run, whatever SA_RESTART
 * says. No call raises SIGPIPE. None is a cancellation point.
 *
 * Forks.  A stack stays with the process that opened it. In a child made by fork(2) every call fails with EBADF. The child may
 * exec.
 *
 * Memory.  Pointers that cannot be right (NULL with a length, the first page, the kernel's half) are EFAULT. Others that are not
 * mapped fault.
 */
#ifndef NETCHAN_H
#define NETCHAN_H

#include <poll.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

#define NETCHAN_VERSION_MAJOR 0
#define NETCHAN_VERSION_MINOR 1
#define NETCHAN_VERSION_PATCH 0
/* The version of this header. */
#define NETCHAN_VERSION "0.1.0"

#ifdef __cplusplus
extern "C" {
#endif

/* A running stack. */
struct netchan;
/* A socket. */
struct netchan_socket;

/* The version of the library that was loaded: a string for ever. */
const char *netchan_version(void);

/*
 * Stacks
 */

/*
 * Opens a stack by the text of a configuration file, as `netchan run --config` reads one (docs/configuration.md); [run], [log] and
 * [[lease]] say nothing to it. NULL: by the environment, as programs under `netchan run` do (NETCHAN_LINK, NETCHAN_ADDRESS,
 * NETCHAN_GATEWAY, NETCHAN_CONFIG, ...); no other thread may change the environment meanwhile.
 *
 * Threads are started, with all signals blocked, and a control socket for `netchan show`. A process may have several stacks.
 *
 *   EINVAL  the text is no configuration, or not UTF-8; netchan_error() says what is wrong where
 *   EACCES, EPERM, ENOENT, EBUSY ...  a link cannot be opened; netchan_error() says why
 */
struct netchan *netchan_open(const char *config);

/*
 * Opens a stack with one link, as `netchan run --link --address --gateway` do. `link` is a specification such as "tap:nc0",
 * "packet:eth0", "daemon", "loop", or "lo": no link at all, 127.0.0.0/8 and ::1 are the stack's own, apart from the kernel's.
 * `addresses` ("10.77.0.2/24,fd77::2/64") and `gateways` ("10.77.0.1") are separated by commas, and may be NULL.
 *
 *   EFAULT  `link` is NULL
 *   others as netchan_open()
 */
struct netchan *netchan_open_link(const char *link, const char *addresses, const char *gateways);

/*
 * Why the last netchan_open() or netchan_open_link() of this thread failed, in words; "" if none has. Valid until the thread's next
 * one. Never fails.
 */
const char *netchan_error(void);

/*
 * Waits, at most `timeout_ms` milliseconds, until all peers have acknowledged all that was sent to them, the ends of closed
 * connections included. To be called before a program ends: its connections end with it.
 *
 *   EINVAL     `timeout_ms` is below zero
 *   ETIMEDOUT  something is not acknowledged yet
 */
int netchan_drain(struct netchan *stack, int timeout_ms);

/*
 * Gives the handle up. Sockets of the stack work on; it ends with the last of them, and closes its links. A thread that has waited on
 * it keeps its memory until the thread ends or waits on another.
 */
int netchan_end(struct netchan *stack);

/*
 * Sockets
 */

/*
 * socket(2): `domain` is AF_INET or AF_INET6, `type` SOCK_STREAM (TCP) or SOCK_DGRAM (UDP; with IPPROTO_ICMP or IPPROTO_ICMPV6 ping
 * sockets), with SOCK_NONBLOCK or without. SOCK_CLOEXEC has no meaning and is taken.
 *
 *   EAFNOSUPPORT, ESOCKTNOSUPPORT, EPROTONOSUPPORT, EINVAL  as Linux
 *   EMFILE  2^30 sockets
 */
struct netchan_socket *netchan_socket(struct netchan *stack, int domain, int type, int protocol);

/*
 * close(2): a connection ends gracefully behind the call, or with a reset where text was not read or SO_LINGER says 0 seconds. The
 * call never waits, whatever SO_LINGER says: netchan_drain() does. Threads that wait in calls of this socket return with EBADF. What
 * netchan_peek_segments() and netchan_reserve() have shown must not be touched any more.
 */
int netchan_close(struct netchan_socket *socket);

/*
 * Whether calls wait (`on` is 0, the default) or fail with EAGAIN, in place of fcntl(2) with O_NONBLOCK. How long they wait say
 * SO_RCVTIMEO and SO_SNDTIMEO; MSG_DONTWAIT counts for one call.
 */
int netchan_set_nonblocking(struct netchan_socket *socket, int on);

/*
 * bind(2).
 *   EFAULT, EINVAL (too short, bound already), EAFNOSUPPORT, EADDRINUSE
 *   EADDRNOTAVAIL  none of the stack's own
 */
int netchan_bind(struct netchan_socket *socket, const struct sockaddr *address, socklen_t len);

/*
 * listen(2). A backlog below zero is as many as allowed.
 *   EOPNOTSUPP (no stream), EINVAL (connected), EADDRINUSE
 */
int netchan_listen(struct netchan_socket *socket, int backlog);

/*
 * accept(2), accept4(2): a new socket. `flags` may have SOCK_NONBLOCK and SOCK_CLOEXEC; SO_RCVTIMEO, SO_SNDTIMEO and what else its
 * options say are the listener's, waiting or not is not. `address` and `len` may be NULL.
 *   EAGAIN, EINTR, EFAULT, EINVAL (does not listen, unknown flag), EOPNOTSUPP (no stream), EMFILE
 *   ENETDOWN  no link is left
 */
struct netchan_socket *netchan_accept(struct netchan_socket *socket, struct sockaddr *address, socklen_t *len);
struct netchan_socket *netchan_accept4(struct netchan_socket *socket, struct sockaddr *address, socklen_t *len, int flags);

/*
 * connect(2). AF_UNSPEC dissolves: a datagram socket forgets its peer, a connection is reset.
 *   EINPROGRESS  without waiting, or SO_SNDTIMEO has passed; POLLOUT and SO_ERROR tell what comes of it
 *   EALREADY, EISCONN, ECONNREFUSED, ETIMEDOUT, EHOSTUNREACH, ENETUNREACH, EADDRNOTAVAIL, EAFNOSUPPORT, EINVAL, EFAULT
 *   EINTR  the connection goes on being made
 */
int netchan_connect(struct netchan_socket *socket, const struct sockaddr *address, socklen_t len);

/*
 * shutdown(2): SHUT_RD, SHUT_WR or SHUT_RDWR.
 *   ENOTCONN, EINVAL
 */
int netchan_shutdown(struct netchan_socket *socket, int how);

/*
 * getsockname(2), getpeername(2): cut to `*len` bytes, which becomes the whole length.
 *   EFAULT, EINVAL (*len is below zero), ENOTCONN (no peer)
 */
int netchan_getsockname(struct netchan_socket *socket, struct sockaddr *address, socklen_t *len);
int netchan_getpeername(struct netchan_socket *socket, struct sockaddr *address, socklen_t *len);

/*
 * getsockopt(2), setsockopt(2): the options of docs/socket-options.md, by Linux's numbers and with Linux's structures.
 *   ENOPROTOOPT  an option that this socket does not have, or one for what is not here: ancillary data (IP_PKTINFO, SO_TIMESTAMP,
 *                ...), TCP_FASTOPEN_CONNECT, TCP_AO_GET_KEYS
 *   EINVAL, EFAULT, EDOM, ENODEV, EOPNOTSUPP  as Linux
 */
int netchan_getsockopt(struct netchan_socket *socket, int level, int name, void *value, socklen_t *len);
int netchan_setsockopt(struct netchan_socket *socket, int level, int name, const void *value, socklen_t len);

/*
 * Sending and receiving
 */

/*
 * send(2), sendto(2), sendmsg(2): bytes sent. A stream that waits takes everything before the call returns, unless it fails midway:
 * then what it took counts. A stream ignores an address. `flags`: MSG_DONTWAIT, MSG_MORE, MSG_EOR (no segment spans it), MSG_OOB;
 * MSG_NOSIGNAL is taken, and is how all calls are.
 *   EOPNOTSUPP  another flag, or ancillary data
 *   EAGAIN, EINTR, EFAULT, EMSGSIZE, ENOTCONN, EPIPE, ECONNRESET, EDESTADDRREQ, ENETUNREACH, EHOSTUNREACH, ...
 */
ssize_t netchan_send(struct netchan_socket *socket, const void *data, size_t len, int flags);
ssize_t netchan_sendto(struct netchan_socket *socket, const void *data, size_t len, int flags, const struct sockaddr *to,
                       socklen_t to_len);
ssize_t netchan_sendmsg(struct netchan_socket *socket, const struct msghdr *message, int flags);

/*
 * recv(2), recvfrom(2), recvmsg(2): bytes received; 0 is the end of a stream. `flags`: MSG_DONTWAIT, MSG_PEEK, MSG_WAITALL, MSG_OOB, and
 * MSG_TRUNC of datagrams (of streams it is EOPNOTSUPP: netchan_consume() does it); MSG_NOSIGNAL is taken. recvmsg tells no ancillary
 * data.
 *   EOPNOTSUPP  another flag
 *   EAGAIN, EINTR, EFAULT, ENOTCONN, ECONNREFUSED, ECONNRESET, ETIMEDOUT, ...
 */
ssize_t netchan_recv(struct netchan_socket *socket, void *data, size_t len, int flags);
ssize_t netchan_recvfrom(struct netchan_socket *socket, void *data, size_t len, int flags, struct sockaddr *from,
                         socklen_t *from_len);
ssize_t netchan_recvmsg(struct netchan_socket *socket, struct msghdr *message, int flags);

/*
 * Waiting for several
 */

struct netchan_pollfd {
    struct netchan_socket *socket; /* or NULL: `fd` counts */
    int fd;                        /* a descriptor of the kernel's; below zero: the entry counts for nothing */
    short events;                  /* POLLIN, POLLOUT, POLLPRI, POLLRDHUP, as in poll(2) */
    short revents;                 /* what there is, POLLERR, POLLHUP and POLLNVAL (a handle that names no socket) included */
};

/*
 * poll(2) over netchan's sockets and the kernel's descriptors together: how many entries have `revents`; 0: `timeout_ms` milliseconds
 * have passed. Below zero it waits for ever. The array must not be used by others meanwhile.
 *   EINVAL  sockets of several stacks, or more than 2^20 entries
 *   EFAULT, EINTR
 */
int netchan_poll(struct netchan_pollfd *fds, nfds_t count, int timeout_ms);

/*
 * Zero-copy: streams only
 */

/*
 * Received text where it lies: fills in at most `count` of `pieces`, in the order of the stream, and takes nothing. How many; 0 is the
 * end of the stream. Waits until there is something, as netchan_recv() does. There may be more text than `count` pieces show.
 *
 * The memory is to be read only. It is valid until the next call on this socket, by whichever thread, that takes, dissolves or
 * closes: netchan_consume(), netchan_recv(), netchan_recvfrom() and netchan_recvmsg() without MSG_PEEK, netchan_connect(),
 * netchan_bind(), netchan_shutdown(), netchan_close(). It stays valid while more arrives, after the peer has reset the connection,
 * and over further calls of netchan_peek_segments(), which show it again, and what came since behind it.
 *
 *   EINVAL  `count` is below 1
 *   others as netchan_recv()
 */
int netchan_peek_segments(struct netchan_socket *socket, struct iovec *pieces, int count);

/*
 * Takes at most `n` received bytes, and copies none: those that netchan_peek_segments() has shown. How many; 0 is the end of the stream,
 * unless `n` is. Never waits.
 *   EAGAIN  nothing has been received
 *   others as netchan_recv()
 */
ssize_t netchan_consume(struct netchan_socket *socket, size_t n);

/*
 * Room for what is to be sent next, at most `wanted` bytes (256 KiB at a time), in memory of which the send queue is made: fills in at
 * most `count` of `pieces` (4 are enough), in the order in which their bytes will be sent. How many. Waits until there is room, as
 * netchan_send() does. Nothing is held meanwhile: the program may take its time.
 *
 * The room is to be written to, by one thread at a time, until netchan_commit(), another netchan_reserve() on this socket, which
 * gives it back, or netchan_close(). It has what its memory had before: commit no more than was written.
 *
 *   EINVAL  `wanted` is 0, or `count` is below 1
 *   others as netchan_send(); EOPNOTSUPP: no stream
 */
int netchan_reserve(struct netchan_socket *socket, size_t wanted, struct iovec *pieces, int count);

/*
 * Sends the first `n` bytes of what was written to the room, and gives back the rest; 0 gives back all. How many bytes: fewer than `n`
 * only where other threads have sent on this socket meanwhile, or memory has become short. Never waits.
 *   EINVAL  there is no room, or less than `n` was shown: it stays
 *   others as netchan_send(): then nothing of it is sent, and the room is given back
 */
ssize_t netchan_commit(struct netchan_socket *socket, size_t n);

#ifdef __cplusplus
}
#endif

#endif
