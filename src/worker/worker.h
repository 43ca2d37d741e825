/* SPDX-License-Identifier: BSD-3-Clause */
/* worker.h: the progress engine's state. Thread: the owner, but for the
 * members marked (any). */
#ifndef UMI_WORKER_H
#define UMI_WORKER_H

#include <pthread.h>
#include <ucp/api/ucp.h>
#include <umx/describe.h>
#include <umx/worker.h>

#include "host/loader.h"
#include "host/watch.h"
#include "keys/context.h"
#include "util/clock.h"
#include "util/ids.h"
#include "util/list.h"
#include "util/mpsc.h"
#include "util/page.h"
#include "util/pool.h"
#include "util/slots.h"
#include "util/x25519.h"
#include "worker/datatype.h"
#include "worker/engine.h"
#include "worker/ep_base.h"
#include "worker/guard.h"
#include "worker/request.h"
#include "worker/timer.h"

/* What the layer above is told of an endpoint. */
typedef enum umi_ep_news {
    UMI_NEWS_EVENTS, /* ep->events says what; cleared by the callee */
    UMI_NEWS_PIECE,  /* inside UCX's callbacks: a piece of a message has come */
    UMI_NEWS_DEFERRED, /* a cancelled operation has the buffer until the peer
                        has done its part */
    UMI_NEWS_UNCOPIED, /* no copy could be made for one, which ends the endpoint
                        */
    UMI_NEWS_RENEWED,  /* it has no link, and is of an engine that receives
                        nothing  any more over shared memory */
    UMI_NEWS_MOVES,    /* it has no link, and what it may have waited for is
                        known: ops/queue.h; also inside UCX's callbacks */
    UMI_NEWS_ABORT     /* the worker is destroyed: complete all there is */
} umi_ep_news;

/* How the layer above hears of what UCX reported; called after the progress
 * burst, never from inside UCX. */
typedef struct umi_worker_hooks {
    const struct umi_endpoint_hooks *ep; /* endpoint/endpoint.h */
    size_t size; /* of what the rooms above keep behind each umx_worker */
    void (*init)(umx_worker *worker);
    void (*free)(umx_worker *worker); /* UCX's workers are gone */
    size_t link_size; /* of what they keep behind each umi_link, zeros first */
    void (*init_link)(struct umi_link *link);
    void (*fini_link)(struct umi_link *link); /* nobody uses it any more */
    /* Let links send more of what waits for its turn: `is_turn_due`. Returns
     * how many messages of UCX's that were. */
    unsigned (*take_turns)(umx_worker *worker);
    size_t message_size; /* of the objects in worker->messages ... */
    size_t frames_size;  /* ... and in worker->frames */
    /* `reason` of UMI_NEWS_RENEWED, else NULL. */
    void (*tell_ep)(umi_ep_base *ep, umi_ep_news news, const char *reason);
    /* True if the program has received something of `ep`'s. */
    bool (*has_received)(const umi_ep_base *ep);
    /* Find the message of `ep` that was announced as number `seq` of a channel
     * and is not over; NULL: there is none. */
    umx_request *(*find_sent)(const umi_ep_base *ep, uint32_t channel,
                              uint32_t seq);
    /* End a message of ours whose bytes cannot be read: nobody gets it. And a
     * receive whose memory cannot be written: the message stays. */
    void (*fail_sent)(umx_request *req, umx_status status);
    void (*fail_landing)(umx_request *req, umx_status status);
    /* A connection has been accepted; `fd` is the callee's. */
    void (*on_connection)(umx_listener *listener, int fd);
    /* A connection has been accepted, but too few descriptors are left. */
    void (*on_busy)(int fd);
    /* Close the endpoints that nobody has taken from the listener. */
    void (*drop_accepted)(umx_listener *listener);
    /* Look at the requests in `waiting`: what they wait for may have come. */
    void (*on_arrivals)(umx_worker *worker);
    /* A flush is to be posted. UMX_INPROGRESS: the layer does that, once what
     * it has under way itself is done. May be NULL. */
    umx_status (*hold_flush)(umx_request *req, bool has_messages);
    void (*stop_thread)(umx_worker *worker); /* the progress thread */
    /* umi_worker_destroy(): complete what is no endpoint's; idempotent. */
    void (*abort)(umx_worker *worker);
    /* Free what the layer has in the worker, at the very end. */
    void (*fini)(umx_worker *worker);
} umi_worker_hooks;

