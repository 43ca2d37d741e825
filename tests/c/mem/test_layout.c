/* SPDX-License-Identifier: BSD-3-Clause */
/* link: pair */
/* tests: worker/datatype */
#include "mem/layout.h"

#include <stdlib.h>
#include <string.h>

#include "pair.h"

enum {
    MAX_ITEMS = 4096,
    SPREAD    = 64, /* times as much memory as items */
    MIB       = 1024 * 1024
};

/* An array of any shape and strides, and what is in it, in C order. */
typedef struct array {
    unsigned   num_dims;
    umx_dim    dims[6];
    size_t     itemsize;
    char       memory[MAX_ITEMS * SPREAD];
    char      *first;
    umx_layout layout;
    umx_buffer buf;
    char       packed[MAX_ITEMS * 16];
    size_t     at[MAX_ITEMS * 16]; /* where each byte is, in `memory` */
} array;

static size_t
pick(uint32_t *state, size_t below)
{
    *state = *state * 1664525u + 1013904223u;
    return (*state >> 8) % below;
}

/* Walk it item by item, as its definition says. */
static void
describe(array *a)
{
    size_t index[6] = {0};
    size_t n        = 0;
    int    dim;

    do {
        const char *item = a->first;

        for (unsigned i = 0; i < a->num_dims; i++) {
            item += (ptrdiff_t)index[i] * a->dims[i].stride;
        }
        for (size_t i = 0; i < a->itemsize; i++, n++) {
            a->at[n]     = (size_t)(item - a->memory) + i;
            a->packed[n] = a->memory[a->at[n]];
        }
        for (dim = (int)a->num_dims - 1; dim >= 0; dim--) {
            if (++index[dim] < a->dims[dim].count) {
                break;
            }
            index[dim] = 0;
        }
    } while (dim >= 0);
    assert_int_equal(n, a->buf.len);
}

/* Gaps of up to 2 items behind each dimension; some of them run backwards, and
 * they are in any order. No two items overlap. */
static void
make_array(array *a, uint32_t *state)
{
    static const size_t itemsizes[] = {1, 2, 4, 8, 16, 3};

    ptrdiff_t stride;
    unsigned  order[6];

    a->itemsize = itemsizes[pick(state, 6)];
    a->num_dims = (unsigned)pick(state, 6) + 1;
    a->first    = a->memory;
    stride      = (ptrdiff_t)(a->itemsize * (1 + pick(state, 2)));
    for (unsigned i = 0; i < a->num_dims; i++) {
        unsigned other = (unsigned)pick(state, i + 1);

        order[i]     = order[other];
        order[other] = i;
    }
    for (unsigned i = 0; i < a->num_dims; i++) {
        umx_dim *dim = &a->dims[order[i]];

        dim->count  = 1 + pick(state, 4);
        dim->stride = stride;
        stride *= (ptrdiff_t)(dim->count +
                              (pick(state, 2) ? pick(state, 3) : 0));
        if (pick(state, 3) == 0) {
            a->first += (ptrdiff_t)(dim->count - 1) * dim->stride;
            dim->stride = -dim->stride;
        }
    }
    assert_true(stride <= (ptrdiff_t)sizeof(a->memory));
    fill_pattern(a->memory, sizeof(a->memory), *state);
    a->buf = umx_host_buffer(a->first, 0);
    assert_int_equal(umx_layout_init(&a->layout, a->itemsize, a->num_dims,
                                     a->dims, &a->buf.len),
                     UMX_OK);
    a->buf.layout = &a->layout;
    describe(a);
}

