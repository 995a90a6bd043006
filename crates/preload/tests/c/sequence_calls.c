/* The calls of a random sequence, each with its answer: on this program's sockets by the C library, on the far end's past it. */
#include "sequences.h"

#include <sched.h>

static const char *const own[2] = {"10.77.0.2", "fd77::2"};
static const char *const peer[2] = {"10.77.0.1", "fd77::1"};

/* Past the library and whatever stands before it. */
static long past(long number, long a, long b, long c, long d, long e, long f) {
#ifdef __x86_64__
    long result;
    register long r10 __asm__("r10") = d, r8 __asm__("r8") = e, r9 __asm__("r9") = f;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9) : "rcx", "r11", "memory");
    if (result < 0 && result > -4096) return errno = -result, -1;
    return result;
#else
    return syscall(number, a, b, c, d, e, f);
#endif
}
#define PAST(name, a, b, c, d, e, f) past(SYS_##name, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), (long)(f))

static const char *code(long result) {
    static char text[16];
    static const struct {
        int number;
        const char *name;
    } names[] = {
#define E(name) {name, #name}
        E(EAGAIN), E(EINVAL), E(ENOTCONN), E(EISCONN), E(EPIPE), E(EBADF), E(EADDRINUSE), E(EADDRNOTAVAIL), E(ECONNREFUSED),
        E(ECONNRESET), E(ECONNABORTED), E(EINPROGRESS), E(EALREADY), E(EDESTADDRREQ), E(EAFNOSUPPORT), E(EOPNOTSUPP),
        E(ENETUNREACH), E(EHOSTUNREACH), E(ENOPROTOOPT), E(EMSGSIZE), E(EACCES), E(EPROTO), E(ENOTSOCK), E(EFAULT), E(ETIMEDOUT),
        E(ENOTTY), E(EPERM), E(ENOBUFS), E(EINTR), E(EDOM),
    };
    if (result != -1) return snprintf(text, sizeof text, "%ld", result), text;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (names[i].number == errno) return names[i].name;
    return snprintf(text, sizeof text, "errno %d", errno), text;
}

static char name_of(int s) { return "abcxyz"[s]; }

static const char *host_text(const char *text) {
    for (int v6 = 0; v6 < 2; v6++) {
        if (!strcmp(text, own[v6])) return v6 ? "OWN6" : "OWN";
        if (!strcmp(text, peer[v6])) return v6 ? "PEER6" : "PEER";
    }
    return text;
}

/* An address in the sequence's own words: ports are P0 to P3, or "some". */
static const char *address_text(const void *address, socklen_t len) {
    static char text[96];
    char host[64] = "?";
    const struct sockaddr_in *v4 = address;
    const struct sockaddr_in6 *v6 = address;
    const char *known = host;
    int port = ntohs(v4->sin_port);
    if (len == 0) return "nothing";
    if (v4->sin_family == AF_INET) {
        inet_ntop(AF_INET, &v4->sin_addr, host, sizeof host);
        known = host_text(host);
    } else if (v4->sin_family == AF_INET6) {
        inet_ntop(AF_INET6, &v6->sin6_addr, host, sizeof host);
        known = strncmp(host, "::ffff:", 7) ? host_text(host) : host;
        if (!strcmp(host + 7, own[0])) known = "::ffff:OWN";
        if (!strcmp(host + 7, peer[0])) known = "::ffff:PEER";
    } else {
        return snprintf(text, sizeof text, "family %d", v4->sin_family), text;
    }
    int number = port - port_base;
    if (number >= 0 && number < 4) snprintf(text, sizeof text, "%s P%d", known, number);
    else snprintf(text, sizeof text, "%s %s", known, port ? "some" : "0");
    return text;
}

struct address {
    union {
        struct sockaddr plain;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
        struct sockaddr_storage room;
    };
    socklen_t len;
};

enum { FORM_V4, FORM_V6, FORM_MAPPED };

