/* Every option that is served, with every odd length and value, on sockets in each state: what each call says, a line each. The same
   program runs on the kernel's sockets and on netchan's; the lines are compared. Usage: sweep PEER-ADDRESS; PORT_ECHO must serve there. */
#define _GNU_SOURCE
#include "peer.h"

struct option {
    const char *name;
    int level, number;
};
#define O(level, name) {#name, level, name}
#define N(level, name, number) {#name, level, number}

static const struct option of_sockets[] = {
    O(SOL_SOCKET, SO_TYPE), O(SOL_SOCKET, SO_DOMAIN), O(SOL_SOCKET, SO_PROTOCOL), O(SOL_SOCKET, SO_ERROR),
    O(SOL_SOCKET, SO_ACCEPTCONN), O(SOL_SOCKET, SO_REUSEADDR), O(SOL_SOCKET, SO_REUSEPORT), O(SOL_SOCKET, SO_KEEPALIVE),
    O(SOL_SOCKET, SO_BROADCAST), O(SOL_SOCKET, SO_LINGER), O(SOL_SOCKET, SO_RCVBUF), O(SOL_SOCKET, SO_SNDBUF),
    O(SOL_SOCKET, SO_RCVTIMEO), O(SOL_SOCKET, SO_SNDTIMEO), O(SOL_SOCKET, SO_RCVLOWAT), O(SOL_SOCKET, SO_OOBINLINE),
    O(SOL_SOCKET, SO_MAX_PACING_RATE), O(SOL_SOCKET, SO_TIMESTAMP), O(SOL_SOCKET, SO_TIMESTAMPNS), O(SOL_SOCKET, SO_RXQ_OVFL),
    O(SOL_SOCKET, SO_TIMESTAMPING), O(SOL_SOCKET, SO_MARK), O(SOL_SOCKET, SO_NO_CHECK),
    O(SOL_SOCKET, SO_DEBUG), O(SOL_SOCKET, SO_DONTROUTE), O(SOL_SOCKET, SO_PRIORITY),
};
static const struct option of_streams[] = {
    O(IPPROTO_TCP, TCP_NODELAY), O(IPPROTO_TCP, TCP_CORK), O(IPPROTO_TCP, TCP_QUICKACK), O(IPPROTO_TCP, TCP_MAXSEG),
    O(IPPROTO_TCP, TCP_KEEPIDLE), O(IPPROTO_TCP, TCP_KEEPINTVL), O(IPPROTO_TCP, TCP_KEEPCNT), O(IPPROTO_TCP, TCP_USER_TIMEOUT),
    O(IPPROTO_TCP, TCP_WINDOW_CLAMP), N(IPPROTO_TCP, TCP_NOTSENT_LOWAT, 25), O(IPPROTO_TCP, TCP_CONGESTION),
    O(IPPROTO_TCP, TCP_SYNCNT), O(IPPROTO_TCP, TCP_LINGER2), O(IPPROTO_TCP, TCP_DEFER_ACCEPT), O(IPPROTO_TCP, TCP_FASTOPEN),
    N(IPPROTO_TCP, TCP_FASTOPEN_CONNECT, 30), N(IPPROTO_TCP, TCP_FASTOPEN_NO_COOKIE, 34), N(IPPROTO_TCP, TCP_FASTOPEN_KEY, 33),
    N(IPPROTO_TCP, TCP_MD5SIG, 14), N(IPPROTO_TCP, TCP_INQ, 36),
    N(IPPROTO_TCP, TCP_THIN_LINEAR_TIMEOUTS, 16), N(IPPROTO_TCP, TCP_THIN_DUPACK, 17), O(SOL_SOCKET, SO_ZEROCOPY),
};
static const struct option of_datagrams[] = {
    N(IPPROTO_UDP, UDP_CORK, 1), N(IPPROTO_UDP, UDP_SEGMENT, 103), N(IPPROTO_UDP, UDP_GRO, 104),
    N(IPPROTO_UDP, UDP_NO_CHECK6_TX, 101), N(IPPROTO_UDP, UDP_NO_CHECK6_RX, 102),
};
static const struct option of_ip[] = {
    O(IPPROTO_IP, IP_TOS), O(IPPROTO_IP, IP_TTL), O(IPPROTO_IP, IP_RECVERR), O(IPPROTO_IP, IP_MTU_DISCOVER),
    O(IPPROTO_IP, IP_PKTINFO), O(IPPROTO_IP, IP_RECVTTL), O(IPPROTO_IP, IP_RECVTOS), O(IPPROTO_IP, IP_RECVORIGDSTADDR),
    O(IPPROTO_IP, IP_MULTICAST_TTL), O(IPPROTO_IP, IP_MULTICAST_LOOP), O(IPPROTO_IP, IP_MULTICAST_ALL),
    O(IPPROTO_IP, IP_ADD_MEMBERSHIP), O(IPPROTO_IP, IP_DROP_MEMBERSHIP), O(IPPROTO_IP, IP_ADD_SOURCE_MEMBERSHIP),
    O(IPPROTO_IP, IP_DROP_SOURCE_MEMBERSHIP), O(IPPROTO_IP, IP_BLOCK_SOURCE), O(IPPROTO_IP, IP_UNBLOCK_SOURCE),
    O(IPPROTO_IP, IP_MSFILTER), O(IPPROTO_IP, MCAST_JOIN_GROUP), O(IPPROTO_IP, MCAST_LEAVE_GROUP),
    O(IPPROTO_IP, MCAST_JOIN_SOURCE_GROUP), O(IPPROTO_IP, MCAST_MSFILTER), N(IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 24),
};
static const struct option of_ipv6[] = {
    O(IPPROTO_IPV6, IPV6_V6ONLY), O(IPPROTO_IPV6, IPV6_TCLASS), O(IPPROTO_IPV6, IPV6_UNICAST_HOPS),
    O(IPPROTO_IPV6, IPV6_MULTICAST_HOPS), O(IPPROTO_IPV6, IPV6_MULTICAST_LOOP), N(IPPROTO_IPV6, IPV6_MULTICAST_ALL, 29),
    O(IPPROTO_IPV6, IPV6_JOIN_GROUP), O(IPPROTO_IPV6, IPV6_LEAVE_GROUP), N(IPPROTO_IPV6, V6_MCAST_JOIN_GROUP, MCAST_JOIN_GROUP),
    N(IPPROTO_IPV6, V6_MCAST_MSFILTER, MCAST_MSFILTER), O(IPPROTO_IPV6, IPV6_RECVERR), O(IPPROTO_IPV6, IPV6_MTU_DISCOVER),
    O(IPPROTO_IPV6, IPV6_RECVPKTINFO), O(IPPROTO_IPV6, IPV6_RECVHOPLIMIT), O(IPPROTO_IPV6, IPV6_RECVTCLASS),
    N(IPPROTO_IPV6, IPV6_RECVORIGDSTADDR, 74),
};

