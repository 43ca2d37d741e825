/* SPDX-License-Identifier: BSD-3-Clause */
/* tests: data/item data/sort_word */
#include <umx/partition.h>

#include "unit.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum {
    MOST_KEYS  = 3,
    DESCENDING = UMX_ORDER_DESCENDING,
    FIRST      = UMX_ORDER_NULLS_FIRST
};

/* ---- one partition for each row ----------------------------------------- */

static umx_status
try_range(const umx_chunk *table, size_t num_keys, const umx_chunk *splitters,
          const unsigned *orders, size_t *column_p, umx_partition **partition_p)
{
    static const size_t  keys[MOST_KEYS] = {0, 1, 2};
    umx_range_params     ranges          = {splitters, orders};
    umx_partition_params params          = {
                 .chunks         = table,
                 .num_chunks     = 1,
                 .num_columns    = num_keys,
                 .keys           = keys,
                 .num_keys       = num_keys,
                 .num_partitions = (uint32_t)splitters->num_rows + 1};
    umx_status status;

    status = umx_range_partition(&params, &ranges, column_p, partition_p);
    UNIT_TOLD(status);
    return status;
}

/* The partition of row `row`, which is partitioned alone. */
static size_t
where(const umx_chunk *table, size_t row, size_t num_keys,
      const umx_chunk *splitters, const unsigned *orders)
{
    umx_column     columns[MOST_KEYS];
    umx_chunk      one = {1, columns};
    umx_partition *partition;
    const size_t  *rows;
    size_t         p = 0;

    memcpy(columns, table->columns, num_keys * sizeof(*columns));
    for (size_t k = 0; k < num_keys; k++) {
        columns[k].offset += row;
    }
    assert_int_equal(
        try_range(&one, num_keys, splitters, orders, NULL, &partition), UMX_OK);
    rows = umx_partition_rows(partition);
    while (rows[p] == 0) {
        p++;
        assert_true(p <= splitters->num_rows);
    }
    umx_partition_destroy(partition);
    return p;
}

/* Splitters that are the rows `begin` to `end` of a table which is in order:
 * row i is in partition i - begin + 1, unless rows are equal. */
static void
assert_in_order(const umx_column *columns, size_t num_keys, size_t num_rows,
                const unsigned *orders)
{
    umx_chunk table = {num_rows, columns};

    for (size_t i = 0; i < num_rows; i++) {
        assert_int_equal(where(&table, i, num_keys, &table, orders), i + 1);
    }
}

/* ---- numbers ---------------------------------------------------------------
 */

static void
test_integers_are_in_their_order(void **state)
{
    static const int8_t   bytes[]  = {INT8_MIN, -1, 0, 1, INT8_MAX};
    static const int16_t  shorts[] = {INT16_MIN, -300, 0, 300, INT16_MAX};
    static const int32_t  words[]  = {INT32_MIN, -70000, 0, 70000, INT32_MAX};
    static const int64_t  longs[]  = {INT64_MIN, -(1ll << 40), 0, 1ll << 40,
                                      INT64_MAX};
    static const uint8_t  ubytes[] = {0, 1, 127, 128, 255};
    static const uint64_t ulongs[] = {0, 1, INT64_MAX, 1ull << 63, UINT64_MAX};

    const umx_column columns[] = {
        {.type = UMX_COLUMN_INT, .width = 1, .values = bytes},
        {.type = UMX_COLUMN_INT, .width = 2, .values = shorts},
        {.type = UMX_COLUMN_INT, .width = 4, .values = words},
        {.type = UMX_COLUMN_INT, .width = 8, .values = longs},
        {.type = UMX_COLUMN_UINT, .width = 1, .values = ubytes},
        {.type = UMX_COLUMN_UINT, .width = 8, .values = ulongs},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(columns) / sizeof(columns[0]); i++) {
        assert_in_order(&columns[i], 1, 5, NULL);
    }
}

static void
test_integers_of_many_bytes_are_in_their_order(void **state)
{
    static const uint64_t wide[][2] = {
        {0, 1ull << 63}, {UINT64_MAX, UINT64_MAX}, {0, 0},
        {5, 0},          {1ull << 63, 0},          {0, 1}};
    static const uint64_t wider[][4] = {
        {0, 0, 0, 1ull << 63}, {1, 0, 0, 0}, {0, 1, 0, 0}, {0, 0, 1, 0}};
    static const unsigned descending = DESCENDING;

    uint64_t   falling[][2] = {{0, 1}, {1ull << 63, 0}, {5, 0}, {0, 0}};
    umx_column column = {.type = UMX_COLUMN_INT, .width = 16, .values = wide};

    (void)state;
    assert_in_order(&column, 1, 6, NULL);
    column.values = falling;
    assert_in_order(&column, 1, 4, &descending);
    column.width  = 32;
    column.values = wider;
    assert_in_order(&column, 1, 4, NULL);
}