static struct address make_address(int form, const char *v4, const char *v6, int port) {
    struct address a = {0};
    if (form == FORM_V4) {
        a.v4.sin_family = AF_INET;
        a.v4.sin_port = htons(port);
        inet_pton(AF_INET, v4, &a.v4.sin_addr);
        a.len = sizeof a.v4;
        return a;
    }
    char text[64];
    snprintf(text, sizeof text, "%s%s", form == FORM_MAPPED ? "::ffff:" : "", form == FORM_MAPPED ? v4 : v6);
    a.v6.sin6_family = AF_INET6;
    a.v6.sin6_port = htons(port);
    inet_pton(AF_INET6, text, &a.v6.sin6_addr);
    a.len = sizeof a.v6;
    return a;
}

static int draw_port(int s) {
    uint32_t number = draw(12);
    (void)s;
    return number == 0 ? 0 : port_base + (number < 6 ? 0 : number < 9 ? 1 : number < 11 ? 2 : 3);
}

static int draw_form(int s) {
    uint32_t number = draw(24);
    if (number == 0) return slots[s].v6 ? FORM_V4 : FORM_V6;
    if (!slots[s].v6) return FORM_V4;
    return number < 9 ? FORM_MAPPED : FORM_V6;
}

/* The hosts as `s` sees them. */
static const char *const *host_of(int s) { return raw(s) ? peer : own; }
static const char *const *other_host(int s) { return with_peer && !far(s) ? peer : own; }

static struct address address_for(int s, int which, int form, int port) {
    static const char *const any[2] = {"0.0.0.0", "::"};
    const char *const *host = which == ADDRESS_OWN ? host_of(s) : which == ADDRESS_WILDCARD ? any : other_host(s);
    return make_address(form, host[0], host[1], port);
}

static void patience(int s) {
    for (int i = 0; i < 2; i++) {
        int option = i ? SO_RCVTIMEO : SO_SNDTIMEO;
        struct timeval limit = {0, i ? PATIENCE_US : PATIENCE_TO_SEND_US};
        if (raw(s)) PAST(setsockopt, slots[s].fd, SOL_SOCKET, option, &limit, sizeof limit, 0);
        else setsockopt(slots[s].fd, SOL_SOCKET, option, &limit, sizeof limit);
    }
}

static long closing(int s) {
    int fd = slots[s].fd;
    slots[s].fd = -1;
    unseen |= slots[s].stream;
    return raw(s) ? PAST(close, fd, 0, 0, 0, 0, 0) : close(fd);
}

static int made_at_peer(int family, int kind) {
    static int here = -1;
    if (here < 0) here = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    if (peer_namespace >= 0 && PAST(setns, peer_namespace, 0, 0, 0, 0, 0)) abort();
    int fd = PAST(socket, family, kind, 0, 0, 0, 0);
    if (peer_namespace >= 0 && PAST(setns, here, 0, 0, 0, 0, 0)) abort();
    return fd;
}

void open_socket(int s, int stream, int v6) {
    if (slots[s].fd >= 0) closing(s);
    int family = v6 ? AF_INET6 : AF_INET, kind = (stream ? SOCK_STREAM : SOCK_DGRAM) | (blocking ? 0 : SOCK_NONBLOCK);
    int fd = raw(s) ? made_at_peer(family, kind) : socket(family, kind, 0);
    if (fd < 0) abort();
    slots[s] = (struct slot){fd, stream, v6};
    if (blocking) patience(s);
    say("%c = socket(%s, %s)", name_of(s), v6 ? "v6" : "v4", stream ? "stream" : "datagrams");
}

void step_socket(int s) { open_socket(s, draw(5) < 3, draw(5) < 2); }

static void bind_address(int s, struct address a) {
    long result = raw(s) ? PAST(bind, slots[s].fd, &a.room, a.len, 0, 0, 0) : bind(slots[s].fd, &a.plain, a.len);
    const char *why = code(result);
    say("bind(%c, %s, %d) = %s", name_of(s), address_text(&a.room, sizeof a.room), (int)a.len, why);
}

