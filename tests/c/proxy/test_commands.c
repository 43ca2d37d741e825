/* SPDX-License-Identifier: BSD-3-Clause */
/* link: pair world port rings tsan */
/* tests: proxy/take proxy/region proxy/ring */
#include <string.h>

#include "rings.h"

enum {
    SIGNALS = 131072 /* offset: zeros are there */
};

static uint64_t *
slot(rings *r, int rank, unsigned n)
{
    return (uint64_t *)(void *)(r->data[rank] + SIGNALS) + n;
}

static umx_ring_command
signal_to(unsigned rank, unsigned n, umx_ring_u32 value, unsigned flags)
{
    return umx_ring_signal(rank, 0, SIGNALS / 8 + n, value, flags);
}

static umx_proxy_ring_stats
stats_of(rings *r, int rank)
{
    umx_proxy_ring_stats stats;

    umx_proxy_ring_query(r->rings[rank], &stats);
    return stats;
}

/* A second ring of rank 0. */
static void
another_ring(rings *r, const umx_proxy_ring_params *params,
             umx_proxy_ring **ring_p, umx_ring_producer *p)
{
    assert_int_equal(umx_proxy_ring_create(r->proxies[0], params, ring_p),
                     UMX_OK);
    umx_ring_producer_init(p, umx_proxy_ring_get(*ring_p));
}

/* ---- puts and signals ----------------------------------------------------
 */

/* The wait is a test's: the proxy of the rank stores. */
static void
wait_for(uint64_t *number, uint64_t value)
{
    for (int i = 0;
         i < 20000 && __atomic_load_n(number, __ATOMIC_ACQUIRE) != value; i++) {
        usleep(1000);
    }
    assert_int_equal(__atomic_load_n(number, __ATOMIC_ACQUIRE), value);
}

static void
exchange(rings *r)
{
    static const size_t sizes[] = {0, 1, 16, 7168, 65536};

    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        for (int from = 0; from < 2; from++) {
            push(r, from,
                 umx_ring_put((unsigned)(1 - from), 0, (umx_ring_u32)sizes[i],
                              0, 262144));
            push(r, from, signal_to((unsigned)(1 - from), 0, 3, 0));
        }
        for (int to = 0; to < 2; to++) {
            wait_for(slot(r, to, 0), 3 * (i + 1));
            assert_memory_equal(r->data[to] + 262144, r->data[1 - to],
                                sizes[i]);
        }
    }
    push(r, 0, signal_to(1, 0, 77, UMX_RING_SET));
    wait_for(slot(r, 1, 0), 77);
    expect_quiet(r, 0, UMX_OK);
}

static void
test_a_signal_is_seen_after_the_bytes(void **state)
{
    rings r;

    open_rings(&r, *state, 2);
    exchange(&r);
    close_rings(&r);
}

static void
test_the_same_where_the_owner_executes(void **state)
{
    rings r;

    r.params.field_mask = 0;
    open_rings_with(&r, *state, 2, false);
    exchange(&r);
    assert_in_range(stats_of(&r, 0).fences, 1, 10);
    close_rings(&r);
}

static void
test_a_rank_reaches_its_own_memory(void **state)
{
    rings r;

    open_rings(&r, *state, 1);
    push(&r, 0, umx_ring_put(0, 0, 4096, 0, 262144));
    push(&r, 0, signal_to(0, 1, 5, 0));
    expect_quiet(&r, 0, UMX_OK);
    assert_memory_equal(r.data[0] + 262144, r.data[0], 4096);
    assert_int_equal(*slot(&r, 0, 1), 5);
    close_rings(&r);
}

