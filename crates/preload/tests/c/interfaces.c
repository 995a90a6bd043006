/* getifaddrs, if_nametoindex and if_indextoname: what a server that binds each address of its machine goes by. */
#define _GNU_SOURCE
#include "check.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netpacket/packet.h>

static const char *text_of(const struct sockaddr *address) {
    static char text[64];
    if (address->sa_family == AF_INET) return inet_ntop(AF_INET, &((const struct sockaddr_in *)address)->sin_addr, text, sizeof text);
    return inet_ntop(AF_INET6, &((const struct sockaddr_in6 *)address)->sin6_addr, text, sizeof text);
}

/* A socket at the address hears what is sent there, by the interface of that name. */
static void hears(const struct ifaddrs *at) {
    int v4 = at->ifa_addr->sa_family == AF_INET, one = 1;
    struct sockaddr_storage here;
    socklen_t len = v4 ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
    memcpy(&here, at->ifa_addr, len);
    int fd = socket(at->ifa_addr->sa_family, SOCK_DGRAM, 0);
    CHECK(setsockopt(fd, v4 ? IPPROTO_IP : IPPROTO_IPV6, v4 ? IP_PKTINFO : IPV6_RECVPKTINFO, &one, sizeof one) == 0);
    CHECK(bind(fd, (void *)&here, len) == 0);
    CHECK(getsockname(fd, (void *)&here, &len) == 0);
    CHECK(sendto(fd, "x", 1, 0, (void *)&here, len) == 1);
    char byte, control[256], name[IF_NAMESIZE] = "";
    struct iovec room = {&byte, 1};
    struct msghdr message = {.msg_iov = &room, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    struct pollfd p = {fd, POLLIN, 0};
    CHECK(poll(&p, 1, 5000) == 1 && recvmsg(fd, &message, MSG_DONTWAIT) == 1);
    struct cmsghdr *told = CMSG_FIRSTHDR(&message);
    CHECK(told != 0);
    int number = !told ? 0 : v4 ? ((struct in_pktinfo *)CMSG_DATA(told))->ipi_ifindex : (int)((struct in6_pktinfo *)CMSG_DATA(told))->ipi6_ifindex;
    /* Of the kernel what a host sends to itself comes in by its loopback interface. */
    if (on_netchan) CHECK(number == (int)if_nametoindex(at->ifa_name));
    CHECK(if_indextoname(number, name) == name && if_nametoindex(name) == (unsigned)number);
    close(fd);
    fd = socket(at->ifa_addr->sa_family, SOCK_DGRAM, 0);
    CHECK(setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, at->ifa_name, strlen(at->ifa_name)) == 0);
    close(fd);
}

/* The netmask has the bits of the prefix, and of IPv4 the broadcast address all others. */
static void fits(const struct ifaddrs *at, int prefix) {
    CHECK(at->ifa_netmask && at->ifa_netmask->sa_family == at->ifa_addr->sa_family);
    const unsigned char *mask = (void *)&((struct sockaddr_in6 *)at->ifa_netmask)->sin6_addr;
    if (at->ifa_addr->sa_family == AF_INET) mask = (void *)&((struct sockaddr_in *)at->ifa_netmask)->sin_addr;
    int len = at->ifa_addr->sa_family == AF_INET ? 32 : 128, bits = 0;
    for (int i = 0; i < len; i++) bits += mask[i / 8] >> (7 - i % 8) & 1;
    CHECK(bits == prefix);
    if (len != 32 || !(at->ifa_flags & IFF_BROADCAST)) return;
    CHECK(at->ifa_broadaddr && !strcmp(text_of(at->ifa_broadaddr), "10.77.0.255"));
}

void check_interfaces(void) {
    const char *wanted[2] = {on_netchan ? "10.77.0.2" : "127.0.0.1", on_netchan ? "fd77::2" : "::1"};
    int found[2] = {0}, links = 0, others = 0;
    struct ifaddrs *all = 0;
    char name[IF_NAMESIZE];
    CHECK(getifaddrs(&all) == 0);
    for (struct ifaddrs *i = all; i; i = i->ifa_next) {
        CHECK(i->ifa_name && strlen(i->ifa_name) < IF_NAMESIZE && if_nametoindex(i->ifa_name) > 0);
        if (!i->ifa_addr) continue;
        if (i->ifa_addr->sa_family == AF_PACKET) {
            struct sockaddr_ll *link = (void *)i->ifa_addr;
            links += link->sll_ifindex == (int)if_nametoindex(i->ifa_name) && i->ifa_data != 0;
            continue;
        }
        int which = -1;
        for (int v6 = 0; v6 < 2; v6++)
            if (!strcmp(text_of(i->ifa_addr), wanted[v6])) which = v6;
        if (which < 0) {
            others++;
            continue;
        }
        found[which]++;
        CHECK((i->ifa_flags & (IFF_UP | IFF_RUNNING)) == (IFF_UP | IFF_RUNNING));
        fits(i, on_netchan ? which ? 64 : 24 : which ? 128 : 8);
        hears(i);
    }
    CHECK(found[0] == 1 && found[1] == 1);
    CHECK(links >= 1);
    /* The kernel's stand there, too. */
    if (on_netchan) CHECK(others >= 2);
    freeifaddrs(all);
    freeifaddrs(0);
    CHECK(if_nametoindex("no such one") == 0 && errno == ENODEV);
    CHECK(if_indextoname(123456, name) == 0 && errno == ENXIO);
}