void bind_to(int s, int address, int port) {
    bind_address(s, address_for(s, address, slots[s].v6 ? FORM_V6 : FORM_V4, port_base + port));
}

void step_bind(int s) {
    uint32_t which = draw(10);
    struct address a = address_for(s, which < 5 ? ADDRESS_OWN : ADDRESS_WILDCARD, draw_form(s), draw_port(s));
    if (which == 9) a.len = draw(2) ? sizeof a.v4 : 8; /* too short for IPv6, or for both */
    bind_address(s, a);
}

void step_listen(int s) {
    static const int backlogs[] = {0, 1, 4, -1};
    int backlog = backlogs[draw(4)];
    long result = raw(s) ? PAST(listen, slots[s].fd, backlog, 0, 0, 0, 0) : listen(slots[s].fd, backlog);
    say("listen(%c, %d) = %s", name_of(s), backlog, code(result));
}

static void connect_address(int s, struct address a) {
    long result = raw(s) ? PAST(connect, slots[s].fd, &a.room, a.len, 0, 0, 0) : connect(slots[s].fd, &a.plain, a.len);
    /* Nobody waits: whether the answer came before the call did is not the call's business. */
    const char *why = code(result);
    unseen |= slots[s].stream && a.plain.sa_family == AF_UNSPEC; /* a reset, of what the far end may have closed */
    say("connect(%c, %s, %d) = %s", name_of(s), address_text(&a.room, sizeof a.room), (int)a.len, why);
}

void connect_to(int s, int address, int port) {
    connect_address(s, address_for(s, address, slots[s].v6 ? FORM_V6 : FORM_V4, port_base + port));
}

void step_connect(int s) {
    uint32_t which = draw(20);
    struct address a = address_for(s, which < 14 ? ADDRESS_OTHER_END : which < 17 ? ADDRESS_OWN : ADDRESS_WILDCARD, draw_form(s), draw_port(s));
    if (draw(12) == 0) a.plain.sa_family = AF_UNSPEC;
    if (draw(24) == 0) a.len = draw(2) ? sizeof a.v4 : 1;
    connect_address(s, a);
}

void accept_into(int s, int into) {
    if (slots[into].fd >= 0 && into != s) closing(into);
    struct address a = {.len = sizeof a.room};
    int flags = blocking ? 0 : SOCK_NONBLOCK;
    int fd = raw(s) ? PAST(accept4, slots[s].fd, &a.room, &a.len, flags, 0, 0) : accept4(slots[s].fd, &a.plain, &a.len, flags);
    if (fd < 0) {
        say("accept(%c) = %s", name_of(s), code(fd));
        return;
    }
    if (into == s) closing(s);
    slots[into] = (struct slot){fd, 1, slots[s].v6};
    if (blocking) patience(into);
    say("%c = accept(%c) from %s", name_of(into), name_of(s), address_text(&a.room, a.len));
}

static int same_end(int s) { return (far(s) ? SLOTS / 2 : 0) + draw(SLOTS / 2); }

void step_accept(int s) { accept_into(s, same_end(s)); }

void step_send(int s) {
    static const int sizes[] = {0, 1, 10, 10, 100, 1000};
    static const struct {
        int flag;
        const char *name;
    } flags[] = {{0, ""}, {0, ""}, {0, ""}, {MSG_NOSIGNAL, " NOSIGNAL"}, {MSG_DONTWAIT, " DONTWAIT"}, {MSG_OOB, " OOB"}};
    static unsigned char bytes[1000];
    int size = sizes[draw(6)], flag = draw(6), to = draw(4) == 0;
    memset(bytes, 'a' + step_number() % 26, sizeof bytes);
    struct address a = address_for(s, draw(5) ? ADDRESS_OTHER_END : ADDRESS_OWN, draw_form(s), draw_port(s));
    if (draw(16) == 0) a.len = draw(2) ? sizeof a.v4 : 1;
    void *where = to ? &a.room : 0;
    socklen_t len = to ? a.len : 0;
    long result = raw(s) ? PAST(sendto, slots[s].fd, bytes, size, flags[flag].flag, where, len)
                         : sendto(slots[s].fd, bytes, size, flags[flag].flag, where, len);
    const char *why = code(result);
    unseen = (!slots[s].stream || raw(s)) && result >= 0; /* text behind an urgent mark is not counted */
    say("send(%c, %d%s%s%s) = %s", name_of(s), size, flags[flag].name, to ? " to " : "", to ? address_text(where, sizeof a.room) : "", why);
}

