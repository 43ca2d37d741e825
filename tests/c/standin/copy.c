/* SPDX-License-Identifier: BSD-3-Clause */
/* copy.c: what moves and sets bytes in streams. */
#include <stdlib.h>
#include <string.h>

#include "standin/internal.h"

/* Where one side of a copy is. */
typedef struct side {
    char        *real;
    const range *range; /* NULL: ordinary memory of the host */
} side;

typedef struct sides {
    side dst, src;
} sides;

static bool
find_side(cu_pointer pointer, size_t len, side *side_p)
{
    const range *r = standin_find(pointer);
    size_t       offset;

    if (r == NULL) {
        *side_p = (side){(char *)(uintptr_t)pointer, NULL};
        return true;
    }
    offset  = pointer - (uintptr_t)r->at;
    *side_p = (side){r->real + offset, r};
    return len <= r->len - offset;
}

/* In what kinds of memory the two have to be. */
enum {
    ANY         = 0,
    TO_DEVICE   = 1,
    FROM_DEVICE = 2
};

static bool
find_sides(cu_pointer dst, cu_pointer src, size_t len, int kinds, sides *found)
{
    return find_side(dst, len, &found->dst) &&
           find_side(src, len, &found->src) &&
           (!(kinds & TO_DEVICE) || found->dst.range != NULL) &&
           (!(kinds & FROM_DEVICE) || found->src.range != NULL);
}

/* ---- copies --------------------------------------------------------------
 */

static bool
is_here(const range *r)
{
    return standin_is_of_device(r) && r->device == standin_current();
}

static bool
is_stray(const sides *s, const cu_stream *handle, bool is_async)
{
    bool is_of_device = standin_is_of_device(s->dst.range) ||
                        standin_is_of_device(s->src.range);

    return (is_async && (uintptr_t)handle <= 2) ||
           (is_of_device && !is_here(s->dst.range) && !is_here(s->src.range));
}

/* From ordinary memory, bytes are taken at once; into it, waited for. */
static int
queue(const sides *s, size_t len, cu_stream *handle)
{
    op o = {
        .what = OP_COPY, .dst = s->dst.real, .src = s->src.real, .len = len};
    int result;

    if (s->src.range == NULL && s->dst.range != NULL) {
        o.staged = malloc(len < 8 ? 8 : len);
        if (o.staged == NULL) {
            return OUT_OF_MEMORY;
        }
        memcpy(o.staged, o.src, len);
        o.src = o.staged;
    }
    result = standin_queue(handle, o);
    if (result != OK) {
        free(o.staged);
    }
    return result;
}

static int
settle(cu_stream *handle)
{
    cu_stream *stream;
    mark      *m;
    int        result = standin_stream_of(handle, &stream);

    if (result != OK || stream->capture != NULL) {
        return result;
    }
    m      = standin_mark(stream);
    result = standin_wait(m);
    standin_release(m);
    return result;
}

static int
copy(cu_pointer dst, cu_pointer src, size_t len, int kinds, cu_stream *handle,
     bool is_async)
{
    sides s;
    int   result;

    if (len == 0) {
        return OK;
    }
    if (!find_sides(dst, src, len, kinds, &s)) {
        return INVALID_VALUE;
    }
    result = queue(&s, len, handle);
    if (result != OK) {
        return result;
    }
    standin.copies++;
    standin.strays += is_stray(&s, handle, is_async);
    if (is_async) {
        standin_set_copying(handle);
    }
    return (!is_async || s.dst.range == NULL) ? settle(handle) : OK;
}

int
cuMemcpy(cu_pointer dst, cu_pointer src, size_t len)
{
    ENTER(CONTEXT | UNSAFE);
    LEAVE(copy(dst, src, len, ANY, NULL, false));
}

int
cuMemcpyHtoD_v2(cu_pointer dst, const void *src, size_t len)
{
    ENTER(CONTEXT | UNSAFE);
    LEAVE(copy(dst, (uintptr_t)src, len, TO_DEVICE, NULL, false));
}

int
cuMemcpyDtoH_v2(void *dst, cu_pointer src, size_t len)
{
    ENTER(CONTEXT | UNSAFE);
    LEAVE(copy((uintptr_t)dst, src, len, FROM_DEVICE, NULL, false));
}

int
cuMemcpyDtoD_v2(cu_pointer dst, cu_pointer src, size_t len)
{
    ENTER(CONTEXT | UNSAFE);
    LEAVE(copy(dst, src, len, TO_DEVICE | FROM_DEVICE, NULL, false));
}

int
cuMemcpyAsync(cu_pointer dst, cu_pointer src, size_t len, cu_stream *stream)
{
    ENTER(CONTEXT);
    LEAVE(copy(dst, src, len, ANY, stream, true));
}

