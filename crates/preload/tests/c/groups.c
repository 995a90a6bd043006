/* Multicast: membership, filters, and what goes to groups. */
#define _GNU_SOURCE
#include "check.h"

#define GROUP "239.77.1.2"
#define V6_ALL 29 /* IPV6_MULTICAST_ALL */

static struct in_addr own; /* our address where the peer is */

static struct ip_mreqn request(const char *group, struct in_addr address, int index) {
    struct ip_mreqn r = {.imr_address = address, .imr_ifindex = index};
    if (inet_pton(AF_INET, group, &r.imr_multiaddr) != 1) abort();
    return r;
}

static int membership(int fd, int name, const char *group) {
    struct ip_mreqn r = request(group, own, 0);
    return setsockopt(fd, IPPROTO_IP, name, &r, sizeof(struct ip_mreq));
}

static int source(int fd, int name, const char *from) {
    struct ip_mreq_source r = {.imr_multiaddr.s_addr = inet_addr(GROUP), .imr_interface = own,
                               .imr_sourceaddr.s_addr = inet_addr(from)};
    return setsockopt(fd, IPPROTO_IP, name, &r, sizeof r);
}

static int set(int fd, int level, int name, int value) {
    return setsockopt(fd, level, name, &value, sizeof value);
}

static int get(int fd, int level, int name) {
    int value = 0;
    socklen_t len = sizeof value;
    return getsockopt(fd, level, name, &value, &len) ? -1 : value;
}

static void joining(void) {
    struct in_addr nobody = {inet_addr("192.0.2.77")};
    struct ip_mreqn r;
    int fd = socket(AF_INET, SOCK_DGRAM, 0), stream = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(membership(fd, IP_ADD_MEMBERSHIP, GROUP) == 0);
    FAILS(EADDRINUSE, membership(fd, IP_ADD_MEMBERSHIP, GROUP));
    CHECK(membership(fd, IP_DROP_MEMBERSHIP, GROUP) == 0);
    FAILS(EADDRNOTAVAIL, membership(fd, IP_DROP_MEMBERSHIP, GROUP));
    FAILS(EINVAL, membership(fd, IP_ADD_MEMBERSHIP, "10.1.2.3"));
    r = request(GROUP, nobody, 0);
    FAILS(ENODEV, setsockopt(fd, IPPROTO_IP, IP_ADD_MEMBERSHIP, &r, sizeof(struct ip_mreq)));
    r = request(GROUP, own, 9999);
    FAILS(ENODEV, setsockopt(fd, IPPROTO_IP, IP_ADD_MEMBERSHIP, &r, sizeof r));
    FAILS(EINVAL, setsockopt(fd, IPPROTO_IP, IP_ADD_MEMBERSHIP, &r, 7));
    r = request(GROUP, own, 1); /* the index counts, not the address */
    CHECK(setsockopt(fd, IPPROTO_IP, IP_ADD_MEMBERSHIP, &r, sizeof r) == 0);
    CHECK(setsockopt(fd, IPPROTO_IP, IP_DROP_MEMBERSHIP, &r, sizeof r) == 0);
    FAILS(EPROTO, membership(stream, IP_ADD_MEMBERSHIP, GROUP));
    for (int i = 1; i <= 21; i++) {
        char group[32];
        snprintf(group, sizeof group, "239.77.2.%d", i);
        if (i <= 20) CHECK(membership(fd, IP_ADD_MEMBERSHIP, group) == 0);
        else FAILS(ENOBUFS, membership(fd, IP_ADD_MEMBERSHIP, group));
    }
    close(fd), close(stream);
}

