/* pthread_cancel of threads that wait in a call. */
#define _GNU_SOURCE
#include <sys/epoll.h>
#include <sys/select.h>

#include "check.h"

static volatile int cleaned;
static int silent, listener, watch, udp;

static void cleans(void *arg) { cleaned++; }

static void waits(long which) {
    char byte;
    struct pollfd p = {silent, POLLIN, 0};
    struct epoll_event event;
    struct iovec vector = {&byte, 1};
    struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1};
    struct mmsghdr many = {message, 0};
    fd_set set;
    FD_ZERO(&set); FD_SET(silent, &set);
    switch (which) {
    case 0: read(silent, &byte, 1); break;
    case 1: recv(silent, &byte, 1, 0); break;
    case 2: recvfrom(udp, &byte, 1, 0, 0, 0); break;
    case 3: recvmsg(silent, &message, 0); break;
    case 4: accept(listener, 0, 0); break;
    case 5: accept4(listener, 0, 0, SOCK_CLOEXEC); break;
    case 6: poll(&p, 1, -1); break;
    case 7: ppoll(&p, 1, 0, 0); break;
    case 8: select(silent + 1, &set, 0, 0, 0); break;
    case 9: pselect(silent + 1, &set, 0, 0, 0, 0); break;
    case 10: epoll_wait(watch, &event, 1, -1); break;
    case 11: epoll_pwait(watch, &event, 1, -1, 0); break;
    case 12: recvmmsg(udp, &many, 1, 0, 0); break;
    case 13: readv(silent, &vector, 1); break;
    case 14: {
        static char much[1 << 16];
        while (send(silent, much, sizeof much, MSG_NOSIGNAL) > 0) {}
        break;
    }
    case 15: {
        struct sockaddr_in to = address_of(peer_ip, PORT_SILENT);
        if (on_netchan) to.sin_addr.s_addr = inet_addr("10.77.0.99"); /* nobody there */
        else accept(listener, 0, 0);
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        connect(fd, (void *)&to, sizeof to);
        break;
    }
    }
}
enum { WAITS = 16 };

static void *body(void *which) {
    pthread_cleanup_push(cleans, 0);
    waits((long)which);
    printf("FAIL wait %ld came back: errno %d\n", (long)which, errno), failures++;
    pthread_cleanup_pop(0);
    return 0;
}

/* As pthread_join, but a thread that goes on is a failure, not a hang. */
static void *joined(pthread_t thread, long which) {
    void *result = 0;
    struct timespec limit;
    clock_gettime(CLOCK_REALTIME, &limit), limit.tv_sec += 10;
    if (pthread_timedjoin_np(thread, &result, &limit)) printf("FAIL wait %ld goes on\n", which), failures++;
    return result;
}

static void *holds(void *ends) {
    char byte;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, 0);
    struct timeval limit = {0, 300000};
    setsockopt(silent, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    if (recv(silent, &byte, 1, 0) != -1 || errno != EAGAIN) return 0; /* not cancelled, and not cut short */
    limit.tv_usec = 0;
    setsockopt(silent, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    *(int *)ends = 1;
    pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, 0);
    recv(silent, &byte, 1, 0);
    *(int *)ends = 2;
    return 0;
}

void check_cancels(void) {
    struct sockaddr_in any = {.sin_family = AF_INET};
    struct epoll_event event = {.events = EPOLLIN};
    pthread_t thread;
    char byte = 0;
    silent = connected(PORT_SILENT), listener = socket(AF_INET, SOCK_STREAM, 0), watch = epoll_create1(0);
    CHECK(bind(listener, (void *)&any, sizeof any) == 0 && listen(listener, 2) == 0);
    udp = socket(AF_INET, SOCK_DGRAM, 0);
    CHECK(bind(udp, (void *)&any, sizeof any) == 0);
    CHECK(epoll_ctl(watch, EPOLL_CTL_ADD, silent, &event) == 0);
    for (long i = 0; i < WAITS; i++)
        for (int early = 0; early < 2; early++) { /* before it waits, and while it does */
            cleaned = 0;
            pthread_create(&thread, 0, body, (void *)i);
            if (!early) usleep(50000);
            CHECK(pthread_cancel(thread) == 0);
            CHECK(joined(thread, i) == PTHREAD_CANCELED);
            if (!early && cleaned != 1) printf("FAIL wait %ld: not cleaned up\n", i), failures++;
        }
    int ends = 0;
    pthread_create(&thread, 0, holds, &ends);
    usleep(50000);
    CHECK(pthread_cancel(thread) == 0);
    CHECK(joined(thread, -1) == PTHREAD_CANCELED && ends == 1);
    /* Nothing is held that the thread has taken with it. */
    int fd = connected(PORT_ECHO);
    CHECK(write(fd, "x", 1) == 1 && read(fd, &byte, 1) == 1 && byte == 'x');
    close(fd), close(silent), close(listener), close(watch), close(udp);
}
