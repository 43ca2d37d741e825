/* SPDX-License-Identifier: BSD-3-Clause */
/* trip.c: the kernel measures round trips from the first packets of a
 * connection on. The shortest one has neither waited behind other packets nor
 * for an acknowledgement that the peer has put off. */
#include "host/trip.h"

#include <linux/tcp.h> /* the C library's tcp_info ends before tcpi_min_rtt */
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

uint64_t
umi_socket_trip_ns(const umi_socket *sock)
{
    struct tcp_info info;
    socklen_t       len = sizeof(info);

    memset(&info, 0, sizeof(info));
    if (sock->watch.fd < 0 ||
        getsockopt(sock->watch.fd, IPPROTO_TCP, TCP_INFO, &info, &len) != 0) {
        return 0;
    }
    if (info.tcpi_min_rtt != 0 && info.tcpi_min_rtt != UINT32_MAX) {
        return info.tcpi_min_rtt * UINT64_C(1000);
    }
    return info.tcpi_rtt * UINT64_C(1000);
}
