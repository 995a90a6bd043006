/* getifaddrs, if_nametoindex and if_indextoname: what a server that binds each address of its machine goes by. */
#define _GNU_SOURCE
#include "check.h"

#include <ifaddrs.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <sys/ioctl.h>
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

/* What a list of the kernel's has: of the addresses the wanted one, of the links one of its name; and whether there were others. */
struct seen {
    int wanted, others;
    char name[IF_NAMESIZE];
};

static void look(const struct nlmsghdr *at, const char *wanted, struct seen *seen) {
    if (at->nlmsg_type == RTM_NEWLINK) {
        const struct ifinfomsg *link = NLMSG_DATA(at);
        int len = IFLA_PAYLOAD(at), is_wanted = 0;
        for (struct rtattr *a = IFLA_RTA(link); RTA_OK(a, len); a = RTA_NEXT(a, len))
            if (a->rta_type == IFLA_IFNAME && !strcmp(RTA_DATA(a), wanted)) is_wanted = link->ifi_index == (int)if_nametoindex(wanted);
        is_wanted ? seen->wanted++ : seen->others++;
        if (is_wanted) CHECK((link->ifi_flags & (IFF_UP | IFF_RUNNING)) == (IFF_UP | IFF_RUNNING));
        return;
    }
    CHECK(at->nlmsg_type == RTM_NEWADDR);
    const struct ifaddrmsg *address = NLMSG_DATA(at);
    int len = IFA_PAYLOAD(at), is_wanted = 0;
    char text[64];
    for (struct rtattr *a = IFA_RTA(address); RTA_OK(a, len); a = RTA_NEXT(a, len))
        if (a->rta_type == IFA_ADDRESS && !strcmp(inet_ntop(address->ifa_family, RTA_DATA(a), text, sizeof text), wanted)) is_wanted = 1;
    is_wanted ? seen->wanted++ : seen->others++;
    if (!is_wanted) return;
    CHECK(address->ifa_prefixlen == (address->ifa_family == AF_INET ? 24 : 64));
    CHECK(if_indextoname(address->ifa_index, seen->name) == seen->name);
}

/* Asks the kernel for a list, as programs do that look at its messages themselves. */
static struct seen list(int type, int family, const char *wanted) {
    struct {
        struct nlmsghdr header;
        struct ifaddrmsg body;
    } ask = {{sizeof ask, type, NLM_F_REQUEST | NLM_F_DUMP, 7, 0}, {.ifa_family = family}};
    struct sockaddr_nl own = {.nl_family = AF_NETLINK}, from;
    socklen_t own_len = sizeof own;
    int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
    CHECK(bind(fd, (void *)&own, sizeof own) == 0 && getsockname(fd, (void *)&own, &own_len) == 0);
    CHECK(send(fd, &ask, sizeof ask, 0) == sizeof ask);
    struct seen seen = {0};
    for (int done = 0; !done;) {
        static char text[65536];
        struct iovec room = {text, 8};
        struct msghdr message = {.msg_name = &from, .msg_namelen = sizeof from, .msg_iov = &room, .msg_iovlen = 1};
        int there = recvmsg(fd, &message, MSG_PEEK | MSG_TRUNC);
        CHECK(there > 8 && message.msg_flags & MSG_TRUNC);
        room.iov_len = sizeof text;
        int got = recvmsg(fd, &message, 0);
        CHECK(got == there && message.msg_namelen == sizeof from && from.nl_family == AF_NETLINK && from.nl_pid == 0);
        if (got <= 0) break;
        for (struct nlmsghdr *at = (void *)text; NLMSG_OK(at, (unsigned)got); at = NLMSG_NEXT(at, got)) {
            CHECK(at->nlmsg_seq == 7 && at->nlmsg_pid == own.nl_pid && at->nlmsg_flags & NLM_F_MULTI);
            if (at->nlmsg_type == NLMSG_DONE) done = 1;
            else look(at, wanted, &seen);
        }
    }
    CHECK(recv(fd, &ask, sizeof ask, MSG_DONTWAIT) == -1 && errno == EAGAIN);
    close(fd);
    return seen;
}

static void lists(void) {
    struct seen v4 = list(RTM_GETADDR, AF_INET, "10.77.0.2"), v6 = list(RTM_GETADDR, AF_INET6, "fd77::2"), all = list(RTM_GETADDR, AF_UNSPEC, "10.77.0.2");
    CHECK(v4.wanted == 1 && v6.wanted == 1 && all.wanted == 1);
    CHECK(v4.others >= 2 && v6.others >= 2 && all.others > v4.others);
    struct seen links = list(RTM_GETLINK, AF_UNSPEC, v4.name);
    CHECK(links.wanted == 1 && links.others >= 2);
    struct ifreq ask = {0};
    memcpy(ask.ifr_name, v4.name, sizeof v4.name);
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    CHECK(ioctl(fd, SIOCGIFFLAGS, &ask) == 0 && (ask.ifr_flags & (IFF_UP | IFF_RUNNING | IFF_MULTICAST)) == (IFF_UP | IFF_RUNNING | IFF_MULTICAST));
    close(fd);
}

void check_interfaces(void) {
    if (on_netchan) lists();
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
