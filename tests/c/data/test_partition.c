/* SPDX-License-Identifier: BSD-3-Clause */
/* tests: data/order data/parallel data/region data/row_hash */
/* tests: data/scatter data/write */
#include "data/row_hash.h"

#include <umx/partition.h>

#include "unit.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- hashes: tests/partition_model.py has the same numbers -----------------
 */

static uint64_t
hash_at(const umx_column *column, size_t row, uint64_t seed)
{
    uint64_t h = umi_hash_seed(seed);

    assert_true(umi_hash_rows(column, row, 1, &h));
    return h;
}

static void
test_hashes_of_integers(void **state)
{
    static const struct {
        int64_t  value;
        uint64_t hash;
    } golden[] = {
        {0, 0x6393d51c06c618dcu},         {1, 0x8d82751399f55d54u},
        {-1, 0xe49b2eef1405713au},        {5, 0xbdb83900c02828f9u},
        {-128, 0x81dfbf5a7ef789e0u},      {127, 0x17077829dc2a6a78u},
        {INT32_MAX, 0xe216e48c9edbf5b3u}, {INT32_MIN, 0xf44969a63e8acf59u},
        {INT64_MAX, 0x6f788ad683cf0729u}, {INT64_MIN, 0xea968a3cfc753645u},
    };
    const size_t count = sizeof(golden) / sizeof(golden[0]);

    (void)state;
    for (size_t i = 0; i < count; i++) {
        int64_t    value   = golden[i].value;
        int64_t    wide[4] = {value, value >> 63, value >> 63, value >> 63};
        umx_column column  = {.type = UMX_COLUMN_INT, .values = wide};

        for (uint32_t width = 1; width <= 32; width *= 2) {
            unsigned unused = (width < 8) ? 64 - 8 * width : 0;

            if ((int64_t)((uint64_t)value << unused) >> unused == value) {
                column.width = width;
                assert_int_equal(hash_at(&column, 0, 0), golden[i].hash);
            }
        }
    }
}

static void
test_hashes_of_unsigned_integers(void **state)
{
    uint64_t   values[] = {5, UINT64_MAX, 0xff};
    umx_column column = {.type = UMX_COLUMN_UINT, .width = 8, .values = values};

    (void)state;
    assert_int_equal(hash_at(&column, 0, 0), 0xbdb83900c02828f9u);
    /* as the one of 16 bytes below */
    assert_int_equal(hash_at(&column, 1, 0), 0x6a1f1dbe9aa493b0u);
    for (column.width = 1; column.width <= 8; column.width *= 2) {
        column.values = &values[0];
        assert_int_equal(hash_at(&column, 0, 0), 0xbdb83900c02828f9u);
    }
    column.width  = 1;
    column.values = &values[2]; /* 255 is not -1 */
    assert_int_not_equal(hash_at(&column, 0, 0), 0xe49b2eef1405713au);
}

static void
test_hashes_of_wide_integers(void **state)
{
    static const struct {
        uint64_t words[4];
        uint32_t width;
        uint64_t hash;
    } golden[] = {
        {{1ull << 63, 0}, 16, 0x2489a25e2256e5dcu},
        {{UINT64_MAX, 0}, 16, 0x6a1f1dbe9aa493b0u},
        {{0, 1}, 16, 0x3d5389949dde2769u},
        {{0, UINT64_MAX}, 16, 0xf8b603ad201aeba6u},
        {{0, UINT64_MAX, UINT64_MAX, UINT64_MAX}, 32, 0xf8b603ad201aeba6u},
        {{INT64_MAX, UINT64_MAX}, 16, 0x2393bab6c83d0629u},
        {{UINT64_MAX, INT64_MAX, 0, 0}, 32, 0x80aa1749ec71f8bbu},
        {{UINT64_MAX, INT64_MAX}, 16, 0x80aa1749ec71f8bbu},
        {{0, 0, 1, 0}, 32, 0x156616079fa09275u},
        {{0, 0, 0, 1}, 32, 0x42293da60825cc98u},
        {{0, 0, 0, 1ull << 63}, 32, 0xaf67983bd697b4d4u},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(golden) / sizeof(golden[0]); i++) {
        umx_column column = {.type   = UMX_COLUMN_INT,
                             .width  = golden[i].width,
                             .values = golden[i].words};

        assert_int_equal(hash_at(&column, 0, 0), golden[i].hash);
    }
}

static void
test_hashes_of_floats(void **state)
{
    static const struct {
        double   value;
        uint16_t half;
        uint64_t hash;
    } golden[] = {
        {0.0, 0, 0x6393d51c06c618dcu},
        {-0.0, 0x8000, 0x6393d51c06c618dcu},
        {1.0, 0x3c00, 0x649ec684fa3892dau},
        {-2.5, 0xc100, 0x6c3e6c8f19bae649u},
        {INFINITY, 0x7c00, 0x7190bf2003b4f724u},
        {NAN, 0x7e00, 0x75bf0907fd15e272u},
        {-NAN, 0xfc01, 0x75bf0907fd15e272u},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(golden) / sizeof(golden[0]); i++) {
        float      single = (float)golden[i].value;
        umx_column column = {
            .type = UMX_COLUMN_FLOAT, .width = 8, .values = &golden[i].value};

        assert_int_equal(hash_at(&column, 0, 0), golden[i].hash);
        column.width  = 4;
        column.values = &single;
        assert_int_equal(hash_at(&column, 0, 0), golden[i].hash);
        column.width  = 2;
        column.values = &golden[i].half;
        assert_int_equal(hash_at(&column, 0, 0), golden[i].hash);
    }
}