/* An object of a layer above that cannot go on without the worker. */
typedef struct umi_dependent {
    umi_node node; /* worker->dependents */
    /* umx_worker_destroy() begins. It is off the list already. */
    void (*end)(struct umi_dependent *dependent);
    /* Is it worth to wait for a short time before that? May be NULL. */
    bool (*is_busy)(const struct umi_dependent *dependent);
    /* umx_worker_describe(); may be NULL. */
    void (*describe)(const struct umi_dependent *dependent, umx_line_fn fn,
                     void *arg);
} umi_dependent;

/* Pushed by any thread, run by the owner. */
typedef struct umi_retire {
    umi_mpsc_node node;
    void (*fn)(struct umi_retire *retire);
} umi_retire;

/* Adaptive spinning, see progress/spin.c. */
typedef struct umi_spin {
    uint64_t max_ticks;
    uint64_t ticks;    /* budget of the next spin; 0: skip */
    unsigned skip;     /* spins to skip before the next probe */
    unsigned backoff;  /* value of `skip` after a failed probe */
    uint64_t expected; /* ticks, of a peer's copy; 0: it copies nothing */
} umi_spin;

/* Yields of the core, see progress/yield.h. */
typedef struct umi_yields {
    unsigned skip;       /* waits that are still to do without */
    unsigned backoff;    /* `skip` after a yield that took a time slice */
    bool     is_shared;  /* somebody else has had the core in the last one */
    unsigned num_crowds; /* umx_worker_crowd() */
} umi_yields;

enum {
    UMI_AM_HANDLERS = 16,
    UMI_BLOCK_SIZE  = 8192,
    UMI_SMALL_SIZE  = 256,
    /* Longer messages UCX does not take from their sender's memory: with
     * headers, they exceed an element of its queues in shared memory. */
    UMI_INJECT_MAX     = 1024,
    UMI_WORKER_ID_SIZE = 16,
    /* How often polling looks at `watches`, too: a system
     * call that costs as much as several polls. */
    UMI_POLLS_PER_WATCH      = 1024,
    UMI_POLLS_PER_WATCH_BUSY = 16 /* with handshakes in progress */
};

enum {
    UMI_EVERY_THREAD = 0 /* an owner; umx_worker_share() */
};

struct umi_am_arrival;

/* UCX gives a callback one argument; the worker and the function are two. */
typedef struct umi_am_handler {
    umx_worker *worker;
    int (*fn)(umx_worker *worker, const struct umi_am_arrival *arrival);
} umi_am_handler;

