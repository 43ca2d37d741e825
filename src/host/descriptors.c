/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE /* O_PATH */
#include "host/descriptors.h"

#include <dirent.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    OF_WORKER    = 16,
    OF_INTERFACE = 4,
    OF_DEVICE    = 8, /* for RDMA */
    FAR          = 64,
    MAX_COUNT    = 512
};

bool
umi_descriptors_are_left(unsigned count)
{
    int      fds[MAX_COUNT];
    unsigned opened = 0;

    if (count > MAX_COUNT) {
        count = MAX_COUNT;
    }
    while (opened < count) {
        int fd = (opened == 0) ? open("/", O_PATH | O_CLOEXEC) :
                                 fcntl(fds[0], F_DUPFD_CLOEXEC, 0);

        if (fd < 0) {
            break;
        }
        fds[opened++] = fd;
    }
    for (unsigned i = 0; i < opened; i++) {
        close(fds[i]);
    }
    return opened == count;
}

bool
umi_descriptors_are_left_after(int fd)
{
    struct rlimit limit;

    return (getrlimit(RLIMIT_NOFILE, &limit) == 0 &&
            (rlim_t)fd + FAR < limit.rlim_cur) ||
           umi_descriptors_are_left(UMI_DESCRIPTORS_OF_EP);
}

static bool
has_ip(const struct ifaddrs *each)
{
    return each->ifa_addr != NULL && (each->ifa_addr->sa_family == AF_INET ||
                                      each->ifa_addr->sa_family == AF_INET6);
}

/* Count the interfaces that have an address: UCX leaves others out. */
static unsigned
count_interfaces(void)
{
    struct ifaddrs *all   = NULL;
    unsigned        count = 0;

    if (getifaddrs(&all) != 0) {
        return 0;
    }
    for (const struct ifaddrs *each = all; each != NULL;
         each                       = each->ifa_next) {
        const struct ifaddrs *first = all;

        while (!has_ip(first) || strcmp(first->ifa_name, each->ifa_name) != 0) {
            if (first == each) {
                break;
            }
            first = first->ifa_next;
        }
        count += first == each && has_ip(each);
    }
    freeifaddrs(all);
    return count;
}

static unsigned
count_devices(void)
{
    DIR     *dir   = opendir("/sys/class/infiniband");
    unsigned count = 0;

    if (dir == NULL) {
        return 0;
    }
    for (const struct dirent *each; (each = readdir(dir)) != NULL;) {
        count += each->d_name[0] != '.';
    }
    closedir(dir);
    return count;
}

unsigned
umi_descriptors_of_engine(void)
{
    return OF_WORKER + OF_INTERFACE * count_interfaces() +
           OF_DEVICE * count_devices();
}