/* The smallest float of 2 bytes has no exponent. */
static void
test_hashes_of_halves_without_an_exponent(void **state)
{
    uint16_t   halves[] = {1, 0x8001, 0x03ff};
    double     wide[]   = {0x1p-24, -0x1p-24, 1023 * 0x1p-24};
    umx_column half = {.type = UMX_COLUMN_FLOAT, .width = 2, .values = halves};
    umx_column same = {.type = UMX_COLUMN_FLOAT, .width = 8, .values = wide};

    (void)state;
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(hash_at(&half, i, 0), hash_at(&same, i, 0));
    }
}

static void
test_hashes_of_strings(void **state)
{
    static const uint64_t golden[] = {
        0x6393d51c06c618dcu, 0xdfa4be8f4de6ecfau, 0xf66cd23bf6c8d915u,
        0x5b8f739980dab837u, 0x4226af1b0fa91a13u, 0xf017971c1bee1d0du,
        0x80d4682c6511dfc0u,
    };
    uint32_t   offsets[] = {1, 1, 2, 9, 17, 26, 27, 29};
    uint64_t   wide[8];
    uint8_t    bytes[] = "xaabcdefgabcdefghabcdefghi\0\0\0";
    umx_column column  = {.type      = UMX_COLUMN_STRING,
                          .width     = 4,
                          .values    = offsets,
                          .bytes     = bytes,
                          .num_bytes = 29};
    umx_column large = column, fixed = {.type = UMX_COLUMN_BYTES};

    (void)state;
    large.width  = 8;
    large.values = wide;
    for (size_t i = 0; i < 8; i++) {
        wide[i] = offsets[i];
    }
    for (size_t i = 0; i < 7; i++) {
        assert_int_equal(hash_at(&column, i, 0), golden[i]);
        assert_int_equal(hash_at(&large, i, 0), golden[i]);
        fixed.values = bytes + offsets[i];
        fixed.width  = offsets[i + 1] - offsets[i];
        assert_int_equal(hash_at(&fixed, 0, 0), golden[i]);
    }
}

static void
test_hashes_of_a_string_of_64_bytes(void **state)
{
    uint8_t    bytes[64];
    umx_column fixed = {
        .type = UMX_COLUMN_BYTES, .width = sizeof(bytes), .values = bytes};

    (void)state;
    for (size_t i = 0; i < sizeof(bytes); i++) {
        bytes[i] = (uint8_t)i;
    }
    assert_int_equal(hash_at(&fixed, 0, 0), 0x1a3e20d3767cb558u);
}

static void
test_hashes_of_bools_and_nulls(void **state)
{
    uint8_t    bits = 0x02, validity = 0x03;
    umx_column bools = {.type = UMX_COLUMN_BOOL, .values = &bits};
    umx_column null  = {.type = UMX_COLUMN_NULL};

    (void)state;
    assert_int_equal(hash_at(&bools, 0, 0), 0x6393d51c06c618dcu);
    assert_int_equal(hash_at(&bools, 1, 0), 0x8d82751399f55d54u);
    assert_int_equal(hash_at(&null, 0, 0), 0x8b991d52af6f196fu);
    bools.validity = &validity;
    assert_int_equal(hash_at(&bools, 1, 0), 0x8d82751399f55d54u);
    assert_int_equal(hash_at(&bools, 2, 0), 0x8b991d52af6f196fu);
    bools.offset = 1;
    assert_int_equal(hash_at(&bools, 1, 0), 0x8b991d52af6f196fu);
}

/* The columns one after the other: (1, 2) is not (2, 1). */
static void
test_hashes_of_several_columns(void **state)
{
    int64_t    values[]  = {1, 2};
    uint32_t   offsets[] = {0, 3};
    umx_column number = {.type = UMX_COLUMN_INT, .width = 8, .values = values};
    umx_column null   = {.type = UMX_COLUMN_NULL};
    umx_column text   = {.type      = UMX_COLUMN_STRING,
                         .width     = 4,
                         .values    = offsets,
                         .bytes     = (const uint8_t *)"xyz",
                         .num_bytes = 3};
    uint64_t   h      = umi_hash_seed(0);

    (void)state;
    assert_true(umi_hash_rows(&number, 0, 1, &h));
    assert_true(umi_hash_rows(&number, 1, 1, &h));
    assert_int_equal(h, 0xd4ecf1c08bdb86eeu);
    h = umi_hash_seed(0);
    assert_true(umi_hash_rows(&number, 1, 1, &h));
    assert_true(umi_hash_rows(&number, 0, 1, &h));
    assert_int_equal(h, 0x3a817cb95e849b23u);
    assert_int_equal(hash_at(&number, 0, 1), 0x378cb22f6ca5d76du);
    assert_int_equal(hash_at(&number, 0, UINT64_MAX), 0x72b55806475f6877u);
    h = umi_hash_seed(7);
    assert_true(umi_hash_rows(&number, 0, 1, &h));
    assert_true(umi_hash_rows(&null, 0, 1, &h));
    assert_true(umi_hash_rows(&text, 0, 1, &h));
    assert_int_equal(h, 0x5e6e2bf2d71ec707u);
}

