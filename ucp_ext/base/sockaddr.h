/* SPDX-License-Identifier: BSD-3-Clause */
/* sockaddr.h: socket addresses as Python has them: tuples of a host and a port.
 */
#ifndef UCP_EXT_BASE_SOCKADDR_H
#define UCP_EXT_BASE_SOCKADDR_H

#include "base/compat.h"

#include <netinet/in.h>
#include <sys/socket.h>

/* Read a tuple of a numeric host and a port, for IPv6 also with flow and
 * scope. -1 with an exception. */
int sockaddr_parse(PyObject *tuple, struct sockaddr_storage *addr,
                   size_t *len_p);

/* Read the port of such a tuple, in network order. -1 with an exception. */
int sockaddr_parse_port(PyObject *tuple, in_port_t *port_p);

/* Make the tuple of an address. NULL with an exception. */
PyObject *sockaddr_build(const struct sockaddr_storage *addr);

#endif
