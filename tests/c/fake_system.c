/* SPDX-License-Identifier: BSD-3-Clause */
/* fake_system.c: system calls of libumx as calls that may fail, like those of
 * fake_ucp.c. For tests that wrap them and link fake_ucp, too. */
#include "fake_ucp.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#define WRAP(type, name, parameters, ...)  \
    type __real_##name parameters;         \
    type __wrap_##name parameters;         \
                                           \
    type __wrap_##name parameters          \
    {                                      \
        if (fake_fails(#name)) {           \
            errno = fake.error;            \
            return -1;                     \
        }                                  \
        return __real_##name(__VA_ARGS__); \
    }

WRAP(int, socket, (int family, int type, int protocol), family, type, protocol)
WRAP(int, bind, (int fd, const struct sockaddr *addr, socklen_t len), fd, addr,
     len)
WRAP(int, listen, (int fd, int backlog), fd, backlog)
WRAP(int, accept4, (int fd, struct sockaddr *addr, socklen_t *len, int flags),
     fd, addr, len, flags)
WRAP(int, connect, (int fd, const struct sockaddr *addr, socklen_t len), fd,
     addr, len)
WRAP(int, getsockname, (int fd, struct sockaddr *addr, socklen_t *len), fd,
     addr, len)
WRAP(int, getpeername, (int fd, struct sockaddr *addr, socklen_t *len), fd,
     addr, len)
WRAP(int, getsockopt,
     (int fd, int level, int name, void *value, socklen_t *len), fd, level,
     name, value, len)
WRAP(ssize_t, send, (int fd, const void *data, size_t len, int flags), fd, data,
     len, flags)
WRAP(ssize_t, recv, (int fd, void *data, size_t len, int flags), fd, data, len,
     flags)
WRAP(int, epoll_create1, (int flags), flags)
WRAP(int, epoll_ctl, (int set, int op, int fd, struct epoll_event *event), set,
     op, fd, event)
WRAP(int, epoll_wait, (int set, struct epoll_event *events, int max, int ms),
     set, events, max, ms)