static void
test_hash_by_dictionary_is_the_values(void **state)
{
    double     values[]  = {0.5, 1.0, -2.5};
    uint8_t    numbers[] = {2, 1, 0, 3}, validity = 0x0d, values_validity = 3;
    umx_column plain = {.type = UMX_COLUMN_FLOAT, .width = 8, .values = values};
    umx_chunk  dictionary = {3, &plain};
    umx_column column     = {.type       = UMX_COLUMN_UINT,
                             .width      = 1,
                             .validity   = &validity,
                             .values     = numbers,
                             .dictionary = &dictionary};
    uint64_t   h          = 0;

    (void)state;
    assert_int_equal(hash_at(&column, 0, 0), 0x6c3e6c8f19bae649u);
    assert_int_equal(hash_at(&column, 1, 0), 0x8b991d52af6f196fu);
    assert_false(umi_hash_rows(&column, 3, 1, &h)); /* there is no fourth */
    column.type = UMX_COLUMN_INT;
    numbers[3]  = 0xff;
    assert_false(umi_hash_rows(&column, 3, 1, &h));
    plain.validity = &values_validity; /* the value is none */
    assert_int_equal(hash_at(&column, 0, 0), 0x8b991d52af6f196fu);
    plain.offset        = 1;
    dictionary.num_rows = 2;
    numbers[0]          = 0;
    assert_int_equal(hash_at(&column, 0, 0), 0x649ec684fa3892dau);
}

/* ---- a table with columns of every layout ----------------------------------
 */

enum {
    NUM_ROWS = 10000,
    SLACK    = 5 /* items before the first row */
};

static const struct {
    umx_column_type type;
    uint32_t        width;
    bool            has_nulls;
} shapes[] = {
    {UMX_COLUMN_INT, 8, false},   {UMX_COLUMN_INT, 4, true},
    {UMX_COLUMN_UINT, 1, true},   {UMX_COLUMN_INT, 2, false},
    {UMX_COLUMN_INT, 16, true},   {UMX_COLUMN_INT, 32, false},
    {UMX_COLUMN_FLOAT, 8, false}, {UMX_COLUMN_BYTES, 5, true},
    {UMX_COLUMN_BYTES, 0, false}, {UMX_COLUMN_OPAQUE, 12, false},
    {UMX_COLUMN_BOOL, 0, true},   {UMX_COLUMN_BOOL, 0, false},
    {UMX_COLUMN_STRING, 4, true}, {UMX_COLUMN_STRING, 8, false},
    {UMX_COLUMN_NULL, 0, false},
};

enum {
    NUM_SHAPES = sizeof(shapes) / sizeof(shapes[0])
};

typedef struct test_table {
    umx_column columns[NUM_SHAPES];
    umx_chunk  chunk;
    void      *buffers[3 * NUM_SHAPES];
} test_table;

static uint32_t
next_random(uint32_t *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return *seed >> 8;
}

static void *
random_bytes(size_t len, uint32_t *seed)
{
    uint8_t *bytes = malloc(len + 1);

    assert_non_null(bytes);
    for (size_t i = 0; i < len; i++) {
        bytes[i] = (uint8_t)next_random(seed);
    }
    return bytes;
}

static void
make_strings(umx_column *column, uint32_t *seed)
{
    uint8_t *offsets = malloc((NUM_ROWS + SLACK + 1) * column->width);
    uint64_t end     = 3;

    assert_non_null(offsets);
    for (size_t i = 0; i <= NUM_ROWS + SLACK; i++) {
        memcpy(offsets + i * column->width, &end, column->width);
        end += next_random(seed) % 21;
    }
    column->values    = offsets;
    column->num_bytes = end;
    column->bytes     = random_bytes(end, seed);
}

static void
table_init(test_table *table)
{
    uint32_t seed   = 1;
    void   **buffer = table->buffers;

    memset(table, 0, sizeof(*table));
    for (size_t i = 0; i < NUM_SHAPES; i++) {
        umx_column *column = &table->columns[i];

        column->type   = shapes[i].type;
        column->width  = shapes[i].width;
        column->offset = SLACK;
        if (shapes[i].has_nulls) {
            column->validity = *buffer++ = random_bytes(
                (NUM_ROWS + SLACK + 7) / 8, &seed);
        }
        if (column->type == UMX_COLUMN_STRING) {
            make_strings(column, &seed);
            *buffer++ = (void *)(uintptr_t)column->bytes;
        } else if (column->type != UMX_COLUMN_NULL) {
            column->values = random_bytes(
                (NUM_ROWS + SLACK) * (column->width + 1), &seed);
        }
        *buffer++ = (void *)(uintptr_t)column->values;
    }
    table->chunk = (umx_chunk){NUM_ROWS, table->columns};
}

static void
table_fini(test_table *table)
{
    for (size_t i = 0; i < 3 * NUM_SHAPES; i++) {
        free(table->buffers[i]);
    }
}

static bool
bit_is_set(const void *bits, size_t i)
{
    return (((const uint8_t *)bits)[i / 8] >> (i % 8)) & 1;
}

