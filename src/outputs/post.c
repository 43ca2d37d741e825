/* SPDX-License-Identifier: BSD-3-Clause */
/* post.c: messages between the outputs of ranks. A worker has one handler for
 * all of its outputs, which a message names by their number. */
#include "outputs/post.h"

#include <stdlib.h>
#include <string.h>
#include <umx/channel.h>

#include "outputs/remote_read.h"
#include "outputs/window.h"

/* What a worker has as long as it has outputs. */
typedef struct umi_outputs_hub {
    umx_worker *worker;
    umi_list    all; /* umx_outputs.hub_node */
} umi_outputs_hub;

/* ---- sending -------------------------------------------------------------
 */

static void
on_sent(umx_request *req, umx_status status, void *arg)
{
    (void)req;
    (void)status; /* whoever waits for the answer looks at the endpoint */
    free(arg);
}

static umx_status
send_on(umx_ep *ep, const umi_outputs_message *message, const void *payload,
        size_t len)
{
    uint8_t       header[UMI_OUTPUTS_MESSAGE_MAX];
    size_t        header_len = umi_outputs_message_encode(message, header);
    void         *copy       = malloc((len != 0) ? len : 1);
    umx_op_params params     = umx_layer_op_params(on_sent, copy);
    umx_buffer    buf        = umx_host_buffer(copy, len);
    umx_request  *req;
    umx_status    status;

    if (copy == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    if (len != 0) {
        memcpy(copy, payload, len);
    }
    status = umx_layer_am_send(ep, UMX_AM_ID_OUTPUTS, header, header_len, &buf,
                               &params, &req);
    if (status != UMX_INPROGRESS) {
        free(copy);
    }
    return (status < 0) ? status : UMX_OK;
}

umx_status
umi_outputs_send(umx_outputs *outputs, int rank,
                 const umi_outputs_message *message, const void *payload,
                 size_t len)
{
    const umi_outputs_peer *peer = &outputs->peers[rank];

    return (peer->table == NULL) ? UMX_ERR_UNREACHABLE :
                                   send_on(peer->ep, message, payload, len);
}

int
umi_outputs_rank_of(const umx_outputs *outputs, uint64_t id)
{
    for (int i = 0; i < outputs->joint.size; i++) {
        if (outputs->peers[i].table != NULL && outputs->peers[i].id == id) {
            return i;
        }
    }
    return -1;
}

/* ---- arrival -------------------------------------------------------------
 */

static umx_outputs *
find_outputs(const umi_outputs_hub *hub, uint64_t id)
{
    UMI_LIST_FOREACH(node, &hub->all) {
        umx_outputs *outputs = umi_container_of(node, umx_outputs, hub_node);

        if (outputs->id == id) {
            return outputs;
        }
    }
    return NULL;
}

/* The outputs are closed here. */
static void
refuse(umx_ep *ep, const umi_outputs_message *ask)
{
    umi_outputs_message answer = {.kind   = UMI_OUTPUTS_ANSWER,
                                  .to     = ask->from,
                                  .seq    = ask->seq,
                                  .status = UMX_ERR_STALE_KEY};

    (void)send_on(ep, &answer, NULL, 0);
}

static void
on_message(umx_ep *ep, umx_message *message, void *arg)
{
    size_t              len, payload_len = umx_message_info(message)->length;
    const void         *header  = umx_message_header(message, &len);
    const void         *payload = umx_message_data(message);
    umi_outputs_message decoded;
    umx_outputs        *outputs;

    if (umi_outputs_message_decode(&decoded, header, len)) {
        outputs = find_outputs(arg, decoded.to);
        if (outputs == NULL) {
            if (decoded.kind == UMI_OUTPUTS_ASK) {
                refuse(ep, &decoded);
            }
        } else if (decoded.kind == UMI_OUTPUTS_ASK) {
            umi_outputs_on_ask(outputs, &decoded);
        } else if (decoded.kind == UMI_OUTPUTS_RETURN) {
            umi_outputs_on_return(outputs, &decoded);
        } else {
            umi_outputs_on_answer(outputs, &decoded, payload,
                                  (payload == NULL) ? 0 : payload_len);
        }
    }
    umx_message_drop(message);
}

/* ---- who takes part ------------------------------------------------------
 */

umx_status
umi_outputs_post_join(umx_outputs *outputs)
{
    umx_worker      *worker = outputs->joint.worker;
    umi_outputs_hub *hub    = umx_worker_get_layer(worker, UMX_AM_ID_OUTPUTS);
    umx_status       status;

    if (hub == NULL) {
        hub = calloc(1, sizeof(*hub));
        if (hub == NULL) {
            return UMX_ERR_NO_MEMORY;
        }
        hub->worker = worker;
        umi_list_init(&hub->all);
        status = umx_worker_set_layer(worker, UMX_AM_ID_OUTPUTS, on_message,
                                      hub);
        if (status != UMX_OK) {
            free(hub);
            return status;
        }
    }
    outputs->hub = hub;
    umi_list_append(&hub->all, &outputs->hub_node);
    return UMX_OK;
}

void
umi_outputs_post_leave(umx_outputs *outputs)
{
    umi_outputs_hub *hub = outputs->hub;

    outputs->hub = NULL;
    if (hub == NULL) {
        return;
    }
    umi_node_remove(&outputs->hub_node);
    if (umi_list_is_empty(&hub->all)) {
        (void)!umx_worker_set_layer(hub->worker, UMX_AM_ID_OUTPUTS, NULL, NULL);
        free(hub);
    }
}
