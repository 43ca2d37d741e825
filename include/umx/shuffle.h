/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file shuffle.h  Chunks of bytes of all ranks, brought to the ranks that own
 * their partitions.
 *
 * Every rank inserts chunks, each for a partition, and says when it has
 * inserted its last one. Every partition has an owner, which takes its chunks
 * when all ranks have said so. Thread: the worker's owner.
 *
 * A chunk is not copied if its owner can map the memory that it is in: the
 * owner is given a view. It is read from the memory otherwise, as far as the
 * budget allows. A chunk of a few hundred bytes is copied at once.
 *
 * A shuffler fails as its communicator does (umx/comm.h).
 */
#ifndef UMX_SHUFFLE_H
#define UMX_SHUFFLE_H

#include <umx/comm.h>
#include <umx/partition.h>
#include <umx/rma.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct umx_shuffler umx_shuffler;

/** A chunk that has been taken. */
typedef struct umx_shuffle_chunk umx_shuffle_chunk;

/** Every partition, or any: a partition's number otherwise. */
#define UMX_PARTITION_ALL UINT32_MAX

enum umx_shuffler_field {
    UMX_SHUFFLER_FIELD_OWNER       = 1u << 0, /* absent: partition % size */
    UMX_SHUFFLER_FIELD_BUDGET      = 1u << 1, /* absent: no limit */
    UMX_SHUFFLER_FIELD_PEER_CREDIT = 1u << 2, /* absent: 64 MiB */
    UMX_SHUFFLER_FIELD_SPILL_DIR   = 1u << 3  /* absent: nothing is spilled */
};

/** The rank that owns a partition: the same on every rank. */
typedef int (*umx_partition_owner_fn)(uint32_t partition, void *arg);

typedef struct umx_shuffler_params {
    uint64_t field_mask;
    /* The nth shuffler with this number here is the nth on other ranks. */
    uint64_t               op_id;
    uint32_t               num_partitions; /* 1 to UMX_PARTITIONS_MAX */
    umx_partition_owner_fn owner;
    void                  *owner_arg;
    /* Bytes of memory: one half for chunks that were inserted and have not been
     * released, one for chunks that have come, views not counted, and have not
     * been extracted. What is more goes to the spill file. Without one nothing
     * limits what is inserted, and chunks stay with the ranks that have
     * inserted them until there is room. */
    size_t budget;
    /* Bytes that are read from one rank at a time; one chunk at least is. */
    size_t peer_credit;
    /* A directory for a file without a name. */
    const char *spill_dir;
} umx_shuffler_params;

/**
 * Take part in a shuffle of all ranks. Nothing is sent.
 *
 * Ownership: the caller's, given back by umx_shuffler_destroy().
 * @return UMX_OK; UMX_ERR_OUT_OF_RANGE: `num_partitions`, or a rank of
 *         `owner`; UMX_ERR_INVALID_PARAM; UMX_ERR_IO_ERROR: no file can be made
 *         in `spill_dir` (umx_take_errno()); UMX_ERR_NO_MEMORY,
 *         UMX_ERR_RANK_FAILED, UMX_ERR_CLOSED
 */
UMX_API UMX_MUST_CHECK umx_status
umx_shuffler_create(umx_comm *comm, const umx_shuffler_params *params,
                    umx_shuffler **shuffler_p);

/** The rank that owns a partition; -1: there is no such partition. */
UMX_API int umx_shuffler_owner(const umx_shuffler *shuffler,
                               uint32_t            partition);

/**
 * Insert `len` bytes of a memory as a chunk of a partition.
 *
 * Ownership: `memh` is held, and the bytes are lent, until the request is
 *            complete: the owner of the partition has released the chunk.
 * Completion: UMX_OK; UMX_ERR_CLOSED: the shuffle was over before that, and the
 *             owner may read the bytes as long as it has the chunk. The owner
 *             may use the chunk where it is, so that umx_request_cancel() and
 *             umx_request_abandon() give UMX_INPROGRESS: the chunk is not
 *             taken back, and the bytes stay lent
 * @return UMX_OK: the bytes have been copied; UMX_INPROGRESS;
 *         UMX_ERR_OUT_OF_RANGE: no such partition, or bytes;
 *         UMX_ERR_INVALID_PARAM: the partition has been finished here;
 *         UMX_ERR_UNSUPPORTED: a layout, or memory of a device;
 *         UMX_ERR_IO_ERROR: the spill file cannot grow
 *         (umx_shuffler_spill_error()), and nothing has been inserted;
 *         UMX_ERR_NO_MEMORY: the same, of memory. The shuffle ends with either,
 *         at umx_shuffler_insert_finished(); UMX_ERR_RANK_FAILED,
 *         UMX_ERR_CLOSED
 */
UMX_API UMX_MUST_CHECK umx_status umx_shuffler_insert(
    umx_shuffler *shuffler, uint32_t partition, umx_memh *memh, size_t offset,
    size_t len, const umx_op_params *params, umx_request **req_p);

/**
 * Say that this rank inserts nothing more into a partition, or, with
 * UMX_PARTITION_ALL, into any.
 *
 * If an insert has failed, into whatever partition, it fails as that has, and
 * the shuffle is revoked on all ranks: no owner takes the other chunks for all.
 *
 * @return UMX_OK; UMX_ERR_OUT_OF_RANGE; UMX_ERR_INVALID_PARAM: that has been
 *         said; UMX_ERR_IO_ERROR: an insert has failed with it
 *         (umx_shuffler_spill_error()); UMX_ERR_RANK_FAILED, UMX_ERR_CLOSED,
 *         UMX_ERR_NO_MEMORY
 */
