/* SPDX-License-Identifier: BSD-3-Clause */
/* region.c: where a region has what, and reading one. */
#include "data/region.h"

#include <umx/partition.h>

#include "util/bytes.h"

/* ---- layout --------------------------------------------------------------
 */

bool
umi_field_is_valid(umx_column_type type, uint32_t width)
{
    bool is_power = width != 0 && (width & (width - 1)) == 0;

    switch (type) {
    case UMX_COLUMN_NULL:
    case UMX_COLUMN_BOOL:
        return width == 0;
    case UMX_COLUMN_INT:
        return is_power && width <= 32;
    case UMX_COLUMN_UINT:
        return is_power && width <= 8;
    case UMX_COLUMN_FLOAT:
        return is_power && width >= 2 && width <= 8;
    case UMX_COLUMN_STRING:
        return width == 4 || width == 8;
    case UMX_COLUMN_BYTES:
    case UMX_COLUMN_OPAQUE:
        return true;
    default:
        return false;
    }
}

/* Add `len` bytes to a size, and the padding behind them. False: the sum is too
 * large. */
static bool
add(size_t *end, size_t len)
{
    return !__builtin_add_overflow(*end, len, end) &&
           !__builtin_add_overflow(*end, -*end % UMI_REGION_ALIGN, end);
}

bool
umi_region_header(size_t num_columns, size_t *len_p)
{
    size_t fields;

    *len_p = UMI_REGION_HEADER;
    return !__builtin_mul_overflow(num_columns, (size_t)UMI_REGION_FIELD,
                                   &fields) &&
           add(len_p, fields);
}

static size_t
bits_size(size_t bits)
{
    return bits / 8 + (bits % 8 != 0);
}

/* Compute the bytes of the values, without padding. False: there are too many.
 */
static bool
values_size(const umi_field *field, size_t num_rows, size_t *size_p)
{
    size_t num_items = num_rows;

    if (field->type == UMX_COLUMN_BOOL) {
        *size_p = bits_size(num_rows);
        return true;
    }
    if (field->type == UMX_COLUMN_STRING &&
        __builtin_add_overflow(num_rows, (size_t)1, &num_items)) {
        return false;
    }
    return !__builtin_mul_overflow(num_items, (size_t)field->width, size_p);
}

bool
umi_region_place(const umi_field *field, size_t num_rows, size_t num_bytes,
                 size_t begin, umi_span *span)
{
    size_t len, end = begin;

    span->validity = end;
    if (field->has_validity && !add(&end, bits_size(num_rows))) {
        return false;
    }
    span->values = end;
    if (!values_size(field, num_rows, &len) || !add(&end, len)) {
        return false;
    }
    span->values_end = span->values + len;
    span->bytes      = end;
    if (!add(&end, num_bytes)) {
        return false;
    }
    span->bytes_end = span->bytes + num_bytes;
    span->end       = end;
    return true;
}

bool
umi_offsets_are_valid(const void *offsets, uint32_t width, size_t num_rows,
                      size_t num_bytes)
{
    size_t before = umi_offset_at(offsets, width, 0);
    bool   is_bad = false;

    /* A negative offset is a large number here. */
    for (size_t i = 1; i <= num_rows; i++) {
        size_t offset = umi_offset_at(offsets, width, i);

        is_bad |= offset < before;
        before = offset;
    }
    return !is_bad && before <= num_bytes;
}

/* ---- reading -------------------------------------------------------------
 */

/* What a region's header says of a column. */
typedef struct field_header {
    umi_field field;
    uint64_t  num_nulls;
    uint64_t  num_bytes;
} field_header;

static bool
read_field(umi_reader *reader, field_header *header)
{
    uint8_t  type         = umi_read_u8(reader);
    uint8_t  has_validity = umi_read_u8(reader);
    uint16_t reserved     = umi_read_u16(reader);

    header->field.type         = (umx_column_type)type;
    header->field.width        = umi_read_u32(reader);
    header->field.has_validity = has_validity != 0;
    header->num_nulls          = umi_read_u64(reader);
    header->num_bytes          = umi_read_u64(reader);
    return !reader->is_bad && has_validity <= 1 && reserved == 0 &&
           umi_field_is_valid(header->field.type, header->field.width) &&
           !(has_validity && type == UMX_COLUMN_NULL) &&
           (header->num_bytes == 0 || type == UMX_COLUMN_STRING);
}

