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
        {SOL_SOCKET, SO_OOBINLINE, 1}, {SOL_SOCKET, SO_RCVLOWAT, 100}, {SOL_SOCKET, SO_RCVLOWAT, 1},
        {SOL_SOCKET, SO_MAX_PACING_RATE, 125000}, {SOL_SOCKET, SO_MAX_PACING_RATE, -1},
        {IPPROTO_TCP, 25 /* TCP_NOTSENT_LOWAT */, 5000}, {IPPROTO_TCP, TCP_WINDOW_CLAMP, 20000},
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
    CHECK(set(fd, SOL_SOCKET, SO_RCVBUF, 1) == 0 && get(fd, SOL_SOCKET, SO_RCVBUF) == 2304);
    CHECK(set(fd, SOL_SOCKET, SO_SNDBUF, 1) == 0 && get(fd, SOL_SOCKET, SO_SNDBUF) == 4608);
    FAILS(EINVAL, set(fd, IPPROTO_TCP, TCP_WINDOW_CLAMP, 0));
    FAILS(EINVAL, set(fd, IPPROTO_TCP, TCP_MAXSEG, 87));
    CHECK(set(fd, IPPROTO_TCP, TCP_MAXSEG, 0) == 0);
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
    char narrow = 0;
    len = 1; /* cut to the room there is */
    CHECK(getsockopt(fd, SOL_SOCKET, SO_TYPE, &narrow, &len) == 0 && len == 1 && narrow == SOCK_STREAM);
    close(fd);
}

/* struct tcp_info as the kernel has it; the C library's own ends after 104 bytes. */
static struct {
    unsigned char bytes[512];
    socklen_t len;
} facts;

static void ask_info(int fd) {
    facts.len = sizeof facts.bytes;
    CHECK(getsockopt(fd, IPPROTO_TCP, TCP_INFO, facts.bytes, &facts.len) == 0);
}

static uint32_t word(int at) {
    uint32_t value;
    memcpy(&value, facts.bytes + at, sizeof value);
    return value;
}

static uint64_t dword(int at) {
    uint64_t value;
    memcpy(&value, facts.bytes + at, sizeof value);
    return value;
}

static void info(void) {
    char data[4];
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    ask_info(fd);
    CHECK(facts.bytes[0] == 7 /* TCP_CLOSE */);
    close(fd);
    fd = connected(PORT_ECHO);
    CHECK(write(fd, "ping", 4) == 4 && recv(fd, data, 4, MSG_WAITALL) == 4);
    ask_info(fd);
    CHECK(facts.len >= 232);
    CHECK(facts.bytes[0] == 1 && facts.bytes[1] == 0); /* tcpi_state, tcpi_ca_state */
    CHECK((facts.bytes[5] & 7) == 7);                  /* timestamps, SACK, window scaling */
    CHECK(word(8) >= 200000 && word(16) > 500);        /* tcpi_rto, tcpi_snd_mss */
    CHECK(word(24) == 0 && word(32) == 0);             /* tcpi_unacked, tcpi_lost */
    CHECK(word(44) < 5000 && word(52) < 5000);         /* tcpi_last_data_sent, tcpi_last_data_recv */
    CHECK(word(76) >= 2 && word(80) >= 2);             /* tcpi_snd_ssthresh, tcpi_snd_cwnd */
    CHECK(word(84) > 500 && word(88) >= 3);            /* tcpi_advmss, tcpi_reordering */
    /* The kernel may remember the path from an earlier connection. */
    if (on_netchan) CHECK(word(76) == 0x7fffffff && word(80) >= 10 && word(88) == 3);
    CHECK(word(100) == 0 && dword(112) == UINT64_MAX); /* tcpi_total_retrans, tcpi_max_pacing_rate */
    CHECK(dword(120) >= 4 && dword(128) == 4);         /* tcpi_bytes_acked, tcpi_bytes_received */
    CHECK(word(136) >= 3 && word(140) >= 2);           /* tcpi_segs_out, tcpi_segs_in */
    CHECK(word(144) == 0 && word(152) == 1);           /* tcpi_notsent_bytes, tcpi_data_segs_in */
    CHECK(word(228) > 10000);                          /* tcpi_snd_wnd */
    facts.len = 8; /* cut to the room there is */
    CHECK(getsockopt(fd, IPPROTO_TCP, TCP_INFO, facts.bytes, &facts.len) == 0 && facts.len == 8);
    close(fd);
}

static void congestion_control(void) {
    char name[16] = "";
    socklen_t len = sizeof name;
    int fd = connected(PORT_ECHO);
    CHECK(setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "reno", 4) == 0);
    CHECK(getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &len) == 0);
    CHECK(len == sizeof name && strcmp(name, "reno") == 0);
    FAILS(ENOENT, setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "nonesuch", 8));
    FAILS(EINVAL, setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "", 0));
    len = 2;
    CHECK(getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &len) == 0 && len == 2);
    close(fd);
    fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "cubic", 6) == 0);
    struct sockaddr_in to = address_of(peer_ip, PORT_ECHO);
    CHECK(connect(fd, (void *)&to, sizeof to) == 0);
    len = sizeof name;
    CHECK(getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &len) == 0 && !strcmp(name, "cubic"));
    close(fd);
}

static int comes(int fd, int ms) {
    struct pollfd p = {fd, POLLIN, 0};
    return poll(&p, 1, ms);
}

/* MSG_MORE says nothing of TCP_CORK, nor for longer than to the next send. */
static void corks(void) {
    char data[8];
    int fd = connected(PORT_ECHO);
    CHECK(send(fd, "a", 1, MSG_MORE) == 1 && get(fd, IPPROTO_TCP, TCP_CORK) == 0);
    CHECK(comes(fd, 50) == 0);
    CHECK(send(fd, "b", 1, 0) == 1 && recv(fd, data, 2, MSG_WAITALL) == 2);
    CHECK(set(fd, IPPROTO_TCP, TCP_CORK, 1) == 0);
    CHECK(send(fd, "c", 1, MSG_MORE) == 1 && send(fd, "d", 1, 0) == 1);
    CHECK(get(fd, IPPROTO_TCP, TCP_CORK) == 1 && comes(fd, 50) == 0);
    CHECK(set(fd, IPPROTO_TCP, TCP_CORK, 0) == 0 && recv(fd, data, 2, MSG_WAITALL) == 2);
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
    congestion_control();
    before_connecting();
    corks();
}
