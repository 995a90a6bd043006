/* Random sequences of what a program does with processes, threads, signals and descriptors while it has sockets, and what came of each: a line
   each. The same sequences run on the kernel's sockets and on netchan's. Usage: process_sequences SEED FIRST COUNT ADDRESS; PORT_ECHO and
   PORT_SILENT must serve there. Descriptors live at numbers from LOW on, whatever the library keeps for itself. */
#define _GNU_SOURCE
#include <sched.h>
#include <spawn.h>
#include <stdarg.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#include "peer.h"

#define LOW 400
#define NUMBERS 8
#define STEPS 24

extern char **environ;

static struct sockaddr_in service;
static uint64_t state;
static int sequence, step;
static volatile sig_atomic_t handled, handled_elsewhere;
static pthread_t main_thread, waiting_thread;

static uint32_t draw(uint32_t below) {
    uint64_t z = state += 0x9e3779b97f4a7c15; /* splitmix64 */
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return (uint32_t)((z ^ (z >> 31)) >> 32) % below;
}

static void say(const char *format, ...) {
    va_list args;
    va_start(args, format);
    printf("%d.%d ", sequence, step++);
    vprintf(format, args);
    putchar('\n');
    va_end(args);
    fflush(stdout);
}

static int number(void) { return LOW + draw(NUMBERS); }
static int said(int n) { return n - LOW; }

static const char *answer(long result) {
    static char text[2][32];
    static int turn;
    char *into = text[turn ^= 1];
    if (result == -1) snprintf(into, sizeof *text, "%s", strerrorname_np(errno));
    else snprintf(into, sizeof *text, "%ld", result);
    return into;
}

/* Seconds; a wait for something that must come has 10. */
static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + now.tv_nsec / 1e9;
}
#define AWAIT(what, limit)                                                                    \
    for (double end_ = seconds() + (limit); !(what) && seconds() < end_;) usleep(200)

/* A connection to `port`, or a datagram socket that is connected to it, under the number n. */
static int open_kind_at(int n, int port, int kind) {
    struct sockaddr_in to = service;
    struct timeval patience = {5, 0};
    int fd = socket(AF_INET, kind, 0);
    if (fd < 0) return -1;
    to.sin_port = htons(port);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    if (connect(fd, (void *)&to, sizeof to) || dup2(fd, n) != n) return -1;
    return close(fd);
}

static int open_at(int n, int port) { return open_kind_at(n, port, SOCK_STREAM); }

static void step_open(void) {
    int n = number(), datagrams = draw(3) == 0;
    const char *why = answer(open_kind_at(n, PORT_ECHO, datagrams ? SOCK_DGRAM : SOCK_STREAM));
    say("open %s%d = %s", datagrams ? "datagrams " : "", said(n), why);
}

static void step_listen(void) {
    int n = number(), fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in any = {.sin_family = AF_INET};
    int result = bind(fd, (void *)&any, sizeof any) || listen(fd, 4) || dup2(fd, n) != n || close(fd) ? -1 : 0;
    say("listener %d = %s", said(n), answer(result));
}

static void step_pipe(void) {
    int ends[2], n = number(), m = number();
    if (pipe(ends)) abort();
    dup2(ends[0], n), dup2(ends[1], m);
    close(ends[0]), close(ends[1]);
    say("pipe %d %d", said(n), said(m));
}

/* Whether what is there still works. */
static long echoes(int fd) {
    char byte = 0;
    struct pollfd p = {fd, POLLIN, 0};
    if (send(fd, "x", 1, MSG_NOSIGNAL) != 1) return -1;
    if (poll(&p, 1, 30000) != 1) return errno = ETIME, -1;
    return recv(fd, &byte, 1, 0) == 1 ? byte : -1;
}

static void step_echo(void) {
    int n = number();
    say("echo %d = %s", said(n), answer(echoes(n)));
}

static void step_all(void) {
    char text[128] = "";
    for (int n = LOW; n < LOW + NUMBERS; n++) {
        int flags = fcntl(n, F_GETFD), type = 0;
        socklen_t len = sizeof type;
        const char *kind = flags < 0 ? "-" : getsockopt(n, SOL_SOCKET, SO_TYPE, &type, &len) ? "file" : "socket";
        sprintf(text + strlen(text), " %s%s", kind, flags > 0 ? "+" : "");
    }
    say("all:%s", text);
}

