/* Handlers: netchan's threads leave them alone, calls let them in between, and what they call works. */
#define _GNU_SOURCE
#include <dirent.h>
#include <setjmp.h>
#include <signal.h>
#include <net/if.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <time.h>
#include <sys/uio.h>

#include "check.h"

static int echoes(int fd) {
    char byte = 0;
    return write(fd, "x", 1) == 1 && read(fd, &byte, 1) == 1 && byte == 'x';
}

/* How many threads are netchan's. Each blocks all signals. */
static int threads_of_netchan(void) {
    struct dirent *entry;
    DIR *tasks = opendir("/proc/self/task");
    int seen = 0;
    while ((entry = readdir(tasks))) {
        char path[300], line[200], name[32] = "";
        unsigned long long blocked = 0;
        snprintf(path, sizeof path, "/proc/self/task/%s/status", entry->d_name);
        FILE *status = entry->d_name[0] == '.' ? 0 : fopen(path, "r");
        while (status && fgets(line, sizeof line, status)) {
            sscanf(line, "Name: %31s", name);
            sscanf(line, "SigBlk: %llx", &blocked);
        }
        if (status) fclose(status);
        if (strncmp(name, "netchan-", 8)) continue;
        seen++;
        /* All but KILL, STOP and the two that the C library keeps to itself. */
        if ((blocked | 0x180040100ULL) != ~0ULL)
            printf("FAIL %s blocks only %llx\n", name, blocked), failures++;
    }
    closedir(tasks);
    return seen;
}

/* A signal that the program blocks stays pending, whatever threads there are beside the program's. */
static void blocked_signals_stay_pending(void) {
    sigset_t one, pending;
    int fd = connected(PORT_ECHO);
    /* A thread takes its name when it first runs: on a busy machine that may be later than the first echo. */
    for (int tries = 0; on_netchan && tries < 1000 && threads_of_netchan() < 3; tries++) usleep(10000);
    CHECK(!on_netchan || threads_of_netchan() >= 3);
    sigemptyset(&one), sigaddset(&one, SIGUSR2);
    CHECK(pthread_sigmask(SIG_BLOCK, &one, 0) == 0 && kill(getpid(), SIGUSR2) == 0);
    usleep(20000);
    CHECK(sigpending(&pending) == 0 && sigismember(&pending, SIGUSR2)); /* or we are dead */
    CHECK(sigwaitinfo(&one, 0) == SIGUSR2 && pthread_sigmask(SIG_UNBLOCK, &one, 0) == 0);
    close(fd);
}

static volatile sig_atomic_t came, masked;
static volatile int in_handler = -1;
static void *volatile told;

static void counts(int number) { came++; }

static void tells(int number, siginfo_t *info, void *context) {
    sigset_t now;
    came++, told = info->si_value.sival_ptr;
    pthread_sigmask(SIG_BLOCK, 0, &now);
    masked = sigismember(&now, SIGUSR2) * 2 + sigismember(&now, SIGUSR1);
    if (in_handler >= 0) masked += 4 * echoes(in_handler);
}

static void *kills(void *arg) {
    int first = getpid();
    await_sleep(&first); /* the thread that this process began with is the one that waits */
    pthread_kill(*(pthread_t *)arg, SIGUSR1);
    usleep(100000);
    return 0;
}

/* A peer's socket that says something 0.1 s after a signal came. */
static void *answers_late(void *arg) {
    for (int tries = 0; !came && tries < 30000; tries++) usleep(1000);
    usleep(100000);
    return (void *)(long)send(*(int *)arg, "x", 1, 0);
}

