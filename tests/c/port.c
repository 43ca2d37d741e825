/* SPDX-License-Identifier: BSD-3-Clause */
#include "port.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

/* Bound to the port that was chosen last. */
static int holder = -1;

uint16_t
port_choose(void)
{
    struct sockaddr_in addr = {.sin_family      = AF_INET,
                               .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t          len  = sizeof(addr);
    int                on   = 1;

    if (holder >= 0) {
        close(holder);
    }
    holder = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(holder >= 0);
    assert_int_equal(
        setsockopt(holder, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)), 0);
    assert_int_equal(bind(holder, (struct sockaddr *)&addr, sizeof(addr)), 0);
    assert_int_equal(getsockname(holder, (struct sockaddr *)&addr, &len), 0);
    return ntohs(addr.sin_port);
}
