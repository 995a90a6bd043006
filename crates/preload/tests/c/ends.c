/* Streams whose ends are both this program's: what is left of a connection when one end or both have been shut, reset or let go, and the urgent mark. */
#define _GNU_SOURCE
#include <sys/ioctl.h>

#include "check.h"

#define WAIT_MS 30000
#define ALL (POLLIN | POLLPRI | POLLOUT | POLLRDHUP)
#define GONE (POLLIN | POLLOUT | POLLRDHUP | POLLHUP)

static struct sockaddr_in here(int port) { return address_of(on_netchan ? "10.77.0.2" : "127.0.0.1", port); }

/* What poll says of it, once that is `wanted` or time is over. */
static int comes_to(int fd, int wanted) {
    struct pollfd p = {fd, ALL, 0};
    for (int i = 0; i < WAIT_MS; i++) {
        if (poll(&p, 1, 0) >= 0 && p.revents == wanted) return 1;
        usleep(1000);
    }
    printf("poll says %x, not %x\n", p.revents, wanted);
    return 0;
}

static int error_of(int fd) {
    int error = -1;
    socklen_t len = sizeof error;
    return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) ? -1 : error;
}

static int listener_at(int *port, int how) {
    struct sockaddr_in at = here(*port);
    socklen_t len = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(bind(fd, (void *)&at, sizeof at) == 0);
    if (how >= 0) FAILS(ENOTCONN, shutdown(fd, how));
    CHECK(listen(fd, 4) == 0 && getsockname(fd, (void *)&at, &len) == 0);
    *port = ntohs(at.sin_port);
    return fd;
}

static int listener(int *port, int how) {
    *port = 0;
    return listener_at(port, how);
}

static int to(int port, int how) {
    struct sockaddr_in at = here(port);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (how >= 0) FAILS(ENOTCONN, shutdown(fd, how));
    CHECK(connect(fd, (void *)&at, sizeof at) == 0);
    return fd;
}

/* One that connected, and one that was accepted. */
static void pair(int ends[2]) {
    int port, from = listener(&port, -1);
    ends[0] = to(port, -1);
    ends[1] = accept(from, 0, 0);
    CHECK(ends[1] >= 0);
    close(from);
}

/* A reset after the end of the peer's stream: a pipe is broken, as Linux says; what could be read ended before. */
static void reset_behind_the_end(void) {
    for (int how = 0; how < 4; how++) {
        char data[4];
        int ends[2];
        pair(ends);
        close(ends[1]);
        CHECK(comes_to(ends[0], POLLIN | POLLOUT | POLLRDHUP));
        CHECK(send(ends[0], "x", 1, 0) == 1);
        CHECK(comes_to(ends[0], GONE | POLLERR));
        CHECK(recv(ends[0], data, sizeof data, 0) == 0);
        CHECK(comes_to(ends[0], GONE | POLLERR));
        if (how == 0) CHECK(error_of(ends[0]) == EPIPE);
        struct sockaddr_in at = here(1), none = {.sin_family = AF_UNSPEC};
        if (how == 1) FAILS(EPIPE, send(ends[0], "x", 1, MSG_NOSIGNAL));
        if (how == 2) FAILS(EISCONN, connect(ends[0], (void *)&at, sizeof at));
        if (how < 2) CHECK(error_of(ends[0]) == 0 && comes_to(ends[0], GONE));
        if (how == 3) {
            CHECK(connect(ends[0], (void *)&none, sizeof none) == 0);
            FAILS(EPIPE, recv(ends[0], data, sizeof data, 0));
            FAILS(ENOTCONN, recv(ends[0], data, sizeof data, 0));
        }
        close(ends[0]);
    }
}

