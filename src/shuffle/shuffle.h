/* SPDX-License-Identifier: BSD-3-Clause */
/* shuffle.h: what the files of this room share. Thread: the worker's owner, or
 * its progress thread, under the worker's lock.
 *
 *   out      a chunk that was inserted here, until its owner has released it
 *   chunk    a chunk of a partition that this rank owns
 *   peer     another rank: what is sent to it, and what it has sent */
#ifndef UMI_SHUFFLE_H
#define UMI_SHUFFLE_H

#include <pthread.h>
#include <stdatomic.h>
#include <umx/buffer.h>
#include <umx/layer.h>
#include <umx/shuffle.h>

#include "shuffle/wire.h"
#include "util/list.h"
#include "util/slots.h"

enum {
    UMI_SHUFFLE_MESSAGE_SIZE = 16384, /* bytes, at most */
    UMI_SHUFFLE_INLINE_MAX   = 1024,  /* bytes of a chunk that is copied */
    /* Messages with records that a rank has not read. */
    UMI_SHUFFLE_WINDOW = 4
};

typedef struct umi_shuffle_peer   umi_shuffle_peer;
typedef struct umi_shuffle_insert umi_shuffle_insert;
typedef struct umi_shuffle_spill  umi_shuffle_spill;

/* ---- spill.c -------------------------------------------------------------
 */

/* A file for what is too much for memory. NULL: `*error` is an errno. */
umi_shuffle_spill *umi_shuffle_spill_new(const char *dir, int *error);
void               umi_shuffle_spill_put(umi_shuffle_spill *spill);

/* Memory of the file, and its place there; the memory lasts until
 * umi_shuffle_spill_free(), which any thread may call. An errno, or 0. */
int umi_shuffle_spill_alloc(umi_shuffle_spill *spill, size_t len, void **data_p,
                            size_t *at_p);
void umi_shuffle_spill_free(umi_shuffle_spill *spill, void *data, size_t at,
                            size_t len);

/* What has been written need not stay in memory. */
void umi_shuffle_spill_let_go(void *data, size_t len);

/* ---- chunks --------------------------------------------------------------
 */

/* A key that a rank has told. */
typedef struct umi_shuffle_key {
    umx_rkey *rkey;
    unsigned  refs; /* the table's, and one of each chunk */
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
    umi_shuffle_insert     *insert;   /* inserted here; or NULL */
    size_t                  spill_at; /* SPILLED */
    bool                    is_counted;
    bool                    is_coming;  /* it is being read */
    bool                    is_dropped; /* nobody wants it when it has come */
    bool                    is_extracted;
    _Alignas(16) unsigned char bytes[];
};

typedef struct umi_shuffle_partition {
    umx_shuffle_chunk *first;
    umx_shuffle_chunk *last;
    uint32_t           num_chunks;
    uint32_t           num_missing;  /* chunks whose bytes have not come */
    int                num_finished; /* ranks */
    bool               is_finished;  /* here */
    bool               is_complete;
    bool               is_extracted;
} umi_shuffle_partition;

/* ---- the shuffler --------------------------------------------------------
 */

struct umx_shuffler {
    umx_dependent dependent;
    umx_worker   *worker; /* NULL: it is being destroyed */
    umx_comm     *comm;   /* derived, owned */
    int           rank;
    int           size;
    atomic_uint   refs; /* the user, chunks, and each thing under way */
    bool          is_closing;
    bool          is_left; /* the communicator */
    umx_status    status;  /* why no operation can begin */
    umx_request  *close_req;
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
    size_t             budget; /* for either way; SIZE_MAX: no limit */
    size_t             peer_credit;
    size_t             held_in;
    size_t             held_small; /* of chunks that came in a message */
    size_t             held_out;
    umx_status         shortage; /* why the last chunk could not be read */
    int                error;    /* errno of it */
    umx_status         stall;    /* UMX_INPROGRESS; or why nothing is read */
    pthread_mutex_t    lock;     /* of the rest, and of `worker` as it goes */
    umx_shuffle_chunk *released; /* by any thread */
    umx_errand         errand;   /* frees them */
    bool               is_errand_posted;

    umx_shuffler_info info;
};

/* ---- shuffler.c ----------------------------------------------------------
 */

void umi_shuffle_hold(umx_shuffler *sh);
void umi_shuffle_put(umx_shuffler *sh);

/* Parameters of an operation of the shuffler's own. */
umx_op_params umi_shuffle_op(umx_done_fn fn, void *arg);

