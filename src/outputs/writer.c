/* SPDX-License-Identifier: BSD-3-Clause */
/* writer.c: what is written for the partitions of a map, until it is committed
 * as a memory: pieces in chunks, which are put together once it is known how
 * long each partition is. */
#include "outputs/writer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "util/hash.h"

enum {
    CHUNK_MIN = 1 << 16, /* bytes; the next is twice as long, up to ... */
    CHUNK_MAX = 1 << 26
};

/* Memory that pieces are copied to. */
struct umi_outputs_chunk {
    umi_outputs_chunk *next;
    size_t             size;
    size_t             used;
    char               data[];
};

/* ---- pieces --------------------------------------------------------------
 */

umi_outputs_piece *
umi_outputs_piece_new(umx_outputs_writer *writer)
{
    size_t size = writer->max_pieces;

    if (writer->num_pieces == size) {
        umi_outputs_piece *pieces;

        size   = (size == 0) ? 64 : 2 * size;
        pieces = realloc(writer->pieces, size * sizeof(*pieces));
        if (pieces == NULL) {
            return NULL;
        }
        writer->pieces     = pieces;
        writer->max_pieces = size;
    }
    return &writer->pieces[writer->num_pieces];
}

/* Get a chunk with room for `len` bytes. */
static umi_outputs_chunk *
get_chunk(umx_outputs_writer *writer, size_t len)
{
    umi_outputs_chunk *chunk = writer->chunks;
    size_t             size;

    if (chunk != NULL && len <= chunk->size - chunk->used) {
        return chunk;
    }
    size  = (chunk == NULL) ? CHUNK_MIN : 2 * chunk->size;
    size  = (size > CHUNK_MAX) ? CHUNK_MAX : size;
    size  = (size < len) ? len : size;
    chunk = (size > SIZE_MAX - sizeof(*chunk)) ? NULL :
                                                 malloc(sizeof(*chunk) + size);
    if (chunk != NULL) {
        chunk->size    = size;
        chunk->used    = 0;
        chunk->next    = writer->chunks;
        writer->chunks = chunk;
    }
    return chunk;
}

