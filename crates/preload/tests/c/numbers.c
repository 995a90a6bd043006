/* Numbers: netchan's own are out of reach, what fails changes nothing, and what was closed unseen is not believed. */
#define _GNU_SOURCE
#include <signal.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "check.h"

static int echoes(int fd) {
    char byte = 0;
    return write(fd, "x", 1) == 1 && read(fd, &byte, 1) == 1 && byte == 'x';
}

static int scratch_file(void) {
    char name[] = "numbers-XXXXXX";
    int fd = mkstemp(name);
    unlink(name);
    return fd;
}

static int holds_only(int file, const char *wanted) {
    char data[4096] = "";
    ssize_t len = pread(file, data, sizeof data, 0);
    return len == (ssize_t)strlen(wanted) && memcmp(data, wanted, len) == 0;
}

static void fail_without_effect(void) {
    int fd = connected(PORT_ECHO), file = scratch_file();
    FAILS(EINVAL, dup3(file, fd, 0x1234));
    CHECK(echoes(fd));
    FAILS(EINVAL, close_range(fd, fd, 1 << 9));
    FAILS(EINVAL, close_range(fd, fd - 1, 0));
    FAILS(EBADF, dup2(-1, fd));
    FAILS(EBADF, dup2(999, fd));
    FAILS(EBADF, dup2(fd, 1 << 30));
    FAILS(EINVAL, syscall(SYS_close_range, fd, fd, 1 << 9));
    CHECK(echoes(fd));
    close(fd), close(file);
}

enum { ALL = 18000 };

/* A program closes all that it does not know, then opens files: no frame of ours ends up there. */
static void close_all(int how) {
    int fd = dup2(connected(PORT_ECHO), 30), files[40];
    if (how == 0) for (int i = 3; i < ALL; i++) i == fd || close(i);
    if (how == 1) close_range(3, fd - 1, 0), close_range(fd + 1, ~0U, 0);
    if (how == 2) closefrom(fd + 1);
    if (how == 3) for (int i = 3; i < ALL; i++) i == fd || syscall(SYS_close, i);
    if (how == 4) syscall(SYS_close_range, fd + 1, ~0U, 0);
    if (how == 5) for (int i = 1000; i < 1800; i++) i == fd || dup2(fd, i);
    if (how == 5) for (int i = 16000; i < ALL; i++) dup2(fd, i);
    if (how == 5) close_range(fd + 1, ~0U, 0);
    for (int i = 0; i < 40; i++) CHECK((files[i] = scratch_file()) >= 0 && write(files[i], "text", 4) == 4);
    for (int i = 0; i < 20; i++) CHECK(echoes(fd));
    int more = connected(PORT_ECHO);
    CHECK(echoes(more));
    for (int i = 0; i < 40; i++) CHECK(holds_only(files[i], "text") && close(files[i]) == 0);
    close(fd), close(more);
}

static long bare(long number, long a, long b, long c) {
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
    return result;
}

/* A number that was closed where nobody saw it, and is a file now. */
static void closed_unseen(void) {
    char data[8] = "";
    int fd = connected(PORT_ECHO);
    CHECK(syscall(SYS_close, fd) == 0);
    FAILS(EBADF, write(fd, "x", 1));
    int file = scratch_file();
    CHECK(file == fd && write(file, "text", 4) == 4 && lseek(file, 0, SEEK_SET) == 0);
    CHECK(read(file, data, 8) == 4 && read(file, data, 8) == 0);
    close(file);
    /* Beside the C library as well. */
    fd = connected(PORT_ECHO);
    CHECK(bare(SYS_close, fd, 0, 0) == 0);
    int ends[2];
    CHECK(pipe(ends) == 0 && (ends[0] == fd || ends[1] == fd));
    CHECK(write(ends[1], "pipe", 4) == 4 && read(ends[0], data, 8) == 4);
    close(ends[0]), close(ends[1]);
    /* And where the number is given out beside it, too: at the end of the stream it is found out. */
    fd = connected(PORT_ECHO);
    CHECK(shutdown(fd, SHUT_WR) == 0 && read(fd, data, 8) == 0);
    CHECK(bare(SYS_close, fd, 0, 0) == 0);
    CHECK(bare(SYS_open, (long)"/dev/zero", O_RDWR, 0) == fd);
    CHECK(read(fd, data, 8) == 8 && write(fd, data, 8) == 8);
    close(fd);
    fd = connected(PORT_ECHO);
    CHECK(shutdown(fd, SHUT_WR) == 0 && bare(SYS_close, fd, 0, 0) == 0);
    FAILS(EBADF, write(fd, "x", 1)); /* and no SIGPIPE */
    CHECK(bare(SYS_open, (long)"/dev/zero", O_RDWR, 0) == fd);
    CHECK(read(fd, data, 8) == 8);
    close(fd);
}

