/* Calls about sockets with whatever arguments, from several processes, interrupted by signals; then one connection in good order. Started with the
   address of an echo server at port 7, and how many calls each process makes. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

static uint64_t seed;

static unsigned any(unsigned below) {
    seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
    return (unsigned)(seed >> 11) % below;
}

static void interrupted(int signal) { (void)signal; }

static const long CALLS[] = {SYS_bind, SYS_connect, SYS_listen, SYS_accept, SYS_accept4, SYS_getsockname, SYS_getpeername, SYS_setsockopt, SYS_getsockopt};

/* Somewhere, or nowhere: an address, a length, the last bytes of a page, memory that may not be written. */
static long place(char *page, struct sockaddr_in *to, int *len) {
    switch (any(8)) {
    case 0: return 0;
    case 1: return (long)seed;
    case 2: return (long)page + 4096 - any(30);
    case 3: return (long)"not to be written";
    case 4: *len = any(2) ? (int)any(64) : (int)seed; return (long)len;
    default: return (long)to;
    }
}

static void storm(in_addr_t peer, unsigned calls) {
    char *page = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct sigaction action = {.sa_handler = interrupted}; /* no SA_RESTART */
    sigaction(SIGALRM, &action, 0);
    struct itimerval soon = {{0, 3000}, {0, 3000}};
    setitimer(ITIMER_REAL, &soon, 0);
    for (unsigned i = 0; i < calls; i++) {
        int len = 16;
        struct sockaddr_in to = {.sin_family = any(16) ? AF_INET : any(12), .sin_port = htons(any(3) ? any(40) : any(65536))};
        to.sin_addr.s_addr = any(3) ? any(2) ? peer : htonl(0x0a070802) : any(2) ? 0 : (in_addr_t)seed;
        int made = socket(any(4) ? AF_INET : AF_INET6, any(8) ? SOCK_STREAM | (any(4) ? SOCK_NONBLOCK : 0) : SOCK_DGRAM, 0);
        if (made > 30 || any(3) == 0) close(3 + any(30));
        if (made > 40) close(made);
        for (int j = 0; j < 4; j++) {
            long rest[4];
            for (int k = 0; k < 4; k++) rest[k] = any(3) ? place(page, &to, &len) : (long)any(20);
            if (any(2)) rest[1] = 16;
            syscall(CALLS[any(9)], (long)any(40), rest[0], rest[1], rest[2], rest[3]);
        }
        if (any(16) == 0) send(3 + any(30), page, any(4096), MSG_DONTWAIT | MSG_NOSIGNAL);
        if (any(16) == 0) recv(3 + any(30), page, any(4096), MSG_DONTWAIT);
        if (any(200) == 0) {
            pid_t child = fork();
            if (child == 0) _exit(0);
            if (child > 0) kill(child, any(2) ? SIGKILL : SIGCONT);
        }
    }
}

int main(int count, char **words) {
    if (count != 3) return 2;
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(7), .sin_addr.s_addr = inet_addr(words[1])};
    signal(SIGCHLD, SIG_IGN);
    for (int process = 1; process <= 3; process++)
        if (fork() == 0) {
            seed = 0x9e3779b97f4a7c15u * process;
            storm(to.sin_addr.s_addr, atoi(words[2]));
            _exit(0);
        }
    while (wait(0) > 0 || errno == EINTR) {}
    char heard[8] = "";
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(fd, (void *)&to, sizeof to) || send(fd, "hello", 5, 0) != 5 || recv(fd, heard, 5, MSG_WAITALL) != 5) return perror("connection"), 1;
    puts(strcmp(heard, "hello") ? "another's bytes" : "in good order");
    return 0;
}
