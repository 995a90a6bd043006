/* UDP with ancillary data, the error queue, and many datagrams in one call: ip(7), udp(7), RFC 1122 4.1.3. */
#define _GNU_SOURCE
#include <time.h>

#include <linux/errqueue.h>
#include <sys/ioctl.h>
#include <sys/time.h>

#include "check.h"

#define CORK 1
#define SEGMENT 103
#define MERGE 104
#define LEVEL_UDP 17

static int set(int fd, int level, int name, int value) {
    return setsockopt(fd, level, name, &value, sizeof value);
}

static int get(int fd, int level, int name) {
    int value = -12345;
    socklen_t len = sizeof value;
    if (getsockopt(fd, level, name, &value, &len)) return -errno;
    return value;
}

/* A datagram socket at an address of this program's own, which `at` becomes. */
static int own(struct sockaddr_in *at) {
    struct sockaddr_in to = address_of(peer_ip, PORT_ECHO);
    socklen_t len = sizeof *at;
    int probe = socket(AF_INET, SOCK_DGRAM, 0), fd = socket(AF_INET, SOCK_DGRAM, 0);
    CHECK(connect(probe, (void *)&to, sizeof to) == 0 && getsockname(probe, (void *)at, &len) == 0);
    close(probe);
    at->sin_port = 0;
    CHECK(bind(fd, (void *)at, sizeof *at) == 0 && getsockname(fd, (void *)at, &len) == 0);
    return fd;
}

static struct {
    char data[70000], control[512];
    struct iovec io;
    struct sockaddr_in from;
    struct msghdr message;
} in;

static ssize_t receive(int fd, size_t room, size_t control, int flags) {
    memset(in.control, 0xee, sizeof in.control);
    in.io = (struct iovec){in.data, room};
    in.message = (struct msghdr){.msg_name = &in.from, .msg_namelen = sizeof in.from, .msg_iov = &in.io,
                                 .msg_iovlen = 1, .msg_control = in.control, .msg_controllen = control};
    return recvmsg(fd, &in.message, flags);
}

static void *told(int level, int type, size_t len) {
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&in.message); c; c = CMSG_NXTHDR(&in.message, c))
        if (c->cmsg_level == level && c->cmsg_type == type) return c->cmsg_len == CMSG_LEN(len) ? CMSG_DATA(c) : 0;
    return 0;
}

/* Sends `len` bytes of `data` with one control message of `size` bytes. */
static ssize_t send_with(int fd, struct sockaddr_in *to, const void *data, size_t len, int level, int type,
                         const void *value, size_t size) {
    union {
        char bytes[64];
        struct cmsghdr align;
    } control = {{0}};
    struct iovec io = {(void *)data, len};
    struct msghdr message = {.msg_name = to, .msg_namelen = to ? sizeof *to : 0, .msg_iov = &io, .msg_iovlen = 1,
                             .msg_control = &control, .msg_controllen = CMSG_SPACE(size)};
    struct cmsghdr *c = CMSG_FIRSTHDR(&message);
    c->cmsg_level = level, c->cmsg_type = type, c->cmsg_len = CMSG_LEN(size);
    memcpy(CMSG_DATA(c), value, size);
    return sendmsg(fd, &message, 0);
}

static int error_comes(int fd) {
    struct pollfd p = {fd, 0, 0};
    return poll(&p, 1, 30000) == 1 && p.revents == POLLERR;
}