/* The kernel's select has another signature than the C library's functions, and reads the time itself. */
static void selects_by_number(void) {
    int fd = connected(PORT_ECHO);
    fd_set reads, none;
    void *nowhere = mmap(0, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    FD_ZERO(&none);
    FAILS(EFAULT, syscall(SYS_select, 1, &none, 0, 0, nowhere));
    FAILS(EFAULT, syscall(SYS_pselect6, 1, &none, 0, 0, nowhere, 0));
    munmap(nowhere, 4096);
    struct timeval time = {.tv_sec = 5};
    struct timespec exact = {.tv_sec = 5};
    sigset_t no_signals;
    struct {
        const sigset_t *set;
        size_t len;
    } mask = {&no_signals, 8};
    sigemptyset(&no_signals);
    CHECK(syscall(SYS_write, fd, "select", 6) == 6);
    FD_ZERO(&reads);
    FD_SET(fd, &reads);
    CHECK(syscall(SYS_select, fd + 1, &reads, 0, 0, &time) == 1 && FD_ISSET(fd, &reads));
    CHECK(syscall(SYS_pselect6, fd + 1, &reads, 0, 0, &exact, &mask) == 1 && FD_ISSET(fd, &reads));
    CHECK(exact.tv_sec >= 4 && exact.tv_sec <= 5);
    char data[8];
    CHECK(read(fd, data, 8) == 6);
    exact = (struct timespec){.tv_nsec = 1000000};
    CHECK(syscall(SYS_pselect6, fd + 1, &reads, 0, 0, &exact, 0) == 0 && !exact.tv_sec && !exact.tv_nsec);
    close(fd);
}

/* What libuv and others call by number. */
static void by_number(void) {
    char data[8];
    struct sockaddr_in to = address_of(peer_ip, PORT_ECHO);
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = 7};
    int fd = syscall(SYS_socket, AF_INET, SOCK_STREAM, 0), ep = syscall(SYS_epoll_create1, 0);
    CHECK(syscall(SYS_connect, fd, &to, sizeof to) == 0);
    struct sockaddr_in name;
    socklen_t len = sizeof name;
    CHECK(getsockname(fd, (void *)&name, &len) == 0);
    CHECK(!on_netchan || name.sin_addr.s_addr == inet_addr("10.77.0.2"));
    CHECK(syscall(SYS_epoll_ctl, ep, EPOLL_CTL_ADD, fd, &event) == 0);
    CHECK(syscall(SYS_write, fd, "number", 6) == 6);
    CHECK(syscall(SYS_epoll_pwait, ep, &event, 1, 5000, 0, 8) == 1 && event.data.u32 == 7);
    CHECK(syscall(SYS_recvfrom, fd, data, 8, MSG_PEEK, 0, 0) == 6 && syscall(SYS_read, fd, data, 8) == 6);
    int copy = syscall(SYS_dup, fd), high = syscall(SYS_fcntl, fd, F_DUPFD_CLOEXEC, 100);
    CHECK(syscall(SYS_close, fd) == 0 && echoes(copy) && echoes(high));
    CHECK(syscall(SYS_dup3, copy, 102, 0) == 102 && syscall(SYS_close_range, copy, copy, 0) == 0 && echoes(102));
    FAILS(EBADF, syscall(SYS_write, copy, "x", 1));
    if (on_netchan) FAILS(ENOSYS, syscall(425 /* io_uring_setup */, 8, 0));
    CHECK(syscall(SYS_getpid) == getpid() && syscall(SYS_gettid) > 0);
    selects_by_number();
    FAILS(EBADF, syscall(SYS_read, -1, data, 8));
    close(high), close(102), close(ep);
}

