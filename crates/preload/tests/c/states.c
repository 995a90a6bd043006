/* Every call in every state that a socket can be in, and every two calls one behind the other: what each says, a line for each way. The same
   program runs on the kernel's sockets and on netchan's; the lines are compared.
   Usage: states serve | states OWN4 PEER4 OWN6 PEER6 [WAIT-MS FILE], FILE being the names of the only lines to try. */
#define _GNU_SOURCE
#include <sys/epoll.h>
#include <sys/ioctl.h>

#include "peer.h"

#define PORT_STAY 9101 /* reads and says nothing, stays open */
#define PORT_FIN 9102  /* ends its direction at the first byte, goes on reading */
#define PORT_RST 9103  /* resets at the first byte */
#define PORT_FULL 9104 /* its queue is full: nothing is answered */
#define PORT_SAY 9105  /* says "data" at the first byte */
#define PORT_NONE 9106 /* nobody is there */

/* ---- the far end ---- */

static int service(int port, int kind) {
    struct sockaddr_in6 any = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    int on = 1, fd = socket(AF_INET6, kind, 0);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, (void *)&any, sizeof any)) exit(1);
    if (kind == SOCK_STREAM && listen(fd, port == PORT_FULL ? 0 : 4096)) exit(1);
    return fd;
}

static void fill(void) {
    struct sockaddr_in6 self = {.sin6_family = AF_INET6, .sin6_port = htons(PORT_FULL), .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    for (int i = 0; i < 3; i++) connect(socket(AF_INET6, SOCK_STREAM | SOCK_NONBLOCK, 0), (void *)&self, sizeof self);
}

static void serve_byte(int poller, int fd, int port, unsigned events) {
    char data[4096];
    struct linger now = {1, 0};
    ssize_t n = events & EPOLLIN ? recv(fd, data, sizeof data, MSG_DONTWAIT) : 0;
    if (events & (EPOLLERR | EPOLLHUP) || (n < 0 && errno != EAGAIN)) {
        close(fd);
    } else if (n == 0) {
        struct epoll_event none = {.data.u64 = (uint64_t)port << 32 | fd};
        epoll_ctl(poller, EPOLL_CTL_MOD, fd, &none);
    } else if (port == PORT_FIN) {
        shutdown(fd, SHUT_WR);
    } else if (port == PORT_RST) {
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now), close(fd);
    } else if (port == PORT_SAY) {
        struct epoll_event own = {EPOLLIN, {.u64 = (uint64_t)PORT_STAY << 32 | fd}};
        send(fd, "data", 4, MSG_NOSIGNAL), epoll_ctl(poller, EPOLL_CTL_MOD, fd, &own);
    }
}

static int serve(void) {
    static const int ports[] = {PORT_STAY, PORT_FIN, PORT_RST, PORT_SAY};
    int poller = epoll_create1(0), listeners[4], datagrams = service(PORT_STAY, SOCK_DGRAM);
    for (int i = 0; i < 4; i++) {
        struct epoll_event event = {EPOLLIN, {.u64 = i}};
        epoll_ctl(poller, EPOLL_CTL_ADD, listeners[i] = service(ports[i], SOCK_STREAM), &event);
    }
    struct epoll_event event = {EPOLLIN, {.u64 = 4}};
    epoll_ctl(poller, EPOLL_CTL_ADD, datagrams, &event);
    service(PORT_FULL, SOCK_STREAM);
    fill();
    puts("ready");
    fflush(stdout);
    for (;;) {
        if (epoll_wait(poller, &event, 1, -1) != 1) continue;
        if (event.data.u64 < 4) {
            int fd = accept(listeners[event.data.u64], 0, 0);
            struct epoll_event own = {EPOLLIN, {.u64 = (uint64_t)ports[event.data.u64] << 32 | fd}};
            int on = 1;
            setsockopt(fd, IPPROTO_TCP, TCP_QUICKACK, &on, sizeof on);
            if (fd >= 0) epoll_ctl(poller, EPOLL_CTL_ADD, fd, &own);
        } else if (event.data.u64 == 4) {
            char data[2048];
            struct sockaddr_in6 from;
            socklen_t len = sizeof from;
            ssize_t n = recvfrom(datagrams, data, sizeof data, 0, (void *)&from, &len);
            sendto(datagrams, data, n, 0, (void *)&from, len);
        } else {
            serve_byte(poller, (int)event.data.u64, event.data.u64 >> 32, event.events);
        }
    }
}

/* ---- the sockets that are tried ---- */

