/* SPDX-License-Identifier: BSD-3-Clause */
/* A ring of short messages by itself: near/ring.h. */
/* tests: near/ring */
#include "unit.h"

#include <stdlib.h>
#include <string.h>

#include "near/ring.h"

typedef struct ends {
    umi_near_out out;
    umi_near_in  in;
} ends;

static int
setup(void **state)
{
    ends *e = calloc(1, sizeof(*e));

    if (e == NULL) {
        return -1;
    }
    e->out.ring = calloc(1, sizeof(umi_near_ring));
    e->in.ring  = e->out.ring;
    e->in.max   = UMX_NEAR_MAX;
    *state      = e;
    return (e->out.ring != NULL) ? 0 : -1;
}

static int
teardown(void **state)
{
    ends *e = *state;

    free(e->out.ring);
    free(e);
    return 0;
}

static bool
put(ends *e, unsigned number, size_t len)
{
    uint64_t header[2] = {number, len};
    uint8_t  bytes[UMX_NEAR_MAX];

    memset(bytes, (int)(number % 251), sizeof(bytes));
    return umi_near_ring_put(&e->out, header, sizeof(header), bytes, len);
}

static void
take(ends *e, unsigned number, size_t len)
{
    uint64_t       header[2];
    umi_near_taken taken;

    assert_int_equal(umi_near_ring_take(&e->in, &taken), UMI_NEAR_MESSAGE);
    assert_int_equal(taken.cell.header_len, sizeof(header));
    memcpy(header, taken.cell.room, sizeof(header));
    assert_int_equal(header[0], number);
    assert_int_equal(taken.cell.len, len);
    for (size_t i = 0; i < len; i++) {
        assert_int_equal(((const uint8_t *)taken.bytes)[i], number % 251);
    }
    umi_near_ring_read(&e->in);
}

static size_t
length(unsigned number)
{
    return (number * 389u) % (UMX_NEAR_MAX + 1);
}

static void
test_messages_of_all_lengths_come_in_order(void **state)
{
    ends    *e    = *state;
    unsigned sent = 0, taken = 0;

    while (taken < 5000) {
        for (unsigned i = 0; i < sent % 7 + 1 && put(e, sent, length(sent));
             i++) {
            sent++;
        }
        while (taken < sent) {
            take(e, taken, length(taken));
            taken++;
        }
    }
}

static void
test_a_full_ring_takes_no_more_and_goes_on_later(void **state)
{
    static const size_t lengths[] = {0, 8, 41, UMX_NEAR_MAX};

    ends    *e     = *state;
    unsigned first = 0, next = 0;

    for (int round = 0; round < 40; round++) {
        size_t len = lengths[round % 4];

        first = next;
        while (put(e, next, len)) {
            next++;
        }
        assert_true(next - first <= UMI_NEAR_CELLS);
        assert_true(next - first >= 16);
        assert_false(put(e, next, len));
        for (unsigned i = first; i < next; i++) {
            take(e, i, len);
        }
    }
}

static void
test_nonsense_of_the_reader_frees_nothing(void **state)
{
    ends    *e = *state;
    unsigned n = 0;

    while (put(e, n, 8)) {
        n++;
    }
    for (uint32_t consumed = 0; consumed < 2000; consumed += 7) {
        atomic_store(&e->out.ring->reader.consumed, n + 1 + consumed);
        assert_false(put(e, n, 8));
    }
    atomic_store(&e->out.ring->reader.consumed, n / 2);
    assert_true(put(e, n, 8));
}

static void
test_a_cell_that_is_wrong_is_nonsense(void **state)
{
    ends          *e    = *state;
    umi_near_cell *cell = &e->out.ring->cells[0];
    umi_near_taken taken;

    put(e, 1, 8);
    cell->len = UMX_NEAR_MAX + 1;
    assert_int_equal(umi_near_ring_take(&e->in, &taken), UMI_NEAR_NONSENSE);
    cell->len        = 8;
    cell->header_len = UMI_NEAR_ROOM + 1;
    assert_int_equal(umi_near_ring_take(&e->in, &taken), UMI_NEAR_NONSENSE);
    cell->header_len = 16;
    cell->zero       = 1;
    assert_int_equal(umi_near_ring_take(&e->in, &taken), UMI_NEAR_NONSENSE);
    cell->zero = 0;
    take(e, 1, 8);
    assert_int_equal(umi_near_ring_take(&e->in, &taken), UMI_NEAR_NOTHING);
}

/* Whatever is in the ring, no byte beside it is read: the memory is as long as
 * the ring. */
static void
test_a_ring_written_at_random_is_read_within_it(void **state)
{
    ends    *e       = *state;
    uint64_t random  = 88172645463325252u;
    unsigned num_any = 0;

    for (unsigned round = 0; round < 20000; round++) {
        umi_near_cell   *cell = &e->in.ring->cells[e->in.seen % UMI_NEAR_CELLS];
        umi_near_taken   taken;
        volatile uint8_t byte = 0;

        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        memcpy((char *)cell + 4, &random, sizeof(random) - 4);
        if (round % 2 != 0) {
            cell->len        = (uint16_t)(random % (UMX_NEAR_MAX + 2));
            cell->header_len = (uint8_t)(random / 4096 % 58);
            cell->zero       = 0;
        }
        atomic_store(&cell->stamp, e->in.seen + 1);
        if (umi_near_ring_take(&e->in, &taken) != UMI_NEAR_MESSAGE) {
            atomic_store(&cell->stamp, e->in.seen);
            continue;
        }
        for (size_t i = 0; i < taken.cell.len; i++) {
            byte = ((const uint8_t *)taken.bytes)[i];
        }
        (void)byte;
        umi_near_ring_read(&e->in);
        num_any++;
    }
    assert_true(num_any > 5000);
}

static void
test_an_announcement_is_answered_once(void **state)
{
    ends    *e = *state;
    uint32_t asleep;

    for (int is_ordered = 0; is_ordered < 2; is_ordered++) {
        e->out.is_ordered = is_ordered != 0;
        assert_int_equal(umi_near_ring_sleeper(&e->out), 0);
        umi_near_ring_announce(&e->in, true);
        umi_near_ring_announce(&e->in, true);
        asleep = umi_near_ring_sleeper(&e->out);
        assert_int_not_equal(asleep, 0);
        assert_int_equal(umi_near_ring_sleeper(&e->out), asleep);
        e->out.rung = asleep;
        assert_int_equal(umi_near_ring_sleeper(&e->out), 0);
        umi_near_ring_announce(&e->in, false);
        umi_near_ring_announce(&e->in, true);
        assert_int_not_equal(umi_near_ring_sleeper(&e->out), 0);
        umi_near_ring_announce(&e->in, false);
    }
}

int
main(void)
{
#define TEST(f)                      \
    {                                \
#f, f, setup, teardown, NULL \
    }
    const struct CMUnitTest tests[] = {
        TEST(test_messages_of_all_lengths_come_in_order),
        TEST(test_a_full_ring_takes_no_more_and_goes_on_later),
        TEST(test_nonsense_of_the_reader_frees_nothing),
        TEST(test_a_cell_that_is_wrong_is_nonsense),
        TEST(test_a_ring_written_at_random_is_read_within_it),
        TEST(test_an_announcement_is_answered_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
