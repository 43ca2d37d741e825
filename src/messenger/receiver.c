/* SPDX-License-Identifier: BSD-3-Clause */
/* clang-format off */
/* listener.c: messages that come, one after the other.
 *
 *   IDLE --receive--> RECEIVING --> HELD --one--> LANDING --> LANDED --> IDLE
 *                                    |
 *                                    +--pack--> PACKED --each entry--> IDLE
 *
 * RECEIVING and LANDING wait for libumx; what else there is to do, run() does.
 * Every callback may stop or destroy the listener: it lasts until run() or the
 * operation is over, and looks at its state again. */
/* clang-format on */
#include <stdlib.h>
#include <umx/am.h>
#include <umx/channel.h>

#include "codec/pack.h"
#include "mem/memtype.h"
#include "util/refcnt.h"
#include "worker/ep_base.h"
#include "worker/worker.h"

typedef enum state {
    IDLE,
    RECEIVING,
    HELD, /* `message`, not looked at */
    PACKED,
    LANDING,
    LANDED, /* with `status` */
    FAILED, /* the same, of receiving */
    ENDED
} state;

struct umx_message_listener {
    umx_ep                     *ep; /* held until it is ENDED */
    umx_message_listener_params params;
    state                       state;
    umi_refs                    refs; /* the user, the operation, run() */
    bool                        is_running;
    bool                        is_stopped;
    bool                        is_destroyed;
    bool                        is_lost; /* LANDING, and will for ever */
    bool                        is_told; /* that it is over */
    umx_request                *op;
    umx_status                  status;
    umx_message                *message;  /* ours to give back; or NULL */
    umi_reader                  pack;     /* what is left of it */
    umx_message_receiver        receiver; /* of what is LANDING */
    umx_frame                  *frames;   /* of a message in a pack */
    umx_buffer                 *buffers;
    size_t                      num_buffers; /* of these in use */
    size_t                      capacity;    /* of both */
    const char                 *reason;
};

static void run_all(umx_message_listener *listener);

/* NULL: it is gone, or nothing of the listener is under it any more. */
static umx_worker *
worker_of(const umx_message_listener *listener)
{
    return (listener->ep != NULL) ? umi_ep_base_of(listener->ep)->worker : NULL;
}

/* ---- life ----------------------------------------------------------------
 */

static void
put(umx_message_listener *listener)
{
    if (!umi_refs_put(&listener->refs)) {
        return;
    }
    if (listener->ep != NULL) {
        umi_ep_base_release(umi_ep_base_of(listener->ep));
    }
    free(listener->frames);
    free(listener->buffers);
    free(listener);
}

static void
tell_end(umx_message_listener *listener)
{
    if (listener->is_told) {
        return;
    }
    listener->is_told = true;
    if (!listener->is_destroyed && listener->params.on_end != NULL) {
        listener->params.on_end(listener, listener->status,
                                listener->params.arg);
    }
}

static void
finish(umx_message_listener *listener)
{
    umx_ep *ep = listener->ep;

    listener->state = ENDED;
    listener->ep    = NULL;
    tell_end(listener);
    umi_ep_base_release(umi_ep_base_of(ep));
}

static void
drop_message(umx_message_listener *listener)
{
    umx_message *message = listener->message;

    listener->message = NULL;
    listener->state   = IDLE;
    if (message != NULL) {
        umx_message_drop(message);
    }
}

/* The peer sent what is no message. */
static void
refuse(umx_message_listener *listener, const char *why)
{
    listener->reason = why;
    drop_message(listener);
    umx_ep_abort(listener->ep);
    listener->status = UMX_ERR_PROTOCOL;
    listener->state  = FAILED;
}

static void
get_ready(umx_message_listener *listener)
{
    if (listener->is_destroyed || listener->params.on_ready == NULL) {
        run_all(listener);
    } else {
        listener->params.on_ready(listener, listener->params.arg);
    }
}

/* An operation is over. */
static void
go_on(umx_message_listener *listener)
{
    listener->op = NULL;
    get_ready(listener);
    put(listener);
}

/* ---- one message ---------------------------------------------------------
 */

