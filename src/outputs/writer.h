/* SPDX-License-Identifier: BSD-3-Clause */
/* writer.h: what is written for the partitions of a map. */
#ifndef UMI_OUTPUTS_WRITER_H
#define UMI_OUTPUTS_WRITER_H

#include "outputs/outputs.h"
#include "util/refcnt.h"

typedef struct umi_outputs_chunk umi_outputs_chunk;
typedef struct umi_outputs_file  umi_outputs_file;

/* Bytes of a partition, in the order in which they were written. */
typedef struct umi_outputs_piece {
    uint32_t partition;
    size_t   len;
    union {
        char    *data;   /* in a chunk */
        uint64_t offset; /* in the file */
    };
} umi_outputs_piece;

struct umx_outputs_writer {
    umx_outputs       *outputs; /* held */
    umi_refs           refs;    /* the user's, and of a commit */
    uint32_t           map;
    unsigned           flags;
    uint64_t          *lens; /* of the partitions */
    uint64_t           len;  /* of all */
    uint64_t           epoch;
    bool               is_over;
    umi_outputs_chunk *chunks;
    umi_outputs_piece *pieces;
    size_t             num_pieces;
    size_t             max_pieces;
    umi_outputs_file  *file; /* NULL: memory */
};

/* Get room for the next piece, which is counted by who fills it in. NULL: out
 * of memory. */
umi_outputs_piece *umi_outputs_piece_new(umx_outputs_writer *writer);

/* Write the checksum of a partition behind the offsets. */
void umi_outputs_write_checksum(uint64_t *head, uint32_t num_partitions,
                                uint32_t partition, const void *data,
                                size_t len);

/* ---- file.c --------------------------------------------------------------
 */

/* Make the file of a writer, under a temporary name. */
umx_status umi_outputs_file_create(umx_outputs_writer *writer,
                                   const char         *path);
umx_status umi_outputs_file_write(umx_outputs_writer *writer,
                                  uint32_t partition, const void *data,
                                  size_t len);

/* Give the file its name: it is the output from now on. */
umx_status umi_outputs_file_finish(umx_outputs_writer *writer,
                                   umi_outputs_output *output);

/* Remove a file that was not finished. */
void umi_outputs_file_drop(umx_outputs_writer *writer);

#endif