struct umx_worker {
    /* hot */
    ucp_worker_h ucp; /* the engine's */
    umi_list     done;
    bool         is_armed;  /* nothing is due; UCX's event fd tells of more */
    bool         is_inside; /* in a (P) call */
    bool         is_in_ucx; /* only in builds with assertions */
    bool         is_destroy_due; /* a callback has destroyed it */
    bool         is_in_thread;   /* the progress thread is in a call */
    bool         has_events;     /* something is on the lists below */
    bool         has_other_engines;
    bool         is_turn_due;  /* hooks->take_turns() */
    bool         is_ending;    /* being destroyed */
    bool         is_ended;     /* destroyed: only its memory is left */
    bool         has_hardware; /* a link of it has or had: link.h */
    umi_guard   *guard;        /* NULL: there is no progress thread */
    unsigned     generation;
    umx_worker_stats *stats;      /* slot->stats */
    uint64_t          turn_ticks; /* config.drain_ns */
    uint64_t          looked; /* ticks: nothing was unread, if `loses_unread` */
    bool              loses_unread; /* a link does: umi_link_look_first() */
    uint64_t          turn_end;     /* 0: the owner has no turns */
    unsigned          activity;     /* grows with UCX's work and completions */
    unsigned          watch_countdown;
    uintptr_t         owner;     /* umi_thread_id(), or UMI_EVERY_THREAD */
    umi_ids           eps_by_id; /* umi_ep_base.wire_id */
    umi_pool          requests;
    umi_pool          messages; /* the layer above's, like the next */
    umi_pool          frames;
    umi_pool          blocks; /* of UMI_BLOCK_SIZE */
    umi_pool          smalls; /* of UMI_SMALL_SIZE */
    umi_spin          spin;
    umi_yields        yields;
    /* what UCX's callbacks queued */
    umi_list         ep_events; /* umi_ep_base.event_node */
    umi_list         gathered;  /* umi_gathered.worker_node */
    umi_list         waits;     /* requests that wait for a number: wait.h */
    umi_list         lookouts;  /* umx_lookout.node */
    umi_list         dmas;      /* umi_dma.node: dma.h */
    umi_list         detached; /* umx_request.detached_node: not reported yet */
    umi_list         put_off;  /* umi_put_off.node: guard.h */
    umi_list         put_off_done; /* requests whose `on_done` is put off */
    umi_mpsc         retired;      /* (any) umi_retire.node */
    umi_timer        nap;          /* ends a sleep that UCX cannot end */
    umi_timer        dma_timer;    /* ends one beside a copy */
    umi_watch        bell_watch; /* dma.c's, like the next; without, fd is -1 */
    struct umi_bell *bell;
    /* cold */
    umi_loader              loader; /* dma.c's */
    const umi_worker_hooks *hooks;
    umx_context            *context;
    umi_engine             *engine;        /* of all that is new */
    umi_list                other_engines; /* umi_engine.node */
    umi_datatypes           datatypes;
    pthread_mutex_t         signal_lock; /* (any) of `ucp`, for its end */
    umi_watches             watches;
    uint8_t                 id[UMI_WORKER_ID_SIZE];  /* umi_worker_id_of() */
    uint8_t                 key[UMI_X25519_SIZE];    /* tells it from others; */
    uint8_t                 secret[UMI_X25519_SIZE]; /* shows that it is ours */
    uid_t                   user; /* of the process when it was made */
    umi_list                links;
    umi_list                ending_links; /* umi_link.node */
    umi_list                eps;
    umi_list                listeners;
    umi_list                timers;
    umi_list                rkeys; /* umx_rkey.node */
    umi_list                dependents;
    umi_timer               queue_timer; /* ops/queue.c's */
    struct umi_strangers   *strangers;   /* of the rooms above */
    unsigned                num_memory_holds;
    size_t                  copied_bytes; /* in copies of cancelled requests */
    umi_list                stuck;        /* over, and in UCX's hands still */
    umi_list                inflight; /* receives of its own in UCX's hands */
    umi_list                waiting;  /* requests: hooks->on_arrivals() */
    struct umi_tags        *tags;     /* of the rooms above, like these: */
    struct umi_lend        *lend;
    struct umi_bounce      *bounce;
    struct umi_transfers   *transfers;
    struct umi_channel_am  *am;
    struct umi_addressed   *addressed; /* NULL until it is used */
    unsigned                num_handshakes;
    unsigned                num_closing;
    unsigned                closes_in_ucx;
    uint64_t                num_armed;  /* times */
    uint64_t                seen_armed; /* by umx_worker_overslept() */
    umi_fork_member         fork;
    umi_node                parked_node; /* parked.c's */
    umi_page_slot          *slot;        /* of what others read */
    struct umi_latency     *latency;     /* NULL until one is measured */
    umi_am_handler          am_handlers[UMI_AM_HANDLERS];
};

umx_status umi_worker_create(umx_context            *context,
                             const umi_worker_hooks *hooks,
                             umx_worker            **worker_p);

/* UCX's worker and the pools outlive umx_worker_destroy() until all holds are
 * released: the user reads from their memory. */
static inline void
umi_worker_hold_memory(umx_worker *worker)
{
    worker->num_memory_holds++;
}

void umi_worker_release_memory(umx_worker *worker);

/* A peer of this host copies `len` bytes from now on, and tells then. To sleep
 * costs little beside a copy that is longer than a wait spins for it. */
static inline void
umi_worker_expect_copy(umx_worker *worker, size_t len)
{
    enum {
        BEGIN_NS     = 10000,
        BYTES_PER_NS = 4,
        MAX_NS       = 400000
    };
    uint64_t ns = BEGIN_NS + len / BYTES_PER_NS;

    worker->spin.expected = umi_ticks_from_ns((ns < MAX_NS) ? ns : MAX_NS);
}

/* Begin a (P) call. False: a callback makes the call, which then does nothing.
 */
static inline bool
umi_worker_enter(umx_worker *worker)
{
    if (worker->is_inside) {
        return false;
    }
    worker->is_inside = true;
    if (__builtin_expect(worker->guard != NULL, 0) && !worker->is_in_thread) {
        umi_guard_take_put_off(worker->guard);
    }
    return true;
}

/* Destroyed, and UCX has operations of it that are over for the user. */
static inline bool
umi_worker_is_in_ucx(const umx_worker *worker)
{
    return !umi_list_is_empty(&worker->stuck);
}

/* The last of a destroyed worker. */
void umi_worker_free(umx_worker *worker);

/* The whole of umx_worker_destroy(). */
void umi_worker_end(umx_worker *worker);

/* End a (P) call. False: a callback has destroyed the worker, which is gone
 * now. */
static inline bool
umi_worker_leave(umx_worker *worker)
{
    worker->is_inside = false;
    if (!worker->is_destroy_due) {
        return true;
    }
    umi_worker_end(worker);
    return false;
}

