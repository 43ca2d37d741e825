/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file outputs.h  The outputs of maps: each map publishes bytes for every
 * partition, and whoever wants a partition reads it where the map has it.
 *
 * A rank writes the output of a map (umx_outputs_writer) and commits it. The
 * output is one memory, which peers of the host map and others read, or a file:
 * a table of num_partitions + 1 offsets, checksums if they are wanted, and the
 * bytes of the partitions, one after the other.
 *
 * Where outputs are stands in a table of slots, of which every rank has a copy.
 * A commit puts the slot of its map into every copy; so readers look in their
 * own memory, wait there for maps that are not committed yet, and lose nothing
 * of the table when a rank ends. A map may be committed again, by any rank, for
 * example after its first rank has ended: that is a new epoch, and the highest
 * epoch is what readers take.
 *
 * The ranks meet in a communicator. Afterwards its endpoints are used, and not
 * the communicator itself: what is left of the outputs can be read when a rank
 * has failed, and the communicator with it, as long as it has not been closed.
 *
 * Thread: the worker's owner.
 */
#ifndef UMX_OUTPUTS_H
#define UMX_OUTPUTS_H

#include <umx/comm.h>
#include <umx/joint.h>
#include <umx/rma.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct umx_outputs        umx_outputs;
typedef struct umx_outputs_writer umx_outputs_writer;
typedef struct umx_outputs_reader umx_outputs_reader;
typedef struct umx_outputs_fetch  umx_outputs_fetch;
typedef struct umx_outputs_block  umx_outputs_block;

enum {
    UMX_OUTPUTS_MAPS_MAX       = 1 << 24,
    UMX_OUTPUTS_PARTITIONS_MAX = 1 << 24
};

enum umx_outputs_field {
    UMX_OUTPUTS_FIELD_WINDOW = 1u << 0, /* absent: 256 MiB */
    UMX_OUTPUTS_FIELD_MAPPED = 1u << 1, /* absent: four windows */
    UMX_OUTPUTS_FIELD_LEASE  = 1u << 2  /* absent: 60 s */
};

typedef struct umx_outputs_params {
    uint64_t field_mask;
    uint32_t num_maps;
    uint32_t num_partitions;
    /* Parts of files that ranks of other hosts read are mapped here, as long as
     * such a rank reads them: so many bytes of a file at a time, ... */
    size_t window;
    /* ... and so many together: the one that was used longest ago goes. */
    size_t max_mapped;
    /* After so long, whoever has asked for a window has to ask again. */
    uint64_t lease_ns;
} umx_outputs_params;

/**
 * Make the outputs of `num_maps` maps. Every rank calls this, with the same
 * numbers of maps and partitions: it is a collective operation.
 *
 * Ownership: the caller's reference, which umx_outputs_destroy() gives back,
 *            also if the request fails.
 * Completion: UMX_OK; UMX_ERR_INVALID_PARAM: the ranks give different numbers;
 *             as joint.h says
 * @return UMX_OK, UMX_INPROGRESS; UMX_ERR_OUT_OF_RANGE: a number;
 *         UMX_ERR_INVALID_PARAM: a window of 0; what umx_memh_alloc() and
 *         umx_comm_derive() say
 */
UMX_API UMX_MUST_CHECK umx_status umx_outputs_create(
    umx_comm *comm, const umx_outputs_params *params, const umx_op_params *op,
    umx_outputs **outputs_p, umx_request **req_p);

/** Give it back. What was committed here is lost for others, but for files; who
 * has it mapped keeps it. */
UMX_API void umx_outputs_destroy(umx_outputs *outputs);

/**
 * Publish nothing more, refuse to be read by others from now on, and wait until
 * nobody has mapped anything of what was committed here: by the count of the
 * system, for which a peer that has died has nothing mapped, and a child of
 * fork() of this process or of a peer has.
 *
 * Completion: UMX_OK; UMX_ERR_TIMED_OUT: see umx_outputs_num_mapped(). It may
 *             be called again then.
 * @return UMX_OK, UMX_INPROGRESS; UMX_ERR_BUSY: it is under way; UMX_ERR_CLOSED,
 *         UMX_ERR_NO_MEMORY
 */
UMX_API UMX_MUST_CHECK umx_status
umx_outputs_close(umx_outputs *outputs, uint64_t timeout_ns,
                  const umx_op_params *op, umx_request **req_p);

/** How many memories that were committed here somebody else has mapped. */
UMX_API size_t umx_outputs_num_mapped(umx_outputs *outputs);