static size_t
count_zeros(const uint8_t *bits, size_t num_bits)
{
    size_t ones = 0, i = 0;

    for (; i + 64 <= num_bits; i += 64) {
        uint64_t word;

        memcpy(&word, bits + i / 8, sizeof(word));
        ones += (size_t)__builtin_popcountll(word);
    }
    for (; i < num_bits; i++) {
        ones += (bits[i / 8] >> (i % 8)) & 1;
    }
    return num_bits - ones;
}

static size_t
count_nulls(const umx_column *column, size_t num_rows)
{
    if (column->type == UMX_COLUMN_NULL) {
        return num_rows;
    }
    return (column->validity == NULL) ? 0 :
                                        count_zeros(column->validity, num_rows);
}

/* Read the column that begins at `*begin_p`, which moves behind the column. */
static bool
read_column(const uint8_t *data, size_t len, size_t num_rows,
            const field_header *header, size_t *begin_p,
            umx_region_column *column_p)
{
    const umi_field *field = &header->field;
    umi_span         span;
    umx_column       column = {.type = field->type, .width = field->width};

    if (!umi_region_place(field, num_rows, header->num_bytes, *begin_p,
                          &span) ||
        span.end > len) {
        return false;
    }
    column.validity = field->has_validity ? data + span.validity : NULL;
    column.values   = (field->type == UMX_COLUMN_NULL) ? NULL :
                                                         data + span.values;
    if (field->type == UMX_COLUMN_STRING) {
        column.bytes     = data + span.bytes;
        column.num_bytes = header->num_bytes;
        if (umi_offset_at(column.values, field->width, 0) != 0 ||
            umi_offset_at(column.values, field->width, num_rows) !=
                header->num_bytes ||
            !umi_offsets_are_valid(column.values, field->width, num_rows,
                                   column.num_bytes)) {
            return false;
        }
    }
    if (count_nulls(&column, num_rows) != header->num_nulls) {
        return false;
    }
    *begin_p            = span.end;
    column_p->column    = column;
    column_p->num_nulls = header->num_nulls;
    return true;
}

/* A limit that keeps sums of bits and of bytes within their types. */
static const uint64_t MAX_ROWS = (uint64_t)INT64_MAX / 64;

umx_status
umx_partition_read(const void *data, size_t len, umx_region_column *columns,
                   size_t max_columns, size_t *num_columns_p,
                   size_t *num_rows_p)
{
    umi_reader     reader;
    const uint8_t *magic;
    uint64_t       region_len, num_rows;
    uint32_t       num_columns;
    size_t         begin;

    if ((uintptr_t)data % 8 != 0) {
        return UMX_ERR_INVALID_PARAM;
    }
    umi_reader_init(&reader, data, len);
    magic       = umi_read_bytes(&reader, strlen(UMI_REGION_MAGIC));
    region_len  = umi_read_u64(&reader);
    num_rows    = umi_read_u64(&reader);
    num_columns = umi_read_u32(&reader);
    if (umi_read_u32(&reader) != 0 || reader.is_bad ||
        memcmp(magic, UMI_REGION_MAGIC, strlen(UMI_REGION_MAGIC)) != 0 ||
        region_len != len || len % UMI_REGION_ALIGN != 0 ||
        num_rows > MAX_ROWS || !umi_region_header(num_columns, &begin) ||
        begin > len) {
        return UMX_ERR_PROTOCOL;
    }
    *num_columns_p = num_columns;
    *num_rows_p    = (size_t)num_rows;
    if (num_columns > max_columns) {
        return UMX_ERR_BUFFER_TOO_SMALL;
    }
    for (uint32_t i = 0; i < num_columns; i++) {
        field_header header;

        if (!read_field(&reader, &header) ||
            !read_column(data, len, (size_t)num_rows, &header, &begin,
                         &columns[i])) {
            return UMX_ERR_PROTOCOL;
        }
    }
    return (begin == len) ? UMX_OK : UMX_ERR_PROTOCOL;
}