static void names(void) {
    struct sigaction act = {.sa_handler = counts, .sa_flags = SA_RESTART}, old = {0};
    CHECK(sigaction(SIGUSR1, 0, &old) == 0);
    CHECK(sigaction(SIGUSR1, &act, 0) == 0 && sigaction(SIGUSR1, 0, &old) == 0);
    CHECK(old.sa_handler == counts && old.sa_flags & SA_RESTART);
    CHECK(signal(SIGUSR1, SIG_IGN) == counts && signal(SIGUSR1, counts) == SIG_IGN);
    FAILS(EINVAL, sigaction(SIGKILL, &act, 0));
    CHECK(signal(SIGUSR1, SIG_DFL) == counts && sigset(SIGUSR1, counts) == SIG_DFL);
    CHECK(sigset(SIGUSR1, SIG_DFL) == counts);
}

/* With its information and its mask, also when it comes in the middle of a call; which then ends, or goes on. */
static void interrupts(void) {
    char byte = 0;
    pthread_t self = pthread_self(), killer, talker;
    int fd = connected(PORT_ECHO), other = connected(PORT_ECHO);
    struct sigaction act = {.sa_sigaction = tells, .sa_flags = SA_SIGINFO};
    sigaddset(&act.sa_mask, SIGUSR2);
    CHECK(sigaction(SIGUSR1, &act, 0) == 0);
    came = masked = 0, in_handler = other;
    pthread_create(&killer, 0, kills, &self);
    FAILS(EINTR, read(fd, &byte, 1));
    CHECK(came == 1 && masked == 7);
    pthread_join(killer, 0);
    union sigval value = {.sival_ptr = &byte};
    in_handler = -1;
    CHECK(sigqueue(getpid(), SIGUSR1, value) == 0 && came == 2 && told == &byte && masked == 3);
    act.sa_flags |= SA_RESTART;
    CHECK(sigaction(SIGUSR1, &act, 0) == 0);
    came = 0;
    pthread_create(&killer, 0, kills, &self), pthread_create(&talker, 0, answers_late, &fd);
    CHECK(recv(fd, &byte, 1, 0) == 1 && byte == 'x' && came == 1);
    pthread_join(killer, 0), pthread_join(talker, 0);
    /* One with a limit of time ends all the same. */
    struct timeval limit = {30, 0};
    CHECK(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0);
    pthread_create(&killer, 0, kills, &self);
    FAILS(EINTR, read(fd, &byte, 1));
    pthread_join(killer, 0);
    /* And poll. */
    struct pollfd p = {fd, POLLIN, 0};
    pthread_create(&killer, 0, kills, &self);
    FAILS(EINTR, poll(&p, 1, 30000));
    pthread_join(killer, 0);
    /* A mask for the wait alone: what is pending ends it. */
    sigset_t one, none;
    sigemptyset(&none), sigemptyset(&one), sigaddset(&one, SIGUSR1);
    CHECK(pthread_sigmask(SIG_BLOCK, &one, 0) == 0 && raise(SIGUSR1) == 0);
    came = 0;
    FAILS(EINTR, ppoll(&p, 1, 0, &none));
    CHECK(came == 1 && pthread_sigmask(SIG_UNBLOCK, &one, 0) == 0);
    signal(SIGUSR1, SIG_DFL);
    close(fd), close(other);
}

static sigjmp_buf back;

static void leaves(int number) { siglongjmp(back, 1); }

/* The classic time-out: the handler does not return. */
static void jumps(void) {
    char byte;
    int fd = connected(PORT_ECHO);
    struct sigaction act = {.sa_handler = leaves};
    struct itimerval soon = {{0}, {0, 30000}};
    CHECK(sigaction(SIGALRM, &act, 0) == 0);
    for (int i = 0; i < 5; i++) {
        if (sigsetjmp(back, 1) == 0) {
            setitimer(ITIMER_REAL, &soon, 0);
            ssize_t got = i % 2 ? recv(fd, &byte, 1, 0) : poll(&(struct pollfd){fd, POLLIN, 0}, 1, -1);
            printf("FAIL a wait came back: %zd\n", got), failures++;
        }
        CHECK(echoes(fd));
    }
    close(fd);
    signal(SIGALRM, SIG_DFL);
    alarm(60);
}