static void errors(void) {
    struct sockaddr_in closed = address_of(peer_ip, PORT_CLOSED), none = {0};
    char data[8];
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    CHECK(get(fd, IPPROTO_IP, IP_RECVERR) == 0);
    CHECK(sendto(fd, "one", 3, 0, (void *)&closed, sizeof closed) == 3);
    usleep(100000); /* without an error queue, a socket that is not connected hears of nothing */
    FAILS(EAGAIN, recv(fd, data, sizeof data, MSG_DONTWAIT));
    CHECK(set(fd, IPPROTO_IP, IP_RECVERR, 1) == 0 && get(fd, IPPROTO_IP, IP_RECVERR) == 1);
    FAILS(EAGAIN, receive(fd, 100, 512, MSG_ERRQUEUE)); /* never waits */
    CHECK(sendto(fd, "hello", 5, 0, (void *)&closed, sizeof closed) == 5);
    CHECK(error_comes(fd));
    FAILS(ECONNREFUSED, recv(fd, data, sizeof data, MSG_DONTWAIT)); /* the pending error, told once */
    FAILS(EAGAIN, recv(fd, data, sizeof data, MSG_DONTWAIT));
    CHECK(error_comes(fd)); /* while the queue holds something */
    CHECK(receive(fd, 100, 512, MSG_ERRQUEUE) == 5 && memcmp(in.data, "hello", 5) == 0);
    CHECK(in.message.msg_flags == MSG_ERRQUEUE && in.message.msg_namelen == sizeof in.from);
    CHECK(in.from.sin_port == closed.sin_port && in.from.sin_addr.s_addr == closed.sin_addr.s_addr);
    struct sock_extended_err *error = told(IPPROTO_IP, IP_RECVERR, sizeof *error + sizeof none);
    CHECK(error != 0);
    if (error) {
        struct sockaddr_in *offender = (void *)SO_EE_OFFENDER(error);
        CHECK(error->ee_errno == ECONNREFUSED && error->ee_origin == SO_EE_ORIGIN_ICMP);
        CHECK(error->ee_type == 3 && error->ee_code == 3 && error->ee_info == 0 && error->ee_data == 0);
        CHECK(offender->sin_family == AF_INET && offender->sin_addr.s_addr == closed.sin_addr.s_addr);
        CHECK(offender->sin_port == 0);
    }
    struct pollfd p = {fd, POLLIN | POLLOUT, 0};
    CHECK(poll(&p, 1, 0) == 1 && p.revents == POLLOUT);
    CHECK(sendto(fd, "again", 5, 0, (void *)&closed, sizeof closed) == 5);
    CHECK(error_comes(fd));
    CHECK(receive(fd, 2, 20, MSG_ERRQUEUE) == 2); /* cut, both */
    CHECK(in.message.msg_flags == (MSG_ERRQUEUE | MSG_TRUNC | MSG_CTRUNC) && in.message.msg_controllen == 20);
    FAILS(EAGAIN, recv(fd, data, sizeof data, MSG_DONTWAIT)); /* taken from the queue, it is pending no more */
    FAILS(EAGAIN, receive(fd, 100, 512, MSG_ERRQUEUE));
    close(fd);
}

static void path_mtu(void) {
    static char data[70000];
    struct sockaddr_in to = address_of(peer_ip, PORT_ECHO);
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    CHECK(get(fd, IPPROTO_IP, IP_MTU_DISCOVER) == IP_PMTUDISC_WANT);
    FAILS(EINVAL, set(fd, IPPROTO_IP, IP_MTU_DISCOVER, 6));
    CHECK(get(fd, IPPROTO_IP, IP_MTU) == -ENOTCONN);
    CHECK(connect(fd, (void *)&to, sizeof to) == 0);
    int mtu = get(fd, IPPROTO_IP, IP_MTU);
    CHECK(mtu == (on_netchan ? 1500 : 65535));
    memset(data, 7, sizeof data);
    CHECK(send(fd, data, 4000, 0) == 4000 && recv(fd, data, sizeof data, 0) == 4000); /* cut where need be */
    CHECK(set(fd, IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO) == 0 && set(fd, IPPROTO_IP, IP_RECVERR, 1) == 0);
    CHECK(get(fd, IPPROTO_IP, IP_MTU_DISCOVER) == IP_PMTUDISC_DO);
    FAILS(EMSGSIZE, send(fd, data, mtu - 27, 0));
    CHECK(error_comes(fd));
    FAILS(EAGAIN, recv(fd, data, 8, MSG_DONTWAIT)); /* an error of this host's own is not pending */
    CHECK(receive(fd, 100, 512, MSG_ERRQUEUE) == 0 && in.message.msg_flags == MSG_ERRQUEUE);
    CHECK(in.from.sin_addr.s_addr == to.sin_addr.s_addr && in.from.sin_port == to.sin_port);
    struct sock_extended_err *error = told(IPPROTO_IP, IP_RECVERR, sizeof *error + sizeof(struct sockaddr_in));
    CHECK(error != 0);
    if (error) {
        CHECK(error->ee_errno == EMSGSIZE && error->ee_origin == SO_EE_ORIGIN_LOCAL && (int)error->ee_info == mtu);
        CHECK(SO_EE_OFFENDER(error)->sa_family == 0);
    }
    CHECK(send(fd, data, 1000, 0) == 1000 && recv(fd, data, 2000, 0) == 1000);
    close(fd);
}

