/* socket, bind, listen, connect, accept, shutdown, names. */
#define _GNU_SOURCE
#include <sys/resource.h>

#include "check.h"

static void names(void) {
    struct sockaddr_in a;
    struct sockaddr_in6 wide;
    socklen_t len = sizeof a;
    int fd = connected(PORT_ECHO);
    CHECK(getpeername(fd, (void *)&a, &len) == 0 && len == sizeof a);
    CHECK(a.sin_family == AF_INET && ntohs(a.sin_port) == PORT_ECHO);
    CHECK(a.sin_addr.s_addr == address_of(peer_ip, 0).sin_addr.s_addr);
    len = sizeof wide;
    CHECK(getsockname(fd, (void *)&wide, &len) == 0 && len == sizeof a);
    len = 4; /* cut, and the whole length told */
    memset(&a, 0x55, sizeof a);
    CHECK(getsockname(fd, (void *)&a, &len) == 0 && len == sizeof a);
    CHECK(a.sin_family == AF_INET && a.sin_addr.s_addr == 0x55555555);
    FAILS(EFAULT, getsockname(fd, 0, &len));
    close(fd);
    fd = socket(AF_INET, SOCK_STREAM, 0);
    len = sizeof a;
    FAILS(ENOTCONN, getpeername(fd, (void *)&a, &len));
    close(fd);
}

static void connects(void) {
    struct sockaddr_in to = address_of(peer_ip, PORT_CLOSED);
    int error = -1;
    socklen_t len = sizeof error;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    FAILS(ECONNREFUSED, connect(fd, (void *)&to, sizeof to));
    close(fd);

    fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    FAILS(EINPROGRESS, connect(fd, (void *)&to, sizeof to));
    struct pollfd p = {fd, POLLOUT, 0};
    CHECK(poll(&p, 1, 30000) == 1 && (p.revents & POLLERR) && (p.revents & POLLHUP));
    CHECK(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) == 0 && error == ECONNREFUSED);
    CHECK(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) == 0 && error == 0);
    close(fd);

    to = address_of(peer_ip, PORT_ECHO);
    fd = socket(AF_INET, SOCK_STREAM, 0);
    nonblocking(fd);
    int first = connect(fd, (void *)&to, sizeof to), why = errno;
    CHECK(first == 0 || why == EINPROGRESS);
    p = (struct pollfd){fd, POLLOUT, 0};
    CHECK(poll(&p, 1, 30000) == 1 && p.revents == POLLOUT);
    CHECK(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) == 0 && error == 0);
    if (first) CHECK(connect(fd, (void *)&to, sizeof to) == 0);
    FAILS(EISCONN, connect(fd, (void *)&to, sizeof to));
    close(fd);

    fd = socket(AF_INET, SOCK_STREAM, 0);
    FAILS(EINVAL, connect(fd, (void *)&to, 7));
    struct sockaddr_un_like { sa_family_t family; char path[20]; } other = {AF_UNIX, "x"};
    FAILS(EAFNOSUPPORT, connect(fd, (void *)&other, sizeof other));
    close(fd);
}

/* A listener's port, so that the peer connects back. */
static int listening(int *port) {
    struct sockaddr_in any = {.sin_family = AF_INET};
    socklen_t len = sizeof any;
    int on = 1, fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0);
    CHECK(bind(fd, (void *)&any, sizeof any) == 0);
    CHECK(listen(fd, 128) == 0);
    CHECK(getsockname(fd, (void *)&any, &len) == 0 && any.sin_port != 0);
    *port = ntohs(any.sin_port);
    return fd;
}

static int call_back(int port) {
    uint16_t wish = port;
    int fd = connected(PORT_CALLBACK);
    CHECK(write(fd, &wish, sizeof wish) == sizeof wish);
    return fd;
}

static void accepts(void) {
    struct sockaddr_in from;
    socklen_t len = sizeof from;
    int port, value;
    char data[8];
    int listener = listening(&port);
    nonblocking(listener);
    FAILS(EAGAIN, accept(listener, 0, 0));
    FAILS(EINVAL, accept4(listener, 0, 0, 0x40000000));
    FAILS(ENOTCONN, recv(listener, data, 1, 0));
    CHECK(fcntl(listener, F_SETFL, 0) == 0);
    int order = call_back(port);
    int fd = accept(listener, (void *)&from, &len);
    CHECK(fd >= 0 && len == sizeof from && from.sin_addr.s_addr == address_of(peer_ip, 0).sin_addr.s_addr);
    CHECK((fcntl(fd, F_GETFL) & O_NONBLOCK) == 0 && (fcntl(fd, F_GETFD) & FD_CLOEXEC) == 0);
    CHECK((fcntl(fd, F_GETFL) & O_ACCMODE) == O_RDWR);
    CHECK(recv(fd, data, 4, MSG_WAITALL) == 4 && memcmp(data, "back", 4) == 0);
    CHECK(write(fd, "ping", 4) == 4 && recv(fd, data, 4, MSG_WAITALL) == 4);
    len = sizeof value;
    CHECK(getsockopt(listener, SOL_SOCKET, SO_ACCEPTCONN, &value, &len) == 0 && value == 1);
    CHECK(getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &value, &len) == 0 && value == 0);
    close(fd), close(order);

    order = call_back(port);
    struct pollfd p = {listener, POLLIN, 0};
    CHECK(poll(&p, 1, 30000) == 1 && p.revents == POLLIN);
    fd = accept4(listener, 0, 0, SOCK_NONBLOCK | SOCK_CLOEXEC);
    CHECK((fcntl(fd, F_GETFL) & O_NONBLOCK) && (fcntl(fd, F_GETFD) & FD_CLOEXEC));
    p = (struct pollfd){fd, POLLIN, 0};
    CHECK(poll(&p, 1, 30000) == 1 && read(fd, data, 8) == 4);
    FAILS(EAGAIN, read(fd, data, 8));
    close(fd), close(order);

    struct timeval brief = {0, 50000};
    CHECK(setsockopt(listener, SOL_SOCKET, SO_RCVTIMEO, &brief, sizeof brief) == 0);
    FAILS(EAGAIN, accept(listener, 0, 0));
    close(listener);
    fd = socket(AF_INET, SOCK_STREAM, 0);
    FAILS(EINVAL, accept(fd, 0, 0));
    close(fd);
}

