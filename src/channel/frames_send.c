/* SPDX-License-Identifier: BSD-3-Clause */
/* frames_send.c: sending many buffers; see frames.h for what goes over the
 * wire.
 *
 * From config.frames_alone_min on a frame is a part of its own: the rendezvous
 * moves it from one memory into the other, in company it would not. Smaller
 * ones are in the head if that goes eagerly then: copied together up to
 * config.frames_copy_max, beyond gathered by UCX. If they are too many for
 * that, they are in parts that UCX gathers: one by rendezvous costs less than
 * several that go eagerly. Smaller ones in memory of a device are in parts that
 * the device gathers, where the peer fetches them (bounce/bounce.h), else
 * alone, too. */
#include <stdlib.h>
#include <umx/frames.h>

#include "bounce/bounce.h"
#include "channel/channel.h"
#include "channel/frames.h"
#include "mem/memtype.h"

enum {
    RUN_MAX = 1024 * 1024 /* bytes of a part of several frames */
};

/* The plan of a message: what is decided for all frames together. */
typedef struct plan {
    const umx_config *config;
    const umx_buffer *buffers;
    size_t            count;
    const void       *header;
    size_t            header_len;
    bool              is_packed;  /* small frames are in the head */
    bool              is_fetched; /* by the peer, what a device has */
    size_t            num_packed;
    size_t            packed; /* bytes of frames in the head */
    size_t            table;  /* bytes in front of the user's header */
    size_t            num_parts;
} plan;

/* A walk over the frames. */
typedef struct walk {
    size_t run; /* bytes of the part that small frames go into */
    bool   is_of_device;
} walk;

static bool
is_of_device(const umx_buffer *buf)
{
    return !umi_memtype_is_host_readable(buf);
}

static bool
is_alone(const plan *p, const umx_buffer *buf)
{
    return buf->len >= p->config->frames_alone_min ||
           (is_of_device(buf) && !p->is_fetched);
}

/* True if the bytes of a frame that has some are in the head. */
static bool
is_in_head(const plan *p, const umx_buffer *buf)
{
    return p->is_packed && !is_of_device(buf) && !is_alone(p, buf);
}

static unsigned
place_of(const plan *p, walk *w, const umx_buffer *buf)
{
    if (buf->len == 0 || is_in_head(p, buf)) {
        return UMI_FRAME_IN_HEAD;
    }
    if (is_alone(p, buf)) {
        w->run = 0;
        return UMI_FRAME_BEGINS;
    }
    if (w->run == 0 || w->is_of_device != is_of_device(buf) ||
        w->run + buf->len > RUN_MAX) {
        w->run          = buf->len;
        w->is_of_device = is_of_device(buf);
        return UMI_FRAME_BEGINS;
    }
    w->run += buf->len;
    return UMI_FRAME_GOES_ON;
}

static uint64_t
entry_of(const umx_buffer *buf, unsigned place)
{
    return umi_frame_entry(buf->len, place, buf->memtype == UMX_MEMTYPE_CUDA);
}

static size_t
head_size(const plan *p)
{
    return p->table + p->header_len + p->packed;
}

static void
measure(plan *p)
{
    walk w = {0};

    p->table  = umi_varint_size(p->count) + umi_varint_size(p->header_len);
    p->packed = p->num_packed = p->num_parts = 0;
    for (size_t i = 0; i < p->count; i++) {
        const umx_buffer *buf   = &p->buffers[i];
        unsigned          place = place_of(p, &w, buf);

        p->table += umi_varint_size(entry_of(buf, place));
        if (place == UMI_FRAME_IN_HEAD) {
            p->packed += buf->len;
            p->num_packed += (buf->len != 0);
        }
        p->num_parts += (place == UMI_FRAME_BEGINS);
    }
}

/* Plan the message: small frames go in the head if that goes eagerly then. */
static void
make_plan(const umx_ep *ep, plan *p)
{
    p->is_packed = true;
    measure(p);
    if (p->packed > UMI_FRAMES_PACKED_MAX ||
        (p->packed > p->config->frames_copy_max &&
         umi_channel_is_long(ep, head_size(p)))) {
        p->is_packed = false;
        measure(p);
    }
}