/* Hand over what is gathered for any of its endpoints. */
void umi_worker_flush_gathered(umx_worker *worker);

/* Run what UCX reported: endpoint events, connection requests, retired
 * objects, then completions, until nothing is left. */
void umi_worker_run_events(umx_worker *worker);

/* UCX's progress calls our callbacks, which must not call it again, nor run
 * what UCX has reported: builds with assertions know when. */
#ifdef NDEBUG
#define UMI_ASSERT_OUTSIDE_UCX(worker) ((void)0)
#define UMI_SET_IN_UCX(worker, is) ((void)0)
#else
#define UMI_ASSERT_OUTSIDE_UCX(worker) assert(!(worker)->is_in_ucx)
#define UMI_SET_IN_UCX(worker, is) ((void)((worker)->is_in_ucx = (is)))
#endif

/* Call UCX's progress once. */
static inline unsigned
umi_worker_progress(umx_worker *worker)
{
    unsigned events;

    UMI_ASSERT_NO_WALK();
    UMI_ASSERT_OUTSIDE_UCX(worker);
    UMI_SET_IN_UCX(worker, true);
    events = ucp_worker_progress(worker->ucp);
    if (worker->has_other_engines) {
        events += umi_engines_progress(worker);
    }
    UMI_SET_IN_UCX(worker, false);
    if (worker->is_turn_due) {
        events += worker->hooks->take_turns(worker);
    }
    if (events != 0) {
        worker->is_armed = false;
        if (!umi_list_is_empty(&worker->waiting)) {
            worker->has_events = true;
        }
    }
    return events;
}

/* Take from UCX what has come, as far as that ends. */
static inline void
umi_worker_take_all(umx_worker *worker)
{
    enum {
        MAX_POLLS = 4096
    };

    for (int i = 0; i < MAX_POLLS && umi_worker_progress(worker) != 0; i++) {
    }
}

static inline bool
umi_worker_has_events(const umx_worker *worker)
{
    return !umi_list_is_empty(&worker->done) || worker->has_events ||
           !umi_mpsc_is_empty(&worker->retired);
}

/* umx_worker_poll() in a (P) call. A callback may have destroyed the worker
 * then: `is_destroy_due`. */
unsigned umi_progress_poll(umx_worker *worker);

/* UMX_OK, UMX_ERR_FORKED or UMX_ERR_WRONG_THREAD. */
static inline umx_status
umi_worker_check(const umx_worker *worker)
{
    if (worker->generation != umi_fork_generation()) {
        return UMX_ERR_FORKED;
    }
    return (worker->owner == umi_thread_id() ||
            worker->owner == UMI_EVERY_THREAD ||
            umi_guard_is_in_thread(worker)) ?
               UMX_OK :
               UMX_ERR_WRONG_THREAD;
}

/* Check a call that begins something on the worker itself: UMX_ERR_CLOSED in a
 * callback of umx_worker_destroy(), after which nobody would end it. */
static inline umx_status
umi_worker_check_begin(const umx_worker *worker)
{
    umx_status status = umi_worker_check(worker);

    return (status == UMX_OK && worker->is_ending) ? UMX_ERR_CLOSED : status;
}

/* True in the progress thread: `run` will be called in a (P) call of the
 * program instead, once. */
static inline bool
umi_worker_put_off(umx_worker *worker, umi_put_off *put_off,
                   void (*run)(umi_put_off *put_off))
{
    if (__builtin_expect(!worker->is_in_thread, 1)) {
        return false;
    }
    put_off->run = run;
    if (!umi_node_is_linked(&put_off->node)) {
        umi_list_append(&worker->put_off, &put_off->node);
        worker->guard->is_tell_due = true;
    }
    return true;
}

/* The id of the worker whose public key is `key`: 8 bytes of its context's,
 * which its memory keys name, and 8 that nobody has who does not have the key.
 */
void umi_worker_id_of(uint64_t context_id, const uint8_t *key, uint8_t *id);

/* A message has come for a number that no endpoint has: count it, unless one
 * has had it. 0: no number was found in it. Safe inside UCX's callbacks. */
void umi_worker_stray(umx_worker *worker, uint64_t endpoint);

void umi_worker_retire(umx_worker *worker, umi_retire *retire);

/* umx_worker_deadline(), with the lock. */
static inline uint64_t
umi_worker_deadline(const umx_worker *worker)
{
    return umi_list_is_empty(&worker->timers) ?
               UINT64_MAX :
               umi_container_of(worker->timers.next, umi_timer, node)
                   ->deadline_ns;
}

/* Run the callbacks of `watches` that are ready; nothing in such a callback. */
void umi_worker_run_watches(umx_worker *worker);

#endif
