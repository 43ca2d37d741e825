/* SPDX-License-Identifier: BSD-3-Clause */
#include "util/host.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "util/hash.h"

static bool
read_address(const struct sockaddr *addr, umi_host_address *address)
{
    const struct sockaddr_in  *in  = (const void *)addr;
    const struct sockaddr_in6 *in6 = (const void *)addr;

    memset(address, 0, sizeof(*address));
    if (addr == NULL) {
        return false;
    }
    if (addr->sa_family == AF_INET) {
        memcpy(address->bytes, &in->sin_addr, 4);
        address->is_loopback = address->bytes[0] == IN_LOOPBACKNET;
        return true;
    }
    if (addr->sa_family == AF_INET6 &&
        !IN6_IS_ADDR_LINKLOCAL(&in6->sin6_addr)) {
        address->is_ipv6     = true;
        address->is_loopback = IN6_IS_ADDR_LOOPBACK(&in6->sin6_addr);
        memcpy(address->bytes, &in6->sin6_addr, 16);
        return true;
    }
    return false;
}

unsigned
umi_host_addresses(umi_host_address *addresses, unsigned max)
{
    struct ifaddrs *list;
    unsigned        count = 0;

    if (getifaddrs(&list) != 0) {
        return 0;
    }
    for (const struct ifaddrs *i = list; i != NULL && count < max;
         i                       = i->ifa_next) {
        if ((i->ifa_flags & IFF_UP) &&
            read_address(i->ifa_addr, &addresses[count])) {
            count++;
        }
    }
    freeifaddrs(list);
    return count;
}

uint64_t
umi_host_network_id(void)
{
    struct {
        char     boot_id[64];
        uint64_t device;
        uint64_t inode;
    } text = {.boot_id = ""};
    struct stat info;
    int     fd  = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t len = -1;

    if (fd >= 0) {
        len = read(fd, text.boot_id, sizeof(text.boot_id));
        close(fd);
    }
    if (len <= 0 || stat("/proc/thread-self/ns/net", &info) != 0) {
        return 0;
    }
    text.device = info.st_dev;
    text.inode  = info.st_ino;
    return umi_siphash(&text, sizeof(text));
}

uint32_t
umi_host_process_namespace(void)
{
    struct stat info;

    return (stat("/proc/self/ns/pid", &info) == 0) ? (uint32_t)info.st_ino : 0;
}