/* Revoke the shuffle on all ranks. */
void umi_shuffle_break(umx_shuffler *sh, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* It has been revoked: end all with `status`. */
void umi_shuffle_fail(umx_shuffler *sh, umx_status status);

/* Is it over on this rank? Then leave. */
void umi_shuffle_check_end(umx_shuffler *sh);

/* Why no operation can begin. */
umx_status umi_shuffle_status(umx_shuffler *sh);

/* This rank inserts nothing more into a partition, or all. */
umx_status umi_shuffle_finish(umx_shuffler *sh, uint32_t partition);

static inline void
umi_shuffle_unlock(umx_guard *const *guard_p)
{
    if (*guard_p != NULL) {
        umx_worker_unlock(*guard_p);
    }
}

/* Keep the progress thread out until the end of the block. */
#define UMI_SHUFFLE_LOCK_OF(worker)                      \
    __attribute__((cleanup(umi_shuffle_unlock), unused)) \
    umx_guard *const umi_shuffle_lock = umx_worker_lock(worker)
#define UMI_SHUFFLE_LOCK(sh) UMI_SHUFFLE_LOCK_OF((sh)->worker)

/* ---- partition.c ---------------------------------------------------------
 */

/* A chunk of `extra` bytes of its own, at the end of its partition, still
 * missing. NULL: out of memory. */
umx_shuffle_chunk *umi_shuffle_chunk_new(umx_shuffler *sh, uint32_t partition,
                                         int source, size_t extra);

/* Its bytes are there. */
void umi_shuffle_chunk_landed(umx_shuffle_chunk *chunk);

/* It was dropped while it came. */
void umi_shuffle_chunk_drop(umx_shuffle_chunk *chunk);

/* A rank has finished a partition. */
void umi_shuffle_partition_finish(umx_shuffler *sh, uint32_t partition);

/* Drop the chunks that nobody has taken. */
void umi_shuffle_partitions_drop(umx_shuffler *sh);

/* Free what has been released. True: there was something. */
bool umi_shuffle_free_released(umx_shuffler *sh);
void umi_shuffle_run_errand(umx_errand *errand);

/* End the waits that can end now, or all. */
void umi_shuffle_waits_serve(umx_shuffler *sh);
void umi_shuffle_waits_end(umx_shuffler *sh, umx_status status);

/* ---- insert.c ---------------------------------------------------------------
 */

struct umi_shuffle_insert {
    umi_node           node; /* sh->inserts */
    umx_shuffler      *sh;
    umx_request       *req;   /* NULL: it was spilled, or is over */
    umx_memh          *memh;  /* held */
    umx_shuffle_chunk *chunk; /* of this rank's partition; or NULL */
    umi_shuffle_peer  *peer;  /* NULL: this rank's */
    uint64_t           id;
    uint32_t           key;
    size_t             len;
    bool               is_taken;
    bool               is_counted;
    bool               is_spilled;
};

/* Its owner can read it without this rank. */
void umi_shuffle_insert_taken(umi_shuffle_insert *insert);

/* It is over. */
void umi_shuffle_insert_end(umi_shuffle_insert *insert, umx_status status);

/* The same for those to a rank, or all; but what the user has extracted is held
 * until that is released. */
void umi_shuffle_inserts_end(umx_shuffler *sh, const umi_shuffle_peer *peer,
                             umx_status status);

/* ---- peer.c --------------------------------------------------------------
 */

/* A message. */
typedef struct umi_shuffle_message {
    umi_node          node; /* peer->unsent */
    umi_shuffle_peer *peer;
    size_t            len;
    uint8_t           data[UMI_SHUFFLE_MESSAGE_SIZE];
} umi_shuffle_message;

/* A memory that a rank has the key of. */
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

/* Receive what it sends. */
umx_status umi_shuffle_peer_listen(umi_shuffle_peer *peer);

/* Put records into the next message, all or none; umi_shuffle_peer_flush()
 * sends them.
 */
umx_status umi_shuffle_peer_tell(umi_shuffle_peer         *peer,
                                 const umi_shuffle_record *records,
                                 size_t                    count);
void       umi_shuffle_peer_flush(umi_shuffle_peer *peer);
void       umi_shuffle_flush(umx_shuffler *sh);

/* A record with a number only. */
void umi_shuffle_peer_say(umi_shuffle_peer *peer, umi_shuffle_record_kind kind,
                          uint64_t number);
void umi_shuffle_peer_drop_unsent(umi_shuffle_peer *peer);

/* ---- fetch.c --------------------------------------------------------------
 */

void umi_shuffle_key_put(umi_shuffle_key *key);
void umi_shuffle_note_held(umx_shuffler *sh);

/* Read chunks, as far as there is room. If there is none for any, nothing comes
 * until the user extracts something: say so to who waits. */
void umi_shuffle_fetch_all(umx_shuffler *sh);

#endif