/* One that neither reads nor writes any more has no use for text: both ends are told, and what was there may be read. */
static void text_for_nobody(void) {
    for (int how = 0; how < 3; how++) {
        char data[8];
        int ends[2];
        pair(ends);
        CHECK(send(ends[0], "abc", 3, 0) == 3);
        CHECK(comes_to(ends[1], POLLIN | POLLOUT));
        if (how == 0) CHECK(shutdown(ends[1], SHUT_RDWR) == 0);
        if (how == 1) CHECK(shutdown(ends[1], SHUT_RD) == 0 && shutdown(ends[1], SHUT_WR) == 0);
        if (how == 2) CHECK(shutdown(ends[1], SHUT_WR) == 0);
        CHECK(comes_to(ends[0], POLLIN | POLLOUT | POLLRDHUP));
        CHECK(send(ends[0], "def", 3, 0) == 3);
        if (how == 2) {
            CHECK(recv(ends[1], data, 6, MSG_WAITALL) == 6);
        } else {
            CHECK(comes_to(ends[0], GONE | POLLERR) && error_of(ends[0]) == EPIPE);
            CHECK(comes_to(ends[1], GONE | POLLERR));
            CHECK(recv(ends[1], data, sizeof data, 0) == 3);
            CHECK(error_of(ends[1]) == ECONNRESET);
        }
        close(ends[0]), close(ends[1]);
    }
}

/* What shutdown says of a socket that is nothing yet holds for the connection that it becomes. */
static void shut_before_it_connects(void) {
    static const int seen[] = {POLLIN | POLLOUT | POLLRDHUP, POLLOUT, GONE};
    for (int how = SHUT_RD; how <= SHUT_RDWR; how++) {
        int port, from = listener(&port, -1), fd = to(port, how), other = accept(from, 0, 0);
        CHECK(comes_to(fd, seen[how]));
        CHECK(comes_to(other, POLLOUT)); /* nobody told it */
        if (how == SHUT_RD) CHECK(send(fd, "x", 1, 0) == 1);
        else FAILS(EPIPE, send(fd, "x", 1, MSG_NOSIGNAL));
        if (how == SHUT_WR) CHECK(send(other, "x", 1, 0) == 1 && comes_to(fd, POLLIN | POLLOUT));
        CHECK(shutdown(fd, SHUT_WR) == 0);
        if (how != SHUT_RD) CHECK(comes_to(other, POLLIN | POLLOUT | POLLRDHUP));
        close(fd), close(other), close(from);
    }
}

/* A listener's connections are as it was when it began to listen: they end with their handshake. */
static void shut_before_it_listens(void) {
    int port, from = listener(&port, SHUT_RDWR), fd = to(port, -1), other;
    CHECK(comes_to(fd, POLLIN | POLLOUT | POLLRDHUP));
    other = accept(from, 0, 0);
    CHECK(comes_to(other, GONE));
    FAILS(EPIPE, send(other, "x", 1, MSG_NOSIGNAL));
    close(fd), close(other), close(from);
    from = listener(&port, SHUT_RD), fd = to(port, -1), other = accept(from, 0, 0);
    CHECK(comes_to(fd, POLLOUT) && comes_to(other, POLLIN | POLLOUT | POLLRDHUP));
    close(fd), close(other), close(from);
}

/* Connected to itself the two ends are one, which ends as soon as it is there. */
static void shut_before_it_meets_itself(void) {
    struct sockaddr_in at = here(0);
    socklen_t len = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    CHECK(bind(fd, (void *)&at, sizeof at) == 0 && getsockname(fd, (void *)&at, &len) == 0);
    FAILS(ENOTCONN, shutdown(fd, SHUT_WR));
    FAILS(EINPROGRESS, connect(fd, (void *)&at, sizeof at));
    CHECK(comes_to(fd, GONE));
    close(fd);
}

/* What shutdown said of one that nobody serves yet is forgotten by connect to AF_UNSPEC. */
static void shut_and_forgotten(void) {
    struct sockaddr_in at = here(0), none = {.sin_family = AF_UNSPEC};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    FAILS(ENOTCONN, shutdown(fd, SHUT_RDWR));
    CHECK(connect(fd, (void *)&none, sizeof none) == 0);
    CHECK(bind(fd, (void *)&at, sizeof at) == 0);
    CHECK(comes_to(fd, POLLOUT | POLLHUP));
    close(fd);
}

