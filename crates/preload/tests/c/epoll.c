/* epoll: level, edge, one-shot, mixed with the kernel's descriptors, nested, across closes. */
#define _GNU_SOURCE
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include "check.h"

static void add(int ep, int fd, unsigned events, uint64_t data) {
    struct epoll_event e = {.events = events, .data.u64 = data};
    CHECK(epoll_ctl(ep, EPOLL_CTL_ADD, fd, &e) == 0);
}

static void change(int ep, int fd, unsigned events, uint64_t data) {
    struct epoll_event e = {.events = events, .data.u64 = data};
    CHECK(epoll_ctl(ep, EPOLL_CTL_MOD, fd, &e) == 0);
}

/* Exactly one event, with this in it. */
static void one(int ep, int line, unsigned events, uint64_t data) {
    struct epoll_event e[4];
    int n = epoll_wait(ep, e, 4, 30000);
    if (n != 1 || e[0].events != events || e[0].data.u64 != data) {
        printf("FAIL epoll.c:%d: %d events, %x for %llu\n", line, n, n > 0 ? e[0].events : 0,
               n > 0 ? (unsigned long long)e[0].data.u64 : 0);
        failures++;
    }
}

static void none(int ep, int line) {
    struct epoll_event e[4];
    int n = epoll_wait(ep, e, 4, 30);
    if (n != 0) {
        printf("FAIL epoll.c:%d: %d events, %x for %llu\n", line, n, e[0].events,
               (unsigned long long)e[0].data.u64);
        failures++;
    }
}

static void errors(int ep) {
    struct epoll_event e = {.events = EPOLLIN}, out[2];
    int fd = connected(PORT_SILENT);
    FAILS(ENOENT, epoll_ctl(ep, EPOLL_CTL_MOD, fd, &e));
    FAILS(ENOENT, epoll_ctl(ep, EPOLL_CTL_DEL, fd, &e));
    CHECK(epoll_ctl(ep, EPOLL_CTL_ADD, fd, &e) == 0);
    FAILS(EEXIST, epoll_ctl(ep, EPOLL_CTL_ADD, fd, &e));
    FAILS(EINVAL, epoll_ctl(ep, 99, fd, &e));
    FAILS(EFAULT, epoll_ctl(ep, EPOLL_CTL_MOD, fd, 0));
    FAILS(EINVAL, epoll_wait(ep, out, 0, 0));
    CHECK(epoll_ctl(ep, EPOLL_CTL_DEL, fd, 0) == 0);
    FAILS(EINVAL, epoll_ctl(fd, EPOLL_CTL_ADD, ep, &e));
    close(fd);
    FAILS(EBADF, epoll_ctl(ep, EPOLL_CTL_ADD, fd, &e));
    FAILS(EBADF, epoll_wait(fd, out, 2, 0));
}

static void levels(int ep) {
    char data[8];
    int fd = connected(PORT_ECHO);
    add(ep, fd, EPOLLIN, 1);
    none(ep, __LINE__);
    CHECK(write(fd, "abc", 3) == 3);
    one(ep, __LINE__, EPOLLIN, 1);
    one(ep, __LINE__, EPOLLIN, 1); /* still there */
    CHECK(read(fd, data, 1) == 1);
    one(ep, __LINE__, EPOLLIN, 1);
    CHECK(read(fd, data, 8) == 2);
    none(ep, __LINE__);
    change(ep, fd, EPOLLOUT, 2);
    one(ep, __LINE__, EPOLLOUT, 2);
    change(ep, fd, EPOLLIN | EPOLLRDHUP, 3);
    none(ep, __LINE__);
    shutdown(fd, SHUT_WR);
    usleep(50000);
    one(ep, __LINE__, EPOLLIN | EPOLLRDHUP | EPOLLHUP, 3);
    close(fd);
    none(ep, __LINE__); /* a closed one is gone */
}

