/* read, write, send, recv and their variants on a stream. */
#define _GNU_SOURCE
#include <limits.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/uio.h>

#include "check.h"

static void wait_for(int fd, int bytes) {
    for (int n = 0, i = 0; n < bytes && i < 30000; i++) {
        usleep(1000);
        if (ioctl(fd, FIONREAD, &n)) return;
    }
}

static void round_trips(void) {
    char data[100];
    int fd = connected(PORT_ECHO);
    CHECK(write(fd, "hello", 5) == 5);
    CHECK(read(fd, data, sizeof data) == 5 && memcmp(data, "hello", 5) == 0);
    CHECK(send(fd, "again", 5, MSG_NOSIGNAL) == 5);
    CHECK(recv(fd, data, 2, MSG_WAITALL) == 2 && memcmp(data, "ag", 2) == 0);
    wait_for(fd, 3);
    int n = 0;
    CHECK(ioctl(fd, FIONREAD, &n) == 0 && n == 3);
    CHECK(recv(fd, data, sizeof data, MSG_PEEK) == 3 && memcmp(data, "ain", 3) == 0);
    CHECK(recv(fd, data, sizeof data, 0) == 3 && memcmp(data, "ain", 3) == 0);
    FAILS(EAGAIN, recv(fd, data, sizeof data, MSG_DONTWAIT));
    CHECK(write(fd, "x", 0) == 0 && read(fd, data, 0) == 0);
    struct sockaddr_in from;
    socklen_t len = sizeof from;
    CHECK(sendto(fd, "abc", 3, 0, 0, 0) == 3);
    CHECK(recvfrom(fd, data, sizeof data, 0, (void *)&from, &len) == 3);
    CHECK(send(fd, "dropped", 7, MSG_MORE) == 7 && send(fd, "kept", 4, 0) == 4);
    CHECK(recv(fd, 0, 7, MSG_TRUNC | MSG_WAITALL) == 7);
    CHECK(recv(fd, data, 4, MSG_WAITALL) == 4 && memcmp(data, "kept", 4) == 0);
    CHECK(shutdown(fd, SHUT_WR) == 0);
    CHECK(read(fd, data, sizeof data) == 0 && read(fd, data, sizeof data) == 0);
    CHECK(close(fd) == 0);
}

static void vectors(void) {
    char a[3], b[10], many_data[2048];
    struct iovec out[3] = {{"one", 3}, {0, 0}, {"two!", 4}}, in[2] = {{a, 3}, {b, 10}};
    struct iovec many[1100];
    for (int i = 0; i < 1100; i++) many[i] = (struct iovec){many_data + i, 1};
    memset(many_data, 'm', sizeof many_data);
    int fd = connected(PORT_ECHO);
    CHECK(writev(fd, out, 3) == 7);
    wait_for(fd, 7);
    CHECK(readv(fd, in, 2) == 7 && memcmp(a, "one", 3) == 0 && memcmp(b, "two!", 4) == 0);
    CHECK(writev(fd, out, 0) == 0 && readv(fd, in, 0) == 0);
    FAILS(EINVAL, writev(fd, many, 1025));
    FAILS(EINVAL, readv(fd, many, -1));
    CHECK(writev(fd, many, 1024) == 1024);
    wait_for(fd, 1024);
    CHECK(readv(fd, many, 1024) == 1024 && many_data[0] == 'm');
    struct msghdr out_message = {.msg_iov = out, .msg_iovlen = 3};
    struct msghdr in_message = {.msg_iov = in, .msg_iovlen = 2, .msg_flags = 77};
    CHECK(sendmsg(fd, &out_message, MSG_NOSIGNAL) == 7);
    wait_for(fd, 7);
    CHECK(recvmsg(fd, &in_message, 0) == 7 && in_message.msg_flags == 0);
    out_message.msg_iov = many;
    out_message.msg_iovlen = 1025;
    FAILS(EMSGSIZE, sendmsg(fd, &out_message, 0));
    close(fd);
}

static void bad_arguments(void) {
    int fd = connected(PORT_SILENT);
    FAILS(EFAULT, write(fd, 0, 5));
    FAILS(EFAULT, send(fd, 0, 5, MSG_NOSIGNAL));
    FAILS(EFAULT, writev(fd, 0, 2));
    FAILS(EFAULT, sendmsg(fd, 0, 0));
    FAILS(EFAULT, recvmsg(fd, 0, MSG_DONTWAIT));
    FAILS(EINVAL, recv(fd, &fd, 1, MSG_OOB));
    FAILS(EAGAIN, recv(fd, &fd, 1, MSG_ERRQUEUE));
    close(fd);
    int fresh = socket(AF_INET, SOCK_STREAM, 0);
    FAILS(ENOTCONN, recv(fresh, &fd, sizeof fd, 0));
    FAILS(EPIPE, send(fresh, &fd, sizeof fd, MSG_NOSIGNAL));
    FAILS(ENOTCONN, shutdown(fresh, SHUT_RDWR));
    close(fresh);
    FAILS(EBADF, write(fresh, "x", 1));
}

