/* The socket calls of a program, checked against what Linux does. Usage: calls PEER-ADDRESS kernel|netchan GROUP... */
#include "check.h"

const char *peer_ip;
int on_netchan;
int failures;

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        void (*run)(void);
        int alone;
    } groups[] = {
        {"transfers", check_transfers}, {"endpoints", check_endpoints},
        {"waiting", check_waiting},     {"epoll", check_epoll},
        {"descriptors", check_descriptors}, {"options", check_options},
        {"datagrams", check_datagrams}, {"messages", check_messages},
        {"threads", check_threads},     {"processes", check_processes}, {"groups", check_groups},
        {"fastopen", check_fastopen}, {"signals", check_signals}, {"cancels", check_cancels},
        {"numbers", check_numbers}, {"ends", check_ends}, {"exhausted", check_exhausted},
        {"interfaces", check_interfaces},
        /* Those that want a process to themselves run when they are named. */
        {"exhausted-hard", check_exhausted_hard, 1}, {"vfork-first", check_vfork_first, 1},
        {"fork-first", check_fork_first, 1}, {"leaves-child", check_leaves_child, 1},
        {"counts", check_counts, 1}, {"cpus", check_cpus, 1},
    };
    if (argc < 3) return 2;
    setvbuf(stdout, 0, _IONBF, 0);
    alarm(60); /* a call that hangs is a failure */
    peer_ip = argv[1];
    on_netchan = strcmp(argv[2], "netchan") == 0;
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++) {
        int wanted = argc == 3 && !groups[i].alone;
        for (int j = 3; j < argc; j++) wanted |= strcmp(argv[j], groups[i].name) == 0;
        if (!wanted) continue;
        printf("%s\n", groups[i].name);
        groups[i].run();
    }
    printf(failures ? "%d failures\n" : "all right\n", failures);
    return failures != 0;
}
