/* Random sequences of calls: what the generator (sequences.c) and its calls (sequence_calls.c) share. */
#pragma once

#define _GNU_SOURCE
#include <stdarg.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <time.h>

#include "peer.h"

#define SLOTS 6
#define STEPS 40

/* A place for a descriptor. Slots from `SLOTS / 2` on are the far end's, which in a sequence with a peer are the kernel's own sockets. */
struct slot {
    int fd;
    int stream, v6;
};

extern struct slot slots[SLOTS];
extern int with_peer;  /* the far end is a kernel at PEER, else this same host */
extern int blocking;   /* sockets block, for PATIENCE at most */
extern int peer_namespace; /* where the far end's sockets are made, -1: here */
extern int port_base;
extern int unseen; /* something was sent in this step that may change what is not looked at */
extern volatile int pipes; /* SIGPIPEs since the last call */

#define PATIENCE_US 15000
/* No answer of a connect that gets one depends on how quick it is; nor does a SYN that gets none (the accept queue is full) become one of two
   by calls that wait: the second would come after a second, and tell what has become of the listener. */
#define PATIENCE_TO_SEND_US 100000

/* Numbers from the seed; the same ones whatever the calls answer. */
uint32_t draw(uint32_t below);

/* The answer of the step: what was called and what came of it. */
int step_number(void);
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));

static inline int far(int s) { return s >= SLOTS / 2; }
static inline int raw(int s) { return with_peer && far(s); }

void step_socket(int s);
void step_bind(int s);
void step_listen(int s);
void step_connect(int s);
void step_accept(int s);
void step_send(int s);
void step_receive(int s);
void step_shutdown(int s);
void step_close(int s);
void step_duplicate(int s);
void step_poll(int s);
void step_get_option(int s);
void step_set_option(int s);
void step_names(int s);
void step_descriptor(int s);

/* The beginnings that make later calls mean something. */
void open_socket(int s, int stream, int v6);
void bind_to(int s, int address, int port);
void connect_to(int s, int address, int port);
void accept_into(int s, int into);
enum { ADDRESS_OWN, ADDRESS_WILDCARD, ADDRESS_OTHER_END };

/* What can be seen of a socket without changing it. */
int observe(int s, char *into, size_t room);
/* Sockets by which to wait until all that was sent has come, and that wait (a second at most). */
void open_barrier(void);
void all_has_come(void);
/* Bytes of a stream that the far end has not acknowledged. */
int unacknowledged(int s);
void abandon(int s);
