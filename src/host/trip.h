/* SPDX-License-Identifier: BSD-3-Clause */
/* trip.h: how long a round trip to the peer takes. Thread: the worker's owner.
 */
#ifndef UMI_TRIP_H
#define UMI_TRIP_H

#include <stdint.h>

#include "host/socket.h"

/* The shortest round trip that the kernel has measured on the socket of the
 * handshake, in nanoseconds; 0 if it has measured none. */
uint64_t umi_socket_trip_ns(const umi_socket *sock);

#endif
