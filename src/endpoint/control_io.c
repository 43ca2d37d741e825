/* SPDX-License-Identifier: BSD-3-Clause */
/* control_io.c: control messages between the network and those who act on
 * them. They arrive inside UCX's callback and are acted on after it, all but
 * CREDIT, which is arithmetic, and NOTIFY and WITHDRAW, of which there may be
 * one for each memory and each announced message: what they are for comes after
 * the callback anyway. */
#include <stdlib.h>
#include <string.h>
#include <umx/buffer.h>

#include "endpoint/endpoint.h"
#include "keys/waiters.h"
#include "util/count.h"
#include "util/log.h"

/* A peer that sends more than this in one progress burst is not a peer. */
enum {
    MAX_QUEUED_CONTROL = 64
};

/* What is in front of a control message. */
typedef struct control_front {
    uint64_t endpoint;
    uint64_t acknowledged; /* 0 */
} control_front;

/* The bytes of a control message, on their way or arrived. Most are a few dozen
 * bytes long. */
typedef struct control_bytes {
    umi_node      node; /* ep->control */
    umi_pool     *pool; /* that it is of; NULL: of malloc */
    control_front front;
    size_t        len;
    uint8_t       data[];
} control_bytes;

/* A copy; NULL when out of memory. */
static control_bytes *
copy_bytes(umx_worker *worker, const void *data, size_t len)
{
    size_t         size  = sizeof(control_bytes) + len;
    umi_pool      *pool  = (size <= UMI_SMALL_SIZE) ? &worker->smalls : NULL;
    control_bytes *bytes = (pool != NULL) ? umi_pool_get(pool) : malloc(size);

    if (bytes == NULL) {
        return NULL;
    }
    umi_node_init(&bytes->node);
    bytes->pool = pool;
    bytes->len  = len;
    memcpy(bytes->data, data, len);
    return bytes;
}

static void
free_bytes(control_bytes *bytes)
{
    if (bytes->pool != NULL) {
        umi_pool_put(bytes->pool, bytes);
    } else {
        free(bytes);
    }
}

/* ---- sending -------------------------------------------------------------
 */

static bool
control_finish(umx_request *req)
{
    free_bytes((void *)((char *)req->buf.data - sizeof(control_bytes)));
    umi_request_free(req);
    return false;
}

static const umi_request_ops control_ops = {
    .name           = "control",
    .finish         = control_finish,
    .has_own_memory = true,
};

static bool
answer_finish(umx_request *req)
{
    UMI_DECREMENT(umi_endpoint_of(req->ep)->num_answers);
    return control_finish(req);
}

static const umi_request_ops answer_ops = {
    .name           = "answer",
    .finish         = answer_finish,
    .has_own_memory = true,
};

/* Choose the operations of a control message; count it if it is an answer. */
static const umi_request_ops *
ops_of(umx_ep *ep, const umi_control *control)
{
    if (control->kind != UMI_PONG && control->kind != UMI_INFO &&
        control->kind != UMI_LISTENER_CLOSED) {
        return &control_ops;
    }
    ep->num_answers++;
    return &answer_ops;
}