static void
test_any_window_is_read_and_written(void **state)
{
    array   *a     = malloc(sizeof(*a));
    uint32_t seed  = 1;
    char    *bytes = malloc(sizeof(a->packed));
    char    *copy  = malloc(sizeof(a->memory));

    (void)state;
    assert_non_null(a);
    assert_non_null(bytes);
    assert_non_null(copy);
    for (int round = 0; round < 2000; round++) {
        size_t offset, len;

        make_array(a, &seed);
        offset = pick(&seed, a->buf.len);
        len    = pick(&seed, a->buf.len - offset + 1);
        umi_layout_read(&a->buf, offset, bytes, len);
        assert_memory_equal(bytes, a->packed + offset, len);

        memcpy(copy, a->memory, sizeof(a->memory));
        fill_pattern(bytes, len, seed);
        umi_layout_write(&a->buf, offset, bytes, len);
        for (size_t i = 0; i < len; i++) {
            copy[a->at[offset + i]] = bytes[i];
        }
        assert_memory_equal(a->memory, copy, sizeof(a->memory));
    }
    free(copy);
    free(bytes);
    free(a);
}

/* Matrices whose columns lie one after the other are moved by tiles. */
static void
test_any_window_of_a_transposed_matrix(void **state)
{
    static const size_t itemsizes[] = {1, 2, 4, 8, 16, 3};

    array   *a     = malloc(sizeof(*a));
    uint32_t seed  = 2;
    char    *bytes = malloc(sizeof(a->packed));

    (void)state;
    assert_non_null(a);
    assert_non_null(bytes);
    for (int round = 0; round < 300; round++) {
        size_t itemsize = itemsizes[round % 6];
        size_t rows = 64 + pick(&seed, 90), columns = 2 + pick(&seed, 20);
        size_t offset, len;

        a->itemsize = itemsize;
        a->num_dims = 2;
        a->dims[0]  = (umx_dim){rows, (ptrdiff_t)itemsize};
        a->dims[1]  = (umx_dim){columns,
                                (ptrdiff_t)((rows + pick(&seed, 3)) * itemsize)};
        a->first    = a->memory;
        fill_pattern(a->memory, sizeof(a->memory), seed);
        a->buf = umx_host_buffer(a->first, 0);
        assert_int_equal(
            umx_layout_init(&a->layout, itemsize, 2, a->dims, &a->buf.len),
            UMX_OK);
        a->buf.layout = &a->layout;
        describe(a);
        offset = (round % 4 == 0) ? 0 : pick(&seed, a->buf.len);
        len    = (round % 4 == 0) ? a->buf.len :
                                    pick(&seed, a->buf.len - offset + 1);
        umi_layout_read(&a->buf, offset, bytes, len);
        assert_memory_equal(bytes, a->packed + offset, len);
        for (size_t i = 0; i < len; i++) {
            bytes[i] = (char)~bytes[i];
        }
        umi_layout_write(&a->buf, offset, bytes, len);
        for (size_t i = 0; i < a->buf.len; i++) {
            char was = a->packed[i];

            assert_int_equal(a->memory[a->at[i]],
                             (i >= offset && i - offset < len) ? (char)~was :
                                                                 was);
        }
    }
    free(bytes);
    free(a);
}

static void
test_what_lies_together_is_merged(void **state)
{
    static const umx_dim whole[]  = {{3, 40}, {5, 8}, {1, 999}};
    static const umx_dim rows[]   = {{3, 80}, {5, 8}};
    static const umx_dim steps[]  = {{3, 80}, {5, 16}};
    static const umx_dim empty[]  = {{3, 80}, {0, 16}};
    static const umx_dim repeat[] = {{3, 0}, {5, 8}};
    umx_layout           layout;
    size_t               len;

    (void)state;
    assert_int_equal(umx_layout_init(&layout, 8, 3, whole, &len), UMX_OK);
    assert_int_equal(len, 120);
    assert_int_equal(layout.run, 120);
    assert_true(umx_layout_is_writable(&layout));
    assert_int_equal(umx_layout_init(&layout, 8, 2, rows, &len), UMX_OK);
    assert_int_equal(layout.run, 40);
    assert_int_equal(layout.num_dims, 1);
    assert_int_equal(umx_layout_init(&layout, 8, 2, steps, &len), UMX_OK);
    assert_int_equal(layout.run, 8);
    assert_int_equal(layout.num_dims, 1);
    assert_int_equal(layout.dims[0].count, 15);
    assert_int_equal(umx_layout_init(&layout, 8, 2, empty, &len), UMX_OK);
    assert_int_equal(len, 0);
    assert_int_equal(umx_layout_init(&layout, 8, 0, NULL, &len), UMX_OK);
    assert_int_equal(len, 8);
    assert_int_equal(umx_layout_init(&layout, 8, 2, repeat, &len), UMX_OK);
    assert_int_equal(len, 120);
    assert_false(umx_layout_is_writable(&layout));
}