static umx_status
check(umx_ep *ep, plan *p)
{
    uint64_t   bytes  = 0;
    umx_status status = umi_endpoint_check(ep);

    if (status == UMX_OK) {
        status = umi_endpoint_send_status(ep);
    }
    if (status != UMX_OK) {
        return status;
    }
    p->config     = &umi_endpoint_worker(ep)->context->config;
    p->is_fetched = umi_bounce_is_agreed(&ep->base);
    if ((p->header == NULL && p->header_len != 0) ||
        (p->buffers == NULL && p->count != 0)) {
        return UMX_ERR_INVALID_PARAM;
    }
    if (p->header_len > UMX_FRAMES_HEADER_MAX) {
        return UMX_ERR_OUT_OF_RANGE;
    }
    if (p->count > p->config->frames_max) {
        return UMX_ERR_EXCEEDS_LIMIT;
    }
    for (size_t i = 0; i < p->count; i++) {
        status = umi_endpoint_check_buffer(&p->buffers[i]);
        if (status != UMX_OK) {
            return status;
        }
        if (p->buffers[i].len > p->config->frames_bytes_max - bytes) {
            return UMX_ERR_EXCEEDS_LIMIT;
        }
        bytes += p->buffers[i].len;
    }
    return UMX_OK;
}

/* ---- what is sent --------------------------------------------------------
 */

/* The table and the user's header; where they end. */
static uint8_t *
write_head(const plan *p, uint8_t *pos)
{
    walk w = {0};

    pos = umi_varint_write(pos, p->count);
    pos = umi_varint_write(pos, p->header_len);
    for (size_t i = 0; i < p->count; i++) {
        unsigned place = place_of(p, &w, &p->buffers[i]);

        pos = umi_varint_write(pos, entry_of(&p->buffers[i], place));
    }
    if (p->header_len != 0) {
        memcpy(pos, p->header, p->header_len);
    }
    return pos + p->header_len;
}

/* True if frame `i` is one of those with bytes in the head. */
static bool
is_packed(const plan *p, size_t i)
{
    return p->buffers[i].len != 0 && is_in_head(p, &p->buffers[i]);
}

static umx_status
copy_head(const plan *p, umx_message *memory)
{
    umx_status status = UMX_OK;
    uint8_t   *pos;

    if (!umi_message_make_room(memory, head_size(p))) {
        return UMX_ERR_NO_MEMORY;
    }
    pos = write_head(p, memory->data);
    for (size_t i = 0; i < p->count && status == UMX_OK; i++) {
        if (is_packed(p, i)) {
            status = umi_copy_out(&p->buffers[i], pos, p->buffers[i].len);
            pos += p->buffers[i].len;
        }
    }
    return status;
}

static umi_gather *
new_gather(umx_message *memory, size_t count, size_t extra)
{
    if (!umi_message_make_room(memory, umi_gather_size(count) + extra)) {
        return NULL;
    }
    umi_gather_init(memory->data);
    return memory->data;
}

