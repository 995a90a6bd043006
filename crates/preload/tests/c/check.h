/* One check after the other, each with its line. */
#pragma once

#include "peer.h"

extern const char *peer_ip;   /* where the services are */
extern int on_netchan;        /* this process is preloaded and the peer is netchan's to reach */
extern int failures;

#define CHECK(what)                                                                          \
    do {                                                                                     \
        errno = 0;                                                                           \
        if (!(what)) {                                                                       \
            printf("FAIL %s:%d: %s (errno %d %s)\n", __FILE__, __LINE__, #what, errno,       \
                   strerror(errno));                                                         \
            failures++;                                                                      \
        }                                                                                    \
    } while (0)

/* The call fails with this errno. */
#define FAILS(code, call)                                                                    \
    do {                                                                                     \
        errno = 0;                                                                           \
        long result_ = (call);                                                               \
        if (result_ != -1 || errno != (code)) {                                              \
            printf("FAIL %s:%d: %s is %ld, errno %d %s, wanted %s\n", __FILE__, __LINE__,    \
                   #call, result_, errno, strerror(errno), #code);                           \
            failures++;                                                                      \
        }                                                                                    \
    } while (0)

static inline int connected(int port) {
    struct sockaddr_in to = address_of(peer_ip, port);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0 || connect(fd, (void *)&to, sizeof to)) {
        printf("FAIL connect to port %d: %s\n", port, strerror(errno));
        exit(1);
    }
    return fd;
}

/* Until a thread of this process, by its number for the kernel, has been asleep for a while: it waits in the call that it was to make. At most half
 * a minute, since a machine may be busy. */
static inline void await_sleep(const volatile int *thread) {
    char path[64], line[256] = "";
    for (int tries = 0, seen = 0; seen < 5 && tries < 60000; tries++, usleep(500)) {
        snprintf(path, sizeof path, "/proc/self/task/%d/stat", *thread);
        FILE *file = *thread ? fopen(path, "r") : 0;
        char *told = file && fgets(line, sizeof line, file) ? strrchr(line, ')') : 0;
        seen = told && told[2] == 'S' ? seen + 1 : 0;
        if (file) fclose(file);
    }
}

static inline void nonblocking(int fd) {
    CHECK(fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) == 0);
}

void check_transfers(void);
void check_endpoints(void);
void check_waiting(void);
void check_epoll(void);
void check_descriptors(void);
void check_options(void);
void check_datagrams(void);
void check_messages(void);
void check_threads(void);
void check_processes(void);
void check_groups(void);
void check_fastopen(void);
void check_signals(void);
void check_cancels(void);
void check_numbers(void);
void check_ends(void);
void check_exhausted(void);
void check_exhausted_hard(void);
void check_vfork_first(void);
void check_fork_first(void);
void check_leaves_child(void);
void check_counts(void);
void check_interfaces(void);
void check_cpus(void);