static void filtering(void) {
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    CHECK(membership(fd, IP_ADD_MEMBERSHIP, "239.77.9.9") == 0);
    FAILS(EINVAL, source(fd, IP_BLOCK_SOURCE, "192.0.2.1")); /* not joined */
    CHECK(membership(fd, IP_ADD_MEMBERSHIP, GROUP) == 0);
    CHECK(source(fd, IP_BLOCK_SOURCE, "192.0.2.1") == 0);
    FAILS(EADDRNOTAVAIL, source(fd, IP_BLOCK_SOURCE, "192.0.2.1"));
    FAILS(EINVAL, source(fd, IP_ADD_SOURCE_MEMBERSHIP, "192.0.2.2")); /* the other mode */
    FAILS(EADDRNOTAVAIL, source(fd, IP_UNBLOCK_SOURCE, "192.0.2.3"));
    CHECK(source(fd, IP_UNBLOCK_SOURCE, "192.0.2.1") == 0);
    for (int i = 1; i <= 11; i++) {
        char from[32];
        snprintf(from, sizeof from, "192.0.2.%d", i);
        if (i <= 10) CHECK(source(fd, IP_BLOCK_SOURCE, from) == 0);
        else FAILS(ENOBUFS, source(fd, IP_BLOCK_SOURCE, from));
    }
    CHECK(membership(fd, IP_DROP_MEMBERSHIP, GROUP) == 0);
    CHECK(source(fd, IP_ADD_SOURCE_MEMBERSHIP, "192.0.2.1") == 0);
    FAILS(EADDRNOTAVAIL, source(fd, IP_ADD_SOURCE_MEMBERSHIP, "192.0.2.1"));
    FAILS(EINVAL, source(fd, IP_BLOCK_SOURCE, "192.0.2.1"));
    CHECK(source(fd, IP_ADD_SOURCE_MEMBERSHIP, "192.0.2.2") == 0);
    CHECK(source(fd, IP_DROP_SOURCE_MEMBERSHIP, "192.0.2.1") == 0);
    CHECK(source(fd, IP_DROP_SOURCE_MEMBERSHIP, "192.0.2.2") == 0); /* the last one: the group is left */
    FAILS(EADDRNOTAVAIL, membership(fd, IP_DROP_MEMBERSHIP, GROUP));
    close(fd);
}

/* The calls of RFC 3678. */
static void by_protocol(void) {
    struct group_req group = {.gr_interface = 1};
    struct group_source_req both = {.gsr_interface = 1};
    struct sockaddr_in g = address_of(GROUP, 0), s = address_of("192.0.2.1", 0);
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    memcpy(&group.gr_group, &g, sizeof g);
    memcpy(&both.gsr_group, &g, sizeof g), memcpy(&both.gsr_source, &s, sizeof s);
    CHECK(setsockopt(fd, IPPROTO_IP, MCAST_JOIN_GROUP, &group, sizeof group) == 0);
    FAILS(EADDRINUSE, setsockopt(fd, IPPROTO_IP, MCAST_JOIN_GROUP, &group, sizeof group));
    CHECK(setsockopt(fd, IPPROTO_IP, MCAST_BLOCK_SOURCE, &both, sizeof both) == 0);
    CHECK(setsockopt(fd, IPPROTO_IP, MCAST_UNBLOCK_SOURCE, &both, sizeof both) == 0);
    CHECK(setsockopt(fd, IPPROTO_IP, MCAST_LEAVE_GROUP, &group, sizeof group) == 0);
    CHECK(setsockopt(fd, IPPROTO_IP, MCAST_JOIN_SOURCE_GROUP, &both, sizeof both) == 0);
    CHECK(setsockopt(fd, IPPROTO_IP, MCAST_LEAVE_SOURCE_GROUP, &both, sizeof both) == 0);
    FAILS(EADDRNOTAVAIL, setsockopt(fd, IPPROTO_IP, MCAST_LEAVE_GROUP, &group, sizeof group));
    FAILS(EINVAL, setsockopt(fd, IPPROTO_IP, MCAST_JOIN_GROUP, &group, 8));
    close(fd);
}

