/*
 * An echo server and client over netchan.
 *
 *   echo self                             both, over the loopback addresses of a stack of its own
 *   echo serve LINK ADDRESSES PORT [N]    serves N connections (1), one after the other
 *   echo ask LINK ADDRESSES HOST PORT     sends what it reads, writes what comes back
 *
 * The server copies nothing by itself: it reads received text where it lies, and writes the answer into memory of the send queue.
 * cc echo.c $(pkg-config --cflags --libs netchan) -lpthread
 */
#define _POSIX_C_SOURCE 200809L

#include <arpa/inet.h>
#include <errno.h>
#include <netchan.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void die(const char *what)
{
    const char *why = strncmp(what, "netchan_open", 12) == 0 ? netchan_error() : "";
    fprintf(stderr, "echo: %s: %s\n", what, *why != '\0' ? why : strerror(errno));
    exit(1);
}

static struct sockaddr_in address(const char *host, const char *port)
{
    struct sockaddr_in address;
    memset(&address, 0, sizeof address);
    address.sin_family = AF_INET;
    address.sin_port = htons((uint16_t)atoi(port));
    if (inet_pton(AF_INET, host, &address.sin_addr) != 1)
        die(host);
    return address;
}

/* Copies what was received into the room there is to send; how many bytes. */
static size_t copy(const struct iovec *from, int count_from, const struct iovec *to, int count_to)
{
    size_t copied = 0, from_at = 0, to_at = 0;
    int i = 0, k = 0;
    while (i < count_from && k < count_to) {
        size_t left = from[i].iov_len - from_at, room = to[k].iov_len - to_at;
        size_t n = left < room ? left : room;
        memcpy((char *)to[k].iov_base + to_at, (const char *)from[i].iov_base + from_at, n);
        copied += n;
        from_at += n;
        to_at += n;
        if (from_at == from[i].iov_len) {
            from_at = 0;
            i++;
        }
        if (to_at == to[k].iov_len) {
            to_at = 0;
            k++;
        }
    }
    return copied;
}

/* Until the peer has sent its end. Returns the bytes echoed. */
static size_t echo(struct netchan_socket *socket)
{
    struct iovec received[16], room[4];
    size_t all = 0;
    for (;;) {
        size_t there = 0, copied;
        ssize_t sent;
        int i, rooms, pieces = netchan_peek_segments(socket, received, 16);
        if (pieces < 0)
            die("netchan_peek_segments");
        if (pieces == 0)
            return all;
        for (i = 0; i < pieces; i++)
            there += received[i].iov_len;
        rooms = netchan_reserve(socket, there, room, 4);
        if (rooms < 0)
            die("netchan_reserve");
        copied = copy(received, pieces, room, rooms);
        sent = netchan_commit(socket, copied);
        if (sent < 0)
            die("netchan_commit");
        if (netchan_consume(socket, (size_t)sent) != sent)
            die("netchan_consume");
        all += (size_t)sent;
    }
}

static struct netchan_socket *listen_at(struct netchan *stack, const char *port)
{
    struct sockaddr_in any = address("0.0.0.0", port);
    struct netchan_socket *listener = netchan_socket(stack, AF_INET, SOCK_STREAM, 0);
    if (listener == NULL)
        die("netchan_socket");
    if (netchan_bind(listener, (struct sockaddr *)&any, sizeof any) < 0)
        die("netchan_bind");
    if (netchan_listen(listener, 16) < 0)
        die("netchan_listen");
    return listener;
}

static void serve(struct netchan_socket *listener, int connections)
{
    while (connections-- > 0) {
        struct netchan_socket *socket = netchan_accept(listener, NULL, NULL);
        size_t echoed;
        if (socket == NULL)
            die("netchan_accept");
        echoed = echo(socket);
        fprintf(stderr, "echo: %zu bytes\n", echoed);
        netchan_close(socket);
    }
}