static void
assert_same_value(const umx_column *a, size_t i, const umx_column *b, size_t k)
{
    bool a_valid = a->validity == NULL || bit_is_set(a->validity, i);
    bool b_valid = b->validity == NULL || bit_is_set(b->validity, k);

    assert_int_equal(a->type, b->type);
    assert_int_equal(a->width, b->width);
    assert_int_equal(a_valid, b_valid);
    if (a->type == UMX_COLUMN_STRING) {
        uint64_t x[2] = {0}, y[2] = {0};

        for (size_t n = 0; n < 2; n++) {
            memcpy(&x[n], (const char *)a->values + (i + n) * a->width,
                   a->width);
            memcpy(&y[n], (const char *)b->values + (k + n) * a->width,
                   a->width);
        }
        assert_int_equal(x[1] - x[0], y[1] - y[0]);
        assert_true(y[1] <= b->num_bytes);
        assert_memory_equal(a->bytes + x[0], b->bytes + y[0], x[1] - x[0]);
    } else if (a->type == UMX_COLUMN_BOOL) {
        assert_int_equal(bit_is_set(a->values, i), bit_is_set(b->values, k));
    } else if (a->width != 0) {
        assert_memory_equal((const char *)a->values + i * a->width,
                            (const char *)b->values + k * a->width, a->width);
    }
}

/* Every row is in the partition of its hash, in the order of rows. */
static void
assert_partitioned(const test_table *table, const umx_partition_params *params,
                   const uint8_t *out, const size_t *offsets)
{
    umx_region_column *found = calloc(params->num_partitions * NUM_SHAPES,
                                      sizeof(*found));
    size_t            *done  = calloc(params->num_partitions, sizeof(*done));
    size_t            *rows  = calloc(params->num_partitions, sizeof(*rows));
    size_t             columns;

    assert_true(found != NULL && done != NULL && rows != NULL);
    for (uint32_t p = 0; p < params->num_partitions; p++) {
        assert_int_equal(offsets[p] % 64, 0);
        assert_int_equal(umx_partition_read(out + offsets[p],
                                            offsets[p + 1] - offsets[p],
                                            found + p * NUM_SHAPES, NUM_SHAPES,
                                            &columns, &rows[p]),
                         UMX_OK);
        assert_int_equal(columns, NUM_SHAPES);
    }
    for (size_t i = 0; i < NUM_ROWS; i++) {
        uint64_t h = umi_hash_seed(params->seed);
        uint32_t p;

        for (size_t k = 0; k < params->num_keys; k++) {
            assert_true(
                umi_hash_rows(&table->columns[params->keys[k]], i, 1, &h));
        }
        p = (uint32_t)((h >> 32) * params->num_partitions >> 32);
        assert_true(done[p] < rows[p]);
        for (size_t c = 0; c < NUM_SHAPES; c++) {
            assert_same_value(&table->columns[c], SLACK + i,
                              &found[p * NUM_SHAPES + c].column, done[p]);
        }
        done[p]++;
    }
    assert_memory_equal(done, rows, params->num_partitions * sizeof(*done));
    free(rows);
    free(done);
    free(found);
}

/* The regions, in memory that the caller frees; NULL if there is none. */
static uint8_t *
partition_rows(const umx_partition_params *params, size_t *len_p,
               umx_partition **partition_p)
{
    umx_status status = umx_hash_partition(params, NULL, partition_p);
    uint8_t   *out;

    UNIT_TOLD(status);
    assert_int_equal(status, UMX_OK);
    *len_p = umx_partition_offsets(*partition_p)[params->num_partitions];
    out    = aligned_alloc(64, *len_p);
    assert_non_null(out);
    memset(out, 0xa5, *len_p);
    status = umx_partition_write(*partition_p, out, *len_p);
    UNIT_TOLD(status);
    assert_int_equal(status, UMX_OK);
    return out;
}

static void
test_rows_of_all_columns_move(void **state)
{
    static const uint32_t counts[]  = {1, 2, 7, 64, 256, 257, 1000, 65535};
    static const size_t   keys[][2] = {{0, 1}, {12, 0}, {7, 10}, {13, 4}};

    test_table table;

    (void)state;
    table_init(&table);
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        umx_partition_params params = {.chunks         = &table.chunk,
                                       .num_chunks     = 1,
                                       .num_columns    = NUM_SHAPES,
                                       .keys           = keys[i % 4],
                                       .num_keys       = 2 - i % 2,
                                       .num_partitions = counts[i],
                                       .seed           = i};
        umx_partition       *partition;
        size_t               len;
        uint8_t             *out = partition_rows(&params, &len, &partition);

        assert_partitioned(&table, &params, out,
                           umx_partition_offsets(partition));
        free(out);
        umx_partition_destroy(partition);
    }
    table_fini(&table);
}

/* The same bytes however many threads there are, and so in large tables, whose
 * values are written past the caches. */
static void
test_threads_do_not_matter(void **state)
{
    enum {
        LARGE = 600001
    };
    static const unsigned threads[] = {2, 3, 1000};

    size_t     key    = 0;
    int64_t   *values = malloc(LARGE * sizeof(*values));
    umx_column columns[2];
    umx_chunk  chunk = {LARGE, columns};
    test_table table;

    (void)state;
    assert_non_null(values);
    for (size_t i = 0; i < LARGE; i++) {
        values[i] = (int64_t)(i * 0x9e3779b97f4a7c15u);
    }
    columns[0] = columns[1] = (umx_column){
        .type = UMX_COLUMN_INT, .width = 8, .values = values};
    table_init(&table);
    for (size_t i = 0; i < 6; i++) {
        bool                 is_large = i % 2 == 1;
        umx_partition_params params   = {.chunks      = is_large ? &chunk :
                                                                   &table.chunk,
                                         .num_chunks  = 1,
                                         .num_columns = is_large ? 2 : NUM_SHAPES,
                                         .keys        = &key,
                                         .num_keys    = 1,
                                         .num_partitions = is_large ? 9 : 700};
        umx_partition       *one, *many;
        size_t               one_len, many_len;
        uint8_t             *one_out = partition_rows(&params, &one_len, &one);
        uint8_t             *many_out;

        params.num_threads = threads[i / 2];
        many_out           = partition_rows(&params, &many_len, &many);
        assert_int_equal(one_len, many_len);
        assert_memory_equal(one_out, many_out, one_len);
        if (!is_large) {
            assert_partitioned(&table, &params, many_out,
                               umx_partition_offsets(many));
        }
        umx_partition_destroy(one);
        umx_partition_destroy(many);
        free(one_out);
        free(many_out);
    }
    table_fini(&table);
    free(values);
}