static void edges(int ep) {
    char data[8];
    int fd = connected(PORT_ECHO);
    nonblocking(fd);
    add(ep, fd, EPOLLIN | EPOLLOUT | EPOLLET, 1);
    one(ep, __LINE__, EPOLLOUT, 1);
    none(ep, __LINE__); /* told once */
    CHECK(write(fd, "abc", 3) == 3);
    one(ep, __LINE__, EPOLLIN | EPOLLOUT, 1);
    none(ep, __LINE__);
    CHECK(read(fd, data, 8) == 3);
    none(ep, __LINE__);
    CHECK(write(fd, "abc", 3) == 3);
    one(ep, __LINE__, EPOLLIN | EPOLLOUT, 1);
    change(ep, fd, EPOLLIN | EPOLLET, 2); /* a change looks anew */
    one(ep, __LINE__, EPOLLIN, 2);
    CHECK(read(fd, data, 8) == 3);
    FAILS(EAGAIN, read(fd, data, 8));
    none(ep, __LINE__);
    CHECK(write(fd, "d", 1) == 1);
    one(ep, __LINE__, EPOLLIN, 2);

    /* What arrives behind unread text is news; that some was read is none. */
    CHECK(write(fd, "efg", 3) == 3);
    one(ep, __LINE__, EPOLLIN, 2);
    none(ep, __LINE__);
    CHECK(read(fd, data, 2) == 2);
    none(ep, __LINE__);
    CHECK(write(fd, "h", 1) == 1);
    one(ep, __LINE__, EPOLLIN, 2);
    CHECK(read(fd, data, 8) == 3);
    none(ep, __LINE__);
    close(fd);

    /* Full, drained, writable again: one edge. */
    static char block[1 << 20];
    fd = connected(PORT_SINK);
    nonblocking(fd);
    add(ep, fd, EPOLLOUT | EPOLLET, 3);
    one(ep, __LINE__, EPOLLOUT, 3);
    int rounds = 0;
    while (rounds < 64 && write(fd, block, sizeof block) > 0) rounds++;
    int why = errno;
    CHECK(rounds == 64 || why == EAGAIN);
    if (rounds < 64) one(ep, __LINE__, EPOLLOUT, 3);
    close(fd);
}

static void once(int ep) {
    int fd = connected(PORT_ECHO);
    add(ep, fd, EPOLLOUT | EPOLLONESHOT, 1);
    one(ep, __LINE__, EPOLLOUT, 1);
    none(ep, __LINE__);
    change(ep, fd, EPOLLOUT | EPOLLONESHOT, 2);
    one(ep, __LINE__, EPOLLOUT, 2);
    change(ep, fd, EPOLLIN | EPOLLONESHOT | EPOLLET, 3);
    none(ep, __LINE__);
    CHECK(write(fd, "x", 1) == 1);
    one(ep, __LINE__, EPOLLIN, 3);
    none(ep, __LINE__);
    close(fd);
}

static void mixed(int ep) {
    uint64_t count = 1;
    struct epoll_event e[4];
    int fd = connected(PORT_ECHO), bell = eventfd(0, EFD_NONBLOCK);
    add(ep, bell, EPOLLIN, 1);
    add(ep, fd, EPOLLIN, 2);
    none(ep, __LINE__);
    CHECK(write(bell, &count, 8) == 8);
    one(ep, __LINE__, EPOLLIN, 1);
    CHECK(write(fd, "x", 1) == 1);
    CHECK(poll(&(struct pollfd){fd, POLLIN, 0}, 1, 30000) == 1);
    /* A core tells those that wait after it has answered a call: epoll may hear of it a moment after poll. */
    int both = 0;
    for (int i = 0; i < 1000 && both != 2; i++) {
        if (i) usleep(1000);
        both = epoll_wait(ep, e, 4, 1000);
    }
    CHECK(both == 2);
    /* With room for one at a time, neither starves. */
    int seen[3] = {0};
    for (int i = 0; i < 8; i++)
        if (epoll_wait(ep, e, 1, 30000) == 1) seen[e[0].data.u64]++;
    CHECK(seen[1] >= 2 && seen[2] >= 2);
    CHECK(read(bell, &count, 8) == 8);
    one(ep, __LINE__, EPOLLIN, 2);
    struct timespec brief = {0, 10000000};
    CHECK(epoll_pwait2(ep, e, 4, &brief, 0) == 1 && epoll_pwait(ep, e, 4, 0, 0) == 1);
    close(fd), close(bell);
}