enum family { V4, V6, MAPPED };
static enum family family;
static int stream, pings, blocking, wait_ms = 40;
/* What is sent: a ping socket takes echo requests only. */
static const char *text = "x";
static size_t text_len = 1;
static const char *address[4]; /* own and peer, of IPv4 and of IPv6 */
static char *only; /* names of the lines to try, each behind and before a newline */
static volatile sig_atomic_t pipes;

static void on_pipe(int number) { pipes++; }

static socklen_t make(struct sockaddr_in6 *to, const char *v4, const char *v6, int port) {
    memset(to, 0, sizeof *to);
    if (family == V4) {
        struct sockaddr_in *a = (void *)to;
        *a = address_of(v4, port);
        return sizeof *a;
    }
    to->sin6_family = AF_INET6, to->sin6_port = htons(port);
    char text[64] = "::ffff:";
    inet_pton(AF_INET6, family == V6 ? v6 : strcat(text, v4), &to->sin6_addr);
    return sizeof *to;
}
#define PEER address[1], address[3]
#define OWN address[0], address[2]
#define ANY "0.0.0.0", "::"

static int unanswered; /* the last connect went to PORT_FULL */

/* Until nothing is under way any more that the far end answers; at most two seconds. */
static void settle(int fd) {
    for (int i = 0; stream && !unanswered && i < 2000; i++) {
        struct tcp_info info;
        socklen_t len = sizeof info;
        if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len)) return;
        int state = info.tcpi_state;
        if (state != TCP_SYN_SENT && state != TCP_LAST_ACK && state != TCP_CLOSING) return;
        usleep(i < 20 ? 50 : 1000);
    }
}

/* Until a datagram's answer is there, be it an error; where none comes, not for long. */
static void settle_datagram(int fd, long sent) {
    struct pollfd p = {fd, POLLIN, 0};
    int code = errno;
    if (!stream && sent >= 0) poll(&p, 1, 20);
    if (!stream && sent >= 0 && only) usleep(20000);
    errno = code;
}

static long to_peer(int fd, int port) {
    struct sockaddr_in6 to;
    socklen_t len = make(&to, PEER, port);
    long result = connect(fd, (void *)&to, len);
    int code = errno;
    if (result < 0 && code == EINPROGRESS) unanswered |= port == PORT_FULL;
    settle(fd);
    errno = code;
    return result;
}

static long o_connect(int fd) { return to_peer(fd, PORT_STAY); }
static long o_connect_none(int fd) { return to_peer(fd, PORT_NONE); }
static long o_connect_full(int fd) { return to_peer(fd, PORT_FULL); }
static long o_connect_zero(int fd) { return to_peer(fd, 0); }
static long o_connect_short(int fd) {
    struct sockaddr_in6 to;
    return connect(fd, (void *)&to, make(&to, PEER, PORT_STAY) - 9);
}
static long o_connect_unspec(int fd) {
    struct sockaddr_in6 to = {.sin6_family = AF_UNSPEC};
    unanswered = 0;
    return connect(fd, (void *)&to, sizeof to);
}
static long o_connect_other(int fd) { /* of the other family */
    struct sockaddr_in to = address_of(address[1], PORT_STAY);
    struct sockaddr_in6 wide = {.sin6_family = AF_INET6, .sin6_port = htons(PORT_STAY)};
    inet_pton(AF_INET6, address[3], &wide.sin6_addr);
    return family == V6 ? connect(fd, (void *)&to, sizeof to) : connect(fd, (void *)&wide, sizeof wide);
}
static long o_connect_mapped(int fd) {
    enum family was = family;
    family = MAPPED;
    long result = to_peer(fd, PORT_STAY);
    family = was;
    return result;
}
static long bind_to(int fd, const char *v4, const char *v6) {
    struct sockaddr_in6 to;
    socklen_t len = make(&to, v4, v6, 0);
    return bind(fd, (void *)&to, len);
}
static long o_bind(int fd) { return bind_to(fd, ANY); }
static long o_bind_own(int fd) { return bind_to(fd, OWN); }
static long o_bind_short(int fd) {
    struct sockaddr_in6 to;
    return bind(fd, (void *)&to, make(&to, ANY, 0) - 9);
}
static long o_listen(int fd) { return listen(fd, 4); }
static long o_accept(int fd) { return accept(fd, 0, 0); }
static long o_send(int fd) {
    long result = send(fd, text, text_len, 0);
    settle_datagram(fd, result);
    return result;
}
static long o_sendto(int fd) {
    struct sockaddr_in6 to;
    socklen_t len = make(&to, PEER, PORT_STAY);
    long result = sendto(fd, text, text_len, 0, (void *)&to, len);
    settle_datagram(fd, result);
    return result;
}
static long o_sendto_zero(int fd) {
    struct sockaddr_in6 to;
    socklen_t len = make(&to, PEER, 0);
    long result = sendto(fd, text, text_len, 0, (void *)&to, len);
    settle_datagram(fd, result);
    return result;
}
static long to_others(int fd, int how) {
    enum family was = family;
    family = how;
    long result = o_sendto(fd);
    int code = errno;
    family = was;
    errno = code;
    return result;
}
static long o_sendto_v4(int fd) { return to_others(fd, V4); }
static long o_sendto_v6(int fd) { return to_others(fd, V6); }
static long o_sendto_mapped(int fd) { return to_others(fd, MAPPED); }
static long o_sendto_short(int fd) {
    struct sockaddr_in6 to;
    return sendto(fd, text, text_len, 0, (void *)&to, make(&to, PEER, PORT_STAY) - 9);
}
static long o_recv(int fd) {
    char data[2];
    struct pollfd p = {fd, POLLIN, 0};
    if (!stream && !blocking) poll(&p, 1, 0);
    return recv(fd, data, 2, 0);
}
static long o_peek(int fd) {
    char data[8];
    return recv(fd, data, 8, MSG_PEEK | MSG_DONTWAIT);
}
static long shut(int fd, int how) {
    long result = shutdown(fd, how);
    int code = errno;
    if (result == 0) unanswered = 0, settle(fd);
    errno = code;
    return result;
}
static long o_shut_rd(int fd) { return shut(fd, SHUT_RD); }
static long o_shut_wr(int fd) { return shut(fd, SHUT_WR); }
static long o_shut(int fd) { return shut(fd, SHUT_RDWR); }
static long o_error(int fd) {
    int error = 0;
    socklen_t len = sizeof error;
    return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) ? -1 : error;
}