static struct netchan_socket *connect_to(struct netchan *stack, const char *host, const char *port)
{
    struct sockaddr_in peer = address(host, port);
    struct netchan_socket *socket = netchan_socket(stack, AF_INET, SOCK_STREAM, 0);
    if (socket == NULL)
        die("netchan_socket");
    if (netchan_connect(socket, (struct sockaddr *)&peer, sizeof peer) < 0)
        die("netchan_connect");
    return socket;
}

/* Sends all of a file, and writes to another what comes back: one thread, with netchan_poll() over both. */
static void ask(struct netchan_socket *socket, int in, int out)
{
    static char sending[65536], coming[65536];
    size_t at = 0, held = 0;
    int ended = 0;
    for (;;) {
        struct netchan_pollfd fds[2] = {{NULL, -1, POLLIN, 0}, {NULL, -1, POLLIN, 0}};
        fds[0].socket = socket;
        if (held > at)
            fds[0].events |= POLLOUT;
        else if (!ended)
            fds[1].fd = in;
        if (netchan_poll(fds, 2, -1) < 0)
            die("netchan_poll");
        if (fds[1].revents != 0) {
            ssize_t n = read(in, sending, sizeof sending);
            if (n < 0)
                die("read");
            if (n == 0) {
                ended = 1;
                if (netchan_shutdown(socket, SHUT_WR) < 0)
                    die("netchan_shutdown");
            }
            at = 0;
            held = (size_t)n;
        }
        if (fds[0].revents & POLLOUT) {
            ssize_t n = netchan_send(socket, sending + at, held - at, MSG_DONTWAIT);
            if (n < 0 && errno != EAGAIN)
                die("netchan_send");
            if (n > 0)
                at += (size_t)n;
        }
        if (fds[0].revents & (POLLIN | POLLHUP | POLLERR)) {
            ssize_t n = netchan_recv(socket, coming, sizeof coming, MSG_DONTWAIT);
            if (n < 0 && errno != EAGAIN)
                die("netchan_recv");
            if (n == 0)
                return;
            for (ssize_t done = 0; done < n;) {
                ssize_t written = write(out, coming + done, (size_t)(n - done));
                if (written < 0)
                    die("write");
                done += written;
            }
        }
    }
}

static void *serve_one(void *listener)
{
    serve(listener, 1);
    return NULL;
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    struct netchan *stack;
    if (strcmp(what, "self") == 0) {
        struct netchan_socket *listener, *socket;
        pthread_t server;
        stack = netchan_open_link("lo", NULL, NULL);
        if (stack == NULL)
            die("netchan_open_link");
        listener = listen_at(stack, "7");
        if (pthread_create(&server, NULL, serve_one, listener) != 0)
            die("pthread_create");
        socket = connect_to(stack, "127.0.0.1", "7");
        ask(socket, 0, 1);
        pthread_join(server, NULL);
        netchan_close(socket);
        netchan_close(listener);
    } else if (strcmp(what, "serve") == 0 && argc >= 5) {
        struct netchan_socket *listener;
        stack = netchan_open_link(argv[2], argv[3], NULL);
        if (stack == NULL)
            die("netchan_open_link");
        listener = listen_at(stack, argv[4]);
        fprintf(stderr, "echo: listening\n");
        serve(listener, argc > 5 ? atoi(argv[5]) : 1);
        netchan_close(listener);
    } else if (strcmp(what, "ask") == 0 && argc == 6) {
        struct netchan_socket *socket;
        stack = netchan_open_link(argv[2], argv[3], NULL);
        if (stack == NULL)
            die("netchan_open_link");
        socket = connect_to(stack, argv[4], argv[5]);
        ask(socket, 0, 1);
        netchan_close(socket);
    } else {
        fprintf(stderr, "usage: echo self | serve LINK ADDRESSES PORT [N] | ask LINK ADDRESSES HOST PORT\n");
        return 2;
    }
    /* What was sent is still on its way: connections end with the program. */
    netchan_drain(stack, 5000);
    netchan_end(stack);
    return 0;
}