/* Values that start a structure, too: 2 is AF_INET. */
static const int values[] = {INT32_MIN, -1, 0, 1, 2, 3, 5, 6, 64, 87, 88, 127, 128, 255, 256, 32767, 32768, 65535, 65536,
                             5000000, INT32_MAX, 1000};
static const int lengths[] = {0, 1, 2, 3, 5, 7, 8, 16, 20, 32, 64, 144, 216, -1};

static const char *state;
/* No address that anybody would call aligned. */
static unsigned char room[600];
static unsigned char *const odd = room + 1;

/* What getsockopt says to a length, behind what was done before. */
static void answer(const struct option *o, int fd, int len) {
    socklen_t *const odd_len = (void *)(room + 301);
    memcpy(odd_len, &len, sizeof len);
    memset(odd, 0x5a, 256);
    if (getsockopt(fd, o->level, o->number, odd, odd_len)) {
        printf("errno %d\n", errno);
        return;
    }
    memcpy(&len, odd_len, sizeof len);
    printf("%d bytes", len);
    for (int i = 0; i < len && i < 32; i++) printf("%s%02x", i % 4 ? "" : " ", odd[i]);
    printf("%s\n", odd[len] == 0x5a ? "" : " and more");
}

static void set(const struct option *o, int fd, const void *value, int len) {
    int result = setsockopt(fd, o->level, o->number, value, len);
    printf("errno %d; then ", result ? errno : 0);
}

