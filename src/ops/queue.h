/* SPDX-License-Identifier: BSD-3-Clause */
/* queue.h: does UCX's queue in shared memory still move?
 *
 * Over shared memory all senders of a host share one queue for each of UCX's
 * workers (1.22). A sender takes an element of it and then writes it; the
 * reader waits for the elements in their order. So one that is killed between
 * these two steps blocks the queue for ever, for everybody, and UCX cannot
 * tell: the reader sees an element that is being written.
 *
 * Therefore, when a connection of this host has ended and the peer has not said
 * goodbye, the worker sends itself a message through that queue. If it does not
 * arrive, the connections over shared memory end, with CONNECTION_RESET, and
 * the worker goes on with another engine. Peers learn its address as they
 * connect again. A connection within this host that begins meanwhile waits for
 * the answer: it would end with the others. Each engine of the worker has a
 * queue. A peer that is only stopped at that place, and whose connections are
 * open, is waited for. Thread: the worker's owner. */
#ifndef UMI_QUEUE_H
#define UMI_QUEUE_H

#include "worker/worker.h"

typedef struct umi_queue_probe umi_queue_probe;

/* A connection of the engine to a process of this host has ended without a
 * goodbye. */
void umi_queue_doubt(umi_engine *engine);

/* True if it is not known whether the queue of the engine moves: what begins
 * should wait. When that is known, all endpoints without a link get
 * UMI_NEWS_MOVES, or UMI_NEWS_RENEWED. Not inside UCX's callbacks. */
bool umi_queue_is_in_doubt(umi_engine *engine);

/* The worker ends: no more probes. Idempotent. */
void umi_queue_fini(umx_worker *worker);

umx_status umi_queue_init(umx_worker *worker);

#endif
