/* SPDX-License-Identifier: BSD-3-Clause */
/* wait.h: waiting for a number in memory of ours.
 *
 * Peers that map the memory change it by themselves, so a worker looks at the
 * numbers that it waits for whenever it polls. Before it sleeps it announces
 * itself in a word beside the memory, `waiters`, and whoever stores reads that:
 *
 *   a worker that is to sleep       who stores
 *   announce itself                 store
 *   fence                           fence
 *   look again                      read `waiters`
 *   arm, sleep                      ring, if somebody is announced
 *
 * The two fences may be one, a membarrier of the worker's: the owner of a
 * memory says in its header that its waits have one, `is_ordered`, and a
 * process that has registered for membarriers stores there without a fence of
 * its own. All others fence.
 *
 * With both fences at least one of the two sees what the other has done: the
 * worker the number, or the other the announcement. After the sleep the worker
 * withdraws. tests/model/bell.py has all of it, and what goes wrong without any
 * part.
 *
 * Each announcement has a number, and a peer rings once for each: thousands of
 * puts to somebody who is slow to wake are one message. A store after the ring
 * finds a new number, or comes before the worker has announced itself again,
 * and therefore before it looks.
 *
 * Thread: the worker's owner. */
#ifndef UMI_WAIT_H
#define UMI_WAIT_H

#include <umx/wait.h>

#include "keys/memh.h"
#include "keys/waiters.h"
#include "worker/request.h"
#include "worker/worker.h"

static inline bool
umi_waits_exist(const umx_worker *worker)
{
    return !umi_list_is_empty(&worker->waits) ||
           !umi_list_is_empty(&worker->lookouts);
}

/* A worker that waits polls: withdraw, and end the waits that are over. True if
 * there were any. */
bool umi_waits_look(umx_worker *worker);

/* The worker is about to sleep: announce its waits, and look again. True: a
 * wait is over, and the worker must not sleep. */
bool umi_waits_announce(umx_worker *worker);

/* End the waits of a worker that is being destroyed. */
void umi_waits_abort(umx_worker *worker);

#endif