/* Every function, from the program and from a handler that comes in between. */
static int stream[2], packets[2], watch[2], listeners[2], zero;

static void call(int which, int side) {
    char data[64] = "0123456789";
    int fd = stream[side], udp = packets[side], on = 1, flags = MSG_DONTWAIT | MSG_NOSIGNAL;
    struct sockaddr_in to = address_of(peer_ip, PORT_ECHO);
    struct sockaddr_storage name;
    socklen_t len = sizeof name;
    struct iovec vector = {data, 8};
    struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1};
    struct mmsghdr many = {message, 0};
    struct pollfd p = {fd, POLLIN | POLLOUT, 0};
    struct timespec now = {0};
    struct timeval none = {0};
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT};
    fd_set set;
    FD_ZERO(&set); FD_SET(fd, &set);
    switch (which) {
    case 0: send(fd, data, 8, flags); break;
    case 1: recv(fd, data, 64, flags); break;
    case 2: sendto(udp, data, 8, flags, (void *)&to, sizeof to); break;
    case 3: recvfrom(udp, data, 64, flags, (void *)&name, &len); break;
    case 4: sendmsg(fd, &message, flags); break;
    case 5: recvmsg(fd, &message, flags); break;
    case 6: sendmmsg(udp, &many, 1, flags); break;
    case 7: recvmmsg(udp, &many, 1, flags, 0); break;
    case 8: write(fd, data, 4); break;
    case 9: recv(fd, data, 64, flags), read(fd, data, 0); break;
    case 10: writev(fd, &vector, 1); break;
    case 11: readv(udp, &vector, 1); break;
    case 12: poll(&p, 1, 0); break;
    case 13: ppoll(&p, 1, &now, 0); break;
    case 14: select(fd + 1, &set, 0, 0, &none); break;
    case 15: pselect(fd + 1, &set, 0, 0, &now, 0); break;
    case 16: epoll_wait(watch[side], &event, 1, 0); break;
    case 17: epoll_pwait(watch[side], &event, 1, 0, 0); break;
    case 18: epoll_ctl(watch[side], EPOLL_CTL_MOD, fd, &event); break;
    case 19: close(epoll_create1(0)); break;
    case 20: close(socket(AF_INET, SOCK_STREAM, 0)); break;
    case 21: getsockname(fd, (void *)&name, &len), getpeername(fd, (void *)&name, &len); break;
    case 22: getsockopt(fd, SOL_SOCKET, SO_ERROR, &on, &len); break;
    case 23: setsockopt(fd, IPPROTO_TCP, 1 /* TCP_NODELAY */, &on, sizeof on); break;
    case 24: ioctl(fd, FIONREAD, &on); break;
    case 25: fcntl(fd, F_GETFL); break;
    case 26: close(dup(fd)); break;
    case 27: dup2(fd, 320 + side), close(320 + side); break;
    case 28: accept(listeners[side], 0, 0); break;
    case 29: listen(listeners[side], 2); break;
    case 30: {
        int other = socket(AF_INET, SOCK_DGRAM, 0);
        connect(other, (void *)&to, sizeof to), shutdown(other, SHUT_RD), close(other);
        break;
    }
    case 31: accept4(listeners[side], 0, 0, SOCK_CLOEXEC); break;
    case 32: {
        int other = socket(AF_INET, SOCK_DGRAM, 0);
        to.sin_addr.s_addr = INADDR_ANY, to.sin_port = 0;
        bind(other, (void *)&to, sizeof to), close_range(other, other, 0);
        break;
    }
    case 33: dup3(fd, 322 + side, O_CLOEXEC), close(322 + side); break;
    case 34: epoll_pwait2(watch[side], &event, 1, &now, 0); break;
    case 35: close(epoll_create(1)), close(eventfd(0, 0)), close(timerfd_create(CLOCK_MONOTONIC, 0)); break;
    case 36: close(open("/dev/null", O_RDONLY)), close(openat(AT_FDCWD, "/dev/null", O_RDONLY)); break;
    case 37: {
        int both[2];
        if (socketpair(AF_UNIX, SOCK_STREAM, 0, both) == 0) close(both[0]), close(both[1]);
        if (pipe(both) == 0) close(both[0]), close(both[1]);
        break;
    }
    case 38: sendfile(fd, zero, 0, 100); break;
    case 39: {
        int both[2];
        if (pipe2(both, O_NONBLOCK)) break;
        if (write(both[1], data, 10) == 10) splice(both[0], 0, fd, 0, 10, SPLICE_F_NONBLOCK);
        splice(fd, 0, both[1], 0, 10, SPLICE_F_NONBLOCK);
        close(both[0]), close(both[1]);
        break;
    }
    case 40: {
        struct sigaction old;
        sigaction(SIGUSR2, 0, &old), sigaction(SIGUSR2, &old, 0), signal(SIGUSR2, SIG_IGN);
        break;
    }
    case 41: syscall(SYS_sendto, fd, data, 8, flags, 0, 0), syscall(SYS_recvfrom, fd, data, 64, flags, 0, 0); break;
    case 42: fileno(stdin), if_nametoindex("nc0"), if_indextoname(1, data); break;
    case 43: {
        pid_t child = _Fork(); /* fork() takes the C library's locks, which a handler may not wait for */
        if (child == 0) send(fd, data, 1, flags), _exit(0);
        waitpid(child, 0, 0);
        break;
    }
    }
}
enum { CALLS = 44 };