/* NaNs are behind numbers, and before the row without a value; in front they
 * are the other way round. The direction moves neither. */
static void
test_floats_nans_and_nulls_have_their_places(void **state)
{
    static const double rising[]   = {-INFINITY, -1, 0, 1e-9, INFINITY, NAN, 7};
    static const double falling[]  = {INFINITY, 1e-9, 0, -1, -INFINITY, NAN, 7};
    static const double first[]    = {7, NAN, -INFINITY, -1, 0, 1e-9, INFINITY};
    static const double both[]     = {7, NAN, INFINITY, 1e-9, 0, -1, -INFINITY};
    static const float  floats[]   = {-1.5f, 0, 2.5f, NAN, 7};
    static const uint16_t halves[] = {0xbc00, 0, 0x3c00, 0x7e00, 7};

    static const struct {
        const double *values;
        unsigned      order;
    } tries[] = {{rising, 0},
                 {falling, DESCENDING},
                 {first, FIRST},
                 {both, FIRST | DESCENDING}};

    uint8_t    last = 0x3f, front = 0x7e, few = 0x0f;
    umx_column column = {.type = UMX_COLUMN_FLOAT, .width = 8};

    (void)state;
    for (size_t i = 0; i < 4; i++) {
        column.values   = tries[i].values;
        column.validity = (tries[i].order & FIRST) ? &front : &last;
        assert_in_order(&column, 1, 7, &tries[i].order);
    }
    column.validity = &few;
    column.width    = 4;
    column.values   = floats;
    assert_in_order(&column, 1, 5, NULL);
    column.width  = 2;
    column.values = halves;
    assert_in_order(&column, 1, 5, NULL);
}

static void
test_zeros_and_nans_are_equal(void **state)
{
    static const uint64_t nans[]   = {0x7ff8000000000000, 0xfff8000000000001};
    static const double   zeros[]  = {-0.0, 0.0};
    static const double   zeros2[] = {0.0, -0.0};

    const umx_column splitters[] = {
        {.type = UMX_COLUMN_FLOAT, .width = 8, .values = zeros},
        {.type = UMX_COLUMN_FLOAT, .width = 8, .values = nans},
    };
    umx_column column = {.type = UMX_COLUMN_FLOAT, .width = 8};
    umx_chunk  table  = {2, &column};

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        umx_chunk chunk = {2, &splitters[i]};

        column.values = (i == 0) ? (const void *)zeros2 : nans;
        assert_int_equal(where(&table, 0, 1, &chunk, NULL), 2);
        assert_int_equal(where(&table, 1, 1, &chunk, NULL), 2);
    }
}

static void
test_bools_are_in_their_order(void **state)
{
    static const unsigned first = FIRST | DESCENDING;

    uint8_t    bits = 2, falling = 2, validity = 6;
    umx_column column = {.type = UMX_COLUMN_BOOL, .values = &bits};

    (void)state;
    assert_in_order(&column, 1, 2, NULL);
    column.values   = &falling;
    column.validity = &validity;
    assert_in_order(&column, 1, 3, &first);
}

/* ---- bytes -----------------------------------------------------------------
 */

static void
test_strings_are_in_the_order_of_their_bytes(void **state)
{
    static const char     text[] = "a"
                                   "a\0"
                                   "abcdefgh"
                                   "abcdefgh\0"
                                   "abcdefghi"
                                   "b"
                                   "\xff";
    static const uint32_t at[]   = {0, 0, 1, 3, 11, 20, 29, 30, 31};
    static const uint64_t wide[] = {0, 0, 1, 3, 11, 20, 29, 30, 31};

    umx_column column = {.type      = UMX_COLUMN_STRING,
                         .width     = 4,
                         .values    = at,
                         .bytes     = (const uint8_t *)text,
                         .num_bytes = 31};
    umx_column large  = column;
    umx_chunk  table = {8, &column}, splitters = {8, &large};

    (void)state;
    assert_in_order(&column, 1, 8, NULL);
    large.width  = 8;
    large.values = wide;
    assert_in_order(&large, 1, 8, NULL);
    for (size_t i = 0; i < 8; i++) { /* widths of offsets may differ */
        assert_int_equal(where(&table, i, 1, &splitters, NULL), i + 1);
    }
}