static void
test_a_rank_does_not_write_its_own_closed_memory(void **state)
{
    rings r;

    open_rings(&r, *state, 2);
    for (int i = 0; i < 2; i++) {
        assert_false(umx_memh_is_closed(r.memhs[i]));
        umx_memh_close(r.memhs[i]);
        assert_true(umx_memh_is_closed(r.memhs[i]));
    }
    push(&r, 0, umx_ring_put(0, 0, 4096, 0, 262144));
    push(&r, 1, signal_to(1, 1, 5, 0));
    for (int i = 0; i < 2; i++) {
        expect_error(&r, i, UMX_ERR_STALE_KEY, i, "has closed its memory");
    }
    assert_int_equal(r.data[0][262144], 0);
    assert_int_equal(*slot(&r, 1, 1), 0);
    close_rings(&r);
}

static void
test_puts_read_the_source_of_a_region(void **state)
{
    umx_memh  *none[2] = {NULL, NULL}, *memhs[2], *sources[2] = {NULL, NULL};
    char       bytes[64] = "what another memory has";
    umx_buffer buf       = umx_host_buffer(bytes, sizeof(bytes));
    rings      r;

    open_rings(&r, *state, 2);
    assert_int_equal(umx_memh_register(r.w->context, &buf, NULL, &sources[0]),
                     UMX_OK);
    memhs[0] = NULL;
    memhs[1] = r.memhs[1];
    add_region(&r, memhs, sources, 1);
    add_region(&r, none, NULL, 2);
    push(&r, 0, umx_ring_put(1, 1, 64, 0, 1024));
    expect_quiet(&r, 0, UMX_OK);
    assert_memory_equal(r.data[1] + 1024, bytes, 64);
    push(&r, 1, umx_ring_put(0, 1, 16, 0, 0));
    expect_error(&r, 1, UMX_ERR_OUT_OF_RANGE, -1, "rank 0 has 0 bytes there");
    umx_memh_release(sources[0]);
    close_rings(&r);
}

/* ---- order and limits ----------------------------------------------------
 */

static void
test_no_more_is_under_way_than_the_limit(void **state)
{
    umx_proxy_ring_params params = {
        .field_mask = UMX_PROXY_RING_FIELD_IN_FLIGHT,
        .capacity   = 8,
        .in_flight  = 2};
    umx_ring_command     puts[50];
    umx_proxy_ring      *ring;
    umx_ring_producer    p;
    umx_proxy_ring_stats stats;
    rings                r;

    r.params.field_mask = 0;
    open_rings_with(&r, *state, 2, false);
    another_ring(&r, &params, &ring, &p);
    for (unsigned i = 0; i < 50; i++) {
        puts[i] = umx_ring_put(1, 0, 4096, 0, 65536 + 4096 * (uint64_t)i);
    }
    assert_int_equal(umx_ring_push(&p, puts, 50), 0);
    assert_int_equal(umx_proxy_quiet_wait(&ring, 1, 20 * SECOND_NS), UMX_OK);
    umx_proxy_ring_query(ring, &stats);
    assert_int_equal(stats.puts, 50);
    assert_int_equal(stats.bytes, 50 * 4096);
    assert_int_equal(stats.in_flight, 0);
    assert_in_range(stats.in_flight_peak, 1, 2);
    assert_in_range(stats.stalls, 1, 50);
    for (unsigned i = 0; i < 50; i++) {
        assert_memory_equal(r.data[1] + 65536 + 4096 * i, r.data[0], 4096);
    }
    umx_proxy_ring_destroy(ring);
    close_rings(&r);
}

static void
test_a_quiet_is_retired_when_all_before_is_there(void **state)
{
    umx_ring_u64 number;
    rings        r;

    r.params.field_mask = 0;
    open_rings_with(&r, *state, 2, false);
    for (uint64_t i = 0; i < 100; i++) {
        push(&r, 0, umx_ring_put(1, 0, 16, 0, 65536 + 16 * i));
        if (i % 10 == 9) {
            number = push(&r, 0, umx_ring_quiet());
            assert_int_equal(
                umx_proxy_ring_wait(r.rings[0], number, 20 * SECOND_NS),
                UMX_OK);
            assert_memory_equal(r.data[1] + 65536 + 16 * i, r.data[0], 16);
        }
    }
    close_rings(&r);
}

