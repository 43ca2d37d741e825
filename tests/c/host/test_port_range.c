/* SPDX-License-Identifier: BSD-3-Clause */
#include "unit.h"

#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <umx/umx.h>
#include <unistd.h>

#include "host/port_range.h"

static void
check_range(const char *ports, const char *transports, unsigned first,
            unsigned last)
{
    umi_port_range range;

    umi_port_range_read(&range, ports, transports);
    assert_int_equal(range.first, first);
    assert_int_equal(range.last, last);
}

static void
test_ranges_are_read(void **state)
{
    (void)state;
    check_range(NULL, NULL, 0, 0);
    check_range("0", NULL, 0, 0);
    check_range("14000", NULL, 14000, 14000);
    check_range("14000-14099", NULL, 14000, 14099);
    check_range("65000-99999", NULL, 65000, 65535);
    check_range("14099-14000", NULL, 0, 0);
    check_range("99999", NULL, 0, 0);
    check_range("many", NULL, 0, 0);
    check_range("-1", NULL, 0, 0);
}

static void
test_a_range_is_none_without_tcp(void **state)
{
    (void)state;
    check_range("14000", "all", 14000, 14000);
    check_range("14000", "tcp,self", 14000, 14000);
    check_range("14000", "^shm", 14000, 14000);
    check_range("14000", "^tcp", 0, 0);
    check_range("14000", "shm,self", 0, 0);
}

/* A socket at `port` of every address, or at any; -1: another one has it. */
static int
take(uint16_t port)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port   = htons(port)};
    int                fd      = socket(AF_INET, SOCK_STREAM, 0);

    assert_true(fd >= 0);
    if (bind(fd, (struct sockaddr *)&address, sizeof(address)) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

/* Take two ports in a row. */
static uint16_t
take_two(int fds[2])
{
    for (;;) {
        struct sockaddr_in address;
        socklen_t          len = sizeof(address);
        uint16_t           port;

        fds[0] = take(0);
        assert_int_equal(getsockname(fds[0], (struct sockaddr *)&address, &len),
                         0);
        port   = ntohs(address.sin_port);
        fds[1] = (port < UINT16_MAX) ? take((uint16_t)(port + 1)) : -1;
        if (fds[1] >= 0) {
            return port;
        }
        close(fds[0]);
    }
}

/* Make a worker, whose ports are of `range`. */
static umx_status
make_worker(const char *range)
{
    umx_option         options[] = {{"TCP_PORT_RANGE", range}};
    umx_context_params params    = {.field_mask  = UMX_CONTEXT_FIELD_OPTIONS,
                                    .options     = options,
                                    .num_options = 1};
    umx_context       *context;
    umx_worker        *worker;
    umx_status         status;

    assert_int_equal(umx_context_create(&params, &context, NULL), UMX_OK);
    status = umx_worker_create(context, &worker);
    if (status == UMX_OK) {
        umx_worker_destroy(worker);
    }
    umx_context_release(context);
    return status;
}

static void
test_a_range_that_is_used_up_is_told(void **state)
{
    int      fds[2];
    uint16_t port = take_two(fds);
    char     range[32];

    (void)state;
    snprintf(range, sizeof(range), "%u-%u", port, port + 1u);
    assert_int_equal(make_worker(range), UMX_ERR_PORT_LIMIT);
    close(fds[1]);
    assert_int_equal(make_worker(range), UMX_OK);
    close(fds[0]);
}

static void
test_the_interfaces_that_ucx_takes_are_not_guessed(void **state)
{
    umi_port_range     range   = {.is_everywhere = true};
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t          len     = sizeof(address);
    int                fd      = socket(AF_INET, SOCK_STREAM, 0);

    (void)state;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, len), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &len), 0);
    range.first = range.last = ntohs(address.sin_port);
    assert_false(umi_port_range_has_free(&range)); /* that of the loopback */
    close(fd);
    assert_true(umi_port_range_has_free(&range));
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranges_are_read),
        cmocka_unit_test(test_a_range_is_none_without_tcp),
        cmocka_unit_test(test_a_range_that_is_used_up_is_told),
        cmocka_unit_test(test_the_interfaces_that_ucx_takes_are_not_guessed),
    };

    return UNIT_RUN(tests);
}
