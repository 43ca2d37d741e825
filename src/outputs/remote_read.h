/* SPDX-License-Identifier: BSD-3-Clause */
/* remote_read.h: read bytes of an output from another rank. */
#ifndef UMI_OUTPUTS_REMOTE_READ_H
#define UMI_OUTPUTS_REMOTE_READ_H

#include "outputs/outputs.h"
#include "outputs/wire.h"

/* Called once with what came of it, in a (P) call. */
typedef void (*umi_outputs_read_fn)(umx_status status, void *arg);

/* Read `len` bytes at `offset` of an output to `data`, which is lent until the
 * end. UMX_INPROGRESS; or what came of it, and `fn` is not called. */
umx_status umi_outputs_transfer(umi_outputs_entry *entry, uint64_t offset,
                                void *data, size_t len, umi_outputs_read_fn fn,
                                void *arg);

/* ---- windows of files ----------------------------------------------------
 */

void umi_outputs_asks_init(umx_outputs *outputs);

/* End the transfers that wait for an answer. */
void umi_outputs_asks_end(umx_outputs *outputs);

/* The owner of a file has answered, with the key of a window. */
void umi_outputs_on_answer(umx_outputs               *outputs,
                           const umi_outputs_message *message, const void *key,
                           size_t len);

#endif