static void
test_barriers_of_a_group_wait_for_all_ranks(void **state)
{
    umx_ring_u64 numbers[3];
    rings        r;

    open_rings(&r, *state, 3);
    for (unsigned i = 0; i < 3; i++) {
        push(&r, (int)i, umx_ring_put((i + 1) % 3, 0, 16, 0, 65536));
        if (i == 2) {
            assert_int_equal(
                umx_proxy_ring_wait(r.rings[0], numbers[0], SECOND_NS / 100),
                UMX_ERR_TIMED_OUT);
        }
        numbers[i] = push(&r, (int)i, umx_ring_barrier(255));
        push(&r, (int)i, umx_ring_barrier(255));
    }
    for (int i = 0; i < 3; i++) {
        assert_int_equal(
            umx_proxy_ring_wait(r.rings[i], numbers[i], 20 * SECOND_NS),
            UMX_OK);
        assert_memory_equal(r.data[(i + 1) % 3] + 65536, r.data[i], 16);
        expect_quiet(&r, i, UMX_OK);
    }
    close_rings(&r);
}

static void
test_barriers_of_two_groups_may_come_in_any_order(void **state)
{
    umx_proxy_ring_params params = {.capacity = 8};
    umx_proxy_ring       *ring;
    umx_ring_producer     p;
    umx_ring_command      seven = umx_ring_barrier(7);
    rings                 r;

    open_rings(&r, *state, 2);
    another_ring(&r, &params, &ring, &p);
    push(&r, 0, umx_ring_barrier(3));
    assert_int_equal(umx_ring_push(&p, &seven, 1), 0);
    push(&r, 1, umx_ring_barrier(7));
    push(&r, 1, umx_ring_barrier(3));
    expect_quiet(&r, 0, UMX_OK);
    expect_quiet(&r, 1, UMX_OK);
    assert_int_equal(umx_proxy_quiet_wait(&ring, 1, 20 * SECOND_NS), UMX_OK);
    umx_proxy_ring_destroy(ring);
    close_rings(&r);
}

/* ---- numbers -------------------------------------------------------------
 */

static void
test_commands_go_on_beyond_32_and_64_bits(void **state)
{
    static const umx_ring_u64 firsts[] = {(UINT64_C(1) << 32) - 20,
                                          UINT64_MAX - 20};
    umx_ring_u32              kinds[]  = {0, UMX_RING_SEVERAL};
    rings                     r;

    open_rings(&r, *state, 2);
    for (int i = 0; i < 4; i++) {
        umx_proxy_ring_params params = {
            .field_mask = UMX_PROXY_RING_FIELD_FIRST |
                          UMX_PROXY_RING_FIELD_KIND,
            .capacity = 8,
            .kind     = kinds[i / 2],
            .first    = firsts[i % 2]};
        umx_ring_command     one = umx_ring_nop();
        umx_proxy_ring      *ring;
        umx_ring_producer    p;
        umx_proxy_ring_stats stats;

        another_ring(&r, &params, &ring, &p);
        for (int k = 0; k < 50; k++) {
            assert_int_equal(umx_ring_push(&p, &one, 1), 0);
            if (k % 7 == 0) {
                assert_int_equal(umx_proxy_quiet_wait(&ring, 1, 20 * SECOND_NS),
                                 UMX_OK);
            }
        }
        assert_int_equal(umx_proxy_ring_wait(ring, p.head - 1, 20 * SECOND_NS),
                         UMX_OK);
        umx_proxy_ring_query(ring, &stats);
        assert_int_equal(stats.nops, 50);
        umx_proxy_ring_destroy(ring);
    }
    close_rings(&r);
}

/* ---- errors --------------------------------------------------------------
 */

typedef struct bad {
    umx_ring_command command;
    umx_status       status;
    const char      *text;
} bad;