int
cuMemcpyHtoDAsync_v2(cu_pointer dst, const void *src, size_t len,
                     cu_stream *stream)
{
    ENTER(CONTEXT);
    LEAVE(copy(dst, (uintptr_t)src, len, TO_DEVICE, stream, true));
}

int
cuMemcpyDtoHAsync_v2(void *dst, cu_pointer src, size_t len, cu_stream *stream)
{
    ENTER(CONTEXT);
    LEAVE(copy((uintptr_t)dst, src, len, FROM_DEVICE, stream, true));
}

int
cuMemcpyDtoDAsync_v2(cu_pointer dst, cu_pointer src, size_t len,
                     cu_stream *stream)
{
    ENTER(CONTEXT);
    LEAVE(copy(dst, src, len, TO_DEVICE | FROM_DEVICE, stream, true));
}

/* ---- bytes that are set --------------------------------------------------
 */

/* Unlike a copy, it runs in the current context. */
static int
fill(cu_pointer pointer, unsigned char value, size_t n, cu_stream *handle)
{
    cu_stream *stream;
    side       dst;
    int        result = standin_stream_of(handle, &stream);

    if (result != OK) {
        return result;
    }
    if (!find_side(pointer, n, &dst) || dst.range == NULL) {
        return INVALID_VALUE;
    }
    if (stream->context != standin_context()) {
        return INVALID_HANDLE;
    }
    return standin_queue(
        handle,
        (op){.what = OP_FILL, .dst = dst.real, .len = n, .value = value});
}

int
cuMemsetD8_v2(cu_pointer pointer, unsigned char value, size_t n)
{
    int result;

    ENTER(CONTEXT | UNSAFE);
    result = fill(pointer, value, n, NULL);
    LEAVE(result == OK ? settle(NULL) : result);
}

int
cuMemsetD8Async(cu_pointer pointer, unsigned char value, size_t n,
                cu_stream *stream)
{
    ENTER(CONTEXT);
    LEAVE(fill(pointer, value, n, stream));
}

/* ---- words ---------------------------------------------------------------
 */

static int
queue_word(op_kind which, cu_stream *stream, cu_pointer pointer, uint32_t value,
           unsigned flags)
{
    side dst;

    if (pointer % 4 != 0 || !find_side(pointer, 4, &dst) || dst.range == NULL) {
        return INVALID_VALUE;
    }
    return standin_queue(
        stream,
        (op){.what = which, .dst = dst.real, .value = value, .flags = flags});
}

int
cuStreamWaitValue32_v2(cu_stream *stream, cu_pointer pointer, uint32_t value,
                       unsigned flags)
{
    ENTER(CONTEXT);
    LEAVE(queue_word(OP_WAIT_VALUE, stream, pointer, value, flags));
}

int
cuStreamWaitValue32(cu_stream *stream, cu_pointer pointer, uint32_t value,
                    unsigned flags)
{
    ENTER(CONTEXT);
    LEAVE(queue_word(OP_WAIT_VALUE, stream, pointer, value, flags));
}

int
cuStreamWriteValue32_v2(cu_stream *stream, cu_pointer pointer, uint32_t value,
                        unsigned flags)
{
    ENTER(CONTEXT);
    LEAVE(queue_word(OP_WRITE_VALUE, stream, pointer, value, flags));
}

int
cuStreamWriteValue32(cu_stream *stream, cu_pointer pointer, uint32_t value,
                     unsigned flags)
{
    ENTER(CONTEXT);
    LEAVE(queue_word(OP_WRITE_VALUE, stream, pointer, value, flags));
}

/* ---- kernels of tests ----------------------------------------------------
 */

static int
launch(cu_stream *handle, op o)
{
    const range *r = standin_find((uintptr_t)o.dst);
    int          result;

    if (r != NULL) {
        o.dst = r->real + (o.dst - r->at);
    }
    if ((uintptr_t)handle > 2 || r == NULL || r->device < 0) {
        return standin_queue(handle, o);
    }
    if (standin_make_primary(r->device) != OK) {
        return INVALID_DEVICE;
    }
    standin_push(standin_context_of(r->device));
    result = standin_queue(handle, o);
    standin_pop();
    return result;
}

int
standin_launch(void *stream, void *data, size_t len, int value, double delay_us)
{
    int result;

    standin_acquire();
    result = launch(stream, (op){.what     = OP_KERNEL,
                                 .dst      = data,
                                 .len      = len,
                                 .value    = (uint32_t)value,
                                 .delay_us = delay_us});
    standin_release_lock();
    return result;
}