static void urgent_data(void) {
    char data[8];
    int mark = -1, n = -1, fd = connected(PORT_URGENT);
    struct pollfd p = {fd, POLLPRI, 0};
    CHECK(poll(&p, 1, 30000) == 1 && p.revents == POLLPRI);
    while (n < 2) CHECK(ioctl(fd, FIONREAD, &n) == 0);
    CHECK(n == 2); /* to the mark */
    CHECK(ioctl(fd, SIOCATMARK, &mark) == 0 && mark == 0);
    CHECK(recv(fd, data, 8, MSG_OOB | MSG_PEEK) == 1 && data[0] == 'c');
    CHECK(recv(fd, data, 8, MSG_OOB) == 1 && data[0] == 'c');
    FAILS(EINVAL, recv(fd, data, 8, MSG_OOB));
    CHECK(recv(fd, data, 8, 0) == 2 && memcmp(data, "ab", 2) == 0);
    CHECK(ioctl(fd, SIOCATMARK, &mark) == 0 && mark == 1);
    CHECK(recv(fd, data, 3, MSG_WAITALL) == 3 && memcmp(data, "def", 3) == 0);
    CHECK(ioctl(fd, SIOCATMARK, &mark) == 0 && mark == 0);
    CHECK(send(fd, "!", 1, MSG_OOB) == 1);
    CHECK(recv(fd, data, 8, 0) == 1 && data[0] == '!');
    close(fd);
}

static void low_water(void) {
    char data[100] = "";
    int fd = connected(PORT_ECHO), ten = 10;
    CHECK(setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &ten, sizeof ten) == 0);
    CHECK(send(fd, data, 9, 0) == 9);
    wait_for(fd, 9);
    struct pollfd p = {fd, POLLIN, 0};
    CHECK(poll(&p, 1, 0) == 0);
    CHECK(recv(fd, data, 4, 0) == 4); /* all that it has room for */
    struct timeval soon = {0, 50000};
    CHECK(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof soon) == 0);
    CHECK(recv(fd, data, 100, 0) == 5); /* waits for ten, and takes what there is */
    CHECK(send(fd, data, 10, 0) == 10);
    CHECK(poll(&p, 1, 30000) == 1 && p.revents == POLLIN);
    CHECK(recv(fd, data, 100, MSG_DONTWAIT) == 10);
    close(fd);
}

static int pipes;
static void on_pipe(int signal) { pipes += signal == SIGPIPE; }

static void broken_pipes(void) {
    char byte;
    signal(SIGPIPE, on_pipe);
    int fd = connected(PORT_SILENT);
    shutdown(fd, SHUT_WR);
    FAILS(EPIPE, send(fd, "x", 1, MSG_NOSIGNAL));
    CHECK(pipes == 0);
    FAILS(EPIPE, write(fd, "x", 1));
    CHECK(pipes == 1);
    close(fd);
    fd = connected(PORT_RESET);
    CHECK(write(fd, "x", 1) == 1);
    FAILS(ECONNRESET, read(fd, &byte, 1));
    CHECK(read(fd, &byte, 1) == 0);
    FAILS(EPIPE, send(fd, "x", 1, MSG_NOSIGNAL));
    close(fd);
}

static void big_transfers(void) {
    enum { LEN = 8 << 20 };
    unsigned char *data = malloc(LEN);
    uint64_t want = LEN, answer[2];
    int fd = connected(PORT_SOURCE);
    CHECK(write(fd, &want, sizeof want) == sizeof want);
    CHECK(recv(fd, data, LEN, MSG_WAITALL) == LEN);
    int wrong = 0;
    for (int i = 0; i < LEN; i++) wrong += data[i] != i % 251;
    CHECK(wrong == 0);
    CHECK(read(fd, data, 1) == 0);
    close(fd);

    fd = connected(PORT_SINK); /* a blocking send takes all of it */
    CHECK(send(fd, data, LEN, 0) == LEN);
    shutdown(fd, SHUT_WR);
    CHECK(recv(fd, answer, sizeof answer, MSG_WAITALL) == sizeof answer);
    CHECK(answer[0] == LEN && answer[1] == sum_of(0, data, LEN));
    close(fd);

    fd = connected(PORT_SINK); /* a non-blocking one what fits */
    nonblocking(fd);
    size_t sent = 0;
    while (sent < LEN) {
        ssize_t n = send(fd, data + sent, LEN - sent, 0);
        if (n > 0) sent += n;
        else if (errno == EAGAIN) {
            struct pollfd p = {fd, POLLOUT, 0};
            CHECK(poll(&p, 1, 10000) == 1);
        } else break;
    }
    CHECK(sent == LEN);
    shutdown(fd, SHUT_WR);
    CHECK(fcntl(fd, F_SETFL, 0) == 0);
    CHECK(recv(fd, answer, sizeof answer, MSG_WAITALL) == sizeof answer && answer[0] == LEN);
    CHECK(answer[1] == sum_of(0, data, LEN));
    close(fd);
    free(data);
}