static const struct op {
    const char *name;
    long (*run)(int);
    int kinds; /* 1: streams, 2: datagrams; 4: changes something where it succeeds, another call is tried behind it */
} ops[] = {
    {"connect", o_connect, 7},          {"connect-none", o_connect_none, 7}, {"connect-full", o_connect_full, 5},
    {"connect-zero", o_connect_zero, 3}, {"connect-unspec", o_connect_unspec, 7}, {"connect-short", o_connect_short, 3},
    {"connect-other", o_connect_other, 3}, {"connect-mapped", o_connect_mapped, 3},
    {"sendto-v4", o_sendto_v4, 2}, {"sendto-v6", o_sendto_v6, 2}, {"sendto-mapped", o_sendto_mapped, 2},
    {"bind", o_bind, 7}, {"bind-own", o_bind_own, 3}, {"bind-short", o_bind_short, 3},
    {"listen", o_listen, 7}, {"accept", o_accept, 3}, {"send", o_send, 7}, {"sendto", o_sendto, 7},
    {"sendto-zero", o_sendto_zero, 2}, {"sendto-short", o_sendto_short, 2}, {"recv", o_recv, 3}, {"peek", o_peek, 3},
    {"shut-rd", o_shut_rd, 7}, {"shut-wr", o_shut_wr, 7}, {"shut", o_shut, 7}, {"SO_ERROR", o_error, 7},
};
#define OPS (sizeof ops / sizeof *ops)

/* ---- states ---- */

static void await(int fd, int events) {
    struct pollfd p = {fd, events, 0};
    for (int i = 0; i < 20000; i++)
        if (poll(&p, 1, 1) > 0 && (p.revents & events) == events) return;
    printf("never %x, but %x\n", events, p.revents);
    exit(1);
}

