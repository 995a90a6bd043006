/* Random sequences of socket calls, and what each call said: a line each. The same sequences run on the kernel's sockets and on netchan's.
   Usage: sequences SEED FIRST COUNT kernel|netchan NAMESPACE|- [EXPECTED]. The hosts are 10.77.0.2 (this one) and 10.77.0.1, whose sockets
   are made in NAMESPACE. With EXPECTED, the lines of an earlier run, each call waits until what can be seen of the sockets is what stands
   there (a second at most, or NETCHAN_PATIENCE_MS): so an answer never depends on how quick a segment was. */
#include "sequences.h"

#include <sched.h>

struct slot slots[SLOTS];
int with_peer, blocking, peer_namespace = -1, port_base, unseen;
volatile int pipes;

static uint64_t state;
static char line[512];
static int sequence, step, diverged;

static char **expected;
static double patience = 1;
static int expected_first, expected_count;

uint32_t draw(uint32_t below) {
    uint64_t z = state += 0x9e3779b97f4a7c15; /* splitmix64 */
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return (uint32_t)((z ^ (z >> 31)) >> 32) % below;
}

int step_number(void) { return step; }

void say(const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
}

static void see(char *into, size_t room) {
    size_t len = 0;
    *into = 0;
    for (int s = 0; s < SLOTS; s++)
        if (slots[s].fd >= 0 && len < room) len += observe(s, into + len, room - len);
}

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + now.tv_nsec / 1e9;
}

/* Whether a FIN waits for its acknowledgment, which Linux may delay. */
static int closing_down(const char *seen) {
    return strstr(seen, "/4 ") || strstr(seen, "/9 ") || strstr(seen, "/11 ");
}

/* Whether bytes wait for an acknowledgment. On Linux's own sockets they do where one that is shut for reading was read empty, and here and there
   behind an urgent byte: an acknowledgment is delayed, and text waits for it. */
static int under_way(void) {
    int sum = 0;
    for (int s = 0; s < SLOTS; s++)
        if (slots[s].fd >= 0 && slots[s].stream && !raw(s)) sum += unacknowledged(s);
    return sum > 0;
}

/* The same of the far end's sockets: their text waits for an acknowledgment, of ours or, of one that is connected to itself, of its own; and
   behind an urgent mark nobody sees that it has not come yet. */
static int under_way_here(void) {
    int sum = 0;
    for (int s = 0; s < SLOTS; s++)
        if (slots[s].fd >= 0 && slots[s].stream && raw(s)) sum += unacknowledged(s);
    return sum > 0;
}

/* Whether a SYN of netchan's waits for its answer, which may be under way. */
static int connecting(const char *seen) { return expected && strstr(seen, "/2 "); }

/* What the sockets look like once nothing is under way any more. */
static void settle(char *into, size_t room) {
    int at = (sequence - expected_first) * STEPS + step;
    const char *wanted = expected && at >= 0 && at < expected_count && expected[at] ? strstr(expected[at], " | ") : 0;
    double begin = seconds();
    char before[256];
    see(into, room);
    if (wanted) {
        /* Where others wait before it nothing shows that a datagram came, and of what is closed nothing that its FIN was acknowledged; of the
           kernel's own sockets both came within the call. */
        if (unseen) {
            all_has_come();
            while (under_way_here() && seconds() - begin < 0.06) usleep(200);
            usleep(patience * 20000), see(into, room);
        }
        for (;;) {
            double waited = seconds() - begin;
            int differs = strcmp(wanted + 3, into);
            if (!differs && connecting(into)) {
                all_has_come(), see(into, room);
                differs = strcmp(wanted + 3, into);
            }
            if (diverged || !differs) break;
            if (waited > patience) diverged = 1;
            if (waited > 0.001) usleep(200);
            else sched_yield();
            see(into, room);
        }
        /* A delayed acknowledgment comes within 40 ms; where a window is closed none does. */
        while (under_way() && !diverged && seconds() - begin < 0.06) usleep(200);
        return;
    }
    do {
        strcpy(before, into);
        sched_yield();
        see(into, room);
    } while (strcmp(before, into) || ((closing_down(into) || under_way() || under_way_here()) && seconds() - begin < 0.1));
}