/* A filter in one call, and what is told of it. */
static void whole_filters(void) {
    char room[IP_MSFILTER_SIZE(11)] = {0};
    struct ip_msfilter *f = (void *)room;
    socklen_t len;
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    CHECK(membership(fd, IP_ADD_MEMBERSHIP, "239.77.9.9") == 0); /* netchan's from here on */
    f->imsf_multiaddr.s_addr = inet_addr(GROUP), f->imsf_interface = own;
    f->imsf_fmode = MCAST_EXCLUDE, f->imsf_numsrc = 2;
    f->imsf_slist[0].s_addr = inet_addr("192.0.2.1"), f->imsf_slist[1].s_addr = inet_addr("192.0.2.2");
    FAILS(EINVAL, setsockopt(fd, IPPROTO_IP, IP_MSFILTER, f, IP_MSFILTER_SIZE(2))); /* not joined */
    len = sizeof room;
    FAILS(EADDRNOTAVAIL, getsockopt(fd, IPPROTO_IP, IP_MSFILTER, f, &len));
    CHECK(membership(fd, IP_ADD_MEMBERSHIP, GROUP) == 0);
    FAILS(EINVAL, setsockopt(fd, IPPROTO_IP, IP_MSFILTER, f, IP_MSFILTER_SIZE(2) - 1));
    CHECK(setsockopt(fd, IPPROTO_IP, IP_MSFILTER, f, IP_MSFILTER_SIZE(2)) == 0);
    FAILS(EADDRNOTAVAIL, source(fd, IP_BLOCK_SOURCE, "192.0.2.2"));
    CHECK(source(fd, IP_BLOCK_SOURCE, "192.0.2.3") == 0);
    f->imsf_numsrc = 1, f->imsf_fmode = 9, f->imsf_slist[1].s_addr = 0x5a5a5a5a;
    len = sizeof room;
    CHECK(getsockopt(fd, IPPROTO_IP, IP_MSFILTER, f, &len) == 0 && len == IP_MSFILTER_SIZE(1));
    CHECK(f->imsf_numsrc == 3 && f->imsf_fmode == MCAST_EXCLUDE && f->imsf_slist[1].s_addr == 0x5a5a5a5a);
    CHECK(f->imsf_slist[0].s_addr == inet_addr("192.0.2.1"));
    f->imsf_numsrc = 11;
    FAILS(ENOBUFS, setsockopt(fd, IPPROTO_IP, IP_MSFILTER, f, IP_MSFILTER_SIZE(11)));
    f->imsf_numsrc = 1, f->imsf_fmode = 2;
    FAILS(EINVAL, setsockopt(fd, IPPROTO_IP, IP_MSFILTER, f, IP_MSFILTER_SIZE(1)));
    f->imsf_fmode = MCAST_INCLUDE;
    CHECK(setsockopt(fd, IPPROTO_IP, IP_MSFILTER, f, IP_MSFILTER_SIZE(1)) == 0);
    CHECK(source(fd, IP_DROP_SOURCE_MEMBERSHIP, "192.0.2.1") == 0); /* it was the only one: left */
    FAILS(EADDRNOTAVAIL, membership(fd, IP_DROP_MEMBERSHIP, GROUP));
    CHECK(membership(fd, IP_ADD_MEMBERSHIP, GROUP) == 0);
    f->imsf_numsrc = 0; /* nobody: left, too */
    CHECK(setsockopt(fd, IPPROTO_IP, IP_MSFILTER, f, IP_MSFILTER_SIZE(0)) == 0);
    FAILS(EADDRNOTAVAIL, membership(fd, IP_DROP_MEMBERSHIP, GROUP));
    close(fd);
}

