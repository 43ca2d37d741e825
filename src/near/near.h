/* SPDX-License-Identifier: BSD-3-Clause */
/* clang-format off */
/* near.h: short messages that go through memory of the two processes instead of
 * through UCX (ring.h), where both are of one host, of one user, and busy.
 *
 *   writer                                  reader
 *     64 short messages within a second
 *     makes a segment, marked for removal
 *     OPEN (segment, number of the ring) -->
 *                                           asks the system who made it, maps
 *                                           it, and looks whose ring it is
 *                                      <--  ACCEPT, or REFUSE
 *     asks the system who mapped it
 *     writes ...                            ... reads when it makes progress
 *     WAKE                             -->  if it has announced that it sleeps
 *     nothing for a second: CLOSE      -->  reads what is left
 *
 * A link has one ring for each direction. What the peer says is a claim: the
 * system says which process has made the segment, and which has mapped it; the
 * handshake has shown which process, by its number, and which public key are
 * the peer's. The segment goes with the last process that has mapped it,
 * whatever ends that, and no child has it.
 *
 * The messages are those of channels, in front of which is the same header. So
 * they may overtake what UCX has, and be overtaken: channel/lane.c has the
 * order. After a message that does not fit, some that would go by UCX, too:
 * else each would be early, and parked.
 *
 * A full ring means UCX, never a wait. A peer that refuses, or says nothing, is
 * asked again, each time later. What has come is read before the link is
 * closed, and before the endpoint hears of an end: umi_worker_progress() reads
 * rings.
 *
 * Thread: the worker's owner. */
/* clang-format on */
#ifndef UMI_NEAR_H
#define UMI_NEAR_H

#include "codec/near.h"
#include "near/ring.h"
#include "worker/ep_base.h"
#include "worker/link.h"

/* The rings of a worker. */
typedef struct umi_near {
    umi_list ins;          /* umi_near_link.node: those that are read */
    unsigned num_ins;      /* at most UMI_NEAR_RINGS, like the next */
    unsigned num_outs;     /* asked for, or open */
    bool     is_announced; /* all readers */
    bool     is_ordered;   /* announcing has a membarrier */
} umi_near;

enum {
    UMI_NEAR_RINGS = 16 /* of a worker, in each direction */
};

/* The rings of a link, which lie behind it. */
typedef struct umi_near_link {
    umi_link *link;
    umi_node  node; /* umi_near.ins */
    size_t    max;  /* bytes of a message that may go through a ring */
    /* as the writer */
    umi_near_out *out;     /* NULL: neither asked for nor open */
    uint64_t      number;  /* of that ring */
    int           segment; /* of it */
    bool          is_open; /* the peer reads it */
    unsigned      skip;    /* messages that go by UCX before the next */
    unsigned      count;   /* short messages, since ... */
    uint64_t      since_ns;
    uint64_t      retry_ns;   /* not asked for before that */
    uint64_t      backoff_ns; /* behind the next refusal */
    uint32_t      seen_sent;  /* out->sent when it was last looked at */
    umi_timer     timer;      /* for an answer, or until it is idle */
    umi_timer     wake_timer; /* until WAKE is tried again */
    /* as the reader */
    umi_near_in *in; /* NULL: none */
    uint64_t     in_number;
} umi_near_link;

/* Begin and end what a worker has of rings, in `near`. */
void       umi_near_init(umx_worker *worker, umi_near *near);
umx_status umi_near_listen(umx_worker *worker);

/* umi_worker_hooks: init_link, in `near`; take_link and fini_link. */
void umi_near_init_link(umi_link *link, umi_near_link *near);
void umi_near_take_link(umi_link *link);
void umi_near_fini_link(umi_link *link);

/* umi_worker_hooks.read_rings and sleep_rings */
unsigned umi_near_poll(umx_worker *worker);
bool     umi_near_announce(umx_worker *worker);

/* True if a message of `len` bytes of `ep` would go through a ring that is
 * open. */
static inline bool
umi_near_is_open(const umi_ep_base *ep, size_t len)
{
    const umi_near_link *near = (ep->link != NULL) ? ep->link->near : NULL;

    return near != NULL && near->is_open && len <= near->max;
}

/* Send a message, of the host's memory, through the ring of the link of `ep`,
 * which may have rings: `near` is not NULL. False: it does not go that way. The
 * peer may be asked for a ring. */
bool umi_near_send(umi_ep_base *ep, const void *header, size_t header_len,
                   const void *data, size_t len);

/* Note that a message of `ep` goes by UCX that could not go through a ring. */
static inline void
umi_near_pass(const umi_ep_base *ep)
{
    enum {
        SKIP = 16 /* messages that would be early */
    };

    if (ep->link->near != NULL) {
        ep->link->near->skip = SKIP;
    }
}

/* ---- agree.c, for near.c -------------------------------------------------
 */

void umi_near_init_out(umi_near_link *near);

/* A short message goes by UCX, as there is no ring: ask for one if there are
 * many. */
void umi_near_count(umi_near_link *near, umi_ep_base *ep);

void umi_near_on_note(umi_ep_base *ep, const umi_near_note *note);

/* Be done with the ring that this side writes, or reads. */
void umi_near_end_out(umi_near_link *near);
void umi_near_end_in(umi_near_link *near);

/* near.c, for agree.c */
/* Read what is in the ring. */
void umi_near_take_all(umi_near_link *near);

/* Send a note to the peer's end of `ep`. UMX_OK: it goes. */
umx_status umi_near_tell(const umi_ep_base *ep, umi_near_note note);

/* An endpoint of the link whose peer can be told something; or NULL. */
umi_ep_base *umi_near_find_ep(const umi_link *link);

#endif