static void
test_impossible_layouts_are_refused(void **state)
{
    umx_dim    dims[UMX_LAYOUT_MAX_DIMS + 1];
    umx_layout layout;
    size_t     len;

    (void)state;
    for (size_t i = 0; i <= UMX_LAYOUT_MAX_DIMS; i++) {
        dims[i] = (umx_dim){2, 1};
    }
    assert_int_equal(
        umx_layout_init(&layout, 1, UMX_LAYOUT_MAX_DIMS + 1, dims, &len),
        UMX_ERR_OUT_OF_RANGE);
    assert_int_equal(
        umx_layout_init(&layout, 1, UMX_LAYOUT_MAX_DIMS, dims, &len),
        UMX_ERR_OUT_OF_RANGE); /* 2^64 bytes */
    assert_int_equal(umx_layout_init(&layout, 1, 62, dims, &len), UMX_OK);
}

/* ---- on the wire ---------------------------------------------------------
 */

/* Every second byte of `memory`, backwards. */
static umx_buffer
every_second(umx_layout *layout, char *memory, size_t len)
{
    umx_dim    dim = {len, -2};
    umx_buffer buf = umx_host_buffer(memory + 2 * (len - 1), 0);

    assert_int_equal(umx_layout_init(layout, 1, 1, &dim, &buf.len), UMX_OK);
    buf.layout = layout;
    return buf;
}

static void
check_every_second(const char *memory, size_t len, unsigned seed)
{
    char *packed = malloc(len);

    assert_non_null(packed);
    for (size_t i = 0; i < len; i++) {
        packed[i] = memory[2 * (len - 1 - i)];
        assert_int_equal(memory[2 * i + 1], 0); /* the gaps */
    }
    check_pattern(packed, len, seed);
    free(packed);
}

static void
send_buffer(op *o, pair *p, const umx_buffer *buf)
{
    umx_op_params   params = op_params(o);
    const umx_match match  = pair_tag(7);

    o->status = umx_channel_send(p->client, 0, &match, buf, &params, &o->req);
    assert_true(o->status >= 0);
}

static void
recv_buffer(op *o, pair *p, const umx_buffer *buf)
{
    umx_op_params params = op_params(o);

    o->status = umx_channel_recv(p->server, 0, &pair_any, buf, &params, &o->req,
                                 &o->info);
    assert_true(o->status >= 0);
}

static void
test_messages_with_gaps_arrive(void **state)
{
    static const size_t sizes[] = {1, 24, 129, 5000, 40000, 300000, MIB};

    pair      *p      = *state;
    char      *sent   = malloc(2 * MIB);
    char      *got    = malloc(2 * MIB);
    char      *packed = malloc(MIB);
    umx_layout sent_layout, got_layout;
    op         sending, receiving;

    assert_non_null(sent);
    assert_non_null(got);
    assert_non_null(packed);
    pair_open(p);
    for (unsigned i = 0; i < 2 * sizeof(sizes) / sizeof(*sizes); i++) {
        size_t     len  = sizes[i / 2];
        umx_buffer from = every_second(&sent_layout, sent, len);
        umx_buffer to   = every_second(&got_layout, got, len);

        fill_pattern(packed, len, i);
        memset(sent, 1, 2 * len);
        memset(got, 0, 2 * len);
        umi_layout_write(&from, 0, packed, len);
        if (i % 2 == 0) {
            recv_buffer(&receiving, p, &to);
        }
        send_buffer(&sending, p, &from);
        if (i % 2 != 0) {
            pair_settle(p);
            recv_buffer(&receiving, p, &to);
        }
        assert_int_equal(op_wait(p, &receiving), UMX_OK);
        assert_int_equal(receiving.info.length, len);
        assert_int_equal(op_wait(p, &sending), UMX_OK);
        check_every_second(got, len, i);
    }
    free(packed);
    free(got);
    free(sent);
}

