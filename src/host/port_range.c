/* SPDX-License-Identifier: BSD-3-Clause */
#include "host/port_range.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "host/transports.h"

void
umi_port_range_read(umi_port_range *range, const char *ports,
                    const char *transports)
{
    unsigned first, last;
    int      count = (ports != NULL && umi_transports_have_tcp(transports)) ?
                         sscanf(ports, "%u-%u", &first, &last) :
                         0;

    range->first = range->last = 0;
    if (count == 1) {
        last = first;
    }
    if (count > 0 && first != 0 && first <= last && first <= UINT16_MAX) {
        range->first = (uint16_t)first;
        range->last  = (uint16_t)((last < UINT16_MAX) ? last : UINT16_MAX);
    }
}

/* UCX's sockets do not share a port with what is left of an older connection,
 * and neither does this one. */
static bool
is_free(struct sockaddr_in address, uint16_t port)
{
    int  fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool is_bound;

    if (fd < 0) {
        return true; /* UCX will say what is missing */
    }
    address.sin_port = htons(port);
    is_bound = bind(fd, (struct sockaddr *)&address, sizeof(address)) == 0;
    close(fd);
    return is_bound;
}

static bool
has_free(const umi_port_range *range, const struct sockaddr_in *address)
{
    for (unsigned port = range->first; port <= range->last; port++) {
        if (is_free(*address, (uint16_t)port)) {
            return true;
        }
    }
    return false;
}

/* UCX takes all interfaces, unless an option names some: then the range has to
 * be used up at every interface, as it is not known here which UCX takes. */
bool
umi_port_range_has_free(const umi_port_range *range)
{
    struct ifaddrs *list;
    unsigned        num_looked = 0, num_full = 0;

    if (range->first == 0 || getifaddrs(&list) != 0) {
        return true;
    }
    for (const struct ifaddrs *i = list; i != NULL; i = i->ifa_next) {
        struct sockaddr_in address;

        if ((i->ifa_flags & IFF_UP) && i->ifa_addr != NULL &&
            i->ifa_addr->sa_family == AF_INET) {
            memcpy(&address, i->ifa_addr, sizeof(address));
            num_looked++;
            num_full += !has_free(range, &address);
        }
    }
    freeifaddrs(list);
    return num_full == 0 || (!range->is_everywhere && num_full < num_looked);
}
