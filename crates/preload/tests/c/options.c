/* getsockopt and setsockopt. */
#define _GNU_SOURCE
#include "check.h"

static int get(int fd, int level, int name) {
    int value = -12345;
    socklen_t len = sizeof value;
    if (getsockopt(fd, level, name, &value, &len)) return -errno;
    return len == sizeof value ? value : -99999;
}

static int set(int fd, int level, int name, int value) {
    return setsockopt(fd, level, name, &value, sizeof value);
}

static void check_round_trips(int fd) {
    static const struct { int level, name, value; } flags[] = {
        {SOL_SOCKET, SO_KEEPALIVE, 1}, {SOL_SOCKET, SO_REUSEADDR, 1}, {SOL_SOCKET, SO_REUSEPORT, 1},
        {IPPROTO_TCP, TCP_NODELAY, 1}, {IPPROTO_TCP, TCP_CORK, 1},    {IPPROTO_TCP, TCP_CORK, 0},
        {IPPROTO_TCP, TCP_KEEPIDLE, 77}, {IPPROTO_TCP, TCP_KEEPINTVL, 7}, {IPPROTO_TCP, TCP_KEEPCNT, 4},
        {IPPROTO_TCP, TCP_USER_TIMEOUT, 4500}, {IPPROTO_IP, IP_TTL, 33}, {IPPROTO_IP, IP_TOS, 0x10},
    };
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        int ok = set(fd, flags[i].level, flags[i].name, flags[i].value) == 0;
        int seen = get(fd, flags[i].level, flags[i].name);
        if (!ok || seen != flags[i].value) {
            printf("FAIL options.c: level %d name %d value %d: %d\n", flags[i].level, flags[i].name,
                   flags[i].value, seen);
            failures++;
        }
    }
}

static void on_stream(void) {
    int fd = connected(PORT_ECHO);
    CHECK(get(fd, SOL_SOCKET, SO_TYPE) == SOCK_STREAM);
    CHECK(get(fd, SOL_SOCKET, SO_DOMAIN) == AF_INET);
    CHECK(get(fd, SOL_SOCKET, SO_PROTOCOL) == IPPROTO_TCP);
    CHECK(get(fd, SOL_SOCKET, SO_ERROR) == 0);
    check_round_trips(fd);
    CHECK(set(fd, SOL_SOCKET, SO_RCVBUF, 40000) == 0 && get(fd, SOL_SOCKET, SO_RCVBUF) >= 80000);
    CHECK(set(fd, SOL_SOCKET, SO_SNDBUF, 40000) == 0 && get(fd, SOL_SOCKET, SO_SNDBUF) >= 80000);
    struct linger linger = {1, 3}, seen = {0, 0};
    socklen_t len = sizeof seen;
    CHECK(setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger) == 0);
    CHECK(getsockopt(fd, SOL_SOCKET, SO_LINGER, &seen, &len) == 0);
    CHECK(seen.l_onoff == 1 && seen.l_linger == 3 && len == sizeof seen);
    struct timeval time = {2, 500000}, back = {0, 0};
    len = sizeof back;
    CHECK(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time) == 0);
    CHECK(getsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &back, &len) == 0 && len == sizeof back);
    CHECK(back.tv_sec == 2 && back.tv_usec / 10000 == 50);
    time.tv_usec = 3000000;
    FAILS(EDOM, setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time));
    FAILS(EINVAL, setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &time, 1));
    FAILS(EFAULT, setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, 0, 4));
    FAILS(ENOPROTOOPT, set(fd, SOL_SOCKET, 9999, 1));
    FAILS(ENOPROTOOPT, set(fd, IPPROTO_TCP, 9999, 1));
    FAILS(EINVAL, set(fd, IPPROTO_IP, IP_TTL, 300));
    FAILS(EINVAL, set(fd, IPPROTO_TCP, TCP_KEEPIDLE, 0));
    char name[16] = "";
    len = sizeof name;
    CHECK(getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &len) == 0 && name[0]);
    FAILS(ENOENT, setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "nonesuch", 8));
    char narrow = 0;
    len = 1; /* cut to the room there is */
    CHECK(getsockopt(fd, SOL_SOCKET, SO_TYPE, &narrow, &len) == 0 && len == 1 && narrow == SOCK_STREAM);
    close(fd);
}

static void info(void) {
    union {
        struct tcp_info known; /* the C library's: the first 104 bytes of what the kernel has */
        unsigned char bytes[232];
    } facts;
    socklen_t len = sizeof facts;
    uint64_t received;
    char data[4];
    int fd = connected(PORT_ECHO);
    CHECK(write(fd, "ping", 4) == 4 && recv(fd, data, 4, MSG_WAITALL) == 4);
    CHECK(getsockopt(fd, IPPROTO_TCP, TCP_INFO, &facts, &len) == 0);
    CHECK(len >= 136);
    memcpy(&received, facts.bytes + 128, sizeof received); /* tcpi_bytes_received */
    CHECK(facts.known.tcpi_state == 1 && facts.known.tcpi_snd_mss > 500 && facts.known.tcpi_rto > 0);
    CHECK(facts.known.tcpi_snd_cwnd > 0 && received == 4);
    close(fd);
}

static void before_connecting(void) {
    struct sockaddr_in to = address_of(peer_ip, PORT_ECHO);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    check_round_trips(fd);
    CHECK(connect(fd, (void *)&to, sizeof to) == 0);
    CHECK(get(fd, IPPROTO_TCP, TCP_NODELAY) == 1 && get(fd, SOL_SOCKET, SO_KEEPALIVE) == 1);
    CHECK(get(fd, IPPROTO_TCP, TCP_KEEPIDLE) == 77 && get(fd, IPPROTO_IP, IP_TTL) == 33);
    close(fd);
    fd = socket(AF_INET6, SOCK_STREAM, 0);
    if (fd >= 0) {
        CHECK(set(fd, IPPROTO_IPV6, IPV6_V6ONLY, 1) == 0 && get(fd, IPPROTO_IPV6, IPV6_V6ONLY) == 1);
        CHECK(set(fd, IPPROTO_IPV6, IPV6_UNICAST_HOPS, 9) == 0);
        CHECK(get(fd, IPPROTO_IPV6, IPV6_UNICAST_HOPS) == 9);
        close(fd);
    }
}

void check_options(void) {
    on_stream();
    info();
    before_connecting();
}
