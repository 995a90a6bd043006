/* fork, vfork, exec. */
#define _GNU_SOURCE
#include <dirent.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>

#include "check.h"

static int echoes(int fd) {
    char byte = 0;
    return write(fd, "x", 1) == 1 && read(fd, &byte, 1) == 1 && byte == 'x';
}

static int in_child(int fd, int ep) {
    struct pollfd p = {fd, POLLIN, 0};
    struct epoll_event e = {0};
    char byte = 0;
    int nodelay = 1, copy = dup(fd), own = epoll_create1(0);
    struct sockaddr_in peer = {0};
    socklen_t len = sizeof peer;
    if (getpeername(copy, (void *)&peer, &len) || ntohs(peer.sin_port) != PORT_ECHO || len != sizeof peer) return 1;
    if (!echoes(fd) || !echoes(copy)) return 2;
    if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &nodelay, sizeof nodelay)) return 3;
    if (write(copy, "y", 1) != 1 || poll(&p, 1, 30000) != 1 || p.revents != POLLIN) return 4;
    /* The parent's instance, and its own. */
    if (epoll_wait(ep, &e, 1, 30000) != 1 || e.events != EPOLLIN || e.data.fd != fd) return 5;
    fd_set set;
    FD_ZERO(&set);
    FD_SET(fd, &set);
    if (select(fd + 1, &set, 0, 0, 0) != 1) return 8;
    e = (struct epoll_event){.events = EPOLLIN};
    if (epoll_ctl(own, EPOLL_CTL_ADD, copy, &e) || epoll_wait(own, &e, 1, 30000) != 1) return 9;
    if (accept(fd, 0, 0) != -1 || errno != EINVAL) return 10;
    if (fcntl(fd, F_SETFD, FD_CLOEXEC) || fcntl(copy, F_GETFD) != 0) return 11;
    if (read(fd, &byte, 1) != 1 || byte != 'y') return 12;
    if (recv(fd, &byte, 1, MSG_DONTWAIT) != -1 || errno != EAGAIN) return 13;
    if (close(fd) || close(ep)) return 6;
    /* One of its own. */
    struct sockaddr_in here = address_of("127.0.0.1", 0);
    int server = socket(AF_INET, SOCK_STREAM, 0);
    return bind(server, (void *)&here, sizeof here) || listen(server, 1) ? 7 : 0;
}

static void forks(void) {
    int status = -1, fd = connected(PORT_ECHO), ep = epoll_create1(0);
    struct epoll_event e = {.events = EPOLLIN, .data.fd = fd};
    CHECK(epoll_ctl(ep, EPOLL_CTL_ADD, fd, &e) == 0);
    pid_t child = fork();
    if (child == 0) _exit(in_child(fd, ep));
    CHECK(waitpid(child, &status, 0) == child);
    if (status) printf("FAIL child: status %x\n", status), failures++;
    CHECK(echoes(fd)); /* the parent's goes on */
    child = fork();
    if (child == 0) exit(0); /* with the exit handlers */
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(echoes(fd));
    CHECK(write(fd, "y", 1) == 1 && epoll_wait(ep, &e, 1, 30000) == 1);
    close(fd), close(ep);
}

/* Children that no handler of pthread_atfork is run for. */
static int bare_child(void *fd) {
    char name[300], target[64];
    if (!echoes(*(int *)fd)) return 1;
    /* The link ends with the parent. */
    DIR *folder = opendir("/proc/self/fd");
    for (struct dirent *entry; (entry = readdir(folder));) {
        snprintf(name, sizeof name, "/proc/self/fd/%s", entry->d_name);
        ssize_t len = readlink(name, target, sizeof target - 1);
        if (len > 0 && (target[len] = 0, strstr(target, "/tun"))) return 2;
    }
    /* Locks are free. */
    int own = socket(AF_INET, SOCK_STREAM, 0), copy = dup(own);
    return close(own) || close(copy) || close(*(int *)fd) ? 3 : 0;
}

static void forks_barely(void) {
    static char stack[1 << 16] __attribute__((aligned(16)));
    struct clone_args wanted = {.exit_signal = SIGCHLD};
    int status, fd = connected(PORT_ECHO);
    for (int how = 0; how < 4; how++) {
        pid_t child = how == 0 ? _Fork()
            : how == 1 ? syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0)
            : how == 2 ? syscall(SYS_clone3, &wanted, sizeof wanted)
                       : clone(bare_child, stack + sizeof stack, SIGCHLD, &fd);
        if (child == 0) _exit(bare_child(&fd));
        status = -1;
        CHECK(child > 0 && waitpid(child, &status, 0) == child);
        if (status) printf("FAIL bare child %d: status %x\n", how, status), failures++;
        CHECK(echoes(fd));
    }
    close(fd);
}

static volatile int over;

static void ends_it(int signal) { over = 1; }

/* A child that uses what cannot be shared, and does not listen to what it is told: how often it asks in a third of a second. */
static int asks(int how, int fd, int ep) {
    struct sigaction action = {.sa_handler = ends_it};
    struct itimerval third = {{0, 0}, {0, 333333}};
    struct pollfd p = {fd, POLLIN, 0}, q = {ep, POLLIN, 0};
    struct epoll_event e;
    fd_set set;
    char byte;
    int count = 0;
    sigaction(SIGALRM, &action, 0);
    setitimer(ITIMER_REAL, &third, 0);
    for (over = 0; !over && count < 2000; count++) {
        FD_ZERO(&set);
        FD_SET(fd, &set);
        if (how == 0) read(fd, &byte, 1);
        if (how == 1) poll(&p, 1, -1);
        if (how == 2) select(fd + 1, &set, 0, 0, 0);
        if (how == 3) epoll_wait(ep, &e, 1, -1);
        if (how == 4) poll(&q, 1, -1);
        if (how == 5) epoll_ctl(ep, EPOLL_CTL_ADD, fd, &e);
    }
    return count;
}

