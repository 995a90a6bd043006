/* poll, ppoll, select, pselect, with sockets and pipes together. */
#define _GNU_SOURCE
#include <sys/select.h>
#include <time.h>

#include "check.h"

#include <sys/epoll.h>
#include <sys/resource.h>

static long now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void polls(void) {
    int ends[2], fd = connected(PORT_ECHO);
    char data[8];
    CHECK(pipe(ends) == 0);
    struct pollfd p[4] = {{fd, POLLIN, 0}, {ends[0], POLLIN, 0}, {-1, POLLIN, 7}, {fd, POLLOUT | POLLIN, 0}};
    CHECK(poll(p, 3, 0) == 0 && p[2].revents == 0);
    CHECK(poll(p, 4, 0) == 1 && p[3].revents == POLLOUT);
    long start = now_ms();
    CHECK(poll(p, 3, 60) == 0);
    CHECK(now_ms() - start >= 59 && now_ms() - start < 2000);
    CHECK(write(ends[1], "x", 1) == 1);
    CHECK(poll(p, 2, -1) == 1 && p[0].revents == 0 && p[1].revents == POLLIN);
    CHECK(write(fd, "abc", 3) == 3);
    p[1].events = 0;
    CHECK(poll(p, 2, 30000) == 1 && p[0].revents == POLLIN && p[1].revents == 0);
    p[1].events = POLLIN;
    CHECK(poll(p, 4, 30000) == 3 && p[3].revents == (POLLIN | POLLOUT));
    p[0].events = POLLRDNORM;
    CHECK(poll(p, 1, 0) == 1 && p[0].revents == POLLRDNORM);
    p[0].events = 0;
    CHECK(poll(p, 1, 20) == 0);
    CHECK(read(fd, data, 8) == 3);
    shutdown(fd, SHUT_WR); /* the echo closes too */
    p[0].events = POLLIN | POLLRDHUP;
    CHECK(poll(p, 1, 30000) == 1 && (p[0].revents & POLLIN));
    usleep(50000);
    CHECK(poll(p, 1, 30000) == 1 && p[0].revents == (POLLIN | POLLRDHUP | POLLHUP));
    p[0].events = 0; /* hang-ups come unasked */
    CHECK(poll(p, 1, 0) == 1 && p[0].revents == POLLHUP);
    close(fd);
    p[0].events = POLLIN;
    CHECK(poll(p, 1, 0) == 1 && p[0].revents == POLLNVAL);
    struct timespec bad = {0, 2000000000}, brief = {0, 20000000};
    fd = connected(PORT_SILENT);
    p[0] = (struct pollfd){fd, POLLIN, 0};
    FAILS(EINVAL, ppoll(p, 1, &bad, 0));
    CHECK(ppoll(p, 1, &brief, 0) == 0);
    close(fd), close(ends[0]), close(ends[1]);
}

static volatile int alarms;
static void on_alarm(int signal) { alarms += signal == SIGUSR1; }

static void *interrupts(void *arg) {
    int first = getpid();
    await_sleep(&first); /* the thread that this process began with is the one that waits */
    pthread_kill(*(pthread_t *)arg, SIGUSR1);
    return 0;
}

static void interrupted(void) {
    struct sigaction act = {.sa_handler = on_alarm};
    sigaction(SIGUSR1, &act, 0);
    pthread_t self = pthread_self(), other;
    int fd = connected(PORT_SILENT);
    struct pollfd p = {fd, POLLIN, 0};
    char byte;
    pthread_create(&other, 0, interrupts, &self);
    FAILS(EINTR, poll(&p, 1, 30000));
    pthread_join(other, 0);
    pthread_create(&other, 0, interrupts, &self);
    FAILS(EINTR, read(fd, &byte, 1));
    pthread_join(other, 0);
    /* The mask lets the signal in only during the wait. */
    sigset_t blocked, open;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &blocked, &open);
    struct timespec time = {30, 0};
    pthread_create(&other, 0, interrupts, &self);
    FAILS(EINTR, ppoll(&p, 1, &time, &open));
    pthread_join(other, 0);
    CHECK(alarms == 3);
    pthread_sigmask(SIG_SETMASK, &open, 0);
    close(fd);
}

