/* SPDX-License-Identifier: BSD-3-Clause */
/* capture.c: that streams capture graphs. There are no graphs: what would be in
 * one is not done. A call that must not be made meanwhile fails, and ends what
 * is captured. */
#include <stdlib.h>

#include "standin/internal.h"

enum {
    MODE_GLOBAL       = 0,
    MODE_THREAD_LOCAL = 1,
    MODE_RELAXED      = 2,
    STATUS_NONE       = 0,
    STATUS_ACTIVE     = 1,
    STATUS_INVALID    = 2
};

static _Thread_local int thread_mode = MODE_GLOBAL;
static char              graph; /* what all graphs point to */

void
standin_invalidate(capture *c)
{
    c->is_invalid = true;
}

/* Would an unsafe call of this thread be a fault in it? */
static bool
is_in_the_way(const capture *c)
{
    if (c->is_invalid || c->mode == MODE_RELAXED ||
        thread_mode == MODE_RELAXED) {
        return false;
    }
    if (pthread_equal(c->thread, pthread_self())) {
        return true;
    }
    return c->mode == MODE_GLOBAL && thread_mode == MODE_GLOBAL;
}

int
standin_check_capture(void)
{
    int result = OK;

    for (cu_stream *s = standin_streams(); s != NULL; s = s->next) {
        if (s->capture != NULL && is_in_the_way(s->capture)) {
            standin_invalidate(s->capture);
            result = CAPTURE_UNSUPPORTED;
        }
    }
    return result;
}

int
cuThreadExchangeStreamCaptureMode(int *mode_p)
{
    int mode;

    ENTER(TOLERANT);
    mode = *mode_p;
    if (mode < MODE_GLOBAL || mode > MODE_RELAXED) {
        LEAVE(INVALID_VALUE);
    }
    *mode_p     = thread_mode;
    thread_mode = mode;
    LEAVE(OK);
}

int
cuStreamIsCapturing(cu_stream *handle, int *status_p)
{
    cu_stream *stream;
    int        result;

    ENTER(0);
    result = standin_stream_of(handle, &stream);
    if (result == OK) {
        *status_p = (stream->capture == NULL)   ? STATUS_NONE :
                    stream->capture->is_invalid ? STATUS_INVALID :
                                                  STATUS_ACTIVE;
    }
    LEAVE(result);
}

int
cuStreamBeginCapture_v2(cu_stream *handle, int mode)
{
    cu_stream *stream;
    capture   *c;
    int        result;

    ENTER(0);
    result = standin_stream_of(handle, &stream);
    if (result != OK) {
        LEAVE(result);
    }
    if (stream == stream->context->legacy) {
        LEAVE(CAPTURE_UNSUPPORTED);
    }
    if (stream->capture != NULL) {
        LEAVE(ILLEGAL_STATE);
    }
    c = calloc(1, sizeof(*c));
    if (c == NULL) {
        LEAVE(OUT_OF_MEMORY);
    }
    c->origin       = stream;
    c->mode         = mode;
    c->thread       = pthread_self();
    stream->capture = c;
    LEAVE(OK);
}

/* All streams that it has taken are as before. */
static void
end(capture *c)
{
    for (cu_stream *s = standin_streams(); s != NULL; s = s->next) {
        if (s->capture == c) {
            s->capture = NULL;
        }
    }
    standin_forget_capture(c);
    free(c);
}

int
cuStreamEndCapture(cu_stream *handle, void **graph_p)
{
    cu_stream *stream;
    capture   *c;
    int        result;

    ENTER(0);
    result = standin_stream_of(handle, &stream);
    if (result != OK) {
        LEAVE(result);
    }
    c = stream->capture;
    if (c == NULL || c->origin != stream) {
        LEAVE(ILLEGAL_STATE);
    }
    if (c->mode != MODE_RELAXED && !pthread_equal(c->thread, pthread_self())) {
        LEAVE(CAPTURE_WRONG_THREAD);
    }
    *graph_p = c->is_invalid ? NULL : &graph;
    result   = c->is_invalid ? CAPTURE_INVALIDATED : OK;
    end(c);
    LEAVE(result);
}

int
cuGraphDestroy(void *which)
{
    ENTER(0);
    LEAVE(which == &graph ? OK : INVALID_VALUE);
}