/* The same bytes, padding included, whatever the chunks are. */
static void
test_chunks_do_not_matter(void **state)
{
    static const size_t sizes[] = {0, 1, 4095, 4096, 1, 0, 700, NUM_ROWS, 0};

    size_t     key = 12, row = 0, n = 0;
    umx_column columns[9][NUM_SHAPES];
    umx_chunk  chunks[9];
    test_table table;

    (void)state;
    table_init(&table);
    for (; n < 9; n++) {
        size_t num_rows = (sizes[n] > NUM_ROWS - row) ? NUM_ROWS - row :
                                                        sizes[n];

        memcpy(columns[n], table.columns, sizeof(table.columns));
        for (size_t c = 0; c < NUM_SHAPES; c++) {
            columns[n][c].offset += row;
        }
        chunks[n] = (umx_chunk){num_rows, columns[n]};
        row += num_rows;
    }
    for (uint32_t count = 3; count < 3000; count *= 10) {
        umx_partition_params params = {
            &table.chunk, 1, NUM_SHAPES, &key, 1, count, 0, 0,
        };
        umx_partition *one, *many;
        size_t         one_len, many_len;
        uint8_t       *one_out, *many_out;

        one_out           = partition_rows(&params, &one_len, &one);
        params.chunks     = chunks;
        params.num_chunks = n;
        many_out          = partition_rows(&params, &many_len, &many);
        assert_int_equal(one_len, many_len);
        assert_memory_equal(one_out, many_out, one_len);
        umx_partition_destroy(one);
        umx_partition_destroy(many);
        free(one_out);
        free(many_out);
    }
    table_fini(&table);
}

/* A chunk without nulls before one with some: one bitmap for both. */
static void
test_a_chunk_may_have_no_nulls(void **state)
{
    int64_t    values[]  = {1, 2, 3};
    uint8_t    validity  = 0x05;
    size_t     key       = 0, len, num_columns, num_rows;
    umx_column columns[] = {
        {.type = UMX_COLUMN_INT, .width = 8, .values = values},
        {.type     = UMX_COLUMN_INT,
         .width    = 8,
         .values   = values,
         .validity = &validity},
    };
    umx_chunk            chunks[] = {{3, &columns[0]}, {3, &columns[1]}};
    umx_partition_params params   = {chunks, 2, 1, &key, 1, 1, 0, 0};
    umx_partition       *partition;
    umx_region_column    found;
    uint8_t             *out = partition_rows(&params, &len, &partition);

    (void)state;
    assert_int_equal(
        umx_partition_read(out, len, &found, 1, &num_columns, &num_rows),
        UMX_OK);
    assert_int_equal(num_rows, 6);
    assert_int_equal(found.num_nulls, 1);
    assert_int_equal(found.column.validity[0], 0x2f);
    umx_partition_destroy(partition);
    free(out);
}

/* The bytes of a region, as umx/partition.h draws them. */
static void
test_region_is_as_documented(void **state)
{
    static const uint8_t golden[] =
        "umxpart1\x80\1\0\0\0\0\0\0\2\0\0\0\0\0\0\0\2\0\0\0\0\0\0\0"
        "\2\0\0\0\2\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"
        "\6\1\0\0\4\0\0\0\1\0\0\0\0\0\0\0\3\0\0\0\0\0\0\0";
    int16_t    numbers[] = {0x102, 0x304};
    uint32_t   offsets[] = {7, 10, 10};
    uint8_t    validity  = 1;
    size_t     key       = 0, len;
    umx_column columns[] = {
        {.type = UMX_COLUMN_INT, .width = 2, .values = numbers},
        {.type      = UMX_COLUMN_STRING,
         .width     = 4,
         .validity  = &validity,
         .values    = offsets,
         .bytes     = (const uint8_t *)"       abc",
         .num_bytes = 10},
    };
    umx_chunk            chunk  = {2, columns};
    umx_partition_params params = {&chunk, 1, 2, &key, 1, 1, 0, 0};
    umx_partition       *partition;
    uint8_t             *out = partition_rows(&params, &len, &partition);
    uint8_t              expected[384] = {0};

    (void)state;
    memcpy(expected, golden, sizeof(golden) - 1);
    memcpy(expected + 128, "\2\1\4\3", 4);           /* the numbers */
    expected[192] = 1;                               /* validity */
    memcpy(expected + 256, "\0\0\0\0\3\0\0\0\3", 9); /* offsets */
    memcpy(expected + 320, "abc", 3);
    assert_int_equal(len, sizeof(expected));
    assert_memory_equal(out, expected, len);
    umx_partition_destroy(partition);
    free(out);
}

