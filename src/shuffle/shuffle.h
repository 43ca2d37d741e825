/* SPDX-License-Identifier: BSD-3-Clause */
/* shuffle.h: what the files of this room share. Thread: the worker's owner, or
 * its progress thread, under the worker's lock.
 *
 *   insert   a chunk that was inserted here, until its owner has released it
 *   chunk    a chunk of a partition that this rank owns
 *   peer     another rank: what is sent to it, and what it has sent */
#ifndef UMI_SHUFFLE_H
#define UMI_SHUFFLE_H

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <umx/buffer.h>
#include <umx/layer.h>
#include <umx/shuffle.h>

#include "shuffle/wire.h"
#include "util/list.h"
#include "util/refcnt.h"
#include "util/slots.h"

enum {
    UMI_SHUFFLE_MESSAGE_SIZE = 16384, /* bytes, at most */
    UMI_SHUFFLE_INLINE_MAX   = 1024,  /* bytes of a chunk that is copied */
    UMI_SHUFFLE_SPILL_MIN    = 256,   /* a smaller one stays in memory */
    UMI_SHUFFLE_SPILL_ALIGN  = 64,    /* of chunks in the spill file */
    /* Messages with records that a rank has not read. */
    UMI_SHUFFLE_WINDOW = 4
};

typedef struct umi_shuffle_peer   umi_shuffle_peer;
typedef struct umi_shuffle_insert umi_shuffle_insert;
typedef struct umi_shuffle_spill  umi_shuffle_spill;

/* ---- spill.c -------------------------------------------------------------
 */

/* Chunks that come and chunks that were inserted last differently long, so they
 * are in different extents. */
typedef enum umi_shuffle_way {
    UMI_SHUFFLE_IN,
    UMI_SHUFFLE_OUT,
    UMI_SHUFFLE_NUM_WAYS
} umi_shuffle_way;

/* A part of the file, which is mapped, with one or more chunks. */
typedef struct umi_shuffle_extent {
    umi_shuffle_spill         *spill; /* held while it is in use */
    struct umi_shuffle_extent *next;  /* spill->unused[number] */
    unsigned                   number;
    void                      *data;
    size_t                     at; /* in the file */
    size_t                     size;
    size_t                     used;
    bool                       is_full;       /* nothing more is put into it */
    unsigned                   num_unwritten; /* chunks: bytes have to come */
    /* OUT: */
    umx_memh *memh;     /* for peers, held; NULL: no peer has a chunk */
    unsigned  num_lent; /* chunks that peers may read */
    /* of the spill, each chunk, and the memory handle */
    umi_shared_refs refs;
} umi_shuffle_extent;

/* Create a file in `dir` for chunks that are too much for memory. NULL:
 * `*error` is an errno. */
umi_shuffle_spill *umi_shuffle_spill_new(const char *dir, int *error);
void               umi_shuffle_spill_put(umi_shuffle_spill *spill);

/* Put nothing more into the extents that have room. */
void umi_shuffle_spill_fill(umi_shuffle_spill *spill);

/* Take `len` bytes of an extent, of which the caller gets a reference, at
 * `*data_p`. umi_shuffle_extent_written() is called when the bytes are there.
 * Returns an errno, or 0. */
int  umi_shuffle_spill_alloc(umi_shuffle_spill *spill, umi_shuffle_way way,
                             size_t len, umi_shuffle_extent **extent_p,
                             void **data_p);
void umi_shuffle_extent_written(umi_shuffle_extent *extent);

/* Give a reference back. Thread: any. */
void umi_shuffle_extent_put(umi_shuffle_extent *extent);

/* End the access of peers if the extent is full and none has a chunk of it. */
void umi_shuffle_extent_close(umi_shuffle_extent *extent);

/* ---- chunks --------------------------------------------------------------
 */