/* Reads stop at the mark, whatever they wait for, and pass it only to read what is behind. */
static void reads_stop_at_the_mark(void) {
    for (int in_line = 0; in_line < 2; in_line++) {
        char data[32];
        int ends[2], mark = -1;
        pair(ends);
        CHECK(setsockopt(ends[1], SOL_SOCKET, SO_OOBINLINE, &in_line, sizeof in_line) == 0);
        CHECK(send(ends[0], "0123456789", 10, MSG_OOB) == 10);
        CHECK(comes_to(ends[1], POLLIN | POLLPRI | POLLOUT));
        CHECK(recv(ends[1], data, sizeof data, MSG_WAITALL | MSG_DONTWAIT) == 9);
        CHECK(ioctl(ends[1], SIOCATMARK, &mark) == 0 && mark == 1);
        CHECK(recv(ends[1], data, 0, MSG_DONTWAIT) == 0);
        CHECK(comes_to(ends[1], in_line ? POLLIN | POLLPRI | POLLOUT : POLLPRI | POLLOUT));
        if (!in_line) CHECK(recv(ends[1], data, 1, MSG_OOB) == 1 && data[0] == '9');
        CHECK(send(ends[0], "abc", 3, 0) == 3);
        CHECK(comes_to(ends[1], POLLIN | POLLOUT | (in_line ? POLLPRI : 0)));
        for (int i = 0; i < WAIT_MS && recv(ends[1], data, sizeof data, MSG_DONTWAIT | MSG_PEEK) < 3 + in_line; i++) usleep(1000);
        CHECK(recv(ends[1], data, sizeof data, MSG_DONTWAIT) == 3 + in_line && data[0] == (in_line ? '9' : 'a'));
        close(ends[0]), close(ends[1]);
    }
}

/* A read of nothing waits for something, and then has it; without a wait there is nothing to have. */
static void reads_of_nothing(void) {
    struct timeval brief = {0, 30000};
    char data[1];
    int ends[2];
    pair(ends);
    CHECK(setsockopt(ends[0], SOL_SOCKET, SO_RCVTIMEO, &brief, sizeof brief) == 0);
    CHECK(recv(ends[0], data, 0, 0) == 0);
    FAILS(EAGAIN, recv(ends[0], data, 0, MSG_DONTWAIT));
    FAILS(EAGAIN, recv(ends[0], data, 1, 0));
    close(ends[0]), close(ends[1]);
}

/* One whose connection is over may be bound anew, and says where to; what it has to say first waits for any send. */
static void after_the_end(void) {
    struct linger now = {1, 0};
    struct sockaddr_in at, any = {.sin_family = AF_INET}, none = {.sin_family = AF_UNSPEC};
    socklen_t len = sizeof at;
    int ends[2];
    pair(ends);
    CHECK(getsockname(ends[1], (void *)&at, &len) == 0);
    CHECK(setsockopt(ends[0], SOL_SOCKET, SO_LINGER, &now, sizeof now) == 0 && close(ends[0]) == 0);
    CHECK(comes_to(ends[1], GONE | POLLERR));
    any.sin_port = at.sin_port;
    CHECK(bind(ends[1], (void *)&any, sizeof any) == 0);
    CHECK(getsockname(ends[1], (void *)&at, &len) == 0 && at.sin_addr.s_addr == 0 && at.sin_port == any.sin_port);
    close(ends[1]);
    pair(ends);
    CHECK(connect(ends[0], (void *)&none, sizeof none) == 0);
    FAILS(ECONNRESET, send(ends[0], "x", 1, MSG_OOB));
    FAILS(EPIPE, send(ends[0], "x", 1, MSG_OOB | MSG_NOSIGNAL));
    close(ends[0]), close(ends[1]);
}

/* An accepted connection keeps the port that bind named from its listener, once that was shut. */
static void listens_beside_its_connection(void) {
    int port = 9301, from = listener_at(&port, -1), fd = to(port, -1), other = accept(from, 0, 0);
    CHECK(shutdown(from, SHUT_RD) == 0);
    FAILS(EADDRINUSE, listen(from, 4));
    CHECK(comes_to(from, POLLOUT | POLLHUP));
    struct linger now = {1, 0};
    CHECK(setsockopt(other, SOL_SOCKET, SO_LINGER, &now, sizeof now) == 0 && close(other) == 0);
    CHECK(listen(from, 4) == 0);
    close(fd), close(from);
}

void check_ends(void) {
    reset_behind_the_end();
    text_for_nobody();
    shut_before_it_connects();
    shut_before_it_listens();
    shut_before_it_meets_itself();
    shut_and_forgotten();
    reads_stop_at_the_mark();
    reads_of_nothing();
    after_the_end();
    listens_beside_its_connection();
}
