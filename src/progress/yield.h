/* SPDX-License-Identifier: BSD-3-Clause */
/* yield.h: giving the core to peers of this host.
 *
 * What a peer has still to do it may do at once, if it gets this core. Beside
 * processes that compute, a yield gives a whole time slice away: after each
 * that did, twice as many waits of this worker go without; after waits whose
 * yields were short, half as many.
 *
 * A yield that returns at once tells that nobody else wants the core, unless
 * processes of other scheduling groups do (Linux makes a group of each session,
 * and thus of each rank that mpiexec or a terminal starts): the system may pick
 * the same process a few times, and then another. Where it is known that there
 * are more processes than cores (umx_worker_crowd()) the wait goes on with
 * yields. Thread: the worker's owner. */
#ifndef UMI_YIELD_H
#define UMI_YIELD_H

#include "worker/worker.h"

enum {
    UMI_YIELDS = 32 /* in one wait, before it sleeps */
};

typedef enum umi_yielded {
    UMI_YIELDED_ALONE,  /* nobody else wanted the core */
    UMI_YIELDED_SHARED, /* somebody else has had it, for less than a slice */
    UMI_YIELDED_SLICE   /* that took a time slice: the caller should sleep */
} umi_yielded;

/* Begin a wait. True: the wait may yield the core. */
bool umi_yields_begin(umi_yields *yields);

/* Yield the core, in a wait that has begun. */
umi_yielded umi_yields_once(umi_yields *yields);

/* End a wait in which no yield took a time slice. */
void umi_yields_end(umi_yields *yields);

/* Let the waits yield again earlier, as this one has ended at once: a peer that
 * had the core for a time slice has sent something in it, so the slice was not
 * lost. */
static inline void
umi_yields_spare(umi_yields *yields)
{
    yields->skip -= (yields->skip > 0);
}

#endif
