/* SPDX-License-Identifier: BSD-3-Clause */
/* outputs.h: what the files of this room share. Thread: the worker's owner, or
 * its progress thread, under the worker's lock.
 *
 *   output   what was committed on this rank
 *   entry    an output that a reader has opened, here or on another rank
 *   extent   memory with bytes of blocks: mapped, or read from another rank
 *   fetch    blocks on their way to the user: a list of items, each of which is
 *            a range of partitions of a map */
#ifndef UMI_OUTPUTS_H
#define UMI_OUTPUTS_H

#include <stdatomic.h>
#include <umx/buffer.h>
#include <umx/heap.h>
#include <umx/outputs.h>
#include <umx/wait.h>

#include "joint/joint.h"
#include "outputs/file.h"
#include "outputs/slot.h"
#include "util/list.h"
#include "util/map.h"
#include "util/refcnt.h"
#include "util/slots.h"

enum {
    UMI_OUTPUTS_HEADER = 64 /* bytes of the table before the slots */
};

typedef struct umi_outputs_entry   umi_outputs_entry;
typedef struct umi_outputs_windows umi_outputs_windows;
typedef struct umi_outputs_store   umi_outputs_store;

/* Another rank. */
typedef struct umi_outputs_peer {
    umx_rkey *table; /* its copy; NULL: this rank, or it was never reached */
    umx_ep   *ep;    /* as long as `table` is open */
    uint64_t  id;    /* of its umx_outputs, for messages */
} umi_outputs_peer;

struct umx_outputs {
    umx_joint         joint;
    uint32_t          num_maps;
    uint32_t          num_partitions;
    uint64_t          id;
    umi_outputs_peer *peers;
    /* the table */
    umx_memh    *table;
    umx_lookout *lookout;
    uint64_t     seen; /* of the count of commits */
    /* what was committed here */
    umx_heap *heap;      /* of overflows; or NULL */
    umi_list  committed; /* umi_outputs_output.node */
    umi_map   own;       /* umi_outputs_output.by_map, the last of each map */
    size_t    num_committed;
    size_t    num_unswept; /* commits since it was looked what can be freed */
    umi_list  readers;     /* umx_outputs_reader.node */
    /* the end */
    umx_request *close_req;
    umx_timer    close_timer;
    uint64_t     close_deadline_ns;
    uint64_t     close_pause_ns;
    /* windows of files */
    struct umi_outputs_hub *hub; /* NULL: no messages are taken */
    umi_node                hub_node;
    umi_outputs_windows    *windows;
    umi_list                asks; /* that wait for an answer */
    umi_slots               ask_ids;
    umx_timer               ask_timer;
};

/* ---- outputs.c -----------------------------------------------------------
 */

static inline void
umi_outputs_hold(umx_outputs *outputs)
{
    umi_joint_hold(&outputs->joint);
}

static inline void
umi_outputs_put(umx_outputs *outputs)
{
    umi_joint_put(&outputs->joint);
}

/* Tell why no operation can begin; UMX_OK if one can. */
static inline umx_status
umi_outputs_status(const umx_outputs *outputs)
{
    return umi_joint_check(&outputs->joint);
}

/* Keep the progress thread out until the end of the block. */
#define UMI_OUTPUTS_LOCK(outputs) UMI_JOINT_LOCK(outputs)

/* ---- slot_table.c
 * -------------------------------------------------------------
 */

size_t umi_outputs_table_size(uint32_t num_maps);

/* Where a place for an epoch is in a table. */
size_t umi_outputs_table_offset(uint32_t map, uint64_t epoch);

/* The highest epoch that is written in the slot of a map, perhaps not whole. */
uint64_t umi_outputs_table_epoch(const umx_outputs *outputs, uint32_t map);

/* Find the highest epoch that is whole. `copy` is UMI_OUTPUTS_PLACE bytes, to
 * which key and path lead. False: there is none. */
bool umi_outputs_table_find(const umx_outputs *outputs, uint32_t map,
                            umi_outputs_where *where, uint8_t *copy);

/* Write a place of this rank's own copy, and tell those who wait. */
void umi_outputs_table_write(umx_outputs *outputs, uint32_t map, uint64_t epoch,
                             const uint8_t *place, size_t len);

/* The signal by which a place is put into the copy of another rank. */
umx_atomic umi_outputs_table_signal(void);

/* Has anything been committed since the last call? */
bool umi_outputs_table_has_news(umx_outputs *outputs);

/* ---- publish.c -----------------------------------------------------------
 */