void step_receive(int s) {
    static const int sizes[] = {0, 1, 5, 2000, 2000, 2000};
    static const struct {
        int flag;
        const char *name;
    } flags[] = {{0, ""}, {0, ""}, {0, ""}, {MSG_PEEK, " PEEK"}, {MSG_TRUNC, " TRUNC"}, {MSG_DONTWAIT, " DONTWAIT"}, {MSG_OOB, " OOB"}, {MSG_WAITALL | MSG_DONTWAIT, " WAITALL"}};
    unsigned char bytes[2000] = {0};
    int size = sizes[draw(6)], flag = draw(8), from = draw(2);
    struct address a = {.len = sizeof a.room};
    void *where = from ? &a.room : 0;
    socklen_t *len = from ? &a.len : 0;
    long result = raw(s) ? PAST(recvfrom, slots[s].fd, bytes, size, flags[flag].flag, where, len)
                         : recvfrom(slots[s].fd, bytes, size, flags[flag].flag, where, len);
    const char *why = code(result);
    int sum = 0;
    for (int i = 0; i < result && i < size; i++) sum += bytes[i];
    say("recv(%c, %d%s) = %s, sum %d%s%s", name_of(s), size, flags[flag].name, why, sum, from && result >= 0 ? " from " : "",
        from && result >= 0 ? address_text(where, a.len) : "");
}

void step_shutdown(int s) {
    int how = draw(13) % 4; /* 3 is none */
    long result = raw(s) ? PAST(shutdown, slots[s].fd, how, 0, 0, 0, 0) : shutdown(slots[s].fd, how);
    unseen |= slots[s].stream; /* of a listener resets, of what waited for it */
    say("shutdown(%c, %d) = %s", name_of(s), how, code(result));
}

void step_close(int s) {
    int fd = slots[s].fd;
    say("close(%c) = %s", name_of(s), code(closing(s)));
    (void)fd;
}

void step_duplicate(int s) {
    int into = same_end(s);
    if (into == s) return say("dup(%c) into itself", name_of(s));
    if (slots[into].fd >= 0) closing(into);
    int fd = raw(s) ? PAST(dup, slots[s].fd, 0, 0, 0, 0, 0) : dup(slots[s].fd);
    if (fd >= 0) slots[into] = (struct slot){fd, slots[s].stream, slots[s].v6};
    say("%c = dup(%c)%s%s", name_of(into), name_of(s), fd < 0 ? " = " : "", fd < 0 ? code(fd) : "");
}

void step_poll(int s) {
    static const int events[] = {POLLIN, POLLOUT, POLLIN | POLLOUT, 0, POLLPRI, POLLRDHUP, POLLIN | POLLRDNORM | POLLWRNORM};
    struct pollfd p = {slots[s].fd, events[draw(7)], 0};
    long result = raw(s) ? PAST(poll, &p, 1, 0, 0, 0, 0) : poll(&p, 1, 0);
    say("poll(%c, %x) = %s, %x", name_of(s), p.events, code(result), p.revents);
}