static void step_dup(void) {
    static const int flags[] = {0, O_CLOEXEC, O_NONBLOCK, 7};
    int n = number(), m = draw(8) ? number() : -1, flag = flags[draw(4)];
    long result;
    switch (draw(4)) {
        case 0: say("dup2(%d, %d) = %s", said(n), said(m), answer((result = dup2(n, m)) < 0 ? -1 : said(result))); break;
        case 1: say("dup3(%d, %d, %x) = %s", said(n), said(m), flag, answer((result = dup3(n, m, flag)) < 0 ? -1 : said(result))); break;
        case 2:
            result = dup(n);
            if (result >= 0) close(result);
            say("dup(%d) = %s", said(n), result < 0 ? answer(-1) : "some");
            break;
        default: /* a number above all others, so that it is the same one everywhere */
            result = fcntl(n, flag ? F_DUPFD_CLOEXEC : F_DUPFD, LOW + NUMBERS);
            if (result >= 0) close(result);
            say("F_DUPFD(%d) = %s", said(n), answer(result));
    }
}

static void step_close(void) {
    static const unsigned flags[] = {0, 0, CLOSE_RANGE_CLOEXEC, 8, ~0u};
    int n = number(), m = number(), flag = flags[draw(5)];
    switch (draw(8)) {
        case 0: case 1: case 2: say("close(%d) = %s", said(n), answer(close(n))); break;
        case 3: closefrom(n), say("closefrom(%d)", said(n)); break;
        case 4: say("close_range(3, max, %x) = %s", flag, answer(close_range(3, ~0u, flag))); break;
        case 5: say("close(-1) = %s", answer(close(-1))); break;
        default: say("close_range(%d, %d, %x) = %s", said(n), said(m), flag, answer(close_range(n, m, flag)));
    }
}

static void on_signal(int number) {
    (void)number;
    handled++;
    if (!pthread_equal(pthread_self(), main_thread) && !pthread_equal(pthread_self(), waiting_thread)) handled_elsewhere++;
}

static void set_handler(int flags) {
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = flags};
    sigaction(SIGUSR1, &action, 0);
}

static void mask(int how) {
    sigset_t set;
    sigemptyset(&set), sigaddset(&set, SIGUSR1);
    pthread_sigmask(how, &set, 0);
}

/* To the process while every thread of the program blocks it: it waits. */
static void step_signal(void) {
    sigset_t pending;
    int blocked = draw(2), n = number();
    handled = handled_elsewhere = 0;
    set_handler(draw(2) ? SA_RESTART : 0);
    if (blocked) mask(SIG_BLOCK);
    kill(getpid(), SIGUSR1);
    if (!blocked) AWAIT(handled, 10);
    const char *why = answer(echoes(n));
    sigpending(&pending);
    int waits = sigismember(&pending, SIGUSR1), before = handled;
    mask(SIG_UNBLOCK);
    AWAIT(handled, 10);
    say("signal%s: pending %d, handled %d then %d, elsewhere %d, echo %s", blocked ? " blocked" : "", waits, before, handled, handled_elsewhere, why);
}

/* A thread that waits in a call. */
enum { IN_RECV, IN_READ, IN_POLL, IN_EPOLL, IN_ACCEPT, IN_SELECT, IN_RECVMSG, CALLS };
static const char *const call_names[] = {"recv", "read", "poll", "epoll_wait", "accept", "select", "recvmsg"};

static struct {
    int call, fd, epoll, blocked, uncancellable;
    volatile pid_t id;
    volatile int done, cleaned, error;
    long result;
} wait_;

static void clean(void *unused) {
    (void)unused;
    wait_.cleaned = 1;
}

static long call(void) {
    char byte;
    struct pollfd p = {wait_.fd, POLLIN, 0};
    struct epoll_event event;
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    fd_set set;
    FD_ZERO(&set);
    FD_SET(wait_.fd, &set);
    switch (wait_.call) {
        case IN_RECV: return recv(wait_.fd, &byte, 1, 0);
        case IN_READ: return read(wait_.fd, &byte, 1);
        case IN_POLL: return poll(&p, 1, -1);
        case IN_EPOLL: return epoll_wait(wait_.epoll, &event, 1, -1);
        case IN_ACCEPT: return accept(wait_.fd, 0, 0) < 0 ? -1 : 1;
        case IN_SELECT: return select(wait_.fd + 1, &set, 0, 0, 0);
        default: return recvmsg(wait_.fd, &message, 0);
    }
}

static void *waits(void *unused) {
    (void)unused;
    if (wait_.blocked) mask(SIG_BLOCK);
    if (wait_.uncancellable) pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, 0);
    pthread_cleanup_push(clean, 0);
    wait_.id = syscall(SYS_gettid);
    wait_.result = call();
    wait_.error = errno;
    wait_.done = 1;
    pthread_cleanup_pop(0);
    return 0;
}