static volatile int stop;

static void *streams(void *arg) {
    while (!stop) {
        int fd = dup(*(int *)arg);
        FILE *stream = fdopen(fd, "r");
        fileno(stream), fclose(stream);
    }
    return 0;
}

/* No lock of ours is left locked in a child. */
static void forks_meanwhile(void) {
    pthread_t threads[3];
    int fd = connected(PORT_ECHO), status;
    stop = 0;
    for (int i = 0; i < 3; i++) pthread_create(&threads[i], 0, streams, &fd);
    for (int i = 0; i < 60; i++) {
        pid_t child = fork();
        if (child == 0) {
            alarm(10);
            _exit(fileno(stdin) != 0 || close(fd) != 0);
        }
        CHECK(waitpid(child, &status, 0) == child && status == 0);
    }
    stop = 1;
    for (int i = 0; i < 3; i++) pthread_join(threads[i], 0);
    CHECK(echoes(fd));
    close(fd);
}

static int ready[2], late;

/* A thread that has never waited: it has nothing yet of what a wait needs. */
static void *waits_first(void *arg) {
    char byte;
    struct pollfd p = {ready[0], POLLIN, 0};
    struct epoll_event event;
    struct sockaddr_in to = address_of(peer_ip, PORT_ECHO);
    switch ((long)arg) {
    case 0: CHECK(echoes(ready[0])); break;
    case 1: CHECK(write(ready[0], "x", 1) == 1 && poll(&p, 1, 30000) == 1 && read(ready[0], &byte, 1) == 1); break;
    case 2: CHECK(write(ready[0], "x", 1) == 1 && epoll_wait(ready[1], &event, 1, 30000) == 1 && read(ready[0], &byte, 1) == 1); break;
    case 3: CHECK(connect(late, (void *)&to, sizeof to) == 0 && echoes(late)); break;
    }
    return 0;
}

/* No number is left: only what makes one fails. */
static void exhausted(int hard) {
    struct rlimit before, tight;
    struct epoll_event event = {.events = EPOLLIN};
    struct sockaddr_in any = {.sin_family = AF_INET};
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    ready[0] = connected(PORT_ECHO), ready[1] = epoll_create1(0), late = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(epoll_ctl(ready[1], EPOLL_CTL_ADD, ready[0], &event) == 0);
    CHECK(bind(listener, (void *)&any, sizeof any) == 0 && listen(listener, 1) == 0);
    CHECK(getrlimit(RLIMIT_NOFILE, &before) == 0);
    tight = before;
    tight.rlim_cur = 100;
    if (hard) tight.rlim_max = 100;
    CHECK(setrlimit(RLIMIT_NOFILE, &tight) == 0);
    int first = dup(0), last = first;
    while (last >= 0) last = dup(0);
    CHECK(last == -1);
    for (long i = 0; i < 4; i++) {
        pthread_t thread;
        pthread_create(&thread, 0, waits_first, (void *)i);
        pthread_join(thread, 0);
    }
    FAILS(EMFILE, socket(AF_INET, SOCK_STREAM, 0));
    FAILS(EMFILE, dup(ready[0]));
    FAILS(EMFILE, epoll_create1(0));
    CHECK(getrlimit(RLIMIT_NOFILE, &tight) == 0 && tight.rlim_cur == 100);
    close_range(first, 99, 0); /* what stands above `first` is the filling, and perhaps ours */
    setrlimit(RLIMIT_NOFILE, &before);
}

void check_numbers(void) {
    fail_without_effect();
    for (int how = 0; how < 6; how++) close_all(how);
    closed_unseen();
    by_number();
    forks_meanwhile();
}

