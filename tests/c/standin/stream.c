/* SPDX-License-Identifier: BSD-3-Clause */
/* stream.c: streams, each with a thread that does what is queued. The legacy
 * default stream waits for those that block, and these wait for it. */
#include <stdlib.h>
#include <string.h>

#include "standin/internal.h"

enum {
    NON_BLOCKING = 1,
    LEGACY       = 1, /* handles of default streams */
    PER_THREAD   = 2  /* here one for all threads of a context */
};

static cu_stream                     *streams;
static _Thread_local const cu_stream *copying; /* where this thread copies */

cu_stream *
standin_streams(void)
{
    return streams;
}

void
standin_forget_copying(void)
{
    copying = NULL;
}

void
standin_set_copying(cu_stream *handle)
{
    copying = handle;
}

void
standin_unlink_stream(const cu_stream *stream)
{
    cu_stream **link = &streams;

    while (*link != stream) {
        link = &(*link)->next;
    }
    *link = stream->next;
}

/* ---- which ---------------------------------------------------------------
 */

static cu_stream *
create(cu_context *context, bool is_nonblocking)
{
    cu_stream *stream = calloc(1, sizeof(*stream));

    if (stream == NULL) {
        abort();
    }
    stream->context        = context;
    stream->is_nonblocking = is_nonblocking;
    stream->next           = streams;
    streams                = stream;
    return stream;
}

static int
default_stream(uintptr_t handle, cu_stream **stream_p)
{
    cu_context *context = standin_context();
    cu_stream **place;

    if (context == NULL || context->is_destroyed) {
        return context == NULL ? INVALID_CONTEXT : CONTEXT_DESTROYED;
    }
    place = (handle == PER_THREAD) ? &context->per_thread : &context->legacy;
    if (*place == NULL) {
        *place = create(context, false);
    }
    *stream_p = *place;
    return OK;
}

int
standin_stream_of(cu_stream *handle, cu_stream **stream_p)
{
    cu_stream *s = streams;

    if ((uintptr_t)handle <= PER_THREAD) {
        return default_stream((uintptr_t)handle, stream_p);
    }
    while (s != NULL && s != handle) {
        s = s->next;
    }
    if (s == NULL || s->is_dead) {
        return INVALID_HANDLE;
    }
    *stream_p = s;
    return s->context->is_destroyed ? CONTEXT_DESTROYED : OK;
}

/* ---- what is queued ------------------------------------------------------
 */

static void
push(cu_stream *stream, op o)
{
    op *queued = malloc(sizeof(*queued));

    standin_free_discarded();
    if (queued == NULL) {
        abort();
    }
    *queued      = o;
    queued->next = NULL;
    if (stream->head == NULL) {
        stream->head = queued;
    } else {
        stream->tail->next = queued;
    }
    stream->tail = queued;
    stream->given++;
    if (!stream->is_up) {
        stream->is_up = true;
        standin_start_stream(stream);
    }
    standin_wake();
}

mark *
standin_mark(cu_stream *stream)
{
    mark *m = calloc(1, sizeof(*m));

    if (m == NULL) {
        abort();
    }
    m->refs = 2; /* the caller's, the stream's */
    push(stream, (op){.what = OP_MARK, .mark = m});
    return m;
}

void
standin_release(mark *m)
{
    if (m != NULL && --m->refs == 0) {
        standin_discard(m);
    }
}

static bool
is_busy(const cu_stream *stream)
{
    return stream->done < stream->given;
}

static void
wait_for(cu_stream *stream, cu_stream *other)
{
    push(stream, (op){.what = OP_WAIT, .mark = standin_mark(other)});
}

/* The implicit order of default streams and the others of a context. */
static int
order(cu_stream *stream)
{
    cu_stream *legacy = stream->context->legacy;

    if (stream != legacy) {
        if (!stream->is_nonblocking && legacy != NULL && is_busy(legacy)) {
            wait_for(stream, legacy);
        }
        return OK;
    }
    for (cu_stream *s = streams; s != NULL; s = s->next) {
        if (s == stream || s->is_nonblocking || s->context != stream->context) {
            continue;
        }
        if (s->capture != NULL) {
            standin_invalidate(s->capture);
            return CAPTURE_IMPLICIT;
        }
        if (is_busy(s)) {
            wait_for(stream, s);
        }
    }
    return OK;
}

int
standin_queue(cu_stream *handle, op o)
{
    cu_stream *stream;
    int        result = standin_stream_of(handle, &stream);

    if (result == OK && stream->capture != NULL) {
        return stream->capture->is_invalid ? CAPTURE_INVALIDATED : OK;
    }
    if (result == OK) {
        result = order(stream);
    }
    if (result == OK) {
        push(stream, o);
    }
    return result;
}