static void information(void) {
    struct sockaddr_in at, to;
    struct timeval now;
    int fd = own(&at), other = own(&to), on = 1, tos = 0x2c, ttl = 9;
    CHECK(get(fd, IPPROTO_IP, IP_RECVTTL) == 0 && get(fd, IPPROTO_IP, IP_PKTINFO) == 0);
    CHECK(sendto(other, "x", 1, 0, (void *)&at, sizeof at) == 1);
    CHECK(receive(fd, 100, 512, 0) == 1 && in.message.msg_controllen == 0); /* nothing unasked */
    CHECK(set(fd, IPPROTO_IP, IP_PKTINFO, 1) == 0 && set(fd, IPPROTO_IP, IP_RECVTTL, 1) == 0);
    CHECK(set(fd, IPPROTO_IP, IP_RECVTOS, 1) == 0 && set(fd, IPPROTO_IP, IP_RECVORIGDSTADDR, 1) == 0);
    CHECK(set(fd, SOL_SOCKET, SO_TIMESTAMP, 1) == 0 && set(fd, SOL_SOCKET, SO_RXQ_OVFL, 1) == 0);
    CHECK(get(fd, IPPROTO_IP, IP_RECVTTL) == 1 && get(fd, SOL_SOCKET, SO_TIMESTAMP) == 1);
    CHECK(send_with(other, &at, "abc", 3, IPPROTO_IP, IP_TTL, &ttl, sizeof ttl) == 3);
    CHECK(receive(fd, 100, 512, MSG_PEEK) == 3 && receive(fd, 100, 512, 0) == 3);
    gettimeofday(&now, 0);
    struct timeval *time = told(SOL_SOCKET, SO_TIMESTAMP, sizeof *time);
    CHECK(time && time->tv_sec <= now.tv_sec && time->tv_sec + 5 > now.tv_sec);
    CHECK(told(SOL_SOCKET, SO_RXQ_OVFL, 4) == 0); /* none was dropped */
    struct in_pktinfo *where = told(IPPROTO_IP, IP_PKTINFO, sizeof *where);
    CHECK(where && where->ipi_addr.s_addr == at.sin_addr.s_addr && where->ipi_ifindex > 0);
    CHECK(where && where->ipi_spec_dst.s_addr == at.sin_addr.s_addr);
    int *hops = told(IPPROTO_IP, IP_TTL, sizeof *hops);
    CHECK(hops && *hops == 9);
    unsigned char *class = told(IPPROTO_IP, IP_TOS, 1);
    CHECK(class && *class == 0);
    struct sockaddr_in *original = told(IPPROTO_IP, IP_ORIGDSTADDR, sizeof *original);
    CHECK(original && original->sin_port == at.sin_port && original->sin_addr.s_addr == at.sin_addr.s_addr);
    CHECK(in.message.msg_controllen == 32 + CMSG_SPACE(12) + 24 + 24 + 32);
    CHECK(send_with(other, &at, "abc", 3, IPPROTO_IP, IP_TOS, &tos, sizeof tos) == 3);
    CHECK(receive(fd, 100, 32 + 20, 0) == 3); /* the second one is cut, the rest is not there */
    CHECK(in.message.msg_flags == MSG_CTRUNC && in.message.msg_controllen == 52);
    CHECK(sendto(other, "abcdef", 6, 0, (void *)&at, sizeof at) == 6);
    CHECK(receive(fd, 3, 0, 0) == 3 && in.message.msg_flags == (MSG_CTRUNC | MSG_TRUNC));
    CHECK(set(fd, SOL_SOCKET, SO_TIMESTAMPNS, 1) == 0 && get(fd, SOL_SOCKET, SO_TIMESTAMP) == 0);
    tos = 300;
    FAILS(EINVAL, send_with(other, &at, "x", 1, IPPROTO_IP, IP_TOS, &tos, sizeof tos));
    ttl = 0;
    FAILS(EINVAL, send_with(other, &at, "x", 1, IPPROTO_IP, IP_TTL, &ttl, sizeof ttl));
    FAILS(EINVAL, send_with(other, &at, "x", 1, IPPROTO_IP, IP_TTL, &ttl, 2));
    FAILS(EINVAL, send_with(other, &at, "x", 1, IPPROTO_IP, 9999, &ttl, 4));
    struct in_pktinfo from = {0};
    from.ipi_spec_dst.s_addr = htonl(0x01020304); /* none of ours */
    FAILS(ENETUNREACH, send_with(other, &at, "x", 1, IPPROTO_IP, IP_PKTINFO, &from, sizeof from));
    from.ipi_spec_dst = at.sin_addr;
    CHECK(send_with(other, &at, "x", 1, IPPROTO_IP, IP_PKTINFO, &from, sizeof from) == 1);
    CHECK(receive(fd, 100, 512, 0) == 1 && in.from.sin_addr.s_addr == at.sin_addr.s_addr);
    close(fd), close(other);
}