static void nested(int ep) {
    char data[4];
    int inner = epoll_create1(EPOLL_CLOEXEC), fd = connected(PORT_ECHO);
    add(inner, fd, EPOLLIN, 1);
    add(ep, inner, EPOLLIN, 2);
    struct pollfd p = {inner, POLLIN, 0};
    none(ep, __LINE__);
    CHECK(poll(&p, 1, 0) == 0);
    CHECK(write(fd, "x", 1) == 1);
    CHECK(poll(&p, 1, 30000) == 1 && p.revents == POLLIN);
    one(ep, __LINE__, EPOLLIN, 2);
    one(inner, __LINE__, EPOLLIN, 1);
    CHECK(read(fd, data, 4) == 1);
    none(inner, __LINE__);
    none(ep, __LINE__);
    close(inner), close(fd);
}

/* Added while it was nothing yet, in both orders. */
static void before_connect(int ep) {
    struct sockaddr_in to = address_of(peer_ip, PORT_ECHO);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    add(ep, fd, EPOLLOUT | EPOLLET, 5);
    one(ep, __LINE__, EPOLLOUT | EPOLLHUP, 5); /* as an unconnected stream is */
    connect(fd, (void *)&to, sizeof to);
    one(ep, __LINE__, EPOLLOUT, 5);
    close(fd);
}

/* Datagram sockets that something waits for before they are bound, by bind or by a send. */
static void before_bind(int ep) {
    struct sockaddr_in to = address_of(peer_ip, PORT_ECHO), any = {.sin_family = AF_INET};
    for (int binds = 0; binds < 2; binds++) {
        int fd = socket(AF_INET, SOCK_DGRAM, 0);
        add(ep, fd, EPOLLIN, 6);
        none(ep, __LINE__);
        if (binds) CHECK(bind(fd, (void *)&any, sizeof any) == 0);
        CHECK(sendto(fd, "x", 1, 0, (void *)&to, sizeof to) == 1);
        one(ep, __LINE__, EPOLLIN, 6);
        close(fd);
    }
}

static int shared_ep;
static void *waits(void *arg) {
    struct epoll_event e;
    *(int *)arg = epoll_wait(shared_ep, &e, 1, 30000);
    return 0;
}

/* Added while another thread waits already. */
static void while_waiting(void) {
    int result = -1, fd = connected(PORT_ECHO);
    pthread_t thread;
    shared_ep = epoll_create1(0);
    pthread_create(&thread, 0, waits, &result);
    usleep(50000);
    add(shared_ep, fd, EPOLLOUT, 1);
    pthread_join(thread, 0);
    CHECK(result == 1);
    pthread_create(&thread, 0, waits, &result);
    change(shared_ep, fd, EPOLLIN, 1);
    usleep(50000);
    CHECK(write(fd, "x", 1) == 1);
    pthread_join(thread, 0);
    CHECK(result == 1);
    close(fd), close(shared_ep);
}

/* Many that are silent, one that speaks: it is told of that one. */
static void crowd(int ep) {
    enum { MANY = 400 };
    char data[4];
    int fds[MANY];
    for (int i = 0; i < MANY; i++) {
        fds[i] = connected(PORT_ECHO);
        add(ep, fds[i], i % 2 ? EPOLLIN : EPOLLIN | EPOLLET, i);
    }
    none(ep, __LINE__);
    for (int i = 0; i < MANY; i += 7) {
        CHECK(write(fds[i], "x", 1) == 1);
        one(ep, __LINE__, EPOLLIN, i);
        CHECK(read(fds[i], data, 4) == 1);
    }
    none(ep, __LINE__);
    for (int i = 0; i < MANY; i++) close(fds[i]);
    none(ep, __LINE__);
}

void check_epoll(void) {
    int ep = epoll_create(1);
    CHECK(ep >= 0);
    errors(ep);
    levels(ep);
    edges(ep);
    once(ep);
    mixed(ep);
    nested(ep);
    before_connect(ep);
    before_bind(ep);
    while_waiting();
    crowd(ep);
    int copy = dup(ep), fd = connected(PORT_ECHO);
    close(ep);
    add(copy, fd, EPOLLOUT, 9);
    one(copy, __LINE__, EPOLLOUT, 9);
    close(copy), close(fd);
}