static bool
make_room(umx_message_listener *listener, size_t count)
{
    size_t      capacity = (listener->capacity != 0) ? listener->capacity : 16;
    umx_frame  *frames;
    umx_buffer *buffers;

    if (count <= listener->capacity) {
        return true;
    }
    while (capacity < count) {
        capacity *= 2;
    }
    frames  = malloc(capacity * sizeof(*frames));
    buffers = malloc(capacity * sizeof(*buffers));
    if (frames == NULL || buffers == NULL) {
        free(frames);
        free(buffers);
        return false;
    }
    free(listener->frames);
    free(listener->buffers);
    listener->frames   = frames;
    listener->buffers  = buffers;
    listener->capacity = capacity;
    return true;
}

static umx_status
check_buffers(const umx_message_listener *listener, const umx_frames_info *info)
{
    for (size_t i = 0; i < info->count; i++) {
        umx_status status = umi_check_buffer(&listener->buffers[i]);

        if (status != UMX_OK) {
            return status;
        }
        if (listener->buffers[i].len < info->frames[i].len) {
            return UMX_ERR_BUFFER_TOO_SMALL;
        }
    }
    return UMX_OK;
}

/* Find out whether somebody wants the message. Then there is memory for its
 * bytes in `buffers`. */
static bool
find_memory(umx_message_listener *listener, const umx_frames_info *info)
{
    umx_metadata          metadata = {info->header, info->header_len};
    umx_message_receiver *receiver = &listener->receiver;
    umx_status            status   = UMX_ERR_NO_MEMORY;

    *receiver = (umx_message_receiver){0};
    if (!listener->params.route(&metadata, receiver, listener->params.arg)) {
        return false;
    }
    if (make_room(listener, info->count)) {
        for (size_t i = 0; i < info->count; i++) {
            listener->buffers[i] = (umx_buffer){0};
        }
        status = receiver->alloc(info, listener->buffers, receiver->arg);
    }
    if (status != UMX_OK) {
        receiver->finish(NULL, 0, status, receiver->arg);
        return false;
    }
    listener->num_buffers = info->count;
    return true;
}

static void
tell_receiver(umx_message_listener *listener, umx_status status)
{
    umx_message_receiver *receiver = &listener->receiver;

    receiver->finish(listener->buffers, listener->num_buffers, status,
                     receiver->arg);
}

static void
on_landed(umx_request *op, umx_status status, void *arg)
{
    umx_message_listener *listener = arg;

    listener->message = umx_request_message(op);
    listener->status  = status;
    listener->state   = LANDED;
    go_on(listener);
}

/* End the listener; on_landed() tells of the memory. */
static void
on_lost(umx_request *op, umx_status status, void *arg)
{
    umx_message_listener *listener = arg;

    (void)op;
    listener->is_lost = true;
    listener->status  = status;
    get_ready(listener);
}

/* A message by itself. */
static void
take_one(umx_message_listener *listener, const umx_frames_info *info)
{
    umx_frames_info what   = *info;
    umx_op_params   params = {.field_mask = UMX_OP_FIELD_ON_DONE |
                                            UMX_OP_FIELD_ON_LOST,
                              .on_done = on_landed,
                              .on_lost = on_lost,
                              .arg     = listener};
    umx_metadata    metadata;

    what.header     = (const uint8_t *)info->header + 1;
    what.header_len = info->header_len - 1;
    metadata        = (umx_metadata){what.header, what.header_len};
    if (!umx_metadata_is_valid(&metadata)) {
        refuse(listener, "the metadata of a message is malformed");
        return;
    }
    if (!find_memory(listener, &what)) {
        drop_message(listener);
        return;
    }
    listener->status = check_buffers(listener, &what);
    if (listener->status == UMX_OK) {
        listener->status = umx_message_recv_frames(
            &listener->message, listener->buffers, what.count, &params,
            &listener->op);
        if (listener->status == UMX_INPROGRESS) {
            umi_refs_get(&listener->refs);
            listener->state = LANDING;
            return;
        }
    }
    listener->state = LANDED;
}

static void
take_landed(umx_message_listener *listener)
{
    tell_receiver(listener, listener->status);
    drop_message(listener);
}

/* ---- a message in a pack -------------------------------------------------
 */

static umx_status
copy_entry(umx_message_listener *listener, const umi_pack_entry *entry)
{
    const uint8_t *pos    = entry->bytes;
    umx_status     status = UMX_OK;

    for (size_t i = 0; i < entry->num_buffers && status == UMX_OK; i++) {
        size_t len = umi_pack_len(entry, i);

        if (len != 0) {
            status = umi_copy_in(&listener->buffers[i], pos, len);
            pos += len;
        }
    }
    return status;
}