struct option {
    const char *name;
    int level, number, values[3], len;
};
#define O(level, name, ...) {#name, level, name, {__VA_ARGS__}, 4}
static const struct option options[] = {
    O(SOL_SOCKET, SO_REUSEADDR, 1, 0, 1), O(SOL_SOCKET, SO_REUSEPORT, 1, 0, 1), O(SOL_SOCKET, SO_OOBINLINE, 1, 0, 1),
    O(SOL_SOCKET, SO_BROADCAST, 1, 0, 1), O(SOL_SOCKET, SO_KEEPALIVE, 1, 0, 1), O(IPPROTO_IPV6, IPV6_V6ONLY, 1, 0, 1),
    O(IPPROTO_TCP, TCP_NODELAY, 1, 0, 1), O(IPPROTO_IP, IP_TOS, 16, 0, 8), O(IPPROTO_IP, IP_RECVERR, 1, 0, 1),
    O(SOL_SOCKET, SO_RCVLOWAT, 1, 20, 1), {"SO_LINGER", SOL_SOCKET, SO_LINGER, {1, 0, 1}, 8}, /* with a time of zero */
    /* Only asked for. */
    O(SOL_SOCKET, SO_ERROR, 0), O(SOL_SOCKET, SO_TYPE, 0), O(SOL_SOCKET, SO_ACCEPTCONN, 0), O(SOL_SOCKET, SO_DOMAIN, 0),
    O(SOL_SOCKET, SO_PROTOCOL, 0),
};
#define SETTABLE 11

void step_get_option(int s) {
    const struct option *o = &options[draw(3) ? 11 : draw(16)]; /* SO_ERROR most of the time */
    int value[2] = {-1, -1};
    socklen_t len = o->len;
    long result = raw(s) ? PAST(getsockopt, slots[s].fd, o->level, o->number, value, &len, 0)
                         : getsockopt(slots[s].fd, o->level, o->number, value, &len);
    if (!result && o->number == SO_ERROR && o->level == SOL_SOCKET && value[0]) errno = value[0], result = -1;
    if (result) say("getsockopt(%c, %s) = %s", name_of(s), o->name, code(result));
    else say("getsockopt(%c, %s) = %d", name_of(s), o->name, value[0]);
}

void step_set_option(int s) {
    const struct option *o = &options[draw(SETTABLE)];
    int value[2] = {o->values[draw(3)], 0};
    long result = raw(s) ? PAST(setsockopt, slots[s].fd, o->level, o->number, value, o->len, 0)
                         : setsockopt(slots[s].fd, o->level, o->number, value, o->len);
    say("setsockopt(%c, %s, %d) = %s", name_of(s), o->name, value[0], code(result));
}

void step_names(int s) {
    struct address a = {.len = sizeof a.room};
    int peers = draw(2);
    long result;
    if (peers) result = raw(s) ? PAST(getpeername, slots[s].fd, &a.room, &a.len, 0, 0, 0) : getpeername(slots[s].fd, &a.plain, &a.len);
    else result = raw(s) ? PAST(getsockname, slots[s].fd, &a.room, &a.len, 0, 0, 0) : getsockname(slots[s].fd, &a.plain, &a.len);
    say("%s(%c) = %s%s%s", peers ? "getpeername" : "getsockname", name_of(s), code(result), result ? "" : ", ",
        result ? "" : address_text(&a.room, a.len));
}

void step_descriptor(int s) {
    int value = -1;
    uint32_t which = draw(3);
    long request = which == 0 ? FIONREAD : which == 1 ? 0x8905 /* SIOCATMARK */ : TIOCOUTQ;
    static const char *const names[] = {"FIONREAD", "SIOCATMARK", "SIOCOUTQ"};
    long result = raw(s) ? PAST(ioctl, slots[s].fd, request, &value, 0, 0, 0) : ioctl(slots[s].fd, request, &value);
    /* What is not yet acknowledged is a matter of time. */
    say("ioctl(%c, %s) = %s, %d", name_of(s), names[which], code(result), which == 2 ? 0 : value);
}

int unacknowledged(int s) {
    struct tcp_info info = {0};
    socklen_t len = sizeof info;
    int bytes = 0;
    if (raw(s)) PAST(getsockopt, slots[s].fd, IPPROTO_TCP, TCP_INFO, &info, &len, 0);
    else getsockopt(slots[s].fd, IPPROTO_TCP, TCP_INFO, &info, &len);
    /* Of one that is closed Linux counts what nobody will acknowledge any more. */
    if (info.tcpi_state != TCP_ESTABLISHED && info.tcpi_state != TCP_CLOSE_WAIT) return 0;
    long result = raw(s) ? PAST(ioctl, slots[s].fd, TIOCOUTQ, &bytes, 0, 0, 0) : ioctl(slots[s].fd, TIOCOUTQ, &bytes);
    return result == 0 ? bytes : 0;
}