static void
test_no_rows_and_one(void **state)
{
    size_t     key = 0;
    test_table table;
    const bool is_empty[] = {true, false};

    (void)state;
    table_init(&table);
    for (size_t i = 0; i < 2; i++) {
        umx_chunk            chunk  = {is_empty[i] ? 0 : 1, table.columns};
        umx_partition_params params = {&chunk, 1, NUM_SHAPES, &key, 1, 5, 0, 0};
        umx_partition       *partition;
        size_t               len, total = 0;
        uint8_t             *out = partition_rows(&params, &len, &partition);

        for (uint32_t p = 0; p < 5; p++) {
            total += umx_partition_rows(partition)[p];
        }
        assert_int_equal(total, chunk.num_rows);
        free(out);
        umx_partition_destroy(partition);
    }
    table_fini(&table);
}

/* ---- balance -------------------------------------------------------------
 */

static void
assert_balanced(const size_t *rows, size_t num_partitions, size_t total)
{
    for (size_t p = 0; p < num_partitions; p++) {
        double mean = (double)total / (double)num_partitions;
        double off  = (double)rows[p] - mean;

        assert_true(off * off < 36 * mean); /* six standard deviations */
    }
}

/* Keys that follow each other, at several distances. */
static void
test_partitions_are_balanced(void **state)
{
    enum {
        N = 100000
    };
    int64_t *values = malloc(N * sizeof(*values));
    size_t   key    = 0;

    (void)state;
    assert_non_null(values);
    for (unsigned shift = 0; shift < 47; shift += 2) {
        umx_column column = {.type = UMX_COLUMN_INT, .width = 8};
        umx_chunk  chunk  = {N, &column};

        for (int64_t i = 0; i < N; i++) {
            values[i] = i << shift;
        }
        column.values = values;
        for (uint32_t count = 2; count <= 1000; count += 499) {
            umx_partition_params params = {&chunk, 1, 1, &key, 1, count, 0, 0};
            umx_partition       *partition;
            umx_status           status;

            status = umx_hash_partition(&params, NULL, &partition);
            UNIT_TOLD(status);
            assert_int_equal(status, UMX_OK);
            assert_balanced(umx_partition_rows(partition), count, N);
            umx_partition_destroy(partition);
        }
    }
    free(values);
}

/* A partition, partitioned again by another seed. */
static void
test_seeds_are_independent(void **state)
{
    enum {
        N = 100000,
        P = 8
    };
    int64_t             *values = malloc(N * sizeof(*values));
    size_t               key    = 0, len, num_columns, num_rows;
    umx_column           column = {.type = UMX_COLUMN_INT, .width = 8};
    umx_chunk            chunk  = {N, &column};
    umx_partition_params params = {&chunk, 1, 1, &key, 1, P, 0, 0};
    umx_partition       *outer, *inner;
    uint8_t             *out;

    (void)state;
    assert_non_null(values);
    for (int64_t i = 0; i < N; i++) {
        values[i] = i;
    }
    column.values = values;
    out           = partition_rows(&params, &len, &outer);
    for (uint32_t p = 0; p < P; p++) {
        const size_t     *offsets = umx_partition_offsets(outer);
        umx_region_column found;
        umx_status        status;

        assert_int_equal(umx_partition_read(out + offsets[p],
                                            offsets[p + 1] - offsets[p], &found,
                                            1, &num_columns, &num_rows),
                         UMX_OK);
        chunk  = (umx_chunk){num_rows, &found.column};
        params = (umx_partition_params){&chunk, 1, 1, &key, 1, P, 1, 0};
        status = umx_hash_partition(&params, NULL, &inner);
        UNIT_TOLD(status);
        assert_int_equal(status, UMX_OK);
        assert_balanced(umx_partition_rows(inner), P, num_rows);
        umx_partition_destroy(inner);
    }
    umx_partition_destroy(outer);
    free(out);
    free(values);
}

/* ---- what is refused -------------------------------------------------------
 */

static void
assert_refused(const umx_partition_params *params, umx_status status,
               size_t column)
{
    umx_partition *partition = NULL;
    umx_status     given;
    size_t         at = 77;

    given = umx_hash_partition(params, &at, &partition);
    UNIT_TOLD(given);
    assert_int_equal(given, status);
    assert_int_equal(at, column);
    assert_null(partition);
}

static void
test_bad_numbers_are_refused(void **state)
{
    int64_t    value  = 1;
    size_t     key    = 0;
    umx_column column = {UMX_COLUMN_INT, 8, 0, NULL, &value, NULL, 0, NULL};
    umx_chunk  chunk  = {1, &column};
    umx_partition_params good = {&chunk, 1, 1, &key, 1, 1, 0, 0}, bad = good;

    (void)state;
    bad.num_partitions = 0;
    assert_refused(&bad, UMX_ERR_OUT_OF_RANGE, SIZE_MAX);
    bad.num_partitions = 65536;
    assert_refused(&bad, UMX_ERR_OUT_OF_RANGE, SIZE_MAX);
    bad          = good;
    bad.num_keys = 0;
    assert_refused(&bad, UMX_ERR_INVALID_PARAM, SIZE_MAX);
    bad            = good;
    bad.num_chunks = 0;
    assert_refused(&bad, UMX_ERR_INVALID_PARAM, SIZE_MAX);
    key = 1;
    assert_refused(&good, UMX_ERR_INVALID_PARAM, 1);
    key         = 0;
    column.type = UMX_COLUMN_OPAQUE;
    assert_refused(&good, UMX_ERR_UNSUPPORTED, 0);
}

