/* SPDX-License-Identifier: BSD-3-Clause */
/* write.c: the regions of a plan. */
#include "data/partition.h"
#include "data/scatter.h"

#include <stdlib.h>
#include <string.h>

#include "util/bytes.h"

/* The memory that writing needs for each partition. */
typedef struct region_writer {
    const umx_partition *partition;
    uint8_t             *out;
    umi_cursor          *cursors;
    umi_span            *spans; /* of the column that is written */
} region_writer;

static void
write_header(const region_writer *writer, size_t p)
{
    const umx_partition *partition = writer->partition;
    size_t               begin     = partition->offsets[p];
    umi_writer           to;
    size_t               len;

    (void)umi_region_header(partition->params.num_columns, &len);
    memset(writer->out + begin, 0, len);
    umi_writer_init(&to, writer->out + begin, len);
    umi_write_bytes(&to, UMI_REGION_MAGIC, strlen(UMI_REGION_MAGIC));
    umi_write_u64(&to, partition->offsets[p + 1] - begin);
    umi_write_u64(&to, partition->rows[p]);
    umi_write_u32(&to, (uint32_t)partition->params.num_columns);
    writer->spans[p].end = begin + len;
}

static void
write_field(const region_writer *writer, size_t column, size_t p)
{
    const umx_partition *partition = writer->partition;
    const umi_field     *field     = &partition->fields[column];
    umi_writer           to;
    size_t               num_nulls = 0;

    if (field->type == UMX_COLUMN_NULL) {
        num_nulls = partition->rows[p];
    } else if (field->has_validity) {
        num_nulls = partition->rows[p] - writer->cursors[p].ones;
    }
    umi_writer_init(&to,
                    writer->out + partition->offsets[p] + UMI_REGION_HEADER +
                        column * UMI_REGION_FIELD,
                    UMI_REGION_FIELD);
    umi_write_u8(&to, (uint8_t)field->type);
    umi_write_u8(&to, field->has_validity);
    umi_write_u16(&to, 0);
    umi_write_u32(&to, field->width);
    umi_write_u64(&to, num_nulls);
    umi_write_u64(&to, umi_partition_num_bytes(partition, column, p));
}

/* Zero the last 64 bytes of a buffer that is about to be written: its padding
 * is what stays of them. */
static void
zero_tail(const region_writer *writer, size_t begin, size_t end)
{
    if (begin != end) {
        memset(writer->out + end - UMI_REGION_ALIGN, 0, UMI_REGION_ALIGN);
    }
}

static void
write_validity(const region_writer *writer, size_t column)
{
    const umx_partition *partition = writer->partition;

    for (uint32_t p = 0; p < partition->params.num_partitions; p++) {
        const umi_span *span = &writer->spans[p];

        writer->cursors[p] = (umi_cursor){.values = writer->out +
                                                    span->validity};
        zero_tail(writer, span->validity, span->values);
    }
    umi_scatter_validity(&partition->order, column, writer->cursors);
}

static void
write_values(const region_writer *writer, size_t column)
{
    const umx_partition *partition = writer->partition;
    const umi_field     *field     = &partition->fields[column];

    for (uint32_t p = 0; p < partition->params.num_partitions; p++) {
        const umi_span *span   = &writer->spans[p];
        umi_cursor     *cursor = &writer->cursors[p];

        *cursor = (umi_cursor){.values = writer->out + span->values,
                               .bytes  = writer->out + span->bytes};
        zero_tail(writer, span->values, span->bytes);
        zero_tail(writer, span->bytes, span->end);
        if (field->type == UMX_COLUMN_STRING) {
            memset(cursor->values, 0, field->width); /* the first offset */
            cursor->values += field->width;
        }
    }
    umi_scatter_values(&partition->order, column, writer->cursors);
}

static void
write_column(const region_writer *writer, size_t column)
{
    const umx_partition *partition = writer->partition;
    const umi_field     *field     = &partition->fields[column];

    for (uint32_t p = 0; p < partition->params.num_partitions; p++) {
        umi_span *span = &writer->spans[p];

        (void)umi_region_place(field, partition->rows[p],
                               umi_partition_num_bytes(partition, column, p),
                               span->end, span);
    }
    if (field->has_validity) {
        write_validity(writer, column);
    }
    for (uint32_t p = 0; p < partition->params.num_partitions; p++) {
        write_field(writer, column, p);
    }
    write_values(writer, column);
}

umx_status
umx_partition_write(const umx_partition *partition, void *out, size_t len)
{
    size_t        num_partitions = partition->params.num_partitions;
    region_writer writer         = {.partition = partition, .out = out};

    if (len < partition->offsets[num_partitions]) {
        return UMX_ERR_BUFFER_TOO_SMALL;
    }
    writer.cursors = umi_new_array(num_partitions, sizeof(*writer.cursors));
    writer.spans   = umi_new_array(num_partitions, sizeof(*writer.spans));
    if (writer.cursors == NULL || writer.spans == NULL) {
        free(writer.spans);
        free(writer.cursors);
        return UMX_ERR_NO_MEMORY;
    }
    for (size_t p = 0; p < num_partitions; p++) {
        write_header(&writer, p);
    }
    for (size_t i = 0; i < partition->params.num_columns; i++) {
        write_column(&writer, i);
    }
    free(writer.spans);
    free(writer.cursors);
    return UMX_OK;
}
