/* close, dup, fcntl, ioctl, fstat. */
#define _GNU_SOURCE
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "check.h"

static int echoes(int fd) {
    char byte = 0;
    return write(fd, "x", 1) == 1 && read(fd, &byte, 1) == 1 && byte == 'x';
}

static void duplicates(void) {
    int fd = connected(PORT_ECHO), file = open("/dev/null", O_RDWR);
    int copy = dup(fd), at = dup2(fd, 200), three = dup3(fd, 201, O_CLOEXEC);
    int up = fcntl(fd, F_DUPFD, 300), closing = fcntl(fd, F_DUPFD_CLOEXEC, 300);
    CHECK(at == 200 && three == 201 && up >= 300 && closing > up);
    CHECK((fcntl(closing, F_GETFD) & FD_CLOEXEC) && !(fcntl(up, F_GETFD) & FD_CLOEXEC));
    CHECK(fcntl(201, F_GETFD) & FD_CLOEXEC);
    nonblocking(copy); /* the description's, not the number's */
    CHECK(fcntl(fd, F_GETFL) & O_NONBLOCK);
    CHECK(fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK) == 0);
    close(fd);
    CHECK(echoes(copy) && echoes(200) && echoes(201) && echoes(up) && echoes(closing));
    CHECK(dup2(file, copy) == copy && write(copy, "x", 1) == 1 && read(copy, &file, 1) == 0);
    FAILS(EBADF, dup2(900, 200)); /* nobody's */
    CHECK(echoes(200));           /* left alone */
    CHECK(dup2(200, 200) == 200);
    FAILS(EINVAL, dup3(200, 200, 0));
    CHECK(dup2(200, copy) == copy && echoes(copy));
    close(copy), close(200), close(201), close(up);
    CHECK(echoes(closing));
    close(closing);
    FAILS(EBADF, close(closing));
}

static void reuse(void) {
    char byte;
    int fd = connected(PORT_ECHO);
    close(fd);
    int file = open("/dev/zero", O_RDONLY);
    CHECK(file == fd && read(file, &byte, 1) == 1 && byte == 0);
    FAILS(ENOTSOCK, send(file, &byte, 1, 0));
    close(file);
}

static void streams(void) {
    char line[32], byte;
    int fd = connected(PORT_ECHO);
    FILE *out = fdopen(dup(fd), "w"), *in = fdopen(fd, "r");
    CHECK(out && in && fileno(in) == fd);
    CHECK(fprintf(out, "line %d\nand more\n", 1) == 16 && fflush(out) == 0);
    CHECK(fgets(line, sizeof line, in) && strcmp(line, "line 1\n") == 0);
    CHECK(fgets(line, sizeof line, in) && strcmp(line, "and more\n") == 0);
    CHECK(shutdown(fileno(out), SHUT_WR) == 0);
    CHECK(fgets(line, sizeof line, in) == 0 && feof(in));
    CHECK(fclose(out) == 0 && fclose(in) == 0);
    int file = open("/dev/zero", O_RDONLY); /* the number means something else now */
    CHECK(file == fd && read(file, &byte, 1) == 1 && byte == 0);
    close(file);
}

static void controls(void) {
    int fd = connected(PORT_ECHO), n = -1, on = 1;
    struct stat facts;
    char data[16];
    CHECK(fstat(fd, &facts) == 0 && S_ISSOCK(facts.st_mode));
    FAILS(ESPIPE, lseek(fd, 0, SEEK_CUR));
    CHECK(!isatty(fd));
    CHECK(ioctl(fd, FIONREAD, &n) == 0 && n == 0);
    CHECK(write(fd, "0123456789", 10) == 10);
    for (int i = 0; i < 1000 && n < 10; i++) usleep(1000), ioctl(fd, FIONREAD, &n);
    CHECK(n == 10);
    CHECK(ioctl(fd, TIOCOUTQ, &n) == 0 && n == 0);
    CHECK(ioctl(fd, FIONBIO, &on) == 0 && (fcntl(fd, F_GETFL) & O_NONBLOCK));
    CHECK(read(fd, data, 16) == 10);
    FAILS(EAGAIN, read(fd, data, 16));
    CHECK(ioctl(fd, FIOCLEX) == 0 && (fcntl(fd, F_GETFD) & FD_CLOEXEC));
    CHECK(fcntl(fd, F_SETFD, 0) == 0 && fcntl(fd, F_GETFD) == 0);
    close(fd);
}

static void ranges(void) {
    int fd = connected(PORT_ECHO), copy = dup2(fd, 400);
    CHECK(close_range(400, 410, 0) == 0);
    FAILS(EBADF, write(copy, "x", 1));
    CHECK(echoes(fd));
    CHECK(close_range(fd, fd, CLOSE_RANGE_CLOEXEC) == 0);
    CHECK(echoes(fd) && (fcntl(fd, F_GETFD) & FD_CLOEXEC));
    close(fd);
}

static void many(void) {
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    int top = limit.rlim_cur > 3000 ? 3000 : (int)limit.rlim_cur;
    int fd = connected(PORT_ECHO), last = fd;
    for (int i = 500; i < top; i++) last = dup2(fd, i);
    CHECK(echoes(last));
    for (int i = 500; i < top; i++) close(i);
    CHECK(echoes(fd));
    close(fd);
    /* No number left: the connection that waits is not lost. */
    int none = socket(AF_INET, SOCK_STREAM, 0);
    close(none);
}

void check_descriptors(void) {
    duplicates();
    reuse();
    streams();
    controls();
    ranges();
    many();
}