/* Tell the receiver of an entry that there is no memory to look at it. */
static void
refuse_entry(umx_message_listener *listener, const umi_pack_entry *entry)
{
    umx_message_receiver receiver = {0};

    if (listener->params.route(&entry->metadata, &receiver,
                               listener->params.arg)) {
        receiver.finish(NULL, 0, UMX_ERR_NO_MEMORY, receiver.arg);
    }
}

static void
hand_out(umx_message_listener *listener, const umi_pack_entry *entry)
{
    umx_frames_info what = {.count      = entry->num_buffers,
                            .len        = entry->len,
                            .header     = entry->metadata.data,
                            .header_len = entry->metadata.len};
    umx_status      status;

    if (!make_room(listener, entry->num_buffers)) {
        refuse_entry(listener, entry);
        return;
    }
    for (size_t i = 0; i < entry->num_buffers; i++) {
        listener->frames[i] = (umx_frame){.len = umi_pack_len(entry, i)};
    }
    what.frames = listener->frames;
    if (!find_memory(listener, &what)) {
        return;
    }
    status = check_buffers(listener, &what);
    if (status == UMX_OK) {
        status = copy_entry(listener, entry);
    }
    tell_receiver(listener, status);
}

/* The next message of a pack. */
static void
take_packed(umx_message_listener *listener)
{
    umi_pack_entry entry;
    const char    *why = umi_pack_read(&listener->pack, &entry);

    if (why != NULL) {
        refuse(listener, why);
        return;
    }
    hand_out(listener, &entry);
    if (listener->state == PACKED && listener->pack.pos == listener->pack.end) {
        drop_message(listener);
    }
}

/* ---- running -------------------------------------------------------------
 */

static void
on_received(umx_request *op, umx_status status, void *arg)
{
    umx_message_listener *listener = arg;

    listener->state  = (status == UMX_OK) ? HELD : FAILED;
    listener->status = status;
    if (status == UMX_OK) {
        listener->message = umx_request_message(op);
    }
    go_on(listener);
}

static void
receive(umx_message_listener *listener)
{
    umx_op_params params = {.field_mask = UMX_OP_FIELD_ON_DONE,
                            .on_done    = on_received,
                            .arg        = listener};
    umx_status    status = umx_frames_recv_message(
           listener->ep, listener->params.channel, &params, &listener->op,
           &listener->message);

    if (status == UMX_INPROGRESS) {
        umi_refs_get(&listener->refs);
        listener->state = RECEIVING;
    } else {
        listener->state  = (status == UMX_OK) ? HELD : FAILED;
        listener->status = status;
    }
}

/* Look at a message: of what kind it is. */
static void
look(umx_message_listener *listener)
{
    const umx_frames_info *info  = umx_message_frames(listener->message);
    const uint8_t         *bytes = info->header;

    if (info->header_len == 0) {
        refuse(listener, "a message has no kind");
    } else if (bytes[0] == UMI_MESSAGE_ONE) {
        take_one(listener, info);
    } else if (bytes[0] == UMI_MESSAGE_PACK && info->count == 0) {
        umi_reader_init(&listener->pack, bytes + 1, info->header_len - 1);
        listener->state = PACKED;
    } else {
        refuse(listener, "a message is of no kind");
    }
}

/* Stop handing out messages. */
static void
stop(umx_message_listener *listener)
{
    umx_message *message = listener->message;

    if (listener->state != FAILED) {
        listener->status = UMX_ERR_CANCELED;
    }
    if (listener->state == HELD) {
        listener->message = NULL;
        umx_message_return(message);
    } else {
        drop_message(listener);
    }
    finish(listener);
}

/* Take one step; true if it handed out a message. */
static bool
step(umx_message_listener *listener)
{
    switch (listener->state) {
    case IDLE:
        receive(listener);
        return false;
    case HELD:
        look(listener);
        return listener->state == IDLE;
    case PACKED:
        take_packed(listener);
        return true;
    case LANDED:
        take_landed(listener);
        return true;
    default:
        finish(listener); /* FAILED */
        return false;
    }
}

static bool
is_waiting(const umx_message_listener *listener)
{
    return listener->state == RECEIVING || listener->state == LANDING ||
           listener->state == ENDED;
}