int
standin_wait(mark *m)
{
    while (!m->is_done) {
        standin_await();
    }
    return standin_sticky;
}

void
standin_drain(const cu_context *context)
{
    unsigned count = 0;
    mark   **marks;

    for (cu_stream *s = streams; s != NULL; s = s->next) {
        count++;
    }
    marks = calloc(count + 1, sizeof(*marks));
    if (marks == NULL) {
        abort();
    }
    count = 0;
    for (cu_stream *s = streams; s != NULL; s = s->next) {
        if (is_busy(s) && (context == NULL || s->context == context)) {
            marks[count++] = standin_mark(s);
        }
    }
    for (unsigned i = 0; i < count; i++) {
        (void)standin_wait(marks[i]);
        standin_release(marks[i]);
    }
    free(marks);
}

void
standin_end_streams(cu_context *context)
{
    context->legacy = context->per_thread = NULL;
    for (cu_stream *s = streams; s != NULL; s = s->next) {
        if (s->context == context && s->capture != NULL) {
            standin_invalidate(s->capture);
        }
    }
}

/* ---- the driver ----------------------------------------------------------
 */

int
cuStreamCreate(cu_stream **stream_p, unsigned flags)
{
    ENTER(CONTEXT);
    *stream_p = create(standin_context(), flags & NON_BLOCKING);
    LEAVE(OK);
}

int
cuStreamCreateWithPriority(cu_stream **stream_p, unsigned flags, int priority)
{
    (void)priority;
    ENTER(CONTEXT);
    *stream_p = create(standin_context(), flags & NON_BLOCKING);
    LEAVE(OK);
}

/* What is queued is done yet; then its thread frees it, if it has one. */
int
cuStreamDestroy_v2(cu_stream *handle)
{
    cu_stream *stream;
    int        result;

    ENTER(TOLERANT);
    if ((uintptr_t)handle <= PER_THREAD) {
        LEAVE(INVALID_HANDLE);
    }
    result = standin_stream_of(handle, &stream);
    if (result == INVALID_HANDLE) {
        LEAVE(result);
    }
    stream->is_dead = true;
    standin_wake();
    if (!stream->is_up) {
        standin_unlink_stream(stream);
        free(stream);
    }
    LEAVE(OK);
}

/* Wait for it, or be told that it captures. */
static int
synchronize(cu_stream *handle)
{
    cu_stream *stream;
    mark      *m;
    int        result = standin_stream_of(handle, &stream);

    if (result != OK) {
        return result;
    }
    if (stream->capture != NULL) {
        standin_invalidate(stream->capture);
        return CAPTURE_UNSUPPORTED;
    }
    result = order(stream);
    if (result != OK) {
        return result;
    }
    if (handle == copying && copying != NULL) {
        copying = NULL;
    } else {
        standin.waits++;
        standin.waited = handle;
    }
    m      = standin_mark(stream);
    result = standin_wait(m);
    if (result == OK && stream->context->is_destroyed) {
        result = CONTEXT_DESTROYED;
    }
    standin_release(m);
    return result;
}

int
cuStreamSynchronize(cu_stream *handle)
{
    ENTER(UNSAFE);
    LEAVE(synchronize(handle));
}

int
cuStreamQuery(cu_stream *handle)
{
    cu_stream *stream;
    int        result;

    ENTER(UNSAFE);
    result = standin_stream_of(handle, &stream);
    if (result != OK) {
        LEAVE(result);
    }
    if (stream->capture != NULL) {
        standin_invalidate(stream->capture);
        LEAVE(CAPTURE_UNSUPPORTED);
    }
    LEAVE(is_busy(stream) ? NOT_READY : OK);
}

int
cuStreamGetCtx(cu_stream *handle, cu_context **context_p)
{
    cu_stream *stream;
    int        result;

    ENTER(0);
    result = standin_stream_of(handle, &stream);
    if (result == OK) {
        *context_p = stream->context;
    }
    LEAVE(result);
}

int
cuLaunchHostFunc(cu_stream *stream, cu_host_fn function, void *arg)
{
    ENTER(0);
    LEAVE(standin_queue(
        stream, (op){.what = OP_HOST_FN, .function = function, .arg = arg}));
}

int
cuStreamAddCallback(cu_stream *stream, cu_callback callback, void *arg,
                    unsigned flags)
{
    (void)flags;
    ENTER(0);
    LEAVE(standin_queue(
        stream, (op){.what = OP_CALLBACK, .callback = callback, .arg = arg}));
}