static void asks_for_ever(void) {
    /* A stream without a peer is not shared. */
    int status, fd = socket(AF_INET, SOCK_STREAM, 0), ep = epoll_create1(0);
    struct sockaddr_in any = address_of("0.0.0.0", 0);
    struct epoll_event e = {.events = EPOLLIN};
    CHECK(bind(fd, (void *)&any, sizeof any) == 0);
    CHECK(epoll_ctl(ep, EPOLL_CTL_ADD, fd, &e) == 0);
    for (int how = 0; on_netchan && how < 6; how++) {
        pid_t child = fork();
        if (child == 0) _exit(asks(how, fd, ep) >= 1000);
        status = -1;
        CHECK(waitpid(child, &status, 0) == child);
        if (status) printf("FAIL asks in way %d: status %x\n", how, status), failures++;
    }
    close(fd), close(ep);
}

static int came, went;
static void comes(int signal) { came += signal == SIGINT; }
static void goes(int signal) { went += signal == SIGINT; }

static void vforks(void) {
    int status = -1, fd = connected(PORT_ECHO), ends[2];
    CHECK(pipe(ends) == 0);
    CHECK(signal(SIGINT, comes) == SIG_DFL);
    pid_t child = vfork();
    if (child == 0) {
        signal(SIGINT, goes); /* its own, as its numbers */
        signal(SIGINT, SIG_DFL);
        dup2(fd, 250);
        dup2(ends[1], fd); /* the child's numbers, the parent's memory */
        close(fd);
        close_range(3, 1000, 0);
        execl("/bin/true", "true", (char *)0);
        _exit(9);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(echoes(fd));
    FAILS(EBADF, write(250, "x", 1));
    raise(SIGINT);
    CHECK(came == 1 && went == 0 && signal(SIGINT, SIG_DFL) == comes);
    close(fd), close(ends[0]), close(ends[1]);
}

static void execs(void) {
    int fd = connected(PORT_ECHO);
    char command[200];
    /* What an exec'd program finds under the number is a socket that is connected to nothing. */
    snprintf(command, sizeof command, "test -S /proc/self/fd/%d && ! cat <&%d 2>/dev/null", fd, fd);
    if (on_netchan) CHECK(system(command) == 0);
    CHECK(echoes(fd));
    FILE *pipe = popen("echo hello", "r");
    char line[16] = "";
    CHECK(pipe && fgets(line, sizeof line, pipe) && strcmp(line, "hello\n") == 0 && pclose(pipe) == 0);
    CHECK(echoes(fd));
    close(fd);
}

/* What a child writes before it ends. */
static int writes_lines(void (*become)(void), const char *wanted) {
    char text[64] = "";
    size_t len = 0;
    int ends[2], status = -1;
    if (pipe(ends)) return 0;
    pid_t child = vfork();
    if (child == 0) {
        dup2(ends[1], 1);
        become();
        _exit(9);
    }
    close(ends[1]);
    for (ssize_t n; len < sizeof text - 1 && (n = read(ends[0], text + len, sizeof text - 1 - len)) > 0;) len += n;
    close(ends[0]);
    return waitpid(child, &status, 0) == child && status == 0 && strcmp(text, wanted) == 0;
}

static void lists_one(void) { execl("/bin/echo", "echo", (char *)0); }
static void lists_many(void) { execl("/bin/echo", "echo", "1", "2", "3", "4", "5", "6", "7", "8", "9", (char *)0); }
static void lists_five(void) { execlp("echo", "echo", "1", "2", "3", (char *)0); }
static void lists_a_few_more(void) { execlp("echo", "echo", "1", "2", "3", "4", "5", "6", (char *)0); }
static void with_environment(void) {
    char *const environment[] = {"A=b", 0};
    execle("/bin/sh", "sh", "-c", "echo $A $*", "sh", "1", "2", "3", "4", "5", "6", (char *)0, environment);
}
static void with_environment_alone(void) {
    char *const environment[] = {"C=d", 0};
    execle("/usr/bin/env", "env", (char *)0, environment);
}

/* execl and its like. */
static void lists(void) {
    int fd = connected(PORT_ECHO);
    CHECK(writes_lines(lists_one, "\n"));
    CHECK(writes_lines(lists_many, "1 2 3 4 5 6 7 8 9\n"));
    CHECK(writes_lines(lists_five, "1 2 3\n"));
    CHECK(writes_lines(lists_a_few_more, "1 2 3 4 5 6\n"));
    CHECK(writes_lines(with_environment, "b 1 2 3 4 5 6\n"));
    CHECK(writes_lines(with_environment_alone, "C=d\n"));
    FAILS(ENOENT, execl("/nothing", "a", "b", "c", "d", "e", "f", "g", "h", (char *)0));
    FAILS(ENOENT, execlp("nothing-there", "a", (char *)0));
    FAILS(ENOENT, execle("/nothing", "a", "b", (char *)0, environ));
    CHECK(echoes(fd));
    close(fd);
}

void check_processes(void) {
    forks();
    forks_barely();
    asks_for_ever();
    vforks();
    execs();
    lists();
}