/* What was committed on this rank. */
typedef struct umi_outputs_output {
    umi_node     node;   /* outputs->committed */
    umi_map_node by_map; /* outputs->own */
    uint32_t     map;
    uint64_t     epoch; /* 0: the commit is not complete */
    uint64_t     len;
    uint8_t      kind;
    uint8_t      flags;
    umx_memh    *memh;     /* MEMORY; NULL once nobody has it mapped */
    umx_memh    *overflow; /* or NULL */
    char        *path;     /* FILE */
    uint64_t     device;
    uint64_t     inode;
    uint64_t     mtime_ns;
} umi_outputs_output;

/* Called when a commit is complete. */
typedef void (*umi_outputs_published_fn)(uint64_t epoch, void *arg);

/* Put an output into every copy of the table. It is taken over, also if that
 * fails. `on_published`, or NULL, is called once that is done; `on_over`, or
 * NULL, last, whatever happens; in this call or in a (P) call. */
umx_status umi_outputs_publish(umx_outputs *outputs, umi_outputs_output *output,
                               umi_outputs_published_fn on_published,
                               void (*on_over)(void *arg), void *arg,
                               const umx_op_params *op, umx_request **req_p);

/* Find what this rank has committed; NULL: that epoch is not of this rank. */
umi_outputs_output *umi_outputs_find_own(umx_outputs *outputs, uint32_t map,
                                         uint64_t epoch);

/* End the access to outputs that this rank has committed again, or to all, and
 * free those that nobody has mapped. */
void umi_outputs_sweep(umx_outputs *outputs, bool is_end);

/* How many somebody else has mapped. */
size_t umi_outputs_count_mapped(umx_outputs *outputs);
void   umi_outputs_free_committed(umx_outputs *outputs);

/* ---- extent.c ------------------------------------------------------------
 */

/* Memory with bytes of blocks. Thread: any. */
typedef struct umi_outputs_extent {
    struct umi_outputs_extent *next;  /* store->unused */
    umi_outputs_store         *store; /* it goes there; or NULL */
    umi_shared_refs            refs;
    char                      *data;
    size_t                     len;
    uint64_t                   offset;  /* of the data in the output */
    umx_rkey                  *rkey;    /* retired at the end; or NULL */
    umx_memh                  *memh;    /* put at the end; or NULL */
    bool                       is_file; /* unmapped at the end */
} umi_outputs_extent;

/* Memory that is used again, as long as the reader is there. */
umi_outputs_store *umi_outputs_store_new(void);
void               umi_outputs_store_end(umi_outputs_store *store);

/* Memory of `len` bytes or more. NULL: out of memory. */
umi_outputs_extent *umi_outputs_extent_alloc(umi_outputs_store *store,
                                             size_t             len);

/* Memory of this rank, or of another, whose key is taken over. NULL: out of
 * memory. */
umi_outputs_extent *umi_outputs_extent_of_memh(umx_memh *memh);
umi_outputs_extent *umi_outputs_extent_of_rkey(umx_rkey *rkey);

/* Map a part of a file. NULL: `*error` is an errno. */
umi_outputs_extent *umi_outputs_extent_map(int fd, uint64_t offset, size_t len,
                                           int *error);
void                umi_outputs_extent_hold(umi_outputs_extent *extent);
void                umi_outputs_extent_put(umi_outputs_extent *extent);

struct umx_outputs_block {
    umi_node               node;   /* fetch->ready */
    umi_outputs_extent    *extent; /* held; AWAY: its rkey */
    umx_outputs_block_info info;
    uint64_t               offset; /* AWAY: in the extent's memory */
};

/* ---- writer.c ------------------------------------------------------------
 */

/* Bytes before the data. */
static inline uint64_t
umi_outputs_head_size(uint32_t num_partitions, unsigned flags)
{
    uint64_t words = (uint64_t)num_partitions + 1;

    if ((flags & UMX_OUTPUTS_FLAG_CHECKSUMS) != 0) {
        words += (uint64_t)num_partitions + 1; /* and one of the head */
    }
    return words * sizeof(uint64_t);
}

/* A number of the head. */
static inline uint64_t
umi_outputs_word(const void *head, uint64_t i, unsigned flags)
{
    uint64_t word = __atomic_load_n((const uint64_t *)head + i,
                                    __ATOMIC_RELAXED);

    return (flags & UMX_OUTPUTS_FLAG_BIG_ENDIAN) != 0 ?
               __builtin_bswap64(word) :
               word;
}

