/* SPDX-License-Identifier: BSD-3-Clause */
/* parked.h: destroyed workers whose UCX has operations still.
 *
 * Where UCX keeps registrations of memory, it completes an operation that
 * failed when that of its memory is given up, and this is the context's: it
 * waits for the operations of other workers on the same memory. The last of
 * them then tells UCX's worker of the first one, which must exist. Thread: any.
 */
#ifndef UMI_PARKED_H
#define UMI_PARKED_H

#include <stdbool.h>
#include <umx/types.h>

/* `worker` is destroyed but for its memory, and is its context's now. */
void umi_parked_add(umx_worker *worker);

/* Progress all parked workers; free those of which UCX has no operations any
 * more. Returns the number of events. */
unsigned umi_parked_progress(umx_context *context);

/* umx_context.end_parked: free all parked workers; no other worker of the
 * context is left. False: they cannot be freed, and stay, as the context must.
 */
bool umi_parked_end(umx_context *context);

#endif
