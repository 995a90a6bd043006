/* pthread_cancel of threads that wait in a call. */
#define _GNU_SOURCE
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/syscall.h>

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

static int quick, spare, file, pipes[2];
static volatile int came_back;

/* None of these has to wait. */
static void calls(long which) {
    char byte = 0;
    struct pollfd p = {quick, POLLIN, 0};
    struct epoll_event event;
    struct iovec vector = {&byte, 1};
    struct mmsghdr many = {{.msg_iov = &vector, .msg_iovlen = 1}, 0};
    struct timeval now = {0, 0};
    struct timespec none = {0, 0};
    struct sockaddr_in name;
    socklen_t len = sizeof name;
    int number = 0;
    fd_set set;
    FD_ZERO(&set); FD_SET(quick, &set);
    switch (which) {
    /* Cancellation points (POSIX.1-2017, 2.9.5.2; splice is Linux's). */
    case 0: read(quick, &byte, 1); break;
    case 1: write(quick, &byte, 1); break;
    case 2: readv(quick, &vector, 1); break;
    case 3: writev(quick, &vector, 1); break;
    case 4: recv(quick, &byte, 1, 0); break;
    case 5: send(quick, &byte, 1, 0); break;
    case 6: recvfrom(quick, &byte, 1, 0, 0, 0); break;
    case 7: sendto(quick, &byte, 1, 0, 0, 0); break;
    case 8: recvmsg(quick, &many.msg_hdr, 0); break;
    case 9: sendmsg(quick, &many.msg_hdr, 0); break;
    case 10: recvmmsg(udp, &many, 1, MSG_DONTWAIT, 0); break;
    case 11: sendmmsg(quick, &many, 1, 0); break;
    case 12: accept(listener, 0, 0); break;
    case 13: accept4(listener, 0, 0, 0); break;
    case 14: connect(quick, (void *)&name, sizeof name); break;
    case 15: poll(&p, 1, 0); break;
    case 16: ppoll(&p, 1, &none, 0); break;
    case 17: select(quick + 1, &set, 0, 0, &now); break;
    case 18: pselect(quick + 1, &set, 0, 0, &none, 0); break;
    case 19: epoll_wait(watch, &event, 1, 0); break;
    case 20: epoll_pwait(watch, &event, 1, 0, 0); break;
    case 21: splice(pipes[0], 0, quick, 0, 1, SPLICE_F_NONBLOCK); break;
    case 22: close(spare); break;
    /* None. */
    case 23: sendfile(quick, file, 0, 1); break;
    case 24: sendfile64(quick, file, 0, 1); break;
    case 25: getsockname(quick, (void *)&name, &len); break;
    case 26: ioctl(quick, FIONREAD, &number); break;
    case 27: listen(listener, 3); break;
    case 28: shutdown(udp, SHUT_RD); break;
    case 29: syscall(SYS_read, quick, &byte, 1); break;
    case 30: syscall(SYS_write, quick, &byte, 1); break;
    case 31: syscall(SYS_recvfrom, quick, &byte, 1, 0, 0, 0); break;
    case 32: syscall(SYS_sendto, quick, &byte, 1, 0, 0, 0); break;
    case 33: syscall(SYS_recvmsg, quick, &many.msg_hdr, 0); break;
    case 34: syscall(SYS_sendmsg, quick, &many.msg_hdr, 0); break;
    case 35: syscall(SYS_accept4, listener, 0, 0, 0); break;
    case 36: syscall(SYS_ppoll, &p, 1, &none, 0, 8); break;
    case 37: syscall(SYS_epoll_pwait, watch, &event, 1, 0, 0, 8); break;
    case 38: syscall(SYS_close, spare); break;
    }
}
enum { POINTS = 23, CALLS = 39 };

static void *marked(void *which) {
    pthread_cancel(pthread_self());
    calls((long)which);
    came_back = 1;
    return 0;
}

/* Which calls end a thread that was cancelled before. */
static void check_points(void) {
    pthread_t thread;
    nonblocking(quick), nonblocking(listener);
    for (long i = 0; i < CALLS; i++) {
        came_back = 0, spare = dup(quick);
        pthread_create(&thread, 0, marked, (void *)i);
        joined(thread, i);
        if (came_back != (i >= POINTS))
            printf("FAIL call %ld is %s cancellation point\n", i, came_back ? "no" : "a"), failures++;
        close(spare);
    }
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
    /* While its first call begins: no moment is missed. */
    for (int i = 0; i < 1000; i++) {
        pthread_create(&thread, 0, body, (void *)1);
        for (volatile int n = 0; n < i * 100; n++) {}
        CHECK(pthread_cancel(thread) == 0);
        if (joined(thread, 1) != PTHREAD_CANCELED) { printf("FAIL cancelled after %d\n", i), failures++; break; }
    }
    int ends = 0;
    pthread_create(&thread, 0, holds, &ends);
    usleep(50000);
    CHECK(pthread_cancel(thread) == 0);
    CHECK(joined(thread, -1) == PTHREAD_CANCELED && ends == 1);
    /* Nothing is held that the thread has taken with it. */
    int fd = connected(PORT_ECHO);
    CHECK(write(fd, "x", 1) == 1 && read(fd, &byte, 1) == 1 && byte == 'x');
    quick = connected(PORT_SILENT), file = open("/proc/self/exe", O_RDONLY);
    CHECK(pipe(pipes) == 0 && write(pipes[1], "x", 1) == 1);
    check_points();
    close(quick), close(file), close(pipes[0]), close(pipes[1]);
    close(fd), close(silent), close(listener), close(watch), close(udp);
}
