/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file partition.h  The rows of a table by the hash, or the order, of a key.
 *
 * umx_hash_partition() and umx_range_partition() decide for each row to which
 * partition it belongs, and umx_partition_write() copies the rows there, all
 * columns of them. Rows with equal keys come to the same partition, on every
 * host. Rows of a partition keep their order.
 *
 * **The hash** is part of the interface and does not change. With 64-bit
 * numbers that wrap around,
 *
 *     mix(h) : h ^= h >> 33;  h *= 0xff51afd7ed558ccd;
 *              h ^= h >> 33;  h *= 0xc4ceb9fe1a85ec53;  h ^= h >> 33
 *
 * which is the finalizer of MurmurHash3, a row's hash begins as
 * h = mix(seed + 0x9e3779b97f4a7c15). Each key column, in the order of `keys`,
 * continues it:
 *
 * - an integer, by value: h = mix(h ^ v), where v is its 64 bits, with its sign
 *   extended. One that needs more, 2^63 as an unsigned integer or as one of 16
 *   bytes, is a list of words, the lowest first; v is the first, and each
 *   further word continues the hash in the same way, unless it and all behind
 *   it only repeat the sign of the word before. So integers of all widths that
 *   are equal hash alike. Dates, times and decimals are their integer: a
 *   decimal's scale and a time's unit are not part of it.
 * - a bool: as the integer 0 or 1.
 * - a float: h = mix(h ^ v), where v is the bits of the number as a float of 8
 *   bytes; those of 0.0 for -0.0, and 0x7ff8000000000000 for every NaN.
 * - a string, or the bytes of UMX_COLUMN_BYTES: for each 8 bytes of it, read as
 *   a little-endian number w, the last filled up with zeros,
 *
 *       h = rotl(h ^ rotl(w * 0x9fb21c651e98df25, 32) * 0xd6e8feb86659fd93, 29)
 *           * 0x9fb21c651e98df25
 *
 *   where rotl(x, n) rotates x left by n bits and multiplication binds
 *   strongest, and then h = mix(h ^ length).
 * - a row without a value, whatever the type: h = mix(h ^ 0xa0761d6478bd642f).
 * - with a dictionary: the value that the number stands for.
 *
 * The partition is (h >> 32) * num_partitions >> 32. Partitions of a partition
 * need another seed: with the same one all its rows have nearly the same hash.
 *
 * **The order** of umx_range_partition() compares rows by the first key, rows
 * that are equal in it by the next, and so on. Numbers, and a bool as 0 or 1,
 * are in the order of their values; -0.0 and 0.0 are equal. Strings, and the
 * bytes of UMX_COLUMN_BYTES, are in the order of their bytes, and a string
 * comes after its beginnings. UMX_ORDER_DESCENDING turns this round. NaNs,
 * which are equal, come after all numbers, and rows without a value behind
 * them; with UMX_ORDER_NULLS_FIRST rows without a value come first, and NaNs
 * between them and the numbers. The direction does not matter for these two.
 *
 * **A region** holds one partition. The regions follow each other without gaps,
 * each begins at a multiple of 64 bytes, and each can be sent, kept and read by
 * itself: umx_partition_read() gives its columns as views. Numbers are
 * little-endian. What no field below covers is zero.
 *
 *     0   8  "umxpart1"
 *     8   8  bytes of the region, a multiple of 64
 *     16  8  rows
 *     24  4  columns
 *     28  4  0
 *     32     for each column 24 bytes:
 *            0  1  umx_column_type
 *            1  1  1: there is a validity bitmap; 0: all rows have a value
 *            2  2  0
 *            4  4  width
 *            8  8  rows without a value (those of UMX_COLUMN_NULL: all)
 *            16 8  UMX_COLUMN_STRING: bytes of all strings; else 0
 *
 * The buffers of the columns follow in this order, each at the next multiple of
 * 64 bytes: the validity bitmap, if there is one; the values, packed for
 * UMX_COLUMN_BOOL, or one offset more than rows for UMX_COLUMN_STRING, of which
 * the first is 0; the bytes of the strings. A column with a dictionary has its
 * numbers there; the dictionary is not part of the region.
 */
#ifndef UMX_PARTITION_H
#define UMX_PARTITION_H

#include <umx/column.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    UMX_PARTITIONS_MAX = 65535
};

/** Where each row goes. */
typedef struct umx_partition umx_partition;

typedef struct umx_partition_params {
    const umx_chunk *chunks; /* with the same types, widths and keys in each */
    size_t           num_chunks;
    size_t           num_columns;
    const size_t    *keys; /* numbers of columns; the order matters */
    size_t           num_keys;
    uint32_t         num_partitions; /* 1 to UMX_PARTITIONS_MAX */
    uint64_t         seed;
    unsigned         num_threads; /* 0, 1: the caller's; new ones for each call */
} umx_partition_params;