static void s_fresh(int fd) {}
static void s_bound(int fd) { bind_to(fd, ANY); }
static void s_bound_own(int fd) { bind_to(fd, OWN); }
static void s_listening(int fd) { bind_to(fd, ANY), listen(fd, 4); }
static void s_connecting(int fd) { to_peer(fd, PORT_FULL); }
static void s_connected(int fd) { to_peer(fd, PORT_STAY), await(fd, POLLOUT); }
static void s_bound_connected(int fd) { bind_to(fd, ANY), s_connected(fd); }
static void after_byte(int fd, int port, int events) {
    to_peer(fd, port), await(fd, POLLOUT), send(fd, text, text_len, 0), await(fd, events);
}
static void s_peer_closed(int fd) { after_byte(fd, PORT_FIN, POLLIN); }
static void s_peer_closed_seen(int fd) { s_peer_closed(fd), o_recv(fd); }
static void s_unread(int fd) { after_byte(fd, PORT_SAY, POLLIN); }
static void s_reset(int fd) { after_byte(fd, PORT_RST, POLLHUP | POLLERR); }
static void s_reset_seen(int fd) { s_reset(fd), o_error(fd); }
static void s_shut_rd(int fd) { s_connected(fd), o_shut_rd(fd); }
static void s_shut_wr(int fd) { s_connected(fd), o_shut_wr(fd); }
static void s_shut(int fd) { s_connected(fd), o_shut(fd); }
static void s_both_closed(int fd) { s_peer_closed(fd), o_shut_wr(fd); }
static void s_unread_shut(int fd) { s_unread(fd), o_shut(fd); }
static void s_refused(int fd) {
    to_peer(fd, PORT_NONE);
    if (!stream) send(fd, text, text_len, 0);
    await(fd, POLLERR);
}
static void s_refused_seen(int fd) { s_refused(fd), o_error(fd); }
static void s_disconnected(int fd) { s_connected(fd), o_connect_unspec(fd); }
static void s_implicit(int fd) { o_sendto(fd), await(fd, POLLIN), o_recv(fd); }
static void s_waiting(int fd) { s_connected(fd), o_send(fd), await(fd, POLLIN); }

static const struct state {
    const char *name;
    void (*enter)(int);
    int kinds;
} states[] = {
    {"fresh", s_fresh, 3}, {"bound", s_bound, 3}, {"bound-own", s_bound_own, 3}, {"listening", s_listening, 1},
    {"connecting", s_connecting, 1}, {"connected", s_connected, 3}, {"bound-connected", s_bound_connected, 3},
    {"peer-closed", s_peer_closed, 1}, {"peer-closed-seen", s_peer_closed_seen, 1}, {"unread", s_unread, 1},
    {"reset", s_reset, 1}, {"reset-seen", s_reset_seen, 1}, {"shut-rd", s_shut_rd, 3}, {"shut-wr", s_shut_wr, 3},
    {"shut", s_shut, 3}, {"both-closed", s_both_closed, 1}, {"unread-shut", s_unread_shut, 1}, {"refused", s_refused, 3},
    {"refused-seen", s_refused_seen, 3}, {"disconnected", s_disconnected, 3}, {"implicit", s_implicit, 2},
    {"waiting", s_waiting, 2},
};
#define STATES (sizeof states / sizeof *states)

/* ---- what is said ---- */

static char line[4096];
static size_t used;
#define SAY(...) (used += snprintf(line + used, sizeof line - used, __VA_ARGS__))

static void say(const char *name, long result, int code) {
    if (result < 0) SAY(" %s=%s", name, strerrorname_np(code) ?: "?");
    else SAY(" %s=%ld", name, result);
    if (pipes) SAY("+SIGPIPE");
    pipes = 0;
}

static void run(const struct op *op, int fd) {
    long result = op->run(fd);
    int code = errno;
    if (op->run == o_accept && result >= 0) close(result), result = 7777;
    say(op->name, result, code);
}

static void say_name(const char *what, int failed, const struct sockaddr_in6 *a) {
    char text[64];
    if (failed) {
        SAY(" %s=%s", what, strerrorname_np(errno));
        return;
    }
    const struct sockaddr_in *v4 = (void *)a;
    inet_ntop(a->sin6_family, a->sin6_family == AF_INET ? (void *)&v4->sin_addr : (void *)&a->sin6_addr, text, sizeof text);
    char *plain = strncmp(text, "::ffff:", 7) ? text : text + 7;
    const char *name = !strcmp(plain, address[0]) || !strcmp(plain, address[2]) ? "own"
                     : !strcmp(plain, address[1]) || !strcmp(plain, address[3]) ? "peer" : text;
    int port = ntohs(a->sin6_port);
    char number[16] = "*";
    if (port == 0 || (port > 9100 && port < 9110)) sprintf(number, "%d", port);
    SAY(" %s=%s%s:%s", what, plain == text ? "" : "mapped ", name, number);
}

