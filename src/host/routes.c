/* SPDX-License-Identifier: BSD-3-Clause */
#include "host/routes.h"

#include <ifaddrs.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "util/hash.h"

enum {
    MAX_INTERFACES = 256,
    MAX_BITS       = 128,
    DUMP_SIZE      = 32 * 1024 /* of a part; the kernel makes none larger */
};

typedef struct route {
    int      family;
    int      interface;
    unsigned bits; /* of `to` that an address must have */
    uint8_t  to[16];
} route;

/* Written once. */
static struct {
    pthread_once_t once;
    route         *routes;
    size_t         num_routes;
    int            interfaces[MAX_INTERFACES]; /* that have addresses */
    size_t         num_interfaces;
} table = {.once = PTHREAD_ONCE_INIT};

/* ---- reading the table ---------------------------------------------------
 */

static size_t
ip_size(int family)
{
    return (family == AF_INET6) ? 16 : 4;
}

static void
add_route(const struct nlmsghdr *message)
{
    const struct rtmsg *what = NLMSG_DATA(message);
    route new     = {.family = what->rtm_family, .bits = what->rtm_dst_len};
    unsigned left = (unsigned)RTM_PAYLOAD(message);
    route   *routes;

    for (const struct rtattr *each = RTM_RTA(what); RTA_OK(each, left);
         each                      = RTA_NEXT(each, left)) {
        if (each->rta_type == RTA_OIF && RTA_PAYLOAD(each) >= sizeof(int)) {
            memcpy(&new.interface, RTA_DATA(each), sizeof(int));
        } else if (each->rta_type == RTA_DST &&
                   RTA_PAYLOAD(each) >= ip_size(new.family)) {
            memcpy(new.to, RTA_DATA(each), ip_size(new.family));
        }
    }
    if (new.interface == 0 || new.bits > MAX_BITS) {
        return;
    }
    routes = realloc(table.routes, (table.num_routes + 1) * sizeof(*routes));
    if (routes != NULL) {
        table.routes                     = routes;
        table.routes[table.num_routes++] = new;
    }
}

/* Read the messages of one part of a dump. False: it was the last. */
static bool
read_part(const char *part, unsigned len)
{
    for (const struct nlmsghdr *each = (const void *)part; NLMSG_OK(each, len);
         each                        = NLMSG_NEXT(each, len)) {
        if (each->nlmsg_type == NLMSG_DONE || each->nlmsg_type == NLMSG_ERROR) {
            return false;
        }
        if (each->nlmsg_type == RTM_NEWROUTE) {
            add_route(each);
        }
    }
    return true;
}

static void
read_routes(int fd, unsigned char family, char *part)
{
    struct {
        struct nlmsghdr head;
        struct rtmsg    what;
    } request = {
        .head = {.nlmsg_len   = sizeof(request),
                 .nlmsg_type  = RTM_GETROUTE,
                 .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP},
        .what = {.rtm_family = family, .rtm_table = RT_TABLE_UNSPEC},
    };
    ssize_t len;

    if (send(fd, &request, sizeof(request), 0) < 0) {
        return;
    }
    do {
        len = recv(fd, part, DUMP_SIZE, 0);
    } while (len > 0 && read_part(part, (unsigned)len));
}

static void
add_interface(int interface)
{
    for (size_t i = 0; i < table.num_interfaces; i++) {
        if (table.interfaces[i] == interface) {
            return;
        }
    }
    if (interface != 0 && table.num_interfaces < MAX_INTERFACES) {
        table.interfaces[table.num_interfaces++] = interface;
    }
}

static void
read_interfaces(void)
{
    struct ifaddrs *all = NULL;

    if (getifaddrs(&all) != 0) {
        return;
    }
    for (const struct ifaddrs *each = all; each != NULL;
         each                       = each->ifa_next) {
        if (each->ifa_addr != NULL && (each->ifa_addr->sa_family == AF_INET ||
                                       each->ifa_addr->sa_family == AF_INET6)) {
            add_interface((int)if_nametoindex(each->ifa_name));
        }
    }
    freeifaddrs(all);
}

static void
read_table(void)
{
    int   fd   = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
    char *part = malloc(DUMP_SIZE);

    if (fd >= 0 && part != NULL) {
        read_routes(fd, AF_INET, part);
        read_routes(fd, AF_INET6, part);
    }
    free(part);
    if (fd >= 0) {
        close(fd);
    }
    read_interfaces();
}

/* ---- looking up ----------------------------------------------------------
 */

static bool
matches(const route *each, int family, const uint8_t *ip)
{
    unsigned whole = each->bits / 8, rest = each->bits % 8;

    return each->family == family && each->bits <= 8 * ip_size(family) &&
           memcmp(each->to, ip, whole) == 0 &&
           (rest == 0 || ((each->to[whole] ^ ip[whole]) >> (8 - rest)) == 0);
}

/* The bits of the longest route; -1: none. */
static int
longest(int family, const uint8_t *ip)
{
    int most = -1;

    for (size_t i = 0; i < table.num_routes; i++) {
        const route *each = &table.routes[i];

        if ((int)each->bits > most && matches(each, family, ip)) {
            most = (int)each->bits;
        }
    }
    return most;
}