static void finish(void) {
    char seen[256];
    int broken = pipes;
    pipes = 0;
    if (step >= STEPS) return;
    settle(seen, sizeof seen);
    unseen = 0;
    printf("%d.%d %s%s | %s\n", sequence, step, line, broken ? " SIGPIPE" : "", seen);
    step++;
}

static void random_step(void) {
    static const struct {
        int weight;
        void (*run)(int);
    } steps[] = {
        {3, step_socket},  {5, step_bind},   {4, step_listen},   {7, step_connect}, {7, step_accept},     {14, step_send},
        {14, step_receive}, {5, step_shutdown}, {3, step_close}, {3, step_duplicate}, {4, step_poll}, {6, step_get_option},
        {4, step_set_option}, {4, step_names}, {2, step_descriptor},
    };
    int total = 0, s = draw(SLOTS);
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) total += steps[i].weight;
    int chosen = draw(total);
    size_t i = 0;
    while (chosen >= steps[i].weight) chosen -= steps[i++].weight;
    /* Mostly what is open. */
    for (int tries = 0; slots[s].fd < 0 && tries < 4; tries++) s = draw(SLOTS);
    if (slots[s].fd < 0) step_socket(s);
    else steps[i].run(s);
    finish();
}

/* Left to chance two sockets rarely meet. */
static void beginning(void) {
    int how = draw(6), v6 = draw(3) == 0, client = draw(2) ? 0 : SLOTS / 2, server = client ? 0 : SLOTS / 2;
    if (how == 0) return;
    int stream = how < 4;
    open_socket(server, stream, v6), finish();
    bind_to(server, draw(2) ? ADDRESS_OWN : ADDRESS_WILDCARD, 0), finish();
    if (stream) step_listen(server), finish();
    open_socket(client, stream, v6), finish();
    if (how == 1) return;
    connect_to(client, ADDRESS_OTHER_END, 0), finish();
    if (stream && how == 3) accept_into(server, server + 1), finish();
    if (!stream && draw(2)) step_send(client), finish();
}

static void run(uint64_t seed) {
    state = seed * 0x9e3779b97f4a7c15 + sequence;
    step = diverged = 0;
    with_peer = draw(2);
    blocking = draw(16) == 0;
    port_base = 1024 + sequence % 7000 * 4;
    for (int s = 0; s < SLOTS; s++) slots[s].fd = -1;
    beginning();
    while (step < STEPS) random_step();
    for (int s = 0; s < SLOTS; s++) abandon(s);
    fflush(stdout);
}

/* A first socket: netchan begins with it, so that no sequence has to. */
static void begin(void) {
    struct sockaddr_in here = {.sin_family = AF_INET};
    inet_pton(AF_INET, "10.77.0.2", &here.sin_addr);
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    if (fd < 0 || bind(fd, (void *)&here, sizeof here) || close(fd)) abort();
}

static void on_pipe(int number) { pipes = number; }

static void read_expected(const char *path, int first, int count) {
    FILE *file = fopen(path, "r");
    if (!file) abort();
    expected_first = first;
    expected_count = count * STEPS;
    expected = calloc(expected_count, sizeof *expected);
    char *text = 0;
    size_t room = 0;
    while (getline(&text, &room, file) > 0) {
        int n, m;
        text[strcspn(text, "\n")] = 0;
        if (sscanf(text, "%d.%d", &n, &m) != 2 || n < first || n >= first + count || m >= STEPS) continue;
        expected[(n - first) * STEPS + m] = strdup(text);
    }
    fclose(file);
}

int main(int argc, char **argv) {
    if (argc < 6) return 2;
    uint64_t seed = strtoull(argv[1], 0, 0);
    int first = atoi(argv[2]), count = atoi(argv[3]);
    static char buffer[1 << 16];
    setvbuf(stdout, buffer, _IOFBF, sizeof buffer);
    if (getenv("NETCHAN_PATIENCE_MS")) patience = atof(getenv("NETCHAN_PATIENCE_MS")) / 1000;
    signal(SIGPIPE, on_pipe);
    if (strcmp(argv[5], "-") && (peer_namespace = open(argv[5], O_RDONLY | O_CLOEXEC)) < 0) return 2;
    begin();
    if (argc > 6) read_expected(argv[6], first, count), open_barrier();
    for (sequence = first; sequence < first + count; sequence++) {
        alarm(60); /* a call that hangs */
        run(seed);
    }
    return 0;
}