static void
test_bad_columns_are_refused(void **state)
{
    static const struct {
        umx_column_type type;
        uint32_t        width;
    } bad[] = {
        {UMX_COLUMN_INT, 0},    {UMX_COLUMN_INT, 3},
        {UMX_COLUMN_INT, 64},   {UMX_COLUMN_UINT, 16},
        {UMX_COLUMN_FLOAT, 1},  {UMX_COLUMN_FLOAT, 16},
        {UMX_COLUMN_STRING, 2}, {UMX_COLUMN_BOOL, 1},
        {UMX_COLUMN_NULL, 1},   {UMX_COLUMN_OPAQUE + 1, 1},
    };
    int64_t    value   = 1;
    size_t     key     = 0;
    umx_column pair[2] = {{UMX_COLUMN_INT, 8, 0, NULL, &value, NULL, 0, NULL}};
    umx_chunk  chunks[2] = {{1, pair}, {1, pair}};
    umx_column other[2];
    umx_partition_params params = {chunks, 1, 2, &key, 1, 4, 0, 0};

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        pair[1]       = pair[0];
        pair[1].type  = bad[i].type;
        pair[1].width = bad[i].width;
        assert_refused(&params, UMX_ERR_INVALID_PARAM, 1);
    }
    pair[1]        = pair[0];
    pair[1].values = NULL;
    assert_refused(&params, UMX_ERR_INVALID_PARAM, 1);
    pair[1] = pair[0];
    memcpy(other, pair, sizeof(other));
    other[1].width    = 4; /* chunks differ */
    chunks[1].columns = other;
    params.num_chunks = 2;
    assert_refused(&params, UMX_ERR_INVALID_PARAM, 1);
}

static void
test_bad_offsets_are_refused(void **state)
{
    uint32_t             offsets[] = {0, 2, 3, 4};
    uint64_t             large[]   = {0, 2, 3, 4};
    size_t               key       = 0;
    umx_column           column    = {.type      = UMX_COLUMN_STRING,
                                      .width     = 4,
                                      .values    = offsets,
                                      .bytes     = (const uint8_t *)"abcd",
                                      .num_bytes = 4};
    umx_chunk            chunk     = {3, &column};
    umx_partition_params params    = {&chunk, 1, 1, &key, 1, 2, 0, 0};

    (void)state;
    column.num_bytes = 3;
    assert_refused(&params, UMX_ERR_INVALID_PARAM, 0);
    column.num_bytes = 4;
    offsets[1]       = 4;
    assert_refused(&params, UMX_ERR_INVALID_PARAM, 0);
    offsets[1] = 2;
    offsets[0] = (uint32_t)-1;
    assert_refused(&params, UMX_ERR_INVALID_PARAM, 0);
    column.width  = 8;
    column.values = large;
    large[0]      = (uint64_t)-4;
    assert_refused(&params, UMX_ERR_INVALID_PARAM, 0);
}

static void
test_bad_dictionaries_are_refused(void **state)
{
    int32_t    numbers[] = {0, 1, 2, -1};
    int64_t    values[]  = {7, 8};
    size_t     key       = 0;
    umx_column plain = {.type = UMX_COLUMN_INT, .width = 8, .values = values};
    umx_chunk  dictionary = {2, &plain}, again = {2, &plain};
    umx_column column           = {.type       = UMX_COLUMN_INT,
                                   .width      = 4,
                                   .values     = numbers,
                                   .dictionary = &dictionary};
    umx_chunk  chunk            = {3, &column};
    umx_partition_params params = {&chunk, 1, 1, &key, 1, 2, 0, 0};

    (void)state;
    assert_refused(&params, UMX_ERR_INVALID_PARAM, 0);
    chunk.num_rows = 1;
    column.offset  = 3;
    assert_refused(&params, UMX_ERR_INVALID_PARAM, 0);
    column.offset    = 0;
    plain.dictionary = &again;
    assert_refused(&params, UMX_ERR_INVALID_PARAM, 0);
    plain.dictionary = NULL;
    plain.type       = UMX_COLUMN_OPAQUE;
    assert_refused(&params, UMX_ERR_UNSUPPORTED, 0);
    plain.type  = UMX_COLUMN_INT;
    column.type = UMX_COLUMN_FLOAT;
    assert_refused(&params, UMX_ERR_INVALID_PARAM, 0);
}

/* More than 2 GiB of strings, by chunks that are the same one. Nothing reads
 * the bytes before they are moved. */
static void
test_too_many_bytes_for_offsets_are_refused(void **state)
{
    static const uint8_t nothing[1];

    uint32_t   offsets[] = {0, 1u << 30};
    uint64_t   large[]   = {0, 1u << 30};
    int64_t    value     = 1;
    size_t     key       = 0;
    umx_column columns[] = {
        {.type = UMX_COLUMN_INT, .width = 8, .values = &value},
        {.type      = UMX_COLUMN_STRING,
         .width     = 4,
         .values    = offsets,
         .bytes     = nothing,
         .num_bytes = 1u << 30},
    };
    umx_chunk chunks[] = {{1, columns}, {1, columns}};

    umx_partition_params params = {chunks, 2, 2, &key, 1, 1, 0, 0};
    umx_partition       *partition;
    umx_status           status;

    (void)state;
    assert_refused(&params, UMX_ERR_EXCEEDS_LIMIT, 1);
    columns[1].width  = 8;
    columns[1].values = large;
    status            = umx_hash_partition(&params, NULL, &partition);
    UNIT_TOLD(status);
    assert_int_equal(status, UMX_OK);
    assert_true(umx_partition_offsets(partition)[1] > 1ull << 31);
    umx_partition_destroy(partition);
}

