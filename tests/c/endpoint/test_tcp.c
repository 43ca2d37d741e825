/* SPDX-License-Identifier: BSD-3-Clause */
/* link: pair */
/* tests: host/unsent */
#define _GNU_SOURCE /* dladdr() */
/* Behaviour of UCX's tcp when the end of a peer and a connection to it meet.
 * The program defines system calls of UCX: UCX's libraries find these
 * definitions first. */
#include "pair.h"

#include <dlfcn.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

static bool     is_gone; /* the peer's process, for UCX */
static unsigned num_resets;

static bool
is_ucx(const void *caller)
{
    Dl_info info;

    return dladdr(caller, &info) != 0 && info.dli_fname != NULL &&
           strstr(info.dli_fname, "libuc") != NULL;
}

#pragma GCC visibility push(default)

/* Fail as on a connection that only the kernel had accepted. */
ssize_t
send(int fd, const void *data, size_t len, int flags)
{
    if (is_gone && is_ucx(__builtin_return_address(0))) {
        num_resets++;
        errno = ECONNRESET;
        return -1;
    }
    return syscall(SYS_sendto, fd, data, len, flags, NULL, 0);
}

int
connect(int fd, const struct sockaddr *addr, socklen_t len)
{
    if (num_resets != 0 && is_ucx(__builtin_return_address(0))) {
        errno = ECONNREFUSED;
        return -1;
    }
    return (int)syscall(SYS_connect, fd, addr, len);
}

#pragma GCC visibility pop

static void
come_back(void)
{
    is_gone    = false;
    num_resets = 0;
}

/* UCX takes the end of the peer for a busy one and connects again. Where that
 * fails while it makes its endpoint, it frees what it then returns. */
static void
test_a_peer_that_ends_as_it_is_connected_to(void **state)
{
    pair *p = *state;

    pair_listen(p);
    is_gone = true;
    pair_connect(p, 60 * SECOND_NS);
    PAIR_UNTIL(p, umx_ep_get_state(p->client) == UMX_EP_FAILED);
    assert_true(num_resets != 0);
    assert_int_not_equal(umx_ep_error(p->client), UMX_ERR_TIMED_OUT);
    come_back();
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        {"test_a_peer_that_ends_as_it_is_connected_to",
         test_a_peer_that_ends_as_it_is_connected_to, pair_setup, pair_teardown,
         (void *)"tcp"},
    };

    return UNIT_RUN(tests);
}
