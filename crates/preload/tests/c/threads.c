/* Several threads on one descriptor. */
#define _GNU_SOURCE
#include <sys/epoll.h>

#include "check.h"

struct job {
    int fd;
    long result;
    int error;
    volatile int thread;
};

static void *reads(void *arg) {
    struct job *job = arg;
    char byte;
    job->thread = gettid();
    job->result = read(job->fd, &byte, 1);
    job->error = errno;
    return 0;
}

static void *accepts(void *arg) {
    struct job *job = arg;
    job->result = accept(job->fd, 0, 0);
    job->error = errno;
    return 0;
}

static void *floods(void *arg) {
    struct job *job = arg;
    static char data[1 << 20];
    memset(data, 0x7f, sizeof data); /* wants more back than we read */
    do job->result = send(job->fd, data, sizeof data, MSG_NOSIGNAL); while (job->result > 0);
    job->error = errno;
    return 0;
}

/* Linux lets the other thread wait on; netchan ends its wait (negative 73). Neither may hang after a shutdown. */
static void close_under(void *(*call)(void *), int fd) {
    struct job job = {fd, 0, 0};
    pthread_t thread;
    pthread_create(&thread, 0, call, &job);
    usleep(100000);
    if (on_netchan) close(fd);
    else shutdown(fd, SHUT_RDWR);
    pthread_join(thread, 0);
    if (on_netchan) CHECK(job.result == -1 && job.error == EBADF);
    else close(fd);
}

static void closes(void) {
    struct sockaddr_in any = {.sin_family = AF_INET};
    close_under(reads, connected(PORT_SILENT));
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(bind(listener, (void *)&any, sizeof any) == 0 && listen(listener, 1) == 0);
    close_under(accepts, listener);
    close_under(floods, connected(PORT_SOURCE));
}

/* What waits under a number that comes to mean something else has nothing to do with that. */
static void replaced(void) {
    if (!on_netchan) return;
    int ends[2];
    CHECK(pipe(ends) == 0);
    for (int round = 0; round < 20; round++) {
        struct job job = {connected(PORT_SILENT), 0, 0};
        pthread_t thread;
        pthread_create(&thread, 0, reads, &job);
        await_sleep(&job.thread);
        CHECK(write(ends[1], "x", 1) == 1);
        CHECK(dup2(ends[0], job.fd) == job.fd);
        pthread_join(thread, 0);
        CHECK(job.result == -1 && job.error == EBADF);
        char byte;
        CHECK(fcntl(ends[0], F_SETFL, O_NONBLOCK) == 0 && read(ends[0], &byte, 1) == 1);
        CHECK(fcntl(ends[0], F_SETFL, 0) == 0);
        close(job.fd);
    }
    close(ends[0]), close(ends[1]);
}

/* One writes, one reads, on one descriptor at once. */
static void *writes_much(void *arg) {
    struct job *job = arg;
    static char data[10000];
    for (int i = 0; i < 400; i++)
        if (send(job->fd, data, sizeof data, 0) == sizeof data) job->result += sizeof data;
    shutdown(job->fd, SHUT_WR);
    return 0;
}

static void both_ways(void) {
    struct job job = {connected(PORT_ECHO), 0, 0};
    pthread_t thread;
    pthread_create(&thread, 0, writes_much, &job);
    static char data[65536];
    long got = 0;
    for (ssize_t n; (n = read(job.fd, data, sizeof data)) > 0;) got += n;
    pthread_join(thread, 0);
    CHECK(got == 4000000 && job.result == 4000000);
    close(job.fd);
}

static void *many_calls(void *arg) {
    struct job *job = arg;
    for (int i = 0; i < 20; i++) {
        char data[4];
        int fd = connected(PORT_ECHO);
        job->result += write(fd, "ping", 4) == 4 && recv(fd, data, 4, MSG_WAITALL) == 4;
        close(fd);
    }
    return 0;
}

static void side_by_side(void) {
    struct job jobs[8] = {0};
    pthread_t threads[8];
    for (int i = 0; i < 8; i++) pthread_create(&threads[i], 0, many_calls, &jobs[i]);
    for (int i = 0; i < 8; i++) {
        pthread_join(threads[i], 0);
        CHECK(jobs[i].result == 20);
    }
}

void check_threads(void) {
    closes();
    replaced();
    both_ways();
    side_by_side();
}