/** Where the bytes of an output are. */
typedef enum umx_outputs_kind {
    UMX_OUTPUTS_MEMORY = 1,
    UMX_OUTPUTS_FILE   = 2
} umx_outputs_kind;

enum umx_outputs_flags {
    /** The offsets are big-endian, as in the index files of Apache Spark. */
    UMX_OUTPUTS_FLAG_BIG_ENDIAN = 1u << 0,
    /** A checksum of each partition lies behind the offsets. */
    UMX_OUTPUTS_FLAG_CHECKSUMS = 1u << 1
};

/** What is known of the output of a map. */
typedef struct umx_outputs_info {
    uint64_t         epoch; /* 1 for the first commit */
    uint64_t         len;   /* bytes, with offsets and checksums */
    umx_outputs_kind kind;
    int              rank; /* whose it is */
    unsigned         flags;
} umx_outputs_info;

/**
 * Look for the output of a map, in this rank's copy of the table.
 * @return UMX_OK; UMX_ERR_NO_ELEM: it has not been committed;
 *         UMX_ERR_OUT_OF_RANGE: there is no such map; UMX_ERR_CLOSED
 */
UMX_API UMX_MUST_CHECK umx_status umx_outputs_find(umx_outputs *outputs,
                                                   uint32_t     map,
                                                   umx_outputs_info *info);

/** How they are made. It is the outputs'. */
UMX_API umx_joint *umx_outputs_joint(umx_outputs *outputs);

/** Tell how many maps the outputs are for. */
UMX_API uint32_t umx_outputs_num_maps(const umx_outputs *outputs);
/** Tell how many partitions each map has. */
UMX_API uint32_t umx_outputs_num_partitions(const umx_outputs *outputs);

/** Bytes of memory that windows of files have mapped here for others: now, and
 * at most so far. */
UMX_API void umx_outputs_mapped(umx_outputs *outputs, size_t *now_p,
                                size_t *most_p);

/* ---- writing -------------------------------------------------------------
 */

enum umx_outputs_writer_field {
    UMX_OUTPUTS_WRITER_FIELD_FLAGS = 1u << 0, /* absent: 0 */
    UMX_OUTPUTS_WRITER_FIELD_PATH  = 1u << 1  /* absent: to memory */
};

typedef struct umx_outputs_writer_params {
    uint64_t    field_mask;
    uint32_t    map;
    unsigned    flags; /* umx_outputs_flags */
    const char *path;  /* of the file, which is there from the commit on */
} umx_outputs_writer_params;

/**
 * Begin to write the output of a map. A file is written under a temporary name
 * in its directory.
 *
 * Ownership: the caller's, given back by umx_outputs_writer_destroy().
 * @return UMX_OK; UMX_ERR_OUT_OF_RANGE: there is no such map; UMX_ERR_IO_ERROR:
 *         no file can be made (umx_take_errno()); UMX_ERR_CLOSED,
 *         UMX_ERR_INVALID_PARAM, UMX_ERR_NO_MEMORY
 */
UMX_API UMX_MUST_CHECK umx_status
umx_outputs_writer_create(umx_outputs                     *outputs,
                          const umx_outputs_writer_params *params,
                          umx_outputs_writer             **writer_p);

/**
 * Add a copy of `len` bytes to a partition, behind those that it has. Partitions
 * may come in any order; a file whose partitions come in theirs is written once,
 * another twice.
 * @return UMX_OK; UMX_ERR_OUT_OF_RANGE: there is no such partition;
 *         UMX_ERR_CLOSED: it is committed; UMX_ERR_NO_MEMORY; UMX_ERR_IO_ERROR
 *         (umx_take_errno()): the same at each later call
 */
UMX_API UMX_MUST_CHECK umx_status
umx_outputs_write(umx_outputs_writer *writer, uint32_t partition,
                  const void *data, size_t len);

/**
 * Publish what was written, in every copy of the table. A copy that cannot be
 * reached any more is left out. Cancelled, the commit goes on.
 *
 * Completion: UMX_OK: every rank finds it
 * @return UMX_OK, UMX_INPROGRESS; UMX_ERR_CLOSED: it is committed already, or
 *         the outputs are closed; UMX_ERR_IO_ERROR (umx_take_errno());
 *         UMX_ERR_BUSY: others commit the map again and again; what
 *         umx_memh_alloc() says
 */