/* The same as RFC 3678 has it for both families. */
static void whole_filters_by_protocol(int family, const char *group, const char *a, const char *b) {
    int level = family == AF_INET ? IPPROTO_IP : IPPROTO_IPV6;
    char room[GROUP_FILTER_SIZE(2)] = {0};
    struct group_filter *f = (void *)room;
    struct group_req r = {.gr_interface = 1};
    socklen_t len = sizeof room;
    int fd = socket(family, SOCK_DGRAM, 0);
    void *at = family == AF_INET ? (void *)&((struct sockaddr_in *)&r.gr_group)->sin_addr
                                 : (void *)&((struct sockaddr_in6 *)&r.gr_group)->sin6_addr;
    size_t offset = (char *)at - (char *)&r.gr_group;
    r.gr_group.ss_family = family;
    inet_pton(family, group, at);
    CHECK(setsockopt(fd, level, MCAST_JOIN_GROUP, &r, sizeof r) == 0);
    f->gf_interface = 1, f->gf_group = r.gr_group, f->gf_fmode = MCAST_INCLUDE, f->gf_numsrc = 2;
    f->gf_slist[0].ss_family = f->gf_slist[1].ss_family = family;
    inet_pton(family, a, (char *)&f->gf_slist[0] + offset), inet_pton(family, b, (char *)&f->gf_slist[1] + offset);
    FAILS(EINVAL, setsockopt(fd, level, MCAST_MSFILTER, f, sizeof room - 1));
    CHECK(setsockopt(fd, level, MCAST_MSFILTER, f, sizeof room) == 0);
    memset(f->gf_slist, 0x5a, sizeof room - GROUP_FILTER_SIZE(0));
    f->gf_fmode = 9;
    CHECK(getsockopt(fd, level, MCAST_MSFILTER, f, &len) == 0 && len == sizeof room);
    CHECK(f->gf_numsrc == 2 && f->gf_fmode == MCAST_INCLUDE);
    CHECK(f->gf_slist[1].ss_family == family);
    char seen[16], wanted[16];
    memcpy(seen, (char *)&f->gf_slist[1] + offset, sizeof seen), inet_pton(family, b, wanted);
    CHECK(memcmp(seen, wanted, family == AF_INET ? 4 : 16) == 0);
    f->gf_numsrc = 0;
    CHECK(setsockopt(fd, level, MCAST_MSFILTER, f, GROUP_FILTER_SIZE(0)) == 0);
    FAILS(EADDRNOTAVAIL, setsockopt(fd, level, MCAST_LEAVE_GROUP, &r, sizeof r));
    close(fd);
}

static void settings(void) {
    struct in_addr nobody = {inet_addr("192.0.2.77")}, seen;
    socklen_t len = sizeof seen;
    unsigned char byte = 9;
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    CHECK(membership(fd, IP_ADD_MEMBERSHIP, GROUP) == 0);
    CHECK(get(fd, IPPROTO_IP, IP_MULTICAST_TTL) == 1);
    CHECK(set(fd, IPPROTO_IP, IP_MULTICAST_TTL, 33) == 0 && get(fd, IPPROTO_IP, IP_MULTICAST_TTL) == 33);
    CHECK(setsockopt(fd, IPPROTO_IP, IP_MULTICAST_TTL, &byte, 1) == 0 && get(fd, IPPROTO_IP, IP_MULTICAST_TTL) == 9);
    CHECK(set(fd, IPPROTO_IP, IP_MULTICAST_TTL, -1) == 0 && get(fd, IPPROTO_IP, IP_MULTICAST_TTL) == 1);
    FAILS(EINVAL, set(fd, IPPROTO_IP, IP_MULTICAST_TTL, 256));
    CHECK(get(fd, IPPROTO_IP, IP_TTL) == 64);
    CHECK(get(fd, IPPROTO_IP, IP_MULTICAST_LOOP) == 1);
    CHECK(set(fd, IPPROTO_IP, IP_MULTICAST_LOOP, 0) == 0 && get(fd, IPPROTO_IP, IP_MULTICAST_LOOP) == 0);
    CHECK(get(fd, IPPROTO_IP, IP_MULTICAST_ALL) == 1);
    FAILS(EINVAL, set(fd, IPPROTO_IP, IP_MULTICAST_ALL, 2));
    FAILS(EADDRNOTAVAIL, setsockopt(fd, IPPROTO_IP, IP_MULTICAST_IF, &nobody, sizeof nobody));
    CHECK(setsockopt(fd, IPPROTO_IP, IP_MULTICAST_IF, &own, sizeof own) == 0);
    CHECK(getsockopt(fd, IPPROTO_IP, IP_MULTICAST_IF, &seen, &len) == 0 && seen.s_addr == own.s_addr);
    close(fd);
}