/* UMX_INPROGRESS: `max` have been handed out. */
static umx_status
run(umx_message_listener *listener, unsigned max)
{
    umx_status status = UMX_OK;

    if (listener->is_running) {
        return UMX_OK;
    }
    listener->is_running = true;
    umi_refs_get(&listener->refs);
    if (listener->is_lost) {
        tell_end(listener);
    }
    while (!is_waiting(listener)) {
        if (listener->is_stopped && listener->state != LANDED) {
            stop(listener);
            break;
        }
        if (max == 0) {
            status = UMX_INPROGRESS;
            break;
        }
        max -= step(listener);
    }
    listener->is_running = false;
    put(listener);
    return status;
}

static void
run_all(umx_message_listener *listener)
{
    while (run(listener, UINT32_MAX) == UMX_INPROGRESS) {
    }
}

umx_status
umx_message_listener_run(umx_message_listener *listener, unsigned max)
{
    UMI_GUARD_IF_ANY(worker_of(listener));
    return run(listener, max);
}

/* ---- public --------------------------------------------------------------
 */

static void
on_soon(umx_worker *worker, umx_status status, void *arg)
{
    umx_message_listener *listener = arg;

    (void)worker;
    listener->is_stopped = listener->is_stopped || status != UMX_OK;
    go_on(listener);
}

/* Start to listen. What is there to do at once is put off: the caller has no
 * listener yet. */
static umx_status
start(umx_message_listener *listener)
{
    umx_status status;

    receive(listener);
    if (listener->state == RECEIVING) {
        return UMX_OK;
    }
    status = umx_worker_submit(umi_ep_base_of(listener->ep)->worker, on_soon,
                               listener);
    if (status == UMX_OK) {
        umi_refs_get(&listener->refs);
    } else if (listener->message != NULL) {
        umx_message_return(listener->message);
    }
    return status;
}

static void
fill_params(umx_message_listener_params       *own,
            const umx_message_listener_params *params)
{
    *own = *params;
    if (!(params->field_mask & UMX_MESSAGE_LISTENER_FIELD_CHANNEL)) {
        own->channel = UMX_MESSAGE_CHANNEL;
    }
    if (!(params->field_mask & UMX_MESSAGE_LISTENER_FIELD_ON_END)) {
        own->on_end = NULL;
    }
    if (!(params->field_mask & UMX_MESSAGE_LISTENER_FIELD_ON_READY)) {
        own->on_ready = NULL;
    }
}

umx_status
umx_message_listener_create(umx_ep                            *ep,
                            const umx_message_listener_params *params,
                            umx_message_listener             **listener_p)
{
    UMI_GUARD_IF_ANY(umi_ep_base_of(ep)->worker);
    umx_worker           *worker = umi_ep_base_of(ep)->worker;
    umx_message_listener *listener;
    umx_status            status;

    if (params->route == NULL) {
        return UMX_ERR_INVALID_PARAM;
    }
    status = (worker != NULL) ? umi_worker_check(worker) : UMX_ERR_CLOSED;
    if (status != UMX_OK) {
        return status;
    }
    listener = calloc(1, sizeof(*listener));
    if (listener == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    fill_params(&listener->params, params);
    listener->ep = ep;
    umi_refs_init(&listener->refs);
    umi_ep_base_hold(umi_ep_base_of(ep));
    status = start(listener);
    if (status != UMX_OK) {
        put(listener);
        return status;
    }
    *listener_p = listener;
    return UMX_OK;
}

void
umx_message_listener_stop(umx_message_listener *listener)
{
    UMI_GUARD_IF_ANY(worker_of(listener));
    listener->is_stopped = true;
    if (listener->op != NULL) {
        umx_request_cancel(listener->op);
    } else if (listener->params.on_ready == NULL) {
        run_all(listener);
    }
}

void
umx_message_listener_destroy(umx_message_listener *listener)
{
    UMI_GUARD_IF_ANY(worker_of(listener));
    listener->is_destroyed = true;
    listener->is_stopped   = true;
    if (listener->op != NULL) {
        umx_request_cancel(listener->op);
    } else {
        run_all(listener);
    }
    put(listener);
}

const char *
umx_message_listener_reason(const umx_message_listener *listener)
{
    return listener->reason;
}