/* Nobody reads what the echo service sends back: every buffer on the way there and back fills, and send must say so. */
static void full_buffers(void) {
    enum { ROUND = 1 << 16, MOST = 1 << 28 };
    static unsigned char data[ROUND], back[ROUND];
    for (int i = 0; i < ROUND; i++) data[i] = i % 251;
    int fd = connected(PORT_ECHO);
    nonblocking(fd);
    size_t sent = 0, got = 0;
    ssize_t n = 1;
    while (sent < MOST && (n = send(fd, data + sent % ROUND, ROUND - sent % ROUND, 0)) > 0) sent += n;
    int said = errno;
    CHECK(n == -1 && said == EAGAIN && sent > 0);
    CHECK(fcntl(fd, F_SETFL, 0) == 0);
    int wrong = 0;
    while (got < sent && (n = recv(fd, back, ROUND - got % ROUND, 0)) > 0) {
        wrong += memcmp(back, data + got % ROUND, n) != 0;
        got += n;
    }
    CHECK(got == sent && wrong == 0);
    close(fd);
}

static void files(void) {
    enum { LEN = 300000 };
    static unsigned char data[LEN];
    uint64_t answer[2];
    char path[] = "/tmp/netchan-calls-XXXXXX";
    int file = mkstemp(path), fd = connected(PORT_SINK), ends[2];
    unlink(path);
    for (int i = 0; i < LEN; i++) data[i] = i * 7 % 253;
    CHECK(write(file, data, LEN) == LEN);
    CHECK(lseek(file, 100, SEEK_SET) == 100);
    CHECK(sendfile(fd, file, 0, 1000) == 1000 && lseek(file, 0, SEEK_CUR) == 1100);
    off_t offset = 1100;
    CHECK(sendfile(fd, file, &offset, LEN) == LEN - 1100 && offset == LEN);
    CHECK(lseek(file, 0, SEEK_CUR) == 1100);
    CHECK(sendfile(fd, file, &offset, 10) == 0);
    CHECK(pipe(ends) == 0);
    FAILS(EINVAL, sendfile(fd, ends[0], 0, 10));
    FAILS(EAGAIN, splice(ends[0], 0, fd, 0, 10, SPLICE_F_NONBLOCK)); /* an empty pipe */
    shutdown(fd, SHUT_WR);
    CHECK(recv(fd, answer, sizeof answer, MSG_WAITALL) == sizeof answer);
    CHECK(answer[0] == LEN - 100 && answer[1] == sum_of(0, data + 100, LEN - 100));
    close(fd), close(file), close(ends[0]), close(ends[1]);
}

/* A file to a socket that takes no more: the offset says what went, and what the file says goes before. */
static void files_to_full_sockets(void) {
    enum { LEN = 1 << 20, MOST = 1 << 28 };
    static unsigned char data[LEN], back[LEN];
    char path[] = "/tmp/netchan-calls-XXXXXX";
    int file = mkstemp(path), fd = connected(PORT_ECHO), out = open("/dev/null", O_WRONLY);
    unlink(path);
    for (int i = 0; i < LEN; i++) data[i] = i * 7 % 253;
    CHECK(write(file, data, LEN) == LEN);
    nonblocking(fd);
    size_t sent = 0, got = 0;
    off_t at = 0;
    CHECK(sendfile(fd, file, &at, 0) == 0 && at == 0);
    ssize_t n = 1;
    while (sent < MOST && n > 0) {
        off_t begin = at = sent % LEN;
        n = sendfile(fd, file, &at, LEN - begin);
        int said = errno;
        CHECK(n > 0 ? at == begin + n : n == -1 && said == EAGAIN && at == begin);
        sent += n > 0 ? n : 0;
    }
    CHECK(n == -1 && sent > 0);
    at = LEN;
    CHECK(sendfile(fd, file, &at, 10) == 0 && at == LEN);
    at = 0;
    FAILS(EBADF, sendfile(fd, out, &at, 10));
    CHECK(fcntl(fd, F_SETFL, 0) == 0);
    int wrong = 0;
    while (got < sent && (n = recv(fd, back, LEN - got % LEN, 0)) > 0) {
        wrong += memcmp(back, data + got % LEN, n) != 0;
        got += n;
    }
    CHECK(got == sent && wrong == 0);
    shutdown(fd, SHUT_WR);
    signal(SIGPIPE, SIG_IGN);
    at = 3;
    FAILS(EPIPE, sendfile(fd, file, &at, 10));
    CHECK(at == 3);
    signal(SIGPIPE, SIG_DFL);
    close(fd), close(file), close(out);
}

