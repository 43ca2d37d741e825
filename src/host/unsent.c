/* SPDX-License-Identifier: BSD-3-Clause */
/* unsent.c: UCX does not tell its sockets, but its event fd leads to them: it
 * is an epoll instance, with those of UCX's interfaces in it, which have their
 * sockets in them. The kernel lists what is in one: proc_pid_fdinfo(5). */
#include "host/unsent.h"

#include <linux/sockios.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "host/socket.h"

enum {
    MAX_DEPTH = 4, /* of epoll instances in one another */
    /* What the kernel may have that it has not sent, in bytes and in time at
     * the rate of the network. */
    UNSENT_MIN   = 16 * 1024,
    UNSENT_MAX   = 1024 * 1024,
    UNSENT_US    = 1500,
    UNSENT_START = 256 * 1024 /* while the rate is looked for */
};

/* Look at a socket of tcp. False: look at no more. */
typedef bool (*socket_fn)(int fd, const void *arg);

static bool
is_tcp(int fd)
{
    struct sockaddr_storage addr;
    socklen_t               len = sizeof(addr);

    return getsockname(fd, (struct sockaddr *)&addr, &len) == 0 &&
           (addr.ss_family == AF_INET || addr.ss_family == AF_INET6);
}

/* Look at all that is in the epoll instance `fd`, and in those in it. What is
 * none has nothing in it. False, too, if that cannot be told. */
static bool
each_in_epoll(int fd, unsigned depth, socket_fn look, const void *arg)
{
    bool  goes_on = true;
    char  line[256];
    FILE *file;
    int   inner;

    snprintf(line, sizeof(line), "/proc/self/fdinfo/%d", fd);
    file = fopen(line, "re");
    if (file == NULL) {
        return false;
    }
    while (goes_on && fgets(line, sizeof(line), file) != NULL) {
        if (sscanf(line, "tfd: %d", &inner) != 1) {
            continue;
        }
        goes_on = is_tcp(inner) ?
                      look(inner, arg) :
                      depth == MAX_DEPTH ||
                          each_in_epoll(inner, depth + 1, look, arg);
    }
    fclose(file);
    return goes_on;
}

/* True if it is not connected, or has nothing to send. */
static bool
has_sent(int fd, const void *arg)
{
    int bytes = 0;

    (void)arg;

    return ioctl(fd, SIOCOUTQ, &bytes) != 0 || bytes == 0;
}

bool
umi_unsent_is_none(int epoll_fd)
{
    return each_in_epoll(epoll_fd, 1, has_sent, NULL);
}

/* Compute what the kernel needs to be kept busy. While it looks for the rate of
 * the network it sends faster than bytes arrive, and a sender that has none
 * ready ends the search: then it looks, and fills queues, for much longer. */
static size_t
need(const struct tcp_info *info)
{
    uint64_t rate  = info->tcpi_delivery_rate;
    uint64_t bytes = rate / 1000000 * UNSENT_US;

    if (info->tcpi_pacing_rate / 2 > rate) {
        return UNSENT_START;
    }
    return (bytes < UNSENT_MIN) ? UNSENT_MIN :
           (bytes > UNSENT_MAX) ? UNSENT_MAX :
                                  (size_t)bytes;
}

/* The kernel tells that it takes more when half of that is left. */
static bool
tune(int fd, const void *arg)
{
    struct tcp_info info = {0};
    socklen_t       len  = sizeof(info);
    int             limit;

    (void)arg;
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len) == 0) {
        limit = (int)need(&info);
        (void)setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &limit,
                         sizeof(limit));
    }
    return true;
}

void
umi_unsent_limit(int epoll_fd)
{
    (void)each_in_epoll(epoll_fd, 1, tune, NULL);
}

static bool
limit_silence(int fd, const void *arg)
{
    uint64_t limit_ns = *(const uint64_t *)arg;
    uint64_t least_ns = UMI_KEEPALIVE_MIN * UINT64_C(1000000000);
    int      none     = 0;
    int      seconds  = 75; /* host/config.c */

    if (limit_ns != 0) {
        /* The connection's own socket, which tells why, is to end first where
         * it has the same network. */
        limit_ns = (limit_ns > least_ns) ? limit_ns : least_ns;
        umi_socket_limit(
            fd, limit_ns < UINT64_MAX / 2 ? limit_ns + limit_ns / 2 : limit_ns);
        return true;
    }
    (void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &none, sizeof(none));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &seconds, sizeof(seconds));
    return true;
}

void
umi_unsent_keep_alive(int epoll_fd, uint64_t keepalive_ns)
{
    (void)each_in_epoll(epoll_fd, 1, limit_silence, &keepalive_ns);
}