UMX_API UMX_MUST_CHECK umx_status
umx_outputs_commit(umx_outputs_writer *writer, const umx_op_params *op,
                   umx_request **req_p);

/** Bytes that were written, and the epoch: 0 until the commit is complete. */
UMX_API void umx_outputs_writer_query(const umx_outputs_writer *writer,
                                      uint64_t *len_p, uint64_t *epoch_p);

/** Give it back; what was not committed is dropped. */
UMX_API void umx_outputs_writer_destroy(umx_outputs_writer *writer);

/**
 * Publish a file that a writer has written, here or in another process: for
 * example the file of a rank that has ended. It is this rank's from now on.
 *
 * @param params  `path` must be given, and the flags that it was written with
 * @return as umx_outputs_commit(); UMX_ERR_PROTOCOL: the file is no output of
 *         so many partitions; UMX_ERR_OUT_OF_RANGE: there is no such map
 */
UMX_API UMX_MUST_CHECK umx_status
umx_outputs_publish_file(umx_outputs                     *outputs,
                         const umx_outputs_writer_params *params,
                         const umx_op_params *op, umx_request **req_p);

/* ---- reading -------------------------------------------------------------
 */

enum umx_outputs_reader_flags {
    /** Read as if the other ranks were on other hosts: for tests. */
    UMX_OUTPUTS_READER_FLAG_ELSEWHERE = 1u << 0
};

/**
 * Make a reader, which remembers where the outputs are that it has read of.
 *
 * Ownership: the caller's, given back by umx_outputs_reader_destroy(), which
 *            ends its fetches.
 * @return UMX_OK, UMX_ERR_CLOSED, UMX_ERR_NO_MEMORY
 */
UMX_API UMX_MUST_CHECK umx_status umx_outputs_reader_create(
    umx_outputs *outputs, unsigned flags, umx_outputs_reader **reader_p);

/** Give the reader back. */
UMX_API void umx_outputs_reader_destroy(umx_outputs_reader *reader);

/** Forget which outputs were read: what is mapped for no block goes. */
UMX_API void umx_outputs_reader_forget(umx_outputs_reader *reader);

/** What a reader has done so far; bytes, of blocks that were handed out. */
typedef struct umx_outputs_reader_info {
    uint64_t num_blocks;
    uint64_t own;    /* of outputs of this rank */
    uint64_t mapped; /* of memories of others, or of files */
    uint64_t copied; /* read from other ranks */
    uint64_t num_opened;  /* outputs, once for each epoch */
    uint64_t num_reads;   /* transfers */
    uint64_t num_windows; /* of files, here or there */
    uint64_t num_retries; /* with another epoch, or another window */
    uint64_t waited_ns;   /* of umx_outputs_wait() */
} umx_outputs_reader_info;

/** Fill in what the reader has counted so far. */
UMX_API void umx_outputs_reader_query(umx_outputs_reader      *reader,
                                      umx_outputs_reader_info *info);

enum umx_outputs_fetch_field {
    UMX_OUTPUTS_FETCH_FIELD_MAPS    = 1u << 0, /* absent: all */
    UMX_OUTPUTS_FETCH_FIELD_BYTES   = 1u << 1, /* absent: 48 MiB */
    UMX_OUTPUTS_FETCH_FIELD_TIMEOUT = 1u << 2, /* absent: none */
    UMX_OUTPUTS_FETCH_FIELD_FLAGS   = 1u << 3  /* absent: 0 */
};

enum umx_outputs_fetch_flags {
    /** Blocks that have to be copied are handed out without their bytes, for
     * umx_outputs_block_get(). */
    UMX_OUTPUTS_FETCH_FLAG_LATER = 1u << 0
};

typedef struct umx_outputs_fetch_params {
    uint64_t        field_mask;
    uint32_t        first; /* partition */
    uint32_t        count; /* of partitions; 0: outputs are opened, no more */
    const uint32_t *maps;  /* copied */
    size_t          num_maps;
    /* Bytes that are being read, or have been and were not handed out. One
     * transfer may be longer. */
    size_t max_bytes;
    /* In which nothing comes while umx_outputs_wait() waits. */
    uint64_t timeout_ns;
    unsigned flags;
} umx_outputs_fetch_params;

/**
 * Begin to read partitions of maps.
 *
 * Ownership: the caller's, given back by umx_outputs_fetch_destroy(), which ends
 *            it: no memory of the caller's is in use.
 * @return UMX_OK; UMX_ERR_OUT_OF_RANGE: a partition or a map; UMX_ERR_CLOSED,
 *         UMX_ERR_NO_MEMORY
 */