static void selects(void) {
    int ends[2], fd = connected(PORT_ECHO);
    CHECK(pipe(ends) == 0);
    int top = (fd > ends[0] ? fd : ends[0]) + 1;
    fd_set in, out;
    FD_ZERO(&in);
    FD_ZERO(&out);
    FD_SET(fd, &in), FD_SET(ends[0], &in), FD_SET(fd, &out);
    struct timeval time = {30, 0};
    CHECK(select(top, &in, &out, 0, &time) == 1);
    CHECK(!FD_ISSET(fd, &in) && !FD_ISSET(ends[0], &in) && FD_ISSET(fd, &out));
    CHECK(time.tv_sec < 30 || time.tv_usec == 0);
    FD_SET(fd, &in), FD_SET(ends[0], &in);
    time = (struct timeval){0, 30000};
    long start = now_ms();
    CHECK(select(top, &in, 0, 0, &time) == 0 && now_ms() - start >= 29);
    CHECK(!FD_ISSET(fd, &in) && time.tv_sec == 0 && time.tv_usec == 0);
    CHECK(write(fd, "abc", 3) == 3);
    FD_SET(fd, &in), FD_SET(ends[0], &in);
    CHECK(select(top, &in, 0, 0, 0) == 1 && FD_ISSET(fd, &in) && !FD_ISSET(ends[0], &in));
    CHECK(write(ends[1], "x", 1) == 1);
    FD_ZERO(&in);
    FD_SET(ends[0], &in), FD_SET(fd, &out);
    struct timespec precise = {30, 0};
    CHECK(pselect(top, &in, &out, 0, &precise, 0) == 2 && FD_ISSET(ends[0], &in) && FD_ISSET(fd, &out));
    FD_ZERO(&in);
    FD_SET(fd, &in), FD_SET(60, &in);
    time = (struct timeval){1, 0};
    FAILS(EBADF, select(61, &in, 0, 0, &time));
    close(fd), close(ends[0]), close(ends[1]);
}

/* How often a thread slept while it waited in vain, twenty times. */
static long slept(int fd, int by_epoll) {
    struct rusage before, after;
    struct epoll_event event = {.events = EPOLLIN};
    struct pollfd p = {fd, POLLIN, 0};
    int instance = epoll_create1(0);
    CHECK(epoll_ctl(instance, EPOLL_CTL_ADD, fd, &event) == 0);
    CHECK(epoll_wait(instance, &event, 1, 0) == 0);
    getrusage(RUSAGE_THREAD, &before);
    for (int i = 0; i < 20; i++) CHECK((by_epoll ? epoll_wait(instance, &event, 1, 3) : poll(&p, 1, 3)) == 0);
    getrusage(RUSAGE_THREAD, &after);
    close(instance);
    return after.ru_nvcsw - before.ru_nvcsw;
}

/* How often another thread took this one's core from it. */
static long preempted(void) {
    struct rusage usage;
    getrusage(RUSAGE_THREAD, &usage);
    return usage.ru_nivcsw;
}

/* Whether the waits look before they sleep: most of them, in one of twenty rounds; where another thread wants the core, some, since they give way to it. */
static int looks(int fd, int by_epoll) {
    long before = preempted(), least = 20;
    for (int i = 0; i < 20 && least >= 10; i++) {
        long sleeps = slept(fd, by_epoll);
        if (sleeps < least) least = sleeps;
    }
    return least < 10 || (least < 20 && preempted() > before);
}

/* SO_BUSY_POLL: they look before they sleep; of the kernel's descriptors, too. */
static void busy_polls(void) {
    int fd = connected(PORT_SILENT), ends[2], us = 10000000, none = 0;
    const char *regime = getenv("NETCHAN_REGIME");
    int messages = regime && !strcmp(regime, "percpu");
    for (int by_epoll = 0; by_epoll < 2; by_epoll++) {
        CHECK(slept(fd, by_epoll) >= 20);
        CHECK(setsockopt(fd, SOL_SOCKET, SO_BUSY_POLL, &us, sizeof us) == 0);
        /* On Linux that is for network cards, and an administrator's to allow. In percpu each look is a message to the core, for whose answer
           the thread sleeps. */
        if (on_netchan && !messages) CHECK(looks(fd, by_epoll));
        CHECK(pipe(ends) == 0 && write(ends[1], "x", 1) == 1);
        struct pollfd both[2] = {{fd, POLLIN, 0}, {ends[0], POLLIN, 0}};
        CHECK(poll(both, 2, -1) == 1 && both[1].revents == POLLIN);
        close(ends[0]), close(ends[1]);
        CHECK(setsockopt(fd, SOL_SOCKET, SO_BUSY_POLL, &none, sizeof none) == 0);
    }
    CHECK(slept(fd, 1) >= 20);
    close(fd);
}

void check_waiting(void) {
    busy_polls();
    polls();
    interrupted();
    selects();
}