void check_exhausted(void) { exhausted(0); }
void check_exhausted_hard(void) { exhausted(1); }

/* Before any stack: a vfork child closes its copy. */
void check_vfork_first(void) {
    struct sockaddr_in to = address_of(peer_ip, PORT_ECHO), name;
    socklen_t len = sizeof name;
    int status, fd = socket(AF_INET, SOCK_STREAM, 0);
    pid_t child = vfork();
    if (child == 0) {
        close(fd);
        close_range(3, 100, 0);
        execl("/bin/true", "true", (char *)0);
        _exit(9);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(connect(fd, (void *)&to, sizeof to) == 0 && echoes(fd));
    CHECK(getsockname(fd, (void *)&name, &len) == 0);
    CHECK(!on_netchan || name.sin_addr.s_addr == inet_addr("10.77.0.2"));
    close(fd);
}

/* Before any stack: a forked child makes its own. */
void check_fork_first(void) {
    int status, fd = socket(AF_INET, SOCK_STREAM, 0);
    pid_t child = fork();
    if (child == 0) {
        struct sockaddr_in to = address_of(peer_ip, PORT_ECHO), name;
        socklen_t len = sizeof name;
        int bad = connect(fd, (void *)&to, sizeof to) || !echoes(fd) || getsockname(fd, (void *)&name, &len);
        _exit(bad || (on_netchan && name.sin_addr.s_addr != inet_addr("10.77.0.2")));
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    close(fd);
}

/* Leaves a child behind, which has no part in the link: another stack can have it at once. */
void check_leaves_child(void) {
    int fd = connected(PORT_ECHO);
    CHECK(echoes(fd));
    if (fork() == 0) {
        close(fd), close(1), close(2);
        sleep(20);
        _exit(0);
    }
}

extern void count_from_now(void) __attribute__((weak));
extern long count_so_far(void) __attribute__((weak));

static void *echoes_too(void *fd) { return (void *)(long)echoes(*(int *)fd); }

/* What netchan calls for itself goes to the kernel, not to the functions that it serves to the program. */
void check_counts(void) {
    int listener = socket(AF_INET, SOCK_STREAM, 0), fd = connected(PORT_ECHO), ep = epoll_create1(0);
    struct sockaddr_in any = {.sin_family = AF_INET}, to = address_of(peer_ip, PORT_ECHO);
    struct epoll_event event = {.events = EPOLLIN};
    char data[16];
    CHECK(echoes(fd) && count_from_now);
    if (!count_from_now) return;
    count_from_now();
    for (int i = 0; i < 20; i++) CHECK(echoes(fd));
    int udp = socket(AF_INET, SOCK_DGRAM, 0), more = connected(PORT_ECHO);
    struct pollfd both[] = {{fd, POLLIN, 0}, {more, POLLIN, 0}, {0, 0, 0}};
    CHECK(sendto(udp, "hello", 5, 0, (void *)&to, sizeof to) == 5);
    CHECK(epoll_ctl(ep, EPOLL_CTL_ADD, fd, &event) == 0 && epoll_wait(ep, &event, 1, 50) == 0);
    CHECK(write(fd, "x", 1) == 1 && epoll_wait(ep, &event, 1, 30000) == 1);
    CHECK(poll(both, 3, 30000) == 1 && read(fd, data, 16) == 1 && poll(both, 3, 30) == 0);
    CHECK(bind(listener, (void *)&any, sizeof any) == 0 && listen(listener, 3) == 0);
    nonblocking(listener);
    FAILS(EAGAIN, accept(listener, 0, 0));
    pthread_t thread;
    void *echoed = 0;
    pthread_create(&thread, 0, echoes_too, &more); /* makes what a thread needs to wait */
    pthread_join(thread, &echoed);
    CHECK(echoed && shutdown(more, SHUT_WR) == 0 && read(more, data, 16) == 0);
    close(more), close(udp), close(listener), close(ep), close(fd);
    CHECK(count_so_far() == 0);
}