/* A message received with gaps goes back to the queue as it came. */
static void
test_a_cancelled_receive_with_gaps_loses_nothing(void **state)
{
    static const size_t sizes[] = {24, 5000, MIB};

    pair      *p    = *state;
    char      *data = malloc(MIB);
    char      *got  = malloc(2 * MIB);
    char      *back = malloc(MIB);
    umx_layout layout;
    op         sending, receiving, again;

    assert_non_null(data);
    assert_non_null(got);
    assert_non_null(back);
    pair_open(p);
    for (unsigned i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        size_t     len = sizes[i];
        umx_buffer to  = every_second(&layout, got, len);

        fill_pattern(data, len, i);
        op_send(&sending, p->client, 0, pair_tag(7), data, len);
        recv_buffer(&receiving, p, &to);
        pair_step(p); /* the bytes may be here, landing or on their way */
        if (receiving.req != NULL) {
            op_cancel(receiving.req);
            assert_int_equal(op_wait(p, &receiving), UMX_ERR_CANCELED);
        } else {
            assert_int_equal(
                umx_channel_unrecv(p->server, 0, &receiving.info, &to), UMX_OK);
        }
        op_recv(&again, p->server, 0, pair_any, back, len);
        assert_int_equal(op_wait(p, &again), UMX_OK);
        check_pattern(back, len, i);
        assert_int_equal(op_wait(p, &sending), UMX_OK);
    }
    free(back);
    free(got);
    free(data);
}

static void
test_other_operations_take_no_layout(void **state)
{
    pair         *p = *state;
    char          memory[16];
    umx_layout    layout;
    umx_buffer    buf     = every_second(&layout, memory, 8);
    umx_recv_info info    = {.length = 8};
    umx_request  *req     = NULL;
    umx_message  *message = NULL;
    umx_memh     *memh    = NULL;

    pair_open(p);
    assert_int_equal(umx_stream_send(p->client, &buf, NULL, &req),
                     UMX_ERR_UNSUPPORTED);
    assert_int_equal(umx_stream_recv(p->client, &buf, 0, NULL, &req, &info),
                     UMX_ERR_UNSUPPORTED);
    assert_int_equal(umx_stream_unrecv(p->client, &info, &buf),
                     UMX_ERR_INVALID_PARAM);
    assert_int_equal(umx_am_recv(p->client, 16, &buf, NULL, &req, &message),
                     UMX_ERR_INVALID_PARAM);
    assert_int_equal(umx_memh_register(p->context, &buf, NULL, &memh),
                     UMX_ERR_UNSUPPORTED);
    buf.memtype = UMX_MEMTYPE_CUDA;
    assert_int_equal(
        umx_channel_send(p->client, 0, &pair_untagged, &buf, NULL, &req),
        UMX_ERR_UNSUPPORTED);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_window_is_read_and_written),
        cmocka_unit_test(test_any_window_of_a_transposed_matrix),
        cmocka_unit_test(test_what_lies_together_is_merged),
        cmocka_unit_test(test_impossible_layouts_are_refused),
        PAIR_TEST(test_messages_with_gaps_arrive),
        PAIR_TEST(test_a_cancelled_receive_with_gaps_loses_nothing),
        PAIR_TEST_ONCE(test_other_operations_take_no_layout),
    };

    return UNIT_RUN(tests);
}