UMX_API UMX_MUST_CHECK umx_status umx_outputs_fetch_create(
    umx_outputs_reader *reader, const umx_outputs_fetch_params *params,
    umx_outputs_fetch **fetch_p);

/** Give the fetch back. */
UMX_API void umx_outputs_fetch_destroy(umx_outputs_fetch *fetch);

/**
 * Take the next block: the bytes of one map for one partition. The blocks of
 * one map come in the order of the partitions unless they are read from another
 * rank. Where a map has no bytes for a partition, there is no block.
 *
 * @param[out] block_p  written on UMX_OK: the block, which is the caller's until
 *                      umx_outputs_block_release(); NULL: there are no more
 * @return UMX_OK; UMX_INPROGRESS: umx_outputs_wait(); UMX_ERR_CLOSED; others:
 *         see umx_outputs_failure()
 */
UMX_API UMX_MUST_CHECK umx_status umx_outputs_take(umx_outputs_fetch  *fetch,
                                                   umx_outputs_block **block_p);

/**
 * Wait until umx_outputs_take() has something else to say than UMX_INPROGRESS,
 * or may have.
 *
 * Completion: UMX_OK; UMX_ERR_TIMED_OUT: see umx_outputs_missing(), and both may
 *             be called again; UMX_ERR_CLOSED: the outputs are closed
 * @return UMX_OK, UMX_INPROGRESS; UMX_ERR_BUSY: another call waits;
 *         UMX_ERR_NO_MEMORY
 */
UMX_API UMX_MUST_CHECK umx_status umx_outputs_wait(umx_outputs_fetch   *fetch,
                                                   const umx_op_params *op,
                                                   umx_request        **req_p);

/**
 * Write the maps whose output has not been committed, at most `size`.
 * @return how many there are
 */
UMX_API size_t umx_outputs_missing(umx_outputs_fetch *fetch, uint32_t *maps,
                                   size_t size);

/** Why a fetch has failed. */
typedef enum umx_outputs_trouble {
    UMX_OUTPUTS_LOST,    /* it cannot be read any more */
    UMX_OUTPUTS_DAMAGED, /* its offsets make no sense */
    UMX_OUTPUTS_CHANGED, /* the file is not the one that was committed */
    UMX_OUTPUTS_CHECKSUM /* the bytes of a partition are not what they were */
} umx_outputs_trouble;

typedef struct umx_outputs_failed {
    umx_outputs_trouble trouble;
    umx_status          status;
    int                 error; /* of the system; or 0 */
    uint32_t            map;
    uint32_t            partition; /* CHECKSUM, DAMAGED */
    uint64_t            epoch;
    int                 rank; /* whose output it is */
} umx_outputs_failed;

/** Why a fetch has failed, and of which map. False: it has not. */
UMX_API bool umx_outputs_failure(umx_outputs_fetch  *fetch,
                                 umx_outputs_failed *failed);

/** Where the bytes of a block are. */
typedef enum umx_outputs_place {
    UMX_OUTPUTS_OWN,    /* in the memory that was committed, here */
    UMX_OUTPUTS_MAPPED, /* there, of another process, or in a file */
    UMX_OUTPUTS_COPIED, /* in memory of the library's */
    UMX_OUTPUTS_AWAY    /* with another rank: umx_outputs_block_get() */
} umx_outputs_place;

typedef struct umx_outputs_block_info {
    const void       *data; /* NULL: AWAY */
    size_t            len;
    uint32_t          map;
    uint32_t          partition;
    uint64_t          epoch;
    int               rank;
    umx_outputs_place place;
} umx_outputs_block_info;

/** Fill in what the block is. */
UMX_API void umx_outputs_block_query(const umx_outputs_block *block,
                                     umx_outputs_block_info  *info);

/**
 * Read the bytes of a block that is AWAY into `buf`, which is as long.
 *
 * Ownership: `buf` is lent, and the block kept, until completion.
 * @return as umx_rma_get(); UMX_ERR_LENGTH_MISMATCH
 */
UMX_API UMX_MUST_CHECK umx_status umx_outputs_block_get(
    umx_outputs_block *block, const umx_buffer *buf, const umx_op_params *op,
    umx_request **req_p);

/** Give a block back. Thread: any. */
UMX_API void umx_outputs_block_release(umx_outputs_block *block);

#ifdef __cplusplus
}
#endif
#endif