/* The key of a memory of another rank, which the rank has sent. */
typedef struct umi_shuffle_key {
    umx_rkey *rkey;
    umi_refs  refs; /* the table's, and one of each chunk */
} umi_shuffle_key;

struct umx_shuffle_chunk {
    umx_shuffle_chunk      *next; /* of the partition; or sh->released */
    umx_shuffler           *sh;   /* held */
    umi_shuffle_peer       *peer; /* NULL: this rank's */
    umi_node                node; /* peer->to_fetch */
    uint64_t                id;   /* the sender's */
    uint32_t                partition;
    uint32_t                order;
    int                     source;
    umx_shuffle_chunk_place place;
    void                   *data; /* NULL: it has not come */
    size_t                  len;
    umi_shuffle_key        *key; /* held; or NULL */
    uint64_t                offset;
    umi_shuffle_insert     *insert; /* inserted here; or NULL */
    umi_shuffle_extent     *extent; /* SPILLED: held */
    bool                    is_counted;
    bool                    is_coming;  /* it is being read */
    bool                    is_dropped; /* nobody wants it when it has come */
    _Alignas(16) unsigned char bytes[];
};

/*            all ranks have finished it,              the user has
 *            and all bytes have come                  taken the chunks
 *   COLLECTING -----------------------> COMPLETE -----------------> EXTRACTED
 *
 * Of the partitions of other ranks, which stay COLLECTING, only
 * `is_finished_here` is used. */
typedef enum umi_shuffle_partition_state {
    UMI_SHUFFLE_COLLECTING, /* chunks come, or are on their way */
    UMI_SHUFFLE_COMPLETE,   /* waits for the partition end */
    UMI_SHUFFLE_EXTRACTED   /* the chunks are the user's */
} umi_shuffle_partition_state;

typedef struct umi_shuffle_partition {
    umx_shuffle_chunk *first;
    umx_shuffle_chunk *last;
    uint32_t           num_chunks;
    uint32_t           num_missing;      /* chunks whose bytes have not come */
    int                num_finished;     /* ranks */
    bool               is_finished_here; /* this rank is one of those */
    umi_shuffle_partition_state state;
} umi_shuffle_partition;

/* ---- the shuffler --------------------------------------------------------
 */

struct umx_shuffler {
    umx_dependent   dependent;
    umx_worker     *worker; /* NULL: it is being destroyed */
    umx_comm       *comm;   /* derived, owned */
    int             rank;
    int             size;
    umi_shared_refs refs; /* the user, chunks, and each thing under way */
    bool            is_closing;
    bool            is_left; /* the communicator */
    umx_status      status;  /* why no operation can begin */
    umx_request    *close_req;
    /* partitions */
    uint32_t               num_partitions;
    int32_t               *owners;
    umi_shuffle_partition *partitions;
    uint32_t               num_owned;
    uint32_t               num_complete;
    uint32_t               num_extracted;
    uint32_t               num_unfinished; /* here */
    uint32_t              *complete;       /* in this order */
    uint32_t               next_given;
    umi_list               waits; /* umi_shuffle_wait.node */
    /* ranks */
    umi_shuffle_peer *peers;
    umi_list          inserts; /* umi_shuffle_insert.node */
    unsigned          num_untaken;
    unsigned          num_sending;
    unsigned          num_fetching;
    /* memory */
    umi_shuffle_spill *spill;
    char              *spill_dir;
    size_t             budget; /* for either way; SIZE_MAX: no limit */
    size_t             peer_credit;
    size_t             held_in;
    size_t             held_small; /* of chunks that came in a message */
    size_t             held_out;
    umx_status         shortage;   /* why the last chunk could not be read */
    atomic_int         error;      /* why the spill file could not grow */
    umx_status         stall;      /* UMX_INPROGRESS; or why nothing is read */
    umx_status         lost;       /* why the first insert has failed; UMX_OK */
    int                lost_error; /* the errno of `lost`; or 0 */
    pthread_mutex_t    lock;       /* of the rest, and of `worker` as it goes */
    umx_shuffle_chunk *released;   /* by any thread */
    umx_errand         errand;     /* frees them */
    bool               is_errand_posted;