/* Addresses that no program has: of the first page, and of the kernel. */
static void bad_pointers(void) {
    struct sockaddr_in to = address_of(peer_ip, PORT_ECHO);
    static const uintptr_t places[] = {8, 4095, 1ul << 63, -4096ul, -1ul};
    char data[16];
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        void *bad = (void *)places[i];
        int fd = connected(PORT_ECHO), udp = socket(AF_INET, SOCK_DGRAM, 0), value = 1;
        socklen_t len = sizeof to;
        CHECK(connect(udp, (void *)&to, sizeof to) == 0);
        struct iovec io = {bad, 4}, good = {data, 4};
        struct msghdr odd = {.msg_iov = &io, .msg_iovlen = 1}, wild = {.msg_iov = bad, .msg_iovlen = 1};
        struct msghdr named = {.msg_name = bad, .msg_namelen = sizeof to, .msg_iov = &good, .msg_iovlen = 1};
        FAILS(EFAULT, send(fd, bad, 4, 0));
        FAILS(EFAULT, write(udp, bad, 4));
        FAILS(EFAULT, sendto(udp, "abcd", 4, 0, bad, sizeof to));
        FAILS(EFAULT, writev(fd, &io, 1));
        FAILS(EFAULT, writev(fd, bad, 1));
        FAILS(EFAULT, sendmsg(fd, &odd, 0));
        FAILS(EFAULT, sendmsg(fd, &wild, 0));
        FAILS(EFAULT, sendmsg(fd, bad, 0));
        FAILS(EFAULT, sendmsg(udp, &named, 0));
        FAILS(EFAULT, sendmmsg(udp, bad, 1, 0));
        CHECK(send(fd, "abcd", 4, 0) == 4 && send(udp, "abcd", 4, 0) == 4);
        CHECK(recv(fd, data, 1, MSG_PEEK) == 1 && recv(udp, data, 1, MSG_PEEK) == 1);
        FAILS(EFAULT, recv(fd, bad, 4, 0));
        FAILS(EFAULT, readv(fd, &io, 1));
        FAILS(EFAULT, readv(fd, bad, 1));
        FAILS(EFAULT, recvmsg(fd, bad, 0));
        FAILS(EFAULT, recvmsg(fd, &odd, 0));
        FAILS(EFAULT, recvfrom(udp, data, 1, MSG_PEEK, bad, &len));
        FAILS(EFAULT, recvfrom(udp, data, 1, MSG_PEEK, (void *)&to, bad));
        FAILS(EFAULT, recvmmsg(udp, bad, 1, MSG_DONTWAIT, 0));
        FAILS(EFAULT, getsockname(fd, bad, &len));
        FAILS(EFAULT, getpeername(fd, (void *)&to, bad));
        FAILS(EFAULT, connect(udp, bad, sizeof to));
        FAILS(EFAULT, bind(fd, bad, sizeof to));
        FAILS(EFAULT, setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, bad, sizeof value));
        FAILS(EFAULT, getsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, bad, &len));
        FAILS(EFAULT, getsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &value, bad));
        FAILS(EFAULT, ioctl(fd, FIONREAD, bad));
        FAILS(EFAULT, poll(bad, 1, 0));
        struct pollfd both[2] = {{fd, POLLIN, 0}};
        CHECK(poll(both, 1, 0) == 1);
        fd_set set;
        FD_ZERO(&set);
        FD_SET(fd, &set);
        FAILS(EFAULT, select(fd + 1, &set, bad, 0, 0));
        int ep = epoll_create1(0);
        FAILS(EFAULT, epoll_ctl(ep, EPOLL_CTL_ADD, fd, bad));
        struct epoll_event event = {.events = EPOLLIN};
        CHECK(epoll_ctl(ep, EPOLL_CTL_ADD, fd, &event) == 0);
        FAILS(EFAULT, epoll_wait(ep, bad, 1, 0));
        close(ep), close(fd), close(udp);
    }
}

void check_transfers(void) {
    round_trips();
    vectors();
    bad_arguments();
    urgent_data();
    low_water();
    broken_pipes();
    big_transfers();
    full_buffers();
    files();
    files_to_full_sockets();
    bad_pointers();
}