static umx_status
write_memory(umx_outputs_writer *writer, uint32_t partition, const void *data,
             size_t len)
{
    umi_outputs_chunk *chunk = get_chunk(writer, len);
    umi_outputs_piece *piece = umi_outputs_piece_new(writer);
    umi_outputs_piece *last  = (writer->num_pieces != 0) ? piece - 1 : NULL;
    char              *at;

    if (chunk == NULL || piece == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    at = chunk->data + chunk->used;
    memcpy(at, data, len);
    chunk->used += len;
    if (last != NULL && last->partition == partition &&
        last->data + last->len == at) {
        last->len += len;
        return UMX_OK;
    }
    *piece = (umi_outputs_piece){
        .partition = partition, .len = len, .data = at};
    writer->num_pieces++;
    return UMX_OK;
}

static void
free_pieces(umx_outputs_writer *writer)
{
    umi_outputs_chunk *chunk;

    while ((chunk = writer->chunks) != NULL) {
        writer->chunks = chunk->next;
        free(chunk);
    }
    free(writer->pieces);
    writer->pieces     = NULL;
    writer->num_pieces = writer->max_pieces = 0;
}

/* ---- putting together ----------------------------------------------------
 */

void
umi_outputs_write_offsets(uint64_t *head, const uint64_t *lens,
                          uint32_t num_partitions, unsigned flags)
{
    uint64_t offset = 0;

    for (uint32_t i = 0;; i++) {
        head[i] = (flags & UMX_OUTPUTS_FLAG_BIG_ENDIAN) != 0 ?
                      __builtin_bswap64(offset) :
                      offset;
        if (i == num_partitions) {
            return;
        }
        offset += lens[i];
    }
}

void
umi_outputs_write_checksum(uint64_t *head, uint32_t num_partitions,
                           uint32_t partition, const void *data, size_t len)
{
    head[(uint64_t)num_partitions + 1 + partition] = umi_siphash(data, len);
}

/* Compute the checksum of a head without its last word. */
static uint64_t
sum_head(const void *head, uint32_t num_partitions)
{
    return umi_siphash(head,
                       (2 * (size_t)num_partitions + 1) * sizeof(uint64_t));
}

void
umi_outputs_seal_head(void *head, uint32_t num_partitions)
{
    ((uint64_t *)head)[2 * (size_t)num_partitions + 1] = sum_head(
        head, num_partitions);
}

bool
umi_outputs_head_is_whole(const void *head, uint32_t num_partitions,
                          unsigned flags)
{
    return (flags & UMX_OUTPUTS_FLAG_CHECKSUMS) == 0 ||
           ((const uint64_t *)head)[2 * (size_t)num_partitions + 1] ==
               sum_head(head, num_partitions);
}

/* Where the next piece of each partition goes, in place of the lengths. */
static void
lens_to_places(uint64_t *lens, uint32_t num_partitions, uint64_t at)
{
    for (uint32_t i = 0; i < num_partitions; i++) {
        uint64_t len = lens[i];

        lens[i] = at;
        at += len;
    }
}

static void
fill(umx_outputs_writer *writer, char *data)
{
    uint32_t  count = writer->outputs->num_partitions;
    uint64_t  head  = umi_outputs_head_size(count, writer->flags);
    uint64_t *words = (uint64_t *)(void *)data;

    umi_outputs_write_offsets(words, writer->lens, count, writer->flags);
    lens_to_places(writer->lens, count, head);
    for (size_t i = 0; i < writer->num_pieces; i++) {
        const umi_outputs_piece *piece = &writer->pieces[i];

        memcpy(data + writer->lens[piece->partition], piece->data, piece->len);
        writer->lens[piece->partition] += piece->len;
    }
    for (uint32_t i = 0;
         (writer->flags & UMX_OUTPUTS_FLAG_CHECKSUMS) != 0 && i < count; i++) {
        uint64_t first = (i == 0) ? head : writer->lens[i - 1];

        umi_outputs_write_checksum(words, count, i, data + first,
                                   (size_t)(writer->lens[i] - first));
    }
    if ((writer->flags & UMX_OUTPUTS_FLAG_CHECKSUMS) != 0) {
        umi_outputs_seal_head(words, count);
    }
}

/* Make the output: a memory that peers cannot write. */
static umx_status
make_memory(umx_outputs_writer *writer, umi_outputs_output *output)
{
    umx_context *context = umx_worker_get_context(
        writer->outputs->joint.worker);
    umx_status status = umx_memh_alloc_readonly(context, (size_t)output->len,
                                                &output->memh);

    if (status == UMX_OK) {
        fill(writer, umx_memh_buffer(output->memh)->data);
        output->kind = UMX_OUTPUTS_MEMORY;
    }
    return status;
}

/* ---- life ----------------------------------------------------------------
 */

static void
writer_put(umx_outputs_writer *writer)
{
    if (umi_refs_put(&writer->refs)) {
        umi_outputs_put(writer->outputs);
        free(writer->lens);
        free(writer);
    }
}

umx_status
umx_outputs_writer_create(umx_outputs                     *outputs,
                          const umx_outputs_writer_params *params,
                          umx_outputs_writer             **writer_p)
{
    UMI_OUTPUTS_LOCK(outputs);
    umx_status          status = umi_outputs_status(outputs);
    umx_outputs_writer *writer;

    if (status != UMX_OK) {
        return status;
    }
    if (params->map >= outputs->num_maps) {
        return UMX_ERR_OUT_OF_RANGE;
    }
    writer = calloc(1, sizeof(*writer));
    if (writer == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    writer->lens = calloc((size_t)outputs->num_partitions + 1,
                          sizeof(*writer->lens));
    if (writer->lens == NULL) {
        free(writer);
        return UMX_ERR_NO_MEMORY;
    }
    umi_outputs_hold(outputs);
    umi_refs_init(&writer->refs);
    writer->outputs = outputs;
    writer->map     = params->map;
    if ((params->field_mask & UMX_OUTPUTS_WRITER_FIELD_FLAGS) != 0) {
        writer->flags = params->flags;
    }
    if ((params->field_mask & UMX_OUTPUTS_WRITER_FIELD_PATH) != 0) {
        status = umi_outputs_file_create(writer, params->path);
        if (status != UMX_OK) {
            writer_put(writer);
            return status;
        }
    }
    *writer_p = writer;
    return UMX_OK;
}

umx_status
umx_outputs_write(umx_outputs_writer *writer, uint32_t partition,
                  const void *data, size_t len)
{
    UMI_OUTPUTS_LOCK(writer->outputs);
    umx_status status;

    if (writer->is_over) {
        return UMX_ERR_CLOSED;
    }
    if (partition >= writer->outputs->num_partitions) {
        return UMX_ERR_OUT_OF_RANGE;
    }
    if (len == 0) {
        return UMX_OK;
    }
    status = (writer->file != NULL) ?
                 umi_outputs_file_write(writer, partition, data, len) :
                 write_memory(writer, partition, data, len);
    if (status == UMX_OK) {
        writer->lens[partition] += len;
        writer->len += len;
    }
    return status;
}

static void
on_published(uint64_t epoch, void *arg)
{
    umx_outputs_writer *writer = arg;

    writer->epoch = epoch;
}

static void
on_publish_over(void *arg)
{
    writer_put(arg);
}

umx_status
umx_outputs_commit(umx_outputs_writer *writer, const umx_op_params *op,
                   umx_request **req_p)
{
    UMI_OUTPUTS_LOCK(writer->outputs);
    umx_outputs        *outputs = writer->outputs;
    umx_status          status  = umi_outputs_status(outputs);
    umi_outputs_output *output;

    if (writer->is_over || status != UMX_OK) {
        return UMX_ERR_CLOSED;
    }
    output = calloc(1, sizeof(*output));
    if (output == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    output->map   = writer->map;
    output->flags = (uint8_t)writer->flags;
    output->len   = writer->len +
                  umi_outputs_head_size(outputs->num_partitions, writer->flags);
    status = (writer->file != NULL) ? umi_outputs_file_finish(writer, output) :
                                      make_memory(writer, output);
    if (status != UMX_OK) {
        free(output->path);
        free(output);
        return status;
    }
    writer->is_over = true;
    umi_refs_get(&writer->refs);
    free_pieces(writer);
    return umi_outputs_publish(outputs, output, on_published, on_publish_over,
                               writer, op, req_p);
}

void
umx_outputs_writer_query(const umx_outputs_writer *writer, uint64_t *len_p,
                         uint64_t *epoch_p)
{
    UMI_OUTPUTS_LOCK(writer->outputs);
    *len_p   = writer->len;
    *epoch_p = writer->epoch;
}

void
umx_outputs_writer_destroy(umx_outputs_writer *writer)
{
    UMI_OUTPUTS_LOCK(writer->outputs);
    writer->is_over = true;
    umi_outputs_file_drop(writer);
    free_pieces(writer);
    writer_put(writer);
}