/* No number left: the connection that waits is not lost. */
static void accepts_without_numbers(void) {
    int port, listener = listening(&port), order = call_back(port);
    struct pollfd p = {listener, POLLIN, 0};
    struct rlimit limit, tight;
    CHECK(poll(&p, 1, 30000) == 1);
    getrlimit(RLIMIT_NOFILE, &limit);
    int lowest = dup(0);
    tight = limit;
    tight.rlim_cur = lowest;
    close(lowest);
    CHECK(setrlimit(RLIMIT_NOFILE, &tight) == 0);
    FAILS(EMFILE, accept(listener, 0, 0));
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    CHECK(poll(&p, 1, 0) == 1);
    int fd = accept(listener, 0, 0);
    CHECK(fd >= 0);
    close(fd), close(order), close(listener);
}

static void binds(void) {
    int port;
    int first = listening(&port);
    struct sockaddr_in same = {.sin_family = AF_INET, .sin_port = htons(port)};
    int second = socket(AF_INET, SOCK_STREAM, 0);
    FAILS(EADDRINUSE, bind(second, (void *)&same, sizeof same));
    close(second);
    second = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in any = {.sin_family = AF_INET};
    CHECK(bind(second, (void *)&any, sizeof any) == 0);
    FAILS(EINVAL, bind(second, (void *)&any, sizeof any));
    close(second);
    /* An address of nobody. */
    second = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in foreign = address_of("203.0.113.9", 0);
    FAILS(EADDRNOTAVAIL, bind(second, (void *)&foreign, sizeof foreign));
    close(second);
    close(first);
}

/* Bound to the wildcard, then connected to loopback: that is the kernel's, whoever serves the rest. */
static void wildcard_to_loopback(void) {
    struct sockaddr_in any = {.sin_family = AF_INET}, at;
    struct sockaddr_in here = address_of("127.0.0.1", 0);
    socklen_t len = sizeof at;
    char data[4];
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(bind(listener, (void *)&here, sizeof here) == 0 && listen(listener, 1) == 0);
    CHECK(getsockname(listener, (void *)&at, &len) == 0);
    int client = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(bind(client, (void *)&any, sizeof any) == 0);
    CHECK(connect(client, (void *)&at, sizeof at) == 0);
    int server = accept(listener, 0, 0);
    CHECK(write(client, "ab", 2) == 2 && read(server, data, 4) == 2);
    close(client), close(server), close(listener);
}

static void half_closes(void) {
    char data[8];
    int fd = connected(PORT_ECHO);
    CHECK(shutdown(fd, SHUT_RD) == 0);
    CHECK(read(fd, data, 1) == 0);
    FAILS(EINVAL, shutdown(fd, 9));
    close(fd);
    struct sockaddr_in to = address_of(peer_ip, PORT_SILENT);
    struct timeval brief = {0, 50000};
    fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &brief, sizeof brief) == 0);
    CHECK(connect(fd, (void *)&to, sizeof to) == 0);
    FAILS(EAGAIN, read(fd, data, 1)); /* set before it was decided who serves it */
    close(fd);
}

static int shut_listener;

static void *accept_one(void *arg) {
    int *code = arg;
    errno = 0;
    int fd = accept(shut_listener, 0, 0);
    *code = fd < 0 ? errno : 0;
    if (fd >= 0) close(fd);
    return 0;
}

/* How threaded servers end: who waits in accept is told. Then the socket listens again. */
static void shuts_listener(void) {
    int port, code = -1;
    pthread_t thread;
    shut_listener = listening(&port);
    pthread_create(&thread, 0, accept_one, &code);
    usleep(50000); /* it sleeps by then, mostly; if not, it finds the same */
    CHECK(shutdown(shut_listener, SHUT_RDWR) == 0);
    pthread_join(thread, 0);
    CHECK(code == EINVAL);
    struct pollfd p = {shut_listener, POLLIN, 0};
    CHECK(poll(&p, 1, 0) == 1 && p.revents == POLLHUP);
    CHECK(listen(shut_listener, 8) == 0);
    struct sockaddr_in at;
    socklen_t len = sizeof at;
    CHECK(getsockname(shut_listener, (void *)&at, &len) == 0);
    int order = call_back(ntohs(at.sin_port));
    accept_one(&code);
    CHECK(code == 0);
    close(order), close(shut_listener);
}

void check_endpoints(void) {
    names();
    connects();
    accepts();
    accepts_without_numbers();
    binds();
    wildcard_to_loopback();
    half_closes();
    shuts_listener();
}