static void segments(void) {
    static char data[70000];
    struct sockaddr_in at, to;
    int fd = own(&at), other = own(&to);
    uint16_t size = 1000;
    for (size_t i = 0; i < sizeof data; i++) data[i] = i % 251;
    CHECK(get(other, LEVEL_UDP, SEGMENT) == 0);
    FAILS(EINVAL, set(other, LEVEL_UDP, SEGMENT, -1));
    FAILS(EINVAL, set(other, LEVEL_UDP, SEGMENT, 65536));
    CHECK(send_with(other, &at, data, 2500, LEVEL_UDP, SEGMENT, &size, sizeof size) == 2500);
    CHECK(receive(fd, 5000, 0, 0) == 1000 && memcmp(in.data, data, 1000) == 0 && in.message.msg_flags == 0);
    CHECK(receive(fd, 5000, 0, 0) == 1000 && memcmp(in.data, data + 1000, 1000) == 0);
    CHECK(receive(fd, 5000, 0, 0) == 500 && memcmp(in.data, data + 2000, 500) == 0);
    CHECK(set(other, LEVEL_UDP, SEGMENT, 100) == 0 && get(other, LEVEL_UDP, SEGMENT) == 100);
    CHECK(sendto(other, data, 100, 0, (void *)&at, sizeof at) == 100 && recv(fd, in.data, 500, 0) == 100);
    FAILS(EINVAL, sendto(other, data, 12801, 0, (void *)&at, sizeof at)); /* 129 of them */
    FAILS(EINVAL, send_with(other, &at, data, 100, LEVEL_UDP, SEGMENT, data, 4));
    FAILS(EMSGSIZE, sendto(other, data, 65508, 0, (void *)&at, sizeof at));
    CHECK(get(fd, LEVEL_UDP, MERGE) == 0 && set(fd, LEVEL_UDP, MERGE, 1) == 0 && get(fd, LEVEL_UDP, MERGE) == 1);
    CHECK(sendto(other, data, 950, 0, (void *)&at, sizeof at) == 950);
    CHECK(receive(fd, 5000, 512, 0) == 950 && memcmp(in.data, data, 950) == 0);
    int *each = told(LEVEL_UDP, MERGE, sizeof *each);
    CHECK(each && *each == 100 && in.message.msg_flags == 0);
    size = 0; /* this one shall be whole */
    CHECK(send_with(other, &at, data, 300, LEVEL_UDP, SEGMENT, &size, sizeof size) == 300);
    CHECK(receive(fd, 5000, 512, 0) == 300 && told(LEVEL_UDP, MERGE, 4) == 0);
    close(fd), close(other);
}