static void settings_v6(void) {
    struct ipv6_mreq r = {.ipv6mr_interface = 1};
    int fd = socket(AF_INET6, SOCK_DGRAM, 0);
    inet_pton(AF_INET6, "ff05::77:1", &r.ipv6mr_multiaddr);
    CHECK(setsockopt(fd, IPPROTO_IPV6, IPV6_JOIN_GROUP, &r, sizeof r) == 0);
    FAILS(EADDRINUSE, setsockopt(fd, IPPROTO_IPV6, IPV6_JOIN_GROUP, &r, sizeof r));
    CHECK(setsockopt(fd, IPPROTO_IPV6, IPV6_LEAVE_GROUP, &r, sizeof r) == 0);
    FAILS(EADDRNOTAVAIL, setsockopt(fd, IPPROTO_IPV6, IPV6_LEAVE_GROUP, &r, sizeof r));
    FAILS(EINVAL, setsockopt(fd, IPPROTO_IPV6, IPV6_JOIN_GROUP, &r, 16));
    r.ipv6mr_interface = 9999;
    FAILS(ENODEV, setsockopt(fd, IPPROTO_IPV6, IPV6_JOIN_GROUP, &r, sizeof r));
    inet_pton(AF_INET6, "fd00::1", &r.ipv6mr_multiaddr);
    FAILS(EINVAL, setsockopt(fd, IPPROTO_IPV6, IPV6_JOIN_GROUP, &r, sizeof r));
    CHECK(get(fd, IPPROTO_IPV6, IPV6_MULTICAST_HOPS) == 1);
    CHECK(set(fd, IPPROTO_IPV6, IPV6_MULTICAST_HOPS, 7) == 0 && get(fd, IPPROTO_IPV6, IPV6_MULTICAST_HOPS) == 7);
    FAILS(EINVAL, set(fd, IPPROTO_IPV6, IPV6_MULTICAST_HOPS, 256));
    CHECK(get(fd, IPPROTO_IPV6, IPV6_MULTICAST_LOOP) == 1);
    FAILS(EINVAL, set(fd, IPPROTO_IPV6, IPV6_MULTICAST_LOOP, 2));
    CHECK(get(fd, IPPROTO_IPV6, V6_ALL) == 1);
    FAILS(ENODEV, set(fd, IPPROTO_IPV6, IPV6_MULTICAST_IF, 9999));
    CHECK(set(fd, IPPROTO_IPV6, IPV6_MULTICAST_IF, 1) == 0 && get(fd, IPPROTO_IPV6, IPV6_MULTICAST_IF) == 1);
    close(fd);
}

/* Two sockets on one port. */
static int member(int port) {
    struct sockaddr_in any = {.sin_family = AF_INET, .sin_port = htons(port)};
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    struct timeval patience = {3, 0};
    CHECK(set(fd, SOL_SOCKET, SO_REUSEADDR, 1) == 0);
    CHECK(membership(fd, IP_ADD_MEMBERSHIP, GROUP) == 0);
    CHECK(bind(fd, (void *)&any, sizeof any) == 0);
    CHECK(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) == 0);
    return fd;
}

static int heard(int fd) {
    char text = 0;
    return recv(fd, &text, 1, 0) == 1 ? text : -errno;
}