static void
test_bytes_of_a_width_are_in_their_order(void **state)
{
    static const unsigned descending = DESCENDING;

    umx_column column = {.type = UMX_COLUMN_BYTES, .width = 3};

    (void)state;
    column.values = "aaaaab\xff"
                    "aa";
    assert_in_order(&column, 1, 3, NULL);
    column.width  = 9;
    column.values = "12345678b"
                    "12345678a"
                    "02345678z";
    assert_in_order(&column, 1, 3, &descending);
}

/* ---- several keys, dictionaries --------------------------------------------
 */

static void
test_later_keys_decide_between_equal_ones(void **state)
{
    static const int64_t  a[]      = {1, 1, 1, 2, 2, 0};
    static const double   b[]      = {9, 9, NAN, 5, 4, 3};
    static const char     text[]   = "zyxwvu";
    static const uint32_t at[]     = {0, 1, 2, 3, 4, 5, 6};
    static const unsigned orders[] = {0, DESCENDING, DESCENDING};

    uint8_t          validity  = 0x1f; /* the last row has no `a` */
    const umx_column columns[] = {
        {.type     = UMX_COLUMN_INT,
         .width    = 8,
         .validity = &validity,
         .values   = a},
        {.type = UMX_COLUMN_FLOAT, .width = 8, .values = b},
        {.type      = UMX_COLUMN_STRING,
         .width     = 4,
         .values    = at,
         .bytes     = (const uint8_t *)text,
         .num_bytes = 6},
    };

    (void)state;
    assert_in_order(columns, 3, 6, orders);
}

static void
test_dictionaries_are_in_the_order_of_their_values(void **state)
{
    static const int64_t values[]  = {30, 10, 20, 0};
    static const int8_t  numbers[] = {1, 2, 0, 3};
    static const int64_t between[] = {10, 20, 30};

    uint8_t    seven = 7, out_of_range = 4;
    umx_column plain      = {.type     = UMX_COLUMN_INT,
                             .width    = 8,
                             .validity = &seven, /* the last value is null */
                             .values   = values};
    umx_chunk  dictionary = {4, &plain};
    umx_column column     = {.type       = UMX_COLUMN_INT,
                             .width      = 1,
                             .values     = numbers,
                             .dictionary = &dictionary};
    umx_column other = {.type = UMX_COLUMN_INT, .width = 8, .values = between};
    umx_chunk  table = {4, &column}, splitters = {3, &other};
    umx_partition *partition;
    size_t         at;

    (void)state;
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(where(&table, i, 1, &splitters, NULL),
                         (i < 3) ? i + 1 : 3);
    }
    column.values = &out_of_range;
    table         = (umx_chunk){1, &column};
    assert_int_equal(try_range(&table, 1, &splitters, NULL, &at, &partition),
                     UMX_ERR_INVALID_PARAM);
    assert_int_equal(at, 0);
}

/* ---- many rows ----------------------------------------------------------- */

static void
test_many_rows_lie_between_their_splitters(void **state)
{
    enum {
        N = 30000,
        P = 700
    };
    int64_t   *values    = malloc(N * sizeof(*values));
    int64_t   *splitters = malloc(P * sizeof(*splitters));
    size_t    *counts    = calloc(P + 1, sizeof(*counts));
    umx_column column  = {.type = UMX_COLUMN_INT, .width = 8, .values = values};
    umx_column between = {
        .type = UMX_COLUMN_INT, .width = 8, .values = splitters};
    umx_chunk      table = {N, &column}, chunk = {P, &between};
    umx_partition *partition;

    (void)state;
    assert_true(values != NULL && splitters != NULL && counts != NULL);
    for (size_t i = 0; i < P; i++) {
        splitters[i] = (int64_t)(i / 2 * 10) - 1000; /* each is there twice */
    }
    for (size_t i = 0; i < N; i++) {
        int64_t value = (int64_t)(i * 7919 % 5000) - 1200;
        size_t  p     = 0;

        values[i] = value;
        while (p < P && splitters[p] <= value) {
            p++;
        }
        counts[p]++;
    }
    assert_int_equal(try_range(&table, 1, &chunk, NULL, NULL, &partition),
                     UMX_OK);
    assert_memory_equal(umx_partition_rows(partition), counts,
                        (P + 1) * sizeof(*counts));
    umx_partition_destroy(partition);
    free(counts);
    free(splitters);
    free(values);
}