static void
test_a_bad_command_ends_its_ring_alone(void **state)
{
    const bad commands[] = {
        {{9, 0}, UMX_ERR_INVALID_PARAM, "operation 9"},
        {umx_ring_put(1, 0, 16, 8, 0), UMX_ERR_INVALID_PARAM, "multiple of 16"},
        {umx_ring_put(2, 0, 16, 0, 0), UMX_ERR_OUT_OF_RANGE,
         "there is no rank 2: there are 2"},
        {umx_ring_put(1, 9, 16, 0, 0), UMX_ERR_OUT_OF_RANGE,
         "there is no region 9"},
        {umx_ring_put(1, 0, 17, 0, REGION_BYTES - 16), UMX_ERR_OUT_OF_RANGE,
         "rank 1 has 1048576 bytes there"},
        {umx_ring_put(1, 0, 17, REGION_BYTES - 16, 0), UMX_ERR_OUT_OF_RANGE,
         "puts read from 1048576 bytes there"},
        {umx_ring_put(1, 0, 16, 0, REGION_BYTES + 16), UMX_ERR_OUT_OF_RANGE,
         "a put of 16 bytes from 0 to 1048592 in region 0 of rank 1"},
        {umx_ring_signal(1, 0, REGION_BYTES / 8, 1, 0), UMX_ERR_OUT_OF_RANGE,
         "a signal of 1 to slot 131072 in region 0 of rank 1"},
    };
    umx_proxy_ring_params params = {.capacity = 8};
    rings                 r;

    open_rings(&r, *state, 2);
    for (size_t i = 0; i < sizeof(commands) / sizeof(*commands); i++) {
        umx_proxy_ring   *ring = r.rings[0];
        umx_ring_producer p;
        umx_ring_command  both[2];

        another_ring(&r, &params, &r.rings[0], &p);
        both[0] = umx_ring_nop();
        both[1] = commands[i].command;
        assert_int_equal(umx_ring_push(&p, both, 2), 0);
        expect_error(&r, 0, commands[i].status, -1, commands[i].text);
        expect_error(&r, 0, commands[i].status, -1, "command 1, ");
        expect_quiet(&r, 0, commands[i].status);
        assert_int_equal(UMX_RING_STATUS(umx_ring_wait(&p.ring, 1)),
                         commands[i].status);
        assert_int_equal(umx_proxy_ring_wait(r.rings[0], 1, SECOND_NS),
                         commands[i].status);
        umx_proxy_ring_destroy(r.rings[0]);
        r.rings[0] = ring;
    }
    push(&r, 0, umx_ring_put(1, 0, 16, 0, 64));
    expect_quiet(&r, 0, UMX_OK);
    close_rings(&r);
}

static void
test_a_rank_that_has_ended_ends_the_rings_that_need_it(void **state)
{
    umx_proxy_ring_params params = {.capacity = 8};
    umx_proxy_ring       *ring;
    umx_ring_producer     p;
    umx_ring_command      put = umx_ring_put(1, 0, 16, 0, 65536);
    umx_proxy_error       error;
    rings                 r;

    open_rings(&r, *state, 3);
    another_ring(&r, &params, &ring, &p);
    push(&r, 0, umx_ring_put(2, 0, 16, 0, 65536));
    expect_quiet(&r, 0, UMX_OK);
    umx_proxy_destroy(r.proxies[2]);
    r.proxies[2] = NULL;
    for (int i = 0; i < 5000 && !umx_proxy_ring_get_error(r.rings[0], &error);
         i++) {
        umx_ring_command again = umx_ring_put(2, 0, 16, 0, 65536);

        (void)umx_ring_try_push(&r.producers[0], &again, 1);
        usleep(1000);
    }
    assert_true(umx_proxy_ring_get_error(r.rings[0], &error));
    assert_int_equal(error.rank, 2);
    assert_int_equal(error.command.w0 >> 8 & 0xffff, 2);
    assert_non_null(strstr(error.reason, "rank 2: "));
    expect_quiet(&r, 0, error.status);

    assert_int_equal(umx_ring_push(&p, &put, 1), 0);
    assert_int_equal(umx_proxy_quiet_wait(&ring, 1, 20 * SECOND_NS), UMX_OK);
    assert_memory_equal(r.data[1] + 65536, r.data[0], 16);

    put = umx_ring_barrier(0);
    assert_int_equal(umx_ring_push(&p, &put, 1), 0);
    assert_int_equal(umx_proxy_quiet_wait(&ring, 1, 20 * SECOND_NS),
                     UMX_ERR_RANK_FAILED);
    assert_true(umx_proxy_ring_get_error(ring, &error));
    assert_int_equal(error.rank, 2);
    umx_proxy_ring_destroy(ring);
    close_rings(&r);
}