static void
test_short_memory_is_left_alone(void **state)
{
    int64_t    value  = 1;
    size_t     key    = 0;
    umx_column column = {UMX_COLUMN_INT, 8, 0, NULL, &value, NULL, 0, NULL};
    umx_chunk  chunk  = {1, &column};
    umx_partition_params params = {&chunk, 1, 1, &key, 1, 1, 0, 0};
    umx_partition       *partition;
    umx_status           status;
    uint8_t              out[128] = {1};

    (void)state;
    status = umx_hash_partition(&params, NULL, &partition);
    UNIT_TOLD(status);
    assert_int_equal(status, UMX_OK);
    assert_int_equal(umx_partition_offsets(partition)[1], sizeof(out));
    assert_int_equal(umx_partition_write(partition, out, sizeof(out) - 1),
                     UMX_ERR_BUFFER_TOO_SMALL);
    assert_int_equal(out[0], 1);
    umx_partition_destroy(partition);
}

/* ---- regions that are none -------------------------------------------------
 */

static void
assert_no_region(const uint8_t *good, size_t len, size_t at, uint8_t byte)
{
    uint8_t *bad = aligned_alloc(64, (len + 63) / 64 * 64);
    size_t   columns, rows;

    umx_region_column found[NUM_SHAPES];

    assert_non_null(bad);
    memcpy(bad, good, len);
    assert_int_not_equal(bad[at], byte);
    bad[at] = byte;
    assert_int_equal(
        umx_partition_read(bad, len, found, NUM_SHAPES, &columns, &rows),
        UMX_ERR_PROTOCOL);
    free(bad);
}

static void
test_damaged_regions_are_refused(void **state)
{
    uint32_t             offsets[] = {0, 2, 3};
    uint8_t              validity  = 2;
    size_t               key       = 0, len, columns, rows;
    umx_column           column    = {.type      = UMX_COLUMN_STRING,
                                      .width     = 4,
                                      .validity  = &validity,
                                      .values    = offsets,
                                      .bytes     = (const uint8_t *)"abc",
                                      .num_bytes = 3};
    umx_chunk            chunk     = {2, &column};
    umx_partition_params params    = {&chunk, 1, 1, &key, 1, 1, 0, 0};
    umx_partition       *partition;
    umx_region_column    found;
    uint8_t             *out = partition_rows(&params, &len, &partition);

    static const struct {
        size_t  at;
        uint8_t byte;
    } damage[] = {
        {0, 'U'},   {7, '2'}, {9, 0},   {15, 1},     {16, 3},    {16, 1},
        {23, 0xff}, {24, 2},  {24, 0},  {27, 0xff},  {28, 1},    {32, 9},
        {32, 2},    {33, 2},  {33, 0},  {34, 1},     {36, 8},    {36, 3},
        {40, 0},    {40, 2},  {48, 2},  {48, 4},     {55, 0xff}, {64, 3},
        {128, 1},   {132, 4}, {136, 2}, {139, 0x80},
    };

    (void)state;
    assert_int_equal(umx_partition_read(out, len, &found, 1, &columns, &rows),
                     UMX_OK);
    for (size_t i = 0; i < sizeof(damage) / sizeof(damage[0]); i++) {
        assert_no_region(out, len, damage[i].at, damage[i].byte);
    }
    for (size_t cut = 0; cut < len; cut += 8) {
        assert_int_equal(
            umx_partition_read(out, cut, &found, 1, &columns, &rows),
            UMX_ERR_PROTOCOL);
    }
    assert_int_equal(umx_partition_read(out, len, NULL, 0, &columns, &rows),
                     UMX_ERR_BUFFER_TOO_SMALL);
    assert_int_equal(columns, 1);
    assert_int_equal(
        umx_partition_read(out + 4, len - 4, &found, 1, &columns, &rows),
        UMX_ERR_INVALID_PARAM);
    umx_partition_destroy(partition);
    free(out);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hashes_of_integers),
        cmocka_unit_test(test_hashes_of_unsigned_integers),
        cmocka_unit_test(test_hashes_of_wide_integers),
        cmocka_unit_test(test_hashes_of_floats),
        cmocka_unit_test(test_hashes_of_halves_without_an_exponent),
        cmocka_unit_test(test_hashes_of_strings),
        cmocka_unit_test(test_hashes_of_a_string_of_64_bytes),
        cmocka_unit_test(test_hashes_of_bools_and_nulls),
        cmocka_unit_test(test_hashes_of_several_columns),
        cmocka_unit_test(test_hash_by_dictionary_is_the_values),
        cmocka_unit_test(test_rows_of_all_columns_move),
        cmocka_unit_test(test_threads_do_not_matter),
        cmocka_unit_test(test_chunks_do_not_matter),
        cmocka_unit_test(test_a_chunk_may_have_no_nulls),
        cmocka_unit_test(test_region_is_as_documented),
        cmocka_unit_test(test_no_rows_and_one),
        cmocka_unit_test(test_partitions_are_balanced),
        cmocka_unit_test(test_seeds_are_independent),
        cmocka_unit_test(test_bad_numbers_are_refused),
        cmocka_unit_test(test_bad_columns_are_refused),
        cmocka_unit_test(test_bad_offsets_are_refused),
        cmocka_unit_test(test_bad_dictionaries_are_refused),
        cmocka_unit_test(test_too_many_bytes_for_offsets_are_refused),
        cmocka_unit_test(test_short_memory_is_left_alone),
        cmocka_unit_test(test_damaged_regions_are_refused),
    };

    return UNIT_RUN(tests);
}
