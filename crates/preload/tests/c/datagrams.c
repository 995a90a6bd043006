/* UDP. */
#define _GNU_SOURCE
#include <sys/ioctl.h>

#include "check.h"

static void unconnected(void) {
    struct sockaddr_in to = address_of(peer_ip, PORT_ECHO), from;
    socklen_t len = sizeof from;
    char data[64];
    int fd = socket(AF_INET, SOCK_DGRAM, 0), n = -1;
    CHECK(sendto(fd, "hello", 5, 0, (void *)&to, sizeof to) == 5);
    CHECK(recvfrom(fd, data, sizeof data, 0, (void *)&from, &len) == 5);
    CHECK(len == sizeof from && from.sin_port == to.sin_port && from.sin_addr.s_addr == to.sin_addr.s_addr);
    CHECK(sendto(fd, "0123456789", 10, 0, (void *)&to, sizeof to) == 10);
    struct pollfd p = {fd, POLLIN | POLLOUT, 0};
    do poll(&p, 1, 2000); while (!(p.revents & POLLIN));
    CHECK(p.revents == (POLLIN | POLLOUT));
    CHECK(ioctl(fd, FIONREAD, &n) == 0 && n == 10);
    CHECK(recv(fd, data, 4, MSG_PEEK) == 4);
    CHECK(recv(fd, data, 4, MSG_TRUNC) == 10); /* the rest is gone */
    FAILS(EAGAIN, recv(fd, data, 4, MSG_DONTWAIT));
    struct iovec io = {data, 3};
    struct msghdr message = {.msg_name = &from, .msg_namelen = sizeof from, .msg_iov = &io, .msg_iovlen = 1};
    CHECK(sendto(fd, "abcdef", 6, 0, (void *)&to, sizeof to) == 6);
    CHECK(recvmsg(fd, &message, 0) == 3 && message.msg_flags == MSG_TRUNC);
    CHECK(message.msg_namelen == sizeof from && message.msg_controllen == 0);
    CHECK(sendto(fd, 0, 0, 0, (void *)&to, sizeof to) == 0); /* an empty one is one */
    CHECK(recv(fd, data, 4, 0) == 0);
    FAILS(EDESTADDRREQ, send(fd, "x", 1, 0));
    FAILS(EMSGSIZE, sendto(fd, calloc(1, 70000), 70000, 0, (void *)&to, sizeof to));
    close(fd);
}

static void associated(void) {
    struct sockaddr_in to = address_of(peer_ip, PORT_ECHO), closed = address_of(peer_ip, PORT_CLOSED);
    struct sockaddr_in at;
    socklen_t len = sizeof at;
    char data[8];
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    CHECK(connect(fd, (void *)&to, sizeof to) == 0);
    CHECK(getpeername(fd, (void *)&at, &len) == 0 && at.sin_port == to.sin_port);
    CHECK(getsockname(fd, (void *)&at, &len) == 0 && at.sin_port != 0 && at.sin_addr.s_addr != 0);
    CHECK(write(fd, "abc", 3) == 3 && read(fd, data, 8) == 3);
    CHECK(connect(fd, (void *)&closed, sizeof closed) == 0);
    CHECK(send(fd, "x", 1, 0) == 1);
    FAILS(ECONNREFUSED, recv(fd, data, 8, 0)); /* an ICMP error came back */
    struct sockaddr none = {.sa_family = AF_UNSPEC};
    CHECK(connect(fd, &none, sizeof none) == 0);
    FAILS(ENOTCONN, getpeername(fd, (void *)&at, &len));
    FAILS(EOPNOTSUPP, listen(fd, 1));
    FAILS(EOPNOTSUPP, accept(fd, 0, 0));
    close(fd);
}

static void batches(void) {
    struct sockaddr_in to = address_of(peer_ip, PORT_ECHO);
    char data[4][8];
    struct iovec out[3] = {{"a", 1}, {"bb", 2}, {"ccc", 3}}, in[4];
    struct mmsghdr send[3] = {0}, receive[4] = {0};
    int fd = socket(AF_INET, SOCK_DGRAM, 0), got = 0;
    for (int i = 0; i < 3; i++)
        send[i].msg_hdr = (struct msghdr){.msg_name = &to, .msg_namelen = sizeof to, .msg_iov = &out[i], .msg_iovlen = 1};
    for (int i = 0; i < 4; i++) {
        in[i] = (struct iovec){data[i], 8};
        receive[i].msg_hdr = (struct msghdr){.msg_iov = &in[i], .msg_iovlen = 1};
    }
    CHECK(sendmmsg(fd, send, 3, 0) == 3 && send[1].msg_len == 2);
    while (got < 3) {
        int n = recvmmsg(fd, receive, 4, MSG_WAITFORONE, 0);
        CHECK(n > 0);
        if (n <= 0) break;
        got += n;
    }
    CHECK(got == 3);
    close(fd);
}

static void bound(void) {
    struct sockaddr_in any = {.sin_family = AF_INET}, to = address_of(peer_ip, PORT_ECHO), at;
    socklen_t len = sizeof at;
    char data[4];
    int fd = socket(AF_INET, SOCK_DGRAM, 0), other = socket(AF_INET, SOCK_DGRAM, 0);
    CHECK(bind(fd, (void *)&any, sizeof any) == 0);
    CHECK(getsockname(fd, (void *)&at, &len) == 0 && at.sin_port != 0 && at.sin_addr.s_addr == 0);
    FAILS(EADDRINUSE, bind(other, (void *)&at, sizeof at));
    CHECK(sendto(fd, "xyz", 3, 0, (void *)&to, sizeof to) == 3 && recv(fd, data, 4, 0) == 3);
    close(fd), close(other);
}

void check_datagrams(void) {
    unconnected();
    associated();
    batches();
    bound();
}
