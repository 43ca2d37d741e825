/* SPDX-License-Identifier: BSD-3-Clause */
/* target.c: the executing side of rma.h. Nothing that comes over the wire
 * reaches memory unchecked: the memory must be one of this context's that is
 * open, the bytes within it, and writable if they are to be written.
 *
 * A request keeps its message, and with it the peer's credit, until its reply
 * is on its way: so credit bounds what can pile up here. */
#include <stdlib.h>

#include "channel/am.h"
#include "endpoint/endpoint.h"
#include "keys/memh.h"
#include "mem/memtype.h"
#include "rma/rma.h"
#include "util/atomic.h"
#include "util/count.h"

/* Requests being executed at a time, of one peer. */
enum {
    MAX_SERVING = 1024
};

typedef struct serving {
    umx_ep         *ep;      /* held */
    umx_message    *message; /* NULL: its bytes are on their way */
    umx_memh       *memh;    /* held, or NULL */
    umi_rma_request request;
    uint64_t        value;       /* for the reply */
    bool            has_payload; /* that has, too */
} serving;

static void run_held(umx_ep *ep);

/* ---- the reply -----------------------------------------------------------
 */

static void
end_serving(serving *s)
{
    umx_ep *ep = s->ep;

    if (s->message != NULL) {
        umx_message_drop(s->message);
    }
    if (s->memh != NULL) {
        umi_memh_put(s->memh);
    }
    free(s);
    UMI_DECREMENT(ep->rma->num_serving);
    run_held(ep);
    umi_ep_base_release(&ep->base);
}

static void reply(serving *s, umx_status status, const umx_buffer *payload);

/* Memory of a device that cannot be read is found out as the reply goes, which
 * nobody gets then. */
static void
on_replied(umx_request *req, umx_status status, void *arg)
{
    serving *s = arg;

    (void)req;
    if (status < 0 && s->has_payload && umi_endpoint_check(s->ep) == UMX_OK) {
        reply(s, status, NULL);
    } else {
        end_serving(s);
    }
}

static void
reply(serving *s, umx_status status, const umx_buffer *payload)
{
    umi_rma_reply header = {
        .id = s->request.id, .value = s->value, .status = status};
    umx_buffer    none   = {0};
    umx_op_params params = {.flags      = UMI_OP_FLAG_INTERNAL,
                            .field_mask = UMX_OP_FIELD_FLAGS |
                                          UMX_OP_FIELD_ON_DONE,
                            .on_done = on_replied,
                            .arg     = s};
    umx_request  *req;

    s->has_payload = payload != NULL;
    if (s->ep->rma->previous_id == s->request.id) {
        s->ep->rma->previous_status = status;
    }
    status = umi_channel_am_send(
        s->ep, UMI_AM_ID_RMA_REPLY, &header, sizeof(header),
        payload != NULL ? payload : &none, &params, &req);
    if (status < 0 && payload != NULL) {
        reply(s, status, NULL); /* device memory that cannot be read */
    } else if (status == UMX_ERR_NO_MEMORY) {
        /* The initiator would wait for ever. */
        umi_endpoint_protocol_error(s->ep, "out of memory for a reply");
        end_serving(s);
    } else if (status != UMX_INPROGRESS) {
        end_serving(s); /* sent; or nobody is there any more */
    }
}

/* ---- execution -----------------------------------------------------------
 */

static char *
address_of(const serving *s)
{
    return (char *)umx_memh_buffer(s->memh)->data + s->request.offset;
}

/* The bytes of a request. */
static umx_buffer
piece_of(const serving *s)
{
    return (umx_buffer){.data    = address_of(s),
                        .len     = s->request.length,
                        .memtype = umx_memh_buffer(s->memh)->memtype,
                        .memh    = s->memh};
}

/* Find the memory; UMX_OK if the request may be executed. */
static umx_status
admit(serving *s)
{
    umx_context           *context = umi_endpoint_worker(s->ep)->context;
    const umi_rma_request *request = &s->request;
    size_t                 len;

    if (request->context != context->id) {
        return UMX_ERR_INVALID_KEY;
    }
    s->memh = umi_memh_find(context, request->memory);
    if (s->memh == NULL) {
        return UMX_ERR_STALE_KEY;
    }
    if (s->memh->is_readonly && request->op != UMI_RMA_GET) {
        return UMX_ERR_READONLY;
    }
    len = umx_memh_buffer(s->memh)->len;
    if (request->offset > len || request->length > len - request->offset) {
        return UMX_ERR_OUT_OF_RANGE;
    }
    if (request->op != UMI_RMA_ATOMIC) {
        return UMX_OK;
    }
    if (!umi_memtype_is_host_readable(umx_memh_buffer(s->memh))) {
        return UMX_ERR_UNSUPPORTED;
    }
    if ((uintptr_t)address_of(s) % request->size != 0) {
        return UMX_ERR_INVALID_PARAM;
    }
    return UMX_OK;
}

