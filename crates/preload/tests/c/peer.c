/* The kernel-side services of peer.h, TCP and (echo) UDP; over IPv6 UDP alone, on all addresses. Usage: peer ADDRESS; prints "ready". */
#include "peer.h"

static int reads(int fd, void *to, size_t len) {
    for (size_t done = 0; done < len;) {
        ssize_t n = read(fd, (char *)to + done, len - done);
        if (n <= 0) return 0;
        done += n;
    }
    return 1;
}

static int writes(int fd, const void *from, size_t len) {
    for (size_t done = 0; done < len;) {
        ssize_t n = send(fd, (const char *)from + done, len - done, MSG_NOSIGNAL);
        if (n <= 0) return 0;
        done += n;
    }
    return 1;
}

static void echo(int fd) {
    char data[65536];
    for (ssize_t n; (n = read(fd, data, sizeof data)) > 0;)
        if (!writes(fd, data, n)) return;
}

static void source(int fd) {
    uint64_t left, at = 0;
    unsigned char data[25100];
    if (!reads(fd, &left, sizeof left)) return;
    for (; left > 0;) {
        size_t len = left < sizeof data ? left : sizeof data;
        for (size_t i = 0; i < len; i++) data[i] = (at + i) % 251;
        if (!writes(fd, data, len)) return;
        at += len;
        left -= len;
    }
}

static void sink(int fd) {
    unsigned char data[65536];
    uint64_t answer[2] = {0, 0};
    for (ssize_t n; (n = read(fd, data, sizeof data)) > 0;) {
        answer[0] += n;
        answer[1] = sum_of(answer[1], data, n);
    }
    writes(fd, answer, sizeof answer);
}

static void reset(int fd) {
    char byte;
    struct linger now = {1, 0};
    if (reads(fd, &byte, 1)) setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
}

static void silent(int fd) {
    char data[64];
    while (read(fd, data, sizeof data) > 0) continue;
}

static void urgent(int fd) {
    char byte;
    if (send(fd, "abc", 3, MSG_OOB) != 3 || !writes(fd, "def", 3)) return;
    struct pollfd p = {fd, POLLPRI, 0};
    if (poll(&p, 1, 30000) != 1 || recv(fd, &byte, 1, MSG_OOB) != 1) return;
    writes(fd, &byte, 1);
    silent(fd);
}

static void callback(int fd) {
    uint16_t port;
    struct sockaddr_in from;
    socklen_t len = sizeof from;
    if (!reads(fd, &port, sizeof port) || getpeername(fd, (void *)&from, &len)) return;
    from.sin_port = htons(port);
    int back = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(back, (void *)&from, sizeof from) == 0 && writes(back, "back", 4)) echo(back);
    close(back);
}

static void fastback(int fd) {
    uint16_t port;
    struct sockaddr_in to;
    socklen_t len = sizeof to;
    char byte;
    if (!reads(fd, &port, sizeof port) || getpeername(fd, (void *)&to, &len)) return;
    to.sin_port = htons(port);
    for (int i = 0; i < 2; i++) {
        int back = socket(AF_INET, SOCK_STREAM, 0);
        if (sendto(back, "back", 4, MSG_FASTOPEN, (void *)&to, sizeof to) == 4) reads(back, &byte, 1);
        close(back);
    }
}

struct service {
    int port;
    void (*serve)(int);
    int listener;
    int fd;
};

static void *serve_one(void *arg) {
    struct service *one = arg;
    one->serve(one->fd);
    close(one->fd);
    free(one);
    return 0;
}

static void *accept_all(void *arg) {
    struct service *service = arg;
    for (;;) {
        struct service *one = malloc(sizeof *one);
        *one = *service;
        one->fd = accept(service->listener, 0, 0);
        pthread_t thread;
        if (one->fd < 0 || pthread_create(&thread, 0, serve_one, one)) exit(1);
        pthread_detach(thread);
    }
}

static void *answer(void *arg) {
    for (int udp = *(int *)arg;;) {
        char data[65536];
        struct sockaddr_in6 from;
        socklen_t len = sizeof from;
        ssize_t n = recvfrom(udp, data, sizeof data, 0, (void *)&from, &len);
        if (n >= 0) sendto(udp, data, n, 0, (void *)&from, len);
    }
}

int main(int argc, char **argv) {
    static struct service services[] = {
        {PORT_ECHO, echo},     {PORT_SOURCE, source}, {PORT_SINK, sink},
        {PORT_RESET, reset},   {PORT_SILENT, silent}, {PORT_CALLBACK, callback},
        {PORT_URGENT, urgent}, {PORT_FASTBACK, fastback},
    };
    const char *ip = argc > 1 ? argv[1] : "127.0.0.1";
    struct sockaddr_in at;
    int one = 1, queue = 64;
    for (size_t i = 0; i < sizeof services / sizeof *services; i++) {
        at = address_of(ip, services[i].port);
        services[i].listener = socket(AF_INET, SOCK_STREAM, 0);
        setsockopt(services[i].listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
        setsockopt(services[i].listener, IPPROTO_TCP, TCP_FASTOPEN, &queue, sizeof queue);
        pthread_t thread;
        if (bind(services[i].listener, (void *)&at, sizeof at) || listen(services[i].listener, 4096)) {
            perror("peer");
            return 1;
        }
        pthread_create(&thread, 0, accept_all, &services[i]);
    }
    at = address_of(ip, PORT_ECHO);
    int udp = socket(AF_INET, SOCK_DGRAM, 0);
    if (bind(udp, (void *)&at, sizeof at)) return 1;
    struct sockaddr_in6 at6 = {AF_INET6, htons(PORT_ECHO)};
    int udp6 = socket(AF_INET6, SOCK_DGRAM, 0);
    pthread_t thread;
    setsockopt(udp6, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof one);
    if (udp6 >= 0 && bind(udp6, (void *)&at6, sizeof at6) == 0) pthread_create(&thread, 0, answer, &udp6);
    puts("ready");
    fflush(stdout);
    answer(&udp);
}
