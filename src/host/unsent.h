/* SPDX-License-Identifier: BSD-3-Clause */
/* unsent.h: the sockets of tcp of a worker of UCX, which `epoll_fd`, UCX's
 * event fd, leads to; and what the kernel still has to send of theirs. Thread:
 * any. */
#ifndef UMI_UNSENT_H
#define UMI_UNSENT_H

#include <stdbool.h>
#include <stdint.h>

/* Tell whether each byte that the sockets were given has reached the kernel of
 * its peer. False if that cannot be told. What is there is not lost when this
 * process ends, and what is not may be: a close with unread bytes resets the
 * connection. */
bool umi_unsent_is_none(int epoll_fd);

/* Have the kernel take, of what the sockets are given, no more than each needs
 * to be kept busy: what it has not sent lies in front of all that comes later.
 * UCX then waits, and its completions keep pace with the network. */
void umi_unsent_limit(int epoll_fd);

/* Limit, as umi_socket_keep_alive(), how long the networks of the sockets may
 * be silent, which need not be that of a connection's own socket. 0: for ever.
 */
void umi_unsent_keep_alive(int epoll_fd, uint64_t keepalive_ns);

#endif