/* The memory has changed: who waits for it is to look. */
static void
ring(const serving *s)
{
    umi_memh_ring(s->memh, umi_endpoint_worker(s->ep));
}

static void
on_landed(umx_request *req, umx_status status, void *arg)
{
    (void)req;
    ring(arg);
    reply(arg, status, NULL);
}

static void
execute_put(serving *s)
{
    umx_buffer    to     = piece_of(s);
    umx_op_params params = {.flags      = UMI_OP_FLAG_INTERNAL,
                            .field_mask = UMX_OP_FIELD_FLAGS |
                                          UMX_OP_FIELD_ON_DONE,
                            .on_done = on_landed,
                            .arg     = s};
    umx_request  *req;
    umx_status    status = umx_message_recv(&s->message, &to, &params, &req);

    if (status != UMX_INPROGRESS) {
        reply(s, status, NULL);
    }
}

static void
execute_atomic(serving *s)
{
    umx_atomic atomic = {.op      = (umx_atomic_op)s->request.atomic,
                         .size    = s->request.size,
                         .value   = s->request.value,
                         .compare = s->request.compare};

    s->value = umi_atomic_apply(&atomic, address_of(s));
    ring(s);
    reply(s, UMX_OK, NULL);
}

static void
execute(serving *s)
{
    umi_rma   *rma    = s->ep->rma;
    umx_status status = UMX_OK;
    umx_buffer bytes;

    if (s->request.flags & UMI_RMA_SIGNAL) {
        status = (umx_status)rma->previous_status;
        if (status == UMX_INPROGRESS) { /* a signal without a fence */
            status = UMX_ERR_INVALID_PARAM;
        }
    }
    rma->previous_id     = s->request.id;
    rma->previous_status = UMX_INPROGRESS;
    if (status == UMX_OK) {
        status = admit(s);
    }
    if (status != UMX_OK) {
        reply(s, status, NULL);
        return;
    }
    switch (s->request.op) {
    case UMI_RMA_PUT:
        execute_put(s);
        break;
    case UMI_RMA_GET:
        bytes = piece_of(s);
        reply(s, UMX_OK, &bytes);
        break;
    case UMI_RMA_ATOMIC:
        execute_atomic(s);
        break;
    }
}

/* ---- requests ------------------------------------------------------------
 */

static bool
decode(umx_ep *ep, const umx_message *message, umi_rma_request *request)
{
    size_t      len;
    const void *header = umx_message_header(message, &len);

    if (umi_codec_rma_request_decode(request, header, len,
                                     umx_message_info(message)->length)) {
        return true;
    }
    umi_endpoint_protocol_error(ep, "malformed request for memory");
    return false;
}

/* True if the request must wait for those before it. */
static bool
has_to_wait(const umi_rma *rma, const umi_rma_request *request)
{
    return rma->num_serving >= MAX_SERVING ||
           ((request->flags & UMI_RMA_FENCE) && rma->num_serving != 0);
}

static void
serve(umx_ep *ep, umx_message *message, const umi_rma_request *request)
{
    serving *s = calloc(1, sizeof(*s));

    if (s == NULL) {
        umi_endpoint_protocol_error(ep, "out of memory for a request");
        umx_message_drop(message);
        return;
    }
    s->ep      = ep;
    s->message = message;
    s->request = *request;
    umi_ep_base_hold(&ep->base);
    ep->rma->num_serving++;
    execute(s);
}

/* Execute the requests that wait, in their order, until one has to wait again.
 */
static void
run_held(umx_ep *ep)
{
    umi_rma *rma = ep->rma;

    if (rma->is_running_held) {
        return; /* further up */
    }
    rma->is_running_held = true;
    while (!umi_list_is_empty(&rma->held)) {
        umx_message    *message = umi_message_at(rma->held.next);
        umi_rma_request request;

        if (!decode(ep, message, &request) || has_to_wait(rma, &request)) {
            break;
        }
        umi_node_remove(&message->node);
        serve(ep, message, &request);
    }
    rma->is_running_held = false;
}

void
umi_target_on_request(umx_ep *ep, umx_message *message, void *arg)
{
    umi_rma        *rma = umi_rma_get_state(ep);
    umi_rma_request request;

    (void)arg;
    if (rma == NULL) {
        umi_endpoint_protocol_error(ep, "out of memory for a request");
    }
    if (rma == NULL || !decode(ep, message, &request)) {
        umx_message_drop(message);
        return;
    }
    if (!umi_list_is_empty(&rma->held) || has_to_wait(rma, &request)) {
        umi_node_remove(&message->node); /* from its channel's `taken` */
        umi_list_append(&rma->held, &message->node);
    } else {
        serve(ep, message, &request);
    }
}

/* ---- the end -------------------------------------------------------------
 */

void
umi_target_finish(umx_ep *ep)
{
    while (!umi_list_is_empty(&ep->rma->held)) {
        umx_message *message = umi_message_at(ep->rma->held.next);

        umi_node_remove(&message->node);
        umx_message_drop(message);
    }
}