static void
test_wrong_parameters_of_a_ring_are_refused(void **state)
{
    umx_proxy_ring_params params = {.field_mask = 0};
    umx_proxy_ring       *ring;
    umx_memh             *small;
    rings                 r;

    open_rings(&r, *state, 1);
    params.capacity = 48;
    assert_int_equal(umx_proxy_ring_create(r.proxies[0], &params, &ring),
                     UMX_ERR_INVALID_PARAM);
    params.capacity   = 64;
    params.field_mask = UMX_PROXY_RING_FIELD_KIND;
    params.kind       = 4;
    assert_int_equal(umx_proxy_ring_create(r.proxies[0], &params, &ring),
                     UMX_ERR_INVALID_PARAM);
    params.field_mask = UMX_PROXY_RING_FIELD_IN_FLIGHT;
    assert_int_equal(umx_proxy_ring_create(r.proxies[0], &params, &ring),
                     UMX_ERR_OUT_OF_RANGE);
    params.field_mask = UMX_PROXY_RING_FIELD_MEMORY;
    assert_int_equal(umx_memh_alloc(r.w->context, 1000, &small), UMX_OK);
    params.memh = small;
    assert_int_equal(umx_proxy_ring_create(r.proxies[0], &params, &ring),
                     UMX_ERR_BUFFER_TOO_SMALL);
    umx_memh_release(small);
    close_rings(&r);
}

static void
test_there_are_at_most_256_regions(void **state)
{
    umx_request *req;
    unsigned     number;
    rings        r;

    open_rings(&r, *state, 1);
    for (unsigned i = 1; i < UMX_PROXY_REGIONS_MAX; i++) {
        add_region(&r, r.memhs, NULL, i);
    }
    assert_int_equal(
        umx_proxy_add_region(r.proxies[0], NULL, NULL, NULL, &number, &req),
        UMX_ERR_EXCEEDS_LIMIT);
    push(&r, 0, umx_ring_put(0, 255, 16, 0, 65536));
    expect_quiet(&r, 0, UMX_OK);
    close_rings(&r);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        WORLD_TEST(test_a_signal_is_seen_after_the_bytes),
        WORLD_TEST(test_the_same_where_the_owner_executes),
        RINGS_TEST(test_a_rank_reaches_its_own_memory),
        RINGS_TEST(test_a_rank_does_not_write_its_own_closed_memory),
        RINGS_TEST(test_puts_read_the_source_of_a_region),
        RINGS_TEST(test_no_more_is_under_way_than_the_limit),
        RINGS_TEST(test_a_quiet_is_retired_when_all_before_is_there),
        WORLD_TEST(test_barriers_of_a_group_wait_for_all_ranks),
        RINGS_TEST(test_barriers_of_two_groups_may_come_in_any_order),
        RINGS_TEST(test_commands_go_on_beyond_32_and_64_bits),
        RINGS_TEST(test_a_bad_command_ends_its_ring_alone),
        WORLD_TEST(test_a_rank_that_has_ended_ends_the_rings_that_need_it),
        RINGS_TEST(test_wrong_parameters_of_a_ring_are_refused),
        RINGS_TEST(test_there_are_at_most_256_regions),
    };

    return UNIT_RUN(tests);
}
