/* TCP Fast Open (RFC 7413): who asks for it, on either side. The kernel must allow it (net.ipv4.tcp_fastopen=3). */
#define _GNU_SOURCE
#include "check.h"

#define CONNECT 30 /* TCP_FASTOPEN_CONNECT */

static int set(int fd, int name, int value) {
    return setsockopt(fd, IPPROTO_TCP, name, &value, sizeof value);
}

static int get(int fd, int name) {
    int value = -1;
    socklen_t len = sizeof value;
    return getsockopt(fd, IPPROTO_TCP, name, &value, &len) ? -errno : value;
}

/* Whether text went, or came, with the SYN (TCPI_OPT_SYN_DATA). */
static int with_syn(int fd) {
    unsigned char facts[8];
    socklen_t len = sizeof facts;
    CHECK(getsockopt(fd, IPPROTO_TCP, TCP_INFO, facts, &len) == 0 && len == sizeof facts);
    return (facts[5] & 32) != 0;
}

static int echoes(int fd, const char *text) {
    char got[16] = "";
    size_t len = strlen(text);
    return recv(fd, got, len, MSG_WAITALL) == (ssize_t)len && memcmp(got, text, len) == 0;
}

static ssize_t fast(int fd, int port, const char *text, int flags) {
    struct sockaddr_in to = address_of(peer_ip, port);
    return sendto(fd, text, strlen(text), MSG_FASTOPEN | flags, (void *)&to, sizeof to);
}

static void by_send(void) {
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(fast(fd, PORT_ECHO, "first", 0) == 5 && echoes(fd, "first")); /* asks for a cookie, if need be */
    FAILS(EISCONN, fast(fd, PORT_ECHO, "again", 0));
    close(fd);
    fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(fast(fd, PORT_ECHO, "second", 0) == 6 && echoes(fd, "second") && with_syn(fd));
    CHECK(send(fd, "more", 4, 0) == 4 && echoes(fd, "more"));
    close(fd);
    fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    CHECK(fast(fd, PORT_ECHO, "third", 0) == 5); /* it is known: no wait */
    CHECK(fcntl(fd, F_SETFL, 0) == 0 && echoes(fd, "third") && with_syn(fd));
    close(fd);
    struct sockaddr_in to = address_of(peer_ip, PORT_ECHO);
    struct iovec parts[2] = {{"me", 2}, {"ssage", 5}};
    struct msghdr message = {.msg_name = &to, .msg_namelen = sizeof to, .msg_iov = parts, .msg_iovlen = 2};
    fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(sendmsg(fd, &message, MSG_FASTOPEN) == 7 && echoes(fd, "message") && with_syn(fd));
    close(fd);
    fd = socket(AF_INET, SOCK_STREAM, 0);
    FAILS(EINVAL, send(fd, "nowhere", 7, MSG_FASTOPEN));
    close(fd);
    fd = socket(AF_INET, SOCK_STREAM, 0);
    FAILS(ECONNREFUSED, fast(fd, PORT_CLOSED, "refused", 0));
    close(fd);
    fd = socket(AF_INET, SOCK_DGRAM, 0); /* which has no such thing, and does not mind */
    CHECK(fast(fd, PORT_ECHO, "datagram", 0) == 8 && echoes(fd, "datagram"));
    close(fd);
}

static void by_connect(void) {
    struct sockaddr_in to = address_of(peer_ip, PORT_ECHO);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    FAILS(EINVAL, set(fd, CONNECT, 2));
    CHECK(set(fd, CONNECT, 1) == 0 && get(fd, CONNECT) == 1);
    CHECK(connect(fd, (void *)&to, sizeof to) == 0);
    struct pollfd p = {fd, POLLOUT | POLLIN, 0};
    CHECK(poll(&p, 1, 30000) == 1 && (p.revents & POLLOUT) && !(p.revents & POLLIN));
    CHECK(write(fd, "write", 5) == 5 && echoes(fd, "write") && with_syn(fd));
    FAILS(EINVAL, set(fd, CONNECT, 1)); /* too late */
    close(fd);
    fd = socket(AF_INET, SOCK_STREAM, 0); /* nothing was written: nothing goes */
    CHECK(set(fd, CONNECT, 1) == 0 && connect(fd, (void *)&to, sizeof to) == 0 && close(fd) == 0);
    fd = socket(AF_INET, SOCK_STREAM, 0); /* changed its mind */
    CHECK(set(fd, CONNECT, 1) == 0 && set(fd, CONNECT, 0) == 0);
    CHECK(connect(fd, (void *)&to, sizeof to) == 0 && send(fd, "plain", 5, 0) == 5);
    CHECK(echoes(fd, "plain") && !with_syn(fd));
    close(fd);
}

/* The peer comes twice with text in its first call: a listener's queue says whether the second brings it in its SYN. */
static void listening(int queue) {
    struct sockaddr_in any = {.sin_family = AF_INET}, at;
    socklen_t len = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM, 0), control = connected(PORT_FASTBACK);
    CHECK(bind(fd, (void *)&any, sizeof any) == 0);
    CHECK(set(fd, TCP_FASTOPEN, queue) == 0 && get(fd, TCP_FASTOPEN) == queue);
    CHECK(listen(fd, 4) == 0 && getsockname(fd, (void *)&at, &len) == 0);
    uint16_t port = ntohs(at.sin_port);
    CHECK(write(control, &port, sizeof port) == sizeof port);
    for (int i = 0; i < 2; i++) {
        int back = accept(fd, 0, 0);
        CHECK(back >= 0 && echoes(back, "back"));
        if (i == 1) CHECK(with_syn(back) == (queue > 0));
        CHECK(write(back, ".", 1) == 1);
        close(back);
    }
    close(control), close(fd);
}

void check_fastopen(void) {
    by_send();
    by_connect();
    listening(8);
    listening(0);
}