static void
test_one_partition_needs_no_key(void **state)
{
    int64_t    values[] = {3, 1, 2};
    umx_column column = {.type = UMX_COLUMN_INT, .width = 8, .values = values};
    umx_chunk  table = {3, &column}, none = {0, NULL};
    umx_range_params     ranges = {&none, NULL};
    umx_partition_params params = {&table, 1, 1, NULL, 0, 1, 0, 0};
    umx_partition       *partition;
    umx_region_column    found;
    size_t               columns, rows;
    uint64_t             out[32];
    umx_status           status;

    (void)state;
    status = umx_range_partition(&params, &ranges, NULL, &partition);
    UNIT_TOLD(status);
    assert_int_equal(status, UMX_OK);
    assert_true(umx_partition_offsets(partition)[1] <= sizeof(out));
    status = umx_partition_write(partition, out, sizeof(out));
    UNIT_TOLD(status);
    assert_int_equal(status, UMX_OK);
    assert_int_equal(umx_partition_read(out,
                                        umx_partition_offsets(partition)[1],
                                        &found, 1, &columns, &rows),
                     UMX_OK);
    assert_memory_equal(found.column.values, values, sizeof(values));
    umx_partition_destroy(partition);
}

/* ---- what is refused -------------------------------------------------------
 */

static void
test_bad_splitters_are_refused(void **state)
{
    static const int64_t values[] = {1, 3, 2};

    umx_column column  = {.type = UMX_COLUMN_INT, .width = 8, .values = values};
    umx_column between = column;
    umx_chunk  table = {3, &column}, splitters = {3, &between};

    umx_partition       *partition;
    umx_range_params     ranges = {&splitters, NULL};
    size_t               key    = 0, at;
    umx_partition_params params = {&table, 1, 1, &key, 1, 3, 0, 0};
    umx_status           status;

    (void)state;
    assert_int_equal(try_range(&table, 1, &splitters, NULL, &at, &partition),
                     UMX_ERR_INVALID_PARAM);
    assert_int_equal(at, SIZE_MAX); /* they are not in order */
    splitters.num_rows = 2;
    between.width      = 4;
    assert_int_equal(try_range(&table, 1, &splitters, NULL, &at, &partition),
                     UMX_ERR_INVALID_PARAM);
    assert_int_equal(at, 0);
    between      = column;
    between.type = UMX_COLUMN_UINT;
    assert_int_equal(try_range(&table, 1, &splitters, NULL, &at, &partition),
                     UMX_ERR_INVALID_PARAM);
    between            = column;
    splitters.num_rows = 1; /* and three partitions */
    status             = umx_range_partition(&params, &ranges, &at, &partition);
    UNIT_TOLD(status);
    assert_int_equal(status, UMX_ERR_INVALID_PARAM);
    params.num_partitions = 2;
    params.num_keys       = 0;
    status = umx_range_partition(&params, &ranges, &at, &partition);
    UNIT_TOLD(status);
    assert_int_equal(status, UMX_ERR_INVALID_PARAM);
    params.num_partitions = UMX_PARTITIONS_MAX + 1;
    status = umx_range_partition(&params, &ranges, &at, &partition);
    UNIT_TOLD(status);
    assert_int_equal(status, UMX_ERR_OUT_OF_RANGE);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_integers_are_in_their_order),
        cmocka_unit_test(test_integers_of_many_bytes_are_in_their_order),
        cmocka_unit_test(test_floats_nans_and_nulls_have_their_places),
        cmocka_unit_test(test_zeros_and_nans_are_equal),
        cmocka_unit_test(test_bools_are_in_their_order),
        cmocka_unit_test(test_strings_are_in_the_order_of_their_bytes),
        cmocka_unit_test(test_bytes_of_a_width_are_in_their_order),
        cmocka_unit_test(test_later_keys_decide_between_equal_ones),
        cmocka_unit_test(test_dictionaries_are_in_the_order_of_their_values),
        cmocka_unit_test(test_many_rows_lie_between_their_splitters),
        cmocka_unit_test(test_one_partition_needs_no_key),
        cmocka_unit_test(test_bad_splitters_are_refused),
    };

    return UNIT_RUN(tests);
}