/* Whether the thread has been asleep for a while. */
static int asleep(void) {
    char path[64], line[256] = "";
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", wait_.id);
    for (int seen = 0; seen < 5; seen++, usleep(400)) {
        FILE *file = fopen(path, "r");
        if (!file) return 0;
        char *told = fgets(line, sizeof line, file) ? strrchr(line, ')') : 0;
        fclose(file);
        if (!told || told[2] != 'S') return 0;
    }
    return 1;
}

static const char *happens(pthread_t thread, int event, int sender) {
    handled = handled_elsewhere = 0;
    switch (event) {
        case 0:
            pthread_kill(thread, SIGUSR1);
            AWAIT(handled || wait_.done || wait_.blocked, 10);
            AWAIT(wait_.done, 0.06);
            break;
        case 1:
            pthread_cancel(thread);
            AWAIT(wait_.done || wait_.cleaned, wait_.uncancellable ? 0.02 : 10);
            break;
        case 2: shutdown(wait_.fd, SHUT_RDWR); break;
        default: break;
    }
    if (!wait_.done && !wait_.cleaned && sender >= 0) send(sender, "x", 1, MSG_NOSIGNAL);
    else if (!wait_.done && !wait_.cleaned) {
        struct sockaddr_in here;
        socklen_t len = sizeof here;
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        getsockname(wait_.fd, (void *)&here, &len);
        here.sin_addr = service.sin_addr; /* on netchan its own address is another one */
        if (getenv("NETCHAN_OWN")) inet_pton(AF_INET, getenv("NETCHAN_OWN"), &here.sin_addr);
        connect(fd, (void *)&here, len);
        close(fd);
    }
    static const char *const names[] = {"signal", "cancel", "shutdown", "data"};
    return names[event];
}

static int waited_for(int listens) {
    struct sockaddr_in any = {.sin_family = AF_INET};
    int n = LOW + NUMBERS;
    if (!listens) return open_at(n, PORT_ECHO) ? -1 : n;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    return bind(fd, (void *)&any, sizeof any) || listen(fd, 4) || dup2(fd, n) != n || close(fd) ? -1 : n;
}

