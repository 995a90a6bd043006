/*
 * What the functions of netchan.h answer, over a stack of loopback addresses alone; "ok" at the end.
 */
#define _GNU_SOURCE

#include <arpa/inet.h>
#include <errno.h>
#include <netchan.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CHECK(what) \
    ((what) ? (void)0 : (fprintf(stderr, "%s:%d: %s (errno %d, %s)\n", __FILE__, __LINE__, #what, errno, strerror(errno)), exit(1)))
/* A call fails with this errno. */
#define FAILS(call, code) (errno = 0, CHECK((call) == -1 && errno == (code)))
#define IS_NULL(call, code) (errno = 0, CHECK((call) == NULL && errno == (code)))

typedef struct netchan_socket socket_t;

static struct netchan *stack;

static struct sockaddr_in at(unsigned short port)
{
    struct sockaddr_in address;
    memset(&address, 0, sizeof address);
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static socket_t *tcp(void)
{
    socket_t *socket = netchan_socket(stack, AF_INET, SOCK_STREAM, 0);
    CHECK(socket != NULL);
    return socket;
}

static socket_t *listener(unsigned short port)
{
    struct sockaddr_in here = at(port);
    socket_t *socket = tcp();
    CHECK(netchan_bind(socket, (struct sockaddr *)&here, sizeof here) == 0);
    CHECK(netchan_listen(socket, 8) == 0);
    return socket;
}

/* Two ends of a connection. */
static void pair(unsigned short port, socket_t **client, socket_t **server)
{
    struct sockaddr_in there = at(port);
    socket_t *door = listener(port);
    *client = tcp();
    CHECK(netchan_connect(*client, (struct sockaddr *)&there, sizeof there) == 0);
    *server = netchan_accept(door, NULL, NULL);
    CHECK(*server != NULL);
    CHECK(netchan_close(door) == 0);
}

static void is_readable(socket_t *socket)
{
    struct netchan_pollfd fd = {NULL, -1, POLLIN, 0};
    fd.socket = socket;
    CHECK(netchan_poll(&fd, 1, 5000) == 1 && (fd.revents & POLLIN));
}

static void handles(void)
{
    char byte = 0;
    struct iovec piece;
    struct sockaddr_in here = at(1);
    socklen_t len = sizeof here;
    struct netchan *other;
    socket_t *wrong[5], *closed = tcp();
    int i;
    CHECK(netchan_close(closed) == 0);
    wrong[0] = NULL;
    wrong[1] = closed;
    wrong[2] = (socket_t *)stack;
    wrong[3] = (socket_t *)&byte;
    wrong[4] = (socket_t *)-1;
    for (i = 0; i < 5; i++) {
        socket_t *s = wrong[i];
        FAILS(netchan_close(s), EBADF);
        FAILS(netchan_set_nonblocking(s, 1), EBADF);
        FAILS(netchan_bind(s, (struct sockaddr *)&here, len), EBADF);
        FAILS(netchan_listen(s, 1), EBADF);
        IS_NULL(netchan_accept(s, NULL, NULL), EBADF);
        IS_NULL(netchan_accept4(s, NULL, NULL, 0), EBADF);
        FAILS(netchan_connect(s, (struct sockaddr *)&here, len), EBADF);
        FAILS(netchan_shutdown(s, SHUT_RDWR), EBADF);
        FAILS(netchan_getsockname(s, (struct sockaddr *)&here, &len), EBADF);
        FAILS(netchan_getpeername(s, (struct sockaddr *)&here, &len), EBADF);
        FAILS(netchan_getsockopt(s, SOL_SOCKET, SO_TYPE, &i, &len), EBADF);
        FAILS(netchan_setsockopt(s, SOL_SOCKET, SO_KEEPALIVE, &i, sizeof i), EBADF);
        FAILS(netchan_send(s, &byte, 1, 0), EBADF);
        FAILS(netchan_sendto(s, &byte, 1, 0, NULL, 0), EBADF);
        FAILS(netchan_sendmsg(s, NULL, 0), EBADF);
        FAILS(netchan_recv(s, &byte, 1, 0), EBADF);
        FAILS(netchan_recvfrom(s, &byte, 1, 0, NULL, NULL), EBADF);
        FAILS(netchan_recvmsg(s, NULL, 0), EBADF);
        FAILS(netchan_peek_segments(s, &piece, 1), EBADF);
        FAILS(netchan_consume(s, 1), EBADF);
        FAILS(netchan_reserve(s, 1, &piece, 1), EBADF);
        FAILS(netchan_commit(s, 1), EBADF);
    }
    IS_NULL(netchan_socket(NULL, AF_INET, SOCK_STREAM, 0), EBADF);
    IS_NULL(netchan_socket((struct netchan *)closed, AF_INET, SOCK_STREAM, 0), EBADF);
    FAILS(netchan_drain(NULL, 0), EBADF);
    FAILS(netchan_end(NULL), EBADF);
    other = netchan_open_link("lo", NULL, NULL);
    CHECK(other != NULL && netchan_drain(other, 1000) == 0);
    FAILS(netchan_drain(other, -1), EINVAL);
    CHECK(netchan_end(other) == 0);
    FAILS(netchan_end(other), EBADF);
    IS_NULL(netchan_socket(other, AF_INET, SOCK_STREAM, 0), EBADF);
}

static void opening(void)
{
    struct netchan *other;
    CHECK(strcmp(netchan_version(), NETCHAN_VERSION) == 0);
    IS_NULL(netchan_open_link(NULL, NULL, NULL), EFAULT);
    IS_NULL(netchan_open_link("tin-cans:7", NULL, NULL), EINVAL);
    CHECK(strstr(netchan_error(), "tin-cans") != NULL);
    IS_NULL(netchan_open("loopback = \"netchan\"\ncolour = 1\n"), EINVAL);
    CHECK(strstr(netchan_error(), "configuration:2") != NULL && strstr(netchan_error(), "colour") != NULL);
    IS_NULL(netchan_open("\xff"), EINVAL);
    other = netchan_open("[[link]]\nkind = \"loop\"\naddress = [\"10.1.0.1/24\"]\n");
    CHECK(other != NULL);
    CHECK(netchan_end(other) == 0);
    setenv("NETCHAN_LOOPBACK", "true", 1);
    other = netchan_open(NULL);
    CHECK(other != NULL);
    CHECK(netchan_end(other) == 0);
    unsetenv("NETCHAN_LOOPBACK");
    IS_NULL(netchan_open(NULL), EINVAL);
    CHECK(strstr(netchan_error(), "NETCHAN_LINK") != NULL);
    IS_NULL(netchan_socket(stack, AF_UNIX, SOCK_STREAM, 0), EAFNOSUPPORT);
    IS_NULL(netchan_socket(stack, AF_INET, SOCK_RAW, 0), ESOCKTNOSUPPORT);
    IS_NULL(netchan_socket(stack, AF_INET, SOCK_STREAM, IPPROTO_UDP), EPROTONOSUPPORT);
    IS_NULL(netchan_socket(stack, AF_INET, 4711, 0), EINVAL);
}

static void connections(void)
{
    struct sockaddr_in there = at(1), name;
    socklen_t len = sizeof name;
    socket_t *client, *server, *door, *refused = tcp();
    FAILS(netchan_connect(refused, (struct sockaddr *)&there, sizeof there), ECONNREFUSED);
    FAILS(netchan_connect(refused, NULL, sizeof there), EFAULT);
    FAILS(netchan_connect(refused, (struct sockaddr *)&there, 3), EINVAL);
    CHECK(netchan_close(refused) == 0);
    door = listener(100);
    FAILS(netchan_bind(door, (struct sockaddr *)&there, sizeof there), EINVAL);
    refused = tcp();
    there = at(100);
    FAILS(netchan_bind(refused, (struct sockaddr *)&there, sizeof there), EADDRINUSE);
    there.sin_addr.s_addr = htonl(0x0a000001);
    FAILS(netchan_bind(refused, (struct sockaddr *)&there, sizeof there), EADDRNOTAVAIL);
    IS_NULL(netchan_accept(refused, NULL, NULL), EINVAL);
    IS_NULL(netchan_accept4(door, NULL, NULL, 1), EINVAL);
    CHECK(netchan_set_nonblocking(door, 1) == 0);
    IS_NULL(netchan_accept(door, NULL, NULL), EAGAIN);
    there = at(100);
    client = netchan_socket(stack, AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    FAILS(netchan_getpeername(client, (struct sockaddr *)&name, &len), ENOTCONN);
    FAILS(netchan_connect(client, (struct sockaddr *)&there, sizeof there), EINPROGRESS);
    is_readable(door);
    server = netchan_accept4(door, (struct sockaddr *)&name, &len, SOCK_NONBLOCK);
    CHECK(server != NULL && len == sizeof name && name.sin_addr.s_addr == htonl(INADDR_LOOPBACK));
    {
        struct netchan_pollfd fd = {NULL, -1, POLLOUT, 0};
        int error = -1;
        fd.socket = client;
        CHECK(netchan_poll(&fd, 1, 5000) == 1 && fd.revents == POLLOUT);
        len = sizeof error;
        CHECK(netchan_getsockopt(client, SOL_SOCKET, SO_ERROR, &error, &len) == 0 && error == 0 && len == sizeof error);
    }
    CHECK(netchan_connect(client, (struct sockaddr *)&there, sizeof there) == 0);
    FAILS(netchan_connect(client, (struct sockaddr *)&there, sizeof there), EISCONN);
    len = sizeof name;
    CHECK(netchan_getpeername(client, (struct sockaddr *)&name, &len) == 0 && name.sin_port == htons(100));
    len = 4;
    CHECK(netchan_getsockname(server, (struct sockaddr *)&name, &len) == 0 && len == sizeof name);
    FAILS(netchan_getsockname(server, NULL, &len), EFAULT);
    FAILS(netchan_recv(server, &name, 1, 0), EAGAIN);
    FAILS(netchan_shutdown(server, 17), EINVAL);
    CHECK(netchan_close(client) == 0 && netchan_close(server) == 0 && netchan_close(door) == 0 && netchan_close(refused) == 0);
}

static void options(void)
{
    int value = 1;
    struct timeval time = {0, 50000}, told = {9, 9};
    socklen_t len = sizeof value;
    socket_t *s = tcp();
    CHECK(netchan_setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &value, sizeof value) == 0);
    value = 9;
    CHECK(netchan_getsockopt(s, IPPROTO_TCP, TCP_NODELAY, &value, &len) == 0 && value == 1 && len == sizeof value);
    CHECK(netchan_getsockopt(s, SOL_SOCKET, SO_TYPE, &value, &len) == 0 && value == SOCK_STREAM);
    FAILS(netchan_setsockopt(s, SOL_SOCKET, 4711, &value, sizeof value), ENOPROTOOPT);
    FAILS(netchan_getsockopt(s, IPPROTO_TCP, 4711, &value, &len), ENOPROTOOPT);
    FAILS(netchan_setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &value, 1), EINVAL);
    FAILS(netchan_setsockopt(s, IPPROTO_TCP, TCP_NODELAY, NULL, sizeof value), EFAULT);
    FAILS(netchan_getsockopt(s, IPPROTO_TCP, TCP_NODELAY, &value, NULL), EFAULT);
    FAILS(netchan_setsockopt(s, SOL_SOCKET, SO_TIMESTAMP, &value, sizeof value), ENOPROTOOPT);
    FAILS(netchan_setsockopt(s, IPPROTO_TCP, TCP_FASTOPEN_CONNECT, &value, sizeof value), ENOPROTOOPT);
    FAILS(netchan_setsockopt(s, IPPROTO_UDP, 103, &value, sizeof value), ENOPROTOOPT);
    CHECK(netchan_setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time) == 0);
    len = sizeof told;
    CHECK(netchan_getsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &told, &len) == 0 && told.tv_sec == 0 && told.tv_usec == 50000);
    CHECK(netchan_close(s) == 0);
}

static void transfers(void)
{
    char text[64];
    double begin;
    struct timeval time = {0, 50000};
    struct iovec out[2] = {{"ab", 2}, {"cd", 2}}, in[2];
    struct msghdr message;
    socket_t *client, *server;
    pair(101, &client, &server);
    FAILS(netchan_send(client, "x", 1, 0x4000000), EOPNOTSUPP);
    FAILS(netchan_recv(client, text, 1, MSG_ERRQUEUE), EOPNOTSUPP);
    FAILS(netchan_recv(client, text, 1, MSG_DONTWAIT), EAGAIN);
    FAILS(netchan_recv(client, NULL, 1, MSG_DONTWAIT), EFAULT);
    FAILS(netchan_send(client, NULL, 1, 0), EFAULT);
    CHECK(netchan_setsockopt(client, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time) == 0);
    begin = now();
    FAILS(netchan_recv(client, text, 1, 0), EAGAIN);
    CHECK(now() - begin > 0.045);
    errno = EXDEV;
    CHECK(netchan_send(client, "hello", 5, MSG_NOSIGNAL) == 5 && errno == EXDEV);
    is_readable(server);
    CHECK(netchan_recv(server, text, sizeof text, MSG_PEEK) == 5 && memcmp(text, "hello", 5) == 0);
    CHECK(netchan_recv(server, text, 2, 0) == 2 && memcmp(text, "he", 2) == 0);
    memset(&message, 0, sizeof message);
    message.msg_iov = out;
    message.msg_iovlen = 2;
    CHECK(netchan_sendmsg(client, &message, 0) == 4);
    message.msg_control = text;
    message.msg_controllen = 16;
    FAILS(netchan_sendmsg(client, &message, 0), EOPNOTSUPP);
    FAILS(netchan_sendmsg(client, NULL, 0), EFAULT);
    in[0].iov_base = text;
    in[0].iov_len = 3;
    in[1].iov_base = text + 10;
    in[1].iov_len = 4;
    message.msg_iov = in;
    CHECK(netchan_recvmsg(server, &message, MSG_WAITALL) == 7 && message.msg_controllen == 0);
    CHECK(memcmp(text, "llo", 3) == 0 && memcmp(text + 10, "abcd", 4) == 0);
    /* No signal, whatever the flags. */
    CHECK(netchan_shutdown(client, SHUT_WR) == 0);
    FAILS(netchan_send(client, "x", 1, 0), EPIPE);
    CHECK(netchan_recv(server, text, sizeof text, 0) == 0);
    CHECK(netchan_close(client) == 0 && netchan_close(server) == 0);
}

static void datagrams(void)
{
    char text[16];
    struct sockaddr_in here = at(102), from;
    socklen_t len = sizeof from;
    socket_t *a = netchan_socket(stack, AF_INET, SOCK_DGRAM, 0), *b = netchan_socket(stack, AF_INET, SOCK_DGRAM, IPPROTO_UDP);
    CHECK(a != NULL && b != NULL);
    CHECK(netchan_bind(a, (struct sockaddr *)&here, sizeof here) == 0);
    FAILS(netchan_send(b, "x", 1, 0), EDESTADDRREQ);
    CHECK(netchan_sendto(b, "datagram", 8, 0, (struct sockaddr *)&here, sizeof here) == 8);
    is_readable(a);
    CHECK(netchan_recvfrom(a, text, 4, MSG_TRUNC, (struct sockaddr *)&from, &len) == 8 && len == sizeof from);
    CHECK(memcmp(text, "data", 4) == 0 && from.sin_addr.s_addr == htonl(INADDR_LOOPBACK));
    CHECK(netchan_sendto(a, "back", 4, 0, (struct sockaddr *)&from, len) == 4);
    CHECK(netchan_recv(b, text, sizeof text, 0) == 4 && memcmp(text, "back", 4) == 0);
    FAILS(netchan_listen(a, 1), EOPNOTSUPP);
    IS_NULL(netchan_accept(a, NULL, NULL), EOPNOTSUPP);
    FAILS(netchan_reserve(a, 1, &(struct iovec){NULL, 0}, 1), EOPNOTSUPP);
    CHECK(netchan_close(a) == 0 && netchan_close(b) == 0);
}

/* The bytes of all pieces. */
static size_t sum(const struct iovec *pieces, int count)
{
    size_t all = 0;
    while (count-- > 0)
        all += pieces[count].iov_len;
    return all;
}

static void lending(void)
{
    static char big[40000];
    struct iovec first[16], then[16], room[4];
    char text[64];
    int i, count;
    socket_t *client, *server;
    pair(103, &client, &server);
    CHECK(netchan_set_nonblocking(server, 1) == 0);
    FAILS(netchan_peek_segments(server, first, 16), EAGAIN);
    FAILS(netchan_peek_segments(server, first, 0), EINVAL);
    FAILS(netchan_peek_segments(server, NULL, 1), EFAULT);
    FAILS(netchan_consume(server, 1), EAGAIN);
    CHECK(netchan_send(client, "one", 3, 0) == 3);
    is_readable(server);
    CHECK(netchan_peek_segments(server, first, 16) == 1 && first[0].iov_len == 3);
    /* It stays where it is while more comes. */
    memset(big, 'b', sizeof big);
    CHECK(netchan_send(client, big, sizeof big, 0) == (ssize_t)sizeof big);
    for (i = 0; i < 5000; i++) {
        count = netchan_peek_segments(server, then, 16);
        CHECK(count > 0);
        if (sum(then, count) == 3 + sizeof big)
            break;
        usleep(1000);
    }
    CHECK(sum(then, count) == 3 + sizeof big);
    CHECK(then[0].iov_base == first[0].iov_base && memcmp(first[0].iov_base, "one", 3) == 0);
    CHECK(netchan_peek_segments(server, then, 1) == 1);
    CHECK(netchan_consume(server, 0) == 0 && netchan_consume(server, 2) == 2);
    CHECK(netchan_recv(server, text, 1, 0) == 1 && text[0] == 'e');
    CHECK(netchan_consume(server, 1 << 20) == (ssize_t)sizeof big);
    FAILS(netchan_consume(server, 1), EAGAIN);

    FAILS(netchan_commit(client, 1), EINVAL);
    FAILS(netchan_reserve(client, 0, room, 4), EINVAL);
    FAILS(netchan_reserve(client, 1, room, -1), EINVAL);
    FAILS(netchan_reserve(client, 1, NULL, 1), EFAULT);
    count = netchan_reserve(client, 100000, room, 4);
    CHECK(count >= 2 && count <= 4 && sum(room, count) > 65536);
    for (i = 0; i < count; i++)
        memset(room[i].iov_base, 'a' + i, room[i].iov_len);
    FAILS(netchan_commit(client, sum(room, count) + 1), EINVAL);
    CHECK(netchan_commit(client, room[0].iov_len + 5) == (ssize_t)room[0].iov_len + 5);
    FAILS(netchan_commit(client, 1), EINVAL);
    CHECK(netchan_set_nonblocking(server, 0) == 0);
    {
        size_t len = room[0].iov_len + 5;
        char *all = malloc(len);
        CHECK(all != NULL && netchan_recv(server, all, len, MSG_WAITALL) == (ssize_t)len);
        for (i = 0; i < (int)len; i++)
            CHECK(all[i] == (i < (int)len - 5 ? 'a' : 'b'));
        free(all);
    }
    /* Room that is not wanted, or is asked for twice. */
    CHECK(netchan_reserve(client, 10, room, 4) == 1 && netchan_commit(client, 0) == 0);
    CHECK(netchan_reserve(client, 10, room, 4) == 1 && netchan_reserve(client, 10, room, 4) == 1);
    memcpy(room[0].iov_base, "last", 4);
    CHECK(netchan_commit(client, 4) == 4);
    CHECK(netchan_recv(server, text, sizeof text, 0) == 4 && memcmp(text, "last", 4) == 0);
    /* Only what was shown counts. */
    CHECK(netchan_reserve(client, 100000, room, 1) == 1);
    FAILS(netchan_commit(client, room[0].iov_len + 1), EINVAL);
    /* A socket that is closed with room and text lent. */
    CHECK(netchan_send(server, "unread", 6, 0) == 6);
    is_readable(client);
    CHECK(netchan_peek_segments(client, first, 16) == 1);
    CHECK(netchan_close(client) == 0);
    FAILS(netchan_peek_segments(server, first, 16), ECONNRESET);
    CHECK(netchan_peek_segments(server, first, 16) == 0);
    FAILS(netchan_reserve(server, 1, room, 4), EPIPE);
    CHECK(netchan_close(server) == 0);
}

static void polls(void)
{
    int ends[2];
    char byte;
    double begin;
    struct netchan *other = netchan_open_link("lo", NULL, NULL);
    socket_t *client, *server, *stranger = netchan_socket(other, AF_INET, SOCK_STREAM, 0);
    struct netchan_pollfd fds[4];
    pair(104, &client, &server);
    CHECK(pipe(ends) == 0);
    memset(fds, 0, sizeof fds);
    fds[0].socket = server;
    fds[0].events = POLLIN;
    fds[1].fd = ends[0];
    fds[1].events = POLLIN;
    fds[2].fd = -1;
    fds[2].revents = 7;
    CHECK(netchan_poll(fds, 3, 0) == 0 && fds[2].revents == 0);
    begin = now();
    CHECK(netchan_poll(fds, 3, 50) == 0 && now() - begin > 0.045);
    CHECK(write(ends[1], "x", 1) == 1);
    CHECK(netchan_poll(fds, 3, -1) == 1 && fds[0].revents == 0 && fds[1].revents == POLLIN);
    CHECK(netchan_send(client, "y", 1, 0) == 1);
    is_readable(server);
    CHECK(netchan_poll(fds, 3, -1) == 2 && fds[0].revents == POLLIN && fds[1].revents == POLLIN);
    CHECK(read(ends[0], &byte, 1) == 1);
    /* One socket twice. */
    fds[1].socket = server;
    fds[1].events = POLLOUT;
    CHECK(netchan_poll(fds, 3, -1) == 2 && fds[0].revents == POLLIN && fds[1].revents == POLLOUT);
    CHECK(netchan_poll(NULL, 0, 1) == 0);
    FAILS(netchan_poll(NULL, 1, 1), EFAULT);
    fds[1].socket = stranger;
    FAILS(netchan_poll(fds, 2, 0), EINVAL);
    CHECK(netchan_close(stranger) == 0 && netchan_end(other) == 0);
    CHECK(netchan_poll(fds + 1, 1, -1) == 1 && fds[1].revents == POLLNVAL);
    CHECK(netchan_close(client) == 0 && netchan_close(server) == 0);
    close(ends[0]);
    close(ends[1]);
}

static void *receives(void *socket)
{
    char byte;
    errno = 0;
    return netchan_recv(socket, &byte, 1, 0) == -1 && errno == EBADF ? socket : NULL;
}

static void *waits(void *socket)
{
    struct netchan_pollfd fd = {NULL, -1, POLLIN, 0};
    fd.socket = socket;
    return netchan_poll(&fd, 1, -1) == 1 && fd.revents == POLLNVAL ? socket : NULL;
}

/* A call that waits ends when another thread closes the socket. */
static void closing(void)
{
    void *(*const each[])(void *) = {receives, waits};
    int i;
    for (i = 0; i < 2; i++) {
        pthread_t thread;
        void *result;
        socket_t *client, *server;
        pair((unsigned short)(105 + i), &client, &server);
        CHECK(pthread_create(&thread, NULL, each[i], client) == 0);
        usleep(50000);
        CHECK(netchan_close(client) == 0);
        CHECK(pthread_join(thread, &result) == 0 && result == client);
        CHECK(netchan_close(server) == 0);
    }
}

static void on_alarm(int signal)
{
    (void)signal;
}

static void signals(void)
{
    char byte;
    struct sigaction action;
    struct itimerval soon = {{0, 0}, {0, 50000}};
    socket_t *client, *server;
    pair(107, &client, &server);
    memset(&action, 0, sizeof action);
    action.sa_handler = on_alarm;
    action.sa_flags = SA_RESTART;
    CHECK(sigaction(SIGALRM, &action, NULL) == 0);
    CHECK(setitimer(ITIMER_REAL, &soon, NULL) == 0);
    FAILS(netchan_recv(client, &byte, 1, 0), EINTR);
    CHECK(netchan_close(client) == 0 && netchan_close(server) == 0);
}

static void forks(void)
{
    int status;
    pid_t child;
    socket_t *client, *server;
    pair(108, &client, &server);
    child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        FAILS(netchan_send(client, "x", 1, 0), EBADF);
        FAILS(netchan_close(client), EBADF);
        IS_NULL(netchan_open_link("lo", NULL, NULL), EBADF);
        exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK(netchan_send(client, "x", 1, 0) == 1);
    CHECK(netchan_close(client) == 0 && netchan_close(server) == 0);
}

/* The stack runs on for the sockets it has. */
static void ending(void)
{
    char text[4];
    socket_t *client, *server;
    pair(109, &client, &server);
    CHECK(netchan_end(stack) == 0);
    CHECK(netchan_send(client, "on", 2, 0) == 2 && netchan_recv(server, text, 2, MSG_WAITALL) == 2);
    CHECK(netchan_close(client) == 0 && netchan_close(server) == 0);
}

int main(void)
{
    stack = netchan_open_link("lo", NULL, NULL);
    CHECK(stack != NULL);
    handles();
    opening();
    connections();
    options();
    transfers();
    datagrams();
    lending();
    polls();
    closing();
    signals();
    forks();
    ending();
    puts("ok");
    return 0;
}