/**
 * Decide to which partition each row belongs.
 *
 * Offsets of strings and numbers of dictionaries are checked; that buffers are
 * as long as the rows need is the caller's claim.
 *
 * Ownership: everything in `params` is lent, and must not change, until
 *            umx_partition_destroy(). Memory for 2 to 6 bytes for each row is
 *            allocated.
 * Thread:    any.
 *
 * @param[out] column_p  or NULL; on a failure the number of the column that it
 *                       is about, or SIZE_MAX
 * @return UMX_OK; UMX_ERR_OUT_OF_RANGE (`num_partitions`);
 *         UMX_ERR_INVALID_PARAM (a width; a key that is not a column, or no
 * key; chunks that differ; offsets that decrease or exceed the bytes; a number
 * that is not in the dictionary); UMX_ERR_UNSUPPORTED (a key of type
 * UMX_COLUMN_OPAQUE); UMX_ERR_EXCEEDS_LIMIT (2 GiB of strings with offsets of 4
 * bytes in one partition); UMX_ERR_NO_MEMORY
 */
UMX_API UMX_MUST_CHECK umx_status
umx_hash_partition(const umx_partition_params *params, size_t *column_p,
                   umx_partition **partition_p);

/** The order of a key: bits. */
enum {
    UMX_ORDER_DESCENDING  = 1,
    UMX_ORDER_NULLS_FIRST = 2
};

typedef struct umx_range_params {
    /* The rows between partitions, in their order: partition p has the rows
     * that are not before row p - 1 and before row p of these. The columns are
     * those of the keys, without dictionaries, of the type and width of the
     * key, or of the values of its dictionary. Widths of offsets may differ. */
    const umx_chunk *splitters;
    const unsigned  *orders; /* UMX_ORDER_ bits for each key; NULL: no bits */
} umx_range_params;

/**
 * Decide by its place in an order to which partition each row belongs.
 *
 * `params->num_partitions` is one more than there are splitters, and
 * `params->seed` does not matter. With one partition there may be no keys.
 *
 * Ownership and thread: as umx_hash_partition(); `ranges` is lent for the call.
 *
 * @return as umx_hash_partition(); UMX_ERR_INVALID_PARAM also for splitters of
 *         another type than the keys, and with `column_p` SIZE_MAX for
 *         splitters that are not in order, or of another number
 */
UMX_API UMX_MUST_CHECK umx_status
umx_range_partition(const umx_partition_params *params,
                    const umx_range_params *ranges, size_t *column_p,
                    umx_partition **partition_p);

/** Where regions begin: `num_partitions` + 1 numbers of bytes, the last one is
 * the size of all. They are `partition`'s. Thread: any. */
UMX_API const size_t *umx_partition_offsets(const umx_partition *partition);

/** Rows of each partition; the numbers are `partition`'s. Thread: any. */
UMX_API const size_t *umx_partition_rows(const umx_partition *partition);

/**
 * Copy the rows to their regions. It may be repeated, to other memory.
 *
 * Ownership: `out` is lent for the call; it must not overlap a column. It
 * should begin at a multiple of 64 bytes. Thread:    any; also several at once.
 *
 * @return UMX_OK, UMX_ERR_BUFFER_TOO_SMALL or UMX_ERR_NO_MEMORY; after these
 *         two `out` is as it was
 */
UMX_API UMX_MUST_CHECK umx_status
umx_partition_write(const umx_partition *partition, void *out, size_t len);

/** Give it back; NULL is allowed. */
UMX_API void umx_partition_destroy(umx_partition *partition);

/** A column of a region: `column` has views into it, and offset 0. */
typedef struct umx_region_column {
    umx_column column;
    size_t     num_nulls;
} umx_region_column;

/**
 * Read a region, which may come from anyone: all lengths, offsets and counts
 * are checked. Numbers of a dictionary are not: it is not there.
 *
 * Ownership: the views are valid as long as the region's memory, which must not
 *            change. `data` must be a multiple of 8.
 * Thread:    any.
 *
 * @param columns       may be NULL if `max_columns` is 0
 * @param[out] num_columns_p, num_rows_p  written on UMX_ERR_BUFFER_TOO_SMALL,
 *                      too: there are more columns than `max_columns`
 * @return UMX_OK, UMX_ERR_BUFFER_TOO_SMALL, UMX_ERR_PROTOCOL (not a region),
 *         UMX_ERR_INVALID_PARAM (`data` is not aligned)
 */
UMX_API UMX_MUST_CHECK umx_status umx_partition_read(
    const void *data, size_t len, umx_region_column *columns,
    size_t max_columns, size_t *num_columns_p, size_t *num_rows_p);

#ifdef __cplusplus
}
#endif
#endif
