/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file describe.h  What a worker has under way, as text for people: for
 * programs that hang.
 */
#ifndef UMX_DESCRIBE_H
#define UMX_DESCRIBE_H

#include <umx/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Take a line of a description, without a newline; spaces at its beginning
 * indent it. What peers have sent is escaped. */
typedef void (*umx_line_fn)(const char *line, void *arg);

/**
 * Describe a worker, its endpoints and listeners, what each operation waits
 * for, and what layers add. Nothing is changed, no lock is waited for longer
 * than a tenth of a second, and no memory is allocated.
 *
 * Thread: the worker's owner; or another one while the owner makes no call of
 * the library on this worker, as when it sleeps or computes. With a progress
 * thread either waits until that has left the worker.
 *
 * @return UMX_OK; UMX_ERR_BUSY: the progress thread stays in the worker;
 *         UMX_ERR_FORKED
 */
UMX_API umx_status umx_worker_describe(const umx_worker *worker, umx_line_fn fn,
                                       void *arg);

#ifdef __cplusplus
}
#endif
#endif
