/* SPDX-License-Identifier: BSD-3-Clause */
/* engine.h: UCX's worker under a umx_worker, with its event fd.
 *
 * A umx_worker has one for all that is new. When that can receive nothing any
 * more over shared memory (ops/queue.h), or has no room for more kinds of peers
 * (kinds_of_peers.h), it gets another; the old one stays until nothing needs
 * it: its connections over other transports live on, and messages lie in its
 * memory. Beside these there are engines for strangers (endpoint/strangers.h).
 * Thread: the worker's owner. */
#ifndef UMI_ENGINE_H
#define UMI_ENGINE_H

#include <stdbool.h>
#include <ucp/api/ucp.h>
#include <umx/types.h>

#include "util/list.h"
#include "util/table.h"

typedef struct umi_engine {
    umi_node        node; /* worker->other_engines; by itself: worker->engine */
    umx_worker     *worker;
    struct umi_ucx *ucx; /* held: UCX's context that `ucp` is of */
    ucp_worker_h    ucp;
    int             fd;           /* UCX's event fd, in worker->watches */
    bool            is_deaf;      /* that does not wake the owner */
    uint64_t        busy_ns;      /* since when UCX is BUSY for nothing; or 0 */
    unsigned        num_busy;     /* how often it has said so since then */
    unsigned        refs;         /* of all that lives in it */
    ucp_address_t  *addresses[2]; /* [is_local]; NULL until needed */
    size_t          address_lens[2];
    umi_table       counts;         /* umi_engine_count() */
    umi_list        configurations; /* umi_configuration.node */
    bool            is_full;  /* UCX has no room for another configuration */
    bool            is_guest; /* endpoint/strangers.h */
    uint64_t        tuned;    /* ticks: umi_engine_tune(); 0: never */
    bool            is_unlimited;  /* a peer's host may be silent for ever */
    uint64_t        keepalive_ns;  /* else for so long; 0: not known */
    struct umi_queue_probe *probe; /* ops/queue.h; owned; or NULL */
} umi_engine;

/* Create an engine, whose event fd goes into worker->watches. */
umx_status umi_engine_create(umx_worker *worker, umi_engine **engine_p);

/* Give up UCX's worker: it writes into no buffer any more. Idempotent. */
void umi_engine_fini(umi_engine *engine);
/* Give UCX's worker up, and free the engine. */
void umi_engine_destroy(umi_engine *engine);

/* Hold the engine: an endpoint, a link, a message or an operation lives in it.
 */
static inline void
umi_engine_hold(umi_engine *engine)
{
    engine->refs++;
}

/* Release a hold, also from UCX's callbacks: umi_engines_collect() destroys the
 * engine. */
void umi_engine_release(umi_engine *engine);

/* Close UCX's endpoint by force. What is in UCX's hands completes with an error
 * in later progress calls; the engine is held until the endpoint is gone. */
void umi_engine_close(umi_engine *engine, ucp_ep_h handle);

/* Give UCX's address of the engine, for as long as that lives; `is_local`: for
 * a peer in the same network namespace. For others without shared memory: that
 * may be in reach, but UCX wakes its readers by a socket that is not. */
umx_status umi_engine_address(umi_engine *engine, bool is_local,
                              const void **address_p, size_t *len_p);

/* Tell how many endpoints have been made to UCX's worker `uuid`: UCX counts
 * them in the same way, as long as it lives, and pairs by that. */
uint64_t umi_engine_counted(const umi_engine *engine, uint64_t uuid);
/* Count one more endpoint to that worker, which is made now. Returns its
 * number; 0: out of memory. */
uint64_t umi_engine_count(umi_engine *engine, uint64_t uuid);

/* Give the engine a place beside the worker's own. */
void umi_engine_add(umi_engine *engine);

/* Use `engine` for all that is new in the worker from now on. */
void umi_engine_use(umi_engine *engine);

/* Tell whether UCX's sockets of tcp have sent all: umi_unsent_is_none(). */
bool umi_engine_has_sent(const umi_engine *engine);

/* Have the kernel take no more of what is sent than it needs:
 * umi_unsent_limit(). What a socket needs changes: call this often, it looks
 * from time to time, or at once for a socket that `is_new`. */
void umi_engine_tune(umi_engine *engine, bool is_new);

/* Limit how long the networks of UCX's sockets of tcp may be silent:
 * umi_unsent_keep_alive(). Of several limits the longest holds, as connections
 * share these sockets. */
void umi_engine_keep_alive(umi_engine *engine, uint64_t keepalive_ns);

/* Progress the other engines; returns the number of events. */
unsigned umi_engines_progress(umx_worker *worker);

/* Destroy the other engines that nothing needs. */
void umi_engines_collect(umx_worker *worker);

#endif