static umx_status
post_control(umx_ep *ep, const umi_control *control)
{
    uint8_t        data[UMI_CONTROL_MAX];
    size_t         len = umi_control_encode(control, data);
    control_bytes *bytes;
    umx_request   *req;
    umx_status     status;

    if (len == 0) {
        return UMX_ERR_OUT_OF_RANGE;
    }
    bytes = copy_bytes(umi_endpoint_worker(ep), data, len);
    if (bytes == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    req = umi_request_new(ep->base.worker, &ep->base, &control_ops, NULL);
    if (req == NULL) {
        free_bytes(bytes);
        return UMX_ERR_NO_MEMORY;
    }
    req->ops     = ops_of(ep, control);
    req->buf     = umx_host_buffer(bytes->data, len);
    bytes->front = (control_front){.endpoint = ep->base.remote_id};
    status       = umi_am_send(req, UMI_AM_CONTROL, &bytes->front,
                               sizeof(bytes->front), false);
    if (status != UMX_INPROGRESS) {
        (void)req->ops->finish(req);
    }
    return status;
}

bool
umi_endpoint_send_control(umx_ep *ep, const umi_control *control)
{
    umx_status status;

    if (ep->base.handle == NULL) {
        return false;
    }
    status = post_control(ep, control);
    if (status < 0) {
        umi_close_on_error(ep, status); /* the peer may have said GOODBYE */
    }
    return status == UMX_OK;
}

/* ---- arrival, inside UCX's callback --------------------------------------
 */

static void
queue_control(umx_ep *ep, const umi_am_arrival *arrival)
{
    control_bytes *bytes;

    if (ep->num_control >= MAX_QUEUED_CONTROL) {
        umi_endpoint_protocol_error(ep, "too many control messages");
        return;
    }
    bytes = copy_bytes(umi_endpoint_worker(ep), arrival->data, arrival->len);
    if (bytes == NULL) {
        umi_endpoint_protocol_error(ep, "out of memory for a control message");
        return;
    }
    ep->num_control++;
    umi_list_append(&ep->control, &bytes->node);
    umi_endpoint_due(ep, UMI_DUE_CONTROL);
}

int
umi_endpoint_control_on_arrival(umx_worker           *worker,
                                const umi_am_arrival *arrival)
{
    umi_control   control;
    const char   *why;
    control_front front = {0};
    umx_ep       *ep    = NULL;

    if (arrival->header_len == sizeof(front)) {
        memcpy(&front, arrival->header, sizeof(front));
        ep = umi_endpoint_find(worker, front.endpoint);
    }
    if (ep == NULL) {
        umi_worker_stray(worker, front.endpoint);
        return UMI_AM_REFUSED;
    }
    ep->num_arrivals++;
    if (!umi_am_is_at_hand(arrival) || arrival->len > UMI_CONTROL_MAX) {
        umi_endpoint_protocol_error(ep, "oversized control message");
        return UMI_AM_REFUSED;
    }
    if (!umi_control_decode(&control, arrival->data, arrival->len, &why)) {
        umi_endpoint_protocol_error(ep, why);
    } else if ((control.kind == UMI_CREDIT && ep->state != UMX_EP_CONNECTING) ||
               control.kind == UMI_WITHDRAW) {
        ep->hooks->on_control(ep, &control);
    } else if (control.kind == UMI_NOTIFY) {
        umi_waiters_wake(worker->context, control.u.notify.memory, worker);
    } else if (ep->state == UMX_EP_CONNECTING && control.kind == UMI_PONG &&
               ep->handshake->is_knocking) {
        ep->handshake->is_answered = true;
        umi_endpoint_due(ep, UMI_DUE_CONTROL);
    } else {
        if (control.kind == UMI_GOODBYE) {
            ep->hooks->on_control(ep, &control);
        }
        queue_control(ep, arrival);
    }
    return UMI_AM_CONSUMED;
}

/* ---- acting --------------------------------------------------------------
 */

static void
act(umx_ep *ep, const umi_control *control)
{
    switch (control->kind) {
    case UMI_GOODBYE:
        umi_close_on_goodbye(ep, control);
        break;
    case UMI_GOODBYE_ACK:
        umi_close_on_ack(ep);
        break;
    case UMI_CREDIT:
        ep->hooks->on_control(ep, control);
        break;
    case UMI_PING:
        if (ep->is_server && control->u.ask.token == UMI_KNOCK) {
            umi_heartbeat_on_knock(ep);
        }
        umi_query_answer(ep, control);
        break;
    case UMI_INFO_REQUEST:
    case UMI_CLOSE_LISTENER:
        umi_query_answer(ep, control);
        break;
    case UMI_PONG:
    case UMI_INFO:
    case UMI_LISTENER_CLOSED:
        umi_query_on_answer(ep, control);
        break;
    case UMI_CLOSE_AFTER_N:
        if (umx_ep_close_after_recv(ep, control->u.close_after_n.n) != UMX_OK) {
            umi_log(UMI_LOG_DEBUG, "CLOSE_AFTER_N came too late");
        }
        break;
    case UMI_NOTIFY: /* acted on when it arrived, like the next */
    case UMI_WITHDRAW:
        break;
    case UMI_HELLO:
    case UMI_CHALLENGE:
    case UMI_AUTH:
    case UMI_WELCOME:
    case UMI_REJECT:
    case UMI_OPEN:
        umi_endpoint_protocol_error(ep,
                                    "handshake message on an open endpoint");
        break;
    }
}

void
umi_endpoint_control_run(umx_ep *ep)
{
    umi_node *node;

    if (ep->state == UMX_EP_CONNECTING) {
        if (!ep->handshake->is_answered) {
            return; /* it overtook the handshake: when that has ended */
        }
        umi_handshake_answered(ep);
    }
    while ((node = umi_list_pop(&ep->control)) != NULL) {
        control_bytes *bytes = umi_container_of(node, control_bytes, node);
        umi_control    control;
        const char    *why;

        UMI_DECREMENT(ep->num_control);
        if (umi_control_decode(&control, bytes->data, bytes->len, &why) &&
            ep->base.handle != NULL) {
            act(ep, &control);
        }
        free_bytes(bytes);
    }
}

void
umi_endpoint_control_drop(umx_ep *ep)
{
    umi_node *node;

    while ((node = umi_list_pop(&ep->control)) != NULL) {
        free_bytes(umi_container_of(node, control_bytes, node));
    }
    ep->num_control = 0;
}
