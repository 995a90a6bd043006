/*
 * Opens a stack over the TAP nc0 again and again. Two threads wait on each, and live on.
 */
#define _POSIX_C_SOURCE 200809L

#include <netchan.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define ROUNDS 3

static pthread_barrier_t barrier;
static struct netchan *stack;

static void die(const char *what)
{
    fprintf(stderr, "reopens: %s: %s\n", what, netchan_error());
    exit(1);
}

/* Waits a little on the stack of the round. */
static void wait_on_it(void)
{
    struct netchan_pollfd fd = {NULL, -1, POLLIN, 0};
    fd.socket = netchan_socket(stack, AF_INET, SOCK_DGRAM, 0);
    if (fd.socket == NULL || netchan_poll(&fd, 1, 20) < 0 || netchan_close(fd.socket) < 0)
        die("poll");
}

static void *follow(void *unused)
{
    int i;
    for (i = 0; i < ROUNDS; i++) {
        pthread_barrier_wait(&barrier);
        wait_on_it();
        pthread_barrier_wait(&barrier);
    }
    return unused;
}

int main(void)
{
    int i;
    pthread_t thread;
    pthread_barrier_init(&barrier, NULL, 2);
    if (pthread_create(&thread, NULL, follow, NULL) != 0)
        die("pthread_create");
    for (i = 0; i < ROUNDS; i++) {
        stack = netchan_open_link("tap:nc0", "10.77.0.2/24", NULL);
        if (stack == NULL)
            die("open");
        pthread_barrier_wait(&barrier);
        wait_on_it();
        pthread_barrier_wait(&barrier);
        netchan_end(stack);
    }
    pthread_join(thread, NULL);
    return 0;
}
