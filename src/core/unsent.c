/* SPDX-License-Identifier: BSD-3-Clause */
/* unsent.c: UCX does not tell its sockets, but its event fd leads to them: it
 * is an epoll instance, with those of UCX's interfaces in it, which have their
 * sockets in them. The kernel lists what is in one: proc_pid_fdinfo(5). */
#include "core/unsent.h"

#include <linux/sockios.h>
#include <netinet/in.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

enum {
    MAX_DEPTH = 4 /* of epoll instances in one another */
};

/* True if it is no socket of tcp that is connected, or has nothing to send. */
static bool
socket_has_sent(int fd)
{
    struct sockaddr_storage addr;
    socklen_t               len   = sizeof(addr);
    int                     bytes = 0;

    if (getsockname(fd, (struct sockaddr *)&addr, &len) != 0 ||
        (addr.ss_family != AF_INET && addr.ss_family != AF_INET6)) {
        return true;
    }
    return ioctl(fd, SIOCOUTQ, &bytes) != 0 || bytes == 0;
}

/* Look at all that is in the epoll instance `fd`, and in those in it. What is
 * none has nothing in it. False, too, if that cannot be told. */
static bool
epoll_has_sent(int fd, unsigned depth)
{
    bool  has_sent = true;
    char  line[256];
    FILE *file;
    int   inner;

    snprintf(line, sizeof(line), "/proc/self/fdinfo/%d", fd);
    file = fopen(line, "re");
    if (file == NULL) {
        return false;
    }
    while (has_sent && fgets(line, sizeof(line), file) != NULL) {
        if (sscanf(line, "tfd: %d", &inner) == 1) {
            has_sent = socket_has_sent(inner) &&
                       (depth == MAX_DEPTH || epoll_has_sent(inner, depth + 1));
        }
    }
    fclose(file);
    return has_sent;
}

bool
umi_engine_has_sent(const umi_engine *engine)
{
    return epoll_has_sent(engine->fd, 1);
}
