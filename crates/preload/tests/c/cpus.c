/* SO_INCOMING_CPU: of sockets that share a port the one that names the processor gets what it takes in. In a process of its own, which runs on one. */
#define _GNU_SOURCE
#include "check.h"

#include <sched.h>

#define SHARING 4
#define FLOWS 64

static int this_cpu, other_cpu;

static void name_cpu(int fd, int cpu) { CHECK(setsockopt(fd, SOL_SOCKET, SO_INCOMING_CPU, &cpu, sizeof cpu) == 0); }

/* Sockets at one port. */
static struct sockaddr_in share(int kind, int *fds) {
    int one = 1;
    struct sockaddr_in at = address_of(on_netchan ? "10.77.0.2" : "127.0.0.1", 0);
    socklen_t len = sizeof at;
    for (int i = 0; i < SHARING; i++) {
        fds[i] = socket(AF_INET, kind | SOCK_NONBLOCK, 0);
        CHECK(setsockopt(fds[i], SOL_SOCKET, SO_REUSEPORT, &one, sizeof one) == 0);
        if (i == 1) name_cpu(fds[i], other_cpu); /* before it is bound */
        CHECK(bind(fds[i], (void *)&at, sizeof at) == 0);
        CHECK(getsockname(fds[i], (void *)&at, &len) == 0);
        if (kind == SOCK_STREAM) CHECK(listen(fds[i], FLOWS) == 0);
    }
    return at;
}

/* Each flow gets to one of them: how many to each. */
static void meet(int kind, struct sockaddr_in at, int *fds, int *got) {
    struct pollfd p[SHARING];
    int clients[FLOWS], left = FLOWS;
    memset(got, 0, SHARING * sizeof *got);
    for (int i = 0; i < FLOWS; i++) {
        clients[i] = socket(AF_INET, kind, 0);
        CHECK(connect(clients[i], (void *)&at, sizeof at) == 0);
        if (kind == SOCK_DGRAM) CHECK(send(clients[i], "x", 1, 0) == 1);
    }
    for (int i = 0; i < SHARING; i++) p[i] = (struct pollfd){fds[i], POLLIN, 0};
    while (left > 0 && poll(p, SHARING, 5000) > 0)
        for (int i = 0; i < SHARING; i++) {
            char byte;
            int fd = -1;
            while (kind == SOCK_DGRAM ? recv(fds[i], &byte, 1, 0) == 1 : (fd = accept(fds[i], 0, 0)) >= 0) got[i]++, left--, fd >= 0 ? close(fd) : 0;
        }
    CHECK(left == 0);
    for (int i = 0; i < FLOWS; i++) close(clients[i]);
}

static int most(const int *got) {
    int best = 0;
    for (int i = 1; i < SHARING; i++)
        if (got[i] > got[best]) best = i;
    return best;
}

void check_cpus(void) {
    cpu_set_t may, one;
    CHECK(sched_getaffinity(0, sizeof may, &may) == 0);
    for (int i = 0; i < CPU_SETSIZE; i++)
        if (CPU_ISSET(i, &may)) this_cpu = i;
    other_cpu = this_cpu + 1;
    CPU_ZERO(&one);
    CPU_SET(this_cpu, &one);
    CHECK(sched_setaffinity(0, sizeof one, &one) == 0); /* netchan's threads, too: they begin later */
    for (int k = 0; k < 2; k++) {
        int kind = k ? SOCK_STREAM : SOCK_DGRAM, fds[SHARING], got[SHARING];
        struct sockaddr_in at = share(kind, fds);
        meet(kind, at, fds, got);
        CHECK(got[most(got)] < FLOWS); /* nobody names this one */
        name_cpu(fds[2], this_cpu);
        meet(kind, at, fds, got);
        CHECK(got[2] == FLOWS);
        name_cpu(fds[2], other_cpu), name_cpu(fds[1], this_cpu);
        meet(kind, at, fds, got);
        CHECK(got[1] == FLOWS);
        name_cpu(fds[1], -1);
        meet(kind, at, fds, got);
        CHECK(got[most(got)] < FLOWS);
        for (int i = 0; i < SHARING; i++) close(fds[i]);
    }
}