static void mail(void) {
    struct sockaddr_in to = address_of(GROUP, 19077), from;
    socklen_t len = sizeof from;
    char text[4];
    int a = member(19077), b = member(19077), sender = socket(AF_INET, SOCK_DGRAM, 0);
    CHECK(setsockopt(sender, IPPROTO_IP, IP_MULTICAST_IF, &own, sizeof own) == 0);
    CHECK(sendto(sender, "1", 1, 0, (void *)&to, sizeof to) == 1);
    CHECK(recvfrom(a, text, 4, 0, (void *)&from, &len) == 1 && text[0] == '1');
    CHECK(from.sin_addr.s_addr == own.s_addr && len == sizeof from);
    CHECK(heard(b) == '1'); /* each member gets it */
    struct iovec piece = {text, sizeof text};
    union { struct cmsghdr head; char room[64]; } control;
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    CHECK(set(b, IPPROTO_IP, IP_PKTINFO, 1) == 0);
    CHECK(sendto(sender, "p", 1, 0, (void *)&to, sizeof to) == 1 && recvmsg(b, &message, 0) == 1 && heard(a) == 'p');
    struct in_pktinfo *where = (void *)CMSG_DATA(&control.head); /* an answer goes out from an address of ours */
    CHECK(where->ipi_addr.s_addr == inet_addr(GROUP) && where->ipi_spec_dst.s_addr == own.s_addr);
    CHECK(set(b, IPPROTO_IP, IP_PKTINFO, 0) == 0);
    /* What is not looped back is not heard: the next one comes first. (The kernel's loopback device brings back whatever leaves by it.) */
    CHECK(set(sender, IPPROTO_IP, IP_MULTICAST_LOOP, 0) == 0);
    if (on_netchan) CHECK(sendto(sender, "2", 1, 0, (void *)&to, sizeof to) == 1);
    CHECK(set(sender, IPPROTO_IP, IP_MULTICAST_LOOP, 1) == 0);
    CHECK(sendto(sender, "3", 1, 0, (void *)&to, sizeof to) == 1);
    CHECK(heard(a) == '3' && heard(b) == '3');
    /* Who has left hears nothing, unless it wants whatever the host hears. */
    CHECK(membership(a, IP_DROP_MEMBERSHIP, GROUP) == 0);
    CHECK(sendto(sender, "4", 1, 0, (void *)&to, sizeof to) == 1);
    CHECK(heard(b) == '4' && heard(a) == '4');
    CHECK(set(a, IPPROTO_IP, IP_MULTICAST_ALL, 0) == 0);
    CHECK(sendto(sender, "5", 1, 0, (void *)&to, sizeof to) == 1);
    CHECK(heard(b) == '5');
    FAILS(EAGAIN, recv(a, text, 4, MSG_DONTWAIT));
    /* A blocked source. */
    char name[INET_ADDRSTRLEN];
    inet_ntop(AF_INET, &own, name, sizeof name);
    CHECK(membership(a, IP_ADD_MEMBERSHIP, GROUP) == 0);
    CHECK(source(b, IP_BLOCK_SOURCE, name) == 0);
    CHECK(sendto(sender, "6", 1, 0, (void *)&to, sizeof to) == 1);
    CHECK(heard(a) == '6');
    FAILS(EAGAIN, recv(b, text, 4, MSG_DONTWAIT));
    /* The same by a whole filter: one of them hears nobody else, one nobody of these. */
    struct ip_msfilter filter = {.imsf_multiaddr.s_addr = inet_addr(GROUP), .imsf_interface = own,
                                 .imsf_fmode = MCAST_INCLUDE, .imsf_numsrc = 1, .imsf_slist[0] = own};
    CHECK(setsockopt(b, IPPROTO_IP, IP_MSFILTER, &filter, sizeof filter) == 0);
    filter.imsf_fmode = MCAST_EXCLUDE;
    CHECK(setsockopt(a, IPPROTO_IP, IP_MSFILTER, &filter, sizeof filter) == 0);
    CHECK(sendto(sender, "7", 1, 0, (void *)&to, sizeof to) == 1);
    CHECK(heard(b) == '7');
    FAILS(EAGAIN, recv(a, text, 4, MSG_DONTWAIT));
    close(a), close(b), close(sender);
}

void check_groups(void) {
    struct sockaddr_in to = address_of(peer_ip, PORT_ECHO), at;
    socklen_t len = sizeof at;
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    CHECK(connect(fd, (void *)&to, sizeof to) == 0 && getsockname(fd, (void *)&at, &len) == 0);
    own = at.sin_addr;
    close(fd);
    joining();
    filtering();
    by_protocol();
    whole_filters();
    whole_filters_by_protocol(AF_INET, GROUP, "192.0.2.1", "192.0.2.2");
    whole_filters_by_protocol(AF_INET6, "ff05::77:1", "2001:db8::1", "2001:db8::2");
    settings();
    settings_v6();
    mail();
}