/* Ours, another of ours, and the far end's: what was sent before a datagram from one to the other has come when it has. A reset of a connection
   that nobody has a descriptor of any more, for one, is seen only when its port is asked for. */
static int barrier_here = -1, barrier_there = -1, barrier_far = -1;
enum { BARRIER_HERE = 900, BARRIER_THERE, BARRIER_FAR };

void open_barrier(void) {
    struct address here = make_address(FORM_V4, own[0], own[1], BARRIER_HERE), there = make_address(FORM_V4, own[0], own[1], BARRIER_THERE),
                   beyond = make_address(FORM_V4, peer[0], peer[1], BARRIER_FAR);
    barrier_here = socket(AF_INET, SOCK_DGRAM, 0), barrier_there = socket(AF_INET, SOCK_DGRAM, 0);
    barrier_far = made_at_peer(AF_INET, SOCK_DGRAM);
    if (bind(barrier_here, &here.plain, here.len) || bind(barrier_there, &there.plain, there.len)) abort();
    if (PAST(bind, barrier_far, &beyond.room, beyond.len, 0, 0, 0)) abort();
}

static void crosses(int from, int from_raw, struct address to, int at, int at_raw) {
    struct pollfd p = {at, POLLIN, 0};
    char byte = 'b';
    if (from_raw) PAST(sendto, from, &byte, 1, 0, &to.room, to.len);
    else sendto(from, &byte, 1, 0, &to.plain, to.len);
    if (at_raw ? PAST(poll, &p, 1, 1000, 0, 0, 0) == 1 : poll(&p, 1, 1000) == 1) {
        if (at_raw) PAST(recvfrom, at, &byte, 1, MSG_DONTWAIT, 0, 0);
        else recv(at, &byte, 1, MSG_DONTWAIT);
    }
}

void all_has_come(void) {
    if (!with_peer) return crosses(barrier_here, 0, make_address(FORM_V4, own[0], own[1], BARRIER_THERE), barrier_there, 0);
    crosses(barrier_here, 0, make_address(FORM_V4, peer[0], peer[1], BARRIER_FAR), barrier_far, 1);
    crosses(barrier_far, 1, make_address(FORM_V4, own[0], own[1], BARRIER_HERE), barrier_here, 0);
}

int observe(int s, char *into, size_t room) {
    struct pollfd p = {slots[s].fd, POLLIN | POLLPRI | POLLOUT | POLLRDHUP, 0};
    struct tcp_info info = {0};
    socklen_t len = sizeof info;
    int waiting = 0;
    if (raw(s)) PAST(poll, &p, 1, 0, 0, 0, 0);
    else poll(&p, 1, 0);
    if (slots[s].stream) {
        if (raw(s)) PAST(getsockopt, slots[s].fd, IPPROTO_TCP, TCP_INFO, &info, &len, 0);
        else getsockopt(slots[s].fd, IPPROTO_TCP, TCP_INFO, &info, &len);
    }
    if (info.tcpi_state != TCP_LISTEN) {
        if (raw(s)) PAST(ioctl, slots[s].fd, FIONREAD, &waiting, 0, 0, 0);
        else ioctl(slots[s].fd, FIONREAD, &waiting);
    }
    return snprintf(into, room, "%c:%x/%d/%d ", name_of(s), p.revents, waiting, info.tcpi_state);
}

/* Closed without leaving a TIME-WAIT behind. */
void abandon(int s) {
    struct linger hard = {1, 0};
    if (slots[s].fd < 0) return;
    if (raw(s)) PAST(setsockopt, slots[s].fd, SOL_SOCKET, SO_LINGER, &hard, sizeof hard, 0);
    else setsockopt(slots[s].fd, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
    closing(s);
}