uint64_t
umi_routes_hash(int family, const void *ip)
{
    bool leads[MAX_INTERFACES] = {false};
    int  best;

    if (family != AF_INET && family != AF_INET6) {
        return 0;
    }
    (void)pthread_once(&table.once, read_table);
    best = longest(family, ip);
    for (size_t i = 0; i < table.num_routes; i++) {
        const route *each = &table.routes[i];

        if ((int)each->bits != best || !matches(each, family, ip)) {
            continue;
        }
        for (size_t at = 0; at < table.num_interfaces; at++) {
            leads[at] |= (table.interfaces[at] == each->interface);
        }
    }
    return umi_siphash(leads, sizeof(leads));
}

/* ---- interfaces ----------------------------------------------------------
 */

static bool
has_ip(const struct sockaddr *addr, int family, const void *ip)
{
    const void *own;

    if (addr == NULL || addr->sa_family != family) {
        return false;
    }
    own = (family == AF_INET6) ?
              (const void *)&((const struct sockaddr_in6 *)addr)->sin6_addr :
              (const void *)&((const struct sockaddr_in *)addr)->sin_addr;
    return memcmp(own, ip, ip_size(family)) == 0;
}

/* Find the interface that has an address; NULL: none has. */
static const struct ifaddrs *
find_interface(const struct ifaddrs *all, int family, const void *ip)
{
    for (const struct ifaddrs *each = all; each != NULL;
         each                       = each->ifa_next) {
        if (has_ip(each->ifa_addr, family, ip)) {
            return each;
        }
    }
    return NULL;
}

/* A name may have a label of the address behind it: "eth0:1". */
static bool
names_same(const char *a, const char *b)
{
    size_t len = strcspn(a, ":");

    return len == strcspn(b, ":") && memcmp(a, b, len) == 0;
}

/* The family and the bytes of an IP address; IPv4 in IPv6 is IPv4. NULL: it is
 * none. */
static const void *
ip_of(const struct sockaddr *addr, int *family_p)
{
    const struct in6_addr *in6;

    *family_p = addr->sa_family;
    if (addr->sa_family == AF_INET) {
        return &((const struct sockaddr_in *)addr)->sin_addr;
    }
    if (addr->sa_family != AF_INET6) {
        return NULL;
    }
    in6 = &((const struct sockaddr_in6 *)addr)->sin6_addr;
    if (IN6_IS_ADDR_V4MAPPED(in6)) {
        *family_p = AF_INET;
        return &in6->s6_addr[12];
    }
    return in6;
}

bool
umi_routes_is_same_interface(const struct sockaddr *local, int family,
                             const void *ip)
{
    struct ifaddrs       *all = NULL;
    const struct ifaddrs *here, *there;
    int                   local_family;
    const void           *local_ip = ip_of(local, &local_family);
    bool                  is_same;

    if (local_ip == NULL || getifaddrs(&all) != 0) {
        return false;
    }
    here    = find_interface(all, local_family, local_ip);
    there   = find_interface(all, family, ip);
    is_same = here != NULL && there != NULL &&
              names_same(here->ifa_name, there->ifa_name);
    freeifaddrs(all);
    return is_same;
}

bool
umi_routes_is_own(int family, const void *ip)
{
    struct ifaddrs *all = NULL;
    bool            is_own;

    if (getifaddrs(&all) != 0) {
        return true;
    }
    is_own = find_interface(all, family, ip) != NULL;
    freeifaddrs(all);
    return is_own;
}

static uint64_t
hash_name(const char *name)
{
    return umi_siphash(name, strcspn(name, ":"));
}

static bool
is_listed(const umi_interfaces *interfaces, const char *name)
{
    uint64_t hash = hash_name(name);

    for (size_t i = 0; i < interfaces->num; i++) {
        if (interfaces->names[i] == hash) {
            return true;
        }
    }
    return false;
}

/* UCX's tcp leaves out others. */
static bool
is_up(const struct ifaddrs *each)
{
    unsigned needed = IFF_UP | IFF_RUNNING;

    return (each->ifa_flags & needed) == needed && each->ifa_addr != NULL &&
           (each->ifa_addr->sa_family == AF_INET ||
            each->ifa_addr->sa_family == AF_INET6);
}

void
umi_routes_list(umi_interfaces *interfaces)
{
    struct ifaddrs *all = NULL;

    interfaces->num = 0;
    if (getifaddrs(&all) != 0) {
        return;
    }
    for (const struct ifaddrs *each = all; each != NULL;
         each                       = each->ifa_next) {
        if (is_up(each) && !is_listed(interfaces, each->ifa_name) &&
            interfaces->num < UMI_INTERFACES_MAX) {
            interfaces->names[interfaces->num++] = hash_name(each->ifa_name);
        }
    }
    freeifaddrs(all);
}

bool
umi_routes_is_new(const umi_interfaces  *interfaces,
                  const struct sockaddr *local)
{
    struct ifaddrs       *all = NULL;
    int                   family;
    const void           *ip = ip_of(local, &family);
    const struct ifaddrs *here;
    bool                  is_new;

    if (ip == NULL || interfaces->num == UMI_INTERFACES_MAX ||
        getifaddrs(&all) != 0) {
        return false;
    }
    here   = find_interface(all, family, ip);
    is_new = here != NULL && is_up(here) &&
             !is_listed(interfaces, here->ifa_name);
    freeifaddrs(all);
    return is_new;
}