/* Write the checksum of a head behind it, which all but that is in. */
void umi_outputs_seal_head(void *head, uint32_t num_partitions);

/* Is the checksum of a head right, or are there none? */
bool umi_outputs_head_is_whole(const void *head, uint32_t num_partitions,
                               unsigned flags);

/* Write the offsets of partitions with these lengths. */
void umi_outputs_write_offsets(uint64_t *head, const uint64_t *lens,
                               uint32_t num_partitions, unsigned flags);

/* ---- reader.c ------------------------------------------------------------
 */

/* What a reader does to read of an entry. */
typedef enum umi_outputs_entry_state {
    UMI_OUTPUTS_OPENING, /* its head is being read */
    UMI_OUTPUTS_OPENED,
    UMI_OUTPUTS_FAILED
} umi_outputs_entry_state;

struct umi_outputs_entry {
    umi_refs                refs;   /* the reader's, of items, of transfers */
    umx_outputs_reader     *reader; /* NULL: it has gone */
    umi_outputs_entry_state state;
    umx_outputs_failed      failed; /* FAILED */
    uint32_t                map;
    uint64_t                epoch;
    int                     rank;
    uint8_t                 kind;
    uint8_t                 flags;
    uint64_t                len;
    uint64_t                head; /* bytes before the data */
    uint32_t                num_partitions;
    umi_outputs_extent     *whole; /* memory that can be read where it is */
    umi_outputs_extent     *away;  /* memory that transfers read; or NULL */
    void                   *words; /* of the head; in `whole`, or owned */
    /* A file. */
    umi_outputs_file_id id;
    int                 fd;     /* of this host; or -1 */
    umi_outputs_extent *window; /* mapped last; or NULL */
};

struct umx_outputs_reader {
    umi_node                node;    /* outputs->readers */
    umx_outputs            *outputs; /* held */
    unsigned                flags;
    umi_refs                refs;
    bool                    is_gone;
    umi_outputs_entry     **entries; /* by map */
    umi_outputs_store      *store;   /* for what is copied */
    umi_list                fetches; /* umx_outputs_fetch.node */
    umx_outputs_reader_info info;
};

void umi_outputs_reader_hold(umx_outputs_reader *reader);
void umi_outputs_reader_put(umx_outputs_reader *reader);

/* Get the entry of a map, of the highest epoch, which the caller has a
 * reference of. NULL: the map has not been committed, or `*status_p` says what
 * else. */
umi_outputs_entry *umi_outputs_entry_get(umx_outputs_reader *reader,
                                         uint32_t map, umx_status *status_p);
void               umi_outputs_entry_put(umi_outputs_entry *entry);

/* Forget an entry, which cannot be read. True: there is a higher epoch. */
bool umi_outputs_entry_drop(umi_outputs_entry *entry);

/* Read the head from another rank. UMX_INPROGRESS; or what came of it. */
umx_status umi_outputs_entry_get_head(umi_outputs_entry *entry);

/* Where the bytes of partitions are, from the beginning of the output. False:
 * the offsets make no sense. */
bool umi_outputs_entry_range(const umi_outputs_entry *entry, uint32_t first,
                             uint32_t count, uint64_t *offset_p,
                             uint64_t *len_p);

/* Is the checksum of the partition that of its bytes, or is there none? */
bool umi_outputs_entry_check(const umi_outputs_entry *entry, uint32_t partition,
                             const void *data, size_t len);

/* ---- view.c --------------------------------------------------------------
 */

/* Open an output that is a file: of this host, or by asking its owner. */
umx_status umi_outputs_entry_open_file(umi_outputs_entry       *entry,
                                       const umi_outputs_where *where,
                                       umx_outputs_trouble     *trouble,
                                       int                     *error);
void       umi_outputs_entry_close_file(umi_outputs_entry *entry);

/* Get the extent where bytes of an entry can be read, which the caller has a
 * reference of. NULL: `*error` is an errno. */
umi_outputs_extent *umi_outputs_entry_view(umi_outputs_entry *entry,
                                           uint64_t offset, uint64_t len,
                                           int *error);

/* ---- fetch.c -------------------------------------------------------------
 */

/* An entry is open, or has failed. */
void umi_outputs_fetches_on_entry(umx_outputs_reader *reader,
                                  umi_outputs_entry  *entry);

/* Something has been committed, or has ended: go on with what waited. */
void umi_outputs_fetches_step(umx_outputs_reader *reader);

/* End the fetches of a reader. */
void umi_outputs_fetches_end(umx_outputs_reader *reader, umx_status status);

#endif
