/* The far end of the calls under test: a kernel-side service that does what the first bytes of a connection ask. */
#pragma once

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Ports of the services. */
#define PORT_ECHO 9001    /* sends back what it gets */
#define PORT_SOURCE 9002  /* sends as many bytes as the 8 bytes that it reads say: byte i is i % 251; then closes */
#define PORT_SINK 9003    /* reads to the end, answers with the count and a checksum (8 + 8 bytes) */
#define PORT_RESET 9004   /* reads one byte and resets */
#define PORT_SILENT 9005  /* accepts and says nothing */
#define PORT_CALLBACK 9006 /* reads a port (2 bytes), connects back to it, sends "back", echoes until the end */
#define PORT_URGENT 9007  /* sends "abc", the c urgent, then "def"; answers an urgent byte with it, in line */
#define PORT_FASTBACK 9008 /* reads a port (2 bytes), connects back to it twice with MSG_FASTOPEN and "back" */
#define PORT_CLOSED 9009  /* nobody listens */

static inline uint64_t sum_of(uint64_t sum, const unsigned char *data, size_t len) {
    for (size_t i = 0; i < len; i++) sum = sum * 31 + data[i];
    return sum;
}

static inline struct sockaddr_in address_of(const char *ip, int port) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port)};
    if (inet_pton(AF_INET, ip, &a.sin_addr) != 1) abort();
    return a;
}