static void sweep(const struct option *o, int fd) {
    if (o->number == TCP_CONGESTION) setsockopt(fd, o->level, o->number, "reno", 4);
    printf("%s %s at first: ", state, o->name);
    answer(o, fd, 4);
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        printf("%s %s set %d: ", state, o->name, values[i]);
        memcpy(odd, &values[i], sizeof values[i]);
        set(o, fd, odd, sizeof values[i]);
        answer(o, fd, 4);
    }
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        printf("%s %s set %d bytes: ", state, o->name, lengths[i]);
        memset(odd, 0, 256);
        odd[0] = 1;
        set(o, fd, odd, lengths[i]);
        answer(o, fd, lengths[i]);
    }
    printf("%s %s set NULL: ", state, o->name);
    set(o, fd, 0, 4);
    socklen_t len = 4;
    int result = getsockopt(fd, o->level, o->number, 0, &len), code = errno;
    printf("errno %d\n", result ? code : 0);
    result = getsockopt(fd, o->level, o->number, odd, 0), code = errno;
    printf("%s %s without a length: errno %d\n", state, o->name, result ? code : 0);
}

static struct sockaddr_in peer;

static int bound_as(int domain, int kind, int protocol) {
    int fd = socket(domain, kind, protocol);
    struct sockaddr_in6 any = {.sin6_family = domain};
    if (bind(fd, (void *)&any, domain == AF_INET ? sizeof(struct sockaddr_in) : sizeof any)) abort();
    return fd;
}

static int bound(int domain, int kind) { return bound_as(domain, kind, 0); }

static int bound_v4_stream(void) { return bound(AF_INET, SOCK_STREAM); }
static int bound_v4_datagram(void) { return bound(AF_INET, SOCK_DGRAM); }
static int bound_v6_stream(void) { return bound(AF_INET6, SOCK_STREAM); }
static int bound_v6_datagram(void) { return bound(AF_INET6, SOCK_DGRAM); }
static int bound_v4_ping(void) { return bound_as(AF_INET, SOCK_DGRAM, IPPROTO_ICMP); }
static int bound_v6_ping(void) { return bound_as(AF_INET6, SOCK_DGRAM, IPPROTO_ICMPV6); }

static int listening(void) {
    int fd = bound_v4_stream();
    if (listen(fd, 4)) abort();
    return fd;
}

static int connected_as(int kind, int protocol) {
    int fd = socket(AF_INET, kind, protocol);
    if (connect(fd, (void *)&peer, sizeof peer)) abort();
    return fd;
}

static int connected_stream(void) { return connected_as(SOCK_STREAM, 0); }
static int connected_datagram(void) { return connected_as(SOCK_DGRAM, 0); }
static int connected_ping(void) { return connected_as(SOCK_DGRAM, IPPROTO_ICMP); }

static void all(int (*make)(void), const struct option *options, size_t count) {
    for (size_t i = 0; i < count; i++) {
        int fd = make();
        sweep(&options[i], fd);
        close(fd);
    }
}
#define ALL(make, options) all(make, options, sizeof options / sizeof *options)

/* Levels that a socket has no options of, and an option that no level has. */
static void levels(int (*make)(void)) {
    int fd = make();
    for (int level = -1; level <= 300; level++) {
        socklen_t len = 4;
        int got = getsockopt(fd, level, 77777, odd, &len) ? errno : 0, set = setsockopt(fd, level, 77777, odd, 4) ? errno : 0;
        printf("%s LEVEL_%d no option: errno %d, set errno %d\n", state, level, got, set);
    }
    close(fd);
}

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    alarm(100);
    peer = address_of(argv[1], PORT_ECHO);
    static const struct {
        const char *state;
        int (*make)(void);
        int stream, v6;
    } states[] = {
        {"stream", bound_v4_stream, 1, 0},       {"listener", listening, 1, 0},
        {"connected", connected_stream, 1, 0},   {"datagrams", bound_v4_datagram, 0, 0},
        {"datagrams-connected", connected_datagram, 0, 0}, {"stream-v6", bound_v6_stream, 1, 1},
        {"datagrams-v6", bound_v6_datagram, 0, 1}, {"pings", bound_v4_ping, 0, 0},
        {"pings-connected", connected_ping, 0, 0}, {"pings-v6", bound_v6_ping, 0, 1},
    };
    for (size_t i = 0; i < sizeof states / sizeof *states; i++) {
        state = states[i].state;
        ALL(states[i].make, of_sockets);
        ALL(states[i].make, of_streams);
        ALL(states[i].make, of_datagrams);
        ALL(states[i].make, of_ip);
        ALL(states[i].make, of_ipv6);
        levels(states[i].make);
    }
    return 0;
}