static volatile int handled;

static void calls_all(int number) {
    int before = errno;
    call(handled++ % CALLS, handled / CALLS & 1);
    errno = before;
}

static void handler_calls(void) {
    struct sockaddr_in any = {.sin_family = AF_INET}, to = address_of(peer_ip, PORT_ECHO);
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT};
    struct itimerval often = {{0, 300}, {0, 300}}, never = {{0}};
    for (int i = 0; i < 2; i++) {
        stream[i] = connected(PORT_SILENT);
        nonblocking(stream[i]);
        packets[i] = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0);
        CHECK(connect(packets[i], (void *)&to, sizeof to) == 0);
        watch[i] = epoll_create1(0);
        CHECK(epoll_ctl(watch[i], EPOLL_CTL_ADD, stream[i], &event) == 0);
        listeners[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        CHECK(bind(listeners[i], (void *)&any, sizeof any) == 0 && listen(listeners[i], 2) == 0);
    }
    zero = open("/dev/zero", O_RDONLY);
    struct sigaction act = {.sa_handler = calls_all, .sa_flags = SA_RESTART};
    CHECK(sigaction(SIGALRM, &act, 0) == 0);
    handled = 0;
    setitimer(ITIMER_REAL, &often, 0);
    /* As many rounds as it takes: a fast machine gets through a hundred before the timer has come two hundred times. */
    for (time_t end = time(0) + 30; handled < 1000 && time(0) < end;)
        for (int i = 0; i < CALLS; i++) {
            for (int n = 0; n < 30; n++) call(i, n & 1);
            pid_t child = fork(); /* in between comes _Fork */
            if (child == 0) _exit(0);
            waitpid(child, 0, 0);
        }
    setitimer(ITIMER_REAL, &never, 0);
    signal(SIGALRM, SIG_DFL);
    alarm(60);
    CHECK(handled >= 1000);
    for (int i = 0; i < 2; i++) close(stream[i]), close(packets[i]), close(watch[i]), close(listeners[i]);
    close(zero);
    int fd = connected(PORT_ECHO);
    CHECK(echoes(fd));
    close(fd);
}

void check_signals(void) {
    blocked_signals_stay_pending();
    names();
    interrupts();
    jumps();
    handler_calls();
}
