/* SPDX-License-Identifier: BSD-3-Clause */
/* event.c: events, each of the context in which it was made. */
#include <stdlib.h>

#include "standin/internal.h"

enum {
    DISABLE_TIMING = 2
};

static cu_event *events;

/* It is there, and its context too. */
static int
check(const cu_event *event)
{
    const cu_event *e = events;

    while (e != NULL && e != event) {
        e = e->next;
    }
    if (e == NULL) {
        return INVALID_HANDLE;
    }
    return e->context->is_destroyed ? CONTEXT_DESTROYED : OK;
}

int
cuEventCreate(cu_event **event_p, unsigned flags)
{
    cu_event *event;

    ENTER(CONTEXT);
    event = calloc(1, sizeof(*event));
    if (event == NULL) {
        LEAVE(OUT_OF_MEMORY);
    }
    event->context  = standin_context();
    event->has_time = !(flags & DISABLE_TIMING);
    event->next     = events;
    events          = event;
    *event_p        = event;
    LEAVE(OK);
}

int
cuEventDestroy_v2(cu_event *event)
{
    cu_event **link = &events;

    ENTER(TOLERANT);
    if (check(event) == INVALID_HANDLE) {
        LEAVE(INVALID_HANDLE);
    }
    while (*link != event) {
        link = &(*link)->next;
    }
    *link = event->next;
    standin_release(event->mark);
    free(event);
    LEAVE(OK);
}

/* In a stream that captures nothing is queued. */
static int
record(cu_event *event, cu_stream *handle)
{
    cu_stream *stream;
    mark      *m;
    int        result = check(event);

    if (result == OK) {
        result = standin_stream_of(handle, &stream);
    }
    if (result != OK) {
        return result;
    }
    if (stream->context != event->context) {
        return INVALID_HANDLE;
    }
    event->capture = stream->capture;
    if (stream->capture != NULL) {
        return stream->capture->is_invalid ? CAPTURE_INVALIDATED : OK;
    }
    m = calloc(1, sizeof(*m));
    if (m == NULL) {
        return OUT_OF_MEMORY;
    }
    m->refs = 2;
    result  = standin_queue(handle, (op){.what = OP_MARK, .mark = m});
    if (result != OK) {
        free(m);
        return result;
    }
    standin_release(event->mark);
    event->mark = m;
    return OK;
}

int
cuEventRecord(cu_event *event, cu_stream *stream)
{
    ENTER(0);
    LEAVE(record(event, stream));
}

/* An event that was recorded in a capture cannot be asked. */
static int
check_asked(const cu_event *event)
{
    int result = check(event);

    if (result == OK && event->capture != NULL) {
        standin_invalidate(event->capture);
        result = CAPTURED_EVENT;
    }
    return result;
}

int
cuEventQuery(cu_event *event)
{
    int result;

    ENTER(UNSAFE);
    result = check_asked(event);
    if (result == OK && event->mark != NULL && !event->mark->is_done) {
        result = NOT_READY;
    }
    LEAVE(result);
}

int
cuEventSynchronize(cu_event *event)
{
    int result;

    ENTER(UNSAFE);
    result = check_asked(event);
    if (result == OK && event->mark != NULL) {
        mark *m = event->mark;

        m->refs++;
        result = standin_wait(m);
        standin_release(m);
    }
    LEAVE(result);
}

int
cuEventElapsedTime(float *ms_p, cu_event *begin, cu_event *end)
{
    ENTER(0);
    if (check_asked(begin) != OK || check_asked(end) != OK ||
        !begin->has_time || !end->has_time || begin->mark == NULL ||
        end->mark == NULL) {
        LEAVE(INVALID_HANDLE);
    }
    if (!begin->mark->is_done || !end->mark->is_done) {
        LEAVE(NOT_READY);
    }
    *ms_p =
        (float)((double)(end->mark->time.tv_sec - begin->mark->time.tv_sec) *
                    1e3 +
                (double)(end->mark->time.tv_nsec - begin->mark->time.tv_nsec) /
                    1e6);
    LEAVE(OK);
}

/* An event of a capture takes the stream into that. */
static int
wait_event(cu_stream *handle, cu_event *event)
{
    cu_stream *stream;
    int        result = check(event);

    if (result == OK) {
        result = standin_stream_of(handle, &stream);
    }
    if (result != OK) {
        return result;
    }
    if (event->capture != NULL) {
        stream->capture = event->capture;
        return OK;
    }
    if (event->mark == NULL) {
        return OK;
    }
    event->mark->refs++;
    if (stream->capture == NULL) {
        result = standin_queue(handle,
                               (op){.what = OP_WAIT, .mark = event->mark});
    }
    if (result != OK || stream->capture != NULL) {
        event->mark->refs--;
    }
    return result;
}

int
cuStreamWaitEvent(cu_stream *stream, cu_event *event, unsigned flags)
{
    (void)flags;
    ENTER(0);
    LEAVE(wait_event(stream, event));
}

void
standin_forget_capture(const capture *c)
{
    for (cu_event *e = events; e != NULL; e = e->next) {
        if (e->capture == c) {
            e->capture = NULL;
        }
    }
}