    umx_shuffler_info info;
};

/* ---- shuffler.c ----------------------------------------------------------
 */

void umi_shuffle_hold(umx_shuffler *sh);
void umi_shuffle_put(umx_shuffler *sh);

/* The status of an errno of the spill file. */
static inline umx_status
umi_shuffle_status_of(int error)
{
    return (error == ENOMEM) ? UMX_ERR_NO_MEMORY : UMX_ERR_IO_ERROR;
}

/* Remember why the spill file could not grow. Returns the status. */
static inline umx_status
umi_shuffle_note_error(umx_shuffler *sh, int error)
{
    atomic_store_explicit(&sh->error, error, memory_order_relaxed);
    return umi_shuffle_status_of(error);
}

/* Revoke the shuffle on all ranks. */
void umi_shuffle_break(umx_shuffler *sh, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The shuffle has been revoked: end all that is under way with `status`. */
void umi_shuffle_fail(umx_shuffler *sh, umx_status status);

/* Leave the communicator if the user has closed the shuffler, and the shuffle
 * is over on this rank. */
void umi_shuffle_check_end(umx_shuffler *sh);

/* Tell why no operation can begin; UMX_OK if one can. A failure of the
 * communicator that is found ends the shuffle. */
umx_status umi_shuffle_status(umx_shuffler *sh);

/* Note, and tell the owners, that this rank inserts nothing more into a
 * partition, or into all. If an insert has failed, revoke the shuffle instead.
 */
umx_status umi_shuffle_finish(umx_shuffler *sh, uint32_t partition);

/* Keep the progress thread out until the end of the block. */
#define UMI_SHUFFLE_LOCK(sh) UMX_LAYER_LOCK((sh)->worker)

/* ---- partition.c ---------------------------------------------------------
 */

/* Add a chunk to its partition, whose bytes are still missing. The chunk has
 * `extra` bytes of memory of its own. NULL: out of memory. */
umx_shuffle_chunk *umi_shuffle_chunk_new(umx_shuffler *sh, uint32_t partition,
                                         int source, size_t extra);

/* Add a chunk with a copy of `data`, in memory or in the spill file. NULL: out
 * of memory. */
umx_shuffle_chunk *umi_shuffle_chunk_copy(umx_shuffler *sh, uint32_t partition,
                                          int source, const void *data,
                                          size_t len);

/* The bytes of the chunk have come. */
void umi_shuffle_chunk_landed(umx_shuffle_chunk *chunk);

/* Free a chunk that was dropped while its bytes came. */
void umi_shuffle_chunk_drop(umx_shuffle_chunk *chunk);

/* A rank has finished a partition. */
void umi_shuffle_partition_finish(umx_shuffler *sh, uint32_t partition);

/* Drop the chunks that nobody has taken. */
void umi_shuffle_partitions_drop(umx_shuffler *sh);

/* Free the chunks that the user has released. True: there were some. */
bool umi_shuffle_free_released(umx_shuffler *sh);
void umi_shuffle_run_errand(umx_errand *errand);

/* End the waits that can end now, or all. */
void umi_shuffle_waits_serve(umx_shuffler *sh);
void umi_shuffle_waits_end(umx_shuffler *sh, umx_status status);

/* ---- insert.c ---------------------------------------------------------------
 */

struct umi_shuffle_insert {
    umi_node            node; /* sh->inserts */
    umx_shuffler       *sh;
    umx_request        *req;   /* NULL: it was spilled, or is over */
    umx_memh           *memh;  /* held */
    umx_shuffle_chunk  *chunk; /* of this rank's partition; or NULL */
    umi_shuffle_peer   *peer;  /* NULL: this rank's */
    uint64_t            id;
    uint32_t            key;
    size_t              len;
    bool                is_taken;
    bool                is_counted;
    umi_shuffle_extent *extent; /* it was spilled to; or NULL. Held by `memh` */
};

/* The owner can read the chunk without this rank. */
void umi_shuffle_insert_taken(umi_shuffle_insert *insert);

/* The owner has released the chunk, or never will: complete the request, and
 * free the insert. */
void umi_shuffle_insert_end(umi_shuffle_insert *insert, umx_status status);

/* End the inserts into partitions of a rank, or all. The memory of a chunk that
 * the user has extracted is held until the chunk is released. */
void umi_shuffle_inserts_end(umx_shuffler *sh, const umi_shuffle_peer *peer,
                             umx_status status);

/* ---- peer.c --------------------------------------------------------------
 */

/* A message to a rank, with records. */
typedef struct umi_shuffle_message {
    umi_node          node; /* peer->unsent */
    umi_shuffle_peer *peer;
    size_t            len;
    uint8_t           data[UMI_SHUFFLE_MESSAGE_SIZE];
} umi_shuffle_message;

/* A memory whose key was sent to a rank. */
typedef struct umi_shuffle_sent_key {
    umx_memh *memh; /* held; NULL: free */
    unsigned  num_inserts;
} umi_shuffle_sent_key;

struct umi_shuffle_peer {
    umx_shuffler *sh;
    int           rank;
    bool          is_gone;
    /* to it */
    umi_list              unsent; /* umi_shuffle_message.node */
    umi_shuffle_message  *spare;
    unsigned              num_unread; /* messages */
    umi_slots             inserts;    /* umi_shuffle_insert */
    uint32_t              nonce;
    umi_shuffle_sent_key *sent_keys;
    uint32_t              num_sent_keys;
    uint32_t              last_sent_key;
    /* from it */
    uint8_t          *rx;
    umx_request      *recv;     /* NULL: none is posted */
    unsigned          num_owed; /* acks */
    umi_shuffle_key **keys;
    uint32_t          num_keys;
    uint8_t          *finished; /* a bit for each partition */
    umi_list          to_fetch; /* umx_shuffle_chunk.node */
    size_t            fetching; /* bytes */
};

umx_status umi_shuffle_peer_init(umi_shuffle_peer *peer, umx_shuffler *sh,
                                 int rank);
void       umi_shuffle_peer_fini(umi_shuffle_peer *peer);

/* Has the rank finished all partitions that this rank owns? */
bool umi_shuffle_has_finished_all(const umi_shuffle_peer *peer);

/* ---- describe.c ---- */

void umi_shuffle_describe(const umx_dependent *dependent, umx_line_fn fn,
                          void *arg);

/* Post a receive of the next message of the rank, and act on those that are
 * here. */
umx_status umi_shuffle_peer_listen(umi_shuffle_peer *peer);

/* Put records into the next message, all or none; umi_shuffle_peer_flush()
 * sends them.
 */
umx_status umi_shuffle_peer_tell(umi_shuffle_peer         *peer,
                                 const umi_shuffle_record *records,
                                 size_t                    count);
void       umi_shuffle_peer_flush(umi_shuffle_peer *peer);
void       umi_shuffle_flush(umx_shuffler *sh);

/* Tell a record that has nothing but a number. */
void umi_shuffle_peer_say(umi_shuffle_peer *peer, umi_shuffle_record_kind kind,
                          uint64_t number);
void umi_shuffle_peer_drop_unsent(umi_shuffle_peer *peer);

/* ---- read_chunks.c --------------------------------------------------------
 */

void umi_shuffle_key_put(umi_shuffle_key *key);
void umi_shuffle_note_held(umx_shuffler *sh);

/* Read chunks of all ranks, as far as there is room. If there is no room for
 * any, nothing comes until the user extracts something: the waits end with the
 * reason. */
void umi_shuffle_fetch_all(umx_shuffler *sh);

#endif