static umx_status
gather_head(const plan *p, umx_message *memory, umi_gather **gather_p)
{
    size_t      own    = p->table + p->header_len;
    umi_gather *gather = new_gather(memory, 1 + p->num_packed, own);
    umx_buffer  front;

    if (gather == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    front = umx_host_buffer(&gather->pieces[1 + p->num_packed], own);
    (void)write_head(p, front.data);
    umi_gather_add(gather, &front);
    for (size_t i = 0; i < p->count; i++) {
        if (is_packed(p, i)) {
            umi_gather_add(gather, &p->buffers[i]);
        }
    }
    *gather_p = gather;
    return UMX_OK;
}

static umx_status
post_head(umx_ep *ep, umi_outgoing *what, const plan *p,
          const umx_op_params *params, umx_request **req_p)
{
    umx_status status = UMX_ERR_NO_MEMORY;
    umx_buffer buf;

    what->gather = NULL;
    what->memory = umi_message_empty(ep);
    if (what->memory != NULL) {
        status = (p->packed != 0 && head_size(p) > p->config->frames_copy_max) ?
                     gather_head(p, what->memory, &what->gather) :
                     copy_head(p, what->memory);
    }
    if (status != UMX_OK) {
        if (what->memory != NULL) {
            umi_message_free(what->memory);
        }
        return status;
    }
    buf = umx_host_buffer(what->memory->data, head_size(p));
    return umi_channel_send(ep, what, &buf, params, req_p);
}

/* The part of several frames that begins with frame `*i_p`; what comes after
 * it. */
static umx_status
post_run(umx_ep *ep, umi_outgoing *what, const plan *p, size_t *i_p,
         const umx_op_params *params, umx_request **req_p)
{
    size_t      end = *i_p + 1, count = 1;
    walk        w = {0};
    umi_gather *gather;
    umx_buffer  buf;

    (void)place_of(p, &w, &p->buffers[*i_p]);
    for (; end < p->count; end++) {
        unsigned place = place_of(p, &w, &p->buffers[end]);

        if (place == UMI_FRAME_BEGINS) {
            break;
        }
        count += (place == UMI_FRAME_GOES_ON);
    }
    what->gather = NULL;
    what->memory = NULL;
    if (count == 1) {
        const umx_buffer *alone = &p->buffers[*i_p];

        *i_p = end;
        return umi_channel_send(ep, what, alone, params, req_p);
    }
    what->memory = umi_message_empty(ep);
    gather = (what->memory != NULL) ? new_gather(what->memory, count, 0) : NULL;
    if (gather == NULL) {
        if (what->memory != NULL) {
            umi_message_free(what->memory);
        }
        return UMX_ERR_NO_MEMORY;
    }
    for (; *i_p < end; ++*i_p) {
        if (p->buffers[*i_p].len != 0 && !is_packed(p, *i_p)) {
            umi_gather_add(gather, &p->buffers[*i_p]);
        }
    }
    what->gather = gather;
    buf          = umx_host_buffer(gather, gather->len);
    return umi_channel_send(ep, what, &buf, params, req_p);
}

/* ---- a send of several messages ------------------------------------------
 */

static const umi_request_ops send_ops = {
    .name   = "frames_send",
    .cancel = umi_split_send_cancel,
};

/* The head, then the parts. Cut in the middle the channel cannot go on. */
static umx_status
send_all(umx_ep *ep, umx_request *req, umi_outgoing *what, const plan *p)
{
    umx_op_params params = {.flags      = UMI_OP_FLAG_INTERNAL,
                            .field_mask = UMX_OP_FIELD_FLAGS |
                                          UMX_OP_FIELD_ON_DONE |
                                          UMX_OP_FIELD_ON_LOST,
                            .on_done = umi_split_send_on_done,
                            .on_lost = umi_request_lose_whole,
                            .arg     = req};
    umx_request  *ignored;
    umx_status    status = post_head(ep, what, p, &params, &ignored);
    size_t        i      = 0;

    while (status >= 0) {
        umi_split_send_of(req)->count++;
        umi_split_send_of(req)->pending += (status == UMX_INPROGRESS);
        while (i < p->count && (p->buffers[i].len == 0 || is_packed(p, i))) {
            i++;
        }
        if (i == p->count) {
            break;
        }
        status = post_run(ep, what, p, &i, &params, &ignored);
    }
    if (status < 0 && umi_split_send_of(req)->count != 0) {
        umi_endpoint_finish(ep, UMX_EP_FAILED, status);
        umi_split_send_of(req)->status = status;
    }
    if (umi_split_send_of(req)->pending != 0) {
        return UMX_INPROGRESS;
    }
    return (status < 0) ? status : UMX_OK;
}

static umx_status
send_parts(umx_ep *ep, umi_outgoing *what, const plan *p,
           const umx_op_params *params, umx_request **req_p)
{
    umx_request *req = umi_request_new(ep->base.worker, &ep->base, &send_ops,
                                       params);
    umx_status   status;

    if (req == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    req->buf                        = (umx_buffer){0};
    umi_split_send_of(req)->channel = umi_channel_get(ep, what->channel);
    umi_split_send_of(req)->count   = 0;
    umi_split_send_of(req)->pending = 0;
    umi_split_send_of(req)->status  = UMX_OK;
    what->is_part                   = true;
    status = (umi_split_send_of(req)->channel != NULL) ?
                 send_all(ep, req, what, p) :
                 UMX_ERR_NO_MEMORY;
    if (status != UMX_INPROGRESS) {
        umi_request_free(req);
        return status;
    }
    *req_p = req;
    return UMX_INPROGRESS;
}

UMI_LOCKED(umx_status, umx_frames_send, umi_endpoint_worker(ep),
           (umx_ep * ep, uint16_t channel, const void *header,
            size_t header_len, const umx_buffer *buffers, size_t count,
            const umx_op_params *params, umx_request **req_p),
           (ep, channel, header, header_len, buffers, count, params, req_p))

umx_status
umx_frames_send(umx_ep *ep, uint16_t channel, const void *header,
                size_t header_len, const umx_buffer *buffers, size_t count,
                const umx_op_params *params, umx_request **req_p)
{
    if (UMI_IS_UNLOCKED_IF_ANY(umi_endpoint_worker(ep))) {
        return umx_frames_send_locked(ep, channel, header, header_len, buffers,
                                      count, params, req_p);
    }
    umi_outgoing what = {
        .channel = umi_header_channel_id(UMI_KIND_FRAMES, channel),
        .flags   = UMI_FLAG_UNTAGGED};
    plan       p      = {.buffers    = buffers,
                         .count      = count,
                         .header     = header,
                         .header_len = header_len};
    umx_status status = check(ep, &p);

    if (status != UMX_OK) {
        return status;
    }
    make_plan(ep, &p);
    return (p.num_parts == 0) ? post_head(ep, &what, &p, params, req_p) :
                                send_parts(ep, &what, &p, params, req_p);
}