static void observe(int fd) {
    struct sockaddr_in6 a;
    socklen_t len = sizeof a;
    struct pollfd p = {fd, POLLIN | POLLOUT | POLLPRI | POLLRDHUP, 0};
    int bytes = -1;
    poll(&p, 1, 0);
    SAY("; then poll=%x", p.revents);
    int failed = getsockname(fd, (void *)&a, &len);
    say_name("local", failed, &a);
    len = sizeof a;
    failed = getpeername(fd, (void *)&a, &len);
    say_name("peer", failed, &a);
    if (stream) {
        struct tcp_info info = {0};
        len = sizeof info;
        getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len);
        SAY(" state=%d", info.tcpi_state == TCP_FIN_WAIT1 ? TCP_FIN_WAIT2 : info.tcpi_state); /* when that is acknowledged is chance */
        int failed = ioctl(fd, FIONREAD, &bytes), code = errno;
        say("FIONREAD", failed ? -1 : bytes, code);
    }
    long result = recv(fd, &bytes, 1, MSG_DONTWAIT);
    say("recv", result, errno);
    if (stream) {
        result = send(fd, "x", 1, MSG_DONTWAIT);
        say("send", result, errno);
        result = send(fd, "x", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
        say("again", result, errno);
    }
    result = o_error(fd);
    say("SO_ERROR", result, errno);
    poll(&p, 1, 0);
    SAY(" poll=%x", p.revents);
}

static void try(const struct state *state, const struct op *first, const struct op *second) {
    static const char *const families[] = {"v4", "v6", "mapped"};
    int flag = blocking ? 0 : SOCK_NONBLOCK;
    used = 0;
    SAY("%s %s%s %s: %s%s%s:", stream ? "tcp" : pings ? "ping" : "udp", families[family], blocking ? " blocking" : "", state->name, first->name,
        second ? " " : "", second ? second->name : "");
    if (only) {
        char name[256];
        snprintf(name, sizeof name, "\n%s\n", line);
        if (!strstr(only, name)) return;
    }
    int protocol = !pings ? 0 : family == V4 ? IPPROTO_ICMP : IPPROTO_ICMPV6;
    int fd = socket(family == V4 ? AF_INET : AF_INET6, (stream ? SOCK_STREAM : SOCK_DGRAM) | SOCK_NONBLOCK, protocol);
    unanswered = 0;
    state->enter(fd);
    if (blocking) {
        struct timeval brief = {wait_ms / 1000, wait_ms % 1000 * 1000};
        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &brief, sizeof brief);
        setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &brief, sizeof brief);
        fcntl(fd, F_SETFL, 0);
    }
    pipes = 0;
    run(first, fd);
    if (second) run(second, fd);
    observe(fd);
    struct linger now = {1, 0};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    close(fd);
    puts(line);
}

/* Ping sockets have no ports that could be closed. */
static int refuses(const struct state *state) {
    return state->enter == s_refused || state->enter == s_refused_seen;
}

static void all(void) {
    int kind = stream ? 1 : 2, pairs = family == V4 && !blocking;
    for (size_t s = 0; s < STATES; s++) {
        if (!(states[s].kinds & kind) || (pings && refuses(&states[s]))) continue;
        for (size_t a = 0; a < OPS; a++) {
            if (!(ops[a].kinds & kind)) continue;
            try(&states[s], &ops[a], 0);
            for (size_t b = 0; pairs && ops[a].kinds & 4 && b < OPS; b++)
                if (ops[b].kinds & kind) try(&states[s], &ops[a], &ops[b]);
        }
    }
}

static char *contents(const char *path) {
    FILE *file = fopen(path, "r");
    char *text = calloc(1, 1 << 22);
    if (!file || !text) exit(2);
    text[0] = '\n';
    fread(text + 1, 1, (1 << 22) - 2, file);
    return text;
}

int main(int argc, char **argv) {
    if (argc == 2) return serve();
    if (argc < 5) return 2;
    static char buffer[1 << 16];
    setvbuf(stdout, buffer, _IOFBF, sizeof buffer);
    alarm(100);
    signal(SIGPIPE, on_pipe);
    memcpy(address, argv + 1, sizeof address);
    if (argc > 6) wait_ms = atoi(argv[5]), only = contents(argv[6]);
    for (stream = 1; stream >= 0; stream--)
        for (blocking = 0; blocking <= 1; blocking++)
            for (family = V4; family <= MAPPED; family++) all();
    for (pings = 1, stream = 0, blocking = 0; blocking <= 1; blocking++)
        for (family = V4; family <= V6; family++) {
            text = family == V4 ? "\x08\0\0\0\0\0\0\1x" : "\x80\0\0\0\0\0\0\1x", text_len = 9;
            all();
        }
    return 0;
}
