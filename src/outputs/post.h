/* SPDX-License-Identifier: BSD-3-Clause */
/* post.h: messages between the outputs of ranks, which travel on the endpoints
 * of the communicator, and arrive whatever has become of that. */
#ifndef UMI_OUTPUTS_POST_H
#define UMI_OUTPUTS_POST_H

#include "outputs/outputs.h"
#include "outputs/wire.h"

/* Take messages for these outputs, until they leave. */
umx_status umi_outputs_post_join(umx_outputs *outputs);
void       umi_outputs_post_leave(umx_outputs *outputs);

/* Send a message to a rank, with a copy of the payload. */
umx_status umi_outputs_send(umx_outputs *outputs, int rank,
                            const umi_outputs_message *message,
                            const void *payload, size_t len);

/* The rank with that number; -1: there is none. */
int umi_outputs_rank_of(const umx_outputs *outputs, uint64_t id);

#endif