UMX_API UMX_MUST_CHECK umx_status
umx_shuffler_insert_finished(umx_shuffler *shuffler, uint32_t partition);

/**
 * Wait until a partition that this rank owns can be extracted; with
 * UMX_PARTITION_ALL, for the next one: each is given once.
 *
 * Completion: UMX_OK, and umx_shuffler_result(), which is UMX_PARTITION_ALL if
 *             every one has been given; UMX_ERR_EXCEEDS_LIMIT: nothing more
 * comes until partitions are extracted, for the budget holds no more;
 *             UMX_ERR_IO_ERROR: the same, of the spill file
 * @param[out] partition_p  written on UMX_OK
 * @return UMX_OK, UMX_INPROGRESS; UMX_ERR_OUT_OF_RANGE: it is not owned here;
 *         UMX_ERR_RANK_FAILED, UMX_ERR_CLOSED, UMX_ERR_NO_MEMORY
 */
UMX_API UMX_MUST_CHECK umx_status umx_shuffler_wait(umx_shuffler *shuffler,
                                                    uint32_t      partition,
                                                    const umx_op_params *params,
                                                    umx_request        **req_p,
                                                    uint32_t *partition_p);

/** The partition that a request of umx_shuffler_wait() has waited for. */
UMX_API uint32_t umx_shuffler_result(const umx_request *req);

/**
 * Take the chunks of a partition, those of one rank in the order in which it
 * has inserted them, by rank.
 *
 * Ownership: each chunk is the caller's until umx_shuffle_chunk_release(), also
 * after the end of the shuffler, the communicator and the worker.
 * @param[in,out] count_p  room in `chunks`; chunks
 * @return UMX_OK; UMX_ERR_BUFFER_TOO_SMALL: nothing was taken;
 *         UMX_ERR_BUSY: it is not complete; UMX_ERR_NO_ELEM: it has been taken;
 *         UMX_ERR_OUT_OF_RANGE: it is not owned here; UMX_ERR_RANK_FAILED,
 *         UMX_ERR_CLOSED
 */
UMX_API UMX_MUST_CHECK umx_status
umx_shuffler_extract(umx_shuffler *shuffler, uint32_t partition,
                     umx_shuffle_chunk **chunks, size_t *count_p);

/** Where the bytes of a chunk are. */
typedef enum umx_shuffle_chunk_place {
    UMX_CHUNK_OWN,    /* in the memory that they were inserted from, here */
    UMX_CHUNK_MAPPED, /* there, too, in another process */
    UMX_CHUNK_COPIED, /* in memory that umx_shuffle_chunk_release() frees */
    UMX_CHUNK_SPILLED /* in the spill file, mapped */
} umx_shuffle_chunk_place;

typedef struct umx_shuffle_chunk_info {
    const void             *data;
    size_t                  len; /* bytes */
    int                     source;
    umx_shuffle_chunk_place place;
} umx_shuffle_chunk_info;

/** Fill in what the chunk is. */
UMX_API void umx_shuffle_chunk_query(const umx_shuffle_chunk *chunk,
                                     umx_shuffle_chunk_info  *info);

/** Give a chunk back. Thread: any. */
UMX_API void umx_shuffle_chunk_release(umx_shuffle_chunk *chunk);

/** What has happened so far; bytes. */
typedef struct umx_shuffler_info {
    uint64_t num_inserted; /* chunks; the next: bytes */
    uint64_t inserted;
    uint64_t num_received;
    uint64_t received; /* of all these: */
    uint64_t own;
    uint64_t mapped;
    uint64_t copied;
    uint64_t spilled_in;  /* chunks that have come */
    uint64_t spilled_out; /* chunks that were inserted */
    uint64_t held;        /* counted by the budget now */
    uint64_t most_held;
    uint32_t num_owned;    /* partitions */
    uint32_t num_complete; /* of them */
} umx_shuffler_info;

/** Fill in what the shuffler has counted so far. */
UMX_API void umx_shuffler_query(umx_shuffler      *shuffler,
                                umx_shuffler_info *info);

/** Why the spill file could not grow the last time, as an errno; 0: it could.
 * Thread: any. */
UMX_API int umx_shuffler_spill_error(const umx_shuffler *shuffler);

/**
 * Finish every partition, as umx_shuffler_insert_finished(), and wait until all
 * chunks of this rank have reached their owners and all of its partitions are
 * complete; then leave. Chunks that have not been extracted are dropped.
 *
 * @return UMX_OK, UMX_INPROGRESS, UMX_ERR_CLOSED, UMX_ERR_RANK_FAILED,
 *         UMX_ERR_NO_MEMORY, UMX_ERR_IO_ERROR
 */
UMX_API UMX_MUST_CHECK umx_status umx_shuffler_close(
    umx_shuffler *shuffler, const umx_op_params *params, umx_request **req_p);

/** Revoke the shuffle on all ranks, with `reason` for people. Nothing happens
 * if it has been closed, or has failed. */
UMX_API void umx_shuffler_abort(umx_shuffler *shuffler, const char *reason);

/** Give it back. If the shuffle is not over on this rank, it is revoked on all
 * ranks. */
UMX_API void umx_shuffler_destroy(umx_shuffler *shuffler);

/** Why it was revoked: as umx_comm_get_failure() and umx_comm_reason(). */
UMX_API const umx_comm *umx_shuffler_comm(const umx_shuffler *shuffler);

#ifdef __cplusplus
}
#endif
#endif