static void corked(void) {
    struct sockaddr_in at, to, elsewhere = address_of(peer_ip, PORT_CLOSED);
    int fd = own(&at), other = own(&to);
    CHECK(sendto(other, "abc", 3, MSG_MORE, (void *)&at, sizeof at) == 3);
    CHECK(sendto(other, "de", 2, MSG_MORE, (void *)&elsewhere, sizeof elsewhere) == 2); /* not any more */
    FAILS(EAGAIN, recv(fd, in.data, 100, MSG_DONTWAIT));
    CHECK(send(other, "f", 1, 0) == 1);
    CHECK(recv(fd, in.data, 100, 0) == 6 && memcmp(in.data, "abcdef", 6) == 0);
    CHECK(get(other, LEVEL_UDP, CORK) == 0 && set(other, LEVEL_UDP, CORK, 1) == 0 && get(other, LEVEL_UDP, CORK) == 1);
    CHECK(sendto(other, "12", 2, 0, (void *)&at, sizeof at) == 2 && sendto(other, "", 0, 0, (void *)&at, sizeof at) == 0);
    CHECK(sendto(other, "34", 2, 0, (void *)&at, sizeof at) == 2);
    FAILS(EAGAIN, recv(fd, in.data, 100, MSG_DONTWAIT));
    CHECK(set(other, LEVEL_UDP, CORK, 0) == 0);
    CHECK(recv(fd, in.data, 100, 0) == 4 && memcmp(in.data, "1234", 4) == 0);
    CHECK(sendto(other, in.data, 40000, MSG_MORE, (void *)&at, sizeof at) == 40000);
    FAILS(EMSGSIZE, sendto(other, in.data, 40000, 0, (void *)&at, sizeof at)); /* all of it is forgotten */
    CHECK(sendto(other, "x", 1, 0, (void *)&at, sizeof at) == 1 && recv(fd, in.data, 100, 0) == 1);
    FAILS(EDESTADDRREQ, send(other, "x", 1, MSG_MORE));
    close(fd), close(other);
}

/* Many messages a call, each with its own control data. */
static void many(void) {
    struct sockaddr_in at, to;
    int fd = own(&at), other = own(&to), ttl[2] = {3, 5};
    union {
        char bytes[CMSG_SPACE(4)];
        struct cmsghdr align;
    } control[2], got[2];
    struct iovec out[2] = {{"one", 3}, {"three", 5}}, room[2] = {{in.data, 10}, {in.data + 10, 10}};
    struct mmsghdr send[2] = {0}, receive[2] = {0};
    for (int i = 0; i < 2; i++) {
        send[i].msg_hdr = (struct msghdr){.msg_name = &at, .msg_namelen = sizeof at, .msg_iov = &out[i],
                                          .msg_iovlen = 1, .msg_control = &control[i], .msg_controllen = sizeof control[i]};
        receive[i].msg_hdr = (struct msghdr){.msg_iov = &room[i], .msg_iovlen = 1, .msg_control = &got[i],
                                             .msg_controllen = sizeof got[i]};
        control[i].align = (struct cmsghdr){.cmsg_len = CMSG_LEN(4), .cmsg_level = IPPROTO_IP, .cmsg_type = IP_TTL};
        memcpy(CMSG_DATA(&control[i].align), &ttl[i], 4);
    }
    CHECK(set(fd, IPPROTO_IP, IP_RECVTTL, 1) == 0);
    CHECK(sendmmsg(other, send, 2, 0) == 2 && send[0].msg_len == 3 && send[1].msg_len == 5);
    CHECK(recvmmsg(fd, receive, 2, 0, 0) == 2 && receive[1].msg_len == 5);
    for (int i = 0; i < 2; i++) {
        struct cmsghdr *c = CMSG_FIRSTHDR(&receive[i].msg_hdr);
        CHECK(c && c->cmsg_type == IP_TTL && memcmp(CMSG_DATA(c), &ttl[i], 4) == 0);
    }
    close(fd), close(other);
}

void check_messages(void) {
    errors();
    path_mtu();
    information();
    segments();
    corked();
    many();
}