static void step_wait(void) {
    int event = draw(4), restart = draw(2), times = draw(4) == 0;
    memset(&wait_, 0, sizeof wait_);
    wait_.call = draw(CALLS), wait_.blocked = draw(4) == 0, wait_.uncancellable = draw(4) == 0;
    int listens = wait_.call == IN_ACCEPT;
    wait_.fd = waited_for(listens);
    if (wait_.fd < 0) return say("nothing to wait for: %s", answer(-1));
    struct timeval limit = {8, 0};
    if (times) setsockopt(wait_.fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    struct epoll_event interest = {.events = EPOLLIN};
    wait_.epoll = epoll_create1(EPOLL_CLOEXEC);
    epoll_ctl(wait_.epoll, EPOLL_CTL_ADD, wait_.fd, &interest);
    set_handler(restart ? SA_RESTART : 0);
    pthread_t thread;
    if (pthread_create(&thread, 0, waits, 0)) abort();
    waiting_thread = thread;
    AWAIT(wait_.id && asleep(), 10);
    const char *what = happens(thread, event, listens ? -1 : wait_.fd);
    void *end = 0;
    pthread_join(thread, &end);
    waiting_thread = main_thread;
    errno = wait_.error;
    say("%s, then %s%s%s%s%s: %s%s, handled %d, elsewhere %d", call_names[wait_.call], what, event == 0 && restart ? " SA_RESTART" : "",
        wait_.blocked ? ", blocked" : "", wait_.uncancellable ? ", uncancellable" : "", times ? ", SO_RCVTIMEO" : "",
        end == PTHREAD_CANCELED ? "canceled" : answer(wait_.result), wait_.cleaned ? ", cleaned" : "", handled, handled_elsewhere);
    close(wait_.epoll), close(wait_.fd);
}

/* What a child does; its exit status says how it went. */
static int in_child(int what, int n, int m) {
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int own;
    switch (what) {
        case 0: return 3;
        case 1: return close(n) ? errno : 0;
        case 2: return close_range(LOW, LOW + NUMBERS, draw(2) ? CLOSE_RANGE_UNSHARE : 0) ? errno : 0;
        case 3: return dup2(n, m) < 0 ? errno : 0;
        case 4: return closefrom(3), 0;
        case 5: return fcntl(n, F_GETFD) < 0 ? errno : 0;
        case 6:
            own = socket(AF_INET, SOCK_STREAM, 0);
            return bind(own, (void *)&here, sizeof here) || listen(own, 1) ? errno : 0;
        case 7: return fileno(stdout) == 1 ? 0 : 1;
        default: return echoes(n) == 'x' ? 0 : errno;
    }
}

static const char *const child_names[] = {"nothing", "close", "close_range", "dup2", "closefrom", "F_GETFD", "its own", "fileno", "echo"};

static void step_fork(void) {
    int what = draw(9), n = number(), m = number(), after = number(), status = -1, how = draw(2);
    pid_t child = fork();
    if (child == 0) {
        alarm(15);
        int code = in_child(what, n, m);
        if (how) _exit(code);
        setvbuf(stdout, 0, _IONBF, 0);
        exit(code);
    }
    long got = waitpid(child, &status, 0);
    const char *why = answer(echoes(after));
    say("fork, in the child %s %d %d: %s %x, then echo %d %s", child_names[what], said(n), said(m), got == child ? "" : "not waited", status, said(after), why);
}

static void step_vfork(void) {
    int what = draw(4), n = number(), m = number(), after = number(), status = -1;
    pid_t child = vfork();
    if (child == 0) {
        if (what == 0) close(n);
        if (what == 1) close_range(LOW, LOW + NUMBERS, 0);
        if (what == 2) dup2(n, m);
        if (draw(2)) execl("/bin/true", "true", (char *)0);
        _exit(7);
    }
    waitpid(child, &status, 0);
    const char *why = answer(echoes(after));
    say("vfork %d %d %d: %x, then echo %d %s", what, said(n), said(m), status, said(after), why);
}

static void step_spawn(void) {
    int n = number(), status = -1, result;
    char command[64];
    pid_t child;
    snprintf(command, sizeof command, "test -e /proc/self/fd/%d", n);
    if (draw(2)) {
        char *argv[] = {"sh", "-c", command, 0};
        posix_spawn_file_actions_t actions;
        posix_spawn_file_actions_init(&actions);
        if (draw(2)) posix_spawn_file_actions_addclose(&actions, n);
        result = posix_spawn(&child, "/bin/sh", &actions, 0, argv, environ);
        posix_spawn_file_actions_destroy(&actions);
        if (!result) waitpid(child, &status, 0);
        say("spawn %d = %d, %x", said(n), result, status);
        return;
    }
    say("system %d = %x", said(n), system(command));
}

static void *connects(void *unused) {
    char byte = 0;
    struct sockaddr_in to = service;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    long done = !connect(fd, (void *)&to, sizeof to) && send(fd, "y", 1, 0) == 1 && recv(fd, &byte, 1, MSG_WAITALL) == 1 && byte == 'y';
    close(fd);
    (void)unused;
    return (void *)done;
}

static void step_threads(void) {
    pthread_t threads[6];
    long done = 0;
    for (int i = 0; i < 6; i++)
        if (pthread_create(&threads[i], 0, connects, 0)) abort();
    for (int i = 0; i < 6; i++) {
        void *one;
        pthread_join(threads[i], &one);
        done += (long)one;
    }
    say("threads: %ld", done);
}

static void run(uint64_t seed) {
    static const struct {
        int weight;
        void (*run)(void);
    } steps[] = {
        {6, step_open}, {1, step_listen}, {2, step_pipe}, {4, step_echo}, {3, step_all}, {5, step_dup}, {5, step_close},
        {2, step_signal}, {6, step_wait}, {4, step_fork}, {3, step_vfork}, {1, step_spawn}, {1, step_threads},
    };
    int total = 0;
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) total += steps[i].weight;
    state = seed * 0x9e3779b97f4a7c15 + sequence;
    for (int n = LOW; n <= LOW + NUMBERS; n++) close(n);
    for (step = 0; step < STEPS;) {
        int chosen = draw(total);
        size_t i = 0;
        while (chosen >= steps[i].weight) chosen -= steps[i++].weight;
        steps[i].run();
    }
}

int main(int argc, char **argv) {
    if (argc != 5) return 2;
    uint64_t seed = strtoull(argv[1], 0, 0);
    int first = atoi(argv[2]), count = atoi(argv[3]);
    service = address_of(argv[4], PORT_ECHO);
    main_thread = waiting_thread = pthread_self();
    signal(SIGPIPE, SIG_IGN);
    for (sequence = first; sequence < first + count; sequence++) {
        alarm(40); /* a call that hangs */
        run(seed);
    }
    return 0;
}
