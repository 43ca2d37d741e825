/* SPDX-License-Identifier: BSD-3-Clause */
/* write.c: the regions of a plan. */
#include "data/partition.h"
#include "data/scatter.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "util/bytes.h"

/* A thread that writes columns, and its memory for each partition. */
typedef struct region_writer {
    const umx_partition *partition;
    uint8_t             *out;
    umi_cursor          *cursors;
    umi_span            *spans; /* of the column that is written */
    size_t               num_writers;
} region_writer;

/* Returns where the header ends. */
static size_t
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
    return begin + len;
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

    if (partition->fields[column].has_validity) {
        write_validity(writer, column);
    }
    for (uint32_t p = 0; p < partition->params.num_partitions; p++) {
        write_field(writer, column, p);
    }
    write_values(writer, column);
}

/* Write each `num_writers`th column, beginning with that of the writer's
 * number. */
static void
write_columns(size_t number, void *arg)
{
    const region_writer *writer    = (const region_writer *)arg + number;
    const umx_partition *partition = writer->partition;

    for (size_t i = 0; i < partition->params.num_columns; i++) {
        for (uint32_t p = 0; p < partition->params.num_partitions; p++) {
            umi_span *span = &writer->spans[p];

            (void)umi_region_place(&partition->fields[i], partition->rows[p],
                                   umi_partition_num_bytes(partition, i, p),
                                   span->end, span);
        }
        if (i % writer->num_writers == number) {
            write_column(writer, i);
        }
    }
}

static bool
init_writer(region_writer *writer, const umx_partition *partition, void *out,
            size_t num_writers)
{
    size_t num_partitions = partition->params.num_partitions;

    *writer = (region_writer){
        .partition = partition, .out = out, .num_writers = num_writers};
    writer->cursors = umi_new_array(num_partitions, sizeof(*writer->cursors));
    writer->spans   = umi_new_array(num_partitions, sizeof(*writer->spans));
    return writer->cursors != NULL && writer->spans != NULL;
}

static void
fini_writer(region_writer *writer)
{
    free(writer->spans);
    free(writer->cursors);
}

umx_status
umx_partition_write(const umx_partition *partition, void *out, size_t len)
{
    size_t        num_partitions = partition->params.num_partitions;
    region_writer writers[UMI_PARALLEL_MAX];
    umx_status    status = UMX_OK;
    size_t        count  = umi_parallel_count(&partition->params,
                                              partition->params.num_columns);

    if (len < partition->offsets[num_partitions]) {
        return UMX_ERR_BUFFER_TOO_SMALL;
    }
    for (size_t i = 0; i < count; i++) {
        if (!init_writer(&writers[i], partition, out, count)) {
            status = UMX_ERR_NO_MEMORY;
        }
    }
    if (status == UMX_OK) {
        for (size_t p = 0; p < num_partitions; p++) {
            size_t end = write_header(&writers[0], p);

            for (size_t i = 0; i < count; i++) {
                writers[i].spans[p].end = end;
            }
        }
        umi_parallel_run(count, write_columns, writers);
    }
    for (size_t i = 0; i < count; i++) {
        fini_writer(&writers[i]);
    }
    return status;
}
